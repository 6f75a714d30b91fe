"""The minibatch queries: sensitivity by brute force, unbiased estimates, noise, price, and what bad
rows do.
"""

import dataclasses
import functools
import itertools
import math

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from scipy import stats

from dpmcmc import Budget, Curator, Model, Neighbours, UnsupportedQuery
from dpmcmc.accounting import accountants, calibrate, costs
from dpmcmc.curator.noise import coins
from dpmcmc.curator.queries import batches
from dpmcmc.curator.queries.correction import CORRECTIONS
from dpmcmc.curator.queries.fixed_batch import BELOW, BIT_BELOW, BatchSums, batch_sums, coarse_bits
from dpmcmc.curator.sums.exact_sum import BITS, Table
from dpmcmc.queries import BatchBarker, BatchRatio, FixedBatch, Gradient
from dpmcmc.types import Unit
from tests.statistics import accept_probability

REPLACE, ADD = Unit(), Unit(Neighbours.ADD_OR_REMOVE_ONE)
FULL = 2**BITS
SECRET = np.arange(16, dtype=np.uint32)
# A row's log-ratio is its value times the move.
MODEL = Model(
    lambda position, row: row * position[0],
    lambda position: 0.0 * position[0],
    lambda position: {"x": position},
    1,
)
START, END = jnp.zeros(1, jnp.float32), jnp.ones(1, jnp.float32)


@functools.cache
def summer(size: int):
    def one(values, bound):
        table = Table((values,), size, REPLACE, capacity=size)
        return batch_sums(
            MODEL, table, START, END, bound, size, jnp.arange(size), jnp.ones(size, bool)
        )

    return jax.jit(jax.vmap(one, (0, None)))


def sums_of(rows, bound=1.0) -> BatchSums:
    """The sums of many batches (number, size), each a table of its own."""
    return summer(rows.shape[1])(jnp.asarray(rows, jnp.float32), bound)


def integers_of(query, sums, bound, unit):
    return np.asarray(
        jax.jit(lambda sums: query.in_units_of_sensitivity(sums, bound, unit)[0])(sums)
    ).astype(object)


# -- sensitivity ----------------------------------------------------------------------------------


def neighbours(size: int, unit: Unit, seed: int):
    """Pairs of batches that differ in one row: all of a coarse grid when the batch is small, else
    random and extreme ones.
    """
    old, new = (
        ([-1.0, 0.0, 1.0], [0.0])
        if unit is ADD
        else ([-1.0, -0.4, 0.7, 1.0], [-1.0, -0.4, 0.3, 1.0])
    )
    rng = np.random.default_rng(seed)
    if size <= 5:
        others = np.array(list(itertools.product([-1.0, -0.4, 0.3, 1.0], repeat=size - 1)))
    else:
        others = rng.choice([-1.0, 0.0, 1.0], (50, size - 1)) * rng.uniform(0, 1.2, (50, 1))
        others = np.concatenate(
            [
                others,
                rng.normal(size=(50, size - 1)),
                np.ones((1, size - 1)),
                -np.ones((1, size - 1)),
            ]
        )
    pairs = list(itertools.product(old, new))
    before, after = (
        np.concatenate(
            [np.column_stack([np.full(len(others), pair[side]), others]) for pair in pairs]
        )
        for side in (0, 1)
    )
    return before, after


@pytest.mark.parametrize("unit", [REPLACE, ADD], ids=["replace", "add"])
@pytest.mark.parametrize("size", [2, 5, 300])
def test_one_row_moves_the_ratio_by_at_most_its_sensitivity_which_is_attained(size, unit):
    before, after = neighbours(size, unit, size)
    with jax.enable_x64(True):
        sums = sums_of(before), sums_of(after)
        for temperature in (1e-4, 0.1, 1e3):  # from no part for the variance to all of it
            query = BatchRatio(1.0, 1.0, FixedBatch(size, 20 * size), temperature)
            values = [integers_of(query, part, 1.0, unit) for part in sums]
            largest = max(abs(values[0] - values[1]))
            assert FULL - query.slack() <= largest <= FULL + query.slack()
            assert query.slack() < 1e-8 * FULL


