"""What everybody may know of a table: all that settings may be chosen from."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from dpmcmc.types import Budget, Model, Unit


@dataclass(frozen=True)
class Facts:
    """Public facts of one owner, as they are now. None of them comes from the rows.

    Example:
        >>> curator.facts.share_left  # doctest: +SKIP
        1.0
    """

    dimension: int  # of a position
    lipschitz: float | None  # proved bounds of the model; None where there is none
    hessian_bound: float | None
    spread: float | None
    self_concordance: float | None
    declared: str  # what was declared of every row, in words
    unit: Unit  # whom the promise protects
    capacity: int  # a bound on the number of rows
    budget: Budget | None
    shared_by: str | None  # how several runs share the budget
    share_left: float  # what part of the budget is left

    @property
    def num_rows(self) -> int | None:
        """The number of rows, or a bound on it, where it is public; `None` where it is private."""
        return self.capacity if self.unit.is_count_public else None

    def to_json(self) -> dict[str, Any]:
        """The facts as JSON."""
        budget = None if self.budget is None else [self.budget.epsilon, self.budget.delta]
        named = {each.name: getattr(self, each.name) for each in dataclasses.fields(self)}
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
        model: its dimension and its proved bounds.
        unit: whom the promise protects.
        capacity: the public bound on the number of rows.
        budget: the promise, if there is one.
        shared_by: how several runs share the budget.
        share_left: what part of it is left.

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
    )


def _number(bound: Any) -> float | None:
    return None if bound is None else float(bound)
