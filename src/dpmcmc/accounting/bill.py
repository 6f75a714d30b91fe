"""The bill of a plan: each query, how often it is asked, and what asking it once costs for a unit
of privacy.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dpmcmc.types import Cost, Query, Unit


@dataclass(frozen=True)
class Entry:
    """One kind of query on a bill."""

    query: str  # as printed
    released: str  # what leaves the curator, in words
    cost: Cost
    count: int


def entries(plan: Mapping[Query, int], unit: Unit) -> tuple[Entry, ...]:
    """The bill of a plan: each query with the cost of asking it once."""
    counts = checked(plan)
    return tuple(
        Entry(repr(query), query.released, _cost(query, unit), count)
        for query, count in counts.items()
        if count
    )


def is_ours(query: Query) -> bool:
    """Whether the query is of this library: the cost of any other is its author's claim."""
    return type(query).__module__.partition(".")[0] == __name__.partition(".")[0]


def _cost(query: Query, unit: Unit) -> Cost:
    from dpmcmc.accounting import costs

    cost = query.cost(unit)
    if not isinstance(cost, costs.Cost):
        raise TypeError(
            f"{type(query).__name__}.cost returned a {type(cost).__name__}: it must return one of "
            "dpmcmc.accounting.costs, such as "
            "Gaussian(noise_multiplier)"
        )
    relation = getattr(cost, "neighbours", unit.neighbours)
    if relation is not unit.neighbours:
        raise ValueError(
            f"{type(query).__name__}.cost({unit}) is for {relation.value}: it must be for the "
            "relation of that unit"
        )
    return cost


def checked(plan: Mapping[Query, int]) -> dict[Query, int]:
    """A copy with whole numbers: NumPy's would wrap around in sums, and a negative one would pay
    for others of the same cost.
    """
    counts = {query: operator.index(count) for query, count in plan.items()}
    if any(count < 0 for count in counts.values()):
        raise ValueError(
            f"a plan counts how often each query is asked: {min(counts.values())} is less than "
            "never"
        )
    return counts


def total_costs(bill: tuple[Entry, ...]) -> dict[Cost, int]:
    """How often each cost occurs: what an accountant needs."""
    totals: dict[Cost, int] = {}
    for entry in bill:
        totals[entry.cost] = totals.get(entry.cost, 0) + entry.count
    return totals


def costs_of(plan: Mapping[Query, int], unit: Unit) -> dict[Cost, int]:
    """How often each cost occurs in a plan; those of different queries may be equal."""
    return total_costs(entries(plan, unit))


def to_json(bill: tuple[Entry, ...]) -> list[dict[str, Any]]:
    from dpmcmc.accounting import costs

    return [
        {
            "query": entry.query,
            "released": entry.released,
            "cost": costs.to_json(entry.cost),
            "count": entry.count,
        }
        for entry in bill
    ]


def from_json(items: list[dict[str, Any]]) -> tuple[Entry, ...]:
    from dpmcmc.accounting import costs

    return tuple(
        Entry(item["query"], item["released"], costs.from_json(item["cost"]), item["count"])
        for item in items
    )
