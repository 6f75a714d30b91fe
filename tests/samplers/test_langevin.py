"""Langevin dynamics: its law at finite steps against the exact one, its bias as the step shrinks,
and the published scaling.

On a Gaussian target with posterior precision Q the chain is linear, so its law is known: with P = I
and all noise accounted for, the variance along an eigenvector of Q with eigenvalue q is  1 / (q (1
- h q / 4)),  off by a factor 1 + h q / 4 + ... |z| < 4.6 has a false-alarm rate of 4.2e-6; this
file takes some 40 scores, 2e-4 for the family.
"""

import functools

import arviz
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpmcmc import Budget, Curator, hmc, models, sample, sgld, sgnht, testing
from dpmcmc.queries import Gradient, PoissonBatch
from tests.samplers.gradient_chains import (
    COVARIANCE,
    MEAN,
    POSTERIOR_PRECISION,
    Ratio,
    answers,
    exact_draws,
    gaussian,
    log_prior,
    run,
    z_scores,
)

LIMIT = 4.6
STEPS = np.array([0.08, 0.16, 0.32, 0.48], np.float32)
# Standard deviation of the gradient's noise: at the largest step it is most of what the dynamics
# asks for
NOISE = 2.0
EIGENVALUES, EIGENVECTORS = np.linalg.eigh(POSTERIOR_PRECISION)


@functools.cache
def draws_at_all_steps(is_published=False):
    """(step sizes, chains, draws, d).

    The published scaling moves by h, where Langevin's moves by h / 2, with the same noise.
    """
    ask = answers(
        gaussian(0.0 if is_published else NOISE), variance=0.0 if is_published else NOISE**2
    )
    factor = 2.0 if is_published else 1.0

    def scaled_ask(*arguments):
        answer = ask(*arguments)
        return answer._replace(value=factor * answer.value)

    def scaled_prior(position):
        return factor * log_prior(position)

    def at(step_size):
        return run(
            sgld(scaled_prior, "gradient", lambda index: step_size),
            scaled_ask,
            jax.random.key(0),
            exact_draws(1024),
            1200,
        )[0]

    return np.asarray(jax.lax.map(at, STEPS))[:, :, 300:]


def excess_variance(draws, eigenvalue, eigenvector):
    """Variance along an eigenvector relative to the posterior's, less 1, with its standard
    error."""
    squares = ((draws - MEAN) @ eigenvector) ** 2 * eigenvalue
    size = float(arviz.ess(squares, method="mean"))
    assert size >= 2000
    return squares.mean() - 1, squares.std() / size**0.5


def intercept_and_slope(steps, values, errors):
    """Weighted least squares of values = a + b h + c h^2: (a, b) and their standard errors."""
    design = np.stack([np.ones_like(steps), steps, steps**2], axis=1) / errors[:, None]
    covariance = np.linalg.inv(design.T @ design)
    return (covariance @ design.T @ (values / errors))[:2], np.sqrt(np.diag(covariance))[:2]


def regression(draws, axis):
    found = [excess_variance(part, EIGENVALUES[axis], EIGENVECTORS[:, axis]) for part in draws]
    return intercept_and_slope(STEPS.astype(float), *np.array(found).T)


@pytest.mark.slow
@pytest.mark.parametrize("axis", [0, 1])
def test_the_bias_vanishes_with_the_step(axis):
    (intercept, slope), (error, slope_error) = regression(draws_at_all_steps(), axis)
    assert abs(intercept) < LIMIT * error and error < 0.05
    assert abs(slope - EIGENVALUES[axis] / 4) < LIMIT * slope_error + 0.1 * EIGENVALUES[axis] / 4


@pytest.mark.slow
@pytest.mark.parametrize("axis", [0, 1])
def test_the_published_scaling_is_caught(axis):
    (intercept, _), (error, _) = regression(draws_at_all_steps(is_published=True), axis)
    assert abs(intercept) > 6 * error and intercept == pytest.approx(-0.5, abs=0.1)


@pytest.mark.parametrize(
    "index", [0, *(pytest.param(index, marks=pytest.mark.slow) for index in range(1, len(STEPS)))]
)
def test_the_law_at_a_finite_step_is_the_exact_one(index):
    variances = 1 / (EIGENVALUES * (1 - STEPS[index] * EIGENVALUES / 4))
    scores, size = z_scores(
        draws_at_all_steps()[index], MEAN, EIGENVECTORS @ np.diag(variances) @ EIGENVECTORS.T
    )
    assert size >= 2000 and np.abs(scores).max() < LIMIT


@pytest.mark.slow
@pytest.mark.parametrize("subtract", [True, False])
def test_a_dense_preconditioner(subtract):
    step, noise = 0.5, 1.0
    sampler = sgld(log_prior, "gradient", step, COVARIANCE, subtract_noise=subtract)
    ask = answers(gaussian(noise), variance=noise**2)
    draws, info = run(sampler, ask, jax.random.key(1), exact_draws(1024), 400)
    # x' = (1 - h/2) x + noise of covariance h P, and (h/2)^2 P v P on top of it if it is not
    # subtracted.
    injected = step * COVARIANCE + (
        0 if subtract else step**2 / 4 * noise**2 * COVARIANCE @ COVARIANCE
    )
    scores, size = z_scores(np.asarray(draws)[:, 50:], MEAN, injected / (1 - (1 - step / 2) ** 2))
    assert size >= 2000 and np.abs(scores).max() < LIMIT
    assert not (subtract and info.is_saturated.any())
    np.testing.assert_allclose(
        info.noise_ratio,
        1 if subtract else 1 + step / 4 * np.linalg.eigvalsh(COVARIANCE).max(),
        rtol=1e-5,
    )


