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
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from dpmcmc.curator.sums.clipping import clip_to_unit_ball
from dpmcmc.precision import is_double
from dpmcmc.types import Array, Unit

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


class Part(NamedTuple):
    """One of the sums that a pass over the rows can make.

    A query that has a method `part(model, rows)` is answered together with others that are asked at
    the same points, by one pass.

    Attributes:
        sums: (model, rows, kinds, *points) -> the exact sum of each kind, by its kind.
        kind: Which of them.
    """

    sums: Callable[..., dict[str, Any]]
    kind: str


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=[
        "stored",
        "num_rows",
        "scales",
        "statistic",
        "occupied",
        "device",
        "integers",
        "sums",
    ],
    meta_fields=["unit", "axis", "capacity", "charge", "by_columns"],
)
@dataclass(frozen=True)
class Table:
    """The rows as a compiled program has them, for `Query.answer`.

    Attributes:
        stored: The pieces as they are kept: one leaf may be transposed, see `by_columns`.
        num_rows: The number of rows: an array, for it may be private.
        unit: Whom the promise protects.
        axis: The name of the device axis when the rows are spread over several devices.
        capacity: The public bound on the number of rows.
        scales: What `linear_rows` needs of each piece, when the model has a linear predictor.
        statistic: The sum of the statistics of all rows, when the model is an exponential family.
        charge: (standing query, key, amount) -> whether its running sum allows it.
        occupied: For each slot of a piece, 1 if there is a row; None: the first slots have them.
        device: When they are on several devices: the index of this one, as an array of one entry.
        integers: The rows as `integer_rows` has them, where the model has public tables.
        by_columns: This leaf of every piece is stored transposed, for `fused` kernels.
        sums: For one ask: exact sums at its points, if a pass made them with those of other asks.

    Example:
        >>> import jax.numpy as jnp
        >>> import numpy as np
        >>> from dpmcmc import Unit, queries
        >>> piece = np.array([0.5, -1.0, 0.25, 0.0], np.float32)  # the last slot is empty
        >>> table = queries.Table(stored=(piece,), num_rows=jnp.asarray(3), unit=Unit())
        >>> table.num_slots
        4
        >>> table.is_real(0).tolist()
        [True, True, True, False]
    """

    stored: tuple[Any, ...]
    num_rows: Any
    unit: Unit
    axis: str | None = None
    capacity: int | None = None
    scales: tuple[Any, ...] | None = None
    statistic: Any = None
    charge: Callable[..., Any] | None = None
    occupied: tuple[Any, ...] | None = None
    device: Any = None
    integers: Any = None
    by_columns: int | None = None
    sums: dict[str, Any] | None = None

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
        """The number of slots of one piece."""
        return jax.tree.leaves(self.pieces[0])[0].shape[0]

    @property
    def num_slots(self) -> int:
        """The number of places for rows, the padding included: public."""
        num_devices = 1 if self.axis is None else lax.axis_size(self.axis)
        return num_devices * len(self.stored) * self.piece_size

    @property
    def first_slot(self) -> Array:
        """The number of the first slot of this device."""
        return 0 if self.axis is None else self.device[0] * len(self.stored) * self.piece_size

    def num_real(self, index: int) -> Array:
        """How many slots of a piece have rows, for a table whose rows are in its first slots.

        Args:
            index: The number of the piece.

        Returns:
            The number of its rows, as an array.
        """
        return jnp.clip(
            self.num_rows - self.first_slot - index * self.piece_size, 0, self.piece_size
        ).astype(jnp.int32)

    def is_real(self, index: int) -> Array:
        """Which slots of a piece have rows.

        Args:
            index: The number of the piece.

        Returns:
            One truth value for each slot.
        """
        if self.occupied is not None:
            return self.occupied[index] != 0
        return jnp.arange(self.piece_size, dtype=jnp.int32) < self.num_real(index)

    @property
    def is_double(self) -> bool:
        """Whether the rows' values are computed in double precision."""
        return is_double(self.stored)

    @property
    def dtype(self) -> Any:
        """The type that the rows' values are computed in."""
        return jnp.float64 if self.is_double else jnp.float32

    def over_devices(self, part: Array) -> Array:
        """The sum of one array over all devices.

        Args:
            part: The array of this device.

        Returns:
            The sum, the same on every device.
        """
        return part if self.axis is None else lax.psum(part, self.axis)


def one_row(rows: Any) -> Any:
    """The shapes of one of several rows, arrays or shapes with a leading axis."""
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), rows)


