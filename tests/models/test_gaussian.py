"""The Gaussian model against SciPy, against a grid, and its bound from both sides."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from dpmcmc.models import gaussian
from dpmcmc.testing import draw_gaussian_posterior, gaussian_posterior, simulate_gaussian_rows

pytestmark = pytest.mark.usefixtures("quick_compilation")

CORRELATED = np.array([[1.0, 0.999], [0.999, 1.0]])
VARIANCES = np.array([20.0, 2.5, 1.0])
PLAIN = np.array([[2.0, 0.5], [0.5, 1.0]])


@pytest.mark.parametrize(
    "covariance", [CORRELATED, VARIANCES, PLAIN], ids=["correlated", "variances", "plain"]
)
def test_log_ratios_match_scipy(covariance):
    model = gaussian(covariance, prior_scale=3.0, prior_mean=0.5)
    dense = np.diag(covariance) if covariance.ndim == 1 else covariance
    row, old, new = np.random.default_rng(0).normal(size=(3, model.dimension))
    expected = stats.multivariate_normal(new, dense).logpdf(row) - stats.multivariate_normal(
        old, dense
    ).logpdf(row)
    expected_prior = stats.norm(0.5, 3).logpdf(new).sum() - stats.norm(0.5, 3).logpdf(old).sum()
    with jax.enable_x64(True):
        ratio = model.log_likelihood(jnp.asarray(new), row) - model.log_likelihood(
            jnp.asarray(old), row
        )
        prior_ratio = model.log_prior(jnp.asarray(new)) - model.log_prior(jnp.asarray(old))
    np.testing.assert_allclose([ratio, prior_ratio], [expected, expected_prior], rtol=1e-10)


def test_a_row_with_a_missing_cell_says_nothing_of_the_curvature_either():
    model = gaussian([1.0, 2.0])
    for row, expected in (([1.0, np.nan], 0.0), ([1.0, 3.0], -np.diag([1.0, 0.5]))):
        found = jax.jit(jax.hessian(model.log_likelihood))(jnp.zeros(2), jnp.array(row))
        np.testing.assert_allclose(
            np.nan_to_num(found), expected * np.ones((2, 2)) if np.ndim(expected) == 0 else expected
        )


@pytest.mark.slow
@pytest.mark.parametrize("temperature", [1.0, 0.1])
@pytest.mark.parametrize("covariance", [PLAIN, np.array([2.0, 0.5])], ids=["plain", "variances"])
def test_posterior_matches_a_grid(covariance, temperature):
    with jax.enable_x64(True):
        rows = simulate_gaussian_rows(jax.random.key(1), 20, [1.0, -1.0], covariance)
        settings = {"prior_scale": [1.0, 0.5], "prior_mean": [0.5, -2.0]}
        model = gaussian(covariance, **settings)
        mean, posterior_covariance = gaussian_posterior(
            rows, covariance, temperature=temperature, **settings
        )
        axis = jnp.linspace(-6, 6, 301)
        points = jnp.stack(jnp.meshgrid(axis, axis, indexing="ij"), -1).reshape(-1, 2)
        log_density = jax.vmap(
            lambda p: (
                temperature * jax.vmap(lambda row: model.log_likelihood(p, row))(rows).sum()
                + model.log_prior(p)
            )
        )(points)
        weights = jax.nn.softmax(log_density)
        grid_mean = weights @ points
        grid_covariance = (points - grid_mean).T @ (weights[:, None] * (points - grid_mean))
    np.testing.assert_allclose(mean, grid_mean, atol=1e-6)
    np.testing.assert_allclose(posterior_covariance, grid_covariance, atol=1e-6)


def test_draws_have_the_posterior_moments():
    rows = simulate_gaussian_rows(jax.random.key(2), 1000, [0.0, 3.0], CORRELATED)
    mean, covariance = gaussian_posterior(rows, CORRELATED, prior_scale=10.0)
    draws = draw_gaussian_posterior(jax.random.key(3), 4000, rows, CORRELATED, prior_scale=10.0)
    white = np.linalg.solve(np.linalg.cholesky(covariance), (draws - mean).T)
    # Mean and every second moment of 4 000 standard normals, as z-scores: 5 of them, false alarm 5
    # * 6e-5 = 3e-4.
    moments = [
        *white.mean(1) * 4000**0.5,
        *((white**2).mean(1) - 1) * 2000**0.5,
        np.mean(white[0] * white[1]) * 4000**0.5,
    ]
    assert np.abs(moments).max() < 4


@pytest.mark.parametrize("covariance", [PLAIN, VARIANCES], ids=["plain", "variances"])
def test_the_bound_is_never_passed_and_almost_reached(covariance):
    model = gaussian(covariance, radius=2.0)
    dense = np.diag(covariance) if covariance.ndim == 1 else covariance
    direction = np.linalg.eigh(dense)[1][:, 0]
    points = np.random.default_rng(4).normal(size=(3, 20_000, model.dimension))
    points *= 2.0 / np.maximum(2.0, np.linalg.norm(points, axis=-1, keepdims=True))
    points[:, 0] = 2.0 * direction, -2.0 * direction, -1.99 * direction  # the adversary
    with jax.enable_x64(True):
        rows, old, new = jnp.asarray(points)
        ratio = jax.vmap(
            lambda a, b, row: model.log_likelihood(b, row) - model.log_likelihood(a, row)
        )(old, new, rows)
        slope = np.abs(ratio) / np.linalg.norm(new - old, axis=1)
    assert slope.max() <= model.lipschitz * (1 + 1e-12)
    assert slope.max() >= 0.99 * model.lipschitz


def test_the_radius_restricts_the_prior():
    model = gaussian(PLAIN, radius=2.0)
    assert model.log_prior(jnp.array([1.2, 1.7])) == -jnp.inf
    assert jnp.isfinite(model.log_prior(jnp.array([1.2, 1.5])))
    assert jnp.isfinite(jax.grad(model.log_prior)(jnp.array([3.0, 3.0]))).all()
    assert gaussian(PLAIN).lipschitz is None


@pytest.mark.parametrize("is_x64", [False, True])
def test_keeps_the_dtype_of_the_position(is_x64):
    model = gaussian(CORRELATED, radius=3.0)
    with jax.enable_x64(is_x64):
        for dtype in [jnp.float32] + [jnp.float64] * is_x64:
            rows, position = jnp.ones((5, 2), dtype), jnp.zeros(2, dtype)
            values = jax.jit(jax.vmap(model.log_likelihood, (None, 0)))(position, rows)
            assert (
                values.shape == (5,)
                and values.dtype == dtype
                and model.log_prior(position).dtype == dtype
            )


def test_float32_keeps_the_ratio_of_a_small_move():
    row, old = np.array([1.5, -2.0, 0.3]), np.array([0.1, 2.9, 0.0])
    new = old + 8e-4 * np.array([1.0, -1.0, 1.0])
    model = gaussian(VARIANCES)

    def ratio(dtype):
        old_, new_, row_ = (jnp.asarray(a, dtype) for a in (old, new, row))
        return float(model.log_likelihood(new_, row_) - model.log_likelihood(old_, row_))

    with jax.enable_x64(True):
        assert abs(ratio(jnp.float32) - ratio(jnp.float64)) < 2e-6


def test_bad_cells_stay_in_their_row():
    model = gaussian(PLAIN)
    rows = jnp.array([[0.0, 0.0], [jnp.nan, 0.0], [jnp.inf, 0.0], [3e38, 0.0]])
    values = jax.vmap(model.log_likelihood, (None, 0))(jnp.zeros(2), rows)
    assert jnp.isfinite(values[0]) and not jnp.isfinite(values[1:]).any()


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"covariance": np.zeros((2, 3))}, r"shape \(2, 3\) must be finite"),
        ({"covariance": [1.0, -1.0]}, r"shape \(2,\) must be finite"),
        ({"covariance": []}, r"shape \(0,\)"),
        ({"covariance": [[1.0, 2.0], [2.0, 1.0]]}, "positive eigenvalues"),
        ({"covariance": [[1.0, 0.5], [0.0, 1.0]]}, "symmetric"),
        ({"covariance": PLAIN, "radius": -1}, "radius=-1 must be positive"),
        ({"covariance": PLAIN, "prior_scale": 0}, "prior_scale=0 must be positive"),
        ({"covariance": PLAIN, "prior_scale": [1, 1, 1]}, "prior_scale=.* 2 of them"),
        ({"covariance": PLAIN, "prior_mean": np.nan}, "prior_mean=nan must be a finite"),
    ],
)
def test_refuses_what_makes_no_sense(arguments, message):
    with pytest.raises(ValueError, match=message):
        gaussian(**arguments)


def test_posterior_refuses_a_negative_temperature():
    with pytest.raises(ValueError, match="temperature=-1 must be positive"):
        gaussian_posterior(np.zeros((3, 2)), PLAIN, temperature=-1)


@pytest.mark.parametrize(
    "covariance", [[0.5, 2.0], [[2.0, 0.3], [0.3, 0.5]]], ids=["diagonal", "matrix"]
)
def test_the_curvature_is_that_of_every_row(covariance):
    model = gaussian(covariance, radius=3.0)
    hessian = jax.jit(jax.hessian(model.log_likelihood))(
        jnp.array([0.3, -0.2]), jnp.array([1.0, 2.0])
    )
    np.testing.assert_allclose(np.linalg.norm(hessian), model.hessian_bound, rtol=1e-5)


@pytest.mark.parametrize("covariance", [PLAIN, np.array([2.0, 0.5])], ids=["plain", "variances"])
def test_the_posterior_weighs_tempered_rows_and_the_prior_by_their_precisions(covariance):
    rows, scale, center, temperature = (
        np.float32([[1.0, -1.0], [2.0, 0.5], [0.3, 0.4]]),
        np.array([1.0, 0.5]),
        [0.5, -2.0],
        0.3,
    )
    mean, found = gaussian_posterior(rows, covariance, scale, center, temperature)
    of_rows = (
        temperature * 3 * np.linalg.inv(covariance if covariance.ndim == 2 else np.diag(covariance))
    )
    expected = np.linalg.inv(of_rows + np.diag(scale**-2))
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    np.testing.assert_allclose(
        mean, expected @ (of_rows @ rows.mean(axis=0) + center / scale**2), rtol=1e-5
    )