def test_says_when_noise_that_is_not_subtracted_widens_the_draws(quick_compilation):
    sampler, variances = (
        sgld(log_prior, "gradient", 1.0, subtract_noise=False),
        np.array([0.3, 0.5], np.float32),
    )

    def told(variance):
        return run(
            sampler,
            answers(gaussian(variance**0.5), variance=variance),
            jax.random.key(1),
            exact_draws(4),
            5,
        )[1]

    info = jax.vmap(told)(variances)
    assert not info.is_saturated[0].any() and info.is_saturated[1].all()
    np.testing.assert_allclose(
        info.noise_ratio, np.broadcast_to(1 + variances[:, None, None] / 4, (2, 4, 5)), rtol=1e-6
    )


def test_says_when_the_noise_is_more_than_a_step_can_use(quick_compilation):
    sampler = sgld(log_prior, "gradient", 1.0)
    _, info = run(
        sampler, answers(gaussian(3.0), variance=9.0), jax.random.key(1), exact_draws(4), 5
    )
    assert info.is_saturated.all()
    # What the draws' variance is multiplied by
    np.testing.assert_allclose(info.noise_ratio, 9 / 4, rtol=1e-6)


def test_a_schedule_sees_the_index_and_the_support_is_kept(quick_compilation):
    def inside(position):
        return jnp.where(jnp.sum(position**2) < 1.0, log_prior(position), -jnp.inf)

    sampler = sgld(inside, "gradient", lambda index: jnp.where(index < 20, 0.5, 0.0))
    draws, _ = run(
        sampler, answers(gaussian(0.1), variance=0.01), jax.random.key(1), jnp.zeros((64, 2)), 30
    )
    assert np.sum(np.asarray(draws) ** 2, axis=-1).max() < 1.0
    np.testing.assert_array_equal(draws[:, 19], draws[:, 29])
    assert not np.array_equal(draws[:, 18], draws[:, 19])


@pytest.mark.slow  # every day the contract's row has batches
def test_samples_on_batches_within_a_budget():
    rows = testing.simulate_logistic_rows(jax.random.key(0), 20_000, [1.0, -1.0], 1.0)
    model, query = models.logistic(2, 1.0), Gradient(1.0, 2.0, batch=PoissonBatch(0.02))
    curator = Curator(rows, model, Budget(6.0, 1e-6), fixed_secret=np.arange(16, dtype=np.uint32))
    sampler = sgld(model.log_prior, query, lambda index: 2e-3 / (1 + index / 50))
    result = sample(
        jax.random.key(1),
        sampler,
        curator,
        np.zeros(2),
        num_steps=200,
        num_chains=3,
        progress=False,
    )
    assert f"600 x {query!r}" in result.posterior.attrs["privacy_statement"]
    np.testing.assert_allclose(
        result.posterior.coefficients.values.mean((0, 1)), [1.0, -1.0], atol=0.25
    )


@pytest.mark.parametrize("options, text", [
    ({"step_size": -1.0}, "step_size=-1.0"),
    ({"step_size": np.nan}, "step_size=nan"),
    ({"preconditioner": [1.0, 0.0]}, "preconditioner=.*positive"),
    ({"preconditioner": np.ones((2, 3))}, "preconditioner of shape"),
])  # fmt: skip
def test_bad_settings_are_named(options, text):
    with pytest.raises(ValueError, match=text):
        sgld(log_prior, "gradient", **{"step_size": 0.1, **options})


LEARNED = {
    "sgld": lambda step_size: sgld(log_prior, "gradient", step_size),
    "sgnht": lambda step_size: sgnht(log_prior, "gradient", step_size, friction=2 * step_size),
    "hmc": lambda step_size: hmc(log_prior, "gradient", Ratio(), step_size, 2),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LEARNED)
def test_a_step_size_may_be_learned(name):
    """What a private start has learned is known when the program runs, and not before."""

    def draws(step_size):
        return run(
            LEARNED[name](step_size),
            answers(gaussian(0.1)),
            jax.random.key(0),
            jnp.zeros((2, 2)),
            3,
        )[0]

    np.testing.assert_allclose(jax.jit(draws)(0.1), draws(0.1), rtol=1e-5)
    np.testing.assert_allclose(draws(jnp.asarray(0.1)), draws(0.1), rtol=1e-5)
    with pytest.raises(ValueError, match="step_size=-0.1.* must be positive and finite"):
        draws(jnp.asarray(-0.1))
    with pytest.raises(ValueError, match="step_size=.* must be positive and finite"):
        jax.jit(draws)(jnp.full(2, 0.1))
