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

UNIFORM_SHARE = 0.01  # that both laws are mixed with before their divergence is computed
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


def symmetric_kl(draws: np.ndarray, cells: np.ndarray, bound: float, num_bins: int = 20) -> float:
    """The symmetric Kullback-Leibler divergence between draws in the plane and a law on a grid.

    Both are compared on num_bins x num_bins squares, each mixed with one per cent of the uniform
    law, so that no square is empty. Draws of the law itself have a divergence above 0, too.

    Args:
        draws: Shape (draws, 2), within the square of half the side `bound`.
        cells: The probabilities of a grid over that square, shape (points, points), a multiple of
            num_bins.
        bound: Half the side of the square.
        num_bins: Squares along each side.

    Returns:
        KL(p, q) + KL(q, p).

    Example:
        >>> import numpy as np
        >>> draws = np.random.default_rng(0).uniform(-1, 1, (4000, 2))
        >>> round(symmetric_kl(draws, np.full((4, 4), 1 / 16), 1.0, num_bins=2), 2)
        0.0
    """
    every = len(cells) // num_bins
    exact = np.asarray(cells, float).reshape(num_bins, every, num_bins, every).sum(axis=(1, 3))
    edges = np.linspace(-bound, bound, num_bins + 1)
    counts, _, _ = np.histogram2d(draws[:, 0], draws[:, 1], bins=(edges, edges))
    found, wanted = (
        (1 - UNIFORM_SHARE) * weights + UNIFORM_SHARE / num_bins**2
        for weights in (counts / max(1.0, counts.sum()), exact)
    )
    return float(np.sum((found - wanted) * np.log(found / wanted)))


def predictive_accuracy(draws: np.ndarray, features: np.ndarray, labels: np.ndarray) -> float:
    """The share of labels that the posterior predictive of a logistic regression finds.

    Args:
        draws: Coefficients, shape (draws, d), the intercept first where features has one column
            less.
        features: Shape (rows, d) or (rows, d - 1).
        labels: 0 or 1, shape (rows,).

    Returns:
        The share: a label of 1 is predicted where the mean over the draws of its probability is
        above one half.

    Example:
        >>> import numpy as np
        >>> features = np.array([[-1.0], [2.0]])
        >>> predictive_accuracy(np.array([[0.0, 1.0]]), features, np.array([0, 1]))
        1.0
    """
    if features.shape[1] < draws.shape[1]:
        features = np.column_stack([np.ones(len(features)), features])
    chances = np.mean(1 / (1 + np.exp(-features @ draws.T)), axis=1)
    return float(np.mean((chances > 0.5) == (labels > 0.5)))


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
