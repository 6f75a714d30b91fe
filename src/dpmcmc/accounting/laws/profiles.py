r"""Exact privacy profiles delta(epsilon) of single queries, for composition as privacy-loss
distributions.

For a pair of laws (P, Q) the profile is  delta(e) = sup_S P(S) - e^e Q(S).  It is kept as its
*excess* over two equal laws,

    delta(e) = max(0, 1 - e^e) + excess(e),

because the excess is small where the profile is near one, so that differences of it keep their
digits. Swapping the two laws gives  excess'(e) = e^e excess(-e).

    Gaussian, mu = 1/z                         Phi(-u) - e^e Phi(-u - mu),  u = e/mu - mu/2
    Poisson batch, one row added (P has it)    q delta_mu(log(1 + (e^e - 1)/q))
    fixed-size batch, one row replaced         the same for e >= 0, and its mirror image for e < 0
                                               :cite:p:`balle2018privacy`: bounds every pair of
                                               tables in both orders
    Poisson batch, one row replaced            (1-q) N(0, 1) + q N(+-mu/2, 1)
    rows drawn Poisson(q) times, weight w      sum_k Pois(k; q) N(k w, 1)  against  N(0, 1) or its
                                               mirror image

The pair (1-q) N(0,1) + q N(+-mu, 1) with the *full* sensitivity is valid for fixed-size batches as
well, and looser; with +-mu/2 it is not valid for them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy import special

from dpmcmc.acceptance import log_hockey_stick

TAIL_DEVIATIONS = 9.5  # a normal is further out with a chance of 1e-21
TAIL = 1e-21
SETTLED = 1e-5  # standard deviations: a Newton step this small leaves an error of about its square
BLOCK = 4096  # epsilons at a time: their terms stay in the processor's cache
SMALLEST_DELTA = 1e-10  # composed profiles prove nothing below: the Fourier sums are not that exact
# Of two mixtures: their losses are differences of logarithms that are right to some 1e-15
LEAST_SPREAD = 1e-12


class Profile(NamedTuple):
    """One order of the two tables."""

    excess: Callable[[np.ndarray], np.ndarray]  # of an increasing array of epsilons
    low: float  # losses below, and
    high: float  # above, have a chance of at most 1e-20
    spread: float  # about the standard deviation of the loss


class Pair(NamedTuple):
    """Both orders of the two tables."""

    forward: Profile
    backward: Profile


def swapped(profile: Profile) -> Profile:
    """The same pair of laws in the other order."""
    excess = lambda epsilons: np.exp(epsilons) * profile.excess(-epsilons[::-1])[::-1]  # noqa: E731
    return Profile(excess, -profile.high, -profile.low, profile.spread)


def symmetric(excess, high: float, spread: float) -> Pair:
    """A pair that is its own mirror image, from its excess for epsilon >= 0."""

    def both(epsilons: np.ndarray) -> np.ndarray:
        return np.exp(np.minimum(epsilons, 0.0)) * excess(np.abs(epsilons))

    profile = Profile(both, -high, high, spread)
    return Pair(profile, profile)


def gaussian(mu: float) -> Pair:
    """N(mu, 1) against N(0, 1)."""
    high = mu * mu / 2 + TAIL_DEVIATIONS * mu
    return symmetric(lambda epsilons: gaussian_delta(epsilons, mu), high, mu)


def gaussian_delta(epsilons: np.ndarray, mu: float) -> np.ndarray:
    """The Gaussian's delta at epsilons >= 0."""
    return np.exp(log_hockey_stick(epsilons / mu - mu / 2, mu))


def pure(epsilon: float) -> Pair:
    """Randomised response: losses +-epsilon."""

    def excess(epsilons: np.ndarray) -> np.ndarray:
        return -np.expm1(np.minimum(epsilons - epsilon, 0.0)) / (1 + math.exp(-epsilon))

    return symmetric(excess, max(epsilon, 1e-9), max(epsilon, 1e-9))


def fixed_size(rate: float, noise_multiplier: float) -> Pair:
    """A batch of fixed size without replacement; one row is replaced; noise over the full
    replacement sensitivity.
    """
    mu = 1 / noise_multiplier
    high = _amplified(mu * mu / 2 + TAIL_DEVIATIONS * mu, rate)
    return symmetric(
        lambda epsilons: rate * gaussian_delta(_base(epsilons, rate), mu), high, _width(rate, mu)
    )


