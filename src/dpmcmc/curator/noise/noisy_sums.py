"""Integer noise on the integer sums that queries release."""

from __future__ import annotations

import jax.numpy as jnp

from dpmcmc.curator.noise import gaussian
from dpmcmc.curator.sums.exact_sum import BITS
from dpmcmc.types import Answer, Unit

# Entries of a vector: the distance of its noise from the ideal law is charged for so many
MAX_DIMENSION = 2**12


def integer_sigma(noise_multiplier: float, unit: Unit, bits: int = BITS) -> float:
    """The standard deviation of the noise on an integer sum of rows' values.

    Args:
        noise_multiplier: the standard deviation of the noise over the sensitivity of the sum.
        unit: whom the promise protects; it sets the sensitivity.
        bits: of the grid 2^-bits on which the rows' values, each in [-1, 1] or in the unit ball,
            are integers.

    Returns:
        The standard deviation, in steps of the grid.

    Example:
        >>> from dpmcmc import Unit
        >>> integer_sigma(3.0, Unit()) / 2.0**BITS  # replacing a row moves the sum by up to 2
        6.0
    """
    # NumPy's integers would wrap around
    return float(noise_multiplier) * unit.sensitivity * 2.0**bits


def noisy(key, total, sigma: float, grid) -> Answer:
    """The answer grid * (total + noise), with independent noise on every entry.

    Args:
        key: eight secret words, as `Query.answer` is given them, or a part of them.
        total: an integer, or an array of integers: the exact sum.
        sigma: the standard deviation of the noise, from `integer_sigma`.
        grid: what one step of the integers stands for.

    Returns:
        The noisy sum in float64, and the variance of its noise.
    """
    integers = total + gaussian.discrete_gaussian(key, total.shape, sigma)
    return Answer(
        grid * integers.astype(jnp.float64),
        jnp.asarray((grid * gaussian.gaussian_sigma(sigma)) ** 2),
    )


def vector_distance(sigma: float) -> float:
    """The total variation distance of a vector's noise from its ideal law, from above.

    Args:
        sigma: the standard deviation of the noise of each entry, in steps of the grid.

    Returns:
        A bound that holds for vectors of up to MAX_DIMENSION entries.
    """
    return MAX_DIMENSION * gaussian.gaussian_distance(sigma)
