r"""Langevin dynamics on noisy gradients :cite:p:`welling2011bayesian`, private by its gradients
alone :cite:p:`wang2015privacy`.

    x' = x + (h/2) P (G + grad log p(x)) + sqrt(C) N(0, I),      C = h P

with h the step_size and P the preconditioner.

G is the released gradient of the log-likelihood, its noise of the public variance v. No test
corrects the step, so the law of x is off by O(h). The published private version moves by h where
this one moves by h/2, with the same noise: its posterior is too narrow by a factor sqrt(2); half
the gradient is what Langevin dynamics asks for.

The noise in G moves x too, by a covariance (h/2)^2 v P P that the dynamics did not ask for. It is
known, so by default it is taken off the injected noise:  C = h P - (h^2 v / 4) P P,  along each
eigenvector of P as far as it stays above zero. The total is then exactly h P as long as  h v P <=
4:  private noise replaces part of the Langevin noise, and up to there it is for free.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dpmcmc.samplers import roles, scaling
from dpmcmc.types import Array, Position, Query, Sampler

UNSUBTRACTED = 0.1  # of the step's noise: what is not taken off widens the variance by as much


class LangevinState(NamedTuple):
    """Where the chain is."""

    position: Position
    index: Array  # of the next step, for the schedule


class LangevinInfo(NamedTuple):
    """What was released on the way."""

    gradient: Array  # of the log-likelihood, as released
    move: Array  # from the position before
    # Variance of the step's noise over what the dynamics asks for, in the worst direction: 1, or
    # more
    noise_ratio: Array
    # The noise of the gradient exceeds what the step injects, in some direction (or widens by a
    # tenth)
    is_saturated: Array
    is_outside: Array  # the step led to where the prior has no density, and was not taken
    is_divergent: Array  # the step became non-finite, and was not taken


def sgld(
    log_prior: Callable[[Position], Array],
    gradient: Query,
    step_size: float | Callable[[Array], Array],
    preconditioner: Any = None,
    *,
    subtract_noise: bool = True,
) -> Sampler:
    """Langevin sampler that sees one noisy gradient per step.

    A step out of the prior's support is not taken.

    Parameters
    ----------
    gradient
        a `Gradient` query, of all rows or of a batch.
    step_size
        h, or a schedule: a function of the step's index 0, 1, 2, ... The bill does not depend on
        it.
    preconditioner
        P: None for the identity, a number, d positive numbers, or a positive definite matrix (d,
        d); best near the posterior covariance. It must not come from the rows except through
        answers: of a private start, ``inv(start.precision)``.
    subtract_noise
        whether the known noise of the gradient is taken off the injected noise. If not, it widens
        the posterior.
    """
    roles.check_prior(log_prior)
    step_at = scaling.schedule(step_size)
    precondition = scaling.axes("preconditioner", preconditioner)
    scales = precondition.scales

    def init(rng_key, position, ask):
        return LangevinState(position, jnp.zeros((), jnp.int32))

    def step(rng_key, state, ask):
        key_ask, key_noise = jax.random.split(rng_key)
        answer = ask(key_ask, gradient, state.position)
        h = jnp.asarray(step_at(state.index), state.position.dtype)
        slope = precondition.into(answer.value + jax.grad(log_prior)(state.position))
        # Of the step's noise that the gradient brings already
        share = h * answer.variance * scales / 4
        taken = share if subtract_noise else jnp.zeros(())
        deviation = jnp.sqrt(h * scales * jnp.maximum(1 - taken, 0))
        normal = jax.random.normal(key_noise, state.position.shape, state.position.dtype)
        move = precondition.out_of(h / 2 * scales * slope + deviation * normal)
        proposal = (state.position + move).astype(state.position.dtype)
        is_divergent = scaling.is_lost(proposal)
        is_outside = ~is_divergent & ~(log_prior(proposal) > -jnp.inf)
        position = jnp.where(is_outside | is_divergent, state.position, proposal)
        noise_ratio = jnp.max(share + jnp.maximum(1 - taken, 0))
        is_saturated = noise_ratio > 1 + (0 if subtract_noise else UNSUBTRACTED) + scaling.ROUNDING
        info = LangevinInfo(
            answer.value,
            position - state.position,
            noise_ratio,
            is_saturated,
            is_outside,
            is_divergent,
        )
        return LangevinState(position, state.index + 1), info

    return Sampler(init, step)
