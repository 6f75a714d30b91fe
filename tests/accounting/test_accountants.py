"""All methods beside each other: exact <= PLD <= Renyi <= the papers', and what the ledger's rules
demand of each.
"""

import functools
import math

import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpmcmc.acceptance import Barker, LazyBarker, Penalty
from dpmcmc.accounting import accountants, calibrate, filters
from dpmcmc.accounting.costs import (
    ZCDP,
    AcceptBit,
    DPBarker,
    Gaussian,
    MinibatchBarker,
    NonPrivate,
    PoissonMixture,
    Pure,
    SubsampledGaussian,
)
from dpmcmc.accounting.laws import gaussian
from dpmcmc.errors import BudgetExceeded, UnsupportedQuery
from dpmcmc.types import Neighbours
from tests.timing import quickest

DELTA = 1e-6
LEDGERS = {
    "gaussian": {Gaussian(20.0): 60},
    "two gaussians": {Gaussian(20.0): 30, Gaussian(90.0): 400},
    "barker": {AcceptBit(Barker(), 0.1): 30},
    "lazy": {AcceptBit(LazyBarker(0.4), 0.1): 30},
    "penalty": {AcceptBit(Penalty(1.5), 0.1): 30},
    "poisson": {SubsampledGaussian("poisson", 0.02, 1.5, Neighbours.ADD_OR_REMOVE_ONE): 500},
    "poisson, replace": {SubsampledGaussian("poisson", 0.02, 1.5, Neighbours.REPLACE_ONE): 500},
    "fixed": {SubsampledGaussian("fixed", 0.02, 1.5, Neighbours.REPLACE_ONE): 500},
    "mixture": {PoissonMixture(0.002, 1.0, 1.0, Neighbours.REPLACE_ONE): 500},
    "minibatch": {MinibatchBarker(0.05, 1.0): 30},
    "dp barker": {DPBarker(1000, 100_000): 500},
    "pure": {Pure(0.1): 20},
    "all kinds": {
        Gaussian(20.0): 5,
        AcceptBit(Barker(), 0.1): 5,
        Pure(0.1): 2,
        ZCDP(0.001): 3,
        MinibatchBarker(0.05, 1.0): 5,
    },
}
ORDER = [
    ("gaussian", "pld"),
    ("pld", "rdp"),
    ("pld", "pld-pair"),
    ("rdp", "zcdp"),
    ("rdp", "rdp-paper"),
]
ORDER += [("zcdp", "zcdp-paper"), ("gaussian", "advanced")]


@pytest.mark.parametrize("name", LEDGERS)
def test_the_better_method_is_better(name):
    found = accountants.epsilons(LEDGERS[name], DELTA)
    assert found and all(math.isfinite(value) for value in found.values())
    for better, worse in ORDER:
        if better in found and worse in found:
            assert found[better] <= found[worse] * 1.002, (better, worse)
    best = accountants.epsilon(LEDGERS[name], DELTA)
    assert best.epsilon <= min(value for method, value in found.items()) * 1.002
    assert best.method in found and best.epsilon == found[best.method]


@pytest.mark.parametrize("name", LEDGERS)
def test_delta_is_the_inverse_of_epsilon(name):
    spent = accountants.epsilon(LEDGERS[name], DELTA).epsilon
    assert accountants.delta(LEDGERS[name], spent * (1 + 1e-9)) <= DELTA * (1 + 1e-6)
    assert accountants.delta(LEDGERS[name], spent * 0.98) > DELTA


@pytest.mark.parametrize(
    "noise_multiplier, count, epsilon", [(50.0, 7, 0.01), (0.2, 3, 30.0), (20.0, 60, 1.0)]
)
def test_a_delta_is_not_rounded_down(noise_multiplier, count, epsilon):
    found = accountants.delta({Gaussian(noise_multiplier): count}, epsilon)
    with mpmath.workdps(40):
        mu = mpmath.sqrt(count) / mpmath.mpf(noise_multiplier)
        true = mpmath.ncdf(mu / 2 - epsilon / mu) - mpmath.exp(epsilon) * mpmath.ncdf(
            -mu / 2 - epsilon / mu
        )
        assert 1 <= found / true < 1 + 1e-11


