r"""Radial noise: the law of its privacy loss, in closed form.

A sum in R^d whose l2 sensitivity is Delta is released with noise of density proportional to
exp(-epsilon |z| / Delta). Among all shifts of at most Delta one pair of laws is the worst: the
noise, and the noise shifted by Delta e, |e| = 1 (`docs/radial-noise.md` has the proof, for every
order of the divergence). The mechanism for one answer is that of
:cite:p:`joseph2025approximate`, and :cite:p:`wei2026asymptotic` compose a family with this noise
and the Gaussian in it. With Delta = 1 the loss is

    L = epsilon c,     c = |z - e| - |z|  in [-1, 1].

In prolate spheroidal coordinates, c and x = |z - e| + |z| with the foci 0 and e, the density of z
is exp(-epsilon (x - c) / 2), and the volume is proportional to

    (x^2 - c^2) ((x^2 - 1) (1 - c^2))^((d - 3) / 2) dx dc.

So x can be integrated out. With k = epsilon / 2 and c = cos(a) the law of the angle a is

    e^(k cos a) sin(a)^(d - 2) (q + sin(a)^2) da  /  N(k),    0 < a < pi,
    q = (d - 1) / k  *  K_(d/2)(k) / K_(d/2 - 1)(k),

where K are Bessel functions. For d = 1 (Laplace noise) q is 0, and each end has an atom, of
1/k e^(+-k) / N(k) instead. Swapping the two laws turns c into -c, so one order of the tables is
enough. Everything is a sum of positive terms over cells of angles, with Gauss-Legendre nodes in
each; cells are narrow near the largest loss, where delta is made. What rounding and quadrature can
lose is less than `ROUNDING` of the result, which is added.
"""

from __future__ import annotations

import functools
import math

import numpy as np
from scipy import special

from dpmcmc.accounting.laws import profiles, renyi

ROUNDING = 1e-11
NODES, WEIGHTS = np.polynomial.legendre.leggauss(8)
CELLS = 512
# Of angles up to a right one; they are narrow near 0, so that sums with large orders are right, too
EDGES = math.pi / 2 * np.linspace(0, 1, CELLS + 1) ** 2
MOST = 700.0  # a larger epsilon leaves the floating-point range


@functools.lru_cache(maxsize=256)
def pair(epsilon: float, dimension: int) -> profiles.Pair:
    """The noise against the noise moved by the sensitivity, exact."""
    if epsilon > MOST:
        return profiles.pure(epsilon)

    def excess(epsilons: np.ndarray) -> np.ndarray:
        sizes, index = np.unique(epsilons, return_inverse=True)
        return _deltas(sizes, epsilon, dimension)[index]

    return profiles.symmetric(excess, epsilon, _spread(epsilon, dimension))


def _deltas(epsilons: np.ndarray, epsilon: float, dimension: int) -> np.ndarray:
    """delta at increasing epsilons >= 0, from above: the integral of e^(y - x) P(L > x) over all
    x > y, from the largest loss downwards.
    """
    is_inside = epsilons < epsilon
    # acos(y / epsilon), right relative to its size
    wanted = 2 * np.arcsin(np.sqrt((epsilon - epsilons[is_inside]) / (2 * epsilon)))
    edges = np.union1d(EDGES, wanted)
    nodes, logs = _cells(edges, epsilon, dimension)
    log_total = _log_total(epsilon, dimension)
    chances = np.exp(logs + epsilon / 2 * np.cos(nodes) - log_total)
    atom = math.exp(epsilon / 2 - log_total) * _atom(epsilon, dimension)
    low = edges[1:]
    # From the lowest loss of a cell up to its highest, and up to the nodes
    height = epsilon * _cosine_gap(edges[:-1], low)
    rise = epsilon * _cosine_gap(nodes, low[:, None])
    above = atom + np.concatenate([[0.0], np.cumsum(np.sum(chances, axis=1))[:-1]])
    parts = above * -np.expm1(-height) - np.sum(chances * np.expm1(-rise), axis=1)
    losses = epsilon * np.cos(low)
    deltas = np.exp(losses) * np.cumsum(np.exp(-losses) * parts)
    result = np.zeros(epsilons.size)
    result[is_inside] = deltas[np.searchsorted(low, wanted)] * (1 + ROUNDING)
    return result


