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
from dpmcmc.curator.noise import radial, stream
from dpmcmc.curator.noise.noisy_sums import MAX_DIMENSION, noisy, vector_tv_error
from dpmcmc.curator.sums.exact_sum import MAX_ROWS, Table
from dpmcmc.curator.whitened.asking import (
    kind_of,
    longest_vector,
    matrix_sigma,
    matrix_tv_error,
    noisy_matrix,
    rows_and_frame,
)
from dpmcmc.curator.whitened.points import (
    ROW_BITS,
    WEIGHT_BITS,
    Frame,
    Lens,
    scaled_table,
    steep_table,
    weight_tables,
)
from dpmcmc.curator.whitened.sums import whitened_sum
from dpmcmc.domains import RowSet
from dpmcmc.types import Answer, Array, Model, Unit

MOST_BITS, LEAST_BITS = 40, 31  # of what one row adds to a gradient


class _Weighted:
    """What both queries share: the points they are asked with."""

    def point_shapes(self, dimension: int) -> tuple[tuple[int, ...], ...]:
        """The shapes of what it is asked with.

        Args:
            dimension: That of a position.

        Returns:
            The shapes of A, phi and C.
        """
        return (dimension, dimension), (dimension,), ()


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
        total, bits, grid = gradient_total(model, rows, matrix, phi, cap)
        sigma = _gradient_sigma(self.noise_multiplier, rows.unit, bits)
        return noisy(key, total, sigma, grid)

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
        total, bits, grid = gradient_total(model, rows, matrix, phi, cap)
        scale = _gradient_sigma(1 / self.epsilon, rows.unit, bits)
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
        both, grid, is_weighted = curvature_total(model, rows, matrix, phi, cap)
        sigma = matrix_sigma(self.noise_multiplier, rows.unit)
        keys = stream.random_words(key, (2, 8))
        slope, spread = (
            noisy_matrix(key, total, sigma, grid) for key, total in zip(keys, both, strict=True)
        )
        # Without weights the second one is not released
        spread_value = jnp.where(is_weighted, spread.value, slope.value)
        return Answer(jnp.stack([slope.value, spread_value]), slope.variance)

    def cost(self, unit: Unit) -> costs.Gaussian:
        """What one release reveals.

        Args:
            unit: Whom the promise protects.

        Returns:
            The cost.
        """
        return costs.Gaussian(self.noise_multiplier, matrix_tv_error(self.noise_multiplier, unit))


def gradient_total(
    model: Model, rows: Table, matrix: Array, phi: Array, cap: Array
) -> tuple[Array, int, Array]:
    """The exact sum of the rows' k U, which one unit moves by at most 2^bits.

    Args:
        model: The model.
        rows: The rows.
        matrix: A.
        phi: The position.
        cap: C.

    Returns:
        The sum; the number of bits, for a person of one row; and what one unit stands for.
    """
    row_set, frame = rows_and_frame(model, rows, matrix, phi)
    bits = _gradient_bits(rows)
    one = rows.unit._replace(rows_per_person=1)
    bound = row_set.gradient_bound(frame.limits, model.dimension, cap, one)
    # Rounding k changes a row's k U by at most |U| / 2, and of two rows by 2^ROW_BITS
    grid = bound / (2.0**bits - 2.0**ROW_BITS)
    curve, step = scaled_table(row_set.slopes, frame.unit / grid)
    lens = _lens(row_set, frame, cap)._replace(curve=curve, scale=step * 2.0**-WEIGHT_BITS)
    return whitened_sum(rows, kind_of("gradient", row_set), lens), bits, grid


def curvature_total(
    model: Model, rows: Table, matrix: Array, phi: Array, cap: Array
) -> tuple[Array, Array, Array]:
    """The exact sums of the rows' r r', both together at most MATRIX_LENGTH^2 for each row.

    Args:
        model: The model.
        rows: The rows.
        matrix: A.
        phi: The position.
        cap: C.

    Returns:
        Both sums; what one unit stands for; and whether the second differs from the first.
    """
    row_set, frame = rows_and_frame(model, rows, matrix, phi)
    bound = row_set.longest_matrices(frame.limits, cap)
    # Of both vectors r together, the fourth root of |r|^4 + |r|^4
    longest = longest_vector(model.dimension, 2**0.25)
    curve, step = scaled_table(row_set.roots, longest * frame.unit / jnp.sqrt(bound))
    lens = _lens(row_set, frame, cap)._replace(curve=curve, scale=step)
    total = whitened_sum(rows, kind_of("curvature", row_set), lens)
    return total, bound / longest**2, row_set.is_weighted(frame.limits, cap)


def _lens(rows: RowSet, frame: Frame, cap: Array) -> Lens:
    """What a pass with a position is given, but for the curve and the scale."""
    near, far = weight_tables(rows, frame, cap)
    none = jnp.zeros(0)
    return Lens(
        frame.matrix, frame.shrink, jnp.floor(frame.longest**2), frame.point, frame.to_place,
        frame.reach, none, jnp.asarray(steep_table(rows)), near, far, none,
    )  # fmt: skip


def _gradient_bits(rows: Table) -> int:
    """On the finest grid on which the sum over the largest table fits 62 bits."""
    capacity = MAX_ROWS if rows.capacity is None else rows.capacity
    return max(LEAST_BITS, min(MOST_BITS, 62 - capacity.bit_length()))


def _gradient_sigma(noise_multiplier: float, unit: Unit, bits: int) -> float:
    """The standard deviation of the noise, in units of the sum."""
    return float(noise_multiplier) * unit.rows_per_person * 2.0**bits