@pytest.mark.parametrize("size", [2, 300, 2**20])
def test_the_noise_covers_what_rounding_adds_to_the_move_of_one_row(size):
    """1 for the integer, and fewer than 16 roundings of two terms below 2^30 size, each of 2^-53,
    on two tables.
    """
    query = BatchRatio(1.0, 3.0, FixedBatch(size, 20 * size))
    assert query._integer_sigma() >= 3.0 * (FULL + 1 + 2 * 2 * 16 * FULL * size * 2.0**-53)


@pytest.mark.parametrize(
    "unit, g_part, gh_part", [(REPLACE, 2, 2), (ADD, 1, 1.5)], ids=["replace", "add"]
)
def test_the_sensitivity_is_the_formula_in_float64(unit, g_part, gh_part):
    """l* - v* / 2 by NumPy on neighbouring batches, against 2g + 2gh and g + 3/2 gh."""
    size, of, temperature, bound = 5, 100, 0.3, 0.2
    g = of * temperature * bound / size
    h = (1 - size / of) * g
    before, after = neighbours(size, unit, 0)
    lengths = []
    for rows in (before, after):
        ratios = bound * rows
        variance = (of * temperature) ** 2 * (1 - size / of) * ratios.var(1, ddof=1) / size
        lengths.append(of * temperature * ratios.mean(1) - variance / 2)
    assert np.abs(lengths[0] - lengths[1]).max() == pytest.approx(
        g_part * g + gh_part * g * h, rel=1e-12
    )
    query = BatchRatio(1.0, 1.0, FixedBatch(size, of), temperature)
    with jax.enable_x64(True):
        integers, grid = jax.jit(lambda s: query.in_units_of_sensitivity(s, bound, unit))(
            sums_of(before)
        )
    np.testing.assert_allclose(np.asarray(integers) * float(grid), lengths[0], atol=1e-4 * g)
    assert float(grid) * FULL == pytest.approx(g_part * g + gh_part * g * h, rel=1e-12)


def test_leaving_out_the_variance_breaks_the_bound():
    """The twin: noise for the ratio alone."""
    size, query = 5, BatchRatio(1.0, 1.0, FixedBatch(5, 100), 0.3)
    before, after = neighbours(size, REPLACE, 0)
    with jax.enable_x64(True):
        values = []
        for rows in (before, after):
            integer, grid = query.in_units_of_sensitivity(sums_of(rows), 0.2, REPLACE)
            values.append(np.asarray(integer * grid))
    ratio_alone = 2 * 100 * 0.3 * 0.2 / 5
    assert np.abs(values[0] - values[1]).max() > 1.5 * ratio_alone


@pytest.mark.parametrize("size", [2, 7, 2**16, 2**20])
def test_the_spread_is_exact_and_fits_64_bits(size):
    rng = np.random.default_rng(size)
    rows = np.stack([np.resize([1.0, -1.0], size), np.ones(size), rng.uniform(-1, 1, size)]).astype(
        np.float32
    )
    bits = coarse_bits(size)
    with jax.enable_x64(True):
        found = sums_of(rows)
    for values, total, spread in zip(rows, found.total, found.spread, strict=True):
        coarse = np.round(values.astype(float) * 2**bits).astype(np.int64)
        linear, squares = int(coarse.sum()), int((coarse**2).sum())
        assert int(spread) == size * squares - linear**2
        assert 0 <= int(spread) <= size**2 * 4**bits < 2**63
        assert int(total) == int(np.trunc(values.astype(float) * FULL).astype(np.int64).sum())


