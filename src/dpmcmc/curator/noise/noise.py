r"""The secret stream, and the coins and integer noise made of it.

**Stream.** A grant's secret is 512 bits from the operating system: two ChaCha20 keys. An ask is
named by a message m (a digest of its query, its place in the program and all shapes and types; the
words of its public key and of its lane under vmap; and its points), cut into 96-bit pieces. Its own
key is the protected counter sum :cite:p:`bernstein1999stretch`

    F(K2, XOR_j F(K1, j || m_j)),      F = the ChaCha20 block function :cite:p:`rfc8439`,

a pseudorandom function of m: different asks share no randomness. Nor do equal ones in two places:
the same rows may round to other integers where a program was compiled in another way, and the same
noise on both would show the difference. For the same reason every run of a program has a secret of
its own (`secret_of`).

**Real noise** is for comparisons only and is never released. It is a function of a uniform number
of 192 bits, (k + 1/2) 2^-192, in float64. Think of the bits as continued for ever: that gives the
ideal draw of the same law, and the two differ by no more than roundings,

    logistic       log(u / (1 - u))    `LOGISTIC_ERROR`, wherever either is within +-64
    exponential    -log(u)             `EXPONENTIAL_ERROR`, up to an event of probability 2^-142 (k < 2^50)
    normal         Phi^-1(u)           `NORMAL_ERROR`, up to one of probability 2^-141.

An error e of such a draw acts like an error e of what it is compared with: see `accept`.

**Integer noise.** The discrete Gaussian D(s) has mass proportional to exp(-x^2 / 2 s^2) on the
integers. D(BASE) is drawn by inversion from an exact table of 127-bit probabilities, and larger
ones are sums

    N = sum_l a_l X_l,   X_l ~ D(BASE) independent,   a_1 > a_2 > ... >= 1 integers,   variance BASE^2 sum_l a_l^2.

Adding a X (coarse) to Y ~ D(f) (fine) gives mass  exp(-z^2 / 2(a^2 BASE^2 + f^2)) * sum_x exp(-(x -
c_z)^2 / 2 t^2)  with 1/t^2 = 1/BASE^2 + a^2/f^2, and by Poisson summation the last sum is constant
up to a relative 2 sum_k exp(-2 pi^2 t^2 k^2): about 1e-34 for the steps used here. No floating
point is involved and nothing depends on the draw but the draw itself (no rejection loop whose
length could be timed).

**Near a Gaussian.** Rounding adds a variance of 1/12, so D(s) is compared with the rounded N(0,
w^2), w^2 = s^2 - 1/12. With y = x / w^2 and t uniform on +-1/2 the logarithm of the ratio of the
two masses at x is, up to a constant,

    x^2/2 (1/s^2 - 1/w^2) + log E e^(-y t - t^2 / 2w^2),   log E e^(-y t) = y^2/24 - y^4/2880 ...,   E_y t^2 = 1/12 + y^2/360 ...

(E_y: t weighted by e^(-y t)). The terms in x^2 / w^4 cancel, and x^2 / (288 w^4 s^2) - x^2 / (720
w^6) - x^4 / (2880 w^8) is left, less than 0.006 / w^4 on average: the two are within 1 / (100 s^4)
of each other in total variation. Rounding is post-processing, so the exact Gaussian accounting
applies, for w, up to `gaussian_distance`.
"""

from __future__ import annotations

import decimal
import functools
import hashlib
import itertools
import logging
import math
import secrets
from collections.abc import Iterable
from fractions import Fraction
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy import special

GENERATOR = "ChaCha20, keyed by the operating system for every grant"
# From so many blocks on, word by word is faster than block by block; below, it is slower to run and
# to compile
MANY_BLOCKS = 4096
BASE = 32  # standard deviation of the tabulated discrete Gaussian
# A coin's probability is off by at most this: rounding of the probability, and 62-bit uniforms
COIN_DISTANCE = 2.0**-48
# Of real noise: four units in the last place of the largest value, when the compiled functions are
# right to two.
LOGISTIC_ERROR = 64 * 2.0**-50
EXPONENTIAL_ERROR = 134 * 2.0**-50
NORMAL_ERROR = 17 * 2.0**-50
REAL_DISTANCE = 2.0**-141  # the probability that an exponential or a normal is further off
_CONSTANTS = np.frombuffer(b"expand 32-byte k", "<u4")
_TURNS = np.array(
    [[4 * row + (i + sign * row) % 4 for row in range(4) for i in range(4)] for sign in (1, -1)],
    np.int32,
)


def fresh_secret() -> np.ndarray:
    return np.frombuffer(secrets.token_bytes(64), "<u4")


def secret_of(secret, run: int) -> np.ndarray:
    """The secret of one run of a grant."""
    message = np.asarray(secret, "<u4").tobytes() + run.to_bytes(8, "little")
    return np.frombuffer(hashlib.sha512(message).digest(), "<u4")


