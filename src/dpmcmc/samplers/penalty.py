"""The penalty test on a noisy ratio :cite:p:`yildirim2019exact` (Algorithm 1).

The curator releases r, the clipped log-likelihood ratio with Gaussian noise of variance v. The move
is accepted when

    log u  <  r + log p(x') - log p(x) + log q(x | x') - log q(x' | x) - v / 2 :

the correction v / 2 makes the chain exact for Gaussian noise of any size
:cite:p:`ceperley1999penalty`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dpmcmc.samplers import roles
from dpmcmc.samplers.proposals import Proposal
from dpmcmc.types import Array, Position, Query, Sampler


class WalkState(NamedTuple):
    """The state of a random walk.

    Attributes:
        position: Where the chain is.
        memory: What the proposal remembers: nothing, or the directions of a guided walk.
    """

    position: Position
    memory: Any


class PenaltyInfo(NamedTuple):
    """What a step reports.

    Attributes:
        is_accepted: Whether the move was accepted.
        log_ratio: The released noisy log-ratio, prior and proposal included.
        move_length: The length of the proposed move.
        is_outside: Whether the prior has no density at the proposal.
    """

    is_accepted: Array
    log_ratio: Array
    move_length: Array
    is_outside: Array


def penalty(log_prior: Callable[[Position], Array], ratio: Query, proposal: Proposal) -> Sampler:
    """Random-walk sampler that receives one noisy log-ratio per step.

    The answers of several owners add.

    Args:
        log_prior: The logarithm of the prior's density, up to a constant: `model.log_prior`.
        ratio: A `LogRatio` query, or one of a batch, such as `BatchRatio`.
        proposal: How the chain moves, such as `random_walk(scale)`.

    Returns:
        The sampler.

    Raises:
        TypeError: log_prior is not a function, or proposal is not a `Proposal`.

    Example:
        >>> import dpmcmc
        >>> model = dpmcmc.models.logistic(1, radius=1.0)
        >>> ratio = dpmcmc.queries.LogRatio(model.lipschitz, noise_multiplier=30.0)
        >>> sampler = dpmcmc.penalty(model.log_prior, ratio, dpmcmc.random_walk(scale=0.1))

        ``dpmcmc.sample(rng_key, sampler, curator, position)`` runs it.
    """
    roles.check_prior(log_prior)
    roles.check_proposal(proposal)

    def init(rng_key, position, ask):
        return WalkState(position, proposal.init(rng_key, position))

    def step(rng_key, state, ask):
        key_move, key_ask, key_accept = jax.random.split(rng_key, 3)
        point, if_accepted, if_rejected = proposal.propose(key_move, state.position, state.memory)
        answer = ask(key_ask, ratio, state.position, point)
        log_ratio = answer.value + public_part(log_prior, proposal, state.position, point)
        is_accepted = passes(key_accept, log_ratio, answer.variance)
        info = PenaltyInfo(
            is_accepted,
            log_ratio,
            jnp.linalg.norm(point - state.position),
            is_outside(log_prior, point),
        )
        return choose(is_accepted, point, if_accepted, state, if_rejected), info

    return Sampler(init, step)


def public_part(
    log_prior: Callable[[Position], Array], proposal: Proposal, position: Position, point: Position
) -> Array:
    """What the prior and an asymmetric proposal contribute to the log-ratio."""
    of_prior = log_prior(point) - log_prior(position)
    return of_prior + proposal.log_density_ratio(position, point)


def is_outside(log_prior: Callable[[Position], Array], point: Position) -> Array:
    """Whether the prior has no density there."""
    return ~(log_prior(point) > -jnp.inf)


def passes(rng_key, log_ratio, variance):
    """The penalty test on a log-ratio with noise of this variance."""
    # -exponential() is the logarithm of a uniform; a NaN compares false, so it is a rejection.
    return -jax.random.exponential(rng_key) < log_ratio - variance / 2


def choose(is_accepted, point, if_accepted, state: WalkState, if_rejected) -> WalkState:
    """The next state, given the outcome of the test."""
    return WalkState(
        position=jnp.where(is_accepted, point, state.position),
        memory=jax.tree.map(
            lambda yes, no: jnp.where(is_accepted, yes, no), if_accepted, if_rejected
        ),
    )
