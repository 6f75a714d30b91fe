"""Exact tempered posteriors, computed from the rows, and independent draws of them.

**Not private**: for tests and figures only.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpmcmc.checks import positive, whole
from dpmcmc.models import _checks, mixture
from dpmcmc.models.banana import checked_variances, parabola
from dpmcmc.models.counts import checked_concentration
from dpmcmc.models.gaussian import HIGHEST, checked_covariance
from dpmcmc.types import Array, Key


def gaussian_posterior(
    rows: Any,
    covariance: Any,
    prior_scale: Any = 1.0,
    prior_mean: Any = 0.0,
    temperature: float = 1.0,
) -> tuple[Array, Array]:
    """The exact posterior of `models.gaussian`, perhaps tempered.

    It is the posterior of the model without `radius`. With one, condition it on the ball. **Not
    private**: it reads the rows.

    Args:
        rows: Rows of shape (n, d).
        covariance: Shape (d, d), or variances of shape (d,).
        prior_scale: Standard deviation of the normal prior, one for all entries or one for each.
        prior_mean: Mean of the prior, one number or one for each entry.
        temperature: The power of the likelihood; 1 is the posterior itself.

    Returns:
        Mean (d,) and covariance (d, d).

    Example:
        >>> import jax.numpy as jnp
        >>> from dpmcmc import testing
        >>> mean, _ = testing.gaussian_posterior(jnp.ones((9, 2)), [1.0, 1.0])
        >>> [round(float(value), 3) for value in mean]
        [0.9, 0.9]
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
    rng_key: Key,
    num_draws: int,
    rows: Any,
    covariance: Any,
    prior_scale: Any = 1.0,
    prior_mean: Any = 0.0,
    temperature: float = 1.0,
) -> Array:
    """Independent draws of `gaussian_posterior`.

    **Not private**: it reads the rows.

    Args:
        rng_key: A key of `jax.random.key`.
        num_draws: How many draws to make.
        rows: Rows of shape (n, d).
        covariance: Shape (d, d), or variances of shape (d,).
        prior_scale: Standard deviation of the normal prior, one for all entries or one for each.
        prior_mean: Mean of the prior, one number or one for each entry.
        temperature: The power of the likelihood; 1 is the posterior itself.

    Returns:
        Draws of shape (num_draws, d).

    Example:
        >>> import jax
        >>> import jax.numpy as jnp
        >>> from dpmcmc import testing
        >>> rows = jnp.ones((9, 2))
        >>> testing.draw_gaussian_posterior(jax.random.key(0), 5, rows, [1.0, 1.0]).shape
        (5, 2)
    """
    mean, posterior_covariance = gaussian_posterior(
        rows, covariance, prior_scale, prior_mean, temperature
    )
    factor = jnp.linalg.cholesky(posterior_covariance)
    normals = jax.random.normal(rng_key, (num_draws, len(mean)), mean.dtype)
    return mean + jnp.dot(normals, factor.T, precision=HIGHEST)


