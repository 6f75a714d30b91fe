"""Random batches of rows under `jit`, with work in proportion to the batch.

They are drawn from the secret stream, and have a fixed shape.

**Poisson.** Every row is in the batch with probability `rate`, independently. If  B ~ Poisson(-n
log(1 - rate))  slots are drawn uniformly with replacement, each slot is drawn a Poisson number of
times, independently of the others, and at least once with probability `rate`: the set of drawn
slots is the batch. B is cut off where its tail is below 2^-80.

**Fixed size.** The first `size` different slots of a sequence of uniform draws are a uniform batch
without replacement. The sequence is so long that it falls short with probability below 2^-80.

Repeated draws are masked, and so are slots without a row.

**Poisson with repetition.** Every row is drawn a Poisson(rate) number of times, independently. Each
piece of s slots has its own B ~ Poisson(s rate) and B uniform draws with replacement: rows are then
fetched from the piece they are in, and from no other. The numbers of draws, in a piece and in all,
are cut off as above.

**Places.** Compiled code may round a row's value differently in different places of a batch: a
product of a matrix and a vector does, in the rows left over after whole vectors. What a drawn row
adds is accounted for given what all others add, so the places of the others must not depend on
whether it is drawn. Of a fixed-size batch they do not: with the row swapped for another one, all
others stay. In a list of a Poisson number of draws those behind it would move up by one. So such
draws are put into places at random, all orders with the empty places equally likely: taking a row's
draws out leaves the others where they are, at random as before.

The total-variation error of all this is charged: `TV_ERROR`.
"""

from __future__ import annotations

import decimal
import functools
import itertools
import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dpmcmc.accounting import costs
from dpmcmc.checks import is_number, whole
from dpmcmc.curator.noise import gaussian, stream
from dpmcmc.curator.sums.exact_sum import Table
from dpmcmc.errors import UnsupportedQuery
from dpmcmc.types import Array, Unit

TAIL_BITS = 80
MAX_DRAWS = 2**24
COLUMNS = 16  # of float32, one line of a processor's cache
# A place below MAX_DRAWS and 40 random bits make one word to sort by, three times
PLACE_BITS, ORDER_PASSES = 24, 3
# Tails of B, in a piece and in all, or a sequence that falls short; 127-bit probabilities; 128-bit
# words cut into at most 2^31 slots; two places with the same 120 bits.
TV_ERROR = 4 * 2.0**-TAIL_BITS + MAX_DRAWS * (2.0**-127 + 2.0**-96) + MAX_DRAWS**2 * 2.0**-121
# A rate is a float64, and so is the mean of the number of draws that stands for it
RATE_ROUNDING = 2.0**-40


def check(batch: Any) -> None:
    """Refuse what is neither a batch nor None."""
    if not isinstance(batch, PoissonBatch | FixedBatch | None):
        raise ValueError(
            f"batch={batch!r} must be None (all rows), PoissonBatch(rate) or FixedBatch(size, of)"
        )


def subsampled_cost(
    batch: PoissonBatch | FixedBatch, unit: Unit, noise_multiplier: float, noise_tv_error: float
) -> costs.SubsampledGaussian:
    """What Gaussian noise on the sum of a batch costs, with the batch's total-variation error."""
    refuse_several_rows(unit)
    return costs.SubsampledGaussian(
        batch.scheme,
        batch.rate * (1 + RATE_ROUNDING),
        noise_multiplier,
        unit.neighbours,
        tv_error=noise_tv_error + TV_ERROR,
    )


def refuse_several_rows(unit: Unit) -> None:
    """A batch is accounted for one row per person."""
    if unit.rows_per_person > 1:
        raise UnsupportedQuery(
            f"rows_per_person={unit.rows_per_person}: a batch may hold several rows of one person, "
            "which no bound here covers; use a query that reads all rows (LogRatio, Accept, "
            "Gradient with batch=None), or one row per person"
        )


