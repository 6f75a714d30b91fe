r"""Linear regression with a known noise.

    row (x, y),  x in R^k,  y in R
    y ~ N(z, s^2),   z = x . b  (+ a, the intercept),    s: noise_scale
    every coefficient ~ N(0, prior_scale^2), independently

With X the matrix of the rows x, or (1, x) with an intercept, and the likelihood raised to the power
T, the posterior is Gaussian with precision  P = T X^T X / s^2 + diag(prior_scale^-2)  and mean
P^-1 T X^T y / s^2. The log-likelihood leaves out its constant.

**Bound.** The gradient (y - z) x / s^2 has none in general. Declare |x| <= R and |y| <= Y, and
restrict the prior to the ball |theta| <= B: then  |log-ratio| <= (Y + R' B) R' / s^2 |theta' -
theta|  with R' = R, or sqrt(1 + R^2) with an intercept. It is attained by the row at Y on the
sphere and the position at -B along it. The Hessian's norm is at most R'^2 / s^2.

**Family.** With the same declarations, and w for x or (1, x), the log-likelihood is (y w . theta -
theta . (w w^T) theta / 2) / s^2 up to what theta does not enter: the statistic is y w and the upper
triangle of w w^T, its off-diagonal entries times sqrt(2) so that its length is that of the matrix.
It is at most (R'^4 + R'^2 Y^2)^(1/2). With an intercept the matrix's first entry is 1 in every row:
it goes into the log-partition, and the 1 comes off under the root.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from dpmcmc.checks import positive, whole
from dpmcmc.keeping import made_once
from dpmcmc.models import _checks, _regression
from dpmcmc.types import Array, Family, Model, Row


@made_once
def linear(
    num_features: int,
    noise_scale: float,
    prior_scale: Any = 1.0,
    intercept: bool = False,
    names: Sequence[str] | None = None,
    radius: float | None = None,
    response_bound: float | None = None,
    position_radius: float | None = None,
) -> Model:
    """Linear regression with a known noise, on rows (x, y).

    Args:
        num_features: The number of columns of x.
        noise_scale: The standard deviation of y around z.
        prior_scale: Standard deviation of the normal priors, one for all or one for each.
        intercept: Whether z has an intercept; it then comes first in the position and in `names`.
        names: One name for each coefficient; without names they stay together.
        radius: Declares |x| <= radius. Give this and the next two, or none of the three: with them
            `lipschitz` and `hessian_bound` are proved, without them choose a clip.
        response_bound: Declares |y| <= response_bound.
        position_radius: Restricts the prior to the ball of this radius. Start the chain inside.

    Returns:
        The model.

    Raises:
        ValueError: An argument is out of its range.

    Example:
        >>> from dpmcmc import models
        >>> models.linear(2, noise_scale=1.0, intercept=True).dimension
        3
    """
    num_features = whole("num_features", num_features, 1, "the number of columns of x")
    noise_scale = positive(
        "noise_scale", noise_scale, "it is the standard deviation of y around x . b"
    )
    dimension = num_features + bool(intercept)
    limits = _regression.limits(radius, response_bound, position_radius, intercept)

    def log_likelihood(mean: Array, row: Row) -> Array:
        return _checks.if_known(row[1], -0.5 * ((row[1] - mean) / noise_scale) ** 2)

    parts = _regression.linear(log_likelihood, intercept)
    return Model(
        log_likelihood=lambda position, row: log_likelihood(parts.predictor(position, row), row),
        log_prior=_regression.prior(prior_scale, dimension, position_radius),
        unravel=_regression.unravel(dimension, intercept, names),
        dimension=dimension,
        lipschitz=limits and (limits.response + limits.predictor) * limits.row / noise_scale**2,
        hessian_bound=limits and (limits.row / noise_scale) ** 2,
        linear=parts,
        family=limits and _family(limits, dimension, noise_scale, intercept),
        declared=limits and f"|x| <= {radius:g}, |y| <= {response_bound:g}",
        self_concordance=0.0,
    )


def _family(
    limits: _regression.Limits, dimension: int, noise_scale: float, intercept: bool
) -> Family:
    row, column = (
        indices[int(intercept) :].astype(np.int32) for indices in np.triu_indices(dimension)
    )
    weights = np.where(row == column, 1.0, np.sqrt(2.0))

    def triangle(vector: Array) -> Array:
        return jnp.asarray(weights, vector.dtype) * vector[row] * vector[column]

    def statistic(given: Row) -> Array:
        # A root of 2 is no integer
        features = given[0].astype(jnp.promote_types(given[0].dtype, jnp.result_type(float)))
        features = (
            jnp.concatenate([jnp.ones(1, features.dtype), features]) if intercept else features
        )
        return jnp.concatenate([triangle(features), given[1] * features])

    def natural(position: Array) -> Array:
        return jnp.concatenate([-triangle(position) / 2, position]) / noise_scale**2

    def log_partition(position: Array) -> Array:
        return (position[0] ** 2 if intercept else jnp.zeros((), position.dtype)) / (
            2 * noise_scale**2
        )

    squared = limits.row**4 + limits.row**2 * limits.response**2 - bool(intercept)
    return Family(statistic, natural, log_partition, float(np.sqrt(squared)))
