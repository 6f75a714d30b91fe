"""The banana against SciPy, and its exact draws against integration on a grid."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from dpmcmc.models import banana, gaussian
from dpmcmc.testing import draw_banana_posterior, gaussian_posterior, simulate_banana_rows

pytestmark = pytest.mark.usefixtures("quick_compilation")

SETTINGS = {"variances": [2.0, 0.5], "curvature": 1.5, "shift": -0.3, "vertex": 0.4}


def log_posterior(model, points, rows, temperature):
    over_rows = jax.vmap(model.log_likelihood, (None, 0))
    return jax.jit(
        jax.vmap(lambda point: temperature * over_rows(point, rows).sum() + model.log_prior(point))
    )(points)


def test_log_ratios_match_scipy():
    model = banana([20.0, 2.5, 1.0], curvature=20.0, shift=1.0, vertex=0.5, prior_scale=1000**0.5)
    row, old, new = np.random.default_rng(0).normal(size=(3, 3))

    def straighten(t):
        return np.array([t[0], t[1] + 20 * (t[0] - 0.5) ** 2 + 1, t[2]])

    def density(t):
        return stats.norm(straighten(t), np.sqrt([20.0, 2.5, 1.0])).logpdf(row).sum()

    def prior(t):
        return stats.norm(0, 1000**0.5).logpdf(straighten(t)).sum()

    with jax.enable_x64(True):
        ratio = model.log_likelihood(jnp.asarray(new), row) - model.log_likelihood(
            jnp.asarray(old), row
        )
        prior_ratio = model.log_prior(jnp.asarray(new)) - model.log_prior(jnp.asarray(old))
    np.testing.assert_allclose(
        [ratio, prior_ratio], [density(new) - density(old), prior(new) - prior(old)], rtol=1e-9
    )


def test_without_curvature_it_is_the_gaussian_model():
    row, position = jnp.array([1.0, 2.0, 3.0]), jnp.array([0.1, -0.2, 0.3])
    bent, straight = banana([1.0, 2.0, 3.0], curvature=0.0), gaussian([1.0, 2.0, 3.0])
    assert bent.log_likelihood(position, row) == straight.log_likelihood(position, row)
    assert bent.log_prior(position) == straight.log_prior(position)


@pytest.mark.parametrize("temperature", [pytest.param(1.0, marks=pytest.mark.slow), 0.01])
def test_posterior_is_the_banana_of_theorem_5_2(temperature):
    """The posterior is the banana density with the theorem's mean and variance: an identity, in ten
    dimensions.
    """
    variances = np.array([20.0, 2.5] + [1.0] * 8)
    model = banana(variances, curvature=20.0, shift=1.0, vertex=0.5, prior_scale=3.0)
    with jax.enable_x64(True):
        rows = simulate_banana_rows(jax.random.key(0), 500, jnp.ones(10), variances, 20.0, 1.0, 0.5)
        points = 1 + 0.1 * jax.random.normal(jax.random.key(1), (30, 10))
        actual, rows, points = map(
            np.array, (log_posterior(model, points, rows, temperature), rows, points)
        )
    rate = temperature * 500 / variances
    mean, variance = rate * rows.mean(0) / (rate + 1 / 9), 1 / (rate + 1 / 9)
    straight = points.copy()
    straight[:, 1] += 20.0 * (straight[:, 0] - 0.5) ** 2 + 1.0
    expected = -0.5 * np.sum((straight - mean) ** 2 / variance, axis=1)
    np.testing.assert_allclose(actual - actual[0], expected - expected[0], rtol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("temperature", [1.0, 0.2])
def test_draws_follow_the_marginals_of_a_grid(temperature):
    model = banana(**SETTINGS, prior_scale=1.5)
    with jax.enable_x64(True):
        rows = simulate_banana_rows(jax.random.key(2), 10, [0.5, 1.0], **SETTINGS)
        draws = draw_banana_posterior(
            jax.random.key(3), 4000, rows, **SETTINGS, prior_scale=1.5, temperature=temperature
        )
        axes = jnp.linspace(-5, 5, 401), jnp.linspace(-30, 6, 1201)
        points = jnp.stack(jnp.meshgrid(*axes, indexing="ij"), -1).reshape(-1, 2)
        probabilities = np.array(
            jax.nn.softmax(log_posterior(model, points, rows, temperature))
        ).reshape(401, 1201)
    for component, axis in enumerate(axes):
        marginal = probabilities.sum(1 - component)
        cumulative = np.cumsum(marginal) - marginal / 2
        # Kolmogorov-Smirnov: false alarm 1e-5 for each of the four.
        assert (
            stats.kstest(
                np.asarray(draws[:, component]), lambda t, a=axis, c=cumulative: np.interp(t, a, c)
            ).pvalue
            > 1e-5
        )


def test_simulated_rows_center_where_the_model_says():
    rows = simulate_banana_rows(jax.random.key(4), 10_000, [0.5, 1.0], **SETTINGS)
    center = np.array([0.5, 1.0 + 1.5 * 0.01 - 0.3])
    z = (np.asarray(rows).mean(0) - center) / np.sqrt(np.array([2.0, 0.5]) / 10_000)
    assert np.abs(z).max() < 4  # two z-scores: false alarm 1.3e-4


@pytest.mark.slow
def test_the_papers_largest_setting_stays_finite_in_float32():
    variances = [20.0, 2.5] + [1.0] * 8
    rows = simulate_banana_rows(jax.random.key(5), 200_000, [0.0, 3.0] + [0.0] * 8, variances, 20.0)
    draws = draw_banana_posterior(
        jax.random.key(6), 1000, rows, variances, 20.0, prior_scale=1000**0.5
    )
    mean, covariance = gaussian_posterior(rows, variances, prior_scale=1000**0.5)
    assert draws.dtype == jnp.float32 and jnp.isfinite(draws).all()
    z = (draws[:, 2:].mean(0) - mean[2:]) / jnp.sqrt(jnp.diag(covariance)[2:] / 1000)
    assert jnp.abs(z).max() < 4.5  # eight z-scores: false alarm 5e-5


@pytest.mark.parametrize("is_x64", [False, True])
def test_keeps_the_dtype_of_the_position(is_x64):
    model = banana([1.0, 2.0], curvature=20.0)
    with jax.enable_x64(is_x64):
        for dtype in [jnp.float32] + [jnp.float64] * is_x64:
            rows, position = jnp.ones((5, 2), dtype), jnp.zeros(2, dtype)
            values = jax.jit(jax.vmap(model.log_likelihood, (None, 0)))(position, rows)
            assert (
                values.shape == (5,)
                and values.dtype == dtype
                and model.log_prior(position).dtype == dtype
            )


def test_bad_cells_stay_in_their_row():
    model = banana([1.0, 2.0], curvature=20.0)
    rows = jnp.array([[0.0, 0.0], [jnp.nan, 0.0], [0.0, jnp.inf]])
    values = jax.vmap(model.log_likelihood, (None, 0))(jnp.ones(2), rows)
    assert jnp.isfinite(values[0]) and not jnp.isfinite(values[1:]).any()


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"variances": [1.0], "curvature": 1.0}, "two or more positive"),
        ({"variances": [1.0, -1.0], "curvature": 1.0}, "two or more positive"),
        ({"variances": np.eye(2), "curvature": 1.0}, "two or more positive"),
        ({"variances": [1.0, 1.0], "curvature": np.inf}, "curvature=inf must be finite"),
        (
            {"variances": [1.0, 1.0], "curvature": 1.0, "prior_scale": 0.0},
            "prior_scale=0.0 must be positive",
        ),
    ],
)
def test_refuses_what_makes_no_sense(arguments, message):
    with pytest.raises(ValueError, match=message):
        banana(**arguments)
