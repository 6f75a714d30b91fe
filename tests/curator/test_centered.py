"""Gradients around a center that all rows have in common: the same sum, with less noise where the
number of rows is public.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpmcmc import Budget, Curator, Federation, Model, Neighbours, UnsupportedQuery, models, recipes
from dpmcmc.curator.queries import gradient
from dpmcmc.curator.sums.exact_sum import BITS
from dpmcmc.queries import CenteredGradient, CenteredRadialGradient, Gradient, RadialGradient
from tests import tiny

pytestmark = pytest.mark.usefixtures("quick_compilation")

GENERATOR = np.random.default_rng(0)
N = 300
GAUSSIAN = models.gaussian(np.array([[1.0, 0.3], [0.3, 0.5]]), radius=2.0)
LINEAR = models.robust_linear(2, radius=1.5, response_bound=3.0, intercept=True)
LINEAR_ROWS = (
    GENERATOR.uniform(-1, 1, (N, 2)).astype(np.float32),
    GENERATOR.uniform(-3, 3, N).astype(np.float32),
)
GAUSSIAN_ROWS = GENERATOR.uniform(-1, 1, (N, 2)).astype(np.float32)
CASES = {"linear": (LINEAR, LINEAR_ROWS), "gaussian": (GAUSSIAN, GAUSSIAN_ROWS)}
HERE = {"linear": np.float32([0.3, -0.5, 0.8, -0.4]), "gaussian": np.float32([0.9, -1.2])}


def answer(owner, query, position):
    program = owner.trace(
        lambda ask, key: ask(key, query, jnp.asarray(position)), jax.random.key(0)
    )
    return owner.grant(program.plan).run(program.compile(), jax.random.key(0))


def true_sum(model, rows, position):
    """Of the gradients; those that are not numbers count as zero."""
    with jax.enable_x64(True):
        slopes = jax.jit(jax.vmap(jax.grad(model.log_likelihood), (None, 0)))
        each = slopes(np.float64(position), jax.tree.map(np.float64, rows))
    return np.nan_to_num(np.asarray(each)).sum(axis=0)


@pytest.mark.parametrize("name", CASES)
def test_the_sum_is_that_of_the_gradients_and_a_missing_cell_says_nothing(name):
    """The noise has a deviation of 0.04, so 0.24 is passed once in 10^8; seven silent rows at the
    center would be off by more.
    """
    model, rows = CASES[name]
    query = CenteredGradient(model.spread, 0.02 / model.spread)
    for silent in (0, 7):
        table = jax.tree.map(np.copy, rows)
        jax.tree.leaves(table)[0][:silent] = np.nan
        curator = Curator(table, model, None, fixed_secret=tiny.SECRET)
        found = answer(curator, query, HERE[name])
        assert float(found.variance) == pytest.approx(0.04**2, rel=1e-3)
        np.testing.assert_allclose(found.value, true_sum(model, table, HERE[name]), atol=0.24)
    assert np.linalg.norm(7 * np.asarray(model.center(HERE[name]))) > 0.48


@pytest.mark.parametrize("name", CASES)
def test_with_radial_noise_it_is_the_same_sum(name):
    """The noise has a scale of 0.004; beyond 0.15 in any direction it is once in 10^12."""
    model, rows = CASES[name]
    query = CenteredRadialGradient(model.spread, 2 * model.spread / 0.004, model.dimension)
    curator = Curator(rows, model, None, fixed_secret=tiny.SECRET)
    found = answer(curator, query, HERE[name])
    assert float(found.variance) == pytest.approx((model.dimension + 1) * 0.004**2, rel=1e-6)
    np.testing.assert_allclose(found.value, true_sum(model, rows, HERE[name]), atol=0.15)
    unit = tiny.BUDGET.unit
    assert query.cost(unit) == RadialGradient(1.0, query.epsilon, model.dimension).cost(unit)
    with pytest.raises(UnsupportedQuery, match="their number is private here: use Gradient"):
        query.cost(Budget(1.0, 1e-6, Neighbours.ADD_OR_REMOVE_ONE).unit)
    with pytest.raises(ValueError, match="is accounted for another"):
        answer(curator, CenteredRadialGradient(1.0, 1.0, 9), HERE[name])


@pytest.mark.parametrize("name", CASES)
def test_it_takes_less_noise_for_the_same_cost(name):
    model, _ = CASES[name]
    assert model.spread / model.lipschitz == pytest.approx(
        {"linear": 0.7717, "gaussian": 0.5}[name], rel=1e-3
    )
    assert CenteredGradient(model.spread, 9.0).cost(tiny.BUDGET.unit) == Gradient(
        model.lipschitz, 9.0
    ).cost(tiny.BUDGET.unit)


@pytest.mark.parametrize("name", CASES)
def test_no_gradient_is_farther_from_the_center_and_some_come_close(name):
    model, _ = CASES[name]
    count, size = 20_000, 2.0 if name == "gaussian" else 1.5
    features = GENERATOR.normal(size=(count, 2))
    features *= size / np.linalg.norm(features, axis=1, keepdims=True)
    rows = features if name == "gaussian" else (features, 3 * GENERATOR.choice([-1.0, 1.0], count))
    positions = GENERATOR.normal(size=(count, model.dimension)) * (
        1.0 if name == "gaussian" else 5.0
    )
    if name == "gaussian":
        positions *= np.minimum(1, size / np.linalg.norm(positions, axis=1, keepdims=True))
    with jax.enable_x64(True):
        slopes = np.asarray(jax.jit(jax.vmap(jax.grad(model.log_likelihood)))(positions, rows))
        centers = np.asarray(jax.jit(jax.vmap(model.center))(positions))
    lengths = np.linalg.norm(slopes - centers, axis=1)
    assert 0.99 * model.spread < lengths.max() <= model.spread * (1 + 1e-9)
    # A row that says nothing is not shortened either
    assert np.linalg.norm(centers, axis=1).max() <= model.spread * (1 + 1e-9)
    assert np.linalg.norm(slopes, axis=1).max() > 1.1 * model.spread  # around 0 they are not


EXTREME = [0.0, 1.0, -1.0, 1e-45, 3e38, -3e38, np.inf, -np.inf, np.nan]


def test_no_row_is_longer_than_the_bound_whatever_the_center():
    rows = np.array([[a, b] for a in EXTREME for b in EXTREME], np.float32)
    model = Model(
        lambda position, row: jnp.dot(row, position),
        tiny.log_prior,
        lambda position: {"x": position},
        2,
    )
    integers = jax.jit(
        lambda rows, center: gradient.row_integers(
            model, rows, len(rows), np.zeros(2, np.float32), 1.0, center
        )
    )
    for center in ([0.0, 0.0], [0.6, -0.8], [3e38, 1.0], [np.inf, 0.0], [np.nan, 0.0]):
        with jax.enable_x64(True):
            found = integers(rows, np.float32(center))
        lengths = np.sum(np.asarray(found, object) ** 2, axis=1)
        assert lengths.max() <= 2 ** (2 * BITS)
    # Both ends are reached, but for a margin: the bound is not a loose one.
    with jax.enable_x64(True):
        ends = np.array([[np.inf, 0.0], [-np.inf, 0.0]], np.float32)
        high, low = np.asarray(integers(ends, np.float32([0.5, 0.0])))
    assert (high - low)[0] > (2 - 1e-5) * 2**BITS


def test_a_row_that_says_nothing_is_within_the_spread_whatever_the_threshold():
    for threshold in (0.1, 0.5, 3.0):
        model = models.robust_linear(1, radius=1.0, response_bound=3.0, threshold=threshold)
        noises = np.linspace(-8, 8, 50)
        centers = jax.jit(jax.vmap(model.center))(np.float32([[0.0, noise] for noise in noises]))
        assert np.linalg.norm(centers, axis=1).max() <= model.spread * (1 + 1e-6)


def test_owners_add_up():
    owners = {
        name: Curator(LINEAR_ROWS, LINEAR, None, fixed_secret=tiny.SECRET + number)
        for number, name in enumerate("ab")
    }
    federation = Federation(owners)
    assert federation.model.spread == LINEAR.spread
    owners["b"] = Curator(
        LINEAR_ROWS, LINEAR._replace(center=None, spread=None), None, fixed_secret=tiny.SECRET + 1
    )
    assert Federation(owners).model.center is Federation(owners).model.spread is None
    found = answer(
        federation, CenteredGradient(LINEAR.spread, 0.02 / LINEAR.spread), HERE["linear"]
    )
    np.testing.assert_allclose(
        found.value, 2 * true_sum(LINEAR, LINEAR_ROWS, HERE["linear"]), atol=0.4
    )


def test_the_number_of_rows_must_be_public_and_the_model_have_a_center():
    query = CenteredGradient(1.0, 1.0)
    with pytest.raises(UnsupportedQuery, match="their number is private here: use Gradient"):
        query.cost(Budget(1.0, 1e-6, Neighbours.ADD_OR_REMOVE_ONE).unit)
    with pytest.raises(UnsupportedQuery, match="their number is private"):
        query.cost(Budget(1.0, 1e-6, rows_per_person=2).unit)
    without = LINEAR._replace(center=None, spread=None)
    with pytest.raises(ValueError, match="the model has no `center`"):
        answer(Curator(LINEAR_ROWS, without, None, fixed_secret=tiny.SECRET), query, HERE["linear"])
    with pytest.raises(ValueError, match="without the other"):
        Curator(LINEAR_ROWS, LINEAR._replace(spread=None), None)
    with pytest.raises(ValueError, match="the model's center does not take a position"):
        Curator(LINEAR_ROWS, LINEAR._replace(center=np.sin), None)
    with pytest.raises(ValueError, match="center must return 4 numbers"):
        Curator(LINEAR_ROWS, LINEAR._replace(center=lambda position: position[:2]), None)


def test_recipes_take_what_needs_less_noise():
    kinds = {
        CenteredGradient: recipes.langevin(LINEAR, 100_000, Budget(4.0, 1e-6)),
        Gradient: recipes.langevin(
            LINEAR, 100_000, Budget(4.0, 1e-6, Neighbours.ADD_OR_REMOVE_ONE)
        ),
    }
    for kind, recipe in kinds.items():
        assert type(recipe.query) is kind and kind in map(type, recipe.initial)
        assert recipe.query.clip == (
            LINEAR.spread if kind is CenteredGradient else LINEAR.lipschitz
        )
    assert type(recipes.langevin(LINEAR, 100_000, Budget(4.0, 1e-6), clip=3.0).query) is Gradient
    assert (
        recipes.langevin(LINEAR._replace(lipschitz=None), 100_000, Budget(4.0, 1e-6)).query.clip
        == LINEAR.spread
    )
