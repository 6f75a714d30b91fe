"""Random walks that see the accept bit alone.

The sampler sends the move and the public part c = log p(x') - log p(x) of the log-ratio; the
curator adds the rows' part, tosses a coin of probability a(l) and releases the bit. With Barker's
test :cite:p:`barker1965` a(l) = 1 / (1 + e^-l) the coin itself is the noise; lazy Barker and the
penalty test trade acceptance for a smaller bill. All are exact when no row reaches the clip.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from dpmcmc.samplers import roles
from dpmcmc.samplers.penalty import WalkState, choose, is_outside
from dpmcmc.samplers.proposals import Proposal
from dpmcmc.types import Array, Position, Query, Sampler, is_standing


class AcceptInfo(NamedTuple):
    """What was released on the way."""

    is_accepted: Array
    move_length: Array  # of what was proposed
    is_outside: Array  # the prior has no density there


class FilteredInfo(NamedTuple):
    """What was released on the way, when a filter may stop the answers."""

    is_accepted: Array
    is_answered: Array  # false once the filter is used up: the chain then stays where it is
    is_outside: Array  # the prior has no density there


def accept_walk(log_prior: Callable[[Position], Array], bit: Query, proposal: Proposal) -> Sampler:
    """Random-walk sampler that sees one accept bit per step: the answer to `bit`, such as `Accept`
    or `PenaltyAccept`.
    """
    roles.check_prior(log_prior)
    roles.check_proposal(proposal)

    def init(rng_key, position, ask):
        return WalkState(position, proposal.init(rng_key, position))

    def step(rng_key, state, ask):
        key_move, key_ask = jax.random.split(rng_key)
        point, if_accepted, if_rejected = proposal.propose(key_move, state.position, state.memory)
        answer = ask(
            key_ask, bit, state.position, point, log_prior(point) - log_prior(state.position)
        )
        move_length = jnp.linalg.norm(point - state.position)
        state = choose(answer.value, point, if_accepted, state, if_rejected)
        if is_standing(bit):
            return state, FilteredInfo(
                answer.value, jnp.isfinite(answer.variance), is_outside(log_prior, point)
            )
        return state, AcceptInfo(answer.value, move_length, is_outside(log_prior, point))

    return Sampler(init, step)
