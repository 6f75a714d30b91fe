"""The minibatch Barker bit: its law by simulation, its losses by search, its cost against the
full-data bit.
"""

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import special

from dpmcmc.acceptance import Barker, LazyBarker
from dpmcmc.accounting import calibrate
from dpmcmc.accounting.costs import AcceptBit, MinibatchBarker
from dpmcmc.accounting.laws import bits, minibatch
from tests.timing import quickest


def chances(log_ratio, bound, ratio, differences, most_draws=200):
    """Chances of "accept" and "reject", shape (log_ratio.size, differences.size): TunaMH's law as
    the module states it.
    """
    mean = bound / ratio + (bound - differences) / 2
    weight = np.log((bound / ratio + (bound + differences) / 2) / mean)
    accept, reject = np.zeros((2, log_ratio.size, differences.size))
    for k in range(most_draws):
        chance = np.exp(k * np.log(mean) - mean - special.gammaln(k + 1))
        accept += chance * special.expit(log_ratio[:, None] + k * weight)
        reject += chance * special.expit(-log_ratio[:, None] - k * weight)
    return accept, reject


def searched_losses(log_ratio, bound, ratio, differences, most_draws=200):
    """The largest losses among pairs of these differences, and where the chance of "accept" is
    least and largest.
    """
    accept, reject = chances(log_ratio, bound, ratio, differences, most_draws)
    low, high = np.argmin(accept / reject, axis=1), np.argmax(accept / reject, axis=1)
    rows = np.arange(log_ratio.size)
    parts = [(accept[rows, at], reject[rows, at]) for at in (low, high)]
    # From the rarer outcome, so that small losses are right too.
    logs = [
        (np.log(np.where(s < 0.5, s, 1.0)) + np.log1p(-np.where(s < 0.5, 0.0, r)),
         np.log(np.where(s < 0.5, 1.0, r)) + np.log1p(-np.where(s < 0.5, s, 0.0)))
        for s, r in parts
    ]  # fmt: skip
    return logs[1][0] - logs[0][0], logs[0][1] - logs[1][1], low, high


def dense(bound):
    ends = 1 - np.geomspace(1e-6, 1, 100)
    return bound * np.unique(np.concatenate([[-1.0, 1.0], np.linspace(-1, 1, 301), ends, -ends]))


def test_law_by_simulation_of_the_published_thinning():
    """TunaMH as written: B ~ Poisson(lambda + CM) indices, each kept with its own chance, ratio by
    artanh.
    """
    rng = np.random.default_rng(0)
    rows, bound, ratio, log_ratio = 50, 0.3, 2.0, 0.4
    lam, total = rows * bound / ratio, rows * bound  # lambda and C M, with c M = bound
    for difference in (0.3, -0.1):
        # How often the changed row is drawn
        draws = rng.binomial(rng.poisson(lam + total, 400_000), 1 / rows)
        kept = rng.binomial(draws, (lam / rows + (bound - difference) / 2) / (lam / rows + bound))
        weight = 2 * math.atanh(total * difference / (bound * (2 * lam + total)))
        chance = special.expit(log_ratio + kept * weight)
        ours = chances(np.array([log_ratio]), bound, ratio, np.array([difference]))[0][0, 0]
        # False alarm: 6e-7
        assert abs(chance.mean() - ours) < 5 * chance.std() / math.sqrt(kept.size)


def test_reversible():
    """s(l, d) = E e^(l + d) s(-l', -d) with the roles of the points exchanged: one row alone, l =
    0.
    """
    for difference in (-0.25, 0.1, 0.3):
        forward, backward = (
            chances(np.zeros(1), 0.3, 1.5, np.array([d]))[0][0, 0]
            for d in (difference, -difference)
        )
        assert forward == pytest.approx(math.exp(difference) * backward, rel=1e-9)


@pytest.mark.parametrize(
    "bound, ratio",
    [
        (0.02, 0.01),
        (0.02, 1.0),
        (0.3, 0.5),
        (0.02, 6.6),
        (0.5, 10.0),
        (0.1, 50.0),
        (0.02, 3000.0),
        (1.0, 50.0),
    ],
)
def test_losses_bound_what_a_search_finds(bound, ratio):
    """From above by at most 2e-3 of it.

    Too coarse a grid of rows misses 3e-3 of (1, 50), too few draws of a row a third of R.
    """
    log_ratio = np.linspace(-40, 40, 81)
    accept, reject = minibatch.losses(log_ratio, bound, ratio)
    found_accept, found_reject, low, high = searched_losses(log_ratio, bound, ratio, dense(bound))
    rounding = 1e-12 * bound  # of the search
    for ours, found in ((accept, found_accept), (reject, found_reject)):
        assert np.all(ours >= found * (1 - 1e-10) - rounding)
        assert np.all(ours <= found * (1 + 2e-3) + rounding)
    # Fact 1: the least is at d = -b, the largest at b or beyond log(1 + sqrt 2)
    assert np.all(low == 0)
    assert np.all(
        np.arctanh(dense(bound)[high] / (bound * (1 + 2 / ratio))) * 2
        >= min(minibatch.INNER, math.log1p(ratio)) - 0.05
    )


