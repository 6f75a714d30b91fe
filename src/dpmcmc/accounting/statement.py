"""The privacy statement: what was promised, to whom, on which assumptions, and the bill that anyone
can check again.

A statement is a value. `to_json` gives all of it, `from_json` makes the same value again, and its
text is one rendering of it, which is never read back.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dpmcmc.accounting.filters import NAMES
from dpmcmc.types import Neighbours, Unit

TITLE = "PRIVACY STATEMENT"
TITLES = "PRIVACY STATEMENTS of {} owners: to the rows of each, its own promise"
IN_ONE_PROCESS = (
    "the rows, the curator and the sampler share one process. Python code in it could read the "
    "rows, so the program that runs is trusted to use only answers"
)
BY_ENGINE = (
    "every pass over the rows is made by {}. The rows and their sums without noise are "
    "seen by {}, and by nobody else"
)
EXACT_SUMS = (
    "sums and noise are exact integers; the effect of rounding is counted in the privacy cost"
)
NOT_OURS = (
    "{} is no query of this library: its author answers for what it costs, and for how it computes"
)
NOBODY_HAS_MORE = "nobody has more than {} rows: this was declared, and is not checked"
ROWS_OF_FILE = (
    "each row was made from one row of the holder's table. If the table was a CSV file, it is a "
    "well-formed export (RFC 4180: a cell with a quote, a delimiter or a line break stands in "
    "quotes, and quotes in it are doubled), so that no cell can make another row"
)
SINGLE_ROWS = (
    "the promise covers one row. If a person has several, all of them together are protected less"
)
CHANGES = (
    "adding or removing a row is hidden at epsilon; changing its values only at 2 epsilon, with "
    "(1 + e^epsilon) delta"
)
FIRST_OF_EACH = (
    "of every person no more than the first {} used, and no row of an unknown person. This was "
    "enforced, by names that are trusted to identify persons. Who has more rows is protected all "
    "the same"
)
AT_MOST = (
    "{} at most {} rows: this was declared. A table with more is refused, and the refusal shows "
    "that it has more"
)
LARGE_DELTA = (
    "delta = {:g} is above 1/n, n = {}: a release of one random row would be within the promise"
)
LARGE_DELTA_OF_PLACES = (
    "delta = {:g} is above {}/{}, the rows of a person over the capacity: a release of one random "
    "row, if its place is taken, would be within the promise"
)
CHOICES = (
    "model, columns, bounds, settings and start were chosen without looking at the rows: what is "
    "learned from them directly is not on the bill"
)
OTHER_RELEASES = (
    "the promise is about {}: whatever else is released from the same rows adds to epsilon and "
    "delta"
)
TIME = "the time a run takes is not part of the release, and is not protected"
SHARED_BUDGET = (
    "other releases may share this budget, such as runs and counts of rows: the promise covers all "
    "of them together"
)
IN_RETROSPECT = (
    "none was made in advance. By itself this run has {}; other runs on these rows add to it"
)
SECOND = ", as a second opinion"
BOTH_HOLD = " (both are upper bounds: the smaller one holds)"
ALONE = ", for this run alone"  # the second figure where a budget is shared
MEANS = (
    "Somebody who knows {others} and thinks {alternatives} equally likely guesses right at most "
    "{percent} % of the time; a coin toss gives 50 %."
)
SEVERAL_OWNERS = (
    "this owner added its noise in full, with a secret of its own: the promise holds also against "
    "the other owners, who know theirs, as long as they cannot read the process's memory. It is "
    "about this owner's rows; for a person with rows at several owners the epsilons and deltas "
    "add up"
)
FIXED_SECRET = (
    "the secret was fixed by the caller: the noise can be computed again, so NOTHING IS PROMISED"
)
ATTRIBUTE = "dpmcmc_ledger"  # of a saved posterior: the statement, as JSON
PRINTED = "privacy_statement"  # another: the same as text, for people
NUM_DRAWS = "num_draws"  # another: how many draws of all chains the run made, warm-up included
# Others, that `arviz.concat` adds to draws made at different times
JOINED, DIFFERS = "previous_created_at", "combined_{}"
FORMAT, FEDERATED_FORMAT = "dpmcmc-ledger-1", "dpmcmc-federated-ledger-1"


class LargeDelta(UserWarning):
    """Warns of a budget whose delta allows the release of one random row.

    Example:
        >>> from dpmcmc.accounting.statement import LARGE_DELTA, LargeDelta
        >>> print(LargeDelta(LARGE_DELTA.format(0.1, 40)))
        delta = 0.1 is above 1/n, n = 40: a release of one random row would be within the promise
    """


@dataclass(frozen=True)
class Statement:
    """The promise and its bill.

    Attributes:
        epsilon: The promised epsilon; infinite when nothing is promised.
        delta: The promised delta.
        method: The accountant behind `epsilon`.
        chance: A bound on the probability of the best guess after the release; None where nothing
            is promised.
        second_epsilon: The epsilon of another accountant, from the same bill.
        second_method: That accountant.
        unit: What is protected.
        capacity: The public number of rows, or a bound on it; None under add-or-remove.
        bill: For each query its text, what it releases in words, its cost and its count.
        budget: The (epsilon, delta) that the owner allowed in all.
        assumptions: What the promise rests on, in sentences.
        notes: What else the reader should know, in sentences.

    Example:
        >>> from dpmcmc.accounting import statement
        >>> from dpmcmc.types import Unit
        >>> stated = statement.Statement(
        ...     1.0, 1e-6, "rdp", 0.7, None, None, Unit(), 40, [], (1.0, 1e-6), ()
        ... )
        >>> stated.promise()[0]
        'Promise:   (1, 1e-06)-differential privacy'
    """

    epsilon: float
    delta: float
    method: str  # the accountant behind epsilon
    chance: float | None  # of the best guess after the release, where anything is promised
    second_epsilon: float | None  # by another accountant, from the same bill
    second_method: str | None
    unit: Unit
    capacity: int | None  # public: the number of rows, or a bound on it; None under add-or-remove
    bill: list[dict[str, Any]]  # query, what it releases in words, cost, count
    budget: tuple[float, float] | None  # what the owner allowed in all
    assumptions: tuple[str, ...]
    notes: tuple[str, ...] = ()

    @property
    def is_shared(self) -> bool:
        """Whether the promise is about all runs that share a budget."""
        return self.method in NAMES.values()

    def facts(self) -> dict[str, Any]:
        """The promise in numbers, for the attributes of a result."""
        return {
            "epsilon": self.epsilon,
            "delta": self.delta,
            "neighbours": self.unit.neighbours.value,
            "rows_per_person": self.unit.rows_per_person,
            "accountant": self.method,
        }

    def to_json(self) -> dict[str, Any]:
        """All of the statement: the bill with its claim, and what else its text is made of."""
        second = None
        if self.second_epsilon is not None:
            second = {"epsilon": _finite(self.second_epsilon), "method": self.second_method}
        return {
            "format": FORMAT,
            "claim": {
                "epsilon": _finite(self.epsilon),
                "delta": self.delta,
                "method": self.method,
            },
            "neighbours": self.unit.neighbours.value,
            "rows_per_person": self.unit.rows_per_person,
            "entries": self.bill,
            "statement": {
                "chance": self.chance,
                "second": second,
                "capacity": self.capacity,
                "budget": None if self.budget is None else list(self.budget),
                "assumptions": list(self.assumptions),
                "notes": list(self.notes),
            },
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Statement:
        """The statement that `to_json` was given by."""
        claim = document["claim"]
        more = document["statement"]
        second = more["second"] or {"epsilon": None, "method": None}
        return cls(
            epsilon=float(claim["epsilon"]),
            delta=claim["delta"],
            method=claim["method"],
            chance=more["chance"],
            second_epsilon=None if second["epsilon"] is None else float(second["epsilon"]),
            second_method=second["method"],
            unit=Unit(Neighbours(document["neighbours"]), document["rows_per_person"]),
            capacity=more["capacity"],
            bill=document["entries"],
            budget=None if more["budget"] is None else tuple(more["budget"]),
            assumptions=tuple(more["assumptions"]),
            notes=tuple(more["notes"]),
        )

    def ledger_json(self) -> str:
        """The same as text, for a file: `dpmcmc account ledger` verifies it."""
        return json.dumps(self.to_json())

    def promise(self) -> list[str]:
        """The promise in plain sentences: what, to whom, and what it means."""
        promised = promise_text(self.epsilon, self.delta)
        if math.isfinite(self.epsilon) and self.budget is None:
            promised = IN_RETROSPECT.format(promised)
        unit = f"{_unit_text(self.unit)} ({_known_number(self.unit, self.capacity)})"
        lines = [f"Promise:   {promised}", f"Unit:      {unit}"]
        if self.chance is not None:
            lines.append(f"Means:     {_meaning(self.unit, self.chance)}")
        return lines

    def details(self) -> list[str]:
        """All lines after the promise: what was released, the assumptions, and the exact bill."""
        return [
            f"Released:  {self._released()}",
            *(f"Assumes:   {one_line(text)}" for text in self.assumptions),
            *(f"Note:      {one_line(text)}" for text in self.notes),
            *self._exact_bill(),
        ]

    def __str__(self) -> str:
        lines = [*self.promise(), *self.details()]
        return "\n".join([TITLE, *(f"  {line}" for line in lines)])

    def _released(self) -> str:
        """What left the curator, in words and numbers."""
        counts: dict[str, int] = {}
        for item in self.bill:
            words = str(item.get("released"))
            counts[words] = counts.get(words, 0) + item["count"]
        if not counts:
            return "nothing"
        parts = [f"{count} {words}" for words, count in counts.items()]
        return f"{one_line('; '.join(parts))}; everything else is computed from these"

    def _exact_bill(self) -> list[str]:
        lines = []
        if self.budget is not None:
            epsilon, delta = self.budget
            lines.append(f"Budget:    epsilon = {epsilon:.6g}, delta = {rounded_up(delta, 3)}")
        lines += [
            f"Bill:      {item['count']} x {one_line(item.get('query'))}" for item in self.bill
        ]
        if math.isfinite(self.epsilon):
            figures = (
                f"epsilon = {rounded_up(self.epsilon, 6)} at delta = {rounded_up(self.delta, 3)}"
            )
            lines.append(f"Computed:  {figures} by {self.method}")
        if self.second_epsilon is not None:
            second = f"epsilon = {rounded_up(self.second_epsilon, 6)} by {self.second_method}"
            is_larger = self.second_epsilon > self.epsilon * 1.00001
            opinion = ALONE if self.is_shared else SECOND + BOTH_HOLD * is_larger
            lines.append(f"           {second}{opinion}")
        return lines


@dataclass(frozen=True)
class FederatedStatement:
    """Several owners' promises: for the rows of each owner, its own.

    Attributes:
        owners: The statements by the owners' names.

    Example:
        >>> from dpmcmc.accounting import statement
        >>> from dpmcmc.types import Unit
        >>> stated = statement.Statement(
        ...     1.0, 1e-6, "rdp", 0.7, None, None, Unit(), 40, [], (1.0, 1e-6), ()
        ... )
        >>> statement.FederatedStatement({"north": stated}).facts()["owners"]
        'north'
    """

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

    def to_json(self) -> dict[str, Any]:
        """Every owner's statement by its name."""
        owners = {name: statement.to_json() for name, statement in self.owners.items()}
        return {"format": FEDERATED_FORMAT, "owners": owners}

    def ledger_json(self) -> str:
        """The same as text, for a file: `dpmcmc account ledger` verifies it."""
        return json.dumps(self.to_json())

    def __str__(self) -> str:
        lines = [TITLES.format(len(self.owners))]
        for name, statement in self.owners.items():
            lines += ["", f"Owner {one_line(name)}", *str(statement).splitlines()[1:]]
        return "\n".join(lines)


