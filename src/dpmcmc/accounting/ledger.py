"""What was spent on a table, and under which promise: written down before any row is touched.

A curator's `Ledger` is the list of the bills that it has granted. With a path it lives in a JSON
file that is replaced atomically and flushed to disk before a grant is given out, so that a crash
forgets no spend. A second process that has the same file open is refused once the first has spent:
it must open the file again and see what is left.

Every entry of the file has a SHA-256 digest of the public facts, the bill and the digest before; a
digest at the end has the number of entries and the last of these. So a file that was edited or
shortened is refused. There is no secret in it: somebody who means to can compute the digests again.
Nor can the file show that an older copy of it was put back, or that there was one before.

Two other things go by the name. In `accounting` a ledger is what accountants add up: how often each
cost was incurred. The ledger of a statement (`Statement.ledger_json`, the attribute of a saved
posterior) is the bill of one grant, with what was claimed for it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from dpmcmc.accounting.bill import Entry, from_json, to_json
from dpmcmc.errors import BudgetExceeded, PrivacyRefusal

KIND = "dpmcmc-grants-"
FORMAT = f"{KIND}3"
DRAFT, LOCK = ".draft", ".lock"


@dataclass
class Ledger:
    """The grants of one table under one promise.

    Attributes:
        facts: The public facts that must not change between openings.
        path: The file that holds the grants; without it they are in memory alone.
        grants: The bills of the grants so far.
        lock: Of threads: the file and `grants` change together.

    Example:
        >>> from dpmcmc.accounting import ledger
        >>> ledger.Ledger({"n": 40}).grants
        []
    """

    facts: dict[str, Any]
    path: Path | None = None
    grants: list[tuple[Entry, ...]] = field(default_factory=list)
    # For threads: the file and `grants` change together
    lock: Any = field(default_factory=threading.RLock, repr=False)

    @classmethod
    def open(cls, facts: dict[str, Any], path: str | Path | None = None) -> Ledger:
        """Return a new ledger, or the one already kept at `path`.

        Args:
            facts: The public facts of the table and the promise.
            path: The file; without it the ledger is in memory alone.

        Returns:
            The ledger.

        Raises:
            ValueError: No ledger can be kept at `path`, or the file is not a ledger.
            BudgetExceeded: The kept ledger has other facts.
            PrivacyRefusal: The file is not as a curator wrote it.
        """
        if path is None:
            return cls(facts)
        # Through a link the file itself is replaced and locked: otherwise both names would have the
        # budget.
        path = Path(path).resolve()
        if path.suffix.lower() in (DRAFT, LOCK):
            raise ValueError(
                f"the ledger {path} cannot be kept: other ledgers' drafts and locks have names in "
                f"{DRAFT} and {LOCK}"
            )
        if not path.exists():
            if not path.parent.is_dir():
                raise ValueError(
                    f"the ledger {path} cannot be kept: its folder does not exist; make it first"
                )
            return cls(facts, path)
        if not path.is_file():
            raise ValueError(f"the ledger {path} is no file: name one, or a new one")
        if path.stat().st_nlink > 1:
            raise ValueError(
                f"the ledger {path} has a second name (a hard link), under which it would be spent "
                "again: remove one"
            )
        kept = _read(path)
        for name, value in facts.items():
            if kept["facts"].get(name) != value:
                raise BudgetExceeded(
                    f"the ledger at {path} was opened with {name}={kept['facts'].get(name)}, now "
                    f"it is {value}: a promise does not "
                    "change after it was made. For the same rows go on with "
                    f"{name}={kept['facts'].get(name)}: another ledger for "
                    "them would be a second budget, and both epsilons add up. Another table needs "
                    "another ledger"
                )
        return cls(facts, path, [from_json(bill) for bill in _bills(kept)])

    def record(self, bill: tuple[Entry, ...]) -> None:
        """Write a grant down; returns only when it is on disk.

        Args:
            bill: The entries of the grant.

        Raises:
            BudgetExceeded: Somebody else has written to the file since it was opened.
        """
        with self.lock:
            if self.path is not None:
                with _locked(self.path):
                    self.check_current()
                    self._write([to_json(grant) for grant in (*self.grants, bill)])
            self.grants.append(bill)

    def take_back(self) -> None:
        """Delete the last grant: for one that was written down and not given out.

        Raises:
            BudgetExceeded: Somebody else has written to the file since it was opened.
        """
        with self.lock:
            if self.path is not None:
                with _locked(self.path):
                    self.check_current()
                    self._write([to_json(grant) for grant in self.grants[:-1]])
            self.grants.pop()

    def check_current(self) -> None:
        """Refuse to go on if somebody else has written to the file since it was opened.

        Raises:
            BudgetExceeded: Somebody else has.
        """
        if self.path is None:
            return
        with self.lock:
            own = json.loads(json.dumps([to_json(grant) for grant in self.grants]))
            kept = _bills(_read(self.path)) if self.path.is_file() else []
        if kept[: len(own)] != own:
            raise BudgetExceeded(
                f"the ledger at {self.path} no longer has all that was spent: bring it back from a "
                "copy. Without it the same rows "
                "would be given a second budget, and both epsilons add up"
            )
        if kept != own:
            raise BudgetExceeded(
                f"somebody else has spent from the ledger at {self.path} since it was opened: "
                "create the curator again (on the "
                "command line: give the command again)"
            )

    def _write(self, bills: list[list[dict[str, Any]]]) -> None:
        assert self.path is not None
        draft = self.path.with_name(self.path.name + DRAFT)
        with open(draft, "w") as file:
            json.dump(_document(self.facts, bills), file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, self.path)
        _sync_folder(self.path.parent)


def record_all(ledgers: Sequence[Ledger], bills: Sequence[tuple[Entry, ...]]) -> None:
    """Write a bill into each ledger.

    If one of them fails, the others are as before; a killed process leaves too many grants.

    Args:
        ledgers: The ledgers.
        bills: One bill for each ledger.

    Raises:
        BudgetExceeded: Another process has written to a file since it was opened.

    Example:
        >>> from dpmcmc.accounting import ledger
        >>> several = [ledger.Ledger({}), ledger.Ledger({})]
        >>> ledger.record_all(several, [(), ()])
        >>> [len(each.grants) for each in several]
        [1, 1]
    """
    recorded: list[Ledger] = []
    try:
        for ledger, bill in zip(ledgers, bills, strict=True):
            ledger.record(bill)
            recorded.append(ledger)
    except BaseException:
        for ledger in recorded:
            with contextlib.suppress(Exception):
                ledger.take_back()
        raise


class Audit(NamedTuple):
    """What the grants in a file add up to, beside the budget they were given from.

    Attributes:
        num_grants: The number of grants.
        num_queries: The number of queries of all grants.
        epsilon: Of all grants together; a shared budget is promised as a whole.
        budget: The epsilon of the budget; infinite where nothing was promised.
        delta: The delta of the budget.
        method: The accountant behind `epsilon`.
        relation: Which tables are neighbours.
        rows_per_person: The largest number of rows of a person.
        left: What is left of a shared budget, in words.
        is_within: Whether `epsilon` is within the budget.

    Example:
        >>> from dpmcmc.accounting import ledger
        >>> ledger.Audit(1, 20, 0.5, 1.0, 1e-6, "rdp", "replace-one", 1, None, True).is_within
        True
    """

    num_grants: int
    num_queries: int
    epsilon: float  # of all grants together; a shared budget is promised as a whole
    budget: float  # infinite where nothing was promised
    delta: float
    method: str
    relation: str
    rows_per_person: int
    left: str | None  # of a shared budget
    is_within: bool


def is_kept(path: Path) -> bool:
    """Whether a curator keeps its grants in this file: it is not the bill of one statement.

    Args:
        path: The file.

    Returns:
        Whether it does.

    Example:
        >>> import pathlib, tempfile
        >>> from dpmcmc.accounting import ledger
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "grants.json"
        >>> ledger.Ledger({"n": 40}, path).record(())
        >>> ledger.is_kept(path)
        True
    """
    try:
        return bool(_read(path))
    except ValueError:
        return False


def audit(path: Path) -> Audit:
    """Add up the grants in a file that a curator keeps, in the way of its promise.

    Args:
        path: The file.

    Returns:
        The sum, and the budget.

    Raises:
        PrivacyRefusal: The file is not as a curator wrote it.
        ValueError: The file is not a curator's ledger, or a fact is out of range.

    Example:
        >>> import pathlib, tempfile
        >>> from dpmcmc.accounting import ledger
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "grants.json"
        >>> facts = {"neighbours": "replace-one", "rows_per_person": 1}
        >>> facts |= {"budget": [1.0, 1e-6], "shared_by": None}
        >>> ledger.Ledger(facts, path).record(())
        >>> ledger.audit(path).num_queries
        0
    """
    from dpmcmc.accounting import accountants, filters

    kept = _read(path)
    facts = kept["facts"]
    grants = _bills(kept)
    entries = [entry for grant in grants for entry in grant]
    unit = (facts["neighbours"], facts["rows_per_person"])
    costs = _costs_of(entries, unit)
    budget, delta = _promised(facts["budget"])
    if facts["shared_by"] is not None and facts["shared_by"] not in filters.FILTERS:
        raise ValueError(
            f"shared_by={facts['shared_by']!r} must be null or one of {sorted(filters.FILTERS)}"
        )
    is_shared = facts["shared_by"] is not None
    is_one = sum(map(bool, grants)) <= 1
    epsilon = math.inf
    method = "none"
    left = None
    with contextlib.suppress(BudgetExceeded):  # more than any figure
        # Several grants have a figure only where they share: see filters
        if budget < math.inf and not is_shared and is_one:
            epsilon, method = accountants.epsilon(costs, delta)
        elif budget < math.inf and is_shared:
            method = filters.NAMES[facts["shared_by"]]
            shared = filters.FILTERS[facts["shared_by"]](budget, delta)
            for grant in grants:  # in their order, which may matter
                shared.spend(_costs_of(grant, unit))
            share = shared.left / shared.total if shared.total else 0.0
            epsilon = budget
            left = (
                f"{share:.1%} of the budget ({shared.left:.6g} of {shared.total:.6g} {shared.unit})"
            )
    is_within = epsilon <= budget
    return Audit(
        len(grants), sum(costs.values()), epsilon, budget, delta, method, *unit, left, is_within
    )


def _costs_of(entries: list[Any], unit: tuple[str, int]) -> Any:
    """What the entries of some bills cost together."""
    from dpmcmc.accounting import verify

    return verify.costs_of({"neighbours": unit[0], "rows_per_person": unit[1], "entries": entries})


def _promised(budget: Any) -> tuple[float, float]:
    """(epsilon, delta); an infinite epsilon where nothing was promised."""
    if budget is None:
        return math.inf, 1e-6
    is_pair = (
        isinstance(budget, list)
        and len(budget) == 2
        and all(type(part) in (float, int) for part in budget)
    )
    if not is_pair or not 0 < budget[0] < math.inf or not 0 < budget[1] < 1:
        raise ValueError(
            "the budget of these grants must be null or two numbers, [epsilon, delta], above 0 and "
            "delta below 1"
        )
    return float(budget[0]), float(budget[1])


def _document(facts: dict[str, Any], bills: Sequence[Any]) -> dict[str, Any]:
    """All that a ledger's file holds: each bill with its digest, and at the end a digest of how
    many there are.
    """
    digest = _digest([FORMAT, facts])
    grants = []
    for bill in bills:
        digest = _digest([facts, bill, digest])
        grants.append({"bill": bill, "digest": digest})
    head = {"grants": len(grants), "digest": _digest(["head", len(grants), digest])}
    return {"format": FORMAT, "facts": facts, "grants": grants, "head": head}


def _digest(value: Any) -> str:
    return hashlib.sha256(_canonical(value).encode()).hexdigest()


def _canonical(value: Any) -> str:
    """JSON in canonical form: the order of names and white space in the file do not matter."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _bills(kept: dict[str, Any]) -> list[Any]:
    return [grant["bill"] for grant in kept["grants"]]


