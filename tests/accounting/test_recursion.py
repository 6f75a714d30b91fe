"""The exact recursion: against enumeration, against fixed states (a ceiling), against the closed
form of one bit.
"""

import functools
import itertools
import math

import numpy as np
import pytest
from scipy import special

from dpmcmc.acceptance import Barker, LazyBarker, Penalty
from dpmcmc.accounting import accountants, calibrate
from dpmcmc.accounting.costs import AcceptBit, Gaussian, MinibatchBarker
from dpmcmc.accounting.laws import recursion
from dpmcmc.accounting.search import largest
from dpmcmc.errors import UnsupportedQuery

DELTA = 1e-6


def fixed_state_delta(test, range, log_ratio, count, epsilon):
    """delta of `count` bits when the chain never moves: the number of accepts is binomial. A lower
    bound of the truth.
    """
    here, there = test.log_probabilities(log_ratio), test.log_probabilities(log_ratio + range)
    accepts = np.arange(count + 1.0)
    choose = (
        special.gammaln(count + 1)
        - special.gammaln(accepts + 1)
        - special.gammaln(count - accepts + 1)
    )
    p, q = (choose + accepts * law[0] + (count - accepts) * law[1] for law in (there, here))
    either = [np.sum(np.maximum(0.0, np.exp(a) - np.exp(epsilon + b))) for a, b in ((p, q), (q, p))]
    return max(either)


def fixed_state_ceiling(test, range, epsilon, log_ratios, delta=DELTA):
    """No valid method may allow more steps than this."""

    def fits(count):
        return (
            max(fixed_state_delta(test, range, state, count, epsilon) for state in log_ratios)
            <= delta
        )

    return largest(fits)


def enumerated_delta(test, range, count, epsilon, states):
    """sup over state-choosing adversaries by plain recursion, on a coarse set of states: a lower
    bound of the truth.
    """
    laws = [(test.log_probabilities(l), test.log_probabilities(l + range)) for l in states]
    pairs = [tuple(np.exp(np.array(x, float)) for x in pair) for pair in laws]
    pairs += [(there, here) for here, there in pairs]

    @functools.cache
    def value(count, log_gamma):
        gamma = math.exp(log_gamma)
        if count == 0:
            return max(0.0, 1 - gamma)
        return max(
            sum(
                p * value(count - 1, round(math.log(gamma * q / p), 12))
                for p, q in zip(first, second, strict=True)
            )
            for first, second in pairs
        )

    return value(count, epsilon)


@pytest.mark.parametrize("range", [0.1, 1.0])
@pytest.mark.parametrize("part", [0.0, 0.3, 0.8])
def test_one_barker_bit_is_the_closed_form(range, part):
    """delta = (1 - e^(-(D - e)/2))^2 / (1 - e^-D)."""
    epsilon = part * range
    exact = math.expm1(-(range - epsilon) / 2) ** 2 / -math.expm1(-range)
    ours = recursion.delta(AcceptBit(Barker(), range), 1, epsilon)
    assert exact * (1 - 1e-9) <= ours <= exact * 1.02


@pytest.mark.parametrize("delta", [0.02, 3e-3, 1e-4])
def test_the_epsilon_of_one_barker_bit_is_never_below_the_closed_form(delta):
    """Solved for e, so that what is read between two points of the grid counts too."""
    range = 1.0
    exact = range + 2 * math.log1p(-math.sqrt(-delta * math.expm1(-range)))
    assert (
        exact * (1 - 1e-9)
        <= recursion.epsilon(AcceptBit(Barker(), range), 1, delta)
        <= exact * 1.005
    )


@pytest.mark.parametrize("test", [Barker(), LazyBarker(0.4), Penalty(1.0)], ids=str)
@pytest.mark.parametrize(
    "count", [2, *(pytest.param(count, marks=pytest.mark.slow) for count in (3, 4))]
)
def test_above_enumeration_and_close(test, count):
    range, states = 0.5, (-2.0, -1.0, -0.25, 0.5, 1.5)
    for epsilon in (0.1, 0.6):
        lower = enumerated_delta(test, range, count, epsilon, states)
        ours = recursion.delta(AcceptBit(test, range), count, epsilon)
        assert lower <= ours * (1 + 1e-9)
        # The five states are coarse; a wrong law would be off by far more
        assert ours <= lower * 1.35 + 1e-6