@pytest.mark.parametrize(
    "bound, ratio", [(0.02, 1.0), (0.3, 2.0), (0.02, 6.6), (0.1, 50.0), (5.0, 0.1)]
)
def test_accept_loss_falls_and_reject_loss_rises_to_their_limits(bound, ratio):
    accept, reject = minibatch.losses(np.linspace(-60, 60 + 4 * bound * ratio, 400), bound, ratio)
    most = minibatch.pure_losses(bound, ratio)
    assert np.all(np.diff(accept) <= 0) and np.all(np.diff(reject) >= 0)
    assert accept[0] == pytest.approx(most[0], rel=1e-6) and reject[-1] == pytest.approx(
        most[1], rel=1e-4
    )


@pytest.mark.parametrize("bound, ratio", [(0.02, 6.6), (0.5, 10.0), (2.0, 50.0)])
def test_logarithms_bend_no_more_than_proved(bound, ratio):
    """Fact 2, by second differences.

    For small bounds a tenth of it (log s) or nine tenths (log r) would not hold.
    """
    scale, end = bound * (1 + 2 / ratio), math.log1p(ratio)
    weights, width = np.linspace(0, end, 400, retstep=True)
    accept, reject = chances(np.linspace(-20, 40, 121), bound, ratio, scale * np.tanh(weights / 2))
    bends = [
        np.max(-np.diff(np.log(accept), 2)) / width**2,
        np.max(np.diff(np.log(reject), 2)) / width**2,
    ]
    proved = 17 / 8 * scale + 5 * scale**2, scale + scale**2
    assert bends[0] <= proved[0] and bends[1] <= proved[1]
    if bound < 0.1:
        assert bends[0] > proved[0] / 10 and bends[1] > 0.9 * proved[1]


@pytest.mark.parametrize("bound, ratio", [(0.02, 1.0), (0.3, 2.0), (0.1, 20.0)])
@pytest.mark.parametrize("order", [1.5, 5.0, 40.0])
def test_no_state_and_no_pair_of_rows_is_worse(bound, ratio, order):
    rng = np.random.default_rng(1)
    log_ratio = rng.uniform(-12, 12, 1200)
    differences = np.concatenate([[-bound, bound], rng.uniform(-bound, bound, 60)])
    accept, reject = map(np.log, chances(log_ratio, bound, ratio, differences, 60))
    worst = 0.0
    for i in range(differences.size):
        p, q = (accept[:, [i]], reject[:, [i]]), (accept, reject)
        for first, second in ((p, q), (q, p)):
            moments = np.logaddexp(
                *(order * a + (1 - order) * b for a, b in zip(first, second, strict=True))
            )
            worst = max(worst, float(moments.max()) / (order - 1))
    ours = float(MinibatchBarker(bound, ratio).rdp(np.array([order]))[0])
    assert worst <= ours <= max(worst * 1.1, worst + 1e-6)


@pytest.mark.parametrize("order", [2.0, 40.0])
def test_rounding_of_the_log_ratio_is_covered(order):
    """The log-ratio moved by e, the worst way on each table: without what is charged for it, that
    is more than the bill.
    """
    error, log_ratio, ends = 0.004, np.linspace(-8, 8, 1601), np.array([-0.02, 0.02])
    (low_accept, _), (_, high_accept) = (
        chances(log_ratio + move, 0.02, 1.0, ends)[0].T for move in (-error, error)
    )
    p, q = (np.log([high_accept, 1 - high_accept]), np.log([low_accept, 1 - low_accept]))
    worst = max(
        np.logaddexp(*(order * a + (1 - order) * b)).max() / (order - 1)
        for a, b in ((p, q), (q, p))
    )
    charged, ideal = (
        float(MinibatchBarker(0.02, 1.0, rounding=more).rdp(np.array([order]))[0])
        for more in (2 * error, 0.0)
    )
    assert ideal < worst <= charged <= 1.5 * worst


