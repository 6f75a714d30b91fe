"""Re-verify the claim of a ledger that somebody else wrote: a JSON file, or a posterior saved as
NetCDF.

The ledger of a federation holds one ledger, with its own claim, for each owner.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dpmcmc.accounting import accountants, filters, guess
from dpmcmc.accounting import costs as cost_kinds
from dpmcmc.accounting.reading import (
    added_draws,
    by_owner,
    check_fields,
    checked,
    is_netcdf,
    opened,
    parsed,
)
from dpmcmc.accounting.search import LIMIT
from dpmcmc.accounting.statement import (
    ATTRIBUTE,
    JOINED,
    PRINTED,
    from_json,
    is_one_promise,
    one_line,
    rounded_up,
    weakest,
)
from dpmcmc.errors import BudgetExceeded, PrivacyRefusal
from dpmcmc.types import Neighbours

# The last digits of `pld` depend on the processor: 1e-7 at delta = 1e-10, 1e-10 at 1e-6
TOLERANCE = 1e-6
LEDGER = ("format", "claim", "neighbours", "rows_per_person", "entries", "statement")
CLAIM = ("epsilon", "delta", "method")
ENTRY = ("query", "released", "cost", "count")
STATEMENT = ("chance", "second", "capacity", "budget", "assumptions", "notes")


class Verdict(NamedTuple):
    """What was claimed, and what this library computes from the same entries.

    Attributes:
        claimed: The claimed epsilon.
        recomputed: The epsilon of the entries.
        delta: The claimed delta.
        method: The accountant.
        relation: Which tables are neighbours.
        rows_per_person: The largest number of rows of a person.
        steps: The number of queries in the ledger, all kinds together.
        is_reproduced: Whether `recomputed` is at most `claimed`.

    Example:
        >>> from dpmcmc.accounting import costs, verify
        >>> cost = costs.to_json(costs.Pure(0.5))
        >>> entry = {"query": "mine", "released": "a sum", "cost": cost, "count": 2}
        >>> document = {
        ...     "format": "dpmcmc-ledger-1",
        ...     "claim": {"epsilon": 1.0, "delta": 1e-6, "method": "pure"},
        ...     "neighbours": "replace-one",
        ...     "entries": [entry],
        ... }
        >>> verify.verify(document).is_reproduced
        True
    """

    claimed: float
    recomputed: float
    delta: float
    method: str
    relation: str
    rows_per_person: int
    steps: int  # queries in the ledger, all kinds together
    is_reproduced: bool


def read(path: Path) -> dict[str, Any]:
    """Return the ledger in a JSON file, or in the attribute `dpmcmc_ledger` of a NetCDF file.

    Args:
        path: The file.

    Returns:
        The ledger, as JSON values.

    Raises:
        ValueError: The file holds no ledger.

    Example:
        >>> import json, pathlib, tempfile
        >>> from dpmcmc.accounting import costs, verify
        >>> cost = costs.to_json(costs.Pure(0.5))
        >>> entry = {"query": "mine", "released": "a sum", "cost": cost, "count": 2}
        >>> document = {
        ...     "format": "dpmcmc-ledger-1",
        ...     "claim": {"epsilon": 1.0, "delta": 1e-6, "method": "pure"},
        ...     "neighbours": "replace-one",
        ...     "entries": [entry],
        ... }
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "bill.json"
        >>> _ = path.write_text(json.dumps(document))
        >>> verify.read(path) == document
        True
    """
    return opened(path)[0]


def contradictions(path: Path) -> list[str]:
    """Return what the other attributes of a saved posterior state, where its ledger differs.

    Args:
        path: The file.

    Returns:
        The differences, in words; an empty list if there are none.

    Raises:
        ValueError: The file holds no ledger, or a field of it has another type.

    Example:
        >>> import json, pathlib, tempfile
        >>> from dpmcmc.accounting import costs, verify
        >>> cost = costs.to_json(costs.Pure(0.5))
        >>> entry = {"query": "mine", "released": "a sum", "cost": cost, "count": 2}
        >>> document = {
        ...     "format": "dpmcmc-ledger-1",
        ...     "claim": {"epsilon": 1.0, "delta": 1e-6, "method": "pure"},
        ...     "neighbours": "replace-one",
        ...     "entries": [entry],
        ... }
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "bill.json"
        >>> _ = path.write_text(json.dumps(document))
        >>> verify.contradictions(path)
        []
    """
    document, beside = opened(path)
    found = _contradictions(document, beside)
    accountants = [_facts(ledger)["accountant"] for ledger in by_owner(document).values()]
    if all(is_one_promise(attributes, accountants) for attributes in beside):
        return found
    if is_netcdf(path) and (added := added_draws(path)):
        return [*found, f"it holds {added} draws more than the run that the ledger is the bill of"]
    if any(JOINED in attributes for attributes in beside):
        return [
            *found,
            "it holds draws of several runs that were put together, and the ledger is the bill of "
            "one",
        ]
    return found


def reasons_to_distrust(attributes: Mapping[str, Any]) -> list[str]:
    """Return why the promise in the attributes of a posterior in memory must not be believed.

    Args:
        attributes: The attributes of the posterior.

    Returns:
        The reasons, in words; an empty list if the ledger reproduces the promise.

    Example:
        >>> from dpmcmc.accounting import verify
        >>> verify.reasons_to_distrust({})
        ['there is no bill beside it']
    """
    if ATTRIBUTE not in attributes:
        return ["there is no bill beside it"]
    try:
        document = checked(parsed(attributes[ATTRIBUTE]), "the posterior")
        found = [
            f"{one_line(name) or 'it'} claims epsilon = {rounded_up(verdict.claimed, 4)}, and the "
            "bill amounts to "
            f"{rounded_up(verdict.recomputed, 4)}"
            for name, verdict in (
                (name, verify(ledger)) for name, ledger in by_owner(document).items()
            )
            if not verdict.is_reproduced
        ]
        return found + _contradictions(document, [dict(attributes)])
    except (
        ValueError,
        TypeError,
        AttributeError,
        KeyError,
        RecursionError,
        OverflowError,
        PrivacyRefusal,
    ) as error:
        return [f"its bill cannot be read ({one_line(error)})"]


def _contradictions(document: dict[str, Any], beside: list[dict[str, Any]]) -> list[str]:
    ledgers = by_owner(document)
    facts = [_facts(ledger) for ledger in ledgers.values()]
    found = [fact for ledger in ledgers.values() for fact in _unproved(ledger)]
    for attributes in beside:
        if ATTRIBUTE in attributes and not _is_same(attributes[ATTRIBUTE], document):
            found.append("it holds two ledgers")
        found += [
            f"{name}={attributes[name]}"
            for name, value in weakest(facts).items()
            if name in attributes
            and not np.array_equal(np.ravel(_infinite(attributes[name])), np.ravel(value))
        ]
        if PRINTED in attributes:
            found += _misprints(str(attributes[PRINTED]), document)
    return list(dict.fromkeys(found))


def _is_same(ledger: Any, document: dict[str, Any]) -> bool:
    try:
        return (
            isinstance(ledger, str | dict)
            and (parsed(ledger) if isinstance(ledger, str) else ledger) == document
        )
    except (ValueError, RecursionError):
        return False


def _misprints(printed: str, document: dict[str, Any]) -> list[str]:
    """Why a printed statement is not the rendering of its JSON: nothing, if it is."""
    try:
        expected = str(from_json(document))
    except (KeyError, TypeError, ValueError, AttributeError):
        return ["there is a printed statement, and the ledger has not all that it was made of"]
    if printed == expected:
        return []
    wrong = [line.strip() for line in printed.splitlines() if line not in expected.splitlines()]
    differences = wrong or ["too little, too much, or in another order"]
    return [f"the printed statement says {line}" for line in differences]


def _unproved(ledger: dict[str, Any]) -> list[str]:
    """Numbers of a statement, beside its claim, that its bill does not amount to."""
    more = ledger.get("statement")
    if more is None:
        return []
    _check_statement(more)
    facts = _facts(ledger)
    found = []
    is_count_public = _relation(ledger) is Neighbours.REPLACE_ONE
    if (more["capacity"] is not None) is not is_count_public:
        found.append(f"capacity={more['capacity']}")
    if (more["chance"] is not None) is not math.isfinite(facts["epsilon"]) or (
        more["chance"] is not None and not _is_chance_proved(ledger, more["chance"])
    ):
        found.append(f"chance={more['chance']}")
    second = more["second"]
    if second is not None and not _is_proved(ledger, second):
        found.append(f"second={second}")
    budget = more["budget"]
    if budget is not None and math.isfinite(facts["epsilon"]):
        is_within = facts["epsilon"] <= budget[0] * (1 + TOLERANCE)
        if not is_within or facts["delta"] != budget[1]:
            found.append(f"budget={budget}")
    return found


def _check_statement(more: Any) -> None:
    """Refuse what `Statement.to_json` does not write beside a bill."""
    if not isinstance(more, dict) or set(more) != set(STATEMENT):
        raise ValueError(f"a ledger's statement has the fields {', '.join(STATEMENT)}")
    is_sound = (
        _is_number_or_none(more["chance"])
        and (more["capacity"] is None or type(more["capacity"]) is int)
        and (more["budget"] is None or _are_numbers(more["budget"]))
        and all(_are_texts(more[name]) for name in ("assumptions", "notes"))
    )
    if not is_sound:
        raise ValueError("a ledger's statement has a field of another type")
    if more["second"] is not None:
        if not isinstance(more["second"], dict) or set(more["second"]) != {"epsilon", "method"}:
            raise ValueError("a ledger's second figure has the fields epsilon and method")
        _number(more["second"], "epsilon")
        _part(more["second"], "method", str)


def _is_number_or_none(value: Any) -> bool:
    return value is None or type(value) in (int, float)


def _are_numbers(value: Any) -> bool:
    is_pair = isinstance(value, list) and len(value) == 2
    return is_pair and all(type(part) in (int, float) for part in value)


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(part, str) for part in value)


def _is_proved(ledger: dict[str, Any], second: dict[str, Any]) -> bool:
    """Whether a second figure is what its method proves, or more."""
    stated = _number(second, "epsilon")
    if math.isinf(stated):
        return True
    try:
        method = second["method"]
        proved = accountants.epsilon_by(method, costs_of(ledger), _facts(ledger)["delta"])
        return proved * (1 - TOLERANCE) <= stated
    except (ValueError, PrivacyRefusal):
        return False


def _is_chance_proved(ledger: dict[str, Any], stated: float) -> bool:
    """Whether a chance of a guess is what the bill amounts to, or more."""
    facts = _facts(ledger)
    try:
        chance = guess.chance(
            costs_of(ledger), facts["epsilon"], facts["delta"], facts["accountant"]
        )
        return chance * (1 - TOLERANCE) <= stated
    except (ValueError, PrivacyRefusal):
        return False


def _facts(ledger: dict[str, Any]) -> dict[str, Any]:
    """The facts of a ledger's statement."""
    claim = _part(ledger, "claim", dict)
    check_fields(ledger, "ledger", LEDGER)
    check_fields(claim, "ledger's claim", CLAIM)
    return {
        "epsilon": _number(claim, "epsilon"),
        "delta": _number(claim, "delta"),
        "neighbours": _relation(ledger).value,
        "rows_per_person": _rows_per_person(ledger),
        "accountant": _part(claim, "method", str),
    }


