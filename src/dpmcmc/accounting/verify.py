"""Re-verify the claim of a ledger that somebody else wrote: a JSON file, or a posterior saved as NetCDF.

The ledger of a federation holds one ledger, with its own claim, for each owner.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, NamedTuple

from dpmcmc.accounting import accountants, filters
from dpmcmc.accounting.costs import from_json
from dpmcmc.accounting.statement import FEDERATED_FORMAT, FORMAT

ATTRIBUTE = "dpmcmc_ledger"
TOLERANCE = 1e-9
FILTERS = {
    "gaussian-filter": filters.gaussian_filter,
    "zcdp-filter": filters.zcdp_filter,
    "renyi-filter": filters.renyi_filter,
}


class Verdict(NamedTuple):
    """What was claimed, what this library makes of the same entries, and whether that is no more."""

    claimed: float
    recomputed: float
    delta: float
    method: str
    relation: str
    steps: int  # queries in the ledger, all kinds together
    is_reproduced: bool


def read(path: Path) -> dict[str, Any]:
    """The ledger in a JSON file, or in the attribute `dpmcmc_ledger` of a NetCDF file."""
    with path.open("rb") as file:
        start = file.read(8)
    document = json.loads(_netcdf_attribute(path)) if start.startswith(b"\x89HDF") else json.loads(path.read_text())
    if isinstance(document.get(ATTRIBUTE), dict | str):
        document = document[ATTRIBUTE]
    document = json.loads(document) if isinstance(document, str) else document
    for ledger in by_owner(document).values():
        if not isinstance(ledger, dict) or ledger.get("format") != FORMAT:
            found = ledger.get("format") if isinstance(ledger, dict) else type(ledger).__name__
            raise ValueError(f"{path.name} holds no ledger: its format is {found!r}, not {FORMAT!r}")
    return document


def by_owner(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Each owner's ledger by its name. The only owner of a plain ledger has the name ""."""
    if document.get("format") != FEDERATED_FORMAT:
        return {"": document}
    if not isinstance(document.get("owners"), dict) or not document["owners"]:
        raise ValueError("this federated ledger names no owner: there is no claim in it")
    return document["owners"]


def _netcdf_attribute(path: Path) -> str:
    import h5py

    with h5py.File(path, "r") as file:
        for group in (file.get("posterior"), file):
            if group is not None and ATTRIBUTE in group.attrs:
                value = group.attrs[ATTRIBUTE]
                return value.decode() if isinstance(value, bytes) else str(value)
    raise ValueError(f"{path.name} holds no ledger: no attribute {ATTRIBUTE!r} in its posterior group or its root")


def costs_of(document: dict[str, Any]) -> dict[Any, int]:
    """The ledger's costs and counts; equal costs of different queries are added."""
    total: dict[Any, int] = {}
    for entry in document["entries"]:
        count = entry["count"]
        if not isinstance(count, int) or isinstance(count, bool) or count < 0:
            raise ValueError(f"count={count!r} must be a whole number, at least 0")
        cost = from_json(entry["cost"])
        total[cost] = total.get(cost, 0) + count
    return total


def verify(document: dict[str, Any]) -> Verdict:
    """Recompute the claim with its own method. An infinite claim is always reproduced: it promises nothing."""
    claim, costs = document["claim"], costs_of(document)
    claimed, delta, method = float(claim["epsilon"]), float(claim["delta"]), str(claim["method"])
    if math.isnan(claimed) or claimed < 0:
        raise ValueError(f"the claimed epsilon={claimed} is not a number of at least 0")
    recomputed = _recomputed(costs, claimed, delta, method)
    is_reproduced = recomputed <= claimed * (1 + TOLERANCE)
    return Verdict(claimed, recomputed, delta, method, document["neighbours"], sum(costs.values()), is_reproduced)


def _recomputed(costs: dict[Any, int], claimed: float, delta: float, method: str) -> float:
    if method == "none" and math.isinf(claimed):
        return math.inf
    if method == "none" or not costs:
        return accountants.epsilon(costs, delta).epsilon
    if method in FILTERS:
        return claimed if math.isfinite(claimed) and FILTERS[method](claimed, delta).fits(costs) else math.inf
    return accountants.epsilon_by(method, costs, delta)
