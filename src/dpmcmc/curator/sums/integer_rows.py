r"""One exact pass of integers over the rows of a model that is a public function of x . theta and a
label.

No function of floating point is applied to a row: all that a row contributes is read from public
tables of integers (`Labelled`). Every device, order and shape of batches then gives the same bits.

**Features.** With R the public radius and h the power of two with 2^10 < R / h <= 2^11, a row's
features become integers X, the nearest to x / h, and M = floor(R / h). Rows that this would make
longer than M are rounded towards zero instead, after they were shortened to R if need be. That
|X| <= M is checked in integers; a row that fails, or is not finite, is ignored. From then on X h
stands for x.

**Predictor.** The position becomes integers T, the nearest to theta 2^24. X . T is an exact sum in
float64, for it is below 2^53. Rounded to units of 2^-17 it names a cell of width 2^-7 and a place
within it. A table holds values at the ends of the cells, and between them one interpolates in
integers. Predictors beyond 16 are taken for 16.

**Gradient.** With f the log-likelihood given x . theta and the label, the table holds the integer
K, the nearest to 2^20 f' / s, where |f'| <= s; so |K| <= 2^20, also between two ends. The row adds
K X, of length at most 2^20 M, which stands for f' x: one unit is s h 2^-20. So with a clip of at
least s h M nothing is clipped, and the length is at most clip / unit.

**Hessian.** The table holds the root of -f'' in such units that it is an integer S of at most
A 2^15 / M. The row adds the matrix r r' where r is the nearest integer to X S 2^-15. This has at
most the length A = 127 - sqrt(d) / 2, and rounding changes each of d entries by at most 1/2, so

    |r| <= 127,     |r r'| = |r|^2 <= 127^2 = 16129      (Frobenius norm),

for every row: the sensitivity that noise is scaled to, a little more than the clip stands for.
Products of such integers over 1024 rows stay below 2^24, where a float32 accumulator is exact in
any order, on matrix units too.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dpmcmc.curator.sums import layouts
from dpmcmc.curator.sums.exact_sum import ACCELERATOR_PIECE, Table
from dpmcmc.curator.sums.rowwise import rowwise
from dpmcmc.types import Labelled, Model

FEATURE_BITS = 11
POSITION_BITS = 24
CELL_BITS = 7  # cells have the width 2^-CELL_BITS
PLACE_BITS = 10  # of a place within a cell
LARGEST = 16  # predictor in the tables
NUM_CELLS = 2 * LARGEST * 2**CELL_BITS
SLOPE_BITS = 20
ROOT_SHIFT = 15
LARGEST_ROOT = 127  # the longest vector r
ROUNDING = 0.5  # changes each of its entries by so much
HESSIAN_SENSITIVITY = LARGEST_ROOT**2
BLOCK = 1024  # rows whose products of r fit a float32 accumulator
CHUNK = 2**14  # rows that are made integers at a time
MOST_LABELS = 100
MOST_FEATURES = 1024
MOST_KERNEL_FEATURES = 128


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=["features", "labels", "slopes", "roots"],
    meta_fields=["step", "slope_unit", "root_unit", "longest", "clip", "hessian_clip", "passes"],
)
@dataclass(frozen=True)
class IntegerRows:
    """Rows as integers, and the public tables of what they contribute."""

    features: Any  # int16 (rows, d); None where the rows are not here
    labels: Any  # int8: 1 more than the label, 0 for a row that is ignored; None likewise
    slopes: Any  # int32, (labels + 1) * (NUM_CELLS + 1): K at the ends of the cells
    roots: Any  # int32, the same shape: S
    step: float  # h
    longest: int  # M
    slope_unit: float  # what one unit of a sum of K X stands for
    root_unit: float  # what one unit of a sum of r r' stands for
    clip: float  # the least clip with which no row's gradient is clipped
    hessian_clip: float  # the same for Hessians
    passes: Any = None  # where the rows are not here: who makes a pass over them

    def gradient_sensitivity(self, clip: float) -> float:
        """How far a row moves the sum of K X, or more where the clip says so."""
        return max(2.0**SLOPE_BITS * self.longest, clip / self.slope_unit)

    def hessian_sensitivity(self, clip: float) -> float:
        """How far a row moves the sum of r r', or more where the clip says so."""
        return max(float(HESSIAN_SENSITIVITY), clip / self.root_unit)


