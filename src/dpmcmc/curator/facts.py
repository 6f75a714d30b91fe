"""What everybody may know of a table: all that settings may be chosen from."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from dpmcmc.curator.whitened.points import row_set
from dpmcmc.domains import RowSet
from dpmcmc.types import Budget, Model, Unit


@dataclass(frozen=True)
class Facts:
    """Public facts of one owner, as they are now. None of them comes from the rows.

    Attributes:
        dimension: The length of a position.
        lipschitz: A proved bound of a row's log-ratio, per unit of move; None where there is none.
        hessian_bound: A proved bound of the Frobenius norm of a row's Hessian.
        spread: A proved bound of a row's gradient's distance from the model's center.
        self_concordance: A proved bound of the third derivative relative to the second.
        declared: What was declared of every row, in words.
        unit: Whom the promise protects.
        capacity: A bound on the number of rows.
        budget: The promise; None where nothing is promised.
        shared_by: How several runs share the budget; None where they do not.
        share_left: The share of the budget that is left, from 0 to 1.
        row_set: The public set of rows, and what a row can contribute in changed coordinates; None
            where the model has no public tables.

    Example:
        >>> import numpy as np
        >>> import dpmcmc
        >>> rows = np.linspace(-1, 1, 10, dtype=np.float32)[:, None]
        >>> model = dpmcmc.models.gaussian([1.0], radius=2.0)
        >>> curator = dpmcmc.Curator(rows, model, dpmcmc.Budget(epsilon=1.0, delta=1e-6))
        >>> facts = curator.facts
        >>> facts.num_rows
        10
        >>> facts.share_left
        1.0
    """

    dimension: int
    lipschitz: float | None
    hessian_bound: float | None
    spread: float | None
    self_concordance: float | None
    declared: str
    unit: Unit
    capacity: int
    budget: Budget | None
    shared_by: str | None
    share_left: float
    row_set: RowSet | None = None

    @property
    def num_rows(self) -> int | None:
        """The number of rows where it is public; None where it is private."""
        return self.capacity if self.unit.is_count_public else None

    def to_json(self) -> dict[str, Any]:
        """The facts as JSON.

        Returns:
            One field for each attribute but `row_set`, and "num_rows".
        """
        budget = None if self.budget is None else [self.budget.epsilon, self.budget.delta]
        names = [each.name for each in dataclasses.fields(self) if each.name != "row_set"]
        named = {name: getattr(self, name) for name in names}
        unit = {
            "neighbours": self.unit.neighbours.value,
            "rows_per_person": self.unit.rows_per_person,
        }
        return named | {"unit": unit, "budget": budget, "num_rows": self.num_rows}


def facts_of(
    model: Model,
    unit: Unit,
    capacity: int,
    budget: Budget | None,
    shared_by: str | None,
    share_left: float,
) -> Facts:
    """The facts of a model and an account.

    Args:
        model: Its dimension and its proved bounds.
        unit: Whom the promise protects.
        capacity: The public bound on the number of rows.
        budget: The promise, if there is one.
        shared_by: How several runs share the budget.
        share_left: The share of it that is left.

    Returns:
        The facts, without the model's functions.
    """
    return Facts(
        dimension=model.dimension,
        lipschitz=_number(model.lipschitz),
        hessian_bound=_number(model.hessian_bound),
        spread=_number(model.spread),
        self_concordance=_number(model.self_concordance),
        declared=model.declared or "",
        unit=unit,
        capacity=capacity,
        budget=budget,
        shared_by=shared_by,
        share_left=share_left,
        row_set=row_set(model),
    )


def _number(bound: Any) -> float | None:
    return None if bound is None else float(bound)
