"""One pass over the rows on a GPU, for models with a linear predictor.

The rows are read once for all chains. XLA makes several kernels of a query, and reads the rows
again for every chain. Here one kernel (Pallas, on Triton) loads a tile of rows, multiplies it with
the points of all chains, and takes every row through the model, the clip and the grid.

The kernels are in `gpu_kernels`. Here it is decided whether they are used, and what they return is
added up. This module does not import Pallas, so on a CPU nothing of it is loaded.

**Storage.** The curator keeps the features column by column (`Table.by_columns`): neighbouring
threads then read neighbouring rows, each of them several at once. A table that is not kept so is
transposed on the way.

**When.** On a GPU, with float32 features that are one leaf of the row, as it is, and constants (an
intercept). All else, and a model that the kernel's compiler does not know, takes the path through
XLA: that depends on the model and the shapes alone.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_batching import custom_vmap

from dpmcmc.curator.sums import layouts
from dpmcmc.curator.sums.exact_sum import Table, one_row, transposed
from dpmcmc.curator.sums.layouts import Layout
from dpmcmc.precision import is_double
from dpmcmc.types import Linear, Model

MAX_WIDTH = 128  # features, so that a tile fits the registers


def is_on() -> bool:
    """Whether rows may be read by kernels here."""
    return layouts.INTERPRET or jax.default_backend() == "gpu"


def row_layout(model: Model, rows: Any) -> Layout | None:
    """The layout of a model's rows, or None where the other path must be taken.

    The rows are arrays or shapes, with the leading axis.
    """
    leaves = jax.tree.leaves(rows)
    if not is_on() or model.linear is None or is_double(rows):
        return None
    row = one_row(rows)
    layout = layouts.find_features(model.linear, row)
    if layout is None or leaves[layout.leaf].dtype != jnp.float32 or len(layout.order) > MAX_WIDTH:
        return None
    return (
        layout
        if _compiles(model.linear, layout, tuple(layouts.shapes(row)), jax.tree.structure(row))
        else None
    )


@functools.lru_cache(maxsize=64)
def _compiles(linear: Linear, layout: Layout, leaves, structure) -> bool:
    """Whether the kernels can be built."""
    try:
        from dpmcmc.curator.sums import gpu_kernels

        with jax.enable_x64(True):
            for kernel in gpu_kernels.traced_kernels(linear, layout, leaves, structure):
                kernel.lower().compile()
        return True
    except Exception as error:  # of shapes alone: no row is in it
        logging.getLogger("dpmcmc").info(
            "no GPU kernels for this model, the rows go through XLA: %r", error
        )
        return False


def _for_all_chains(one_pass: Callable[..., Any], most: int):
    """one_pass(points, data), points with a leading axis of chains, up to `most` of them.

    `vmap` over points lengthens that axis. JAX by itself would run a kernel for each chain, and
    read the rows for each.
    """

    @custom_vmap
    def run(points, data):
        starts = range(0, len(points[0]), most)
        return jnp.concatenate(
            [one_pass([point[start : start + most] for point in points], data) for start in starts]
        )

    @run.def_vmap
    def rule(axis_size, in_batched, points, data):
        def at_every_chain(leaf, is_in):
            return leaf if is_in else jnp.broadcast_to(leaf, (axis_size, *leaf.shape))

        if any(jax.tree.leaves(in_batched[1])):
            # Several tables at once: one after the other.
            whole = jax.tree.map(at_every_chain, (points, data), tuple(in_batched))
            return lax.map(lambda arguments: run(*arguments), whole), True
        of_chains = map(at_every_chain, points, in_batched[0])
        results = run([leaf.reshape(-1, *leaf.shape[2:]) for leaf in of_chains], data)
        return results.reshape(axis_size, -1, *results.shape[1:]), True

    return run


def _sum(table: Table, layout: Layout, one_pass, points, parts: Sequence[Any]):
    """The sum over all pieces, on all devices, for a single chain's points."""

    def all_pieces(points, data):
        parts_of_sum = [one_pass(*points, *part, real) for part, real in zip(*data, strict=True)]
        return functools.reduce(jnp.add, parts_of_sum)

    real = list(table.occupied or map(table.num_real, range(len(parts))))
    total = _for_all_chains(all_pieces, layout.most_chains)(
        [point[None] for point in points], (list(parts), real)
    )[0]
    return table.over_devices(total)


def _by_columns(table: Table, layout: Layout):
    return (
        table.stored
        if table.by_columns == layout.leaf
        else [transposed(piece, layout.leaf) for piece in table.pieces]
    )


def ratio_sum(model: Model, table: Table, layout: Layout, position, proposal, bound):
    """The same as `log_ratio_sum`, by a kernel."""
    from dpmcmc.curator.sums import gpu_kernels

    assert model.linear is not None
    one_pass = functools.partial(gpu_kernels.ratio_pass, model.linear, layout)
    return _sum(
        table,
        layout,
        one_pass,
        (position, proposal, bound),
        [(piece,) for piece in _by_columns(table, layout)],
    )


def gradient_sum(model: Model, table: Table, layout: Layout, position, clip: float, bits: int):
    """The same as `all_rows_sum`, by a kernel, for a table with scales."""
    from dpmcmc.curator.sums import gpu_kernels

    assert model.linear is not None and table.scales is not None
    one_pass = functools.partial(gpu_kernels.gradient_pass, model.linear, layout, clip, bits)
    return _sum(
        table,
        layout,
        one_pass,
        (position,),
        list(zip(_by_columns(table, layout), table.scales, strict=True)),
    )
