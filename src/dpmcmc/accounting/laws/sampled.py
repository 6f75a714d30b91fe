r"""Renyi curves of Poisson-sampled Gaussian queries.

Each row is in the batch with chance q; mu = 1/z.

    one row added or removed:  1/(a-1) log sum_k C(a,k) (1-q)^(a-k) q^k e^(k (k-1) mu^2 / 2)
                               for whole orders a :cite:p:`mironov2019sampled` (the other order of
                               the tables is never worse)
    one row replaced:          (1-q) N(0,1) + q N(mu/2,1)  against its mirror image, integrated
                               numerically (the trapezoid rule on a smooth function that vanishes at
                               both ends is exact to rounding)
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from scipy import special

from dpmcmc.accounting.laws.renyi import chord

MOST_TERMS = 4096
LARGEST_EXPONENT = 600.0
# Of the terms, each and in their sum; of those with large logarithms
ROUNDING, FAR_ROUNDING = 1e-14, 1e-10
# Standard deviations; orders that need more are left to the bound without sampling
FARTHEST = 300.0


def add_or_remove_rdp(rate: float, noise_multiplier: float, orders: np.ndarray) -> np.ndarray:
    """Between whole orders (a - 1) D_a is convex, hence below its chord; at order 1 it is 0."""
    return chord(lambda order: _log_moment(rate, noise_multiplier, order), orders)


@lru_cache(maxsize=100_000)
def _log_moment(rate: float, noise_multiplier: float, order: int) -> float:
    if order == 1:
        return 0.0
    if order > MOST_TERMS:
        return math.inf
    k = np.arange(order + 1.0)
    choose = special.gammaln(order + 1) - special.gammaln(k + 1) - special.gammaln(order - k + 1)
    chances = choose + special.xlog1py(order - k, -rate) + k * math.log(rate)
    exponents = k * (k - 1) / (2 * noise_multiplier**2)
    return _log_mean_exp(chances, exponents, FAR_ROUNDING)


def replace_rdp(rate: float, noise_multiplier: float, orders: np.ndarray) -> np.ndarray:
    """Infinite where the integrand lies too far out."""
    return np.array([_replace_one(rate, 0.5 / noise_multiplier, float(order)) for order in orders])


@lru_cache(maxsize=100_000)
def _replace_one(rate: float, shift: float, order: float) -> float:
    # The integrand's peak lies between order * shift (few rows) and this (all rows).
    farthest = (2 * order - 1) * shift
    if farthest > FARTHEST:
        return math.inf
    reach = farthest + 15
    half = math.ceil(reach * 20 * max(1.0, shift))
    step = reach / half
    x = step * np.arange(-half, half + 1)
    up = _log_mixture(rate, shift * x - shift**2 / 2)
    down = up[::-1]  # the mirror image
    logs = -0.5 * x * x - 0.5 * math.log(2 * math.pi) + math.log(step)
    return _log_mean_exp(logs, order * up + (1 - order) * down, ROUNDING) / (order - 1)


def _log_mean_exp(log_weights: np.ndarray, exponents: np.ndarray, rounding: float) -> float:
    """log sum_i w_i e^(x_i), not below it, for weights that add up to 1.

    The excess over 1 is summed by itself, so that a small divergence keeps its digits, and what
    rounding may take off is added.
    """
    if np.max(log_weights + exponents) > LARGEST_EXPONENT:
        return float(special.logsumexp(log_weights + exponents)) + FAR_ROUNDING
    is_far = exponents > 30  # there 1 is nothing
    terms = np.exp(log_weights + np.where(is_far, exponents, 0.0)) * np.where(
        is_far, 1.0, np.expm1(np.minimum(exponents, 30))
    )
    return math.log1p(
        max(
            0.0,
            float(np.sum(terms))
            + float(np.sum(np.where(is_far, FAR_ROUNDING, rounding) * np.abs(terms))),
        )
    )


def _log_mixture(rate: float, log_ratio: np.ndarray) -> np.ndarray:
    """log(1 - rate + rate e^log_ratio), to the last digit where it is near zero and where
    e^log_ratio overflows.
    """
    if rate == 1:
        return log_ratio
    log_values = np.log1p(rate * np.expm1(np.minimum(log_ratio, 1.0)))
    is_far = log_ratio >= 1.0
    log_values[is_far] = np.logaddexp(math.log1p(-rate), math.log(rate) + log_ratio[is_far])
    return log_values
