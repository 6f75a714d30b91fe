"""How an ask is answered from what its owner holds, for each lane, without side effects."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import jaxpr_as_fun

from dpmcmc.curator.programs.jaxprs import has_side_effects
from dpmcmc.types import Answer, Query

Axes = tuple[int | None, ...]


def sums_of(owner: Any, queries: list[Query], maps: Sequence[Axes], held: Any, *points: Any) -> Any:
    """The exact sums that several queries at the same points need, for each lane.

    Args:
        owner: Who has the rows.
        queries: The queries.
        maps: The axes of the points, for each vmap.
        held: What it answers from.
        *points: The points.

    Returns:
        What `Curator.sums` returns.
    """
    sums = functools.partial(owner.sums, queries)
    for dims in maps:
        if any(dim is not None for dim in dims):
            sums = jax.vmap(sums, (None, *dims))
    return without_side_effects(sums, held, *points)


def answers_of(
    owner: Any,
    query: Query,
    place: int,
    maps: Sequence[Axes],
    held: Any,
    sums: Any,
    *operands: Any,
) -> Answer:
    """The answers to one ask, for each lane.

    Args:
        owner: Who has the rows.
        query: The query.
        place: The number of the ask in the program.
        maps: The axes of the operands, for each vmap.
        held: What it answers from.
        sums: Exact sums at its points, of `sums_of`.
        *operands: The key, the lane and the points.

    Returns:
        The answers.
    """
    answer = functools.partial(respond, owner, query, place)
    for dims in maps:
        is_mapped = any(dim is not None for dim in dims[2:])
        answer = jax.vmap(answer, (None, 0 if is_mapped else None, *dims))
    return without_side_effects(answer, held, sums, *operands)


def respond(
    owner: Any,
    query: Query,
    place: int,
    held: Any,
    sums: Any,
    rng_key: Any,
    lane: Any,
    *points: Any,
) -> Answer:
    """The answer to one ask, in the type of its points.

    Args:
        owner: Who has the rows.
        query: The query.
        place: The number of the ask in the program.
        held: What it answers from.
        sums: Exact sums at its points.
        rng_key: Its key.
        lane: The number of its lane.
        *points: The points.

    Returns:
        The answer.
    """
    words = jnp.append(jax.random.key_data(rng_key), lane)
    answer = owner.answer(held, words, query, points, place, sums)
    return Answer(*(_narrow(jnp.asarray(part), points[0].dtype) for part in answer))


def without_side_effects(function: Callable[..., Any], *arguments: Any) -> Any:
    """function(*arguments), refused if it prints or calls back to Python.

    The arguments are rows, or depend on them. What runs is the trace that was checked: here the
    rules for vmap and derivatives have been applied. The function itself is called once, to be
    traced, and is given shapes alone.

    Args:
        function: The function.
        *arguments: Its arguments.

    Returns:
        What it returns.

    Raises:
        ValueError: It has side effects.
    """
    traced, shapes = jax.make_jaxpr(function, return_shape=True)(*arguments)
    if has_side_effects(traced.jaxpr):
        raise ValueError(
            "the model prints or calls back to Python (perhaps in a rule for its derivatives), "
            "which would show rows: leave jax.debug and callbacks out of it"
        )
    leaves = jaxpr_as_fun(traced)(*jax.tree.leaves(arguments))
    return jax.tree.unflatten(jax.tree.structure(shapes), leaves)


def _narrow(value, dtype):
    return value if value.dtype == jnp.bool_ else value.astype(dtype)
