r"""The accept bit of Barker's test on a TunaMH batch.

With b = c M the public bound of one row's energy difference d and x = n b / lambda, row i is kept K
times,

    K ~ Poisson(m),   m = b/x + (b - d)/2,

each time adding

    w = log((b/x + (b + d)/2) / (b/x + (b - d)/2))

to the log-ratio (TunaMH's thinning of Poisson((lambda + C M)/n) draws, C = n c). In terms of w,
with F(y) = 1/(1 + e^-y) and B = b (1 + 2/x): m = B F(-w), d = B tanh(w/2), and w lies in [-W, W],
W = log(1 + x).

Given the sum l of all other rows the chance of "accept" is  s(l, w) = E F(l + K w);  r = 1 - s. A
mixture over l reveals no more than the worst l, so the bit's losses are at most  A(l) = max_w log s
- min_w log s  and  R(l), the same for r. Four facts, with y = l + K w, e = e^w, t = F(w) = e/(1 +
e):

1. *s is smallest at w = -W, and largest at W or beyond log(1 + sqrt 2).* Its slope is  m E[F'(y +
   w) - t (F(y + w) - F(y))], positive for w < 0 and, where e (e - 1) <= e + 1, for every y. And s
   <= F(l) for w < 0, s >= F(l) for w > 0.
2. *Between two points of a grid of width h on [0, W]* log s is at most h^2/8 (17/8 B + 5 B^2) above
   the larger of its ends, and log r at most h^2/8 (B + B^2) below the smaller. For the second
   derivative of s is

       m   E[F''(y + w) - 2 t F'(y + w) + t (1 - 2t) (F(y) - F(y + w))]
     + m^2 E[F''(y + 2w) - 2 t (F'(y + 2w) - F'(y + w)) + t^2 (F(y + 2w) - 2 F(y + w) + F(y))],

   0 <= F' <= F,  -F/8 <= F'' <= F,  m F(y + w) <= B t F(y),  m = B (1 - t),  so it is at least
   -(17/8 B + 4 B^2) s, and the slope is at most B s. The same formula for r, whose F(-y) falls with
   y, is at most (B + 9/16 B^2) r.
3. *A falls with l and R rises*: the slope of log s in l is 1 less the mean of F(y) under the
   weights F(y), and y >= l for w > 0, y <= l for w = -W. So a cell of values of l is covered by A
   at its left end and R at its right end.
4. *Their limits* are  2 b  and  b (1 + x + g),  g = 1/(1+x) if x <= sqrt 2, else (1 + 2/x)(3 - 2
   sqrt 2).
5. *With many draws of each row it is Barker's bit on all rows, nearly.* Let D = w (K - m). By
   Taylor's formula, -F/8 <= F'' <= F,  and the slope of log F, which is at most 1,  s / F(l + m w)
   lies between 1 - eta/8 and 1 + eta,

       E[D^2 e^|D|]/2 <= eta = e^(v/2) v (1 + v),
       v = B F(W) W^2 e^W     (about  b x  for small x),

   and so does  r / F(-l - m w).  For E[D^2 e^(+-D)] is the second derivative of
   exp(m (e^(+-t w) - 1 -+ t w))  at t = 1. And  m w = B w F(-w)  rises with w up to 1.2, so it lies
   in an interval of length  B W (F(W) + F(-W)) = B W.  The losses are those of a log-ratio that
   moves by B W, and at most  eta + eta/(8 - eta)  more.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from scipy import special

from dpmcmc.acceptance import Barker
from dpmcmc.accounting.laws.bits import (
    MOST_ROUNDING,
    ROUNDING,
    TINY,
    Boxes,
    accept_boxes,
    is_resolved,
    largest_renyi,
)
from dpmcmc.accounting.laws.renyi import largest_rate

# Width of a cell in l, relative to how fast the bit varies there, without and with a search over w
FINE, COARSE = 2e-4, 5e-4
INNER = math.log1p(math.sqrt(2))  # s rises with w up to here
MISSED = 4e-4  # what a maximum over w may miss, relative to 2 b; made up for
FEWEST, MOST = 16, 256  # intervals of w
BLOCK = 16384  # chances at a time: they stay in the processor's cache
# Chance of more draws of one row than are followed up; they count as the worst there is
REST = 1e-22
FARTHEST, HUGE = 600.0, 1e300  # e to the one is a float, and so is the other
MANY = 1000.0  # mean draws of one row that are not added up any more


def pure_losses(bound: float, ratio: float) -> tuple[float, float]:
    """The suprema of the losses of "accept" and "reject"."""
    x = ratio
    g = 1 / (1 + x) if x <= math.sqrt(2) else (1 + 2 / x) * (3 - 2 * math.sqrt(2))
    return 2 * bound, bound * (1 + x + g)


def loss_range(bound: float, ratio: float) -> float:
    """The losses lie in an interval of this length, so the bit is (length^2 / 8)-zCDP."""
    return sum(pure_losses(bound, ratio))


@lru_cache(maxsize=64)
def boxes(bound: float, ratio: float, rounding: float = 0.0) -> Boxes:
    """Cells in l, the two tails included. `rounding` is added to every loss."""
    top = pure_losses(bound, ratio)
    scale, end = _scale_and_end(bound, ratio)
    if scale > MANY or _tilted_mean(scale, end) > MANY or _rounding(bound, scale) > MOST_ROUNDING:
        limits = np.array(top)[:, None]
        return Boxes(*np.minimum(_crowded(scale, end), limits) + rounding)
    width = FINE if end <= INNER else COARSE * max(1.0, 3 * scale)
    reach = math.asinh(min(FARTHEST, 24 + 2 * max(top)) / 2)
    nodes = 2 * np.sinh(np.linspace(-reach, reach, math.ceil(2 * reach / width)))
    accept, reject = losses(nodes, bound, ratio)
    return Boxes(np.append(top[0], accept) + rounding, np.append(reject, top[1]) + rounding)


def _crowded(scale: float, end: float) -> np.ndarray:
    """Bounds of the losses by fact 5, shape (2, cells); infinite where it gives none."""
    v = scale * special.expit(end) * end**2 * math.exp(end)
    eta = math.exp(v / 2) * v * (1 + v) if v < 1 else math.inf
    if end > INNER or eta >= 1 or not is_resolved(Barker(), scale * end):
        return np.full((2, 1), math.inf)
    cells = accept_boxes(Barker(), scale * end)
    return np.stack([cells.accept, cells.reject]) + eta + eta / (8 - eta)


def losses(log_ratio: np.ndarray, bound: float, ratio: float) -> tuple[np.ndarray, np.ndarray]:
    """Upper bounds of A and R at each l."""
    scale, end = _scale_and_end(bound, ratio)
    weights, missed = _weights(bound, scale, end)
    parts = [
        _highest(some, weights, scale)
        for some in np.array_split(log_ratio, 1 + log_ratio.size * weights.size // BLOCK)
    ]
    accept, reject = (np.concatenate(part) for part in zip(*parts, strict=True))
    high = _logarithms(accept * math.exp(missed[0]), reject * math.exp(-missed[1]))
    low = _logarithms(*_lowest(log_ratio, scale, end))
    slack = 1 + _rounding(bound, scale)
    most = pure_losses(bound, ratio)
    return np.clip((high[0] - low[0]) * slack, TINY, most[0]), np.clip(
        (low[1] - high[1]) * slack, TINY, most[1]
    )


def _rounding(bound: float, scale: float) -> float:
    """What rounding may take off a loss, relative to it.

    The logarithms are right to some 1e-13 of the rarer chance, more with many draws; the losses are
    of the size of bound.
    """
    return ROUNDING + (1 + scale) * ROUNDING / bound


def _scale_and_end(bound: float, ratio: float) -> tuple[float, float]:
    """B and W."""
    return bound * (1 + 2 / ratio), math.log1p(ratio)


def _weights(bound: float, scale: float, end: float) -> tuple[np.ndarray, tuple[float, float]]:
    """Values of w, and how far log s may rise and log r may fall between them (fact 2)."""
    if end <= INNER:
        return np.array([end]), (0.0, 0.0)
    accept = 17 / 8 * scale + 5 * scale**2
    reject = scale + scale**2
    count = (end - INNER) / math.sqrt(8 * MISSED * 2 * bound / accept)
    weights, width = np.linspace(INNER, end, 2 + int(np.clip(count, FEWEST, MOST)), retstep=True)
    return weights, (accept * width**2 / 8, reject * width**2 / 8)


def _highest(
    log_ratio: np.ndarray, weights: np.ndarray, scale: float
) -> tuple[np.ndarray, np.ndarray]:
    """s and r where s is largest among the weights; s from above, r from below."""
    mean = scale * special.expit(-weights)
    count = _count(float(np.max(mean)))
    accept, reject = _chances(log_ratio, weights, mean, count)
    best = np.argmax(accept / reject, axis=1)
    at = np.arange(log_ratio.size), best
    return accept[at] + special.pdtrc(count, mean)[best], reject[at]


def _lowest(log_ratio: np.ndarray, scale: float, end: float) -> tuple[np.ndarray, np.ndarray]:
    """s and r at w = -W; s from below, r from above."""
    mean = np.array([scale * special.expit(end)])
    count = _count(_tilted_mean(scale, end))
    accept, reject = _chances(log_ratio, np.array([-end]), mean, count)
    return accept[:, 0], reject[:, 0] + special.pdtrc(count, mean[0])


def _tilted_mean(scale: float, end: float) -> float:
    """The mean of K at w = -W under the weights e^(K W), which "reject" has far to the right."""
    return scale * special.expit(end) * math.exp(end)


def _count(mean: float) -> int:
    """More draws than this have a chance below REST."""
    count = math.ceil(mean)
    while special.pdtrc(count, mean) > REST:
        count += 1
    return count


def _chances(
    log_ratio: np.ndarray, weights: np.ndarray, mean: np.ndarray, count: int
) -> tuple[np.ndarray, np.ndarray]:
    """s and r from at most `count` draws of the row: shape (log_ratio.size, weights.size)."""
    accept, reject = np.zeros((2, log_ratio.size, weights.size))
    odds = np.exp(-log_ratio)[:, None]
    for k in range(count + 1):
        with np.errstate(over="ignore"):
            against = np.minimum(odds * np.exp(-k * weights), HUGE)
        chance = np.exp(k * np.log(mean) - mean - special.gammaln(k + 1)) / (1 + against)
        accept += chance
        against *= chance
        reject += against
    return accept, reject


def _logarithms(accept: np.ndarray, reject: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """log s and log r, each from the rarer of the two."""
    is_rare = accept < 0.5
    rarer = np.where(is_rare, accept, reject)
    rare = np.log(rarer)
    other = np.log1p(-rarer)
    return np.where(is_rare, rare, other), np.where(is_rare, other, rare)


@lru_cache(maxsize=100_000)
def accept_rdp(bound: float, ratio: float, rounding: float, order: float) -> float:
    """The Renyi divergence of an accept bit on a minibatch, from above."""
    return largest_renyi(boxes(bound, ratio, rounding), order)


@lru_cache(maxsize=1_000)
def accept_rho(bound: float, ratio: float, rounding: float) -> float:
    """The smallest known rho of zero-concentrated privacy of that bit."""
    most = max(pure_losses(bound, ratio)) + rounding
    return largest_rate(lambda order: accept_rdp(bound, ratio, rounding, order), most)
