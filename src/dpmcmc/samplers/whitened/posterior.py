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
from dpmcmc.samplers.whitened.independent import Normal, independent_draws, symmetric
from dpmcmc.samplers.whitened.matrices import LEAST_SPREAD
from dpmcmc.samplers.whitened.start import Whitened
from dpmcmc.types import Array, Position, Sampler


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
    numbers = _Numbers(len(found.point), is_radial)

    def draw(drawn: Array, normal: Normal) -> Position:
        return found.axes @ _draw(numbers.parts(drawn), found, normal)

    return independent_draws(log_prior, found.position, numbers.total, draw)


class _Numbers(NamedTuple):
    """The standard normal numbers that one draw takes."""

    dimension: int
    is_radial: bool

    @property
    def total(self) -> int:
        """How many."""
        d = self.dimension
        return 2 * d * d + d + (d + 1 if self.is_radial else 0)

    def parts(self, drawn: Array) -> tuple[Array, Array, Array]:
        """For the noise of both matrices, for phi, and for the scale of radial noise."""
        d = self.dimension
        matrices = symmetric(drawn[: 2 * d * d].reshape(2, d, d))
        return matrices, drawn[2 * d * d :][:d], drawn[2 * d * d + d :]


def _draw(numbers: tuple[Array, Array, Array], found: Whitened, normal: Normal) -> Array:
    """phi."""
    for_matrices, for_phi, for_scale = numbers
    dimension = len(found.point)
    matrices = found.matrices
    noisy = jnp.stack([matrices.slope, matrices.spread])
    noisy = noisy + jnp.sqrt(matrices.variance) * for_matrices
    floors = jnp.stack([matrices.floor, jnp.full_like(matrices.floor, LEAST_SPREAD)])
    slope, score_spread = jax.vmap(lift)(noisy, floors)
    noise = _noise_variance(for_scale, found)
    total = (1 + found.misfit) * score_spread + noise * jnp.eye(dimension)
    score = found.gradient + slope @ found.point
    root = jnp.linalg.cholesky(total)
    solved = jax.scipy.linalg.solve_triangular(root, jnp.column_stack([slope, score]), lower=True)
    axes = found.axes
    known = solved.T @ solved  # slope' total^-1 slope, and the same with the score
    precision = known[:-1, :-1] + axes.T @ normal.precision @ axes
    pull = known[:-1, -1] + axes.T @ normal.pull
    root = jnp.linalg.cholesky(precision)
    middle = jax.scipy.linalg.solve_triangular(root, pull, lower=True)
    return jax.scipy.linalg.solve_triangular(root.T, middle + for_phi, lower=False)


def _noise_variance(drawn: Array, found: Whitened) -> Array:
    """The variance of the noise in the combined score: its last part is radial where numbers are
    drawn for its scale.
    """
    parts = found.shares**2 * found.variances
    scale = jnp.mean(drawn**2) if len(drawn) else 1.0
    return jnp.sum(parts[:-1]) + scale * parts[-1]