def costs_of(document: dict[str, Any]) -> dict[Any, int]:
    """Return the ledger's costs and counts; equal costs of different queries are added.

    Args:
        document: The ledger, as JSON values.

    Returns:
        The counts by cost.

    Raises:
        ValueError: A field is missing, of another type, or contradicts another.

    Example:
        >>> from dpmcmc.accounting import costs, verify
        >>> cost = costs.to_json(costs.Pure(0.5))
        >>> entry = {"query": "mine", "released": "a sum", "cost": cost, "count": 2}
        >>> document = {
        ...     "format": "dpmcmc-ledger-1",
        ...     "claim": {"epsilon": 1.0, "delta": 1e-6, "method": "pure"},
        ...     "neighbours": "replace-one",
        ...     "entries": [entry],
        ... }
        >>> verify.costs_of(document)
        {Pure(epsilon=0.5, tv_error=0.0): 2}
    """
    relation = _relation(document)
    rows_per_person = _rows_per_person(document)
    total = dict[Any, int]()
    for entry in _part(document, "entries", list):
        count = _part(entry, "count", int)
        cost = cost_kinds.from_json(_part(entry, "cost", dict))
        check_fields(entry, "ledger's entry", ENTRY)
        if not 0 <= count <= LIMIT:
            raise ValueError("a count must be a whole number from 0 to 2^60")
        if getattr(cost, "neighbours", relation) is not relation:
            raise ValueError(
                f"a cost is for {cost.neighbours.value!r}, the ledger's promise for "
                f"{relation.value!r}"
            )
        if cost.is_of_one_row and rows_per_person > 1:
            raise ValueError(
                f"a cost is for persons with one row, the ledger's promise for {rows_per_person} "
                "rows per person"
            )
        total[cost] = total.get(cost, 0) + count
    return total


