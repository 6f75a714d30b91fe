"""What the queries about whitened rows share: their points, their noise, and who is refused."""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np

from dpmcmc.curator.noise import stream
from dpmcmc.curator.noise.noisy_sums import MAX_DIMENSION, noisy, vector_tv_error
from dpmcmc.curator.queries.curvature import symmetric
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


def kind_of(form: str, rows: RowSet, num_cells: int = 0) -> Kind:
    """Which sum.

    Args:
        form: As in `Kind`.
        rows: The public set of rows.
        num_cells: Of the length.

    Returns:
        The kind.
    """
    return Kind(form, rows.domain.dimension, len(rows.slopes) + 1, num_cells)


def longest_vector(dimension: int, factor: float = 1.0) -> float:
    """The length to which vectors are scaled before their entries are rounded."""
    return MATRIX_LENGTH - factor * (math.sqrt(dimension) / 2 + 1)


def matrix_sigma(noise_multiplier: float, unit: Unit) -> float:
    """The standard deviation of the noise on the diagonal of a sum of r r', in integers."""
    return float(noise_multiplier) * apart(unit) * MATRIX_LENGTH**2


def matrix_tv_error(noise_multiplier: float, unit: Unit) -> float:
    """The total-variation error of the noise on such sums."""
    return vector_tv_error(matrix_sigma(noise_multiplier, unit) / math.sqrt(2))


def noisy_matrix(key: Array, total: Array, sigma: float, grid: Array) -> Answer:
    """A symmetric matrix of integers with noise, off the diagonal of half the variance.

    In a Frobenius norm the entries there count twice.

    Args:
        key: Eight secret words.
        total: The exact sum.
        sigma: Of the noise on the diagonal.
        grid: What one unit of the sum stands for.

    Returns:
        The answer; its variance is that on the diagonal.
    """
    row, column = np.triu_indices(len(total))
    is_diagonal = row == column
    upper = total[row, column]
    key_diagonal, key_rest = stream.random_words(key, (2, 8))
    diagonal = noisy(key_diagonal, upper[is_diagonal], sigma, grid)
    rest = noisy(key_rest, upper[~is_diagonal], sigma / math.sqrt(2), grid)
    value = jnp.zeros(len(row)).at[is_diagonal].set(diagonal.value)
    return Answer(symmetric(value.at[~is_diagonal].set(rest.value)), diagonal.variance)
