"""The circle: exact draws against integration in Cartesian coordinates, and the bound from both
sides.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from dpmcmc.models import circle
from dpmcmc.testing import draw_circle_posterior, simulate_circle_rows

pytestmark = pytest.mark.usefixtures("quick_compilation")


def test_log_likelihood_is_the_formula():
    model = circle(0.3)
    with jax.enable_x64(True):
        value = model.log_likelihood(jnp.array([1.0, 2.0]), jnp.float64(1.5))
    assert value == pytest.approx(-0.3 * (1 + 4 - 2.25) ** 2, rel=1e-12)
    assert model.log_prior(jnp.ones(2)) == 0.0 and model.lipschitz is None


@pytest.mark.slow
@pytest.mark.parametrize("radius", [None, 1.4])
@pytest.mark.parametrize("temperature", [pytest.param(1.0, marks=pytest.mark.slow), 0.1])
def test_draws_follow_a_cartesian_grid(temperature, radius):
    """Few, flat rows, so that both ends of the restriction matter: P(u < 0) without it is 0.32 when
    T = 0.1.
    """
    model = circle(0.3, radius)
    rows = np.array([0.2, -1.1, 0.9, 1.3])
    draws = np.asarray(
        draw_circle_posterior(jax.random.key(0), 4000, rows, 0.3, radius, temperature), float
    )
    axis = np.linspace(-4, 4, 1601)
    with jax.enable_x64(True):
        points = jnp.stack(jnp.meshgrid(axis, axis, indexing="ij"), -1).reshape(-1, 2)
        over_rows = jax.vmap(model.log_likelihood, (None, 0))
        log_density = jax.jit(
            jax.vmap(lambda p: temperature * over_rows(p, rows).sum() + model.log_prior(p))
        )(points)
        probabilities = np.asarray(jax.nn.softmax(log_density)).reshape(1601, 1601)
    marginal = probabilities.sum(1)
    square = np.sum(np.asarray(points) ** 2, axis=1)
    order = np.argsort(square)
    square, cumulative = square[order], np.cumsum(probabilities.ravel()[order])
    # Kolmogorov-Smirnov, x, y and the squared distance: false alarm 1e-5 for each of the twelve.
    for component in (0, 1):
        assert (
            stats.kstest(
                draws[:, component],
                lambda t: np.interp(t, axis, np.cumsum(marginal) - marginal / 2),
            ).pvalue
            > 1e-5
        )
    assert (
        stats.kstest(np.sum(draws**2, axis=1), lambda t: np.interp(t, square, cumulative)).pvalue
        > 1e-5
    )


@pytest.mark.slow
def test_the_papers_setting_gives_a_ring_of_radius_root_ten():
    rows = simulate_circle_rows(jax.random.key(1), 100_000)
    draws = draw_circle_posterior(jax.random.key(2), 1000, rows, 1e-5)
    squares = jnp.sum(draws**2, axis=1)
    center, scale = float(jnp.mean(rows**2)), (2 * 100_000 * 1e-5) ** -0.5
    # The variance of r^2 is 38; false alarm 6e-5
    assert abs(center - 10) < 4 * (38 / 100_000) ** 0.5
    assert abs(float(squares.mean()) - center) < 4 * scale / 1000**0.5  # false alarm 6e-5


def test_the_bound_is_never_passed_and_almost_reached():
    model = circle(0.3, radius=2.0)
    generator = np.random.default_rng(0)
    rows = generator.uniform(-2, 2, 20_000)
    old, new = (generator.uniform(-2, 2, (20_000, 2)) for _ in range(2))
    old, new = (p * 2 / np.maximum(2, np.linalg.norm(p, axis=1, keepdims=True)) for p in (old, new))
    new[::2] = old[::2] * 0.999  # along the gradient
    rows[0], old[0], new[0] = 0.0, (2.0, 0.0), (1.999, 0.0)
    with jax.enable_x64(True):
        ratio = jax.vmap(
            lambda a, b, row: model.log_likelihood(b, row) - model.log_likelihood(a, row)
        )(old, new, rows)
    slope = np.abs(ratio) / np.linalg.norm(new - old, axis=1)
    assert slope.max() <= model.lipschitz * (1 + 1e-9)
    assert slope.max() >= 0.99 * model.lipschitz
    assert (
        model.log_prior(jnp.array([2.0, 0.1])) == -jnp.inf
        and model.log_prior(jnp.array([1.9, 0.1])) == 0
    )


@pytest.mark.parametrize("is_x64", [False, True])
def test_keeps_the_dtype_of_the_position(is_x64):
    model = circle(1e-5, radius=10.0)
    with jax.enable_x64(is_x64):
        for dtype in [jnp.float32] + [jnp.float64] * is_x64:
            rows, position = jnp.ones(5, dtype), jnp.ones(2, dtype)
            values = jax.jit(jax.vmap(model.log_likelihood, (None, 0)))(position, rows)
            assert (
                values.shape == (5,)
                and values.dtype == dtype
                and model.log_prior(position).dtype == dtype
            )


def test_bad_rows_stay_alone():
    values = jax.vmap(circle(1.0).log_likelihood, (None, 0))(
        jnp.ones(2), jnp.array([1.0, jnp.nan, jnp.inf])
    )
    assert jnp.isfinite(values[0]) and not jnp.isfinite(values[1:]).any()


def test_refuses_what_makes_no_sense():
    with pytest.raises(ValueError, match="sharpness=0 must be positive"):
        circle(0)
    with pytest.raises(ValueError, match="radius=-1 must be positive"):
        circle(1.0, radius=-1)
    with pytest.raises(ValueError, match="temperature=0 must be positive"):
        draw_circle_posterior(jax.random.key(0), 1, np.ones(2), 1.0, temperature=0)


def test_the_square_of_a_large_integer_does_not_overflow():
    position = jnp.array([1.0, 0.0])
    likelihood = circle(1e-12).log_likelihood
    assert likelihood(position, jnp.int32(50_000)) == likelihood(position, jnp.float32(50_000))
