r"""DP-Fast MH as published (:cite:p:`zhang2023dpfast`, Algorithm 2), as an exhibit on rows that are
nobody's.

**Not private, whatever its epsilon says.** Its rejections depend on the rows without a bound on
the loss, and where its sensitivity is small it adds no noise at all. There it still subtracts half
of the variance that the noise would have had, so that its draws do not have the posterior's law.

With U_i the tempered energy of a row, c a bound on its slope and C = n c:

    minibatch   B ~ Poisson(lambda + C |move|) draws of rows, each kept with TunaMH's probability;
                the sensitivity is 2 log(1 + C |move| / lambda)
    full batch  where B >= K;  the sensitivity is 2 c |move|
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from dpmcmc.papers.problems import Problem

LAMBDA = 10.0
DELTA = 1e-5
MOST_BATCH = 60  # the paper's K at epsilon = 0.05; in proportion to epsilon elsewhere
MOST_BATCH_EPSILON = 0.05
SLOTS = 240  # of a minibatch: more are not drawn


class Settings(NamedTuple):
    """Of one chain."""

    epsilon: float  # claimed for each step
    scale: float  # of the moves
    is_full: bool  # always all rows


def most_batch(epsilon: float) -> int:
    """K: larger batches are replaced by all rows."""
    return max(1, min(SLOTS, round(MOST_BATCH * epsilon / MOST_BATCH_EPSILON)))


def chain(problem: Problem, settings: Settings, num_steps: int) -> Callable:
    """From a key and a start to draws (steps, d) and the rows that each step read."""
    num_rows = problem.num_rows
    total = num_rows * _slope(problem)
    of_all = _of_all(problem, settings)
    of_few = _of_few(problem, settings)

    def step(position, key):
        key_move, key_size, key_ratio, key_test = jax.random.split(key, 4)
        proposal = position + settings.scale * jax.random.normal(key_move, position.shape)
        length = jnp.linalg.norm(proposal - position)
        size = jax.random.poisson(key_size, LAMBDA + total * length)
        is_full = settings.is_full | (size >= most_batch(settings.epsilon))
        ratio = jax.lax.cond(
            is_full,
            lambda: of_all(key_ratio, position, proposal, length),
            lambda: of_few(key_ratio, position, proposal, length, size),
        )
        ratio += problem.model.log_prior(proposal) - problem.model.log_prior(position)
        is_accepted = -jax.random.exponential(key_test) < ratio
        position = jnp.where(is_accepted, proposal, position)
        return position, (position, jnp.where(is_full, num_rows, size))

    return lambda key, start: jax.lax.scan(step, start, jax.random.split(key, num_steps))[1]


def _slope(problem: Problem) -> float:
    """c, of one row of all."""
    assert problem.model.lipschitz is not None
    return problem.temperature * problem.model.lipschitz


def _noisy(key, sensitivity, threshold: float, deviation: float):
    """The noise less half of its variance, which is taken off even if there is none."""
    size = deviation * sensitivity
    noise = jnp.where(sensitivity <= threshold, 0.0, size * jax.random.normal(key))
    return noise - size**2 / 2


def _of_all(problem: Problem, settings: Settings) -> Callable:
    """The noisy log-ratio of all rows."""
    log_likelihoods = jax.vmap(problem.model.log_likelihood, (None, 0))
    deviation = math.sqrt(2 * math.log(1.25 / DELTA)) / settings.epsilon
    slope = _slope(problem)

    def ratio(key, position, proposal, length):
        change = log_likelihoods(proposal, problem.rows) - log_likelihoods(position, problem.rows)
        noise = _noisy(key, 2 * slope * length, settings.epsilon, deviation)
        return problem.power * jnp.sum(change) + noise

    return ratio


def _of_few(problem: Problem, settings: Settings) -> Callable:
    """The noisy log-ratio of a minibatch."""
    rows, num_rows = problem.rows, problem.num_rows
    log_likelihoods = jax.vmap(problem.model.log_likelihood, (None, 0))
    slope = _slope(problem)
    most = most_batch(settings.epsilon)
    share = 6 * most / num_rows  # 6 K max c / C
    inside = max(2.5 * most / (num_rows * DELTA), 1.0)
    deviation = share * math.sqrt(2 * math.log(inside)) / settings.epsilon

    def ratio(key, position, proposal, length, size):
        key_rows, key_keep, key_noise = jax.random.split(key, 3)
        drawn = rows[jax.random.randint(key_rows, (SLOTS,), 0, len(rows))]
        change = log_likelihoods(proposal, drawn) - log_likelihoods(position, drawn)
        tempered = problem.temperature * change
        width = LAMBDA / num_rows + slope * length
        chance = (LAMBDA / num_rows + (slope * length + tempered) / 2) / width
        is_kept = jax.random.uniform(key_keep, (SLOTS,)) < chance
        reach = num_rows * slope * length
        terms = 2 * jnp.arctanh(num_rows * tempered / (2 * LAMBDA + reach))
        total = jnp.sum(jnp.where(is_kept & (jnp.arange(SLOTS) < size), terms, 0.0))
        sensitivity = 2 * jnp.log1p(reach / LAMBDA)
        return total + _noisy(key_noise, sensitivity, settings.epsilon / share, deviation)

    return ratio
