"""The privacy statement: what was promised, to whom, on which assumptions, and the bill that anyone
can check again.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dpmcmc.accounting.filters import NAMES
from dpmcmc.types import Neighbours, Unit

TITLE, TITLES = (
    "PRIVACY STATEMENT",
    "PRIVACY STATEMENTS of {} owners: to the rows of each, its own promise",
)
IN_ONE_PROCESS = (
    "the rows, the curator and the sampler share one process: Python code in it could reach the "
    "rows, "
    "so the program that runs is trusted to use only answers"
)
FLOATING_POINT = (
    "row values are computed in floating point, then clipped, made whole numbers on a fixed grid "
    "and added as integers; "
    "noise is an integer and a coin is a comparison; what rounding does to either is on the bill"
)
NOT_OURS = (
    "{} is no query of this library: what it costs, and how it computes, is its author's word"
)
NOBODY_HAS_MORE = "nobody has more than {} rows: this was declared, and is not checked"
ROWS_OF_FILE = (
    "each row was made from one row of the holder's table. If the table was a CSV file, it is a "
    "well-formed export (RFC 4180: a cell with a quote, a delimiter or a line break stands in "
    "quotes, and "
    "quotes in it are doubled), so that no cell can make another row"
)
SINGLE_ROWS = "the promise is to single rows: a person with several of them is protected less"
CHANGES = "a change of values counts as one removed and one added: for it the promise is (2 epsilon, (1 + e^epsilon) delta)"
FIRST_OF_EACH = (
    "of every person no more than the first {} used, and no row of an unknown person: this was "
    "enforced, by names that are "
    "trusted to tell persons apart. Who has more rows is protected all the same"
)
AT_MOST = "{} at most {} rows: this was declared; more are refused, and the refusal tells that there are more"
LARGE_DELTA = (
    "delta = {:g} is above 1/n, n = {}: a release of one random row would be within the promise"
)
LARGE_DELTA_OF_PLACES = (
    "delta = {:g} is above {}/{}, the rows of a person over the capacity: a release of one random "
    "row, if its place is taken, "
    "would be within the promise"
)
CHOICES = "no choice of model, columns, bounds, settings or start came from a look at the rows: such a look is not on the bill"
OTHER_RELEASES = "the promise is about {}: whatever else is released from the same rows adds to epsilon and delta"
TIME = "the time a run takes is not part of the release, and is not protected"
SHARED_BUDGET = "other releases may share this budget, such as runs and counts of rows: the promise is about all of them together"
IN_RETROSPECT = (
    "none was made in advance. By itself this run has {}; other runs on these rows add to it"
)
SECOND, BOTH_HOLD = ", as a second opinion", " (both are upper bounds: the smaller one holds)"
MEANS = {
    Neighbours.REPLACE_ONE: "who knows all the rest, and holds two values of it for equally likely, guesses the true one with a "
    "chance of at most {} %",
    Neighbours.ADD_OR_REMOVE_ONE: "who knows all the rest, and holds its presence for as likely as not, guesses right with a "
    "chance of at most {} %",
}
# What a shared budget's second figure is about: no opinion on the first
ALONE = "for this run alone"
SEVERAL_OWNERS = (
    "this owner added its noise in full, with a secret of its own: the promise holds also against "
    "other owners, who know theirs, "
    "as long as they do not look into the process. It is about this owner's rows; for a person "
    "with rows at several owners the "
    "epsilons and deltas of these add up"
)
ATTRIBUTE = "dpmcmc_ledger"  # of a saved posterior, which has the ledger
NUM_DRAWS = "num_draws"  # another: how many draws of all chains the run made, warm-up included
# Others, that `arviz.concat` adds to draws made at different times
JOINED, DIFFERS = "previous_created_at", "combined_{}"
FORMAT, FEDERATED_FORMAT = "dpmcmc-ledger-1", "dpmcmc-federated-ledger-1"
FIXED_SECRET = (
    "the secret was fixed by the caller: the noise can be computed again, so NOTHING IS PROMISED"
)


@dataclass(frozen=True)
class Statement:
    """The promise and its bill. `epsilon` is infinite when nothing is promised."""

    epsilon: float
    delta: float
    method: str  # the accountant behind epsilon
    chance: float | None  # of the best guess after the release, where anything is promised
    second_epsilon: float | None  # by another accountant, from the same bill
    second_method: str | None
    unit: Unit
    capacity: int | None  # public: the number of rows, or a bound on it; None under add-or-remove
    released: tuple[str, ...]  # what kinds of values left the curator
    bill: list[dict[str, Any]]  # query, cost, count
    budget: tuple[float, float] | None  # what the owner allowed in all
    assumptions: tuple[str, ...]
    notes: tuple[str, ...] = ()

    def facts(self) -> dict[str, Any]:
        """The promise in numbers, for the attributes of a result."""
        return {
            "epsilon": self.epsilon,
            "delta": self.delta,
            "neighbours": self.unit.neighbours.value,
            "rows_per_person": self.unit.rows_per_person,
            "accountant": self.method,
        }

    def ledger_json(self) -> str:
        """The bill and the claim, for `dpmcmc account ledger`."""
        claim = {
            "epsilon": self.epsilon if math.isfinite(self.epsilon) else "inf",
            "delta": self.delta,
            "method": self.method,
        }
        return json.dumps(
            {
                "format": FORMAT,
                "claim": claim,
                "neighbours": self.unit.neighbours.value,
                "rows_per_person": self.unit.rows_per_person,
                "entries": self.bill,
            }
        )

    def __str__(self) -> str:
        promise, unit, *bill = lines_of(self.facts(), self.bill, self.capacity, self.budget is None)
        released = (
            f"{'; '.join(self.released)}; everything else is computed from these"
            if self.released
            else "nothing"
        )
        means = (
            []
            if self.chance is None
            else [f"  Means:     {MEANS[self.unit.neighbours].format(percent(self.chance))}"]
        )
        lines = [TITLE, promise, unit, *means, f"  Released:  {one_line(released)}", *bill]
        if self.second_epsilon is not None:
            is_larger = self.second_epsilon > self.epsilon * 1.00001
            both = BOTH_HOLD if is_larger else ""
            second = f"epsilon = {rounded_up(self.second_epsilon, 6)} by {self.second_method}"
            opinion = "" if str(self.second_method).endswith(ALONE) else f"{SECOND}{both}"
            lines.append(f"             {second}{opinion}")
        if self.budget is not None:
            lines.append(
                f"  Budget:    epsilon = {self.budget[0]:.6g}, delta = "
                f"{rounded_up(self.budget[1], 3)}"
            )
        lines += [f"  Assumes:   {one_line(text)}" for text in self.assumptions]
        lines += [f"  Note:      {one_line(text)}" for text in self.notes]
        return "\n".join(lines)


@dataclass(frozen=True)
class FederatedStatement:
    """Several owners' promises: for the rows of each owner, its own."""

    owners: dict[str, Statement]  # by name

    @property
    def notes(self) -> tuple[str, ...]:
        """What is noted on any of the statements."""
        return tuple(
            dict.fromkeys(note for statement in self.owners.values() for note in statement.notes)
        )

    def facts(self) -> dict[str, Any]:
        """The weakest of all, and whose they are."""
        return weakest([statement.facts() for statement in self.owners.values()]) | {
            "owners": ", ".join(self.owners)
        }

    def ledger_json(self) -> str:
        """Every owner's bill and claim, for `dpmcmc account ledger`."""
        owners = {
            name: json.loads(statement.ledger_json()) for name, statement in self.owners.items()
        }
        return json.dumps({"format": FEDERATED_FORMAT, "owners": owners})

    def __str__(self) -> str:
        lines = [TITLES.format(len(self.owners))]
        for name, statement in self.owners.items():
            lines += ["", f"Owner {one_line(name)}", *str(statement).splitlines()[1:]]
        return "\n".join(lines)


