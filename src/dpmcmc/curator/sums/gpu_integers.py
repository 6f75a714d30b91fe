r"""The pass of `integer_rows` as one GPU kernel, which reads the rows once.

Imports Pallas, so it is imported on a GPU only (`integer_rows` does it).

A predictor is a sum of products in float64, as in the other path. The sums over rows are products
of matrices on tensor cores, of integers so small that a float32 accumulator is exact: vectors r of
8 bits, features split in two, X = 64 H + L, and slopes of three digits to the base 128. A program
adds 1024 rows, so that no sum is above 2^24. The programs' sums are added in 64 bits. The integers
are those of the other path.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas
from jax.experimental.pallas import triton

from dpmcmc.curator.sums import layouts
from dpmcmc.curator.sums.gpu_rows import round_half_even

TILE = 64  # rows that a program takes at a time
STEPS = 16
SLOPE_DIGITS = 3
DIGIT_BITS = 7
HALF_BITS = 6  # of L
LEAST_WIDTH = 16  # that a tensor core takes


class Pass(NamedTuple):
    """What every program is given, besides the arrays.

    Attributes:
        num_rows: The number of rows, those that are ignored included.
        dimension: The number of features.
        place_of: (X . T, label) -> the cell in the tables and the place in it.
        look_up: (load, cell, place) -> the value of a table, whose entries `load` reads.
        root_shift: r is X S 2^-root_shift.
    """

    num_rows: int
    dimension: int
    place_of: Callable[[Any, Any], tuple[Any, Any]]
    look_up: Callable[..., Any]
    root_shift: int

    @property
    def width(self) -> int:
        """The number of columns of a tile."""
        return max(LEAST_WIDTH, 1 << (self.dimension - 1).bit_length())

    @property
    def shapes(self) -> tuple[tuple[int, int], ...]:
        """Of a program's sums: of the slopes' digits times L and times H, and of r r'."""
        width = self.width
        return (LEAST_WIDTH, width), (LEAST_WIDTH, width), (width, width)


def all_sums(rows: Any, whole: Any, made: Pass) -> tuple[Any, Any]:
    """The sums of K X and of r r' over all rows.

    Args:
        rows: The rows as integers.
        whole: The position as integers, in float64.
        made: What the kernel is made of.

    Returns:
        Both, int64.
    """
    num_programs = -(-made.num_rows // (TILE * STEPS))
    zero = np.int32(0)
    parts = pallas.pallas_call(
        functools.partial(_kernel, made),
        grid=(num_programs,),
        out_specs=[
            pallas.BlockSpec((None, *shape), lambda index: (index, zero, zero))
            for shape in made.shapes
        ],
        out_shape=[
            jax.ShapeDtypeStruct((num_programs, *shape), jnp.float32) for shape in made.shapes
        ],
        compiler_params=triton.CompilerParams(num_warps=4 if made.width <= 64 else 8, num_stages=1),
        interpret=layouts.INTERPRET,
    )(
        rows.features.reshape(-1),
        rows.labels,
        jnp.pad(whole, (0, made.width - made.dimension)),
        rows.slopes,
        rows.roots,
    )
    low, high, hessian = (jnp.sum(part.astype(jnp.int64), axis=0) for part in parts)
    scales = 2 ** (DIGIT_BITS * np.arange(SLOPE_DIGITS, dtype=np.int64))
    gradient = scales @ (low + 2**HALF_BITS * high)[:SLOPE_DIGITS]
    return gradient[: made.dimension], hessian[: made.dimension, : made.dimension]


def _kernel(made: Pass, features_ref, labels_ref, whole_ref, slopes_ref, roots_ref, *sums_ref):
    """One program: the sums over its rows, tile by tile."""
    first = pallas.program_id(0) * np.int32(TILE * STEPS)
    column = lax.broadcasted_iota(jnp.int32, (TILE, made.width), 1)
    digit = lax.broadcasted_iota(jnp.int32, (TILE, LEAST_WIDTH), 1)

    def add_tile(step, totals):
        number = first + step * np.int32(TILE) + lax.iota(jnp.int32, TILE)
        is_row = number < made.num_rows
        is_cell = is_row[:, None] & (column < made.dimension)
        cells = _load(features_ref, number[:, None] * made.dimension + column, is_cell)
        label = _load(labels_ref, number, is_row)
        predictor = jnp.sum(cells.astype(jnp.float64) * whole_ref[...], axis=1)
        places = made.place_of(predictor, label)
        slope, root = (
            made.look_up(lambda at, ref=ref: triton.load(ref.at[at]), *places)
            for ref in (slopes_ref, roots_ref)
        )
        low, high = _halves(cells.astype(jnp.int32))
        digits = _digits(slope, digit)
        exact = cells.astype(jnp.float32) * root.astype(jnp.float32)[:, None]
        vectors = round_half_even(exact * np.float32(2.0**-made.root_shift)).astype(jnp.bfloat16)
        products = _product(digits, low), _product(digits, high), _product(vectors, vectors)
        return tuple(total + part for total, part in zip(totals, products, strict=True))

    zeros = tuple(jnp.zeros(shape, jnp.float32) for shape in made.shapes)
    totals = lax.fori_loop(np.int32(0), np.int32(STEPS), add_tile, zeros)
    for ref, total in zip(sums_ref, totals, strict=True):
        ref[...] = total


def _load(ref, index, mask):
    """Entries of an array, and 0 where the mask is false: a row with label 0 is ignored."""
    return triton.load(ref.at[index], mask=mask, other=np.zeros((), ref.dtype))


def _halves(cells):
    """L between -32 and 31, and H."""
    low = ((cells + 32) & 63) - 32
    return low.astype(jnp.bfloat16), ((cells - low) >> HALF_BITS).astype(jnp.bfloat16)


def _digits(integers, digit):
    """The digits of each row's integer, between -64 and 64, one in each column."""
    columns = jnp.zeros(digit.shape, jnp.int32)
    for index in range(SLOPE_DIGITS - 1):
        lowest = ((integers + 64) & 127) - 64
        columns = jnp.where(digit == index, lowest[:, None], columns)
        integers = (integers - lowest) >> DIGIT_BITS
    columns = jnp.where(digit == SLOPE_DIGITS - 1, integers[:, None], columns)
    return columns.astype(jnp.bfloat16)


def _product(left, right):
    """left' right: a sum over rows."""
    return lax.dot_general(
        left, right, (((0,), (0,)), ((), ())), preferred_element_type=jnp.float32
    )
