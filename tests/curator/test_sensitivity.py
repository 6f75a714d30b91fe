"""One person moves an integer sum by at most what is stated, whatever the rows hold; and the bound
is reached.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dpmcmc import Barker, Neighbours, models, testing
from dpmcmc.curator.noise import stream
from dpmcmc.curator.queries.log_ratio import log_ratio_sum
from dpmcmc.curator.sums.clipping import clip_to_unit
from dpmcmc.curator.sums.exact_sum import Table, fixed_point, sum_rows
from dpmcmc.queries import Accept, LogRatio, PenaltyAccept
from dpmcmc.types import Model, Unit
from tests.cases.queries import ALL, FULL, public_queries

UNIT = Unit()
EXTREME = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    1e-45,
    1e-38,
    3e38,
    -3e38,
    np.inf,
    -np.inf,
    np.nan,
    1 + 2**-23,
    1e300,
    -1e300,
]


def table(rows, num_rows=None):
    return Table((rows,), jnp.int64(len(rows) if num_rows is None else num_rows), UNIT)


@pytest.fixture(scope="module")
def integer_sum():
    """sum of clip(x_i, 1) on the grid, with the rows and their number as arguments."""
    with jax.enable_x64(True):
        run = jax.jit(
            lambda rows, number: sum_rows(
                lambda piece: fixed_point(clip_to_unit(piece, 1.0)), table(rows, number)
            )
        )

        def call(rows, number=None):
            with jax.enable_x64(True):
                return int(run(jnp.asarray(rows), len(rows) if number is None else number))

        yield call


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@settings(max_examples=150)
@given(data=st.data())
def test_replacing_a_row_moves_the_sum_by_at_most_two_units(integer_sum, dtype, data):
    width = 32 if dtype == np.float32 else 64
    cells = st.one_of(st.floats(width=width), st.sampled_from(EXTREME))
    with np.errstate(over="ignore"):
        rows = data.draw(hnp.arrays(np.float64, 20, elements=cells)).astype(dtype)
        neighbour = rows.copy()
        neighbour[data.draw(st.integers(0, 19))] = dtype(data.draw(cells))
    assert abs(integer_sum(rows) - integer_sum(neighbour)) <= 2 * FULL
    shorter = data.draw(st.integers(0, 19))
    assert abs(integer_sum(rows, shorter + 1) - integer_sum(rows, shorter)) <= FULL


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_bound_is_reached(integer_sum, dtype):
    high, low = np.full(20, 0.3, dtype), np.full(20, 0.3, dtype)
    high[7], low[7] = np.inf, -5
    assert integer_sum(high) - integer_sum(low) == 2 * FULL
    assert integer_sum(high, 8) - integer_sum(high, 7) == FULL


def test_without_the_clip_the_bound_is_broken():
    with jax.enable_x64(True):
        add = jax.jit(lambda rows: sum_rows(fixed_point, table(rows)))
        unclipped = lambda rows: int(add(np.array(rows)))  # noqa: E731
        assert abs(unclipped([0.5, 1.5]) - unclipped([0.5, -1.5])) > 2 * FULL


@pytest.mark.parametrize(
    "value, expected",
    [(np.nan, 0), (np.inf, FULL), (-np.inf, -FULL), (2.0, FULL), (0.5, FULL // 2)],
)
def test_clipping_is_total(value, expected):
    assert int(fixed_point(clip_to_unit(jnp.float32(value), jnp.float32(1.0)))) == expected


@pytest.mark.parametrize("bound", [0.0, np.inf, np.nan, 1e-45, 3e38])
@pytest.mark.parametrize("value", EXTREME[:11])
def test_any_bound_gives_a_finite_value(value, bound):
    assert abs(int(fixed_point(clip_to_unit(jnp.float32(value), jnp.float32(bound))))) <= FULL


def test_clipping_is_odd_so_that_ratios_stay_antisymmetric():
    values = jnp.asarray(np.random.default_rng(0).normal(size=10_000).astype(np.float32))
    there, back = (fixed_point(clip_to_unit(v, jnp.float32(0.7))) for v in (values, -values))
    assert bool(jnp.all(there == -back))


HOSTILE = Model(
    log_likelihood=lambda position, row: (
        jnp.log(row[0]) * jnp.exp(position[0] * row[1]) - row[2] / position[1]
    ),
    log_prior=lambda position: 0.0,
    unravel=lambda position: {"x": position},
    dimension=2,
)


RATIO_SUM = jax.jit(lambda model, rows, *rest: log_ratio_sum(model, rows, *rest), static_argnums=0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("seed", range(20))
def test_hostile_likelihoods_stay_within_the_bound(dtype, seed):
    """Rows and positions that overflow, divide by zero and take logarithms of negative numbers."""
    rng = np.random.default_rng(seed)
    rows = rng.choice(np.array(EXTREME[:11] + [5.0, -2.5]), (30, 3)).astype(dtype)
    neighbour = rows.copy()
    neighbour[seed] = rng.choice(np.array(EXTREME[:11]), 3).astype(dtype)
    position, proposal = rng.choice([0.0, 1.0, -3.0, 1e30], (2, 2)).astype(np.float32)
    with jax.enable_x64(True):
        sums = [
            int(RATIO_SUM(HOSTILE, table(jnp.asarray(r)), position, proposal, np.float64(0.1)))
            for r in (rows, neighbour)
        ]
    assert abs(sums[0] - sums[1]) <= 2 * FULL


def test_a_row_longer_than_the_radius_meets_the_clip():
    model = models.logistic(2, radius=1.0)
    far = (np.array([[1e6, 1e6]], np.float32), np.zeros(1, np.float32))
    with jax.enable_x64(True):
        arguments = (np.zeros(2, np.float32), np.full(2, 0.5, np.float32))
        rows = Table((jax.tree.map(jnp.asarray, far),), jnp.int64(1), UNIT)
        assert int(RATIO_SUM(model, rows, *arguments, np.float64(0.5**0.5))) == -FULL


def test_rows_within_the_radius_never_reach_the_clip():
    """The proved bound as the clip: the sum is that of the unclipped ratios, up to the grid, so the
    chain is exact.
    """
    model = models.logistic(3, radius=1.0)
    simulate = jax.jit(testing.simulate_logistic_rows, static_argnums=(1, 3))
    features, labels = simulate(jax.random.key(0), 2000, np.array([1.0, -2.0, 0.5]), 1.0)
    position, proposal = np.zeros(3, np.float32), np.array([0.01, -0.02, 0.03], np.float32)
    bound = np.linalg.norm(proposal).astype(np.float64)
    with jax.enable_x64(True):
        rows = Table(((features, labels),), jnp.int64(2000), UNIT)
        total = float(RATIO_SUM(model, rows, position, proposal, bound)) * float(bound) / FULL
    rowwise = jax.jit(jax.vmap(model.log_likelihood, (None, 0)))
    exact = rowwise(proposal, (features, labels)) - rowwise(position, (features, labels))
    assert abs(total - float(np.asarray(exact, np.float64).sum())) < 2000 * float(bound) * 2.0**-23


# -- what the queries state -----------------------------------------------------------------------

ADD = Unit(Neighbours.ADD_OR_REMOVE_ONE)
MANY = Unit(Neighbours.REPLACE_ONE, 5)


def test_sensitivity_by_relation_and_rows_per_person():
    assert [unit.sensitivity for unit in (UNIT, ADD, MANY)] == [2, 1, 10]


def test_costs_follow_the_unit():
    assert (
        LogRatio(1.0, 3.0).cost(UNIT).noise_multiplier
        == LogRatio(1.0, 3.0).cost(MANY).noise_multiplier
        == 3.0
    )
    ranges = [Accept(Barker(), 0.02).cost(unit).range for unit in (UNIT, ADD, MANY)]
    np.testing.assert_allclose(ranges, [0.04, 0.02, 0.2], rtol=1e-10)
    # Rounding is charged
    assert all(found > stated for found, stated in zip(ranges, [0.04, 0.02, 0.2], strict=True))
    for unit, range_ in ((UNIT, 0.1), (ADD, 0.05), (MANY, 0.5)):
        cost = PenaltyAccept(1.0, 10.0, 0.5, temperature=0.1).cost(unit)
        np.testing.assert_allclose([cost.range, cost.test.sigma], [range_, 10 * range_], rtol=1e-8)


def test_temperature_scales_range_but_not_the_price_of_a_ratio():
    assert LogRatio(1.0, 3.0, temperature=0.01).cost(UNIT) == LogRatio(1.0, 3.0).cost(UNIT)
    np.testing.assert_allclose(
        Accept(Barker(), 1.0, temperature=0.01).cost(UNIT).range, 0.02, rtol=1e-9
    )


def test_every_public_query_is_in_the_table():
    assert {type(case.query) for case in ALL} == public_queries()


@pytest.mark.parametrize("case", [case for case in ALL if case.tv_error], ids=str)
def test_what_answers_lack_to_be_ideal_is_charged_to_delta(case):
    """Of a vector for as many entries as it may have.

    The parts are of different sizes, and none is lost beside another.
    """
    assert case.query.cost(UNIT).tv_error == pytest.approx(case.tv_error, rel=1e-14, abs=0)


@pytest.mark.parametrize("case", [case for case in ALL if case.rate], ids=str)
def test_a_rate_is_charged_for_its_rounding(case):
    assert 0 < case.query.cost(UNIT).rate / case.rate - 1 < 1e-11


@pytest.mark.parametrize(
    "unit, factor", [(UNIT, 2), (ADD, 1), (MANY, 10)], ids=["replace", "add", "five rows"]
)
def test_released_noise_has_the_stated_standard_deviation(unit, factor):
    """False alarm: 1e-4 per unit (chi-squared of 4000 answers); noise 10 % smaller is caught."""
    from scipy import stats

    model = models.gaussian(np.ones(1))
    rows = jnp.zeros((8, 1))
    query = LogRatio(clip=2.0, noise_multiplier=1.5, temperature=0.5)
    with jax.enable_x64(True):
        points = jnp.zeros(1, jnp.float32), jnp.full(1, 0.25, jnp.float32)

        def answer(key):
            return query.answer(key, model, Table((rows,), jnp.int64(8), unit), *points)

        keys = stream.random_words(jnp.arange(8, dtype=jnp.uint32), (4000, 8))
        values, variances = jax.jit(jax.vmap(answer))(keys)
    stated = 0.5 * 1.5 * factor * 2.0 * 0.25
    np.testing.assert_allclose(np.sqrt(np.asarray(variances)), stated, rtol=1e-9)
    spread = float(np.sum((np.asarray(values) - 0.5 * 8 * -(0.25**2) / 2) ** 2)) / stated**2
    low, high = stats.chi2(4000).interval(1 - 1e-4)
    assert low < spread < high
    assert not low < spread * 0.81 < high