EXTREME = np.array(
    [0.0, 1.0, -1.0, 1e-45, 3e38, -3e38, np.inf, -np.inf, np.nan, 1 + 2.0**-23, 0.3], np.float32
)


def test_hostile_rows_stay_within_the_bounds():
    rng = np.random.default_rng(0)
    before = rng.choice(EXTREME, (2000, 8))
    after = before.copy()
    after[:, 0] = rng.choice(EXTREME, 2000)
    query = BatchRatio(1.0, 1.0, FixedBatch(8, 100), 0.2)
    barker = BatchBarker(FixedBatch(8, 100), 0.2)
    for bound in (1.0, 0.0, 1e-40, np.inf, np.nan):
        with jax.enable_x64(True):
            sums = [sums_of(rows, bound) for rows in (before, after)]
            values = [integers_of(query, part, 1.0, REPLACE) for part in sums]
            laws = [
                tuple(map(np.asarray, barker.noisy_log_ratio(part, jnp.float32(0.1))))
                for part in sums
            ]
        assert max(abs(values[0] - values[1])) <= FULL + query.slack()
        assert (
            np.abs(laws[0][0] - laws[1][0]).max() <= 2 / 8**0.5
            and min(law[1].min() for law in laws) >= 1
        )


# -- DP Barker: the law that is charged -----------------------------------------------------------


def renyi(mean, variance, other_mean, other_variance, order):
    """Between two normal laws: infinite when the mixed variance is not positive."""
    mixed = order * other_variance + (1 - order) * variance
    value = np.log(other_variance / variance) / 2 + np.log(other_variance / mixed) / (
        2 * (order - 1)
    )
    return value + order * (mean - other_mean) ** 2 / (2 * mixed)


@pytest.mark.parametrize("noise_variance", [2.0, 1.5])
@pytest.mark.parametrize("size, of", [(6, 12), (6, 1000), (300, 10**5)])
def test_barker_stays_within_its_renyi_bound(size, of, noise_variance):
    """For b above and below n^(1/2), where the unbiased variance is below and above the papers'."""
    query = BatchBarker(FixedBatch(size, of), 0.1, noise_variance)
    cost = query.cost(REPLACE)
    before, after = neighbours(size, REPLACE, size)
    half = np.resize([1.0, -1.0], (2, size))
    half[1, 0] = -1
    before, after = np.concatenate([before, half[:1]]), np.concatenate([after, half[1:]])
    with jax.enable_x64(True):
        law = jax.jit(lambda sums: query.noisy_log_ratio(sums, jnp.float32(0.3)))
        (mean, variance), (other_mean, other_variance) = (
            tuple(np.asarray(part, np.longdouble) for part in law(sums_of(rows)))
            for rows in (before, after)
        )
    unit = np.longdouble(noise_variance) / 2
    slack = 1e-15 * size
    assert (np.abs(mean - other_mean) / unit**0.5).max() <= 2 / size**0.5 + slack
    assert (np.abs(variance - other_variance) / unit).max() <= 4 * (size - 1) / size**2 + slack
    assert min(variance.min(), other_variance.min()) / unit >= 1
    for order in (1.5, 2.0, 3.0):
        bound = float(cost.base_rdp(order))
        for pair in (
            (mean, variance, other_mean, other_variance),
            (other_mean, other_variance, mean, variance),
        ):
            assert np.max(renyi(*pair, order)) <= bound
    assert (np.abs(mean - other_mean) / unit**0.5).max() > 0.9 * 2 / size**0.5


def test_the_unbiased_variance_with_the_papers_clip_would_break_the_bound():
    """The twin: b < n^(1/2) and a clip of b^(1/2) / (n T)."""
    size, of = 6, 1000
    half = np.resize([1.0, -1.0], size)
    assert (1 - size / of) * half.var(ddof=1) > 1  # in units in which the noise has variance 2
    query = BatchBarker(FixedBatch(size, of))
    assert query.bound < size**0.5 / of
    with jax.enable_x64(True):
        _, variance = query.noisy_log_ratio(sums_of(half[None]), jnp.float32(0.0))
    assert float(variance[0]) == pytest.approx(1, abs=1e-12) and float(variance[0]) >= 1


