"""Logistic regression against SciPy, at the ends of float32, and its bound from both sides."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.special import expit

from dpmcmc import Curator
from dpmcmc.models import logistic
from dpmcmc.queries import NonPrivateGradient, NonPrivateRatio
from dpmcmc.testing import simulate_logistic_rows


@pytest.mark.parametrize("intercept", [False, True])
def test_log_likelihood_and_prior_match_scipy(intercept):
    model = logistic(3, radius=5.0, prior_scale=2.0, intercept=intercept)
    generator = np.random.default_rng(0)
    features, labels = generator.normal(size=(50, 3)), generator.integers(0, 2, 50)
    position = generator.normal(size=model.dimension)
    design = np.column_stack([np.ones(50), features]) if intercept else features
    with jax.enable_x64(True):
        values = jax.vmap(model.log_likelihood, (None, 0))(
            jnp.asarray(position), (features, labels)
        )
        prior = model.log_prior(jnp.asarray(position))
    np.testing.assert_allclose(
        values, stats.bernoulli(expit(design @ position)).logpmf(labels), rtol=1e-10
    )
    constant = model.dimension * stats.norm(0, 2).logpdf(0)
    np.testing.assert_allclose(
        prior, stats.norm(0, 2).logpdf(position).sum() - constant, rtol=1e-10
    )


def test_float32_is_accurate_at_every_size_of_the_logit():
    model = logistic(1, radius=1.0)
    logits = np.concatenate([-np.logspace(-6, 30, 200), [0.0], np.logspace(-6, 30, 200)]).astype(
        np.float32
    )
    for label in (0.0, 1.0):
        values = jax.vmap(lambda z, y=label: model.log_likelihood(z[None], (jnp.ones(1), y)))(
            jnp.asarray(logits)
        )
        expected = -np.logaddexp(0.0, -(2 * label - 1) * logits.astype(float))
        np.testing.assert_allclose(values, expected, rtol=5e-7, atol=1e-37)


def test_gradient_is_the_residual_times_the_features():
    model = logistic(2, radius=1.0)
    features = jnp.array([0.6, -0.8])
    for position in ([0.0, 0.0], [2.0, 1.0], [-300.0, 0.0]):
        for label in (0.0, 1.0):
            gradient = jax.grad(model.log_likelihood)(jnp.array(position), (features, label))
            residual = label - expit(features @ np.array(position))
            np.testing.assert_allclose(gradient, residual * features, rtol=1e-5)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("radius", [0.1, 1.0, 20.0])
def test_the_bound_is_never_passed_and_almost_reached(intercept, radius):
    model = logistic(3, radius, intercept=intercept)
    generator = np.random.default_rng(1)
    x, y = generator.normal(size=(20_000, 3)), generator.integers(0, 2, 20_000)
    norms = np.linalg.norm(x, axis=1)
    x *= (radius / np.where(np.arange(20_000) % 2 == 0, norms, np.maximum(norms, 1.0)))[:, None]
    old, move = 10 * generator.normal(size=(2, 20_000, model.dimension))
    # The adversary: on the sphere, far on the wrong side, moving straight back.
    design = np.column_stack([np.ones(20_000), x]) if intercept else x
    towards = (2 * y - 1)[:, None] * design
    old[::2], move[::2] = -1000 / radius * towards[::2], towards[::2]
    with jax.enable_x64(True):
        ratio = jax.vmap(
            lambda a, b, row: model.log_likelihood(b, row) - model.log_likelihood(a, row)
        )(old, old + move, (x, y))
        slope = np.abs(ratio) / np.linalg.norm(move, axis=1)
    assert slope.max() <= model.lipschitz * (1 + 1e-9)
    assert slope.max() >= 0.99 * model.lipschitz


def test_the_bound_with_an_intercept_covers_the_constant_column():
    assert logistic(3, radius=2.0).lipschitz == 2.0
    assert logistic(3, radius=2.0, intercept=True).lipschitz == pytest.approx(5**0.5)


def test_a_row_without_a_label_says_nothing():
    model = logistic(2, radius=1.0)
    assert np.isnan(model.log_likelihood(jnp.array([1.0, -2.0]), (jnp.array([0.3, 0.4]), jnp.nan)))
    features = np.array([[0.3, 0.4], [0.1, 0.2], [0.5, 0.5]], np.float32)
    rows, fewer = (
        (features, np.array([1, np.nan, 0], np.float32)),
        (features[[0, 2]], np.array([1, 0], np.float32)),
    )

    def answer(table, query, *points):
        curator = Curator(table, model, None)
        program = curator.trace(lambda ask, key: ask(key, query, *points).value, jax.random.key(0))
        return curator.grant(program.plan).run(program.compile(), jax.random.key(0))

    for query, *points in (
        (NonPrivateRatio(1.0), jnp.zeros(2), jnp.ones(2)),
        (NonPrivateGradient(1.0), jnp.ones(2)),
    ):
        np.testing.assert_array_equal(answer(rows, query, *points), answer(fewer, query, *points))


@pytest.mark.parametrize("bad", [np.inf, -np.inf, 0.5, -7.0])
def test_a_bad_label_counts_as_zero_or_one(bad):
    model = logistic(2, radius=1.0)
    features, position = jnp.array([0.3, 0.4]), jnp.array([1.0, -2.0])
    allowed = [float(model.log_likelihood(position, (features, label))) for label in (0, 1)]
    assert float(model.log_likelihood(position, (features, bad))) == allowed[int(bad > 0.5)]


def test_bad_features_stay_in_their_row():
    model = logistic(2, radius=1.0, intercept=True)
    features = jnp.array([[0.1, 0.2], [jnp.nan, 0.0], [jnp.inf, -jnp.inf]])
    values = jax.vmap(model.log_likelihood, (None, 0))(jnp.ones(3), (features, jnp.ones(3)))
    assert jnp.isfinite(values[0]) and jnp.isnan(values[1:]).all()


@pytest.mark.parametrize("label_dtype", [jnp.int32, jnp.bool_, jnp.float32])
@pytest.mark.parametrize("is_x64", [False, True])
def test_keeps_the_dtype_of_the_position(is_x64, label_dtype):
    model = logistic(2, radius=1.0, intercept=True)
    with jax.enable_x64(is_x64):
        for dtype in [jnp.float32] + [jnp.float64] * is_x64:
            rows, position = (
                (jnp.ones((5, 2), dtype), jnp.ones(5, label_dtype)),
                jnp.zeros(3, dtype),
            )
            values = jax.jit(jax.vmap(model.log_likelihood, (None, 0)))(position, rows)
            assert (
                values.shape == (5,)
                and values.dtype == dtype
                and model.log_prior(position).dtype == dtype
            )


def test_rows_and_chains_are_one_matrix_product():
    model = logistic(4, radius=1.0, intercept=True)
    over_rows = jax.vmap(model.log_likelihood, (None, 0))
    program = jax.make_jaxpr(jax.vmap(over_rows, (0, None)))(
        jnp.zeros((3, 5)), (jnp.zeros((7, 4)), jnp.zeros(7))
    )
    products = [eqn for eqn in program.jaxpr.eqns if eqn.primitive.name == "dot_general"]
    assert len(products) == 1 and products[0].params["dimension_numbers"][1] == ((), ())


@pytest.mark.slow
def test_simulated_rows_fit_the_radius_and_the_model():
    position = jnp.array([0.5, 2.0, -1.0])
    features, labels = simulate_logistic_rows(
        jax.random.key(0), 20_000, position, radius=2.0, intercept=True
    )
    assert jnp.linalg.norm(features, axis=1).max() <= 2.0 * (1 + 1e-6)
    residuals = np.asarray(labels) - expit(position[0] + features @ position[1:])
    design = np.column_stack([np.ones(20_000), features])
    variance = np.sum(design**2 * (residuals**2)[:, None], axis=0)
    # The score at the truth, three z-scores: false alarm 3 * 6e-5 = 2e-4.
    assert np.abs(design.T @ residuals / np.sqrt(variance)).max() < 4


def test_unravel_names_the_entries():
    position = jnp.arange(3.0)
    assert set(logistic(3, 1.0).unravel(position)) == {"coefficients"}
    with_intercept = logistic(2, 1.0, intercept=True).unravel(position)
    assert with_intercept["intercept"] == 0 and with_intercept["coefficients"].tolist() == [1, 2]
    named = logistic(2, 1.0, intercept=True, names=("intercept", "age", "height")).unravel(position)
    assert {name: float(value) for name, value in named.items()} == {
        "intercept": 0,
        "age": 1,
        "height": 2,
    }


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"num_features": 0, "radius": 1.0}, "num_features=0 must be a whole number"),
        ({"num_features": 2, "radius": -1}, "radius=-1 must be positive"),
        ({"num_features": 2, "radius": np.inf}, "radius=inf must be positive and finite"),
        (
            {"num_features": 2, "radius": 1.0, "prior_scale": -2.0},
            "prior_scale=-2.0 must be positive",
        ),
        (
            {"num_features": 2, "radius": 1.0, "intercept": True, "names": ("a", "b")},
            "3 different names",
        ),
        ({"num_features": 2, "radius": 1.0, "names": ("a", "a")}, "2 different names"),
        ({"num_features": 2, "radius": 1.0, "names": "ab"}, "2 different names"),
    ],
)
def test_refuses_what_makes_no_sense(arguments, message):
    with pytest.raises(ValueError, match=message):
        logistic(**arguments)


@pytest.mark.slow
def test_derivatives_hold_at_the_origin_too():
    """Every logit is exactly zero there: derivatives of max and abs would make the curvature
    vanish.
    """
    features = jnp.array([0.3, -0.5, 0.2])
    log_likelihood = logistic(3, radius=1.0).log_likelihood
    hessian = jax.hessian(log_likelihood)(jnp.zeros(3), (features, 1.0))
    np.testing.assert_allclose(hessian, -np.outer(features, features) / 4, atol=1e-7)
    np.testing.assert_allclose(
        jax.grad(log_likelihood)(jnp.zeros(3), (features, 1.0)), features / 2, atol=1e-7
    )


def test_the_curvature_bound_holds_and_is_reached():
    model = logistic(2, radius=2.0, intercept=True)
    features = 2.0 * jnp.array([0.6, 0.8])
    norm = np.linalg.norm(jax.jit(jax.hessian(model.log_likelihood))(jnp.zeros(3), (features, 0.0)))
    assert model.hessian_bound is not None
    np.testing.assert_allclose(norm, model.hessian_bound, rtol=1e-6)
