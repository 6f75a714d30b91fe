"""The gradient with radial noise: what one row moves, how large the noise is, and what is refused.

Statistical tests: the noise's mean squared length over 500 answers, within 5 standard errors (false
alarm 1e-6); they find a scale that is 20 % off.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpmcmc import Budget, Curator, models
from dpmcmc.accounting import calibrate, costs
from dpmcmc.curator.queries import gradient
from dpmcmc.curator.sums import integer_rows
from dpmcmc.curator.sums.exact_sum import Table
from dpmcmc.queries import RadialGradient
from dpmcmc.types import Neighbours, Unit
from tests import tiny

UNIT = Unit()
LOGISTIC = models.logistic(3, radius=1.0)
# The same without public tables, and without a linear predictor
PLAIN = LOGISTIC._replace(linear=None)
UNITS = [UNIT, Unit(Neighbours.ADD_OR_REMOVE_ONE), Unit(Neighbours.REPLACE_ONE, 3)]
HERE = np.float32([0.2, -3.0, 1.0])
EXTREME = [0.0, 1.0, -1.0, 1e-45, 3e38, -3e38, np.inf, -np.inf, np.nan]


def one_row_sums(way: str):
    """The exact sum over each of some tables of one row, and how far a row may move such a sum."""
    direction = -HERE / np.linalg.norm(HERE)
    features = [direction, -direction, direction, -100 * direction, 100 * direction]
    features += [[a, b, 0.5] for a in EXTREME for b in (0.0, np.inf, np.nan)]
    features = np.float32(features)
    labels = np.float32(np.arange(len(features)) % 2 == 0)
    model = PLAIN if way == "general" else LOGISTIC
    clip = LOGISTIC.lipschitz if way == "tables" else 0.3
    longest = 0.0

    def one(rows, integers):
        nonlocal longest
        table = Table((rows,), jnp.int64(1), UNIT, integers=integers)
        table = gradient.with_scales(table, model)
        total, longest, _ = gradient._exact_sum(model, table, jnp.asarray(HERE), clip)
        return total

    compiled = jax.jit(one)
    totals = []
    with jax.enable_x64(True):
        for row in zip(features[:, None], labels[:, None], strict=True):
            integers = integer_rows.integer_rows(LOGISTIC, row, 1, 1) if way == "tables" else None
            totals.append(compiled(*jax.tree.map(jnp.asarray, (row, integers))))
    return np.array(totals, object), longest


@pytest.mark.parametrize("way", ["tables", "linear", "general"])
def test_no_row_moves_the_sum_by_more_than_its_sensitivity(way):
    """In exact integers: a row that is added or removed, and every pair. At this position a row of
    the logistic model reaches 0.96 of its bound.
    """
    totals, longest = one_row_sums(way)
    assert int(longest) == longest
    largest = max(int(np.sum(one**2)) for one in totals)
    assert (0.95 * longest) ** 2 < largest <= int(longest) ** 2
    squares = [int(np.sum((one - other) ** 2)) for one in totals for other in totals]
    assert max(squares) <= (2 * int(longest)) ** 2


def answers(unit, epsilon: float, number: int = 500):
    rows = np.linspace(-1, 1, 40, dtype=np.float32).reshape(20, 2)
    model = models.gaussian(np.eye(2), prior_scale=1.0, radius=2.0)
    query = RadialGradient(4.0, epsilon, 2)
    capacity = None if unit.is_count_public else 30
    curator = Curator(rows, model, None, unit=unit, capacity=capacity, fixed_secret=tiny.SECRET)
    keys = jax.random.split(jax.random.key(0), number)

    def program(ask, keys):
        return jax.lax.map(lambda key: ask(key, query, jnp.zeros(2)), keys)

    traced = curator.trace(program, keys)
    return curator.grant(traced.plan).run(traced.compile(), keys), np.sum(rows, axis=0)


@pytest.mark.parametrize("unit", UNITS, ids=["replace", "add", "three rows"])
def test_the_noise_follows_the_unit(unit):
    """E |z|^2 = d (d + 1) scale^2, and its standard deviation is that times 1.53 for d = 2."""
    answer, total = answers(unit, 0.5)
    scale = 4.0 * unit.sensitivity / 0.5
    assert np.allclose(answer.variance, 3 * scale**2)
    squares = np.sum((np.asarray(answer.value) - total) ** 2, axis=1) / scale**2
    assert abs(np.mean(squares) - 6) < 5 * math.sqrt(84 / 500)
    assert RadialGradient(4.0, 0.5, 2).cost(unit).epsilon == 0.5


def test_with_little_noise_it_is_the_sum_of_the_gradients():
    """Its scale is 0.001, and longer than 0.03 it is once in 10^11."""
    answer, total = answers(UNIT, 8000.0, number=1)
    assert np.allclose(answer.value[0], total, atol=0.03)


def test_another_dimension_is_refused_when_traced():
    query = RadialGradient(1.0, 0.5, 4)
    curator = Curator(tiny.ROWS, tiny.MODEL, tiny.BUDGET)
    with pytest.raises(ValueError, match="dimension 1"):
        curator.trace(lambda ask, key: ask(key, query, jnp.zeros(1)), jax.random.key(0))


def test_it_is_billed_and_granted_beside_others():
    """With the budget's radial epsilon one answer fits, and two do not."""
    budget = Budget(1.0, 1e-6)
    epsilon = calibrate.radial_epsilon(1.0, 1e-6, 0.0, 1)
    query = RadialGradient(1.0, epsilon, 1)
    curator = Curator(tiny.ROWS, tiny.MODEL, budget, fixed_secret=tiny.SECRET)
    assert curator.check({query: 1}) is None
    assert "radial noise" in str(curator.grant({query: 1}).statement())
    cost = query.cost(budget.unit)
    assert isinstance(cost, costs.Radial) and 0 < cost.distance < 1e-12
    assert not calibrate.within({cost: 2}, 1.0, 1e-6)


@pytest.mark.parametrize("wrong", [(0.0, 1.0, 3), (1.0, -1.0, 3), (1.0, 1.0, 2.5), (1.0, 1.0, 0)])
def test_wrong_numbers_are_refused(wrong):
    with pytest.raises(ValueError):
        RadialGradient(*wrong)
