"""Robust linear regression: its density, its bounds from both sides, and a private run against the
posterior without privacy.
"""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, optimize, stats

from dpmcmc import Budget, Curator, findings, recipes, sample
from dpmcmc.models import robust_linear
from dpmcmc.models.robust_linear import CENTER, HUBER
from dpmcmc.testing import simulate_linear_rows
from tests import tiny

pytestmark = pytest.mark.usefixtures("quick_compilation")


def row_radius(radius, intercept):
    return np.hypot(radius, float(intercept))


def largest_noise(size):
    """Where t makes it Y."""
    return (1 - CENTER) * 2**0.5 / size


@pytest.mark.parametrize("threshold", [0.5, HUBER, 3.0])
def test_the_density_of_the_response_is_hubers(threshold):
    """At every position with a noise below Y it has the same total, and around the line Huber's
    shape.
    """
    model = robust_linear(2, radius=1.5, response_bound=4.0, intercept=True, threshold=threshold)
    x = np.array([0.3, -1.2])
    total = (2 * np.pi) ** 0.5 * (2 * stats.norm.cdf(threshold) - 1) + 2 * np.exp(
        -(threshold**2) / 2
    ) / threshold
    with jax.enable_x64(True):
        log_likelihood = jax.jit(model.log_likelihood)
        for position in ([0.5, 1.0, -2.0, -0.2], [-3.0, 0.2, 0.4, 7.0]):
            found = model.unravel(jnp.array(position))
            noise, line = (
                float(found["noise_scale"]),
                float(found["intercept"] + x @ found["coefficients"]),
            )
            assert 0 < noise < 4
            kinks = line + noise * threshold * np.array([-1, 0, 1])

            def density(y, p=position):
                return float(jnp.exp(log_likelihood(jnp.array(p), (x, y))))

            ends = [line - 60 * noise / threshold, *kinks, line + 60 * noise / threshold]
            pieces = [
                integrate.quad(density, *pair, epsrel=1e-10)[0] for pair in itertools.pairwise(ends)
            ]
            # Y times the constant that is left out
            assert sum(pieces) == pytest.approx(4.0 * total, rel=1e-8)
            drop = np.log(density(line) / density(line + noise * 7.0))
            assert drop == pytest.approx(threshold * 7 - threshold**2 / 2, rel=1e-9)


def test_of_normal_rows_the_scale_is_087_standard_deviations_and_7_percent_are_lost():
    """Where the slope in the noise is zero on average: E[h'(u) u] = 1."""

    def slope(s):
        within = integrate.quad(lambda u: (u / s) ** 2 * stats.norm.pdf(u), 0, HUBER * s)[0]
        return 2 * (within + HUBER / s * stats.norm.pdf(HUBER * s)) - 1

    scale = optimize.brentq(slope, 0.5, 1.5)
    assert scale == pytest.approx(0.871, abs=1e-4)
    # The mean of normal rows has the variance 1 / n; one by h has E[h'^2] / E[h'']^2 / n, and 7 %
    # more of them are needed.
    reach = HUBER * scale
    squares = stats.norm.expect(lambda z: min(abs(z), reach) ** 2)
    assert squares / (2 * stats.norm.cdf(reach) - 1) ** 2 == pytest.approx(1 / 0.93, abs=0.005)


def test_the_prior_is_normal_in_every_entry():
    """That of the noise does not depend on the coefficients'."""
    model = robust_linear(1, radius=1.0, response_bound=1.0, prior_scale=[1.0, 2.0], intercept=True)
    assert float(model.log_prior(jnp.array([1.0, 2.0, -40.0]))) == pytest.approx(-1.5)


@pytest.mark.parametrize("intercept", [False, True])
def test_the_likelihood_has_its_maximum_at_a_noise_of_at_most_the_bound(intercept):
    """And its line is the one that people get: with a smaller limit the slopes of a response of
    zeros and ones were a third.
    """
    generator = np.random.default_rng(7)
    x, uniform = generator.uniform(-1, 1, (2000, 1)), generator.uniform(-1, 1, 2000)
    kinds = {
        "two ends": np.where(uniform < 0.5 * x[:, 0], 1.0, -1.0),
        "one end": np.full(2000, 1.0),
        "uniform": uniform,
    }
    kinds |= {
        "skewed": np.minimum(generator.exponential(size=2000) - 1, 1),
        "normal": 0.2 * generator.normal(size=2000),
    }
    model = robust_linear(1, radius=1.0, response_bound=1.0, intercept=intercept, prior_scale=100.0)
    for kind, y in kinds.items():
        mode, _ = laplace(model, (x, y))
        inverse = CENTER + row_radius(1.0, intercept) * mode[-1] / 2**0.5
        assert inverse > 0.999, kind
        told = model.unravel(jnp.asarray(mode))
        assert float(told["noise_scale"]) == pytest.approx(1 / inverse, rel=1e-5), kind
        np.testing.assert_allclose(
            np.ravel(told["coefficients"]), mode[int(intercept) : -1] / inverse, rtol=1e-5
        )


