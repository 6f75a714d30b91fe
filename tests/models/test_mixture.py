"""The mixture against SciPy, its grid against another grid, and its bound from both sides."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize, stats

from dpmcmc.models import mixture
from dpmcmc.testing import mixture_posterior, simulate_mixture_rows

pytestmark = pytest.mark.usefixtures("quick_compilation")

# V, R, B
CASES = [(2.0, 3.0, 3.0), (0.02, 3.0, 3.0), (2.0, 3.0, 0.5), (0.5, 0.1, 0.1), (1.0, 0.01, 2.0)]


def log_density(position, row, variance=2.0):
    centers = np.array([position[0], position[0] + position[1]])
    return np.log(stats.norm(centers, variance**0.5).pdf(row).mean())


def test_log_ratios_match_scipy():
    model = mixture()
    generator = np.random.default_rng(0)
    for old, new, row in zip(
        *generator.uniform(-3, 3, (2, 20, 2)), generator.uniform(-3, 3, 20), strict=True
    ):
        with jax.enable_x64(True):
            ratio = model.log_likelihood(jnp.asarray(new), row) - model.log_likelihood(
                jnp.asarray(old), row
            )
        assert float(ratio) == pytest.approx(
            log_density(new, row) - log_density(old, row), rel=1e-9, abs=1e-12
        )


def test_the_two_modes_are_one_model():
    model = mixture()
    rows = jnp.linspace(-3, 3, 11)
    for first, second in [(0.0, 1.0), (-1.5, 2.5)]:
        values = [
            jax.vmap(model.log_likelihood, (None, 0))(jnp.array(position), rows)
            for position in ([first, second], [first + second, -second])
        ]
        np.testing.assert_allclose(*values, rtol=1e-6)


def test_the_likelihood_does_not_vanish_at_infinity():
    """Why the prior must end somewhere: the second center can leave, and a row loses no more than
    log 2.
    """
    model = mixture()
    ratio = model.log_likelihood(jnp.array([0.0, 1e9]), 0.5) - model.log_likelihood(
        jnp.array([0.0, 0.0]), 0.5
    )
    assert float(ratio) == pytest.approx(-np.log(2), rel=1e-6)


@pytest.mark.parametrize("variance, row_bound, position_bound", CASES)
def test_the_bound_is_never_passed_and_almost_reached(variance, row_bound, position_bound):
    model = mixture(variance, row_bound, position_bound)
    size = np.array([row_bound, position_bound, position_bound])
    generator = np.random.default_rng(0)
    # Many at the faces and corners
    starts = size * np.clip(generator.uniform(-1.5, 1.5, (50_000, 3)), -1, 1)
    moves = np.clip(
        starts[:, 1:] + 1e-3 * variance**0.5 * generator.normal(size=(50_000, 2)),
        -size[1:],
        size[1:],
    )
    with jax.enable_x64(True):
        log_ratio = jax.jit(
            lambda a, b, row: model.log_likelihood(b, row) - model.log_likelihood(a, row)
        )
        ratios = jax.vmap(log_ratio)(starts[:, 1:], moves, starts[:, 0])
        far = generator.permutation(starts[:, 1:])
        ratios_far = jax.vmap(log_ratio)(starts[:, 1:], far, starts[:, 0])
        slope = np.abs(ratios) / np.maximum(np.linalg.norm(moves - starts[:, 1:], axis=1), 1e-30)
        slope_far = np.abs(ratios_far) / np.maximum(
            np.linalg.norm(far - starts[:, 1:], axis=1), 1e-30
        )
        gradient = jax.jit(jax.grad(model.log_likelihood))

        def steepness(point):
            return -float(jnp.linalg.norm(gradient(jnp.asarray(point[1:]), point[0])))

        bounds = list(zip(-size, size, strict=True))
        best = starts[np.argsort(slope)[[-1, -10, -100]]]
        found = -min(
            optimize.minimize(steepness, s, bounds=bounds, method="Nelder-Mead").fun for s in best
        )
    assert max(slope.max(), slope_far.max(), found) <= model.lipschitz * (1 + 1e-9)
    assert found >= 0.99 * model.lipschitz


def test_the_bound_of_the_papers_setting():
    paper = np.hypot((2 * 3 + 9) / 2, (3 + 6) / 2)
    assert mixture().lipschitz == pytest.approx(3.575, abs=1e-3)
    assert paper == pytest.approx(8.75, abs=0.01)


@pytest.mark.slow
def test_the_grid_posterior_matches_another_grid():
    rows = simulate_mixture_rows(jax.random.key(0), 200)
    axis, probabilities = mixture_posterior(rows, temperature=0.25, num_points=60)
    other = np.linspace(-3, 3, 91)
    centers = np.array([[(a, a + b) for b in other] for a in other])
    density = stats.norm(centers[..., None], 2**0.5).pdf(np.asarray(rows)).mean(2)
    log_posterior = 0.25 * np.log(density).sum(-1)
    weights = np.exp(log_posterior - log_posterior.max())
    weights[[0, -1]] /= 2
    weights[:, [0, -1]] /= 2
    weights /= weights.sum()
    for power in (1, 2):
        for component in (0, 1):
            mine = np.asarray(probabilities).sum(1 - component) @ np.asarray(axis) ** power
            assert mine == pytest.approx(weights.sum(1 - component) @ other**power, abs=2e-3)
    assert float(probabilities.sum()) == pytest.approx(1, abs=1e-5)


def test_the_prior_ends_at_the_square():
    model = mixture(position_bound=2.0)
    assert model.log_prior(jnp.array([2.0, -2.0])) == 0
    assert model.log_prior(jnp.array([2.1, 0.0])) == -jnp.inf
    assert model.log_prior(jnp.array([0.0, jnp.nan])) == -jnp.inf


def test_simulated_rows_lie_in_the_interval():
    rows = simulate_mixture_rows(jax.random.key(1), 50_000)
    assert rows.min() == -3 and rows.max() == 3
    for end in (0.5, 1.5):  # the mixture is symmetric about 1/2; false alarm 1.2e-4
        expected = stats.norm([0, 1], 2**0.5).cdf(end).mean()
        assert abs(np.mean(np.asarray(rows) < end) - expected) < 4 * 0.5 / 50_000**0.5


@pytest.mark.parametrize("is_x64", [False, True])
def test_keeps_the_dtype_of_the_position(is_x64):
    model = mixture()
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
    values = jax.vmap(mixture().log_likelihood, (None, 0))(
        jnp.ones(2), jnp.array([1.0, jnp.nan, jnp.inf, 1e30])
    )
    assert jnp.isfinite(values[0]) and not jnp.isfinite(values[1:]).any()


@pytest.mark.parametrize("name", ["variance", "row_bound", "position_bound"])
def test_refuses_what_makes_no_sense(name):
    with pytest.raises(ValueError, match=f"{name}=-1 must be positive"):
        mixture(**{name: -1})
