"""Exact sums over rows: fixed-point values, integer addition, pieces of one shape.

A row's value in [-1, 1] is truncated toward zero on the grid 2^-BITS and added as an integer. The
sum then depends on neither the order of the rows nor how they are split, and replacing one row
moves it by at most 2 * 2^BITS, attained. Floating-point summation has none of these properties.

The row's value itself is evaluated on pieces of one shape, chosen from the public capacity, on
every path: compiled code may round differently for arrays of different shapes. It may also round
differently in different slots of one array (in what is left over after whole vectors, for example),
so a row must keep its slot when another is added or removed: where the number of rows is private
they lie in random slots. Two tables that differ in one row can then be thought of as having all
others in the same slots.

The pieces are buffers of their own (a slice inside a loop would copy the rows once per step),
evaluated one after the other. Memory: the rows, and O(piece) per chain.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from dpmcmc.curator.sums.clipping import clip_to_unit_ball
from dpmcmc.precision import is_double
from dpmcmc.types import Unit

BITS = 30  # a row's value in [-1, 1] times 2^BITS fits 32 bits; the sum of 2^31 rows fits 64
MAX_ROWS = 2**31 - 1
TARGET_PIECE = 2**17
MAX_PIECES = 16
ACCELERATOR_PIECE = 2**20  # there, starting a kernel costs more than the memory of a larger piece
# about so many numbers are made of rows at a time
CACHED_ENTRIES = 2**15
ACCELERATOR_ENTRIES = 2**22
# a fused kernel keeps nothing of a row, but counts in 31 bits
FUSED_PIECE = 2**24
FUSED_ROWS = 2**10
FUSED_NUMBERS = 2**30


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=["stored", "num_rows", "scales", "statistic", "occupied", "device"],
    meta_fields=["unit", "axis", "capacity", "charge", "by_columns"],
)
@dataclass(frozen=True)
class Table:
    """The rows as the compiled block sees them."""

    # The pieces as they are kept: one leaf may be transposed, see `by_columns`
    stored: tuple[Any, ...]
    num_rows: Any  # how many there are: an array, for it may be private
    unit: Unit
    # The name of the device axis when the rows are spread over several devices
    axis: str | None = None
    capacity: int | None = None  # the public bound on the number of rows
    # What `linear_rows` knows about each piece, when the model has a linear predictor
    scales: tuple[Any, ...] | None = None
    # What `statistic` knows about all rows, when the model is an exponential family
    statistic: Any = None
    # (standing query, key, amount) -> whether its running sum allows it
    charge: Callable[..., Any] | None = None
    # For each slot of a piece, 1 if there is a row; None: the first slots have them
    occupied: tuple[Any, ...] | None = None
    # When they are on several devices: the index of this one, as an array of one entry
    device: Any = None
    # This leaf of every piece is stored transposed, for `fused` kernels
    by_columns: int | None = None

    @property
    def pieces(self) -> tuple[Any, ...]:
        """Pytrees of arrays with a common leading axis, all of one shape; the last ones padded."""
        return (
            self.stored
            if self.by_columns is None
            else tuple(transposed(piece, self.by_columns) for piece in self.stored)
        )

    @property
    def piece_size(self) -> int:
        return jax.tree.leaves(self.pieces[0])[0].shape[0]

    @property
    def num_slots(self) -> int:
        """Places for rows, the padding included: public."""
        num_devices = 1 if self.axis is None else lax.axis_size(self.axis)
        return num_devices * len(self.stored) * self.piece_size

    @property
    def first_slot(self):
        """Of this device."""
        return 0 if self.axis is None else self.device[0] * len(self.stored) * self.piece_size

    def num_real(self, index: int):
        """How many slots of a piece have rows, for a table whose rows are in its first slots."""
        return jnp.clip(
            self.num_rows - self.first_slot - index * self.piece_size, 0, self.piece_size
        ).astype(jnp.int32)

    def is_real(self, index: int):
        """Which slots of a piece have rows."""
        if self.occupied is not None:
            return self.occupied[index] != 0
        return jnp.arange(self.piece_size, dtype=jnp.int32) < self.num_real(index)

    @property
    def is_double(self) -> bool:
        return is_double(self.stored)

    @property
    def dtype(self) -> Any:
        """That the rows' values are computed in."""
        return jnp.float64 if self.is_double else jnp.float32

    def over_devices(self, part):
        """The sum over all devices of what each has found."""
        return part if self.axis is None else lax.psum(part, self.axis)


def one_row(rows: Any) -> Any:
    """The shapes of one of several rows, arrays or shapes with a leading axis."""
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), rows)


