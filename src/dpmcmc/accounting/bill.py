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
    """One kind of query on a bill.

    Attributes:
        query: The query, as it is printed.
        released: What leaves the curator, in words.
        cost: The cost of asking it once.
        count: How often it is asked.

    Example:
        >>> from dpmcmc.accounting.bill import Entry
        >>> from dpmcmc.accounting.costs import Gaussian
        >>> Entry("mine", "a noisy sum", Gaussian(1.0), 2).count
        2
    """

    query: str  # as printed
    released: str  # what leaves the curator, in words
    cost: Cost
    count: int


def entries(plan: Mapping[Query, int], unit: Unit) -> tuple[Entry, ...]:
    """Return the bill of a plan: each query with the cost of asking it once.

    Args:
        plan: How often each query is asked.
        unit: What is protected.

    Returns:
        The entries of the queries that are asked at all.

    Raises:
        TypeError: The cost of a query is not a `Cost`.
        ValueError: A count is negative, or a cost is for another relation.

    Example:
        >>> import dpmcmc
        >>> from dpmcmc.accounting import bill
        >>> plan = {dpmcmc.queries.LogRatio(clip=1.0, noise_multiplier=2.0): 3}
        >>> [entry.count for entry in bill.entries(plan, dpmcmc.Unit())]
        [3]
    """
    counts = checked(plan)
    return tuple(
        Entry(repr(query), query.released, _cost(query, unit), count)
        for query, count in counts.items()
        if count
    )


def is_ours(query: Query) -> bool:
    """Whether the query is of this library: the cost of any other is its author's claim.

    Args:
        query: The query.

    Returns:
        Whether it is.

    Example:
        >>> import dpmcmc
        >>> from dpmcmc.accounting import bill
        >>> bill.is_ours(dpmcmc.queries.LogRatio(clip=1.0, noise_multiplier=2.0))
        True
    """
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
    """Return a copy of a plan with Python's own integers.

    NumPy's would wrap around in sums, and a negative one would pay for others of the same cost.

    Args:
        plan: How often each query is asked.

    Returns:
        The copy.

    Raises:
        ValueError: A count is negative.

    Example:
        >>> import dpmcmc
        >>> from dpmcmc.accounting import bill
        >>> plan = {dpmcmc.queries.LogRatio(clip=1.0, noise_multiplier=2.0): 3}
        >>> list(bill.checked(plan).values())
        [3]
    """
    counts = {query: operator.index(count) for query, count in plan.items()}
    if any(count < 0 for count in counts.values()):
        raise ValueError(
            f"a plan counts how often each query is asked: {min(counts.values())} is less than "
            "never"
        )
    return counts


def total_costs(bill: tuple[Entry, ...]) -> dict[Cost, int]:
    """Return how often each cost occurs: what an accountant needs.

    Args:
        bill: The entries.

    Returns:
        The counts by cost.

    Example:
        >>> from dpmcmc.accounting import bill
        >>> from dpmcmc.accounting.costs import Gaussian
        >>> entry = bill.Entry("mine", "a noisy sum", Gaussian(1.0), 2)
        >>> list(bill.total_costs((entry, entry)).values())
        [4]
    """
    totals: dict[Cost, int] = {}
    for entry in bill:
        totals[entry.cost] = totals.get(entry.cost, 0) + entry.count
    return totals


def costs_of(plan: Mapping[Query, int], unit: Unit) -> dict[Cost, int]:
    """Return how often each cost occurs in a plan; those of different queries may be equal.

    Args:
        plan: How often each query is asked.
        unit: What is protected.

    Returns:
        The counts by cost.

    Raises:
        TypeError: The cost of a query is not a `Cost`.
        ValueError: A count is negative, or a cost is for another relation.

    Example:
        >>> import dpmcmc
        >>> from dpmcmc.accounting import bill
        >>> plan = {dpmcmc.queries.LogRatio(clip=1.0, noise_multiplier=2.0): 3}
        >>> list(bill.costs_of(plan, dpmcmc.Unit()).values())
        [3]
    """
    return total_costs(entries(plan, unit))


def to_json(bill: tuple[Entry, ...]) -> list[dict[str, Any]]:
    """Return a bill as JSON values.

    Args:
        bill: The entries.

    Returns:
        A list of one object for each entry.

    Example:
        >>> from dpmcmc.accounting import bill
        >>> from dpmcmc.accounting.costs import Gaussian
        >>> bills = (bill.Entry("mine", "a noisy sum", Gaussian(1.0), 2),)
        >>> bill.from_json(bill.to_json(bills)) == bills
        True
    """
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
    """Return the bill that `to_json` was given.

    Args:
        items: What `to_json` returned.

    Returns:
        The entries.

    Raises:
        ValueError: A cost is not one that `to_json` writes.

    Example:
        >>> from dpmcmc.accounting import bill
        >>> from dpmcmc.accounting.costs import Gaussian
        >>> bills = (bill.Entry("mine", "a noisy sum", Gaussian(1.0), 2),)
        >>> bill.from_json(bill.to_json(bills)) == bills
        True
    """
    from dpmcmc.accounting import costs

    return tuple(
        Entry(item["query"], item["released"], costs.from_json(item["cost"]), item["count"])
        for item in items
    )
