r"""The secret stream: secrets of grants, keys of asks, and random words made from them.

A grant's secret is 512 bits from the operating system: two ChaCha20 keys. An ask is identified by a
message m (a digest of its query, its place in the program and all shapes and types; the words of
its public key and of its lane under vmap; and its points), cut into 96-bit pieces. Its own key is
the protected counter sum :cite:p:`bernstein1999stretch`

    F(K2, XOR_j F(K1, j || m_j)),      F = the ChaCha20 block function :cite:p:`rfc8439`,

a pseudorandom function of m: different asks share no randomness. Nor do equal ones in two places:
the same rows may round to other integers where a program was compiled in another way, and the same
noise on both would show the difference. For the same reason every run of a program has a secret of
its own (`secret_of`).
"""

from __future__ import annotations

import hashlib
import math
import secrets

import jax.numpy as jnp
import numpy as np
from jax import lax

from dpmcmc.curator.noise import cipher
from dpmcmc.types import Array

GENERATOR = "ChaCha20, keyed by the operating system for every grant"


def fresh_secret() -> np.ndarray:
    """512 random bits from the operating system, as 16 words: the secret of one grant."""
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


def ask_key(secret, words, query, points, place: int):
    """The secret ChaCha20 key (8 words) of one ask, at this place of the program.

    `words` are those of its key and its lane.
    """
    # The digest comes first and knows all shapes and types: so no two asks have the same message,
    # whoever chooses keys and points.
    kinds = [(part.shape, str(part.dtype)) for part in (words, *points)]
    message = jnp.concatenate([_digest(query, kinds, place), words, *map(_words_of, points)])
    pieces = jnp.pad(message, (0, -message.size % 3)).reshape(-1, 3)
    counters = jnp.arange(len(pieces), dtype=jnp.uint32)[:, None]
    blocks = cipher.chacha20(secret[:8], jnp.concatenate([counters, pieces], axis=1))
    total = lax.reduce(blocks[:, :4], np.uint32(0), lax.bitwise_xor, (0,))
    return cipher.chacha20(secret[8:], total)[:8]


def random_words(key: Array, shape: tuple[int, ...]) -> Array:
    """Independent uniform 32-bit words.

    Args:
        key: Eight secret words, as `Query.answer` is given them, or a part of them.
        shape: The shape of the words; one of shape (k, 8) is k independent keys.

    Returns:
        The words, of type uint32.

    Example:
        >>> import numpy as np
        >>> from dpmcmc import queries
        >>> key = np.arange(8, dtype=np.uint32)
        >>> key_noise, key_coin = queries.random_words(key, (2, 8))
        >>> key_noise.shape
        (8,)
    """
    size = math.prod(shape)
    counters = jnp.arange(-(-size // 16), dtype=jnp.uint32)[:, None]
    return (
        cipher.chacha20(key, jnp.pad(counters, ((0, 0), (0, 3)))).reshape(-1)[:size].reshape(shape)
    )


def _digest(*values) -> np.ndarray:
    return np.frombuffer(hashlib.sha256(repr(values).encode()).digest(), "<u4")


def _words_of(point):
    return lax.bitcast_convert_type(point, jnp.uint32).reshape(-1)


def pairs_to_uint64(words):
    """Pairs of 32-bit words along the last axis -> 64-bit integers."""
    return (words[..., 0].astype(jnp.uint64) << 32) | words[..., 1].astype(jnp.uint64)
