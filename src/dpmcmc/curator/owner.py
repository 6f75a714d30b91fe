"""The curator: it alone holds the rows.

It reads the bill off a program, grants it within the budget, and runs it.

    traced     = curator.trace(program, *arguments)   its bill: traced.plan; shapes are enough
    executable = traced.compile()                     with the answers in their places, or a refusal
    grant      = curator.grant(plan)                  the ledger has it before this returns
    result     = grant.run(executable, *arguments)    refused if it asks more than is granted

`program(ask, *arguments)` is a pure JAX function; `ask(rng_key, query, *points)` is its only way to
learn about the rows.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import threading
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec

from dpmcmc.accounting.bill import Entry, checked, total_costs
from dpmcmc.accounting.ledger import record_all
from dpmcmc.accounting.statement import LargeDelta, Statement
from dpmcmc.curator import checks
from dpmcmc.curator.account import Account, delta_warnings, unit_of
from dpmcmc.curator.facts import Facts, facts_of
from dpmcmc.curator.noise import stream
from dpmcmc.curator.placement import AXIS, of_first_device, on_no_device, place
from dpmcmc.curator.processes import check_same_table, from_first, in_all, processes_of
from dpmcmc.curator.programs.program import (
    SECRET_SHAPE,
    Executable,
    Held,
    Program,
    Traced,
    compiled_by,
    execute,
    trace,
    without_side_effects,
)
from dpmcmc.curator.queries.filtered import Meter, charging
from dpmcmc.curator.queries.gradient import with_scales
from dpmcmc.curator.queries.statistic import with_statistic
from dpmcmc.curator.records import Handle, keep, record_of
from dpmcmc.curator.streamed import check_streamed
from dpmcmc.curator.sums import linear_rows
from dpmcmc.curator.sums.exact_sum import Table, one_row
from dpmcmc.curator.sums.streamed import Passes
from dpmcmc.engines import Partitions, engine_of
from dpmcmc.errors import BudgetExceeded, PrivacyRefusal
from dpmcmc.precision import is_double, own_settings
from dpmcmc.types import Answer, Budget, Model, Plan, Query, Unit, is_standing


class Curator:
    """Holds rows and answers queries about them, within one budget.

    Args:
        rows: An array, or a pytree of arrays with a common leading axis. They are copied. The
            arrays' types are public: floats are taken as they are (half and extended precision as
            float32), integers and booleans as 32-bit integers, larger ones as the largest. Or a
            `tables.dataset`, or an engine with one: its files are read in batches, at each pass.
        model: What one row contributes.
        budget: The promise. None promises nothing, and so does every statement.
        capacity: A public bound on the number of rows. Needed when that number is private: under
            add-or-remove, or with several rows per person (then persons times rows per person).
            Otherwise the number of rows is public and is the capacity.
        persons: Whose row each is, as whole numbers (`tables.persons` makes them of a column): only
            the first `rows_per_person` rows of each are used, and none of a negative one, which
            stands for nobody. Without it the bound is declared, and nobody checks.
        shared_by: How several grants share the budget. None allows one grant, accounted as tightly
            as we can; then the curator is closed. With "gaussian-dp", "zcdp" or "renyi" several
            grants, each chosen after seeing the results of the last, share the budget under this
            filter, which is fixed here ("renyi" costs less for accept bits of the penalty test and
            of the lazy one).
        ledger: A file that keeps the grants, so that another process opening the same table goes on
            where this one stopped.
        devices: The devices over which the rows are spread: of several processes that
            `jax.distributed` has joined, if every one of them makes the same curator of the same
            table. Each copies the part of its own devices.
        unit: Whom noise and figures are for where there is no budget, such as the `budget.unit` of
            one that there could be. One row that is replaced, if left out.
        fixed_secret: 512 bits that replace the operating system's, for tests and figures only: the
            statement then promises nothing.

    Raises:
        TypeError: The rows, the model or the budget are of the wrong kind.
        ValueError: An argument is out of its range, or the model does not take such rows.

    Example:
        >>> import numpy as np
        >>> import dpmcmc
        >>> rows = np.linspace(-1, 1, 10, dtype=np.float32)[:, None]
        >>> model = dpmcmc.models.gaussian([1.0], radius=2.0)
        >>> curator = dpmcmc.Curator(rows, model, dpmcmc.Budget(epsilon=1.0, delta=1e-6))
        >>> curator.capacity
        10
        >>> plan = {dpmcmc.queries.Gradient(clip=2.0, noise_multiplier=50.0): 9}
        >>> grant = curator.grant(plan)
        >>> grant.statement().epsilon < 1.0
        True
    """

    def __init__(
        self,
        rows: Any,
        model: Model,
        budget: Budget | None,
        *,
        capacity: int | None = None,
        persons: np.ndarray | None = None,
        shared_by: str | None = None,
        ledger: str | Path | None = None,
        devices: Sequence[Any] | None = None,
        unit: Unit | None = None,
        fixed_secret: np.ndarray | None = None,
    ) -> None:
        checks.check_promise(budget, model, shared_by, fixed_secret)
        self._fixed_secret = fixed_secret
        # the meter of the grant that runs
        self._lock = threading.Lock()
        self._meter = Meter()
        unit = unit_of(budget, unit)
        self._passes: Passes | None = None
        self._processes = processes_of(devices)
        checks.check_processes(self._processes, ledger)
        engine = engine_of(rows)
        if engine is not None:
            checks.check_engine(persons, devices)
            capacity = self._stream(engine, model, unit, capacity)
        else:
            capacity = self._place(rows, model, unit, capacity, persons, devices)
        for warning in delta_warnings(budget, capacity):
            warnings.warn(warning, LargeDelta, stacklevel=2)
        self._account = Account(
            budget,
            unit,
            capacity,
            shared_by,
            ledger,
            is_enforced=persons is not None,
            engine=engine if self._processes is None else self._processes,
        )

    def _place(
        self, rows: Any, model: Model, unit: Unit, capacity: int | None, persons: Any, devices: Any
    ) -> int:
        """Copy the rows to their devices. It returns the capacity."""
        leaves = jax.tree.map(checks.as_column, rows)
        if persons is not None:
            is_used = checks.first_of_each(persons, checks.count_rows(leaves, unit), unit)
            leaves = jax.tree.map(lambda leaf: leaf[is_used], leaves)
        num_rows = checks.count_rows(leaves, unit)
        capacity = checks.check_capacity(num_rows, capacity, unit)
        self._mesh = (
            None if devices is None else jax.make_mesh((len(devices),), (AXIS,), devices=devices)
        )
        self._row = one_row(leaves)
        if self._processes is not None:
            check_same_table(leaves)
        checks.check_model(model, self._row)
        with own_settings(is_double(self._row)):
            self._model = linear_rows.freeze_features(model, self._row)
        slots = None
        if not unit.is_count_public:
            order = stream.random_order(capacity, self._fixed_secret)
            slots = self._of_first_process(order)[:num_rows]
        placed = place(self._model, leaves, num_rows, capacity, slots, self._mesh)
        self._rows, self._num_rows, self._by_columns = placed
        return capacity

    def _stream(self, engine: Partitions, model: Model, unit: Unit, capacity: int | None) -> int:
        """Have the engine make passes over its rows. It returns the capacity."""
        capacity = checks.check_capacity(engine.num_rows, capacity, unit)
        self._mesh = self._by_columns = None
        self._row = engine.row
        checks.check_model(model, self._row)
        with own_settings():
            with jax.enable_x64(False):
                self._model = linear_rows.freeze_features(model, self._row)
            self._passes = Passes(engine, self._model, unit.is_count_public)
            self._rows = (), None, None, self._passes.rows
            self._num_rows = jnp.asarray(engine.num_rows, jnp.int64)
        return capacity

    def __repr__(self) -> str:
        return f"Curator(capacity={self.capacity}, budget={self.budget!r})"

    def __reduce__(self) -> NoReturn:
        raise PrivacyRefusal(
            "a curator cannot be pickled or copied: make one where it is needed. Its rows would go "
            "with it, and its budget would be there twice; processes that share a budget share a "
            "ledger="
        )

    # Read only: a promise does not change once it was made.

    @property
    def model(self) -> Model:
        """What one row contributes."""
        return self._model

    @property
    def budget(self) -> Budget | None:
        """The promise; None promises nothing."""
        return self._account.budget

    @property
    def unit(self) -> Unit:
        """Whom the promise protects."""
        return self._account.unit

    @property
    def capacity(self) -> int:
        """The public bound on the number of rows."""
        return self._account.capacity

    @property
    def row(self) -> Any:
        """Shapes and types of one row, which are public."""
        return self._row

    @property
    def facts(self) -> Facts:
        """All that settings may be chosen from: public, and as it is now."""
        account = self._account
        return facts_of(
            self.model,
            self.unit,
            self.capacity,
            self.budget,
            account.shared_by,
            account.share_left,
        )

    @property
    def num_grants(self) -> int:
        """The number of grants so far: all that the ledger has."""
        return len(self._account.ledger.grants)

    # What may be asked

    def trace(self, program: Program, *arguments: Any) -> Traced:
        """Trace the program at the shapes of its arguments and read off its bill.

        No row is touched.

        Args:
            program: The program: program(ask, *arguments), a pure JAX function.
            *arguments: Its arguments, or their shapes.

        Returns:
            The traced program, whose `plan` is the number of asks of each query.

        Raises:
            UnboundedQueries: The number of asks is not fixed, or one key serves two of them.
            UnsupportedQuery: A query cannot be asked in this way.
            TypeError: The program needs a value in Python that is known only when it runs.
        """
        stored = self._rows, self._num_rows, SECRET_SHAPE
        return trace(
            self, program, stored, arguments, None if self._mesh is None else self._on_every_device
        )

    def max_steps(self, initial: Plan, per_step: Plan) -> int:
        """The largest number of steps whose bill, with `initial`, fits the budget that is left.

        Args:
            initial: The queries that are asked once.
            per_step: The queries that every step asks.

        Returns:
            The number of steps.

        Raises:
            BudgetExceeded: Nothing more can be granted, or `initial` alone does not fit.
            ValueError: Any number of steps fits.
        """
        return self._account.max_steps(initial, per_step)

    def limit(self, initial: Plan, per_step: Plan) -> tuple[int, str]:
        """`max_steps`, and in words what sets it.

        Args:
            initial: The queries that are asked once.
            per_step: The queries that every step asks.

        Returns:
            The number of steps, and what sets it.

        Raises:
            BudgetExceeded: Nothing more can be granted, or `initial` alone does not fit.
            ValueError: Any number of steps fits.
        """
        return self.max_steps(initial, per_step), self.what_is_left()

    def what_is_left(self) -> str:
        """The budget in words, or what is left of one that several grants share.

        Returns:
            A part of a sentence.
        """
        return self._account.what_is_left()

    @property
    def share_left(self) -> float:
        """The share of the budget that is left for further grants, from 0 to 1.

        It is a share of mu^2 where the budget is shared by "gaussian-dp".
        """
        return self._account.share_left

    def grant(self, plan: Plan) -> Grant:
        """Bill the whole plan at once. Nothing is refunded.

        Args:
            plan: The number of asks of each query.

        Returns:
            The grant, which runs programs that ask no more than the plan.

        Raises:
            BudgetExceeded: The plan does not fit what is left of the budget.
            UnsupportedQuery: A query has no bound that the promise needs.
        """
        (grant,) = bill_all([self], plan)
        return grant

    def withdraw(self) -> None:
        """Have no further program run on these rows: a run in progress ends with its block.

        Nothing is refunded. It is for another thread than the one that samples, such as
        `threading.Timer(3600, curator.withdraw).start()`.
        """
        self._account.is_withdrawn = True

    def check(self, plan: Plan) -> None:
        """Refuse a plan that would not be granted now. Spends nothing.

        Args:
            plan: The number of asks of each query.

        Raises:
            BudgetExceeded: The plan does not fit what is left of the budget.
            UnsupportedQuery: A query has no bound that the promise needs, or is not answered by
                passes over rows that are read in batches.
            PrivacyRefusal: A file of a dataset was changed since it was opened.
        """
        if self._passes is not None:
            for query in plan:
                check_streamed(query, self._passes.rows)
            self._passes.engine.check()
        self._account.check(plan)

    def bill(self, plan: Plan) -> tuple[Entry, ...]:
        """What the plan costs, entry by entry. Spends nothing.

        Args:
            plan: The number of asks of each query.

        Returns:
            One entry for each query: its cost, and how often it is asked.

        Raises:
            UnsupportedQuery: A query has no bound that the promise needs.
        """
        return self._account.bill(plan)

    def expected_statement(self, plan: Plan) -> Statement:
        """What a grant of this plan would promise. Spends nothing.

        Args:
            plan: The number of asks of each query.

        Returns:
            The statement.

        Raises:
            UnsupportedQuery: A query has no bound that the promise needs.
        """
        is_secret_fixed = self._fixed_secret is not None
        return self._account.statement(plan, self.bill(plan), is_secret_fixed)

    # How it is answered

    def hold(self, stored: Any, num_rows: Any, secret: Any, axis: str | None = None) -> Held:
        """What this owner answers from, inside a compiled program.

        Args:
            stored: The rows, as an argument of the program.
            num_rows: The number of rows, as an argument of the program.
            secret: The secret of the run, as an argument of the program.
            axis: The name of the device axis when the rows are spread over several devices.

        Returns:
            The table and the secret.
        """
        charge = charging(lambda: self._meter)
        rows, occupied, device, integers = stored
        table = Table(
            rows, num_rows, self.unit, axis, self.capacity,
            charge=charge, occupied=occupied, device=device, integers=integers,
            by_columns=self._by_columns,
        )  # fmt: skip
        if self._passes is not None:
            return table, secret
        return without_side_effects(
            lambda table: with_statistic(with_scales(table, self.model), self.model), table
        ), secret

    def sums(self, queries: list[Query], held: Held, *points: Any) -> dict[str, Any]:
        """The exact sums that several queries at the same points need, by one pass over the rows.

        Args:
            queries: The queries.
            held: What it answers from, of `hold`.
            *points: The positions.

        Returns:
            The sum of each kind; none where each query makes its own pass.
        """
        table, _ = held
        parts = [query.part(table) for query in queries if hasattr(query, "part")]
        kinds = {part.kind for part in parts if part is not None}
        passes = {part.sums for part in parts if part is not None}
        if len(kinds) < 2 or len(passes) > 1:
            return {}
        if table.axis is not None:
            points = tuple(of_first_device(table, value) for value in points)
        return passes.pop()(table, tuple(sorted(kinds)), *points)

    def answer(
        self,
        held: Held,
        words: Any,
        query: Query,
        points: Any,
        place: int,
        sums: dict[str, Any],
    ) -> Answer:
        """How this owner answers, in float64.

        Args:
            held: What it answers from, of `hold`.
            words: The words of the ask's key and lane.
            query: The query.
            points: The positions, and perhaps the public part of the log-ratio.
            place: The number of the ask in the program.
            sums: Exact sums at these points, of `sums`.

        Returns:
            The answer.

        Raises:
            ValueError: The points are not those that the query is asked with.
            TypeError: The query does not return an `Answer`.
        """
        checks.check_points(query, points, self.model.dimension)
        checks.check_kind(query, points)
        if self._passes is not None:
            check_streamed(query, self._passes.rows)
        table, secret = held
        if table.axis is not None:
            words, *points = (of_first_device(table, value) for value in (words, *points))
        table = dataclasses.replace(table, sums=sums or None)
        answer = query.answer(
            stream.ask_key(secret, words, query, points, place), self.model, table, *points
        )
        if not isinstance(answer, Answer):
            name = type(query).__name__
            raise TypeError(
                f"{name}.answer returned a {type(answer).__name__}: it must return Answer(value, "
                "variance)"
            )
        return answer

    def _on_every_device(self, run: Program) -> Program:
        """The same on every device, each with its part of the rows."""
        whole = PartitionSpec()
        rows = jax.tree.map(lambda leaf: leaf.sharding.spec, self._rows)
        return lambda stored, num_rows, secret, *arguments: jax.shard_map(
            functools.partial(run, functools.partial(self.hold, axis=AXIS)),
            mesh=self._mesh,
            in_specs=(rows, whole, whole, *(whole for _ in arguments)),
            out_specs=whole,
            check_vma=False,
        )(stored, num_rows, secret, *arguments)

    def _fresh_secret(self) -> np.ndarray:
        if self._fixed_secret is not None:
            return np.asarray(self._fixed_secret, np.uint32)
        return self._of_first_process(stream.fresh_secret())

    def _of_first_process(self, numbers: np.ndarray) -> np.ndarray:
        """Random numbers that all processes must share."""
        return numbers if self._processes is None else from_first(numbers.astype(np.uint32))


@dataclass(eq=False)
class Granted:
    """A grant, as it is kept in `records`."""

    curator: Curator
    statement: Statement
    left: Counter[Query]
    secret: np.ndarray
    runs: Iterator[int]
    meter: Meter

    def check(self, plan: Plan) -> None:
        """Refuse a program that asks more than is left, or any once the rows were withdrawn."""
        self.curator._account.check_consent()
        for query, count in plan.items():
            if count > self.left[query]:
                raise BudgetExceeded(
                    f"the program asks {query} {count} times, {self.left[query]} are left of the "
                    "grant"
                )

    def take(self, plan: Plan) -> tuple[Any, Any, Any]:
        """Take a checked program's asks off the grant.

        It returns what the program runs on: the rows, their number, and the secret.
        """
        self.left.subtract(
            {query: count for query, count in plan.items() if not is_standing(query)}
        )
        words = jnp.asarray(stream.secret_of(self.secret, next(self.runs)), jnp.uint32)
        return self.curator._rows, self.curator._num_rows, words


class Grant(Handle):
    """A billed plan, and the fresh secret that its answers are made with.

    It is made by `Curator.grant`; what is left of it is kept in `records`.

    Example:
        >>> import numpy as np
        >>> import dpmcmc
        >>> rows = np.linspace(-1, 1, 10, dtype=np.float32)[:, None]
        >>> model = dpmcmc.models.gaussian([1.0], radius=2.0)
        >>> curator = dpmcmc.Curator(rows, model, dpmcmc.Budget(epsilon=1.0, delta=1e-6))
        >>> grant = curator.grant({dpmcmc.queries.Count(noise_multiplier=50.0): 1})
        >>> curator.num_grants
        1
        >>> grant.statement("a first count").notes[-1]
        'a first count'
    """

    __slots__ = ()

    def run(self, executable: Executable, *arguments: Any) -> Any:
        """Run a compiled program once.

        Its asks are taken off the grant before a row is touched.

        Args:
            executable: The program, compiled for the curator that has given out this grant.
            *arguments: Its arguments.

        Returns:
            What the program returns.

        Raises:
            BudgetExceeded: The program asks more than is left, or the rows were withdrawn.
            PrivacyRefusal: The program or the grant is not of this curator, or a pass over a
                dataset did not read the rows that were there.
        """
        granted = granted_of(self)
        curator = granted.curator
        program = compiled_by(granted.curator, executable)
        with curator._lock:
            granted.check(program.plan)
            curator._meter = granted.meter
            try:
                found = execute(program.compiled, granted.take(program.plan), arguments)
                return found if curator._mesh is None else jax.tree.map(on_no_device, found)
            except Exception:
                failure = None if curator._passes is None else curator._passes.failure()
                if failure is None:
                    raise
            raise failure

    def statement(self, *notes: str) -> Statement:
        """What this grant promised, with its bill.

        Args:
            *notes: Lines to add to the statement's notes.

        Returns:
            The statement.

        Raises:
            PrivacyRefusal: The grant was not given out by a curator.
        """
        statement = granted_of(self).statement
        return dataclasses.replace(statement, notes=statement.notes + notes)


def granted_of(grant: Grant) -> Granted:
    """The record of a grant, or a refusal."""
    return record_of(grant, Granted, "a grant that a curator has given out (curator.grant(plan))")


# -- what one owner and several have in common


def bill_all(owners: Sequence[Curator], plan: Plan) -> list[Grant]:
    """Bill every owner for the whole plan, or none of them."""
    plan = checked(plan)  # one copy for the check, the bill and the grant
    with contextlib.ExitStack() as locks:
        # In one order for everybody: else two that bill the same owners could wait for each other.
        for lock in sorted((owner._account.lock for owner in owners), key=id):
            locks.enter_context(lock)
        return _bill_all(owners, plan)


def _bill_all(owners: Sequence[Curator], plan: Plan) -> list[Grant]:
    accounts = [owner._account for owner in owners]
    bills = in_all(owners[0]._processes, functools.partial(_checked_bills, owners, plan))
    # Everything that can fail comes before the ledger: after it, the draws must be delivered.
    statements = [
        owner._account.statement(plan, bill, owner._fixed_secret is not None)
        for owner, bill in zip(owners, bills, strict=True)
    ]
    assert all(str(statement) and statement.ledger_json() for statement in statements)
    granted = [
        Granted(owner, statement, Counter(plan), owner._fresh_secret(), itertools.count(), Meter())
        for owner, statement in zip(owners, statements, strict=True)
    ]
    grants = [Grant() for _ in owners]
    record_all([account.ledger for account in accounts], bills)
    for grant, record in zip(grants, granted, strict=True):
        keep(grant, record)
    for account, bill in zip(accounts, bills, strict=True):
        if account.filter is not None:
            account.filter.spend(total_costs(bill))
    return grants


def _checked_bills(owners: Sequence[Curator], plan: Plan) -> list[tuple[Entry, ...]]:
    for owner in owners:
        owner.check(plan)
    return [owner._account.bill(plan) for owner in owners]