@pytest.mark.parametrize("bound, ratio", [(0.02, 1.0), (0.1, 6.6), (0.02, 50.0)])
def test_slopes_in_the_mean_number_of_draws(bound, ratio):
    """A mean that is off by a part r moves the logarithms of both chances by at most r b (1 + x)^2
    / x; half of it is exceeded.
    """
    log_ratio, differences = np.linspace(-30, 40, 141), bound * np.linspace(-1, 1, 41)
    mean = bound / ratio + (bound - differences) / 2
    weight = np.log((bound / ratio + (bound + differences) / 2) / mean)
    sums = [np.zeros((2, log_ratio.size, differences.size)) for _ in range(2)]
    for k in range(120):
        value = log_ratio[:, None] + k * weight
        for total, changed in zip(sums, (mean, mean * 1.001), strict=True):
            total += np.exp(k * np.log(changed) - changed - special.gammaln(k + 1)) * special.expit(
                [value, -value]
            )
    moved = np.max(np.abs(np.log(sums[1]) - np.log(sums[0])))
    most = 0.001 * bound * (1 + ratio) ** 2 / ratio
    assert most / 2 < moved < most * 1.01


@pytest.mark.parametrize("bound", [0.002, 0.02, 0.05])
def test_reading_few_rows_is_nearly_free(bound):
    """lambda = C M: 1 to 3 % above the full-data bit at low orders.

    The zCDP bound is the supremum over all orders, reached near 1/bound, and 6 to 8 % above.
    """
    orders = np.array([1.05, 2.0, 5.0])
    cost, full = MinibatchBarker(bound, 1.0), AcceptBit(Barker(), 2 * bound)
    ratios = cost.rdp(orders) / full.rdp(orders)
    assert np.all(ratios > 1.0) and np.all(ratios < 1.04)
    assert 1.05 < cost.rho() / full.rho() < 1.08


@pytest.mark.parametrize(
    "bound, low, high", [(0.2, 1.009, 1.012), (0.15, 1.024, 1.026), (0.1, 1.0398, 1.041)]
)
def test_its_rho_is_a_little_above_that_of_the_bit_on_all_rows(bound, low, high):
    """The lower ends for 0.2 and 0.1 were found without this package, by brute force over two
    neighbouring rows.
    """
    assert low < MinibatchBarker(bound, 1.0).rho() / AcceptBit(Barker(), 2 * bound).rho() < high


@pytest.mark.parametrize(
    "cost",
    [MinibatchBarker(0.02, 1.0), MinibatchBarker(0.2, 5.0), AcceptBit(LazyBarker(0.3), 0.1)],
    ids=str,
)
def test_rho_is_the_largest_divergence_per_order(cost):
    """Never below it, and at most 2e-3 above: a grid that is not refined where it matters is 1 to 2
    % above.
    """
    orders = np.geomspace(1.0001, 4000, 400)
    largest = np.max(cost.rdp(orders) / orders)
    assert largest <= cost.rho() <= (1 + 2e-3) * largest


@pytest.mark.parametrize("bound", [1e-11, 1e-17, 1e-50])
@pytest.mark.parametrize("ratio", [0.001, 1.0, 10.0])
def test_bounds_too_small_to_be_told_from_rounding_cost_no_less_than_the_bit_on_all_rows(
    bound, ratio
):
    """Differences of chances are lost there: boxes made of them had no losses at all."""
    cost, orders = MinibatchBarker(bound, ratio), np.array([1.5, 2.0, 1000.0])
    assert np.all(cost.rdp(orders) >= bound**2 / 2 * orders)
    assert cost.rho() >= bound**2 / 2


def test_rho_takes_few_orders():
    """D_a / a is flat up to orders of a million here, where neighbouring orders bound each other by
    their chord alone.
    """
    # 0.15 s; in steps of a thousandth it is 6 s
    assert quickest(MinibatchBarker(1e-6, 1e-6).rho) < 1.5


def test_few_rows_read():
    """lambda = 10 of C M = 66: between 2.1 and 2.6 times as costly; by the proved range alone five
    times at lambda = C M.
    """
    cost, full = MinibatchBarker(0.00132, 6.6), AcceptBit(Barker(), 0.00264)
    ratios = cost.rdp(np.array([2.0, 10.0, 30.0])) / full.rdp(np.array([2.0, 10.0, 30.0]))
    assert np.all((ratios > 2.05) & (ratios < 2.7))
    assert minibatch.loss_range(0.02, 1.0) ** 2 / 8 / (0.02**2 / 2) == pytest.approx(5.06, rel=0.01)