@pytest.mark.parametrize("name", LEDGERS)
def test_steps_and_back(name):
    """epsilon -> steps -> epsilon: the steps fit, one more does not."""
    for method in (None, *accountants.epsilons(LEDGERS[name], DELTA)):
        if method in ("pld", "pld-pair"):
            continue  # the quick answer where it applies; slow to repeat
        budget = 1.5 if method != "advanced" else 8.0
        steps = calibrate.steps(LEDGERS[name], budget, DELTA, method=method)
        assert calibrate.within(calibrate.combined({}, LEDGERS[name], steps), budget, DELTA, method)
        assert not calibrate.within(
            calibrate.combined({}, LEDGERS[name], steps + 1), budget, DELTA, method
        )


@pytest.mark.parametrize("name", LEDGERS)
def test_counting_is_adding(name):
    """Ten times a ledger at once, or its costs under names that differ in the last digit: the same
    epsilon.
    """
    ledger = LEDGERS[name]
    tenfold = calibrate.combined({}, ledger, 10)
    for method in ("rdp", "zcdp", "gaussian"):
        try:
            together = accountants.epsilon_by(method, tenfold, DELTA)
        except UnsupportedQuery:
            continue
        halves = calibrate.combined(calibrate.combined({}, ledger, 4), ledger, 6)
        assert accountants.epsilon_by(method, halves, DELTA) == pytest.approx(together, rel=1e-12)


@settings(max_examples=25)
@given(st.sampled_from(sorted(LEDGERS)), st.integers(1, 5), st.floats(1.0, 10.0))
def test_more_queries_cost_more_and_more_delta_costs_less(name, times, factor):
    ledger = LEDGERS[name]
    for method in ("rdp", "zcdp", "pure"):
        try:
            once = accountants.epsilon_by(method, ledger, DELTA)
        except UnsupportedQuery:
            continue
        assert accountants.epsilon_by(method, calibrate.combined({}, ledger, times), DELTA) >= once
        assert accountants.epsilon_by(method, ledger, DELTA * factor) <= once


def test_nothing_asked_costs_nothing():
    assert accountants.epsilon({}, DELTA) == (0.0, "gaussian")
    assert accountants.epsilon({Gaussian(1.0): 0}, DELTA).epsilon == 0
    assert accountants.delta({}, 1.0) == 0


def test_no_noise_no_promise():
    ledger = {Gaussian(20.0): 1, NonPrivate("a debug value"): 1}
    assert accountants.epsilon(ledger, DELTA) == (math.inf, "none")
    assert all(math.isinf(value) for value in accountants.epsilons(ledger, DELTA).values())
    assert accountants.delta(ledger, 10.0) == 1
    assert accountants.epsilon({Gaussian(20.0): 1, NonPrivate("never asked"): 0}, DELTA).epsilon < 1


def test_distances_are_paid_from_a_hundredth_of_delta():
    ideal = accountants.epsilon({Gaussian(20.0): 60}, 0.99 * DELTA).epsilon
    assert accountants.epsilon({Gaussian(20.0, 1e-13): 60}, DELTA).epsilon == ideal
    with pytest.raises(BudgetExceeded, match="total-variation error"):
        accountants.epsilon({Gaussian(20.0, 1e-10): 60}, DELTA)
    # the charge in delta is (1 + e^epsilon) times the sum of distances
    rough, smooth = (
        accountants.delta({Gaussian(20.0, 1e-10): 60}, 1.0),
        accountants.delta({Gaussian(20.0): 60}, 1.0),
    )
    assert rough - smooth == pytest.approx(60 * 1e-10 * (1 + math.e), rel=1e-6, abs=0)


