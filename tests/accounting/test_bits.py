"""Renyi divergences of accept bits: never below a brute-force supremum, hardly above it."""

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpmcmc.acceptance import Barker, LazyBarker, Metropolis, Penalty
from dpmcmc.accounting import accountants, calibrate
from dpmcmc.accounting.costs import AcceptBit
from dpmcmc.accounting.laws import bits, gaussian
from dpmcmc.errors import UnsupportedQuery

TESTS = [
    (Barker(), 0.04),
    (Barker(), 1.5),
    (LazyBarker(0.25), 0.1),
    (LazyBarker(0.9), 0.5),
    (Penalty(0.3), 0.02),
    (Penalty(1.0), 0.03),
    (Penalty(5.0), 0.5),
]
ORDERS = (1.05, 2.0, 10.0, 60.0, 400.0)


def brute_force(test, range, order, low=-40.0, high=None, points=200_001):
    """Renyi divergence from the four probabilities directly, maximised over a plain grid of
    log-ratios: a lower bound.
    """
    high = (
        high
        if high is not None
        else (40.0 if not isinstance(test, Penalty) else test.sigma**2 / 2 + 30 * test.sigma)
    )
    log_ratio = np.linspace(low, high, points)
    here, there = test.log_probabilities(log_ratio), test.log_probabilities(log_ratio + range)
    best = 0.0
    for p, q in ((here, there), (there, here)):
        moments = np.logaddexp(order * p[0] + (1 - order) * q[0], order * p[1] + (1 - order) * q[1])
        best = max(best, float(np.max(moments)) / (order - 1))
    return best


@pytest.mark.parametrize("test, range", TESTS, ids=str)
@pytest.mark.parametrize("order", ORDERS)
def test_supremum_is_bounded_and_tight(test, range, order):
    ours = float(AcceptBit(test, range).rdp(np.array([order]))[0])
    truth = brute_force(test, range, order)
    assert truth * (1 - 1e-9) - 1e-13 <= ours
    if bits.tail_reaches(test, range, order):
        assert ours <= truth * 1.002 + 1e-9
    else:  # far out the cells end and the bound of the released ratio takes over
        assert ours == pytest.approx(order * range**2 / (2 * test.sigma**2))


@pytest.mark.parametrize("test, range", TESTS, ids=str)
def test_closed_forms_are_never_beaten_upwards(test, range):
    cost, orders = AcceptBit(test, range), np.array(ORDERS)
    assert np.all(cost.rdp(orders) <= cost.rho() * orders * (1 + 1e-12))
    if cost.pure() is not None:
        assert np.all(cost.rdp(orders) <= range)


@pytest.mark.parametrize("accept", [1e-50, 1e-20, 1e-9, 1e-4, 0.009, 0.02, 3.0])
@pytest.mark.parametrize("reject", [1e-50, 1e-9, 1e-4, 0.009, 0.02, 3.0])
@pytest.mark.parametrize("order", [1.0001, 2.0, 300.0, 1e7])
def test_a_pair_with_tiny_losses_keeps_its_divergence(accept, reject, order):
    """In 150 digits.

    In sums of terms of the first order it is lost to rounding: off by 100 % and more for losses
    below 1e-16.
    """
    with mpmath.workdps(150):
        up, down = mpmath.expm1(accept), -mpmath.expm1(-mpmath.mpf(reject))
        powers = (mpmath.mpf(order), 1 - mpmath.mpf(order))
        moments = [
            (down * mpmath.exp(p * accept) + up * mpmath.exp(-p * reject)) / (up + down)
            for p in powers
        ]
        truth = float(max(map(mpmath.log, moments)) / (mpmath.mpf(order) - 1))
    assert float(bits.renyi(accept, reject, order)) == pytest.approx(truth, rel=1e-8, abs=0)


def test_a_narrow_window_is_caught():
    """The broken twin that looks at log-ratios within +-4 only: the worst penalty bit lies outside
    at high orders.
    """
    test, range, order = Penalty(1.0), 0.03, 400.0
    narrow = brute_force(test, range, order, -4.0, 4.0)
    ours = float(AcceptBit(test, range).rdp(np.array([order]))[0])
    assert narrow < 0.9 * ours


def test_boxes_cover_every_log_ratio():
    """Each pair found at random is inside some box: both losses are below the box's."""
    rng = np.random.default_rng(0)
    for test, range in TESTS:
        boxes = bits.accept_boxes(test, range)
        edge = (
            test.sigma**2 / 2 + bits.FARTHEST_DEVIATIONS * test.sigma
            if isinstance(test, Penalty)
            else math.inf
        )
        for log_ratio in np.minimum(rng.normal(0, 6, 300), edge - range):
            accept, reject = (
                float(part) for part in bits._losses(test, range, np.array(log_ratio))
            )
            inside = (boxes.accept >= accept) & (boxes.reject >= reject)
            assert inside.any()
            # and the box is not much larger than the pair
            assert np.min((boxes.accept * boxes.reject)[inside]) <= accept * reject * 1.02 + 1e-12


def test_no_cell_is_left_out():
    """Coarse boxes only tell which cells cannot be the dearest: the answer is that of all cells, at
    every order.
    """
    for test, range in ((Barker(), 0.04), (Penalty(1.0), 0.03)):
        boxes = bits.accept_boxes(test, range)
        for order in np.geomspace(1.1, 500.0, 8):
            assert bits.largest_renyi(boxes, order) >= np.max(
                bits.renyi(boxes.accept, boxes.reject, order)
            ) * (1 - 1e-12)


