"""The thermostat: its bias as the step shrinks, and what its friction absorbs.

|z| < 4.6 has a false-alarm rate of 4.2e-6; this file takes 7 scores.
"""

import functools

import arviz
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpmcmc import Curator, models, sgnht
from dpmcmc.queries import Gradient
from dpmcmc.types import Sampler
from tests.samplers.gradient_chains import (
    MEAN,
    POSTERIOR_PRECISION,
    answers,
    exact_draws,
    gaussian,
    log_prior,
    run,
)

LIMIT = 4.6
STEPS = np.array([0.2, 0.35, 0.5, 0.65], np.float32)
NOISE = 2.0
FRICTION = 1.0
EIGENVALUES, EIGENVECTORS = np.linalg.eigh(POSTERIOR_PRECISION)


def frozen(sampler):
    """The twin: the friction does not move, so nothing balances the noise of the gradient."""

    def step(rng_key, state, ask):
        new, info = sampler.step(rng_key, state, ask)
        return new._replace(friction=state.friction), info

    return Sampler(sampler.init, step)


@functools.cache
def runs(subtract, is_frozen=False):
    """Draws (step sizes, chains, draws, d) and frictions (step sizes, chains, draws)."""

    def at(step_size):
        sampler = sgnht(
            log_prior, "gradient", lambda index: step_size, FRICTION, subtract_noise=subtract
        )
        sampler = frozen(sampler) if is_frozen else sampler
        ask = answers(gaussian(NOISE), variance=NOISE**2)
        draws, info = run(sampler, ask, jax.random.key(0), exact_draws(1024), 1200)
        return draws, info.friction

    draws, frictions = jax.lax.map(at, STEPS)
    return np.asarray(draws)[:, :, 300:], np.asarray(frictions)[:, :, 300:]


def intercept(draws, axis):
    """The excess variance along an eigenvector at step 0, from a + b h^2 + c h^4, and its standard
    error.
    """
    values, errors = [], []
    for part in draws:
        squares = ((part - MEAN) @ EIGENVECTORS[:, axis]) ** 2 * EIGENVALUES[axis]
        size = float(arviz.ess(squares, method="mean"))
        assert size >= 2000
        values.append(squares.mean() - 1)
        errors.append(squares.std() / size**0.5)
    steps, values, errors = STEPS.astype(float), np.array(values), np.array(errors)
    design = np.stack([np.ones_like(steps), steps**2, steps**4], axis=1) / errors[:, None]
    covariance = np.linalg.inv(design.T @ design)
    return (covariance @ design.T @ (values / errors))[0], covariance[0, 0] ** 0.5


@pytest.mark.slow
@pytest.mark.parametrize("subtract", [pytest.param(True, marks=pytest.mark.slow), False])
@pytest.mark.parametrize("axis", [0, 1])
def test_the_bias_vanishes_with_the_square_of_the_step(subtract, axis):
    value, error = intercept(runs(subtract)[0], axis)
    assert abs(value) < LIMIT * error and error < 0.05


@pytest.mark.slow
def test_a_frozen_friction_is_caught():
    # The kicks heat the momentum by h v / 2 A, linear in h: the extrapolation in h^2 misses zero.
    value, error = intercept(runs(False, is_frozen=True)[0], 1)
    assert abs(value) > 6 * error


@pytest.mark.slow
def test_the_friction_absorbs_what_is_not_subtracted():
    for index, step_size in enumerate(STEPS[:2]):
        kept, absorbed = runs(True)[1][index], runs(False)[1][index]
        size = float(arviz.ess(absorbed, method="mean"))
        excess = absorbed.mean() - kept.mean()
        assert excess == pytest.approx(step_size * NOISE**2 / 2, rel=0.25) and size > 200


def test_the_plan_is_one_gradient_a_step():
    rows, model = np.zeros((5, 2), np.float32), models.gaussian(np.ones(2))
    query = Gradient(1.0, 1.0)
    sampler = sgnht(model.log_prior, query, 0.1)

    def program(ask, key, position):
        state = sampler.init(key, position, ask)
        keys = jax.random.split(jax.random.fold_in(key, 1), 7)
        return jax.lax.scan(lambda state, key: sampler.step(key, state, ask), state, keys)[
            0
        ].position

    assert Curator(rows, model, None).trace(program, jax.random.key(0), jnp.zeros(2)).plan == {
        query: 7
    }


def test_the_support_is_kept(quick_compilation):
    def inside(position):
        return jnp.where(jnp.sum(position**2) < 1.0, log_prior(position), -jnp.inf)

    sampler = sgnht(inside, "gradient", 0.3, preconditioner=[[1.0, 0.2], [0.2, 1.0]])
    draws, _ = run(
        sampler, answers(gaussian(0.1), variance=0.01), jax.random.key(1), jnp.zeros((64, 2)), 100
    )
    assert 0.5 < np.sum(np.asarray(draws) ** 2, axis=-1).max() < 1.0


def test_a_chain_goes_on_after_a_step_that_left_the_numbers(quick_compilation):
    """Its friction had become infinite, and the chain never moved again."""

    def seldom_huge(key, position):
        return jnp.where(jax.random.uniform(key) < 0.02, 1e38, 0.0)

    draws, info = run(
        sgnht(log_prior, "gradient", 0.3),
        answers(seldom_huge),
        jax.random.key(1),
        exact_draws(64),
        300,
    )
    share = np.mean(info.is_divergent[:, -100:])
    assert 0 < share < 0.05 and np.isfinite(info.friction).all() and np.abs(draws).max() < 20


@pytest.mark.parametrize("options, text", [
    ({"step_size": 0.0}, "step_size=0.0"),
    ({"friction": -1.0}, "friction=-1.0"),
    ({"preconditioner": [[1.0, 2.0], [2.0, 1.0]]}, "positive definite"),
])  # fmt: skip
def test_bad_settings_are_named(options, text):
    with pytest.raises(ValueError, match=text):
        sgnht(log_prior, "gradient", **{"step_size": 0.1, **options})
