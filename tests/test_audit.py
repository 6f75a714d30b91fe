"""An attack on the bill of every query but `FilteredAccept`, whose bill is for a whole run; and on
the attack.

Bounds hold, and they are nearly attained: the same attack on the bill of a query that asks for a
little less is caught.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpmcmc import (
    Barker,
    Budget,
    Curator,
    Family,
    Kinds,
    LazyBarker,
    Model,
    Neighbours,
    Penalty,
    Unit,
    audit,
)
from dpmcmc.accounting import costs
from dpmcmc.audit import answers, neighbours
from dpmcmc.queries import (
    Accept,
    BatchBarker,
    BatchRatio,
    CenteredGradient,
    CenteredRadialGradient,
    ClippedGradients,
    ClippedRatios,
    Count,
    Curvature,
    FilteredAccept,
    FixedBatch,
    Gradient,
    LogRatio,
    NonPrivateRatio,
    PenaltyAccept,
    PoissonBatch,
    RadialGradient,
    RowGram,
    SufficientStatistic,
    TunaBarker,
    TunaRatio,
)
from dpmcmc.types import Vectors

AXIS = np.float32([1.0, 0.0])
MODEL = Model(  # ratio, gradient and curvature of a row are its cells
    log_likelihood=lambda position, row: row[0] * position[0] + row[1] * position[0] ** 2 / 2,
    log_prior=lambda position: 0.0,
    unravel=lambda position: {"x": position},
    dimension=2,
    family=Family(lambda row: row, lambda position: position, lambda position: 0.0, radius=1.0),
    center=lambda position: jnp.asarray([0.5, -0.5]),
    spread=1.0,
    kinds=Kinds(("low", "high"), lambda row: (row[0] > 0).astype(jnp.int32)),
    # Of high and low rows they are at right angles, where products are farthest apart
    vectors=Vectors(lambda position, row: jnp.where(row[0] > 0, AXIS, 1 - AXIS) * row, 1.0, None),
)
HERE, THERE = np.zeros(2, np.float32), np.array([1.0, 0.0], np.float32)  # a move of length 1
# Beyond every clip
HIGH, LOW, NEUTRAL = np.float32([7.0, 7.0]), np.float32([-7.0, -7.0]), np.zeros(2, np.float32)


class Case(NamedTuple):
    """A query, one whose bill is too small for it, and what all others say."""

    query: Any
    milder: Any
    others: np.ndarray = NEUTRAL
    num_rows: int = 6
    neighbours: Neighbours = Neighbours.REPLACE_ONE

    def __str__(self) -> str:
        return f"{self.query}, {self.neighbours.value}"


def tables(case: Case) -> tuple[np.ndarray, np.ndarray]:
    others = np.tile(case.others, (case.num_rows - 1, 1))
    with_high, with_low = (np.concatenate([row[None], others]) for row in (HIGH, LOW))
    return with_high, (with_low if case.neighbours is Neighbours.REPLACE_ONE else others)


def asking(query: Any):
    """A program that asks once."""
    of_one_point = (
        Gradient
        | CenteredGradient
        | CenteredRadialGradient
        | RadialGradient
        | Curvature
        | RowGram
        | SufficientStatistic
        | Count
        | ClippedGradients
    )
    points: tuple = (HERE,) if isinstance(query, of_one_point) else (HERE, THERE)
    points += (np.float32(0.0),) if getattr(query, "is_bit", False) else ()
    return lambda ask, key: ask(key, query, *map(jnp.asarray, points))


EVERY_DAY = [Case(LogRatio(1.0, 1.0), LogRatio(1.0, 1.15))]
SLOW = [
    Case(Accept(Barker(), 0.5), Accept(Barker(), 0.42)),
    Case(TunaBarker(0.5, 1.0), TunaBarker(0.42, 1.0)),
    Case(Gradient(1.0, 1.0, FixedBatch(2, 6)), Gradient(1.0, 1.25, FixedBatch(2, 6)), HIGH),
    Case(Gradient(1.0, 1.0), Gradient(1.0, 1.15)),
    Case(CenteredGradient(1.0, 1.0), CenteredGradient(1.0, 1.15)),
    Case(RadialGradient(1.0, 1.0, 2), RadialGradient(1.0, 0.85, 2)),
    Case(CenteredRadialGradient(1.0, 1.0, 2), CenteredRadialGradient(1.0, 0.85, 2)),
    Case(Curvature(1.0, 1.0), Curvature(1.0, 1.15)),
    Case(RowGram(1.0, 1.0), RowGram(1.0, 1.15)),
    Case(SufficientStatistic(1.0), SufficientStatistic(1.15)),
    Case(Count(1.0), Count(1.15)),
    Case(Accept(LazyBarker(0.5), 0.5), Accept(LazyBarker(0.5), 0.35)),
    Case(Accept(Penalty(1.0), 0.5), Accept(Penalty(1.0), 0.42)),
    Case(PenaltyAccept(0.5, 1.0, 1.0), PenaltyAccept(0.5, 1.2, 1.0)),
    Case(Gradient(1.0, 1.0, PoissonBatch(0.3)), Gradient(1.0, 1.5, PoissonBatch(0.3))),
    Case(TunaRatio(0.5, 1.0, 1.0), TunaRatio(0.5, 1.4, 1.0)),
    Case(BatchRatio(0.1, 1.0, FixedBatch(2, 6)), BatchRatio(0.1, 1.25, FixedBatch(2, 6)), HIGH),
    # Its bill is for more than the bit
    Case(BatchBarker(FixedBatch(6, 12)), BatchBarker(FixedBatch(200, 1000)), num_rows=12),
]
ABSENT = [
    case._replace(neighbours=Neighbours.ADD_OR_REMOVE_ONE)
    for case in (
        Case(LogRatio(1.0, 1.0), LogRatio(1.0, 1.15)),
        Case(Gradient(1.0, 1.0), Gradient(1.0, 1.15)),
        Case(RadialGradient(1.0, 1.0, 2), RadialGradient(1.0, 0.85, 2)),
        Case(Curvature(1.0, 1.0), Curvature(1.0, 1.15)),
        Case(RowGram(1.0, 1.0), RowGram(1.0, 1.15)),
        Case(SufficientStatistic(1.0), SufficientStatistic(1.15)),
        Case(Count(1.0), Count(1.15)),
        # Both of the other tables' rows would be clipped
        Case(ClippedRatios(1.0, 1.0), ClippedRatios(1.0, 1.15)),
        Case(ClippedGradients(1.0, 1.0), ClippedGradients(1.0, 1.15)),
        Case(Accept(Penalty(1.0), 0.5), Accept(Penalty(1.0), 0.38)),
        Case(PenaltyAccept(0.5, 1.0, 1.0), PenaltyAccept(0.5, 1.3, 1.0)),
        Case(Gradient(1.0, 1.0, PoissonBatch(0.3)), Gradient(1.0, 1.4, PoissonBatch(0.3))),
    )
]


@pytest.mark.parametrize(
    "case",
    EVERY_DAY + [pytest.param(case, marks=pytest.mark.slow) for case in SLOW + ABSENT],
    ids=str,
)
def test_the_bill_holds_and_a_smaller_one_is_caught(case):
    unit = Unit(case.neighbours)
    seen, bill = audit.collect_answers(asking(case.query), MODEL, *tables(case), unit)
    assert bill == {case.query.cost(unit): 1}
    verdict = audit.compare(*seen, bill)
    assert not verdict.is_refuted and verdict.epsilon <= verdict.claimed_epsilon
    assert audit.compare(*seen, {case.milder.cost(unit): 1}).is_refuted


@dataclass(frozen=True)
class Careless(LogRatio):
    """Somebody's own, whose cost is for one and a half times the noise that it has."""

    def cost(self, unit: Unit) -> costs.Gaussian:
        return costs.Gaussian(1.5 * self.noise_multiplier)


