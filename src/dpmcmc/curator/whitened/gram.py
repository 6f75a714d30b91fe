"""What is released of whitened rows without a position: their Gram matrix and their lengths."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import jax.numpy as jnp
from jax import lax

from dpmcmc.accounting import costs
from dpmcmc.checks import check_sizes, whole
from dpmcmc.curator.noise.noisy_sums import vector_tv_error
from dpmcmc.curator.sums.exact_sum import BITS, Part, Table
from dpmcmc.curator.whitened.asking import (
    kind_of,
    longest_vector,
    matrix_sigma,
    matrix_tv_error,
    noisy_matrices,
    noisy_vector,
    rows_and_frame,
    traced_once,
)
from dpmcmc.curator.whitened.points import WEIGHT_BITS, Frame, Lens, length_table, power_of_two
from dpmcmc.curator.whitened.sums import whitened_sums
from dpmcmc.domains.bounds import SMALLEST_CAP, apart
from dpmcmc.types import Answer, Array, Model, Unit


@dataclass(frozen=True)
class Gram:
    """The noisy Gram matrix of the features in changed coordinates; it does not see labels.

    Asked with a matrix A and a cap C. Released is  sum_i min(1, (C / |u_i|)^2) u_i u_i' + noise
    with u = A' x. The noise on the diagonal has the standard deviation s = noise_multiplier *
    (sqrt(2) C^2 when a row is replaced, C^2 when one is added or removed) * rows per person, off
    the diagonal s / sqrt(2); `variance` is s^2. A cap above the largest |u| of the public set of
    rows, or one that is no number, stands for that length.

    Attributes:
        noise_multiplier: Standard deviation of the noise, divided by the sensitivity of the sum.

    Raises:
        ValueError: The noise multiplier is not positive and finite.

    Example:
        >>> from dpmcmc import Unit, queries
        >>> round(queries.Gram(noise_multiplier=10.0).cost(Unit()).rho(), 4)
        0.005
    """

    released: ClassVar[str] = (
        "Gram matrices of the features in changed coordinates, each row's shortened, with Gaussian "
        "noise"
    )
    adds: ClassVar[bool] = True  # the answers of several owners

    noise_multiplier: float

    def __post_init__(self) -> None:
        check_sizes(self, "noise_multiplier")

    def point_shapes(self, dimension: int) -> tuple[tuple[int, ...], ...]:
        """The shapes of what it is asked with.

        Args:
            dimension: That of a position.

        Returns:
            The shapes of A and C.
        """
        return (dimension, dimension), ()

    def answer(self, key: Array, model: Model, rows: Table, matrix: Array, cap: Array) -> Answer:
        """Compute on the rows what is released.

        Args:
            key: Eight secret words, for the noise.
            model: What one row contributes.
            rows: The rows.
            matrix: A.
            cap: C.

        Returns:
            What is released, and the variance of the noise in it.

        Raises:
            UnsupportedQuery: The model has no public tables.
            ValueError: The model has too large a dimension.
        """
        made = rows.sums or gram_sums(model, rows, ("gram",), matrix, cap)
        total, grid = made["gram"]
        return noisy_matrices(key, total, matrix_sigma(self.noise_multiplier, rows.unit), grid)

    def part(self, model: Model, rows: Table) -> Part:
        """Which sum of a pass of integers answers this.

        Args:
            model: What one row contributes.
            rows: The rows.

        Returns:
            The sum.
        """
        return Part(gram_sums, "gram")

    def cost(self, unit: Unit) -> costs.Gaussian:
        """What one release reveals.

        Args:
            unit: Whom the promise protects.

        Returns:
            The cost.
        """
        return costs.Gaussian(self.noise_multiplier, matrix_tv_error(self.noise_multiplier, unit))


@dataclass(frozen=True)
class NormCounts:
    """How many rows have a length in each of some cells, in changed coordinates, with noise.

    Asked with a matrix A and the ends of the cells, which increase. Released are the numbers of
    rows with  ends[j] <= |A' x| < ends[j + 1],  with Gaussian noise of the standard deviation
    noise_multiplier * (sqrt(2) when a row is replaced, 1 when one is added or removed) * rows per
    person on each.

    Attributes:
        num_cells: The number of cells, one less than that of their ends.
        noise_multiplier: Standard deviation of the noise, divided by the sensitivity of the counts.

    Raises:
        ValueError: A number is not positive and finite, or `num_cells` is not whole.

    Example:
        >>> from dpmcmc import Unit, queries
        >>> round(queries.NormCounts(24, noise_multiplier=10.0).cost(Unit()).rho(), 4)
        0.005
    """

    released: ClassVar[str] = (
        "numbers of rows by their length in changed coordinates, with Gaussian noise"
    )
    adds: ClassVar[bool] = True  # the answers of several owners

    num_cells: int
    noise_multiplier: float

    def __post_init__(self) -> None:
        check_sizes(self, "noise_multiplier")
        whole("num_cells", self.num_cells, 1, "cells of lengths")

    def point_shapes(self, dimension: int) -> tuple[tuple[int, ...], ...]:
        """The shapes of what it is asked with.

        Args:
            dimension: That of a position.

        Returns:
            The shapes of A and of the ends.
        """
        return (dimension, dimension), (self.num_cells + 1,)

    def answer(self, key: Array, model: Model, rows: Table, matrix: Array, ends: Array) -> Answer:
        """Compute on the rows what is released.

        Args:
            key: Eight secret words, for the noise.
            model: What one row contributes.
            rows: The rows.
            matrix: A.
            ends: The ends of the cells.

        Returns:
            What is released, and the variance of the noise in it.

        Raises:
            UnsupportedQuery: The model has no public tables.
            ValueError: The model has too large a dimension.
        """
        made = rows.sums or counts_sums(model, rows, ("counts",), matrix, ends)
        grid = jnp.asarray(2.0**-BITS)
        return noisy_vector(key, made["counts"] << BITS, self._sigma(rows.unit), grid)

    def part(self, model: Model, rows: Table) -> Part:
        """Which sum of a pass of integers answers this.

        Args:
            model: What one row contributes.
            rows: The rows.

        Returns:
            The sum.
        """
        return Part(counts_sums, "counts")

    def cost(self, unit: Unit) -> costs.Gaussian:
        """What one release reveals.

        Args:
            unit: Whom the promise protects.

        Returns:
            The cost.
        """
        return costs.Gaussian(self.noise_multiplier, vector_tv_error(self._sigma(unit)))

    def _sigma(self, unit: Unit) -> float:
        return float(self.noise_multiplier) * apart(unit) * 2.0**BITS


@traced_once
def gram_sums(
    model: Model, rows: Table, kinds: tuple[str, ...], matrix: Array, cap: Array
) -> dict[str, tuple[Array, Array]]:
    """The exact sum of the rows' r r', each of norm at most MATRIX_LENGTH^2.

    Args:
        model: The model.
        rows: The rows.
        kinds: ("gram",).
        matrix: A.
        cap: C.

    Returns:
        The sum, and what one unit of it stands for.
    """
    row_set, frame = rows_and_frame(model, rows, matrix)
    radius = frame.limits.radius
    cap = jnp.asarray(cap, jnp.float64)
    cap = jnp.clip(jnp.where(jnp.isnan(cap), radius, cap), SMALLEST_CAP * radius, radius)
    longest = longest_vector(model.dimension)
    # One unit of U is so many units of r, where a row is not shortened
    mantissa, exponent = jnp.frexp(longest * frame.unit / cap)
    near = length_table(lambda length: mantissa * jnp.minimum(1, cap / length), frame.unit)
    scale = power_of_two(exponent) * 2.0**-WEIGHT_BITS
    lens = _empty_lens(frame)._replace(near=near, scale=scale)
    totals = whitened_sums(rows, kind_of(kinds, row_set), lens)
    return {kind: (totals[kind], (cap / longest) ** 2) for kind in kinds}


@traced_once
def counts_sums(
    model: Model, rows: Table, kinds: tuple[str, ...], matrix: Array, ends: Array
) -> dict[str, Array]:
    """The exact numbers of rows in each of the cells.

    Args:
        model: The model.
        rows: The rows.
        kinds: ("counts",).
        matrix: A.
        ends: The ends of the cells. One that is below an earlier one counts as that.

    Returns:
        The numbers.
    """
    row_set, frame = rows_and_frame(model, rows, matrix)
    ends = jnp.asarray(ends, jnp.float64)
    lengths = lax.cummax(jnp.clip(jnp.where(jnp.isnan(ends), 0, ends), 0, 2.0**400))
    squares = jnp.square(lengths / frame.unit)
    lens = _empty_lens(frame)._replace(curve=squares)
    return whitened_sums(rows, kind_of(kinds, row_set, len(ends) - 1), lens)


def _empty_lens(frame: Frame) -> Lens:
    """What a pass without a position is given, but for the tables."""
    none = jnp.zeros(0)
    return Lens(
        frame.matrix, frame.shrink, jnp.floor(frame.longest**2), none, none, none, none, none,
        none, none, none, none, none,
    )  # fmt: skip
