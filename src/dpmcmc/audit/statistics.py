"""Statistics of an answer, from which an attacker guesses which of two tables it is about.

Each event of an attack says that one of these statistics is above a threshold.

In this module `first` and `second` are the answers about the two tables, of shape (answers,
entries).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

# Both are for entries that were scaled to variance 1, over the answers about both tables together
MAX_STANDARDIZED = 1e100  # larger values are clipped
MIN_VARIANCE = 1e-6  # is added to each variance, so that none is 0


def learn_statistics(first: np.ndarray, second: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Learn statistics from these answers.

    The result is a function from answers to the values of each statistic, in increasing order. The
    statistics are

    - three statistics of location and shape;
    - how often the answer's exact value was seen in `first`, over how often it was seen in
      `second`, as a logarithm;
    - the same ratio for the first and the last bit of the answer;
    - the negative of each of these five.
    """
    location_and_shape = _location_and_shape(first, second)
    of_values = _frequency_ratio(first, second)
    of_bits = _frequency_ratio(_first_and_last_bits(first), _first_and_last_bits(second))

    def statistics(answers: np.ndarray) -> np.ndarray:
        bits = _first_and_last_bits(answers)
        values = np.sort([*location_and_shape(answers), of_values(answers), of_bits(bits)])
        return np.concatenate([values, -values[:, ::-1]])

    return statistics


def _location_and_shape(
    first: np.ndarray, second: np.ndarray
) -> Callable[[np.ndarray], list[np.ndarray]]:
    """Three statistics, computed from standardized answers.

    They are Fisher's linear discriminant, the squared distance from the common mean, and the
    quadratic discriminant. The last is the squared Mahalanobis distance to the answers about the
    second table, minus that to the answers about the first.
    """
    standardized = _standardizer(first, second)
    both = [standardized(first), standardized(second)]
    means = [np.mean(answers, axis=0) for answers in both]
    direction = np.linalg.pinv(_covariance(np.concatenate(both))) @ (means[0] - means[1])
    precisions = [
        np.linalg.inv(_regularized(_covariance(answers), len(answers))) for answers in both
    ]

    def statistics(answers: np.ndarray) -> list[np.ndarray]:
        points = standardized(answers)
        to_first, to_second = (
            np.sum((points - mean) @ precision * (points - mean), axis=1)
            for mean, precision in zip(means, precisions, strict=True)
        )
        return [points @ direction, np.sum(points**2, axis=1), to_second - to_first]

    return statistics


def _standardizer(first: np.ndarray, second: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """A function that shifts and scales each entry of an answer.

    After it, each entry of `first` and `second` together has mean 0 and variance 1. An entry that
    is the same in all these answers becomes 0.
    """
    both = np.concatenate([first, second])
    # Scaling by powers of two does not round, and squares then do not overflow
    exponents = np.frexp(np.max(np.abs(both), axis=0))[1]
    # Subtracting the first answer makes entries that never change exactly zero
    origin = np.ldexp(first[0], -exponents)
    both = np.ldexp(both, -exponents) - origin
    scale = np.std(both, axis=0)
    scale[scale == 0] = 1.0
    middle = np.mean(both, axis=0) / scale

    def standardized(answers: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore"):
            return np.clip(
                (np.ldexp(answers, -exponents) - origin) / scale - middle,
                -MAX_STANDARDIZED,
                MAX_STANDARDIZED,
            )

    return standardized


def _covariance(answers: np.ndarray) -> np.ndarray:
    return np.atleast_2d(np.cov(answers, rowvar=False))


def _regularized(covariance: np.ndarray, num_answers: int) -> np.ndarray:
    """The covariance matrix, changed a little so that it can always be inverted.

    Without the change it is singular if an entry is constant, or if there are more entries than
    answers. Variances are increased by `MIN_VARIANCE`, and covariances are shrunk towards 0.
    """
    shrinkage = num_answers / (num_answers + np.count_nonzero(np.diag(covariance)))
    is_variance = np.eye(len(covariance)) == 1
    return np.where(is_variance, covariance + MIN_VARIANCE, shrinkage * covariance)


def _frequency_ratio(first: np.ndarray, second: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """A function from answers to a log-ratio of frequencies.

    For each entry of an answer it takes how often that exact value was seen in `first`, over how
    often it was seen in `second`, and adds up the logarithms over the entries. A value that was
    seen in neither contributes 0.
    """
    learned = [_log_frequency_ratios(*columns) for columns in zip(first.T, second.T, strict=True)]

    def log_ratio(answers: np.ndarray) -> np.ndarray:
        total = np.zeros(len(answers))
        for column, (values, log_ratios) in zip(answers.T, learned, strict=True):
            place = np.searchsorted(values, column)
            total += np.where(values[place] == column, log_ratios[place], 0.0)
        return total

    return log_ratio


def _log_frequency_ratios(first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For one entry: the different values, in increasing order, and the log-ratio of each.

    One half is added to each count, so that no logarithm is infinite. The last value is infinity,
    with log-ratio 0, so that a search among the values always finds a place.
    """
    values, places, counts = np.unique(
        np.concatenate([first, second]), return_inverse=True, return_counts=True
    )
    in_first = np.bincount(places[: len(first)], minlength=len(values))
    in_second = counts - in_first
    log_ratios = np.log((in_first + 0.5) / (in_second + 0.5))
    return np.append(values, np.inf), np.append(log_ratios, 0.0)


def _first_and_last_bits(answers: np.ndarray) -> np.ndarray:
    """The numbers with all bits of the mantissa cleared except the first and the last that are set.

    The first bit shows how large a number is. The last shows on how fine a grid it lies.
    """
    mantissas, exponents = np.frexp(answers)
    bits = np.abs(np.ldexp(mantissas, 53)).astype(np.int64)
    return np.ldexp(np.sign(mantissas) * (2**52 | bits & -bits), exponents - 53)
