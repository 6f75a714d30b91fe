import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpmcmc.acceptance import Barker, Penalty
from dpmcmc.accounting import accountants, calibrate, filters
from dpmcmc.accounting.costs import (
    ZCDP,
    AcceptBit,
    DPBarker,
    Gaussian,
    NonPrivate,
    PoissonMixture,
    Pure,
    SubsampledGaussian,
)
from dpmcmc.errors import BudgetExceeded, UnsupportedQuery
from dpmcmc.types import Neighbours

DELTA = 1e-6
KINDS = [filters.gaussian_filter, filters.zcdp_filter, filters.renyi_filter]


@pytest.mark.parametrize("make", KINDS)
@settings(max_examples=20)
@given(
    counts=st.lists(st.tuples(st.floats(5.0, 200.0), st.integers(1, 40)), min_size=1, max_size=12)
)
def test_whatever_is_granted_stays_within_the_budget(make, counts):
    """Grants chosen at random until one is refused: the ledger of a filter, composed exactly, is
    within its budget.
    """
    budget = make(1.0, DELTA)
    for noise_multiplier, count in counts:
        before, fits = budget._granted, budget.fits({Gaussian(noise_multiplier): count})
        if fits:
            budget.spend({Gaussian(noise_multiplier): count})
        else:
            with pytest.raises(BudgetExceeded, match="left"):
                budget.spend({Gaussian(noise_multiplier): count})
            assert budget._granted == before
    assert budget.spent <= budget.total
    if budget._granted:
        assert accountants.epsilon(budget._granted, DELTA).epsilon <= 1.0


@pytest.mark.parametrize(
    "make, part",
    [(filters.gaussian_filter, 0.98), (filters.zcdp_filter, 0.85), (filters.renyi_filter, 0.85)],
)
def test_little_is_lost_to_fixing_the_budget_in_advance(make, part):
    cost = Gaussian(100.0)
    fixed, free = make(1.0, DELTA).steps({cost: 1}), calibrate.steps({cost: 1}, 1.0, DELTA)
    assert part * free <= fixed <= free


def test_the_penalty_bit_wants_the_renyi_filter():
    cost = AcceptBit(Penalty(1.0), 0.03)
    free = calibrate.steps({cost: 1}, 1.0, DELTA)
    assert filters.renyi_filter(1.0, DELTA).steps({cost: 1}) >= free - 2
    assert filters.zcdp_filter(1.0, DELTA).steps({cost: 1}) < 0.5 * free


def test_the_total_is_the_best_conversion_solved_for_rho():
    for epsilon in (0.1, 1.0, 8.0):
        rho = filters.largest_rho(epsilon, DELTA)
        from dpmcmc.accounting.laws import renyi

        assert (
            renyi.zcdp_epsilon(rho, DELTA) <= epsilon < renyi.zcdp_epsilon(rho * (1 + 1e-6), DELTA)
        )


def test_costs_for_two_relations_do_not_add_up():
    replaced, added = (
        SubsampledGaussian("poisson", 0.01, 5.0, neighbours) for neighbours in Neighbours
    )
    budget = filters.renyi_filter(1.0, DELTA)
    budget.spend({replaced: 1, Gaussian(50.0): 1})
    with pytest.raises(ValueError, match="one relation"):
        budget.spend({added: 1})
    budget.spend({replaced: 1})
    with pytest.raises(ValueError, match="one relation"):
        accountants.epsilon({replaced: 1, added: 1}, DELTA)
    with pytest.raises(ValueError, match="one relation"):
        calibrate.steps({added: 1}, 1.0, DELTA, initial={replaced: 1})


@pytest.mark.parametrize("make", KINDS)
def test_spending_adds_up(make):
    budget = make(2.0, DELTA)
    budget.spend({Gaussian(50.0): 30})
    first = budget.spent
    budget.spend({Gaussian(50.0): 30, Gaussian(70.0): 1})
    assert budget.spent > 2 * first * (1 - 1e-12)
    assert budget.left == pytest.approx(budget.total - budget.spent)
    assert budget._granted == {Gaussian(50.0): 60, Gaussian(70.0): 1}


@pytest.mark.parametrize("make", KINDS)
def test_a_filter_keeps_a_hundredth_of_delta_for_distances(make):
    budget = make(1.0, DELTA)
    assert budget.fits({Gaussian(500.0, 1e-12): 100})
    assert not budget.fits({Gaussian(500.0, 1e-9): 100})
    assert budget.tv_error_total * (1 + math.e) == pytest.approx(DELTA / 100, rel=1e-6, abs=0)


