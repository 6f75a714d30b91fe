r"""The accept bit of Barker's test on a TunaMH batch.

With b = c M the public bound of one row's energy difference d and x = n b / lambda, row i is kept K times,

    K ~ Poisson(m),   m = b/x + (b - d)/2,      each time adding   w = log((b/x + (b + d)/2) / (b/x + (b - d)/2))

to the log-ratio (TunaMH's thinning of Poisson((lambda + C M)/n) draws, C = n c). Given the sum l of all other rows the
chance of "accept" is  s(l, d) = E expit(l + K w).  A mixture over l reveals no more than the worst l, so with d and d'
the changed row's differences on the two tables the bit's losses are at most

    A(l) = max_d log s(l, d) - min_d log s(l, d),   and R(l) the same for 1 - s.

Proved for all l:  A <= 2b,  R <= b (1 + x + g(x)),  g = 1/(1+x) if x <= sqrt 2, else (1 + 2/x)(3 - 2 sqrt 2).
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from scipy import special

from dpmcmc.accounting.bits import Boxes

DIFFERENCES = 65  # values of d; the extremes in between are found by a parabola, right to 3e-5 (x <= 50)
SLACK = 1e-4  # relative, more than the parabola can miss
RESOLUTION = 5e-4


def pure_losses(row_bound: float, ratio: float) -> tuple[float, float]:
    """The proved bounds of the losses of "accept" and "reject"."""
    x = ratio
    g = 1 / (1 + x) if x <= math.sqrt(2) else (1 + 2 / x) * (3 - 2 * math.sqrt(2))
    return 2 * row_bound, row_bound * (1 + x + g)


def loss_range(row_bound: float, ratio: float) -> float:
    """The losses lie in an interval of this length, so the bit is (length^2 / 8)-zCDP."""
    return sum(pure_losses(row_bound, ratio))


def log_chances(log_ratio: np.ndarray, row_bound: float, ratio: float, differences: np.ndarray):
    """log s and log(1 - s), shape (log_ratio.size, differences.size), and the mean of expit under "accept" tilting."""
    mean = row_bound / ratio + (row_bound - differences) / 2
    weight = np.log((row_bound / ratio + (row_bound + differences) / 2) / mean)
    chances = _poisson(mean)
    accept, reject = np.zeros((log_ratio.size, mean.size)), np.zeros((log_ratio.size, mean.size))
    for k, chance in enumerate(chances):
        value = log_ratio[:, None] + k * weight
        accept += chance * special.expit(value)
        reject += chance * special.expit(-value)
    return np.log(accept), np.log(reject)


def _poisson(mean: np.ndarray) -> np.ndarray:
    """Rows k = 0, 1, ...: Pois(k; mean), the rest (below 1e-18) put on the last."""
    count = 1
    while special.pdtrc(count, float(np.max(mean))) > 1e-18:
        count += 1
    k = np.arange(count + 1.0)[:, None]
    return np.exp(k * np.log(mean) - mean - special.gammaln(k + 1))


@lru_cache(maxsize=64)
def boxes(row_bound: float, ratio: float) -> Boxes:
    """Cells in l. A cell's bound is the larger of its ends plus the largest change over it and its neighbours.

    That is more than a function of bounded curvature can rise in between. The tails have the proved bounds.
    """
    top = pure_losses(row_bound, ratio)
    reach = 24 + 2 * max(top)
    end = math.asinh(reach / 2)
    nodes = 2 * np.sinh(np.linspace(-end, end, math.ceil(2 * end / RESOLUTION)))
    accept, reject = losses(nodes, row_bound, ratio)
    return Boxes(_cells(accept, top[0], left=top[0]), _cells(reject, top[1], right=top[1]))


def losses(log_ratio: np.ndarray, row_bound: float, ratio: float) -> tuple[np.ndarray, np.ndarray]:
    """A and R at each l."""
    differences = row_bound * np.cos(np.pi * np.arange(DIFFERENCES) / (DIFFERENCES - 1))
    parts = [log_chances(some, row_bound, ratio, differences) for some in np.array_split(log_ratio, 64)]
    accept, reject = (np.concatenate(part) for part in zip(*parts, strict=True))
    return _spread(accept), _spread(reject)


def _spread(values: np.ndarray) -> np.ndarray:
    return _maximum(values) + _maximum(-values)


def _maximum(values: np.ndarray) -> np.ndarray:
    """Row maximum of a smooth function known at Chebyshev points: the best node and the top of the parabola through
    it."""
    best = np.clip(np.argmax(values, axis=1), 1, values.shape[1] - 2)
    rows = np.arange(values.shape[0])
    before, at, after = (values[rows, best + shift] for shift in (-1, 0, 1))
    slope, bend = (after - before) / 2, before - 2 * at + after
    with np.errstate(divide="ignore", invalid="ignore"):
        top = np.where(bend < 0, at - slope**2 / (2 * bend), -np.inf)
        inside = np.abs(slope) <= -bend
    return np.maximum(np.max(values, axis=1), np.where(inside, top, -np.inf))


def _cells(values: np.ndarray, cap: float, left: float | None = None, right: float | None = None) -> np.ndarray:
    change = np.abs(np.diff(values))
    ends = np.maximum(values[1:], values[:-1])
    widened = np.minimum(cap, (ends + np.maximum.reduce([change, np.roll(change, 1), np.roll(change, -1)])) * (1 + SLACK))
    first = left if left is not None else values[0] * (1 + SLACK)
    last = right if right is not None else values[-1] * (1 + SLACK)
    return np.maximum(np.concatenate([[first], widened, [last]]), 1e-300)
