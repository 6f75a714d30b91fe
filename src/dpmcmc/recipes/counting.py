"""A small private count before a large release: how many rows can be used, and how many there are
of each kind.

A misspelled label, decimal commas or a column of dates make rows that cannot be used, and a
posterior given none of them costs as much as one given all. So a hundredth of the budget is spent
first on a noisy count, and a public rule says whether the rest is worth spending. The rest is then
spent, or not, after a look at the count: the budget must be shared by a filter.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from dpmcmc.recipes.budgets import multiplier, public_facts
from dpmcmc.types import Key, Plan, Position

# Of the rows, where their number is public: fewer that can be used are a mistake
LEAST_SHARE = 1 / 20
# Of the noise: a count below so many may be that of no rows (the noise reaches it once in 30 000
# runs)
DEVIATIONS = 4.0


class Counting(NamedTuple):
    """What a count asks, and the public numbers that it is compared with."""

    query: Any
    names: tuple[str, ...]  # of the kinds; none where all rows are of one
    deviation: float  # of the noise on each kind
    num_rows: int  # at most
    least: float  # rows that can be used
    least_of_each: float  # rows of each kind

    @property
    def plan(self) -> Plan:
        """What is billed."""
        return {self.query: 1}

    @property
    def total_deviation(self) -> float:
        """Of the noise on all kinds together."""
        return self.deviation * math.sqrt(max(1, len(self.names)))

    @property
    def is_decisive(self) -> bool:
        """Whether a table in good order, with as many rows of each kind, is far from being stopped."""
        return 2 * max(self.least, len(self.names) * self.least_of_each) <= self.num_rows

    def rule(self) -> str:
        """When a run is stopped, in words."""
        of_each = (
            f", or below {self.least_of_each:.0f} with {' or '.join(self.names)}"
            if self.names
            else ""
        )
        return f"below {self.least:.0f} rows that can be used{of_each}"

    def take(self, rng_key: Key, curator: Any, position: Position) -> Counted:
        """Ask for the count, with a grant of its own."""

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
    """Noisy numbers of rows, and the statement of what they cost."""

    counting: Counting
    values: np.ndarray  # of each kind
    statement: Any

    @property
    def total(self) -> float:
        """Rows that can be used."""
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
    """A count that takes `share` of mu^2: from public facts alone."""
    from dpmcmc.queries import Count

    num_rows, budgets = public_facts(curator, "dpmcmc.queries.Count(noise_multiplier)")
    query = Count(multiplier(budgets, share))
    names = () if curator.model.kinds is None else curator.model.kinds.names
    deviation = math.hypot(*(query.deviation(budget.unit) for budget in budgets))
    total = deviation * math.sqrt(max(1, len(names)))
    is_known = all(budget.unit.is_count_public for budget in budgets)
    least = max(LEAST_SHARE * num_rows if is_known else 0.0, DEVIATIONS * total)
    return Counting(query, names, deviation, num_rows, least, DEVIATIONS * deviation)
