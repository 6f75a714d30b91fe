"""The closed form against 60-digit arithmetic, dp-accounting, the papers' formula and itself."""

import functools
import math

import mpmath
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special

from dpmcmc.accounting import accountants, calibrate
from dpmcmc.accounting.costs import Gaussian
from dpmcmc.accounting.laws import gaussian
from tests.timing import quickest


def exact_log_delta(epsilon, mu):
    with mpmath.workdps(80):
        e, m = mpmath.mpf(epsilon), mpmath.mpf(mu)
        half = (
            mpmath.erfc((e - m * m / 2) / (mpmath.sqrt(2) * m)),
            mpmath.erfc((e + m * m / 2) / (mpmath.sqrt(2) * m)),
        )
        value = (half[0] - mpmath.exp(e) * half[1]) / 2
        return mpmath.log(value) if value > 0 else -mpmath.inf


@pytest.mark.parametrize("mu", [1e-12, 1e-6, 1e-3, 0.1, 0.5, 1.0, 10.0, 100.0])
@pytest.mark.parametrize("epsilon", [0.0, 1e-12, 1e-3, 0.1, 1.0, 10.0, 100.0])
def test_log_delta_is_exact(epsilon, mu):
    if epsilon / mu > 40:
        pytest.skip("delta below 1e-350: needs more digits than the check has")
    exact = exact_log_delta(epsilon, mu)
    assert abs(gaussian.log_delta(epsilon, mu) - exact) < 1e-11 * max(1, abs(exact))


@pytest.mark.parametrize("mu", [1e-12, 1e-8, 1e-4, 1.0, 1e2, 1e4])
def test_nothing_overflows_over_the_promised_range(mu):
    for epsilon in (0.0, 1e-6, 1.0, 50.0, 100.0):
        assert gaussian.log_delta(epsilon, mu) <= 0
    for delta in (1e-300, 1e-12, 1e-6, 0.1):
        epsilon = gaussian.epsilon(delta, mu)
        assert math.isfinite(epsilon)
        assert gaussian.log_delta(epsilon, mu) <= math.log(delta) + 1e-9


def test_agrees_with_dp_accounting():
    from dp_accounting import gaussian_mechanism

    for noise_multiplier in (0.5, 1.0, 3.0, 20.0):
        for delta in (1e-9, 1e-5, 0.01):
            theirs = gaussian_mechanism.get_epsilon_gaussian(noise_multiplier, delta)
            assert gaussian.epsilon(delta, 1 / noise_multiplier) == pytest.approx(
                theirs, rel=1e-6, abs=1e-9
            )


def test_agrees_with_the_formula_of_the_papers():
    """DP-HMC paper, Theorem 2.4, evaluated directly where nothing overflows; its mu is half of our
    mu squared.
    """
    for mu, epsilon in ((0.3, 0.5), (1.0, 2.0), (2.0, 3.0)):
        m = mu * mu / 2
        first = special.erfc((epsilon - m) / (2 * math.sqrt(m)))
        printed = 0.5 * (
            first - math.exp(epsilon) * special.erfc((epsilon + m) / (2 * math.sqrt(m)))
        )
        assert gaussian.delta(epsilon, mu) == pytest.approx(printed, rel=1e-12)


def test_composing_many_is_composing_one_louder_query():
    together = accountants.epsilon({Gaussian(30.0): 4000, Gaussian(90.0): 900}, 1e-6).epsilon
    mu = math.sqrt(4000 / 30**2 + 900 / 90**2)
    assert together == pytest.approx(
        accountants.epsilon({Gaussian(1 / mu): 1}, 1e-6).epsilon, rel=1e-12
    )


@given(st.floats(0.01, 50), st.floats(1e-12, 0.1), st.floats(1e-3, 20))
def test_epsilon_is_the_inverse_of_delta(epsilon, delta, mu):
    found = gaussian.epsilon(delta, mu)
    assert gaussian.log_delta(found, mu) <= math.log(delta) * (1 - 1e-12) + 1e-12
    if found > 0:
        assert gaussian.log_delta(found * (1 - 1e-9), mu) > math.log(delta)
    largest = gaussian.mu(epsilon, delta)
    assert (
        gaussian.epsilon(delta, largest) <= epsilon < gaussian.epsilon(delta, largest * (1 + 1e-9))
    )


@given(st.floats(0.1, 10), st.floats(1e-12, 0.1), st.floats(1.0, 200), st.floats(1.0, 1.5))
def test_monotone(epsilon, delta, noise_multiplier, factor):
    steps = calibrate.steps({Gaussian(noise_multiplier): 1}, epsilon, delta)
    assert calibrate.steps({Gaussian(noise_multiplier): 1}, epsilon * factor, delta) >= steps
    assert (
        calibrate.steps({Gaussian(noise_multiplier): 1}, epsilon, min(0.5, delta * factor)) >= steps
    )
    assert calibrate.steps({Gaussian(noise_multiplier * factor): 1}, epsilon, delta) >= steps
    if steps:
        assert accountants.epsilon({Gaussian(noise_multiplier): steps}, delta).epsilon <= epsilon
    assert accountants.epsilon({Gaussian(noise_multiplier): steps + 1}, delta).epsilon > epsilon


@pytest.mark.parametrize(
    "mu, delta", [(0.3, 0.1), (1.0, 1e-6), (3.0, 1e-9), (10.0, 1e-12), (30.0, 1e-6)]
)
def test_epsilon_is_rounded_up(mu, delta):
    """To the last digit of 60: what the arithmetic loses must not be promised."""
    with mpmath.workdps(60):
        width, epsilon = mpmath.mpf(mu), mpmath.mpf(gaussian.epsilon(delta, mu))
        assert (
            mpmath.ncdf(width / 2 - epsilon / width)
            - mpmath.exp(epsilon) * mpmath.ncdf(-width / 2 - epsilon / width)
            <= delta
        )


def test_a_closed_form_takes_less_than_a_millisecond():
    calls = (functools.partial(gaussian.epsilon, 1e-6 * (1 + i / 1000), 0.3) for i in range(50))
    assert quickest(*calls) < 5e-3  # five times the promise: the machine may be busy
