"""A noisy Hessian: minus the sum of the rows' Hessians, each clipped in Frobenius norm.

One release of it, at a public point, is worth buying: for n rows its entries grow like n while the
noise does not, so a small part of the budget gives a matrix that scales moves, masses and Newton
steps well. A row's matrix is flattened to its upper triangle with the off-diagonal entries times
sqrt(2), so that the length of the vector is the Frobenius norm.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from dpmcmc.accounting import costs
from dpmcmc.checks import check_sizes
from dpmcmc.curator.noise import stream
from dpmcmc.curator.noise.noisy_sums import MAX_DIMENSION, integer_sigma, noisy, vector_tv_error
from dpmcmc.curator.sums import integer_rows
from dpmcmc.curator.sums.exact_sum import (
    BITS,
    Part,
    Table,
    ball_integers,
    sum_counted,
    sum_row_vectors,
)
from dpmcmc.curator.sums.rowwise import rowwise
from dpmcmc.domains.bounds import apart
from dpmcmc.types import Answer, Array, Model, Unit

ALMOST = 1 - 1e-9  # a proved bound is rounded
# The noise on integer rows has a grid so much finer than their sums that off the diagonal, where it
# is smaller, it is no coarser than that on other rows: 127^2 2^17 / sqrt(2) > 2^30
NOISE_BITS = 17
GRAM_BITS = 15  # of a vector whose products are summed: so that these have 30


@dataclass(frozen=True)
class Curvature:
    """A noisy Hessian: minus the sum of the rows' Hessians, each clipped in Frobenius norm.

    Released is  sum_i clip(-H_i) + noise,  H_i the Hessian of row i's log-likelihood: a symmetric
    (d, d) matrix. The noise on the diagonal has the standard deviation s = noise_multiplier *
    (2 clip when a row is replaced, clip when one is added or removed) * rows per person, off the
    diagonal s / sqrt(2); `variance` is s^2.

    Attributes:
        clip: The largest Frobenius norm of one row's Hessian: a longer one is shortened to it.
        noise_multiplier: Standard deviation of the noise, divided by the sensitivity of the sum.

    Raises:
        ValueError: A number is not positive and finite.

    Example:
        >>> from dpmcmc import Unit, queries
        >>> query = queries.Curvature(clip=0.25, noise_multiplier=10.0)
        >>> round(query.cost(Unit()).rho(), 4)
        0.005
    """

    released: ClassVar[str] = (
        "Hessians of the log-likelihood, each row's clipped, with Gaussian noise"
    )
    adds: ClassVar[bool] = True  # the answers of several owners
    is_direction: ClassVar[bool] = True
    bounded_by: ClassVar[str] = "hessian_bound"

    clip: float
    noise_multiplier: float

    def __post_init__(self) -> None:
        check_sizes(self, "clip", "noise_multiplier")

    def answer(self, key: Array, model: Model, rows: Table, position: Array) -> Answer:
        """Compute on the rows what is released.

        Args:
            key: Eight secret words, for the noise and the coins.
            model: What one row contributes.
            rows: The rows.
            position: Where the chain is.

        Returns:
            What is released, and the variance of the noise in it.

        Raises:
            ValueError: The model has too large a dimension.
        """
        upper = np.triu_indices(model.dimension)
        if len(upper[0]) > MAX_DIMENSION:
            raise ValueError(
                f"dimension={model.dimension} has more second derivatives than the {MAX_DIMENSION} "
                "that noise is charged for"
            )
        if self.part(model, rows) is not None:
            return self._of_integers(key, rows, position)
        total = curvature_sum(model, rows, position, self.clip)
        flat = noisy(
            key, total, integer_sigma(self.noise_multiplier, rows.unit), self.clip / 2.0**BITS
        )
        return Answer(symmetric(flat.value / _weights(model.dimension)), flat.variance)

    def part(self, model: Model, rows: Table) -> Part | None:
        """Which sum of a pass of integers is asked for, where this is answered by one.

        Args:
            model: What one row contributes.
            rows: The rows.

        Returns:
            The sum, which a pass can make together with others at the same points.
        """
        if rows.integers is None or self.clip < ALMOST * rows.integers.hessian_clip:
            return None
        return Part(integer_rows.sums, "hessian")

    def _of_integers(self, key: Array, rows: Table, position: Array) -> Answer:
        """The same from the pass of integers, which never clips.

        Off the diagonal the noise has half of the variance: in a Frobenius norm these entries count
        twice.
        """
        fine = 2**NOISE_BITS
        total = fine * integer_rows.hessian_sum(rows, position)
        row, column = np.triu_indices(len(total))
        key_diagonal, key_rest = stream.random_words(key, (2, 8))
        sensitivity = rows.integers.hessian_sensitivity(self.clip)
        sigma = integer_sigma(self.noise_multiplier, rows.unit, 0) * sensitivity * fine
        unit = rows.integers.root_unit / fine
        is_diagonal = row == column
        upper = total[row, column]
        diagonal = noisy(key_diagonal, upper[is_diagonal], sigma, unit)
        rest = noisy(key_rest, upper[~is_diagonal], sigma / np.sqrt(2), unit)
        value = jnp.zeros(len(row)).at[is_diagonal].set(diagonal.value)
        return Answer(symmetric(value.at[~is_diagonal].set(rest.value)), diagonal.variance)

    def cost(self, unit: Unit) -> costs.Gaussian:
        """What one release reveals.

        Args:
            unit: Whom the promise protects.

        Returns:
            The cost.
        """
        return costs.Gaussian(
            self.noise_multiplier, vector_tv_error(integer_sigma(self.noise_multiplier, unit))
        )


@dataclass(frozen=True)
class RowGram:
    """The noisy Gram matrix of vectors that a model makes of its rows (`Model.vectors`).

    Released is  sum_i clip(r_i) clip(r_i)' + noise,  r_i the vector of row i at a position: a
    symmetric matrix. It takes less noise than a `Curvature` with the same matrices, for two
    products r r' and s s' of length at most length^2 are at most sqrt(2) length^2 apart. The noise
    on the diagonal has the standard deviation s = noise_multiplier * (sqrt(2) length^2 when a row
    is replaced, length^2 when one is added or removed) * rows per person, off the diagonal
    s / sqrt(2); `variance` is s^2. A vector with an entry that is no number counts as zero.

    Attributes:
        length: The largest length of one row's vector: a longer one is shortened to it.
        noise_multiplier: Standard deviation of the noise, divided by the sensitivity of the sum.

    Raises:
        ValueError: A number is not positive and finite.

    Example:
        >>> from dpmcmc import Unit, queries
        >>> query = queries.RowGram(length=1.0, noise_multiplier=10.0)
        >>> round(query.cost(Unit()).rho(), 4)
        0.005
    """

    released: ClassVar[str] = (
        "Gram matrices of vectors of the rows, each clipped, with Gaussian noise"
    )
    adds: ClassVar[bool] = True  # the answers of several owners

    length: float
    noise_multiplier: float

    def __post_init__(self) -> None:
        check_sizes(self, "length", "noise_multiplier")

    def answer(self, key: Array, model: Model, rows: Table, position: Array) -> Answer:
        """Compute on the rows what is released.

        Args:
            key: Eight secret words, for the noise.
            model: What one row contributes.
            rows: The rows.
            position: Where the chain is.

        Returns:
            What is released, and the variance of the noise in it.

        Raises:
            ValueError: The model has no `vectors`, or ones that are too long.
        """
        total = gram_sum(model, rows, position, self.length)
        row, column = np.triu_indices(len(total))
        is_diagonal = row == column
        upper = total[row, column]
        sigma = _gram_sigma(self.noise_multiplier, rows.unit)
        unit = (self.length / 2.0**GRAM_BITS) ** 2
        key_diagonal, key_rest = stream.random_words(key, (2, 8))
        diagonal = noisy(key_diagonal, upper[is_diagonal], sigma, unit)
        rest = noisy(key_rest, upper[~is_diagonal], sigma / np.sqrt(2), unit)
        value = jnp.zeros(len(row)).at[is_diagonal].set(diagonal.value)
        return Answer(symmetric(value.at[~is_diagonal].set(rest.value)), diagonal.variance)

    def cost(self, unit: Unit) -> costs.Gaussian:
        """What one release reveals.

        Args:
            unit: Whom the promise protects.

        Returns:
            The cost.
        """
        sigma = _gram_sigma(self.noise_multiplier, unit)
        return costs.Gaussian(self.noise_multiplier, vector_tv_error(sigma / np.sqrt(2)))


def _gram_sigma(noise_multiplier: float, unit: Unit) -> float:
    """The standard deviation of the noise on the diagonal, in integers."""
    return float(noise_multiplier) * apart(unit) * 4.0**GRAM_BITS


def gram_sum(model: Model, table: Table, position: Array, length: float) -> Array:
    """The exact integer sum of r r', r the rows' clipped vectors / length on the grid 2^-GRAM_BITS.

    Entries are truncated towards zero, so that no vector is longer than 2^GRAM_BITS.
    """
    if model.vectors is None:
        raise ValueError("the model has no `vectors` to make a Gram matrix of: use Curvature")
    of_row = model.vectors.of_row
    position = jnp.asarray(position, table.dtype)
    shift = 2 ** (BITS - GRAM_BITS)

    def vectors(rows):
        with jax.enable_x64(table.is_double):
            return rowwise(of_row, (None, 0))(position, rows)

    def block_sum(rows, is_counted):
        integers = ball_integers(lambda: vectors(rows), length, table.num_rows)
        coarse = jnp.sign(integers) * (jnp.abs(integers) // shift)
        products = coarse[:, :, None] * coarse[:, None, :]  # below 2^30 each
        return sum_counted(products, is_counted)

    size = jax.eval_shape(vectors, table.pieces[0]).shape
    if len(size) != 2 or size[1] * (size[1] + 1) // 2 > MAX_DIMENSION:
        raise ValueError(
            f"vectors.of_row returns an array of shape {size[1:]} for a row: it must be one "
            f"vector, with at most {MAX_DIMENSION} different products of its entries"
        )
    return sum_row_vectors(block_sum, table, size[1] ** 2)


def curvature_sum(model: Model, table: Table, position, clip: float):
    """The exact integer sum of the rows' clipped, flattened Hessians / clip on the grid 2^-BITS."""
    upper = np.triu_indices(model.dimension)
    position = jnp.asarray(position, table.dtype)

    def flat(rows):
        with jax.enable_x64(table.is_double):
            hessians = rowwise(jax.hessian(model.log_likelihood), (None, 0))(position, rows)
            return -hessians[:, upper[0], upper[1]] * _weights(model.dimension).astype(
                hessians.dtype
            )

    def block_sum(rows, is_counted):
        return sum_counted(ball_integers(lambda: flat(rows), clip, table.num_rows), is_counted)

    return sum_row_vectors(block_sum, table, model.dimension**2)


def symmetric(upper: Array) -> Array:
    """The matrix with this upper triangle."""
    dimension = int(np.sqrt(2 * len(upper)))
    half = jnp.zeros((dimension, dimension)).at[np.triu_indices(dimension)].set(upper)
    return half + half.T - jnp.diag(jnp.diag(half))


def _weights(dimension: int) -> np.ndarray:
    row, column = np.triu_indices(dimension)
    return np.where(row == column, 1.0, np.sqrt(2.0))