def from_json(document: Mapping[str, Any]) -> Statement | FederatedStatement:
    """Return the statement of one owner or of several, from what its `to_json` returned.

    Args:
        document: What `to_json` returned.

    Returns:
        The statement.

    Raises:
        KeyError: A field is missing.

    Example:
        >>> from dpmcmc.accounting import statement
        >>> from dpmcmc.types import Unit
        >>> stated = statement.Statement(
        ...     1.0, 1e-6, "rdp", 0.7, None, None, Unit(), 40, [], (1.0, 1e-6), ()
        ... )
        >>> statement.from_json(stated.to_json()) == stated
        True
    """
    if document.get("format") != FEDERATED_FORMAT:
        return Statement.from_json(document)
    owners = document["owners"]
    return FederatedStatement({name: Statement.from_json(each) for name, each in owners.items()})


def _finite(value: float) -> float | str:
    """JSON has no infinity: it is written as text."""
    return value if math.isfinite(value) else "inf"


def weakest(facts: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the weakest numbers of several owners' facts.

    A promise of these holds for the rows of all owners.

    Args:
        facts: What `Statement.facts` returned, for each owner.

    Returns:
        The weakest of each number.

    Example:
        >>> from dpmcmc.accounting import statement
        >>> from dpmcmc.types import Unit
        >>> stated = statement.Statement(
        ...     1.0, 1e-6, "rdp", 0.7, None, None, Unit(), 40, [], (1.0, 1e-6), ()
        ... )
        >>> statement.weakest([stated.facts(), stated.facts()])["epsilon"]
        1.0
    """
    return {
        "epsilon": max(fact["epsilon"] for fact in facts),
        "delta": max(fact["delta"] for fact in facts),
        "neighbours": ", ".join(dict.fromkeys(fact["neighbours"] for fact in facts)),
        "rows_per_person": min(fact["rows_per_person"] for fact in facts),
        "accountant": ", ".join(dict.fromkeys(fact["accountant"] for fact in facts)),
    }


def is_one_promise(attributes: Mapping[str, Any], accountants: Iterable[str]) -> bool:
    """Whether one promise covers several runs whose draws were put together.

    It does if all owners share their budgets, or promise nothing. Runs that share a budget have all
    facts in common; `arviz.concat` keeps those of the first, and lists what differs.

    Args:
        attributes: The attributes of the posterior.
        accountants: The accountant of each owner.

    Returns:
        Whether it does.

    Example:
        >>> from dpmcmc.accounting import statement
        >>> statement.is_one_promise({}, ["zcdp-filter"])
        True
    """
    methods = set(accountants)
    facts = ("epsilon", "delta", "neighbours", "rows_per_person", "accountant")
    differ = any(DIFFERS.format(name) in attributes for name in facts)
    return methods == {"none"} or (methods <= {*NAMES.values(), "none"} and not differ)


def promise_text(epsilon: float, delta: float) -> str:
    """Return the promise as it is printed.

    Args:
        epsilon: The promised epsilon.
        delta: The promised delta.

    Returns:
        The text.

    Example:
        >>> from dpmcmc.accounting import statement
        >>> statement.promise_text(1.0, 1e-6)
        '(1, 1e-06)-differential privacy'
    """
    if not math.isfinite(epsilon):
        return "epsilon = infinity: NO PRIVACY IS PROMISED"
    return f"({rounded_up(epsilon, 4)}, {rounded_up(delta, 3)})-differential privacy"


def rounded_up(value: float, digits: int) -> str:
    """Return a number as text with so many digits, never below it: it is a promise.

    Args:
        value: The number.
        digits: The number of significant digits.

    Returns:
        The text.

    Example:
        >>> from dpmcmc.accounting import statement
        >>> statement.rounded_up(0.12341, 3)
        '0.124'
    """
    text = f"{value:.{digits}g}"
    if float(text) < value < math.inf:
        text = f"{value + 0.5 * 10.0 ** (math.floor(math.log10(value)) + 1 - digits):.{digits}g}"
    return text


def percent(chance: float) -> str:
    """Return a probability in percent, to three digits, never below it.

    Args:
        chance: The probability.

    Returns:
        The text.

    Example:
        >>> from dpmcmc.accounting import statement
        >>> statement.percent(0.66201)
        '66.3'
    """
    return rounded_up(100 * chance, 3)


def one_line(text: Any) -> str:
    """Return a text without line breaks and control characters.

    A terminal would obey these, and others have chosen the text.

    Args:
        text: The text.

    Returns:
        The text in one line.

    Example:
        >>> from dpmcmc.accounting import statement
        >>> statement.one_line("a note,  of two"" lines")
        'a note, of two lines'
    """
    return "".join(
        char if char.isprintable() else ascii(char)[1:-1] for char in " ".join(str(text).split())
    )


def _unit_text(unit: Unit) -> str:
    """What is protected."""
    person = "one row"
    if unit.rows_per_person > 1:
        person = f"one person with at most {unit.rows_per_person} rows"
    is_replaced = unit.neighbours is Neighbours.REPLACE_ONE
    return f"{person}, {'replaced by any other' if is_replaced else 'added or removed'}"


def _meaning(unit: Unit, chance: float) -> str:
    """The promise as the chance of a guess."""
    is_one_row = unit.rows_per_person == 1
    this = "this row" if is_one_row else "this person's rows"
    alternatives = f"two values of {this}"
    if unit.neighbours is Neighbours.ADD_OR_REMOVE_ONE:
        alternatives = f"the presence and the absence of {this}"
    others = "every other row" if is_one_row else "the rows of all other persons"
    return MEANS.format(others=others, alternatives=alternatives, percent=percent(chance))


def _known_number(unit: Unit, capacity: Any) -> str:
    """What everybody may know of the number of rows."""
    if unit.neighbours is not Neighbours.REPLACE_ONE:
        return "the number of rows is private"
    what = "the number of rows" if unit.rows_per_person == 1 else "the table's capacity"
    return f"{what}, {capacity}, is public"