@dataclass(frozen=True)
class PoissonBatch:
    """A random batch that has every row with probability `rate`, independently.

    Attributes:
        rate: The probability, in (0, 0.5].

    Raises:
        ValueError: The rate is out of its range.

    Example:
        >>> from dpmcmc import queries
        >>> queries.PoissonBatch(0.01)
        PoissonBatch(rate=0.01)
    """

    scheme: ClassVar[str] = "poisson"

    rate: float

    def __post_init__(self) -> None:
        if not is_number(self.rate) or not 0 < self.rate <= 0.5:
            raise ValueError(
                f"rate={self.rate!r} must lie in (0, 0.5]: for more than half of the rows use all "
                "of them"
            )
        object.__setattr__(self, "rate", float(self.rate))

    def draw(self, key: Array, table: Table) -> tuple[Array, Array]:
        """The drawn slots, and whether each counts.

        Args:
            key: Eight secret words.
            table: The rows.

        Returns:
            Slots of the table, and for each whether it counts.
        """
        num_slots = table.num_slots if table.capacity is None else table.capacity
        mean = -num_slots * math.log1p(-self.rate)
        key_number, key_slots, key_places = stream.random_words(key, (3, 8))
        number = _poisson_number(stream.random_words(key_number, (4,)), mean)
        num_draws = _checked_draws(_most_draws(mean), self)
        slots = _uniform_slots(stream.random_words(key_slots, (num_draws, 4)), num_slots)
        ordered = jnp.sort(jnp.where(jnp.arange(num_draws) < number, slots, num_slots))
        order = _random_order(stream.random_words(key_places, (num_draws, 2 * ORDER_PASSES)))
        return ordered[order], (_is_first(ordered) & (ordered < num_slots))[order]


@dataclass(frozen=True)
class FixedBatch:
    """A random batch of `size` of the `of` rows, all choices equally likely.

    A batch without one slot has another in its place. So a row that is added or removed is swapped
    for another row in some batches, which moves a sum by twice what the row alone can:
    `costs.SubsampledGaussian` counts it.

    Attributes:
        size: The number of rows in the batch, at most half of all.
        of: The public number of rows: n, or the capacity where n is private.

    Raises:
        ValueError: A number is not whole, or the size is out of its range.

    Example:
        >>> from dpmcmc import queries
        >>> queries.FixedBatch(10, of=1000).rate
        0.01
    """

    scheme: ClassVar[str] = "fixed"

    size: int
    of: int

    def __post_init__(self) -> None:
        for name in ("size", "of"):
            object.__setattr__(self, name, whole(name, getattr(self, name), 0, "a number of rows"))
        if not 1 <= self.size <= self.of / 2:
            raise ValueError(
                f"size={self.size} of={self.of}: a batch has at least 1 row and at most half of "
                "them; else use all rows"
            )

    @property
    def rate(self) -> float:
        """The probability that a given row is in the batch."""
        return self.size / self.of

    def draw(self, key: Array, table: Table) -> tuple[Array, Array]:
        """The drawn slots, and whether each counts.

        Args:
            key: Eight secret words.
            table: The rows.

        Returns:
            Slots of the table, and for each whether it counts.

        Raises:
            ValueError: The table's capacity is not `of`.
        """
        if self.of != table.capacity:
            raise ValueError(
                f"of={self.of} must be the table's number of rows or declared capacity, "
                f"{table.capacity}"
            )
        num_draws = _checked_draws(_enough_draws(self.size, self.of), self)
        slots = _uniform_slots(stream.random_words(key, (num_draws, 4)), self.of)
        order = jnp.argsort(slots, stable=True)
        is_new = jnp.zeros(num_draws, bool).at[order].set(_is_first(slots[order]))
        return slots, is_new & (jnp.cumsum(is_new) <= self.size)


class Draws(NamedTuple):
    """A list of draws with repetition, piece by piece."""

    ends: Any  # (pieces of all devices,): where each piece's draws end in the list
    places: Any  # (draws,) in the piece; those after the last end do not count
    words: Any  # (draws, 2): secret words for a coin of each draw
    width: int  # no piece has more draws
    key: Any  # of the places where values are computed


def repeated_draws(key, table: Table, rate: float) -> Draws:
    """Draw every slot a Poisson(rate) number of times.

    The same draws however many devices share the pieces.
    """
    size = table.piece_size
    num_pieces = table.num_slots // table.piece_size
    width = _most_draws(size * rate)
    most = _most_draws(num_pieces * size * rate)
    if num_pieces * width > MAX_DRAWS:
        raise ValueError(
            f"{rate:.3g} draws a row are more than {MAX_DRAWS} in all: choose a smaller bound, or "
            "use all rows"
        )
    key_numbers, key_draws, key_places = stream.random_words(key, (3, 8))
    numbers = _poisson_number(stream.random_words(key_numbers, (num_pieces, 4)), size * rate)
    words = stream.random_words(key_draws, (most, 6))
    return Draws(
        jnp.cumsum(numbers), _uniform_slots(words[:, :4], size), words[:, 4:], width, key_places
    )


