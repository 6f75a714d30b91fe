r"""What one accept bit reveals, as a list of two-point boxes that covers every state of the chain.

The chain's log-ratio is some l on one table and l + Delta on its neighbour. The bit is then a coin
with chance a(l) or a(l + Delta) of "accept", and its two privacy losses are

    A(l) = log a(l + Delta) - log a(l)              when it is "accept",
    R(l) = log (1 - a(l)) - log (1 - a(l + Delta))  when it is "reject"
                                                    (in the other order of the tables).

A two-point pair is known by (A, R), and *any* pair of laws whose likelihood ratio stays within
[e^-R, e^A] reveals no more than that two-point pair: E_Q f(dP/dQ) of a convex f is largest when the
ratio sits at the ends. So a cell of values of l is covered by one box, its largest A and its
largest R. For Barker's and the penalty test a and 1 - a are log-concave, hence A falls and R rises
with l; for the lazy test R has one peak. Cells are thousandths wide, the two tails are one box
each, and the supremum over all l is bounded from above by a maximum over boxes.

The same goes for the bit of Barker's test on a minibatch, once the worst row for each l is found
(`minibatch`).
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import numpy as np

from dpmcmc.acceptance import AcceptanceTest, LazyBarker, Penalty
from dpmcmc.accounting.laws.renyi import largest_rate
from dpmcmc.errors import UnsupportedQuery

RESOLUTION = 2e-4  # width of a cell, relative to how fast a test varies there
ROUNDING = 1e-12  # relative widening of the losses, more than the logarithms can lose
MOST_ROUNDING = 0.01  # beyond, boxes are not worth their widening
LARGEST = 700.0  # e to this power is a float
TINY = 1e-300  # a loss of exactly zero on one side would leave the two-point pair undefined
# The penalty's right tail starts this many standard deviations out: further on its chances
# underflow
FARTHEST_DEVIATIONS = 36.0
SERIES = 0.01  # exponents below which a series is right to 1e-10
BLOCK = 64  # fine cells in a coarse one


class Boxes(NamedTuple):
    """Cells that cover all log-ratios: bounds of the loss of each outcome."""

    accept: np.ndarray  # largest loss of "accept" in the cell
    reject: np.ndarray  # largest loss of "reject", tables in the other order
    # Chance of "reject" to the right of the last cell, when that tail is not a cell
    beyond: float = 0.0
    # There: log-chance of "reject" on the first and second table
    edge: tuple[float, float] = (-math.inf, -math.inf)


@functools.lru_cache(maxsize=256)
def accept_boxes(test: AcceptanceTest, range: float) -> Boxes:
    """Boxes for the bit of `test` when the log-ratio moves by at most `range` (Delta above)."""
    if not is_resolved(test, range):
        raise UnsupportedQuery(
            f"a log-ratio that moves by {range:g} under {test} is too little to distinguish from "
            "rounding; use rdp or pure"
        )
    nodes, peak = _nodes(test, range)
    accept, at_nodes = _losses(test, range, nodes)
    first = at_nodes[:1]
    reject = np.maximum(at_nodes[:-1], at_nodes[1:])
    if isinstance(test, Penalty):
        edge = (
            float(test.log_probabilities(nodes[-1])[1]),
            float(test.log_probabilities(nodes[-1] + range)[1]),
        )
        accepts = [[range], accept[:-1]]
        rejects = [first, reject]
        return Boxes(*_widened(test, range, accepts, rejects), beyond=math.exp(edge[0]), edge=edge)
    last = [range] if peak == math.inf else at_nodes[-1:]
    return Boxes(*_widened(test, range, [[range], accept], [first, reject, last]))


def _widened(test: AcceptanceTest, range: float, accepts, rejects) -> tuple[np.ndarray, np.ndarray]:
    slack = 1 + ROUNDING + _rounding(test, range)
    return np.maximum(np.concatenate(accepts) * slack, TINY), np.maximum(
        np.concatenate(rejects) * slack, TINY
    )


def _rounding(test: AcceptanceTest, range: float) -> float:
    """What rounding may take off a loss, relative to it.

    A loss is a difference of logarithms, each right to some 1e-13, of the size of `range` (over
    sigma), and its two log-ratios are apart by `range` but for the last digit of the farther one.
    """
    low, high = _ends(test, range)
    sigma = max(1.0, test.sigma) if isinstance(test, Penalty) else 1.0
    return (ROUNDING * sigma + 2.0**-51 * max(-low, high)) / range


def is_resolved(test: AcceptanceTest, range: float) -> bool:
    """Whether boxes say anything of so small a range."""
    return _rounding(test, range) <= MOST_ROUNDING


def _nodes(test: AcceptanceTest, range: float) -> tuple[np.ndarray, float]:
    """Where cells end, and the peak of R, which is one of these nodes if it is finite: R is largest
    at an end of each cell.
    """
    scale = min(1.0, test.sigma) if isinstance(test, Penalty) else 1.0
    low, high = (math.asinh(end / (2 * scale)) for end in _ends(test, range))
    nodes = 2 * scale * np.sinh(np.linspace(low, high, math.ceil((high - low) / RESOLUTION)))
    peak = _reject_peak(test, range)
    return (nodes if peak == math.inf else np.union1d(nodes, peak)), peak


def _ends(test: AcceptanceTest, range: float) -> tuple[float, float]:
    # Left of -log(alpha (e^Delta - 1)) - 12 one box is enough for orders alpha up to 1e5; so on the
    # right, without noise.
    far = 24.0 + range
    right = (
        test.sigma**2 / 2 + FARTHEST_DEVIATIONS * test.sigma if isinstance(test, Penalty) else far
    )
    if isinstance(test, LazyBarker) and test.kappa < 1:
        right += -0.5 * math.log1p(-test.kappa)
    return -far, right


def _reject_peak(test: AcceptanceTest, range: float) -> float:
    """Where R is largest: nowhere but at infinity, unless the test is lazy."""
    if isinstance(test, LazyBarker) and test.kappa < 1:
        return -0.5 * math.log1p(-test.kappa) - range / 2
    return math.inf


def _losses(
    test: AcceptanceTest, range: float, log_ratio: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    low = test.log_probabilities(log_ratio)
    high = test.log_probabilities(log_ratio + range)
    return high[0] - low[0], low[1] - high[1]


def two_point(accept, reject) -> tuple[np.ndarray, np.ndarray]:
    """Chances (q, 1 - q) of "accept" and "reject" under Q for the pair whose losses are (accept,
    -reject).
    """
    up = np.expm1(accept)
    down = -np.expm1(-np.asarray(reject))
    return down / (up + down), up / (up + down)


def renyi(accept, reject, order: float) -> np.ndarray:
    """Renyi divergence of the two-point pair with these losses, the larger of its two directions.

    Infinite where a loss is beyond what a float can be the exponential of: a pure bound serves
    there.
    """
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        q, r = two_point(accept, reject)
        forward, backward = (
            _log_moment(q, r, accept, -reject, power) for power in (order, 1 - order)
        )
        return np.where(
            np.maximum(accept, reject) > LARGEST,
            math.inf,
            np.maximum(forward, backward) / (order - 1),
        )


def _log_moment(q, r, x, y, power: float):
    """log(q e^(p x) + r e^(p y)), where q e^x + r e^y = 1 = q + r; accurate near zero and where
    exponentials overflow.
    """
    if max(np.max(power * x), np.max(power * y)) < 30:
        return np.log1p(q * _excess(x, power) + r * _excess(y, power))
    return np.logaddexp(np.log(q) + power * x, np.log(r) + power * y)


def _excess(x, power: float):
    """e^(p x) - 1 - p (e^x - 1), which is not negative and of second order: by its series near
    zero, where terms cancel.
    """
    p = power
    near = np.clip(x, -SERIES / max(1.0, abs(power)), SERIES / max(1.0, abs(power)))
    terms = (
        1 + (p + 1) * near / 3 + (p**2 + p + 1) * near**2 / 12 + (p + 1) * (p**2 + 1) * near**3 / 60
    )
    return np.where(near == x, p * (p - 1) * near**2 / 2 * terms, np.expm1(p * x) - p * np.expm1(x))


def largest_renyi(boxes: Boxes, order: float) -> float:
    """An upper bound of the Renyi divergence over all log-ratios: coarse boxes first, fine ones
    only where they can win.
    """
    starts = np.arange(0, boxes.accept.size, BLOCK)
    coarse = renyi(
        np.maximum.reduceat(boxes.accept, starts), np.maximum.reduceat(boxes.reject, starts), order
    )
    best = _fine(boxes, starts[[int(np.argmax(coarse))]], order)
    return max(best, _fine(boxes, starts[coarse > best], order), _tail(boxes, order))


def _fine(boxes: Boxes, starts: np.ndarray, order: float) -> float:
    if starts.size == 0:
        return 0.0
    cells = np.minimum((starts[:, None] + np.arange(BLOCK)).ravel(), boxes.accept.size - 1)
    return float(np.max(renyi(boxes.accept[cells], boxes.reject[cells], order)))


def _tail(boxes: Boxes, order: float) -> float:
    """Right of the last cell of a penalty test.

    There R(l)^a R(l + Delta)^(1-a), R = 1 - a(l), falls once l > s^2/2 + (a-1) Delta (R is
    e^(-u^2/2) times a log-convex function of u), so its value at the edge bounds it; every other
    term of the sum of two is at most 1 + the tail's chance.
    """
    if boxes.beyond == 0:
        return 0.0
    return float(
        np.logaddexp(2 * boxes.beyond, order * boxes.edge[0] - (order - 1) * boxes.edge[1])
    ) / (order - 1)


def tail_reaches(test: AcceptanceTest, range: float, order: float) -> bool:
    """Whether the cells reach far enough to the right for this order (beyond it the Gaussian's
    bound is used).
    """
    return (
        not isinstance(test, Penalty)
        or (order - 1) * range <= (FARTHEST_DEVIATIONS - 12) * test.sigma
    )


@functools.lru_cache(maxsize=100_000)
def accept_rdp(test: AcceptanceTest, range: float, order: float) -> float:
    """The Renyi divergence of an accept bit: the supremum over log-ratios, from above."""
    cap = (
        order * range**2 / (2 * test.sigma**2)
        if isinstance(test, Penalty)
        else min(order * range**2 / 8, range)
    )
    if not (is_resolved(test, range) and tail_reaches(test, range, order)):
        return cap
    return min(cap, largest_renyi(accept_boxes(test, range), order))


@functools.lru_cache(maxsize=1_000)
def accept_rho(test: AcceptanceTest, range: float) -> float:
    """The smallest known rho of zero-concentrated privacy of an accept bit."""
    return largest_rate(lambda order: accept_rdp(test, range, order), range)
