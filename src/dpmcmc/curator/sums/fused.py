r"""One pass over the rows on a GPU, for models with a linear predictor: the rows are read once for
all chains.

XLA makes several kernels of a query, and reads the rows again for every chain. Here one kernel
(Pallas, on Triton) loads a tile of rows, multiplies it with the points of all chains, and takes
every row through the model, the clip and the grid. What leaves the kernel are sums of integers,
exact as everywhere: ratios as a high and a low half of 32-bit integers, gradients as 64-bit
integers or as float64 sums that stay below 2^53. The mask, the clip and the grid are those of the
other path.

**Storage.** The curator keeps the features column by column (`Table.by_columns`): neighbouring
threads then read neighbouring rows, each of them several at once. A table that is not kept so is
transposed on the way.

**Predictors.** Few chains: one multiplication and addition after the other, in float32. Many: on
the tensor cores, which multiply numbers of 11 bits exactly. Rows and points are split, x = high +
low, and

    x . theta  =  high . high  +  (low . high + high . low),      less low . low, 2^-22 of it,

added in float32: about as exact as float32 is. A row's value depends on that row and the point
alone, not on where the row stands, and both points of a ratio take the same path, so that ratios
are antisymmetric to the last bit.

**When.** On a GPU, with float32 features that are one leaf of the row, as it is, and constants (an
intercept). All else, and a model that the kernel's compiler does not know, takes the path through
XLA: that depends on the model and the shapes alone.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_batching import custom_vmap
from jax.extend import backend
from jax.extend.core import Literal

from dpmcmc.curator.sums import layouts
from dpmcmc.curator.sums.clipping import clip_to_unit
from dpmcmc.curator.sums.exact_sum import Table, fixed_point, one_row, transposed
from dpmcmc.curator.sums.layouts import Layout, Traced
from dpmcmc.curator.sums.linear_rows import Scales, longest_block
from dpmcmc.precision import is_double
from dpmcmc.types import Linear, Model

INTERPRET = False  # tests run the kernels on a CPU, step by step
MAX_WIDTH = 128  # features, so that a tile fits the registers
LOW_BITS = 15  # of a ratio's integer, in the lower half: a program adds fewer than 2^15 rows
FEW = 4  # chains whose predictors are not worth a tensor core
COLUMNS = 5  # at a time
LOADED = 4  # rows that one thread loads at once
ROUNDER = np.float32(1.5 * 2.0**23)


class Tiles(NamedTuple):
    """How a kernel cuts the rows."""

    rows: int  # in a tile
    warps: int  # in a program
    steps: int  # tiles that a program takes, one after the other

    @property
    def block(self) -> int:
        """Rows of a program."""
        return self.rows * self.steps


# -- what a kernel can do
# --------------------------------------------------------------------------------------------------------


def is_on() -> bool:
    return INTERPRET or jax.default_backend() == "gpu"


def row_layout(model: Model, rows: Any) -> Layout | None:
    """The layout of a model's rows (arrays or shapes, with the leading axis), or None where the
    other path must be taken.
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
        with jax.enable_x64(True):
            for kernel in traced_kernels(linear, layout, leaves, structure):
                kernel.lower().compile()
        return True
    except Exception as error:  # of shapes alone: no row is in it
        logging.getLogger("dpmcmc").info(
            "no GPU kernels for this model, the rows go through XLA: %r", error
        )
        return False


def traced_kernels(linear: Linear, layout: Layout, leaves, structure) -> Iterator[Any]:
    """The kernels of a model, for a handful of rows that do not exist."""
    rows = jax.tree.unflatten(
        structure, [jax.ShapeDtypeStruct((64, *shape), dtype) for shape, dtype in leaves]
    )
    piece = jax.eval_shape(functools.partial(transposed, leaf=layout.leaf), rows)
    scales = Scales(
        jax.ShapeDtypeStruct((64,), jnp.float32), jax.ShapeDtypeStruct((64,), jnp.int32)
    )
    count = jax.ShapeDtypeStruct((), jnp.int32)
    ratio = functools.partial(_ratio_pass, linear, layout)
    gradient = functools.partial(_gradient_pass, linear, layout, 1.0, 30)
    for num_chains in (1, FEW + 1):
        point, bound = (
            jax.ShapeDtypeStruct((num_chains, *shape), jnp.float32)
            for shape in ((len(layout.order),), ())
        )
        for run, arguments in (
            (ratio, (point, point, bound, piece)),
            (gradient, (point, piece, scales)),
        ):
            yield jax.jit(run).trace(*arguments, count)


