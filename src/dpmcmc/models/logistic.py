r"""Logistic regression, the model with a bound for free.

    row (x, y),  x in R^k,  y in {0, 1}
    P(y = 1) = 1 / (1 + exp(-z)),   z = x . b  (+ a, the intercept)
    every coefficient ~ N(0, prior_scale^2), independently

With the label as a sign s = 2 y - 1 the log-likelihood is  -log(1 + exp(-s z)),  here as

    -( max(-s z, 0) + log1p(exp(-|z|)) ),

which neither overflows nor cancels in float32.

**Bound.** Its derivative in z lies in [-1, 1], and z is linear in the position with gradient x, or
(1, x) with an intercept. So for every pair of positions, and every row with |x| <= radius,

    |log-ratio| <= radius |theta' - theta|,

    with an intercept  |log-ratio| <= sqrt(1 + radius^2) |theta' - theta|.

`radius` is about the features alone: the intercept's constant 1 is not part of it and is added
here. Neither bound can be smaller: a row on the sphere, far on the wrong side of the boundary,
comes as close as one likes. The Hessian is -p (1 - p) times the outer product of x (or (1, x)) with
itself, of Frobenius norm at most a quarter of that bound squared. Its weight p (1 - p) changes by a
factor of at most e^|z' - z|: the `self_concordance` of :cite:t:`bach2010self` is the same bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from dpmcmc.checks import whole
from dpmcmc.domains import CONSTANT, Ball, Domain
from dpmcmc.keeping import made_once
from dpmcmc.models import _regression
from dpmcmc.types import Array, Kinds, Labelled, Model, Row


@made_once
def logistic(
    num_features: int,
    radius: float,
    prior_scale: Any = 1.0,
    intercept: bool = False,
    names: Sequence[str] | None = None,
    domain: Domain | None = None,
) -> Model:
    """Logistic regression, on rows (x, y).

    A label above 1/2 counts as 1 and any other as 0: labels in {0, 1}, {False, True} and {-1, 1}
    all work. A row whose label is missing (NaN) is ignored.

    Args:
        num_features: The number of columns of x.
        radius: The public bound of |x|, without the intercept's constant 1. A longer row is
            clipped.
        prior_scale: Standard deviation of the normal priors, one for all or one for each.
        intercept: Whether z has an intercept; it then comes first in the position and in `names`.
        names: One name for each coefficient; without names they stay together.
        domain: The public set of x, within the radius: all of them if left out. A smaller one, such
            as columns within bounds, makes answers in changed coordinates more precise.

    Returns:
        The model.

    Raises:
        ValueError: An argument is out of its range.

    Example:
        >>> from dpmcmc import models
        >>> models.logistic(2, radius=1.0).lipschitz
        1.0
    """
    num_features = whole("num_features", num_features, 1, "the number of columns of x")
    dimension = num_features + bool(intercept)

    def log_likelihood(logit: Array, row: Row) -> Array:
        is_one = row[1] > 0.5
        is_zero = row[1] <= 0.5
        return -_softplus(jnp.where(is_one, -logit, jnp.where(is_zero, logit, jnp.nan)))

    lipschitz = _regression.row_radius(radius, intercept)
    domain = domain or Domain((Ball(num_features, float(radius)),))
    if domain.dimension != num_features:
        raise ValueError(f"a domain of {domain.dimension} columns, where x has {num_features}")
    of_all = Domain((CONSTANT, *domain.parts)) if intercept else domain
    labelled = Labelled(2, _label, _of_label, lipschitz, of_all)
    linear = _regression.linear(log_likelihood, intercept, labelled)
    return Model(
        log_likelihood=lambda position, row: log_likelihood(linear.predictor(position, row), row),
        log_prior=_regression.prior(prior_scale, dimension),
        unravel=_regression.unravel(dimension, intercept, names),
        dimension=dimension,
        lipschitz=lipschitz,
        hessian_bound=lipschitz**2 / 4,
        self_concordance=lipschitz,
        linear=linear,
        kinds=Kinds(("label 0", "label 1"), lambda row: (row[1] > 0.5).astype(jnp.int32)),
        declared=f"|x| <= {radius:g} (y > 1/2 is one class, y <= 1/2 the other)",
    )


def _label(row: Row) -> Array:
    return jnp.where(row[1] > 0.5, 1, jnp.where(row[1] <= 0.5, 0, -1))


def _of_label(logit: Array, label: Array) -> Array:
    return -_softplus(jnp.where(label == 1, -logit, logit))


# log(1 + t) / t at the Chebyshev points of [0, 1]: as close to it, in float32, as log1p is, for a
# third of the work.
_LOG1P = (
    1.0,
    -0.49999892711639404,
    0.33329710364341736,
    -0.24951615929603577,
    0.1966327428817749,
    -0.1526966691017151,
    0.10543623566627502,
    -0.056373611092567444,
    0.019542526453733444,
    -0.0031760570127516985,
)


def _log1p_of_unit(value: Array) -> Array:
    """log(1 + value) for values in [0, 1]."""
    if value.dtype != jnp.float32:
        return jnp.log1p(value)
    quotient = jnp.full_like(value, _LOG1P[-1])
    for coefficient in reversed(_LOG1P[:-1]):
        quotient = quotient * value + coefficient
    return quotient * value


@jax.custom_jvp
def _softplus(value: Array) -> Array:
    return jnp.maximum(value, 0.0) + _log1p_of_unit(jnp.exp(-jnp.abs(value)))


@_softplus.defjvp
def _softplus_derivative(values, tangents):
    # JAX's own derivatives of max and abs are wrong at 0, and at the origin every row's logit is
    # exactly 0.
    return _softplus(values[0]), jax.nn.sigmoid(values[0]) * tangents[0]
