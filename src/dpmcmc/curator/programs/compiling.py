"""What is compiled once in a process, and found again by its text."""

from __future__ import annotations

import functools
import hashlib
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

from dpmcmc.curator.programs.jaxprs import has_callbacks
from dpmcmc.keeping import keep_last

# Whatever is in XLA_FLAGS: arithmetic that takes NaNs and infinities for impossible would let a row
# that has one escape its clip.
EXACTLY: dict[str, Any] = {"xla_cpu_enable_fast_math": False}
# For what is run a few times and is small: compiling takes longer than running it
QUICKLY = {
    **EXACTLY,
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
    "xla_cpu_use_fusion_emitters": False,
    "xla_cpu_parallel_codegen_split_count": 1,
}
_PROGRAMS: dict[Any, Future] = {}  # for further runs of the same shapes
_KEEPING = threading.Lock()


def compiled_once(traced: Any, where: Any = (), options: Any = EXACTLY) -> Future:
    """Have JAX compile a traced function, unless it has compiled the same text in this process.

    Functions of one text, constants included, for the same devices compute one function of their
    arguments: rows, secrets and points are arguments. A function with a callback is not shared: the
    callback belongs to one curator, and the text does not say which.

    Args:
        traced: What `jax.jit(function).trace` returns.
        where: The devices of what it is given.
        options: Of the compiler.

    Returns:
        A future of what is compiled: threads compile side by side.
    """
    lowered = traced.lower()
    if has_callbacks(traced.jaxpr.jaxpr):
        return _pool().submit(lowered.compile, options)
    digest = hashlib.sha256(lowered.as_text().encode())
    for constant in traced.jaxpr.consts:
        is_key = jnp.issubdtype(constant.dtype, jax.dtypes.prng_key)
        numbers = jax.random.key_data(constant) if is_key else constant
        digest.update(np.asarray(numbers).tobytes())
    place = where, jax.config.values["jax_default_device"], tuple(options.items())
    key = digest.digest(), str(lowered.in_avals), lowered.in_tree, lowered.out_tree, place
    with _KEEPING:
        if key in _PROGRAMS and _has_failed(_PROGRAMS[key]):
            del _PROGRAMS[key]
        return keep_last(_PROGRAMS, key, lambda: _pool().submit(lowered.compile, options))


def _has_failed(future: Future) -> bool:
    return future.done() and future.exception() is not None


@functools.cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(os.cpu_count(), "compile")


def with_constants(function: Callable[..., Any], *shapes: Any) -> tuple[Any, list]:
    """A function traced with its constants as its first argument.

    So functions that differ in constants alone, such as the size of their noise, have one text.

    Args:
        function: The function.
        *shapes: The shapes of its arguments.

    Returns:
        What `jax.jit(function).trace` returns, of a function of the constants and the arguments;
        and the constants.
    """
    traced = jax.jit(function).trace(*shapes)
    jaxpr, consts = traced.jaxpr.jaxpr, list(traced.jaxpr.consts)
    tree = jax.tree.structure(traced.out_info)

    def of_constants(consts, *arguments):
        leaves = jaxpr_as_fun(ClosedJaxpr(jaxpr, consts))(*jax.tree.leaves(arguments))
        return jax.tree.unflatten(tree, leaves)

    consts = [jnp.asarray(constant) for constant in consts]
    return jax.jit(of_constants, keep_unused=True).trace(consts, *shapes), consts
