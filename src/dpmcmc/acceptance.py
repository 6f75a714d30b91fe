r"""Acceptance tests: the probability a(l) of accepting a move whose log-ratio is l.

A chain that accepts with probability a(l) keeps its target when  a(l) = exp(l) a(-l)  (then it is *reversible*):

    Metropolis     min(1, e^l)
    Barker         1 / (1 + e^-l)
    lazy Barker    k / (1 + e^-l),  0 < k <= 1: with probability 1 - k the rows are ignored and the move is rejected
    penalty        E min(1, e^(l + sZ - s^2/2)) = Phi(l/s - s/2) + e^l Phi(-l/s - s/2),  Z standard normal
                   :cite:p:`ceperley1999penalty`

Every method takes the array namespace and its special functions, NumPy and SciPy unless told otherwise, so the coin that
the curator tosses, the bill and the figures share one formula.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special as scipy_special


@dataclass(frozen=True)
class Metropolis:
    """Accepts with probability min(1, e^l). Its bit is **not private** at any price: rejections identify the rows."""

    def probability(self, log_ratio, xp: Any = np, special: Any = scipy_special):
        return xp.exp(xp.minimum(log_ratio, 0.0))


@dataclass(frozen=True)
class Barker:
    """Accepts with probability 1 / (1 + e^-l): private without any noise."""

    def probability(self, log_ratio, xp: Any = np, special: Any = scipy_special):
        return special.expit(log_ratio)

    def log_probabilities(self, log_ratio):
        """log a and log(1 - a), accurate in both tails (NumPy)."""
        return scipy_special.log_expit(log_ratio), scipy_special.log_expit(-np.asarray(log_ratio))


@dataclass(frozen=True)
class LazyBarker:
    """Barker's test behind a secret coin that ignores the rows with probability 1 - kappa."""

    kappa: float

    def __post_init__(self) -> None:
        if not 0 < self.kappa <= 1:
            raise ValueError(f"kappa={self.kappa} must lie in (0, 1]: it is the probability that the rows are looked at")

    def probability(self, log_ratio, xp: Any = np, special: Any = scipy_special):
        return self.kappa * special.expit(log_ratio)

    def log_probabilities(self, log_ratio):
        """log a and log(1 - a), accurate in both tails (NumPy)."""
        log_accept = np.log(self.kappa) + scipy_special.log_expit(log_ratio)
        # 1 - k e^l/(1+e^l) = (1 + (1-k) e^l) / (1 + e^l), a sum of positive terms: nothing cancels.
        rest = np.log1p(-self.kappa) if self.kappa < 1 else -np.inf
        log_reject = np.logaddexp(scipy_special.log_expit(-np.asarray(log_ratio)), rest + scipy_special.log_expit(log_ratio))
        return log_accept, log_reject


@dataclass(frozen=True)
class Penalty:
    """Metropolis' test on a ratio with Gaussian noise of standard deviation sigma, corrected by sigma^2 / 2."""

    sigma: float

    def __post_init__(self) -> None:
        if not self.sigma > 0:
            raise ValueError(f"sigma={self.sigma} must be positive: without noise the test is Metropolis', not private")

    def probability(self, log_ratio, xp: Any = np, special: Any = scipy_special):
        return penalty_probability(log_ratio, self.sigma, xp, special)

    def log_probabilities(self, log_ratio):
        """log a and log(1 - a), accurate in both tails (NumPy).

        With u, v = l/s -+ s/2 and the Mills ratio M(x) = (1 - Phi(x)) / phi(x):  1 - a = phi(u) (M(u) - M(v)).
        """
        log_ratio = np.asarray(log_ratio, float)
        log_reject = _log_mills_difference(log_ratio, self.sigma)
        # a(l) = e^l a(-l) and 1 - a(-l) is the other tail, so log a = log_ndtr-sum, which has only positive terms.
        u = log_ratio / self.sigma - self.sigma / 2
        v = log_ratio / self.sigma + self.sigma / 2
        log_accept = np.logaddexp(scipy_special.log_ndtr(u), log_ratio + scipy_special.log_ndtr(-v))
        return log_accept, log_reject


def penalty_probability(log_ratio, sigma, xp: Any = np, special: Any = scipy_special):
    """a(l) of the penalty test; sigma may be an array (the noise may follow the move)."""
    u = log_ratio / sigma - sigma / 2
    v = log_ratio / sigma + sigma / 2
    return xp.minimum(1.0, xp.exp(special.log_ndtr(u)) + xp.exp(log_ratio + special.log_ndtr(-v)))


def _log_mills_difference(log_ratio, sigma):
    u = log_ratio / sigma - sigma / 2
    v = u + sigma
    root_half = np.sqrt(0.5)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        mills = np.sqrt(np.pi / 2) * (scipy_special.erfcx(u * root_half) - scipy_special.erfcx(v * root_half))
        by_mills = -0.5 * u * u - 0.5 * np.log(2 * np.pi) + np.log(mills)
    # Far left erfcx overflows; there 1 - a is a plain number near 1.
    plain = np.log1p(-np.minimum(penalty_probability(log_ratio, sigma), 1 - 1e-16))
    return np.where(u > -5, by_mills, plain)


AcceptanceTest = Barker | LazyBarker | Penalty
