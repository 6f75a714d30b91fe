r"""From the points of a query to the public integers of one pass over whitened rows.

All that a pass needs besides the rows is here: how X becomes U, how U gives a predictor, and tables
of what a row contributes. The numbers are public, so they may be computed in floating point; what
is proved of rows (docs/sharp-sums.md) is proved for the integers that come out.

A point that is not finite stands for a public one: an entry that is no number counts as 0, and one
that is too large as `LARGEST`.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dpmcmc.curator.sums import integer_rows
from dpmcmc.curator.sums.integer_rows import CELL_BITS, NUM_CELLS, PLACE_BITS, SLOPE_BITS
from dpmcmc.domains import Ball, Domain, Limits, RowSet
from dpmcmc.types import Array, Labelled, Model

ROW_BITS = 20  # of |U|
MATRIX_BITS = 36
POINT_BITS = 31
WEIGHT_BITS = 20
STEEP_BITS = 26  # of 1 / sqrt(q), which is at most 2^(STEEP_BITS - WEIGHT_BITS)
CELLS_OF_OCTAVE = 6  # of |U|^2, as a power of two
NUM_LENGTH_CELLS = 2 * (ROW_BITS + 2) << CELLS_OF_OCTAVE
MATRIX_LENGTH = 2.0**15  # the longest vector r whose r r' is added
LARGEST = 2.0**60  # entry of a point
SMALLEST = 2.0**-60
ENDS = np.arange(NUM_CELLS + 1) / 2.0**CELL_BITS - integer_rows.LARGEST


class Lens(NamedTuple):
    """What a pass over whitened rows is given: float64 arrays, nearly all of whole numbers.

    Attributes:
        matrix: A as integers, (d, d).
        shrink: X matrix shrink is U before it is rounded: a power of two.
        longest: The largest |U|^2 of a row that counts.
        point: phi as integers, (d,).
        to_place: From U . point to a place in the tables: a power of two.
        reach: The largest |place| of a row that counts.
        curve: f', for all labels at the ends of all cells; of counts, the ends of the cells.
        steep: 1 / sqrt(q) of each cell of the predictor, rounded down.
        near: sqrt(C / |u|), at most 1, of each cell of the length, rounded down.
        far: sqrt(2 C / |u|), at most 1, of each cell of the length, rounded down.
        scale: The last factor: a power of two.
        bends: The root of -f'', for all labels at the ends of all cells.
        bend_scale: The last factor of the matrices.
    """

    matrix: Array
    shrink: Array
    longest: Array
    point: Array
    to_place: Array
    reach: Array
    curve: Array
    steep: Array
    near: Array
    far: Array
    scale: Array
    bends: Array
    bend_scale: Array


class Frame(NamedTuple):
    """Rounded points, what they stand for, and what bounds a row there."""

    matrix: Array
    shrink: Array
    unit: Array  # one step of U
    longest: Array  # of |U|
    point: Array
    to_place: Array
    reach: Array  # in places
    limits: Limits


def row_set(model: Model) -> RowSet | None:
    """The public set of rows of a model.

    Args:
        model: The model.

    Returns:
        The set, or None where the model has no public tables.

    Example:
        >>> from dpmcmc import models, queries
        >>> queries.row_set(models.logistic(2, radius=3.0)).steepest
        1.0
        >>> queries.row_set(models.linear(2, noise_scale=1.0)) is None
        True
    """
    tables = integer_rows.public_tables(model)
    if tables is None or model.linear is None or model.linear.labelled is None:
        return None
    labelled = model.linear.labelled
    domain = labelled.domain or Domain((Ball(model.dimension, labelled.radius),))
    return _row_set(labelled._replace(domain=domain), tables.step)


@functools.lru_cache(maxsize=16)
def _row_set(labelled: Labelled, step: float) -> RowSet:
    with jax.ensure_compile_time_eval():  # also where a program is traced
        slopes, roots = integer_rows.derivatives(labelled.log_likelihood, labelled.number)
        chances = _chances(labelled)
    return RowSet(
        labelled.domain,
        step,
        ENDS,
        _on_grid(slopes[1:], np.rint),
        _on_grid(roots[1:], np.floor),
        chances,
    )


def _on_grid(values: np.ndarray, rounding: Any) -> np.ndarray:
    """The values as they are in tables of integers."""
    unit = unit_of(values)
    return rounding(values / unit) * unit


def unit_of(values: np.ndarray) -> float:
    """The step of a table of `SLOPE_BITS` that has these values: a power of two."""
    largest = max(float(np.max(np.abs(values))), 2.0**-60)
    return 2.0 ** (math.ceil(math.log2(largest)) - SLOPE_BITS)


def _chances(labelled: Labelled) -> np.ndarray:
    """How likely each label is at each of the predictors."""

    @jax.jit
    def all_logs(ends):
        of_one = jax.vmap(labelled.log_likelihood, (0, None))
        logs = jax.vmap(of_one, (None, 0))(ends, jnp.arange(labelled.number))
        return jax.nn.softmax(logs, axis=0)

    with jax.default_device(jax.local_devices(backend="cpu")[0]), jax.enable_x64(True):
        return np.asarray(all_logs(jnp.asarray(ENDS)))


def frame_of(rows: RowSet, step: float, matrix: Array, phi: Array) -> Frame:
    """The points as integers, and what bounds a row there.

    Args:
        rows: The public set of rows.
        step: What one unit of a placed row X stands for.
        matrix: A.
        phi: The position, in the coordinates of A.

    Returns:
        The frame.
    """
    dimension = len(matrix)
    whole, matrix_unit = _integers(matrix, MATRIX_BITS, jnp.max(jnp.abs(_finite(matrix))))
    point, point_unit = _integers(phi, POINT_BITS, jnp.linalg.norm(_finite(phi)))
    matrix = whole * matrix_unit
    phi = point * point_unit
    rounding = math.sqrt(dimension) / 2 + 1
    room = 2.0**ROW_BITS - rounding
    radius = jnp.maximum(rows.radius(matrix), SMALLEST) * (1 + 2.0**-30)
    unit = _power_above(radius / room)
    longest = radius / unit + rounding
    steepness = jnp.linalg.norm(phi) * (1 + 2.0**-40)
    reach = rows.reach(matrix @ phi) * (1 + 2.0**-30) + rounding * unit * steepness
    places = 2.0 ** (CELL_BITS + PLACE_BITS)
    limit = jnp.minimum(jnp.floor(reach * places) + 2, 2.0**50)
    return Frame(
        whole,
        step * matrix_unit / unit,
        unit,
        longest,
        point,
        unit * point_unit * places,
        limit,
        Limits(longest * unit, (limit + 1) / places, steepness),
    )


def _finite(values: Array) -> Array:
    values = jnp.asarray(values, jnp.float64)
    return jnp.clip(jnp.where(jnp.isnan(values), 0, values), -LARGEST, LARGEST)


def _integers(values: Array, bits: int, largest: Array) -> tuple[Array, Array]:
    """Whole numbers, and the power of two that one of them stands for."""
    unit = _power_above(jnp.maximum(largest, SMALLEST)) * 2.0**-bits
    return jnp.round(_finite(values) / unit), unit


def _power_above(value: Array) -> Array:
    """The least power of two that is not below, or the next one."""
    return power_of_two(jnp.frexp(value)[1])


def power_of_two(exponent: Array) -> Array:
    """2^exponent, exactly: `exp2` and `ldexp` need not be."""
    bits = (exponent.astype(jnp.int64) + 1023) << 52
    return lax.bitcast_convert_type(bits, jnp.float64)


def scaled_table(values: np.ndarray, factor: Array) -> tuple[Array, Array]:
    """A table of integers that stands for values * factor, rounded towards zero, and what for.

    Args:
        values: For each label at the ends of all cells.
        factor: A positive number.

    Returns:
        The integers, flat, with zeros before them for rows that are ignored; and the power of two
        that one of them stands for.
    """
    unit = unit_of(values)
    mantissa, exponent = jnp.frexp(factor)
    whole = jnp.trunc(jnp.asarray(np.rint(values / unit)) * mantissa)
    ignored = jnp.zeros((1, values.shape[1]))
    return jnp.concatenate([ignored, whole]).ravel(), unit * power_of_two(exponent)


def steep_table(rows: RowSet) -> np.ndarray:
    """1 / sqrt(q) of each cell of the predictor, rounded down, relative to the largest q."""
    steepness = np.max(np.abs(rows.slopes), axis=0) / rows.steepest
    of_cells = np.maximum(np.maximum(steepness[:-1], steepness[1:]), 1e-300)
    most = 2.0**STEEP_BITS
    return np.minimum(np.floor(2.0**WEIGHT_BITS / np.sqrt(of_cells)), most)


def length_table(function: Any, unit: Array) -> Array:
    """A falling function of |u|, of each cell of |U|^2, rounded down.

    Args:
        function: From lengths to numbers of at most 1.
        unit: One step of U.

    Returns:
        Whole numbers of at most 2^WEIGHT_BITS.
    """
    cells = np.arange(1, NUM_LENGTH_CELLS + 1)
    octave, place = cells >> CELLS_OF_OCTAVE, cells & (2**CELLS_OF_OCTAVE - 1)
    squares = 2.0**octave * (1 + place * 2.0**-CELLS_OF_OCTAVE)  # the upper ends
    lengths = jnp.asarray(np.sqrt(squares)) * unit * (1 + 2.0**-40)
    return jnp.floor(jnp.minimum(function(lengths), 1) * 2.0**WEIGHT_BITS)


def weight_tables(rows: RowSet, frame: Frame, cap: Array) -> tuple[Array, Array]:
    """The roots of C / (s |u|) and of 2 C / |u|, where s is the largest q of all."""
    held = rows.held_cap(frame.limits, cap)
    near = length_table(lambda length: jnp.sqrt(held / (rows.steepest * length)), frame.unit)
    far = length_table(lambda length: jnp.sqrt(2 * held / length), frame.unit)
    return near, far
