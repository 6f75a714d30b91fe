"""Exact sums over rows: fixed-point values, integer addition, pieces of one shape.

A row's value in [-1, 1] is truncated toward zero on the grid 2^-BITS and added as an integer. The sum then depends on neither the
order of the rows nor how they are split, and replacing one row moves it by at most 2 * 2^BITS, attained. Floating-point
summation has none of these properties.

The row's value itself is evaluated on pieces of one shape, chosen from the public capacity, on every path: compiled code may
round differently for arrays of different shapes. The pieces are buffers of their own (a slice inside a loop would copy the rows
once per step), evaluated one after the other. Memory: the rows, and O(piece) per chain.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from dpmcmc.types import Unit

BITS = 30  # a row's value in [-1, 1] times 2^BITS fits 32 bits; the sum of 2^31 rows fits 64
MAX_ROWS = 2**31 - 1
TARGET_PIECE, MAX_PIECES = 2**18, 32


@dataclass(frozen=True)
class Table:
    """The rows as the compiled block sees them."""

    pieces: tuple[Any, ...]  # pytrees of arrays with a common leading axis, all of one shape; the last ones padded
    num_rows: Any  # how many rows, from the first on, are real: an array, for it may be private
    unit: Unit
    axis: str | None = None  # the name of the device axis when the rows are spread over several devices

    @property
    def is_double(self) -> bool:
        return any(leaf.dtype == jnp.float64 for leaf in jax.tree.leaves(self.pieces))


def piece_layout(capacity: int) -> tuple[int, int]:
    """How many pieces and how many rows in each, from the public capacity alone."""
    num_pieces = min(MAX_PIECES, -(-capacity // TARGET_PIECE))
    return num_pieces, -(-capacity // num_pieces)


def fixed_point(unit_value):
    """A value in [-1, 1] -> an integer in [-2^BITS, 2^BITS], truncated toward zero."""
    return (unit_value * 2.0**BITS).astype(jnp.int32)


def shrink_to_ball(integers):
    """Integer vectors, along the last axis, made to have length at most 2^BITS: this is where a sensitivity is enforced.

    Entries are clamped to +-2^BITS; then a vector that is too long is divided by ceil(sqrt(d)), which always suffices. No rounding
    is involved, and no overflow: squares are divided by 2^k, rounded up, before they are added, so that d of them fit 63 bits.
    """
    dimension = integers.shape[-1]
    integers = jnp.clip(integers, -(2**BITS), 2**BITS)
    k = max(0, (dimension - 1).bit_length() - 2)
    squares = integers.astype(jnp.int64) ** 2
    length = jnp.sum((squares + (2**k - 1)) >> k, axis=-1, keepdims=True)
    divisor = jnp.where(length <= 2 ** (2 * BITS - k), 1, math.isqrt(dimension - 1) + 1).astype(integers.dtype)
    return lax.div(integers, jnp.broadcast_to(divisor, integers.shape))


def sum_rows(values: Callable[[Any], Any], table: Table, block: int | None = None):
    """The exact int64 sum over the real rows of integers `values(rows)`, of shape (number of rows, ...).

    `values` sees a whole piece, or with `block` so many rows at a time: that keeps what it makes of a row in the cache. The last
    block of a piece is moved back to fit, and its rows that were counted before are masked.
    """
    size = jax.tree.leaves(table.pieces[0])[0].shape[0]
    block = size if block is None else min(block, size)
    device = 0 if table.axis is None else lax.axis_index(table.axis)

    def sum_block(piece, start, num_real):
        first = jnp.minimum(start, size - block)
        rows = piece if block == size else jax.tree.map(lambda leaf: lax.dynamic_slice_in_dim(leaf, first, block), piece)
        integers = values(rows)
        index = first + jnp.arange(block, dtype=jnp.int32)
        mask = ((index >= start) & (index < num_real)).reshape((-1,) + (1,) * (integers.ndim - 1))
        return jnp.sum(jnp.where(mask, integers, 0), axis=0, dtype=jnp.int64)

    @jax.jit
    def add_piece(total, piece, first_row):
        num_real = jnp.clip(table.num_rows - first_row, 0, size).astype(jnp.int32)
        if block == size:
            return total + sum_block(piece, jnp.int32(0), num_real)
        start = jnp.zeros(jax.eval_shape(sum_block, piece, jnp.int32(0), num_real).shape, jnp.int64)
        add_block = lambda index, sum_: sum_ + sum_block(piece, jnp.int32(index * block), num_real)  # noqa: E731
        return total + lax.fori_loop(0, -(-size // block), add_block, start)

    total = jnp.int64(0)
    for index, piece in enumerate(table.pieces):
        # The barrier makes each piece wait for the one before, so that their temporary arrays can share memory.
        total, piece = lax.optimization_barrier((total, piece))
        total = add_piece(total, piece, (device * len(table.pieces) + index) * size)
    return total if table.axis is None else lax.psum(total, table.axis)