# -- inside a kernel
# -------------------------------------------------------------------------------------------------------------


class _Program(NamedTuple):
    """The rows of one program of a kernel."""

    size: int
    layout: Layout
    tiles: Tiles
    first: Any  # row
    real: Any  # how many of the first rows are real, or for each row whether it is
    features: Any  # (columns, rows)
    leaves: Sequence[Any]

    def numbers(self, step):
        """The rows' numbers."""
        return self.first + step * self.tiles.rows + lax.iota(jnp.int32, self.tiles.rows)

    def is_real(self, step):
        return (
            self.numbers(step) < self.real[0]
            if self.real.shape == (1,)
            else self.column(self.real, step) != 0
        )

    def is_in_range(self, step):
        """Or None where every tile is full."""
        return None if self.size % self.tiles.block == 0 else self.numbers(step) < self.size

    def column(self, ref, step):
        """One number for each row."""
        from jax.experimental import pallas

        return _load(
            ref.at[pallas.ds(step * self.tiles.rows, self.tiles.rows)], self.is_in_range(step)
        )

    def feature(self, index, step):
        """One feature of each row."""
        from jax.experimental import pallas

        return _load(
            self.features.at[index, pallas.ds(step * self.tiles.rows, self.tiles.rows)],
            self.is_in_range(step),
        )

    def tile(self, step):
        """The features, (width, rows), padded with zeros."""
        from jax.experimental import pallas

        rows = self.tiles.rows
        width = self.layout.width
        num_columns = self.layout.num_columns
        index = lax.broadcasted_iota(jnp.int32, (width, rows), 0)
        is_in_range = self.is_in_range(step)
        mask = (
            index < num_columns
            if is_in_range is None
            else (index < num_columns) & is_in_range[None, :]
        )
        found = _load(self.features.at[:, pallas.ds(step * rows, rows)], mask)
        for place, constant in enumerate(self.layout.constants, num_columns):
            found = jnp.where(index == place, np.float32(constant), found)
        return found


def _load(ref, mask):
    from jax.experimental.pallas import triton

    return (
        triton.load(ref)
        if mask is None
        else triton.load(ref, mask=mask, other=np.zeros((), ref.dtype))
    )


def _split(values):
    """values = high + low, high of 11 bits. A NaN or an infinity is in the low part too."""
    bits = lax.bitcast_convert_type(values, jnp.int32)
    high = lax.bitcast_convert_type((bits + 0x1000) & ~0x1FFF, jnp.float32)
    return high, values - high


def _many_predictors(tile, high, low):
    """tile (width, rows) times points (number, width), given in two parts: (rows, number)."""

    def dot(left, right):
        dimensions = (((0,), (1,)), ((), ()))
        return lax.dot_general(
            left,
            right,
            dimensions,
            precision=lax.Precision.HIGH,
            preferred_element_type=jnp.float32,
        )

    tile_high, tile_low = _split(tile)
    return dot(tile_low, high) + dot(tile_high, low) + dot(tile_high, high)


