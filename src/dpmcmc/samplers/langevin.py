r"""Langevin dynamics on noisy gradients :cite:p:`welling2011bayesian`, private by its gradients
alone :cite:p:`wang2015privacy`.

    x' = x + (h/2) P (G + grad log p(x)) + sqrt(C) N(0, I),      C = h P

with h the step_size and P the preconditioner.

G is the released gradient of the log-likelihood, its noise of the public variance v. No test
corrects the step, so the law of x is off by O(h). The published private version moves by h where
this one moves by h/2, with the same noise: its posterior is too narrow by a factor sqrt(2); half
the gradient is what Langevin dynamics asks for.

The noise in G moves x too, by an additional covariance (h/2)^2 v P P. It is known, so by default it
is subtracted from the injected noise:  C = h P - (h^2 v / 4) P P,  along each
eigenvector of P as far as it stays above zero. The total is then exactly h P as long as  h v P <=
4:  up to there private noise only replaces a part of the Langevin noise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dpmcmc.samplers import roles, scaling
from dpmcmc.types import Array, Position, Query, Sampler

MAX_UNSUBTRACTED = 0.1  # of the variance, added by noise that is not subtracted


class LangevinState(NamedTuple):
    """The state of the chain.

    Attributes:
        position: Where the chain is.
        index: The index of the next step, for the schedule.
    """

    position: Position
    index: Array


class LangevinInfo(NamedTuple):
    """What a step reports.

    Attributes:
        gradient: The released gradient of the log-likelihood.
        move: The move from the position before.
        noise_ratio: The variance of the step's noise over what the dynamics requires, in the worst
            direction: 1 or more.
        is_saturated: Whether the gradient's noise is more than the step may add in some direction;
            if it is not subtracted, whether it adds a tenth to the variance.
        is_outside: Whether the step led to where the prior has no density, and was not taken.
        is_divergent: Whether the step became non-finite, and was not taken.
    """

    gradient: Array
    move: Array
    noise_ratio: Array
    is_saturated: Array
    is_outside: Array
    is_divergent: Array


def sgld(
    log_prior: Callable[[Position], Array],
    gradient: Query,
    step_size: float | Callable[[Array], Array],
    preconditioner: Any = None,
    *,
    subtract_noise: bool = True,
) -> Sampler:
    """Langevin sampler that receives one noisy gradient per step.

    A step out of the prior's support is not taken.

    Args:
        log_prior: The logarithm of the prior's density, up to a constant: `model.log_prior`.
        gradient: A `Gradient` query, of all rows or of a batch.
        step_size: h, or a schedule: a function of the step's index 0, 1, 2, ... The bill does not
            depend on it.
        preconditioner: P: None for the identity, a number, d positive numbers, or a positive
            definite matrix of shape (d, d); best near the posterior covariance. It must not come
            from the rows except through answers: of a private start, ``inv(start.precision)``.
        subtract_noise: Whether the known noise of the gradient is subtracted from the injected
            noise. If not, it widens the posterior.

    Returns:
        The sampler.

    Raises:
        TypeError: log_prior is not a function.
        ValueError: step_size or preconditioner is not positive.

    Example:
        >>> import dpmcmc
        >>> model = dpmcmc.models.logistic(1, radius=1.0)
        >>> gradient = dpmcmc.queries.Gradient(model.lipschitz, noise_multiplier=30.0)
        >>> sampler = dpmcmc.sgld(model.log_prior, gradient, step_size=1e-3)

        ``dpmcmc.sample(rng_key, sampler, curator, position)`` runs it;
        `dpmcmc.recipes.langevin_for` chooses the noise and the step size.
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
        force = precondition.into(answer.value + jax.grad(log_prior)(state.position))
        # The part of the step's noise that the gradient's noise supplies
        share = h * answer.variance * scales / 4
        subtracted = share if subtract_noise else jnp.zeros(())
        deviation = jnp.sqrt(h * scales * jnp.maximum(1 - subtracted, 0))
        normal = jax.random.normal(key_noise, state.position.shape, state.position.dtype)
        move = precondition.out_of(h / 2 * scales * force + deviation * normal)
        proposal = (state.position + move).astype(state.position.dtype)
        is_divergent = scaling.is_non_finite(proposal)
        is_outside = ~is_divergent & ~(log_prior(proposal) > -jnp.inf)
        position = jnp.where(is_outside | is_divergent, state.position, proposal)
        noise_ratio = jnp.max(share + jnp.maximum(1 - subtracted, 0))
        is_saturated = (
            noise_ratio > 1 + (0 if subtract_noise else MAX_UNSUBTRACTED) + scaling.ROUNDING
        )
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