def _read(path: Path) -> dict[str, Any]:
    """The file, if a curator has written it as it is."""
    from dpmcmc.accounting import reading

    kept = None
    with contextlib.suppress(ValueError, RecursionError):
        kept = reading.parsed(path.read_text())
    version = kept.get("format") if isinstance(kept, dict) else None
    if not isinstance(kept, dict) or not isinstance(version, str) or not version.startswith(KIND):
        raise ValueError(
            f"{path} is not a ledger that a curator keeps: if it was one, bring it back from a "
            "copy; else name another file"
        )
    if version != FORMAT:
        raise PrivacyRefusal(
            f"the ledger {path} was written by another version of dpmcmc, and this one cannot "
            "check whether it is whole: go on with the version that wrote it"
        )
    try:
        is_whole = _canonical(kept) == _canonical(_document(kept["facts"], _bills(kept)))
    except (KeyError, TypeError):
        is_whole = False
    if (
        not is_whole
        or not isinstance(kept["facts"], dict)
        or not all(isinstance(bill, list) for bill in _bills(kept))
    ):
        raise PrivacyRefusal(
            f"the ledger {path} is not as a curator wrote it: its digests do not fit its entries, "
            "so that it was edited or is not "
            "whole. Bring the latest copy back. If there is none, take the budget as spent: a new "
            "ledger for the same rows is a "
            "second budget, and both epsilons add up"
        )
    return kept


def _sync_folder(path: Path) -> None:
    """Without it a power cut could bring the file back as it was before."""
    if os.name != "posix":
        return  # a folder cannot be opened there
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """One process at a time between reading the file and replacing it, where the system has file
    locks.
    """
    try:
        import fcntl
    except ImportError:
        yield
        return
    with open(path.with_name(path.name + LOCK), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