def _few_predictors(program: _Program, step, points_ref):
    """One array (rows,) for each of the points (entries, number): some columns of the rows at a
    time.
    """
    rows = program.tiles.rows
    num_columns = program.layout.num_columns
    num_points = points_ref.shape[1]

    def add(index, totals):
        feature = program.feature(index, step)
        return tuple(
            _fma(feature, points_ref[index, point], total) for point, total in enumerate(totals)
        )

    def some(group, totals):
        for index in range(COLUMNS):
            totals = add(group * COLUMNS + index, totals)
        return totals

    totals = tuple(jnp.zeros(rows, jnp.float32) for _ in range(num_points))
    totals = lax.fori_loop(0, num_columns // COLUMNS, some, totals)
    for index in range(num_columns - num_columns % COLUMNS, num_columns):
        totals = add(jnp.int32(index), totals)
    for index, constant in enumerate(program.layout.constants, num_columns):
        totals = tuple(
            total + np.float32(constant) * points_ref[index, point]
            for point, total in enumerate(totals)
        )
    return totals


def _row_by_row(traced: Traced, inputs, leaves):
    """The function of every predictor, inputs[0] of shape (rows,) or (rows, number)."""
    function = traced.call
    none = (None,) * (len(inputs) - 1 + len(leaves))
    if inputs[0].ndim == 2:
        function = jax.vmap(function, (0, *none))
    closed = jax.make_jaxpr(jax.vmap(function))(*inputs, *leaves)
    (found,) = _evaluate(closed.jaxpr, closed.consts, [*inputs, *leaves])
    return found


def _evaluate(jaxpr, constants, arguments) -> list:
    """A traced function's values, with fused multiplication and addition, which this compiler does
    not look for by itself.
    """
    known = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*constants, *arguments], strict=True))
    products: dict[Any, list] = {}

    def read(atom):
        return atom.val if isinstance(atom, Literal) else known[atom]

    for equation in jaxpr.eqns:
        inputs = [read(atom) for atom in equation.invars]
        name = equation.primitive.name
        out = equation.outvars[0]
        is_product = [
            not isinstance(atom, Literal) and atom in products for atom in equation.invars
        ]
        inner = equation.params.get("jaxpr", equation.params.get("call_jaxpr"))
        if name in ("jit", "pjit", "custom_jvp_call", "closed_call"):
            found = _evaluate(inner.jaxpr, inner.consts, inputs)
        elif name == "add" and any(is_product):
            first = is_product.index(True)
            left, right = products[equation.invars[first]]
            found = [_fma(left, right, inputs[1 - first])]
        else:
            found = equation.primitive.bind(*inputs, **equation.params)
            found = found if equation.primitive.multiple_results else [found]
        if name == "mul" and out.aval.dtype == jnp.float32:
            products[out] = inputs
        known.update(zip(equation.outvars, found, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _fma(left, right, term):
    """left * right + term, rounded once on a GPU."""
    from jax.experimental.pallas import triton

    if INTERPRET or "cuda" not in backend.get_backend().platform_version.lower():
        return left * right + term
    shape = jnp.broadcast_shapes(*map(jnp.shape, (left, right, term)))
    (found,) = triton.elementwise_inline_asm(
        "fma.rn.f32 $0, $1, $2, $3;",
        args=[
            jnp.broadcast_to(jnp.asarray(value, jnp.float32), shape)
            for value in (left, right, term)
        ],
        constraints="=f,f,f,f",
        pack=1,
        result_shape_dtypes=[jax.ShapeDtypeStruct(shape, jnp.float32)],
    )
    return found


def _round(values):
    """Round half to even, as integers, for values of at most 2^22: an addition whose last bit is 1,
    and its bits.
    """
    return lax.bitcast_convert_type(values + ROUNDER, jnp.int32) - ROUNDER.view(np.int32)


# -- ratios
# ----------------------------------------------------------------------------------------------------------------------


def _ratio_tiles(num_chains: int) -> Tiles:
    return Tiles(1024, 8, 1) if num_chains <= FEW else Tiles(64, 4, 16)


def _halves(program: _Program, step, values, inverse):
    """The rows' integers in two halves, from the log-likelihoods (before, after)."""
    integers = fixed_point(clip_to_unit((values[1] - values[0]) * inverse, 1.0))
    is_real = program.is_real(step)
    integers = jnp.where(is_real if integers.ndim == 1 else is_real[:, None], integers, 0)
    return integers >> LOW_BITS, integers & (2**LOW_BITS - 1)


def _few_ratios_kernel(program: _Program, likelihood: Traced, points_ref, bounds_ref, out_ref):
    """Points alternate: before, after. Out: (2, chains), the sums of the integers' upper and lower
    halves.
    """
    assert program.tiles.steps == 1, "this kernel takes one tile"
    predictors = _few_predictors(program, 0, points_ref)
    leaves = [program.column(ref, 0) for ref in program.leaves]
    values = [_row_by_row(likelihood, [predictor], leaves) for predictor in predictors]
    for chain in range(bounds_ref.shape[0]):
        for half, integers in enumerate(
            _halves(program, 0, values[2 * chain : 2 * chain + 2], 1 / bounds_ref[chain])
        ):
            out_ref[half, chain] = jnp.sum(integers)


def _many_ratios_kernel(
    program: _Program, likelihood: Traced, high_ref, low_ref, bounds_ref, out_ref
):
    tiles = program.tiles
    high = high_ref[...]
    low = low_ref[...]
    inverse = 1 / bounds_ref[...][None, :]

    def body(step, totals):
        predictors = _many_predictors(program.tile(step), high, low)
        values = _row_by_row(
            likelihood, [predictors], [program.column(ref, step) for ref in program.leaves]
        )
        halves = _halves(
            program, step, jnp.unstack(values.reshape(tiles.rows, -1, 2), axis=2), inverse
        )
        return tuple(total + half for total, half in zip(totals, halves, strict=True))

    zero = jnp.zeros((tiles.rows, inverse.shape[1]), jnp.int32)
    for half, total in enumerate(lax.fori_loop(0, tiles.steps, body, (zero, zero))):
        out_ref[half] = jnp.sum(total, axis=0)


def _ratio_pass(linear: Linear, layout: Layout, positions, proposals, bounds, piece, real):
    """The int64 sums of one piece's clipped log-ratios, in units of 2^-BITS: (chains,)."""
    is_few = len(positions) <= FEW
    num_chains = len(positions) if is_few else layouts.power_of_two(len(positions))
    with jax.enable_x64(False):
        likelihood = layouts.log_likelihood(linear, layouts.row_of(piece, layout))
        points = jnp.stack([positions, proposals], axis=1).reshape(-1, positions.shape[1])[
            :, np.array(layout.order)
        ]
        bounds = jnp.pad(bounds, (0, num_chains - len(bounds)), constant_values=1.0)
        inputs = [points.T] if is_few else _split(_padded(points, 2 * num_chains, layout.width))
        kernel = _few_ratios_kernel if is_few else _many_ratios_kernel
        out = jax.ShapeDtypeStruct((2, num_chains), jnp.int32)
        parts = _call(
            kernel,
            likelihood,
            layout,
            _ratio_tiles(len(positions)),
            piece,
            (),
            real,
            [*inputs, bounds],
            out,
        )
    with jax.enable_x64(True):
        high, low = jnp.sum(parts, axis=0, dtype=jnp.int64)
        return ((high << LOW_BITS) + low)[: len(positions)]


# -- gradients
# -------------------------------------------------------------------------------------------------------------------


def _gradient_tiles(num_points: int) -> Tiles:
    if num_points == 1:
        return Tiles(128, 4, 16)
    return Tiles(32, 2, 16) if num_points <= 16 else Tiles(64, 4, 32)


def _coefficients(slopes, factor, limit, scale):
    """The rows' integers C: as in `linear_rows`, with which they agree to the last bit."""
    wanted = slopes / factor * scale
    wanted = jnp.where(jnp.isnan(wanted), 0.0, jnp.clip(wanted, -(2.0**22), 2.0**22)).astype(
        jnp.float32
    )
    return jnp.clip(_round(wanted), -limit, limit)


def _gradient_kernel(scale, program: _Program, slope: Traced, high_ref, low_ref, out_ref):
    """Out: (width, points) sums of C X in float64; for a single chain (width,) in int64."""
    tiles = program.tiles
    width = program.layout.width
    is_one, (factor_ref, largest_ref, *leaf_refs) = high_ref.shape[0] == 1, program.leaves

    def integers(step):
        with jax.enable_x64(False):
            tile = program.tile(step)
            factor = program.column(factor_ref, step)
            limit = jnp.where(program.is_real(step), program.column(largest_ref, step), 0)
            leaves = [program.column(ref, step) for ref in leaf_refs]
            features = _round(jnp.where(factor[None, :] > 0, tile * factor[None, :], 0.0))
            if is_one:
                predictors = jnp.sum(tile * (high_ref[0] + low_ref[0])[:, None], axis=0)
            else:
                predictors = _many_predictors(tile, high_ref[...], low_ref[...])
                factor = factor[:, None]
                limit = limit[:, None]
            slopes = _row_by_row(slope, [predictors, jnp.full(tiles.rows, 1.0)], leaves)
            return _coefficients(slopes, factor, limit, scale), features

    def body(step, total):
        found, features = integers(step.astype(jnp.int32))
        if is_one:
            # What one thread has loaded is added first: the rest, which goes across threads, is
            # left for the end.
            products = found.astype(jnp.int64)[None, :] * features.astype(jnp.int64)
            return total + jnp.sum(products.reshape(width, -1, LOADED), axis=2)
        wide = (features.astype(jnp.float64), found.astype(jnp.float64))
        dimensions = (((1,), (0,)), ((), ()))
        return total + lax.dot_general(
            *wide, dimensions, precision=lax.Precision.HIGHEST, preferred_element_type=jnp.float64
        )

    zero = jnp.zeros((width, tiles.rows // LOADED) if is_one else out_ref.shape, out_ref.dtype)
    total = lax.fori_loop(np.int32(0), np.int32(tiles.steps), body, zero)
    out_ref[...] = jnp.sum(total, axis=1) if is_one else total


def _gradient_pass(
    linear: Linear, layout: Layout, clip: float, bits: int, positions, piece, scales: Scales, real
):
    """The int64 sums of one piece's clipped gradients / clip, in units of 2^-bits: (chains, d)."""
    num_points = 1 if len(positions) == 1 else max(8, layouts.power_of_two(len(positions)))
    tiles = _gradient_tiles(num_points)
    assert tiles.block <= longest_block(bits), "sums in float64 must stay below 2^53"
    slope = layouts.slope(linear, layouts.row_of(piece, layout))
    scale = np.float32(2.0**bits / clip)
    with jax.enable_x64(False):
        inputs = _split(_padded(positions[:, np.array(layout.order)], num_points, layout.width))
    shape, dtype = (
        ((layout.width,), jnp.int64)
        if num_points == 1
        else ((layout.width, num_points), jnp.float64)
    )
    with jax.enable_x64(True):
        kernel = functools.partial(_gradient_kernel, scale)
        out = jax.ShapeDtypeStruct(shape, dtype)
        parts = _call(kernel, slope, layout, tiles, piece, scales, real, inputs, out)
        total = jnp.sum(parts.astype(jnp.int64), axis=0).reshape(layout.width, num_points)
        total = total[: len(layout.order), : len(positions)].T
        return jnp.zeros_like(total).at[:, np.array(layout.order)].set(total)


# -- around a kernel
# -------------------------------------------------------------------------------------------------------------


def _padded(points, number: int, width: int):
    return jnp.pad(points, ((0, number - points.shape[0]), (0, width - points.shape[1])))


def _call(kernel, traced: Traced, layout: Layout, tiles: Tiles, piece, per_row, real, inputs, out):
    """Run a kernel over all rows: what each program found, (programs, ...). `per_row` comes before
    the traced leaves.

    `real` says which rows are: a number of the first ones, or one number for each.
    """
    from jax.experimental import pallas
    from jax.experimental.pallas import triton

    zero = np.int32(0)
    leaves = jax.tree.leaves(piece)
    features = leaves[layout.leaf]
    columns = [*per_row, *(leaves[index] for index in traced.leaves)]
    size = features.shape[1]
    num_columns = len(columns)

    def run(real_ref, features_ref, *refs):
        first = pallas.program_id(0) * tiles.block
        program = _Program(size, layout, tiles, first, real_ref, features_ref, refs[:num_columns])
        kernel(program, traced, *refs[num_columns:])

    def whole(array):
        return pallas.BlockSpec(array.shape, lambda index: (zero,) * array.ndim)

    column = pallas.BlockSpec((tiles.block,), lambda index: (index,))
    by_row = [
        pallas.BlockSpec((layout.width, tiles.block), lambda index: (zero, index)),
        *[column] * num_columns,
    ]
    real = jnp.atleast_1d(real)
    num_programs = -(-size // tiles.block)
    return pallas.pallas_call(
        run,
        grid=(num_programs,),
        in_specs=[whole(real) if real.shape == (1,) else column, *by_row, *map(whole, inputs)],
        out_specs=pallas.BlockSpec(
            (None, *out.shape), lambda index: (index, *(zero,) * len(out.shape))
        ),
        out_shape=jax.ShapeDtypeStruct((num_programs, *out.shape), out.dtype),
        compiler_params=triton.CompilerParams(num_warps=tiles.warps, num_stages=1),
        interpret=INTERPRET,
    )(real, features, *columns, *inputs)


def _for_all_chains(one_pass: Callable[..., Any], most: int):
    """one_pass(points, data), points with a leading axis of chains, such that `vmap` over points
    lengthens that axis, up to `most`.

    JAX by itself would run a kernel for each chain, and read the rows for each.
    """

    @custom_vmap
    def run(points, data):
        starts = range(0, len(points[0]), most)
        return jnp.concatenate(
            [one_pass([point[start : start + most] for point in points], data) for start in starts]
        )

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
        found = [one_pass(*points, *part, real) for part, real in zip(*data, strict=True)]
        return functools.reduce(jnp.add, found)

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
    """What `log_ratio_sum` promises."""
    assert model.linear is not None
    one_pass = functools.partial(_ratio_pass, model.linear, layout)
    return _sum(
        table,
        layout,
        one_pass,
        (position, proposal, bound),
        [(piece,) for piece in _by_columns(table, layout)],
    )


def gradient_sum(model: Model, table: Table, layout: Layout, position, clip: float, bits: int):
    """What `all_rows_sum` promises, for a table with scales."""
    assert model.linear is not None and table.scales is not None
    one_pass = functools.partial(_gradient_pass, model.linear, layout, clip, bits)
    return _sum(
        table,
        layout,
        one_pass,
        (position,),
        list(zip(_by_columns(table, layout), table.scales, strict=True)),
    )
