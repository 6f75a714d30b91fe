r"""One pass over the rows on a GPU, for models with a linear predictor: the rows are read once for all chains.

XLA makes several kernels of a query, and reads the rows again for every chain. Here one kernel (Pallas, on Triton) loads a tile
of rows, multiplies it with the points of all chains, and takes every row through the model, the clip and the grid. What leaves
the kernel are sums of integers, exact as everywhere: ratios as a high and a low half of 32-bit integers, gradients as 64-bit
integers or as float64 sums that stay below 2^53. The mask, the clip and the grid are those of the other path.

**Predictors.** A tensor core multiplies numbers of 11 bits exactly. Rows and points are split, x = high + low, and

    x . theta  =  high . high  +  (low . high + high . low),      less low . low, 2^-22 of it,

added in float32: about as exact as float32 is. A row's value depends on that row and the point alone, not on where the row
stands, and both points of a ratio take the same path, so that ratios are antisymmetric to the last bit.

**When.** On a GPU, with float32 features that are one leaf of the row, as it is, and constants (an intercept). All else, and a
model that the kernel's compiler does not know, takes the path through XLA: that depends on the model and the shapes alone.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_batching import custom_vmap
from jax.extend.core import Literal, jaxpr_as_fun

from dpmcmc.curator.clipping import clip_to_unit
from dpmcmc.curator.exact_sum import Table, fixed_point
from dpmcmc.curator.linear_rows import Scales, longest_block
from dpmcmc.types import Linear, Model

INTERPRET = False  # tests run the kernels on a CPU, step by step
MAX_WIDTH = 128  # features, so that a tile fits the registers
LOW_BITS = 15  # of a ratio's integer, in the lower half: a program adds fewer than 2^15 rows
ROUNDER = np.float32(1.5 * 2.0**23)


class Layout(NamedTuple):
    """Where a row's features are: the columns of one leaf, then constants."""

    leaf: int
    num_columns: int  # of the leaf
    constants: tuple[float, ...]
    order: tuple[int, ...]  # which entry of the position belongs to each of them

    @property
    def width(self) -> int:
        """Of a tile: a power of two."""
        return max(16, _power_of_two(len(self.order)))

    @property
    def most_chains(self) -> int:
        """In one pass, so that rows and points fit the shared memory of common GPUs, 96 KB."""
        return 64 if self.width <= 64 else 16


class Tiles(NamedTuple):
    """How a kernel cuts the rows."""

    rows: int  # in a tile
    warps: int  # in a program
    steps: int  # tiles that a program takes, one after the other


class Traced(NamedTuple):
    """A function of the predictor and some scalar leaves of a row."""

    call: Callable[..., Any]
    leaves: tuple[int, ...]


# -- what a kernel can do --------------------------------------------------------------------------------------------------------


def is_on() -> bool:
    return INTERPRET or jax.default_backend() == "gpu"


def row_layout(model: Model, rows: Any) -> Layout | None:
    """The layout of a model's rows (arrays or shapes, with the leading axis), or None where the other path must be taken."""
    leaves = jax.tree.leaves(rows)
    if not is_on() or model.linear is None or any(leaf.dtype == jnp.float64 for leaf in leaves):
        return None
    layout = _find_features(model.linear, _one_row(rows))
    if layout is None or leaves[layout.leaf].dtype != jnp.float32 or len(layout.order) > MAX_WIDTH:
        return None
    return layout if _compiles(model.linear, layout, tuple(_shapes(_one_row(rows))), jax.tree.structure(rows)) else None


def _find_features(linear: Linear, row) -> Layout | None:
    with jax.enable_x64(False):
        jaxpr = jax.make_jaxpr(linear.features)(row).jaxpr
    of_row = set(jaxpr.invars)
    for equation in jaxpr.eqns:
        if not of_row.isdisjoint(_variables(equation.invars)):
            of_row.update(equation.outvars)
    parts = jaxpr.outvars
    varying = [index for index, part in enumerate(parts) if not isinstance(part, Literal) and part in of_row]
    if len(varying) != 1 or parts[varying[0]] not in jaxpr.invars:
        return None
    return _layout(linear, row, jaxpr.invars.index(parts[varying[0]]), varying[0])


