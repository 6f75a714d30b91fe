r"""A private start, billed: noisy Newton steps from a public point, shared by all chains.

A noisy Hessian at the public point, or at each of the first points, and noisy gradients:

    A = C + (minus the Hessian of the log prior)
    x <- x + A^-1 (G(x) + grad log prior(x)),      `num_steps` times

C is minus the Hessian of the log-likelihood with noise, G its gradient with noise. The eigenvalues
of A are raised to at least the largest that the noise in C alone could produce, and each step is
halved until it ends where the prior has density.

**Steps that are too long.** Far from the posterior, the Hessian of rows with a bounded gradient is
nearly zero, and steps from there go far beyond the posterior. If the log posterior is concave and
the directional derivative at the end of a step is still positive, the step has increased it. If
that derivative has reversed, by more than half of its first value and by more than noise explains,
the step is rejected and a shorter one is tried: its length is where a straight line through both
derivatives is zero. Where the log posterior is not concave, a step into its flat tails may still be
taken.

**A Hessian that changes.** For logistic regression minus the Hessian at zero is the largest
anywhere (every row's weight p (1 - p) is at most 1/4): steps that assume it everywhere are too
short, the more so the stronger the effects are. The remedy is to ask for the Hessian again at each
point. Where it is asked only once, two released gradients show the change. With s the last step and
y the decrease of the gradient along it, s.y is the curvature found and s.A s the one assumed. If
they differ by more than the gradients' noise explains, A is corrected along s by the BFGS update,
to no less than half of what it was (:cite:p:`powell1978algorithms`), so that the next step is not
too long.

Gradients also correct a new A where noise hides the Hessian, such as along the noise scale of a
linear regression when that is small beside its bound: there the eigenvalue was raised to what noise
could produce, ten times its true value or more. So a new A is corrected where it is too large, to
no less than a fifth of what it was.

**Averaging.** Gradients that are consistent with the earlier ones and the quadratic model are
averaged with these, weighted by inverse variance, and so are their points: the average of two
gradients of a quadratic is its gradient at the average point, with less noise. A difference that
noise does not explain is counted as an error of the earlier gradients, so that they get next to no
weight where the Hessian has changed.

Everything that was paid for is kept: the chains start from the last point, and A is given to the
sampler, which may use it for its mass matrix or its preconditioner.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from dpmcmc.checks import whole
from dpmcmc.samplers import roles
from dpmcmc.types import Answer, Array, Ask, Key, Plan, Position, Query

HALVINGS = 24
SURE = 3.0  # standard deviations of the gradients' noise
# Of the curvature along a step that a correction keeps at least
LEAST = 0.5
LEAST_NEW = 0.2  # if the Hessian was asked at the end of that step
# Reject the step if the directional derivative reverses by more
MAX_GRADIENT_REVERSAL = 0.5
LEAST_STEP = 0.05  # of a step that was rejected
UNKNOWN = 1e30  # variance of a gradient that has not been asked yet


class Released(NamedTuple):
    """A released gradient of the log-likelihood.

    Attributes:
        position: Where it was asked, or the weighted mean of several such points.
        gradient: The answer, or the weighted mean of several answers.
    """

    position: Position
    gradient: Answer


class Start(NamedTuple):
    """The result of a private start, made of released answers alone.

    Attributes:
        position: Where the chains start.
        precision: About the inverse of the posterior covariance: positive definite, of shape
            (d, d).
        hessian: Minus the Hessian of the log-likelihood where it was asked last, as released.
        included: The gradient that led from the point before to `position`; if several gradients
            are consistent with the quadratic model, their weighted mean.

    Example:
        >>> import numpy as np
        >>> from dpmcmc import Answer
        >>> from dpmcmc.samplers.start import Start
        >>> start = Start(np.zeros(2), np.eye(2), Answer(np.eye(2), 0.1))
        >>> start.included is None
        True
    """

    position: Position
    precision: Array
    hessian: Answer
    included: Released | None = None


def newton_start(
    log_prior: Callable[[Position], Array],
    gradient: Query | Plan,
    curvature: Query | Plan,
    num_steps: int = 8,
) -> Callable[[Key, Position, Ask], Start]:
    """A private start of noisy Newton steps, for `sample(start=...)`.

    By default it asks `curvature` once and `gradient` `num_steps` times, whatever the number of
    chains.

    Args:
        log_prior: The logarithm of the prior's density, up to a constant: `model.log_prior`.
        gradient: A `Gradient` query. Or a dict of queries and of how often each is asked, one
            after the other: give the last ones less noise.
        curvature: A `Curvature` query. Or a dict of one query and of the number of points, the
            first ones, where it is asked: several where effects may be strong.
        num_steps: How often a single `gradient` is asked; a dict says it itself.

    Returns:
        A function of a key, a position and `ask` that returns a start: its `position`, its
        `precision` (about the inverse posterior covariance), its `hessian` and the gradients
        `included` in a survey there.

    Raises:
        TypeError: log_prior is not a function.
        ValueError: gradient names no query, curvature does not name exactly one, or a number is
            out of its range.

    Example:
        >>> import dpmcmc
        >>> from dpmcmc.queries import Curvature, Gradient
        >>> model = dpmcmc.models.logistic(1, radius=1.0)
        >>> gradient = Gradient(model.lipschitz, noise_multiplier=20.0)
        >>> curvature = Curvature(model.hessian_bound, noise_multiplier=20.0)
        >>> start = dpmcmc.newton_start(model.log_prior, gradient, curvature, num_steps=3)

        ``sample(rng_key, sampler, curator, position, start=start)`` runs it before the chains. A
        `sampler` that is a function of the start can use its precision.
    """
    roles.check_prior(log_prior)
    plan = _counts("num_steps", gradient, num_steps)
    if not plan:
        raise ValueError("gradient names no query: a start asks for one gradient at least")
    hessian_query, num_hessians = _single(_counts("num_hessians", curvature, 1), sum(plan.values()))

    def start(rng_key, position, ask):
        key_hessians, key_steps = jax.random.split(rng_key)

        def ask_hessian(index, at) -> tuple[Answer, Array]:
            answer = ask(jax.random.fold_in(key_hessians, index), hessian_query, at)
            # A symmetric matrix of noise of variance v has eigenvalues up to about sqrt(2 d v).
            floor = jnp.sqrt(2 * position.size * answer.variance)
            precision = lift(answer.value - zero_if_undefined(jax.hessian(log_prior)(at)), floor)
            return jax.tree.map(
                lambda found: jnp.asarray(found, position.dtype), (answer, precision)
            )

        def newton(query: Query, asks_hessian: bool, index, last: _Progress) -> _Progress:
            trial = last.point + last.step
            asked = ask_hessian(index, trial) if asks_hessian else None
            answer = ask(jax.random.fold_in(key_steps, index), query, trial)
            gradient = answer.value + zero_if_undefined(jax.grad(log_prior)(trial))
            gradient = gradient.astype(position.dtype)
            variance = jnp.asarray(jnp.max(answer.variance), position.dtype)
            return _advance(log_prior, last, trial, gradient, variance, asked)

        zero = jnp.zeros_like(position)
        unknown = jnp.asarray(UNKNOWN, position.dtype)
        if num_hessians == 1:
            first, precision = ask_hessian(0, position)
        else:
            first = Answer(jnp.diag(zero), jnp.zeros_like(unknown))
            precision = jnp.diag(1 + zero)
        last = _Progress(position, zero, unknown, zero, precision, first)
        for query, asks_hessian, begin, end in _phases(plan, num_hessians):
            last = lax.fori_loop(begin, end, functools.partial(newton, query, asks_hessian), last)
        gradient = last.gradient - zero_if_undefined(jax.grad(log_prior)(last.point))
        included = Released(last.point, Answer(gradient, last.variance))
        return Start(last.point + last.step, last.precision, last.hessian, included)

    return start


def _counts(name: str, asked: Query | Plan, count: int) -> dict[Query, int]:
    """Each query and how often it is asked: a single one, `count` times."""
    given = asked if isinstance(asked, Mapping) else {asked: count}
    return {query: whole(name, times) for query, times in given.items()}


def _single(asked: dict[Query, int], num_steps: int) -> tuple[Query, int]:
    """The one query for Hessians and its number, which is at most that of the steps."""
    if len(asked) != 1 or sum(asked.values()) > num_steps:
        raise ValueError(
            f"curvature names {len(asked)} queries, {sum(asked.values())} times in all: it must be "
            f"one, asked at most as often as gradients are ({num_steps} times)"
        )
    ((query, count),) = asked.items()
    return query, count


def _phases(plan: Plan, num_hessians: int) -> Iterator[tuple[Query, bool, int, int]]:
    """Consecutive steps that are alike: the query, whether the Hessian is asked too, the first step
    and the one after the last.

    A single Hessian is asked before the steps.
    """
    num_with_hessian = num_hessians if num_hessians > 1 else 0
    begin = 0
    for query, count in plan.items():
        middle = min(max(begin, num_with_hessian), begin + count)
        end = begin + count
        if begin < middle:
            yield query, True, begin, middle
        if middle < end:
            yield query, False, middle, end
        begin = end


class _Progress(NamedTuple):
    point: Position
    gradient: Array  # of the log posterior there: of the rows as released
    variance: Array  # of its noise
    step: Array  # to try next
    precision: Array
    hessian: Answer  # as released


def _advance(
    log_prior: Callable[[Position], Array],
    last: _Progress,
    trial: Position,
    gradient: Array,
    variance: Array,
    asked: tuple[Answer, Array] | None = None,
) -> _Progress:
    """From a point to the trial beyond it, whose gradient is now known; or back to the point with a
    shorter step, if that one was too long.

    `asked`: the Hessian at the trial and the precision made of it, if it was asked there.
    """
    decrease = last.gradient - gradient
    noise = (last.variance + variance) / 2
    updated = corrected(last.precision, last.step, decrease, noise)
    hessian = last.hessian
    precision = updated
    if asked is not None:
        hessian, precision = asked
        precision = corrected(precision, last.step, decrease, noise, is_new=True)
    is_too_long, shorter = _too_long(last, gradient, variance)
    weight = _weight_of_new(last, gradient, variance)
    point = (1 - weight) * last.point + weight * trial
    mean = (1 - weight) * last.gradient + weight * gradient
    step = jnp.linalg.solve(precision, mean)
    step = _share_inside(log_prior, point, step) * step
    back = last._replace(step=shorter, precision=updated)
    there = _Progress(point, mean, weight * variance, step, precision, hessian)
    return jax.tree.map(lambda old, new: jnp.where(is_too_long, old, new), back, there)


def _too_long(last: _Progress, gradient: Array, variance: Array) -> tuple[Array, Array]:
    """Whether the directional derivative has reversed at the trial, and the step that ends where a
    straight line through both derivatives is zero.

    Noise may explain a reversal, and a small one is allowed.
    """
    before = jnp.dot(last.gradient, last.step)
    after = jnp.dot(gradient, last.step)
    both = variance + MAX_GRADIENT_REVERSAL**2 * last.variance
    noise = SURE * jnp.sqrt(both) * jnp.linalg.norm(last.step)
    is_reversed = after < -MAX_GRADIENT_REVERSAL * before - noise
    share = before / jnp.where(is_reversed, before - after, 1)
    return is_reversed, jnp.clip(share, LEAST_STEP, 1) * last.step


def _weight_of_new(last: _Progress, gradient: Array, variance: Array) -> Array:
    """The weight of the gradient at the trial in the mean of both gradients, which is that of a
    quadratic at the mean of both points.

    By inverse variance; a difference from the predicted gradient that noise does not explain is
    added to the variance of the old one.
    """
    difference = gradient - (last.gradient - last.precision @ last.step)
    unexplained = jnp.maximum(0, jnp.mean(difference**2) - variance - last.variance)
    total = variance + last.variance + unexplained
    return 1 - jnp.where(total > 0, variance / jnp.where(total > 0, total, 1), 0)


def corrected(
    precision: Array, step: Array, decrease: Array, variance: Array, is_new: bool = False
) -> Array:
    """The precision, corrected along the step by the decrease of the gradient there if the
    difference exceeds the noise.

    A precision that `is_new` is made of a Hessian that was asked at the end of the step: where its
    eigenvalues were raised it may be too large, so it is never increased.
    """
    least = LEAST_NEW if is_new else LEAST
    found = jnp.dot(step, decrease)
    along = precision @ step
    assumed = jnp.dot(step, along)
    noise = SURE * jnp.sqrt(2 * variance) * jnp.linalg.norm(step)
    is_less = (assumed - found > noise) & (found > noise)  # and surely positive
    is_known = is_less if is_new else is_less | (found - assumed > noise)
    is_little = is_known & (found < least * assumed)
    decrease = along + jnp.where(
        is_little, (1 - least) * assumed / jnp.where(is_little, assumed - found, 1), 1
    ) * (decrease - along)
    found = jnp.where(is_known, jnp.dot(step, decrease), 1)
    update = jnp.outer(decrease, decrease) / found - jnp.outer(along, along) / jnp.where(
        is_known, assumed, 1
    )
    return precision + jnp.where(is_known, update, 0)


def zero_if_undefined(derivative: Array) -> Array:
    """With 0 where a prior has no derivative, such as |x| at 0: one entry that is not a number
    would waste everything that is paid for.
    """
    return jnp.where(jnp.isfinite(derivative), derivative, 0)


def _share_inside(log_prior: Callable[[Position], Array], point: Position, step: Array) -> Array:
    """1, or 1/2, 1/4, ...: how much of the step ends where the prior has any density."""
    shares = 0.5 ** jnp.arange(HALVINGS, dtype=point.dtype)
    is_inside = jax.vmap(lambda share: log_prior(point + share * step) > -jnp.inf)(shares)
    return jnp.where(jnp.any(is_inside), shares[jnp.argmax(is_inside)], 0)


def lift(matrix: Array, floor: Array) -> Array:
    """The symmetric matrix with its eigenvalues raised to at least `floor`."""
    values, vectors = jnp.linalg.eigh(matrix)
    return (vectors * jnp.maximum(values, floor)) @ vectors.T
