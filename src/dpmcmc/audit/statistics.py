"""Statistics of an answer by which an attacker decides between two tables.

An event is that one of them exceeds a threshold.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

# Of an entry whose variance is 1 in both tables' answers together
MAX_STANDARDIZED = 1e100
MIN_VARIANCE = 1e-6


def learn_statistics(first: np.ndarray, second: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """A function from answers to the sorted values of each statistic, learned from these answers.

    The statistics are three of location and shape; the log-ratio of the frequencies, under the
    first table and under the second, of the answer's exact values; the same of their first and last
    bits; and the negatives of all.
    """
    location_and_shape = _location_and_shape(first, second)
    of_values = _frequency_ratio(first, second)
    of_bits = _frequency_ratio(_first_and_last_bits(first), _first_and_last_bits(second))

    def statistics(table: np.ndarray) -> np.ndarray:
        bits = _first_and_last_bits(table)
        values = np.sort([*location_and_shape(table), of_values(table), of_bits(bits)])
        return np.concatenate([values, -values[:, ::-1]])

    return statistics


def _location_and_shape(
    first: np.ndarray, second: np.ndarray
) -> Callable[[np.ndarray], list[np.ndarray]]:
    """Fisher's linear discriminant; the squared distance from the common mean; and the quadratic
    discriminant: the difference of squared Mahalanobis distances to the two tables' answers.
    """
    standardized = _standardizer(first, second)
    parts = [standardized(first), standardized(second)]
    means = [np.mean(part, axis=0) for part in parts]
    direction = np.linalg.pinv(_covariance(np.concatenate(parts))) @ (means[0] - means[1])
    precisions = [np.linalg.inv(_regularized(_covariance(part), len(part))) for part in parts]

    def statistics(table: np.ndarray) -> list[np.ndarray]:
        points = standardized(table)
        to_first, to_second = (
            np.sum((points - mean) @ precision * (points - mean), axis=1)
            for mean, precision in zip(means, precisions, strict=True)
        )
        return [points @ direction, np.sum(points**2, axis=1), to_second - to_first]

    return statistics


def _standardizer(first: np.ndarray, second: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Shifts and scales entries so that these answers have mean 0 and variance 1, or are 0 where
    they are all equal.
    """
    both = np.concatenate([first, second])
    # Powers of two lose no digit, and keep squares within floating point
    exponents = np.frexp(np.max(np.abs(both), axis=0))[1]
    # Entries that never change become exactly zero
    origin = np.ldexp(first[0], -exponents)
    both = np.ldexp(both, -exponents) - origin
    scale = np.std(both, axis=0)
    scale[scale == 0] = 1.0
    middle = np.mean(both, axis=0) / scale

    def standardized(table: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore"):
            return np.clip(
                (np.ldexp(table, -exponents) - origin) / scale - middle,
                -MAX_STANDARDIZED,
                MAX_STANDARDIZED,
            )

    return standardized


def _covariance(part: np.ndarray) -> np.ndarray:
    return np.atleast_2d(np.cov(part, rowvar=False))


def _regularized(covariance: np.ndarray, num_answers: int) -> np.ndarray:
    """A covariance that can be inverted even if entries are constant, or outnumber the answers."""
    shrinkage = num_answers / (num_answers + np.count_nonzero(np.diag(covariance)))
    is_variance = np.eye(len(covariance)) == 1
    return np.where(is_variance, covariance + MIN_VARIANCE, shrinkage * covariance)


def _frequency_ratio(first: np.ndarray, second: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """The sum over entries of the log-ratio of a value's frequencies under the two tables."""
    ratios = [_log_frequency_ratios(*columns) for columns in zip(first.T, second.T, strict=True)]

    def log_ratio(table: np.ndarray) -> np.ndarray:
        total = np.zeros(len(table))
        for column, (values, logs) in zip(table.T, ratios, strict=True):
            place = np.searchsorted(values, column)
            total += np.where(values[place] == column, logs[place], 0.0)
        return total

    return log_ratio


def _log_frequency_ratios(one: np.ndarray, other: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The sorted values with infinity at the end, and the log-ratio of each value's frequencies."""
    values, places, counts = np.unique(
        np.concatenate([one, other]), return_inverse=True, return_counts=True
    )
    ones = np.bincount(places[: len(one)], minlength=len(values))
    return np.append(values, np.inf), np.append(np.log((ones + 0.5) / (counts - ones + 0.5)), 0.0)


def _first_and_last_bits(table: np.ndarray) -> np.ndarray:
    """The numbers with all bits cleared but the first and the last: their size and resolution."""
    mantissas, exponents = np.frexp(table)
    bits = np.abs(np.ldexp(mantissas, 53)).astype(np.int64)
    return np.ldexp(np.sign(mantissas) * (2**52 | bits & -bits), exponents - 53)
