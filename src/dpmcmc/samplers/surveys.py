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

If the noise in G is radial it is a mixture of normal laws (`whitened.posterior`): the density is
the mean over the mixture's scale, by a Gauss rule for the gamma law that the scale has.

**Around a center.** Where a model knows its `center` and the `vectors` that its curvature is made
of, Newton steps need no Hessian of their own (`centered_opening`, `centered_survey`). With n rows
and M minus the Jacobian of the sum of gradients around the center, each step solves

    n center(x) + G - M (x - p) + grad log prior(x) = 0

for x, where p and G are means of all points and answers so far, by precision: noise, and what the
noise in M and a change of it may make wrong over the distance from x. M is made of a noisy Gram
matrix, which is the mean of all that were asked on the way. Its noise is in few directions, so that
the law above does not hold. Draws are made as in `whitened.posterior`: of the Gram matrix and of
the scale of radial noise from their laws, and of x from the normal law that these then give.

Since the density is known, a chain may be as long as necessary (`samplers.known_density`). The
eigenvectors of C make the covariance diagonal, but for one direction.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dpmcmc.samplers import roles
from dpmcmc.samplers.known_density import known_density
from dpmcmc.samplers.start import UNKNOWN, Released, lift, zero_if_undefined
from dpmcmc.samplers.whitened.independent import Normal, independent_draws, symmetric
from dpmcmc.types import Answer, Array, Ask, Key, Position, Query, Sampler, Vectors

NUM_SCALES = 16  # of the mixture that radial noise is
CHANGE = 0.1  # of the curvature, that weights of answers allow for
FIRST = 0.8  # of the first Gram matrix, that is left near the posterior
NOISE = 0.5  # of the largest eigenvalue that noise alone is likely to have: no smaller one is taken
MOST_RESCALED = 4.0  # by which factor an earlier Gram matrix may be changed to match a later one
NUM_SOLVING = 40  # steps towards a maximum, which ask nothing


class Survey(NamedTuple):
    """What was released at one point.

    Attributes:
        position: The point.
        gradient: The gradient of the log-likelihood there.
        hessian: Minus its Hessian there.
        included: A gradient released nearby by the private start, which the posterior includes.
        step_variance: Variance of the noise in the Hessian that the step from there was made with.
        radial: Variance of the radial noise in the gradient, which is a part of the gradient's; or
            None.
        gram: What the Hessian was made of, if that is a Gram matrix.
        arrival: The gradient of the log posterior where the last gradient was asked, and the
            variance that it has if the start has arrived.
        place: Where the Hessian is taken, if it was made of a Gram matrix.
    """

    position: Position
    gradient: Answer
    hessian: Answer
    included: Released | None = None
    step_variance: Array | float = 0.0
    radial: Array | None = None
    gram: Answer | None = None
    arrival: Answer | None = None
    place: Position | None = None

    @property
    def combined(self) -> Released:
        """Both gradients as one with less noise: the mean of two gradients of a quadratic is its
        gradient at the mean of the points.
        """
        here = Released(self.position, self.gradient)
        if self.included is None:
            return here
        weight = self._weight
        mean = jax.tree.map(
            lambda now, earlier: (1 - weight) * now + weight * earlier, here, self.included
        )
        return Released(
            mean.position, Answer(mean.gradient.value, weight * self.included.gradient.variance)
        )

    @property
    def _weight(self) -> Array | float:
        """That of the gradient released nearby: 0 if there is no noise to reduce."""
        if self.included is None:
            return 0.0
        both = self.gradient.variance + self.included.gradient.variance
        return self.gradient.variance / jnp.where(both > 0, both, 1.0)

    def noise_levels(self) -> tuple[Array, Array]:
        """Variances of the normal laws that the noise of `combined` is a mixture of, and how much
        of the mixture each is.
        """
        total = jnp.asarray(self.combined.gradient.variance)
        if self.radial is None:
            return total[None], jnp.ones(1)
        radial = (1 - self._weight) ** 2 * self.radial
        scales, shares = mixture(len(self.position))
        return total + radial * (scales - 1), jnp.asarray(shares)


def mixture(dimension: int) -> tuple[np.ndarray, np.ndarray]:
    """Radial noise as a mixture of a few normal laws: their variances over the mean, and shares.

    The variance over its mean has the gamma law of shape a = (d + 1) / 2 and mean 1. This is its
    Gauss rule, from the matrix of the polynomials that are orthogonal for that law.

    Args:
        dimension: d.

    Returns:
        The variances, which increase, and the shares, which add to 1.

    Example:
        >>> scales, shares = mixture(7)
        >>> round(float(scales @ shares), 6), round(float(scales**2 @ shares), 6)
        (1.0, 1.25)
    """
    shape = (dimension + 1) / 2
    index = np.arange(NUM_SCALES)
    beside = np.sqrt(index[1:] * (index[1:] + shape - 1))
    values, vectors = np.linalg.eigh(
        np.diag(2 * index + shape) + np.diag(beside, 1) + np.diag(beside, -1)
    )
    return values / shape, vectors[0] ** 2


