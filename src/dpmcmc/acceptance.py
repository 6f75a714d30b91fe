r"""Acceptance tests: the probability a(l) of accepting a move whose log-ratio is l.

A chain that accepts with probability a(l) keeps its target when  a(l) = exp(l) a(-l)  (then it is
*reversible*):

    Metropolis     min(1, e^l)
    Barker         1 / (1 + e^-l)
    lazy Barker    k / (1 + e^-l),  0 < k <= 1: with probability 1 - k
                   the rows are ignored and the move is rejected
    penalty        E min(1, e^(l + sZ - s^2/2)) = Phi(l/s - s/2) + e^l Phi(-l/s - s/2),
                   Z standard normal
                   :cite:p:`ceperley1999penalty`

`probability` takes the array namespace and its special functions, NumPy and SciPy by
default: the baselines' coins, the bill and the figures share one formula. (Private bits are
made by a comparison that has this probability: `curator.queries.accept`.)
"""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special as scipy_special


@dataclass(frozen=True)
class Metropolis:
    """Accepts with probability min(1, e^l).

    Its bit is **not private** at any epsilon: rejections identify the rows.

    Example:
        >>> from dpmcmc import Metropolis
        >>> float(Metropolis().probability(1.0))
        1.0
    """

    def probability(self, log_ratio: Any, xp: Any = np, special: Any = scipy_special) -> Any:
        """The probability of accepting a move.

        Args:
            log_ratio: The log-ratio of the move, a number or an array.
            xp: The array namespace, NumPy or `jax.numpy`.
            special: Its special functions, `scipy.special` or `jax.scipy.special`.

        Returns:
            The probability, of the shape of `log_ratio`.
        """
        return xp.exp(xp.minimum(log_ratio, 0.0))


@dataclass(frozen=True)
class Barker:
    """Accepts with probability 1 / (1 + e^-l): private without any noise.

    Example:
        >>> from dpmcmc import Barker
        >>> float(Barker().probability(0.0))
        0.5
    """

    def probability(self, log_ratio: Any, xp: Any = np, special: Any = scipy_special) -> Any:
        """The probability of accepting a move.

        Args:
            log_ratio: The log-ratio of the move, a number or an array.
            xp: The array namespace, NumPy or `jax.numpy`.
            special: Its special functions, `scipy.special` or `jax.scipy.special`.

        Returns:
            The probability, of the shape of `log_ratio`.
        """
        return special.expit(log_ratio)

    def log_probabilities(self, log_ratio: Any) -> tuple[Any, Any]:
        """log a and log(1 - a), accurate in both tails (NumPy).

        Args:
            log_ratio: The log-ratio of the move, a number or an array.

        Returns:
            The logarithms of the probabilities of accepting and of rejecting.
        """
        return scipy_special.log_expit(log_ratio), scipy_special.log_expit(-np.asarray(log_ratio))


@dataclass(frozen=True)
class LazyBarker:
    """Barker's test behind a secret coin that ignores the rows with probability 1 - kappa.

    Attributes:
        kappa: The probability, in (0, 1], that the rows are read.

    Raises:
        ValueError: kappa is outside (0, 1].

    Example:
        >>> from dpmcmc import LazyBarker
        >>> float(LazyBarker(0.5).probability(0.0))
        0.25
    """

    kappa: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "kappa", _number("kappa", self.kappa))
        if not 0 < self.kappa <= 1:
            raise ValueError(
                f"kappa={self.kappa} must lie in (0, 1]: it is the probability that the rows are "
                "read"
            )

    def probability(self, log_ratio: Any, xp: Any = np, special: Any = scipy_special) -> Any:
        """The probability of accepting a move.

        Args:
            log_ratio: The log-ratio of the move, a number or an array.
            xp: The array namespace, NumPy or `jax.numpy`.
            special: Its special functions, `scipy.special` or `jax.scipy.special`.

        Returns:
            The probability, of the shape of `log_ratio`.
        """
        return self.kappa * special.expit(log_ratio)

    def log_probabilities(self, log_ratio: Any) -> tuple[Any, Any]:
        """log a and log(1 - a), accurate in both tails (NumPy).

        Args:
            log_ratio: The log-ratio of the move, a number or an array.

        Returns:
            The logarithms of the probabilities of accepting and of rejecting.
        """
        log_accept = np.log(self.kappa) + scipy_special.log_expit(log_ratio)
        # 1 - k e^l/(1+e^l) = (1 + (1-k) e^l) / (1 + e^l), a sum of positive terms: nothing cancels.
        rest = np.log1p(-self.kappa) if self.kappa < 1 else -np.inf
        log_reject = np.logaddexp(
            scipy_special.log_expit(-np.asarray(log_ratio)),
            rest + scipy_special.log_expit(log_ratio),
        )
        return _sharpened(log_accept, log_reject)