def test_a_bit_of_distance_allows_fewer_steps_never_more():
    for cost in (Gaussian, lambda z, t=0.0: AcceptBit(Barker(), 2 / z, t)):
        free = calibrate.steps({cost(40.0): 1}, 1.0, DELTA)
        assert calibrate.steps({cost(40.0, 1e-14): 1}, 1.0, DELTA) in (free - 1, free)
        few = calibrate.steps({cost(40.0, 1e-10): 1}, 1.0, DELTA)
        assert few < free


def test_a_method_that_the_reserve_cannot_carry_does_not_spoil_the_others():
    """1 500 Barker bits: their pure epsilon is 60, so large that any distance would eat up delta;
    Renyi divergences serve.
    """
    ledger = {AcceptBit(Barker(), 0.04, 1e-14): 1500}
    assert "pure" not in accountants.epsilons(ledger, DELTA)
    assert accountants.epsilon(ledger, DELTA).method == "rdp"
    assert calibrate.steps({AcceptBit(Barker(), 0.04, 1e-16): 1}, 4.0, DELTA) in (1554, 1555, 1556)


@pytest.mark.parametrize(
    "ledger, method",
    [
        ({SubsampledGaussian("fixed", 0.5, 0.02, Neighbours.REPLACE_ONE): 1}, "rdp"),
        ({Gaussian(0.01): 1, Pure(0.1): 1}, "rdp"),
        ({Pure(1000.0): 1}, "pure"),
    ],
    ids=str,
)
def test_losses_too_large_for_a_grid_are_left_to_the_other_methods(ledger, method):
    spent = accountants.epsilon(ledger, DELTA)
    assert spent == (accountants.epsilon_by(method, ledger, DELTA), method)
    assert calibrate.steps(ledger, spent.epsilon, DELTA) == 1


def test_where_only_pld_could_help_its_refusal_is_the_reason():
    """Not "use pld": it was, and its grid does not resolve what one draw reveals."""
    ledger = {PoissonMixture(0.01, 10.0, 1.0, Neighbours.ADD_OR_REMOVE_ONE): 3}
    for ask in (accountants.epsilon, lambda ledger, delta: calibrate.steps(ledger, 1.0, delta)):
        with pytest.raises(UnsupportedQuery, match="losses up to .* no grid resolves them"):
            ask(ledger, DELTA)


def test_tiny_bits_cost_their_pure_epsilons():
    """Renyi divergences of orders up to 8e4 cannot prove an epsilon below 1e-5."""
    ledger = {AcceptBit(Barker(), 1e-12): 10}
    assert accountants.epsilon(ledger, DELTA) == (pytest.approx(1e-11, rel=1e-6, abs=0), "pure")
    assert accountants.delta(ledger, 1e-11) == 0


@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-6, math.nan])
def test_delta_must_be_a_probability(delta):
    with pytest.raises(ValueError, match="delta"):
        accountants.epsilon({Gaussian(1.0): 1}, delta)


def test_unknown_methods_and_odd_counts_are_refused():
    with pytest.raises(ValueError, match="method"):
        accountants.epsilon_by("moments", {Gaussian(1.0): 1}, DELTA)
    with pytest.raises(ValueError, match="whole"):
        accountants.epsilon({Gaussian(1.0): 1.5}, DELTA)
    for count in (-1, math.nan, math.inf):
        for ask in (accountants.epsilon, accountants.delta):
            with pytest.raises(ValueError, match="whole"):
                ask({Gaussian(1.0): count}, DELTA)
    with pytest.raises(ValueError, match="epsilon"):
        accountants.delta({Gaussian(1.0): 1}, -1.0)
    with pytest.raises(UnsupportedQuery):
        accountants.epsilon_by("gaussian", {Pure(0.1): 1}, DELTA)
    with pytest.raises(UnsupportedQuery):
        accountants.epsilon_by(
            "zcdp", {PoissonMixture(0.002, 1.0, 1.0, Neighbours.REPLACE_ONE): 1}, DELTA
        )
    with pytest.raises(UnsupportedQuery):
        accountants.epsilon_by(
            "rdp", {PoissonMixture(0.002, 1.0, 1.0, Neighbours.REPLACE_ONE): 1}, DELTA
        )


