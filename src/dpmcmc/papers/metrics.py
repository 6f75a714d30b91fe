r"""How far draws are from the exact posterior.

The maximum mean discrepancy is the distance between two laws in the space of a kernel, here
k(x, y) = exp(-|x - y|^2 / 2 w^2). It is estimated without bias, so the square may be negative:

    mmd^2 = mean_{i != j} k(x_i, x_j) + mean_{i != j} k(y_i, y_j) - 2 mean_{i, j} k(x_i, y_j),

and |mmd^2|^(1/2) is reported.

The width w belongs to the experiment, not to the draws (with a width of its own each, equal chains
would score differently): it is the median distance between the reference draws.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

MOST = 2000  # draws that are compared with the reference; of more, evenly spaced ones


def kernel_width(reference: np.ndarray) -> float:
    """The median distance between two draws of the reference, shape (draws, d)."""
    return float(
        np.sqrt(
            np.median(_squared_distances(reference, reference)[np.triu_indices(len(reference), 1)])
        )
    )


def mmd_from(reference: np.ndarray) -> Callable[[np.ndarray], float]:
    """The maximum mean discrepancy of draws, shape (draws, d), from these; some (2 / draws)^(1/2)
    if they have the same law.
    """
    width = kernel_width(reference)
    own = _mean_of_others(_kernel(reference, reference, width))

    def mmd(draws: np.ndarray) -> float:
        some = draws[np.linspace(0, len(draws) - 1, min(MOST, len(draws))).round().astype(int)]
        between = np.mean(_kernel(some, reference, width))
        return float(np.sqrt(abs(_mean_of_others(_kernel(some, some, width)) + own - 2 * between)))

    return mmd


def mean_error(draws: np.ndarray, reference: np.ndarray) -> float:
    """The distance between the mean of the draws and that of the reference."""
    return float(np.linalg.norm(np.mean(draws, axis=0) - np.mean(reference, axis=0)))


def width_ratio(draws: np.ndarray, reference: np.ndarray) -> float:
    """How many times as wide as the reference the draws are: the geometric mean over components, 0
    if one never moved.
    """
    return float(
        np.prod((np.std(draws, axis=0) / np.std(reference, axis=0)) ** (1 / reference.shape[1]))
    )


def _kernel(first: np.ndarray, second: np.ndarray, width: float) -> np.ndarray:
    return np.exp(-_squared_distances(first, second) / (2 * width**2))


def _squared_distances(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    first, second = (
        np.asarray(table, float) - np.mean(second, axis=0) for table in (first, second)
    )
    squares = [np.sum(table**2, axis=1) for table in (first, second)]
    return np.maximum(squares[0][:, None] + squares[1] - 2 * first @ second.T, 0.0)


def _mean_of_others(kernel: np.ndarray) -> float:
    """Of the pairs of two different draws."""
    count = len(kernel)
    return float((np.sum(kernel) - np.trace(kernel)) / (count * (count - 1)))