def test_the_clip_is_the_papers_where_that_is_enough():
    assert BatchBarker(FixedBatch(100, 1000), 0.05).bound == pytest.approx(100**0.5 / (1000 * 0.05))
    assert BatchBarker(FixedBatch(100, 1000), 0.05, 1.5).bound == pytest.approx(
        75**0.5 / (1000 * 0.05)
    )


def test_the_renyi_bound_covers_every_pair_of_variances_and_means():
    """The worst pair has the largest change of both, the larger variance first: a search over all
    others.
    """
    size = 50
    cost, d = costs.DPBarker(size, 5000), 4 * (size - 1) / size**2
    ends = np.linspace(1, 2, 41)
    for order in (1.2, 2.0, 5.0, 10.0):
        for change in np.linspace(-d, d, 41):
            others = ends + change
            inside = (others >= 1) & (others <= 2)
            for shift in (0.0, 1 / size**0.5, 2 / size**0.5):
                found = renyi(0.0, ends[inside], shift, others[inside], order)
                assert np.all(found <= cost.base_rdp(order) * (1 + 1e-12))


@pytest.mark.parametrize("noise_variance", [2.0, 1.5])
@pytest.mark.parametrize("size", [6, 1000])
def test_what_is_compared_is_rounded_by_less_than_is_charged(size, noise_variance):
    """From the integers to both sides of the comparison, against 40 digits, at log-ratios near 0,
    far out and at the clamp.
    """
    rng = np.random.default_rng(0)
    query = BatchBarker(FixedBatch(size, 100 * size), 0.1, noise_variance)
    unit = query._scale() / size**0.5 / FULL
    wanted = np.concatenate([rng.normal(size=80), rng.uniform(-20, 20, 60), [-70.0, 70.0, 0.0]])
    total = np.minimum(np.maximum(np.round(wanted / unit), -(2**50)), 2**50).astype(np.int64)
    spread = (rng.uniform(0, 1, total.size) * size**2 * 4 ** coarse_bits(size)).astype(np.int64)
    normals = rng.uniform(-17, 17, total.size)
    atom = CORRECTIONS[noise_variance].atoms[-1][0]

    def sides(sums, normals):
        mean, variance = query.noisy_log_ratio(sums, jnp.float32(0.0))
        return mean, jnp.sqrt(variance) * normals + atom

    with jax.enable_x64(True):
        mean, found = jax.jit(sides)(
            BatchSums(jnp.asarray(total), jnp.asarray(spread)), jnp.asarray(normals)
        )
    with mpmath.workdps(40):
        exact = [
            exact_sides(query, *values, atom) for values in zip(total, spread, normals, strict=True)
        ]
        error = [
            abs(float(m) - exact_mean) + abs(float(f) - exact_found)
            for m, f, (exact_mean, exact_found) in zip(mean, found, exact, strict=True)
        ]
        assert 2.0**-50 < max(error) + noise_variance**0.5 * coins.NORMAL_ERROR < 2.0**-44


def exact_sides(query, total, spread, normal, atom):
    """The same formula in mpmath, the public constants as float64 has them."""
    size = query.batch.size
    log_ratio = mpmath.mpf(BIT_BELOW * query._scale() / math.sqrt(size) / 2.0**BITS) * int(total)
    per_spread = (
        BELOW
        * query._scale() ** 2
        * (1 - query.batch.rate)
        / (size * (size - 1))
        / 4.0 ** coarse_bits(size)
    )
    root = mpmath.sqrt(query.noise_variance - mpmath.mpf(per_spread) * int(spread))
    return max(min(log_ratio, 64), -64), root * float(normal) + atom