def test_a_cost_that_is_too_small_is_refuted_in_a_program_of_several_asks():
    careless = Careless(1.0, 1.5)

    def twice(ask, key):
        keys = jax.random.split(key)
        # Asks about what it has learned
        move = 0.5 + jax.nn.sigmoid(ask(keys[0], careless, HERE, THERE).value)
        return ask(keys[1], careless, HERE, move * THERE), move

    seen, bill = audit.collect_answers(
        twice, MODEL, *tables(EVERY_DAY[0]), num_answers=20_000, seed=3
    )
    # Value, variance and move
    assert bill == {careless.cost(Unit()): 2} and seen[0].shape == (20_000, 3)
    verdict = audit.compare(*seen, bill)
    assert (
        verdict.is_refuted
        and str(verdict).startswith("REFUTED")
        and "2 x Gaussian(noise_multiplier=2.25" in str(verdict)
    )
    assert verdict.epsilon > verdict.claimed_epsilon
    honest = audit.compare(*seen, {LogRatio(1.0, 1.5).cost(Unit()): 2})
    assert 0.7 < honest.factor < 1 and 0 < honest.epsilon < honest.claimed_epsilon
    assert str(honest).startswith("NOT REFUTED") and "An audit proves nothing" in str(honest)
    assert all("NOTHING HERE IS PRIVATE" in str(each) for each in (verdict, honest))