def slopes(model, x, y, old, new):
    with jax.enable_x64(True):
        log_ratio = jax.vmap(
            lambda a, b, row: model.log_likelihood(b, row) - model.log_likelihood(a, row)
        )
        return np.abs(np.asarray(log_ratio(old, new, (x, y)))) / np.linalg.norm(new - old, axis=1)


@pytest.mark.parametrize("threshold", [0.4, HUBER])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("radius", [0.3, 4.0])
def test_the_bound_is_never_passed_and_almost_reached(radius, intercept, threshold):
    model = robust_linear(2, radius, response_bound=3.0, intercept=intercept, threshold=threshold)
    generator = np.random.default_rng(1)
    n = 20_000
    x, y = generator.normal(size=(n, 2)), 3 * generator.choice([-1.0, 1.0], n)
    x *= radius / np.linalg.norm(x, axis=1, keepdims=True)
    old, move = 3 * generator.normal(size=(2, n, model.dimension))
    # The adversary: a row far below the line, at the largest noise, where line and noise both move
    # away from it.
    design = np.column_stack([np.ones(n), x]) if intercept else x
    sign, size = np.sign(y)[:, None], row_radius(radius, intercept)
    old[::2, :-1], old[::2, -1] = (100 * sign * design / size**2)[::2], largest_noise(size) - 1e-6
    far_off = np.concatenate(
        [-threshold * sign * design, np.full((n, 1), size / 2**0.5 * (threshold + 1))], axis=1
    )
    move[::2] = -1e-6 * far_off[::2]
    found = slopes(model, x, y, old, old + move)
    assert 0.999 * model.lipschitz <= found.max() <= model.lipschitz * (1 + 1e-6)


@pytest.mark.parametrize("intercept", [False, True])
def test_the_curvature_bound_holds_and_is_reached_and_the_law_is_concave(intercept):
    model = robust_linear(2, radius=1.5, response_bound=3.0, intercept=intercept)
    generator = np.random.default_rng(2)
    with jax.enable_x64(True):
        hessian = jax.jit(jax.vmap(jax.hessian(model.log_likelihood)))
        n = 4000
        x = generator.normal(size=(n, 2))
        x *= 1.5 / np.linalg.norm(x, axis=1, keepdims=True)
        x[1::2] *= generator.uniform(size=(n // 2, 1))
        y = 3.0 * np.where(
            np.arange(n) % 2 == 0, generator.choice([-1, 1], n), generator.uniform(-1, 1, n)
        )
        positions = generator.normal(size=(n, model.dimension))
        # The line goes through every other row, and the noise is as large as Y.
        design = np.column_stack([np.ones(n), x]) if intercept else x
        positions[::2, :-1] = (y / 3 / np.sum(design**2, axis=1))[::2, None] * design[::2]
        positions[::2, -1] = largest_noise(row_radius(1.5, intercept)) + 1e-9
        found = np.asarray(hessian(positions, (x, y)))
    norms = np.linalg.norm(found, axis=(1, 2))
    assert 0.999 * model.hessian_bound <= norms.max() <= model.hessian_bound * (1 + 1e-9)
    assert np.linalg.eigvalsh(found).max() <= 1e-9


def test_the_tangent_goes_on_where_the_logarithm_ends():
    """A slope leads back from any noise, also from a negative one."""
    model, unit = robust_linear(1, radius=1.0, response_bound=1.0), 0.5**0.5
    with jax.enable_x64(True):
        slope = jax.jit(jax.grad(model.log_likelihood))
        for t, inverse in (
            (-100.0, -98.0),
            (largest_noise(1.0) - 0.2, 1 - 0.2 * unit),
            (0.0, CENTER),
            (2.0, CENTER + 2 * unit),
        ):
            assert float(slope(jnp.array([0.0, t]), (jnp.zeros(1), 0.0))[1]) == pytest.approx(
                unit / max(inverse, 1)
            )
            assert float(model.unravel(jnp.array([0.0, t]))["noise_scale"]) == pytest.approx(
                1 / max(inverse, 0.5)
            )


def test_float32_is_accurate_however_far_off_a_row_is():
    model = robust_linear(1, radius=1.0, response_bound=1.0)
    far = np.concatenate([-np.logspace(-6, 30, 100), np.logspace(-6, 30, 100)]).astype(np.float32)
    both = jax.value_and_grad(model.log_likelihood)
    values, found = jax.jit(jax.vmap(lambda c: both(jnp.array([c, 0.0]), (jnp.ones(1), 0.0))))(far)
    error = far.astype(float)
    expected = np.log(CENTER) - np.where(
        np.abs(error) <= HUBER, error**2 / 2, HUBER * np.abs(error) - HUBER**2 / 2
    )
    np.testing.assert_allclose(values, expected, rtol=2e-6)
    np.testing.assert_allclose(found[:, 0], -np.clip(error, -HUBER, HUBER), rtol=1e-6)


def test_keeps_the_dtype():
    model = robust_linear(2, radius=1.0, response_bound=1.0, intercept=True)
    for is_x64, dtype in [(False, jnp.float32), (True, jnp.float32), (True, jnp.float64)]:
        with jax.enable_x64(is_x64):
            rows = jnp.ones((3, 2), dtype), jnp.ones(3, dtype)
            values = jax.jit(jax.vmap(model.log_likelihood, (None, 0)))(jnp.zeros(4, dtype), rows)
            assert values.dtype == dtype and model.log_prior(jnp.zeros(4, dtype)).dtype == dtype


def test_a_row_with_a_missing_cell_says_nothing():
    """Neither of the gradient nor of the curvature: no number counts as zero."""
    model = robust_linear(2, radius=1.0, response_bound=1.0, intercept=True)
    for derivative in (lambda f: f, jax.grad, jax.hessian):
        found_at = jax.jit(derivative(model.log_likelihood))
        for at in (0.0, 1.0):
            for features, response in (([jnp.nan, 0.3], 0.2), ([0.1, 0.3], jnp.nan)):
                found = found_at(jnp.full(4, at), (jnp.array(features), response))
                assert not jnp.any(jnp.isfinite(found) & (found != 0)), (features, response, found)


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"num_features": 0}, "num_features=0 must be a whole number, at least 1"),
        ({"radius": 0.0}, "radius=0.0 must be positive"),
        ({"response_bound": np.inf}, "response_bound=inf must be positive and finite"),
        ({"threshold": 0.0}, "threshold=0.0 must be positive"),
        ({"prior_scale": -1.0}, "prior_scale=-1.0 must be positive"),
        ({"names": ("a",)}, "must be 2 different names"),
        ({"names": ("a", "noise_scale")}, "must be without 'noise_scale'"),
    ],
)
def test_refuses_what_makes_no_sense(settings, message):
    with pytest.raises(ValueError, match=message):
        robust_linear(**{"num_features": 2, "radius": 1.0, "response_bound": 1.0} | settings)


