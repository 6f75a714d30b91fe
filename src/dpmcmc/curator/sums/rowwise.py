"""A model's functions applied to many rows, so that no row changes what another contributes.

`vmap` is JAX's way to do so, but not a promise. A rule of the model's own for vmap is given all
rows; a convolution of many rows may be compiled as one, in which a NaN of one row is everyone's; a
series may be summed until the slowest row is done, which rounds the others once more; LAPACK prints
when an entry is infinite; foreign code does what it likes. So a function is traced for one row,
every operation of that trace must be known to be separable by rows (`ROW_SEPARABLE_PRIMITIVES`),
and it is this trace that runs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from types import NoneType
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import Literal, Primitive, jaxpr_as_fun, primitives

from dpmcmc.curator.programs.jaxprs import has_side_effects, inner_jaxprs
from dpmcmc.curator.sums.exact_sum import one_row

ELEMENTWISE = """
    abs acos acosh add add_any and asin asinh atan atan2 atanh bessel_i0e bessel_i1e
    bitcast_convert_type cbrt ceil clamp clz complex conj convert_element_type copy copy_p cos
    cosh digamma div eq eq_to erf erf_inv erfc exp exp2 expm1 floor ge gt igamma igamma_grad_a
    igammac imag integer_pow is_finite le le_to lgamma log log1p log2 logistic lt lt_to max min
    mul ne neg nextafter not one_minus_square or polygamma polynomial population_count pow real
    reduce_precision rem round rsqrt select_n shift_left shift_right_arithmetic
    shift_right_logical sign sin sinh sqrt square sub tan tanh xor zeta
"""
PLACES = """
    broadcast_in_dim concatenate dynamic_slice dynamic_update_slice empty2 gather iota pad
    reshape rev scatter scatter-add scatter-max scatter-min scatter-mul scatter-sub slice split
    squeeze stack tile transpose unstack
"""
TOGETHER_IN_A_ROW = """
    argmax argmin cumlogsumexp cummax cummin cumprod cumsum dot_general fft reduce reduce_and
    reduce_max reduce_min reduce_or reduce_prod reduce_sum reduce_window reduce_window_max
    reduce_window_min reduce_window_sum reduce_xor sort top_k cholesky householder_product lu
    lu_pivots_to_permutation qr triangular_solve tridiagonal_solve
"""
CONTROL = """
    call checkpoint closed_call cond custom_jvp_call custom_linear_solve custom_vjp_call
    device_put jit name optimization_barrier pjit platform_index remat2 scan stop_gradient while
"""
RANDOM = """
    random_bits random_clone random_fold_in random_gamma random_seed random_split random_unwrap
    random_wrap threefry2x32
