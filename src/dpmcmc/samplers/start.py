"""A private start, billed: noisy Newton steps from a public point, shared by all chains.

A noisy curvature matrix at the public point, or at each of the first points, and noisy gradients:

    A = C + (minus the Hessian of the log prior)
    x <- x + A^-1 (G(x) + grad log prior(x)),      `num_steps` times

The eigenvalues of A are lifted to at least what the noise in C could fake, and each step is halved
until it ends where the prior has density.

**Too far.** Rows whose pull is bounded have next to no curvature from afar, and steps from there go
far beyond the posterior. Of a concave log posterior a slope that still leads on at the end of a
step is proof that the step led up. Where it leads back, by half of what led on and by more than
noise explains, the step is taken back and tried again, as long as a straight line between both
slopes says. Where the log posterior is not concave a step into its flat tails may still pass.

**Another curvature.** For logistic regression that at zero is the largest anywhere (every row's
weight p (1 - p) is at most 1/4): steps that assume it are too short, the more so the stronger the
effects are. To ask it again at each point is the remedy. Where it is asked but once two released
gradients tell. With s the last step and y the fall of the slope along it, s.y is the curvature
found and s.A s the one assumed; where they differ by more than the gradients' noise explains, A is
corrected along s (the BFGS update), to half of it at least (:cite:p:`powell1978algorithms`), so
that the next step is no leap. They also tell where the curvature was asked but is lost in noise, as
along the noise of a linear regression that is small beside its bound: it was lifted there to what
noise could fake, ten times what it is or more. So an A that is new is corrected where it turns out
to be too much, to a fifth of it at least.

**Noise.** Slopes that are what the ones before let expect are averaged with these, by their
precisions, and so are their points: of a quadratic that is the slope at that point, with less
noise. What noise does not explain counts against the old ones, so that nothing is left of them
where the curvature is another one.

What was paid for is kept: the last point starts the chains, and A is handed to the sampler, whose
mass matrix or preconditioner may be made of it.
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
# Of the curvature along a step is left at least; of one that has just been asked
LEAST, LEAST_NEW = 0.5, 0.2
# Reject the step if the directional derivative reverses by more
MAX_GRADIENT_REVERSAL = 0.5
LEAST_STEP = 0.05  # of a step that was too far
UNKNOWN = 1e30  # variance of what is not known yet


class Seen(NamedTuple):
    """A slope of the log-likelihood, as released."""

    position: Position
    gradient: Answer


class Start(NamedTuple):
    """What a private start has learned: all of it made of released answers."""

    position: Position
    precision: Array  # (d, d): about the inverse of the posterior covariance, positive definite
    curvature: Answer  # of the log-likelihood where it was asked last, as released
    # The point before, and the slope that led on from there: of several that agree, their mean
    seen: Seen | None = None


def newton_start(
    log_prior: Callable[[Position], Array],
    gradient: Query | Plan,
    curvature: Query | Plan,
    num_steps: int = 8,
) -> Callable[[Key, Position, Ask], Start]:
    """A start for `sample(start=...)`: asks `curvature` once and `gradient` `num_steps` times,
    whatever the number of chains.

    `gradient` may be a dict, of queries and how often each is asked, one after the other: the last
    ones with less noise. So may `curvature`, of one query and at how many of the points it is
    asked, the first ones: at several where effects may be strong.
    """
    roles.check_prior(log_prior)
    plan = _counts("num_steps", gradient, num_steps)
    if not plan:
        raise ValueError("gradient names no query: a start asks for one gradient at least")
    look, num_looks = _single(_counts("num_looks", curvature, 1), sum(plan.values()))

    def start(rng_key, position, ask):
        key_looks, key_steps = jax.random.split(rng_key)

        def looked(index, at) -> tuple[Answer, Array]:
            answer = ask(jax.random.fold_in(key_looks, index), look, at)
            # A symmetric matrix of noise of variance v has eigenvalues up to about sqrt(2 d v).
            floor = jnp.sqrt(2 * position.size * answer.variance)
            precision = lift(answer.value - _known(jax.hessian(log_prior)(at)), floor)
            return jax.tree.map(
                lambda found: jnp.asarray(found, position.dtype), (answer, precision)
            )

        def newton(query: Query, is_looking: bool, index, reached: _Reached) -> _Reached:
            trial = reached.point + reached.step
            seen = looked(index, trial) if is_looking else None
            answer = ask(jax.random.fold_in(key_steps, index), query, trial)
            slope = answer.value + _known(jax.grad(log_prior)(trial))
            variance = jnp.asarray(jnp.max(answer.variance), position.dtype)
            return _advance(log_prior, reached, trial, slope.astype(position.dtype), variance, seen)

        nothing = jnp.zeros_like(position)
        unknown = jnp.asarray(UNKNOWN, position.dtype)
        nowhere = Answer(jnp.diag(nothing), jnp.zeros_like(unknown)), jnp.diag(1 + nothing)
        first, precision = looked(0, position) if num_looks == 1 else nowhere
        last = _Reached(position, nothing, unknown, nothing, precision, first)
        for query, is_looking, begin, end in _phases(plan, num_looks if num_looks > 1 else 0):
            last = lax.fori_loop(begin, end, functools.partial(newton, query, is_looking), last)
        slope = last.slope - _known(jax.grad(log_prior)(last.point))
        return Start(
            last.point + last.step,
            last.precision,
            last.curvature,
            Seen(last.point, Answer(slope, last.variance)),
        )

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


def _phases(plan: Plan, num_looks: int) -> Iterator[tuple[Query, bool, int, int]]:
    """Steps in a row that are alike: the query, whether the curvature is asked too, the first step
    and the one after the last.
    """
    begin = 0
    for query, count in plan.items():
        middle = min(max(begin, num_looks), begin + count)
        end = begin + count
        yield from (
            phase
            for phase in ((query, True, begin, middle), (query, False, middle, end))
            if phase[2] < phase[3]
        )
        begin = end


class _Reached(NamedTuple):
    point: Position
    slope: Array  # of the log posterior there: of the rows as released
    variance: Array  # of its noise
    step: Array  # to try next
    precision: Array
    curvature: Answer  # as released


def _advance(
    log_prior: Callable[[Position], Array],
    reached: _Reached,
    trial: Position,
    slope: Array,
    variance: Array,
    looked: tuple[Answer, Array] | None = None,
) -> _Reached:
    """From a point to the trial beyond it, where the slope is now known; or not, if that was too
    far.

    `looked`: the curvature at the trial and the precision made of it, if it was asked there.
    """
    fall = reached.slope - slope
    noise = (reached.variance + variance) / 2
    learned = corrected(reached.precision, reached.step, fall, noise)
    curvature = reached.curvature
    precision = learned
    if looked is not None:
        curvature, precision = looked
        precision = corrected(precision, reached.step, fall, noise, is_new=True)
    is_back, shorter = _too_far(reached, slope, variance)
    share = _share_of_news(reached, slope, variance)
    point, found = (
        (1 - share) * old + share * new
        for old, new in ((reached.point, trial), (reached.slope, slope))
    )
    step = jnp.linalg.solve(precision, found)
    here = reached._replace(step=shorter, precision=learned)
    there = _Reached(
        point,
        found,
        share * variance,
        _share_inside(log_prior, point, step) * step,
        precision,
        curvature,
    )
    return jax.tree.map(lambda here, there: jnp.where(is_back, here, there), here, there)


def _too_far(reached: _Reached, slope: Array, variance: Array) -> tuple[Array, Array]:
    """Whether the slope at the trial leads back along the step, and the step that ends where it
    would not lead anywhere.

    What noise explains does not count, nor a slope back that is much less than the one there was.
    """
    ahead = jnp.dot(reached.slope, reached.step)
    behind = jnp.dot(slope, reached.step)
    both = variance + MAX_GRADIENT_REVERSAL**2 * reached.variance
    noise = SURE * jnp.sqrt(both) * jnp.linalg.norm(reached.step)
    is_back = behind < -MAX_GRADIENT_REVERSAL * ahead - noise
    return is_back, jnp.clip(
        ahead / jnp.where(is_back, ahead - behind, 1), LEAST_STEP, 1
    ) * reached.step


def _share_of_news(reached: _Reached, slope: Array, variance: Array) -> Array:
    """What weight the slope at the trial has in the mean of both slopes, which is that of a
    quadratic at the mean of both points.

    By their precisions, as far as the new one is what the old one lets expect: what noise does not
    explain is an error of the old.
    """
    surprise = slope - (reached.slope - reached.precision @ reached.step)
    unexplained = jnp.maximum(0, jnp.mean(surprise**2) - variance - reached.variance)
    total = variance + reached.variance + unexplained
    return 1 - jnp.where(total > 0, variance / jnp.where(total > 0, total, 1), 0)


def corrected(
    precision: Array, step: Array, fall: Array, variance: Array, is_new: bool = False
) -> Array:
    """The precision with what the fall of the slope says of it along the step, as far as noise lets
    it be heard.

    One that `is_new` was asked at the end of the step: it may be too much, where it was lifted, and
    is never taken for too little.
    """
    least = LEAST_NEW if is_new else LEAST
    found = jnp.dot(step, fall)
    along = precision @ step
    assumed = jnp.dot(step, along)
    noise = SURE * jnp.sqrt(2 * variance) * jnp.linalg.norm(step)
    is_less = (assumed - found > noise) & (found > noise)  # and surely positive
    is_known = is_less if is_new else is_less | (found - assumed > noise)
    is_little = is_known & (found < least * assumed)
    fall = along + jnp.where(
        is_little, (1 - least) * assumed / jnp.where(is_little, assumed - found, 1), 1
    ) * (fall - along)
    found = jnp.where(is_known, jnp.dot(step, fall), 1)
    update = jnp.outer(fall, fall) / found - jnp.outer(along, along) / jnp.where(
        is_known, assumed, 1
    )
    return precision + jnp.where(is_known, update, 0)


def _known(derivative: Array) -> Array:
    """With 0 where a prior has no derivative, as |x| at 0: one such number would make all that is
    paid for no number.
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
