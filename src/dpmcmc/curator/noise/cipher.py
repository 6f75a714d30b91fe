"""The ChaCha20 block function :cite:p:`rfc8439`, in the form that is fastest where it runs.

All forms give the same words: block by block for a few blocks, word by word for many, and one
kernel on a GPU (`cipher_kernel`, which is imported there alone).
"""

from __future__ import annotations

import functools
import logging
import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

# From so many blocks on, word by word is faster than block by block; below, it is slower to run and
# to compile
MANY_BLOCKS = 4096
CONSTANTS = np.frombuffer(b"expand 32-byte k", "<u4")
_TURNS = np.array(
    [[4 * row + (i + sign * row) % 4 for row in range(4) for i in range(4)] for sign in (1, -1)],
    np.int32,
)


@jax.jit
def chacha20(key, counters):
    """The ChaCha20 block function: key (8,) and counters (..., 4) of 32-bit words -> (..., 16)."""
    if jax.default_backend() == "gpu" and _has_kernel():
        from dpmcmc.curator.noise.cipher_kernel import chacha20_kernel

        return chacha20_kernel(key, counters)
    if math.prod(counters.shape[:-1]) >= MANY_BLOCKS:
        return _chacha20_by_words(key, counters)
    fixed = jnp.broadcast_to(jnp.concatenate([CONSTANTS, key]), (*counters.shape[:-1], 12))
    start = jnp.concatenate([fixed, counters], axis=-1)
    return lax.fori_loop(0, 20, _one_round, start) + start


@functools.cache
def _has_kernel() -> bool:
    """Whether this GPU runs the kernel; the words are the same without it."""
    try:
        from dpmcmc.curator.noise.cipher_kernel import chacha20_kernel

        shapes = (jax.ShapeDtypeStruct((8,), jnp.uint32), jax.ShapeDtypeStruct((1, 4), jnp.uint32))
        jax.jit(chacha20_kernel).lower(*shapes).compile()
        return True
    except Exception as error:
        logging.getLogger("dpmcmc").info(
            "no GPU kernel for ChaCha20, it goes through XLA: %r", error
        )
        return False


def _one_round(number, words):
    """Rounds of the columns and of the diagonals take turns.

    Row r of the words is turned by r places, to and fro.
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
    """The same, each of the 16 words of all blocks an array of its own.

    This makes long loops without shuffles.
    """
    words = [*CONSTANTS, *key, *jnp.moveaxis(counters, -1, 0)]
    start = tuple(jnp.broadcast_to(word, counters.shape[:-1]) for word in words)
    mixed = lax.fori_loop(0, 10, lambda _, words: double_round(words), start)
    return jnp.stack([a + b for a, b in zip(mixed, start, strict=True)], axis=-1)


def double_round(words):
    words = list(words)
    for shift in (0, 1):  # columns, then diagonals
        for i in range(4):
            places = [4 * row + (i + shift * row) % 4 for row in range(4)]
            for place, word in zip(
                places, _quarter_rounds(*(words[place] for place in places)), strict=True
            ):
                words[place] = word
    return tuple(words)