def _layout(linear: Linear, row, leaf: int, varying: int) -> Layout:
    with jax.ensure_compile_time_eval(), jax.enable_x64(False):
        values = [np.asarray(part) for part in linear.features(jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), row))]
    starts = np.cumsum([0, *(len(value) for value in values)])
    entries = [tuple(range(start, start + len(value))) for start, value in zip(starts, values, strict=False)]
    constants = [index for index in range(len(values)) if index != varying]
    order = sum((entries[index] for index in [varying, *constants]), ())
    return Layout(leaf, len(values[varying]), tuple(float(c) for index in constants for c in values[index]), order)


def _trace(function: Callable[[Any, Any], Any], row, num_inputs: int) -> Traced:
    """function(inputs, row) as a function of the inputs and those leaves of the row that it uses."""
    scalar = jax.ShapeDtypeStruct((), jnp.float32)
    with jax.enable_x64(False):
        closed = jax.make_jaxpr(function)((scalar,) * num_inputs, row)
    leaves, used = jax.tree.leaves(row), set(_variables(closed.jaxpr.outvars))
    for equation in closed.jaxpr.eqns:
        used.update(_variables(equation.invars))
    indices = tuple(index for index, variable in enumerate(closed.jaxpr.invars[num_inputs:]) if variable in used)
    if any(leaves[index].shape != () for index in indices):
        raise NotImplementedError("a kernel takes numbers, one for each row, beside the features")

    run: Callable[..., Any] = jaxpr_as_fun(closed)

    def call(*values):
        rest = dict(zip(indices, values[num_inputs:], strict=True))
        return run(*values[:num_inputs], *(rest.get(index, 0.0) for index in range(len(leaves))))[0]

    return Traced(call, indices)


def _log_likelihood(linear: Linear, row) -> Traced:
    return _trace(lambda inputs, row: linear.log_likelihood(inputs[0], row), row, 1)


def _slope(linear: Linear, row) -> Traced:
    """The derivative in the predictor. The second input is 1: a constant there is more than the kernel's compiler takes."""
    return _trace(lambda inputs, row: jax.jvp(lambda z: linear.log_likelihood(z, row), inputs[:1], inputs[1:])[1], row, 2)


@functools.lru_cache(maxsize=64)
def _compiles(linear: Linear, layout: Layout, leaves, structure) -> bool:
    """Whether the kernels can be built, tried on a handful of rows that do not exist."""
    try:
        rows = jax.tree.unflatten(structure, [jax.ShapeDtypeStruct((64, *shape), dtype) for shape, dtype in leaves])
        scales = Scales(jax.ShapeDtypeStruct((64,), jnp.float32), jax.ShapeDtypeStruct((64,), jnp.int32))
        point, bound = jax.ShapeDtypeStruct((1, len(layout.order)), jnp.float32), jax.ShapeDtypeStruct((1,), jnp.float32)
        count = jax.ShapeDtypeStruct((), jnp.int32)
        with jax.enable_x64(True):
            ratio = functools.partial(_ratio_pass, linear, layout)
            gradient = functools.partial(_gradient_pass, linear, layout, 1.0, 30)
            for run, arguments in ((ratio, (point, point, bound, rows)), (gradient, (point, rows, scales))):
                jax.jit(run).lower(*arguments, count).compile()
        return True
    except Exception:
        return False


def _variables(atoms) -> list:
    return [atom for atom in atoms if not isinstance(atom, Literal)]


def _one_row(rows):
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), rows)


def _shapes(row):
    return [(leaf.shape, jnp.dtype(leaf.dtype)) for leaf in jax.tree.leaves(row)]


def _power_of_two(number: int) -> int:
    return 1 << (number - 1).bit_length()


# -- inside a kernel -------------------------------------------------------------------------------------------------------------


class _Program(NamedTuple):
    """The rows of one program of a kernel."""

    size: int
    layout: Layout
    tiles: Tiles
    first: Any  # row
    num_real: Any
    constants: Any
    features: Any
    leaves: Sequence[Any]

    def numbers(self, step):
        """The rows' numbers."""
        return self.first + step * self.tiles.rows + lax.iota(jnp.int32, self.tiles.rows)

    def is_real(self, step):
        return self.numbers(step) < self.num_real[0]

    def column(self, ref, step):
        """One number for each row."""
        from jax.experimental import pallas
        from jax.experimental.pallas import triton

        part = ref.at[pallas.ds(step * self.tiles.rows, self.tiles.rows)]
        return triton.load(part, mask=self.numbers(step) < self.size, other=np.zeros((), ref.dtype))

    def tile(self, step):
        """The features, (rows, width), padded with zeros."""
        from jax.experimental import pallas
        from jax.experimental.pallas import triton

        rows, width = self.tiles.rows, self.layout.width
        is_column = lax.broadcasted_iota(jnp.int32, (rows, width), 1) < self.layout.num_columns
        mask = (self.numbers(step) < self.size)[:, None] & is_column
        found = triton.load(self.features.at[pallas.ds(step * rows, rows), :], mask=mask, other=0.0)
        return jnp.where(is_column, found, self.constants[...][None, :]) if self.layout.constants else found