def integer_rows(
    model: Model, leaves: Any, num_rows: int, capacity: int, num_devices: int = 1
) -> IntegerRows | None:
    """The rows as integers, or None where the model has no public tables.

    Args:
        model: The model.
        leaves: The rows, a pytree of NumPy arrays.
        num_rows: The number of rows.
        capacity: The public bound of that number.
        num_devices: How many devices the rows are spread over.

    Returns:
        Them, as NumPy arrays, padded with rows that are ignored.
    """
    tables = public_tables(model)
    if tables is None:
        return None
    size = num_devices * math.prod(chunks(-(-capacity // num_devices)))
    features = np.zeros((size, model.dimension), np.int16)
    labels = np.zeros(size, np.int8)
    read = row_reader(model)
    with jax.default_device(jax.local_devices(backend="cpu")[0]), jax.enable_x64(True):
        for start in range(0, num_rows, CHUNK):
            some = slice(start, min(start + CHUNK, num_rows))
            part = jax.tree.map(lambda leaf: leaf[some], leaves)  # noqa: B023
            features[some], labels[some] = as_integers(tables, *read(part))
    return dataclasses.replace(tables, features=features, labels=labels)


def public_tables(model: Model) -> IntegerRows | None:
    """What a row of the model may contribute, without any rows.

    Args:
        model: The model.

    Returns:
        The public tables and units, or None where the model has none.
    """
    labelled = None if model.linear is None else model.linear.labelled
    if labelled is None or not _fits(labelled, model.dimension):
        return None
    step = 2.0 ** math.ceil(math.log2(labelled.radius / 2**FEATURE_BITS))
    longest = math.floor(labelled.radius / step)
    slopes, roots = derivatives(labelled.log_likelihood, labelled.number)
    slope_bound = float(np.max(np.abs(slopes)))
    slope_bound = 2.0 ** math.ceil(math.log2(slope_bound))
    root_bound = float(np.max(roots))
    largest = LARGEST_ROOT - ROUNDING * math.sqrt(model.dimension)  # A
    most = math.floor(largest * 2**ROOT_SHIFT / longest)
    root_scale = most / root_bound
    return IntegerRows(
        None,
        None,
        np.rint(slopes * (2.0**SLOPE_BITS / slope_bound)).astype(np.int32).reshape(-1),
        np.minimum(np.rint(roots * root_scale), most).astype(np.int32).reshape(-1),
        step,
        longest,
        slope_unit=slope_bound * step * 2.0**-SLOPE_BITS,
        root_unit=(step * 2.0**ROOT_SHIFT / root_scale) ** 2,
        clip=slope_bound * step * longest,
        hessian_clip=(root_bound * step * longest) ** 2,
    )


def _fits(labelled: Labelled, dimension: int) -> bool:
    """Whether the exact products fit; with a constant feature the step must not be above 1."""
    return (
        labelled.number <= MOST_LABELS
        and dimension <= MOST_FEATURES
        and 2.0**-100 < labelled.radius <= 2.0**FEATURE_BITS
    )


@functools.lru_cache(maxsize=16)
def derivatives(
    log_likelihood: Callable[[Any, Any], Any], number: int
) -> tuple[np.ndarray, np.ndarray]:
    """f' and the root of -f'' at the ends of all cells, of each label; zeros for rows that are
    ignored.
    """
    ends = np.arange(NUM_CELLS + 1) / 2.0**CELL_BITS - LARGEST
    with jax.default_device(jax.local_devices(backend="cpu")[0]), jax.enable_x64(True):
        first = jax.grad(log_likelihood)

        @jax.jit
        @functools.partial(jax.vmap, in_axes=(None, 0))
        @functools.partial(jax.vmap, in_axes=(0, None))
        def both(end, label):
            return first(end, label), jax.grad(first)(end, label)

        found = both(ends, jnp.arange(number))
    slopes, bends = (np.asarray(each, float) for each in found)
    if not (np.isfinite(slopes).all() and (bends <= 0).all()):
        raise ValueError(
            "the model's `labelled` log-likelihood is not finite and concave for predictors "
            f"between -{LARGEST} and {LARGEST}: leave `labelled` out"
        )
    ignored = np.zeros((1, NUM_CELLS + 1))
    return np.concatenate([ignored, slopes]), np.concatenate([ignored, np.sqrt(-bends)])


def row_reader(model: Model) -> Any:
    """From many rows to their features and labels.

    Args:
        model: A model that has public tables.

    Returns:
        A function of JAX, compiled once in a process. It copies cells, adds constants, and
        compares: it rounds nothing.
    """
    assert model.linear is not None and model.linear.labelled is not None
    return functools.partial(_read, model.linear.features, model.linear.labelled.of_row)


def as_integers(tables: IntegerRows, features: Any, labels: Any) -> tuple[np.ndarray, np.ndarray]:
    """The features and labels of some rows as integers.

    Args:
        tables: What a row may contribute.
        features: Of each row: (rows, d).
        labels: Of each row.

    Returns:
        The features, int16, and 1 more than the labels, int8: 0 for a row that is ignored.
    """
    number = tables.slopes.size // (NUM_CELLS + 1) - 1
    whole, is_used = rounded(np.asarray(features, float), tables.step, tables.longest)
    is_used &= (np.asarray(labels) >= 0) & (np.asarray(labels) < number)
    return (
        np.where(is_used[:, None], whole, 0).astype(np.int16),
        np.where(is_used, np.asarray(labels) + 1, 0).astype(np.int8),
    )


@functools.partial(jax.jit, static_argnums=(0, 1))
def _read(parts_of, label_of, rows):
    """Features and labels of some rows, in floating point."""
    features = rowwise(lambda row: jnp.concatenate(parts_of(row)))(rows)
    return features, rowwise(label_of)(rows)


def rounded(features: np.ndarray, step: float, longest: int) -> tuple[np.ndarray, np.ndarray]:
    """Features as integers of length at most `longest`, and of which rows there are any.

    Args:
        features: Of each row: (rows, d).
        step: What one unit stands for, a power of two.
        longest: The largest length of a row of integers.

    Returns:
        The integers, in floating point, and whether each row can be used.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        nearest = np.rint(features * features.dtype.type(1 / step))
        is_used = _squares(nearest) <= longest**2
        others = np.flatnonzero(~is_used)
        nearest[others], is_used[others] = _shortened(features[others], step, longest)
    return nearest, is_used


def _shortened(features: np.ndarray, step: float, longest: int) -> tuple[np.ndarray, np.ndarray]:
    """The same for rows that are too long if rounded to the nearest, or not finite."""
    is_finite = np.isfinite(features).all(axis=1)
    scaled = np.where(is_finite[:, None], features, 0).astype(float) / step
    # Beyond this no length matters, and squares do not overflow
    scaled = np.clip(scaled, -(2.0**60), 2.0**60)
    lengths = np.sqrt(_squares(scaled))
    inside = scaled * np.minimum(1, longest / np.maximum(lengths, 1e-300))[:, None]
    nearest = np.rint(inside)
    is_long = _squares(nearest) > longest**2
    whole = np.where(is_long[:, None], np.trunc(inside), nearest)
    return whole, is_finite & (_squares(whole) <= longest**2)


def _squares(vectors: np.ndarray) -> np.ndarray:
    """Each row's squared length: exact for integers as small as those that are used."""
    return np.einsum("ij,ij->i", vectors, vectors, dtype=float)


def chunks(size: int) -> tuple[int, int]:
    """How many chunks a device takes one after the other, and how many rows each has."""
    target = BLOCK if jax.default_backend() == "cpu" else ACCELERATOR_PIECE
    number = -(-size // target)
    return number, -(-size // number // BLOCK) * BLOCK


def gradient_sum(table: Table, position):
    """The exact sum of all rows' K X, int64 (d,); one unit is `slope_unit`."""
    return _one(table, position, "gradient")


def hessian_sum(table: Table, position):
    """The exact sum of all rows' r r', int64 (d, d); one unit is `root_unit`."""
    return _one(table, position, "hessian")


def _one(table: Table, position, kind: str):
    made = table.sums or sums(None, table, (kind,), position)
    return made[kind]


def sums(_: Any, table: Table, kinds: tuple[str, ...], position) -> dict[str, Any]:
    """The exact sums of these kinds, by one pass over the rows.

    Args:
        _: The model, which the integers are made for.
        table: The rows.
        kinds: "gradient", "hessian", or both.
        position: Where.

    Returns:
        The sum of each kind, int64.
    """
    rows = table.integers
    assert rows is not None
    whole = _position_integers(jnp.asarray(position, table.dtype))
    if rows.passes is not None:
        flat = rows.passes.total(kinds, whole)
    else:
        flat = table.over_devices(sum_here(rows, whole, kinds))
    return parts_of(flat, kinds, whole.size)


def sum_here(rows: IntegerRows, whole, kinds: tuple[str, ...]):
    """The sums over the rows that are here: a whole number of `BLOCK`s of them.

    Args:
        rows: The rows as integers.
        whole: The position as integers.
        kinds: "gradient", "hessian", or both.

    Returns:
        The exact sums, one after the other in one vector, int64.
    """
    if layouts.INTERPRET or _has_kernel(rows.features.shape[1], rows.step):
        made = _by_kernel(rows, whole)
        return jnp.concatenate([made[kind].reshape(-1) for kind in kinds])
    number, size = chunks(rows.features.shape[0])

    def add(index, total):
        start = jnp.asarray(index * size, jnp.int32)
        features = lax.dynamic_slice_in_dim(rows.features, start, size)
        labels = lax.dynamic_slice_in_dim(rows.labels, start, size)
        places = _places(rows, features, labels, whole)
        made = [_BLOCK_SUMS[kind](rows, features, places).reshape(-1) for kind in kinds]
        return total + jnp.concatenate(made)

    return lax.fori_loop(0, number, add, jnp.zeros(size_of(kinds, whole.size), jnp.int64))


def _by_kernel(rows: IntegerRows, whole) -> dict[str, Any]:
    from dpmcmc.curator.sums.gpu_integers import Pass, all_sums

    place_of = functools.partial(_place_of, rows.step)
    num_rows, dimension = rows.features.shape
    made = Pass(num_rows, dimension, place_of, looked_up, ROOT_SHIFT)
    gradient, hessian = all_sums(rows, whole, made)
    return {"gradient": gradient, "hessian": hessian}


@functools.cache
def _has_kernel(dimension: int, step: float) -> bool:
    """Whether there is a GPU that runs the kernel; the integers are the same without it."""
    if jax.default_backend() != "gpu" or dimension > MOST_KERNEL_FEATURES:
        return False
    shape = jax.ShapeDtypeStruct
    table = shape((3 * (NUM_CELLS + 1),), jnp.int32)
    few = shape((BLOCK, dimension), jnp.int16), shape((BLOCK,), jnp.int8)
    rows = IntegerRows(*few, table, table, step, *(1.0,) * 5)  # type: ignore[arg-type]
    try:
        with jax.enable_x64(True):
            jax.jit(_by_kernel).lower(rows, shape((dimension,), jnp.float64)).compile()
        return True
    except Exception as error:  # of shapes alone: no row is in it
        logging.getLogger("dpmcmc").info(
            "no GPU kernel for this model, the rows go through XLA: %r", error
        )
        return False


def size_of(kinds: tuple[str, ...], dimension: int) -> int:
    """How many numbers sums of these kinds have together."""
    return sum(math.prod(_shape_of(kind, dimension)) for kind in kinds)


def parts_of(flat, kinds: tuple[str, ...], dimension: int) -> dict[str, Any]:
    """The sums that are one after the other in a vector, by their kinds."""
    shapes = [_shape_of(kind, dimension) for kind in kinds]
    ends = np.cumsum([math.prod(shape) for shape in shapes])[:-1]
    parts = jnp.split(flat, ends)
    return {
        kind: part.reshape(shape) for kind, part, shape in zip(kinds, parts, shapes, strict=True)
    }


def _shape_of(kind: str, dimension: int) -> tuple[int, ...]:
    return (dimension,) if kind == "gradient" else (dimension, dimension)


def _position_integers(position):
    """T, as float64, no larger than sums of products with features allow."""
    most = 2.0 ** (52 - FEATURE_BITS - math.ceil(math.log2(position.size + 1)))
    scaled = jnp.asarray(position, jnp.float64) * 2.0**POSITION_BITS
    return jnp.clip(jnp.where(jnp.isnan(scaled), 0, jnp.round(scaled)), -most, most)


def _places(rows: IntegerRows, features, labels, whole):
    """Each row's cell in the tables, and its place between the ends of the cell."""
    if jax.default_backend() == "cpu":
        predictor = jnp.dot(features.astype(jnp.float64), whole, precision="highest")
    else:  # fused with the reading of the integers
        predictor = jnp.sum(features.astype(jnp.float64) * whole, axis=1)
    return _place_of(rows.step, predictor, labels)


def _place_of(step: float, predictor, label):
    """The cell in the tables of a predictor and a label, and the place between its ends."""
    unit = step * 2.0 ** (CELL_BITS + PLACE_BITS - POSITION_BITS)
    most = LARGEST * 2 ** (CELL_BITS + PLACE_BITS)
    nearest = jnp.clip(jnp.floor(predictor * unit + 0.5), -most, most - 1)
    place = nearest.astype(jnp.int32) + most
    cell = (place >> PLACE_BITS) + label.astype(jnp.int32) * (NUM_CELLS + 1)
    return cell, place & (2**PLACE_BITS - 1)


def looked_up(load: Callable[[Any], Any], cell, place):
    """The table's value, interpolated between both ends of the cell."""
    low = load(cell)
    half = 1 << (PLACE_BITS - 1)
    return low + (((load(cell + 1) - low) * place + half) >> PLACE_BITS)


def _gradient_block(rows: IntegerRows, features, places):
    slopes = looked_up(rows.slopes.__getitem__, *places)
    if jax.default_backend() == "cpu":
        product = jnp.dot(slopes.astype(jnp.float64), features.astype(jnp.float64))
        return product.astype(jnp.int64)
    return jnp.sum(slopes[:, None].astype(jnp.int64) * features.astype(jnp.int64), axis=0)


def _hessian_block(rows: IntegerRows, features, places):
    roots = looked_up(rows.roots.__getitem__, *places)
    # X S is at most 127 * 2^15, so that float32 holds it
    exact = features.astype(jnp.float32) * roots[:, None].astype(jnp.float32)
    vectors = jnp.round(exact * 2.0**-ROOT_SHIFT)
    if jax.default_backend() == "cpu":
        return jnp.dot(vectors.T, vectors, precision="highest").astype(jnp.int64)
    blocks = vectors.astype(jnp.bfloat16).reshape(-1, BLOCK, vectors.shape[1])
    products = jnp.einsum("mbi,mbj->mij", blocks, blocks, preferred_element_type=jnp.float32)
    return jnp.sum(products.astype(jnp.int64), axis=0)


_BLOCK_SUMS = {"gradient": _gradient_block, "hessian": _hessian_block}
