"""The chance of the best guess: never below the truth where that is known, and not far above it."""

import math

import pytest
from scipy import special, stats

from dpmcmc.accounting import filters, guess
from dpmcmc.accounting.costs import ZCDP, Gaussian, Pure
from dpmcmc.accounting.laws import gaussian, renyi

DELTA = 1e-6
SLACK = {"gaussian-filter": 1e-5, "zcdp-filter": 0.15, "renyi-filter": 0.4}
SLACK["closing-filter"] = 0.35  # where the promise itself is the bound


def randomised_response(epsilon: float, count: int) -> float:
    """The chance of the best guess after so many answers that are true with chance e^epsilon / (1 +
    e^epsilon): by enumeration.
    """
    law, other = (
        stats.binom(count, special.expit(sign * epsilon)).pmf(range(count + 1)) for sign in (1, -1)
    )
    return (1 + abs(law - other).sum() / 2) / 2


@pytest.mark.parametrize("noise_multiplier", [0.5, 3.0, 50.0])
@pytest.mark.parametrize("count", [1, 7])
def test_gaussians_are_exact(noise_multiplier, count):
    mu = math.sqrt(count) / noise_multiplier
    found = guess.chance(
        {Gaussian(noise_multiplier): count}, gaussian.epsilon(DELTA, mu), DELTA, "gaussian"
    )
    assert found == pytest.approx(special.ndtr(mu / 2), rel=1e-9) and found >= special.ndtr(mu / 2)


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 3.0])
@pytest.mark.parametrize("count", [1, 5, 40])
def test_pure_answers_are_told_apart_no_better(epsilon, count):
    """Randomised response is the worst of them. Of one answer the figure is exact."""
    truth = randomised_response(epsilon, count)
    found = guess.chance({Pure(epsilon): count}, epsilon * count, DELTA, "pure")
    assert truth <= found <= min(1.0, truth + (1e-6 if count == 1 else 0.03))


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0, 12.0])
@pytest.mark.parametrize("method", filters.BY_NAME)
def test_a_filter_lets_no_better_guess_through(method, epsilon):
    """Gaussians that use all of it, which the filter of their own knows, and that of one order
    hardly: other laws use it up too.
    """
    shared = filters.BY_NAME[method](epsilon, DELTA)
    steps = shared.steps({Gaussian(1000.0): 1})
    truth, found = (
        special.ndtr(math.sqrt(steps) / 1000 / 2),
        guess.chance({}, epsilon, DELTA, method),
    )
    assert truth <= found <= min(1.0, truth + SLACK[method])


@pytest.mark.parametrize("rho", [1e-4, 0.1, 2.0])
def test_what_is_known_by_its_divergences_alone(rho):
    """A Gaussian of this rho is told apart no better."""
    truth = special.ndtr(math.sqrt(2 * rho) / 2)
    found = guess.chance({ZCDP(rho): 1}, renyi.zcdp_epsilon(rho, DELTA), DELTA, "zcdp")
    assert truth <= found <= truth + 0.15


def test_a_promise_of_nothing_at_all_is_a_guess():
    assert guess.chance({}, 0.0, DELTA, "pure") == 0.5
    assert guess.chance({Gaussian(1e-3): 1}, 1e6, DELTA, "gaussian") == 1.0
