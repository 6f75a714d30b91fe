"""Programs: traced where there are no rows, compiled with the answers put in, and run.

They run on what their owners hold.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import jaxpr_as_fun

from dpmcmc.accounting.bill import is_ours
from dpmcmc.curator.programs.asked import asked
from dpmcmc.curator.programs.interpreter import Company, count_queries, put_answers
from dpmcmc.curator.programs.jaxprs import has_callbacks, has_side_effects
from dpmcmc.curator.records import Handle, keep, record_of
from dpmcmc.errors import PrivacyRefusal, UnsupportedQuery
from dpmcmc.precision import in_double, own_settings
from dpmcmc.types import Answer, Plan, Query, is_standing

Program = Callable[..., Any]
Held = Any  # (table, secret) of one owner, or of several by name: a pytree
SECRET_SHAPE = jax.ShapeDtypeStruct((16,), np.uint32)
# Whatever is in XLA_FLAGS: arithmetic that takes NaNs and infinities for impossible would let a row
# that has one escape its clip.
EXACTLY = {"xla_cpu_enable_fast_math": False}
MOST_PROGRAMS = 32  # that are kept, for further runs of the same shapes
_PROGRAMS: dict[Any, Any] = {}
_KEEPING = threading.Lock()


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

    def compile(self) -> Executable:
        """Compile the program, with the answers in their places.

        Returns:
            The compiled program.

        Raises:
            PrivacyRefusal: The traced program was not made by a curator, or was changed.
            UnboundedQueries: A query is asked inside an operation that hides it from the bill.
        """
        traced = _traced_of(self)
        with own_settings():
            compiled = _compiled(traced)
        executable = Executable()
        keep(executable, _Compiled(traced.plan, compiled, traced.owner))
        return executable


def _compiled(traced: _Traced) -> Any:
    """What JAX compiles, or has compiled before in this process of the same text.

    Programs of one text, constants included, for the same devices compute one function of their
    arguments: rows, secrets and points are arguments. A program with a callback is not shared: the
    callback belongs to one curator, and the text does not say which.
    """
    with_answers = traced.with_answers()
    lowered = with_answers.lower()
    if has_callbacks(with_answers.jaxpr.jaxpr):
        return lowered.compile(EXACTLY)
    digest = hashlib.sha256(lowered.as_text().encode())
    for constant in with_answers.jaxpr.consts:
        is_key = jnp.issubdtype(constant.dtype, jax.dtypes.prng_key)
        numbers = jax.random.key_data(constant) if is_key else constant
        digest.update(np.asarray(numbers).tobytes())
    where = (traced.shardings, jax.config.values["jax_default_device"])
    key = digest.digest(), str(lowered.in_avals), lowered.in_tree, lowered.out_tree, where
    if (kept := _PROGRAMS.get(key)) is not None:
        return kept
    compiled = lowered.compile(EXACTLY)  # by several threads at once, perhaps
    with _KEEPING:
        _PROGRAMS[key] = compiled
        if len(_PROGRAMS) > MOST_PROGRAMS:
            del _PROGRAMS[next(iter(_PROGRAMS))]
    return compiled


class _Compiled(NamedTuple):
    plan: Plan
    compiled: Any
    owner: Any  # the curator, or federation, whose unit, model and capacity are compiled in


class _Traced(NamedTuple):
    plan: Plan
    shapes: Any
    with_answers: Callable[[], Any]  # the same, traced again with the answers of its owner put in
    owner: Any
    shardings: tuple[Any, ...]  # of what is stored


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
    stored: tuple[Any, Any, Any],
    arguments: tuple[Any, ...],
    spread: Callable[..., Any] | None = None,
) -> Traced:
    """Trace the program where there are no rows and read off its bill.

    `owner` answers what it asks once it is compiled. Shapes are enough of what is stored (rows,
    numbers of rows, secrets), and of the arguments. On several devices spread(run) is the same as
    run, on each of them.
    """
    # The sampler is user code: it has the precision that its author set, not the curator's
    is_user_double = in_double()
    with own_settings(is_user_double):
        shapes = jax.eval_shape(lambda *values: values, *arguments)
    stored = jax.tree.map(_shape_of, stored)  # what was traced refers to no row
    with own_settings():
        on_no_device = jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), stored
        )
        held = jax.eval_shape(owner.hold, *on_no_device)
        with jax.enable_x64(is_user_double):
            asking = _trace_asking(functools.partial(program, _asking_about(owner, held)), shapes)
        plan = count_queries(asking.jaxpr)

        def run(hold, rows, nums_rows, secrets, *arguments):
            find = functools.partial(_find, owner, hold(rows, nums_rows, secrets))
            return _unflattened(
                asking.out_info, put_answers(asking.jaxpr, jax.tree.leaves(arguments), find)
            )

        run = functools.partial(run, owner.hold) if spread is None else spread(run)
        traced = Traced()
        keep(
            traced,
            _Traced(
                plan,
                asking.out_info,
                # Arguments that are not used stay, so that the text says which is which
                lambda: jax.jit(run, keep_unused=True).trace(*stored, *shapes),
                owner,
                tuple(leaf.sharding for leaf in jax.tree.leaves(stored)),
            ),
        )
        return traced


def _shape_of(leaf: Any) -> jax.ShapeDtypeStruct:
    """What is compiled in of an array: its shape and type, and how it is spread over devices."""
    sharding = leaf.sharding if isinstance(leaf.sharding, jax.NamedSharding) else None
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)


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
        return jax.make_jaxpr(functools.partial(_respond, owner, query, 0))(held, {}, *operands)

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
    points_maps = [dims[2:] for dims in maps]
    if company.sums is None and len(company.queries) == 1:
        company.sums = {}
    if company.sums is None:
        sums = _mapped(functools.partial(owner.sums, company.queries), points_maps)
        company.sums = without_side_effects(sums, held, *operands[2:])
    respond = functools.partial(_respond, owner, query, place)
    for dims in maps:
        is_mapped = any(dim is not None for dim in dims[2:])
        respond = jax.vmap(respond, (None, 0 if is_mapped else None, *dims))
    return without_side_effects(respond, held, company.sums, *operands)


def _mapped(function: Callable[..., Any], maps: list[tuple[int | None, ...]]) -> Any:
    """function(held, *points), mapped over those axes that points have."""
    for dims in maps:
        if any(dim is not None for dim in dims):
            function = jax.vmap(function, (None, *dims))
    return function


def _respond(
    owner: Any, query: Query, place: int, held: Held, sums: Any, rng_key, lane, *points
) -> Answer:
    words = jnp.append(jax.random.key_data(rng_key), lane)
    return Answer(
        *(
            _narrow(jnp.asarray(part), points[0].dtype)
            for part in owner.answer(held, words, query, points, place, sums)
        )
    )


def without_side_effects(function: Callable[..., Any], *arguments: Any) -> Any:
    """function(*arguments), refused if it prints or calls back to Python.

    The arguments are rows, or depend on them. What runs is the trace that was checked. The function
    itself is called once, to be traced, and is given shapes alone.
    """
    traced, shapes = jax.make_jaxpr(function, return_shape=True)(*arguments)
    refuse_side_effects(traced.jaxpr)
    return _unflattened(shapes, jaxpr_as_fun(traced)(*jax.tree.leaves(arguments)))


def _unflattened(shapes: Any, leaves: list) -> Any:
    return jax.tree.unflatten(jax.tree.structure(shapes), leaves)


def refuse_side_effects(jaxpr: Any) -> None:
    """Refuse what is computed on rows if it prints.

    It is checked here, where the rules for vmap and derivatives have been applied.
    """
    if has_side_effects(jaxpr):
        raise ValueError(
            "the model prints or calls back to Python (perhaps in a rule for its derivatives), "
            "which would show rows: leave jax.debug and callbacks out of it"
        )


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


def _narrow(value, dtype):
    return value if value.dtype == jnp.bool_ else value.astype(dtype)
