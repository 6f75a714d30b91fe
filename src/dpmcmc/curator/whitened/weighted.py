r"""The weighted gradient and the weighted curvature in changed coordinates.

A row x with u = A' x and t = x . A phi = u . phi has the weight

    w = min(1, C / (q |u|)) min(1, 2 C / |u|),      q = the largest |f'| at t over all labels,

which does not see the label. So the weighted score w f' u has the mean 0 under the model, and no
row's is longer than C. How far a row moves the sums is proved in docs/sharp-sums.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import jax.numpy as jnp

from dpmcmc.accounting import costs
from dpmcmc.checks import check_sizes, whole
from dpmcmc.curator.noise import radial
from dpmcmc.curator.noise.noisy_sums import MAX_DIMENSION, vector_tv_error
from dpmcmc.curator.sums.exact_sum import Part, Table
from dpmcmc.curator.whitened import weighted_sums
from dpmcmc.curator.whitened.asking import (
    matrix_sigma,
    matrix_tv_error,
    noisy_matrices,
    noisy_vector,
)
from dpmcmc.curator.whitened.weighted_sums import LEAST_BITS, gradient_bits
from dpmcmc.types import Answer, Array, Model, Unit


class _Weighted:
    """What these queries share: the points they are asked with, and the pass that answers them."""

    kind: ClassVar[str]

    def point_shapes(self, dimension: int) -> tuple[tuple[int, ...], ...]:
        """The shapes of what it is asked with.

        Args:
            dimension: That of a position.

        Returns:
            The shapes of A, phi and C.
        """
        return (dimension, dimension), (dimension,), ()

    def part(self, model: Model, rows: Table) -> Part:
        """Which sum of a pass of integers answers this.

        Args:
            model: What one row contributes.
            rows: The rows.

        Returns:
            The sum, which a pass can make together with others at the same points.
        """
        return Part(weighted_sums.sums, self.kind)

    def _sums(self, model: Model, rows: Table, *points: Array) -> tuple[Array, ...]:
        made = rows.sums or weighted_sums.sums(model, rows, (self.kind,), *points)
        return made[self.kind]


@dataclass(frozen=True)
class WeightedGradient(_Weighted):
    """The noisy gradient of the log-likelihood in changed coordinates, rows weighted by a cap.

    Asked with a matrix A, a position phi in its coordinates, which stands for theta = A phi, and a
    cap C, which is infinite for no weights. Released is  sum_i w_i f'_i u_i + N(0, s^2 I)  with
    s = noise_multiplier * the largest change that one unit makes to the sum: a public function of
    the points (`RowSet.gradient_diameter`), at most 2 C when a row is replaced and C when one is
    added or removed. Without weights it is the gradient in phi.

    Attributes:
        noise_multiplier: Standard deviation of the noise, divided by the sensitivity of the sum.

    Raises:
        ValueError: The noise multiplier is not positive and finite.

    Example:
        >>> from dpmcmc import Unit, queries
        >>> round(queries.WeightedGradient(noise_multiplier=5.0).cost(Unit()).rho(), 3)
        0.02
    """

    released: ClassVar[str] = (
        "gradients of the log-likelihood in changed coordinates, each row weighted by a cap that "
        "does not depend on labels (an infinite cap: not weighted), with Gaussian noise"
    )
    adds: ClassVar[bool] = True  # the answers of several owners
    is_direction: ClassVar[bool] = True
    kind: ClassVar[str] = "gradient"

    noise_multiplier: float

    def __post_init__(self) -> None:
        check_sizes(self, "noise_multiplier")

    def answer(
        self, key: Array, model: Model, rows: Table, matrix: Array, phi: Array, cap: Array
    ) -> Answer:
        """Compute on the rows what is released.

        Args:
            key: Eight secret words, for the noise.
            model: What one row contributes.
            rows: The rows.
            matrix: A.
            phi: The position.
            cap: C.

        Returns:
            What is released, and the variance of the noise in it.

        Raises:
            UnsupportedQuery: The model has no public tables.
            ValueError: The model has too large a dimension.
        """
        total, grid = self._sums(model, rows, matrix, phi, cap)
        sigma = _gradient_sigma(self.noise_multiplier, rows.unit, gradient_bits(rows))
        return noisy_vector(key, total, sigma, grid)

    def cost(self, unit: Unit) -> costs.Gaussian:
        """What one release reveals.

        Args:
            unit: Whom the promise protects.

        Returns:
            The cost.
        """
        sigma = _gradient_sigma(self.noise_multiplier, unit, LEAST_BITS)
        return costs.Gaussian(self.noise_multiplier, vector_tv_error(sigma))


@dataclass(frozen=True)
class WeightedRadialGradient(_Weighted):
    """A `WeightedGradient` with radial noise: with less of it.

    Released is  sum_i w_i f'_i u_i + z,  where z has a density proportional to exp(-|z| / scale) in
    `dimension` dimensions, and scale = the largest change that one unit makes to the sum / epsilon.
    Each coordinate of z has the variance (d + 1) scale^2.

    Attributes:
        epsilon: The sensitivity of the sum over the scale of the noise; see
            `calibrate.radial_epsilon`.
        dimension: The dimension of the model, which the cost depends on.

    Raises:
        ValueError: epsilon is not positive and finite, or the dimension not a whole number.

    Example:
        >>> from dpmcmc import Unit, queries
        >>> query = queries.WeightedRadialGradient(epsilon=0.8, dimension=7)
        >>> query.cost(Unit()).pure()
        0.8
    """

    released: ClassVar[str] = WeightedGradient.released.replace("Gaussian", "radial")
    adds: ClassVar[bool] = True  # the answers of several owners
    is_direction: ClassVar[bool] = True
    kind: ClassVar[str] = "gradient"

    epsilon: float
    dimension: int

    def __post_init__(self) -> None:
        check_sizes(self, "epsilon")
        object.__setattr__(
            self, "dimension", whole("dimension", self.dimension, most=MAX_DIMENSION)
        )

    def answer(
        self, key: Array, model: Model, rows: Table, matrix: Array, phi: Array, cap: Array
    ) -> Answer:
        """Compute on the rows what is released.

        Args:
            key: Eight secret words, for the noise.
            model: What one row contributes.
            rows: The rows.
            matrix: A.
            phi: The position.
            cap: C.

        Returns:
            What is released, and the variance of the noise in it.

        Raises:
            UnsupportedQuery: The model has no public tables.
            ValueError: The model has another dimension, or epsilon is too large or too small for
                integer noise.
        """
        if model.dimension != self.dimension:
            raise ValueError(
                f"the model has dimension {model.dimension}, and {self} is accounted for another: "
                "give the model's"
            )
        total, grid = self._sums(model, rows, matrix, phi, cap)
        scale = _gradient_sigma(1 / self.epsilon, rows.unit, gradient_bits(rows))
        noise = radial.radial_noise(key, self.dimension, scale)
        variance = grid**2 * radial.radial_variance(self.dimension, scale)
        return Answer(grid * (total + noise).astype(jnp.float64), variance)

    def cost(self, unit: Unit) -> costs.Radial:
        """What one release reveals.

        Args:
            unit: Whom the promise protects.

        Returns:
            The cost.

        Raises:
            ValueError: epsilon is too large or too small for integer noise.
        """
        scale = _gradient_sigma(1 / self.epsilon, unit, LEAST_BITS)
        tv_error = radial.radial_tv_error(self.dimension, scale)
        return costs.Radial(self.epsilon, self.dimension, tv_error=tv_error)


@dataclass(frozen=True)
class WeightedCurvature(_Weighted):
    """The two noisy matrices of a weighted score in changed coordinates.

    Asked with a matrix A, a position phi in its coordinates and a cap C, as `WeightedGradient`.
    Released are, as an array of shape (2, d, d),

        J = sum_i w_i v_i u_i u_i',     V = sum_i w_i^2 v_i u_i u_i',     v = -f'',

    with noise: minus the derivative of the weighted score, and its covariance under the model. The
    noise on both diagonals has the standard deviation s = noise_multiplier * the largest change
    that one unit makes to both together (`RowSet.curvature_bound`), off the diagonals s / sqrt(2);
    `variance` is s^2. With an infinite cap both are one matrix, with one noise.

    Attributes:
        noise_multiplier: Standard deviation of the noise, divided by the sensitivity of the sums.

    Raises:
        ValueError: The noise multiplier is not positive and finite.

    Example:
        >>> from dpmcmc import Unit, queries
        >>> round(queries.WeightedCurvature(noise_multiplier=5.0).cost(Unit()).rho(), 3)
        0.02
    """

    released: ClassVar[str] = (
        "Hessians of the log-likelihood in changed coordinates, each row weighted by a "
        "cap that does not depend on labels (an infinite cap: not weighted), with Gaussian noise"
    )
    adds: ClassVar[bool] = True  # the answers of several owners
    is_direction: ClassVar[bool] = True
    kind: ClassVar[str] = "curvature"

    noise_multiplier: float

    def __post_init__(self) -> None:
        check_sizes(self, "noise_multiplier")

    def answer(
        self, key: Array, model: Model, rows: Table, matrix: Array, phi: Array, cap: Array
    ) -> Answer:
        """Compute on the rows what is released.

        Args:
            key: Eight secret words, for the noise.
            model: What one row contributes.
            rows: The rows.
            matrix: A.
            phi: The position.
            cap: C.

        Returns:
            What is released, and the variance of the noise in it.

        Raises:
            UnsupportedQuery: The model has no public tables.
            ValueError: The model has too large a dimension.
        """
        both, grid, is_weighted = self._sums(model, rows, matrix, phi, cap)
        sigma = matrix_sigma(self.noise_multiplier, rows.unit)
        found = noisy_matrices(key, both, sigma, grid)
        slope, spread = found.value
        # Without weights the second one is not released
        return Answer(jnp.stack([slope, jnp.where(is_weighted, spread, slope)]), found.variance)

    def cost(self, unit: Unit) -> costs.Gaussian:
        """What one release reveals.

        Args:
            unit: Whom the promise protects.

        Returns:
            The cost.
        """
        return costs.Gaussian(self.noise_multiplier, matrix_tv_error(self.noise_multiplier, unit))


def _gradient_sigma(noise_multiplier: float, unit: Unit, bits: int) -> float:
    """The standard deviation of the noise, in units of the sum."""
    return float(noise_multiplier) * unit.rows_per_person * 2.0**bits