@dataclass(frozen=True)
class Penalty:
    """Metropolis' test on a ratio with Gaussian noise, corrected by half of the noise's variance.

    Attributes:
        sigma: The standard deviation of the noise.

    Raises:
        ValueError: sigma is not positive.

    Example:
        >>> from dpmcmc import Penalty
        >>> round(float(Penalty(1.0).probability(0.0)), 3)
        0.617
    """

    sigma: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "sigma", _number("sigma", self.sigma))
        if not self.sigma > 0:
            raise ValueError(
                f"sigma={self.sigma} must be positive: without noise the test is Metropolis', not "
                "private"
            )

    def probability(self, log_ratio: Any, xp: Any = np, special: Any = scipy_special) -> Any:
        """The probability of accepting a move.

        Args:
            log_ratio: The log-ratio of the move, a number or an array.
            xp: The array namespace, NumPy or `jax.numpy`.
            special: Its special functions, `scipy.special` or `jax.scipy.special`.

        Returns:
            The probability, of the shape of `log_ratio`.
        """
        return penalty_probability(log_ratio, self.sigma, xp, special)

    def log_probabilities(self, log_ratio: Any) -> tuple[Any, Any]:
        """log a and log(1 - a), accurate in both tails (NumPy).

        For l >= 0 the rejection probability is a hockey-stick divergence of two normals, computed
        without cancellation; for l < 0 reversibility gives  1 - a(l) = (1 - e^l) + e^l (1 - a(-l)),
        a sum of positive terms.

        Args:
            log_ratio: The log-ratio of the move, a number or an array.

        Returns:
            The logarithms of the probabilities of accepting and of rejecting.
        """
        log_ratio = np.asarray(log_ratio, float)
        size = np.abs(log_ratio)
        log_reject = log_hockey_stick(size / self.sigma - self.sigma / 2, self.sigma)
        with np.errstate(divide="ignore"):
            mirrored = np.logaddexp(np.log(-np.expm1(-size)), log_reject - size)
        u = log_ratio / self.sigma - self.sigma / 2
        v = log_ratio / self.sigma + self.sigma / 2
        log_accept = np.logaddexp(scipy_special.log_ndtr(u), log_ratio + scipy_special.log_ndtr(-v))
        return _sharpened(log_accept, np.where(log_ratio < 0, mirrored, log_reject))


def penalty_probability(
    log_ratio: Any, sigma: Any, xp: Any = np, special: Any = scipy_special
) -> Any:
    """a(l) of the penalty test; sigma may be an array, since noise may depend on the move."""
    u = log_ratio / sigma - sigma / 2
    v = log_ratio / sigma + sigma / 2
    return xp.minimum(1.0, xp.exp(special.log_ndtr(u)) + xp.exp(log_ratio + special.log_ndtr(-v)))


def _number(name: str, value: Any) -> float:
    if not isinstance(value, numbers.Real):
        raise TypeError(f"{name}={value!r} must be a plain number: give float({name})")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ValueError(f"{name}={value} must be finite")
    return number


def _sharpened(log_accept, log_reject):
    """Both logarithms with a small relative error.

    One that is near zero is computed from the other: it is about minus the other outcome's small
    probability.
    """
    likely_accept = np.log1p(-np.exp(np.minimum(log_reject, -0.5)))
    likely_reject = np.log1p(-np.exp(np.minimum(log_accept, -0.5)))
    return np.where(log_reject < -1, likely_accept, log_accept), np.where(
        log_accept < -1, likely_reject, log_reject
    )


# Gauss quadrature with 7 points is exact to 1e-17 up to the first width, with 4 up to the second
NARROW = 0.5
NARROWER = 0.05
GAUSS = {number: np.polynomial.legendre.leggauss(number) for number in (4, 7)}


def log_hockey_stick(u, width):
    """log of  Phi(-u) - e^(w (u + w/2)) Phi(-u - w),  for u >= -w/2, to near machine precision.

    It is phi(u) (M(u) - M(u + w)) with the Mills ratio M(x) = (1 - Phi(x)) / phi(x). A narrow
    difference of M is the integral of -M'(t) = 1 - t M(t), so nothing cancels however small w is.
    """
    u = np.asarray(u, float)
    if width > NARROW:
        ratio = scipy_special.erfcx((u + width) * ROOT_HALF) / scipy_special.erfcx(u * ROOT_HALF)
        return scipy_special.log_ndtr(-u) + np.log1p(-ratio)
    nodes, weights = GAUSS[7 if width > NARROWER else 4]
    decreases = _mills_decrease(u[..., None] + width * (nodes + 1) / 2) @ (weights / 2)
    return np.log(width) - 0.5 * u * u - 0.5 * np.log(2 * np.pi) + np.log(decreases)


ROOT_HALF = np.sqrt(0.5)
ROOT_HALF_PI = np.sqrt(np.pi / 2)
FAR = 20.0  # from here the asymptotic series below is exact to 1e-18
SERIES = np.cumprod(np.concatenate([[1.0], -np.arange(3.0, 27.0, 2.0)]))  # (-1)^j (2j + 1)!!


def _mills_decrease(t):
    """-M'(t) = 1 - t M(t) = sum_j (-1)^j (2j + 1)!! / t^(2j + 2) as t grows."""
    is_far = t >= FAR
    if not is_far.any():
        return _near_decrease(t)
    far = t[is_far] ** -2.0
    decreases = np.empty_like(t)
    decreases[is_far] = far * np.polynomial.polynomial.polyval(far, SERIES)
    decreases[~is_far] = _near_decrease(t[~is_far])
    return decreases


def _near_decrease(t):
    return 1 - t * (ROOT_HALF_PI * scipy_special.erfcx(t * ROOT_HALF))


AcceptanceTest = Barker | LazyBarker | Penalty
