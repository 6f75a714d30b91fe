"""Programs: traced with an `ask` that marks each query, compiled as they were traced, and run on what their owners hold."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import jaxpr_as_fun

from dpmcmc.ask import answered, mark, speaks, stamped
from dpmcmc.errors import PrivacyRefusal, UnsupportedQuery
from dpmcmc.precision import in_double
from dpmcmc.types import Answer, Plan, Query

Program = Callable[..., Any]
Held = Any  # (table, secret) of one owner, or of several by name: a pytree
SECRET_SHAPE = jax.ShapeDtypeStruct((16,), np.uint32)


class Executable(NamedTuple):
    """A compiled program and the bill read off it."""

    plan: Plan
    compiled: Any
    owner: Any  # the curator, or federation, whose unit, model and capacity are compiled in


class Traced(NamedTuple):
    """A traced program: what it asks and what it returns."""

    plan: Plan
    shapes: Any  # of what it returns
    traced: Any
    owner: Any

    def compile(self) -> Executable:
        with own_settings():
            return Executable(self.plan, self.traced.lower().compile(), self.owner)


def trace_held(run: Program, held: tuple[Any, Any, Any], arguments: tuple[Any, ...]) -> Any:
    """Trace `run` at the shapes of what its owners hold (rows, numbers of rows, secrets) and of the arguments."""
    with own_settings(in_double()):
        shapes = jax.eval_shape(lambda *values: values, *arguments)
    try:
        with own_settings():
            traced = jax.jit(run).trace(*held, *shapes)
            return jax.jit(_as_function(stamped(traced.jaxpr), traced.out_info)).trace(*held, *shapes)
    except (jax.errors.ConcretizationTypeError, jax.errors.TracerArrayConversionError) as error:
        raise TypeError(
            "the program needs a value in Python that is known only when it runs, such as an answer or a draw (in an if, a while, "
            "float() or a function of NumPy): use jnp.where or jax.lax.cond, and functions of jax.numpy"
        ) from error
    except NotImplementedError as error:
        if "vmap-of-cond" not in str(error):
            raise
        raise UnsupportedQuery(
            "a query with a running sum, or a callback, is inside a cond that depends on the chain: ask it outside, and use "
            "jnp.where on what the chain does with the answer"
        ) from error


def first_inputs(held: Any) -> range:
    """Which inputs of a traced program are what its owners hold."""
    return range(len(jax.tree.leaves(held)))


def call(program: Program, answer: Callable[..., Answer], held: Held, is_user_double: bool, arguments: tuple[Any, ...]) -> Any:
    """Call the program with an `ask` that marks each query in the trace and has it answered.

    The place is the number of the ask in the program's text: no two of them share their noise, whatever their keys.
    """
    places = itertools.count()

    def ask(rng_key, query: Query, *points) -> Answer:
        if not hasattr(query, "answer"):
            told = f"{type(query).__name__} is no query: ask with Accept(test, bound), Gradient(clip, noise_multiplier) or another"
            raise TypeError(told)
        place = next(places)
        words, marked = mark(rng_key, query, tuple(map(jnp.asarray, points)), place)

        def compute(held: Held, words, *points) -> Answer:
            return Answer(*(_narrow(part, points[0].dtype) for part in answer(held, words, query, points, place)))

        with jax.enable_x64(True):
            return answered(compute, refuse_speech, held, (words, *marked), query, place)

    # The sampler is user code: it sees the precision its author set, not the curator's.
    with jax.enable_x64(is_user_double):
        return program(ask, *arguments)


def silently(function: Callable[[Any], Any], argument: Any) -> Any:
    """function(argument), refused if it would show its argument to Python, where its tracers do not get either."""
    traced, shapes = jax.make_jaxpr(function, return_shape=True)(argument)
    refuse_speech(traced.jaxpr)
    return _as_function(traced, shapes)(argument)


def _as_function(closed_jaxpr: Any, shapes: Any) -> Callable[..., Any]:
    """A traced program as a function that returns what has these shapes."""
    return lambda *arguments: jax.tree.unflatten(
        jax.tree.structure(shapes), jaxpr_as_fun(closed_jaxpr)(*jax.tree.leaves(arguments))
    )


def refuse_speech(jaxpr: Any) -> None:
    """Refuse what is computed on rows if it prints. Looked at here, where the rules for vmap and derivatives have been applied."""
    if speaks(jaxpr):
        raise ValueError(
            "the model prints or calls back to Python (perhaps in a rule for its derivatives), which would show rows: leave "
            "jax.debug and callbacks out of it"
        )


def check_traced_by(owner: Any, executable: Executable) -> None:
    """Refuse a program of another curator or federation."""
    if executable.owner is not owner:
        raise PrivacyRefusal("this program was traced by another curator, with its noise: trace it with the one that granted")


def execute(executable: Executable, held: tuple[Any, Any, Any], arguments: tuple[Any, ...]) -> Any:
    """Run the compiled program on what its owners hold."""
    arguments = jax.tree.map(jnp.asarray, arguments)
    with own_settings():
        return jax.block_until_ready(executable.compiled(*held, *arguments))


@contextlib.contextmanager
def own_settings(is_double: bool = True) -> Iterator[None]:
    """Double precision, and none of JAX's switches for finding bugs: a NaN in a row would raise an error, and be told by it."""
    off = (switch(False) for switch in (jax.debug_nans, jax.debug_infs, jax.debug_key_reuse, jax.disable_jit))
    with contextlib.ExitStack() as stack:
        for setting in (*off, jax.numpy_rank_promotion("allow"), jax.enable_x64(is_double)):
            stack.enter_context(setting)
        yield


def _narrow(value, dtype):
    return value if value.dtype == jnp.bool_ else value.astype(dtype)