def laplace(model, rows):
    """The mode of the posterior, and its standard deviations: of so many rows it is as good as
    normal.
    """
    value_and_slope, hessian = minus_log_density(model)
    with jax.enable_x64(True):
        rows = jax.tree.map(lambda part: np.asarray(part, float), rows)
        found = optimize.minimize(
            lambda p: jax.tree.map(np.asarray, value_and_slope(p, rows)),
            np.zeros(model.dimension),
            jac=True,
            method="BFGS",
        )
        covariance = np.linalg.inv(np.asarray(hessian(found.x, rows)))
    return found.x, covariance


@functools.cache
def minus_log_density(model):
    def value(position, rows):
        return -jnp.sum(
            jax.vmap(model.log_likelihood, (None, 0))(position, rows)
        ) - model.log_prior(position)

    return jax.jit(jax.value_and_grad(value)), jax.jit(jax.hessian(value))


@pytest.mark.slow
@pytest.mark.parametrize("noise", [0.2, 0.6])
def test_a_private_run_finds_the_coefficients_and_the_noise(noise):
    """The mean of some 40 draws or more, of each parameter, is off by less than 4 / sqrt(15) sd:
    false alarm below 1e-3.
    """
    model = robust_linear(2, radius=1.0, response_bound=1.0, intercept=True, names=["a", "b", "c"])
    rows = simulate_linear_rows(
        jax.random.key(4), 40_000, [0.2, -0.3, 0.1], 1.0, noise, intercept=True
    )
    rows = rows[0], jnp.clip(rows[1], -1, 1)
    budget = Budget(8.0, 1e-6)
    recipe = recipes.langevin(model, 40_000, budget)
    curator = Curator(rows, model, budget, fixed_secret=tiny.SECRET)
    run = sample(
        jax.random.key(5), recipe.sampler, curator, np.zeros(4), **recipe.options, progress=False
    )
    assert not any(finding.is_severe for finding in findings(run))
    mode, covariance = laplace(model, rows)
    expected = jax.vmap(model.unravel)(
        jnp.asarray(np.random.default_rng(6).multivariate_normal(mode, covariance, 20_000))
    )
    for name in ("a", "b", "c", "noise_scale"):
        draws, wanted = run.posterior[name].values, np.asarray(expected[name])
        assert abs(draws.mean() - wanted.mean()) < 4 / 15**0.5 * wanted.std(), name
        assert 0.6 < draws.std() / wanted.std() < 1.5, name
