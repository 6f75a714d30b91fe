"""What every model promises, whatever it is of."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.cases.models import ALL, public_models

EACH = pytest.mark.parametrize("case", ALL, ids=str)
NUM_ROWS = 50


def test_every_public_model_is_in_the_table():
    assert {case.of for case in ALL} == public_models()


def rows_of(case):
    rows = case.make_rows(np.random.default_rng(0), NUM_ROWS)
    return jax.tree.map(lambda column: jnp.asarray(column, jnp.float32), rows)


def derivatives(case):
    """Values, gradients and Hessians of all rows at two positions in the prior's support."""
    positions = jnp.asarray(0.2 + 0.3 * np.arange(2)[:, None] + np.zeros(case.model.dimension))
    of = case.model.log_likelihood

    def all_of(position, row):
        return of(position, row), jax.grad(of)(position, row), jax.hessian(of)(position, row)

    each = jax.vmap(jax.vmap(all_of, (None, 0)), (0, None))
    return positions, *jax.jit(each)(positions.astype(jnp.float32), rows_of(case))


@EACH
def test_rows_within_the_limits_have_finite_derivatives_within_the_proved_bounds(case):
    positions, values, slopes, hessians = derivatives(case)
    dimension = case.model.dimension
    assert values.shape == (2, NUM_ROWS) and values.dtype == jnp.float32
    assert slopes.shape == (2, NUM_ROWS, dimension)
    assert all(bool(jnp.all(jnp.isfinite(part))) for part in (values, slopes, hessians))
    assert all(np.isfinite(case.model.log_prior(position)) for position in positions)
    sizes = np.linalg.norm(slopes, axis=-1)
    if case.model.lipschitz is not None:
        assert sizes.max() <= case.model.lipschitz * (1 + 1e-5)
    if case.model.hessian_bound is not None:
        assert np.linalg.norm(hessians, axis=(-2, -1)).max() <= case.model.hessian_bound * (
            1 + 1e-5
        )
    if case.model.spread is not None:
        centers = [case.model.center(position) for position in positions]
        distances = np.linalg.norm(slopes - np.stack(centers)[:, None], axis=-1)
        assert distances.max() <= case.model.spread * (1 + 1e-5)


@EACH
def test_draws_have_names(case):
    """Each parameter of a draw has a name, and the same type as the position."""
    named = case.model.unravel(jnp.full(case.model.dimension, 0.2, jnp.float32))
    assert named and all(isinstance(name, str) for name in named)
    assert all(jnp.asarray(value).dtype == jnp.float32 for value in named.values())
