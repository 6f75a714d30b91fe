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

import dataclasses
import functools
import threading
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec

from dpmcmc.accounting.bill import Entry
from dpmcmc.accounting.statement import LargeDelta, Statement
from dpmcmc.curator import checks
from dpmcmc.curator.account import Account, delta_warnings, unit_of
from dpmcmc.curator.facts import Facts, facts_of
from dpmcmc.curator.grants import Grant, bill_all
from dpmcmc.curator.noise import stream
from dpmcmc.curator.placement import AXIS, Placed, of_first_device, place, shape_of
from dpmcmc.curator.processes import check_same_table, from_first, processes_of
from dpmcmc.curator.programs.answers import without_side_effects
from dpmcmc.curator.programs.program import (
    SECRET_SHAPE,
    Held,
    Program,
    Traced,
    trace,
)
from dpmcmc.curator.queries.filtered import Meter, charging
from dpmcmc.curator.queries.gradient import with_scales
from dpmcmc.curator.queries.statistic import with_statistic
from dpmcmc.curator.streamed import check_streamed
from dpmcmc.curator.sums import linear_rows
from dpmcmc.curator.sums.exact_sum import Table, one_row
from dpmcmc.curator.sums.streamed import Passes
from dpmcmc.engines import Partitions, engine_of
from dpmcmc.errors import PrivacyRefusal
from dpmcmc.precision import is_double, own_settings
from dpmcmc.types import Answer, Budget, Model, Plan, Query, Unit


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
        self._placed = place(self._model, leaves, num_rows, capacity, slots, self._mesh)
        return capacity

    def _stream(self, engine: Partitions, model: Model, unit: Unit, capacity: int | None) -> int:
        """Have the engine make passes over its rows. It returns the capacity."""
        capacity = checks.check_capacity(engine.num_rows, capacity, unit)
        self._mesh = None
        self._row = engine.row
        checks.check_model(model, self._row)
        with own_settings():
            with jax.enable_x64(False):
                self._model = linear_rows.freeze_features(model, self._row)
            self._passes = Passes(engine, self._model, unit.is_count_public)
            stored = (), None, None, self._passes.rows
            number = jnp.asarray(engine.num_rows, jnp.int64)
            shapes = jax.tree.map(shape_of, stored)
            self._placed = Placed(None, lambda: stored, shapes, number, None)
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
        spread = None if self._mesh is None else self._on_every_device
        return trace(self, program, arguments, spread)

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

    def stored(self, plan: Plan) -> Any:
        """What a compiled program with this plan takes: all, or all but the cells of rows.

        Args:
            plan: The number of asks of each query.

        Returns:
            The rows, for `hold`.
        """
        return self._placed.stored if self._needs_cells(plan) else self._placed.without_cells

    def shapes(self, plan: Plan | None = None) -> Any:
        """The shapes of the rows, their number and the secret, as a compiled program takes them.

        Args:
            plan: The number of asks of each query; None for a program that may ask all.

        Returns:
            The shapes.
        """
        rows = self._placed.shapes
        if plan is not None:
            # Cells are copied here, where a failure costs nothing yet
            rows = jax.tree.map(shape_of, self.stored(plan))
        return rows, shape_of(self._placed.num_rows), SECRET_SHAPE

    def _needs_cells(self, plan: Plan) -> bool:
        """Whether a query needs more of the rows than their integers."""
        if self._placed.without_cells is None:
            return True
        *_, integers = self._placed.without_cells
        table = Table((), self._placed.num_rows, self.unit, integers=integers)
        return any(
            not hasattr(query, "part") or query.part(self.model, table) is None for query in plan
        )

    @property
    def kind(self) -> Any:
        """Equal for curators whose answers are one function of what they store; None if for none.

        Rows that are read in batches are not stored.
        """
        if self._passes is not None or self._mesh is not None:
            return None
        found = self.model, self.unit, self.capacity, self._placed.by_columns
        try:
            hash(found)
        except TypeError:  # a model whose parts cannot be compared
            return None
        return found

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
            by_columns=self._placed.by_columns,
        )  # fmt: skip
        if not rows:  # integers alone
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
        parts = [query.part(self.model, table) for query in queries if hasattr(query, "part")]
        kinds = {part.kind for part in parts if part is not None}
        passes = {part.sums for part in parts if part is not None}
        if len(passes) != 1:
            return {}
        if table.axis is not None:
            points = tuple(of_first_device(table, value) for value in points)
        return passes.pop()(self.model, table, tuple(sorted(kinds)), *points)

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
        rows = jax.tree.map(lambda leaf: leaf.sharding.spec, self._placed.stored)
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