def weakest(facts: list[dict[str, Any]]) -> dict[str, Any]:
    """The weakest numbers of several owners' facts: as a promise they hold for every owner's rows."""
    return {
        "epsilon": max(fact["epsilon"] for fact in facts),
        "delta": max(fact["delta"] for fact in facts),
        "neighbours": ", ".join(dict.fromkeys(fact["neighbours"] for fact in facts)),
        "rows_per_person": min(fact["rows_per_person"] for fact in facts),
        "accountant": ", ".join(dict.fromkeys(fact["accountant"] for fact in facts)),
    }


def is_one_promise(attributes: Mapping[str, Any], accountants: Iterable[str]) -> bool:
    """Whether a promise is about several runs whose draws stand together: all owners share their
    budgets, or promise nothing.

    Runs that share a budget have all facts in common; `arviz.concat` keeps those of the first, and
    lists what differs.
    """
    methods = set(accountants)
    facts = ("epsilon", "delta", "neighbours", "rows_per_person", "accountant")
    differ = any(DIFFERS.format(name) in attributes for name in facts)
    return methods == {"none"} or (methods <= {*NAMES.values(), "none"} and not differ)


def lines_of(
    facts: dict[str, Any], bill: list[dict[str, Any]], capacity: Any, is_in_retrospect: bool
) -> list[str]:
    """What a statement prints of its ledger, line by line: the promise, the unit with its capacity,
    the bill and the sum.
    """
    epsilon = facts["epsilon"]
    delta = facts["delta"]
    unit = Unit(Neighbours(facts["neighbours"]), facts["rows_per_person"])
    promise = promise_text(epsilon, delta)
    computed = list[str]()
    if math.isfinite(epsilon):
        promise = IN_RETROSPECT.format(promise) if is_in_retrospect else promise
        figures = f"epsilon = {rounded_up(epsilon, 6)} at delta = {rounded_up(delta, 3)}"
        computed = [f"  Computed:  {figures} by {facts['accountant']}"]
    return [
        f"  Promise:   {promise}",
        f"  Unit:      {_unit_text(unit)} ({_known_number(unit, capacity)})",
        *(f"  Bill:      {item['count']} x {one_line(item.get('query'))}" for item in bill),
        *computed,
    ]


