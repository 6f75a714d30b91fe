r"""Poisson regression of counts.

    row (x, y),  x in R^k,  y in {0, 1, 2, ...}
    y ~ Poisson(e^z),   z = x . b  (+ a, the intercept)
    every coefficient ~ N(0, prior_scale^2), independently

The log-likelihood is  y z - e^z,  without its constant -log y!.

**Bound.** Its derivative in z, y - e^z, has none in general. Declare |x| <= R and 0 <= y <= Y, and
restrict the prior to the ball |theta| <= B: then |z| <= R' B with R' = R, or sqrt(1 + R^2) with an
intercept, and

    |log-ratio| <= max(Y - e^(-R' B), e^(R' B)) R' |theta' - theta|,

attained on the sphere by y = Y or y = 0 and a position at an end of the ball. The Hessian's norm is
at most e^(R' B) R'^2. Both grow fast with R' B.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp

from dpmcmc.checks import whole
from dpmcmc.keeping import made_once
from dpmcmc.models import _checks, _regression
from dpmcmc.types import Array, Model, Row


@made_once
def poisson(
    num_features: int,
    prior_scale: Any = 1.0,
    intercept: bool = False,
    names: Sequence[str] | None = None,
    radius: float | None = None,
    response_bound: float | None = None,
    position_radius: float | None = None,
) -> Model:
    """Poisson regression of counts, on rows (x, y).

    Args:
        num_features: The number of columns of x.
        prior_scale: Standard deviation of the normal priors, one for all or one for each.
        intercept: Whether z has an intercept; it then comes first in the position and in `names`.
        names: One name for each coefficient; without names they stay together.
        radius: Declares |x| <= radius. Give this and the next two, or none of the three: with them
            `lipschitz` and `hessian_bound` are proved, without them choose a clip.
        response_bound: Declares 0 <= y <= response_bound.
        position_radius: Restricts the prior to the ball of this radius. Start the chain inside.

    Returns:
        The model.

    Raises:
        ValueError: An argument is out of its range.

    Example:
        >>> from dpmcmc import models
        >>> models.poisson(2).lipschitz is None
        True
    """
    num_features = whole("num_features", num_features, 1, "the number of columns of x")
    dimension = num_features + bool(intercept)
    limits = _regression.limits(radius, response_bound, position_radius, intercept)

    def log_likelihood(log_rate: Array, row: Row) -> Array:
        return _checks.if_known(row[1], row[1] * log_rate - jnp.exp(log_rate))

    linear = _regression.linear(log_likelihood, intercept)
    return Model(
        log_likelihood=lambda position, row: log_likelihood(linear.predictor(position, row), row),
        log_prior=_regression.prior(prior_scale, dimension, position_radius),
        unravel=_regression.unravel(dimension, intercept, names),
        dimension=dimension,
        lipschitz=limits and _steepest(limits) * limits.row,
        hessian_bound=limits and math.exp(limits.predictor) * limits.row**2,
        self_concordance=limits and limits.row,
        linear=linear,
        declared=limits and f"|x| <= {radius:g}, 0 <= y <= {response_bound:g}",
    )


def _steepest(limits: _regression.Limits) -> float:
    if limits.predictor > 700:
        raise ValueError(
            f"radius times position_radius is {limits.predictor:.4g}, so a rate may be e to that: "
            "choose less"
        )
    return max(limits.response - math.exp(-limits.predictor), math.exp(limits.predictor))