def survey(
    start: Callable[[Key, Position, Ask], Any],
    gradient: Query,
    curvature: Query,
    is_radial: bool = False,
) -> Callable[[Key, Position, Ask], Survey]:
    """A private start for `sample(start=...)` that ends with a survey, for `noise_aware`.

    It asks both queries once, at the point where another start ends. Give nearly all of the budget
    to `gradient` and to the last gradient of that start: their noise is what widens the posterior.

    Args:
        start: The other start, such as a `newton_start`.
        gradient: A `Gradient` query.
        curvature: A `Curvature` query.
        is_radial: Whether `gradient` has radial noise: a `RadialGradient`.

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
        radial = answers[0].variance if is_radial else None
        return Survey(found.position, *answers, included, step_variance, radial)

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
    levels, shares = found.noise_levels()

    def law(position):
        move = axes.T @ (position - center)
        error = along_axes - values * move
        moved = jnp.sum(move**2)

        def with_noise(variance):
            spread = jnp.maximum(values, 0) + variance + half * moved
            along = 1 + half * jnp.sum(move**2 / spread)
            square = jnp.sum(error**2 / spread) - half * jnp.sum(move * error / spread) ** 2 / along
            return -(square + jnp.sum(jnp.log(spread)) + jnp.log(along)) / 2

        if len(shares) == 1:
            return with_noise(levels[0])
        return jax.nn.logsumexp(jax.vmap(with_noise)(levels), b=shares)

    return law


class Centered(NamedTuple):
    """Public facts of a model whose gradients lie around a center.

    Attributes:
        log_prior: The logarithm of the prior's density.
        center: From a position to the center.
        vectors: What the curvature is made of.
        num_rows: The public number of rows.
    """

    log_prior: Callable[[Position], Array]
    center: Callable[[Position], Array]
    vectors: Vectors
    num_rows: int

    def common(self, position: Position) -> Array:
        """What all rows' gradients have in common, summed up."""
        return self.num_rows * self.center(position)

    def bend(self, position: Position) -> Array:
        """The Jacobian of `common`."""
        return self.num_rows * jax.jacobian(self.center)(position)

    def pull(self, position: Position) -> Array:
        """The gradient of the log prior."""
        return zero_if_undefined(jax.grad(self.log_prior)(position))

    def prior(self, position: Position) -> Array:
        """Minus the Hessian of the log prior."""
        return -zero_if_undefined(jax.hessian(self.log_prior)(position))

    def curvature(self, position: Position, gradient: Array, gram: Array) -> Array:
        """Minus the Jacobian of the gradients around the center."""
        return self.vectors.curvature(position, gradient, gram, self.num_rows)

    def curvature_at_maximum(self, position: Position, gram: Array) -> Array:
        """The same where the likelihood is highest."""
        return self.curvature(position, -self.common(position), gram)


def centered_posterior(facts: Centered, found: Survey) -> Sampler:
    """Sampler of the posterior given a survey around a center: independent draws.

    Args:
        facts: Public facts of the model.
        found: The survey, as the start has released it.

    Returns:
        The sampler. Its draws are independent where the prior is normal; for any other prior an
        accept step weighs them.
    """
    assert found.gram is not None
    dimension = len(found.gradient.value)
    number = dimension + math.prod(found.gram.value.shape)
    if found.radial is not None:
        number += dimension + 1
    return independent_draws(
        facts.log_prior, found.place, number, functools.partial(_draw, facts, found)
    )


def _draw(facts: Centered, found: Survey, drawn: Array, normal: Normal) -> Position:
    assert found.gram is not None
    gram, (gradient, variance) = found.gram, found.gradient
    size = gram.value.size
    for_gram, for_draw, for_scale = jnp.split(drawn, [size, size + len(gradient)])
    noise = jnp.sqrt(gram.variance) * symmetric(for_gram.reshape(gram.value.shape))
    known_gram = lift(gram.value + noise, NOISE * jnp.sqrt(2 * len(gram.value) * gram.variance))
    hessian = facts.curvature_at_maximum(found.place, known_gram) - facts.bend(found.place)
    if found.radial is not None:
        variance = variance + found.radial * (jnp.mean(for_scale**2) - 1)
    total = hessian + variance * jnp.eye(len(gradient), dtype=gradient.dtype)
    known = hessian @ jnp.linalg.solve(total, hessian)
    pull = hessian @ jnp.linalg.solve(total, gradient + hessian @ found.position)
    root = jnp.linalg.cholesky(known + normal.precision)
    middle = jax.scipy.linalg.cho_solve((root, True), pull + normal.pull)
    return middle + jax.scipy.linalg.solve_triangular(root.T, for_draw, lower=False)