@pytest.mark.parametrize(
    "epsilon, listed, ceiling",
    [(0.5, 38, 39), (1.0, 140, 140), pytest.param(2.0, 502, 503, marks=pytest.mark.slow)],
)
def test_barker_check_values(epsilon, listed, ceiling):
    test, range = Barker(), 0.04
    assert fixed_state_ceiling(
        test, range, epsilon, np.linspace(-0.5, 0.5, 11) - range / 2
    ) == pytest.approx(ceiling, abs=1)
    steps = calibrate.steps({AcceptBit(test, range): 1}, epsilon, DELTA, method="recursion")
    assert min(listed - 1, listed * 0.99) <= steps <= ceiling


@pytest.mark.parametrize(
    "epsilon, listed", [pytest.param(0.5, 36, marks=pytest.mark.slow), (1.0, 143)]
)
def test_penalty_check_values(epsilon, listed):
    test, range = Penalty(1.0), 0.03
    ceiling = fixed_state_ceiling(test, range, epsilon, np.linspace(-1.0, 3.0, 41))
    steps = calibrate.steps({AcceptBit(test, range): 1}, epsilon, DELTA, method="recursion")
    assert min(listed - 1, listed * 0.99) <= steps <= ceiling


@pytest.mark.slow
@pytest.mark.parametrize(
    "cost, listed, ceiling",
    [
        (AcceptBit(Barker(), 0.04), (1755, 3579), (1756, 3581)),
        (AcceptBit(Penalty(1.0), 0.03), (1896, 3890), None),
    ],
    ids=str,
)
def test_long_runs(cost, listed, ceiling):
    for i, epsilon in enumerate((4.0, 6.0)):
        steps = calibrate.steps({cost: 1}, epsilon, DELTA, method="recursion")
        top = (
            ceiling[i]
            if ceiling
            else fixed_state_ceiling(cost.test, cost.range, epsilon, np.linspace(-1.0, 3.0, 21))
        )
        assert listed[i] * 0.99 <= steps <= top


@pytest.mark.slow
def test_recursion_is_below_renyi_and_consistent_with_itself():
    cost = AcceptBit(Barker(), 0.2)
    for count in (5, 20):
        exact = accountants.epsilon_by("recursion", {cost: count}, DELTA)
        assert exact < accountants.epsilon_by("rdp", {cost: count}, DELTA)
        assert recursion.delta(cost, count, exact) <= DELTA * (1 + 1e-6)
        assert calibrate.steps({cost: 1}, exact * (1 + 1e-9), DELTA, method="recursion") in (
            count - 1,
            count,
            count + 1,
        )


def test_few_bits_never_cost_more_than_their_pure_epsilons():
    cost = AcceptBit(Barker(), 0.3)
    assert accountants.epsilon_by("recursion", {cost: 2}, 1e-9) <= 0.6


@pytest.mark.parametrize("range", [1e-12, 50.0, 500.0, 1000.0])
def test_nor_do_bits_of_any_size(range):
    cost = AcceptBit(Barker(), range)
    for count in (1, 2):
        assert accountants.epsilon_by("recursion", {cost: count}, 1e-9) <= count * range
    if 1 < range < 300:
        assert calibrate.steps({cost: 1}, 2 * range, 1e-9, method="recursion") >= 2
    # The grid cannot follow the losses, and the pure bound would not be the largest number
    if range > 300:
        with pytest.raises(
            UnsupportedQuery, match="more than the recursion can follow; use rdp or pure"
        ):
            calibrate.steps({cost: 1}, 2 * range, 1e-9, method="recursion")


@pytest.mark.parametrize(
    "ask",
    [
        lambda: calibrate.steps({AcceptBit(Barker(), 0.001): 1}, 1.0, DELTA, method="recursion"),
        lambda: calibrate.steps({AcceptBit(Barker(), 0.001): 1}, 100.0, DELTA, method="recursion"),
        lambda: calibrate.steps({AcceptBit(Barker(), 1e-12): 1}, 1e-11, DELTA, method="recursion"),
        lambda: accountants.epsilon_by("recursion", {AcceptBit(Barker(), 0.001): 10**6}, DELTA),
        lambda: accountants.epsilon_by("recursion", {AcceptBit(Penalty(1.0), 1e-9): 5}, DELTA),
        lambda: accountants.epsilon_by("recursion", {AcceptBit(Penalty(1.0), 1000.0): 1}, DELTA),
    ],
)
def test_what_would_take_too_long_is_refused_at_once(ask):
    with pytest.raises(UnsupportedQuery, match="use rdp"):
        ask()


