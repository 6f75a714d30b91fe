"""Comparisons with a stated false-alarm rate."""

from __future__ import annotations

import numpy as np
from scipy import special, stats


def moment_z_scores(chains: np.ndarray, mean: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    """t-scores of the first and second moments of independent chains (chains, steps, d) against the
    exact ones.

    The averages of different chains are independent and nearly normal, so each score has Student's
    law with chains - 1 degrees of freedom when the chains are stationary.
    """
    centred = chains - mean
    d = centred.shape[-1]
    products = [
        centred[..., i] * centred[..., j] - covariance[i, j] for i in range(d) for j in range(i + 1)
    ]
    statistics = np.stack([*np.moveaxis(centred, -1, 0), *products], axis=-1).mean(axis=1)
    return statistics.mean(axis=0) / (statistics.std(axis=0, ddof=1) / np.sqrt(len(statistics)))


def threshold(num_scores: int, num_chains: int, family_rate: float = 1e-3) -> float:
    """The |t| that none of `num_scores` exceeds but with probability `family_rate`."""
    return float(stats.t(num_chains - 1).isf(family_rate / num_scores / 2))


def effective_size(chains: np.ndarray) -> float:
    """The smallest bulk effective sample size of any component."""
    import arviz

    data = arviz.convert_to_dataset({"x": chains})
    return float(arviz.ess(data).x.min())


def accept_probability(log_ratio, variance, correction, xp=np, special=special):
    """P(log_ratio + N(0, variance) + V > 0), V a `Correction`: what DP Barker's bit has, given the
    batch.
    """
    root, distance = xp.sqrt(variance), xp.abs(log_ratio)
    # The unlikelier outcome: its terms are small, and so are their roundings.
    unlikely = sum(
        weight
        / 2
        * (special.ndtr((atom - distance) / root) + special.ndtr((-atom - distance) / root))
        for atom, weight in correction.atoms
    )
    return xp.where(log_ratio > 0, 1 - unlikely, unlikely)