def test_an_attack_that_is_uninformative_is_told_from_one_that_held():
    """Two tables that differ in what the query does not use: any cost would have passed."""
    # A move along the other axis, where all log-ratios are 0
    alike = [np.float32([[0, cell], [0.5, 0]]) for cell in (-1, 1)]
    move = [HERE, np.array([0.0, 1.0], np.float32)]
    blind = audit.query(LogRatio(1.0, 1.0), MODEL, *alike, move, num_answers=2000)
    assert (
        blind.is_uninformative and not blind.is_refuted and (blind.factor, blind.epsilon) == (0, 0)
    )
    assert (
        str(blind).startswith("NO EVIDENCE: ")
        and "the cost was not tested" in str(blind)
        and "NOT REFUTED" not in str(blind)
    )
    assert "NOTHING HERE IS PRIVATE" in str(blind)
    statuses = [
        audit.Verdict(factor, epsilon, 1.0, 0.01, 1e-6, 2000, {}).exit_status
        for factor, epsilon in ((2, 0), (0.5, 0), (0, 0.5))
    ]
    assert [*statuses, blind.exit_status] == [1, 0, 0, 4]


# -- the attack itself, on numbers of known laws --------------------------------------------------


def normal(mean=0.0, deviation=1.0, shape=(20_000,), seed=0):
    """As a curator makes it: whole multiples, so that the last bits say nothing of the mean."""
    return (
        mean + np.round(np.random.default_rng(seed).normal(0.0, deviation, shape) * 2**20) / 2**20
    )


def coins(chance, seed, number=20_000):
    return np.random.default_rng(seed).random(number) < chance


def said(chance):
    return lambda is_first, seed: coins(chance if is_first else 1 - chance, seed, 4000)


@pytest.mark.parametrize(
    "answers, exact",
    [
        (lambda is_first, seed: normal(is_first, shape=4000, seed=seed), costs.Gaussian(1.0)),
        (
            lambda is_first, seed: (
                normal(np.arange(6) == 5 * is_first, shape=(4000, 6), seed=seed) + 0.5
            ),
            costs.Gaussian(2**-0.5),
        ),
        (said(math.exp(2) / (1 + math.exp(2))), costs.Pure(2.0)),
        (said(1 / (1 + math.exp(-0.5))), costs.AcceptBit(Barker(), 1.0)),
    ],
    ids=["Gaussian", "six entries", "randomised response", "accept bit"],
)
def test_bounds_that_are_attained_hold(answers, exact):
    """Even if false alarms may be frequent: intervals are wider than they need to be."""
    for seed in range(10):
        verdict = audit.compare(
            answers(True, 2 * seed), answers(False, 2 * seed + 1), {exact: 1}, alarm=0.1
        )
        assert 0.5 < verdict.factor <= 1 and 0 < verdict.epsilon < verdict.claimed_epsilon


