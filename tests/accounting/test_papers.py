"""The papers' own formulas, term by term."""

import math

import pytest

from dpmcmc.accounting import accountants, calibrate, papers
from dpmcmc.accounting.costs import Gaussian, Pure


@pytest.mark.parametrize("epsilon, delta", [(0.5, 1e-6), (1.0, 1e-6), (4.0, 1e-5)])
def test_penalty_by_zcdp(epsilon, delta):
    """Thesis, Theorem 3.1, as printed; the accountant "zcdp-paper" is the same bound from the other
    side.
    """
    tau, rows = 0.1, 100_000
    rho = (math.sqrt(epsilon - math.log(delta)) - math.sqrt(-math.log(delta))) ** 2
    assert papers.penalty_steps(epsilon, delta, tau, rows) == math.floor(2 * tau**2 * rows * rho)
    cost = Gaussian(tau * math.sqrt(rows))
    assert calibrate.steps({cost: 1}, epsilon, delta, method="zcdp-paper") == papers.penalty_steps(
        epsilon, delta, tau, rows
    )
    assert papers.penalty_steps(epsilon, delta, tau, rows) < calibrate.steps(
        {cost: 1}, epsilon, delta
    )


def test_hmc_by_zcdp():
    epsilon, delta, tau, tau_gradient, rows, leapfrog = 4.0, 1e-6, 0.05, 0.2, 100_000, 10
    rho = (math.sqrt(epsilon - math.log(delta)) - math.sqrt(-math.log(delta))) ** 2
    per_step = 1 / (2 * tau**2 * rows) + (leapfrog + 1) / (2 * tau_gradient**2 * rows)
    steps = papers.hmc_steps(epsilon, delta, tau, tau_gradient, rows, leapfrog)
    assert steps == math.floor(rho / per_step)
    ledger = {
        Gaussian(tau * math.sqrt(rows)): 1,
        Gaussian(tau_gradient * math.sqrt(rows)): leapfrog + 1,
    }
    assert (
        calibrate.steps(ledger, epsilon, delta, method="zcdp-paper")
        == steps
        < calibrate.steps(ledger, epsilon, delta)
    )


def test_zcdp_budget_without_cancellation():
    assert papers.zcdp_budget(1e-9, 1e-6) == pytest.approx(
        1e-18 / (4 * -math.log(1e-6)), rel=1e-6, abs=0
    )


def test_penalty_by_advanced_composition():
    """Penalty paper, Theorem 1, equations (3) and (4), and their derivation from its Theorems 2 and
    3.
    """
    rows, alpha, beta, scale, c, sigma = 100_000, 0.5, 1.2, 0.1, 1.0, 2.0
    allowed = papers.penalty_advanced(rows, alpha, beta, scale, c, sigma)
    both = 2 * alpha + beta
    assert allowed.steps == math.floor(scale * rows / math.log(rows))
    assert allowed.epsilon == pytest.approx(
        2 * math.sqrt(scale * both * beta) * c / sigma + 4 * scale * (c / sigma) ** 2 * both
    )
    assert allowed.delta == pytest.approx(1.25 * scale * rows**-beta / math.log(rows) + rows**-beta)
    z = sigma / (c * rows**-alpha)
    step = papers.gaussian_step(z, 1.25 * rows**-both)
    assert step < 1
    derived = papers.advanced_composition(allowed.steps, step, 1.25 * rows**-both, rows**-beta)
    # What their proof gives has a factor sqrt(log n) on the first term that equation (3) has lost.
    first = 2 * math.sqrt(scale * both * beta) * c / sigma
    proved = allowed.epsilon + first * (math.sqrt(math.log(rows)) - 1)
    assert allowed.epsilon < derived[0] <= proved and derived[1] <= allowed.delta
    # never below the truth
    assert (
        accountants.epsilon({Gaussian(z): allowed.steps}, allowed.delta).epsilon < allowed.epsilon
    )
    least = sigma * step  # of the noise: at it, one step has epsilon 1
    assert papers.penalty_advanced(rows, alpha, beta, scale, c, least * 1.001)
    with pytest.raises(ValueError, match="sigma"):
        papers.penalty_advanced(rows, alpha, beta, scale, c, least * 0.999)


def test_advanced_composition():
    assert papers.advanced_composition(100, 0.1, 0.0, 1e-5)[0] == pytest.approx(
        math.sqrt(200 * math.log(1e5)) * 0.1 + 100 * 0.1 * math.expm1(0.1)
    )
    assert (
        accountants.epsilon_by("advanced", {Pure(0.1): 100}, 1e-5)
        == papers.advanced_composition(100, 0.1, 0.0, 1e-5)[0]
    )
    # Of Gaussian queries: half of delta for the steps, shared by all, the other half for their
    # composition.
    step = math.sqrt(2 * math.log(1.25 / (1e-5 / 2 / 100))) / 90
    total = math.sqrt(200 * math.log(2e5)) * step + 100 * step * math.expm1(step)
    assert accountants.epsilon_by("advanced", {Gaussian(90.0): 100}, 1e-5) == pytest.approx(
        total, rel=1e-12
    )


def test_fast_mh():
    """DP-Fast MH, Appendix B: one step, and T steps by advanced composition; above epsilon = 2.84
    its constant 6 fails.
    """
    epsilon, delta = papers.fast_mh_step(0.5, 1e-7, 1000, 1e-5)
    assert (epsilon, delta) == (
        pytest.approx(6 * 1000 * 1e-5 * 0.5),
        pytest.approx(2 * 1000 * 1e-5 * 1e-7, rel=1e-6, abs=0),
    )
    assert papers.fast_mh_step(2.83, 1e-7, 1000, 1e-6)
    with pytest.raises(ValueError, match="6 K p epsilon is not an upper bound"):
        papers.fast_mh_step(2.85, 1e-7, 1000, 1e-6)


def test_fast_mh_is_refused_where_its_delta_is_below_the_truth():
    """A release that gives a row away with chance p_m when it is drawn m times, p_(m+1) = min(e^e
    p_m + d, 1 - e^-e (1 - p_m - d)).

    On a table without the row that never happens, so its mean chance is a delta at every epsilon.
    """

    def given_away(epsilon, delta, most_rows, chance):
        found, total = 0.0, 0.0
        for m in range(60):
            total += math.comb(most_rows, m) * chance**m * (1 - chance) ** (most_rows - m) * found
            found = min(
                math.exp(epsilon) * found + delta, 1 - math.exp(-epsilon) * (1 - found - delta)
            )
        return total

    assert given_away(1.0, 1e-9, 500, 0.001) <= papers.fast_mh_step(1.0, 1e-9, 500, 0.001)[1]
    assert given_away(1.0, 1e-9, 500, 0.01) > 100 * 2 * 500 * 0.01 * 1e-9
    with pytest.raises(ValueError, match="2 K p delta is not an upper bound"):
        papers.fast_mh_step(1.0, 1e-9, 500, 0.01)