def piece_layout(capacity: int, fused_width: int | None = None) -> tuple[int, int]:
    """How many pieces and how many rows in each, from the public capacity and, where `fused`
    kernels read them, the features.
    """
    if fused_width is not None:
        num_pieces = -(-capacity // min(FUSED_PIECE, FUSED_NUMBERS // fused_width))
        return num_pieces, _round_up(-(-capacity // num_pieces), FUSED_ROWS)
    target = TARGET_PIECE if jax.default_backend() == "cpu" else ACCELERATOR_PIECE
    num_pieces = min(MAX_PIECES, -(-capacity // target))
    return num_pieces, -(-capacity // num_pieces)


def _round_up(number: int, unit: int) -> int:
    return -(-number // unit) * unit


def transposed(piece: Any, leaf: int) -> Any:
    """The piece with this one of its leaves transposed."""
    leaves, tree = jax.tree.flatten(piece)
    leaves[leaf] = leaves[leaf].T
    return jax.tree.unflatten(tree, leaves)


def fixed_point(unit_value):
    """A value in [-1, 1] -> an integer in [-2^BITS, 2^BITS], truncated toward zero."""
    return (unit_value * 2.0**BITS).astype(jnp.int32)


def shrink_to_ball(integers):
    """Integer vectors, along the last axis, of length at most 2^BITS: those that are longer become
    zero.

    This enforces a sensitivity, so no rounding is involved (they are made `once`), and no overflow:
    entries are divided by 2^s, rounded up, so that d squares of 32-bit numbers fit 63 bits. That
    makes a vector look longer, by less than d^(1/2) 2^(s - 29) of its length.
    """
    s = ((integers.shape[-1] - 1).bit_length() + 1) // 2
    entries = ((jnp.abs(integers) + (2**s - 1)) >> s).astype(jnp.int64)
    is_short = jnp.sum(entries * entries, axis=-1, keepdims=True) <= 2 ** (2 * (BITS - s))
    return jnp.where(is_short, integers, 0)


def once(make: Callable[[], Any], num_rows):
    """make(), an array of what rows say, computed in one place: all that use it read the same
    numbers.

    A compiler may compute a value again wherever it is used, and round it in another way each time
    (a product and a sum, fused or not): what is bounded in one place would then not be what is
    added in another. What comes out of a loop it cannot compute again, and it does not know that
    this one runs once.
    """
    found = jax.eval_shape(make)
    number = jnp.where(num_rows < 0, 2, 1)
    return lax.fori_loop(0, number, lambda _, __: make(), jnp.zeros(found.shape, found.dtype))


def ball_integers(vectors: Callable[[], Any], bound: float, num_rows):
    """vectors() / bound of each row as integers on the grid 2^-BITS, of length at most 2^BITS,
    whatever the rows are.
    """
    return shrink_to_ball(once(lambda: fixed_point(clip_to_unit_ball(vectors(), bound)), num_rows))


def sum_rows(values: Callable[[Any], Any], table: Table):
    """The exact int64 sum over the real rows of integers `values(piece)`, of shape (rows in the
    piece, ...).
    """
    return sum_pieces(lambda rows, is_real: sum_counted(values(rows), is_real), table, table.pieces)


def sum_counted(integers, is_counted):
    """The int64 sum of the counted ones of the integers, along the first axis."""
    mask = is_counted.reshape((-1,) + (1,) * (integers.ndim - 1))
    return jnp.sum(jnp.where(mask, integers, 0), axis=0, dtype=jnp.int64)


def sum_row_vectors(block_sum: Callable[[Any, Any], Any], table: Table, entries_per_row: int):
    """The sum over all real rows of `block_sum(rows, is_counted)`, when so many numbers are made of
    each.
    """
    block = rows_per_block(entries_per_row)
    return sum_pieces(
        lambda rows, is_real: sum_blocks(block_sum, rows, is_real, block), table, table.pieces
    )


def sum_pieces(piece_sum: Callable[[Any, Any], Any], table: Table, parts: tuple[Any, ...]):
    """The sum over all pieces, on all devices, of `piece_sum(part, is_real)`, int64 or float64; a
    part is a piece, or more.
    """
    total = jnp.int64(0)
    for index, part in enumerate(parts):
        # The barrier makes each piece wait for the one before, so that their temporary arrays can
        # share memory.
        total, part = lax.optimization_barrier((total, part))
        total = total + piece_sum(part, table.is_real(index))
    return table.over_devices(total)


def rows_per_block(entries_per_row: int) -> int:
    """How many rows to take at a time, a power of two, when so many numbers are made of each."""
    entries = CACHED_ENTRIES if jax.default_backend() == "cpu" else ACCELERATOR_ENTRIES
    return 1 << max(64, entries // entries_per_row).bit_length() - 1


def sum_blocks(block_sum: Callable[[Any, Any], Any], rows: Any, is_counted, block: int):
    """The sum of `block_sum(rows, is_counted)`, int64 or float64, over blocks: what it makes of a
    row stays in the cache.

    The last block is moved back to fit; its rows that were counted before are masked.
    """
    size = is_counted.shape[0]
    if block >= size:
        return block_sum(rows, is_counted)

    def one(index):
        start = jnp.asarray(index * block, jnp.int32)
        first = jnp.minimum(start, size - block)
        part, mask = jax.tree.map(
            lambda leaf: lax.dynamic_slice_in_dim(leaf, first, block), (rows, is_counted)
        )
        return block_sum(part, mask & (first + jnp.arange(block, dtype=jnp.int32) >= start))

    found = jax.eval_shape(one, 0)
    zero = jnp.zeros(found.shape, found.dtype)
    return lax.fori_loop(0, -(-size // block), lambda index, total: total + one(index), zero)
