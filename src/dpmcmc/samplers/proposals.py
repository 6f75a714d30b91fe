"""Proposals: symmetric moves, drawn without a look at the rows.

A proposal is a pair of pure functions over a small memory (empty unless the walk is guided):

    init(rng_key, position) -> memory
    propose(rng_key, position, memory) -> (proposal, memory if accepted, memory if rejected)

Every move here has a law that is unchanged when the move is reversed, so no proposal ratio enters
the test. A cap on the length of a move shortens longer ones to it, keeping their direction, which
leaves the law symmetric.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpmcmc.checks import NO_NUMBERS, is_number
from dpmcmc.types import Key, Position

# Adding a move to a position rounds: a capped move stops this much short, so that it still is
# within the cap afterwards.
MARGIN = 1e-3


class Proposal(NamedTuple):
    """How a sampler moves."""

    init: Callable[[Key, Position], Any]
    propose: Callable[[Key, Position, Any], tuple[Position, Any, Any]]


def random_walk(scale: Any, max_move: float = np.inf) -> Proposal:
    """Gaussian random walk.

    `scale`: a standard deviation, one per component, or a matrix L for moves of covariance L L^T.
    """
    scale = _check(scale, max_move, largest_rank=2)

    def propose(rng_key, position, memory):
        _check_length(scale, position)
        normal = jax.random.normal(rng_key, position.shape, position.dtype)
        move = scale @ normal if scale.ndim == 2 else scale * normal
        return position + _shorten(move, max_move).astype(position.dtype), memory, memory

    return Proposal(lambda rng_key, position: (), propose)


def one_component(scale: Any, max_move: float = np.inf) -> Proposal:
    """Move one component, drawn uniformly whatever the state, by N(0, scale^2); `scale` may differ
    between components.
    """
    scale = _check(scale, max_move, largest_rank=1)

    def propose(rng_key, position, memory):
        component, move = _component_move(rng_key, position, scale, max_move)
        return position.at[component].add(move), memory, memory

    return Proposal(lambda rng_key, position: (), propose)


def guided_walk(scale: Any, max_move: float = np.inf) -> Proposal:
    """Move one component by |N(0, scale^2)| in its current direction; keep the direction on
    acceptance, flip it on rejection.

    The target is invariant on (position, directions) :cite:p:`gustafson1998guided` because the
    component is drawn with probabilities that do not depend on the state.
    """
    scale = _check(scale, max_move, largest_rank=1)

    def init(rng_key, position):
        return jax.random.rademacher(rng_key, position.shape, position.dtype)

    def propose(rng_key, position, direction):
        component, move = _component_move(rng_key, position, scale, max_move)
        proposal = position.at[component].add(jnp.abs(move) * direction[component])
        return proposal, direction, direction.at[component].multiply(-1)

    return Proposal(init, propose)


def _check_length(scale, position) -> None:
    if scale.ndim and scale.shape != (position.size,) * scale.ndim:
        raise ValueError(
            f"scale of shape {scale.shape} does not fit positions of {position.size} entries"
        )


def _component_move(rng_key, position, scale, max_move):
    _check_length(scale, position)
    key_component, key_move = jax.random.split(rng_key)
    component = jax.random.randint(key_component, (), 0, position.size)
    own_scale = jnp.broadcast_to(scale, position.shape)[component]
    move = own_scale * jax.random.normal(key_move, (), position.dtype)
    return component, _shorten(move, max_move).astype(position.dtype)


def _shorten(move, max_move):
    if max_move == np.inf:
        return move
    longest = max_move * (1 - MARGIN)
    return move * (longest / jnp.maximum(jnp.linalg.norm(move), longest))


def _check(scale, max_move, largest_rank: int):
    if hasattr(scale, "max_move"):
        raise TypeError(
            "scale is a Walk, of a scale and a max_move: unpack it, as in random_walk(*walk)"
        )
    if not (is_number(max_move) and max_move > 0):
        raise ValueError(f"max_move={max_move!r} must be positive: it caps the length of a move")
    # Made of answers inside a compiled program: its values cannot be checked
    if isinstance(scale, jax.core.Tracer):
        return scale
    if np.asarray(scale).dtype.kind in NO_NUMBERS:
        raise ValueError(
            f"scale={scale!r} must be a number, or an array of them: it is the size of a move"
        )
    scale = np.asarray(scale, np.float32)
    if scale.ndim > largest_rank or not np.all(np.isfinite(scale)):
        raise ValueError(
            f"scale of shape {scale.shape} must be finite, with at most {largest_rank} axes"
        )
    if scale.ndim < 2 and not np.all(scale > 0):
        raise ValueError(f"scale={scale} must be positive: it is the size of a move")
    return scale
