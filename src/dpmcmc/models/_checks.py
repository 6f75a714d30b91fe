"""Checks of arguments: messages say what was given, what is expected, and why."""

from __future__ import annotations

import math
import numbers

import jax.numpy as jnp
import numpy as np

from dpmcmc.checks import NO_NUMBERS, positive


def temperature(value: float) -> float:
    """The power of a likelihood, as a float."""
    return positive("temperature", value, "it is the power of the likelihood, 1 for none")


def row(given, *shapes: tuple[int, ...]) -> None:
    """Refuse a row of other shapes when a model is first traced.

    Broadcasting would make a wrong likelihood of it.
    """
    parts = given if len(shapes) > 1 and isinstance(given, (tuple, list)) else [given]
    if [
        () if isinstance(part, numbers.Number) else getattr(part, "shape", None) for part in parts
    ] != list(shapes):
        wanted_shapes = [
            "(n,)" if shape == () else f"(n, {', '.join(map(str, shape))})" for shape in shapes
        ]
        wanted = (
            f"an array of shape {wanted_shapes[0]}"
            if len(wanted_shapes) == 1
            else f"a tuple of arrays of shapes {' and '.join(wanted_shapes)}"
        )
        raise ValueError(f"rows must be {wanted}")


def if_known(cells, log_likelihood):
    """NaN where a cell is NaN, so that the row is ignored, also by derivatives that would not
    depend on the cell.
    """
    is_missing = jnp.isnan(cells)
    if is_missing.ndim:  # GPU kernels have no reduction, not even of one number
        is_missing = jnp.any(is_missing)
    return jnp.where(is_missing, jnp.nan, log_likelihood)


def vector(name: str, value, dimension: int, why: str) -> np.ndarray:
    """A number or `dimension` numbers, all finite, as a vector of that length."""
    array = np.asarray(
        math.nan if np.asarray(value).dtype.kind in NO_NUMBERS else value, dtype=float
    )
    if array.shape not in ((), (dimension,)) or not np.isfinite(array).all():
        raise ValueError(f"{name}={value} must be a finite number or {dimension} of them: {why}")
    return np.broadcast_to(array, (dimension,))


def prior_scale(value, dimension: int) -> np.ndarray:
    """The standard deviations of a normal prior, as a vector."""
    return positive_vector("prior_scale", value, dimension, "it is the prior's standard deviation")


def positive_vector(name: str, value, dimension: int, why: str) -> np.ndarray:
    """A positive number or `dimension` of them, as a vector of that length."""
    array = vector(name, value, dimension, why)
    if not (array > 0).all():
        raise ValueError(f"{name}={value} must be positive: {why}")
    return array
