"""A private start, billed: noisy Newton steps from a public point, shared by all chains.

One noisy curvature matrix at the public point, then noisy gradients:

    A = C + (minus the Hessian of the log prior),  its eigenvalues lifted to at least what the noise in C could fake
    x <- x + A^-1 (G(x) + grad log prior(x)),      `num_steps` times, each halved until it ends where the prior has density

The curvature on the way is another one than at the start. For logistic regression that at zero is the largest anywhere (every row's
weight p (1 - p) is at most 1/4): steps from there are too short, the more so the stronger the effects are. From other points, and
in other models, they may be too long. Two released gradients tell. With s the last step and y the fall of the slope along it, s.y
is the curvature found and s.A s the one assumed; where they differ by more than the gradients' noise explains, A is corrected along
s (the BFGS update), to half of it at least (:cite:p:`powell1978algorithms`), so that the next step is no leap. If it was raised and
the slope has not become smaller, the step is taken back and tried again with the new A. All this costs nothing.

What was paid for is kept: the last point starts the chains, and A is handed to the sampler, whose mass matrix or preconditioner
may be made of it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from dpmcmc.samplers import roles
from dpmcmc.types import Answer, Array, Ask, Key, Plan, Position, Query, whole

HALVINGS = 24
SURE = 3.0  # standard deviations of the gradients' noise
LEAST = 0.5  # of the curvature along a step is left at least


class Seen(NamedTuple):
    """A slope of the log-likelihood, as released."""

    position: Position
    gradient: Answer


class Start(NamedTuple):
    """What a private start has learned: all of it made of released answers."""

    position: Position
    precision: Array  # (d, d): about the inverse of the posterior covariance, positive definite
    curvature: Answer  # of the log-likelihood at the point it began at, as released
    seen: Seen | None = None  # the point before, and the slope that led on from there


def newton_start(
    log_prior: Callable[[Position], Array], gradient: Query | Plan, curvature: Query, num_steps: int = 8
) -> Callable[[Key, Position, Ask], Start]:
    """A start for `sample(start=...)`: asks `curvature` once and `gradient` `num_steps` times, whatever the number of chains.

    `gradient` may be a dict, of queries and how often each is asked, one after the other: the last ones with less noise.
    """
    roles.check_prior(log_prior)
    given = gradient if isinstance(gradient, Mapping) else {gradient: num_steps}
    plan = {query: whole("num_steps", count) for query, count in given.items()}
    if not plan:
        raise ValueError("gradient names no query: a start asks for one gradient at least")

    def start(rng_key, position, ask):
        key_curvature, key_steps = jax.random.split(rng_key)
        answer = ask(key_curvature, curvature, position)
        # A symmetric matrix of noise of variance v has eigenvalues up to about sqrt(2 d v).
        floor = jnp.sqrt(2 * position.size * answer.variance)
        precision = lift(answer.value - _known(jax.hessian(log_prior)(position)), floor)

        def newton(query: Query, index, reached: _Reached) -> _Reached:
            trial = reached.point + reached.step
            answer = ask(jax.random.fold_in(key_steps, index), query, trial)
            slope = answer.value + _known(jax.grad(log_prior)(trial))
            return _advance(log_prior, reached, trial, slope, jnp.max(answer.variance))

        nowhere = jnp.zeros_like(position)
        last = _Reached(position, nowhere, jnp.zeros((), position.dtype), nowhere, precision.astype(position.dtype))
        first = 0
        for query, count in plan.items():
            last = lax.fori_loop(first, first + count, functools.partial(newton, query), last)
            first += count
        slope = last.slope - _known(jax.grad(log_prior)(last.point))
        return Start(last.point + last.step, last.precision, answer, Seen(last.point, Answer(slope, last.variance)))

    return start


class _Reached(NamedTuple):
    point: Position
    slope: Array  # of the log posterior there, as released
    variance: Array  # of its noise
    step: Array  # to try next
    precision: Array


def _advance(log_prior: Callable[[Position], Array], reached: _Reached, trial: Position, slope: Array, variance: Array) -> _Reached:
    """From a point to the trial beyond it, where the slope is now known; or not, if that was too far."""
    precision, is_raised = corrected(reached.precision, reached.step, reached.slope - slope, (reached.variance + variance) / 2)
    lengths = [jnp.dot(vector, jnp.linalg.solve(precision, vector)) for vector in (reached.slope, slope)]
    is_back = is_raised & ~(lengths[1] <= lengths[0])
    pairs = ((reached.point, trial), (reached.slope, slope), (reached.variance, jnp.asarray(variance, slope.dtype)))
    point, slope, variance = (jnp.where(is_back, old, new) for old, new in pairs)
    step = jnp.linalg.solve(precision, slope)
    return _Reached(point, slope, variance, _share_inside(log_prior, point, step) * step, precision)


def corrected(precision: Array, step: Array, fall: Array, variance: Array) -> tuple[Array, Array]:
    """The precision with what the fall of the slope says of it along the step, and whether that is more than was assumed."""
    found, along = jnp.dot(step, fall), precision @ step
    assumed = jnp.dot(step, along)
    noise = SURE * jnp.sqrt(2 * variance) * jnp.linalg.norm(step)
    is_raised = found - assumed > noise
    is_known = is_raised | ((assumed - found > noise) & (found > noise))  # and surely positive
    is_little = is_known & (found < LEAST * assumed)
    fall = along + jnp.where(is_little, (1 - LEAST) * assumed / jnp.where(is_little, assumed - found, 1), 1) * (fall - along)
    found = jnp.where(is_known, jnp.dot(step, fall), 1)
    update = jnp.outer(fall, fall) / found - jnp.outer(along, along) / jnp.where(is_known, assumed, 1)
    return precision + jnp.where(is_known, update, 0), is_raised


def _known(derivative: Array) -> Array:
    """With 0 where a prior has no derivative, as |x| at 0: one such number would make all that is paid for no number."""
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
