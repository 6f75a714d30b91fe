"""A small private count before a large release: how many rows can be used, and how many there are
of each kind.

A misspelled label, decimal commas or a column of dates make rows that cannot be used, and a
posterior given none of them costs as much as one given all. So a hundredth of the budget is spent
first on a noisy count, and a public rule decides whether to spend the rest. Since that decision
depends on the count, the budget must be shared by a filter.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from dpmcmc.recipes.budgets import multiplier, public_facts
from dpmcmc.types import Key, Plan, Position

# Of the rows, where their number is public: fewer that can be used are a mistake
LEAST_SHARE = 1 / 20
# Of the noise: a smaller count may be that of no rows (noise alone is as large once in 30 000 runs)
DEVIATIONS = 4.0


class Counting(NamedTuple):
    """A noisy count to be taken, and the public numbers that it is compared with.

    Attributes:
        query: The query, a `Count`.
        names: The names of the kinds of rows; none where all rows are of one kind.
        deviation: The standard deviation of the noise on each kind.
        num_rows: The largest number of rows there may be.
        least: The smallest count of rows that can be used with which a run goes on.
        least_of_each: The smallest count of rows of each kind.

    Example:
        >>> from dpmcmc.queries import Count
        >>> count = Counting(Count(10.0), ("yes", "no"), 20.0, 1000, 113.0, 80.0)
        >>> count.rule()
        'below 113 rows that can be used, or below 80 with yes or no'
        >>> count.is_decisive
        True
    """

    query: Any
    names: tuple[str, ...]
    deviation: float
    num_rows: int
    least: float
    least_of_each: float

    @property
    def plan(self) -> Plan:
        """What is billed."""
        return {self.query: 1}

    @property
    def total_deviation(self) -> float:
        """The standard deviation of the noise on all kinds together."""
        return self.deviation * math.sqrt(max(1, len(self.names)))

    @property
    def is_decisive(self) -> bool:
        """Whether the count is surely enough for a table in good order with equal kinds."""
        return 2 * max(self.least, len(self.names) * self.least_of_each) <= self.num_rows

    def rule(self) -> str:
        """Below which counts a run stops, in words."""
        of_each = (
            f", or below {self.least_of_each:.0f} with {' or '.join(self.names)}"
            if self.names
            else ""
        )
        return f"below {self.least:.0f} rows that can be used{of_each}"

    def take(self, rng_key: Key, curator: Any, position: Position) -> Counted:
        """Ask for the count, with a grant of its own.

        Args:
            rng_key: The key of the random numbers.
            curator: The curator or federation that is asked.
            position: Any position: the count does not depend on it.

        Returns:
            The noisy numbers.

        Raises:
            BudgetExceeded: The budget does not cover the count.
        """

        def program(ask, key, position):
            return ask(key, self.query, position).value

        position = np.asarray(position, np.float32)
        traced = curator.trace(program, rng_key, position)
        executable = traced.compile()  # what can fail comes before the grant
        grant = curator.grant(traced.plan)
        return Counted(
            self, np.asarray(grant.run(executable, rng_key, position), float), grant.statement()
        )


class Counted(NamedTuple):
    """Noisy numbers of rows, and the statement of what they cost.

    Attributes:
        counting: The count that was taken.
        values: The noisy number of rows of each kind.
        statement: What is promised about the count.

    Example:
        >>> import numpy as np
        >>> from dpmcmc.queries import Count
        >>> count = Counting(Count(10.0), (), 20.0, 1000, 80.0, 80.0)
        >>> counted = Counted(count, np.array([640.3]), statement=None)
        >>> print(counted)
        about 640 of 1000 rows can be used (noise +-20)
        >>> counted.is_enough
        True
    """

    counting: Counting
    values: np.ndarray
    statement: Any

    @property
    def total(self) -> float:
        """The noisy number of rows that can be used."""
        return float(self.values.sum())

    @property
    def is_enough(self) -> bool:
        """Whether the rest of the budget is worth spending."""
        are_all_there = not self.counting.names or bool(
            np.all(self.values >= self.counting.least_of_each)
        )
        return self.total >= self.counting.least and are_all_there

    def __str__(self) -> str:
        of = self.counting
        found = zip(of.names, self.values, strict=False)
        each = ", ".join(f"{max(0, value):.0f} with {name}" for name, value in found)
        kinds = f"; {each} (+-{of.deviation:.0f} each)" if each else ""
        return (
            f"about {max(0, self.total):.0f} of {of.num_rows} rows can be used (noise "
            f"+-{of.total_deviation:.0f}){kinds}"
        )


def counting_for(curator: Any, share: float) -> Counting:
    """A count of the rows that can be used, set from public facts alone.

    Args:
        curator: A `Curator` or a `Federation` with budgets.
        share: The share of the budget's mu^2 that it takes, such as `COUNT_SHARE`.

    Returns:
        The count; its `take` asks for it.

    Raises:
        TypeError: An owner has no budget.

    Example:
        >>> import numpy as np
        >>> import dpmcmc
        >>> rows = np.zeros((3000, 1), np.float32), np.zeros(3000, np.float32)
        >>> model = dpmcmc.models.logistic(1, radius=1.0)
        >>> curator = dpmcmc.Curator(rows, model, dpmcmc.Budget(4.0, 1e-6))
        >>> counting_for(curator, share=0.01).rule()
        'below 150 rows that can be used, or below 68 with label 0 or label 1'
    """
    from dpmcmc.queries import Count

    num_rows, budgets = public_facts(curator, "dpmcmc.queries.Count(noise_multiplier)")
    query = Count(multiplier(budgets, share))
    names = () if curator.model.kinds is None else curator.model.kinds.names
    deviation = math.hypot(*(query.deviation(budget.unit) for budget in budgets))
    total = deviation * math.sqrt(max(1, len(names)))
    is_known = all(budget.unit.is_count_public for budget in budgets)
    least = max(LEAST_SHARE * num_rows if is_known else 0.0, DEVIATIONS * total)
    return Counting(query, names, deviation, num_rows, least, DEVIATIONS * deviation)
