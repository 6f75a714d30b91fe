"""Exact sums over rows: fixed-point values, integer addition, one chunk shape.

A row's value in [-1, 1] is truncated toward zero on the grid 2^-BITS and added as an integer. The sum then depends on neither the
order of the rows nor how they are split, and replacing one row moves it by at most 2 * 2^BITS, attained. Floating-point
summation has none of these properties.

The row's value itself is evaluated on chunks of one fixed shape, chosen from the public capacity, on every path: compiled code
may round differently for arrays of different shapes. The last chunk is clamped to the end of the table and the rows it shares
with the one before are masked, so nothing is copied. Memory: the rows, and O(chunk) per chain.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from dpmcmc.types import Unit

BITS = 30  # a row's value in [-1, 1] times 2^BITS fits 32 bits; the sum of 2^31 rows fits 64
MAX_ROWS = 2**31 - 1
SMALLEST_CHUNK, LARGEST_CHUNK = 64, 2**14


@dataclass(frozen=True)
class Table:
    """The rows as the compiled block sees them."""

    leaves: Any  # pytree of arrays with a common leading axis, padded to this device's share of the capacity
    num_rows: Any  # how many of them, from the first on, are real: an array, for it may be private
    chunk: int
    unit: Unit
    axis: str | None = None  # the name of the device axis when the rows are spread over several devices

    @property
    def is_double(self) -> bool:
        return any(leaf.dtype == jnp.float64 for leaf in jax.tree.leaves(self.leaves))


def chunk_size(capacity: int) -> int:
    """The number of rows evaluated at once: a power of two, from the public capacity alone."""
    return min(max(SMALLEST_CHUNK, 1 << (capacity - 1).bit_length()), LARGEST_CHUNK)


def fixed_point(unit_value):
    """A value in [-1, 1] -> an integer in [-2^BITS, 2^BITS], truncated toward zero."""
    return (unit_value * 2.0**BITS).astype(jnp.int32)


def sum_rows(values: Callable[[Any], Any], table: Table):
    """The exact int64 sum over the real rows of integers `values(chunk of rows)`, of shape (chunk, ...)."""
    capacity = jax.tree.leaves(table.leaves)[0].shape[0]

    def add_chunk(index, total):
        start = jnp.minimum(index * table.chunk, capacity - table.chunk)
        chunk = jax.tree.map(lambda leaf: lax.dynamic_slice_in_dim(leaf, start, table.chunk), table.leaves)
        place = start + jnp.arange(table.chunk)
        is_counted = (place >= index * table.chunk) & (place < table.num_rows)
        integers = values(chunk)
        mask = is_counted.reshape((-1,) + (1,) * (integers.ndim - 1))
        return total + jnp.sum(jnp.where(mask, integers, 0), axis=0, dtype=jnp.int64)

    shape = jax.eval_shape(values, jax.tree.map(lambda leaf: leaf[: table.chunk], table.leaves)).shape[1:]
    total = lax.fori_loop(0, -(-capacity // table.chunk), add_chunk, jnp.zeros(shape, jnp.int64))
    return total if table.axis is None else lax.psum(total, table.axis)
