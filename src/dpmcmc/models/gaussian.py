r"""The mean of a Gaussian whose covariance is known.

    row x ~ N(theta, S),      theta ~ N(m, diag(s^2)),      theta and x in R^d

With n rows and the likelihood raised to the power T (the temperature factor, 1 when nothing is
tempered) the posterior is again Gaussian, with precision P and mean

    P = T n S^-1 + diag(s^-2),      mean = P^-1 (T n S^-1 xbar + s^-2 m).

The log-likelihood leaves out its constant: only differences between positions are ever used, and in
float32 a constant costs digits. With W the inverse of S's Cholesky factor it is  -|W (x - theta)|^2
/ 2.

**Bound.** The gradient S^-1 (x - theta) has no bound over all of R^d. If every row lies in the ball
of radius R around 0, so does their mean, and restricting the prior to that ball changes the
posterior little. The ball is convex, so then

    |log-ratio| <= |S^-1 (x - theta)| |theta' - theta| <= 2 R / (smallest eigenvalue of S) |theta' -
    theta|,

which is attained by a row and a position at opposite ends of the eigenvector. Around -S^-1 theta,
the same for all rows, gradients spread over half of that. The Hessian is -S^-1, whatever the row.
The row itself, |x| <= R, is then a sufficient statistic with a public bound: natural parameter S^-1
theta, log-partition theta . S^-1 theta / 2.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpmcmc.checks import positive
from dpmcmc.models import _checks
from dpmcmc.types import Array, Family, Model

# An accelerator's default rounds float32 factors to 10 bits; ratios need all 24
HIGHEST = jax.lax.Precision.HIGHEST


def gaussian(
    covariance: Any, prior_scale: Any = 1.0, prior_mean: Any = 0.0, radius: float | None = None
) -> Model:
    """The mean of Gaussian rows of shape (d,) whose covariance is known.

    Args:
        covariance: Of shape (d, d), or variances of shape (d,) for independent columns.
        prior_scale: Standard deviation of the normal prior, one for all entries or one for each.
        prior_mean: Mean of the prior, one number or one for each entry.
        radius: Declares that rows lie in the ball of this radius around 0, and restricts the prior
            to it: then `lipschitz` is proved and there is a `family`. Start the chain inside.
            Without it only `hessian_bound` is proved: choose a clip.

    Returns:
        The model.

    Raises:
        ValueError: An argument is out of its range.

    Example:
        >>> from dpmcmc import models
        >>> models.gaussian([1.0, 4.0], radius=2.0).lipschitz
        4.0
    """
    covariance = checked_covariance(covariance)
    dimension = len(covariance)
    scale = _checks.prior_scale(prior_scale, dimension)
    center = _checks.vector("prior_mean", prior_mean, dimension, "it is the prior's mean")
    whitener = _whitener(covariance)

    def log_likelihood(position: Array, row: Array) -> Array:
        _checks.row(row, (dimension,))
        deviation = row - position
        weights = jnp.asarray(whitener, deviation.dtype)
        white = (
            weights * deviation
            if weights.ndim == 1
            else jnp.dot(weights, deviation, precision=HIGHEST)
        )
        return _checks.if_known(row, -0.5 * jnp.sum(white**2))

    def log_prior(position: Array) -> Array:
        deviation = (position - jnp.asarray(center, position.dtype)) / jnp.asarray(
            scale, position.dtype
        )
        log_density = -0.5 * jnp.sum(deviation**2)
        return (
            log_density
            if radius is None
            else jnp.where(jnp.sum(position**2) <= radius**2, log_density, -jnp.inf)
        )

    bound = _bound(covariance, radius)
    family = _family(covariance, radius)
    return Model(
        log_likelihood,
        log_prior,
        unravel=lambda position: {"mean": position},
        dimension=dimension,
        lipschitz=bound,
        hessian_bound=float(
            np.linalg.norm(1 / covariance if covariance.ndim == 1 else np.linalg.inv(covariance))
        ),
        family=family,
        declared=None if radius is None else f"|row| <= {radius:g}",
        center=None if family is None else lambda position: -family.natural(position),
        spread=None if bound is None else bound / 2,
        self_concordance=0.0,
    )


def checked_covariance(covariance: Any) -> np.ndarray:
    """A covariance as given, (d, d) or (d,) variances, or a ValueError."""
    array = np.asarray(covariance, dtype=float)
    if array.ndim == 1 and array.size and np.isfinite(array).all() and (array > 0).all():
        return array
    if array.ndim != 2 or array.shape[0] != array.shape[1] or not np.isfinite(array).all():
        raise ValueError(
            f"covariance of shape {array.shape} must be finite: a (d, d) matrix, or (d,) positive "
            "variances"
        )
    if not np.allclose(array, array.T) or np.linalg.eigvalsh(array)[0] <= 0:
        raise ValueError(
            f"covariance={array.tolist()} must be symmetric with positive eigenvalues: it is a "
            "covariance"
        )
    return array


def _whitener(covariance: np.ndarray) -> np.ndarray:
    """The inverse of the Cholesky factor; of variances the vector on its diagonal."""
    if covariance.ndim == 1:
        return np.reciprocal(np.sqrt(covariance))
    return np.linalg.inv(np.linalg.cholesky(covariance))


def _bound(covariance: np.ndarray, radius: float | None) -> float | None:
    if radius is None:
        return None
    radius = positive(
        "radius", radius, "rows and positions lie in the ball of this radius around 0"
    )
    smallest = covariance.min() if covariance.ndim == 1 else np.linalg.eigvalsh(covariance)[0]
    return float(2 * radius / smallest)


def _family(covariance: np.ndarray, radius: float | None) -> Family | None:
    if radius is None:
        return None
    precision = np.reciprocal(covariance) if covariance.ndim == 1 else np.linalg.inv(covariance)

    def natural(position: Array) -> Array:
        weights = jnp.asarray(precision, position.dtype)
        return (
            weights * position
            if weights.ndim == 1
            else jnp.dot(weights, position, precision=HIGHEST)
        )

    return Family(
        lambda row: row,
        natural,
        lambda position: jnp.sum(position * natural(position)) / 2,
        float(radius),
    )
