"""Linear and Poisson regression against SciPy, grids, and their bounds from both sides."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from dpmcmc.models import linear, poisson
from dpmcmc.testing import (
    draw_linear_posterior,
    linear_posterior,
    simulate_linear_rows,
    simulate_poisson_rows,
)

pytestmark = pytest.mark.usefixtures("quick_compilation")

LIMITS = {"radius": 1.5, "response_bound": 4.0, "position_radius": 0.8}


def log_density(kind, design, position, response):
    if kind == "linear":
        return stats.norm(design @ position, 0.7).logpdf(response)
    return stats.poisson(np.exp(design @ position)).logpmf(response)


def build(kind, *arguments, **settings):
    return (
        linear(*arguments, noise_scale=0.7, **settings)
        if kind == "linear"
        else poisson(*arguments, **settings)
    )


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("kind", ["linear", "poisson"])
def test_log_ratios_match_scipy(kind, intercept):
    model = build(kind, 3, prior_scale=2.0, intercept=intercept)
    generator = np.random.default_rng(0)
    features, response = generator.normal(size=(50, 3)), generator.poisson(2.0, 50)
    old, new = generator.normal(size=(2, model.dimension))
    design = np.column_stack([np.ones(50), features]) if intercept else features
    expected = log_density(kind, design, new, response) - log_density(kind, design, old, response)
    with jax.enable_x64(True):
        values = [
            jax.vmap(model.log_likelihood, (None, 0))(jnp.asarray(p), (features, response))
            for p in (old, new)
        ]
        prior = model.log_prior(jnp.asarray(new))
        ratios = np.asarray(values[1] - values[0])
    np.testing.assert_allclose(ratios, expected, rtol=1e-9)
    np.testing.assert_allclose(prior, -0.5 * np.sum(new**2) / 4, rtol=1e-12)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("response_bound", [0.5, 4.0])
@pytest.mark.parametrize("kind", ["linear", "poisson"])
def test_the_bound_is_never_passed_and_almost_reached(kind, response_bound, intercept):
    limits = LIMITS | {"response_bound": response_bound}
    model = build(kind, 2, intercept=intercept, **limits)
    generator = np.random.default_rng(1)
    n = 20_000
    x, old, move = generator.normal(size=(n, 2)), *generator.normal(size=(2, n, model.dimension))
    x *= 1.5 / np.linalg.norm(x, axis=1, keepdims=True)
    y = generator.choice(
        [0.0, response_bound] if kind == "poisson" else [-response_bound, response_bound], n
    )
    design = np.column_stack([np.ones(n), x]) if intercept else x
    along = design / np.linalg.norm(design, axis=1, keepdims=True)
    sign = generator.choice([-1, 1], (n, 1))
    old *= 0.8 / np.maximum(np.linalg.norm(old, axis=1, keepdims=True), 0.8)
    # The adversary: at an end of the ball
    old[::2], move[::2] = (0.8 * sign * along)[::2], (-1e-3 * sign * along)[::2]
    new = old + move
    new *= 0.8 / np.maximum(np.linalg.norm(new, axis=1, keepdims=True), 0.8)
    with jax.enable_x64(True):
        log_ratio = jax.vmap(
            lambda a, b, row: model.log_likelihood(b, row) - model.log_likelihood(a, row)
        )
        slope = np.abs(np.asarray(log_ratio(old, new, (x, y)))) / np.linalg.norm(new - old, axis=1)
    assert 0.99 * model.lipschitz <= slope.max() <= model.lipschitz * (1 + 1e-9)
    assert model.log_prior(jnp.full(model.dimension, 0.8)) == -jnp.inf


@pytest.mark.slow
@pytest.mark.parametrize("temperature", [1.0, 0.1])
def test_linear_posterior_matches_a_grid(temperature):
    model = linear(1, noise_scale=0.7, prior_scale=[1.0, 0.5], intercept=True)
    with jax.enable_x64(True):
        rows = simulate_linear_rows(jax.random.key(0), 15, [0.5, -1.0], 2.0, 0.7, intercept=True)
        mean, covariance = linear_posterior(
            rows, 0.7, [1.0, 0.5], intercept=True, temperature=temperature
        )
        axis = jnp.linspace(-5, 5, 401)
        points = jnp.stack(jnp.meshgrid(axis, axis, indexing="ij"), -1).reshape(-1, 2)
        over_rows = jax.vmap(model.log_likelihood, (None, 0))
        weights = jax.nn.softmax(
            jax.vmap(lambda p: temperature * over_rows(p, rows).sum() + model.log_prior(p))(points)
        )
        grid_mean = weights @ points
        grid_covariance = (points - grid_mean).T @ (weights[:, None] * (points - grid_mean))
        np.testing.assert_allclose(mean, grid_mean, atol=1e-6)
        np.testing.assert_allclose(covariance, grid_covariance, atol=1e-6)


@pytest.mark.slow
def test_linear_draws_have_the_posterior_moments():
    rows = simulate_linear_rows(jax.random.key(1), 1000, [0.5, -1.0, 2.0], 2.0, 0.7, intercept=True)
    mean, covariance = linear_posterior(rows, 0.7, intercept=True)
    draws = draw_linear_posterior(jax.random.key(2), 4000, rows, 0.7, intercept=True)
    white = np.linalg.solve(np.linalg.cholesky(covariance), (draws - mean).T)
    # Six z-scores: false alarm 4e-4.
    assert np.abs([*white.mean(1) * 4000**0.5, *((white**2).mean(1) - 1) * 2000**0.5]).max() < 4


@pytest.mark.slow
def test_simulated_counts_follow_the_rate():
    position = jnp.array([0.5, 1.0, -1.0])
    features, counts = simulate_poisson_rows(
        jax.random.key(3), 20_000, position, 1.0, intercept=True
    )
    rate = np.exp(0.5 + np.asarray(features) @ np.array([1.0, -1.0]))
    assert abs(np.sum(np.asarray(counts) - rate)) < 4 * np.sum(rate) ** 0.5  # false alarm 6e-5


@pytest.mark.parametrize("kind", ["linear", "poisson"])
def test_keeps_the_dtype_and_the_bad_cells(kind):
    model = build(kind, 2, intercept=True, **LIMITS)
    for is_x64, dtype in [(False, jnp.float32), (True, jnp.float32), (True, jnp.float64)]:
        with jax.enable_x64(is_x64):
            rows = (
                jnp.ones((3, 2), dtype).at[1, 0].set(jnp.nan),
                jnp.ones(3, dtype).at[2].set(jnp.nan),
            )
            values = jax.jit(jax.vmap(model.log_likelihood, (None, 0)))(jnp.zeros(3, dtype), rows)
            assert values.dtype == dtype and jnp.isfinite(values).tolist() == [True, False, False]
            assert model.log_prior(jnp.zeros(3, dtype)).dtype == dtype


@pytest.mark.parametrize("kind", ["linear", "poisson"])
@pytest.mark.parametrize(
    "settings, message",
    [
        ({"radius": 1.0}, "a bound needs all three"),
        (LIMITS | {"radius": -1.0}, "radius=-1.0 must be positive"),
        (LIMITS | {"response_bound": 0.0}, "response_bound=0.0 must be positive"),
        (LIMITS | {"position_radius": np.nan}, "position_radius=nan must be positive"),
        ({"prior_scale": 0.0}, "prior_scale=0.0 must be positive"),
        ({"names": ("a",)}, "2 different names"),
    ],
)
def test_refuses_what_makes_no_sense(kind, settings, message):
    with pytest.raises(ValueError, match=message):
        build(kind, 2, **settings)


def test_refuses_an_infinite_noise_or_rate():
    with pytest.raises(ValueError, match="noise_scale=0 must be positive"):
        linear(2, noise_scale=0)
    with pytest.raises(ValueError, match="radius times position_radius is 1000"):
        poisson(2, radius=100.0, response_bound=1.0, position_radius=10.0)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("kind", ["linear", "poisson"])
def test_the_curvature_bound_holds_and_is_reached(kind, intercept):
    """By the longest row, and for counts at the end of the ball along it."""
    model = build(kind, 2, intercept=intercept, **LIMITS)
    generator = np.random.default_rng(1)

    @jax.jit
    def norm(features, position):
        return jnp.linalg.norm(jax.hessian(model.log_likelihood)(position, (features, 1.0)))

    with jax.enable_x64(True):
        for _ in range(20):
            features, position = generator.normal(size=2), generator.normal(size=model.dimension)
            features *= LIMITS["radius"] * generator.uniform() / np.linalg.norm(features)
            position *= LIMITS["position_radius"] * generator.uniform() / np.linalg.norm(position)
            assert norm(features, position) <= model.hessian_bound * (1 + 1e-12)
        longest = LIMITS["radius"] * np.array([0.6, 0.8])
        along = np.concatenate([np.ones(int(intercept)), longest])
        found = norm(longest, LIMITS["position_radius"] * along / np.linalg.norm(along))
    np.testing.assert_allclose(found, model.hessian_bound, rtol=1e-9)


def test_without_limits_no_curvature_is_proved():
    assert build("linear", 2).hessian_bound is None and build("poisson", 2).hessian_bound is None


@pytest.mark.parametrize("dtype", [bool, np.int8, np.int64])
def test_integers_have_the_same_statistic(dtype):
    """The root of 2 in it was cast to an integer, and the posterior of two dummies 14 standard
    deviations off.
    """
    family = linear(
        3, 1.0, radius=2.0, response_bound=1.0, position_radius=5.0, intercept=True
    ).family
    features = np.array([1, 0, 1], dtype)
    exact = family.statistic((jnp.asarray(features, jnp.float32), jnp.float32(0.5)))
    np.testing.assert_array_equal(
        family.statistic((jnp.asarray(features), jnp.float32(0.5))), exact
    )


@pytest.mark.parametrize("intercept", [False, True])
def test_the_linear_posterior_solves_the_tempered_normal_equations(intercept):
    generator, scale, temperature = (
        np.random.default_rng(2),
        np.array([1.0, 0.5, 2.0])[: 2 + intercept],
        0.3,
    )
    x, y = np.float32(generator.normal(size=(9, 2))), np.float32(generator.normal(size=9))
    mean, covariance = linear_posterior((x, y), 0.7, scale, intercept, temperature)
    design = np.column_stack([np.ones(9), x]) if intercept else x
    precision = temperature * design.T @ design / 0.7**2 + np.diag(scale**-2)
    np.testing.assert_allclose(covariance, np.linalg.inv(precision), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(
        mean, np.linalg.solve(precision, temperature * design.T @ y / 0.7**2), rtol=1e-4, atol=1e-6
    )