def test_what_was_learned_is_judged_by_other_answers():
    """Of few answers with many entries the attacker learns a difference that is none, and one that
    is there all the same.
    """
    first, second = (normal(shape=(2000, 300), seed=seed) for seed in (0, 1))
    assert audit.compare(first, second, {costs.Gaussian(5.0): 1}).factor < 1
    first[:, 7] *= 300
    assert audit.compare(first, second, {costs.Gaussian(0.5): 1}).is_refuted
    # With more entries than answers, all of them twice
    few = (np.hstack([table[:1000]] * 2) for table in (first, second))
    assert audit.compare(*few, {costs.Gaussian(0.5): 1}).is_refuted


def spoiled(value):
    answers = normal(seed=1)
    answers[:100] = value
    return answers


def one_wider(table):
    return table * np.where(np.arange(table.shape[1]) == 3, 5.0, 1.0)


def one_alike(table):
    return np.hstack([table[:, 1:], table[:, 1:2]])  # the last is the first once more


def noise_in_floating_point(total, seed):
    return np.float32(total) + np.float32(2) * np.random.default_rng(seed).standard_normal(
        20_000, np.float32
    )


def steps(start, seed):
    return start + 0.3 * np.round(normal(0.0, 1000.0, seed=seed))


# With an entry that never changes
LOUD = np.stack([normal(seed=2), normal(1.0, seed=3), np.full(20_000, 1e20)], axis=1)
QUIET = np.stack([normal(seed=4), normal(0.0, seed=5), np.full(20_000, 1e20)], axis=1)
MANY = normal(shape=(20_000, 10), seed=6)
HALF, THIRD = (coins(chance, seed) for seed, chance in enumerate((1 / 2, 1 / 3)))


@pytest.mark.parametrize(
    "first, second, holds, fails",
    [
        (LOUD, QUIET, costs.Gaussian(1.0), costs.Gaussian(1.3)),
        (
            normal(0.0, 1.3, (20_000, 10)),
            normal(shape=(20_000, 10), seed=1),
            costs.Gaussian(0.3),
            costs.Gaussian(1.0),
        ),
        (normal(), spoiled(np.nan), costs.Gaussian(0.1), costs.Gaussian(20.0)),
        (normal(), spoiled(np.inf), costs.Gaussian(0.1), costs.Gaussian(20.0)),
        (
            np.full(20_000, np.inf),
            np.full(20_000, -np.inf),
            costs.Gaussian(0.01),
            costs.Gaussian(0.3),
        ),
        (
            np.full(20_000, np.nan),
            np.full(20_000, np.inf),
            costs.Gaussian(0.01),
            costs.Gaussian(0.3),
        ),
        (one_wider(MANY), MANY[::-1], costs.Gaussian(0.1), costs.Gaussian(0.5)),
        (one_alike(MANY), MANY[::-1], costs.Gaussian(0.01), costs.Gaussian(0.5)),
        (
            noise_in_floating_point(2, 0),
            noise_in_floating_point(0, 1),
            costs.Gaussian(0.01),
            costs.Gaussian(1.0),
        ),
        (steps(0.1, 0), steps(0.0, 1), costs.Gaussian(0.01), costs.Gaussian(0.3)),
        (
            np.full(20_000, 1.7e308),
            np.full(20_000, -1.7e308),
            costs.Gaussian(0.01),
            costs.Gaussian(0.3),
        ),
        (HALF, THIRD, costs.Pure(math.log(3 / 2)), costs.Pure(0.25)),
        # Renyi divergences are up to 0.06 times their orders
        (HALF, THIRD, costs.ZCDP(0.07), costs.ZCDP(0.02)),
        # No noise at all
        (np.zeros(20_000), np.ones(20_000), costs.Gaussian(0.01), costs.Gaussian(0.3)),
    ],
    ids=[
        *(
            "one entry",
            "their spread alone",
            "nan",
            "inf",
            "which infinity",
            "nan or inf",
            "spread of one entry",
            "correlation",
        ),
        *(
            "floating point",
            "values that come again",
            "as large as can be",
            "pure",
            "zcdp",
            "no noise",
        ),
    ],
)
def test_differences_of_every_kind_are_seen(first, second, holds, fails):
    for one, other in ((first, second), (second, first)):
        assert (
            audit.compare(one, other, {holds: 1}).factor
            <= 1
            < audit.compare(one, other, {fails: 1}).factor
        )


