"""The account of one table: its budget, what was spent of it, and what is promised for a bill.

It knows no row. A plan is how often each query is asked. Its bill is what each of them costs for
the unit of privacy (`bill.entries`), and the account decides whether the bill fits what is left.
Either one bill gets the whole budget, or several share it by a filter.
"""

from __future__ import annotations

import functools
import math
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dpmcmc.accounting import accountants, calibrate, filters, guess
from dpmcmc.accounting.bill import Entry, entries, is_ours, to_json, total_costs
from dpmcmc.accounting.costs import NonPrivate
from dpmcmc.accounting.ledger import Ledger
from dpmcmc.accounting.statement import (
    AT_MOST,
    BY_ENGINE,
    CHANGES,
    CHOICES,
    EXACT_SUMS,
    FIRST_OF_EACH,
    FIXED_SECRET,
    IN_ONE_PROCESS,
    LARGE_DELTA,
    LARGE_DELTA_OF_PLACES,
    NOBODY_HAS_MORE,
    NOT_OURS,
    OTHER_RELEASES,
    ROWS_OF_FILE,
    SHARED_BUDGET,
    SINGLE_ROWS,
    TIME,
    Statement,
)
from dpmcmc.curator.noise import stream
from dpmcmc.errors import BudgetExceeded, PrivacyRefusal, UnsupportedQuery
from dpmcmc.types import Budget, Neighbours, Plan, Unit, is_standing

DELTA = 1e-6  # that statements are about where there is no budget


