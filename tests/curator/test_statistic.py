"""The sufficient statistic: its sensitivity in exact integers, with and without the count, its
noise, and bad rows.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats

from dpmcmc import (
    Budget,
    Curator,
    Family,
    Model,
    Neighbours,
    exponential_penalty,
    models,
    penalty,
    random_walk,
)
from dpmcmc.accounting import costs
from dpmcmc.curator.noise import stream
from dpmcmc.curator.queries import statistic
from dpmcmc.curator.sums import exact_sum
from dpmcmc.queries import LogRatio, SufficientStatistic
from dpmcmc.run.programs import Begin, Block
from dpmcmc.types import Unit
from tests.curator.test_gradient import adversarial_rows, too_long

REPLACE, ADD = Unit(), Unit(Neighbours.ADD_OR_REMOVE_ONE)
PERSON, ADD_PERSON = Unit(Neighbours.REPLACE_ONE, 3), Unit(Neighbours.ADD_OR_REMOVE_ONE, 3)
FULL = 2**exact_sum.BITS
NUM_ROWS, WIDTH = 12, 3


def family(radius=1.0, center=0.0) -> Family:
    """The row itself is the statistic."""
    return Family(
        lambda row: row,
        lambda position: position,
        lambda position: jnp.sum(position**2) / 2,
        radius,
        center,
    )


def model(width: int, **options) -> Model:

    def likelihood(position, row):
        return jnp.sum(position * row) - jnp.sum(position**2) / 2

    return Model(
        likelihood,
        lambda p: -0.5 * jnp.sum(p**2),
        lambda p: {"p": p},
        width,
        family=family(**options),
    )


def answers(rows, query, number, made, unit=REPLACE, num_rows=None):
    """Many answers about one table, with different secret keys."""
    table = exact_sum.Table((jnp.asarray(rows),), len(rows) if num_rows is None else num_rows, unit)
    with jax.enable_x64(True):
        keys = stream.random_words(jnp.arange(8, dtype=jnp.uint32), (number, 8))
        return jax.tree.map(
            np.asarray, jax.jit(jax.vmap(lambda key: query.answer(key, made, table, None)))(keys)
        )


# -- sensitivity ----------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [2, 10])
def test_adversarial_rows_never_exceed_the_bound(width):
    with jax.enable_x64(True):
        compiled = jax.jit(lambda rows: statistic.row_integers(family(), rows, 1))
        for dtype in (np.float32, np.float64):
            rows = [adversarial_rows(seed, 10**5, width).astype(dtype) for seed in range(3)]
            assert sum(too_long(np.asarray(compiled(part)), exact_sum.BITS) for part in rows) == 0


def test_without_the_clip_the_bound_is_broken():
    assert too_long(np.asarray(exact_sum.fixed_point(jnp.full((1, 2), 0.9))), exact_sum.BITS) == 1


@pytest.fixture(scope="module")
def whole():
    """(rows, number of rows) -> the exact (V, N), in units of the grid, of a table with room for
    NUM_ROWS.
    """
    with jax.enable_x64(True):
        run = jax.jit(
            lambda rows, number: statistic.statistic_sum(
                family(), exact_sum.Table((rows,), number, REPLACE)
            )
        )

        def call(rows, number=NUM_ROWS):
            with jax.enable_x64(True):
                return [*map(int, run(jnp.asarray(rows), number)), number * FULL]

        yield call


def squared_distance(first, second) -> int:
    return sum((a - b) ** 2 for a, b in zip(first, second, strict=True))


def squared_bound(unit) -> int:
    """The square of the stated sensitivity, in whole numbers: 4 k^2, or 2 k^2."""
    stated = round(statistic.joint_sensitivity(unit) ** 2)
    assert statistic.joint_sensitivity(unit) ** 2 >= stated  # rounded up
    return stated * FULL**2


CELLS = st.one_of(
    st.floats(width=32),
    st.sampled_from([0.0, 1.0, -1.0, 0.6, 0.8, 1e-45, 3e38, -3e38, np.inf, -np.inf, np.nan]),
)


@settings(max_examples=100)
@given(data=st.data())
def test_one_person_moves_sum_and_count_by_at_most_the_sensitivity(whole, data):
    rows = data.draw(hnp.arrays(np.float32, (NUM_ROWS, WIDTH), elements=CELLS))
    neighbour = rows.copy()
    neighbour[-3:] = data.draw(hnp.arrays(np.float32, (3, WIDTH), elements=CELLS))
    one = rows.copy()
    one[-1] = neighbour[-1]
    assert squared_distance(whole(rows), whole(one)) <= squared_bound(REPLACE)
    assert squared_distance(whole(rows), whole(rows, NUM_ROWS - 1)) <= squared_bound(ADD)
    # So many rows does the person have in either table
    kept = [data.draw(st.integers(0, 3)) for _ in range(2)]
    moved = squared_distance(
        whole(rows, NUM_ROWS - 3 + kept[0]), whole(neighbour, NUM_ROWS - 3 + kept[1])
    )
    assert moved <= squared_bound(PERSON)
    assert squared_distance(whole(rows), whole(rows, NUM_ROWS - 3)) <= squared_bound(ADD_PERSON)


def test_the_bound_is_reached(whole):
    high = np.zeros((NUM_ROWS, WIDTH), np.float32)
    high[-3:] = [0.0, 1.0, 0.0]
    nearly = 1 - 1e-6
    one = high.copy()
    one[-1] *= -1
    assert squared_distance(whole(high), whole(one)) > nearly * squared_bound(REPLACE)
    assert squared_distance(whole(high), whole(high, NUM_ROWS - 1)) > nearly * squared_bound(ADD)
    assert squared_distance(whole(high), whole(-high)) > nearly * squared_bound(PERSON)
    assert squared_distance(whole(high), whole(high, NUM_ROWS - 3)) > nearly * squared_bound(
        ADD_PERSON
    )


def test_to_forget_the_count_is_caught(whole):
    """The twin: under add-or-remove the sum alone has sensitivity 1, with the count it moves by
    more.
    """
    high = np.zeros((NUM_ROWS, WIDTH), np.float32)
    high[-1, 0] = 1.0
    assert squared_distance(whole(high), whole(high, NUM_ROWS - 1)) > 1.9 * FULL**2


# -- values ---------------------------------------------------------------------------------------


def total(rows, made, num_rows=None):
    """The centred sum as it is before the noise."""
    table = exact_sum.Table(
        (jax.tree.map(jnp.asarray, rows),), len(rows) if num_rows is None else num_rows, REPLACE
    )
    with jax.enable_x64(True):
        return (
            np.asarray(jax.jit(lambda: statistic.statistic_sum(made, table))()) * made.radius / FULL
        )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_sum_is_that_of_numpy(dtype):
    rows = np.random.default_rng(0).normal(size=(5003, 4)).astype(dtype)
    center = np.array([0.5, 0.0, -1.0, 2.0])
    wanted = (rows.astype(float) - center).sum(axis=0)
    np.testing.assert_allclose(
        total(rows, family(50.0, center)), wanted, atol=5003 * 50.0 * 2.0**-30
    )
    np.testing.assert_allclose(
        total(rows, family(50.0, center), 700),
        (rows[:700].astype(float) - center).sum(0),
        atol=1e-4,
    )


def test_rows_at_the_bound_count_in_full():
    """All rows of a Bernoulli table are at the surface of the ball: a margin as wide as float32's
    would be a bias.
    """
    rows = np.arange(10_000) < 9000
    np.testing.assert_allclose(
        total(rows, models.binomial().family), [9000 - 5000], rtol=17 * 2.0**-28
    )


def test_rows_outside_are_moved_to_the_ball_and_bad_ones_to_the_center():
    rows = np.array(
        [
            [4.0, 3.0],
            [6e10 + 1, 8e10 - 1],
            [np.nan, 1.0],
            [np.inf, 0.0],
            [np.inf, np.nan],
            [1.0, -1.0],
        ]
    )
    wanted = [[0.6, 0.8], [0.6, 0.8], [0.0, 0.0], [1.0, 0.0], [0.0, 0.0], [0.0, 0.0]]
    with jax.enable_x64(True):
        found = jax.jit(
            lambda rows: statistic.row_integers(family(1.0, np.array([1.0, -1.0])), rows, 1)
        )(rows)
    np.testing.assert_allclose(np.asarray(found) / FULL, wanted, atol=1e-6)


def test_padding_is_not_counted():
    rows = np.ones((6, 2), np.float32)
    rows[4:] = np.nan
    answer = answers(rows, SufficientStatistic(1e-5), 1, model(2, radius=2.0), ADD, num_rows=4)
    np.testing.assert_allclose(answer.value[0], [4, 4, 4], atol=1e-3)
    rows[4:] = 0.25
    np.testing.assert_array_equal(
        answers(rows, SufficientStatistic(1e-5), 1, model(2, radius=2.0), ADD, num_rows=4).value,
        answer.value,
    )


def test_a_curator_counts_its_rows_and_not_its_places():
    """The noise on the count has the standard deviation 1.4, and the secret is fixed."""
    budget, query = Budget(100.0, 1e-6, Neighbours.ADD_OR_REMOVE_ONE), SufficientStatistic(1.0)
    curator = Curator(
        np.zeros((30, 2), np.float32),
        model(2),
        budget,
        capacity=90,
        fixed_secret=np.arange(16, dtype=np.uint32),
    )
    traced = curator.trace(lambda ask, key: ask(key, query, jnp.zeros(2)).value, jax.random.key(0))
    assert abs(curator.grant(traced.plan).run(traced.compile(), jax.random.key(0))[-1] - 30) < 6


def test_the_sum_does_not_depend_on_how_rows_are_split_and_owners_add(monkeypatch):
    rows = np.random.default_rng(1).normal(size=(1000, 3)).astype(np.float32)
    made = family(2.0)
    wanted = total(rows, made)
    monkeypatch.setattr(exact_sum, "CACHED_ENTRIES", 192)
    table = exact_sum.Table(tuple(map(jnp.asarray, np.split(rows, 5))), 1000, REPLACE)
    with jax.enable_x64(True):
        found = (
            np.asarray(jax.jit(lambda: statistic.statistic_sum(made, table))()) * made.radius / FULL
        )
    np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(
        sum(total(part, made) for part in (rows[:300], rows[300:])), wanted
    )


def asked(curator, query):
    traced = curator.trace(
        lambda ask, key, p: ask(key, query, p),
        jax.random.key(0),
        jnp.zeros(curator.model.dimension),
    )
    assert traced.plan == {query: 1}
    return (
        curator.grant(traced.plan)
        .run(traced.compile(), jax.random.key(0), jnp.zeros(curator.model.dimension))
        .value
    )


# -- noise and its price --------------------------------------------------------------------------


def test_noise_has_its_scale_and_not_one_5_percent_off():
    made, query = model(2, radius=0.5), SufficientStatistic(3.0, temperature=0.25)
    answer = answers(np.zeros((10, 2), np.float32), query, 15_000, made, ADD)
    draws = (answer.value - [0, 0, 2.5]) / (0.25 * 3.0 * 2**0.5 * np.array([0.5, 0.5, 1.0]))
    # 45 000 draws: false alarm 1e-4; 5 % off has a p-value below 1e-6. Three correlations: 2e-5.
    pooled = draws.ravel()
    assert stats.kstest(pooled, "norm").pvalue > 1e-4
    assert (
        stats.kstest(pooled / 1.05, "norm").pvalue < 1e-6
        and stats.kstest(pooled * 1.05, "norm").pvalue < 1e-6
    )
    assert np.abs(np.corrcoef(draws.T)[np.triu_indices(3, 1)]).max() * 15_000**0.5 < 4.5


@pytest.mark.parametrize(
    "unit, factor", [(REPLACE, 2), (ADD, 2**0.5), (PERSON, 6), (ADD_PERSON, 3 * 2**0.5)]
)
def test_noise_follows_the_unit_of_privacy(unit, factor):
    answer = answers(
        np.zeros((10, 2), np.float32), SufficientStatistic(3.0, 0.25), 1, model(2, radius=0.5), unit
    )
    scale = 0.25 * 3.0 * factor * np.array([0.5, 0.5, unit != REPLACE])
    np.testing.assert_allclose(answer.variance[0], scale**2, rtol=1e-9)
    assert (answer.value[0, -1] == 2.5) == (unit == REPLACE)


def test_costs_follow_the_unit():
    for unit in (REPLACE, ADD, PERSON):
        cost = SufficientStatistic(2.0, temperature=0.1).cost(unit)
        assert (
            isinstance(cost, costs.Gaussian)
            and cost.noise_multiplier == 2.0
            and 0 < cost.tv_error < 1e-16
        )


def test_the_bill_is_that_of_as_many_gaussians():
    made, query = models.binomial(), SufficientStatistic(30.0)
    rows = np.arange(500) % 2
    statement = Curator(rows, made, Budget(1.0, 1e-6)).grant({query: 20}).statement()
    ratios = Curator(rows, made, Budget(1.0, 1e-6)).grant({LogRatio(1.0, 30.0): 20}).statement()
    assert statement.epsilon == pytest.approx(ratios.epsilon, rel=1e-6)
    assert f"20 x {query!r}" in str(statement) and query.released in str(statement)


# -- once per program -----------------------------------------------------------------------------


@pytest.mark.slow
def test_the_loop_does_not_see_the_rows():
    """What a step costs cannot depend on n: nothing of that size goes into the loop, and the rows
    are gone if nobody asks.
    """
    num_rows, made, query = 5000, models.binomial(), SufficientStatistic(1.0)
    curator = Curator(np.arange(num_rows) % 2, made, None)
    keys = jax.random.split(jax.random.key(0), 2)
    sees = {}
    for name, sampler in {
        "statistic": exponential_penalty(made, query, random_walk(0.1)),
        "ratio": penalty(made.log_prior, LogRatio(1.0, 1.0), random_walk(0.1)),
    }.items():
        begin = curator.trace(Begin(sampler), keys, jnp.zeros((2, 1)))
        block = curator.trace(Block(sampler, 50), keys, *begin.shapes, jnp.int32(0))
        # The loop over the steps has all draws; there is another, in which the sum is made before
        # it begins.
        loops = [
            line
            for line in block.compile().compiled.as_text().splitlines()
            if " while(" in line and "[50,2]" in line
        ]
        assert loops
        sees[name] = any(f"[{num_rows}" in line for line in loops)
    assert sees == {"statistic": False, "ratio": True}  # the second shows that the first can fail
    idle = curator.trace(lambda ask, p: p + 1, jnp.zeros(1)).compile().compiled
    assert idle.cost_analysis().get("flops", 0.0) < num_rows


# -- refusals -------------------------------------------------------------------------------------


def test_a_model_without_a_family_is_refused_before_anything_is_spent():
    made = models.gaussian(np.eye(2))
    with pytest.raises(ValueError, match="has no `family`.*LogRatio"):
        exponential_penalty(made, SufficientStatistic(1.0), random_walk(0.1))
    curator = Curator(np.zeros((5, 2), np.float32), made, Budget(1.0, 1e-6))
    with pytest.raises(ValueError, match="has no `family`.*LogRatio"):
        asked(curator, SufficientStatistic(1.0))
    assert curator._account.ledger.grants == []


@pytest.mark.parametrize(
    "bad, text",
    [
        (family(radius=-1.0), "radius=-1.0"),
        (family(center=np.zeros(3)), r"center \(3,\)"),
        (family()._replace(statistic=lambda row: row[0]), r"statistic has shape \(\)"),
        (family()._replace(natural=lambda position: position[:1]), r"natural \(1,\)"),
        (
            family()._replace(
                statistic=lambda row: jnp.zeros(4096), natural=lambda p: jnp.zeros(4096)
            ),
            "4096 entries is too long",
        ),
    ],
)
def test_a_family_that_does_not_fit_is_named(bad, text):
    with pytest.raises(ValueError, match=text):
        asked(
            Curator(np.zeros((5, 2), np.float32), model(2)._replace(family=bad), None),
            SufficientStatistic(1.0),
        )


@pytest.mark.parametrize(
    "settings_, text", [((0.0,), "noise_multiplier=0.0"), ((1.0, np.nan), "temperature=nan")]
)
def test_bad_settings_are_named(settings_, text):
    with pytest.raises(ValueError, match=text):
        SufficientStatistic(*settings_)