@pytest.mark.parametrize("size", [6, 1000, 10**6, 2**30 - 1])
def test_rounding_of_the_bit_is_within_what_its_log_ratio_is_taken_smaller_by(size):
    query = BatchBarker(FixedBatch(size, 2**31 - 1), 0.1, 1.5)
    range_ = 2 * query._scale() / size**0.5
    assert (1 - BIT_BELOW) * range_ > 2 * 2.0**-44
    assert (1 - BELOW) * range_ < 2 * 2.0**-44  # would not do


def test_large_budgets_buy_steps():
    """A coin that is off by 2^-49 would end this at 1e-6 / e^epsilon / 2^-49 steps."""
    cost = BatchBarker(FixedBatch(1000, 100_000)).cost(REPLACE)
    coin = dataclasses.replace(cost, tv_error=2.0**-49)
    assert calibrate.steps({cost: 1}, 20.0, 1e-6) > 10 * calibrate.steps({coin: 1}, 20.0, 1e-6)


# -- estimates ------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [2, 6])
def test_ratio_and_variance_are_unbiased_over_all_batches(size):
    """Every batch of 12 rows once: the mean of l*, and the variance of l* against the mean of
    v*."""
    of, bound, temperature = 12, 2.0, 0.3
    rows = np.random.default_rng(0).uniform(-1.9, 1.9, of).astype(np.float32)
    table = Table((jnp.asarray(rows),), of, REPLACE, capacity=of)
    slots = np.array(list(itertools.combinations(range(of), size)))
    all_sums = jax.jit(
        jax.vmap(
            lambda s, bound: batch_sums(
                MODEL, table, START, END, bound, size, s, jnp.ones(size, bool)
            ),
            (0, None),
        )
    )
    with jax.enable_x64(True):
        sums = all_sums(slots, bound)
    ratio = of * temperature * bound / size * np.asarray(sums.total, float) / FULL
    spread = np.asarray(sums.spread, float) / 4.0 ** coarse_bits(size) / size  # Q - S^2 / b
    variance = (of * temperature * bound) ** 2 * (1 - size / of) * spread / (size * (size - 1))
    assert ratio.mean() == pytest.approx(temperature * rows.sum(), abs=1e-6)
    assert variance.mean() == pytest.approx(ratio.var(), rel=1e-3)
    # As the papers have it
    assert variance.mean() * (1 - 1 / size) / (1 - size / of) != pytest.approx(
        ratio.var(), rel=0.04
    )
    query = BatchRatio(2.0, 1.0, FixedBatch(size, of), temperature)
    with jax.enable_x64(True):
        integer, grid = query.in_units_of_sensitivity(sums, bound, REPLACE)
    np.testing.assert_allclose(np.asarray(integer) * float(grid), ratio - variance / 2, atol=1e-6)
    if size >= 6:
        barker = BatchBarker(FixedBatch(size, of), temperature)
        with jax.enable_x64(True):
            mean, left = map(
                np.asarray, barker.noisy_log_ratio(all_sums(slots, barker.bound), jnp.float32(0.0))
            )
        clipped = np.clip(rows, -barker.bound, barker.bound)
        assert float(mean.mean()) == pytest.approx(temperature * clipped.sum(), abs=1e-6)
        assert 2 - float(left.mean()) == pytest.approx(float(mean.var()), rel=1e-3)


def test_the_reverse_move_has_the_opposite_ratio_and_the_same_variance():
    rows = np.random.default_rng(0).normal(size=(100, 9)).astype(np.float32)
    with jax.enable_x64(True):
        there, back = sums_of(rows, 2.0), sums_of(-rows, 2.0)
    np.testing.assert_array_equal(there.total, -np.asarray(back.total))
    np.testing.assert_array_equal(there.spread, back.spread)


# -- answers --------------------------------------------------------------------------------------