def _split(values):
    """values = high + low, high of 11 bits. A NaN or an infinity is in the low part too."""
    bits = lax.bitcast_convert_type(values, jnp.int32)
    high = lax.bitcast_convert_type((bits + 0x1000) & ~0x1FFF, jnp.float32)
    return high, values - high


def _predictors(tile, high, low):
    """tile (rows, width) times points (number, width), given in two parts: (rows, number)."""

    def dot(left, right):
        dimensions = (((1,), (1,)), ((), ()))
        return lax.dot_general(left, right, dimensions, precision=lax.Precision.HIGH, preferred_element_type=jnp.float32)

    tile_high, tile_low = _split(tile)
    return dot(tile_low, high) + dot(tile_high, low) + dot(tile_high, high)


def _row_by_row(traced: Traced, inputs, leaves):
    """The function of every predictor, inputs[0] of shape (rows,) or (rows, number)."""
    function, none = traced.call, (None,) * (len(inputs) - 1 + len(leaves))
    if inputs[0].ndim == 2:
        function = jax.vmap(function, (0, *none))
    return jax.vmap(function)(*inputs, *leaves)


def _round(values):
    """Round half to even, as integers, for values of at most 2^22: an addition whose last bit is 1, and its bits."""
    return lax.bitcast_convert_type(values + ROUNDER, jnp.int32) - ROUNDER.view(np.int32)


# -- ratios ----------------------------------------------------------------------------------------------------------------------


def _ratio_tiles(num_points: int) -> Tiles:
    if num_points <= 8:
        return Tiles(16, 1, 16)
    return Tiles(32, 2, 16) if num_points <= 16 else Tiles(64, 4, 16)


def _ratio_kernel(program: _Program, likelihood: Traced, high_ref, low_ref, inverse_ref, out_ref):
    """Points alternate: before, after. Out: (2, chains), the sums of the integers' upper and lower halves."""
    tiles, high, low, inverse = program.tiles, high_ref[...], low_ref[...], inverse_ref[...][None, :]

    def body(step, totals):
        predictors = _predictors(program.tile(step), high, low)
        values = _row_by_row(likelihood, [predictors], [program.column(ref, step) for ref in program.leaves])
        before, after = jnp.unstack(values.reshape(tiles.rows, -1, 2), axis=2)
        integers = fixed_point(clip_to_unit((after - before) * inverse, 1.0))
        integers = jnp.where(program.is_real(step)[:, None], integers, 0)
        halves = integers >> LOW_BITS, integers & (2**LOW_BITS - 1)
        return tuple(total + half for total, half in zip(totals, halves, strict=True))

    zero = jnp.zeros((tiles.rows, inverse.shape[1]), jnp.int32)
    for half, total in enumerate(lax.fori_loop(0, tiles.steps, body, (zero, zero))):
        out_ref[half] = jnp.sum(total, axis=0)


def _ratio_pass(linear: Linear, layout: Layout, positions, proposals, bounds, rows, num_real):
    """The int64 sums of one piece's clipped log-ratios, in units of 2^-BITS: (chains,)."""
    num_chains = max(4, _power_of_two(len(positions)))
    with jax.enable_x64(False):
        likelihood = _log_likelihood(linear, _one_row(rows))
        points = jnp.stack([positions, proposals], axis=1).reshape(-1, positions.shape[1])
        inverse = jnp.pad(1 / bounds, (0, num_chains - len(bounds)))
        inputs = [*_split(_padded(points, layout, 2 * num_chains)), inverse]
        out = jax.ShapeDtypeStruct((2, num_chains), jnp.int32)
        parts = _call(_ratio_kernel, likelihood, layout, _ratio_tiles(2 * num_chains), rows, (), num_real, inputs, out)
    with jax.enable_x64(True):
        high, low = jnp.sum(parts, axis=0, dtype=jnp.int64)
        return ((high << LOW_BITS) + low)[: len(positions)]