SIZES = (1.0, 2.0**1000, 2.0**-1000)


@pytest.mark.slow
def test_noise_in_floating_point_is_seen_where_product_and_sum_are_rounded_once():
    """Numbers come again more often in the table that they came from, and much noise admits
    little."""
    noisy = jax.jit(jax.vmap(lambda key, total: total + 20 * jax.random.normal(key), (0, None)))
    first, second = (
        noisy(jax.random.split(jax.random.key(seed), 100_000), total)
        for seed, total in enumerate((2.0, 0.0))
    )
    assert audit.compare(first, second, {costs.Gaussian(10.0): 1}).factor > 10


def test_the_size_of_numbers_does_not_matter():
    factors = {
        audit.compare(LOUD[:, 0] * size + size, QUIET[:, 0] * size, {costs.Gaussian(1.0): 1}).factor
        for size in SIZES
    }
    assert len(factors) == 1 and factors.pop() > 0.8


def test_a_claim_of_epsilon_is_refuted_by_epsilon():
    """Where the factor, which looks at a few epsilons and orders, is just within its bound."""
    verdict = audit.Verdict(0.995, 1.982, 1.872, 0.7, 1e-6, 8_000_000, {costs.Gaussian(1 / 3): 1})
    assert verdict.is_refuted and str(verdict).startswith(
        "REFUTED: the tables can be distinguished better than the cost admits\n"
    )


def test_large_tables_are_asked_no_more_often_than_needed():
    for num_rows in (0, 1, 6, 9000, 20_000, 30_000, 300_000):
        num_turns, at_once = answers._batch_shape(1000, num_rows)
        assert 1000 <= num_turns * at_once < 1000 + num_turns and (
            at_once == 1 or at_once * num_rows <= answers.MAX_ROWS_AT_ONCE
        )


# -- what is refused ------------------------------------------------------------------------------

ROWS = np.float32([[1, 0], [0, 0], [0, 1]])
# The order of the rows does not matter
OTHER, FEWER = np.float32([[0, 1], [-1, 0], [0, 0]]), ROWS[[2, 1]]
ABSENCE, VISITS = Unit(Neighbours.ADD_OR_REMOVE_ONE), Unit(rows_per_person=2)


@pytest.mark.parametrize(
    "first, second, unit",
    [
        (ROWS, OTHER, Unit()),
        (ROWS, FEWER, ABSENCE),
        (FEWER, ROWS, ABSENCE),
        (FEWER[:1], FEWER[:0], ABSENCE),
        (ROWS, OTHER[[1, 1, 2]], VISITS),
        (ROWS, ROWS[:1], VISITS),
        ({"x": ROWS, "y": np.arange(3)}, {"x": ROWS, "y": np.array([0, 1, 5])}, Unit()),
    ],
)
def test_neighbours_are_known_by_their_rows(first, second, unit):
    assert neighbours.check_neighbours(first, second, unit) == tuple(
        len(jax.tree.leaves(table)[0]) for table in (first, second)
    )


