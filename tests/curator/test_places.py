"""Where in a batch a row's value is computed does not depend on which other rows were drawn.

Compiled code may round a row's value differently in different places: on a CPU a product of 13
columns and a vector does. A bill for a random batch is about what one row adds to what all others
add, so the others must stay where they are, in law. The tests run on any device.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from dpmcmc.curator.noise import stream
from dpmcmc.curator.queries import batches
from dpmcmc.curator.sums.exact_sum import Table
from dpmcmc.queries import FixedBatch, PoissonBatch
from dpmcmc.types import Unit

NUM_ROWS, NUM_KEYS = 8, 10_000
FALSE_ALARM = 1e-6  # of each test


def table(num_pieces):
    pieces = jnp.arange(NUM_ROWS, dtype=jnp.float32).reshape(num_pieces, -1)
    return Table(tuple(pieces), jnp.int64(NUM_ROWS), Unit(), capacity=NUM_ROWS)


def batch_places(batch):
    """key -> the place of each row in the batch, -1 if it is not drawn."""

    def places(key):
        slots, is_counted = batch.draw(key, table(1))
        is_here = (slots[None] == jnp.arange(NUM_ROWS)[:, None]) & is_counted
        return jnp.where(is_here.any(axis=1), jnp.argmax(is_here, axis=1), -1)

    return places


def repeated_places(num_pieces, rate):
    """The same of rows that may be drawn several times: the place of the first draw."""

    def places(key):
        rows = table(num_pieces)
        draws = batches.repeated_draws(key, rows, rate)
        found, is_real = batches.map_drawn(
            lambda cells: cells + 1000.0 * jnp.arange(cells.shape[0]), rows, draws
        )
        row, place = found % 1000, found // 1000
        is_here = (row[None] == jnp.arange(NUM_ROWS)[:, None]) & is_real
        return jnp.where(
            is_here.any(axis=1), place[jnp.argmax(is_here, axis=1)].astype(jnp.int32), -1
        )

    return places


class Case(NamedTuple):
    name: str
    places: object
    is_mixed: bool = True  # else its places need no mixing

    def __str__(self) -> str:
        return self.name


CASES = [
    Case("Poisson", batch_places(PoissonBatch(0.4))),
    Case("fixed", batch_places(FixedBatch(3, NUM_ROWS)), is_mixed=False),
    Case("repeated, one piece", repeated_places(1, 0.5)),
    Case("repeated, few draws in many pieces", repeated_places(8, 0.4)),
    Case("repeated, some pieces", repeated_places(2, 0.5)),
]


def scores(places):
    """For each row but the first: how far its place, and the last bit of it, depend on whether the
    first one is drawn.

    A mean place that moves by half a place is seen.
    """
    with jax.enable_x64(True):
        keys = stream.random_words(jnp.arange(8, dtype=jnp.uint32), (NUM_KEYS, 8))
        found = np.asarray(jax.jit(jax.vmap(places))(keys))
    is_first = found[:, 0] >= 0
    scores = []
    for own in found[:, 1:].T:
        for value in (own, own % 2):
            one, other = (value[(own >= 0) & (is_first == drawn)] for drawn in (True, False))
            assert min(len(one), len(other)) > 10
            scores.append(
                (one.mean() - other.mean())
                / np.sqrt(one.var() / len(one) + other.var() / len(other))
            )
    return np.abs(scores)


def limit():
    return stats.norm.isf(FALSE_ALARM / (2 * 2 * (NUM_ROWS - 1)))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_drawn_row_does_not_move_the_others(case):
    assert scores(case.places).max() < limit()


@pytest.mark.parametrize("case", [case for case in CASES if case.is_mixed], ids=str)
def test_places_in_order_are_caught(case, monkeypatch):
    """The twin: draws in the order of the list move up by one for each draw before them."""
    monkeypatch.setattr(
        batches, "_random_order", lambda words: jnp.arange(words.shape[0], dtype=jnp.int32)
    )
    assert scores(case.places).max() > limit()


def test_all_orders_are_equally_likely():
    """Chi-square of the 24 orders of 4 places; one that is 1.5 times as likely as it should be is
    caught.
    """
    with jax.enable_x64(True):
        words = stream.random_words(
            jnp.arange(8, dtype=jnp.uint32), (NUM_KEYS, 4, 2 * batches.ORDER_PASSES)
        )
        orders = np.asarray(jax.vmap(batches._random_order)(words))
        inverse = np.asarray(jax.vmap(batches._inverse)(orders))
    assert np.array_equal(np.sort(orders, axis=1), np.tile(np.arange(4), (NUM_KEYS, 1)))
    assert np.array_equal(
        np.take_along_axis(orders, inverse, axis=1), np.tile(np.arange(4), (NUM_KEYS, 1))
    )
    counts = np.unique(orders, axis=0, return_counts=True)[1]
    assert len(counts) == 24 and stats.chisquare(counts).pvalue > FALSE_ALARM
    assert stats.chisquare(counts * np.where(np.arange(24) == 0, 1.5, 1.0)).pvalue < FALSE_ALARM


@pytest.mark.parametrize("some", [0, 1, 2])
def test_an_order_needs_all_of_its_words(some):
    """Equal 40 bits of two places are told apart by the other words: the passes are sorted one
    after the other.
    """
    words = np.random.default_rng(0).integers(0, 2**32, (6, 2 * batches.ORDER_PASSES), np.uint32)
    words[:, 2 * some : 2 * some + 2] = 7
    with jax.enable_x64(True):
        found = np.asarray(batches._random_order(jnp.asarray(words)))
    keys = [
        ((words[:, 2 * i].astype(np.uint64) << 32) | words[:, 2 * i + 1]) >> 24
        for i in range(batches.ORDER_PASSES)
    ]
    assert found.tolist() == np.lexsort(keys).tolist()
