r"""Integer noise: the discrete Gaussian, and the inversion of a table that it is drawn by.

The discrete Gaussian D(s) has mass proportional to exp(-x^2 / 2 s^2) on the
integers. D(BASE) is drawn by inversion from an exact table of 127-bit probabilities, and larger
ones are sums

    N = sum_l a_l X_l,   X_l ~ D(BASE) independent,   a_1 > a_2 > ... >= 1 integers,
    of variance BASE^2 sum_l a_l^2.

Adding a X (coarse) to Y ~ D(f) (fine) gives mass  exp(-z^2 / 2(a^2 BASE^2 + f^2)) * sum_x exp(-(x -
c_z)^2 / 2 t^2)  with 1/t^2 = 1/BASE^2 + a^2/f^2, and by Poisson summation the last sum is constant
up to a relative 2 sum_k exp(-2 pi^2 t^2 k^2): about 1e-34 for the steps used here. No floating
point is involved and nothing depends on the draw but the draw itself (no rejection loop whose
length could be timed).

**Near a Gaussian.** Rounding adds a variance of 1/12, so D(s) is compared with the rounded N(0,
w^2), w^2 = s^2 - 1/12. With y = x / w^2 and t uniform on +-1/2 the logarithm of the ratio of the
two masses at x is, up to a constant,

    x^2/2 (1/s^2 - 1/w^2) + log E e^(-y t - t^2 / 2w^2),
    log E e^(-y t) = y^2/24 - y^4/2880 ...,   E_y t^2 = 1/12 + y^2/360 ...

(E_y: t weighted by e^(-y t)). The terms in x^2 / w^4 cancel, and x^2 / (288 w^4 s^2) - x^2 / (720
w^6) - x^4 / (2880 w^8) is left, less than 0.006 / w^4 on average: the two are within 1 / (100 s^4)
of each other in total variation. Rounding is post-processing, so the exact Gaussian accounting
applies, for w, up to `gaussian_tv_error`.
"""

from __future__ import annotations

import decimal
import functools
import itertools
import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from dpmcmc.curator.noise import stream
from dpmcmc.types import Array

BASE = 32  # standard deviation of the tabulated discrete Gaussian
# Of one multiple in a sum, from above: the smoothing by the finer ones (1e-33), and the table
STEP_TV_ERROR = 1e-32


def discrete_gaussian(key: Array, shape: tuple[int, ...], sigma: float) -> Array:
    """Integer noise: draws of the discrete Gaussian D(s).

    s is `gaussian_sigma(sigma)`, just above sqrt(sigma^2 + 1/12).

    Args:
        key: Eight secret words, as `Query.answer` is given them, or a part of them.
        shape: The shape of the draws.
        sigma: The standard deviation that is asked for: at least 32, below 2^58.

    Returns:
        Independent draws, of type int64.

    Raises:
        ValueError: sigma is out of its range.

    Example:
        >>> import jax
        >>> import numpy as np
        >>> from dpmcmc import queries
        >>> key = np.arange(8, dtype=np.uint32)
        >>> with jax.enable_x64(True):
        ...     draws = jax.jit(lambda key: queries.discrete_gaussian(key, (1000,), 100.0))(key)
        >>> bool(90 < np.std(np.asarray(draws)) < 110)
        True
    """
    return sums(key, shape, np.array(_multipliers(sigma), np.int64))


def sums(key: Array, shape: tuple[int, ...], multipliers: Array) -> Array:
    """Independent draws of the sum of D(BASE) times each multiplier: along the last axis."""
    words = stream.random_words(key, (*shape, multipliers.shape[-1], 4))
    magnitude = invert(words, _survival_table())
    draws = jnp.where(words[..., 1] & 1 == 1, -magnitude, magnitude)  # the bit that `invert` leaves
    return jnp.sum(draws * multipliers, axis=-1)


