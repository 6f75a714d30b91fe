r"""The posterior given a noisy survey: sampling it costs no further privacy budget.

A survey asks for the gradient and the Hessian of the log-likelihood at one point t, near the
posterior (a private start finds it):

    G = g + N(0, v I),        C = H + W

with H minus the Hessian and W symmetric, of variance s^2 on the diagonal and half of that off it.

With many rows the log-likelihood is nearly quadratic there, so that g is nearly normal too: given
the parameters x = t + u it has the mean H u and the covariance H, the information. What is released
then has a law that anybody can compute,

    G - C u  ~  N(0,  C + v I + (s^2 / 2) (|u|^2 I + u u'))     given x and C,

where the last term is the effect of the noise in C on C u. With the prior this is a posterior: the
one of somebody who knows the answers and not the rows
:cite:p:`bernstein2018differentially,kulkarni2021differentially`. It is the wider the more noise
there is, up to the prior where the noise hides the rows; without noise it is Laplace's
approximation.

Gradients released on the way to t are included, weighted by inverse variance, if consistent with
the quadratic model (`samplers.start`): G is then their mean, and t the mean of their points. Where
the noise in C outweighs that in G nothing is gained by it, for that mean is farther from the
posterior.

Since the density is known, a chain may be as long as necessary (`samplers.known_density`). The
eigenvectors of C make the covariance diagonal, but for one direction.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dpmcmc.samplers import roles
from dpmcmc.samplers.known_density import known_density
from dpmcmc.samplers.start import Released
from dpmcmc.types import Answer, Array, Ask, Key, Position, Query, Sampler


class Survey(NamedTuple):
    """What was released at one point.

    Attributes:
        position: The point.
        gradient: The gradient of the log-likelihood there.
        hessian: Minus its Hessian there.
        included: A gradient released nearby by the private start, which the posterior includes.
        step_variance: Variance of the noise in the Hessian that the step from there was made with.
    """

    position: Position
    gradient: Answer
    hessian: Answer
    included: Released | None = None
    step_variance: Array | float = 0.0

    @property
    def combined(self) -> Released:
        """Both gradients as one with less noise: the mean of two gradients of a quadratic is its
        gradient at the mean of the points.
        """
        here = Released(self.position, self.gradient)
        if self.included is None:
            return here
        both = self.gradient.variance + self.included.gradient.variance
        # 0 if there is no noise to reduce
        weight = self.gradient.variance / jnp.where(both > 0, both, 1.0)
        mean = jax.tree.map(
            lambda now, earlier: (1 - weight) * now + weight * earlier, here, self.included
        )
        return Released(
            mean.position, Answer(mean.gradient.value, weight * self.included.gradient.variance)
        )


def survey(
    start: Callable[[Key, Position, Ask], Any], gradient: Query, curvature: Query
) -> Callable[[Key, Position, Ask], Survey]:
    """A private start for `sample(start=...)` that ends with a survey, for `noise_aware`.

    It asks both queries once, at the point where another start ends. Give nearly all of the budget
    to `gradient` and to the last gradient of that start: their noise is what widens the posterior.

    Args:
        start: The other start, such as a `newton_start`.
        gradient: A `Gradient` query.
        curvature: A `Curvature` query.

    Returns:
        A function of a key, a position and `ask` that returns the survey: its `position`,
        `gradient` and `hessian`, and the gradients of the start that are `included`.

    Example:
        >>> import dpmcmc
        >>> from dpmcmc.queries import Curvature, Gradient
        >>> model = dpmcmc.models.logistic(1, radius=1.0)
        >>> gradient = Gradient(model.lipschitz, noise_multiplier=20.0)
        >>> curvature = Curvature(model.hessian_bound, noise_multiplier=40.0)
        >>> start = dpmcmc.newton_start(model.log_prior, gradient, curvature)
        >>> start = dpmcmc.survey(start, Gradient(model.lipschitz, 5.0), curvature)
    """

    def ask_both(rng_key, position, ask):
        key_start, key_gradient, key_curvature = jax.random.split(rng_key, 3)
        found = start(key_start, position, ask)
        answers = (
            ask(key_gradient, gradient, found.position),
            ask(key_curvature, curvature, found.position),
        )
        included = getattr(found, "included", None)
        hessian = getattr(found, "hessian", None)
        step_variance = 0.0 if hessian is None else hessian.variance
        return Survey(found.position, *answers, included, step_variance)

    return ask_both


def noise_aware(log_prior: Callable[[Position], Array], found: Survey) -> Sampler:
    """Sampler of the posterior given a `survey`: its steps ask nothing, so any number of them costs
    the same.

    Args:
        log_prior: The logarithm of the prior's density, up to a constant: `model.log_prior`.
        found: The survey, as the start has released it.

    Returns:
        The sampler.

    Raises:
        TypeError: log_prior is not a function, or found is not a survey.

    Example:
        >>> import dpmcmc
        >>> model = dpmcmc.models.logistic(1, radius=1.0)
        >>> def sampler(found):
        ...     return dpmcmc.noise_aware(model.log_prior, found)

        The survey exists only once the start has run, so give `sample` this function:
        ``sample(rng_key, sampler, curator, position, start=survey(...), num_steps=1000)``.
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
    values, axes = jnp.linalg.eigh(found.hessian.value)
    center, gradient = found.combined
    along_axes = axes.T @ gradient.value
    half = found.hessian.variance / 2

    def law(position):
        move = axes.T @ (position - center)
        error = along_axes - values * move
        spread = jnp.maximum(values, 0) + gradient.variance + half * jnp.sum(move**2)
        along = 1 + half * jnp.sum(move**2 / spread)
        square = jnp.sum(error**2 / spread) - half * jnp.sum(move * error / spread) ** 2 / along
        return -(square + jnp.sum(jnp.log(spread)) + jnp.log(along)) / 2

    return law
