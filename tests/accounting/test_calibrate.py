import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpmcmc.acceptance import Barker, Penalty
from dpmcmc.accounting import accountants, calibrate
from dpmcmc.accounting.costs import (
    AcceptBit,
    Gaussian,
    NonPrivate,
    PoissonMixture,
    SubsampledGaussian,
)
from dpmcmc.errors import BudgetExceeded
from dpmcmc.types import Neighbours

DELTA = 1e-6


@given(st.floats(0.1, 8.0), st.integers(1, 5000))
def test_noise_is_the_least_that_fits(epsilon, steps):
    z = calibrate.noise(lambda z: {Gaussian(z): steps}, epsilon, DELTA)
    assert calibrate.within({Gaussian(z): steps}, epsilon, DELTA)
    if z > 1e-4:
        assert not calibrate.within({Gaussian(z - 1e-4): steps}, epsilon, DELTA)


@settings(max_examples=2)
@given(st.floats(0.5, 4.0), st.floats(1.0, 1.5))
def test_monotone_for_batches(epsilon, factor):

    def make(rate, z):
        return {SubsampledGaussian("fixed", rate, z, Neighbours.REPLACE_ONE): 1}

    steps = calibrate.steps(make(0.05, 1.2), epsilon, DELTA)
    assert calibrate.steps(make(0.05, 1.2), epsilon * factor, DELTA) >= steps
    assert calibrate.steps(make(0.05, 1.2 * factor), epsilon, DELTA) >= steps
    assert calibrate.steps(make(0.05 / factor, 1.2), epsilon, DELTA) >= steps
    assert calibrate.steps(make(0.05, 1.2), epsilon, DELTA * factor) >= steps


def test_noise_for_other_kinds():
    z = calibrate.noise(lambda z: {AcceptBit(Penalty(1.0), 1 / z): 100}, 1.0, DELTA)
    assert calibrate.steps({AcceptBit(Penalty(1.0), 1 / z): 1}, 1.0, DELTA) in (100, 101)


def test_what_was_asked_before_counts():
    cost = Gaussian(50.0)
    free = calibrate.steps({cost: 1}, 1.0, DELTA)
    assert calibrate.steps({cost: 1}, 1.0, DELTA, initial={cost: 40}) == free - 40
    assert calibrate.left({cost: 40}, 1.0, DELTA, {cost: 1}) == free - 40
    assert calibrate.steps({cost: 3}, 1.0, DELTA, initial={cost: 40}) == (free - 40) // 3
    assert calibrate.steps({cost: 1}, 1.0, DELTA, initial={cost: free + 1}) == 0
    bit = AcceptBit(Barker(), 0.2)
    assert (
        calibrate.steps({bit: 1}, 1.0, DELTA, {bit: 2}, "recursion")
        == calibrate.steps({bit: 1}, 1.0, DELTA, method="recursion") - 2
    )


def test_steps_that_distances_hold_back_are_told_apart():
    """At a distance of 1e-14 a larger epsilon buys nothing from about 10 on; without one it always
    does.
    """
    near, ideal = {Gaussian(50.0, tv_error=1e-14): 1}, {Gaussian(50.0): 1}
    assert [calibrate.held_back(near, epsilon, DELTA) for epsilon in (1.0, 30.0)] == [False, True]
    assert calibrate.steps(near, 30.0, DELTA) == calibrate.steps(near, 60.0, DELTA)
    assert not calibrate.held_back(ideal, 30.0, DELTA, initial={Gaussian(9.0): 2})
    assert calibrate.held_back(ideal, 30.0, DELTA, initial={Gaussian(9.0, tv_error=1e-14): 2})


def test_distances_limit_the_steps_by_the_recursion_too():
    """Of this distance from the ideal law a hundredth of delta bears ten and a half; of a tiny one,
    more than there are.
    """
    far = AcceptBit(Barker(), 0.05, accountants.room_for_tv_errors(1.0, DELTA) / 10.5)
    assert calibrate.steps({far: 1}, 1.0, DELTA, method="recursion") == 10
    near, ideal = AcceptBit(Barker(), 0.05, 1e-20), AcceptBit(Barker(), 0.05)
    kept = (1 - accountants.RESERVE) * DELTA
    free = calibrate.steps({ideal: 1}, 1.0, kept, method="recursion")
    assert calibrate.steps({near: 1}, 1.0, DELTA, method="recursion") == free > 10
    near, ideal = AcceptBit(Barker(), 0.5, 1e-20), AcceptBit(Barker(), 0.5)
    # At 0.99 delta one step fewer fits
    least = accountants.epsilon_by("recursion", {ideal: 3}, 0.01)
    assert calibrate.steps({near: 1}, least, 0.01, method="recursion") == 2