# -- gradients -------------------------------------------------------------------------------------------------------------------


def _gradient_tiles(num_points: int) -> Tiles:
    if num_points == 1:
        return Tiles(32, 1, 16)
    return Tiles(32, 2, 16) if num_points <= 16 else Tiles(64, 4, 32)


def _coefficients(slopes, factor, limit, scale):
    """The rows' integers C: as in `linear_rows`, with which they agree to the last bit."""
    wanted = slopes / factor * scale
    wanted = jnp.where(jnp.isnan(wanted), 0.0, jnp.clip(wanted, -(2.0**22), 2.0**22)).astype(jnp.float32)
    return jnp.clip(_round(wanted), -limit, limit)


def _gradient_kernel(scale, program: _Program, slope: Traced, high_ref, low_ref, out_ref):
    """Out: (width, points) sums of C X in float64; for a single chain (width,) in int64."""
    is_one, (factor_ref, largest_ref, *leaf_refs) = high_ref.shape[0] == 1, program.leaves

    def integers(step):
        with jax.enable_x64(False):
            tile, factor = program.tile(step), program.column(factor_ref, step)
            limit = jnp.where(program.is_real(step), program.column(largest_ref, step), 0)
            leaves = [program.column(ref, step) for ref in leaf_refs]
            features = _round(jnp.where(factor[:, None] > 0, tile * factor[:, None], 0.0))
            if is_one:
                predictors = jnp.sum(tile * (high_ref[0] + low_ref[0])[None, :], axis=1)
            else:
                predictors, factor, limit = _predictors(tile, high_ref[...], low_ref[...]), factor[:, None], limit[:, None]
            slopes = _row_by_row(slope, [predictors, jnp.full(program.tiles.rows, 1.0)], leaves)
            return _coefficients(slopes, factor, limit, scale), features

    def body(step, total):
        found, features = integers(step.astype(jnp.int32))
        if is_one:
            return total + jnp.sum(found.astype(jnp.int64)[:, None] * features.astype(jnp.int64), axis=0)
        wide, dimensions = (features.astype(jnp.float64), found.astype(jnp.float64)), (((0,), (0,)), ((), ()))
        return total + lax.dot_general(*wide, dimensions, precision=lax.Precision.HIGHEST, preferred_element_type=jnp.float64)

    zero = jnp.zeros(out_ref.shape, out_ref.dtype)
    out_ref[...] = lax.fori_loop(np.int32(0), np.int32(program.tiles.steps), body, zero)


def _gradient_pass(linear: Linear, layout: Layout, clip: float, bits: int, positions, rows, scales: Scales, num_real):
    """The int64 sums of one piece's clipped gradients / clip, in units of 2^-bits: (chains, d)."""
    num_points = 1 if len(positions) == 1 else max(8, _power_of_two(len(positions)))
    tiles = _gradient_tiles(num_points)
    assert tiles.rows * tiles.steps <= longest_block(bits), "sums in float64 must stay below 2^53"
    slope, scale = _slope(linear, _one_row(rows)), np.float32(2.0**bits / clip)
    with jax.enable_x64(False):
        inputs = _split(_padded(positions, layout, num_points))
    shape, dtype = ((layout.width,), jnp.int64) if num_points == 1 else ((layout.width, num_points), jnp.float64)
    with jax.enable_x64(True):
        kernel = functools.partial(_gradient_kernel, scale)
        out = jax.ShapeDtypeStruct(shape, dtype)
        parts = _call(kernel, slope, layout, tiles, rows, scales, num_real, inputs, out)
        total = jnp.sum(parts.astype(jnp.int64), axis=0).reshape(layout.width, num_points)
        total = total[: len(layout.order), : len(positions)].T
        return jnp.zeros_like(total).at[:, np.array(layout.order)].set(total)


# -- around a kernel -------------------------------------------------------------------------------------------------------------


def _padded(points, layout: Layout, number: int):
    """Points as the kernel has them: entries in the order of the tile, zeros to fill up."""
    points = points[:, np.array(layout.order)]
    return jnp.pad(points, ((0, number - points.shape[0]), (0, layout.width - points.shape[1])))