class Account:
    """What may still be spent on a table, and what is promised for it."""

    def __init__(
        self,
        budget: Budget | None,
        unit: Unit,
        capacity: int,
        shared_by: str | None,
        path: str | Path | None,
        is_enforced: bool = False,
        engine: Any = None,
    ) -> None:
        self.budget = budget
        self.unit = unit
        self.capacity = capacity
        self.shared_by = shared_by
        self.is_enforced = is_enforced  # that nobody has more rows than the unit allows
        self.engine = engine  # that has the rows, where they are not in memory
        self.lock = threading.Lock()  # one grant at a time, from the check to what is written down
        self.ledger = Ledger.open(self._facts(), path)
        self.filter: filters.Filter | None = None
        self.is_withdrawn = False
        self._last_bill: tuple[tuple[Any, ...], tuple[Entry, ...]] = ((), ())
        self._process = os.getpid()
        if shared_by is not None and budget is not None:
            self.filter = filters.FILTERS[shared_by](budget.epsilon, budget.delta)
            for bill in self.ledger.grants:
                self.filter.spend(total_costs(bill))

    @property
    def delta(self) -> float:
        """The delta of the promise, and of figures that are printed where there is none."""
        return DELTA if self.budget is None else self.budget.delta

    def _facts(self) -> dict[str, Any]:
        """What must not change from one opening of the ledger to the next."""
        budget = None if self.budget is None else [self.budget.epsilon, self.budget.delta]
        return {
            "budget": budget,
            "neighbours": self.unit.neighbours.value,
            "rows_per_person": self.unit.rows_per_person,
            "capacity": self.capacity,
            "shared_by": self.shared_by,
            "persons": "enforced" if self.is_enforced else None,
        }

    # -- whether a plan may be granted

    def bill(self, plan: Plan) -> tuple[Entry, ...]:
        """What the plan costs, entry by entry, made once for the same queries and counts.

        Under a promise, queries without any bound are refused.
        """
        items = tuple(plan.items())
        billed, bill = self._last_bill
        # Compared by identity: a query of another author may define equality in its own way
        is_same = len(billed) == len(items) and all(
            ours is theirs and count == counted
            for (ours, count), (theirs, counted) in zip(billed, items, strict=True)
        )
        if not is_same:
            bill = self._made_bill(plan)
            self._last_bill = (items, bill)
        return bill

    def _made_bill(self, plan: Plan) -> tuple[Entry, ...]:
        bill = entries(plan, self.unit)
        for entry in bill if self.budget is not None else ():
            if isinstance(entry.cost, NonPrivate):
                raise UnsupportedQuery(
                    f"{entry.query} is not private at any budget ({entry.cost.reason}): to run it "
                    "as a baseline, promise nothing, with Curator(rows, model, None)"
                )
        return bill

    def check(self, plan: Plan) -> None:
        """Refuse a plan that would not be granted now. Spends nothing."""
        self._check_open()
        costs = total_costs(self.bill(plan))
        if self.filter is not None:
            self.filter.check(costs)
        elif self.budget is not None:
            spent = self._spent(costs)
            if not spent.epsilon <= self.budget.epsilon:
                way_out = (
                    "choose a smaller rho"
                    if any(map(is_standing, plan))
                    else "ask for fewer steps or add noise"
                )
                raise BudgetExceeded(
                    f"the run costs epsilon={spent.epsilon:.4g} at delta={self.budget.delta:.3g} "
                    f"(by {spent.method}), the budget is epsilon={self.budget.epsilon:.4g}: "
                    f"{way_out}"
                )

    def max_steps(self, initial: Plan, per_step: Plan) -> int:
        """The largest number of steps whose bill, with `initial`, fits the budget that is left."""
        first = total_costs(self.bill(initial))
        each = total_costs(self.bill(per_step))
        self._check_open()
        if self.budget is None or all(map(is_standing, per_step)):
            why = (
                "there is no budget"
                if self.budget is None
                else "nothing is billed by the step (a filter is paid once)"
            )
            raise ValueError(f"{why}, so any number of steps fits: give num_steps")
        if self.filter is None:
            return calibrate.steps(each, self.budget.epsilon, self.budget.delta, initial=first)
        return self.filter.steps(each, first)

    def what_is_left(self) -> str:
        """The budget in words, or what is left of one that several grants share."""
        if self.filter is None or not self.ledger.grants:
            return str(self.budget)
        left = f"{self.filter.left:.3g} of {self.filter.total:.3g} {self.filter.unit}"
        return f"what is left of {self.budget}, {left},"

    @property
    def share_left(self) -> float:
        """What part of the budget is left, in the measure in which its grants are added up."""
        if self.filter is None:
            return 0.0 if self.ledger.grants and self.budget is not None else 1.0
        return self.filter.left / self.filter.total if self.filter.total > 0 else 0.0

    def check_consent(self) -> None:
        """Refuse to run anything, whatever was granted, once nothing may be run.

        That is so once the rows were withdrawn, and in a copy of the process.
        """
        if self.is_withdrawn:
            raise BudgetExceeded("the rows were withdrawn: nothing more is run on them")
        if os.getpid() != self._process:
            raise BudgetExceeded(
                "this process is a copy (a fork) of the one that made the curator, and would spend "
                "its budget once more: make a curator here, with a ledger= that all processes share"
            )

    def _check_open(self) -> None:
        self.check_consent()
        self.ledger.check_current()
        if self.budget is not None and self.filter is None and self.ledger.grants:
            raise BudgetExceeded(
                "this curator has given its one grant and is closed; to share a budget among "
                "several runs, create it with shared_by='gaussian-dp' (all queries Gaussian) or "
                "'zcdp'"
            )

    # -- the statement that goes with a bill

    def statement(self, plan: Plan, bill: tuple[Entry, ...], is_secret_fixed: bool) -> Statement:
        """The promise that goes with the bill of this plan.

        There is none if somebody knows the secret that the noise is made of.
        """
        epsilon, method, second_epsilon, second_method = self._claim(bill, is_secret_fixed)
        generator = (
            FIXED_SECRET
            if is_secret_fixed
            else f"the generator of the secret stream: {stream.GENERATOR}"
        )
        reasons = tuple(
            f"{entry.query}: {entry.cost.reason}"
            for entry in bill
            if isinstance(entry.cost, NonPrivate)
        )
        notes = reasons if self.filter is None else (SHARED_BUDGET,)
        exactness = () if reasons else (EXACT_SUMS,)
        limits = self._limits() if math.isfinite(epsilon) else []
        return Statement(
            epsilon=epsilon,
            delta=self.delta,
            method=method,
            chance=guess.chance(total_costs(bill), epsilon, self.delta, method)
            if math.isfinite(epsilon)
            else None,
            second_epsilon=second_epsilon,
            second_method=second_method,
            unit=self.unit,
            capacity=self.capacity if self.unit.neighbours is Neighbours.REPLACE_ONE else None,
            bill=to_json(bill),
            budget=None if self.budget is None else (self.budget.epsilon, self.budget.delta),
            assumptions=(
                *self._declared(),
                *_not_ours(plan),
                generator,
                *exactness,
                IN_ONE_PROCESS,
                *self._engine(),
                *limits,
                TIME,
            ),
            notes=(*notes, *delta_warnings(self.budget, self.capacity)),
        )

    def _engine(self) -> list[str]:
        """Who makes the passes over the rows, and sees sums without noise."""
        if self.engine is None:
            return []
        return [BY_ENGINE.format(self.engine.name, self.engine.who_sees)]

    def _declared(self) -> list[str]:
        rows = self.unit.rows_per_person
        # Which may have others, that are not used
        which = "used are" if self.is_enforced else "the table has"
        lines = [] if self.unit.is_count_public else [AT_MOST.format(which, self.capacity)]
        if self.is_enforced:
            return [*lines, FIRST_OF_EACH.format("row was" if rows == 1 else f"{rows} rows were")]
        return [*lines, NOBODY_HAS_MORE.format(rows)] if rows > 1 else lines

    def _limits(self) -> list[str]:
        """What a promise is not about."""
        limits = [ROWS_OF_FILE]
        limits += [CHANGES] if self.unit.neighbours is Neighbours.ADD_OR_REMOVE_ONE else []
        limits += (
            [SINGLE_ROWS, CHOICES]
            if self.unit.rows_per_person == 1 and not self.is_enforced
            else [CHOICES]
        )
        if self.budget is None:
            return limits  # here the statement has a line about other runs
        return [
            *limits,
            OTHER_RELEASES.format(
                "this run alone" if self.filter is None else "all that shares this budget"
            ),
        ]

    def _claim(
        self, bill: tuple[Entry, ...], is_secret_fixed: bool
    ) -> tuple[float, str, float | None, str | None]:
        """epsilon and its method, then a second figure and what it is, where there is one."""
        if is_secret_fixed:
            # With a known secret even a second opinion would be a wrong one
            return math.inf, "none", None, None
        costs = total_costs(bill)
        alone = self._spent(costs)
        if self.filter is not None and self.shared_by is not None:
            return (
                self.filter.epsilon,
                filters.NAMES[self.shared_by],
                alone.epsilon,
                alone.method,
            )
        if any(isinstance(entry.cost, NonPrivate) for entry in bill):
            return *alone, None, None  # infinity needs none
        return *alone, *self._second_opinion(costs, alone.method)

    def _second_opinion(
        self, costs: Mapping[Any, int], first: str
    ) -> tuple[float | None, str | None]:
        for method in ("pld", "rdp", "zcdp", "pure"):
            try:
                if method != first:
                    return accountants.epsilon_by(method, costs, self.delta), method
            except PrivacyRefusal:
                continue
        return None, None

    def _spent(self, costs: Mapping[Any, int]) -> accountants.Spent:
        most = None if self.budget is None or self.filter is not None else self.budget.epsilon
        return _spent(tuple(costs.items()), self.delta, most)


