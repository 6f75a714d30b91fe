"""What `fused` kernels need of a model: where a row's features are, and its log-likelihood.

The log-likelihood is a function of single numbers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Literal, jaxpr_as_fun

from dpmcmc.curator.sums.exact_sum import one_row, transposed
from dpmcmc.curator.sums.rowwise import check_apart
from dpmcmc.types import Linear

INTERPRET = False  # tests run the kernels on a CPU, step by step


class Layout(NamedTuple):
    """Where a row's features are: the columns of one leaf, then constants."""

    leaf: int
    num_columns: int  # of the leaf
    constants: tuple[float, ...]
    order: tuple[int, ...]  # which entry of the position belongs to each of them

    @property
    def width(self) -> int:
        """The width of a tile: a power of two."""
        return max(16, power_of_two(len(self.order)))

    @property
    def most_chains(self) -> int:
        """In one pass, so that rows and points fit the shared memory of common GPUs, 96 KB."""
        return 64 if self.width <= 64 else 16


class Traced(NamedTuple):
    """A function of the predictor and some scalar leaves of a row."""

    call: Callable[..., Any]
    leaves: tuple[int, ...]


def find_features(linear: Linear, row) -> Layout | None:
    """The layout, if the features are one leaf of the row, as it is, and constants."""
    with jax.enable_x64(False):
        jaxpr = jax.make_jaxpr(linear.features)(row).jaxpr
    of_row = set(jaxpr.invars)
    for equation in jaxpr.eqns:
        if not of_row.isdisjoint(_variables(equation.invars)):
            of_row.update(equation.outvars)
    parts = jaxpr.outvars
    varying = [
        index
        for index, part in enumerate(parts)
        if not isinstance(part, Literal) and part in of_row
    ]
    if len(varying) != 1 or parts[varying[0]] not in jaxpr.invars:
        return None
    return _layout(linear, row, jaxpr.invars.index(parts[varying[0]]), varying[0])


def _layout(linear: Linear, row, leaf: int, varying: int) -> Layout:
    with jax.ensure_compile_time_eval(), jax.enable_x64(False):
        values = [
            np.asarray(part)
            for part in linear.features(
                jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), row)
            )
        ]
    starts = np.cumsum([0, *(len(value) for value in values)])
    entries = [
        tuple(range(start, start + len(value)))
        for start, value in zip(starts, values, strict=False)
    ]
    constants = [index for index in range(len(values)) if index != varying]
    order = sum((entries[index] for index in [varying, *constants]), ())
    return Layout(
        leaf,
        len(values[varying]),
        tuple(float(c) for index in constants for c in values[index]),
        order,
    )


def _trace(function: Callable[[Any, Any], Any], row, num_inputs: int) -> Traced:
    """function(inputs, row) as a function of the inputs and the leaves of the row it uses."""
    scalar = jax.ShapeDtypeStruct((), jnp.float32)
    with jax.enable_x64(False):
        closed = jax.make_jaxpr(function)((scalar,) * num_inputs, row)
    check_apart("the model", closed.jaxpr)
    leaves = jax.tree.leaves(row)
    used = set(_variables(closed.jaxpr.outvars))
    for equation in closed.jaxpr.eqns:
        used.update(_variables(equation.invars))
    indices = tuple(
        index for index, variable in enumerate(closed.jaxpr.invars[num_inputs:]) if variable in used
    )
    if any(leaves[index].shape != () for index in indices):
        raise NotImplementedError("a kernel takes numbers, one for each row, beside the features")

    run: Callable[..., Any] = jaxpr_as_fun(closed)

    def call(*values):
        rest = dict(zip(indices, values[num_inputs:], strict=True))
        return run(*values[:num_inputs], *(rest.get(index, 0.0) for index in range(len(leaves))))[0]

    return Traced(call, indices)


def log_likelihood(linear: Linear, row) -> Traced:
    """The log-likelihood of one row, as a function of its predictor."""
    return _trace(lambda inputs, row: linear.log_likelihood(inputs[0], row), row, 1)


def derivative(linear: Linear, row) -> Traced:
    """The derivative of one row's log-likelihood in its predictor.

    The second input is 1: a constant there is more than the kernel's compiler takes.
    """
    return _trace(
        lambda inputs, row: jax.jvp(
            lambda z: linear.log_likelihood(z, row), inputs[:1], inputs[1:]
        )[1],
        row,
        2,
    )


def _variables(atoms) -> list:
    return [atom for atom in atoms if not isinstance(atom, Literal)]


def row_of(piece, layout: Layout):
    """The shapes of one row of a piece that is stored by columns."""
    return one_row(jax.eval_shape(functools.partial(transposed, leaf=layout.leaf), piece))


def shapes(row) -> list[tuple[tuple[int, ...], Any]]:
    """Shape and type of each leaf: a key of a cache."""
    return [(leaf.shape, jnp.dtype(leaf.dtype)) for leaf in jax.tree.leaves(row)]


def power_of_two(number: int) -> int:
    return 1 << (number - 1).bit_length()
