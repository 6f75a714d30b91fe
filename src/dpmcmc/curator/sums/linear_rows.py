r"""Clipped gradients of rows with a linear predictor: a row's gradient is a number times its
features, also in integers.

The gradient of f(x . theta) is r x with r = f'. The features become integers X once (a scale for
each row, so that the largest entry has about half of the grid's bits), and with them an integer N
>= |X| from the exact sum of squares. In each step r becomes one integer C, clamped to  |C| <=
2^bits / N  in exact integers. Then

    |C X| <= |C| N <= 2^bits      for every row, whatever floating point did,

and the sum of all C X is a product of a vector and a matrix. It is computed in float64 over blocks
so short that every partial sum is below 2^53: then it is exact, in any order, with or without fused
multiplication, and the blocks are added as integers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import jaxpr_as_fun

from dpmcmc.curator.programs.jaxprs import inner_jaxprs
from dpmcmc.curator.sums.rowwise import rowwise
from dpmcmc.precision import in_double
from dpmcmc.types import Linear, Model

MAX_BITS, MIN_BITS = 40, 30
MOVES = frozenset(
    [
        "broadcast_in_dim",
        "concatenate",
        "copy",
        "dynamic_slice",
        "gather",
        "iota",
        "neg",
        "reshape",
        "rev",
        "slice",
        "split",
        "squeeze",
        "stack",
        "transpose",
        "unstack",
    ]
)
PLACES = {"add", "lt", "select_n"}  # in integers: an index counted from the end


class Scales(NamedTuple):
    """What is needed of each row's features."""

    # From features to their integers; 0 for a row that must not count (no finite features, or all
    # of them zero)
    factor: Any
    largest: Any  # int32: what the row's coefficient C is clamped to


def freeze_features(model: Model, row: Any) -> Model:
    """The model with features that are the same numbers wherever they are computed.

    Where that cannot be had, the model is without the short cut through them. N is found in one
    place of a program, and X in another. Compiled code may round a product and a sum in two ways,
    so features that are computed may be two different vectors there; cells that are only moved
    about, and constants, are not.
    """
    if model.linear is None:
        return model
    traced = jax.make_jaxpr(model.linear.features)(row)
    return model._replace(
        linear=model.linear._replace(features=_Moved(traced)) if _moves_only(traced.jaxpr) else None
    )


class _Moved:
    """The features of one trace, whatever the function would return if traced again.

    Equal to those of another trace with the same operations and constants.
    """

    def __init__(self, traced: Any) -> None:
        self._run: Callable[..., Any] = jaxpr_as_fun(traced)
        self._content = (
            str(traced.jaxpr),
            tuple(
                (np.asarray(const).dtype.str, np.asarray(const).tobytes())
                for const in traced.consts
            ),
        )

    def __call__(self, row: Any) -> tuple[Any, ...]:
        return tuple(self._run(*jax.tree.leaves(row)))

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, _Moved) and self._content == other._content

    def __hash__(self) -> int:
        return hash(self._content)


def _moves_only(jaxpr) -> bool:
    return all(_is_move(equation) for equation in jaxpr.eqns)


def _is_move(equation) -> bool:
    """Whether nothing is rounded.

    Cells are moved, or become floating-point numbers one by one; places are computed in integers.
    """
    name = equation.primitive.name
    inner = list(inner_jaxprs(equation))
    if inner:
        return name in ("jit", "pjit") and all(map(_moves_only, inner))
    if name == "convert_element_type":
        return bool(jnp.issubdtype(equation.outvars[0].aval.dtype, jnp.floating))
    is_whole = all(
        not jnp.issubdtype(atom.aval.dtype, jnp.floating)
        for atom in (*equation.invars, *equation.outvars)
    )
    return name in MOVES or (name in PLACES and is_whole)


def grid_bits(num_slots: int) -> int:
    """The finest grid on which the sum over so many rows still fits 62 bits."""
    return max(MIN_BITS, min(MAX_BITS, 62 - num_slots.bit_length()))


def longest_block(bits: int) -> int:
    """How many rows `gradient_integers` can take at once."""
    return 2 ** (53 - bits)


