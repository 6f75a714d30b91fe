"""Persons with several rows: only so many of each are used, and what one person has changes nobody
else's.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pandas
import pytest

from dpmcmc import Budget, BudgetExceeded, Curator, Neighbours, tables
from dpmcmc.curator import checks
from dpmcmc.types import Unit
from tests import tiny

pytestmark = pytest.mark.usefixtures("quick_compilation")

VISITS = Budget(1.0, 1e-6, rows_per_person=2)
PRESENCE = Budget(1.0, 1e-6, Neighbours.ADD_OR_REMOVE_ONE)
PERSONS = np.array([7, 3, 7, -1, 7, 3, 5, 3, -1])


def used(persons, rows_per_person=2):
    persons = np.asarray(persons)
    return np.flatnonzero(
        checks.first_of_each(persons, len(persons), Unit(rows_per_person=rows_per_person))
    ).tolist()


def test_the_first_rows_of_each_are_used_and_none_of_nobody():
    assert used(PERSONS) == [0, 1, 2, 5, 6]
    assert used(PERSONS, 3) == [0, 1, 2, 4, 5, 6, 7]
    assert used(np.array([], int)) == [] == used([-1, -1])
    assert used([0, -1, 0, 0]) == [0, 2]  # number 0 is somebody


def test_what_one_person_has_changes_nobody_elses():
    """Added, removed or given other names, in any place: at most two rows of this person come and
    go.
    """
    generator = np.random.default_rng(0)
    for _ in range(200):
        others, own = (
            generator.integers(-1, 5, 12),
            generator.integers(0, 12, generator.integers(0, 6)),
        )
        is_own = np.insert(np.zeros(12, bool), own, True)
        table = np.insert(others, own, 9)
        left = [place for place in used(table) if not is_own[place]]
        assert np.flatnonzero(~is_own)[used(others)].tolist() == left
        assert len(used(table)) - len(left) == min(2, len(own))


def answer(rows, persons, budget=VISITS):
    curator = Curator(
        rows, tiny.MODEL, budget, capacity=60, persons=persons, fixed_secret=tiny.SECRET
    )
    program = curator.trace(
        lambda ask, key: ask(key, tiny.RATIO, tiny.START, tiny.START + 0.1).value, jax.random.key(0)
    )
    return float(curator.grant(program.plan).run(program.compile(), jax.random.key(0)))


def test_further_rows_of_a_person_do_not_move_an_answer():
    """With a fixed secret the noise is the same, so the sum over rows is seen: ten more visits of
    one person are not.
    """
    persons = np.arange(40) // 2
    more = np.concatenate([tiny.ROWS, np.full((10, *tiny.ROWS.shape[1:]), 9.0, tiny.ROWS.dtype)])
    assert answer(more, np.append(persons, np.full(10, 3))) == answer(tiny.ROWS, persons)
    assert answer(more, np.append(persons, np.full(10, -1))) == answer(tiny.ROWS, persons)
    # As without the limit
    assert answer(more, np.append(persons, np.arange(20, 30))) != answer(tiny.ROWS, persons)


@pytest.mark.parametrize(
    "promise, factor",
    [
        ({"budget": VISITS}, 4),
        ({"budget": PRESENCE}, 1),
        ({"budget": None, "unit": PRESENCE.unit}, 1),
    ],
    ids=["two rows", "one row", "no promise"],
)
def test_a_curators_noise_is_for_all_rows_of_a_person(promise, factor):
    curator = tiny.make_curator(**promise, capacity=60)
    program = curator.trace(
        lambda ask, key: ask(key, tiny.RATIO, tiny.START, tiny.START + 0.5).variance,
        jax.random.key(0),
    )
    variance = curator.grant(program.plan).run(program.compile(), jax.random.key(0))
    np.testing.assert_allclose(
        variance**0.5, tiny.RATIO.noise_multiplier * tiny.RATIO.clip * 0.5 * factor, rtol=1e-6
    )


@pytest.mark.parametrize("budget", [VISITS, PRESENCE], ids=["two rows", "one row"])
def test_the_statement_says_that_it_was_enforced(budget):
    """And nothing of the whole table, of which some rows may not be used: the capacity is one of
    those that are.
    """
    persons = np.arange(40) // 4
    told = [
        str(
            Curator(tiny.ROWS, tiny.MODEL, budget, capacity=capacity, **options)
            .grant({tiny.RATIO: 1})
            .statement()
        )
        for capacity, options in ((30, {"persons": persons}), (60, {}))
    ]
    first = "row was" if budget.rows_per_person == 1 else f"{budget.rows_per_person} rows were"
    assert (
        f"no more than the first {first} used" in told[0]
        and "enforced" in told[0]
        and "Who has more rows" in told[0]
    )
    assert "covers one row" not in told[0] and ("covers one row" in told[1]) == (
        budget.rows_per_person == 1
    )
    assert "used are at most 30 rows" in told[0] and "the table has" not in told[0]
    assert (
        "is not checked" not in told[0]
        and "enforced" not in told[1]
        and "the table has at most 60 rows" in told[1]
    )


@pytest.mark.parametrize(
    "persons, budget, error, why",
    [
        (PERSONS, Budget(1.0, 1e-6), ValueError, "number of rows is public here: give how many"),
        (PERSONS, None, ValueError, "the number of rows is public here"),
        (PERSONS, VISITS, ValueError, "persons and rows have different lengths"),
        (np.arange(41), VISITS, ValueError, "persons and rows have different lengths"),
        (np.arange(40.0), VISITS, TypeError, "must be an array of whole numbers, one per row"),
        (np.array(["a"] * 40), VISITS, TypeError, r"dpmcmc\.tables\.persons makes it"),
        ([1] * 40, VISITS, TypeError, "must be an array of whole numbers"),
        (np.zeros((40, 1), int), VISITS, TypeError, "must be an array of whole numbers"),
    ],
)
def test_what_is_refused(persons, budget, error, why):
    with pytest.raises(error, match=why):
        Curator(
            tiny.ROWS,
            tiny.MODEL,
            budget,
            capacity=None if budget != VISITS else 60,
            persons=persons,
        )


@pytest.mark.parametrize(
    "budget, unit, error, why",
    [
        (VISITS, VISITS.unit, ValueError, "a Budget has its own unit"),
        (None, Neighbours.ADD_OR_REMOVE_ONE, TypeError, "unit is a Neighbours: it must be a Unit"),
        (None, Unit(rows_per_person=0), ValueError, "rows_per_person=0 must be a whole number"),
    ],
)
def test_units_that_are_refused(budget, unit, error, why):
    with pytest.raises(error, match=why):
        Curator(tiny.ROWS, tiny.MODEL, budget, capacity=60, unit=unit)


def test_rows_of_jax_may_name_their_persons():
    assert answer(tiny.ROWS, jnp.arange(40)) == answer(tiny.ROWS, np.arange(40, dtype=np.uint16))


@pytest.mark.parametrize(
    "cells, groups",
    [
        (["b", " a", "b ", "", "NA", "a", None], [0, 1, 0, -1, -1, 1, -1]),
        (np.array([30, 10, 30]), [0, 1, 0]),
        (np.array(["x", "nan", "x"]), [0, -1, 0]),
        ([], []),
    ],
)
def test_names_become_numbers(cells, groups):
    found = tables.persons(cells)
    assert found.dtype == np.int64
    np.testing.assert_array_equal(found < 0, np.array(groups) < 0)
    np.testing.assert_array_equal(
        found[:, None] == found, np.array(groups)[:, None] == np.array(groups)
    )


def test_numbers_with_a_fraction_name_nobody():
    """2^53 and 2^53 + 1 are one float: a missing cell, which makes floats of a column, would make
    one person of two.
    """
    with pytest.raises(ValueError, match="read it as text"):
        tables.persons(np.array([1.0, np.nan]))
    large = tables.persons(np.array([2**53, 2**53 + 1]))
    assert large[0] != large[1]


def test_a_missing_name_does_not_change_others():
    """In a DataFrame it turns 1 into 1.0 in all other rows of the column."""
    frames = [pandas.Series(["1", "x7", *more], dtype=object) for more in ([1, 3], [1.0, None])]
    found = [tables.persons(frame) for frame in frames]
    for frame, persons in zip(frames, found, strict=True):
        np.testing.assert_array_equal(persons, tables.persons(frame.to_numpy()))
        np.testing.assert_array_equal(persons[:2], found[0][:2])
        assert (persons[2:] == -1).all()  # whatever they are
    for column in (
        pandas.Series([1, 2]),
        pandas.Series([1, None]),
        pandas.Series([1, None], dtype="Int64"),
    ):
        with pytest.raises(ValueError, match=r"read it as text \(dtype=str\)"):
            tables.persons(column)
    assert tables.persons([1, "1", 2, None, 2.0, True]).tolist() == [0, 0, 1, -1, -1, -1]


def test_a_long_name_takes_no_memory_for_the_others():
    """An array of texts is as wide as the longest: the error told how long it was, and how many
    rows there are.
    """
    assert tables.persons(["a"] * 20_000 + ["x" * 2_000_000])[-2:].tolist() == [0, 1]
    assert tables.persons(["a", "a\0"]).tolist() == [0, 1]


def test_bytes_that_are_no_text_keep_persons_apart(tmp_path):
    """Müller and Möller were one person in a file that is not UTF-8, and had one row between
    them."""
    names = "name\nMüller\nMöller\nMüller\n".encode("latin-1")
    (tmp_path / "table.csv").write_bytes(names)
    for cells in (
        tables.read_columns(tmp_path / "table.csv", ("name",))["name"],
        np.array(names.split()[1:]),
    ):
        assert tables.persons(cells).tolist() == [0, 1, 0]


def test_a_ledger_remembers_that_persons_were_counted(tmp_path):
    """A statement that says so is about all runs that share the budget."""
    options = {"capacity": 60, "shared_by": "zcdp", "ledger": tmp_path / "spent.json"}
    Curator(tiny.ROWS, tiny.MODEL, VISITS, persons=np.arange(40), **options).grant({tiny.RATIO: 1})
    with pytest.raises(BudgetExceeded, match="was opened with persons=enforced, now it is None"):
        Curator(tiny.ROWS, tiny.MODEL, VISITS, **options)
