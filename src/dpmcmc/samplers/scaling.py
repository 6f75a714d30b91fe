"""What the gradient samplers share: matrices in their own axes, and schedules of step sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpmcmc.checks import NO_NUMBERS, positive
from dpmcmc.types import Array

ROUNDING = 1e-4  # noise that is meant to be just what a step may add is not reported to be more


class Axes(NamedTuple):
    """A positive definite matrix by its eigenvectors and eigenvalues.

    Attributes:
        vectors: The eigenvectors as columns; None when they are the coordinates.
        scales: One eigenvalue for each axis, or one for all.
    """

    vectors: Array | None
    scales: Array

    def into(self, vector: Array) -> Array:
        """Components along the axes."""
        if self.scales.shape not in ((), vector.shape):
            raise ValueError(
                f"a matrix for {self.scales.shape[0]} entries does not fit positions of "
                f"{vector.size}"
            )
        return (
            vector if self.vectors is None else jnp.dot(self.vectors.T, vector, precision="highest")
        )

    def out_of(self, components: Array) -> Array:
        """The vector with these components."""
        return (
            components
            if self.vectors is None
            else jnp.dot(self.vectors, components, precision="highest")
        )

    def velocity(self, momentum: Array) -> Array:
        """Of a position whose mass is this matrix M; the momentum is M^-1/2 p, in the axes of M."""
        return self.out_of(self.scales**-0.5 * momentum)

    def force(self, gradient: Array) -> Array:
        """How the same momentum changes with time, by the gradient of a log-density."""
        return self.scales**-0.5 * self.into(gradient)


def axes(name: str, matrix: Any) -> Axes:
    """The axes of None (the identity), a number, d numbers (a diagonal) or a (d, d) matrix: all
    positive.
    """
    # Made of answers inside a compiled program: its values cannot be checked
    if isinstance(matrix, jax.core.Tracer):
        scales, vectors = (
            (matrix, None) if matrix.ndim < 2 else jnp.linalg.eigh((matrix + matrix.T) / 2)
        )
        return Axes(vectors, scales)
    if np.asarray(1.0 if matrix is None else matrix).dtype.kind in NO_NUMBERS:
        raise ValueError(
            f"{name}={matrix!r} must be a number, (d,) numbers or a symmetric (d, d) matrix"
        )
    array = np.asarray(1.0 if matrix is None else matrix, float)
    is_square = array.ndim < 2 or (
        array.shape[0] == array.shape[1] and np.allclose(array, array.T, rtol=1e-5)
    )
    if array.ndim > 2 or not is_square or not np.all(np.isfinite(array)):
        raise ValueError(
            f"{name} of shape {array.shape} must be finite: a number, (d,) numbers or a symmetric "
            "(d, d) matrix"
        )
    scales, vectors = (array, None) if array.ndim < 2 else np.linalg.eigh((array + array.T) / 2)
    if not np.all(scales > 0):
        raise ValueError(
            f"{name}={array.tolist()} must be positive, as a matrix positive definite: it is like "
            "a covariance"
        )
    return Axes(None if vectors is None else vectors.astype(np.float32), scales.astype(np.float32))


def is_non_finite(position: Array) -> Array:
    """Whether it is not finite, or so large that its square is not: a prior without limits has no
    density there either.
    """
    return ~jnp.all(jnp.abs(position) < jnp.finfo(position.dtype).max ** 0.5 / 16)


def schedule(step_size: float | Callable[[Array], Array]) -> Callable[[Array], Any]:
    """The step size as a function of the step's index."""
    if callable(step_size):
        return step_size
    check_positive("step_size", step_size, "how far a step goes, or a function of the step's index")
    return lambda index: step_size


def check_positive(name: str, value: Any, why: str) -> None:
    # Made of answers in a compiled program: it is not known
    if not (isinstance(value, jax.core.Tracer) and value.shape == ()):
        positive(name, value, why)
