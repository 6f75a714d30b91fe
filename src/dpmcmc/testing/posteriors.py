"""Exact tempered posteriors, computed from the rows, and independent draws of them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from dpmcmc.checks import positive, whole
from dpmcmc.models import _checks, mixture
from dpmcmc.models.banana import checked_variances, parabola
from dpmcmc.models.counts import checked_concentration
from dpmcmc.models.gaussian import HIGHEST, checked_covariance
from dpmcmc.types import Array, Key


def gaussian_posterior(rows, covariance, prior_scale=1.0, prior_mean=0.0, temperature: float = 1.0):
    """The exact tempered posterior's (mean, covariance). **Not private**: it reads the rows; for
    tests and figures.

    It is the posterior of the model without `radius`; with one, condition it on the ball.
    """
    covariance = checked_covariance(covariance)
    dimension = len(covariance)
    temperature = _checks.temperature(temperature)
    scale = _checks.prior_scale(prior_scale, dimension)
    center = _checks.vector("prior_mean", prior_mean, dimension, "it is the prior's mean")

    # In NumPy, so in float64 whatever the rows are: nothing here but their mean depends on them.
    dense = np.diag(covariance) if covariance.ndim == 1 else covariance
    row_precision = temperature * len(rows) * np.linalg.inv(dense)
    posterior_covariance = np.linalg.inv(row_precision + np.diag(scale**-2))
    gain = posterior_covariance @ row_precision
    offset = posterior_covariance @ (center / scale**2)

    row_mean = jnp.mean(rows, axis=0)
    mean = jnp.dot(jnp.asarray(gain, row_mean.dtype), row_mean, precision=HIGHEST) + jnp.asarray(
        offset, row_mean.dtype
    )
    return mean, jnp.asarray(posterior_covariance, row_mean.dtype)


def draw_gaussian_posterior(
    rng_key: Key, num_draws: int, rows, covariance, prior_scale=1.0, prior_mean=0.0, temperature=1.0
):
    """Independent draws (num_draws, d) of `gaussian_posterior`.

    **Not private**: for tests and figures.
    """
    mean, posterior_covariance = gaussian_posterior(
        rows, covariance, prior_scale, prior_mean, temperature
    )
    factor = jnp.linalg.cholesky(posterior_covariance)
    normals = jax.random.normal(rng_key, (num_draws, len(mean)), mean.dtype)
    return mean + jnp.dot(normals, factor.T, precision=HIGHEST)


def linear_posterior(
    rows, noise_scale: float, prior_scale=1.0, intercept: bool = False, temperature: float = 1.0
):
    """The exact tempered posterior's (mean, covariance). **Not private**: it reads the rows; for
    tests and figures.

    It is the posterior of the model without `position_radius`; with one, condition it on the ball.
    """
    temperature = _checks.temperature(temperature)
    features, response = map(jnp.asarray, rows)
    design = (
        jnp.concatenate([jnp.ones_like(features[:, :1]), features], axis=1)
        if intercept
        else features
    )
    dimension = design.shape[1]
    scale = _checks.prior_scale(prior_scale, dimension)
    weight = temperature / noise_scale**2
    cross = jnp.dot(design.T, design, precision=HIGHEST)
    covariance = jnp.linalg.inv(weight * cross + jnp.diag(jnp.asarray(scale**-2, design.dtype)))
    slope = weight * jnp.dot(design.T, response, precision=HIGHEST)
    return jnp.dot(covariance, slope, precision=HIGHEST), covariance


def draw_linear_posterior(
    rng_key: Key,
    num_draws: int,
    rows,
    noise_scale: float,
    prior_scale=1.0,
    intercept: bool = False,
    temperature: float = 1.0,
) -> Array:
    """Independent draws (num_draws, dimension) of `linear_posterior`.

    **Not private**: for tests and figures.
    """
    mean, covariance = linear_posterior(rows, noise_scale, prior_scale, intercept, temperature)
    normals = jax.random.normal(rng_key, (num_draws, len(mean)), mean.dtype)
    return mean + jnp.dot(normals, jnp.linalg.cholesky(covariance).T, precision=HIGHEST)


def binomial_posterior(
    rows,
    num_trials: int = 1,
    successes: float = 1.0,
    failures: float = 1.0,
    temperature: float = 1.0,
):
    """(a, b): the exact tempered posterior of p is Beta(a, b). **Not private**: it reads the rows;
    for tests and figures.
    """
    temperature = _checks.temperature(temperature)
    total = float(np.sum(np.asarray(rows), dtype=np.float64))
    return successes + temperature * total, failures + temperature * (
        len(rows) * num_trials - total
    )


def draw_binomial_posterior(
    rng_key: Key,
    num_draws: int,
    rows,
    num_trials: int = 1,
    successes: float = 1.0,
    failures: float = 1.0,
    temperature: float = 1.0,
) -> Array:
    """Independent draws (num_draws, 1) of theta. **Not private**: for tests and figures."""
    a, b = binomial_posterior(rows, num_trials, successes, failures, temperature)
    key_success, key_failure = jax.random.split(rng_key)
    # The logarithm of a gamma draw does not underflow where a beta draw would round to 0 or 1.
    gammas = (
        jax.random.loggamma(key_success, a, (num_draws, 1)),
        jax.random.loggamma(key_failure, b, (num_draws, 1)),
    )
    return gammas[0] - gammas[1]


def categorical_posterior(
    rows, num_categories: int, concentration=1.0, temperature: float = 1.0
) -> np.ndarray:
    """The concentration of the exact tempered posterior of p, a Dirichlet.

    **Not private**: it reads the rows.
    """
    temperature = _checks.temperature(temperature)
    counts = np.array([np.sum(np.asarray(rows) == category) for category in range(num_categories)])
    return checked_concentration(concentration, num_categories) + temperature * counts


def draw_categorical_posterior(
    rng_key: Key,
    num_draws: int,
    rows,
    num_categories: int,
    concentration=1.0,
    temperature: float = 1.0,
) -> Array:
    """Independent draws (num_draws, K - 1) of theta. **Not private**: for tests and figures."""
    posterior = categorical_posterior(rows, num_categories, concentration, temperature)
    # The logarithm of a gamma draw does not underflow where a Dirichlet draw would round to 0.
    gammas = jax.random.loggamma(
        rng_key, jnp.asarray(posterior, float), (num_draws, num_categories)
    )
    return gammas[:, :-1] - gammas[:, -1:]


def poisson_rate_posterior(
    rows, prior_shape: float = 1.0, prior_rate: float = 1.0, temperature: float = 1.0
):
    """(shape, rate): the exact tempered posterior of r is Gamma(shape, rate). **Not private**: it
    reads the rows.
    """
    temperature = _checks.temperature(temperature)
    total = float(np.sum(np.asarray(rows), dtype=np.float64))
    return prior_shape + temperature * total, prior_rate + temperature * len(rows)


def draw_poisson_rate_posterior(
    rng_key: Key,
    num_draws: int,
    rows,
    prior_shape: float = 1.0,
    prior_rate: float = 1.0,
    temperature: float = 1.0,
) -> Array:
    """Independent draws (num_draws, 1) of theta. **Not private**: for tests and figures."""
    shape, rate = poisson_rate_posterior(rows, prior_shape, prior_rate, temperature)
    return jax.random.loggamma(rng_key, shape, (num_draws, 1)) - np.log(rate)


def draw_banana_posterior(
    rng_key: Key,
    num_draws: int,
    rows,
    variances,
    curvature: float,
    shift: float = 0.0,
    vertex: float = 0.0,
    prior_scale=1.0,
    temperature: float = 1.0,
) -> Array:
    """Exact, independent draws (num_draws, d) of the tempered posterior.

    **Not private**: for tests and figures.
    """
    bend = parabola(curvature, shift, vertex)
    draws = draw_gaussian_posterior(
        rng_key, num_draws, rows, checked_variances(variances), prior_scale, 0.0, temperature
    )
    return draws.at[:, 1].add(-bend(draws[:, 0]))


def draw_circle_posterior(
    rng_key: Key,
    num_draws: int,
    rows,
    sharpness: float,
    radius: float | None = None,
    temperature: float = 1.0,
) -> Array:
    """Exact, independent draws (num_draws, 2) of the tempered posterior.

    **Not private**: for tests and figures.
    """
    sharpness = positive("sharpness", sharpness, "it is the a in -a (x^2 + y^2 - r^2)^2")
    temperature = _checks.temperature(temperature)
    key_angle, key_square = jax.random.split(rng_key)
    center = jnp.mean(jnp.square(rows))
    scale = (2 * len(rows) * sharpness * temperature) ** -0.5
    upper = jnp.inf if radius is None else (radius**2 - center) / scale
    normal = jax.random.truncated_normal(
        key_square, -center / scale, upper, (num_draws,), center.dtype
    )
    distance = jnp.sqrt(jnp.maximum(center + scale * normal, 0.0))
    angle = 2 * jnp.pi * jax.random.uniform(key_angle, (num_draws,), center.dtype)
    return distance[:, None] * jnp.stack([jnp.cos(angle), jnp.sin(angle)], axis=1)


def mixture_posterior(
    rows,
    variance: float = 2.0,
    position_bound: float = 3.0,
    temperature: float = 1.0,
    num_points: int = 100,
):
    """The tempered posterior on a grid: (axis, probabilities), with entry [i, j] the cell around
    (axis[i], axis[j]).

    The axis holds the midpoints of `num_points` equal cells. **Not private**: it reads the rows;
    for tests and figures.
    """
    temperature = _checks.temperature(temperature)
    num_points = whole(
        "num_points", num_points, 2, "the number of cells along each side of the square"
    )
    model = mixture(variance, position_bound=position_bound)
    axis = position_bound * ((2 * jnp.arange(num_points) + 1) / num_points - 1)
    points = jnp.stack(jnp.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    rows = jnp.asarray(rows)
    # One position at a time: num_points^2 times the rows would not fit.
    total = jax.lax.map(
        lambda point: jax.vmap(model.log_likelihood, (None, 0))(point, rows).sum(), points
    )
    return axis, jax.nn.softmax(temperature * total).reshape(num_points, num_points)