@pytest.mark.parametrize(
    "first, second, unit, why",
    [
        (
            ROWS,
            ROWS[::-1],
            Unit(),
            "0 rows are in the first alone and 0 in the second alone; one row of the first must be",
        ),
        (ROWS, ROWS + 1, Unit(), "no neighbours"),
        (ROWS, FEWER, Unit(), "1 rows are in the first alone and 0 in the second alone"),
        (
            ROWS,
            OTHER,
            ABSENCE,
            r"\(add-or-remove-one\).*one of them must be the other without one row$",
        ),
        (ROWS, ROWS[:1], ABSENCE, "2 rows are in the first alone"),
        (ROWS, ROWS + 1, VISITS, "up to 2 rows for one person"),
        (ROWS, OTHER.astype(float), Unit(), "differ in shape or type"),
        (ROWS, (OTHER,), Unit(), "differ in shape or type"),
        (ROWS, [1.0, 2.0], Unit(), "with one entry per row"),
        ((ROWS, FEWER), (OTHER, FEWER), Unit(), "with one entry per row"),
    ],
)
def test_tables_that_are_no_neighbours_are_refused(first, second, unit, why):
    with pytest.raises(ValueError, match=why):
        audit.query(LogRatio(1.0, 1.0), MODEL, first, second, [HERE, THERE], unit)


def test_a_relation_alone_is_no_unit():
    with pytest.raises(TypeError, match="unit is a Neighbours: it must be a Unit"):
        audit.query(
            LogRatio(1.0, 1.0), MODEL, ROWS, FEWER, [HERE, THERE], Neighbours.ADD_OR_REMOVE_ONE
        )


def test_no_curator_is_audited():
    """Its rows may be somebody's, and an audit asks what nobody pays for."""
    curator = Curator(ROWS, MODEL, Budget(1.0, 0.01))
    for model, first, second in (
        (curator, ROWS, OTHER),
        (MODEL, curator, OTHER),
        (MODEL, ROWS, curator),
    ):
        with pytest.raises(
            TypeError, match="takes no curator, but a model and two tables of made-up rows"
        ):
            audit.query(LogRatio(1.0, 1.0), model, first, second, [HERE, THERE])
    assert curator.num_grants == 0


@pytest.mark.parametrize(
    "unit, why",
    [
        (Unit("replace-one"), "neighbours='replace-one' must be one of"),  # type: ignore[arg-type]
        (
            Unit(rows_per_person=None),  # type: ignore[arg-type]
            "rows_per_person=None must be a whole number",
        ),
        (Unit(rows_per_person=0), "rows_per_person=0 must be a whole number, at least 1"),
    ],
)
def test_a_unit_is_checked_before_the_tables(unit, why):
    with pytest.raises(ValueError, match=why):
        audit.query(LogRatio(1.0, 1.0), MODEL, ROWS, ROWS, [HERE, THERE], unit)


@pytest.mark.parametrize("points", [None, 0.0, HERE])
def test_points_are_a_list(points):
    with pytest.raises(
        TypeError, match=r"it must be a list, such as \[position\] or \[position, proposal\]"
    ):
        audit.query(LogRatio(1.0, 1.0), MODEL, ROWS, OTHER, points)


def ratio(ask, key, scale=1.0):
    return ask(key, LogRatio(1.0, 1.0), HERE, scale * THERE).value


@pytest.mark.parametrize(
    "asking",
    [
        lambda ask, key: ratio(ask, jax.random.key(0)),
        lambda ask, key: (ratio(ask, key), ratio(ask, jax.random.key(0))),
    ],
    ids=["alone", "beside another"],
)
@pytest.mark.parametrize("num_answers", [1000, 100_000], ids=["in one turn", "in several"])
def test_an_ask_that_would_serve_several_answers_is_refused(asking, num_answers):
    """Copies of one answer would tell two tables apart, whatever its noise."""
    with pytest.raises(
        ValueError, match="asked once for many answers, which then are copies.* from rng_key"
    ):
        audit.program(asking, MODEL, ROWS, OTHER, num_answers=num_answers)


