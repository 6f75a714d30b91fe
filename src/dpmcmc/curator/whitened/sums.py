r"""Exact sums over rows in changed coordinates: U, the nearest integers to X A.

Every number here is a whole number, or one times a power of two, and below 2^53: float64 holds it
exactly, and its sum in any order. So the same bits come out for every device, batch and order, and
what is proved of one row (docs/sharp-sums.md) holds for it wherever it lies.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax

from dpmcmc.curator.sums.exact_sum import Table
from dpmcmc.curator.sums.integer_rows import (
    BLOCK,
    CELL_BITS,
    LARGEST,
    NUM_CELLS,
    PLACE_BITS,
    IntegerRows,
    chunks,
    looked_up,
)
from dpmcmc.curator.whitened.points import (
    CELLS_OF_OCTAVE,
    NUM_LENGTH_CELLS,
    WEIGHT_BITS,
    Lens,
)
from dpmcmc.types import Array

MOST_PLACES = LARGEST * 2 ** (CELL_BITS + PLACE_BITS)
ONE = 2.0**WEIGHT_BITS


@dataclass(frozen=True)
class Kind:
    """Which sums one pass makes, and of which sizes.

    Attributes:
        forms: ("gram",), ("counts",), or one or both of "gradient" and "curvature".
        dimension: d.
        num_tables: How many labels there are, and one for rows that are ignored.
        num_cells: Of "counts": how many cells of the length.
    """

    forms: tuple[str, ...]
    dimension: int
    num_tables: int
    num_cells: int = 0

    @property
    def sizes(self) -> dict[str, tuple[int, ...]]:
        """The shape of each sum."""
        d = self.dimension
        shapes = {
            "gram": (d, d),
            "counts": (self.num_cells,),
            "gradient": (d,),
            "curvature": (2, d, d),
        }
        return {form: shapes[form] for form in self.forms}

    @property
    def size(self) -> int:
        """How many numbers the sums have together."""
        return sum(math.prod(shape) for shape in self.sizes.values())

    def parts(self, flat: Array) -> dict[str, Array]:
        """The sums that are one after the other along the last axis."""
        ends = itertools.accumulate(math.prod(shape) for shape in self.sizes.values())
        parts = jnp.split(flat, list(ends)[:-1], axis=-1)
        return {
            form: part.reshape(*flat.shape[:-1], *shape)
            for (form, shape), part in zip(self.sizes.items(), parts, strict=True)
        }

    @property
    def shapes(self) -> Lens:
        """The shapes of what a pass is given: a curve and edges share one place."""
        of_curve = self.num_tables * (NUM_CELLS + 1)
        lengths = (NUM_LENGTH_CELLS,)
        return Lens(
            matrix=(self.dimension, self.dimension),
            shrink=(),
            longest=(),
            point=(self.dimension,),
            to_place=(),
            reach=(),
            curve=(self.num_cells + 1,) if "counts" in self.forms else (of_curve,),
            steep=(NUM_CELLS,),
            near=lengths,
            far=lengths,
            scale=(),
            bends=(of_curve,),
            bend_scale=(),
        )

    @property
    def used(self) -> frozenset[str]:
        """Which parts of the lens this sum needs."""
        of_weights = {"point", "to_place", "reach", "steep", "near", "far"}
        of_form = {
            "gram": {"near", "scale"},
            "counts": {"curve"},
            "gradient": {"curve", "scale", *of_weights},
            "curvature": {"bends", "bend_scale", *of_weights},
        }
        return frozenset(
            {"matrix", "shrink", "longest"}.union(*(of_form[form] for form in self.forms))
        )

    def packed(self, lens: Lens) -> Array:
        """The lens as one vector."""
        parts = [jnp.ravel(getattr(lens, name)) for name in Lens._fields if name in self.used]
        return jnp.concatenate(parts)

    def unpacked(self, packed: Array) -> Lens:
        """The lens from a vector; parts that are not used are empty."""
        parts = []
        start = 0
        for name, shape in zip(Lens._fields, self.shapes, strict=True):
            size = math.prod(shape) if name in self.used else 0
            part = lax.slice_in_dim(packed, start, start + size)
            parts.append(part.reshape(shape) if size else part)
            start += size
        return Lens(*parts)


def whitened_sums(table: Table, kind: Kind, lens: Lens) -> dict[str, Array]:
    """The exact sums over all rows, int64, by one pass.

    Args:
        table: The rows.
        kind: Which sums.
        lens: What a pass is given.

    Returns:
        The sum of each form.
    """
    rows = table.integers
    assert rows is not None
    packed = kind.packed(lens)
    if rows.passes is not None:
        return kind.parts(rows.passes.total(kind, packed))
    return kind.parts(table.over_devices(sum_here(rows, packed, kind)))


def sum_here(rows: IntegerRows, packed: Array, kind: Kind) -> Array:
    """The sums over the rows that are here: a whole number of `BLOCK`s of them.

    Args:
        rows: The rows as integers.
        packed: The lens as one vector.
        kind: Which sums.

    Returns:
        The exact sums, one after the other in one vector, int64.
    """
    lens = kind.unpacked(packed)
    number, size = chunks(rows.features.shape[0])

    def add(index, total):
        start = jnp.asarray(index * size, jnp.int32)
        features = lax.dynamic_slice_in_dim(rows.features, start, size)
        labels = lax.dynamic_slice_in_dim(rows.labels, start, size)
        return total + block_sums(kind, lens, features, labels.astype(jnp.int32))

    return lax.fori_loop(0, number, add, jnp.zeros(kind.size, jnp.int64))


def block_sums(kind: Kind, lens: Lens, features: Array, labels: Array) -> Array:
    """The sums over a block of rows.

    Args:
        kind: Which sums.
        lens: What a pass is given.
        features: The features, as integers.
        labels: 1 more than the label of each row, or 0.

    Returns:
        The exact sums, one after the other in one vector, int64.
    """
    seen = _whitened(lens, features, labels)
    if "steep" in kind.used:
        seen = _weighted(lens, seen, labels)
    return jnp.concatenate([_BLOCK_SUMS[form](lens, seen).reshape(-1) for form in kind.forms])


def _whitened(lens: Lens, features, labels):
    """U, |U|^2, and which rows count."""
    product = jnp.dot(features.astype(jnp.float64), lens.matrix, precision="highest")
    rows = jnp.floor(product * lens.shrink + 0.5)
    squares = jnp.sum(rows * rows, axis=1)
    return rows, squares, (squares <= lens.longest) & (labels > 0)


def _length_cells(squares):
    """The cell of each |U|^2: its octave and the first bits of its place there."""
    bits = lax.bitcast_convert_type(jnp.maximum(squares, 1), jnp.int64)
    cells = (bits >> (52 - CELLS_OF_OCTAVE)) - (1023 << CELLS_OF_OCTAVE)
    return jnp.minimum(cells, NUM_LENGTH_CELLS - 1).astype(jnp.int32)


class _Weighted(NamedTuple):
    """Rows, where each is in the tables, and the root of its weight."""

    rows: Array
    cell: Array
    place: Array
    root: Array


def _weighted(lens: Lens, seen: Any, labels) -> _Weighted:
    """A row that does not count is where tables are 0."""
    rows, squares, is_counted = seen
    predictor = jnp.dot(rows, lens.point, precision="highest")
    place = jnp.floor(predictor * lens.to_place + 0.5)
    is_counted &= jnp.abs(place) <= lens.reach
    place = jnp.clip(place, -MOST_PLACES, MOST_PLACES - 1).astype(jnp.int32) + MOST_PLACES
    cell = place >> PLACE_BITS
    label = jnp.where(is_counted, labels, 0)
    length = _length_cells(squares)
    steep = jnp.minimum(ONE, jnp.floor(lens.near[length] * lens.steep[cell] / ONE))
    root = jnp.floor(steep * lens.far[length] / ONE)
    return _Weighted(rows, cell + label * (NUM_CELLS + 1), place & (2**PLACE_BITS - 1), root)


def _read(table, seen: _Weighted):
    """What a table of integers gives for each row."""
    return looked_up(table.astype(jnp.int32).__getitem__, seen.cell, seen.place).astype(jnp.float64)


def _gradient_block(lens: Lens, seen: _Weighted):
    weight = jnp.floor(seen.root * seen.root / ONE)
    coefficients = jnp.floor(_read(lens.curve, seen) * weight * lens.scale + 0.5)
    products = jnp.einsum(
        "mb,mbi->mi", _in_blocks(coefficients), _in_blocks(seen.rows), precision="highest"
    )
    return jnp.sum(products.astype(jnp.int64), axis=0)


def _curvature_block(lens: Lens, seen: _Weighted):
    once = jnp.floor(_read(lens.bends, seen) * seen.root / ONE)
    twice = jnp.floor(once * seen.root / ONE)
    scale = lens.bend_scale
    return jnp.stack([_products(_rounded(seen.rows, by, scale)) for by in (once, twice)])


def _gram_block(lens: Lens, seen: Any):
    rows, squares, is_counted = seen
    factors = jnp.where(is_counted, lens.near[_length_cells(squares)], 0)
    return _products(_rounded(rows, factors, lens.scale))


def _counts_block(lens: Lens, seen: Any):
    _, squares, is_counted = seen
    ends = lens.curve
    is_inside = (squares[:, None] >= ends[:-1]) & (squares[:, None] < ends[1:])
    return jnp.sum(is_inside & is_counted[:, None], axis=0, dtype=jnp.int64)


def _rounded(rows, factors, scale):
    """r: the nearest to U times a factor."""
    return jnp.floor(rows * factors[:, None] * scale + 0.5)


def _products(vectors):
    """The sum of r r', exact."""
    blocks = _in_blocks(vectors)
    products = jnp.einsum("mbi,mbj->mij", blocks, blocks, precision="highest")
    return jnp.sum(products.astype(jnp.int64), axis=0)


def _in_blocks(values):
    """Values of so many rows at a time that sums of their products are exact."""
    return values.reshape(-1, BLOCK, *values.shape[1:])


_BLOCK_SUMS = {
    "gram": _gram_block,
    "counts": _counts_block,
    "gradient": _gradient_block,
    "curvature": _curvature_block,
}