def test_boxes_reach_the_largest_losses():
    """Far to the left "accept" has the whole range, far to the right Barker's "reject"; a lazy one
    has its peak between cells.
    """
    for test, range in TESTS:
        boxes = bits.accept_boxes(test, range)
        assert np.max(boxes.accept) >= range
        if isinstance(test, Barker):
            assert np.max(boxes.reject) >= range
        if isinstance(test, LazyBarker):
            with mpmath.workdps(40):
                kappa, peak = mpmath.mpf(test.kappa), -mpmath.log1p(-mpmath.mpf(test.kappa)) / 2
                first, second = (
                    mpmath.log1p(-kappa / (1 + mpmath.exp(-peak + sign * mpmath.mpf(range) / 2)))
                    for sign in (1, -1)
                )
                assert np.max(boxes.reject) >= first - second


@pytest.mark.parametrize(
    "sigma, gain", [(0.5, 3.85), (1.0, 2.48), (2.0, 1.88), (3.0, 1.72), (5.0, 1.63)]
)
def test_gain_of_the_penalty_bit_over_its_ratio(sigma, gain):
    """As the range goes to zero: the ratio of the divergences at an order near one."""
    range = 1e-3 * sigma
    bit = float(AcceptBit(Penalty(sigma), range).rdp(np.array([2.0]))[0])
    assert (range / sigma) ** 2 / bit == pytest.approx(gain, rel=0.01)


@pytest.mark.parametrize("kappa, accepted", [(1.0, 2.00), (0.5, 2.77), (0.25, 3.09), (0.1, 3.26)])
def test_accepted_moves_per_unit_of_cost(kappa, accepted):
    """Small ranges: kappa/2 moves accepted at l = 0, per divergence in units of range^2/2 at order
    1 and half that cost.
    """
    range = 1e-3
    cost = float(AcceptBit(LazyBarker(kappa), range).rdp(np.array([1.02]))[0]) / 1.02
    assert (kappa / 2) * (range**2 / 2) / cost == pytest.approx(accepted, rel=0.01)


def test_metropolis_is_refused():
    with pytest.raises(UnsupportedQuery, match="not private"):
        AcceptBit(Metropolis(), 0.05)


def test_metropolis_would_be_caught():
    """What the refusal protects from: rejections at l = 0 have infinite loss, delta = 1 - e^-range
    at every epsilon.
    """
    range = 0.05
    reject_here = 1 - Metropolis().probability(-range)
    reject_there = 1 - Metropolis().probability(0.0)
    assert reject_there == 0
    assert reject_here == pytest.approx(-math.expm1(-range))


@settings(max_examples=2)
@given(st.floats(0.01, 1.0), st.floats(0.3, 3.0), st.floats(1.0, 1.3))
def test_monotone_in_range_and_budget(range, sigma, factor):
    for test in (Barker(), LazyBarker(0.5), Penalty(sigma)):
        steps = calibrate.steps({AcceptBit(test, range): 1}, 1.0, 1e-6)
        assert calibrate.steps({AcceptBit(test, range): 1}, factor, 1e-6) >= steps
        assert calibrate.steps({AcceptBit(test, range): 1}, 1.0, 1e-6 * factor) >= steps
        # The bound is a maximum over boxes, right to 0.1 %, so monotone up to that.
        assert calibrate.steps({AcceptBit(test, range / factor): 1}, 1.0, 1e-6) >= math.floor(
            steps * 0.998
        )


def test_lazier_is_cheaper():
    costs = [
        AcceptBit(LazyBarker(kappa), 0.1).rdp(np.array([5.0]))[0] for kappa in (0.1, 0.25, 0.5, 0.9)
    ]
    assert costs == sorted(costs)
    assert AcceptBit(LazyBarker(1.0), 0.1).rdp(np.array([5.0])) == pytest.approx(
        AcceptBit(Barker(), 0.1).rdp([5.0])
    )


@pytest.mark.parametrize(
    "sigma, range", [(1e6, 1e-2), (1e7, 1e-2), (3e7, 3e-2), (1e8, 0.3), (1e9, 10.0), (1e12, 1e3)]
)
def test_ranges_that_rounding_swallows_are_charged_in_full(sigma, range):
    """At l = sigma^2/2 the bit is fair, and n of them tell as much as a Gaussian of mu = sqrt(2 n /
    pi) Delta / sigma: here .8.
    """
    cost, count = AcceptBit(Penalty(sigma), range), int(math.pi / 2 * (0.8 * sigma / range) ** 2)
    truth = gaussian.epsilon(1e-6, 0.8)
    assert truth <= accountants.epsilon({cost: count}, 1e-6).epsilon <= 1.5 * truth
    assert calibrate.steps({cost: 1}, truth, 1e-6) <= count


@pytest.mark.parametrize("test", [Barker(), LazyBarker(0.5)], ids=str)
@pytest.mark.parametrize("range", [1e-8, 1e-10, 1e-12, 2e-20])
def test_so_are_those_of_other_tests(test, range):
    """Fair bits again: the worst state of Barker's has the divergence order * Delta^2 / 8, a lazy
    one's at least a part of it.
    """
    order, least = 2.0, range**2 / 4 * (1.0 if isinstance(test, Barker) else test.kappa / 4)
    assert (
        least * (1 - 1e-6)
        <= AcceptBit(test, range).rdp(np.array([order]))[0]
        <= range**2 / 4 * (1 + 1e-9)
    )
    if range < 1e-10:
        with pytest.raises(UnsupportedQuery, match="too little to distinguish from rounding"):
            bits.accept_boxes(test, range)