def poisson_add_or_remove(rate: float, noise_multiplier: float) -> Pair:
    """(1-q) N(0, 1) + q N(mu, 1) against N(0, 1), and the other order."""
    mu = 1 / noise_multiplier
    if rate == 1:
        return gaussian(mu)

    def excess(epsilons: np.ndarray) -> np.ndarray:
        base = _base(np.maximum(epsilons, math.log1p(-rate)), rate)
        size = np.where(np.isfinite(base), np.abs(base), 0.0)
        values = rate * np.exp(np.minimum(base, 0.0)) * gaussian_delta(size, mu)
        return np.where(np.isfinite(base), values, 0.0)

    high = _amplified(mu * mu / 2 + TAIL_DEVIATIONS * mu, rate)
    # Where N(0, 1) ends: for the other order it is the upper end
    low = _amplified(-mu * mu / 2 - TAIL_DEVIATIONS * mu, rate)
    forward = Profile(excess, low, high, _width(rate, mu))
    return Pair(forward, swapped(forward))


def _base(epsilons: np.ndarray, rate: float) -> np.ndarray:
    """log(1 + (e^e - 1)/q): where the query on all rows has 1/q times this delta.

    Far below zero it is the logarithm of a small difference, which is right relative to its size as
    e^e - (1-q),  divided by q.
    """
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        change = np.expm1(np.minimum(epsilons, 30.0)) / rate
        small = np.log1p(np.maximum(change, -1.0))
        if rate < 1:
            difference = np.expm1(np.maximum(epsilons - math.log1p(-rate), 0.0))
            small = np.where(
                change < -0.5, np.log(difference) + math.log1p(-rate) - math.log(rate), small
            )
    return np.where(epsilons < 30, small, epsilons - math.log(rate))


def _amplified(epsilon: float, rate: float) -> float:
    if rate == 1:
        return epsilon
    return math.log1p(rate * math.expm1(epsilon)) if epsilon < 30 else epsilon + math.log(rate)


def _width(rate: float, mu: float) -> float:
    return min(mu, rate * math.sqrt(math.expm1(min(mu * mu, 700.0))))


@functools.lru_cache(maxsize=256)
def poisson_replace(rate: float, noise_multiplier: float) -> Pair:
    """(1-q) N(0, 1) + q N(+-mu/2, 1): mu/2 is what one row can contribute."""
    half = 0.5 / noise_multiplier
    return _mirrored(np.array([1 - rate, rate]), half * np.arange(2.0), 0.0)


@functools.lru_cache(maxsize=256)
def fixed_size_pair(rate: float, noise_multiplier: float) -> Pair:
    """(1-q) N(0, 1) + q N(+-mu, 1) with the full sensitivity: valid for fixed-size batches, looser
    than `fixed_size`.
    """
    return _mirrored(np.array([1 - rate, rate]), np.arange(2.0) / noise_multiplier, 0.0)


@functools.lru_cache(maxsize=256)
def poisson_mixture_replace(rate: float, shift: float) -> Pair:
    """sum_k Pois(k; q) N(k w, 1) against its mirror image."""
    weights, missing = _poisson(rate)
    return _mirrored(weights, shift * np.arange(weights.size), missing)


@functools.lru_cache(maxsize=256)
def poisson_mixture_add_or_remove(rate: float, shift: float) -> Pair:
    """sum_k Pois(k; q) N(k w, 1) against N(0, 1), and the other order."""
    weights, missing = _poisson(rate)
    forward = _mixtures(weights, shift * np.arange(weights.size), np.ones(1), np.zeros(1), missing)
    return Pair(forward, swapped(forward))


def _poisson(rate: float) -> tuple[np.ndarray, float]:
    """Chances of 0, 1, ...

    draws as far as they matter, and the chance of more, which is charged in full.
    """
    count = 1
    while special.pdtrc(count, rate) > TAIL:
        count += 1
    k = np.arange(count + 1.0)
    return np.exp(k * math.log(rate) - rate - special.gammaln(k + 1)), float(
        special.pdtrc(count, rate)
    )


