"""The penalty on a sufficient statistic keeps every family's exact posterior; twins that spare
noise do not.

Chains start at exact draws and are independent. First and second moments of 64 chains: family-wise
false-alarm rate 1e-3 over all scores of this file (Bonferroni, Student's law with 63 degrees of
freedom).
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

from dpmcmc import (
    Budget,
    Curator,
    Neighbours,
    exponential_penalty,
    models,
    random_walk,
    sample,
    testing,
)
from dpmcmc.queries import SufficientStatistic
from dpmcmc.samplers.exponential import change
from dpmcmc.types import Answer, Sampler, Unit
from tests.chains import SECRET
from tests.statistics import moment_z_scores, threshold

pytestmark = pytest.mark.usefixtures("quick_compilation")

REPLACE, ADD = Unit(), Unit(Neighbours.ADD_OR_REMOVE_ONE)
KEY, NUM_CHAINS, NUM_STEPS = jax.random.key(3), 64, 1000


class Problem(NamedTuple):
    """A model, a few rows, and the exact mean and covariance of its posterior."""

    model: Any
    rows: Any
    mean: np.ndarray
    covariance: np.ndarray
    starts: Any
    scale: Any
    query: SufficientStatistic


def binomial(temperature=1.0):
    rows = np.asarray(testing.simulate_binomial_rows(KEY, 12, [0.8], 3))
    a, b = testing.binomial_posterior(rows, 3, temperature=temperature)
    starts = testing.draw_binomial_posterior(KEY, NUM_CHAINS, rows, 3, temperature=temperature)
    mean, variance = (
        special.psi(a) - special.psi(b),
        special.polygamma(1, a) + special.polygamma(1, b),
    )
    query = SufficientStatistic(0.5, temperature)
    return Problem(
        models.binomial(3),
        rows,
        np.array([mean]),
        np.array([[variance]]),
        starts,
        1.5 * variance**0.5,
        query,
    )


def poisson_rate():
    rows = np.asarray(testing.simulate_poisson_rate_rows(KEY, 12, [0.5], 8))
    shape, rate = testing.poisson_rate_posterior(rows)
    starts = testing.draw_poisson_rate_posterior(KEY, NUM_CHAINS, rows)
    mean, variance = special.psi(shape) - np.log(rate), special.polygamma(1, shape)
    query = SufficientStatistic(0.4)
    return Problem(
        models.poisson_rate(8),
        rows,
        np.array([mean]),
        np.array([[variance]]),
        starts,
        1.5 * variance**0.5,
        query,
    )


def categorical():
    rows = np.asarray(testing.simulate_categorical_rows(KEY, 40, [0.6, -0.3]))
    a = testing.categorical_posterior(rows, 3, 2.0)
    starts = testing.draw_categorical_posterior(KEY, NUM_CHAINS, rows, 3, 2.0)
    mean = special.psi(a[:2]) - special.psi(a[2])
    covariance = np.diag(special.polygamma(1, a[:2])) + special.polygamma(1, a[2])
    return Problem(
        models.categorical(3, 2.0), rows, mean, covariance, starts, 0.4, SufficientStatistic(0.8)
    )


def linear():
    rows = tuple(
        map(
            np.asarray, testing.simulate_linear_rows(KEY, 25, [0.5, -1.0], 1.0, 1.0, intercept=True)
        )
    )
    mean, covariance = map(np.asarray, testing.linear_posterior(rows, 1.0, intercept=True))
    starts = testing.draw_linear_posterior(KEY, NUM_CHAINS, rows, 1.0, intercept=True)
    model = models.linear(
        1, 1.0, intercept=True, radius=1.0, response_bound=6.0, position_radius=8.0
    )
    return Problem(
        model,
        rows,
        mean,
        covariance,
        starts,
        1.2 * np.linalg.cholesky(covariance),
        SufficientStatistic(0.12),
    )


def run(problem, sampler, unit=REPLACE, num_steps=NUM_STEPS):
    curator = Curator(problem.rows, problem.model, None, fixed_secret=SECRET)
    curator._account.unit = unit  # a promise that these small tables could not keep
    keys, starts = jax.random.split(KEY, NUM_CHAINS), jnp.asarray(problem.starts, jnp.float32)

    def chain(ask, key, position):
        key_init, key_steps = jax.random.split(key)

        def step(state, key):
            state, info = sampler.step(key, state, ask)
            return state, (state.position, info)

        return jax.lax.scan(
            step, sampler.init(key_init, position, ask), jax.random.split(key_steps, num_steps)
        )[1]

    traced = curator.trace(
        lambda ask, keys, starts: jax.vmap(lambda k, s: chain(ask, k, s))(keys, starts),
        keys,
        starts,
    )
    draws, info = curator.grant(traced.plan).run(traced.compile(), keys, starts)
    assert 0.05 < np.mean(info.is_accepted) < 0.9
    return np.asarray(draws, float)


def largest_score(problem, sampler, unit=REPLACE, num_steps=NUM_STEPS):
    return np.abs(
        moment_z_scores(run(problem, sampler, unit, num_steps), problem.mean, problem.covariance)
    ).max()


CASES = {
    "binomial": (binomial, REPLACE),
    "binomial, noisy count, tempered": (lambda: binomial(0.4), ADD),
    "poisson rate, noisy count": (poisson_rate, ADD),
    "categorical": (categorical, REPLACE),
    "linear": (linear, REPLACE),
}
LIMIT = threshold(num_scores=2 + 2 + 2 + 5 + 5, num_chains=NUM_CHAINS)


@pytest.mark.slow  # every day tests/cases/samplers.py has a Gaussian one
@pytest.mark.parametrize("name", CASES)
def test_keeps_the_exact_posterior(name):
    make, unit = CASES[name]
    problem = make()
    sampler = exponential_penalty(problem.model, problem.query, random_walk(problem.scale))
    assert largest_score(problem, sampler, unit) < LIMIT


# -- twins ----------------------------------------------------------------------------------------


class Remembers(NamedTuple):
    position: Any
    memory: Any
    answer: Answer


def asked_once(problem):
    """One noisy statistic for the whole chain: cheaper, and the law of other rows."""
    honest = exponential_penalty(problem.model, problem.query, random_walk(problem.scale))

    def init(rng_key, position, ask):
        state = honest.init(rng_key, position, ask)
        return Remembers(*state, ask(rng_key, problem.query, position))

    def step(rng_key, state, ask):
        # The noise is no longer noise of the step, so nothing is taken off for it.
        kept = Answer(state.answer.value, jnp.zeros_like(state.answer.variance))
        new, info = honest.step(rng_key, state, lambda *_: kept)
        return Remembers(*new, state.answer), info

    return Sampler(init, step)


def without_the_variance_of_the_count(problem):
    honest = exponential_penalty(problem.model, problem.query, random_walk(problem.scale))

    def step(rng_key, state, ask):
        def forgetful(*arguments):
            answer = ask(*arguments)
            return Answer(answer.value, answer.variance.at[-1].set(0.0))

        return honest.step(rng_key, state, forgetful)

    return Sampler(honest.init, step)


TWINS = {
    "one statistic for all steps": (asked_once, binomial, REPLACE),
    "the noise of the count is forgotten": (without_the_variance_of_the_count, poisson_rate, ADD),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", TWINS)
def test_twins_are_caught(name):
    spoil, make, unit = TWINS[name]
    problem = make()
    assert largest_score(problem, spoil(problem), unit, 4 * NUM_STEPS) > LIMIT


SOMETIMES = [
    pytest.param(make, marks=pytest.mark.slow) for make in (binomial, poisson_rate, linear)
]


@pytest.mark.parametrize("make", [categorical, *SOMETIMES])
def test_every_family_is_taken_and_traced(make):
    """Also one with constants of 64 bits, after the curator has looked at it in single
    precision."""
    problem = make()
    curator = Curator(problem.rows, problem.model, None)
    traced = curator.trace(
        lambda ask, key, point: ask(key, problem.query, point),
        KEY,
        jnp.asarray(problem.starts[0], jnp.float32),
    )
    assert traced.plan == {problem.query: 1}


# -- details --------------------------------------------------------------------------------------


def test_small_differences_are_not_lost():
    """Moves of 1e-4 around 2, n = 10^8: in float32 the log-partition alone would be off by more
    than 1.
    """
    family = models.binomial().family
    position, proposal = np.array([2.0], np.float32), np.array([2.0001], np.float32)
    _, per_row = np.asarray(jax.jit(lambda a, b: change(family, a, b))(position, proposal), float)
    before, after = float(position[0]), float(proposal[0])
    wanted = 0.5 * (after - before) - (np.log1p(np.exp(after)) - np.log1p(np.exp(before)))
    assert abs(1e8 * (per_row - wanted)) < 1e-4
    in_float32 = family.log_partition(jnp.asarray(proposal)) - family.log_partition(
        jnp.asarray(position)
    )
    assert abs(1e8 * (0.5 * (after - before) - float(in_float32) - wanted)) > 1


@pytest.mark.slow
def test_runs_within_a_budget():
    rows = np.asarray(testing.simulate_binomial_rows(KEY, 5000, [0.8]))
    curator = Curator(
        rows, models.binomial(), Budget(1.0, 1e-6, Neighbours.ADD_OR_REMOVE_ONE), capacity=8000
    )
    sampler = exponential_penalty(curator.model, SufficientStatistic(50.0), random_walk(0.03))
    result = sample(KEY, sampler, curator, np.zeros(1), num_chains=2, progress=False)
    assert 0.9 < result.posterior.attrs["epsilon"] <= 1.0
    assert {"probability"} == set(result.posterior) and "acceptance" in result.sample_stats
