"""Checks of the arguments of a run, before anything is traced."""

from __future__ import annotations

import numbers
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpmcmc.types import Sampler

ORDER = (
    "call sample(rng_key, sampler, curator, initial_position), with a Sampler and with a Curator "
    "or Federation"
)


def check_texts(name: str, texts: Any) -> None:
    """Refuse anything but a dict of texts."""
    if not isinstance(texts, Mapping) or not all(
        isinstance(text, str) for pair in texts.items() for text in pair
    ):
        raise TypeError(
            f"{name} must be a dict of texts by name, such as {{'age': 'years'}}: it is written to "
            f"the file as it is"
        )


def initial_positions(position: Any, num_chains: int, model: Any) -> np.ndarray:
    """Where each chain starts: shape (num_chains, d)."""
    dimension = model.dimension
    try:
        positions = np.asarray(jnp.asarray(position))
    except (TypeError, ValueError):
        kind = type(position).__name__
        raise TypeError(
            f"initial_position is a {kind}: it must be a flat array of {dimension} numbers "
            "(jax.flatten_util makes one)"
        ) from None
    if not jnp.issubdtype(positions.dtype, jnp.floating):
        positions = positions.astype(jnp.result_type(float))
    if positions.shape not in ((dimension,), (num_chains, dimension)):
        raise ValueError(
            f"initial_position has shape {positions.shape}, it must be ({dimension},) or "
            f"({num_chains}, {dimension})"
        )
    if not np.all(np.isfinite(positions)):
        raise ValueError(f"initial_position={positions} must be finite")
    positions = np.broadcast_to(positions, (num_chains, dimension))
    if not np.all(np.asarray(jax.jit(jax.vmap(model.log_prior))(positions)) > -np.inf):
        raise ValueError(
            f"initial_position={positions} has no prior density: start the chains where the prior "
            "allows them"
        )
    return positions


def check_not_traced(*values: Any) -> None:
    """Refuse a run inside a transformation of JAX."""
    if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(values)):
        raise TypeError(
            "sample was called inside jit, vmap or another transformation, where no budget can be "
            "spent: call it outside, with num_chains= for chains side by side"
        )


def check_roles(rng_key: Any, sampler: Any, curator: Any, start: Any) -> None:
    """Refuse arguments of other types, or in another order."""
    if (
        not jax.dtypes.issubdtype(getattr(rng_key, "dtype", None), jax.dtypes.prng_key)
        or rng_key.shape != ()
    ):
        raise TypeError(
            f"rng_key, a {type(rng_key).__name__}, must be one typed random key: make it with "
            "jax.random.key(0)"
        )
    if not (isinstance(sampler, Sampler) or (callable(sampler) and start is not None)):
        hint = ""
        if callable(sampler):
            hint = (
                " (a function is called with what start= returns, which is missing: a recipe has "
                "it in **recipe.options; to go on from where another run has ended give "
                "recipe.continued instead)"
            )
        elif hasattr(sampler, "sampler"):
            hint = " (give recipe.sampler and **recipe.options)"
        raise TypeError(f"the sampler is a {type(sampler).__name__}{hint}: {ORDER}")
    if start is not None and not callable(start):
        raise TypeError(
            f"start is a {type(start).__name__}: it must be a private start, such as "
            "newton_start(...)"
        )
    if not hasattr(curator, "grant"):
        raise TypeError(f"the curator is a {type(curator).__name__}: {ORDER}")


def check_warmup(warmup: float) -> None:
    """Refuse a share of the draws outside [0, 1)."""
    if not isinstance(warmup, numbers.Real) or not 0 <= warmup < 1:
        raise ValueError(
            f"warmup={warmup!r} must lie in [0, 1): it is the share of the draws kept apart"
        )


def check_one_beginning(start: Any, initial_position: Any) -> None:
    """Refuse several positions for a private start, which begins at one."""
    if start is not None and np.ndim(initial_position) > 1:
        raise ValueError(
            "start= begins all chains at the point it finds: give one initial_position, of shape "
            "(d,). To go on from where another run has ended leave start= out (of a recipe: "
            "recipe.continued is the sampler, and needs none)"
        )


def check_output(progress: Any, checks: Any) -> None:
    """Refuse options of the output that would fail after the budget is spent."""
    if checks is not None and not callable(checks):
        raise TypeError(
            f"checks is a {type(checks).__name__}: it must be a function from the result to a list "
            "of dpmcmc.Finding"
        )
    if progress not in (True, False, "bar"):
        raise ValueError(f'progress={progress!r} must be True, False or "bar"')
