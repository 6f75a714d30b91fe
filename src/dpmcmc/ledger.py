"""What was spent, and under which promise: written down before any row is touched.

A ledger is a list of grants, each a list of (query, cost, count). With a path it lives in a JSON file that is replaced
atomically and flushed to disk before a grant is given out, so that neither a crash nor a second process forgets a spend.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dpmcmc.errors import BudgetExceeded
from dpmcmc.types import Cost, Query, Unit

FORMAT = "dpmcmc-ledger-1"


@dataclass(frozen=True)
class Entry:
    """One kind of query on a grant."""

    query: str  # as printed
    released: str  # what leaves the curator, in words
    cost: Cost
    count: int


def entries(plan: Mapping[Query, int], unit: Unit) -> tuple[Entry, ...]:
    """The bill of a plan: each query with the cost of asking it once."""
    return tuple(Entry(repr(query), query.released, query.cost(unit), count) for query, count in plan.items() if count)


def total_costs(bill: tuple[Entry, ...]) -> dict[Cost, int]:
    """How often each cost occurs: what an accountant needs."""
    totals: dict[Cost, int] = {}
    for entry in bill:
        totals[entry.cost] = totals.get(entry.cost, 0) + entry.count
    return totals


def to_json(bill: tuple[Entry, ...]) -> list[dict[str, Any]]:
    from dpmcmc.accounting import costs

    return [
        {"query": entry.query, "released": entry.released, "cost": costs.to_json(entry.cost), "count": entry.count}
        for entry in bill
    ]


def from_json(items: list[dict[str, Any]]) -> tuple[Entry, ...]:
    from dpmcmc.accounting import costs

    return tuple(Entry(item["query"], item["released"], costs.from_json(item["cost"]), item["count"]) for item in items)


@dataclass
class Ledger:
    """The grants of one table under one promise; `facts` are the public facts that must not change between openings."""

    facts: dict[str, Any]
    path: Path | None = None
    grants: list[tuple[Entry, ...]] = field(default_factory=list)

    @classmethod
    def open(cls, facts: dict[str, Any], path: str | Path | None = None) -> Ledger:
        """A new ledger, or the one already kept at `path` if it speaks of the same table and promise."""
        if path is None or not Path(path).exists():
            return cls(facts, None if path is None else Path(path))
        kept = json.loads(Path(path).read_text())
        if kept.get("format") != FORMAT:
            raise ValueError(f"{path} is not a ledger of this library: name another file")
        for name, value in facts.items():
            if kept["facts"].get(name) != value:
                raise BudgetExceeded(
                    f"the ledger at {path} was opened with {name}={kept['facts'].get(name)}, now it is {value}: "
                    "another table or promise needs another ledger"
                )
        return cls(facts, Path(path), [from_json(grant) for grant in kept["grants"]])

    def record(self, bill: tuple[Entry, ...]) -> None:
        """Write a grant down; returns only when it is on disk."""
        self.grants.append(bill)
        if self.path is None:
            return
        text = json.dumps({"format": FORMAT, "facts": self.facts, "grants": [to_json(g) for g in self.grants]}, indent=1)
        draft = self.path.with_name(self.path.name + ".draft")
        with open(draft, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, self.path)
