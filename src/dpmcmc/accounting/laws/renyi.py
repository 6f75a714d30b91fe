r"""Renyi divergences: orders, conversions to (epsilon, delta), and amplification by fixed-size
batches.

If D_a(M(D) || M(D')) <= r for some order a > 1, then M is (epsilon, delta)-private for

    epsilon = r + log(1 - 1/a) - log(delta a) / (a - 1)     ("best"),
    epsilon = r - log(delta) / (a - 1)                      ("paper"),

the first by :cite:p:`canonne2020discrete`, Proposition 12, the second by
:cite:p:`mironov2017renyi`, Proposition 3. Every order gives a valid answer, so the
least of many is valid too. The grid of orders is dense (at most 2 % apart in a - 1) and is searched
from coarse to fine.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np
from scipy import special

Curve = Callable[[np.ndarray], np.ndarray]  # Renyi divergence at each order

TIGHT = 1e-3  # relative: how far a supremum over orders may be overestimated
BLOCK = 16
# 1.02 ... 8e4, and the whole numbers: amplified curves are known there, and are chords in between.
ORDERS = np.union1d(1 + 0.02 * 1.02 ** np.arange(768), np.arange(2.0, 257.0))


def best_epsilon(orders, values, delta: float) -> np.ndarray:
    """epsilon at each order, never negative."""
    epsilon = values + np.log1p(-1 / orders) - np.log(delta * orders) / (orders - 1)
    return np.maximum(epsilon, 0.0)


def paper_epsilon(orders, values, delta: float) -> np.ndarray:
    """epsilon at each order by the older conversion, as the papers use it
    (:cite:p:`raisa2021thesis`, Theorem 2.5).
    """
    return values - math.log(delta) / (orders - 1)


def best_log_delta(orders, values, epsilon: float) -> np.ndarray:
    """log delta at each order: `best_epsilon` solved for delta."""
    return np.minimum(
        (orders - 1) * (values - epsilon + np.log1p(-1 / orders)) - np.log(orders), 0.0
    )


def least(curve: Curve, convert: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> float:
    """The least converted value over all orders: every 16th order, then all near the best."""
    coarse = np.arange(0, ORDERS.size, BLOCK)
    best = int(coarse[np.argmin(convert(ORDERS[coarse], curve(ORDERS[coarse])))])
    near = np.arange(max(0, best - BLOCK), min(ORDERS.size, best + BLOCK + 1))
    return float(np.min(convert(ORDERS[near], curve(ORDERS[near]))))


def zcdp_epsilon(rho: float, delta: float) -> float:
    """epsilon of rho-zCDP, best conversion, best order."""
    if rho == 0:
        return 0.0
    return least(lambda orders: rho * orders, functools.partial(best_epsilon, delta=delta))


def zcdp_epsilon_paper(rho: float, delta: float) -> float:
    """epsilon = rho + sqrt(4 rho log(1/delta)), as in :cite:p:`raisa2021thesis`, Theorem 2.5."""
    return rho + math.sqrt(-4 * rho * math.log(delta))


def amplified(base: Callable[[np.ndarray], np.ndarray], rate: float) -> Curve:
    r"""Renyi curve of a mechanism run on a fixed-size batch drawn without replacement, a fraction
    `rate` of the rows.

    :cite:p:`wang2019subsampled` Theorem 9 as printed, for whole orders a >= 2, `base` taken for the
    replacement of one row:

        1/(a-1) log(1 + q^2 C(a,2) min{4(e^b(2) - 1), 2 e^b(2)} + 2 sum_{j=3..a} q^j C(a,j) e^((j-1)
        b(j))).

    Between whole orders (a - 1) D_a is convex, hence below its chord (their Corollary 10). At order
    1 it is 0.
    """

    return lambda orders: chord(lambda order: _log_moment(base, rate, order), orders)


def dp_barker(batch: int, bound: str, orders: np.ndarray) -> np.ndarray:
    r"""Renyi divergence of a step of DP Barker (:cite:p:`raisa2021thesis`) on one batch when one of
    its rows is replaced: as printed ("paper"), or exact ("tight").
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        if bound == "paper":
            room = batch - 5 * orders
            logarithm = np.log(2 * batch / room) / (2 * (orders - 1))
            return np.where(room > 0, 5 / (2 * batch) + logarithm + 2 * orders / room, math.inf)
        d = 4 * (batch - 1) / batch**2
        rest = 1 - (orders - 1) * d
        values = -np.log1p(d) / 2 - np.log(rest) / (2 * (orders - 1)) + 2 * orders / (batch * rest)
        return np.where(rest > 0, values, math.inf)