def _call(kernel, traced: Traced, layout: Layout, tiles: Tiles, rows, per_row, num_real, inputs, out):
    """Run a kernel over all rows: what each program found, (programs, ...). `per_row` comes before the traced leaves."""
    from jax.experimental import pallas
    from jax.experimental.pallas import triton

    leaves, block, zero = jax.tree.leaves(rows), tiles.rows * tiles.steps, np.int32(0)
    columns = [*per_row, *(leaves[index] for index in traced.leaves)]
    size, num_columns = leaves[0].shape[0], len(columns)
    constants = np.zeros(layout.width, np.float32)
    constants[layout.num_columns : len(layout.order)] = layout.constants

    def run(num_real_ref, constants_ref, features_ref, *refs):
        first = pallas.program_id(0) * block
        program = _Program(size, layout, tiles, first, num_real_ref, constants_ref, features_ref, refs[:num_columns])
        kernel(program, traced, *refs[num_columns:])

    def whole(array):
        return pallas.BlockSpec(array.shape, lambda index: (zero,) * array.ndim)

    shared = [num_real.reshape(1), jnp.asarray(constants)]
    by_row = [pallas.BlockSpec((block, layout.width), lambda index: (index, zero))]
    by_row += [pallas.BlockSpec((block,), lambda index: (index,))] * num_columns
    num_programs = -(-size // block)
    return pallas.pallas_call(
        run,
        grid=(num_programs,),
        in_specs=[*map(whole, shared), *by_row, *map(whole, inputs)],
        out_specs=pallas.BlockSpec((None, *out.shape), lambda index: (index, *(zero,) * len(out.shape))),
        out_shape=jax.ShapeDtypeStruct((num_programs, *out.shape), out.dtype),
        compiler_params=triton.CompilerParams(num_warps=tiles.warps, num_stages=1),
        interpret=INTERPRET,
    )(*shared, leaves[layout.leaf], *columns, *inputs)


def _for_all_chains(one_pass: Callable[..., Any], most: int):
    """one_pass(points, data), points with a leading axis of chains, such that `vmap` over points lengthens that axis, up to `most`.

    JAX by itself would run a kernel for each chain, and read the rows for each.
    """

    @custom_vmap
    def run(points, data):
        starts = range(0, len(points[0]), most)
        return jnp.concatenate([one_pass([point[start : start + most] for point in points], data) for start in starts])

    @run.def_vmap
    def rule(axis_size, in_batched, points, data):
        if any(jax.tree.leaves(in_batched[1])):
            # Several tables at once: one after the other.
            whole = jax.tree.map(lambda leaf, is_in: leaf if is_in else jnp.broadcast_to(leaf, (axis_size, *leaf.shape)),
                                 (points, data), tuple(in_batched))  # fmt: skip
            return lax.map(lambda arguments: run(*arguments), whole), True
        spread = [leaf if is_in else jnp.broadcast_to(leaf, (axis_size, *leaf.shape))
                  for leaf, is_in in zip(points, in_batched[0], strict=True)]  # fmt: skip
        found = run([leaf.reshape(-1, *leaf.shape[2:]) for leaf in spread], data)
        return found.reshape(axis_size, -1, *found.shape[1:]), True

    return run


def _sum(table: Table, layout: Layout, one_pass, points, parts: Sequence[Any]):
    """The sum over all pieces, on all devices, for a single chain's points."""

    def all_pieces(points, data):
        found = [one_pass(*points, *part, count) for part, count in zip(*data, strict=True)]
        return functools.reduce(jnp.add, found)

    starts = table.first_slot + table.piece_size * np.arange(len(table.pieces))
    counts = [jnp.clip(table.num_rows - start, 0, table.piece_size).astype(jnp.int32) for start in starts]
    total = _for_all_chains(all_pieces, layout.most_chains)([point[None] for point in points], (list(parts), counts))[0]
    return total if table.axis is None else lax.psum(total, table.axis)


def ratio_sum(model: Model, table: Table, layout: Layout, position, proposal, bound):
    """What `log_ratio_sum` promises."""
    assert model.linear is not None
    one_pass = functools.partial(_ratio_pass, model.linear, layout)
    return _sum(table, layout, one_pass, (position, proposal, bound), [(piece,) for piece in table.pieces])


def gradient_sum(model: Model, table: Table, layout: Layout, position, clip: float, bits: int):
    """What `all_rows_sum` promises, for a table with scales."""
    assert model.linear is not None and table.scales is not None
    one_pass = functools.partial(_gradient_pass, model.linear, layout, clip, bits)
    return _sum(table, layout, one_pass, (position,), list(zip(table.pieces, table.scales, strict=True)))
