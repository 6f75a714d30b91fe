"""The law of radial noise: against a second integration, over all shifts, and composed."""

import math
from pathlib import Path

import numpy as np
import pytest
from scipy import signal, special

from dpmcmc.accounting import accountants, calibrate, filters
from dpmcmc.accounting.costs import Gaussian, Pure, Radial
from dpmcmc.accounting.laws import gaussian, pld, radial
from dpmcmc.errors import BudgetExceeded, UnsupportedQuery

NODES, WEIGHTS = np.polynomial.legendre.leggauss(400)
CASES = [(0.01, 3), (1.0, 2), (1.0, 7), (4.0, 20), (10.0, 5)]


def tails(losses, epsilon: float, dimension: int, shape: float | None = None):
    """P(L > loss) by an integral over the noise's length, Gamma(shape); of its cosine with the
    shift, 2 B - 1 with B of law Beta((d - 1) / 2, (d - 1) / 2), the cdf is known.

    |z - e| > |z| + t  where the cosine is below (1 - t^2) / (2 r) - t, or where r is below -t.
    """
    shape = dimension if shape is None else shape
    t = np.atleast_1d(losses)[:, None] / epsilon
    start = (1 - t) / 2  # shorter noise is nearer to 0 by t, whatever its direction
    ends = [start * epsilon, special.gammaincinv(shape, 1 - 1e-16) + np.zeros_like(t)]
    length = (ends[0] + (ends[1] - ends[0]) * (NODES + 1) / 2) / epsilon
    log_density = (shape - 1) * np.log(length * epsilon) - length * epsilon
    density = np.exp(log_density - special.gammaln(shape)) * (ends[1] - ends[0]) / 2
    cosine = np.clip((1 - t * t) / (2 * length) - t, -1, 1)
    half = (dimension - 1) / 2
    is_below = special.betainc(half, half, (1 + cosine) / 2)
    return special.gammainc(shape, ends[0][:, 0]) + (density * is_below) @ WEIGHTS


def delta_of(losses, epsilon, dimension):
    """P(L > e) - e^e P(-L > e)."""
    below = 1 - tails(-losses, epsilon, dimension)
    return tails(losses, epsilon, dimension) - np.exp(losses) * below


@pytest.mark.parametrize(("epsilon", "dimension"), CASES)
def test_profile_is_that_of_a_second_integration(epsilon, dimension):
    losses = epsilon * np.array([0.0, 0.1, 0.2, 0.3, 0.4])
    profile = Radial(epsilon, dimension).profiles().forward.excess(losses)
    assert profile == pytest.approx(delta_of(losses, epsilon, dimension), rel=3e-6)


def test_one_dimension_is_laplace_noise():
    losses = np.array([0.0, 0.3, 0.9])
    profile = Radial(1.0, 1).profiles().forward.excess(losses)
    assert profile == pytest.approx(-np.expm1((losses - 1) / 2), rel=1e-10)
    orders = np.array([1.01, 2.0, 50.0])
    moments = orders * np.exp(orders - 1) + (orders - 1) * np.exp(-orders)
    laplace = np.log(moments / (2 * orders - 1)) / (orders - 1)
    assert Radial(1.0, 1).rdp(orders) == pytest.approx(laplace, rel=1e-9)


@pytest.mark.parametrize(("epsilon", "dimension"), CASES)
def test_renyi_divergences_are_those_of_the_profile(epsilon, dimension):
    """E e^((a-1) L), by parts, is an integral of e^((a-1) x) P(L > x)."""
    x = epsilon * NODES
    above = tails(x, epsilon, dimension)
    for order in (1.5, 2.0, 5.0):
        moment = math.exp(-(order - 1) * epsilon) + (order - 1) * epsilon * np.sum(
            WEIGHTS * np.exp((order - 1) * x) * above
        )
        expected = math.log(moment) / (order - 1)
        assert Radial(epsilon, dimension).rdp([order])[0] == pytest.approx(expected, rel=2e-3)


@pytest.mark.parametrize("dimension", [1, 2, 3, 7, 20, 300, 4096])
@pytest.mark.parametrize("epsilon", [1e-6, 0.1, 3.0, 40.0])
def test_the_largest_shift_is_the_worst(epsilon, dimension):
    """A shift of s Delta is the pair of s epsilon. Any order of the divergence, any shift."""
    losses = epsilon * np.linspace(-1.2, 1.2, 25)
    whole = Radial(epsilon, dimension).profiles().forward.excess(losses)
    for share in (0.01, 0.3, 0.9, 0.999):
        part = Radial(share * epsilon, dimension).profiles().forward.excess(losses)
        assert np.all(part <= whole * (1 + 1e-9))
        # And that attains something: otherwise the test would pass for a law that is too large
        assert share < 0.9 or np.max(part / np.maximum(whole, 1e-300)) > 0.8


