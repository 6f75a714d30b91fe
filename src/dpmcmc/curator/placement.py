"""Where the rows lie: cut into pieces of one shape, on one device or on several.

If their number is private, they lie in random slots. The shapes follow from the public capacity and
the model, never from the rows (for the reason see `exact_sum`).
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec

from dpmcmc.curator.sums import fused
from dpmcmc.curator.sums.exact_sum import piece_layout
from dpmcmc.curator.sums.integer_rows import integer_rows
from dpmcmc.precision import own_settings
from dpmcmc.types import Model

AXIS = "dpmcmc rows"  # of several devices


class Placed(NamedTuple):
    """Rows on their devices.

    The first two are what a compiled program takes as arguments, the last is compiled in.
    """

    # The pieces, the marks of slots that have a row, the devices' numbers and the integers, as
    # `exact_sum.Table` has them
    stored: Any
    num_rows: Any  # an array, for it may be private
    by_columns: int | None  # the leaf that is stored transposed, for `fused` kernels


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
    with own_settings():
        columns = [
            _cut(leaf, num_pieces, size, index == by_columns, mesh)
            for index, leaf in enumerate(flat)
        ]
        pieces = tuple(jax.tree.unflatten(tree, parts) for parts in zip(*columns, strict=True))
        marks = None if occupied is None else tuple(_cut(occupied, num_pieces, size, False, mesh))
        integers = _integers(model, leaves, num_rows, capacity, mesh)
        stored = pieces, marks, _device_numbers(mesh), integers
        return Placed(stored, jnp.asarray(num_rows, jnp.int64), by_columns)


def _integers(model: Model, leaves: Any, num_rows: int, capacity: int, mesh: Any) -> Any:
    """The rows as integers. Their places do not matter, for their sum is the same in any order."""
    num_devices = 1 if mesh is None else mesh.size
    rows = integer_rows(model, leaves, num_rows, capacity, num_devices)
    if rows is None or mesh is None:
        return jax.tree.map(jnp.asarray, rows)
    spread = jax.NamedSharding(mesh, PartitionSpec(AXIS))
    whole = jax.NamedSharding(mesh, PartitionSpec())
    places = dataclasses.replace(rows, features=spread, labels=spread, slopes=whole, roots=whole)
    return jax.tree.map(jax.device_put, rows, places)


def _pieces_per_device(capacity: int, fused_width: int | None, num_devices: int) -> tuple[int, int]:
    """How many pieces each device has, and how many rows each of them has there."""
    if fused_width is not None:
        return piece_layout(-(-capacity // num_devices), fused_width)
    num_pieces, size = piece_layout(capacity)
    return -(-num_pieces // num_devices), size


def _cut(leaf: np.ndarray, num_pieces: int, size: int, is_transposed: bool, mesh: Any) -> list[Any]:
    """The leaf in pieces, padded.

    Of p devices each has so many pieces in a row; piece i holds the i-th of every device.
    """
    num_devices = 1 if mesh is None else mesh.size

    def piece(index: int) -> Any:
        parts = [
            leaf[start : start + size]
            for start in (np.arange(num_devices) * num_pieces + index) * size
        ]
        padding = [(0, 0)] * (leaf.ndim - 1)
        whole = np.concatenate([np.pad(part, [(0, size - len(part)), *padding]) for part in parts])
        whole = np.ascontiguousarray(whole.T) if is_transposed else whole
        if mesh is None:
            return jnp.asarray(whole)
        spec = PartitionSpec(None, AXIS) if is_transposed else PartitionSpec(AXIS)
        return jax.device_put(whole, jax.NamedSharding(mesh, spec))

    return [piece(index) for index in range(num_pieces)]


def _in_slots(leaf: np.ndarray, slots: np.ndarray, capacity: int) -> np.ndarray:
    placed = np.zeros((capacity, *leaf.shape[1:]), leaf.dtype)
    placed[slots] = leaf
    return placed


def _device_numbers(mesh: Any) -> Any:
    """For each device its index: a table may know it, a program may not."""
    if mesh is None:
        return None
    return jax.device_put(
        np.arange(mesh.size, dtype=np.int32), jax.NamedSharding(mesh, PartitionSpec(AXIS))
    )
