r"""Coins, and real numbers for comparisons, made from random words.

**Real numbers** are for comparisons only and never released. Each is a function of a uniform number
of 192 bits, (k + 1/2) 2^-192, in float64. Think of the bits as continued for ever: that gives the
ideal draw of the same law, and the two differ by no more than roundings,

    logistic       log(u / (1 - u))    `LOGISTIC_ERROR`, wherever either is within +-64
    exponential    -log(u)             `EXPONENTIAL_ERROR`, up to an event (k < 2^50) of probability
                                       2^-142
    normal         Phi^-1(u)           `NORMAL_ERROR`, up to one of probability 2^-141.

An error e of such a draw acts like an error e of what it is compared with: see `accept`.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax.scipy import special

from dpmcmc.curator.noise import stream

# The total-variation error of a coin is at most this: from rounding its probability, and from
# uniforms of 62 bits
COIN_TV_ERROR = 2.0**-48
# Of real numbers: four units in the last place of the largest value, when the compiled functions
# are right to two.
LOGISTIC_ERROR = 64 * 2.0**-50
EXPONENTIAL_ERROR = 134 * 2.0**-50
NORMAL_ERROR = 17 * 2.0**-50
REAL_TV_ERROR = 2.0**-141  # the probability that an exponential or a normal is further off


def coin(key, probability):
    """True with the given (float64) probability, up to `COIN_TV_ERROR`."""
    return coin_of(stream.random_words(key, (2,)), probability)


def coin_of(words, probability):
    """The same from two random words, along the last axis."""
    uniform = stream.pairs_to_uint64(words) >> 2
    return uniform.astype(jnp.int64) < (probability * 2.0**62).astype(jnp.int64)


def logistic(key):
    """A logistic number, for comparisons."""
    is_below, part = _folded(stream.random_words(key, (6,)))
    size = jnp.log((1 - part) / part)
    return jnp.where(is_below, -size, size)


def exponential(key):
    """A standard exponential number, for comparisons."""
    return -jnp.log(_fraction(stream.random_words(key, (6,))))


def exponentials(key, number: int):
    """Independent standard exponential numbers."""
    return -jnp.log(_fraction(stream.random_words(key, (6, number))))


def normal(key):
    """A standard normal number, for comparisons."""
    is_below, part = _folded(stream.random_words(key, (6,)))
    size = -special.ndtri(part)
    return jnp.where(is_below, -size, size)


def _folded(words):
    """Whether a uniform number is below 1/2, and its distance from the nearer end of (0, 1)."""
    is_below = words[0] < np.uint32(2**31)
    return is_below, _fraction(jnp.where(is_below, words, ~words))


def _fraction(words):
    """The number 0.w1 w2 w3 in base 2^32, plus half a unit of the last place.

    float64, to a unit of its own last place.
    """
    value = jnp.float64(0.5)
    for word in words[::-1]:
        value = (word.astype(jnp.float64) + value) * 2.0**-32
    return value
