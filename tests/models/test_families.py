"""Exponential families: each is its own log-likelihood in other words, within its ball; and the
conjugate models' posteriors.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

from dpmcmc import models, testing

COVARIANCE = np.array([[1.0, 0.6], [0.6, 2.0]])
LIMITS = {"radius": 1.5, "response_bound": 4.0, "position_radius": 3.0}


def regression_rows(generator, number):
    x = generator.normal(size=(number, 2))
    x *= 1.5 / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1.5)
    y = np.clip(generator.normal(scale=3, size=number), -4, 4)
    x[0], y[0] = [1.5, 0.0], 4.0  # the row that reaches the bound
    return x, y


def gaussian_rows(generator, number):
    rows = generator.normal(scale=2, size=(number, 2))
    rows *= 3.0 / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 3.0)
    rows[0] = [0.0, 3.0]
    return rows


FAMILIES = {
    "gaussian": (models.gaussian(COVARIANCE, radius=3.0), gaussian_rows),
    "gaussian, variances": (models.gaussian([1.0, 2.0], radius=3.0), gaussian_rows),
    "bernoulli": (models.binomial(), lambda generator, number: generator.integers(0, 2, number)),
    "binomial": (
        models.binomial(7, 2.0, 3.0),
        lambda generator, number: generator.integers(0, 8, number),
    ),
    "poisson rate": (
        models.poisson_rate(9, 2.0, 0.5),
        lambda generator, number: generator.integers(0, 10, number),
    ),
    "categorical": (
        models.categorical(4, [1.0, 2.0, 0.5, 1.0]),
        lambda generator, number: generator.integers(0, 4, number),
    ),
    "linear": (models.linear(2, 0.7, **LIMITS), regression_rows),
    "linear, intercept": (models.linear(2, 0.7, intercept=True, **LIMITS), regression_rows),
}


@pytest.mark.parametrize("model, make_rows", FAMILIES.values(), ids=FAMILIES)
def test_the_family_has_the_log_ratios_of_the_model(model, make_rows):
    generator = np.random.default_rng(0)
    rows, (old, new) = make_rows(generator, 200), generator.normal(size=(2, model.dimension))
    family = model.family

    def parts(position):
        values = jax.vmap(model.log_likelihood, (None, 0))(position, rows)
        return family.natural(position), family.log_partition(position), values

    with jax.enable_x64(True):
        statistics = np.asarray(jax.jit(jax.vmap(family.statistic))(rows))
        natural, partition, values = (
            np.diff(part, axis=0)[0] for part in jax.jit(jax.vmap(parts))(np.stack([old, new]))
        )
    np.testing.assert_allclose(statistics @ natural - partition, values, atol=1e-12, rtol=1e-10)
    lengths = np.linalg.norm(statistics - family.center, axis=1)
    assert lengths.max() == pytest.approx(family.radius, rel=1e-12)  # never passed, and reached


def test_the_natural_parameter_of_categories_moves_as_little_as_it_can():
    """Adding a number to all of it changes no log-ratio, and would bring the noise of the
    statistic's sum along.
    """
    assert abs(float(CATEGORICAL.family.natural(jnp.array([0.4, -1.0, 2.0])).sum())) < 1e-6


def test_a_family_needs_a_declared_bound():
    assert models.gaussian(COVARIANCE).family is None and models.linear(2, 0.7).family is None


# -- the conjugate models -------------------------------------------------------------------------

BINOMIAL, RATE, CATEGORICAL = (
    FAMILIES[name][0] for name in ("binomial", "poisson rate", "categorical")
)


@pytest.mark.parametrize("name, position, row, expected", [
    ("binomial", [0.4], 5, lambda p, y: stats.binom(7, special.expit(p[0])).logpmf(y)),
    ("poisson rate", [0.4], 5, lambda p, y: stats.poisson(np.exp(p[0])).logpmf(y)),
    ("categorical", [0.4, -1.0, 0.2], 2, lambda p, y: np.log(special.softmax([*p, 0.0])[y])),
])  # fmt: skip
def test_log_ratios_match_scipy(name, position, row, expected):
    model, old = FAMILIES[name][0], np.zeros(len(position))
    with jax.enable_x64(True):
        found = model.log_likelihood(
            jnp.asarray(position), jnp.asarray(row)
        ) - model.log_likelihood(jnp.asarray(old), jnp.asarray(row))
    assert float(found) == pytest.approx(expected(position, row) - expected(old, row), rel=1e-10)


def log_prior_differences(model, points):
    with jax.enable_x64(True):
        values = np.asarray(jax.jit(jax.vmap(model.log_prior))(points))
    return values - values[0]


def test_priors_are_the_conjugate_ones_in_the_new_coordinate():
    points = np.random.default_rng(1).normal(size=(6, 1))
    p, rate = special.expit(points[:, 0]), np.exp(points[:, 0])
    beta = stats.beta(2.0, 3.0).logpdf(p) + np.log(p * (1 - p))
    gamma = stats.gamma(2.0, scale=2.0).logpdf(rate) + np.log(rate)
    np.testing.assert_allclose(log_prior_differences(BINOMIAL, points), beta - beta[0], atol=1e-12)
    np.testing.assert_allclose(log_prior_differences(RATE, points), gamma - gamma[0], atol=1e-12)
    points = np.random.default_rng(2).normal(size=(6, 3))
    p = special.softmax(np.column_stack([points, np.zeros(6)]), axis=1)
    dirichlet = stats.dirichlet([1.0, 2.0, 0.5, 1.0]).logpdf(p.T) + np.log(p).sum(axis=1)
    np.testing.assert_allclose(
        log_prior_differences(CATEGORICAL, points), dirichlet - dirichlet[0], atol=1e-12
    )


def test_log_priors_are_densities():
    """Up to a constant they integrate like the conjugate law: the mean on a fine grid is the exact
    one.
    """
    grid = np.linspace(-30, 10, 200_001)[:, None]
    for model, mean in (
        (BINOMIAL, special.psi(2) - special.psi(3)),
        (RATE, special.psi(2) - np.log(0.5)),
    ):
        weights = special.softmax(log_prior_differences(model, grid))
        assert weights @ grid[:, 0] == pytest.approx(mean, abs=1e-6)


@pytest.mark.slow
def test_draws_are_those_of_the_posterior():
    """Every component against its exact marginal law by Kolmogorov-Smirnov: 5 tests, false alarm
    5e-4.
    """
    key, number, temperature = jax.random.key(3), 8000, 0.3
    counts = np.asarray(testing.simulate_binomial_rows(key, 30, [0.4], 7))
    a, b = testing.binomial_posterior(counts, 7, 2.0, 3.0, temperature)
    assert (a, b) == pytest.approx(
        (2 + temperature * counts.sum(), 3 + temperature * (210 - counts.sum()))
    )
    draws = testing.draw_binomial_posterior(key, number, counts, 7, 2.0, 3.0, temperature)
    check(special.expit(np.asarray(draws[:, 0], float)), stats.beta(a, b))
    counts = np.asarray(testing.simulate_poisson_rate_rows(key, 30, [0.4], 9))
    shape, rate = testing.poisson_rate_posterior(counts, 2.0, 0.5, temperature)
    draws = testing.draw_poisson_rate_posterior(key, number, counts, 2.0, 0.5, temperature)
    check(np.exp(np.asarray(draws[:, 0], float)), stats.gamma(shape, scale=1 / rate))
    rows = np.asarray(testing.simulate_categorical_rows(key, 30, [0.4, -1.0, 0.2]))
    concentration = testing.categorical_posterior(rows, 4, [1.0, 2.0, 0.5, 1.0], temperature)
    draws = np.asarray(
        testing.draw_categorical_posterior(key, number, rows, 4, [1.0, 2.0, 0.5, 1.0], temperature),
        float,
    )
    p = special.softmax(np.column_stack([draws, np.zeros(number)]), axis=1)
    for category in range(3):
        check(
            p[:, category],
            stats.beta(concentration[category], concentration.sum() - concentration[category]),
        )


def check(values, law):
    assert stats.kstest(values, law.cdf).pvalue > 1e-4
    # The twin: a law that is a little off
    assert stats.kstest(values, lambda x: law.cdf(x) ** 1.1).pvalue < 1e-6


@pytest.mark.parametrize("temperature", [1.0, 0.3])
def test_posteriors_match_the_models_on_a_grid(temperature):
    grid = np.linspace(-6, 6, 4001)
    for model, (a, b), rows in (
        (
            BINOMIAL,
            testing.binomial_posterior(np.array([3, 7, 0]), 7, 2.0, 3.0, temperature),
            np.array([3, 7, 0]),
        ),
        (
            RATE,
            testing.poisson_rate_posterior(np.array([3, 7, 0]), 2.0, 0.5, temperature),
            np.array([3, 7, 0]),
        ),
    ):
        with jax.enable_x64(True):

            def density(p, model=model, rows=rows, temperature=temperature):
                over_rows = jax.vmap(model.log_likelihood, (None, 0))(p, jnp.asarray(rows)).sum()
                return temperature * over_rows + model.log_prior(p)

            values = jax.jit(jax.vmap(density))(grid[:, None])
        weights = special.softmax(np.asarray(values))
        mean = special.psi(a) - (special.psi(b) if model is BINOMIAL else np.log(b))
        assert weights @ grid == pytest.approx(mean, abs=1e-6)


def test_tempered_rows_add_to_the_concentration():
    found = testing.categorical_posterior(np.array([0, 2, 2, 3, 2]), 4, [1.0, 2.0, 0.5, 1.0], 0.3)
    np.testing.assert_allclose(found, [1.3, 2.0, 1.4, 1.3])


@pytest.mark.parametrize("name", ["bernoulli", "binomial", "categorical"])
def test_the_bound_is_never_passed_and_almost_reached(name):
    model, make_rows = FAMILIES[name]
    generator = np.random.default_rng(4)
    rows, old = make_rows(generator, 4000), generator.normal(scale=8, size=(4000, model.dimension))
    with jax.enable_x64(True):
        gradients = jax.jit(jax.vmap(jax.grad(model.log_likelihood)))(old, rows)
    slopes = np.linalg.norm(gradients, axis=1)
    assert 0.99 * model.lipschitz <= slopes.max() <= model.lipschitz


@pytest.mark.parametrize(
    "name, low, high, bad",
    [("binomial", 0, 7, 0.5), ("poisson rate", 0, 9, 0.5), ("categorical", None, None, 4)],
)
def test_rows_outside_count_as_documented(name, low, high, bad):
    model = FAMILIES[name][0]
    position = jnp.full(model.dimension, 0.3)
    at = lambda row: float(model.log_likelihood(position, jnp.asarray(row)))  # noqa: E731
    if name == "categorical":
        part = np.mean([at(category) for category in range(4)])
        assert at(bad) == pytest.approx(part, rel=1e-6) == at(-1) == at(1.5) == at(jnp.nan)
        np.testing.assert_allclose(model.family.statistic(jnp.asarray(bad)), 0.25)
    else:
        assert at(-3) == at(low) and at(1000) == at(high)
        assert (
            model.family.statistic(jnp.asarray(1000)) == high
            and model.family.statistic(jnp.asarray(-3)) == low
        )


@pytest.mark.parametrize("name", ["bernoulli", "poisson rate", "categorical"])
def test_rows_of_any_number_type(name):
    model = FAMILIES[name][0]
    for dtype in (bool, np.int8, np.int32, np.float32):
        row, position = jnp.ones((), dtype), jnp.full(model.dimension, 0.3)
        value = model.log_likelihood(position, row)
        assert value.dtype == jnp.float32 and jnp.isfinite(value)
        assert float(value) == float(model.log_likelihood(position, jnp.float32(1)))
        np.testing.assert_array_equal(
            model.family.statistic(row), model.family.statistic(jnp.float32(1))
        )


@pytest.mark.parametrize("make, text", [
    (lambda: models.binomial(0), "num_trials=0"),
    (lambda: models.binomial(successes=0.0), "successes=0.0"),
    (lambda: models.binomial(failures=-1.0), "failures=-1.0"),
    (lambda: models.poisson_rate(0), "max_count=0"),
    (lambda: models.poisson_rate(5, prior_shape=0.0), "prior_shape=0.0"),
    (lambda: models.poisson_rate(5, prior_rate=np.inf), "prior_rate=inf"),
    (lambda: models.categorical(1), "num_categories=1"),
    (lambda: models.categorical(3, [1.0, 2.0]), "concentration=.* 3 of them"),
    (lambda: testing.binomial_posterior(np.ones(3), temperature=0.0), "temperature=0.0"),
])  # fmt: skip
def test_bad_settings_are_named(make, text):
    with pytest.raises(ValueError, match=text):
        make()
