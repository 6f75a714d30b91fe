"""J and V of a weighted score, as far as they are known, and the widths that follow."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from dpmcmc.samplers.whitened.caps import Expected
from dpmcmc.samplers.whitened.coordinates import lift
from dpmcmc.types import Answer, Array

EXPECTED = 0.2  # the relative error of J and V as expected
FLOOR = 0.1  # of an eigenvalue of J
LEAST_SLOPE = 0.5  # of the mean eigenvalue of J: no floor is higher
LEAST_SPREAD = 0.05  # of an eigenvalue of V


class Matrices(NamedTuple):
    """J and V, and how well they are known.

    Attributes:
        slope: J: minus the derivative of the weighted score.
        spread: V: the covariance of the weighted score.
        variance: Of their noise: on the diagonal, half of it off it.
    """

    slope: Array
    spread: Array
    variance: Array

    def joined(self, answer: Answer) -> Matrices:
        """The mean with another answer, by inverse variance."""
        new = self.variance / (self.variance + answer.variance)
        slope, spread = (jnp.asarray(part, self.slope.dtype) for part in answer.value)
        return Matrices(
            (1 - new) * self.slope + new * slope,
            (1 - new) * self.spread + new * spread,
            new * answer.variance,
        )

    @property
    def floor(self) -> Array:
        """The least eigenvalue of J: what noise makes of 0, but no more than half of the mean."""
        dimension = len(self.slope)
        noise = jnp.sqrt(2 * dimension * self.variance)
        mean = jnp.trace(self.slope) / dimension
        return jnp.minimum(jnp.maximum(FLOOR, noise), LEAST_SLOPE * mean)

    @property
    def raised(self) -> Array:
        """J with its eigenvalues raised to that."""
        return lift(self.slope, self.floor)


class Widths(NamedTuple):
    """Covariances of the position.

    Attributes:
        total: Of the posterior.
        rows: Without noise, weights and allowance.
    """

    total: Array
    rows: Array


def as_expected(expected: Expected, phi: Array) -> Matrices:
    """J and V as simulated rows have them."""
    towards, across = directions(phi)

    def matrix(values: Array) -> Array:
        return values[0] * towards + values[-1] * across

    variance = (EXPECTED * expected.slope[-1]) ** 2
    return Matrices(matrix(expected.slope), matrix(expected.spread), variance)


def directions(phi: Array) -> tuple[Array, Array]:
    """The projections on phi and on what is across it."""
    towards = jnp.outer(phi, phi) / jnp.maximum(jnp.sum(phi**2), 1e-12)
    return towards, jnp.eye(len(phi), dtype=phi.dtype) - towards


def expected_widths(expected: Expected, phi: Array, axes: Array, prior: Array) -> Widths:
    """What is to be expected after an opening.

    Args:
        expected: What was expected of the cap.
        phi: Where.
        axes: A.
        prior: The precision of the prior in whitened coordinates.

    Returns:
        The covariances.
    """
    towards, across = directions(phi)
    parts = (1 + expected.excess) / expected.without, 1 / expected.without
    return Widths(*(_moved(axes, part[0] * towards + part[-1] * across, prior) for part in parts))


def released_widths(
    matrices: Matrices, noise: Array, expected: Expected, axes: Array, prior: Array
) -> Widths:
    """What the posterior has, about.

    Args:
        matrices: J and V as they were released.
        noise: The variance of the noise in the combined gradient.
        expected: What was expected of the cap: its allowance and what weights add.
        axes: A.
        prior: The precision of the prior in whitened coordinates.

    Returns:
        The covariances.
    """
    dimension = len(axes)
    spread = lift(matrices.spread, LEAST_SPREAD)
    back = jnp.linalg.inv(matrices.raised)
    misfit, waste = (mean_of(part, dimension) for part in (expected.misfit, expected.waste))
    total = back @ ((1 + misfit) * spread + noise * jnp.eye(dimension)) @ back
    rows = back @ spread @ back / (1 + waste)
    return Widths(_moved(axes, total, prior), _moved(axes, rows, prior))


def mean_of(parts: Array, dimension: int) -> Array:
    """The mean over all directions of what there is along phi and across it."""
    return (parts[0] + (dimension - 1) * parts[1]) / dimension


def _moved(axes: Array, covariance: Array, prior: Array) -> Array:
    """The covariance of the position from that of the likelihood in phi and the prior there."""
    return axes @ jnp.linalg.inv(jnp.linalg.inv(covariance) + prior) @ axes.T
