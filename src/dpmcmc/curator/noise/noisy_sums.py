"""Integer noise on the integer sums that queries release."""

from __future__ import annotations

import jax.numpy as jnp

from dpmcmc.curator.noise import gaussian
from dpmcmc.curator.sums.exact_sum import BITS
from dpmcmc.types import Answer, Array, Unit

# Entries of a vector: the total-variation error of its noise is charged for so many
MAX_DIMENSION = 2**12


def integer_sigma(noise_multiplier: float, unit: Unit, bits: int = BITS) -> float:
    """The standard deviation of the noise on an integer sum of rows' values.

    Args:
        noise_multiplier: The standard deviation of the noise over the sensitivity of the sum.
        unit: Whom the promise protects; it sets the sensitivity.
        bits: Of the grid 2^-bits on which the rows' values, each in [-1, 1] or in the unit ball,
            are integers.

    Returns:
        The standard deviation, in steps of the grid.

    Example:
        >>> from dpmcmc import Unit, queries
        >>> sigma = queries.integer_sigma(3.0, Unit())
        >>> sigma / 2.0**queries.BITS  # replacing a row moves the sum by up to 2
        6.0
    """
    # NumPy's integers would wrap around
    return float(noise_multiplier) * unit.sensitivity * 2.0**bits


def noisy(key: Array, total: Array, sigma: float, grid: Array) -> Answer:
    """The answer grid * (total + noise), with independent noise on every entry.

    Args:
        key: Eight secret words, as `Query.answer` is given them, or a part of them.
        total: An integer, or an array of integers: the exact sum.
        sigma: The standard deviation of the noise, from `integer_sigma`.
        grid: What one step of the integers stands for.

    Returns:
        The noisy sum in float64, and the variance of its noise.

    Raises:
        ValueError: sigma is below 32, or not below 2^58.

    Example:
        >>> import jax
        >>> import numpy as np
        >>> from dpmcmc import queries
        >>> key = np.arange(8, dtype=np.uint32)
        >>> total = np.int64(500 << queries.BITS)
        >>> sigma = 2.0 * 2**queries.BITS
        >>> with jax.enable_x64(True):
        ...     noisy = jax.jit(lambda key: queries.noisy(key, total, sigma, 2.0**-queries.BITS))
        ...     answer = noisy(key)
        >>> abs(float(answer.value) - 500) < 10 * 2  # the noise has a deviation of 2
        True
        >>> round(float(answer.variance), 3)
        4.0
    """
    integers = total + gaussian.discrete_gaussian(key, total.shape, sigma)
    return Answer(
        grid * integers.astype(jnp.float64),
        jnp.asarray((grid * gaussian.gaussian_sigma(sigma)) ** 2),
    )


def vector_tv_error(sigma: float) -> float:
    """The total-variation error of a vector's noise, from above.

    Args:
        sigma: The standard deviation of the noise of each entry, in steps of the grid.

    Returns:
        A bound that holds for vectors of up to MAX_DIMENSION entries.

    Raises:
        ValueError: sigma is below 32, or not below 2^58.

    Example:
        >>> from dpmcmc import Unit, queries
        >>> queries.vector_tv_error(queries.integer_sigma(3.0, Unit())) < 1e-25
        True
    """
    return MAX_DIMENSION * gaussian.gaussian_tv_error(sigma)