@functools.cache
def asker(query, unit):
    def run(keys, rows, num_rows, *points):
        table = Table((rows,), num_rows, unit, capacity=len(rows))
        return jax.vmap(lambda key: query.answer(key, MODEL, table, *points))(keys)

    return jax.jit(run)


def ask_many(query, rows, number: int, *points, unit=REPLACE, num_rows=None):
    keys = np.random.default_rng(0).integers(0, 2**32, size=(number, 8), dtype=np.uint32)
    with jax.enable_x64(True):
        return asker(query, unit)(
            keys, jnp.asarray(rows), jnp.int64(len(rows) if num_rows is None else num_rows), *points
        )


@pytest.mark.parametrize("unit, sensitivity", [
    pytest.param(REPLACE, (2, 2), id="replace", marks=pytest.mark.slow),
    pytest.param(ADD, (1, 1.5), id="add"),
])  # fmt: skip
def test_noise_has_the_stated_standard_deviation(unit, sensitivity):
    """False alarm: 1e-4 per unit (chi-squared of 4000 answers); noise 10 % smaller is caught."""
    query = BatchRatio(2.0, 1.5, FixedBatch(3, 60), 0.5)
    answer = ask_many(
        query, np.zeros(60, np.float32), 4000, START, jnp.full(1, 0.25, jnp.float32), unit=unit
    )
    g = 60 * 0.5 * 2.0 * 0.25 / 3
    stated = 1.5 * (sensitivity[0] * g + sensitivity[1] * g * g * (1 - 3 / 60))
    np.testing.assert_allclose(np.sqrt(answer.variance), stated, rtol=1e-8)
    spread = float(np.sum(np.asarray(answer.value) ** 2)) / stated**2
    low, high = stats.chi2(4000).interval(1 - 1e-4)
    assert low < spread < high
    assert not low < spread * 0.81 < high


def test_answers_have_the_mean_and_variance_of_their_batches():
    """False alarm: 1e-4 (normal score of the mean of 4000 answers), and 1e-4 for their variance
    (its error estimated).
    """
    rows = np.repeat(np.array([-1.0, 1.0], np.float32), [30, 70])
    query = BatchRatio(1.0, 0.05, FixedBatch(10, 100), 0.3)
    answer = ask_many(query, rows, 4000, START, jnp.full(1, 0.5, jnp.float32))
    numbers = np.arange(11)
    chances = stats.hypergeom(100, 70, 10).pmf(numbers)
    ratio = 100 * 0.3 * 0.5 * (2 * numbers - 10) / 10
    value = ratio - (100 * 0.3 * 0.5) ** 2 * 0.9 * (10 - (2 * numbers - 10) ** 2 / 10) / 90 / 2
    mean = chances @ value
    variance = chances @ (value - mean) ** 2 + float(answer.variance[0])
    found = np.asarray(answer.value)
    squares = (found - mean) ** 2
    assert abs(found.mean() - mean) < 3.9 * (variance / 4000) ** 0.5
    assert abs(squares.mean() - variance) < 3.9 * squares.std() / 4000**0.5


def test_bits_fall_as_computed():
    """False alarm: 1e-4 (normal score of 4000 bits)."""
    rows = np.repeat(np.array([-1.0, 1.0], np.float32), [30, 70])
    query = BatchBarker(FixedBatch(10, 100), 0.3, 1.5)
    proposal = jnp.full(1, 0.08, jnp.float32)
    bits = np.asarray(ask_many(query, rows, 4000, START, proposal, jnp.float32(-0.5)).value)
    numbers = np.arange(11)
    chances = stats.hypergeom(100, 70, 10).pmf(numbers)
    batch = np.where(np.arange(10) < numbers[:, None], 0.08, -0.08)
    with jax.enable_x64(True):
        mean, variance = map(
            np.asarray, query.noisy_log_ratio(sums_of(batch, query.bound), jnp.float32(-0.5))
        )
    accept = accept_probability(mean, variance, query.correction)
    expected = chances @ accept
    assert abs(bits.mean() - expected) < 3.9 * (expected * (1 - expected) / 4000) ** 0.5
    assert bits.dtype == bool