def test_steps_grow_as_more_rows_are_read():
    steps = [
        calibrate.steps({MinibatchBarker(0.02, ratio): 1}, 1.0, 1e-6)
        for ratio in (8.0, 4.0, 2.0, 1.0, 0.25)
    ]
    assert steps == sorted(steps)
    assert steps[-1] <= calibrate.steps({AcceptBit(Barker(), 0.04): 1}, 1.0, 1e-6)


def test_boxes_are_finite_and_cover_the_tails():
    boxes = minibatch.boxes(0.1, 3.0)
    most = minibatch.pure_losses(0.1, 3.0)
    assert boxes.accept[0] == most[0] and boxes.reject[-1] == most[1]
    assert np.all(boxes.accept > 0) and np.all(np.isfinite(boxes.reject))
    assert bits.largest_renyi(boxes, 1000.0) <= max(most)


@pytest.mark.parametrize(
    "bound, ratio, nearness", [(0.1, 2.5e-4, 1e-3), (1.0, 2.5e-3, 0.01), (5.0, 0.0125, 0.04)]
)
def test_many_draws_of_a_row_are_nearly_barkers_bit(bound, ratio, nearness):
    """Fact 5, where the draws can still be added up.

    Without what is added to Barker's losses they are exceeded.
    """
    scale, end = bound * (1 + 2 / ratio), math.log1p(ratio)
    log_ratio = np.linspace(-30, 30, 241)
    low = log_ratio - scale * end * special.expit(end)
    naive = [special.log_expit(low + scale * end) - special.log_expit(low)]
    naive.append(special.log_expit(-low) - special.log_expit(-low - scale * end))
    exact = searched_losses(log_ratio, bound, ratio, np.array([-bound, bound]), 1300)[:2]
    v = scale * special.expit(end) * end**2 * math.exp(end)
    slack = minibatch._crowded(scale, end)[0, 0] - scale * end
    assert v < slack < 1.5 * v  # what is added, and about b x
    for without, found in zip(naive, exact, strict=True):
        assert np.all(found <= without + slack) and np.any(found > without * (1 + 1e-6))
    for order in (1.05, 2.0, 8.0):
        ours = bits.largest_renyi(bits.Boxes(*minibatch._crowded(scale, end)), order)
        added_up = bits.largest_renyi(minibatch.boxes(bound, ratio), order)
        assert added_up * (1 - 1e-3) <= ours <= added_up * (1 + nearness)


# From where a row's draws are added up to where they are not
@example(math.log10(0.498), -3.0, 2.0)
@example(math.log10(5.0), math.log10(1.99), 2.0)
@given(st.floats(-4, 1), st.floats(-6, 2), st.sampled_from([1.05, 2.0, 8.0, 64.0]))
@settings(max_examples=40, deadline=None, derandomize=True)
def test_the_cost_grows_with_the_bound_and_has_no_jumps(log_bound, log_ratio, order):
    """A bound or a ratio that is 1 % larger.

    (A larger ratio may cost less: to read fewer rows is noise of a kind.)
    """
    bound, ratio = 10**log_bound, 10**log_ratio
    here, wider, fewer = (
        float(MinibatchBarker(*arguments).rdp(np.array([order]))[0])
        for arguments in ((bound, ratio), (1.01 * bound, ratio), (bound, 1.01 * ratio))
    )
    assert here * 0.998 <= wider <= here * 1.05
    assert here * 0.97 <= fewer <= here * 1.05


@pytest.mark.parametrize("bound, ratio", [(2000.0, 5.0), (500.0, 1.0), (0.1, 1e9)])
def test_beyond_all_sense_the_limits_are_charged(bound, ratio):
    """So many draws of one row are not added up; nothing overflows, and no order has less than
    randomised response.
    """
    cost, most = MinibatchBarker(bound, ratio), minibatch.pure_losses(bound, ratio)
    assert minibatch.boxes(bound, ratio).accept.tolist() == [most[0]]
    divergence = cost.rdp(np.array([2.0, 1000.0]))
    assert np.all(divergence <= max(most)) and divergence[1] >= 0.9 * max(most)


@pytest.mark.parametrize("bound, ratio", [(0.02, 1.0), (0.02, 6.6), (0.001, 0.1)])
def test_boxes_reach_the_largest_losses(bound, ratio):
    """Which are limits: no sum of the other rows attains them, and the tails come as near as one
    likes.
    """
    boxes = minibatch.boxes(bound, ratio)
    accept, reject = minibatch.pure_losses(bound, ratio)
    assert np.max(boxes.accept) >= accept and np.max(boxes.reject) >= reject
