"""A private start, billed: noisy Newton steps from a public point, shared by all chains.

One noisy curvature matrix at the public point, then noisy gradients:

    A = C + (minus the Hessian of the log prior),  its eigenvalues lifted to at least what the noise in C could fake
    x <- x + A^-1 (G(x) + grad log prior(x)),      `num_steps` times, each halved until it ends where the prior has density

For logistic regression the curvature at zero is the largest anywhere (every row's weight p (1 - p) is at most 1/4), so the steps
never overshoot. What was paid for is kept: the last point starts the chains, and A is handed to the sampler, whose mass matrix or
preconditioner may be made of it.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from dpmcmc.samplers import roles
from dpmcmc.types import Array, Ask, Key, Position, Query

HALVINGS = 24


class Start(NamedTuple):
    """What a private start has learned: all of it made of released answers."""

    position: Position
    precision: Array  # (d, d): about the inverse of the posterior covariance, positive definite


def newton_start(
    log_prior: Callable[[Position], Array], gradient: Query, curvature: Query, num_steps: int = 8
) -> Callable[[Key, Position, Ask], Start]:
    """A start for `sample(start=...)`: asks `curvature` once and `gradient` `num_steps` times, whatever the number of chains."""
    roles.check_prior(log_prior)
    if not isinstance(num_steps, numbers.Integral) or num_steps < 1:
        raise ValueError(f"num_steps={num_steps!r} must be a whole number, at least 1")

    def start(rng_key, position, ask):
        key_curvature, key_steps = jax.random.split(rng_key)
        answer = ask(key_curvature, curvature, position)
        # A symmetric matrix of noise of variance v has eigenvalues up to about sqrt(2 d v).
        floor = jnp.sqrt(2 * position.size * answer.variance)
        precision = lift(answer.value - jax.hessian(log_prior)(position), floor)

        def newton(index, point):
            slope = ask(jax.random.fold_in(key_steps, index), gradient, point).value + jax.grad(log_prior)(point)
            return _inside(log_prior, point, jnp.linalg.solve(precision, slope))

        return Start(lax.fori_loop(0, num_steps, newton, position), precision)

    return start


def _inside(log_prior: Callable[[Position], Array], point: Position, step: Array) -> Position:
    """The end of the step, or of half of it, a quarter, ...: the first of them where the prior has any density."""
    shares = 0.5 ** jnp.arange(HALVINGS, dtype=point.dtype)
    is_inside = jax.vmap(lambda share: log_prior(point + share * step) > -jnp.inf)(shares)
    return jnp.where(jnp.any(is_inside), point + shares[jnp.argmax(is_inside)] * step, point)


def lift(matrix: Array, floor: Array) -> Array:
    """The symmetric matrix with its eigenvalues raised to at least `floor`."""
    values, vectors = jnp.linalg.eigh(matrix)
    return (vectors * jnp.maximum(values, floor)) @ vectors.T