def test_a_move_out_of_the_finite_and_a_prior_of_nan_are_rejected():
    query, rows = BatchBarker(FixedBatch(10, 100), 0.3, 1.5), np.ones(100, np.float32)
    for proposal, log_ratio in ((jnp.inf, 50.0), (jnp.nan, 50.0), (0.1, jnp.nan), (0.1, -jnp.inf)):
        point = jnp.full(1, proposal, jnp.float32)
        assert not np.asarray(
            ask_many(query, rows, 4000, START, point, jnp.float32(log_ratio)).value
        ).any()
    assert np.asarray(ask_many(query, rows, 4000, START, END, jnp.float32(jnp.inf)).value).all()


HALF = BatchRatio(1.0, 0.01, FixedBatch(20, 100), 0.001)


@pytest.mark.slow
def test_slots_without_a_row_count_as_zero():
    """With half of the capacity filled, l* still estimates the sum over all rows.

    False alarm: 1e-4.
    """
    rows = np.full(100, np.nan, np.float32)
    rows[:50] = 1.0
    found = np.asarray(ask_many(HALF, rows, 2000, START, END, unit=ADD, num_rows=50).value)
    variance = (100 * 0.001) ** 2 * 0.8 * np.var(np.arange(100) < 50, ddof=1) / 20
    assert abs(found.mean() - (0.001 * 50 - variance / 2)) < 3.9 * found.std() / 2000**0.5


def test_bad_rows_give_finite_answers():
    for bad in (np.nan, np.inf, -np.inf, 3e38):
        answer = ask_many(HALF, np.full(100, bad, np.float32), 2000, START, END, unit=ADD)
        assert np.isfinite(answer.value).all()


def test_devices_add_their_integers():
    """Two shards under one axis name give what one table gives."""
    rows = np.random.default_rng(0).normal(size=40).astype(np.float32)
    slots, drawn = jnp.arange(3, 33), jnp.ones(30, bool)
    with jax.enable_x64(True):

        def shard(piece, axis=None, device=None):
            return batch_sums(
                MODEL,
                Table((piece,), 40, REPLACE, axis, 40, device=device),
                START,
                END,
                2.0,
                30,
                slots,
                drawn,
            )

        whole = jax.jit(shard)(rows)
        sharded = jax.vmap(lambda piece, device: shard(piece, "rows", device), axis_name="rows")
        parts = jax.jit(sharded)(rows.reshape(2, 20), jnp.arange(2)[:, None])
    assert [int(part[0]) for part in parts] == [int(part) for part in whole]


# -- price ----------------------------------------------------------------------------------------


def test_costs():
    ratio = BatchRatio(1.0, 2.0, FixedBatch(10, 100), 0.1)
    for unit in (REPLACE, ADD):
        cost = ratio.cost(unit)
        assert (cost.scheme, cost.noise_multiplier, cost.neighbours) == (
            "fixed",
            2.0,
            unit.neighbours,
        )
        assert 0.1 < cost.rate < 0.1 + 1e-12 and batches.TV_ERROR < cost.tv_error < 1e-17
    assert ratio.cost(REPLACE) == BatchRatio(7.0, 2.0, FixedBatch(10, 100), 3.0).cost(REPLACE)
    barker = BatchBarker(FixedBatch(50, 1000), 0.1)
    for unit in (REPLACE, ADD):
        cost = barker.cost(unit)
        assert (type(cost), cost.batch, cost.rows, cost.bound) == (
            costs.DPBarker,
            50,
            1000,
            "tight",
        )
        assert cost.tv_error == coins.REAL_TV_ERROR + batches.TV_ERROR < 1e-19
    assert barker.cost(REPLACE) == BatchBarker(FixedBatch(50, 1000), 2.0, 1.5).cost(REPLACE)
    for query in (ratio, barker):
        with pytest.raises(UnsupportedQuery, match="rows_per_person=2"):
            query.cost(Unit(rows_per_person=2))