def verify(document: dict[str, Any]) -> Verdict:
    """Recompute the claim of a ledger with its own method.

    An infinite claim is always reproduced: it promises nothing.

    Args:
        document: The ledger, as JSON values.

    Returns:
        The verdict.

    Raises:
        ValueError: A field is missing, of another type, or out of range.
        PrivacyRefusal: The method has no bound for the costs.

    Example:
        >>> from dpmcmc.accounting import costs, verify
        >>> cost = costs.to_json(costs.Pure(0.5))
        >>> entry = {"query": "mine", "released": "a sum", "cost": cost, "count": 2}
        >>> document = {
        ...     "format": "dpmcmc-ledger-1",
        ...     "claim": {"epsilon": 1.0, "delta": 1e-6, "method": "pure"},
        ...     "neighbours": "replace-one",
        ...     "entries": [entry],
        ... }
        >>> verify.verify(document).recomputed
        1.0
    """
    facts = _facts(document)
    costs = costs_of(document)
    claimed, delta, method, rows_per_person = (
        facts[name] for name in ("epsilon", "delta", "accountant", "rows_per_person")
    )
    if not claimed >= 0:
        raise ValueError(f"the claimed epsilon={claimed} is not a number of at least 0")
    if not 0 < delta < 1:
        raise ValueError(f"the claimed delta={delta} must lie in (0, 1)")
    recomputed = _recomputed(costs, claimed, delta, method)
    is_reproduced = recomputed <= claimed * (1 + TOLERANCE)
    return Verdict(
        claimed,
        recomputed,
        delta,
        method,
        facts["neighbours"],
        rows_per_person,
        sum(costs.values()),
        is_reproduced,
    )


