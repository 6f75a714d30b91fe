"""The penalty test on a noisy ratio :cite:p:`yildirim2019exact` (Algorithm 1).

The curator releases r, the clipped log-likelihood ratio with Gaussian noise of variance v. The move
is accepted when

    log u  <  r + log p(x') - log p(x) - v / 2 :

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
    """Where the chain is."""

    position: Position
    memory: Any  # the proposal's: empty, or the directions of a guided walk


class PenaltyInfo(NamedTuple):
    """What was released on the way."""

    is_accepted: Array
    log_ratio: Array  # as released: noisy, prior included
    move_length: Array  # of what was proposed
    is_outside: Array  # the prior has no density there


def penalty(log_prior: Callable[[Position], Array], ratio: Query, proposal: Proposal) -> Sampler:
    """Random-walk sampler that sees one noisy log-ratio per step: the answer to `ratio`, a
    `LogRatio` or a batch's. Owners' add.
    """
    roles.check_prior(log_prior)
    roles.check_proposal(proposal)

    def init(rng_key, position, ask):
        return WalkState(position, proposal.init(rng_key, position))

    def step(rng_key, state, ask):
        key_move, key_ask, key_accept = jax.random.split(rng_key, 3)
        point, if_accepted, if_rejected = proposal.propose(key_move, state.position, state.memory)
        answer = ask(key_ask, ratio, state.position, point)
        log_ratio = answer.value + log_prior(point) - log_prior(state.position)
        is_accepted = passes(key_accept, log_ratio, answer.variance)
        info = PenaltyInfo(
            is_accepted,
            log_ratio,
            jnp.linalg.norm(point - state.position),
            is_outside(log_prior, point),
        )
        return choose(is_accepted, point, if_accepted, state, if_rejected), info

    return Sampler(init, step)


def is_outside(log_prior: Callable[[Position], Array], point: Position) -> Array:
    """Whether the prior has no density there."""
    return ~(log_prior(point) > -jnp.inf)


def passes(rng_key, log_ratio, variance):
    """The penalty test on a log-ratio with noise of this variance."""
    # -exponential() is the logarithm of a uniform; a NaN compares false, so it is a rejection.
    return -jax.random.exponential(rng_key) < log_ratio - variance / 2


def choose(is_accepted, point, if_accepted, state: WalkState, if_rejected) -> WalkState:
    """The next state, once the test has spoken."""
    return WalkState(
        position=jnp.where(is_accepted, point, state.position),
        memory=jax.tree.map(
            lambda yes, no: jnp.where(is_accepted, yes, no), if_accepted, if_rejected
        ),
    )