def unit_of(budget: Budget | None, unit: Unit | None = None) -> Unit:
    """Whom a budget protects.

    Without one, figures are for the given unit, or for one row that is replaced.
    """
    if unit is None:
        return Unit() if budget is None else budget.unit
    if budget is not None:
        raise ValueError("unit= is for curators without a budget: a Budget has its own unit")
    if not isinstance(unit, Unit):
        raise TypeError(
            f"unit is a {type(unit).__name__}: it must be a Unit, such as "
            "Unit(Neighbours.ADD_OR_REMOVE_ONE)"
        )
    return Budget(1.0, DELTA, *unit).unit  # which checks its parts


def _not_ours(plan: Plan) -> list[str]:
    return [
        NOT_OURS.format(name)
        for name in sorted({type(query).__name__ for query in plan if not is_ours(query)})
    ]


def delta_warnings(budget: Budget | None, capacity: int) -> list[str]:
    """Warnings of a delta within which one random row could be released: above 1/n.

    Where n is private, the capacity stands for it.
    """
    if budget is None or budget.delta <= budget.rows_per_person / capacity:
        return []
    if budget.unit.is_count_public:
        return [LARGE_DELTA.format(budget.delta, capacity)]
    return [LARGE_DELTA_OF_PLACES.format(budget.delta, budget.rows_per_person, capacity)]


@functools.lru_cache(maxsize=64)
def _spent(
    costs: tuple[tuple[Any, int], ...], delta: float, most: float | None
) -> accountants.Spent:
    """What the costs amount to.

    A bill that is far over `most` is given without the noise's total-variation error.
    """
    try:
        return accountants.epsilon(dict(costs), delta)
    except PrivacyRefusal as refusal:
        # No accountant has a figure, or at this epsilon even the rounding of the noise is too much
        # for delta.
        if most is None:
            return accountants.Spent(math.inf, "none")
        if not isinstance(refusal, BudgetExceeded):
            raise
        ideal = accountants.epsilon(calibrate.ideal_costs(dict(costs)), delta)
        if ideal.epsilon > most:
            return ideal
        raise
