"""Distances between draws and the exact posterior, by their definitions and by closed forms."""

import numpy as np
import pytest

from dpmcmc.papers import metrics


def normal(shape, seed, mean=0.0):
    return np.random.default_rng(seed).normal(mean, 1.0, shape)


def test_the_width_is_the_median_distance():
    # Far from the origin, where squares of coordinates lose digits
    draws = normal((30, 3), 0) + 1e4
    distances = [np.linalg.norm(draws[i] - draws[j]) for i in range(30) for j in range(i)]
    assert metrics.kernel_width(draws) == pytest.approx(np.median(distances))


def test_the_discrepancy_is_as_it_is_defined():
    draws, reference = normal((20, 2), 1, mean=0.5), normal((30, 2), 2)
    width = metrics.kernel_width(reference)

    def kernel(x, y):
        return np.exp(-np.sum((x - y) ** 2) / (2 * width**2))

    def of_others(table):
        return np.mean(
            [kernel(x, y) for i, x in enumerate(table) for j, y in enumerate(table) if i != j]
        )

    between = np.mean([kernel(x, y) for x in draws for y in reference])
    squared = of_others(draws) + of_others(reference) - 2 * between
    assert metrics.mmd_from(reference)(draws) == pytest.approx(np.sqrt(abs(squared)))


@pytest.mark.parametrize("shift", [0.0, 0.3, 1.0, 5.0])
def test_the_discrepancy_of_normal_laws_is_their_distance(shift):
    """2 (w^2 / (w^2 + 2))^(d/2) (1 - e^(-shift^2 / 2 (w^2 + 2))), within six standard errors of
    some 1 / draws (1e-8).
    """
    reference = normal((1000, 4), 3)
    of_reference = metrics.mmd_from(reference)
    spread = metrics.kernel_width(reference) ** 2
    exact = 2 * (spread / (spread + 2)) ** 2 * -np.expm1(-(shift**2) / (2 * (spread + 2)))
    found = of_reference(normal((2000, 4), 4) + np.array([shift, 0, 0, 0]))
    error = np.sqrt(exact) * 0.02 + 0.001
    assert abs(found**2 - exact) < 6 * error


def test_of_many_draws_evenly_spaced_ones_are_compared():
    reference = normal((200, 1), 5)
    draws = normal((4 * metrics.MOST - 3, 1), 6)
    of_reference = metrics.mmd_from(reference)
    assert of_reference(draws) == of_reference(draws[::4])


def test_means_and_widths():
    reference = normal((1000, 2), 7)
    assert metrics.mean_error(reference + np.array([3.0, 4.0]), reference) == pytest.approx(5.0)
    assert metrics.width_ratio(reference * np.array([4.0, 9.0]), reference) == pytest.approx(6.0)
    assert metrics.width_ratio(reference * np.array([4.0, 0.0]), reference) == 0.0
