"""Where rows lie.

The value of a row may depend on its slot, so a row that comes or goes must leave all others in
theirs.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from dpmcmc import Budget, Curator, Neighbours, models
from dpmcmc.curator.noise import stream
from dpmcmc.curator.queries import batches, curvature, gradient, log_ratio, statistic
from dpmcmc.curator.queries.log_ratio import log_ratio_sum, unit_ratios
from dpmcmc.curator.sums import fused, layouts
from dpmcmc.curator.sums.exact_sum import Table, transposed
from dpmcmc.precision import own_settings

BUDGET = Budget(1.0, 1e-6, Neighbours.ADD_OR_REMOVE_ONE)
DIMENSION, CAPACITY = 50, 203  # on a processor that takes 8 rows at a time, three are left over
MODEL = models.logistic(DIMENSION, radius=8.0)
GENERATOR = np.random.default_rng(3)
ROWS = (
    GENERATOR.normal(size=(CAPACITY, DIMENSION)).astype(np.float32),
    GENERATOR.integers(0, 2, CAPACITY).astype(np.float32),
)
START = GENERATOR.normal(size=DIMENSION).astype(np.float32)
END = START + 1e-4 * GENERATOR.normal(size=DIMENSION).astype(np.float32)
FALSE_ALARM = 1e-4


# -- random slots ---------------------------------------------------------------------------------


def p_value(orders):
    """Of the first two of six slots: all pairs are equally likely."""
    counts = np.bincount(6 * orders[:, 0] + orders[:, 1], minlength=36).reshape(6, 6)
    return stats.chisquare(counts[~np.eye(6, dtype=bool)]).pvalue


def test_slots_are_uniformly_random(monkeypatch):
    generator = np.random.default_rng(0)
    monkeypatch.setattr(stream.secrets, "token_bytes", generator.bytes)
    assert p_value(np.array([stream.random_order(6) for _ in range(6000)])) > FALSE_ALARM


def test_numbers_that_are_equal_are_drawn_again(monkeypatch):
    """Sorted they would stay in their order: among 10^7 slots two are equal with probability 3e-6,
    more than a delta.
    """
    drawn = iter([np.array([5, 5, 3]), np.array([5, 4, 3])])
    monkeypatch.setattr(
        stream.secrets, "token_bytes", lambda size: next(drawn).astype(np.uint64).tobytes()
    )
    assert list(stream.random_order(3)) == [2, 1, 0]


def test_slots_in_the_order_of_the_rows_are_caught():
    generator = np.random.default_rng(0)
    assert (
        p_value(np.sort([generator.permutation(6)[:2] for _ in range(6000)], axis=1)) < FALSE_ALARM
    )


@pytest.mark.parametrize(
    "budget", [BUDGET, Budget(1.0, 1e-6, rows_per_person=2)], ids=["a row", "a person's rows"]
)
def test_every_row_has_a_slot_of_its_own_where_their_number_is_private(budget):
    curator = Curator(tuple(leaf[:150] for leaf in ROWS), MODEL, budget, capacity=CAPACITY)
    (piece,), (occupied,), *_ = curator._placed.stored
    # As GPUs have it
    piece = (
        piece
        if curator._placed.by_columns is None
        else transposed(piece, curator._placed.by_columns)
    )
    found = np.flatnonzero(occupied)
    assert len(found) == 150 and not np.array_equal(found, np.arange(150))
    np.testing.assert_array_equal(np.sort(piece[0][found], axis=0), np.sort(ROWS[0][:150], axis=0))
    assert Curator(ROWS, MODEL, Budget(1.0, 1e-6))._placed.stored[1] is None


# -- what a row that is gone leaves behind --------------------------------------------------------


def ratio_sum(rows, order, monkeypatch):
    """The integer sum of all log-ratios, the rows in these slots."""
    monkeypatch.setattr(stream, "random_order", lambda *_: order)
    curator = Curator(rows, MODEL, BUDGET, capacity=CAPACITY)

    def run(stored, num_rows):
        table, _ = curator.hold(stored, num_rows, jnp.zeros(16, jnp.uint32))
        return log_ratio_sum(MODEL, table, START, END, MODEL.lipschitz * 1e-4)

    with own_settings():
        return int(jax.jit(run)(curator._placed.stored, curator._placed.num_rows))


def slanted(*arguments):
    """As on a processor that rounds rows differently from slot to slot, which some do in the last
    ones; here by much.
    """
    values = unit_ratios(*arguments)
    return values * (1 + 2.0**-10 * jnp.arange(values.size))


@pytest.mark.parametrize("ratios", [unit_ratios, slanted])
def test_a_row_that_is_gone_leaves_the_others_in_their_slots(ratios, monkeypatch):
    """The row itself says nothing, so the sums must be equal; if the others moved up by one slot,
    they would not be.
    """
    monkeypatch.setattr(log_ratio, "unit_ratios", ratios)
    monkeypatch.setattr(fused, "row_layout", lambda *_: None)
    rows = tuple(np.zeros_like(leaf) for leaf in ROWS)
    for leaf, given in zip(rows, ROWS, strict=True):
        leaf[200] = given[0]
    without = tuple(leaf[1:] for leaf in rows)
    in_order = np.arange(CAPACITY)
    assert ratio_sum(rows, in_order, monkeypatch) == ratio_sum(
        without, np.roll(in_order, -1), monkeypatch
    )
    if ratios is slanted:
        assert ratio_sum(rows, in_order, monkeypatch) != ratio_sum(without, in_order, monkeypatch)


# -- rows in any slots are the same rows ----------------------------------------------------------

SMALL = models.linear(3, 1.0, radius=2.0, response_bound=3.0, position_radius=2.0)
VALUES = (
    GENERATOR.integers(-4, 5, (300, 3)).astype(np.float32) / 4,
    GENERATOR.integers(-8, 9, 300).astype(np.float32) / 4,
)
# Products are exact in any order
POINTS = np.array([0.5, -0.25, 1.0], np.float32), np.array([0.5, 0.25, 0.75], np.float32)


def tables(num_pieces: int):
    """The same 300 rows in the first slots, and anywhere; and where each of them is."""
    capacity = 1024
    slots = np.random.default_rng(5).permutation(capacity)[:300]

    def placed(leaf, places):
        whole = np.zeros((capacity, *leaf.shape[1:]), leaf.dtype)
        whole[places] = leaf
        return np.split(whole, num_pieces)

    def table(places, **options):
        pieces = tuple(
            zip(*(map(jnp.asarray, placed(leaf, places)) for leaf in VALUES), strict=True)
        )
        return Table(pieces, np.int64(300), BUDGET.unit, capacity=capacity, **options)

    occupied = tuple(map(jnp.asarray, placed(np.ones(300, np.int8), slots)))
    return table(np.arange(300)), table(slots, occupied=occupied), slots


SUMS = {
    "ratio": lambda table: log_ratio_sum(SMALL, table, *POINTS, 1.0),
    "gradient": lambda table: gradient.all_rows_sum(
        SMALL, gradient.with_scales(table, SMALL), POINTS[0], 5.0
    ),
    "gradient by rows": lambda table: gradient.all_rows_sum(
        SMALL._replace(linear=None), table, POINTS[0], 5.0
    ),
    "curvature": lambda table: curvature.curvature_sum(SMALL, table, POINTS[0], 5.0),
    "statistic": lambda table: statistic.statistic_sum(SMALL.family, table),
}


@pytest.mark.parametrize("num_pieces", [pytest.param(1, marks=pytest.mark.slow), 4])
@pytest.mark.parametrize("name", SUMS)
def test_sums_do_not_depend_on_the_slots(name, num_pieces):
    first, anywhere, _ = tables(num_pieces)
    with own_settings():
        found = [np.asarray(jax.jit(SUMS[name])(table)) for table in (first, anywhere)]
    np.testing.assert_array_equal(*found)
    assert np.any(found[0] != 0)


@pytest.mark.parametrize("name", ["ratio", "gradient"])
def test_fused_kernels_do_not_depend_on_the_slots(name, monkeypatch):
    monkeypatch.setattr(layouts, "INTERPRET", True)
    first, anywhere, _ = tables(1)
    with own_settings():
        found = [np.asarray(jax.jit(SUMS[name])(table)) for table in (first, anywhere)]
    np.testing.assert_array_equal(*found)
    assert np.any(found[0] != 0)


@pytest.mark.parametrize("num_pieces", [1, 4])
def test_a_batch_has_the_rows_of_its_slots(num_pieces):
    first, anywhere, slots = tables(num_pieces)
    with own_settings():
        asked = jnp.asarray(np.concatenate([slots[:20], np.setdiff1d(np.arange(1024), slots)[:20]]))
        rows, is_real = jax.jit(batches.gather)(anywhere, asked)
        expected, _ = jax.jit(batches.gather)(first, jnp.arange(20))
    np.testing.assert_array_equal(is_real, np.arange(40) < 20)
    for found, wanted in zip(rows, expected, strict=True):
        np.testing.assert_array_equal(found[:20], wanted)


@pytest.mark.parametrize(
    "num_pieces, rate",
    [
        pytest.param(1, 0.3, marks=pytest.mark.slow),
        (4, 0.3),
        pytest.param(4, 0.002, marks=pytest.mark.slow),
    ],
    ids=["one piece", "four", "few draws"],
)
def test_repeated_draws_have_the_rows_of_their_slots(num_pieces, rate):
    _, anywhere, slots = tables(num_pieces)
    with own_settings():
        run = jax.jit(lambda key, table: _drawn(table, batches.repeated_draws(key, table, rate)))
        ends, places, responses, is_real = map(
            np.asarray, run(jnp.arange(8, dtype=jnp.uint32), anywhere)
        )
    listed = np.arange(len(is_real))
    drawn = np.searchsorted(ends, listed, side="right") * anywhere.piece_size + places
    responses_of = dict(zip(slots.tolist(), VALUES[1].tolist(), strict=True))
    wanted = [slot in responses_of for slot in drawn.tolist()] & (listed < ends[-1])
    np.testing.assert_array_equal(is_real, wanted)
    assert [responses_of[slot] for slot in drawn[wanted].tolist()] == responses[wanted].tolist()


def _drawn(table, draws):
    return draws.ends, draws.places, *batches.map_drawn(lambda rows: rows[1], table, draws)
