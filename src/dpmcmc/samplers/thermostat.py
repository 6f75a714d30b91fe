r"""A Nose-Hoover thermostat on noisy gradients :cite:p:`ding2014bayesian`, private by its gradients
alone.

    dx = L u dt,                                                    L L^T = P
    du = L^T (G + grad log p(x)) dt - f u dt + sqrt(2 A) dW
    df = (|u|^2 / d - 1) dt

The friction f grows while the momentum u is too hot and falls while it is too cold, so it settles
where it balances the injected noise, of strength A, and the noise of the gradient, however strong.
One step takes one gradient, at its middle:

    half a move of x; half a kick of u; half a step of f; friction and noise on u for a whole step,
    exactly; then the same half steps in reverse order.

This symmetric splitting :cite:p:`leimkuhler2016adaptive` has an error O(h^2) where the papers'
Euler steps have O(h). No test corrects it. The law of the gradient's noise is public; by default
that noise is subtracted from the injected one, in each axis of P as far as it stays above zero: one
friction cannot balance noise that differs between axes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dpmcmc.samplers import roles, scaling
from dpmcmc.types import Array, Position, Query, Sampler


class ThermostatState(NamedTuple):
    """The state of the chain.

    Attributes:
        position: Where the chain is.
        momentum: u, in the axes of P.
        friction: f.
        index: The index of the next step, for the schedule.
    """

    position: Position
    momentum: Array
    friction: Array
    index: Array


class ThermostatInfo(NamedTuple):
    """What a step reports.

    Attributes:
        friction: The friction f.
        momentum: u, in the axes of P: standard normal if one friction suits all directions.
        move: The move from the position before.
        is_saturated: Whether the gradient's noise is more than the step may add in some direction.
        is_outside: Whether the step led to where the prior has no density, and was not taken.
        is_divergent: Whether the step became non-finite, and was not taken.
    """

    friction: Array
    momentum: Array
    move: Array
    is_saturated: Array
    is_outside: Array
    is_divergent: Array


def sgnht(
    log_prior: Callable[[Position], Array],
    gradient: Query,
    step_size: float | Callable[[Array], Array],
    friction: float = 1.0,
    preconditioner: Any = None,
    *,
    subtract_noise: bool = True,
) -> Sampler:
    """Thermostat sampler that receives one noisy gradient per step.

    A step out of the prior's support is not taken, and reverses the momentum.

    Args:
        log_prior: The logarithm of the prior's density, up to a constant: `model.log_prior`.
        gradient: A `Gradient` query, of all rows or of a batch.
        step_size: h, or a schedule: a function of the step's index 0, 1, 2, ... The bill does not
            depend on it.
        friction: A, the strength of the injected noise, and the first value of the friction.
        preconditioner: P: None for the identity, a number, d positive numbers, or a positive
            definite matrix of shape (d, d); best near the posterior covariance. It must not come
            from the rows except through answers.
        subtract_noise: Whether the known noise of the gradient is subtracted from the injected
            noise.

    Returns:
        The sampler.

    Raises:
        TypeError: log_prior is not a function.
        ValueError: step_size, friction or preconditioner is not positive.

    Example:
        >>> import dpmcmc
        >>> model = dpmcmc.models.logistic(1, radius=1.0)
        >>> gradient = dpmcmc.queries.Gradient(model.lipschitz, noise_multiplier=30.0)
        >>> sampler = dpmcmc.sgnht(model.log_prior, gradient, step_size=0.01, friction=5.0)

        ``dpmcmc.sample(rng_key, sampler, curator, position)`` runs it.
    """
    roles.check_prior(log_prior)
    step_at = scaling.schedule(step_size)
    precondition = scaling.axes("preconditioner", preconditioner)
    scaling.check_positive("friction", friction, "it drives the momentum")
    roots = precondition.scales**0.5

    def init(rng_key, position, ask):
        momentum = jax.random.normal(rng_key, position.shape, position.dtype)
        return ThermostatState(
            position, momentum, jnp.asarray(friction, position.dtype), jnp.zeros((), jnp.int32)
        )

    def step(rng_key, state, ask):
        key_ask, key_noise = jax.random.split(rng_key)
        h = jnp.asarray(step_at(state.index), state.position.dtype)
        middle = state.position + h / 2 * precondition.out_of(roots * state.momentum)
        answer = ask(key_ask, gradient, middle)
        kick = h / 2 * roots * precondition.into(answer.value + jax.grad(log_prior)(middle))

        known = answer.variance * (h * roots / 2) ** 2 if subtract_noise else jnp.zeros(())
        momentum, heat, is_saturated = _bathed(
            key_noise, state.momentum + kick, state.friction, friction, h, known
        )
        momentum = momentum + kick

        proposal = (middle + h / 2 * precondition.out_of(roots * momentum)).astype(middle.dtype)
        is_divergent = scaling.is_non_finite(proposal)
        is_outside = ~is_divergent & ~(log_prior(proposal) > -jnp.inf)
        position = jnp.where(is_outside | is_divergent, state.position, proposal)
        momentum = jnp.where(is_outside | is_divergent, -state.momentum, momentum)
        # With a friction that is not finite the chain would never move again
        heat = jnp.where(is_divergent, state.friction, heat)
        info = ThermostatInfo(
            heat, momentum, position - state.position, is_saturated, is_outside, is_divergent
        )
        return ThermostatState(position, momentum, heat, state.index + 1), info

    return Sampler(init, step)


def _bathed(rng_key, momentum, heat, friction: float, h, known):
    """Momentum and friction after the thermostat's part of a step, and whether the gradient's noise
    was more than the step may add.

    `known` is the variance that the gradient's noise gives to one of the two kicks.
    """
    heat = heat + h / 2 * (jnp.mean(momentum**2) - 1)
    decay = jnp.exp(-heat * h)
    injected = 2 * friction * h * _share(2 * heat * h)
    known = known * (1 + decay) ** 2
    normal = jax.random.normal(rng_key, momentum.shape, momentum.dtype)
    momentum = decay * momentum + jnp.sqrt(jnp.maximum(injected - known, 0)) * normal
    is_saturated = jnp.any(known > injected * (1 + scaling.ROUNDING))
    return momentum, heat + h / 2 * (jnp.mean(momentum**2) - 1), is_saturated


def _share(exponent):
    """(1 - e^-x) / x, and 1 at 0."""
    safe = jnp.where(exponent == 0, 1.0, exponent)
    return jnp.where(exponent == 0, 1.0, -jnp.expm1(-safe) / safe)
