r"""A private start in whitened coordinates, all of whose answers enter the posterior.

    1. two noisy Gram matrices and a noisy histogram of lengths: coordinates A, simulated rows
    2. a few rough steps from 0:  phi <- phi + g / BEND,  for the curvature is at most 1
    3. the cap of the weights, and what is to be expected of the rest
    4. Newton steps, each with a gradient and with the matrices J and V of `caps`
    5. the last gradient, for most of the budget, and J and V once more

All gradients are combined: with phi_i where g_i was asked and weights that add to 1, the mean of
the gradients is that at the mean of the points, as far as the log-likelihood is quadratic.

A weight is one over the variance of the noise, to which is added what the curvature's change and
its noise may make wrong over the distance between phi_i and that maximum.

J and V are means over all their answers and over what was expected of them from the simulated rows,
by inverse variance: the expectation counts as an answer with an error of a fifth (`matrices`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from dpmcmc.domains import RowSet
from dpmcmc.samplers.whitened import caps, coordinates
from dpmcmc.samplers.whitened.caps import Expected
from dpmcmc.samplers.whitened.matrices import (
    Matrices,
    Widths,
    as_expected,
    mean_of,
    released_widths,
)
from dpmcmc.types import Answer, Array, Ask, Key, Position, Query, Unit

BEND = 0.75  # how much a rough step shortens
FIRST_CAP, SECOND_CAP = 2.5, 0.8  # typical lengths: of the second Gram matrix, of rough steps
LONGEST = 6.0  # logits of a typical row: beyond it no rough step goes
FIRST_MOVE, NEXT_MOVE = 1.0, 0.5  # logits of a typical row: the longest Newton step
UNKNOWN = 1e30  # variance of a gradient that has not been asked yet
CHANGE = 0.4  # of the curvature, in each logit of a typical row, that weights allow for


class Asked(NamedTuple):
    """The queries of a start.

    Attributes:
        gram: Of the rows as they are.
        again: Of the rows in the first coordinates.
        counts: The histogram of lengths.
        rough: The gradient of each rough step.
        newton: The gradient of each Newton step.
        matrices: The matrices of each Newton step.
        gradient: The last gradient.
        curvature: The last matrices.
        num_rough: How many rough steps there are.
        num_newton: How many Newton steps there are before the last answers.
    """

    gram: Query
    again: Query
    counts: Query
    rough: Query
    newton: Query
    matrices: Query
    gradient: Query
    curvature: Query
    num_rough: int
    num_newton: int


class Public(NamedTuple):
    """Public facts of the model that a start needs.

    Attributes:
        log_prior: The logarithm of the prior's density.
        rows: The public set of rows.
        unit: Whom the promise protects.
        num_rows: The number of rows.
        is_weighted: Whether rows may have weights below 1.
        last_noise: About the variance of the combined gradient over its squared sensitivity.
    """

    log_prior: Callable[[Position], Array]
    rows: RowSet
    unit: Unit
    num_rows: int
    is_weighted: bool
    last_noise: float


class Opening(NamedTuple):
    """What the first answers say, a tenth of the budget.

    Attributes:
        position: Where the Newton steps begin.
        phi: The same in whitened coordinates.
        axes: A.
        prior: The precision of the prior in whitened coordinates.
        radius: The length of the longest row there.
        cap: The cap of the weights; infinite for no weights.
        expected: What to expect of it.
    """

    position: Position
    phi: Array
    axes: Array
    prior: Array
    radius: Array
    cap: Array
    expected: Expected


class _Progress(NamedTuple):
    """Where Newton steps are, and all gradients so far: one line for each."""

    phi: Array
    matrices: Matrices
    points: Array
    gradients: Array
    variances: Array  # UNKNOWN where there is none yet
    shares: Array
    bend: Array
    hessian: Answer


class Whitened(NamedTuple):
    """All that the posterior is made of, from released answers alone.

    Attributes:
        position: The maximum of the likelihood, about, shortened where the prior says so.
        axes: A, from phi to the position.
        point: The weighted mean of the points that gradients were asked at, phi.
        gradient: The weighted mean of the gradients there: of the log-likelihood in phi.
        shares: The weight of each of them.
        variances: The variance of the noise of each gradient.
        matrices: J and V.
        misfit: The allowance for a model that does not hold, as a share of V.
        cap: The cap of the weights; infinite for no weights.
        hessian: J as it was released last.
        widths: About the covariance of the posterior, and what it is made of.
        bend: The variance that a change of the curvature may have added to the last gradient.
        is_weighted: Whether any row could have been weighted.
    """

    position: Position
    axes: Array
    point: Array
    gradient: Array
    shares: Array
    variances: Array
    matrices: Matrices
    misfit: Array
    cap: Array
    hessian: Answer
    widths: Widths
    bend: Array
    is_weighted: Array


def opening(public: Public, asked: Asked, rng_key: Key, position: Position, ask: Ask) -> Opening:
    """Choose coordinates, take rough steps, and choose the cap.

    Args:
        public: Public facts of the model.
        asked: The queries.
        rng_key: The key of the asks.
        position: Where rough steps begin; also where the prior is taken for a normal law.
        ask: Asks the curator.

    Returns:
        What the first answers say.
    """
    # All at once: a compiler takes most of its time for such functions of keys
    keys = jax.random.split(rng_key, 3 + asked.num_rough)
    key_gram, key_again, key_counts = keys[:3]
    ask = _in_type_of(position, ask)
    dimension = position.size
    prior = _prior_precision(public.log_prior, position)
    one = jnp.asarray(public.rows.information(jnp.zeros(())), position.dtype)
    typical = jnp.sqrt(dimension / one / public.num_rows)
    at_first = jnp.eye(dimension, dtype=position.dtype)
    gram = ask(key_gram, asked.gram, at_first, public.rows.radius(at_first))
    first = coordinates.first_coordinates(gram, one, prior)
    within = jnp.minimum(public.rows.radius(first.axes), FIRST_CAP * typical)
    again = ask(key_again, asked.again, first.axes, within)
    found = coordinates.second_coordinates(first, again, one, prior)
    axes = found.axes
    radius = public.rows.radius(axes)
    ends = caps.edges(radius)
    rows, _ = caps.simulated(ask(key_counts, asked.counts, axes, ends), ends, dimension)
    phi = jnp.linalg.solve(axes, position)
    near = jnp.minimum(radius, SECOND_CAP * typical)

    def rough(index, phi):
        answer = ask(keys[3 + index], asked.rough, axes, phi, near)
        step = answer.value + axes.T @ jax.grad(public.log_prior)(axes @ phi)
        phi = phi + step / (BEND + found.doubt)
        return phi * jnp.minimum(1, LONGEST / jnp.maximum(_logits(phi, typical), 1e-9))

    phi = lax.fori_loop(0, asked.num_rough, rough, phi)

    most = public.rows.gradient_diameter(axes, phi, unit=public.unit)
    reach = public.rows.reach(axes @ phi)

    def expect(cap):
        # No capped row is longer than the cap: within a few percent of the exact bound
        noise = public.last_noise * jnp.minimum(most, public.unit.sensitivity * cap) ** 2
        return caps.expected(public.rows, rows, public.num_rows, dimension, phi, reach, noise, cap)

    if public.is_weighted:
        cap, expected = caps.choose(expect, typical, radius, dimension)
    else:
        cap = jnp.full_like(radius, jnp.inf)
        expected = expect(cap)
    return Opening(axes @ phi, phi, axes, axes.T @ prior @ axes, radius, cap, expected)


def survey(public: Public, asked: Asked, rng_key: Key, begun: Opening, ask: Ask) -> Whitened:
    """Newton steps from an opening, the last answers, and all of them combined.

    Args:
        public: Public facts of the model.
        asked: The queries.
        rng_key: The key of the asks.
        begun: The opening.
        ask: Asks the curator.

    Returns:
        What the posterior is made of.
    """
    axes, cap = begun.axes, begun.cap
    keys = jax.random.split(rng_key, (asked.num_newton + 1, 2))
    ask = _in_type_of(axes, ask)
    dimension = len(axes)
    typical = jnp.sqrt(dimension / public.rows.information(jnp.zeros(())) / public.num_rows)

    def newton(gradient: Query, curvature: Query, index: Array, last: _Progress) -> _Progress:
        key_gradient, key_curvature = keys[index]
        pull = ask(key_gradient, gradient, axes, last.phi, cap)
        bend = ask(key_curvature, curvature, axes, last.phi, cap)
        step, known = _combined(public, begun, _with(last, index, pull, bend), index)
        longest = jnp.where(index == 0, FIRST_MOVE, NEXT_MOVE)
        share = jnp.minimum(1, longest / jnp.maximum(_logits(step, typical), 1e-12))
        return known._replace(phi=known.phi + share * step)

    found = lax.fori_loop(
        0,
        asked.num_newton,
        functools.partial(newton, asked.newton, asked.matrices),
        _before(begun, asked.num_newton + 1),
    )
    found = newton(asked.gradient, asked.curvature, jnp.int32(asked.num_newton), found)
    noise = jnp.sum(found.shares**2 * found.variances)
    return Whitened(
        axes @ found.phi,
        axes,
        found.shares @ found.points,
        found.shares @ found.gradients,
        found.shares,
        found.variances,
        found.matrices,
        mean_of(begun.expected.misfit, dimension),
        cap,
        found.hessian,
        released_widths(found.matrices, noise, begun.expected, axes, begun.prior),
        found.bend,
        cap < begun.radius,
    )


def _before(begun: Opening, number: int) -> _Progress:
    """Nothing asked yet, of so many gradients."""
    phi = begun.phi
    none = jnp.zeros((number, phi.size), phi.dtype)
    unknown = jnp.full(number, UNKNOWN, phi.dtype)
    hessian = Answer(jnp.diag(jnp.zeros_like(phi)), jnp.zeros((), phi.dtype))
    matrices = as_expected(begun.expected, phi)
    return _Progress(phi, matrices, none, none, unknown, 1 / unknown, unknown[0], hessian)


def _with(last: _Progress, index: Array, gradient: Answer, curvature: Answer) -> _Progress:
    """The same with one more gradient and one more pair of matrices."""
    return last._replace(
        matrices=last.matrices.joined(curvature),
        points=last.points.at[index].set(last.phi),
        gradients=last.gradients.at[index].set(gradient.value),
        variances=last.variances.at[index].set(gradient.variance),
        hessian=Answer(curvature.value[0], curvature.variance),
    )


def _in_type_of(position: Array, ask: Ask) -> Ask:
    """The same ask, with answers of the position's type: their own may be finer."""

    def asked(*arguments):
        answer = ask(*arguments)
        return Answer(*(jnp.asarray(part, position.dtype) for part in answer))

    return asked


