r"""Integer radial noise: a rounded vector of density proportional to exp(-|z| / s) in R^d.

That law is a mixture of Gaussian ones (:cite:p:`andrews1974scale` for d = 1),

    z | t ~ N(0, t I),     t = 2 s^2 G,     G ~ Gamma((d + 1) / 2):
    integral of t^(-d/2) e^(-|z|^2 / 2t)  t^((d - 1) / 2) e^(-t / 2s^2) dt
        =  s sqrt(2 pi) e^(-|z| / s).

So t is drawn in float64, from exponential numbers and the square of a normal one, and then an exact
discrete Gaussian vector of that variance (`gaussian`) in place of a rounded normal one. Nothing is
rejected, and no number of steps depends on the draw.

**Why float64 is enough.** Errors of t do not move z, they change the law that it is drawn from: the
total variation between N(0, t I) and N(0, t (1 + x) I) is at most sqrt(d) |x| / 2 where |x| <= 1/2,
by Pinsker's inequality and log(1 + x) >= x - x^2, and at most 1 <= 2 |x| elsewhere. The mean of
(sqrt(d) / 2 + 2) |x| is thus a bound. With u = 2^-50:

- an exponential number E is off by at most u (1 + E), so their sum S of m terms by u (m + S), and
  the mean of m / S is at most 2, or for m = 1 that of min(1/u, 1/E), below 36: 37 u in all;
- a normal number n is off by a = 17 u, and its square by about 2 |n| a. That is divided by
  n^2 + 2 S >= 2 sqrt(2 S) |n|, and the mean of 1 / sqrt(S) is at most sqrt(pi): 22 u;
- adding up, scaling (by a scale that was rounded), and splitting the variance into squares:
  2 u + d u / 16;
- 32^2 times a whole number of squares is within 2 * 32^2 of t + 1/12, which divided by t is
  32^2 / (s^2 G), and the discrete Gaussian of standard deviation w >= 32 is within d / (100 w^4)
  <= d / (10^5 t) of the rounded one. The mean of 1 / G is 2 / (d - 1), or for d = 1 that of
  min(1, c / G) is at most c (1 + log(1 + 1/c)).
"""

from __future__ import annotations

import math

import jax.numpy as jnp
from jax import lax

from dpmcmc.curator.noise import coins, gaussian, stream
from dpmcmc.types import Array

SMALLEST, LARGEST = 2.0**10, 2.0**58  # of the scale, and of the largest standard deviation there is
UNIT = 2.0**-50


def radial_noise(key: Array, dimension: int, scale: float) -> Array:
    """Integer noise: a vector of density proportional to exp(-|z| / scale), rounded.

    Args:
        key: Eight secret words, as `Query.answer` is given them, or a part of them.
        dimension: The number of entries.
        scale: The scale of the noise, in steps of the grid: at least 2^10, and at most
            2^54 / sqrt(d + 3).

    Returns:
        The vector, of type int64.

    Raises:
        ValueError: The scale is out of its range.

    Example:
        >>> import jax
        >>> import numpy as np
        >>> from dpmcmc import queries
        >>> key = np.arange(8, dtype=np.uint32)
        >>> with jax.enable_x64(True):
        ...     noise = jax.jit(lambda key: queries.radial_noise(key, 7, 1e6))(key)
        >>> bool(1e6 < np.linalg.norm(noise) < 20e6)
        True
    """
    _check(dimension, scale)
    key_size, key_vector = stream.random_words(key, (2, 8))
    variance = scale**2 * _chi_squared(key_size, dimension + 1)
    multipliers = _multipliers(variance, _num_steps(dimension, scale))
    return gaussian.sums(key_vector, (dimension,), multipliers)


def radial_variance(dimension: int, scale: float) -> float:
    """The variance of each entry.

    Args:
        dimension: The number of entries.
        scale: The scale of the noise.

    Returns:
        (d + 1) scale^2.

    Example:
        >>> from dpmcmc import queries
        >>> queries.radial_variance(7, 10.0)
        800.0
    """
    return (dimension + 1) * scale**2


def radial_tv_error(dimension: int, scale: float) -> float:
    """The total-variation error of one draw of `radial_noise`, from above.

    It is compared with the rounded vector of exactly that density.

    Args:
        dimension: The number of entries.
        scale: The scale of the noise, in steps of the grid: at least 2^10, and at most
            2^54 / sqrt(d + 3).

    Returns:
        A bound on the total-variation error.

    Raises:
        ValueError: The scale is out of its range.

    Example:
        >>> from dpmcmc import queries
        >>> queries.radial_tv_error(7, 2.0**30) < 3e-13
        True
    """
    _check(dimension, scale)
    weight = math.sqrt(dimension) / 2 + 2
    floats = weight * (61 + dimension / 16) * UNIT
    size = (weight * gaussian.BASE**2 + dimension * 1e-5) / scale**2
    grid = size * (2 / (dimension - 1) if dimension > 1 else 1 + math.log1p(1 / size))
    discrete = dimension * _num_steps(dimension, scale) * gaussian.STEP_TV_ERROR
    return floats + grid + discrete + (dimension + 1) * coins.REAL_TV_ERROR


def _check(dimension: int, scale: float) -> None:
    if not (scale >= SMALLEST and _largest_variance(dimension, scale) < LARGEST**2):
        raise ValueError(
            f"radial noise of scale {scale:.3g} in {dimension} dimensions is outside the range of "
            "its integers: check epsilon"
        )


def _largest_variance(dimension: int, scale: float) -> float:
    """No exponential number of 192 bits is above 134, and no normal one's square above 2 * 134."""
    return 135 * (dimension + 3) * scale**2


def _chi_squared(key, freedom: int):
    """The squared length of so many standard normal numbers: pairs are exponential."""
    key_pairs, key_odd = stream.random_words(key, (2, 8))
    total = 2 * jnp.sum(coins.exponentials(key_pairs, freedom // 2))
    return total + coins.normal(key_odd) ** 2 if freedom % 2 else total


def _num_steps(dimension: int, scale: float) -> int:
    """How many squares are enough for the largest variance there is: each leaves a 256th of the
    rest, but for the last few, which are small.
    """
    return math.ceil(math.log2(_largest_variance(dimension, scale) / gaussian.BASE**2) / 8) + 6


def _multipliers(variance, steps: int):
    """Whole numbers a_l, as `gaussian._multipliers` has them, of a variance that is drawn: largest
    first, 32^2 sum a_l^2 near variance + 1/12, each with a finer one beside it unless it is 1.
    """

    def one(rest, _):
        step = jnp.maximum(1.0, jnp.floor(jnp.sqrt(rest * (255 / 256))))
        step = jnp.where(rest > 0, step, 0.0)
        least = jnp.where(step > 1, jnp.ceil(step**2 / 255), 0.0)
        return jnp.maximum(rest - step**2, least), step

    return lax.scan(one, (variance + 1 / 12) / gaussian.BASE**2, length=steps)[1].astype(jnp.int64)