def rdp(epsilon: float, dimension: int, orders: np.ndarray) -> np.ndarray:
    """The Renyi divergence of each order, the same for both orders of the tables:

    (a - 1) D_a = log N((2 a - 1) k) / N(k), where N((2 a - 1) k) - N(k) is the integral of
    4 sinh(a k cos(x)) sinh((a - 1) k cos(x)), so that a small divergence keeps its digits.
    """
    if epsilon > MOST:
        return np.full(np.shape(orders), epsilon)
    losses, logs = _folded(epsilon, dimension)
    log_total = _log_total(epsilon, dimension)
    values = [
        special.logsumexp(logs + _log_sinh(a * losses / 2) + _log_sinh((a - 1) * losses / 2))
        for a in orders
    ]
    excess = np.array(values) + math.log(4) - log_total
    return np.minimum(np.logaddexp(0.0, excess) / (orders - 1) * (1 + ROUNDING), epsilon)


@functools.lru_cache(maxsize=4096)
def rho(epsilon: float, dimension: int) -> float:
    """The largest D_a / a, from above."""
    if epsilon > MOST:
        return epsilon**2 / 2
    at = lambda order: float(rdp(epsilon, dimension, np.array([order]))[0])  # noqa: E731
    return min(epsilon**2 / 2, renyi.largest_rate(at, epsilon))


def _spread(epsilon: float, dimension: int) -> float:
    """The root of the mean squared loss."""
    losses, logs = _folded(epsilon, dimension)
    chances = np.exp(logs + np.logaddexp(losses / 2, -losses / 2) - _log_total(epsilon, dimension))
    return math.sqrt(float(chances @ losses**2))


@functools.lru_cache(maxsize=64)
def _log_total(epsilon: float, dimension: int) -> float:
    """log N(k)."""
    losses, logs = _folded(epsilon, dimension)
    return float(special.logsumexp(logs + np.logaddexp(losses / 2, -losses / 2)))


@functools.lru_cache(maxsize=64)
def _folded(epsilon: float, dimension: int) -> tuple[np.ndarray, np.ndarray]:
    """The losses of all nodes, none negative, and the logarithms of their chances but for
    e^(+-loss / 2) / N(k), for the loss and its negative.
    """
    nodes, logs = _cells(EDGES, epsilon, dimension)
    losses = epsilon * np.cos(nodes).ravel()
    if dimension > 1:
        return losses, logs.ravel()
    return np.append(losses, epsilon), np.append(logs, math.log(_atom(epsilon, dimension)))


def _cells(edges: np.ndarray, epsilon: float, dimension: int) -> tuple[np.ndarray, np.ndarray]:
    """The angles of the nodes in each cell, and the logarithms of their chances but for
    e^(k cos a) / N(k).
    """
    half = np.diff(edges)[:, None] / 2
    nodes = edges[:-1, None] + half * (1 + NODES)
    sine = np.sin(nodes)
    ratio = _ratio(epsilon, dimension)
    # Divided by the larger of 1 and q, which may be very large
    factor = min(1.0, ratio) + sine**2 / max(1.0, ratio)
    return nodes, (dimension - 2) * np.log(sine) + np.log(factor) + np.log(half * WEIGHTS)


def _ratio(epsilon: float, dimension: int) -> float:
    """q, by K_(v+1) / K_v = 2 v / k + K_(v-1) / K_v, where nothing cancels."""
    if dimension == 1:
        return 0.0
    k = epsilon / 2
    order = dimension % 2 / 2  # 0 or 1/2, where it starts
    ratio = float(special.kve(order + 1, k) / special.kve(order, k))
    while order < dimension / 2 - 1:
        order += 1
        ratio = 2 * order / k + 1 / ratio
    return (dimension - 1) / k * ratio


def _atom(epsilon: float, dimension: int) -> float:
    """Of either end, but for e^(+-k) / N(k)."""
    return 2 / epsilon if dimension == 1 else 0.0


def _cosine_gap(small: np.ndarray, large: np.ndarray) -> np.ndarray:
    """cos(small) - cos(large)."""
    return 2 * np.sin((small + large) / 2) * np.sin((large - small) / 2)


def _log_sinh(values: np.ndarray) -> np.ndarray:
    """log sinh, of numbers that are positive."""
    return values + np.log(-np.expm1(-2 * values)) - math.log(2)