def test_asks_in_both_branches_are_no_copies():
    def one_or_the_other(ask, key):
        keys = jax.random.split(key, 3)
        is_far = jax.random.bernoulli(keys[0])
        return jax.lax.cond(is_far, lambda: ratio(ask, keys[1], 2.0), lambda: ratio(ask, keys[2]))

    answers.check_keys_differ(one_or_the_other, Curator(ROWS, MODEL, None))


@pytest.mark.parametrize(
    "released, error, why",
    [
        (
            lambda value, key: None,
            ValueError,
            "nothing is released: the program must return all that it releases",
        ),
        (
            lambda value, key: (value, key),
            TypeError,
            "type key<fry>, and only real numbers are compared.* jax.random.key_data",
        ),
        (
            lambda value, key: value * 1j,
            TypeError,
            "type complex64, and only real numbers.* give real and imaginary parts",
        ),
    ],
    ids=["nothing", "a key", "complex"],
)
def test_only_real_numbers_are_released(released, error, why, monkeypatch):
    monkeypatch.setattr(Curator, "grant", lambda *_: pytest.fail("it runs"))
    with pytest.raises(error, match=why):
        audit.program(lambda ask, key: released(ratio(ask, key), key), MODEL, ROWS, OTHER)


@pytest.mark.parametrize(
    "query, options, why",
    [
        (
            LogRatio(1.0, 1.0),
            {"num_answers": 10},
            "num_answers=10 must be a whole number, at least 1000",
        ),
        (LogRatio(1.0, 1.0), {"seed": -1}, "seed=-1 must be a whole number"),
        (LogRatio(1.0, 1.0), {"delta": 0.0}, r"delta=0.0 must lie in \(0, 1\)"),
        (LogRatio(1.0, 1.0), {"alarm": 1.0}, r"alarm=1.0 must lie in \(0, 1\)"),
        (NonPrivateRatio(), {}, "claim nothing: there is nothing to refute"),
        (FilteredAccept(1.0, 1.0), {}, "one answer has no cost of its own"),
    ],
)
def test_what_else_is_refused_before_anything_runs(query, options, why, monkeypatch):
    monkeypatch.setattr(Curator, "grant", lambda *_: pytest.fail("it runs"))
    points = [HERE, THERE, 0.0] if getattr(query, "is_bit", False) else [HERE, THERE]
    with pytest.raises(ValueError, match=why):
        audit.query(query, MODEL, ROWS, OTHER, points, **options)


def test_answers_that_cannot_be_compared_are_refused():
    with pytest.raises(
        ValueError,
        match=r"answers of shapes \[\(20000, 3\), \(20000, 1\)\] must have the same entries",
    ):
        audit.compare(LOUD, normal(), {costs.Gaussian(1.0): 1})
    for few in (normal(shape=10), 1.0, np.zeros((0, 2)), np.zeros((2000, 0))):
        with pytest.raises(ValueError, match="at least one, and be at least 1000"):
            audit.compare(few, few, {costs.Gaussian(1.0): 1})
    for none in (normal() * 1j, np.full(2000, "1"), np.full(2000, None)):
        with pytest.raises(TypeError, match="only real numbers are compared"):
            audit.compare(none, none, {costs.Gaussian(1.0): 1})
    with pytest.raises(ValueError, match="nothing is asked"):
        audit.compare(normal(), normal(), {})


@pytest.mark.parametrize(
    "given", [{LogRatio(1.0, 1.0): 1}, costs.Gaussian(1.0), [costs.Gaussian(1.0)]], ids=str
)
def test_costs_are_told_from_queries(given):
    with pytest.raises(
        TypeError,
        match=r"must be like {Gaussian\(1.0\): 2}, with query.cost\(unit\) and not the query",
    ):
        audit.compare(normal(), normal(), given)


def test_counts_are_whole():
    with pytest.raises(ValueError, match="the count of Gaussian.*='a' must be a whole number"):
        audit.compare(normal(), normal(), {costs.Gaussian(1.0): "a"})  # type: ignore[dict-item]
