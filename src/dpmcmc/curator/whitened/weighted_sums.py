r"""The exact sums of the weighted gradient and the weighted matrices, by one pass or by two."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from dpmcmc.curator.sums.exact_sum import MAX_ROWS, Table
from dpmcmc.curator.whitened.asking import kind_of, longest_vector, rows_and_frame, traced_once
from dpmcmc.curator.whitened.points import (
    ROW_BITS,
    WEIGHT_BITS,
    Frame,
    Lens,
    scaled_table,
    steep_table,
    weight_tables,
)
from dpmcmc.curator.whitened.sums import whitened_sums
from dpmcmc.domains import RowSet
from dpmcmc.types import Array, Model

MOST_BITS, LEAST_BITS = 40, 31  # of what one row adds to a gradient


@traced_once
def sums(
    model: Model, rows: Table, kinds: tuple[str, ...], matrix: Array, phi: Array, cap: Array
) -> dict[str, tuple[Array, ...]]:
    """Exact sums over weighted rows.

    Args:
        model: The model.
        rows: The rows.
        kinds: "gradient", "curvature", or both.
        matrix: A.
        phi: The position.
        cap: C.

    Returns:
        For "gradient" the sum of the rows' k U, which one row moves by at most 2^bits, and what one
        unit stands for. For "curvature" the sums of the rows' r r', both together at most
        MATRIX_LENGTH^2 for each row, what one unit stands for, and whether the second differs from
        the first.
    """
    row_set, frame = rows_and_frame(model, rows, matrix, phi)
    lens = _lens(row_set, frame, cap)
    facts: dict[str, tuple[Array, ...]] = {}
    if "gradient" in kinds:
        lens, grid = _with_gradient(lens, model, rows, row_set, frame, cap)
        facts["gradient"] = (grid,)
    if "curvature" in kinds:
        lens, fine, is_weighted = _with_matrices(lens, model, row_set, frame, cap)
        facts["curvature"] = (fine, is_weighted)
    totals = whitened_sums(rows, kind_of(kinds, row_set), lens)
    return {kind: (totals[kind], *facts[kind]) for kind in kinds}


def gradient_bits(rows: Table) -> int:
    """On the finest grid on which the sum over the largest table fits 62 bits.

    Args:
        rows: The rows.

    Returns:
        The number of bits, for a person of one row.
    """
    capacity = MAX_ROWS if rows.capacity is None else rows.capacity
    return max(LEAST_BITS, min(MOST_BITS, 62 - capacity.bit_length()))


def _with_gradient(
    lens: Lens, model: Model, rows: Table, row_set: RowSet, frame: Frame, cap: Array
) -> tuple[Lens, Array]:
    """The lens with what a gradient needs; what one unit of it stands for."""
    one = rows.unit._replace(rows_per_person=1)
    bound = row_set.gradient_bound(frame.limits, model.dimension, cap, one)
    # Rounding k changes a row's k U by at most |U| / 2, and of two rows by 2^ROW_BITS
    grid = bound / (2.0 ** gradient_bits(rows) - 2.0**ROW_BITS)
    curve, step = scaled_table(row_set.slopes, frame.unit / grid)
    return lens._replace(curve=curve, scale=step * 2.0**-WEIGHT_BITS), grid


def _with_matrices(
    lens: Lens, model: Model, row_set: RowSet, frame: Frame, cap: Array
) -> tuple[Lens, Array, Array]:
    """The lens with what both matrices need; what one unit stands for; whether they differ."""
    bound = row_set.longest_matrices(frame.limits, cap)
    # Of both vectors r together, the fourth root of |r|^4 + |r|^4
    longest = longest_vector(model.dimension, 2**0.25)
    bends, step = scaled_table(row_set.roots, longest * frame.unit / jnp.sqrt(bound))
    is_weighted = row_set.is_weighted(frame.limits, cap)
    return lens._replace(bends=bends, bend_scale=step), bound / longest**2, is_weighted


def _lens(rows: RowSet, frame: Frame, cap: Array) -> Lens:
    """What a pass with a position is given, but for the tables and the scales."""
    near, far = weight_tables(rows, frame, cap)
    none = np.zeros(0)
    return Lens(
        frame.matrix, frame.shrink, jnp.floor(frame.longest**2), frame.point, frame.to_place,
        frame.reach, none, jnp.asarray(steep_table(rows)), near, far, none, none, none,
    )  # fmt: skip
