"""Rows simulated from a model at a position that you choose."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpmcmc.models._regression import predictor
from dpmcmc.models.banana import checked_variances, parabola
from dpmcmc.models.counts import category_logits
from dpmcmc.models.gaussian import HIGHEST, checked_covariance
from dpmcmc.types import Array, Key


def simulate_gaussian_rows(rng_key: Key, num_rows: int, mean: Any, covariance: Any) -> Array:
    """Simulate rows of `models.gaussian` with a known mean.

    Args:
        rng_key: A key of `jax.random.key`.
        num_rows: How many rows to simulate.
        mean: The mean of the rows: one number, or shape (d,).
        covariance: Shape (d, d), or variances of shape (d,) for independent columns.

    Returns:
        Rows of shape (num_rows, d).

    Example:
        >>> import jax
        >>> from dpmcmc import testing
        >>> testing.simulate_gaussian_rows(jax.random.key(0), 5, [0.0, 1.0], [1.0, 4.0]).shape
        (5, 2)
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
    position: Any,
    radius: float,
    noise_scale: float,
    intercept: bool = False,
) -> tuple[Array, Array]:
    """Simulate rows of `models.linear` at a known position.

    Args:
        rng_key: A key of `jax.random.key`.
        num_rows: How many rows to simulate.
        position: The parameters, the intercept first if there is one.
        radius: Features are uniform in the ball of this radius around 0.
        noise_scale: The standard deviation of y around its mean.
        intercept: Whether the position begins with an intercept.

    Returns:
        Features and responses, of shapes (num_rows, num_features) and (num_rows,).

    Example:
        >>> import jax
        >>> from dpmcmc import testing
        >>> x, y = testing.simulate_linear_rows(
        ...     jax.random.key(0), 5, [1.0, 2.0], radius=1.0, noise_scale=0.5
        ... )
        >>> x.shape, y.shape
        ((5, 2), (5,))
    """
    features, means, key_noise = _regression_rows(rng_key, num_rows, position, radius, intercept)
    return features, means + noise_scale * jax.random.normal(key_noise, (num_rows,), means.dtype)


def simulate_logistic_rows(
    rng_key: Key, num_rows: int, position: Any, radius: float, intercept: bool = False
) -> tuple[Array, Array]:
    """Simulate rows of `models.logistic` at a known position.

    Args:
        rng_key: A key of `jax.random.key`.
        num_rows: How many rows to simulate.
        position: The parameters, the intercept first if there is one.
        radius: Features are uniform in the ball of this radius around 0.
        intercept: Whether the position begins with an intercept.

    Returns:
        Features and labels 0 or 1, of shapes (num_rows, num_features) and (num_rows,).

    Example:
        >>> import jax
        >>> from dpmcmc import testing
        >>> x, y = testing.simulate_logistic_rows(jax.random.key(0), 5, [1.0, 2.0], radius=1.0)
        >>> x.shape, y.shape
        ((5, 2), (5,))
    """
    features, logits, key_label = _regression_rows(rng_key, num_rows, position, radius, intercept)
    return features, jax.random.bernoulli(key_label, jax.nn.sigmoid(logits)).astype(logits.dtype)


def simulate_poisson_rows(
    rng_key: Key, num_rows: int, position: Any, radius: float, intercept: bool = False
) -> tuple[Array, Array]:
    """Simulate rows of `models.poisson` at a known position.

    Args:
        rng_key: A key of `jax.random.key`.
        num_rows: How many rows to simulate.
        position: The parameters, the intercept first if there is one.
        radius: Features are uniform in the ball of this radius around 0.
        intercept: Whether the position begins with an intercept.

    Returns:
        Features and responses, of shapes (num_rows, num_features) and (num_rows,).

    Example:
        >>> import jax
        >>> from dpmcmc import testing
        >>> x, y = testing.simulate_poisson_rows(jax.random.key(0), 5, [1.0, 2.0], radius=1.0)
        >>> x.shape, y.shape
        ((5, 2), (5,))
    """
    features, log_rates, key_count = _regression_rows(
        rng_key, num_rows, position, radius, intercept
    )
    return features, jax.random.poisson(key_count, jnp.exp(log_rates)).astype(log_rates.dtype)


def simulate_binomial_rows(
    rng_key: Key, num_rows: int, position: Any, num_trials: int = 1
) -> Array:
    """Simulate rows of `models.binomial` at a known position.

    Args:
        rng_key: A key of `jax.random.key`.
        num_rows: How many rows to simulate.
        position: The log-odds of a success, of shape (1,).
        num_trials: The number of trials behind each count.

    Returns:
        Counts of shape (num_rows,).

    Example:
        >>> import jax
        >>> from dpmcmc import testing
        >>> testing.simulate_binomial_rows(jax.random.key(0), 5, [0.0], num_trials=3).shape
        (5,)
    """
    probability = jax.nn.sigmoid(jnp.asarray(position, float)[0])
    return jax.random.bernoulli(rng_key, probability, (num_rows, num_trials)).sum(axis=1)