def random_order(number: int, fixed_secret: np.ndarray | None = None) -> np.ndarray:
    """0, 1, ..., number - 1 in an order that is uniformly random, from the operating system."""
    if fixed_secret is not None:
        return np.random.default_rng(np.asarray(fixed_secret, np.uint32)).permutation(number)
    while True:
        numbers = np.frombuffer(secrets.token_bytes(8 * number), np.uint64)
        order = np.argsort(numbers, kind="stable")
        # Equal ones would stay as they are, and that is on no bill
        if np.all(numbers[order[1:]] != numbers[order[:-1]]):
            return order


# -- the stream
# ------------------------------------------------------------------------------------------------------------


@jax.jit
def chacha20(key, counters):
    """The ChaCha20 block function: key (8,) and counters (..., 4) of 32-bit words -> (..., 16)."""
    if jax.default_backend() == "gpu" and _has_kernels():
        return _chacha20_kernel(key, counters)
    if math.prod(counters.shape[:-1]) >= MANY_BLOCKS:
        return _chacha20_by_words(key, counters)
    fixed = jnp.broadcast_to(jnp.concatenate([_CONSTANTS, key]), (*counters.shape[:-1], 12))
    start = jnp.concatenate([fixed, counters], axis=-1)
    return lax.fori_loop(0, 20, _one_round, start) + start


@functools.cache
def _has_kernels() -> bool:
    """Whether this GPU runs the kernel; the words are the same without it."""
    try:
        shapes = (jax.ShapeDtypeStruct((8,), jnp.uint32), jax.ShapeDtypeStruct((1, 4), jnp.uint32))
        jax.jit(_chacha20_kernel).lower(*shapes).compile()
        return True
    except Exception as error:
        logging.getLogger("dpmcmc").info(
            "no GPU kernel for ChaCha20, it goes through XLA: %r", error
        )
        return False