def _mirrored(weights: np.ndarray, means: np.ndarray, missing: float) -> Pair:
    weights, means = weights[weights > 0], means[weights > 0]
    forward = _mixtures(weights, means, weights, -means, missing)

    def excess(epsilons: np.ndarray) -> np.ndarray:
        # A grid around zero has each size twice
        distinct, index = np.unique(epsilons, return_inverse=True)
        return forward.excess(distinct)[index]

    return symmetric(excess, forward.high, forward.spread)


def _mixtures(p_weights, p_means, q_weights, q_means, missing: float) -> Profile:
    """Two mixtures of unit normals, P's means to the right of Q's: the loss log(p/q) rises, so it
    can be inverted.
    """
    x = np.linspace(min(q_means) - TAIL_DEVIATIONS, max(p_means) + TAIL_DEVIATIONS, 20_001)
    loss, _ = _loss(x, p_weights, p_means, q_weights, q_means)
    inside = np.flatnonzero(_upper(x, p_weights, p_means) > TAIL)
    density = np.exp(_log_density(x, p_weights, p_means)[0])
    spread = max(
        LEAST_SPREAD, math.sqrt(np.trapezoid(density * np.minimum(np.abs(loss), 1e100) ** 2, x))
    )

    def above(epsilons: np.ndarray) -> np.ndarray:
        where = _invert(epsilons, x, loss, (p_weights, p_means, q_weights, q_means))
        return _upper(where, p_weights, p_means) - np.exp(epsilons) * _upper(
            where, q_weights, q_means
        )

    def below(epsilons: np.ndarray) -> np.ndarray:
        where = _invert(epsilons, x, loss, (p_weights, p_means, q_weights, q_means))
        reached = np.exp(epsilons) * _upper(-where, q_weights, -q_means) - _upper(
            -where, p_weights, -p_means
        )
        return np.where(epsilons > loss[0], reached, 0.0)

    def excess(epsilons: np.ndarray) -> np.ndarray:
        # What is missing of P is charged as an infinite loss. Below zero that is in the formula: 1
        # - e^e takes P for whole.
        first = int(np.searchsorted(epsilons, 0.0))
        sides = ((below, epsilons[:first]), (above, epsilons[first:]))
        parts = [
            side(block)
            for side, some in sides
            for block in np.array_split(some, 1 + some.size // BLOCK)
        ]
        return np.maximum(np.concatenate(parts), 0.0) + np.where(epsilons < 0, 0.0, missing)

    return Profile(excess, min(float(loss[0]), 0.0), max(float(loss[inside[-1]]), 0.0), spread)


def _upper(x: np.ndarray, weights: np.ndarray, means: np.ndarray) -> np.ndarray:
    return sum(weight * special.ndtr(mean - x) for weight, mean in zip(weights, means, strict=True))


def _log_density(
    x: np.ndarray, weights: np.ndarray, means: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """log-density, and the mean of the component means given x."""
    logs = np.log(weights)[:, None] - 0.5 * (x - means[:, None]) ** 2
    top = np.max(logs, axis=0)
    parts = np.exp(logs - top)
    total = np.sum(parts, axis=0)
    return top + np.log(total) - 0.5 * math.log(2 * math.pi), (means @ parts) / total


def _loss(x, p_weights, p_means, q_weights, q_means) -> tuple[np.ndarray, np.ndarray]:
    """log p(x)/q(x) and its derivative."""
    (log_p, mean_p), (log_q, mean_q) = (
        _log_density(x, p_weights, p_means),
        _log_density(x, q_weights, q_means),
    )
    return log_p - log_q, mean_p - mean_q


def _invert(epsilons: np.ndarray, x: np.ndarray, loss: np.ndarray, laws) -> np.ndarray:
    """Where the loss is epsilon: interpolation in a fine table, then Newton. An error of h costs
    only h^2 in delta.
    """
    where = np.interp(epsilons, loss, x)
    cell = x[1] - x[0]
    rest = np.arange(where.size)
    for _ in range(3):
        value, slope = _loss(where[rest], *laws)
        step = np.clip((epsilons[rest] - value) / np.maximum(slope, 1e-12), -cell, cell)
        where[rest] = np.clip(where[rest] + step, x[0], x[-1])
        rest = rest[np.abs(step) > SETTLED]
    return where
