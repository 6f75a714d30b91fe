r"""Gaussian queries, composed exactly.

A query answered with noise of z times its sensitivity has the privacy profile of N(0, 1) against
N(mu, 1), mu = 1/z. Several of them, chosen adaptively, have that of one query with  mu^2 = sum_j
1/z_j^2  :cite:p:`sommer2019privacy`, so

    delta(epsilon) = Phi(-u) - e^epsilon Phi(-u - mu),      u = epsilon/mu - mu/2,

which is Theorem 2.4 of :cite:p:`raisa2021hamiltonian` (its "mu" is our mu^2/2). The bound is
attained. Everything is done with logarithms: e^epsilon overflows long before delta stops being of
interest.
"""

from __future__ import annotations

import functools
import math

from scipy import special

from dpmcmc.acceptance import log_hockey_stick
from dpmcmc.accounting.search import crossing, largest_exponential

LARGEST = 1e12  # epsilon; a larger budget is treated as this one
ROUNDING = 1e-13  # widens every answer a little, upwards, by more than the arithmetic can lose


def log_delta(epsilon: float, mu: float) -> float:
    """log of the smallest delta at this epsilon; mu is the Gaussian-DP parameter of the whole
    ledger.
    """
    if mu == 0:
        return -math.inf
    return float(log_hockey_stick(epsilon / mu - mu / 2, mu))


def delta(epsilon: float, mu: float) -> float:
    """The smallest delta at this epsilon."""
    return math.exp(log_delta(epsilon, mu))


@functools.lru_cache(maxsize=100_000)
def epsilon(delta: float, mu: float) -> float:
    """The smallest epsilon at this delta, rounded up: solved for u, where delta <= Phi(-u) gives
    the upper end.
    """
    if mu == 0 or log_delta(0.0, mu) <= math.log(delta):
        return 0.0
    if math.isinf(mu):
        return math.inf
    upper = -float(special.ndtri_exp(math.log(delta)))
    _, u = crossing(lambda u: float(log_hockey_stick(u, mu)) - math.log(delta), -mu / 2, upper)
    return mu * (u + mu / 2 + ROUNDING * (1 + abs(u) + mu))


@functools.lru_cache(maxsize=10_000)
def mu(epsilon: float, delta: float) -> float:
    """The largest Gaussian-DP parameter within (epsilon, delta), rounded down; 0 if it is below
    e^-32.
    """
    budget = min(epsilon, LARGEST)
    return largest_exponential(lambda mu: log_delta(budget, mu) - math.log(delta), -32.0, 16.0) * (
        1 - 10 * ROUNDING
    )