MIXTURE = PoissonMixture(0.002, 1.0, 1.0, Neighbours.REPLACE_ONE)
OWN = "cannot sum up PoissonMixture: give these queries a budget of their own"


@pytest.mark.parametrize(
    ("make", "cost", "words"),
    [
        (
            filters.gaussian_filter,
            AcceptBit(Barker(), 0.1),
            "cannot sum up AcceptBit: have it shared by zcdp or renyi",
        ),
        (
            filters.gaussian_filter,
            DPBarker(1000, 100_000),
            "cannot sum up DPBarker: have it shared by renyi",
        ),
        (
            filters.zcdp_filter,
            DPBarker(1000, 100_000),
            "cannot sum up DPBarker: have it shared by renyi",
        ),
        *((make, MIXTURE, OWN) for make in KINDS),
        *(
            (make, NonPrivate("a debug value"), "no budget pays for this: a debug value")
            for make in KINDS
        ),
    ],
)
def test_what_a_filter_cannot_measure_is_refused(make, cost, words):
    """And no filter is offered that would refuse it in turn."""
    with pytest.raises(UnsupportedQuery, match=words):
        make(1.0, DELTA).fits({cost: 1})


def test_pure_and_bits_share_a_filter():
    budget = filters.zcdp_filter(1.0, DELTA)
    budget.spend({Pure(0.05): 2, AcceptBit(Barker(), 0.04): 10})
    assert budget.spent == pytest.approx(2 * 0.05**2 / 2 + 10 * 0.04**2 / 8, rel=1e-3)


@pytest.mark.parametrize("make", KINDS)
@pytest.mark.parametrize("count", [-1, 0.5, math.nan, math.inf])
def test_nothing_is_given_back(make, count):
    """A negative count would be a refund, a fraction a discount: the running sum of a filter never
    falls.
    """
    budget = make(1.0, DELTA)
    budget.spend({Gaussian(50.0): 10})
    before = budget.spent
    for ask in (budget.spend, budget.check, budget.fits, budget.steps):
        with pytest.raises(ValueError, match="whole numbers"):
            ask({Gaussian(50.0): count})
    assert budget.spent == before > 0


@pytest.mark.parametrize("make", KINDS)
def test_a_step_that_asks_nothing_has_no_number(make):
    with pytest.raises(ValueError, match="asks nothing"):
        make(1.0, DELTA).steps({Gaussian(50.0): 0})


@pytest.mark.parametrize("make", KINDS)
@pytest.mark.parametrize(
    "epsilon, delta",
    [(-1.0, DELTA), (math.nan, DELTA), (math.inf, DELTA), (1.0, 2.0), (1.0, 0.0), (1.0, math.nan)],
)
def test_a_budget_is_an_epsilon_and_a_delta(make, epsilon, delta):
    with pytest.raises(ValueError, match="epsilon=|delta="):
        make(epsilon, delta)


@pytest.mark.parametrize("make", KINDS)
@pytest.mark.parametrize(
    "epsilon, delta",
    [(0.0, 1e-20), (1e-15, 1e-20), (1e-6, 1e-12), (1e-3, DELTA), (1e15, DELTA), (1e300, DELTA)],
)
def test_no_total_is_more_than_its_conversion_proves(make, epsilon, delta):
    """Where the search for a total ends without one, nothing is granted."""
    from dpmcmc.accounting.laws import gaussian, renyi

    total = make(epsilon, delta).total
    if make is filters.gaussian_filter:
        assert total == 0 or gaussian.epsilon(delta, math.sqrt(total)) <= epsilon
    if make is filters.zcdp_filter:
        assert renyi.zcdp_epsilon(total, delta) <= epsilon


def test_a_refusal_for_distance_alone_says_so():
    filter_ = filters.zcdp_filter(4.0, 1e-6)
    with pytest.raises(BudgetExceeded, match="total-variation error of the releases"):
        filter_.check({ZCDP(1e-3, tv_error=1e-7): 1})
    filter_.check({ZCDP(1e-3, tv_error=1e-11): 1})


@pytest.mark.parametrize(
    "make, epsilon_of",
    [
        (filters.gaussian_filter, accountants.gaussian_epsilon),
        (filters.zcdp_filter, accountants.zcdp_epsilon),
        (filters.renyi_filter, accountants.rdp_epsilon),
    ],
)
def test_what_is_kept_for_distances_is_not_promised_twice(make, epsilon_of):
    """All that fits has the filter's epsilon at 0.99 delta: with distances of delta / 100 that is
    delta in all.
    """
    cost = Gaussian(3000.0)
    count = make(1.0, 1e-6).steps({cost: 1})
    assert 0.999 < epsilon_of({cost: count}, 0.99e-6) <= 1.0
