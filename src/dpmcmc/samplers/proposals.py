"""Proposals: moves, drawn without reading rows.

A proposal is a pair of pure functions over a small memory (empty unless the walk is guided):

    init(rng_key, position) -> memory
    propose(rng_key, position, memory) -> (proposal, memory if accepted, memory if rejected)

The moves of random walks have a law that is unchanged when the move is reversed, so that no
proposal ratio enters the test. A cap on the length of a move shortens longer ones to it, keeping
their direction, which leaves the law symmetric. A proposal whose law is not symmetric says by what
the test is to be corrected: the logarithm of the ratio of proposal densities,

    log q(position | proposal) - log q(proposal | position),

which is public, because rows have no part in either, and is added to the prior's part of the
log-ratio.
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
    """How a random walk moves: pure functions.

    Attributes:
        init: From a key and a position to the memory of the walk, () if it has none.
        propose: From a key, a position and a memory to the proposal, the memory if it is accepted,
            and the memory if it is rejected.
        log_density_ratio: From a position and a proposal to log q(position | proposal) -
            log q(proposal | position). Without it the law of the moves must be symmetric.

    Example:
        >>> import jax
        >>> import dpmcmc
        >>> def propose(rng_key, position, memory):
        ...     return position + jax.random.normal(rng_key, position.shape), memory, memory
        >>> walk = dpmcmc.Proposal(init=lambda rng_key, position: (), propose=propose)
        >>> walk.init(jax.random.key(0), 0.0)
        ()
    """

    init: Callable[[Key, Position], Any]
    propose: Callable[[Key, Position, Any], tuple[Position, Any, Any]]
    log_density_ratio: Callable[[Position, Position], Any] = lambda position, proposal: 0.0


def random_walk(scale: Any, max_move: float = np.inf) -> Proposal:
    """Gaussian random walk that moves all components.

    Args:
        scale: A standard deviation, one for each component, or a matrix L for moves of covariance
            L L^T.
        max_move: The longest move; longer ones are shortened to it.

    Returns:
        The proposal.

    Raises:
        TypeError: scale is a `recipes.Moves`, which is to be unpacked.
        ValueError: scale or max_move is not positive, or scale has too many axes.

    Example:
        >>> import dpmcmc
        >>> walk = dpmcmc.random_walk(scale=0.1, max_move=0.2)
        >>> sorted(walk._fields)
        ['init', 'log_density_ratio', 'propose']
    """
    scale = _check(scale, max_move, largest_rank=2)

    def propose(rng_key, position, memory):
        _check_length(scale, position)
        normal = jax.random.normal(rng_key, position.shape, position.dtype)
        move = scale @ normal if scale.ndim == 2 else scale * normal
        return position + _shorten(move, max_move).astype(position.dtype), memory, memory

    return Proposal(lambda rng_key, position: (), propose)


def one_component(scale: Any, max_move: float = np.inf) -> Proposal:
    """Random walk that moves one component, drawn uniformly whatever the state, by N(0, scale^2).

    Args:
        scale: A standard deviation, or one for each component.
        max_move: The longest move; longer ones are shortened to it.

    Returns:
        The proposal.

    Raises:
        TypeError: scale is a `recipes.Moves`, which is to be unpacked.
        ValueError: scale or max_move is not positive, or scale has too many axes.

    Example:
        >>> import dpmcmc
        >>> walk = dpmcmc.one_component(scale=[0.1, 0.3], max_move=0.2)
        >>> sorted(walk._fields)
        ['init', 'log_density_ratio', 'propose']
    """
    scale = _check(scale, max_move, largest_rank=1)

    def propose(rng_key, position, memory):
        component, move = _component_move(rng_key, position, scale, max_move)
        return position.at[component].add(move), memory, memory

    return Proposal(lambda rng_key, position: (), propose)


def guided_walk(scale: Any, max_move: float = np.inf) -> Proposal:
    """Walk that moves one component by |N(0, scale^2)| in its current direction; it keeps the
    direction on acceptance and flips it on rejection.

    The target is invariant on (position, directions) :cite:p:`gustafson1998guided` because the
    component is drawn with probabilities that do not depend on the state.

    Args:
        scale: A standard deviation, or one for each component.
        max_move: The longest move; longer ones are shortened to it.

    Returns:
        The proposal. Its memory is one direction, 1 or -1, for each component.

    Raises:
        TypeError: scale is a `recipes.Moves`, which is to be unpacked.
        ValueError: scale or max_move is not positive, or scale has too many axes.

    Example:
        >>> import dpmcmc
        >>> walk = dpmcmc.guided_walk(scale=0.1, max_move=0.2)
        >>> sorted(walk._fields)
        ['init', 'log_density_ratio', 'propose']
    """
    scale = _check(scale, max_move, largest_rank=1)

    def init(rng_key, position):
        return jax.random.rademacher(rng_key, position.shape, position.dtype)

    def propose(rng_key, position, direction):
        component, move = _component_move(rng_key, position, scale, max_move)
        proposal = position.at[component].add(jnp.abs(move) * direction[component])
        return proposal, direction, direction.at[component].multiply(-1)

    return Proposal(init, propose)


def langevin_walk(log_density: Callable[[Position], Any], scale: float) -> Proposal:
    """Moves that drift up a public log-density g, such as that of a released posterior:

        proposal = position + scale^2 / 2 grad g(position) + scale N(0, I).

    The law is not symmetric, and the test is corrected for it: the posterior is kept whatever g is.
    A g near the log-posterior has more moves accepted. It must not read rows: what is known of them
    has to be released before, and paid for. Moves have no cap: a query with a longest move rejects
    longer ones.

    Args:
        log_density: The logarithm of a public density, up to a constant; differentiable.
        scale: The standard deviation of a move without its drift.

    Returns:
        The proposal.

    Raises:
        TypeError: log_density is not a function.
        ValueError: scale is not positive.

    Example:
        >>> import jax.numpy as jnp
        >>> import dpmcmc
        >>> walk = dpmcmc.langevin_walk(lambda position: -jnp.sum(position**2) / 2, scale=0.5)
        >>> float(walk.log_density_ratio(jnp.zeros(1), jnp.ones(1)))
        0.46875
    """
    if not callable(log_density):
        raise TypeError(
            f"log_density is a {type(log_density).__name__}: it must be a function of the position"
        )
    if not (is_number(scale) and scale > 0 and np.isfinite(scale)):
        raise ValueError(f"scale={scale!r} must be positive and finite: it is the size of a move")
    slope = jax.grad(log_density)

    def mean(position):
        return position + scale**2 / 2 * slope(position)

    def propose(rng_key, position, memory):
        noise = jax.random.normal(rng_key, position.shape, position.dtype)
        return mean(position) + scale * noise, memory, memory

    def log_density_ratio(position, proposal):
        there = jnp.sum((proposal - mean(position)) ** 2)
        back = jnp.sum((position - mean(proposal)) ** 2)
        return (there - back) / (2 * scale**2)

    return Proposal(lambda rng_key, position: (), propose, log_density_ratio)


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
    if not isinstance(max_move, jax.core.Tracer) and max_move == np.inf:
        return move
    longest = max_move * (1 - MARGIN)
    return move * (longest / jnp.maximum(jnp.linalg.norm(move), longest))


def _check(scale, max_move, largest_rank: int):
    if hasattr(scale, "max_move"):
        raise TypeError(
            "scale is a Moves, of a scale and a max_move: unpack it, as in random_walk(*moves)"
        )
    is_traced = isinstance(max_move, jax.core.Tracer)
    if not is_traced and not (is_number(max_move) and max_move > 0):
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