def simulate_categorical_rows(rng_key: Key, num_rows: int, position: Any) -> Array:
    """Simulate rows of `models.categorical` at a known position.

    Args:
        rng_key: A key of `jax.random.key`.
        num_rows: How many rows to simulate.
        position: Log-ratios of each category's probability to the last one's, of shape (K - 1,).

    Returns:
        Codes 0, ..., K - 1, of shape (num_rows,).

    Example:
        >>> import jax
        >>> from dpmcmc import testing
        >>> testing.simulate_categorical_rows(jax.random.key(0), 5, [0.0, 1.0]).shape
        (5,)
    """
    return jax.random.categorical(
        rng_key, category_logits(jnp.asarray(position, float)), shape=(num_rows,)
    )


def simulate_poisson_rate_rows(rng_key: Key, num_rows: int, position: Any, max_count: int) -> Array:
    """Simulate rows of `models.poisson_rate` at a known position.

    Args:
        rng_key: A key of `jax.random.key`.
        num_rows: How many rows to simulate.
        position: The logarithm of the rate, of shape (1,).
        max_count: Larger counts are clipped to this one.

    Returns:
        Counts of shape (num_rows,).

    Example:
        >>> import jax
        >>> from dpmcmc import testing
        >>> testing.simulate_poisson_rate_rows(jax.random.key(0), 5, [1.0], max_count=9).shape
        (5,)
    """
    rate = jnp.exp(jnp.asarray(position, float)[0])
    return jnp.minimum(jax.random.poisson(rng_key, rate, (num_rows,)), max_count)


def simulate_banana_rows(
    rng_key: Key,
    num_rows: int,
    position: Any,
    variances: Any,
    curvature: float,
    shift: float = 0.0,
    vertex: float = 0.0,
) -> Array:
    """Simulate rows of `models.banana` at a known position.

    Args:
        rng_key: A key of `jax.random.key`.
        num_rows: How many rows to simulate.
        position: The parameters, of shape (d,).
        variances: The d >= 2 variances of a row's entries.
        curvature: The a of the parabola.
        shift: The parabola's b.
        vertex: The parabola's m.

    Returns:
        Rows of shape (num_rows, d).

    Example:
        >>> import jax
        >>> from dpmcmc import testing
        >>> key = jax.random.key(0)
        >>> testing.simulate_banana_rows(key, 5, [0.0, 1.0], [1.0, 1.0], curvature=2.0).shape
        (5, 2)
    """
    bend = parabola(curvature, shift, vertex)
    position = jnp.asarray(position, float)
    return simulate_gaussian_rows(
        rng_key, num_rows, position.at[1].add(bend(position[0])), checked_variances(variances)
    )


def simulate_circle_rows(
    rng_key: Key, num_rows: int, mean: float = 3.0, scale: float = 1.0
) -> Array:
    """Simulate rows for `models.circle` from N(mean, scale^2).

    The model itself does not define the law of its rows; this is that of
    :cite:p:`raisa2021thesis`.

    Args:
        rng_key: A key of `jax.random.key`.
        num_rows: How many rows to simulate.
        mean: The mean of the rows.
        scale: Their standard deviation.

    Returns:
        Rows of shape (num_rows,).

    Example:
        >>> import jax
        >>> from dpmcmc import testing
        >>> testing.simulate_circle_rows(jax.random.key(0), 5).shape
        (5,)
    """
    return mean + scale * jax.random.normal(rng_key, (num_rows,))


def simulate_mixture_rows(
    rng_key: Key,
    num_rows: int,
    position: Any = (0.0, 1.0),
    variance: float = 2.0,
    row_bound: float = 3.0,
) -> Array:
    """Simulate rows of `models.mixture` at a known position.

    Args:
        rng_key: A key of `jax.random.key`.
        num_rows: How many rows to simulate.
        position: The first center, and the distance from it to the second.
        variance: The variance of each component.
        row_bound: Rows outside [-row_bound, row_bound] are moved to its ends.

    Returns:
        Rows of shape (num_rows,).

    Example:
        >>> import jax
        >>> from dpmcmc import testing
        >>> testing.simulate_mixture_rows(jax.random.key(0), 5).shape
        (5,)
    """
    key_component, key_noise = jax.random.split(rng_key)
    position = jnp.asarray(position, float)
    center = position[0] + position[1] * jax.random.bernoulli(key_component, shape=(num_rows,))
    rows = center + jnp.sqrt(variance) * jax.random.normal(key_noise, (num_rows,))
    return jnp.clip(rows, -row_bound, row_bound)


def _regression_rows(
    rng_key: Key, num_rows: int, position: Any, radius: float, intercept: bool
) -> tuple[Array, Array, Key]:
    """Features (num_rows, num_features), uniform in a ball; z of each row; and a key to draw the
    responses with.
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