@pytest.mark.parametrize("epsilon", [1e-20, 1e-3, 1.0, 100.0, 700.0, 1e50])
@pytest.mark.parametrize("dimension", [1, 2, 3, 50, 4096])
def test_every_bound_holds_for_every_parameter(epsilon, dimension):
    cost = Radial(epsilon, dimension)
    orders = np.array([1.001, 2.0, 100.0, 8e4])
    divergence = cost.rdp(orders)
    assert np.all(divergence >= 0)
    assert np.all(np.diff(divergence) >= -1e-9 * divergence[1:])
    assert np.all(divergence <= np.minimum(epsilon, cost.rho() * orders) * (1 + 1e-9))
    assert cost.rho() <= Pure(epsilon).rho()
    high = cost.profiles().forward.excess(np.array([epsilon, 2 * epsilon]))
    assert high.tolist() == [0.0, 0.0]


def test_many_dimensions_are_like_a_gaussian():
    """Per coordinate the variance is (d + 1) / epsilon^2, and a long vector is as with Gaussian
    noise of that deviation.
    """
    cost = Radial(math.sqrt(4097) / 3.0, 4096)
    alike = gaussian.epsilon(1e-6, 1 / 3.0)
    assert accountants.epsilon({cost: 1}, 1e-6).epsilon == pytest.approx(alike, rel=5e-3)


def composed(mu: float, epsilon: float, dimension: int, target: float, edge: str) -> float:
    """delta of Gaussian answers and one radial one: losses at the upper or lower edges of cells, or
    at their middles.
    """
    h = target / 2000
    top = math.ceil(epsilon / h)
    cells = h * np.arange(-top, top + 1)
    masses = -np.diff(np.concatenate([[1.0], tails(cells[1:-1], epsilon, dimension), [0.0]]))
    reach = math.ceil((mu * mu / 2 + 9 * mu) / h)
    ends = h * np.arange(-reach, reach + 1)
    normal = np.diff(special.ndtr((ends - mu * mu / 2) / mu))
    both = signal.fftconvolve(masses, normal)
    shift = {"upper": 1.0, "middle": 0.5, "lower": 0.0}[edge]
    losses = h * (np.arange(both.size) - top - reach + 2 * shift)
    above = losses > target
    outside = 2 * special.ndtr(-9) if edge == "upper" else 0.0
    return float(both[above] @ -np.expm1(target - losses[above])) + outside


@pytest.mark.parametrize(("epsilon", "dimension"), [(0.25, 3), (1.0, 7), (2.0, 20)])
def test_composition_lies_between_both_roundings(epsilon, dimension):
    """Within 1 % of what losses rounded in the middle of their cells give."""
    mu = gaussian.mu(epsilon, 1e-6) * math.sqrt(0.2)
    size = calibrate.radial_epsilon(epsilon, 1e-6, mu, dimension)
    claim = accountants.delta({Gaussian(1 / mu): 1, Radial(size, dimension): 1}, epsilon)
    low, middle, high = (
        composed(mu, size, dimension, epsilon, edge) for edge in ("lower", "middle", "upper")
    )
    assert low < claim < high
    assert claim == pytest.approx(middle, rel=0.01)
    assert claim <= 0.9901e-6  # a hundredth is for total-variation errors


def test_middles_in_place_of_edges_would_promise_too_much():
    """A twin: the loss at the middles of cells of equal chance, of the length and of the cosine.
    The tails, where delta is made, have no middle. Chords between few dots are above the truth.
    """
    cost = Radial(1.0, 20)
    target = np.array([0.7])
    truth = float(cost.profiles().forward.excess(target)[0])
    middles = (np.arange(300) + 0.5) / 300
    length = special.gammaincinv(20, middles)[:, None]
    cosine = 2 * special.betaincinv(9.5, 9.5, middles) - 1
    losses = np.sqrt(length**2 - 2 * length * cosine + 1) - length
    assert np.mean(np.maximum(-np.expm1(target - losses), 0)) < 0.9 * truth
    dots = pld.connect_the_dots(cost.profiles().forward, 0.02)
    on_grid = 0.02 * (dots.first + np.arange(dots.chances.size))
    claim = dots.infinite + dots.chances @ np.maximum(-np.expm1(target - on_grid), 0)
    assert truth <= claim < 1.1 * truth


def test_a_scale_too_small_or_a_wrong_length_would_cost_more():
    """Twins: noise 5 % too small; and noise whose length is Gamma(d - 1), as if polar coordinates
    had been forgotten. Both exceed the claim of delta.
    """
    losses = np.array([0.5])
    claim = Radial(1.0, 7).profiles().forward.excess(losses)
    small = delta_of(losses / 1, 1 / 0.95, 7)
    assert small > 1.2 * claim
    # For other lengths only the event is the same: P(L > e) - e^e Q(L > e) is a lower bound
    short = tails(losses, 1.0, 7, shape=6) - np.exp(losses) * (1 - tails(-losses, 1.0, 7, shape=6))
    assert short > 1.2 * claim