@pytest.mark.parametrize(
    "epsilon, delta",
    [(-1.0, DELTA), (math.nan, DELTA), (math.inf, DELTA), (1.0, 2.0), (1.0, math.nan)],
)
def test_a_budget_is_an_epsilon_and_a_delta(epsilon, delta):
    ledger = {Gaussian(50.0): 1}
    for ask in (
        calibrate.steps,
        calibrate.epsilon_left,
        lambda ledger, e, d: calibrate.noise(lambda z: ledger, e, d),
    ):
        with pytest.raises(ValueError, match="epsilon=|delta="):
            ask(ledger, epsilon, delta)


def test_a_step_asks_whole_numbers_of_queries_and_at_least_one():
    for step in ({}, {Gaussian(50.0): 0}):
        with pytest.raises(ValueError, match="asks nothing"):
            calibrate.steps(step, 1.0, DELTA)
    for count in (-1, 0.5, math.nan):
        with pytest.raises(ValueError, match="whole numbers"):
            calibrate.steps({Gaussian(50.0): count}, 1.0, DELTA)
        with pytest.raises(ValueError, match="whole numbers"):
            calibrate.steps({Gaussian(50.0): 1}, 1.0, DELTA, initial={Gaussian(50.0): count})


def test_noise_that_never_suffices_is_refused():
    with pytest.raises(BudgetExceeded, match="noise multiplier"):
        calibrate.noise(lambda z: {Gaussian(z): 1, NonPrivate("a debug value"): 1}, 1.0, DELTA)


def test_zero_steps_when_not_even_one_fits():
    assert calibrate.steps({Gaussian(0.5): 1}, 0.1, DELTA) == 0
    assert calibrate.steps({Gaussian(50.0): 1, NonPrivate("a debug value"): 1}, 10.0, DELTA) == 0


def test_epsilon_left():
    ledger = {Gaussian(50.0): 40}
    assert calibrate.epsilon_left(ledger, 1.0, DELTA) == pytest.approx(
        1 - accountants.epsilon(ledger, DELTA).epsilon
    )
    assert calibrate.epsilon_left(ledger, 0.01, DELTA) == 0


def test_hamiltonian_gradients_reused_or_not():
    """L + 1 gradients per step, or L and one at the start."""
    ratio, gradient, leapfrog = Gaussian(100.0), Gaussian(200.0), 5
    again = calibrate.steps({ratio: 1, gradient: leapfrog + 1}, 1.0, DELTA)
    reused = calibrate.steps({ratio: 1, gradient: leapfrog}, 1.0, DELTA, initial={gradient: 1})
    mu2 = 0.056028963825  # of (1, 1e-6)
    assert again == int(mu2 / (1e-4 + 6 * 0.25e-4)) and reused == int(
        (mu2 - 0.25e-4) / (1e-4 + 5 * 0.25e-4)
    )


def test_a_distance_that_ends_what_a_budget_buys_is_a_limit_and_not_a_refusal():
    """Only PLD has a figure for this cost: what it says of the distance must not be lost to another
    method's refusal.
    """
    cost = PoissonMixture(0.22, 0.0953, 0.953, Neighbours.REPLACE_ONE, tv_error=4e-15)
    assert calibrate.steps({cost: 1}, 9.0, 1e-6) == calibrate.steps({cost: 1}, 10.0, 1e-6) > 1000
    with pytest.raises(BudgetExceeded, match="total-variation error of the releases"):
        accountants.epsilon({cost: 2000}, 1e-6)


@pytest.mark.parametrize("epsilon", [1e-9, 0.3, 1.0, 1.7, 700.0])
def test_a_budget_that_is_exceeded_in_the_last_digit_is_exceeded(epsilon):
    """The logarithm of such a ratio rounds to nothing."""
    above, below = math.nextafter(epsilon, math.inf), math.nextafter(epsilon, 0.0)
    low, same, high = (calibrate._log_ratio(spent, epsilon) for spent in (below, epsilon, above))
    assert low <= same == 0 < high
    ends = [calibrate._log_ratio(spent, epsilon) for spent in (0.0, math.inf, math.nan)]
    assert ends[:2] == [-math.inf, math.inf] and math.isnan(ends[2])


def test_no_budget_at_all():
    assert calibrate.steps({Gaussian(10.0): 1}, 0.0, 1e-6) == 0
    assert calibrate.steps({Gaussian(1e9): 1}, 0.0, 1e-6) > 0