def _logits(phi: Array, typical: Array) -> Array:
    """What a row of typical length in the direction of phi has for its predictor."""
    return typical * jnp.linalg.norm(phi) / jnp.sqrt(phi.size)


def _prior_precision(log_prior: Callable[[Position], Array], position: Position) -> Array:
    """Minus the Hessian of the log prior, where that is positive."""
    found = -jax.hessian(log_prior)(position)
    return coordinates.lift(jnp.where(jnp.isfinite(found), found, 0), jnp.zeros(()))


def _combined(
    public: Public, begun: Opening, known: _Progress, index: Array
) -> tuple[Array, _Progress]:
    """The step to the maximum of the posterior from all gradients, with the weight of each."""
    axes, points = begun.axes, known.points
    precision = known.matrices.raised + begun.prior
    pulls = jax.vmap(lambda point: axes.T @ jax.grad(public.log_prior)(axes @ point))(points)
    totals = known.gradients + pulls
    target = known.phi + jnp.linalg.solve(precision, totals[index])
    shares = bend = jnp.zeros_like(known.variances)
    for _ in range(2):
        squares = jnp.sum((target - points) ** 2, axis=1)
        bend = (CHANGE * squares) ** 2 / public.num_rows / known.phi.size
        spread = known.variances + bend + squares * known.matrices.variance
        shares = (1 / spread) / jnp.sum(1 / spread)
        target = jnp.linalg.solve(precision, shares @ (totals + points @ precision))
    return target - known.phi, known._replace(shares=shares, bend=bend[index])