def _chacha20_kernel(key, counters, interpret: bool = False):
    """The same as one GPU kernel: as XLA compiles it, each of the ten double rounds would start
    kernels of its own.
    """
    from jax.experimental import pallas
    from jax.experimental.pallas import triton

    flat = counters.reshape(-1, 4)
    block = min(128, 1 << (len(flat) - 1).bit_length())
    flat = jnp.pad(flat, ((0, -len(flat) % block), (0, 0)))

    def kernel(constants_ref, key_ref, counters_ref, out_ref):
        row = [
            jnp.broadcast_to(ref[i], (block,))
            for ref in (constants_ref, key_ref)
            for i in range(ref.shape[0])
        ]
        start = (*row, *(counters_ref[:, i] for i in range(4)))
        mixed = lax.fori_loop(
            np.int32(0), np.int32(10), lambda _, words: _double_round_by_words(words), start
        )
        for i in range(16):
            out_ref[:, i] = mixed[i] + start[i]

    zero = np.int32(0)
    whole = [pallas.BlockSpec((size,), lambda i: (zero,)) for size in (4, 8)]
    blocks = pallas.pallas_call(
        kernel,
        grid=(len(flat) // block,),
        in_specs=[*whole, pallas.BlockSpec((block, 4), lambda i: (i, zero))],
        out_specs=pallas.BlockSpec((block, 16), lambda i: (i, zero)),
        out_shape=jax.ShapeDtypeStruct((len(flat), 16), jnp.uint32),
        compiler_params=triton.CompilerParams(num_warps=1),
        interpret=interpret,
    )(jnp.asarray(_CONSTANTS), key, flat)
    return blocks[: math.prod(counters.shape[:-1])].reshape(*counters.shape[:-1], 16)


def _one_round(number, words):
    """Rounds of the columns and of the diagonals take turns: row r of the words is turned by r
    places, to and fro.
    """
    mixed = jnp.concatenate(_quarter_rounds(*jnp.split(words, 4, axis=-1)), axis=-1)
    return jnp.take(mixed, jnp.asarray(_TURNS)[number % 2], axis=-1)


def _quarter_rounds(a, b, c, d):
    for left, right in ((16, 12), (8, 7)):
        a = a + b
        d = _rotate(d ^ a, left)
        c = c + d
        b = _rotate(b ^ c, right)
    return a, b, c, d


def _rotate(words, bits):
    return (words << bits) | (words >> (32 - bits))


def _chacha20_by_words(key, counters):
    """The same, each of the 16 words of all blocks an array of its own: long loops without
    shuffles.
    """
    words = [*_CONSTANTS, *key, *jnp.moveaxis(counters, -1, 0)]
    start = tuple(jnp.broadcast_to(word, counters.shape[:-1]) for word in words)
    mixed = lax.fori_loop(0, 10, lambda _, words: _double_round_by_words(words), start)
    return jnp.stack([a + b for a, b in zip(mixed, start, strict=True)], axis=-1)


def _double_round_by_words(words):
    words = list(words)
    for shift in (0, 1):  # columns, then diagonals
        for i in range(4):
            places = [4 * row + (i + shift * row) % 4 for row in range(4)]
            for place, word in zip(
                places, _quarter_rounds(*(words[place] for place in places)), strict=True
            ):
                words[place] = word
    return tuple(words)


def ask_key(secret, words, query, points, place: int):
    """The secret ChaCha20 key (8 words) of one ask, at this place of the program; `words` are those
    of its key and its lane.
    """
    # The digest comes first and knows all shapes and types: so no two asks have the same message,
    # whoever chooses keys and points.
    kinds = [(part.shape, str(part.dtype)) for part in (words, *points)]
    message = jnp.concatenate([_digest(query, kinds, place), words, *map(_words, points)])
    pieces = jnp.pad(message, (0, -message.size % 3)).reshape(-1, 3)
    counters = jnp.arange(len(pieces), dtype=jnp.uint32)[:, None]
    blocks = chacha20(secret[:8], jnp.concatenate([counters, pieces], axis=1))
    total = lax.reduce(blocks[:, :4], np.uint32(0), lax.bitwise_xor, (0,))
    return chacha20(secret[8:], total)[:8]


def random_words(key, shape):
    """Independent uniform 32-bit words."""
    size = math.prod(shape)
    counters = jnp.arange(-(-size // 16), dtype=jnp.uint32)[:, None]
    return chacha20(key, jnp.pad(counters, ((0, 0), (0, 3)))).reshape(-1)[:size].reshape(shape)


def _digest(*values) -> np.ndarray:
    return np.frombuffer(hashlib.sha256(repr(values).encode()).digest(), "<u4")


def _words(point):
    return lax.bitcast_convert_type(point, jnp.uint32).reshape(-1)


# -- coins and noise
# -------------------------------------------------------------------------------------------------------


def coin(key, probability):
    """True with the given (float64) probability, up to `COIN_DISTANCE`."""
    return coin_of(random_words(key, (2,)), probability)


def coin_of(words, probability):
    """The same from two random words, along the last axis."""
    uniform = _uint64(words) >> 2
    return uniform.astype(jnp.int64) < (probability * 2.0**62).astype(jnp.int64)


def logistic(key):
    """A logistic number, for comparisons."""
    is_below, part = _folded(random_words(key, (6,)))
    size = jnp.log((1 - part) / part)
    return jnp.where(is_below, -size, size)


def exponential(key):
    """A standard exponential number, for comparisons."""
    return -jnp.log(_fraction(random_words(key, (6,))))


def normal(key):
    """A standard normal number, for comparisons."""
    is_below, part = _folded(random_words(key, (6,)))
    size = -special.ndtri(part)
    return jnp.where(is_below, -size, size)


def _folded(words):
    """Whether a uniform number is below 1/2, and its distance from the nearer end of (0, 1)."""
    is_below = words[0] < np.uint32(2**31)
    return is_below, _fraction(jnp.where(is_below, words, ~words))


def _fraction(words):
    """0.w1 w2 ...

    in base 2^32, and half a unit of the last place: float64, to a unit of its own last place.
    """
    value = jnp.float64(0.5)
    for word in words[::-1]:
        value = (word.astype(jnp.float64) + value) * 2.0**-32
    return value


def discrete_gaussian(key, shape, sigma: float):
    """Integer noise: D(s) with s the `gaussian_sigma(sigma)` just above sqrt(sigma^2 + 1/12).
    int64.
    """
    multipliers = np.array(_multipliers(sigma), np.int64)
    words = random_words(key, (*shape, len(multipliers), 4))
    magnitude = invert(words, _survival_table())
    draws = jnp.where(words[..., 1] & 1 == 1, -magnitude, magnitude)  # the bit that `invert` leaves
    return jnp.sum(draws * multipliers, axis=-1)


def gaussian_sigma(sigma: float) -> float:
    """The standard deviation that `discrete_gaussian` really has: above the one asked for."""
    return BASE * math.sqrt(sum(a * a for a in _multipliers(sigma)))


def gaussian_distance(sigma: float) -> float:
    """Total variation distance of one `discrete_gaussian` from a rounded Gaussian of at least the
    sigma asked for, from above.
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
    """Integers a_l, largest first, with BASE^2 sum a_l^2 >= sigma^2 + 1/12 and each small enough
    for the rest to fill its gaps.
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
    """P(X >= j) of a whole number X for j = 1, 2, ..., as 127-bit integers in two words (the high
    one of 63 bits).
    """

    high: np.ndarray
    low: np.ndarray


def tails(masses: Iterable[decimal.Decimal]) -> Tails:
    """Of X with these chances of 0, 1, 2, ...

    but for a factor; iterated over, and rounded, in 80 digits.
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
    """X by inversion, int64, from four words along the last axis, less the last bit of the second."""
    high = _uint64(words[..., :2])[..., None] >> 1
    low = _uint64(words[..., 2:])[..., None]
    return jnp.sum(
        (high < table.high) | ((high == table.high) & (low < table.low)), axis=-1, dtype=jnp.int64
    )


def _uint64(words):
    """Pairs of 32-bit words along the last axis -> 64-bit integers."""
    return (words[..., 0].astype(jnp.uint64) << 32) | words[..., 1].astype(jnp.uint64)