@pytest.mark.parametrize(
    "query",
    [BatchRatio(1.0, 5.0, FixedBatch(50, 2000), 0.01), BatchBarker(FixedBatch(50, 2000), 0.01)],
)
def test_the_statement_names_the_query_and_its_cost(query):
    curator = Curator(np.zeros(2000, np.float32), MODEL, Budget(4.0, 1e-6))
    statement = curator.grant({query: 5}).statement()
    assert f"5 x {query!r}" in str(statement) and query.released in str(statement)
    assert 0 < statement.epsilon < 4 and math.isfinite(statement.epsilon)


@pytest.mark.parametrize("make, text", [
    (lambda: BatchRatio(0.0, 1.0, FixedBatch(10, 100)), "clip=0.0"),
    (lambda: BatchRatio(1.0, -1.0, FixedBatch(10, 100)), "noise_multiplier=-1.0"),
    (lambda: BatchRatio(1.0, 1.0, FixedBatch(10, 100), np.nan), "temperature=nan"),
    (lambda: BatchRatio(1.0, 1.0, 0.1), "FixedBatch"),
    (lambda: BatchRatio(1.0, 1.0, FixedBatch(1, 100)), "size=1"),
    (lambda: BatchBarker(FixedBatch(5, 100)), "size=5"),
    (lambda: BatchBarker(FixedBatch(10, 100), 0.0), "temperature=0.0"),
    (lambda: BatchBarker(FixedBatch(10, 100), 1.0, 1.7), "noise_variance=1.7"),
    (lambda: BatchBarker(100), "FixedBatch"),
])  # fmt: skip
def test_bad_settings_are_named(make, text):
    with pytest.raises(ValueError, match=text):
        make()


def true_delta(rate, shifts, noise_multiplier, epsilon):
    """Of (1-q) N(0) + q N(shift) with the row against the same without it, in either order, by a
    fine grid.
    """
    x = np.linspace(-12, 16, 400_001) * noise_multiplier
    density = lambda mean: stats.norm.pdf(x, mean, noise_multiplier)  # noqa: E731
    laws = [(1 - rate) * density(0.0) + rate * density(shift) for shift in shifts]
    excess = [
        np.trapezoid(np.maximum(p - math.exp(epsilon) * q, 0), x) for p, q in (laws, laws[::-1])
    ]
    return max(excess)


@pytest.mark.parametrize(
    "rate, noise_multiplier, epsilon",
    [(0.01, 1.0, 1.0), (0.1, 1.0, 0.1), (0.3, 3.0, 0.2), (0.001, 0.7, 2.0)],
)
def test_the_bill_of_a_removed_row_covers_the_row_that_takes_its_place(
    rate, noise_multiplier, epsilon
):
    """All others at -1, this one at +1 or not there: a batch with its slot has 2, or 1, more than
    one without. In units of one row.

    The cost of a slot whose content is replaced, with which it was billed once, is too low by
    orders of magnitude.
    """
    batch = FixedBatch(round(rate * 10_000), 10_000)
    worst = true_delta(rate, (2.0, 1.0), noise_multiplier, epsilon)
    for query in (
        Gradient(1.0, noise_multiplier, batch),
        BatchRatio(1.0, noise_multiplier, batch, 1e-4),
    ):
        cost = query.cost(ADD)
        assert cost.rate == pytest.approx(rate, rel=1e-9)
        assert accountants.delta({dataclasses.replace(cost, tv_error=0.0): 1}, epsilon) >= worst
        twin = dataclasses.replace(cost, neighbours=Neighbours.REPLACE_ONE, tv_error=0.0)
        assert accountants.delta({twin: 1}, epsilon) < 0.7 * worst