"""
ROW_SEPARABLE_PRIMITIVES = frozenset(
    " ".join([ELEMENTWISE, PLACES, TOGETHER_IN_A_ROW, CONTROL, RANDOM]).split()
)

SIDE_EFFECTS = (
    "prints or calls back to Python, which would show rows: leave jax.debug and callbacks out of it"
)
DRAWS_TOGETHER = (
    "random numbers of a generator other than JAX's default, threefry, may be drawn for all rows "
    "with the key of one, which could then move the others' terms: give the keys "
    "impl='threefry2x32', or leave them out"
)
UNKNOWN = (
    "It is not known to compute a row's value without reading other rows, and one could move their "
    "terms: leave it out"
)
LAPACK = (
    "When an entry is infinite it may print, which would show that such a row exists: take "
    "Cholesky's or an LU factor"
)
REASONS = {
    "conv_general_dilated": "Convolutions of many rows may be computed as one, in which a row can "
    "move the others' terms: write it as a sum over shifts, or as a matrix product",
    "custom_vmap_call": "The rule of a custom_vmap would read all rows at once, and one could move "
    "the others' terms: leave it out",
    "regularized_incomplete_beta": "The series of betainc is summed until the slowest row is done, "
    "which moves the others' terms: add up the binomial terms themselves",
    **dict.fromkeys(("eig", "eigh", "schur", "svd"), LAPACK),
}


def rowwise(
    function: Callable[..., Any], in_axes: tuple[int | None, ...] = (0,)
) -> Callable[..., Any]:
    """A function of one row, for many rows, so that no row changes the value of another.

    It is jax.vmap(function, in_axes), the function having been traced for one row and checked.

    Args:
        function: What is computed for one row: an argument may also be a position.
        in_axes: For each argument, 0 if it has a leading axis of rows, None if it has none.

    Returns:
        The function for many rows.

    Raises:
        ValueError: When it is called: the function has side effects, or may use other rows.

    Example:
        >>> import jax.numpy as jnp
        >>> from dpmcmc import queries
        >>> squares = queries.rowwise(lambda row: row**2)
        >>> squares(jnp.arange(4.0)).tolist()
        [0.0, 1.0, 4.0, 9.0]
    """

    def over_rows(*arguments):
        one = [
            given if axis is None else one_row(given)
            for given, axis in zip(arguments, in_axes, strict=True)
        ]
        traced, shapes = jax.make_jaxpr(lambda *given: function(*given), return_shape=True)(*one)
        check_apart("the model", traced.jaxpr)

        def run(*given):
            return jax.tree.unflatten(
                jax.tree.structure(shapes), jaxpr_as_fun(traced)(*jax.tree.leaves(given))
            )

        return jax.vmap(run, in_axes)(*arguments)

    return over_rows


def check_apart(name: str, jaxpr: Any) -> None:
    """Refuse what a function computes on a row if it has side effects, or may use other rows."""
    if has_side_effects(jaxpr):
        raise ValueError(f"{name} {SIDE_EFFECTS}")
    for equation in _equations(jaxpr):
        primitive = equation.primitive
        if _draws_together(equation):
            raise ValueError(f"{name}: {DRAWS_TOGETHER}")
        if _operation(equation) not in _own() and not (
            _is_constant(equation) or _is_nothing(equation)
        ):
            raise ValueError(
                f"{name} uses `{primitive.name}`. {REASONS.get(primitive.name, UNKNOWN)}"
            )


def _operation(equation: Any) -> tuple[Primitive, type]:
    """What an equation does.

    In JAX 0.12 some operations are types behind one primitive.
    """
    return equation.primitive, type(equation.params.get("_prim"))


@functools.cache
def _own() -> frozenset[tuple[Primitive, type]]:
    """The operations that a model may use: JAX's own, with names in ROW_SEPARABLE_PRIMITIVES.

    Names are not enough, for anybody can make an operation with such a name. So these are the
    objects that JAX exports, and those that it makes of some of its functions.
    """
    exported = [
        (value, NoneType) for value in vars(primitives).values() if isinstance(value, Primitive)
    ]
    matrix = jax.ShapeDtypeStruct((2, 2), jnp.float32)
    used = map(_operation, _equations(jax.make_jaxpr(_some_of_everything)(matrix).jaxpr))
    return frozenset(
        (primitive, kind)
        for primitive, kind in (*exported, *used)
        if primitive.name in ROW_SEPARABLE_PRIMITIVES or kind is not NoneType
    )


def _some_of_everything(matrix):
    key = jax.random.key(0, impl="threefry2x32")
    key = jax.random.clone(jax.random.wrap_key_data(jax.random.key_data(key), impl="threefry2x32"))
    moved = (
        jnp.split(matrix, 2),
        jnp.stack(jnp.unstack(matrix)),
        jnp.tile(matrix, 2),
        matrix.at[0].subtract(1.0),
    )
    solved = (
        jnp.linalg.qr(matrix),
        jax.scipy.linalg.lu_solve(jax.scipy.linalg.lu_factor(matrix), matrix),
    )
    computed = (
        jnp.log2(matrix),
        jax.jacrev(jnp.tanh)(matrix),
        lax.platform_dependent(matrix, default=jnp.sin),
    )
    searched = jnp.searchsorted(matrix[0], matrix[1]), jnp.nonzero(matrix, size=2)
    return lax.optimization_barrier((key, moved, solved, computed, searched))


def has_rules(jaxpr: Any) -> bool:
    """Whether it has a rule of its own for derivatives, which is no part of the trace."""
    return any("custom_" in equation.primitive.name for equation in _equations(jaxpr))


def _equations(jaxpr: Any) -> Iterator[Any]:
    for equation in jaxpr.eqns:
        yield equation
        for inner in inner_jaxprs(equation):
            yield from _equations(inner)


def _is_nothing(equation: Any) -> bool:
    """Whether it is an array without entries.

    One that has entries holds what was in memory before, from any program.
    """
    return equation.primitive.name == "empty" and all(
        atom.aval.size == 0 for atom in equation.outvars
    )


def _is_constant(equation: Any) -> bool:
    """Whether it is a number that JAX has on all devices, where rows are on several."""
    return equation.primitive.name == "reshard" and all(
        isinstance(atom, Literal) for atom in equation.invars
    )


def _draws_together(equation: Any) -> bool:
    """Whether random numbers come from another generator than JAX's default.

    For many keys such a generator may draw all with the first.
    """
    types = [getattr(atom.aval, "dtype", None) for atom in (*equation.invars, *equation.outvars)]
    of_keys = [
        dtype
        for dtype in types
        if dtype is not None and jax.dtypes.issubdtype(dtype, jax.dtypes.prng_key)
    ]
    return any(dtype != _threefry() for dtype in of_keys) or equation.primitive.name in (
        "rng_bit_generator",
        "rng_uniform",
    )


@functools.cache
def _threefry() -> Any:
    """The type of keys of JAX's default generator; one of another's making may have its name."""
    return jax.eval_shape(lambda: jax.random.key(0, impl="threefry2x32")).dtype