class CenteredAsked(NamedTuple):
    """The queries of a survey around a center.

    Attributes:
        rough: The gradient of each step of the opening.
        gram: The Gram matrix at the beginning.
        newton: The gradient of each step after the opening.
        again: The Gram matrix of each of these.
        gradient: The last gradient.
        num_rough: How many steps the opening has.
        num_newton: How many steps there are between the opening and the last gradient.
        is_radial: Whether the last gradient has radial noise.
    """

    rough: Query
    gram: Query
    newton: Query
    again: Query
    gradient: Query
    num_rough: int
    num_newton: int
    is_radial: bool


class Approach(NamedTuple):
    """Where a survey around a center has come to, from released answers alone.

    Attributes:
        position: The maximum of the posterior, about.
        gram: The mean of all Gram matrices.
        points: Where gradients were asked.
        gradients: The sums of the rows' gradients around the center there, as released.
        variances: Of their noise; UNKNOWN where none was asked yet.
        shares: The weight of each in the mean.
        doubt: The variance that the gradient of the log posterior at `position` should have, were
            it known.
    """

    position: Position
    gram: Answer
    points: Array
    gradients: Array
    variances: Array
    shares: Array
    doubt: Array


def centered_opening(
    facts: Centered, asked: CenteredAsked, rng_key: Key, position: Position, ask: Ask
) -> Approach:
    """The first rough steps, each to the maximum of the posterior as far as it is known.

    Args:
        facts: Public facts of the model.
        asked: The queries.
        rng_key: The key of the asks.
        position: Where the steps begin.
        ask: Asks the curator.

    Returns:
        Where the steps have come to.
    """
    number = asked.num_rough + asked.num_newton + 1
    key_gram, key_steps = jax.random.split(rng_key)
    gram = _in_type_of(position, ask(key_gram, asked.gram, position))
    gram = Answer(FIRST * gram.value, FIRST**2 * gram.variance)
    none = jnp.zeros((number, position.size), position.dtype)
    unknown = jnp.full(number, UNKNOWN, position.dtype)
    begun = Approach(position, gram, none, none, unknown, 1 / unknown, unknown[0])

    def rough(index, known: Approach) -> Approach:
        answer = ask(jax.random.fold_in(key_steps, index), asked.rough, known.position)
        return _stepped(facts, _with_gradient(facts, known, index, answer))

    return lax.fori_loop(0, asked.num_rough, rough, begun)


def centered_survey(
    facts: Centered, asked: CenteredAsked, rng_key: Key, begun: Approach, ask: Ask
) -> Survey:
    """Newton steps from an opening, and a survey at their end.

    Args:
        facts: Public facts of the model.
        asked: The queries.
        rng_key: The key of the asks.
        begun: The opening.
        ask: Asks the curator.

    Returns:
        The survey: its gradient is the mean of all.
    """
    key_steps, key_grams, key_last = jax.random.split(rng_key, 3)
    first = asked.num_rough

    def newton(index, known: Approach) -> Approach:
        place = known.position
        gram = ask(jax.random.fold_in(key_grams, index), asked.again, place)
        known = known._replace(gram=_joined(known.gram, _in_type_of(place, gram)))
        answer = ask(jax.random.fold_in(key_steps, index), asked.newton, place)
        known = _with_gradient(facts, known, first + index, answer)
        return _stepped(facts, known)

    known = lax.fori_loop(0, asked.num_newton, newton, begun)
    last, doubt = known.position, known.doubt
    answer = ask(key_last, asked.gradient, last)
    known = _with_gradient(facts, known, first + asked.num_newton, answer)
    arrival = Answer(
        known.gradients[-1] + facts.common(last) + facts.pull(last),
        known.variances[-1] + doubt,
    )
    return _surveyed(facts, _stepped(facts, known), arrival, asked.is_radial)


class ExpectedWidths(NamedTuple):
    """Covariances of the position.

    Attributes:
        total: Of the posterior.
        rows: Without noise.
    """

    total: Array
    rows: Array


