"""The rows inside a GPU kernel: loading them, their predictors, the model's function of each.

Imports Pallas, so it is imported on a GPU only (`fused` does it).

**Predictors.** Few chains: one multiplication and addition after the other, in float32. Many: on
the tensor cores, which multiply numbers of 11 bits exactly. Rows and points are split, x = high +
low, and

    x . theta  =  high . high  +  (low . high + high . low),      less low . low, 2^-22 of it,

added in float32: about as exact as float32 is. A row's value depends on that row and the point
alone, not on where the row stands, and both points of a ratio take the same path, so that ratios
are antisymmetric to the last bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas
from jax.experimental.pallas import triton
from jax.extend import backend
from jax.extend.core import Literal

from dpmcmc.curator.sums import layouts
from dpmcmc.curator.sums.layouts import Layout, Traced

COLUMNS = 5  # at a time
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


class Program(NamedTuple):
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
        return _load(
            ref.at[pallas.ds(step * self.tiles.rows, self.tiles.rows)], self.is_in_range(step)
        )

    def feature(self, index, step):
        """One feature of each row."""
        return _load(
            self.features.at[index, pallas.ds(step * self.tiles.rows, self.tiles.rows)],
            self.is_in_range(step),
        )

    def tile(self, step):
        """The features, (width, rows), padded with zeros."""
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
        tile = _load(self.features.at[:, pallas.ds(step * rows, rows)], mask)
        for place, constant in enumerate(self.layout.constants, num_columns):
            tile = jnp.where(index == place, np.float32(constant), tile)
        return tile


def _load(ref, mask):
    return (
        triton.load(ref)
        if mask is None
        else triton.load(ref, mask=mask, other=np.zeros((), ref.dtype))
    )


def split(values):
    """values = high + low, high of 11 bits. A NaN or an infinity is in the low part too."""
    bits = lax.bitcast_convert_type(values, jnp.int32)
    high = lax.bitcast_convert_type((bits + 0x1000) & ~0x1FFF, jnp.float32)
    return high, values - high


def many_predictors(tile, high, low):
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

    tile_high, tile_low = split(tile)
    return dot(tile_low, high) + dot(tile_high, low) + dot(tile_high, high)


def few_predictors(program: Program, step, points_ref):
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


def row_by_row(traced: Traced, inputs, leaves):
    """The function of every predictor, inputs[0] of shape (rows,) or (rows, number)."""
    function = traced.call
    none = (None,) * (len(inputs) - 1 + len(leaves))
    if inputs[0].ndim == 2:
        function = jax.vmap(function, (0, *none))
    closed = jax.make_jaxpr(jax.vmap(function))(*inputs, *leaves)
    (values,) = _evaluate(closed.jaxpr, closed.consts, [*inputs, *leaves])
    return values


def _evaluate(jaxpr, constants, arguments) -> list:
    """A traced function's values, with fused multiplication and addition.

    This compiler does not fuse by itself.
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
            outputs = _evaluate(inner.jaxpr, inner.consts, inputs)
        elif name == "add" and any(is_product):
            first = is_product.index(True)
            left, right = products[equation.invars[first]]
            outputs = [_fma(left, right, inputs[1 - first])]
        else:
            outputs = equation.primitive.bind(*inputs, **equation.params)
            outputs = outputs if equation.primitive.multiple_results else [outputs]
        if name == "mul" and out.aval.dtype == jnp.float32:
            products[out] = inputs
        known.update(zip(equation.outvars, outputs, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _fma(left, right, term):
    """left * right + term, rounded once on a GPU."""
    if layouts.INTERPRET or "cuda" not in backend.get_backend().platform_version.lower():
        return left * right + term
    shape = jnp.broadcast_shapes(*map(jnp.shape, (left, right, term)))
    (result,) = triton.elementwise_inline_asm(
        "fma.rn.f32 $0, $1, $2, $3;",
        args=[
            jnp.broadcast_to(jnp.asarray(value, jnp.float32), shape)
            for value in (left, right, term)
        ],
        constraints="=f,f,f,f",
        pack=1,
        result_shape_dtypes=[jax.ShapeDtypeStruct(shape, jnp.float32)],
    )
    return result


def round_half_even(values):
    """Round half to even, as integers, for values of at most 2^22.

    It is an addition whose last bit is 1, and its bits.
    """
    return lax.bitcast_convert_type(values + ROUNDER, jnp.int32) - ROUNDER.view(np.int32)


def padded(points, number: int, width: int):
    return jnp.pad(points, ((0, number - points.shape[0]), (0, width - points.shape[1])))


def call(kernel, traced: Traced, layout: Layout, tiles: Tiles, piece, per_row, real, inputs, out):
    """Run a kernel over all rows and return the result of each program: (programs, ...).

    `per_row` comes before the traced leaves. `real` has the rows that are real: a number of the
    first ones, or one number for each.
    """
    zero = np.int32(0)
    leaves = jax.tree.leaves(piece)
    features = leaves[layout.leaf]
    columns = [*per_row, *(leaves[index] for index in traced.leaves)]
    size = features.shape[1]
    num_columns = len(columns)

    def run(real_ref, features_ref, *refs):
        first = pallas.program_id(0) * tiles.block
        program = Program(size, layout, tiles, first, real_ref, features_ref, refs[:num_columns])
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
        interpret=layouts.INTERPRET,
    )(real, features, *columns, *inputs)
