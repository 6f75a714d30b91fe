"""What models are computed in: double precision in a program that otherwise has single precision.

This holds whatever is switched on around it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap


def in_double() -> bool:
    """Whether JAX has double precision here: switched on by the user, or by a context."""
    return jnp.result_type(float) == jnp.float64


def is_double(rows: Any) -> bool:
    """Whether a model takes such rows (arrays or shapes) in double precision."""
    return any(leaf.dtype == jnp.float64 for leaf in jax.tree.leaves(rows))


@contextlib.contextmanager
def own_settings(double: bool = True) -> Iterator[None]:
    """Double precision, and none of JAX's switches for finding bugs.

    With them a NaN in a row would raise an error, and so be shown.
    """
    off = (
        switch(False)
        for switch in (jax.debug_nans, jax.debug_infs, jax.debug_key_reuse, jax.disable_jit)
    )
    with contextlib.ExitStack() as stack:
        for setting in (*off, jax.numpy_rank_promotion("allow"), jax.enable_x64(double)):
            stack.enter_context(setting)
        yield


def always_double(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with vmap applied to it in double precision, wherever that happens.

    A loop in the sampler is traced first and batched later, in the sampler's own precision, and
    there JAX would turn products in float64 into products in float32. Needs all arrays as
    arguments, none closed over.
    """
    one = custom_vmap(function)

    @one.def_vmap
    def many(size, is_batched, *arguments):
        axes = tuple(
            jax.tree.map(lambda batched: 0 if batched else None, part) for part in is_batched
        )
        with jax.enable_x64(True):
            results = always_double(jax.vmap(function, axes, axis_size=size))(*arguments)
        return results, jax.tree.map(lambda _: True, results)

    return one