def expected_widths(facts: Centered, begun: Approach, noise: Array | float) -> ExpectedWidths:
    """What is to be expected after an opening.

    Args:
        facts: Public facts of the model.
        begun: The opening.
        noise: The variance of the noise in the mean of all gradients.

    Returns:
        The covariances.
    """
    here = begun.position
    curvature = facts.curvature_at_maximum(here, lifted(begun.gram))
    hessian = curvature - facts.bend(here)
    prior = facts.prior(here)
    noisy = hessian + noise * jnp.eye(len(here), dtype=here.dtype)
    known = hessian @ jnp.linalg.solve(noisy, hessian)
    return ExpectedWidths(jnp.linalg.inv(known + prior), jnp.linalg.inv(hessian + prior))


def lifted(gram: Answer) -> Array:
    """The Gram matrix with its eigenvalues raised to what noise is likely to make of 0."""
    return lift(gram.value, NOISE * jnp.sqrt(2 * len(gram.value) * gram.variance))


def _surveyed(facts: Centered, known: Approach, arrival: Answer, is_radial: bool) -> Survey:
    """The survey at the mean of all points, the center being linear near the last position."""
    here, mean = known.position, known.shares @ known.points
    curvature = facts.curvature_at_maximum(here, known.gram.value)
    bend = facts.bend(here)
    gradient = facts.common(here) + bend @ (mean - here) + known.shares @ known.gradients
    each = known.shares**2 * known.variances
    change = _change(curvature, (here - mean)[None])[0]
    return Survey(
        mean,
        Answer(gradient, jnp.sum(each) + change),
        Answer(curvature - bend, known.gram.variance),
        radial=each[-1] if is_radial else None,
        gram=known.gram,
        arrival=arrival,
        place=here,
    )


def _in_type_of(position: Position, answer: Answer) -> Answer:
    return Answer(*(jnp.asarray(part, position.dtype) for part in answer))


def _with_gradient(
    facts: Centered, known: Approach, index: Array | int, answer: Answer
) -> Approach:
    """The same with one more gradient, asked at its position."""
    place = known.position
    value, variance = _in_type_of(place, answer)
    around = value - facts.common(place)
    return known._replace(
        points=known.points.at[index].set(place),
        gradients=known.gradients.at[index].set(around),
        variances=known.variances.at[index].set(jnp.max(variance)),
        shares=jnp.zeros_like(known.shares).at[index].set(1),
    )


def _joined(old: Answer, new: Answer) -> Answer:
    """The mean of two Gram matrices, by precision, the first one scaled to the trace of the other.

    On the way the number of rows that have curvature changes more than their directions do.
    """
    ratio = jnp.trace(new.value) / jnp.trace(old.value)
    ratio = jnp.clip(ratio, 1 / MOST_RESCALED, MOST_RESCALED)
    before = ratio**2 * old.variance
    weight = before / (before + new.variance)
    mean = (1 - weight) * ratio * old.value + weight * new.value
    return Answer(mean, weight * new.variance)


def _change(curvature: Array, moves: Array) -> Array:
    """The variance of what a change of the curvature makes of a gradient, for each move."""
    return CHANGE**2 * jnp.mean((moves @ curvature) ** 2, axis=1)


def _stepped(facts: Centered, known: Approach) -> Approach:
    """To the maximum of the posterior, with all answers by precision: at first with the new one
    alone, which has the whole weight.
    """
    here, gradient = known.shares @ known.points, known.shares @ known.gradients
    curvature = facts.curvature(here, gradient, lifted(known.gram))
    target = _maximum(facts, curvature, here, gradient, here)
    shares, doubt = known.shares, known.doubt
    for _ in range(2):
        moves = target - known.points
        bend = -facts.bend(target)
        wrong = jnp.sum(moves**2, axis=1) * known.gram.variance / 2
        wrong = wrong + _change(curvature, moves) + _change(bend, moves)
        spread = known.variances + wrong
        shares = (1 / spread) / jnp.sum(1 / spread)
        doubt = jnp.sum(shares**2 * spread)
        mean, gradient = shares @ known.points, shares @ known.gradients
        target = _maximum(facts, curvature, mean, gradient, target)
    return known._replace(position=target, shares=shares, doubt=doubt)


def _maximum(
    facts: Centered, curvature: Array, mean: Position, gradient: Array, begin: Position
) -> Position:
    """Where the gradient of the log posterior is 0, by damped Newton steps, which ask nothing.

    A step is shorter where it is long for a row, as for a function that is self-concordant.
    """

    def newton(_, position):
        pull = facts.common(position) + facts.pull(position)
        pull = pull + gradient - curvature @ (position - mean)
        precision = curvature - facts.bend(position) + facts.prior(position)
        step = jnp.linalg.solve(precision, pull)
        length = jnp.sqrt(jnp.maximum(pull @ step, 0) / facts.num_rows)
        return position + step / (1 + length)

    return lax.fori_loop(0, NUM_SOLVING, newton, begin)