def _relation(document: dict[str, Any]) -> Neighbours:
    name = _part(document, "neighbours", str)
    if name not in {kind.value for kind in Neighbours}:
        raise ValueError(
            f"a ledger's 'neighbours' must be one of {[kind.value for kind in Neighbours]}"
        )
    return Neighbours(name)


def _rows_per_person(document: dict[str, Any]) -> int:
    number = _part({"rows_per_person": 1} | document, "rows_per_person", int)
    if number < 1:
        raise ValueError("rows_per_person must be at least 1")
    return number


def _part(value: Any, name: str, *kinds: type) -> Any:
    """A field of a ledger, or a refusal that names it."""
    found = value.get(name) if isinstance(value, dict) else None
    if not isinstance(found, kinds) or isinstance(found, bool):
        actual = "missing" if found is None else f"of type {type(found).__name__}"
        raise ValueError(
            f"a ledger's {name!r} must be of type {kinds[-1].__name__}, it is {actual}"
        )
    return found


def _infinite(value: Any) -> Any:
    """JSON has no infinity: it is written as text."""
    return math.inf if isinstance(value, str) and value == "inf" else value


def _number(claim: dict[str, Any], name: str) -> float:
    try:
        return (
            math.inf
            if _infinite(claim.get(name)) == math.inf
            else float(_part(claim, name, int, float))
        )
    except OverflowError:
        raise ValueError(f"a ledger's {name!r} is too large to be a number") from None


def _recomputed(costs: dict[Any, int], claimed: float, delta: float, method: str) -> float:
    if method not in (*accountants.METHODS, *filters.BY_NAME, "none"):
        raise ValueError(
            f"the claim's method must be one of {[*accountants.METHODS, *filters.BY_NAME]}"
        )
    if method == "none" and math.isinf(claimed):
        return math.inf
    if method == "none" or not costs:
        return accountants.epsilon(costs, delta).epsilon
    if method in filters.BY_NAME:
        return (
            claimed
            if math.isfinite(claimed) and filters.BY_NAME[method](claimed, delta).fits(costs)
            else math.inf
        )
    try:
        return accountants.epsilon_by(method, costs, delta)
    except PrivacyRefusal as refusal:
        # Distances from ideal laws eat up delta
        if math.isinf(claimed) or isinstance(refusal, BudgetExceeded):
            return math.inf
        raise
