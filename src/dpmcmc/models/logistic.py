r"""Logistic regression, the model with a bound for free.

    row (x, y),  x in R^k,  y in {0, 1};      P(y = 1) = 1 / (1 + exp(-z)),   z = x . b  (+ a, the intercept)
    every coefficient ~ N(0, prior_scale^2), independently

With the label as a sign s = 2 y - 1 the log-likelihood is  -log(1 + exp(-s z)),  here as

    -( max(-s z, 0) + log1p(exp(-|z|)) ),

which neither overflows nor cancels in float32.

**Bound.** Its derivative in z lies in [-1, 1], and z is linear in the position with gradient x, or (1, x) with an
intercept. So for every pair of positions, and every row with |x| <= radius,

    |log-ratio| <= radius |theta' - theta|,      with an intercept  sqrt(1 + radius^2) |theta' - theta|.

`radius` is about the features alone: the intercept's constant 1 is not part of it and is added here. Neither bound can
be smaller: a row on the sphere, far on the wrong side of the boundary, comes as close as one likes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp

from dpmcmc.models import _checks
from dpmcmc.types import Array, Key, Model, Row

HIGHEST = jax.lax.Precision.HIGHEST  # an accelerator's default rounds float32 factors to 10 bits; ratios need all 24


def logistic(
    num_features: int,
    radius: float,
    prior_scale=1.0,
    intercept: bool = False,
    names: Sequence[str] | None = None,
) -> Model:
    """Rows (x, y) with x of shape (num_features,) and |x| <= radius; a label above 1/2 counts as 1, anything else as 0.

    So labels in {0, 1}, {False, True} and {-1, 1} all work, and a bad one (NaN) is an ordinary 0. The intercept, if
    any, comes first in the position and in `names`. A row longer than the radius meets the curator's clip.
    """
    num_features = _checks.whole("num_features", num_features, 1, "the number of columns of x")
    radius = _checks.positive(
        "radius", radius, "it bounds |x| of every row; scale the features by public constants to fit"
    )
    dimension = num_features + intercept
    scale = _checks.positive_vector("prior_scale", prior_scale, dimension, "it is the prior's standard deviation")

    def log_likelihood(position: Array, row: Row) -> Array:
        features, label = row
        logit = jnp.dot(features, position[int(intercept) :], precision=HIGHEST)
        logit = logit + position[0] if intercept else logit
        return -_softplus(jnp.where(label > 0.5, -logit, logit))

    def log_prior(position: Array) -> Array:
        return -0.5 * jnp.sum((position / jnp.asarray(scale, position.dtype)) ** 2)

    lipschitz = math.sqrt(1 + radius**2) if intercept else radius
    return Model(log_likelihood, log_prior, _unravel(dimension, intercept, names), dimension, lipschitz)


def simulate_logistic_rows(rng_key: Key, num_rows: int, position, radius: float, intercept: bool = False):
    """Rows (x, y): x uniform in the ball of the given radius, y from the model: made-up data for tests and figures."""
    key_direction, key_length, key_label = jax.random.split(rng_key, 3)
    position = jnp.asarray(position)
    coefficients = position[int(intercept) :]
    normals = jax.random.normal(key_direction, (num_rows, len(coefficients)), position.dtype)
    lengths = radius * jax.random.uniform(key_length, (num_rows, 1), position.dtype) ** (1 / len(coefficients))
    features = lengths * normals / jnp.linalg.norm(normals, axis=1, keepdims=True)
    logits = jnp.dot(features, coefficients, precision=HIGHEST) + (position[0] if intercept else 0.0)
    return features, jax.random.bernoulli(key_label, jax.nn.sigmoid(logits)).astype(position.dtype)


def _softplus(value: Array) -> Array:
    # Twice as fast as jax.nn.softplus. min(v, -v), not -|v|: JAX differentiates |v| at 0 to 1, and ours would vanish.
    return jnp.maximum(value, 0.0) + jnp.log1p(jnp.exp(jnp.minimum(value, -value)))


def _unravel(dimension: int, intercept: bool, names: Sequence[str] | None):
    if names is not None:
        return _unravel_by_name(dimension, names)
    if intercept:
        return lambda position: {"intercept": position[0], "coefficients": position[1:]}
    return lambda position: {"coefficients": position}


def _unravel_by_name(dimension: int, names: Sequence[str]):
    if isinstance(names, str) or len(names) != dimension or len(set(names)) != dimension:
        raise ValueError(
            f"names={names!r} must be {dimension} different names, one for each entry, the intercept first"
        )
    return lambda position: {name: position[i] for i, name in enumerate(names)}
