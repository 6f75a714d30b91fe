"""Where the rows lie: cut into pieces of one shape, on one device or on several.

If their number is private, they lie in random slots. The shapes follow from the public capacity and
the model, never from the rows (for the reason see `exact_sum`).
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec

from dpmcmc.curator.sums import fused
from dpmcmc.curator.sums.exact_sum import Table, piece_layout
from dpmcmc.curator.sums.integer_rows import integer_rows
from dpmcmc.precision import is_double, own_settings
from dpmcmc.types import Model

AXIS = "dpmcmc rows"  # of several devices


@dataclass(frozen=True)
class Placed:
    """Rows for their devices.

    Most programs need the integers of rows alone, where a model has public tables: the cells are
    copied only when a program needs them.

    Attributes:
        without_cells: What a compiled program takes that needs the integers alone, or None: the
            pieces (none), the marks of slots that have a row, the devices' numbers and the
            integers, as `exact_sum.Table` has them.
        make_cells: Copies the pieces to their devices.
        shapes: The shapes of all that is stored.
        num_rows: An array, for it may be private.
        by_columns: The leaf that is stored transposed, for `fused` kernels. It is compiled in.
    """

    without_cells: Any
    make_cells: Callable[[], Any]
    shapes: Any
    num_rows: Any
    by_columns: int | None

    @functools.cached_property
    def stored(self) -> Any:
        """All that a compiled program takes."""
        return self.make_cells()


def place(
    model: Model, leaves: Any, num_rows: int, capacity: int, slots: np.ndarray | None, mesh: Any
) -> Placed:
    """Copy the rows to the devices of the mesh, if there is one.

    `slots` has the slot of each row in the table, so that no row has another slot for the absence
    of one before it. None, where the number of rows is public: they have the first slots, in their
    order.
    """
    layout = fused.row_layout(model, leaves)
    by_columns = None if layout is None else layout.leaf
    num_pieces, size = _pieces_per_device(
        capacity, None if layout is None else layout.width, 1 if mesh is None else mesh.size
    )
    flat, tree = jax.tree.flatten(leaves)
    occupied = None
    if slots is not None:
        *flat, occupied = (
            _in_slots(leaf, slots, capacity) for leaf in (*flat, np.ones(num_rows, np.int8))
        )
    cut = functools.partial(_cut, num_pieces=num_pieces, size=size, mesh=mesh)
    with own_settings():
        marks = None if occupied is None else tuple(cut(occupied))
        rest = marks, _device_numbers(mesh), _integers(model, leaves, num_rows, capacity, mesh)

    def make_cells() -> Any:
        with own_settings():
            columns = [cut(leaf, is_transposed=at == by_columns) for at, leaf in enumerate(flat)]
        pieces = tuple(jax.tree.unflatten(tree, parts) for parts in zip(*columns, strict=True))
        return pieces, *rest

    is_lazy = rest[-1] is not None and marks is None and mesh is None and not is_double(leaves)
    if is_lazy:
        shapes = [_piece_shape(leaf, size, at == by_columns) for at, leaf in enumerate(flat)]
        of_pieces = (jax.tree.unflatten(tree, shapes),) * num_pieces
        of_all = of_pieces, *jax.tree.map(shape_of, rest)
    with own_settings():
        number = jnp.asarray(num_rows, jnp.int64)
    if is_lazy:
        return Placed(((), *rest), make_cells, of_all, number, by_columns)
    stored = make_cells()
    return Placed(None, lambda: stored, jax.tree.map(shape_of, stored), number, by_columns)


def shape_of(leaf: Any) -> jax.ShapeDtypeStruct:
    """What is compiled in of an array: its shape and type, and how it is spread over devices.

    Args:
        leaf: The array.

    Returns:
        Its shape.
    """
    sharding = getattr(leaf, "sharding", None)
    spread = sharding if isinstance(sharding, jax.NamedSharding) else None
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=spread)


def _piece_shape(leaf: np.ndarray, size: int, is_transposed: bool) -> jax.ShapeDtypeStruct:
    shape = (size, *leaf.shape[1:])
    return jax.ShapeDtypeStruct(shape[::-1] if is_transposed else shape, leaf.dtype)


def _integers(model: Model, leaves: Any, num_rows: int, capacity: int, mesh: Any) -> Any:
    """The rows as integers. Their places do not matter, for their sum is the same in any order."""
    if mesh is None:
        return jax.tree.map(jnp.asarray, integer_rows(model, leaves, num_rows, capacity))
    share = -(-capacity // mesh.size)
    parts: list[Any] = []
    for device in _own_devices(mesh):
        own = slice(device * share, max(device * share, min((device + 1) * share, num_rows)))
        some = jax.tree.map(lambda leaf: leaf[own], leaves)  # noqa: B023
        parts.append(integer_rows(model, some, own.stop - own.start, share))
    if parts[0] is None:
        return None
    whole = PartitionSpec()
    rows = PartitionSpec(AXIS)
    specs = dataclasses.replace(parts[0], features=rows, labels=rows, slopes=whole, roots=whole)
    return jax.tree.map(lambda spec, *leaves: _joined(leaves, mesh, spec), specs, *parts)


def _pieces_per_device(capacity: int, fused_width: int | None, num_devices: int) -> tuple[int, int]:
    """How many pieces each device has, and how many rows each of them has there."""
    if fused_width is not None:
        return piece_layout(-(-capacity // num_devices), fused_width)
    num_pieces, size = piece_layout(capacity)
    return -(-num_pieces // num_devices), size


def _cut(
    leaf: np.ndarray, num_pieces: int, size: int, mesh: Any, is_transposed: bool = False
) -> list[Any]:
    """The leaf in pieces, padded.

    Of p devices each has so many pieces in a row; piece i holds the i-th of every device.
    """

    def part(index: int, device: int) -> np.ndarray:
        start = (device * num_pieces + index) * size
        rows = leaf[start : start + size]
        padded = np.pad(rows, [(0, size - len(rows)), *[(0, 0)] * (leaf.ndim - 1)])
        return np.ascontiguousarray(padded.T) if is_transposed else padded

    def piece(index: int) -> Any:
        if mesh is None:
            return jnp.asarray(part(index, 0))
        spec = PartitionSpec(None, AXIS) if is_transposed else PartitionSpec(AXIS)
        return _joined([part(index, device) for device in _own_devices(mesh)], mesh, spec)

    return [piece(index) for index in range(num_pieces)]


def _own_devices(mesh: Any) -> list[int]:
    """The numbers of the devices that are of this process."""
    return [
        number
        for number, device in enumerate(mesh.devices.flat)
        if device.process_index == jax.process_index()
    ]


def _joined(parts: Sequence[Any], mesh: Any, spec: Any) -> Any:
    """One array of all devices, of the parts of the devices of this process."""
    devices = mesh.devices.flat
    placed = [
        jax.device_put(part, devices[number])
        for part, number in zip(parts, _own_devices(mesh), strict=True)
    ]
    shape = tuple(
        size * (mesh.size if axis == AXIS else 1)
        for size, axis in itertools.zip_longest(placed[0].shape, spec)
    )
    return jax.make_array_from_single_device_arrays(shape, jax.NamedSharding(mesh, spec), placed)


def _in_slots(leaf: np.ndarray, slots: np.ndarray, capacity: int) -> np.ndarray:
    placed = np.zeros((capacity, *leaf.shape[1:]), leaf.dtype)
    placed[slots] = leaf
    return placed


def _device_numbers(mesh: Any) -> Any:
    """For each device its index: a table may know it, a program may not."""
    if mesh is None:
        return None
    numbers = [np.full(1, number, np.int32) for number in _own_devices(mesh)]
    return _joined(numbers, mesh, PartitionSpec(AXIS))


def on_no_device(value: Any) -> Any:
    """A value that all devices have, as one that may be copied to any of them."""
    is_key = jnp.issubdtype(value.dtype, jax.dtypes.prng_key)
    numbers = jax.random.key_data(value) if is_key else value
    with own_settings():
        copied = jnp.asarray(np.asarray(numbers.addressable_data(0)))
    return jax.random.wrap_key_data(copied, impl=jax.random.key_impl(value)) if is_key else copied


def of_first_device(table: Table, value):
    """The value that the first device has, for all devices, to the last bit.

    Otherwise a program could ask about another point on each device, and would be billed for one
    answer.
    """
    bits = lax.bitcast_convert_type(value, jnp.uint64 if value.dtype.itemsize == 8 else jnp.uint32)
    return lax.bitcast_convert_type(
        table.over_devices(jnp.where(table.device[0] == 0, bits, 0)), value.dtype
    )
