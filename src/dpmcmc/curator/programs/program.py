"""Programs: traced where there are no rows, compiled with the answers put in, and run.

They run on what their owners hold.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpmcmc.accounting.bill import is_ours
from dpmcmc.curator.programs.answers import answers_of, respond, sums_of
from dpmcmc.curator.programs.asked import asked
from dpmcmc.curator.programs.compiling import compiled_once
from dpmcmc.curator.programs.interpreter import Company, count_queries, put_answers
from dpmcmc.curator.programs.jaxprs import has_side_effects
from dpmcmc.curator.programs.script import script_of
from dpmcmc.curator.programs.stages import NotInStages
from dpmcmc.curator.records import Handle, keep, record_of
from dpmcmc.errors import PrivacyRefusal, UnsupportedQuery
from dpmcmc.keeping import keep_last
from dpmcmc.precision import in_double, own_settings
from dpmcmc.types import Answer, Plan, Query, is_standing

Program = Callable[..., Any]
Held = Any  # (table, secret) of one owner, or of several by name: a pytree
# Traces and scripts of programs that are values: dataclasses, equal if they do the same
_TRACES: dict[Any, Any] = {}
_SCRIPTS: dict[Any, Any] = {}
SECRET_SHAPE = jax.ShapeDtypeStruct((16,), np.uint32)


class Executable(Handle):
    """A compiled program, made by `Traced.compile`.

    Its bill is the one that was read off what is compiled: both are kept in `records`.

    Example:
        >>> import jax
        >>> import numpy as np
        >>> import dpmcmc
        >>> rows = np.linspace(-1, 1, 10, dtype=np.float32)[:, None]
        >>> model = dpmcmc.models.gaussian([1.0], radius=2.0)
        >>> curator = dpmcmc.Curator(rows, model, dpmcmc.Budget(epsilon=1.0, delta=1e-6))
        >>> query = dpmcmc.queries.Count(noise_multiplier=50.0)
        >>> def program(ask, rng_key, position):
        ...     return ask(rng_key, query, position)
        >>> traced = curator.trace(program, jax.random.key(0), np.zeros(1, np.float32))
        >>> executable = traced.compile()
        >>> executable.plan == {query: 1}
        True
    """

    __slots__ = ()

    @property
    def plan(self) -> Plan:
        """The number of asks of each query."""
        return _compiled_of(self).plan

    @property
    def compiled(self) -> Any:
        """What JAX has compiled, to inspect its memory or its text."""
        return _compiled_of(self).compiled


class Traced(Handle):
    """A traced program: what it asks and what it returns. Both are kept in `records`.

    It is made by `Curator.trace`.

    Example:
        >>> import jax
        >>> import numpy as np
        >>> import dpmcmc
        >>> rows = np.linspace(-1, 1, 10, dtype=np.float32)[:, None]
        >>> model = dpmcmc.models.gaussian([1.0], radius=2.0)
        >>> curator = dpmcmc.Curator(rows, model, dpmcmc.Budget(epsilon=1.0, delta=1e-6))
        >>> query = dpmcmc.queries.Count(noise_multiplier=50.0)
        >>> def program(ask, rng_key, position):
        ...     return ask(rng_key, query, position)
        >>> traced = curator.trace(program, jax.random.key(0), np.zeros(1, np.float32))
        >>> traced.plan == {query: 1}
        True
        >>> traced.shapes.value.shape
        (1,)
    """

    __slots__ = ()

    @property
    def plan(self) -> Plan:
        """The number of asks of each query."""
        return _traced_of(self).plan

    @property
    def shapes(self) -> Any:
        """The shapes of what the program returns."""
        return _traced_of(self).shapes

    def compile(self, in_stages: bool = False) -> Executable:
        """Compile the program, with the answers in their places.

        Args:
            in_stages: Compile what lies between its asks, each pass over the rows and each answer
                by itself, where that is possible: quicker to compile, slower to run many times.

        Returns:
            The compiled program.

        Raises:
            PrivacyRefusal: The traced program was not made by a curator, or was changed.
            UnboundedQueries: A query is asked inside an operation that hides it from the bill.
        """
        traced = _traced_of(self)
        with own_settings():
            compiled = _staged(traced) if in_stages else None
            if compiled is None:
                whole = traced.with_answers()
                compiled = compiled_once(whole, traced.shardings).result()
        executable = Executable()
        keep(executable, _Compiled(traced.plan, compiled, traced.owner))
        return executable


def _staged(traced: _Traced) -> Any:
    """The program in stages, or None where it has to be one."""
    if traced.is_spread or has_side_effects(traced.asking.jaxpr.jaxpr):
        return None
    make = functools.partial(script_of, traced.owner, traced.asking, traced.stored)
    try:
        return _kept(_SCRIPTS, traced.key, make)
    except NotInStages:
        return None


def _kept(values: dict[Any, Any], key: Any, make: Callable[[], Any]) -> Any:
    """The value of the key; made anew without one, or where it cannot be compared."""
    try:
        hash(key)
    except TypeError:
        key = None
    return make() if key is None else keep_last(values, key, make)


def _hashable(shapes: Any) -> Any:
    leaves, tree = jax.tree.flatten(shapes)
    return tuple((leaf.shape, leaf.dtype) for leaf in leaves), tree


class _Compiled(NamedTuple):
    plan: Plan
    compiled: Any
    owner: Any  # the curator, or federation, whose unit, model and capacity are compiled in


class _Traced(NamedTuple):
    plan: Plan
    asking: Any  # the trace that was counted
    with_answers: Callable[[], Any]  # the same, traced again with the answers of its owner put in
    owner: Any
    stored: Any  # shapes
    is_spread: bool  # over several devices
    key: Any  # equal for what is compiled alike; None if nobody knows

    @property
    def shapes(self) -> Any:
        """The shapes of what the program returns."""
        return self.asking.out_info

    @property
    def shardings(self) -> tuple[Any, ...]:
        """Of what is stored."""
        return tuple(leaf.sharding for leaf in jax.tree.leaves(self.stored))


def _compiled_of(executable: Any) -> _Compiled:
    return record_of(
        executable,
        _Compiled,
        "a program that a curator has compiled (curator.trace(program, ...).compile())",
    )


def _traced_of(traced: Any) -> _Traced:
    return record_of(
        traced, _Traced, "a program that a curator has traced (curator.trace(program, ...))"
    )


def trace(
    owner: Any,
    program: Program,
    arguments: tuple[Any, ...],
    spread: Callable[..., Any] | None = None,
) -> Traced:
    """Trace the program where there are no rows and read off its bill.

    `owner` answers what it asks once it is compiled; what was traced refers to no row. Shapes are
    enough of the arguments. On several devices spread(run) is the same as run, on each of them.
    """
    # The sampler is user code: it has the precision that its author set, not the curator's
    is_user_double = in_double()
    with own_settings(is_user_double):
        shapes = jax.eval_shape(lambda *values: values, *arguments)
    with own_settings():
        on_no_device = jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), owner.shapes()
        )
        held = jax.eval_shape(owner.hold, *on_no_device)

        def trace_asking() -> Any:
            with jax.enable_x64(is_user_double):
                return _trace_asking(functools.partial(program, _asking_about(owner, held)), shapes)

        key = None
        if owner.kind is not None and dataclasses.is_dataclass(program):
            what = owner.kind, program, is_user_double, jax.config.values["jax_default_device"]
            key = what, *(_hashable(each) for each in (on_no_device, shapes))
        asking = _kept(_TRACES, key, trace_asking)
        plan = count_queries(asking.jaxpr)
        stored = owner.shapes(plan)

        def run(hold, rows, nums_rows, secrets, *arguments):
            find = functools.partial(_find, owner, hold(rows, nums_rows, secrets))
            found = put_answers(asking.jaxpr, jax.tree.leaves(arguments), find)
            return _unflattened(asking.out_info, found)

        run = functools.partial(run, owner.hold) if spread is None else spread(run)
        # Arguments that are not used stay, so that the text says which is which
        with_answers = jax.jit(run, keep_unused=True).trace
        traced = Traced()
        keep(
            traced,
            _Traced(
                plan,
                asking,
                lambda: with_answers(*stored, *shapes),
                owner,
                stored,
                spread is not None,
                key,
            ),
        )
        return traced


def _trace_asking(program: Callable[..., Any], shapes: tuple[Any, ...]) -> Any:
    try:
        return jax.jit(program).trace(*shapes)
    except (jax.errors.ConcretizationTypeError, jax.errors.TracerArrayConversionError) as error:
        raise TypeError(
            "the program needs a value in Python that is known only when it runs, such as an "
            "answer or a draw (in an if, a while, float() or a function of NumPy): use jnp.where "
            "or jax.lax.cond, and functions of jax.numpy"
        ) from error
    except NotImplementedError as error:
        if "vmap-of-cond" not in str(error):
            raise
        raise UnsupportedQuery(
            "a query with a running sum, or a callback, is inside a cond under vmap, where chains "
            "may take different branches: ask it outside, and use jnp.where on what the chain does "
            "with the answer"
        ) from error


def _asking_about(owner: Any, held: Held) -> Callable[..., Answer]:
    """An `ask` that knows no more than the shapes of what its owner holds.

    The place is the number of the ask in the program's text: no two of them share their noise,
    whatever their keys.
    """
    places = itertools.count()

    @functools.cache
    def trace_answer(query: Query, *operands):
        return jax.make_jaxpr(functools.partial(respond, owner, query, 0))(held, {}, *operands)

    def ask(rng_key, query: Query, *points) -> Answer:
        if not hasattr(query, "answer"):
            raise TypeError(
                f"{type(query).__name__} is no query: ask with Accept(test, bound), Gradient(clip, "
                "noise_multiplier) or another"
            )
        check_query(query)
        return asked(rng_key, query, tuple(map(jnp.asarray, points)), next(places), trace_answer)

    return ask


def check_query(query: Query) -> None:
    """Refuse one that cannot be on a bill."""
    if missing := [name for name in ("cost", "released") if not hasattr(query, name)]:
        raise TypeError(
            f"{type(query).__name__} has no `{missing[0]}`: a query needs `cost`, what it "
            "costs, and `released`, what it releases, in words"
        )
    if is_standing(query) and not is_ours(query):
        raise UnsupportedQuery(
            f"{type(query).__name__} is a standing query, billed once for all its asks, and nobody "
            "would keep their sum: leave is_standing out, or ask FilteredAccept"
        )
    try:
        hash(query)
    except TypeError as error:
        raise TypeError(
            f"{type(query).__name__} cannot be a key of the bill ({error}): make it a frozen "
            "dataclass, with fields that can"
        ) from error


def _find(
    owner: Any,
    held: Held,
    query: Query,
    place: int,
    maps: tuple[tuple[int | None, ...], ...],
    company: Company,
    *operands: Any,
) -> Answer:
    """The answers to the ask at `place`, for each lane."""
    if company.sums is None:
        is_alone = len(company.queries) == 1
        points_maps = [dims[2:] for dims in maps]
        company.sums = (
            {} if is_alone else sums_of(owner, company.queries, points_maps, held, *operands[2:])
        )
    return answers_of(owner, query, place, maps, held, company.sums, *operands)


def _unflattened(shapes: Any, leaves: list) -> Any:
    return jax.tree.unflatten(jax.tree.structure(shapes), leaves)


def compiled_by(owner: Any, executable: Executable) -> _Compiled:
    """What runs and what it costs, from our own record.

    A program of another curator or federation is refused.
    """
    program = _compiled_of(executable)
    if program.owner is not owner:
        raise PrivacyRefusal(
            "this program was traced by another curator, with its noise: trace it with the one "
            "that granted"
        )
    return program


def execute(compiled: Any, held: tuple[Any, Any, Any], arguments: tuple[Any, ...]) -> Any:
    """Run the compiled program on what its owners hold."""
    arguments = jax.tree.map(jnp.asarray, arguments)
    with own_settings():
        return jax.block_until_ready(compiled(*held, *arguments))
