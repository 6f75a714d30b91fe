"""The operation that stands for an answer: what `ask` leaves in the trace of a program.

A program is traced where there are no rows. Each ask leaves an `asked` operation, which carries the
query and has the shapes of its answer. `interpreter` counts these operations and later puts answers
in their places. The rules below are what JAX may do with the operation: `vmap` makes lanes of it,
and everything that would hide it from the count is refused.

Where equal keys cannot be recognized, the asks must not share their noise all the same: each ask
has a number, its place in the program, and under vmap another one, its lane.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from dpmcmc.errors import UnboundedQueries, UnsupportedQuery
from dpmcmc.types import Answer, Key, Position, Query

asked_p = Primitive("asked")
NUM_LANES = 2**32


def asked(
    rng_key: Key, query: Query, points: tuple[Position, ...], place: int, trace: Callable[..., Any]
) -> Answer:
    """Leave an operation in the trace that stands for an answer.

    It has the shapes of trace(query, rng_key, lane, *points).
    """
    if not jax.dtypes.issubdtype(getattr(rng_key, "dtype", None), jax.dtypes.prng_key):
        raise TypeError(
            "ask needs a typed random key: make one with jax.random.key, not jax.random.PRNGKey"
        )
    if rng_key.shape:
        raise TypeError(
            f"ask needs one random key, not an array of shape {rng_key.shape}: ask for each under "
            "jax.vmap"
        )
    operands = rng_key, np.uint32(0), *points
    with jax.enable_x64(True):
        traced = trace(
            query, *(jax.ShapeDtypeStruct(np.shape(value), value.dtype) for value in operands)
        )
    shapes = tuple((aval.shape, aval.dtype) for aval in traced.out_avals)
    params = {"shapes": shapes, "side_effects": frozenset(traced.effects)}
    return Answer(*asked_p.bind(*operands, query=query, place=place, maps=(), **params))


def _shapes(rng_key, lane, *points, shapes, side_effects, **_):
    return [ShapedArray((*lane.shape, *shape), dtype) for shape, dtype in shapes], side_effects


def _batch(arguments, dims, *, query, maps, **params):
    """The rule for vmap: still one ask, for all lanes.

    `maps` remembers the axes, to map the answer over them when it is made.
    """
    (size,) = {
        argument.shape[dim]
        for argument, dim in zip(arguments, dims, strict=True)
        if dim is not None
    }
    if dims[0] is None and size > 1:
        raise UnboundedQueries(
            f"one key would serve {size} asks of {query} at different points: split the key with "
            "jax.random.split and map over it"
        )
    rng_key, lanes, *points = arguments
    # Of the vmaps further in: 0 ... copies - 1
    lanes = lanes[None] if dims[1] is None else jnp.moveaxis(lanes, dims[1], 0)
    copies = math.prod(lanes.shape[1:])
    if copies * size > NUM_LANES:
        raise UnboundedQueries(
            f"{query} would be asked {copies * size} times at once: at most {NUM_LANES} lanes have "
            "numbers"
        )
    # Lanes may round a row in different ways: with equal keys and points they would show the
    # difference without noise.
    lanes += copies * jnp.arange(size, dtype=lanes.dtype).reshape(
        size, *(1 for _ in lanes.shape[1:])
    )
    maps = (*maps, (dims[0], 0, *dims[2:]))
    return asked_p.bind(rng_key, lanes, *points, query=query, maps=maps, **params), [0] * len(
        Answer._fields
    )


def _refuse_at_once(*arguments, query, **_):
    raise UnboundedQueries(
        f"{query} would be asked outside the program that was traced, and so on no bill: leave "
        "jax.ensure_compile_time_eval out, and let no callback ask"
    )


def _refuse_derivative(primals, tangents, *, query, **_):
    raise UnsupportedQuery(
        f"a derivative through ask({query}) would release gradients without noise: ask for a "
        "gradient query instead"
    )


def _refuse_out_of_sight(*arguments, query, **_):
    raise UnboundedQueries(
        f"{query} is asked inside an operation that does not show what it does, and so on no bill: "
        "use scan, cond, vmap, jit, or fori_loop with a fixed number of turns"
    )


asked_p.multiple_results = True
asked_p.def_impl(_refuse_at_once)
asked_p.def_effectful_abstract_eval(_shapes)
ad.primitive_jvps[asked_p] = _refuse_derivative
batching.primitive_batchers[asked_p] = _batch
mlir.register_lowering(asked_p, _refuse_out_of_sight)
