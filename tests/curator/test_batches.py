"""How many rows a batch draws: what a table or a buffer leaves out is no more than `TV_ERROR`
charges for.
"""

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

from dpmcmc.curator.queries import batches

RARE = 2.0**-batches.TAIL_BITS


@pytest.mark.parametrize("mean", [0.05, 0.7, 30.0, 900.0])
def test_numbers_of_draws_are_poisson(mean):
    """P(B >= j) in 127 bits, given that B is in the table; what is outside of it is rare on both
    sides.
    """
    first, (high, low) = batches._poisson_table(mean)
    with mpmath.workdps(60):

        def at_least(j):
            return mpmath.gammainc(j, 0, mean, regularized=True) if j > 0 else mpmath.mpf(1)

        last = first + len(high)
        inside = at_least(first) - at_least(last + 1)
        assert 1 - inside <= 2 * RARE
        for place in {*range(0, len(high), max(1, len(high) // 20)), len(high) - 1}:
            found = mpmath.mpf((int(high[place]) << 64) + int(low[place])) / 2**127
            wanted = (at_least(first + 1 + place) - at_least(last + 1)) / inside
            assert abs(found - wanted) <= mpmath.mpf(2) ** -126
        # A quarter of it would not do.
        assert at_least(round(mean + (last - mean) / 4)) > RARE


def too_few(size, of, number):
    """The probability that so many draws of `of` have fewer than `size` different ones."""
    chances, found = np.zeros(size + 1), np.arange(size + 1)
    chances[0] = 1.0
    for _ in range(number):
        new = chances[:-1] * (of - found[:-1]) / of
        chances[:-1] *= found[:-1] / of
        chances[1:] += new
    return chances[:size].sum()


@pytest.mark.parametrize(
    "size, of", [(2, 3), (10, 10), (10, 50), (40, 50), (100, 100_000), (300, 500)]
)
def test_enough_draws_are_enough_and_not_many_times_too_many(size, of):
    number = batches._enough_draws(size, of)
    assert too_few(size, of, number) <= RARE < too_few(size, of, max(size, number // 3))


def test_one_row_takes_one_draw():
    assert batches._enough_draws(1, 7) == 1


@pytest.mark.parametrize("number", [1, 300, 2**31 - 1])
def test_slots_are_cut_from_all_128_bits(number):
    words = np.random.default_rng(0).integers(0, 2**32, (1000, 4), np.uint32)
    words[0], words[1] = 0, 2**32 - 1
    with jax.enable_x64(True):
        found = np.asarray(batches._uniform_slots(jnp.asarray(words), number)).tolist()
    assert found == [
        sum(int(word) << 32 * (3 - i) for i, word in enumerate(row)) * number >> 128
        for row in words
    ]
