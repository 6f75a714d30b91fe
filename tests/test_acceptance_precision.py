"""Logarithms of acceptance and rejection probabilities against 60-digit arithmetic."""

import mpmath
import numpy as np
import pytest

from dpmcmc.acceptance import Barker, LazyBarker, Penalty, log_hockey_stick

LOG_RATIOS = (-50.0, -5.0, -1.0, -1e-3, -1e-8, 0.0, 1e-8, 1e-3, 0.3, 1.0, 5.0, 20.0)


def penalty(log_ratio, sigma):
    l, s = mpmath.mpf(log_ratio), mpmath.mpf(sigma)
    return mpmath.ncdf(l / s - s / 2) + mpmath.exp(l) * mpmath.ncdf(-l / s - s / 2)


def barker(log_ratio, kappa):
    return mpmath.mpf(kappa) / (1 + mpmath.exp(-mpmath.mpf(log_ratio)))


def agree(ours, exact):
    """Logarithms near zero are compared relatively, so that small probabilities on the other side
    count.
    """
    return abs(ours - exact) <= 1e-12 * abs(exact)


@pytest.mark.parametrize("sigma", [1e-3, 0.1, 0.49, 0.51, 1.0, 5.0, 30.0])
@pytest.mark.parametrize("log_ratio", LOG_RATIOS)
def test_penalty(sigma, log_ratio):
    if abs(log_ratio) / sigma > 36:
        pytest.skip("a probability below the smallest float")
    log_accept, log_reject = Penalty(sigma).log_probabilities(log_ratio)
    with mpmath.workdps(700):
        exact = penalty(log_ratio, sigma)
        assert agree(float(log_accept), mpmath.log(exact))
        assert agree(float(log_reject), mpmath.log(1 - exact))


@pytest.mark.parametrize("kappa", [1.0, 0.5, 0.1, 1e-3])
@pytest.mark.parametrize("log_ratio", LOG_RATIOS)
def test_barker(kappa, log_ratio):
    test = Barker() if kappa == 1 else LazyBarker(kappa)
    log_accept, log_reject = test.log_probabilities(log_ratio)
    with mpmath.workdps(60):
        exact = barker(log_ratio, kappa)
        assert agree(float(log_accept), mpmath.log(exact))
        assert agree(float(log_reject), mpmath.log(1 - exact))


@pytest.mark.parametrize("test", [Barker(), LazyBarker(0.3), Penalty(0.2), Penalty(2.0)], ids=str)
def test_reversible(test):
    log_ratio = np.linspace(-6, 6, 41)
    forward, backward = test.log_probabilities(log_ratio)[0], test.log_probabilities(-log_ratio)[0]
    np.testing.assert_allclose(forward, log_ratio + backward, atol=1e-12)
    np.testing.assert_allclose(np.exp(forward), test.probability(log_ratio), rtol=1e-12)


@pytest.mark.parametrize("width", [1e-12, 1e-6, 0.01, 0.5, 0.6, 3.0])
@pytest.mark.parametrize("above", [0.0, 1.0, 15.0, 25.0])
def test_hockey_stick(width, above):
    u = -width / 2 + above
    with mpmath.workdps(200):
        x, w = mpmath.mpf(u), mpmath.mpf(width)
        exact = mpmath.log(mpmath.ncdf(-x) - mpmath.exp(w * (x + w / 2)) * mpmath.ncdf(-x - w))
        assert abs(float(log_hockey_stick(u, width)) - exact) < 1e-12 * max(1, abs(exact))
