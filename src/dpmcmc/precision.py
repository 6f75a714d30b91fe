"""Double precision in a program that otherwise has single precision."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_batching import custom_vmap
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun


def in_double() -> bool:
    """Whether JAX has double precision here: switched on by the user, or by a context."""
    return jnp.result_type(float) == jnp.float64


def is_double(rows: Any) -> bool:
    """Whether a model takes such rows (arrays or shapes) in double precision."""
    return any(leaf.dtype == jnp.float64 for leaf in jax.tree.leaves(rows))


def always_double(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with vmap applied to it in double precision, wherever that happens.

    A loop in the sampler is traced first and batched later, in the sampler's own precision, and there JAX would turn products in
    float64 into products in float32: the curator's integer sums would no longer be exact. Needs all arrays as arguments, none
    closed over.
    """
    return functools.partial(_mapped(lambda _, *arguments: function(*arguments)), ())


def in_lanes(function: Callable[..., Any], check: Callable[[Any], None], shared: Any, *arguments: Any) -> Any:
    """function(shared, *arguments), with vmap as above, its trace having been checked. `shared` is the same in all lanes.

    Under vmap a cond whose predicate differs from lane to lane hands its branches everything once for each lane: the shared
    arguments, and the constants of the function, too. All copies are alike, so the first will do.

    Constants of 64 bits travel as words of 32: whoever evaluates the program anew in the sampler's own precision (sparsify does, in
    JAX 0.8) would cut them, and the noise is made from such tables.
    """
    traced, shapes = jax.make_jaxpr(function, return_shape=True)(shared, *arguments)
    check(traced.jaxpr)
    types = [const.dtype for const in traced.consts]

    def run(held, *arguments):
        words, shared = held
        consts = [_from_words(part, dtype) for part, dtype in zip(words, types, strict=True)]
        leaves = jaxpr_as_fun(ClosedJaxpr(traced.jaxpr, consts))(*jax.tree.leaves((shared, *arguments)))
        return jax.tree.unflatten(jax.tree.structure(shapes), leaves)

    return _mapped(run)(([_to_words(const) for const in traced.consts], shared), *arguments)


def _to_words(const: Any) -> Any:
    if const.dtype not in (np.int64, np.uint64, np.float64):
        return const
    return np.ascontiguousarray(const)[..., None].view(np.uint32)


def _from_words(words: Any, dtype: Any) -> Any:
    return words if words.dtype == dtype else lax.bitcast_convert_type(words, dtype)


def _mapped(function: Callable[..., Any]) -> Callable[..., Any]:
    one = custom_vmap(function)

    @one.def_vmap
    def many(size, is_batched, shared, *arguments):
        first = functools.partial(lax.index_in_dim, index=0, keepdims=False)
        shared = jax.tree.map(lambda copied, leaf: first(leaf) if copied else leaf, is_batched[0], shared)
        axes = tuple(jax.tree.map(lambda batched: 0 if batched else None, part) for part in is_batched[1:])
        with jax.enable_x64(True):
            found = _mapped(jax.vmap(function, (None, *axes), axis_size=size))(shared, *arguments)
        return found, jax.tree.map(lambda _: True, found)

    return one