def test_the_tight_and_the_basic_composition_are_kept_apart():
    """Pure epsilons add up to more than is claimed, and the claim is of the losses' laws."""
    mu = 0.1
    size = calibrate.radial_epsilon(1.0, 1e-6, mu, 7)
    costs = {Gaussian(1 / mu): 1, Radial(size, 7): 1}
    tight = accountants.epsilon(costs, 1e-6)
    assert tight.method == "pld"
    assert tight.epsilon <= 1
    assert size + gaussian.epsilon(1e-6, mu) > 1.2
    with pytest.raises(UnsupportedQuery, match="pure"):
        accountants.pure_epsilon(costs, 1e-6)
    alone = {Radial(1.0, 7): 3}
    assert accountants.epsilon_by("pure", alone, 1e-6) == 3
    assert accountants.epsilon(alone, 1e-6).epsilon < 2.5
    # One alone: no more than its largest loss, whatever delta is
    assert accountants.epsilon({Radial(1.0, 1): 1}, 1e-6).epsilon <= 1


@pytest.mark.parametrize("method", ["rdp", "zcdp", "rdp-paper", "zcdp-paper"])
def test_other_methods_are_above_the_exact_one(method):
    costs = {Gaussian(12.0): 3, Radial(0.8, 7): 1, Radial(0.2, 1): 2}
    exact = accountants.epsilon(costs, 1e-6)
    assert exact.method == "pld"
    assert accountants.epsilon_by(method, costs, 1e-6) > exact.epsilon
    assert accountants.epsilon(costs, 1e-12).method == "rdp"


def test_filters_know_radial_noise_by_its_bounds():
    """Their sums are of rho and of divergences; the Gaussian filter refuses it."""
    cost = Radial(0.5, 7)
    shared = filters.zcdp_filter(1.0, 1e-6)
    assert shared.fits({cost: 1})
    shared.spend({cost: 1})
    assert shared.spent == pytest.approx(cost.rho())
    assert not shared.fits({Radial(2.0, 7): 1})
    assert filters.renyi_filter(1.0, 1e-6).fits({cost: 1})
    with pytest.raises(UnsupportedQuery, match="zcdp or renyi"):
        filters.gaussian_filter(1.0, 1e-6).fits({cost: 1})


@pytest.mark.parametrize("gaussians", [{Gaussian(20.0): 3, Gaussian(55.0, 1e-20): 2}, {}])
def test_a_bill_with_the_calibrated_size_fits(gaussians):
    """With the errors of all releases, and hardly more would fit."""
    mu = accountants.gaussian_mu(gaussians)
    size = calibrate.radial_epsilon(1.0, 1e-6, mu, 12)
    assert calibrate.within(gaussians | {Radial(size, 12, 1e-13): 1}, 1.0, 1e-6)
    assert not calibrate.within(gaussians | {Radial(1.00001 * size, 12, 1e-13): 1}, 1.0, 1e-6)


def test_no_room_is_refused():
    with pytest.raises(BudgetExceeded, match="leave nothing"):
        calibrate.radial_epsilon(1.0, 1e-6, 0.3, 7)
    with pytest.raises(ValueError, match="mu"):
        calibrate.radial_epsilon(1.0, 1e-6, -0.3, 7)


@pytest.mark.parametrize("dimension", [0, 1.5, 5000, math.nan])
def test_dimensions_that_are_none_are_refused(dimension):
    with pytest.raises(ValueError, match="dimension"):
        Radial(1.0, dimension)


def test_gaussians_among_others_are_composed_exactly():
    """A hundred in many kinds are one, so that rounding does not add up."""
    many = {Gaussian(100.0 + i): 1 for i in range(100)} | {Radial(0.5, 5): 1}
    mu = accountants.gaussian_mu({Gaussian(100.0 + i): 1 for i in range(100)})
    one = {Gaussian(1 / mu): 1, Radial(0.5, 5): 1}
    both = [accountants.epsilon(costs, 1e-6).epsilon for costs in (many, one)]
    assert both[0] == pytest.approx(both[1], rel=1e-12)
    assert both[0] <= pld.epsilon(many, 1e-6)


def test_large_epsilon_is_left_to_pure():
    assert radial.rho(800.0, 3) == 800.0**2 / 2
    assert accountants.epsilon({Radial(800.0, 3): 1}, 1e-6) == (800.0, "pure")


def test_the_page_is_right():
    """Its code runs, and its numbers are those that it makes."""
    page = (Path(__file__).parents[2] / "docs" / "radial-noise.md").read_text()
    names: dict[str, float] = {}
    exec(page.split("```python\n")[1].split("```")[0], names)
    assert math.floor(1000 * names["size"]) == 798
    assert math.floor(100 * names["gain"]) == 177