def piece_layout(capacity: int, fused_width: int | None = None) -> tuple[int, int]:
    """How many pieces, and how many rows in each, from the public capacity.

    It also depends on the number of features, where `fused` kernels read them.
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


def fixed_point(unit_value: Array) -> Array:
    """A value in [-1, 1] as an integer in [-2^BITS, 2^BITS], truncated toward zero.

    Args:
        unit_value: The values of the rows, each in [-1, 1].

    Returns:
        Integers, of type int32.

    Example:
        >>> import jax.numpy as jnp
        >>> from dpmcmc import queries
        >>> queries.fixed_point(jnp.array([1.0, -0.5])).tolist()
        [1073741824, -536870912]
    """
    return (unit_value * 2.0**BITS).astype(jnp.int32)


def shrink_to_ball(integers):
    """Integer vectors, along the last axis, of length at most 2^BITS: longer ones become zero.

    This enforces a sensitivity, so no rounding is involved (they are made `once`), and no overflow:
    entries are divided by 2^s, rounded up, so that d squares of 32-bit numbers fit 63 bits. That
    overestimates the length of a vector by less than d^(1/2) 2^(s - 29) of it.
    """
    s = ((integers.shape[-1] - 1).bit_length() + 1) // 2
    entries = ((jnp.abs(integers) + (2**s - 1)) >> s).astype(jnp.int64)
    is_short = jnp.sum(entries * entries, axis=-1, keepdims=True) <= 2 ** (2 * (BITS - s))
    return jnp.where(is_short, integers, 0)


def once(make: Callable[[], Any], num_rows):
    """make(), an array of values of the rows, computed in one place for all that use it.

    A compiler may compute a value again wherever it is used, and round it in another way each time
    (a product and a sum, fused or not): what is bounded in one place would then not be what is
    added in another. What comes out of a loop it cannot compute again, and it does not know that
    this one runs once.
    """
    made = jax.eval_shape(make)
    number = jnp.where(num_rows < 0, 2, 1)
    return lax.fori_loop(0, number, lambda _, __: make(), jnp.zeros(made.shape, made.dtype))


def ball_integers(vectors: Callable[[], Array], bound: float, num_rows: Array) -> Array:
    """The rows' vectors, divided by the bound, as integers of length at most 2^BITS.

    The length is at most that whatever the rows are, so the sum has a sensitivity.

    Args:
        vectors: Makes the vectors of the rows, one in each line.
        bound: The largest length of a vector: a longer one is shortened to it.
        num_rows: The number of rows of the table.

    Returns:
        Integers on the grid 2^-BITS, of the shape of the vectors.

    Example:
        >>> import jax
        >>> import numpy as np
        >>> from dpmcmc import queries
        >>> def integers(vectors):
        ...     return queries.ball_integers(lambda: vectors, 4.0, len(vectors))
        >>> with jax.enable_x64(True):
        ...     shortened = jax.jit(integers)(np.array([[0.0, 2.0], [9.0, 0.0]]))
        >>> np.round(shortened / 2**queries.BITS, 2).tolist()
        [[0.0, 0.5], [1.0, 0.0]]
    """
    return shrink_to_ball(once(lambda: fixed_point(clip_to_unit_ball(vectors(), bound)), num_rows))


def sum_rows(values: Callable[[Any], Array], table: Table) -> Array:
    """The exact sum of integers over all rows of a table.

    Args:
        values: From the rows of a piece to their integers, of shape (rows in the piece, ...).
        table: The rows.

    Returns:
        The sum, of type int64.

    Example:
        >>> import jax
        >>> import numpy as np
        >>> from dpmcmc import Unit, queries
        >>> table = queries.Table((np.array([0.5, -1.0, 0.25]),), np.int64(3), Unit())
        >>> with jax.enable_x64(True):
        ...     total = jax.jit(lambda table: queries.sum_rows(queries.fixed_point, table))(table)
        >>> int(total) / 2**queries.BITS
        -0.25
    """
    return sum_pieces(lambda rows, is_real: sum_counted(values(rows), is_real), table, table.pieces)


def sum_counted(integers: Array, is_counted: Array) -> Array:
    """The sum of those integers that count, along the first axis.

    Args:
        integers: The integers of the rows.
        is_counted: For each row, whether it counts.

    Returns:
        The sum, of type int64.

    Example:
        >>> import jax
        >>> import numpy as np
        >>> from dpmcmc import queries
        >>> is_counted = np.array([True, False, True])
        >>> with jax.enable_x64(True):
        ...     total = jax.jit(queries.sum_counted)(np.array([1, 10, 100]), is_counted)
        >>> int(total)
        101
    """
    mask = is_counted.reshape((-1,) + (1,) * (integers.ndim - 1))
    return jnp.sum(jnp.where(mask, integers, 0), axis=0, dtype=jnp.int64)


def sum_row_vectors(
    block_sum: Callable[[Any, Any], Array], table: Table, entries_per_row: int
) -> Array:
    """The sum over all rows when many numbers are made of each: a block of rows at a time.

    Args:
        block_sum: From rows, and whether each counts, to their sum, int64 or float64.
        table: The rows.
        entries_per_row: How many numbers are made of one row.

    Returns:
        The sum of `block_sum` over all blocks of rows.

    Example:
        >>> import jax
        >>> import numpy as np
        >>> from dpmcmc import Unit, queries
        >>> table = queries.Table((np.array([[0.5, 1.0], [0.25, -1.0]]),), np.int64(2), Unit())
        >>> def block_sum(rows, is_counted):
        ...     return queries.sum_counted(queries.fixed_point(rows), is_counted)
        >>> with jax.enable_x64(True):
        ...     total = jax.jit(lambda table: queries.sum_row_vectors(block_sum, table, 2))(table)
        >>> (np.asarray(total) / 2**queries.BITS).tolist()
        [0.75, 0.0]
    """
    block = rows_per_block(entries_per_row)
    return sum_pieces(
        lambda rows, is_real: sum_blocks(block_sum, rows, is_real, block), table, table.pieces
    )


def sum_pieces(piece_sum: Callable[[Any, Any], Any], table: Table, parts: tuple[Any, ...]):
    """The sum over all pieces, on all devices, of `piece_sum(part, is_real)`, int64 or float64.

    A part is a piece, or more.
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
    """The sum of `block_sum(rows, is_counted)`, int64 or float64, over blocks of rows.

    What it makes of a block stays in the cache. The last block is moved back to fit; its rows that
    were counted before are masked.
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

    block_total = jax.eval_shape(one, 0)
    zero = jnp.zeros(block_total.shape, block_total.dtype)
    return lax.fori_loop(0, -(-size // block), lambda index, total: total + one(index), zero)
