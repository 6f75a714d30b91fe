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


def test_the_symmetric_divergence_of_a_grid():
    """Of a law of two values on halves of the square: against the closed form, within what chance
    leaves of 40 000 draws; draws of another law are far off.
    """
    cells = np.repeat([[0.75], [0.25]], 2, axis=1) / 2  # the first coordinate below 0, or above
    generator = np.random.default_rng(0)

    def draws(share, num=40_000):
        low = generator.random(num) < share
        first = np.where(low, -1, 1) * generator.random(num)
        return np.stack([first, generator.uniform(-1, 1, num)], axis=1)

    assert metrics.symmetric_kl(draws(0.75), cells, 1.0, num_bins=2) < 0.002
    found = metrics.symmetric_kl(draws(0.25), cells, 1.0, num_bins=2)
    assert abs(found - 2 * 0.5 * np.log(3) * 1.0) < 0.05  # sum of (p - q) log(p / q)
    # All in one square: the uniform part keeps it finite
    assert np.isfinite(metrics.symmetric_kl(np.full((50, 2), -0.5), cells, 1.0, num_bins=2))


def test_predictive_accuracy_averages_over_the_draws():
    features, labels = np.array([[1.0], [-1.0], [2.0]]), np.array([1.0, 0.0, 0.0])
    assert metrics.predictive_accuracy(np.array([[3.0]]), features, labels) == 2 / 3
    # A strong draw outweighs a weak one that points the other way
    draws = np.array([[-9.0], [0.1]])
    assert metrics.predictive_accuracy(draws, features, labels) == 1 / 3
    # With an intercept before the coefficients
    assert metrics.predictive_accuracy(np.array([[9.0, 0.1]]), features, 1 - labels) == 2 / 3
