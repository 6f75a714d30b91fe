r"""Hamiltonian Monte Carlo on noisy gradients (:cite:p:`raisa2021hamiltonian`, Algorithm 1).

The leapfrog uses released gradients G of the log-likelihood; a test on the log-likelihood ratio
accepts or rejects its end:

    p ~ N(0, M)
    p <- p + (h/2) (G + grad log prior)
    L times:  x <- x + h M^-1 p,   p <- p + h (G + grad log prior),  the last kick halved
    log-ratio = log-likelihood ratio + log prior ratio
                + kinetic energy before - kinetic energy after

**Why the chain is exact despite the noise.** For each fixed noise of each gradient, a step and then
a flip of the momentum is its own inverse. So the proposal is reversible for any noise whose law
depends on the position alone (Gaussian or not), on every kick, the outer ones included. Noise and
clipping of gradients reduce acceptance and change nothing else.

**Reuse.** The chain lives on pairs (x, G). The last gradient of an accepted path is the first of
the next; after a rejection the old first gradient is kept. That is L gradients a step, and one at
the start. Both rules are needed: to draw the first gradient again only after rejections, or to keep
the last one after them, is biased. Without reuse every step draws its first gradient afresh, L + 1
in all.

**Step sizes** are multiplied by 1 - jitter * v_k, where v_k runs through a randomised Halton
sequence in base 2: the bits of k in reverse, each flipped or not by a coin tossed once for each
chain. They do not depend on the state, so each step keeps the target.

The paper's position update lacks the step size h, and its test the logarithm of the uniform draw;
both are as above here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dpmcmc.checks import is_number, whole
from dpmcmc.samplers import roles, scaling
from dpmcmc.samplers.penalty import passes
from dpmcmc.types import Array, Position, Query, Sampler, is_standing, traits


class HMCState(NamedTuple):
    """The state of the chain.

    Attributes:
        position: Where the chain is.
        gradient: The released gradient of the log-likelihood there; zero without reuse.
        index: The index of the next step.
        flips: 32 coins that make the chain's own random Halton sequence.
    """

    position: Position
    gradient: Array
    index: Array
    flips: Array


class HMCInfo(NamedTuple):
    """What a step reports.

    Attributes:
        is_accepted: Whether the end of the path was accepted.
        is_divergent: Whether the trajectory became non-finite or left the prior's support.
        move_length: The distance from the start of the path to its end.
    """

    is_accepted: Array
    is_divergent: Array
    move_length: Array


def hmc(
    log_prior: Callable[[Position], Array],
    gradient: Query,
    test: Query,
    step_size: float,
    num_leapfrog: int,
    mass: Any = None,
    *,
    reuse: bool = True,
    jitter: float = 1.0,
) -> Sampler:
    """Hamiltonian sampler on noisy gradients, with a private test of each path's end.

    It asks for `num_leapfrog` gradients and one test per step, and one gradient at the beginning.

    Args:
        log_prior: The logarithm of the prior's density, up to a constant: `model.log_prior`.
        gradient: A `Gradient` query, of all rows unless the time saved by a batch is worth its
            noise.
        test: A `LogRatio` query for the penalty test on a released ratio, or a `PenaltyAccept` or
            `Accept` query for the bit alone. A `PenaltyAccept` rejects every path longer than its
            max_move: choose it well above step_size * num_leapfrog / sqrt(mass).
        step_size: The longest step h of the leapfrog.
        num_leapfrog: The number L of leapfrog steps in a path.
        mass: M: None for the identity, a number, d positive numbers, or a positive definite matrix
            of shape (d, d); best near the inverse of the posterior covariance. It must not come
            from the rows except through answers, such as a private start's `precision`.
        reuse: Whether to keep the gradient at the chain's position; otherwise each step asks for it
            again, one more gradient.
        jitter: How much step sizes vary: 0 for steps of `step_size`, 1 for steps spread evenly over
            (0, step_size] as in the paper.

    Returns:
        The sampler.

    Raises:
        TypeError: log_prior is not a function.
        ValueError: A number is out of its range, or the test is one that a filter may stop.

    Example:
        >>> import dpmcmc
        >>> model = dpmcmc.models.logistic(1, radius=1.0)
        >>> gradient = dpmcmc.queries.Gradient(model.lipschitz, noise_multiplier=30.0)
        >>> test = dpmcmc.queries.LogRatio(model.lipschitz, noise_multiplier=30.0)
        >>> sampler = dpmcmc.hmc(model.log_prior, gradient, test, step_size=0.01, num_leapfrog=3)

        ``dpmcmc.sample(rng_key, sampler, curator, position)`` runs it.
    """
    roles.check_prior(log_prior)
    num_leapfrog = _checked(test, step_size, num_leapfrog, jitter)
    metric = scaling.axes("mass", mass)

    def force(position, released):
        return metric.force(released + jax.grad(log_prior)(position))

    def init(rng_key, position, ask):
        key_ask, key_flips = jax.random.split(rng_key)
        first = ask(key_ask, gradient, position).value if reuse else jnp.zeros_like(position)
        return HMCState(
            position, first, jnp.zeros((), jnp.uint32), jax.random.bits(key_flips, (), jnp.uint32)
        )

    def step(rng_key, state, ask):
        key_momentum, key_first, key_path, key_test = jax.random.split(rng_key, 4)
        first = state.gradient if reuse else ask(key_first, gradient, state.position).value
        start = jax.random.normal(key_momentum, state.position.shape, state.position.dtype)
        h = (step_size * (1 - jitter * halton(state.index, state.flips))).astype(start.dtype)

        def kick(key, position):
            released = ask(key, gradient, position).value
            return force(position, released), released

        begin = force(state.position, first), first
        keys = jax.random.split(key_path, num_leapfrog)
        end, momentum, last = leapfrog(kick, metric.velocity, state.position, start, begin, h, keys)
        kinetic = (jnp.sum(start**2) - jnp.sum(momentum**2)) / 2
        public = log_prior(end) - log_prior(state.position) + kinetic
        is_divergent = ~(jnp.all(jnp.isfinite(end)) & jnp.isfinite(public))
        proposal = jnp.where(is_divergent, state.position, end)
        is_accepted = _decide(key_test, test, state.position, proposal, public, ask) & ~is_divergent
        position = jnp.where(is_accepted, end, state.position)
        kept = jnp.where(is_accepted, last, first) if reuse else state.gradient
        info = HMCInfo(is_accepted, is_divergent, jnp.linalg.norm(proposal - state.position))
        return HMCState(position, kept, state.index + 1, state.flips), info

    return Sampler(init, step)


def _checked(test: Query, step_size: float, num_leapfrog: int, jitter: float) -> int:
    """The number of leapfrog steps, if all of these can be used."""
    scaling.check_positive("step_size", step_size, "it is the leapfrog's step")
    if not (is_number(jitter) and 0 <= jitter <= 1):
        raise ValueError(
            f"jitter={jitter!r} must lie in [0, 1]: it is the part of the step size that varies"
        )
    if is_standing(test):
        raise ValueError(
            f"{test} may stop answering in the middle of a run, which only accept_walk reports: "
            "use Accept here"
        )
    return whole("num_leapfrog", num_leapfrog)


def leapfrog(
    kick: Callable[[Any, Array], tuple[Array, Any]],
    velocity: Callable[[Array], Array],
    position: Position,
    momentum: Array,
    first: tuple[Array, Any],
    step_size: Array,
    keys: Array,
) -> tuple[Position, Array, Any]:
    """The end of a path: position, momentum, and what `kick` returned last to keep.

    `kick(key, position)` returns the gradient there and what to keep of it; `first` is the same at
    the path's start. There is one step for each of the keys.
    """

    def leap(path, key):
        position, momentum, _ = path
        position = (position + step_size * velocity(momentum)).astype(position.dtype)
        gradient, kept = kick(key, position)
        return (position, momentum + step_size * gradient, (gradient, kept)), None

    gradient, _ = first
    path = position, momentum + step_size / 2 * gradient, first
    (position, momentum, (gradient, kept)), _ = lax.scan(leap, path, keys)
    return position, momentum - step_size / 2 * gradient, kept


def _decide(rng_key, test: Query, position, proposal, public, ask):
    key_ask, key_accept = jax.random.split(rng_key)
    if traits(test).is_bit:
        return ask(key_ask, test, position, proposal, public).value
    answer = ask(key_ask, test, position, proposal)
    return passes(key_accept, answer.value + public, answer.variance)


def halton(index, flips):
    """The index's bits in reverse order, some of them flipped, as a number in [0, 1)."""
    bits = jnp.asarray(index, jnp.uint32)
    for shift, mask in ((1, 0x55555555), (2, 0x33333333), (4, 0x0F0F0F0F), (8, 0x00FF00FF)):
        bits = ((bits >> shift) & np.uint32(mask)) | ((bits & np.uint32(mask)) << shift)
    bits = ((bits >> 16) | (bits << 16)) ^ flips
    return (bits >> 8).astype(jnp.float32) * 2.0**-24
