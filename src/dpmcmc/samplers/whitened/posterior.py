r"""The posterior given what a whitened start has released: independent draws, which ask nothing.

With x = A phi the parameters, the mean gradient g at the mean point p of `whitened.start` has this
law:

    g - J (phi - p)  ~  N(0, (1 + b) V) + sum of weight_i e_i,

e_i the noise of the i-th gradient, b the allowance for a model that does not hold. J and V are
known with noise of a known law. A draw of the posterior is made of

    1. J and V, from their noise,
    2. the variance of the last gradient's noise, if that is radial: it is a mixture of normal laws,
       z | tau ~ N(0, tau I), where tau over the mean variance is the mean of d + 1 squared standard
       normal numbers (:cite:p:`andrews1974scale`),
    3. phi, from the normal law that the likelihood of phi and the prior then give:

       phi ~ N(m, Q^-1),   S = (1 + b) V + noise I,   Q = J S^-1 J + P,
       Q m = J S^-1 (g + J p) + (the prior's).

This is exact where the prior is normal. For any other one the draw is a proposal, whose acceptance
weighs it by the prior over that normal law (an independence chain).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from dpmcmc.samplers import roles
from dpmcmc.samplers.whitened.coordinates import lift
from dpmcmc.samplers.whitened.matrices import LEAST_SPREAD
from dpmcmc.samplers.whitened.start import Whitened
from dpmcmc.types import Array, Key, Position, Sampler

ROUNDING = 1e-4  # of log weights, which are equal where the prior is normal


class Draw(NamedTuple):
    """Where the chain is.

    Attributes:
        position: The draw.
        log_weight: The logarithm of the prior over the normal law that stands for it.
    """

    position: Position
    log_weight: Array


class DrawInfo(NamedTuple):
    """What is kept with a draw.

    Attributes:
        is_accepted: Whether it is a new one.
    """

    is_accepted: Array


class _Normal(NamedTuple):
    """The normal law that stands for the prior: its precision, and precision times mean."""

    precision: Array
    pull: Array

    def log_density(self, position: Position) -> Array:
        return self.pull @ position - position @ self.precision @ position / 2


def whitened_posterior(
    log_prior: Callable[[Position], Array], found: Whitened, is_radial: bool = True
) -> Sampler:
    """Sampler of the posterior given what a whitened start has released.

    Args:
        log_prior: The logarithm of the prior's density, up to a constant: `model.log_prior`.
        found: What the start has released.
        is_radial: Whether the noise of the last gradient is radial, and else normal.

    Returns:
        The sampler. Its draws are independent where the prior is normal.

    Raises:
        TypeError: log_prior is not a function, or found is not what such a start releases.
    """
    roles.check_prior(log_prior)
    if not isinstance(found, Whitened):
        raise TypeError(
            f"found is a {type(found).__name__}: give what a whitened start has released"
        )
    normal = _near(log_prior, found.position)

    def draw(rng_key: Key) -> Draw:
        position = found.axes @ _draw(rng_key, found, normal, is_radial)
        position = position.astype(found.position.dtype)
        return Draw(position, log_prior(position) - normal.log_density(position))

    def init(rng_key, position, ask):
        return draw(rng_key)

    def step(rng_key, state, ask):
        key_draw, key_accept = jax.random.split(rng_key)
        proposal = draw(key_draw)
        gain = proposal.log_weight - state.log_weight + ROUNDING
        uniform = jax.random.uniform(key_accept, dtype=state.position.dtype)
        is_accepted = (jnp.log(uniform) < gain) | ~jnp.isfinite(state.log_weight)
        chosen = jax.tree.map(lambda new, old: jnp.where(is_accepted, new, old), proposal, state)
        return chosen, DrawInfo(is_accepted)

    return Sampler(init, step)


def _near(log_prior: Callable[[Position], Array], position: Position) -> _Normal:
    """The normal law with the prior's gradient and Hessian at this position."""
    hessian = jax.hessian(log_prior)(position)
    gradient = jax.grad(log_prior)(position)
    known = lift(jnp.where(jnp.isfinite(hessian), -hessian, 0), jnp.zeros(()))
    return _Normal(known, jnp.where(jnp.isfinite(gradient), gradient, 0) + known @ position)


def _draw(rng_key: Key, found: Whitened, normal: _Normal, is_radial: bool) -> Array:
    """phi."""
    key_slope, key_spread, key_scale, key_phi = jax.random.split(rng_key, 4)
    dimension = len(found.point)
    matrices = found.matrices
    spread = jnp.sqrt(matrices.variance)
    slope = lift(matrices.slope + spread * symmetric(key_slope, dimension), matrices.floor)
    score_spread = lift(matrices.spread + spread * symmetric(key_spread, dimension), LEAST_SPREAD)
    noise = _noise_variance(key_scale, found, is_radial)
    total = (1 + found.misfit) * score_spread + noise * jnp.eye(dimension)
    known = slope @ jnp.linalg.solve(total, slope)
    axes = found.axes
    precision = known + axes.T @ normal.precision @ axes
    pull = (
        slope @ jnp.linalg.solve(total, found.gradient + slope @ found.point) + axes.T @ normal.pull
    )
    root = jnp.linalg.cholesky(precision)
    standard = jax.random.normal(key_phi, (dimension,), root.dtype)
    middle = jax.scipy.linalg.cho_solve((root, True), pull)
    return middle + jax.scipy.linalg.solve_triangular(root.T, standard, lower=False)


def _noise_variance(rng_key: Key, found: Whitened, is_radial: bool) -> Array:
    """The variance of the noise in the combined score."""
    parts = found.shares**2 * found.variances
    if not is_radial:
        return jnp.sum(parts)
    scale = jnp.mean(jax.random.normal(rng_key, (len(found.point) + 1,), parts.dtype) ** 2)
    return jnp.sum(parts[:-1]) + scale * parts[-1]


def symmetric(rng_key: Key, dimension: int) -> Array:
    """Symmetric noise: variance 1 on the diagonal, 1/2 off it."""
    noise = jax.random.normal(rng_key, (dimension, dimension))
    return (noise + noise.T) / 2