def test_minibatch_bits_compose_too():
    """Close to the full-data bit of the same range when lambda = C M."""
    cost, full = MinibatchBarker(0.1, 1.0), AcceptBit(Barker(), 0.2)
    ours = accountants.epsilon_by("recursion", {cost: 10}, DELTA)
    assert (
        accountants.epsilon_by("recursion", {full: 10}, DELTA)
        <= ours
        <= accountants.epsilon_by("rdp", {cost: 10}, DELTA)
    )


def test_mixed_ledgers_are_refused():
    with pytest.raises(UnsupportedQuery, match="one kind"):
        accountants.epsilon_by("recursion", {AcceptBit(Barker(), 0.1): 1, Gaussian(5.0): 1}, DELTA)
    with pytest.raises(UnsupportedQuery, match="one kind"):
        calibrate.steps(
            {Gaussian(5.0): 1, AcceptBit(Barker(), 0.1): 1}, 1.0, DELTA, method="recursion"
        )


def test_what_is_no_accept_bit_is_refused_in_both_directions():
    with pytest.raises(UnsupportedQuery, match="accept bits"):
        accountants.epsilon_by("recursion", {Gaussian(5.0): 3}, DELTA)
    with pytest.raises(UnsupportedQuery, match="accept bits"):
        calibrate.steps({Gaussian(5.0): 1}, 1.0, DELTA, method="recursion")


@pytest.mark.slow
@pytest.mark.parametrize(
    "test, range_, delta", [(LazyBarker(0.15), 0.14, 0.03), (Barker(), 0.04, 1e-7)], ids=str
)
def test_steps_and_epsilon_agree(test, range_, delta):
    """At the very epsilon of k steps, and just below it, where two grids are most likely to
    differ."""
    cost = AcceptBit(test, range_)
    for count in (1, 4, 29):
        epsilon = recursion.epsilon(cost, count, delta)
        if epsilon > 0:
            assert recursion.epsilon(cost, recursion.steps(cost, epsilon, delta), delta) <= epsilon
            assert recursion.steps(cost, epsilon, delta) >= count
            assert recursion.steps(cost, epsilon * (1 - 1e-6), delta) < count


def test_more_than_it_can_follow_is_refused_rather_than_left_to_the_pure_bound():
    for epsilon in (600.0, 699.0, 701.0):
        with pytest.raises(UnsupportedQuery, match="use rdp"):
            recursion.steps(AcceptBit(Barker(), 0.04), epsilon, 1e-6)


def test_a_delta_that_cannot_be_followed_is_refused():
    assert recursion.delta(AcceptBit(Barker(), 0.2), 0, 0.1) == 0
    for cost in (AcceptBit(Barker(), 800.0), AcceptBit(Penalty(0.01), 5.0)):
        with pytest.raises(UnsupportedQuery, match="cannot follow"):
            recursion.delta(cost, 2, 5.0)
    with pytest.raises(UnsupportedQuery, match="would take the recursion too long"):
        recursion.delta(AcceptBit(Barker(), 0.2), 10_000, 5.0)


def test_what_is_not_followed_is_bounded():
    """Beyond the grid, and where V is below the floor, it counts as much as at the last point that
    was followed: V falls.
    """
    cost = AcceptBit(Barker(), 0.1)
    (grid, followed), (_, bounded) = (
        list(itertools.islice(recursion._values(cost, 1.0, floor, 4), 3))[-1]
        for floor in (0.0, 1.0)
    )
    assert grid.size > recursion.PART and followed[recursion.PART] > 0
    assert np.all(bounded >= followed) and bounded[-1] == bounded[recursion.PART - 1]
    np.testing.assert_array_equal(recursion._extended(grid, bounded, 3)[-3:], bounded[-1])