def multiplier_table(sigmas: Sequence[float]) -> np.ndarray:
    """The multipliers of several standard deviations, for `sums`: one in each line, then zeros.

    The number of columns is a multiple of four, so that programs that differ in the size of their
    noise alone mostly have one text.
    """
    found = [_multipliers(sigma) for sigma in sigmas]
    steps = -(-max(map(len, found)) // 4) * 4
    return np.array([[*each, *[0] * (steps - len(each))] for each in found], np.int64)


def gaussian_sigma(sigma: float) -> float:
    """The standard deviation that `discrete_gaussian` really has: above the one asked for.

    Args:
        sigma: The standard deviation that is asked for: at least 32, below 2^58.

    Returns:
        The standard deviation of the draws.

    Raises:
        ValueError: sigma is out of its range.

    Example:
        >>> from dpmcmc import queries
        >>> 100.0 < queries.gaussian_sigma(100.0) < 105.0
        True
    """
    return BASE * math.sqrt(sum(a * a for a in _multipliers(sigma)))


def gaussian_tv_error(sigma: float) -> float:
    """The total-variation error of one draw of `discrete_gaussian`, from above.

    It is compared with a rounded Gaussian of at least the standard deviation asked for.

    Args:
        sigma: The standard deviation that is asked for: at least 32, below 2^58.

    Returns:
        A bound on the total-variation error.

    Raises:
        ValueError: sigma is out of its range.

    Example:
        >>> from dpmcmc import queries
        >>> queries.gaussian_tv_error(1e6) < 1e-25
        True
    """
    multipliers = _multipliers(sigma)
    smoothing = 0.0
    fine = 0
    for a in reversed(multipliers):
        if fine:
            inner_variance = 1 / (1 / BASE**2 + a * a / (BASE**2 * fine))
            smoothing += 4 * math.exp(-2 * math.pi**2 * inner_variance)
        fine += a * a
    table = len(multipliers) * (len(_survival_table().high) + 1) * 2.0**-127
    return 1 / (100 * gaussian_sigma(sigma) ** 4) + smoothing + table


@functools.cache
def _multipliers(sigma: float) -> tuple[int, ...]:
    """Integers a_l, largest first, with BASE^2 sum a_l^2 >= sigma^2 + 1/12.

    Each is small enough for the rest to fill its gaps.
    """
    if not BASE <= sigma < 2**58:
        raise ValueError(
            f"integer noise of standard deviation {sigma:.3g} is outside [{BASE}, 2^58): check the "
            "noise multiplier"
        )
    rest = math.ceil((Fraction(sigma) ** 2 + Fraction(1, 12)) / BASE**2)
    multipliers = []
    while rest > 0:
        step = max(1, math.isqrt(rest - rest // 256))
        multipliers.append(step)
        # The finer steps have at least 1/255 of its variance, a little more than is asked for if
        # need be, and the finest is 1: else the noise would live on multiples of the last one and
        # show the sum modulo it.
        rest = max(rest - step**2, -(-(step**2) // 255) if step > 1 else 0)
    return tuple(multipliers)


@functools.cache
def _survival_table() -> Tails:
    """Of |X|, X ~ D(BASE)."""
    largest = math.ceil(BASE * math.sqrt(2 * 130 * math.log(2)))
    return tails(
        (1 if x == 0 else 2) * (-decimal.Decimal(x * x) / (2 * BASE * BASE)).exp()
        for x in range(largest + 1)
    )


class Tails(NamedTuple):
    """P(X >= j) of a whole number X for j = 1, 2, ..., as 127-bit integers in two words.

    The high word has 63 bits.
    """

    high: np.ndarray
    low: np.ndarray


def tails(masses: Iterable[decimal.Decimal]) -> Tails:
    """The tails of X, given numbers proportional to its chances of 0, 1, 2, ...

    The numbers are iterated over, and rounded, in 80 digits.
    """
    with decimal.localcontext() as context:
        context.prec = 80
        sums = list(itertools.accumulate(reversed(list(masses))))[::-1]
        integers = [int((tail * 2**127 / sums[0]).to_integral_value()) for tail in sums[1:]]
    return Tails(
        np.array([i >> 64 for i in integers], np.uint64),
        np.array([i % 2**64 for i in integers], np.uint64),
    )


def invert(words, table: Tails):
    """X by inversion, int64, from four words along the last axis.

    The last bit of the second word is not used.
    """
    high = stream.pairs_to_uint64(words[..., :2])[..., None] >> 1
    low = stream.pairs_to_uint64(words[..., 2:])[..., None]
    return jnp.sum(
        (high < table.high) | ((high == table.high) & (low < table.low)), axis=-1, dtype=jnp.int64
    )