def chord(log_moment: Callable[[int], float], orders: np.ndarray) -> np.ndarray:
    """Divergences at any order from (a - 1) D_a at whole ones, which is convex in a and 0 at order
    1.
    """
    below = np.floor(orders).astype(int)
    weight = orders - below
    moments = {
        order: log_moment(order)
        for order in set(below.tolist()) | set(np.ceil(orders).astype(int).tolist())
    }
    low, high = (
        np.array([moments[i] for i in part.astype(int).tolist()])
        for part in (below, np.ceil(orders))
    )
    known = np.isfinite(low) & np.isfinite(high)
    rise = np.where(known, high, 0.0) - np.where(known, low, 0.0)
    return np.where(known, np.where(known, low, 0.0) + weight * rise, math.inf) / (orders - 1)


MOST_TERMS = 4096


def _log_moment(base, rate: float, order: int) -> float:
    if order == 1:
        return 0.0
    if order > MOST_TERMS:
        return math.inf
    j = np.arange(2.0, order + 1)
    values = base(j)
    if not np.all(np.isfinite(values)):
        return math.inf
    choose = special.gammaln(order + 1) - special.gammaln(j + 1) - special.gammaln(order - j + 1)
    terms = j * math.log(rate) + choose + math.log(2) + (j - 1) * values
    terms[0] += min(math.log(2) + math.log(-math.expm1(-values[0])), 0.0)
    return float(np.logaddexp(0.0, special.logsumexp(terms)))


def largest_rate(divergence: Callable[[float], float], most: float) -> float:
    """sup over orders of D_a / a, at most TIGHT above it, given that D_a never exceeds `most`.

    (a - 1) D_a is convex, so between two orders it is at most its chord: intervals where that is
    too much are halved.
    """
    orders = np.geomspace(1.0001, 1.0001 * max(16.0, 100 / most), 40)
    values = np.array([min(divergence(float(order)), most) for order in orders])
    while True:
        bounds = _chord_rates(orders, values)
        wide = np.flatnonzero(bounds > (1 + TIGHT) * np.max(values / orders))
        if wide.size == 0:
            return float(max(values[0], np.max(bounds), most / orders[-1]))
        middle = np.sqrt(orders[wide] * orders[wide + 1])
        values = np.insert(
            values, wide + 1, [min(divergence(float(order)), most) for order in middle]
        )
        orders = np.insert(orders, wide + 1, middle)


def _chord_rates(orders: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The largest  chord / (a (a - 1))  between neighbouring orders: with  chord = s u - t,  u = a
    - 1,  it has its peak where s u^2 = t (2 u + 1).
    """
    moments = (orders - 1) * values
    slope = np.diff(moments) / np.diff(orders)
    drop = np.maximum(slope * (orders[:-1] - 1) - moments[:-1], 0.0)
    peak = np.clip(
        (drop + np.sqrt(drop**2 + slope * drop)) / slope, orders[:-1] - 1, orders[1:] - 1
    )
    chord = moments[:-1] + slope * (peak - (orders[:-1] - 1))
    return np.maximum(
        chord / (peak * (peak + 1)), np.maximum(values[:-1] / orders[:-1], values[1:] / orders[1:])
    )
