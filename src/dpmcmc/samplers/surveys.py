r"""The posterior given a survey, noise and all: sampling it costs no further privacy budget.

A survey asks for the slope and the curvature of the log-likelihood at one point t, near the
posterior (a private start finds it):

    G = g + N(0, v I),        C = H + W

with W symmetric, of variance s^2 on the diagonal and half of that off it.

Many rows have a log-likelihood that is nearly quadratic there, so that g is nearly normal too:
given the parameters x = t + u it has the mean H u and the covariance H, the information. What is
released then has a law that anybody can compute,

    G - C u  ~  N(0,  C + v I + (s^2 / 2) (|u|^2 I + u u'))     given x and C,

the last term for what the noise in C does to C u. With the prior this is a posterior like any
other: that of somebody who has seen the answers and not the rows
:cite:p:`bernstein2018differentially,kulkarni2021differentially`. The more noise there is, the wider
it is, up to the prior where noise hides all that the rows say; without noise it is Laplace's
approximation. Gradients released on the way to t are included, weighted by inverse variance, if
consistent with the quadratic model (`samplers.start`): G is then their mean, and t the mean of
their points. Where the noise in C outweighs that in G nothing is gained by it, for that mean is
farther from the posterior.

Sampling this posterior costs no further privacy budget, so a chain may be as long as it takes
(`samplers.known_density`). The eigenvectors of C make the covariance diagonal, but for one
direction.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dpmcmc.samplers import roles
from dpmcmc.samplers.known_density import known_density
from dpmcmc.samplers.start import Seen
from dpmcmc.types import Answer, Array, Ask, Key, Position, Query, Sampler


class Survey(NamedTuple):
    """What was released at one point."""

    position: Position
    gradient: Answer  # of the log-likelihood
    curvature: Answer  # minus its Hessian
    before: Seen | None = None  # a slope from nearby, where the start tells it
    of_steps: Array | float = 0.0  # variance of the noise in the curvature that led here from there

    @property
    def seen(self) -> Seen:
        """Both slopes as one with less noise: the mean of two slopes of a quadratic is its slope at
        the mean of the points.
        """
        here = Seen(self.position, self.gradient)
        if self.before is None:
            return here
        both = self.gradient.variance + self.before.gradient.variance
        # None, if there is no noise to lessen
        share = self.gradient.variance / jnp.where(both > 0, both, 1.0)
        mean = jax.tree.map(
            lambda now, before: (1 - share) * now + share * before, here, self.before
        )
        return Seen(
            mean.position, Answer(mean.gradient.value, share * self.before.gradient.variance)
        )


def survey(
    start: Callable[[Key, Position, Ask], Any], gradient: Query, curvature: Query
) -> Callable[[Key, Position, Ask], Survey]:
    """A start for `sample(start=...)` and `noise_aware`: asks both queries once, at the point that
    another start has found.

    Nearly all of the budget belongs to `gradient` and the last slope of the start: their noise is
    what the posterior will be wider by.
    """

    def ask_both(rng_key, position, ask):
        key_start, key_gradient, key_curvature = jax.random.split(rng_key, 3)
        found = start(key_start, position, ask)
        answers = (
            ask(key_gradient, gradient, found.position),
            ask(key_curvature, curvature, found.position),
        )
        seen, looked = (getattr(found, name, None) for name in ("seen", "curvature"))
        return Survey(found.position, *answers, seen, 0.0 if looked is None else looked.variance)

    return ask_both


def noise_aware(log_prior: Callable[[Position], Array], found: Survey) -> Sampler:
    """Sampler of the posterior given a `survey`: its steps ask nothing, so any number of them costs
    the same.

    To be made of what the start has released: ``sample(rng_key, lambda found:
    noise_aware(log_prior, found), curator, position, start=survey(...), num_steps=1000)``.
    """
    roles.check_prior(log_prior)
    if not isinstance(found, Survey):
        raise TypeError(
            f"noise_aware needs what a survey has released, not a {type(found).__name__}: give "
            "start=survey(...)"
        )
    law = log_likelihood(found)
    return known_density(lambda position: law(position) + log_prior(position), found.position)


def log_likelihood(found: Survey) -> Callable[[Position], Array]:
    """The logarithm of the density of what was released, as a function of the parameters."""
    values, axes = jnp.linalg.eigh(found.curvature.value)
    center, gradient = found.seen
    slope = axes.T @ gradient.value
    half = found.curvature.variance / 2

    def law(position):
        move = axes.T @ (position - center)
        error = slope - values * move
        spread = jnp.maximum(values, 0) + gradient.variance + half * jnp.sum(move**2)
        along = 1 + half * jnp.sum(move**2 / spread)
        square = jnp.sum(error**2 / spread) - half * jnp.sum(move * error / spread) ** 2 / along
        return -(square + jnp.sum(jnp.log(spread)) + jnp.log(along)) / 2

    return law
