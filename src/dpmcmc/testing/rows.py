"""Rows simulated from a model at a position that you choose."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from dpmcmc.models._regression import predictor
from dpmcmc.models.banana import checked_variances, parabola
from dpmcmc.models.counts import category_logits
from dpmcmc.models.gaussian import HIGHEST, checked_covariance
from dpmcmc.types import Array, Key


def simulate_gaussian_rows(rng_key: Key, num_rows: int, mean, covariance) -> Array:
    """Rows (num_rows, d) drawn from the model at a mean you choose: made-up data for tests and
    figures.
    """
    covariance = checked_covariance(covariance)
    factor = (
        np.diag(np.sqrt(covariance)) if covariance.ndim == 1 else np.linalg.cholesky(covariance)
    )
    normals = jax.random.normal(rng_key, (num_rows, len(covariance)))
    return jnp.asarray(mean, normals.dtype) + jnp.dot(
        normals, jnp.asarray(factor.T, normals.dtype), precision=HIGHEST
    )


def simulate_linear_rows(
    rng_key: Key,
    num_rows: int,
    position,
    radius: float,
    noise_scale: float,
    intercept: bool = False,
):
    """Rows (x, y): x uniform in the ball of the given radius, y from the model: made-up data for
    tests and figures.
    """
    features, means, key_noise = _regression_rows(rng_key, num_rows, position, radius, intercept)
    return features, means + noise_scale * jax.random.normal(key_noise, (num_rows,), means.dtype)


def simulate_logistic_rows(
    rng_key: Key, num_rows: int, position, radius: float, intercept: bool = False
):
    """Rows (x, y): x uniform in the ball of the given radius, y from the model: made-up data for
    tests and figures.
    """
    features, logits, key_label = _regression_rows(rng_key, num_rows, position, radius, intercept)
    return features, jax.random.bernoulli(key_label, jax.nn.sigmoid(logits)).astype(logits.dtype)


def simulate_poisson_rows(
    rng_key: Key, num_rows: int, position, radius: float, intercept: bool = False
):
    """Rows (x, y): x uniform in the ball of the given radius, y from the model: made-up data for
    tests and figures.
    """
    features, log_rates, key_count = _regression_rows(
        rng_key, num_rows, position, radius, intercept
    )
    return features, jax.random.poisson(key_count, jnp.exp(log_rates)).astype(log_rates.dtype)


def simulate_binomial_rows(rng_key: Key, num_rows: int, position, num_trials: int = 1) -> Array:
    """Counts (num_rows,) drawn from the model at a position you choose: made-up data for tests and
    figures.
    """
    probability = jax.nn.sigmoid(jnp.asarray(position, float)[0])
    return jax.random.bernoulli(rng_key, probability, (num_rows, num_trials)).sum(axis=1)


def simulate_categorical_rows(rng_key: Key, num_rows: int, position) -> Array:
    """Categories (num_rows,) drawn from the model at a position you choose: made-up data for tests
    and figures.
    """
    return jax.random.categorical(
        rng_key, category_logits(jnp.asarray(position, float)), shape=(num_rows,)
    )


def simulate_poisson_rate_rows(rng_key: Key, num_rows: int, position, max_count: int) -> Array:
    """Counts (num_rows,) drawn from the model at a position you choose: made-up data for tests and
    figures.
    """
    rate = jnp.exp(jnp.asarray(position, float)[0])
    return jnp.minimum(jax.random.poisson(rng_key, rate, (num_rows,)), max_count)


def simulate_banana_rows(
    rng_key: Key,
    num_rows: int,
    position,
    variances,
    curvature: float,
    shift: float = 0.0,
    vertex: float = 0.0,
) -> Array:
    """Rows (num_rows, d) drawn from the model at a position you choose: made-up data for tests and
    figures.
    """
    bend = parabola(curvature, shift, vertex)
    position = jnp.asarray(position, float)
    return simulate_gaussian_rows(
        rng_key, num_rows, position.at[1].add(bend(position[0])), checked_variances(variances)
    )


def simulate_circle_rows(
    rng_key: Key, num_rows: int, mean: float = 3.0, scale: float = 1.0
) -> Array:
    """Rows (num_rows,) from N(mean, scale^2), as in :cite:p:`raisa2021thesis`: the model itself
    does not say how rows arise.
    """
    return mean + scale * jax.random.normal(rng_key, (num_rows,))


def simulate_mixture_rows(
    rng_key: Key, num_rows: int, position=(0.0, 1.0), variance: float = 2.0, row_bound: float = 3.0
) -> Array:
    """Rows (num_rows,) from the mixture, moved to the ends of the interval if outside: made-up data
    for tests.
    """
    key_component, key_noise = jax.random.split(rng_key)
    position = jnp.asarray(position, float)
    center = position[0] + position[1] * jax.random.bernoulli(key_component, shape=(num_rows,))
    rows = center + jnp.sqrt(variance) * jax.random.normal(key_noise, (num_rows,))
    return jnp.clip(rows, -row_bound, row_bound)


def _regression_rows(
    rng_key: Key, num_rows: int, position, radius: float, intercept: bool
) -> tuple[Array, Array, Key]:
    """Made-up features (num_rows, num_features), uniform in a ball; z of each row; and a key to
    draw the responses with.
    """
    key_features, key_response = jax.random.split(rng_key)
    position = jnp.asarray(position, float)
    num_features = len(position) - bool(intercept)
    key_direction, key_length = jax.random.split(key_features)
    normals = jax.random.normal(key_direction, (num_rows, num_features), position.dtype)
    lengths = radius * jax.random.uniform(key_length, (num_rows, 1), position.dtype) ** (
        1 / num_features
    )
    features = lengths * normals / jnp.linalg.norm(normals, axis=1, keepdims=True)
    return features, predictor(position, features, intercept), key_response
