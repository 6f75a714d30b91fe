"""What the queries about whitened rows share: their points, their noise, and who is refused."""

from __future__ import annotations

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpmcmc.curator.noise import gaussian
from dpmcmc.curator.noise.noisy_sums import MAX_DIMENSION, vector_tv_error
from dpmcmc.curator.sums.exact_sum import Table
from dpmcmc.curator.whitened.points import MATRIX_LENGTH, Frame, frame_of, row_set
from dpmcmc.curator.whitened.sums import Kind
from dpmcmc.domains import RowSet
from dpmcmc.domains.bounds import apart
from dpmcmc.errors import UnsupportedQuery
from dpmcmc.types import Answer, Array, Model, Unit

NO_TABLES = (
    "a query in changed coordinates reads rows as integers, and this model has no public tables "
    "for them (Linear.labelled, such as that of models.logistic): use Gradient and Curvature"
)


def rows_and_frame(
    model: Model, table: Table, matrix: Array, phi: Array | None = None
) -> tuple[RowSet, Frame]:
    """The public set of rows, and the points as integers.

    Args:
        model: The model.
        table: The rows.
        matrix: A.
        phi: The position; 0 if left out.

    Returns:
        Both.

    Raises:
        UnsupportedQuery: The model has no public tables.
        ValueError: The model has too large a dimension.
    """
    rows = row_set(model)
    if rows is None or table.integers is None:
        raise UnsupportedQuery(NO_TABLES)
    if model.dimension * (model.dimension + 1) > MAX_DIMENSION:
        raise ValueError(
            f"dimension={model.dimension} has more entries of matrices than the {MAX_DIMENSION} "
            "that noise is charged for"
        )
    phi = jnp.zeros(model.dimension) if phi is None else phi
    return rows, frame_of(rows, table.integers.step, matrix, phi)


def traced_once(sums: Any) -> Any:
    """The function sums(model, rows, kinds, *points), traced once for all asks of these shapes.

    Args:
        sums: The function. Of the rows it needs the integers alone.

    Returns:
        The same.
    """
    traced = jax.jit(sums, static_argnums=(0, 2))

    @functools.wraps(sums)
    def of_integers(model: Model, rows: Table, kinds: tuple[str, ...], *points: Array) -> Any:
        bare = Table((), rows.num_rows, rows.unit, rows.axis, rows.capacity, integers=rows.integers)
        return traced(model, bare, kinds, *points)

    return of_integers


def kind_of(forms: tuple[str, ...], rows: RowSet, num_cells: int = 0) -> Kind:
    """Which sums.

    Args:
        forms: As in `Kind`.
        rows: The public set of rows.
        num_cells: Of the length.

    Returns:
        The kind.
    """
    return Kind(forms, rows.domain.dimension, len(rows.slopes) + 1, num_cells)


def longest_vector(dimension: int, factor: float = 1.0) -> float:
    """The length to which vectors are scaled before their entries are rounded."""
    return MATRIX_LENGTH - factor * (math.sqrt(dimension) / 2 + 1)


def matrix_sigma(noise_multiplier: float, unit: Unit) -> float:
    """The standard deviation of the noise on the diagonal of a sum of r r', in integers."""
    return float(noise_multiplier) * apart(unit) * MATRIX_LENGTH**2


def matrix_tv_error(noise_multiplier: float, unit: Unit) -> float:
    """The total-variation error of the noise on such sums."""
    return vector_tv_error(matrix_sigma(noise_multiplier, unit) / math.sqrt(2))


def noisy_vector(key: Array, total: Array, sigma: float, grid: Array) -> Answer:
    """A vector of integers with noise of one standard deviation.

    Args:
        key: Eight secret words.
        total: The exact sum.
        sigma: Of the noise.
        grid: What one unit of the sum stands for.

    Returns:
        The answer.
    """
    return _noisy(key, total, [sigma], np.zeros(len(total), int), grid)


def noisy_matrices(key: Array, totals: Array, sigma: float, grid: Array) -> Answer:
    """Symmetric matrices of integers with noise, off the diagonal of half the variance.

    In a Frobenius norm the entries there count twice.

    Args:
        key: Eight secret words.
        totals: The exact sums, of shape (..., d, d).
        sigma: Of the noise on the diagonal.
        grid: What one unit of the sums stands for.

    Returns:
        The answer; its variance is that on the diagonal.
    """
    row, column = np.triu_indices(totals.shape[-1])
    upper = totals[..., row, column]
    which = np.broadcast_to(row != column, upper.shape).reshape(-1).astype(int)
    found = _noisy(key, upper.reshape(-1), [sigma, sigma / math.sqrt(2)], which, grid)
    value = found.value.reshape(upper.shape)
    place = np.zeros(totals.shape[-2:], int)
    place[row, column] = place[column, row] = np.arange(len(row))
    return Answer(value[..., place], found.variance)


def _noisy(key: Array, total: Array, sigmas: list[float], which: np.ndarray, grid: Array) -> Answer:
    """Noise on every entry, of one of several standard deviations; the variance is the first's."""
    multipliers = gaussian.multiplier_table(sigmas)[which]
    noise = gaussian.sums(key, total.shape, multipliers)
    # An array, so that programs that differ in it alone have one text
    sigma = np.array([gaussian.gaussian_sigma(sigmas[0])])
    value = grid * (total + noise).astype(jnp.float64)
    return Answer(value, jnp.square(grid * sigma)[0])