def map_drawn(values, table: Table, draws: Draws):
    """values(rows) for each draw, in the order of the list, and whether the draw counts.

    It counts if it has a row and this device has that row. From each piece its own part of the list
    is fetched, filled up to `width` draws with the piece's first row, which costs no access to
    memory; so `values` may be given more rows than were drawn.
    """
    num_pieces = len(table.pieces)
    width = draws.width
    most = draws.places.shape[0]
    starts = jnp.concatenate([jnp.zeros(1, draws.ends.dtype), draws.ends])
    bounds = lax.dynamic_slice_in_dim(starts, table.first_slot // table.piece_size, num_pieces + 1)
    index = bounds[:-1, None] + jnp.arange(width)
    places = jnp.where(index < bounds[1:, None], draws.places[jnp.minimum(index, most - 1)], 0)
    taken = [
        jax.tree.map(functools.partial(_fetch, places=own), piece)
        for piece, own in zip(table.pieces, places, strict=True)
    ]
    rows = jax.tree.map(lambda *parts: jnp.concatenate(parts), *taken)
    order, is_real = _order(table, draws, bounds)
    if table.occupied is not None:
        occupied = jnp.concatenate(
            [_take(piece, own) for piece, own in zip(table.occupied, places, strict=True)]
        )
        is_real = is_real & (_take(occupied, order) != 0)
    # Many pieces and few draws: the filling would be most of the work
    if num_pieces * width > 2 * most:
        rows = jax.tree.map(functools.partial(_take, places=order), rows)
        num_places = most
        order = jnp.arange(most)
    else:
        num_places = num_pieces * width
    # Of each device its own: with one order for all, places there would show how many draws there
    # are here.
    num_devices, device = (
        (1, 0) if table.axis is None else (lax.axis_size(table.axis), table.device[0])
    )
    key = stream.random_words(draws.key, (num_devices, 8))[device]
    mixed = _random_order(stream.random_words(key, (num_places, 2 * ORDER_PASSES)))
    results = values(jax.tree.map(functools.partial(_take, places=mixed), rows))
    return _take(results, _inverse(mixed)[order]), is_real


def _order(table: Table, draws: Draws, bounds):
    """For each draw, where its row is among those fetched, and whether there is one.

    There is one if it is on this device and was not cut off. Of tables whose rows are in their
    first slots this is also whether the slot has a row; for others `map_drawn` finds it out.
    """
    listed = jnp.arange(draws.places.shape[0])
    piece = jnp.sum(listed[:, None] >= bounds[1:-1], axis=1)  # among this device's
    slots = table.first_slot + piece * table.piece_size + draws.places
    rank = listed - bounds[piece]
    is_real = (listed >= bounds[0]) & (listed < bounds[-1]) & (rank < draws.width)
    if table.occupied is None:
        is_real = is_real & (slots < table.num_rows)
    return jnp.where(is_real, piece * draws.width + rank, 0), is_real


def _take(leaf, places):
    # The places are in range by construction; declaring it saves a comparison for every entry.
    return jnp.asarray(leaf).at[places.astype(jnp.int32)].get(mode="promise_in_bounds")


def _fetch(leaf, places):
    """The rows in these places."""
    if leaf.ndim != 2 or jax.default_backend() != "cpu":
        return _take(leaf, places)
    numbers = lax.GatherDimensionNumbers(
        offset_dims=(1,), collapsed_slice_dims=(0,), start_index_map=(0, 1)
    )

    def columns(first):
        starts = jnp.stack([places, jnp.full_like(places, first)], axis=1).astype(jnp.int32)
        return lax.gather(
            leaf,
            starts,
            numbers,
            (1, min(COLUMNS, leaf.shape[1] - first)),
            mode="promise_in_bounds",
        )

    # Some columns at a time: a processor then waits for the memory of several rows at once, not of
    # one after the other.
    return jnp.concatenate([columns(first) for first in range(0, leaf.shape[1], COLUMNS)], axis=1)


def gather(table: Table, slots):
    """The rows in the given slots, as far as this device has them, and which those are."""
    local = slots - table.first_slot
    size = table.piece_size

    def pick(*pieces):
        chosen = None
        for index, leaf in enumerate(pieces):
            taken = jnp.asarray(leaf)[jnp.clip(local - index * size, 0, size - 1)]
            chosen = taken if index == 0 else _choose(local >= index * size, taken, chosen)
        return chosen

    is_here = (local >= 0) & (local < len(table.pieces) * size)
    is_real = slots < table.num_rows if table.occupied is None else pick(*table.occupied) != 0
    return jax.tree.map(pick, *table.pieces), is_here & is_real


def _choose(condition, yes, no):
    return jnp.where(condition.reshape((-1,) + (1,) * (yes.ndim - 1)), yes, no)


def _is_first(ordered):
    return jnp.concatenate([jnp.ones(1, bool), ordered[1:] != ordered[:-1]])


def _random_order(words):
    """A permutation of the places, all equally likely, from six words along the last axis.

    The places are sorted by 120 bits, 40 at a time.
    """
    order = jnp.arange(words.shape[0], dtype=jnp.int32)
    places = order.astype(jnp.uint64)
    for high, low in zip(words.T[::2], words.T[1::2], strict=True):
        random = high.astype(jnp.uint64) << 32 | low.astype(jnp.uint64)
        # Each pass keeps the order of those that are equal in it: the place is in the last bits.
        mixed = jnp.sort((random >> PLACE_BITS << PLACE_BITS)[order] | places)
        order = order[(mixed & (2**PLACE_BITS - 1)).astype(jnp.int32)]
    return order


def _inverse(order):
    return (
        jnp.zeros_like(order)
        .at[order]
        .set(jnp.arange(order.shape[0], dtype=order.dtype), unique_indices=True)
    )


def _uniform_slots(words, num_slots: int):
    """floor(u num_slots) for uniform u of 128 bits: four words along the last axis."""
    carry = jnp.zeros(words.shape[:-1], jnp.uint64)
    for index in reversed(range(4)):
        carry = (words[..., index].astype(jnp.uint64) * np.uint64(num_slots) + carry) >> 32
    return carry.astype(jnp.int64)


def _checked_draws(number: int, batch) -> int:
    if number > MAX_DRAWS:
        raise ValueError(
            f"{batch} would draw {number} rows, more than {MAX_DRAWS}: choose a smaller batch"
        )
    return number


def _poisson_number(words, mean: float):
    """B ~ Poisson(mean), from four words along the last axis."""
    first, table = _poisson_table(mean)
    return first + gaussian.invert(words, table)


def _most_draws(mean: float) -> int:
    first, table = _poisson_table(mean)
    return first + len(table.high)


@functools.cache
def _poisson_table(mean: float) -> tuple[int, gaussian.Tails]:
    """The least value, and of B less that one its tails.

    The bounds are Chernoff's:  P(B >= m + x) <= exp(-x^2 / 2(m + x/3)),  P(B <= m - x) <= exp(-x^2
    / 2m).
    """
    needed = TAIL_BITS * math.log(2)
    above = needed / 3 + math.sqrt(needed**2 / 9 + 2 * needed * mean)
    first = max(0, math.floor(mean - math.sqrt(2 * needed * mean)))
    last = math.ceil(mean + above)
    steps = range(first + 1, last + 1)
    masses = itertools.accumulate(
        steps, lambda mass, value: mass * decimal.Decimal(mean) / value, initial=decimal.Decimal(1)
    )
    return first, gaussian.tails(masses)


@functools.cache
def _enough_draws(size: int, of: int) -> int:
    """Draws among which `size` different ones are missing with probability below 2^-TAIL_BITS.

    Until then a draw is new with chance at least p = 1 - (size - 1) / of, so fewer than `size` new
    ones among k have at most the probability exp(-k KL(size / k, p)).
    """
    chance = 1 - (size - 1) / of

    def is_enough(number: int) -> bool:
        share = size / number
        if share >= chance:
            return False
        loss = share * math.log(share / chance)
        loss += (1 - share) * (math.log((1 - share) / (1 - chance)) if chance < 1 else math.inf)
        return number * loss > TAIL_BITS * math.log(2)

    number = size if size == 1 else size + 1
    while size > 1 and not is_enough(number):
        number += max(1, number // 100)
    return number
