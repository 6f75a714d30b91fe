"""How fast a row's curvature changes: the bound that each model declares holds, and is nearly
reached.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpmcmc import models

LIMITS = {"radius": 2.0, "response_bound": 3.0, "position_radius": 3.0}
REGRESSION_ROW = (jnp.array([2.0, 0.0]), jnp.array(1.0))
MODELS = {
    "logistic": (models.logistic(2, radius=2.0), REGRESSION_ROW),
    "logistic, intercept": (models.logistic(2, radius=2.0, intercept=True), REGRESSION_ROW),
    "poisson": (models.poisson(2, **LIMITS), REGRESSION_ROW),
    "poisson, intercept": (models.poisson(2, intercept=True, **LIMITS), REGRESSION_ROW),
    "poisson rate": (models.poisson_rate(9), jnp.array(3.0)),
    "binomial": (models.binomial(7), jnp.array(3.0)),
    "two categories": (models.categorical(2), jnp.array(1.0)),
    "four categories": (models.categorical(4), jnp.array(1.0)),
}
QUADRATIC = {
    "gaussian": (models.gaussian([1.0, 2.0]), jnp.array([1.0, -2.0])),
    "linear": (models.linear(2, 0.5), REGRESSION_ROW),
}


def changes(model, row):
    """|D^3[u, u, v]| / (|v| |D^2[u, u]|) at many positions, in many directions u = v."""
    rng = np.random.default_rng(0)
    directions = rng.normal(size=(4_000, model.dimension)) / model.dimension
    # Along axes and diagonals too
    directions[: len(directions) // 2] = np.round(directions[: len(directions) // 2] * 3)
    directions = jnp.asarray(directions[np.any(directions, axis=1)])

    def change(position, along):
        def on_the_line(length):
            return model.log_likelihood(position + length * along, row)

        second = jax.grad(jax.grad(on_the_line))
        return jnp.abs(jax.grad(second)(0.0)) / jnp.abs(second(0.0)) / jnp.linalg.norm(along)

    positions = jnp.asarray(rng.normal(size=directions.shape) * 3)
    found = np.asarray(jax.jit(jax.vmap(change))(positions, directions))
    return found[np.isfinite(found)]  # 0 / 0 across the row


@pytest.mark.parametrize("name", MODELS)
def test_a_rows_curvature_changes_as_fast_as_declared_and_no_faster(name):
    model, row = MODELS[name]
    with jax.enable_x64(True):
        largest = np.max(changes(model, row))
    assert 0.9 * model.self_concordance < largest <= model.self_concordance * (1 + 1e-6)


@pytest.mark.parametrize("name", QUADRATIC)
def test_that_of_a_quadratic_does_not_change(name):
    model, row = QUADRATIC[name]
    assert model.self_concordance == 0
    with jax.enable_x64(True):
        assert np.max(changes(model, row)) < 1e-12