def test_renyi_divergences_take_a_fraction_of_a_second_and_repeated_questions_none():
    questions = [
        functools.partial(
            accountants.epsilon, {AcceptBit(Penalty(1.37), 0.0311 + i / 1000): 100}, DELTA
        )
        for i in range(3)
    ]
    first, again = quickest(*questions), quickest(*questions)
    assert first < 3  # ten times the promise of 0.3 s: the machine may be busy
    assert again < first / 5


def test_distances_are_charged_beyond_what_a_float_can_be_the_exponential_of():
    """(1 + e^800) 1e-310 is more than 1."""
    assert accountants.delta({Pure(750.0, tv_error=1e-310): 1}, 800.0) == 1
    assert accountants.delta({Pure(0.1, tv_error=1e-12): 1}, 1.0) == pytest.approx(
        1e-12 * (1 + math.e), rel=1e-6, abs=0
    )
    assert accountants.room_for_tv_errors(1000.0, DELTA) == 0
    assert not filters.gaussian_filter(1000.0, DELTA).fits({Gaussian(100.0, tv_error=1e-313): 1})


@pytest.mark.parametrize("epsilon", [1e-6, 1e-9, 1e-11, 1e-12])
def test_many_tiny_pure_queries_are_a_gaussian(epsilon):
    """mu = 1 in the limit: terms of the first order cancel, and what is left of them must not be
    less.
    """
    truth = gaussian.epsilon(DELTA, 1.0)
    assert (
        truth * (1 - 1e-3)
        <= accountants.epsilon({Pure(epsilon): int(epsilon**-2)}, DELTA).epsilon
        <= 1.2 * truth
    )


def test_counts_end_somewhere():
    for count in (2**80 + 1, 10**400):
        with pytest.raises(ValueError, match="up to 2\\^80"):
            accountants.epsilon({Gaussian(50.0): count}, DELTA)


def test_a_batch_of_all_rows_has_the_law_of_all_rows():
    """Its losses reach far below zero, where a rate of 1 leaves nothing of the other table."""
    for z in (0.08, 0.16, 0.5):
        whole = SubsampledGaussian("poisson", 1.0, z, Neighbours.ADD_OR_REMOVE_ONE)
        exact = accountants.epsilon({Gaussian(z): 1}, DELTA).epsilon
        assert exact <= accountants.epsilon_by("pld", {whole: 1}, DELTA) <= exact * 1.001


def test_repeated_questions_are_cached():
    """In time of the process: the second answer is a look into a table."""
    mixture = {PoissonMixture(1.5e-3, 1.0, 0.97, Neighbours.REPLACE_ONE): 1}
    for step, method in ((mixture, "pld"), ({AcceptBit(Barker(), 0.04): 1}, "recursion")):
        first = calibrate.steps(step, 0.5, DELTA, method=method)
        again = functools.partial(calibrate.steps, step, 0.5, DELTA, method=method)
        assert again() == first
        assert quickest(again, again, again) < 0.02


def test_a_refusal_names_the_cost_that_has_no_divergence():
    with pytest.raises(UnsupportedQuery, match="DPBarker.* has no finite Renyi divergence$"):
        accountants.epsilon_by("rdp", {DPBarker(6, 100, "paper"): 1}, DELTA)
    with pytest.raises(
        UnsupportedQuery, match="PoissonMixture.* has no finite Renyi divergence: use pld"
    ):
        accountants.epsilon_by(
            "rdp", {PoissonMixture(1.5e-3, 1.0, 0.97, Neighbours.REPLACE_ONE): 1}, DELTA
        )
