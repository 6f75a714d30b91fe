"""The GPU kernels: the sums of clipped ratios and of clipped gradients, in one pass over the rows.

Imports Pallas, so it is imported on a GPU only (`fused` does it). What leaves a kernel are sums of
integers, exact as everywhere: ratios as a high and a low half of 32-bit integers, gradients as
64-bit integers or as float64 sums that stay below 2^53. The mask, the clip and the grid are those
of the other path.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dpmcmc.curator.sums import layouts
from dpmcmc.curator.sums.clipping import clip_to_unit
from dpmcmc.curator.sums.exact_sum import fixed_point, transposed
from dpmcmc.curator.sums.gpu_rows import (
    Program,
    Tiles,
    call,
    few_predictors,
    many_predictors,
    padded,
    round_half_even,
    row_by_row,
    split,
)
from dpmcmc.curator.sums.layouts import Layout, Traced
from dpmcmc.curator.sums.linear_rows import Scales, longest_block
from dpmcmc.types import Linear

LOW_BITS = 15  # of a ratio's integer, in the lower half: a program adds fewer than 2^15 rows
FEW = 4  # chains whose predictors are not worth a tensor core
LOADED = 4  # rows that one thread loads at once


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
    ratio = functools.partial(ratio_pass, linear, layout)
    gradient = functools.partial(gradient_pass, linear, layout, 1.0, 30)
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


def _ratio_tiles(num_chains: int) -> Tiles:
    return Tiles(1024, 8, 1) if num_chains <= FEW else Tiles(64, 4, 16)


def _halves(program: Program, step, values, inverse):
    """The rows' integers in two halves, from the log-likelihoods (before, after)."""
    integers = fixed_point(clip_to_unit((values[1] - values[0]) * inverse, 1.0))
    is_real = program.is_real(step)
    integers = jnp.where(is_real if integers.ndim == 1 else is_real[:, None], integers, 0)
    return integers >> LOW_BITS, integers & (2**LOW_BITS - 1)


def _few_ratios_kernel(program: Program, likelihood: Traced, points_ref, bounds_ref, out_ref):
    """Points alternate: before, after. Out: (2, chains), the sums of the integers' upper and lower
    halves.
    """
    assert program.tiles.steps == 1, "this kernel takes one tile"
    predictors = few_predictors(program, 0, points_ref)
    leaves = [program.column(ref, 0) for ref in program.leaves]
    values = [row_by_row(likelihood, [predictor], leaves) for predictor in predictors]
    for chain in range(bounds_ref.shape[0]):
        for half, integers in enumerate(
            _halves(program, 0, values[2 * chain : 2 * chain + 2], 1 / bounds_ref[chain])
        ):
            out_ref[half, chain] = jnp.sum(integers)


def _many_ratios_kernel(
    program: Program, likelihood: Traced, high_ref, low_ref, bounds_ref, out_ref
):
    tiles = program.tiles
    high = high_ref[...]
    low = low_ref[...]
    inverse = 1 / bounds_ref[...][None, :]

    def body(step, totals):
        predictors = many_predictors(program.tile(step), high, low)
        values = row_by_row(
            likelihood, [predictors], [program.column(ref, step) for ref in program.leaves]
        )
        halves = _halves(
            program, step, jnp.unstack(values.reshape(tiles.rows, -1, 2), axis=2), inverse
        )
        return tuple(total + half for total, half in zip(totals, halves, strict=True))

    zero = jnp.zeros((tiles.rows, inverse.shape[1]), jnp.int32)
    for half, total in enumerate(lax.fori_loop(0, tiles.steps, body, (zero, zero))):
        out_ref[half] = jnp.sum(total, axis=0)


