"""Independent draws from a law that is simple where the prior is normal.

The numbers of a draw are all drawn with one key: a compiler takes most of its time for each key.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from dpmcmc.samplers.whitened.coordinates import lift
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


class Normal(NamedTuple):
    """The normal law that stands for a prior: its precision, and precision times mean."""

    precision: Array
    pull: Array

    def log_density(self, position: Position) -> Array:
        """Its logarithm, up to a constant."""
        return self.pull @ position - position @ self.precision @ position / 2


def independent_draws(
    log_prior: Callable[[Position], Array],
    near: Position,
    number: int,
    draw: Callable[[Array, Normal], Position],
) -> Sampler:
    """A chain of draws with a normal law in place of the prior, each weighed by the prior.

    Args:
        log_prior: The logarithm of the prior's density, up to a constant.
        near: Where the normal law has the gradient and the Hessian of the prior.
        number: How many numbers a draw is made of.
        draw: From so many standard normal numbers and the normal law to a draw.

    Returns:
        The sampler. All draws are accepted where the prior is normal.
    """
    normal = _near(log_prior, near)

    def made(drawn: Array) -> Draw:
        position = draw(drawn[:number], normal).astype(near.dtype)
        return Draw(position, log_prior(position) - normal.log_density(position))

    def drawn(rng_key: Key) -> Array:
        return jax.random.normal(rng_key, (number + 1,), near.dtype)

    def init(rng_key, position, ask):
        return made(drawn(rng_key))

    def step(rng_key, state, ask):
        fresh = drawn(rng_key)
        proposal = made(fresh)
        gain = proposal.log_weight - state.log_weight + ROUNDING
        uniform = jax.scipy.special.ndtr(fresh[-1])
        is_accepted = (jnp.log(uniform) < gain) | ~jnp.isfinite(state.log_weight)
        chosen = jax.tree.map(lambda new, old: jnp.where(is_accepted, new, old), proposal, state)
        return chosen, DrawInfo(is_accepted)

    return Sampler(init, step)


def _near(log_prior: Callable[[Position], Array], position: Position) -> Normal:
    """The normal law with the prior's gradient and Hessian at this position."""
    hessian = jax.hessian(log_prior)(position)
    gradient = jax.grad(log_prior)(position)
    known = lift(jnp.where(jnp.isfinite(hessian), -hessian, 0), jnp.zeros(()))
    return Normal(known, jnp.where(jnp.isfinite(gradient), gradient, 0) + known @ position)


def symmetric(drawn: Array) -> Array:
    """Symmetric noise of standard normal numbers: variance 1 on the diagonal, 1/2 off it."""
    return (drawn + jnp.swapaxes(drawn, -1, -2)) / 2