def linear_posterior(
    rows: Any,
    noise_scale: float,
    prior_scale: Any = 1.0,
    intercept: bool = False,
    temperature: float = 1.0,
) -> tuple[Array, Array]:
    """The exact posterior of `models.linear`, perhaps tempered.

    It is the posterior of the model without `position_radius`. With one, condition it on the
    ball. **Not private**: it reads the rows.

    Args:
        rows: Rows (x, y).
        noise_scale: The standard deviation of y around z.
        prior_scale: Standard deviation of the normal priors, one for all or one for each.
        intercept: Whether z has an intercept; it then comes first.
        temperature: The power of the likelihood; 1 is the posterior itself.

    Returns:
        Mean (d,) and covariance (d, d).

    Example:
        >>> import jax.numpy as jnp
        >>> from dpmcmc import testing
        >>> rows = (jnp.ones((9, 1)), jnp.ones(9))
        >>> mean, covariance = testing.linear_posterior(rows, noise_scale=1.0)
        >>> round(float(mean[0]), 3), round(float(covariance[0, 0]), 3)
        (0.9, 0.1)
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
    shift = weight * jnp.dot(design.T, response, precision=HIGHEST)
    return jnp.dot(covariance, shift, precision=HIGHEST), covariance


def draw_linear_posterior(
    rng_key: Key,
    num_draws: int,
    rows: Any,
    noise_scale: float,
    prior_scale: Any = 1.0,
    intercept: bool = False,
    temperature: float = 1.0,
) -> Array:
    """Independent draws of `linear_posterior`.

    **Not private**: it reads the rows.

    Args:
        rng_key: A key of `jax.random.key`.
        num_draws: How many draws to make.
        rows: Rows (x, y).
        noise_scale: The standard deviation of y around z.
        prior_scale: Standard deviation of the normal priors, one for all or one for each.
        intercept: Whether z has an intercept; it then comes first.
        temperature: The power of the likelihood; 1 is the posterior itself.

    Returns:
        Draws of shape (num_draws, d).

    Example:
        >>> import jax
        >>> import jax.numpy as jnp
        >>> from dpmcmc import testing
        >>> rows = (jnp.ones((9, 1)), jnp.ones(9))
        >>> testing.draw_linear_posterior(jax.random.key(0), 5, rows, noise_scale=1.0).shape
        (5, 1)
    """
    mean, covariance = linear_posterior(rows, noise_scale, prior_scale, intercept, temperature)
    normals = jax.random.normal(rng_key, (num_draws, len(mean)), mean.dtype)
    return mean + jnp.dot(normals, jnp.linalg.cholesky(covariance).T, precision=HIGHEST)


def binomial_posterior(
    rows: Any,
    num_trials: int = 1,
    successes: float = 1.0,
    failures: float = 1.0,
    temperature: float = 1.0,
) -> tuple[float, float]:
    """The exact posterior of `models.binomial`, perhaps tempered.

    **Not private**: it reads the rows.

    Args:
        rows: Counts of shape (n,).
        num_trials: The number of trials behind each count.
        successes: The first parameter of the Beta prior.
        failures: The second one.
        temperature: The power of the likelihood; 1 is the posterior itself.

    Returns:
        The a and b of the posterior of the success probability, which is Beta(a, b).

    Example:
        >>> import numpy as np
        >>> from dpmcmc import testing
        >>> testing.binomial_posterior(np.array([1, 0, 1]))
        (3.0, 2.0)
    """
    temperature = _checks.temperature(temperature)
    total = float(np.sum(np.asarray(rows), dtype=np.float64))
    return successes + temperature * total, failures + temperature * (
        len(rows) * num_trials - total
    )


def draw_binomial_posterior(
    rng_key: Key,
    num_draws: int,
    rows: Any,
    num_trials: int = 1,
    successes: float = 1.0,
    failures: float = 1.0,
    temperature: float = 1.0,
) -> Array:
    """Independent draws of the position of `models.binomial`.

    **Not private**: it reads the rows.

    Args:
        rng_key: A key of `jax.random.key`.
        num_draws: How many draws to make.
        rows: Counts of shape (n,).
        num_trials: The number of trials behind each count.
        successes: The first parameter of the Beta prior.
        failures: The second one.
        temperature: The power of the likelihood; 1 is the posterior itself.

    Returns:
        Log-odds of shape (num_draws, 1).

    Example:
        >>> import jax
        >>> import jax.numpy as jnp
        >>> from dpmcmc import testing
        >>> testing.draw_binomial_posterior(jax.random.key(0), 5, jnp.array([1, 0, 1])).shape
        (5, 1)
    """
    a, b = binomial_posterior(rows, num_trials, successes, failures, temperature)
    key_success, key_failure = jax.random.split(rng_key)
    # The logarithm of a gamma draw does not underflow where a beta draw would round to 0 or 1.
    gammas = (
        jax.random.loggamma(key_success, a, (num_draws, 1)),
        jax.random.loggamma(key_failure, b, (num_draws, 1)),
    )
    return gammas[0] - gammas[1]


def categorical_posterior(
    rows: Any, num_categories: int, concentration: Any = 1.0, temperature: float = 1.0
) -> np.ndarray:
    """The exact posterior of `models.categorical`, perhaps tempered.

    **Not private**: it reads the rows.

    Args:
        rows: Codes of shape (n,).
        num_categories: The number K of categories.
        concentration: Of the Dirichlet prior: one number, or one for each category.
        temperature: The power of the likelihood; 1 is the posterior itself.

    Returns:
        The concentration of the posterior of the probabilities, a Dirichlet law, of shape (K,).

    Example:
        >>> import numpy as np
        >>> from dpmcmc import testing
        >>> testing.categorical_posterior(np.array([0, 2, 2]), num_categories=3).tolist()
        [2.0, 1.0, 3.0]
    """
    temperature = _checks.temperature(temperature)
    counts = np.array([np.sum(np.asarray(rows) == category) for category in range(num_categories)])
    return checked_concentration(concentration, num_categories) + temperature * counts


def draw_categorical_posterior(
    rng_key: Key,
    num_draws: int,
    rows: Any,
    num_categories: int,
    concentration: Any = 1.0,
    temperature: float = 1.0,
) -> Array:
    """Independent draws of the position of `models.categorical`.

    **Not private**: it reads the rows.

    Args:
        rng_key: A key of `jax.random.key`.
        num_draws: How many draws to make.
        rows: Codes of shape (n,).
        num_categories: The number K of categories.
        concentration: Of the Dirichlet prior: one number, or one for each category.
        temperature: The power of the likelihood; 1 is the posterior itself.

    Returns:
        Log-ratios to the last category, of shape (num_draws, K - 1).

    Example:
        >>> import jax
        >>> import jax.numpy as jnp
        >>> from dpmcmc import testing
        >>> rows = jnp.array([0, 2, 2])
        >>> testing.draw_categorical_posterior(jax.random.key(0), 5, rows, 3).shape
        (5, 2)
    """
    posterior = categorical_posterior(rows, num_categories, concentration, temperature)
    # The logarithm of a gamma draw does not underflow where a Dirichlet draw would round to 0.
    gammas = jax.random.loggamma(
        rng_key, jnp.asarray(posterior, float), (num_draws, num_categories)
    )
    return gammas[:, :-1] - gammas[:, -1:]


def poisson_rate_posterior(
    rows: Any, prior_shape: float = 1.0, prior_rate: float = 1.0, temperature: float = 1.0
) -> tuple[float, float]:
    """The exact posterior of `models.poisson_rate`, perhaps tempered.

    **Not private**: it reads the rows.

    Args:
        rows: Counts of shape (n,).
        prior_shape: The shape of the Gamma prior.
        prior_rate: Its rate.
        temperature: The power of the likelihood; 1 is the posterior itself.

    Returns:
        The shape and rate of the posterior of the rate, a Gamma law.

    Example:
        >>> import numpy as np
        >>> from dpmcmc import testing
        >>> testing.poisson_rate_posterior(np.array([2, 3]))
        (6.0, 3.0)
    """
    temperature = _checks.temperature(temperature)
    total = float(np.sum(np.asarray(rows), dtype=np.float64))
    return prior_shape + temperature * total, prior_rate + temperature * len(rows)


def draw_poisson_rate_posterior(
    rng_key: Key,
    num_draws: int,
    rows: Any,
    prior_shape: float = 1.0,
    prior_rate: float = 1.0,
    temperature: float = 1.0,
) -> Array:
    """Independent draws of the position of `models.poisson_rate`.

    **Not private**: it reads the rows.

    Args:
        rng_key: A key of `jax.random.key`.
        num_draws: How many draws to make.
        rows: Counts of shape (n,).
        prior_shape: The shape of the Gamma prior.
        prior_rate: Its rate.
        temperature: The power of the likelihood; 1 is the posterior itself.

    Returns:
        Logarithms of the rate, of shape (num_draws, 1).

    Example:
        >>> import jax
        >>> import jax.numpy as jnp
        >>> from dpmcmc import testing
        >>> testing.draw_poisson_rate_posterior(jax.random.key(0), 5, jnp.array([2, 3])).shape
        (5, 1)
    """
    shape, rate = poisson_rate_posterior(rows, prior_shape, prior_rate, temperature)
    return jax.random.loggamma(rng_key, shape, (num_draws, 1)) - np.log(rate)


def draw_banana_posterior(
    rng_key: Key,
    num_draws: int,
    rows: Any,
    variances: Any,
    curvature: float,
    shift: float = 0.0,
    vertex: float = 0.0,
    prior_scale: Any = 1.0,
    temperature: float = 1.0,
) -> Array:
    """Exact, independent draws of the posterior of `models.banana`, perhaps tempered.

    **Not private**: it reads the rows.

    Args:
        rng_key: A key of `jax.random.key`.
        num_draws: How many draws to make.
        rows: Rows of shape (n, d).
        variances: The d >= 2 variances of a row's entries.
        curvature: The a of the parabola.
        shift: The parabola's b.
        vertex: The parabola's m.
        prior_scale: Standard deviation of the straightened position's prior.
        temperature: The power of the likelihood; 1 is the posterior itself.

    Returns:
        Draws of shape (num_draws, d).

    Example:
        >>> import jax
        >>> import jax.numpy as jnp
        >>> from dpmcmc import testing
        >>> rows = jnp.ones((9, 2))
        >>> draws = testing.draw_banana_posterior(
        ...     jax.random.key(0), 5, rows, [1.0, 1.0], curvature=2.0
        ... )
        >>> draws.shape
        (5, 2)
    """
    bend = parabola(curvature, shift, vertex)
    draws = draw_gaussian_posterior(
        rng_key, num_draws, rows, checked_variances(variances), prior_scale, 0.0, temperature
    )
    return draws.at[:, 1].add(-bend(draws[:, 0]))


def draw_circle_posterior(
    rng_key: Key,
    num_draws: int,
    rows: Any,
    sharpness: float,
    radius: float | None = None,
    temperature: float = 1.0,
) -> Array:
    """Exact, independent draws of the posterior of `models.circle`, perhaps tempered.

    **Not private**: it reads the rows.

    Args:
        rng_key: A key of `jax.random.key`.
        num_draws: How many draws to make.
        rows: Rows of shape (n,).
        sharpness: The a of the log-likelihood.
        radius: The declared bound of |r|, if the model has it.
        temperature: The power of the likelihood; 1 is the posterior itself.

    Returns:
        Draws of shape (num_draws, 2).

    Example:
        >>> import jax
        >>> import jax.numpy as jnp
        >>> from dpmcmc import testing
        >>> testing.draw_circle_posterior(jax.random.key(0), 5, jnp.ones(9), sharpness=1.0).shape
        (5, 2)
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
    rows: Any,
    variance: float = 2.0,
    position_bound: float = 3.0,
    temperature: float = 1.0,
    num_points: int = 100,
) -> tuple[Array, Array]:
    """The posterior of `models.mixture` on a grid, perhaps tempered.

    **Not private**: it reads the rows.

    Args:
        rows: Rows of shape (n,).
        variance: The variance of each component.
        position_bound: Half the side of the square on which the prior is flat.
        temperature: The power of the likelihood; 1 is the posterior itself.
        num_points: The number of cells along each side of the square.

    Returns:
        The midpoints of `num_points` equal cells, and the probabilities (num_points, num_points)
            where entry [i, j] is that of the cell around (midpoints[i], midpoints[j]).

    Example:
        >>> import jax.numpy as jnp
        >>> from dpmcmc import testing
        >>> midpoints, probabilities = testing.mixture_posterior(jnp.ones(9), num_points=4)
        >>> midpoints.tolist()
        [-2.25, -0.75, 0.75, 2.25]
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