def ratio_pass(linear: Linear, layout: Layout, positions, proposals, bounds, piece, real):
    """The int64 sums of one piece's clipped log-ratios, in units of 2^-BITS: (chains,)."""
    is_few = len(positions) <= FEW
    num_chains = len(positions) if is_few else layouts.power_of_two(len(positions))
    with jax.enable_x64(False):
        likelihood = layouts.log_likelihood(linear, layouts.row_of(piece, layout))
        points = jnp.stack([positions, proposals], axis=1).reshape(-1, positions.shape[1])[
            :, np.array(layout.order)
        ]
        bounds = jnp.pad(bounds, (0, num_chains - len(bounds)), constant_values=1.0)
        inputs = [points.T] if is_few else split(padded(points, 2 * num_chains, layout.width))
        kernel = _few_ratios_kernel if is_few else _many_ratios_kernel
        out = jax.ShapeDtypeStruct((2, num_chains), jnp.int32)
        parts = call(
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


def _gradient_tiles(num_points: int) -> Tiles:
    if num_points == 1:
        return Tiles(128, 4, 16)
    return Tiles(32, 2, 16) if num_points <= 16 else Tiles(64, 4, 32)


def _coefficients(derivatives, factor, limit, scale):
    """The rows' integers C: as in `linear_rows`, with which they agree to the last bit."""
    wanted = derivatives / factor * scale
    wanted = jnp.where(jnp.isnan(wanted), 0.0, jnp.clip(wanted, -(2.0**22), 2.0**22)).astype(
        jnp.float32
    )
    return jnp.clip(round_half_even(wanted), -limit, limit)


def _gradient_kernel(scale, program: Program, derivative: Traced, high_ref, low_ref, out_ref):
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
            features = round_half_even(jnp.where(factor[None, :] > 0, tile * factor[None, :], 0.0))
            if is_one:
                predictors = jnp.sum(tile * (high_ref[0] + low_ref[0])[:, None], axis=0)
            else:
                predictors = many_predictors(tile, high_ref[...], low_ref[...])
                factor = factor[:, None]
                limit = limit[:, None]
            derivatives = row_by_row(derivative, [predictors, jnp.full(tiles.rows, 1.0)], leaves)
            return _coefficients(derivatives, factor, limit, scale), features

    def body(step, total):
        coefficients, features = integers(step.astype(jnp.int32))
        if is_one:
            # What one thread has loaded is added first: the rest, which goes across threads, is
            # left for the end.
            products = coefficients.astype(jnp.int64)[None, :] * features.astype(jnp.int64)
            return total + jnp.sum(products.reshape(width, -1, LOADED), axis=2)
        wide = (features.astype(jnp.float64), coefficients.astype(jnp.float64))
        dimensions = (((1,), (0,)), ((), ()))
        return total + lax.dot_general(
            *wide, dimensions, precision=lax.Precision.HIGHEST, preferred_element_type=jnp.float64
        )

    zero = jnp.zeros((width, tiles.rows // LOADED) if is_one else out_ref.shape, out_ref.dtype)
    total = lax.fori_loop(np.int32(0), np.int32(tiles.steps), body, zero)
    out_ref[...] = jnp.sum(total, axis=1) if is_one else total


def gradient_pass(
    linear: Linear, layout: Layout, clip: float, bits: int, positions, piece, scales: Scales, real
):
    """The int64 sums of one piece's clipped gradients / clip, in units of 2^-bits: (chains, d)."""
    num_points = 1 if len(positions) == 1 else max(8, layouts.power_of_two(len(positions)))
    tiles = _gradient_tiles(num_points)
    assert tiles.block <= longest_block(bits), "sums in float64 must stay below 2^53"
    derivative = layouts.derivative(linear, layouts.row_of(piece, layout))
    scale = np.float32(2.0**bits / clip)
    with jax.enable_x64(False):
        inputs = split(padded(positions[:, np.array(layout.order)], num_points, layout.width))
    shape, dtype = (
        ((layout.width,), jnp.int64)
        if num_points == 1
        else ((layout.width, num_points), jnp.float64)
    )
    with jax.enable_x64(True):
        kernel = functools.partial(_gradient_kernel, scale)
        out = jax.ShapeDtypeStruct(shape, dtype)
        parts = call(kernel, derivative, layout, tiles, piece, scales, real, inputs, out)
        total = jnp.sum(parts.astype(jnp.int64), axis=0).reshape(layout.width, num_points)
        total = total[: len(layout.order), : len(positions)].T
        return jnp.zeros_like(total).at[:, np.array(layout.order)].set(total)