def row_scales(linear: Linear, rows, bits: int, is_double: bool, block: int) -> Scales:
    """The scales of many rows, a block at a time.

    Read off the rows, so for the curator's use alone.
    """
    size = jax.tree.leaves(rows)[0].shape[0]
    if block >= size:
        return _block_scales(linear, rows, bits, is_double)

    def fill(index, scales):
        first = jnp.minimum(index * block, size - block)
        part = jax.tree.map(lambda leaf: lax.dynamic_slice_in_dim(leaf, first, block), rows)
        of_block = _block_scales(linear, part, bits, is_double)
        return jax.tree.map(
            lambda old, new: lax.dynamic_update_slice_in_dim(old, new, first, 0), scales, of_block
        )

    empty = Scales(
        jnp.zeros(size, jnp.float64 if is_double else jnp.float32), jnp.zeros(size, jnp.int32)
    )
    return lax.fori_loop(0, -(-size // block), fill, empty)


def _block_scales(linear: Linear, rows, bits: int, is_double: bool) -> Scales:
    with jax.enable_x64(is_double):
        parts = _features(linear, rows)
        largest_entry = jnp.max(
            jnp.stack([jnp.max(jnp.abs(part), axis=1) for part in parts]), axis=0
        )
        _, exponent = jnp.frexp(largest_entry)
        factor = _power_of_two(bits // 2 - exponent, largest_entry.dtype)
        # Asked of every entry: on a CPU the maximum of a large array passes over NaNs.
        is_finite = jnp.all(
            jnp.stack([jnp.all(jnp.isfinite(part), axis=1) for part in parts]), axis=0
        )
        is_usable = is_finite & (largest_entry > 0) & jnp.isfinite(factor)
        factor = jnp.where(is_usable, factor, 0.0).astype(largest_entry.dtype)
        integers = [_integers(part, factor) for part in parts]
    squared = sum(jnp.sum(part.astype(jnp.int64) ** 2, axis=1) for part in integers)
    length = _ceil_sqrt(squared)
    return Scales(
        factor, jnp.where(squared > 0, 2**bits // jnp.maximum(length, 1), 0).astype(jnp.int32)
    )


def gradient_integers(
    linear: Linear, rows, scales: Scales, is_counted, position, clip: float, bits: int
):
    """The exact sum of the counted rows' clipped gradients / clip in units of 2^-bits.

    It takes at most `longest_block` rows.
    """
    with jax.enable_x64(position.dtype == jnp.float64):
        predictors = rowwise(linear.predictor, (None, 0))(position, rows)
        derivatives = rowwise(jax.grad(linear.log_likelihood), (0, 0))(predictors, rows)
        limit = jnp.where(is_counted, scales.largest, 0)
        coefficients = row_coefficients(derivatives, scales.factor, limit, 2.0**bits / clip)
        integers = [_integers(part, scales.factor) for part in _features(linear, rows)]
    return jnp.concatenate([_exact_product(coefficients, part) for part in integers])


def row_coefficients(derivatives, factor, limit, scale):
    """The rows' integers C, at most `limit`."""
    wanted = jnp.round(derivatives / factor * scale)
    wanted = jnp.where(jnp.isnan(wanted), 0.0, jnp.clip(wanted, -(2.0**30), 2.0**30)).astype(
        jnp.int32
    )
    return jnp.clip(wanted, -limit, limit)


def _exact_product(coefficients, integers):
    """sum_i C_i X_i, the same number both ways."""
    if jax.default_backend() == "cpu":
        wide = coefficients.astype(jnp.float64), integers.astype(jnp.float64)
        return jnp.dot(*wide, precision="highest").astype(jnp.int64)
    # An accelerator fuses this with the making of the integers, so that rows are read once.
    return jnp.sum(coefficients[:, None].astype(jnp.int64) * integers.astype(jnp.int64), axis=0)


def _features(linear: Linear, rows):
    dtype = jnp.float64 if in_double() else jnp.float32
    return [part.astype(dtype) for part in rowwise(linear.features)(rows)]


def _integers(features, factor):
    """Whole numbers, in the dtype of the features.

    An exact product and a rounding make them, so they are the same on every path.
    """
    return jnp.where(factor[:, None] > 0, jnp.round(features * factor[:, None]), 0.0)


def _power_of_two(exponent, dtype):
    """2^exponent exactly, which exp2 is not; inf or 0 beyond the dtype.

    A product with it needs no rounding, fused or not.
    """
    facts = jnp.finfo(dtype)
    bits = (
        exponent.astype(jnp.int64 if facts.bits == 64 else jnp.int32) + (facts.maxexp - 1)
    ) << facts.nmant
    power = lax.bitcast_convert_type(bits, dtype)
    return jnp.where(
        exponent >= facts.maxexp, jnp.inf, jnp.where(exponent < facts.minexp, 0.0, power)
    ).astype(dtype)


def _ceil_sqrt(squared):
    """The least integer whose square is not below, or one more."""
    root = jnp.floor(jnp.sqrt(squared.astype(jnp.float64))).astype(jnp.int64)
    root = jnp.where(root * root < squared, root + 1, root)
    return jnp.where(root * root < squared, root + 1, root)
