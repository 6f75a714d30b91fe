"""The count of rows: its sensitivity in exact integers, its noise, which rows are counted, and bad
kinds.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats

from dpmcmc import Budget, Curator, Federation, Kinds, Model, Neighbours, models
from dpmcmc.accounting import costs
from dpmcmc.curator.noise import stream
from dpmcmc.curator.queries import count
from dpmcmc.curator.sums.exact_sum import Table
from dpmcmc.queries import ClippedGradients, ClippedRatios, Count
from dpmcmc.types import Unit

REPLACE, ADD = Unit(), Unit(Neighbours.ADD_OR_REMOVE_ONE)
PERSON, ADD_PERSON = Unit(Neighbours.REPLACE_ONE, 3), Unit(Neighbours.ADD_OR_REMOVE_ONE, 3)
NUM_ROWS, NAMES = 12, ("below", "between", "above")
CELLS = st.one_of(
    st.floats(width=32),
    st.sampled_from([0.0, -1.0, 1.0, 2.0, 1e-45, 3e38, -3e38, np.inf, -np.inf, np.nan]),
)


def model(**others) -> Model:
    """A row (x, kind), with any number for a kind."""
    kinds = Kinds(NAMES, lambda row: row[1].astype(jnp.int32))
    likelihood = lambda position, row: jnp.log(row[0]) * position[0]  # noqa: E731
    return Model(
        likelihood,
        lambda p: -0.5 * jnp.sum(p**2),
        lambda p: {"p": p},
        1,
        **({"kinds": kinds} | others),
    )


MODEL = model()


@pytest.fixture(scope="module")
def counts():
    """(rows, number of rows) -> the exact counts of a table with room for NUM_ROWS."""
    with jax.enable_x64(True):
        run = jax.jit(
            lambda rows, number: count.count_sum(
                MODEL, Table((rows,), number, REPLACE), jnp.ones(1)
            )
        )

        def call(rows, number=NUM_ROWS):
            with jax.enable_x64(True):
                return np.asarray(run(jnp.asarray(rows, jnp.float32), number))

        yield call


def squared_bound(unit) -> int:
    """The square of the stated sensitivity, in whole numbers: 2 k^2, or k^2."""
    stated = round(count.count_sensitivity(unit) ** 2)
    assert count.count_sensitivity(unit) ** 2 >= stated  # rounded up
    return stated


def squared_distance(first, second) -> int:
    return int(np.sum((first - second) ** 2))


@settings(max_examples=100)
@given(data=st.data())
def test_one_person_moves_the_counts_by_at_most_the_sensitivity(counts, data):
    rows = data.draw(hnp.arrays(np.float32, (NUM_ROWS, 2), elements=CELLS))
    other = rows.copy()
    other[-3:] = data.draw(hnp.arrays(np.float32, (3, 2), elements=CELLS))
    one = rows.copy()
    one[-1] = other[-1]
    assert squared_distance(counts(rows), counts(one)) <= squared_bound(REPLACE)
    assert squared_distance(counts(rows), counts(rows, NUM_ROWS - 1)) <= squared_bound(ADD)
    # So many rows has the person in either table
    kept = [NUM_ROWS - 3 + data.draw(st.integers(0, 3)) for _ in range(2)]
    assert squared_distance(counts(rows, kept[0]), counts(other, kept[1])) <= squared_bound(PERSON)
    assert squared_distance(counts(rows), counts(rows, NUM_ROWS - 3)) <= squared_bound(ADD_PERSON)


def test_the_bound_is_reached_and_a_smaller_one_is_caught(counts):
    """When all of a person's rows change from one kind to another; to charge for one count alone
    would be too little.
    """
    rows = np.ones((NUM_ROWS, 2))
    one, three = rows.copy(), rows.copy()
    one[-1, 1], three[-3:, 1] = 2, 0
    moved = {
        REPLACE: (one, NUM_ROWS),
        ADD: (rows, NUM_ROWS - 1),
        PERSON: (three, NUM_ROWS),
        ADD_PERSON: (rows, NUM_ROWS - 3),
    }
    for unit, table in moved.items():
        assert squared_distance(counts(rows), counts(*table)) == squared_bound(unit)
    assert squared_distance(counts(rows), counts(one)) > 1.0


def test_rows_are_counted_that_can_be_used(counts):
    """Not one whose log-likelihood is no number or infinite, nor one whose kind is none of the
    names.
    """
    rows = [
        [1, 0],
        [2, 0],
        [np.nan, 0],
        [0, 1],
        [-1, 1],
        [np.inf, 1],
        [1, 1],
        [1, 2],
        [1, 3],
        [1, -1],
        [1, np.nan],
        [1, 2],
    ]
    # A NaN makes one integer or another, which may be that of a kind
    assert counts(rows)[1:].tolist() == [1, 2]
    assert counts(rows)[0] in (2, 3)
    assert counts(rows, 3).tolist() == [2, 0, 0]


def test_a_logistic_table_is_counted_by_its_labels():
    rows = np.zeros((7, 1), np.float32), np.float32([1, 1, 1, 0, np.nan, 0, 1])
    rows[0][6] = np.nan
    table = Table((jax.tree.map(jnp.asarray, rows),), 7, REPLACE)
    made = models.logistic(1, 1.0)
    with jax.enable_x64(True):
        assert made.kinds.names == ("label 0", "label 1")
        assert count.count_sum(made, table, jnp.zeros(1)).tolist() == [2, 3]
        assert count.count_sum(made._replace(kinds=None), table, jnp.zeros(1)).tolist() == [5]


# -- noise and its price --------------------------------------------------------------------------


def answers(query, number, unit=REPLACE):
    """Many answers about one table, with different secret keys."""
    table = Table((jnp.ones((10, 2)),), 10, unit)
    with jax.enable_x64(True):
        keys = stream.random_words(jnp.arange(8, dtype=jnp.uint32), (number, 8))
        return jax.tree.map(
            np.asarray,
            jax.jit(jax.vmap(lambda key: query.answer(key, MODEL, table, jnp.ones(1))))(keys),
        )


def test_noise_has_its_scale_and_not_one_5_percent_off():
    """45 000 draws: false alarm 1e-4; 5 % off has a p-value below 1e-6. Three correlations:
    2e-5."""
    answer = answers(Count(3.0), 15_000)
    draws = (answer.value - [0, 10, 0]) / (3.0 * 2**0.5)
    pooled = draws.ravel()
    assert stats.kstest(pooled, "norm").pvalue > 1e-4
    assert (
        stats.kstest(pooled / 1.05, "norm").pvalue < 1e-6
        and stats.kstest(pooled * 1.05, "norm").pvalue < 1e-6
    )
    assert np.abs(np.corrcoef(draws.T)[np.triu_indices(3, 1)]).max() * 15_000**0.5 < 4.5


@pytest.mark.parametrize(
    "unit, factor", [(REPLACE, 2**0.5), (ADD, 1), (PERSON, 3 * 2**0.5), (ADD_PERSON, 3)]
)
def test_noise_follows_the_unit_of_privacy(unit, factor):
    assert Count(3.0).deviation(unit) == pytest.approx(3.0 * factor)
    np.testing.assert_allclose(
        answers(Count(3.0), 1, unit).variance, (3.0 * factor) ** 2, rtol=1e-9
    )
    cost = Count(3.0).cost(unit)
    assert (
        isinstance(cost, costs.Gaussian)
        and cost.noise_multiplier == 3.0
        and 0 < cost.tv_error < 1e-16
    )


# -- asked of a curator ---------------------------------------------------------------------------


def asked(owner, query):
    traced = owner.trace(
        lambda ask, key, position: ask(key, query, position).value, jax.random.key(0), jnp.ones(1)
    )
    assert traced.plan == {query: 1}
    return np.asarray(
        owner.grant(traced.plan).run(traced.compile(), jax.random.key(0), jnp.ones(1))
    )


def test_a_curator_counts_its_rows_and_not_its_places_and_owners_add():
    """The noise has a standard deviation of 1 for either owner, and the secrets are fixed."""
    budget, rows = Budget(100.0, 1e-6, Neighbours.ADD_OR_REMOVE_ONE), np.ones((30, 2), np.float32)
    owners = [
        Curator(rows, MODEL, budget, capacity=90, fixed_secret=np.arange(16, dtype=np.uint32) + i)
        for i in (0, 1)
    ]
    np.testing.assert_allclose(asked(owners[0], Count(1.0)), [0, 30, 0], atol=5)
    others = [
        Curator(rows, MODEL, budget, capacity=90, fixed_secret=np.arange(16, dtype=np.uint32) + i)
        for i in (2, 3)
    ]
    np.testing.assert_allclose(asked(Federation(others), Count(1.0)), [0, 60, 0], atol=7)


def test_owners_count_the_same_kinds():
    owners = [
        Curator(np.ones((3, 2), np.float32), made, None) for made in (MODEL, model(kinds=None))
    ]
    with pytest.raises(
        ValueError, match="owner 1 has kinds .*, owner 2 None: all owners need the same model"
    ):
        Federation(owners)


@pytest.mark.parametrize(
    "bad, text",
    [
        (Kinds((), lambda row: 0), "kinds.names=.* must be a tuple of 1 to 4096 different texts"),
        (Kinds(("a", "a"), lambda row: 0), "kinds.names=.* must be a tuple"),
        (Kinds("ab", lambda row: 0), "kinds.names='ab' must be a tuple"),
        (Kinds(tuple(map(str, range(4097))), lambda row: 0), "must be a tuple of 1 to 4096"),
        (Kinds(("a",), lambda row: row[0]), "kinds.of_row must return one integer for one row"),
        (
            Kinds(("a",), lambda row: row.astype(jnp.int32)),
            "kinds.of_row must return one integer for one row",
        ),
        (
            Kinds(("a",), lambda row: jax.debug.print("{}", row) or jnp.int32(0)),
            "kinds.of_row prints or calls back",
        ),
    ],
)
def test_kinds_that_do_not_fit_are_named(bad, text):
    with pytest.raises(ValueError, match=text):
        Curator(np.ones((3, 2), np.float32), model(kinds=bad), None)


@pytest.mark.parametrize("multiplier", [0.0, -1.0, np.nan, np.inf])
def test_bad_settings_are_named(multiplier):
    with pytest.raises(ValueError, match="noise_multiplier="):
        Count(multiplier)


# -- rows that are clipped ------------------------------------------------------------------------

LINE = models.gaussian([1.0], radius=4.0)._replace(family=None)
HERE, THERE = jnp.zeros(1), jnp.full(1, 0.5)
PLACES = np.float32([[-3.0], [-1.0], [0.0], [0.5], [2.0], [3.0]])  # row x has the ratio x/2 - 1/8


def clipped(query, rows, unit=REPLACE, number=None):
    """What is released, rounded: the noise is a thousandth of a row."""
    table = np.asarray(rows, np.float32)
    points = (HERE, THERE) if isinstance(query, ClippedRatios) else (HERE,)
    with jax.enable_x64(True):
        held = Table(
            (jnp.asarray(table),), np.int64(len(table) if number is None else number), unit
        )
        answer = jax.jit(lambda key: query.answer(key, LINE, held, *points))
        found = answer(jnp.arange(8, dtype=jnp.uint32))
    return float(found.value), float(found.variance)


@pytest.mark.parametrize("query, expected", [
    # |x/2 - 1/8| > clip / 2: of -3, 2 and 3 beyond 0.7, and of -1 beyond 0.5 too
    (ClippedRatios(1.4, 1e-3), 3),
    (ClippedRatios(1.0, 1e-3), 4),
    (ClippedRatios(10.0, 1e-3), 0),
    # |x| > clip
    (ClippedGradients(1.5, 1e-3), 3),
    (ClippedGradients(0.75, 1e-3), 4),
    (ClippedGradients(5.0, 1e-3), 0),
])  # fmt: skip
def test_clipped_rows_are_counted(query, expected):
    value, variance = clipped(query, PLACES)
    assert round(value) == expected and abs(value - expected) < 0.02
    assert variance == pytest.approx(1e-6, rel=1e-6)
    # A row without a value is ignored, and so is not clipped
    assert round(clipped(query, np.append(PLACES, [[np.nan]], axis=0))[0]) == expected


@pytest.mark.parametrize("query", [ClippedRatios(1.4, 1e-3), ClippedGradients(1.5, 1e-3)])
def test_a_person_moves_the_count_of_clipped_rows_by_as_many_rows(query):
    """The stated sensitivity is attained, replaced or removed, by one row and by three."""
    whole = np.zeros((6, 1))
    one, three = whole.copy(), whole.copy()
    one[-1], three[-3:] = 3.0, 3.0
    for unit, table in ((REPLACE, one), (PERSON, three), (ADD, one), (ADD_PERSON, three)):
        rows = unit.rows_per_person
        number = 6 - rows if unit in (ADD, ADD_PERSON) else 6
        other = clipped(query, table if number < 6 else whole, unit, number)[0]
        assert round(clipped(query, table, unit)[0] - other) == rows
        deviation = clipped(query, table, unit)[1] ** 0.5
        assert deviation == pytest.approx(query.noise_multiplier * rows, rel=1e-6)