def promise_text(epsilon: float, delta: float) -> str:
    """The promise as it is printed."""
    if not math.isfinite(epsilon):
        return "epsilon = infinity: NO PRIVACY IS PROMISED"
    return f"({rounded_up(epsilon, 4)}, {rounded_up(delta, 3)})-differential privacy"


def rounded_up(value: float, digits: int) -> str:
    """To so many digits, and never below: it is a promise."""
    text = f"{value:.{digits}g}"
    if float(text) < value < math.inf:
        text = f"{value + 0.5 * 10.0 ** (math.floor(math.log10(value)) + 1 - digits):.{digits}g}"
    return text


def percent(chance: float) -> str:
    """Of a hundred, to a tenth, and never below."""
    return rounded_up(100 * chance, 3)


def one_line(text: Any) -> str:
    """Without the line breaks, and other characters that a terminal would obey, of what others have
    named.
    """
    return "".join(
        char if char.isprintable() else ascii(char)[1:-1] for char in " ".join(str(text).split())
    )


def _unit_text(unit: Unit) -> str:
    """What is protected."""
    person = (
        "one row"
        if unit.rows_per_person == 1
        else f"one person with at most {unit.rows_per_person} rows"
    )
    return f"{person}, {'replaced by any other' if unit.neighbours is Neighbours.REPLACE_ONE else 'added or removed'}"


def _known_number(unit: Unit, capacity: Any) -> str:
    """What everybody may know of the number of rows."""
    if unit.neighbours is not Neighbours.REPLACE_ONE:
        return "the number of rows is private"
    what = "the number of rows" if unit.rows_per_person == 1 else "the table's capacity"
    return f"{what}, {capacity}, is public"
