"""Random walks that receive only the accept bit.

The sampler sends the move and the public part of the log-ratio, c = log p(x') - log p(x), with that
of an asymmetric proposal; the curator adds the rows' part, tosses a coin of probability a(l) and
releases the bit. With Barker's test :cite:p:`barker1965` a(l) = 1 / (1 + e^-l) the coin itself is
the noise; lazy Barker and the penalty test have a smaller bill and accept less often. All are exact
when no row is clipped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from dpmcmc.samplers import roles
from dpmcmc.samplers.penalty import WalkState, choose, is_outside, public_part
from dpmcmc.samplers.proposals import Proposal
from dpmcmc.types import Array, Position, Query, Sampler, is_standing


class AcceptInfo(NamedTuple):
    """What a step reports.

    Attributes:
        is_accepted: Whether the move was accepted.
        move_length: The length of the proposed move.
        is_outside: Whether the prior has no density at the proposal.
    """

    is_accepted: Array
    move_length: Array
    is_outside: Array


class FilteredInfo(NamedTuple):
    """What a step reports when a filter may stop the answers.

    Attributes:
        is_accepted: Whether the move was accepted.
        is_answered: False once the filter is used up; the chain then stays where it is.
        is_outside: Whether the prior has no density at the proposal.
    """

    is_accepted: Array
    is_answered: Array
    is_outside: Array


def accept_walk(log_prior: Callable[[Position], Array], bit: Query, proposal: Proposal) -> Sampler:
    """Random-walk sampler that receives one accept bit per step.

    Args:
        log_prior: The logarithm of the prior's density, up to a constant: `model.log_prior`.
        bit: The query for the bit, such as `Accept` or `PenaltyAccept`.
        proposal: How the chain moves, such as `random_walk(scale)`.

    Returns:
        The sampler.

    Raises:
        TypeError: log_prior is not a function, or proposal is not a `Proposal`.

    Example:
        >>> import dpmcmc
        >>> model = dpmcmc.models.logistic(1, radius=1.0)
        >>> longest = 0.1
        >>> bit = dpmcmc.queries.Accept(dpmcmc.Barker(), bound=model.lipschitz * longest)
        >>> walk = dpmcmc.random_walk(scale=0.1, max_move=longest)
        >>> sampler = dpmcmc.accept_walk(model.log_prior, bit, walk)

        ``dpmcmc.sample(rng_key, sampler, curator, position)`` runs it.
    """
    roles.check_prior(log_prior)
    roles.check_proposal(proposal)

    def init(rng_key, position, ask):
        return WalkState(position, proposal.init(rng_key, position))

    def step(rng_key, state, ask):
        key_move, key_ask = jax.random.split(rng_key)
        point, if_accepted, if_rejected = proposal.propose(key_move, state.position, state.memory)
        public = public_part(log_prior, proposal, state.position, point)
        answer = ask(key_ask, bit, state.position, point, public)
        move_length = jnp.linalg.norm(point - state.position)
        state = choose(answer.value, point, if_accepted, state, if_rejected)
        if is_standing(bit):
            return state, FilteredInfo(
                answer.value, jnp.isfinite(answer.variance), is_outside(log_prior, point)
            )
        return state, AcceptInfo(answer.value, move_length, is_outside(log_prior, point))

    return Sampler(init, step)
