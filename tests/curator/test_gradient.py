"""The gradient query: its sensitivity in exact integers, its noise, its batches, and what bad rows
contribute.
"""

import dataclasses
import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from scipy import stats

from dpmcmc import Budget, Curator, Model, Neighbours, UnsupportedQuery
from dpmcmc.accounting import costs
from dpmcmc.curator.queries import batches, gradient
from dpmcmc.curator.sums import exact_sum, linear_rows
from dpmcmc.curator.sums.clipping import clip_to_unit_ball
from dpmcmc.models import linear, logistic, poisson
from dpmcmc.queries import FixedBatch, Gradient, PoissonBatch
from dpmcmc.testing import simulate_linear_rows, simulate_logistic_rows, simulate_poisson_rows
from dpmcmc.types import Linear, Unit

SECRET = np.arange(16, dtype=np.uint32)


@functools.cache
def inner_product(dimension: int, is_linear: bool) -> Model:
    """log-likelihood x . theta: a row's gradient is the row itself."""

    def log_likelihood(position, row):
        return jnp.dot(row, position, precision="highest")

    parts = (
        Linear(log_likelihood, lambda row: (row,), lambda predictor, row: predictor)
        if is_linear
        else None
    )
    return Model(
        log_likelihood, lambda p: 0.0 * jnp.sum(p), lambda p: {"p": p}, dimension, linear=parts
    )


def ask_many(curator, query, positions, seed=0):
    """One answer for each position, in one grant."""
    keys = jax.random.split(jax.random.key(seed), len(positions))

    def program(ask, keys, positions):
        return jax.vmap(lambda key, p: ask(key, query, p))(keys, positions)

    traced = curator.trace(program, keys, positions)
    return curator.grant(traced.plan).run(traced.compile(), keys, positions)


@functools.cache
def summing(model, clip, unit, capacity, by_columns, *what_tests_replace):
    """(pieces, their number of rows, position) -> the sum of clipped gradients."""

    def run(pieces, num_rows, position):
        table = exact_sum.Table(pieces, num_rows, unit, capacity=capacity, by_columns=by_columns)
        total = gradient.all_rows_sum(model, gradient.with_scales(table, model), position, clip)
        bits = exact_sum.BITS if model.linear is None else linear_rows.grid_bits(table.num_slots)
        return total * clip / 2.0**bits

    return jax.jit(run)


def sum_before_noise(rows, model, clip, position):
    """The sum of clipped gradients, as it is before the noise."""
    curator = Curator(rows, model, None)
    run = summing(
        model,
        clip,
        curator.unit,
        curator.capacity,
        curator._placed.by_columns,
        exact_sum.CACHED_ENTRIES,
    )
    with jax.enable_x64(True):
        return np.asarray(run(curator._placed.stored[0], curator._placed.num_rows, position))


def row_gradients(model, position, rows):
    return jax.jit(jax.vmap(jax.grad(model.log_likelihood), (None, 0)))(position, rows)


# -- one value in two places ----------------------------------------------------------------------


def excess_features(row):
    """An excess over a product, twice: of some 1e3 with a fused product and sum, of 0 without."""
    x, y, z, w = row
    return jnp.stack([x * y - z]), jnp.stack([z - x * y + w])


def excess_model():

    def predictor(position, row):
        return jnp.dot(jnp.concatenate(excess_features(row)), position)

    parts = Linear(predictor, excess_features, lambda predictor, row: jax.nn.log_sigmoid(predictor))
    return inner_product(2, False)._replace(
        log_likelihood=lambda p, row: jax.nn.log_sigmoid(predictor(p, row)), linear=parts
    )


@pytest.mark.skipif(
    jax.default_backend() != "cpu",
    reason="a GPU's compiler does not show what the short cut would do wrong",
)
def test_features_that_are_computed_twice_do_not_pass_the_clip():
    """The short cut finds their length in one place and adds them in another, each rounded in its
    own way.
    """
    x, y = np.float32(300_007.3), np.float32(200_003.7)
    rows = np.random.default_rng(0).uniform(0.5, 2, (20_001, 4)).astype(np.float32)
    tables = [
        np.concatenate([rows[:7], np.array([row], np.float32), rows[8:]])
        for row in ((x, y, x * y, 1e-3), (0, 0, 0, 0))
    ]

    def moved_by(model):
        one, other = (
            sum_before_noise(table, model, 1.0, jnp.zeros(2, jnp.float32)) for table in tables
        )
        return np.linalg.norm(one - other)

    model = Curator(tables[0], excess_model(), None).model
    assert model.linear is None and moved_by(model) <= 2.0
    assert moved_by(excess_model()) > 100


@pytest.mark.parametrize(
    "features, is_taken",
    [
        (lambda row: (row["x"],), True),
        (lambda row: (jnp.ones(1), row["x"][:2]), True),
        (lambda row: (jnp.stack([row["x"][2], row["y"].astype(jnp.float32), -row["x"][0]]),), True),
        (lambda row: (row["x"][jnp.array([2, 0, 1])],), True),
        (jax.jit(lambda row: (row["x"],)), True),
        (lambda row: (row["x"] / 3,), False),
        (lambda row: (row["x"] + 1,), False),
        # Of a NaN there is no telling what it becomes
        (lambda row: (row["x"].astype(jnp.int32),), False),
        (lambda row: (jnp.append(row["x"][:2], row["x"][0] * row["x"][1]),), False),
        (jax.jit(lambda row: (jnp.sin(row["x"]),)), False),
    ],
)
def test_features_are_cells_that_are_moved(features, is_taken):

    def predictor(position, row):
        return jnp.dot(jnp.concatenate(features(row)), position)

    parts = Linear(predictor, features, lambda predictor, row: predictor)
    model = Model(predictor, lambda p: 0.0 * jnp.sum(p), lambda p: {"p": p}, 3, linear=parts)
    rows = {"x": np.arange(12, dtype=np.float32).reshape(4, 3), "y": np.arange(4, dtype=np.int32)}
    frozen = Curator(rows, model, None).model
    assert (frozen.linear is not None) is is_taken
    if is_taken:
        row = jax.tree.map(lambda leaf: leaf[1], rows)
        assert np.array_equal(
            np.concatenate(frozen.linear.features(row)), np.concatenate(features(row))
        )


@jax.custom_jvp
def hidden_excess(x, y, z):
    return (x.astype(jnp.float32) * y - z).astype(jnp.int32)


hidden_excess.defjvps(None, None, None)


@pytest.mark.parametrize(
    "features",
    [
        lambda row: (jnp.stack([hidden_excess(*row)]),),
        lambda row: (
            jnp.stack([lax.switch(row[0], [lambda: hidden_excess(*row), lambda: row[1]])]),
        ),
        lambda row: (
            jnp.stack([lax.fori_loop(0, row[0], lambda i, z: (z * 0.3).astype(jnp.int32), row[1])]),
        ),
        lambda row: (jnp.stack([(row[0] / row[1]).astype(jnp.int32)]),),
    ],
    ids=["rule", "switch", "loop", "quotient"],
)
def test_whole_features_may_have_been_rounded_on_the_way(features):
    parts = Linear(lambda p, row: row[0] * p[0], features, lambda predictor, row: predictor)
    model = Model(parts.predictor, lambda p: 0.0 * p[0], lambda p: {"p": p}, 1, linear=parts)
    assert Curator(np.ones((4, 3), np.int32), model, None).model.linear is None


def test_features_of_two_curators_are_each_ones_own():
    columns = [0, 1]
    features = dataclasses.make_dataclass(
        "Features", [], namespace={"__call__": lambda self, row: (row[np.array(columns)],)}
    )
    parts = Linear(
        lambda p, row: jnp.dot(row[np.array(columns)], p),
        features(),
        lambda predictor, row: predictor,
    )
    model = inner_product(2, False)._replace(log_likelihood=parts.predictor, linear=parts)
    row, rows = np.arange(3, dtype=np.float32), np.ones((4, 3), np.float32)
    first, same = (Curator(rows, model, None).model.linear for _ in range(2))
    columns[:] = [1, 2]
    second = Curator(rows, model, None).model.linear
    assert [np.concatenate(linear.features(row)).tolist() for linear in (first, second)] == [
        [0, 1],
        [1, 2],
    ]
    assert first == same and first != second and hash(first.features) == hash(same.features)


def test_features_that_change_are_those_of_the_first_time():
    """An impure function would have one length, and another vector in its place."""
    calls = []

    def features(row):
        return (row, np.full(1, 10.0 ** len(calls.append(0) or calls), np.float32))

    parts = Linear(lambda p, row: jnp.dot(row, p[:2]), features, lambda predictor, row: predictor)
    model = Curator(
        np.ones((4, 2)),
        inner_product(3, False)._replace(log_likelihood=parts.predictor, linear=parts),
        None,
    ).model
    found = [model.linear.features(np.ones(2, np.float32))[1][0] for _ in range(3)]
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("dimension, number", [(1, 2), (3, 1), (3, 2)])
def test_features_have_one_entry_for_each_of_the_position(dimension, number):
    """Else one noise would be added to several entries, or one entry be released several times."""
    parts = Linear(
        lambda p, row: row[0] * p[0], lambda row: (row[:number],), lambda predictor, row: predictor
    )
    model = inner_product(dimension, False)._replace(log_likelihood=parts.predictor, linear=parts)
    with pytest.raises(
        ValueError,
        match=f"a tuple of vectors with {dimension} entries in all.*it returned float64 of shape",
    ):
        Curator(np.ones((4, 3)), model, None)
    whole = parts._replace(features=lambda row: row[:dimension])
    with pytest.raises(ValueError, match="a tuple of vectors"):
        Curator(np.ones((4, 3)), model._replace(linear=whole), None)


def test_integers_are_made_in_one_place(monkeypatch):
    """A compiler that makes them again where they are added may make others than those whose length
    was looked at.
    """

    def num_places():
        model, rows = excess_model()._replace(linear=None), np.ones((20_001, 4), np.float32)
        adder = lambda rows, num_rows, position: gradient.all_rows_sum(  # noqa: E731
            model, exact_sum.Table((rows,), num_rows, Unit(), capacity=len(rows)), position, 1.0
        )
        with jax.enable_x64(True):
            compiled = (
                jax.jit(adder)
                .lower(rows, np.int64(20_001), np.zeros(2, np.float32))
                .compile()
                .as_text()
            )
        return len(re.findall(r"= s32\[\d+,2\]\S* convert\(", compiled))

    assert num_places() == 1
    monkeypatch.setattr(exact_sum, "once", lambda make, num_rows: make())
    assert num_places() > 1


# -- sensitivity ----------------------------------------------------------------------------------


def adversarial_rows(seed: int, number: int, dimension: int) -> np.ndarray:
    """float32 rows whose length is 1 up to a few roundings, or far above, in directions that
    provoke rounding.
    """
    rng = np.random.default_rng(seed)
    directions = rng.normal(size=(number, dimension))
    directions[1::8] = rng.choice([-1.0, 1.0], size=directions[1::8].shape)
    directions[2::8] = np.exp(rng.normal(scale=6, size=directions[2::8].shape))
    directions[3::8] = rng.integers(0, 2, size=directions[3::8].shape) + 2.0**-12
    lengths = np.linalg.norm(directions, axis=1)
    stretch = 1 + rng.integers(-8, 9, size=number) * 2.0**-24
    stretch[4::8] = np.exp(rng.uniform(0, 40, size=stretch[4::8].shape))
    return (directions * (stretch / lengths)[:, None]).astype(np.float32)


def too_long(integers: np.ndarray, bits: int) -> int:
    """How many integer vectors are longer than 2^bits, decided without rounding."""
    squared = np.sum(integers.astype(float) ** 2, axis=1)
    doubtful = integers[squared > 4.0**bits * (1 - 1e-12)]
    return sum(sum(int(entry) ** 2 for entry in row) > 4**bits for row in doubtful)


def integers_by_rows(rows):
    dimension = rows.shape[1]
    model = inner_product(dimension, is_linear=False)
    return gradient.row_integers(model, rows, 1, jnp.zeros(dimension, jnp.float32), 1.0)


def integers_by_linear_rows(rows):
    model, bits = inner_product(rows.shape[1], is_linear=True), linear_rows.MAX_BITS
    scales = linear_rows.row_scales(model.linear, rows, bits, False, len(rows))
    position = jnp.zeros(rows.shape[1], jnp.float32)

    def one(row, scale):
        row, scale = jax.tree.map(lambda leaf: leaf[None], (row, scale))
        return linear_rows.gradient_integers(
            model.linear, row, scale, jnp.ones(1, bool), position, 1.0, bits
        )

    return jax.vmap(one)(rows, scales)


def integers_without_the_check(rows):
    """The twin: floating-point clipping as everyone writes it, then truncation."""
    return exact_sum.fixed_point(
        rows * jnp.minimum(1.0, 1 / jnp.linalg.norm(rows, axis=1, keepdims=True))
    )


def count_too_long(function, bits: int, dimension: int, number: int = 10**6) -> int:
    step = 10**5
    with jax.enable_x64(True):
        compiled = jax.jit(function)
        return sum(
            too_long(np.asarray(compiled(adversarial_rows(seed, step, dimension))), bits)
            for seed in range(number // step)
        )


@pytest.mark.parametrize("dimension", [2, 10, pytest.param(100, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "function, bits",
    [(integers_by_rows, exact_sum.BITS), (integers_by_linear_rows, linear_rows.MAX_BITS)],
    ids=["rows", "linear"],
)
def test_a_million_adversarial_rows_never_exceed_the_bound(function, bits, dimension):
    assert count_too_long(function, bits, dimension, 10**6 if dimension < 100 else 3 * 10**5) == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "function, bits",
    [(integers_by_rows, exact_sum.BITS), (integers_by_linear_rows, linear_rows.MAX_BITS)],
    ids=["rows", "linear"],
)
def test_a_million_long_adversarial_rows_never_exceed_the_bound(function, bits):
    assert count_too_long(function, bits, 100) == 0


@pytest.mark.parametrize("dimension", [2, 10, pytest.param(100, marks=pytest.mark.slow)])
def test_clipping_without_the_check_is_caught(dimension):
    assert count_too_long(integers_without_the_check, exact_sum.BITS, dimension, 10**5) > 1000


@pytest.mark.parametrize("dimension", [1, 2, 3, 17, 100, 4096])
def test_the_integer_check_holds_for_any_integers(dimension):
    rng = np.random.default_rng(dimension)
    integers = rng.integers(-(2**31), 2**31, size=(200, dimension)).astype(np.int32)
    integers[::4] = -(2**31)
    lengths = np.linalg.norm(integers.astype(float), axis=1, keepdims=True)
    wanted = (
        2.0**30
        * np.array([0.5, 0.99999, 1.0, 1 + 2.0**-27, 1.00001])[rng.integers(0, 5, size=(200, 1))]
    )
    integers[1::2] = np.trunc(integers * (wanted / lengths))[1::2]
    with jax.enable_x64(True):
        found = np.asarray(exact_sum.shrink_to_ball(jnp.asarray(integers)))
    assert too_long(found, exact_sum.BITS) == 0
    short = np.linalg.norm(integers.astype(float), axis=1) < 0.9999 * 2**30
    np.testing.assert_array_equal(found[short], integers[short])


@pytest.mark.parametrize("num_slots", [1, 2**21, 2**22 - 1, 2**25 - 1, 2**31 - 1])
def test_sums_of_short_cuts_fit_their_numbers(num_slots):
    """In 62 bits all in all, in the 53 of a float64 block by block."""
    bits = linear_rows.grid_bits(num_slots)
    assert num_slots << bits <= 2**62 and linear_rows.longest_block(bits) << bits <= 2**53


@pytest.mark.parametrize("is_linear", [False, True], ids=["rows", "linear"])
def test_a_row_at_the_bound_counts_nearly_in_full(is_linear):
    rows = np.array([[0.6, 0.8], [3e4, 4e4], [-6e-4, -8e-4]], np.float32)
    total = sum_before_noise(rows, inner_product(2, is_linear), 1.0, jnp.zeros(2))
    np.testing.assert_allclose(total, [2 * 0.6 - 6e-4, 2 * 0.8 - 8e-4], rtol=1e-5)


@pytest.mark.parametrize("dimension", [1, 2, 5, 100])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_clipped_rows_are_not_taken_for_too_long(dtype, dimension):
    """The integer check overestimates lengths a little: without a margin for that, most float64
    rows at the bound were lost.
    """
    rows = np.random.default_rng(0).normal(size=(10_000, dimension))
    rows = (3.0 * rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(dtype)
    with jax.enable_x64(True):
        ball = jax.jit(
            lambda rows: exact_sum.shrink_to_ball(
                exact_sum.fixed_point(clip_to_unit_ball(rows, 1.0))
            )
        )
        found = np.asarray(ball(rows))
    np.testing.assert_allclose(
        np.linalg.norm(found / 2.0**exact_sum.BITS, axis=1), 1.0, atol=(dimension + 17) * 2.0**-23
    )
    assert too_long(found, exact_sum.BITS) == 0


# -- values ---------------------------------------------------------------------------------------

REGRESSIONS = {
    "logistic": (
        lambda **o: logistic(3, 1.0, **o),
        lambda *a: simulate_logistic_rows(*a, 1.0, True),
    ),
    "linear": (
        lambda **o: linear(3, 0.5, **o),
        lambda *a: simulate_linear_rows(*a, 1.0, 0.5, True),
    ),
    "poisson": (lambda **o: poisson(3, **o), lambda *a: simulate_poisson_rows(*a, 1.0, True)),
}


@pytest.mark.parametrize("name, intercept", [
    ("logistic", True),
    pytest.param("logistic", False, marks=pytest.mark.slow),
    pytest.param("linear", True, marks=pytest.mark.slow),
    pytest.param("poisson", True, marks=pytest.mark.slow),
])  # fmt: skip
def test_both_paths_give_the_clipped_gradient(name, intercept):
    make, simulate = REGRESSIONS[name]
    model = make(intercept=intercept)
    rows = simulate(jax.random.key(0), 5003, [0.3, 1.0, -1.0, 0.5])
    position = jnp.asarray([0.1, 0.5, -0.5, 0.2])[: model.dimension]
    each = np.asarray(row_gradients(model, position, rows))
    wanted = (each * np.minimum(1.0, 0.7 / np.linalg.norm(each, axis=1, keepdims=True))).sum(0)
    for same in (model, model._replace(linear=None)):
        np.testing.assert_allclose(
            sum_before_noise(rows, same, 0.7, position), wanted, rtol=2e-4, atol=0.02
        )


@pytest.mark.parametrize(
    "is_linear", [pytest.param(False, marks=pytest.mark.slow), True], ids=["rows", "linear"]
)
def test_the_sum_does_not_depend_on_how_rows_are_split(is_linear, monkeypatch):
    model = logistic(3, 1.0, intercept=True)
    model = model if is_linear else model._replace(linear=None)
    rows = simulate_logistic_rows(jax.random.key(1), 401, [0.3, 1.0, -1.0, 0.5], 1.0, True)
    monkeypatch.setattr(exact_sum, "CACHED_ENTRIES", 256)
    sums = []
    for target in (2**18, 101):
        monkeypatch.setattr(exact_sum, "TARGET_PIECE", target)
        sums.append(sum_before_noise(rows, model, 1.0, jnp.asarray([0.1, 0.2, 0.3, 0.4])))
    np.testing.assert_array_equal(*sums)


@pytest.mark.parametrize(
    "is_linear", [pytest.param(False, marks=pytest.mark.slow), True], ids=["rows", "linear"]
)
def test_double_rows_are_answered_too(is_linear):
    model = logistic(2, 1.0)
    model = model if is_linear else model._replace(linear=None)
    features, labels = simulate_logistic_rows(jax.random.key(1), 400, [1.0, -1.0], 1.0)
    total = sum_before_noise(
        (np.asarray(features, np.float64), np.asarray(labels, np.float64)), model, 1.0, jnp.zeros(2)
    )
    wanted = row_gradients(model, jnp.zeros(2), (features, labels)).sum(0)
    np.testing.assert_allclose(total, wanted, rtol=1e-4)


@pytest.mark.parametrize(
    "function, bits",
    [(integers_by_rows, exact_sum.BITS), (integers_by_linear_rows, linear_rows.MAX_BITS)],
    ids=["rows", "linear"],
)
def test_bad_rows_contribute_a_public_amount(function, bits):
    nan, inf = np.nan, np.inf
    rows = np.array(
        [
            [0, 0],
            [nan, 1],
            [3e38, 3e38],
            [1e-44, 0],
            [0.5, 0],
            [1e-37, 0],
            [inf, -1],
            [inf, -inf],
            [-inf, nan],
        ],
        np.float32,
    )
    with jax.enable_x64(True):
        found = np.asarray(jax.jit(function)(rows)) / 2.0**bits
    wanted = [[0, 0], [0, 0], [0.5**0.5, 0.5**0.5], [0, 0], [0.5, 0], [0, 0]]
    np.testing.assert_allclose(found[:6], wanted, atol=1e-5)
    assert np.isfinite(found).all() and np.linalg.norm(found, axis=1).max() <= 1


@pytest.mark.parametrize("is_double", [False, True], ids=["float32", "float64"])
def test_rows_are_scaled_by_exact_powers_of_two(is_double):
    """Or a fused product would round to other integers than the ones whose length was measured."""
    rows = np.exp(np.random.default_rng(0).normal(scale=20, size=(4000, 3))).astype(
        np.float64 if is_double else np.float32
    )
    with jax.enable_x64(True):
        scales = jax.jit(
            lambda rows: linear_rows.row_scales(
                inner_product(3, True).linear, rows, 40, is_double, 500
            )
        )(rows)
    mantissa, exponent = np.frexp(np.asarray(scales.factor))
    assert (mantissa == 0.5).all()
    np.testing.assert_array_equal(exponent - 1 + np.frexp(rows.max(axis=1))[1], 20)


@pytest.mark.parametrize("bad", [np.nan, -np.nan, np.inf])
@pytest.mark.parametrize("is_linear", [False, True], ids=["rows", "linear"])
def test_a_bad_cell_among_many_rows_changes_the_sum_by_its_own_row_only(is_linear, bad):
    rows = np.random.default_rng(0).normal(size=(4000, 8)).astype(np.float32)
    model, clip = inner_product(8, is_linear), 0.5
    before = sum_before_noise(rows, model, clip, jnp.zeros(8))
    rows[17, 3] = bad
    after = sum_before_noise(rows, model, clip, jnp.zeros(8))
    assert 0 < np.linalg.norm(after - before) <= 2 * clip


def test_a_row_too_small_to_be_scaled_counts_as_zero():
    """Its factor would be infinite, and the whole sum a NaN."""
    rows = np.random.default_rng(0).normal(size=(40, 2)).astype(np.float32)
    sums = []
    for rows[17] in (0.0, 1e-37):
        sums.append(sum_before_noise(rows, inner_product(2, True), 0.5, jnp.zeros(2)))
    np.testing.assert_array_equal(*sums)


def test_an_infinite_residual_is_clipped_in_its_direction():
    rows = (np.ones((1, 1), np.float32), np.ones(1, np.float32))
    for model in (poisson(1), poisson(1)._replace(linear=None)):
        np.testing.assert_allclose(
            sum_before_noise(rows, model, 2.0, jnp.full(1, 500.0)), [-2.0], rtol=1e-4
        )


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="a GPU takes more rows at a time")
def test_no_table_of_gradients_is_made():
    model, num_rows = logistic(50, 1.0), 2**16
    rows = (np.zeros((num_rows, 50), np.float32), np.zeros(num_rows, np.float32))
    for same in (model, model._replace(linear=None)):
        query = Gradient(1.0, 1.0)
        traced = Curator(rows, same, None).trace(
            lambda ask, key, p: ask(key, query, p),  # noqa: B023
            jax.random.key(0),
            jnp.zeros(50),
        )
        assert (
            traced.compile().compiled.memory_analysis().temp_size_in_bytes < num_rows * 50 * 4 / 4
        )


# -- noise and its price --------------------------------------------------------------------------


def test_noise_has_its_scale_and_not_one_5_percent_off():
    rows = np.zeros((10, 4), np.float32)
    curator = Curator(rows, inner_product(4, False), None, fixed_secret=SECRET)
    answer = ask_many(curator, Gradient(0.5, 3.0, temperature=0.25), jnp.zeros((15_000, 4)))
    scale = 0.25 * 3.0 * 2 * 0.5
    np.testing.assert_allclose(answer.variance, scale**2, rtol=1e-6)
    draws = np.asarray(answer.value, float).ravel()
    # 60 000 draws: false alarm 1e-4; at 5 % off the p-value is about 1e-7.
    assert stats.kstest(draws / scale, "norm").pvalue > 1e-4
    assert stats.kstest(draws / (1.05 * scale), "norm").pvalue < 1e-5
    assert stats.kstest(draws * 1.05 / scale, "norm").pvalue < 1e-5
    correlations = np.corrcoef(np.asarray(answer.value, float).T)[np.triu_indices(4, 1)]
    assert np.abs(correlations).max() * 15_000**0.5 < 4.5


@pytest.mark.parametrize("relation, rows_per_person, factor", [
    (Neighbours.REPLACE_ONE, 1, 2),
    (Neighbours.ADD_OR_REMOVE_ONE, 1, 1),
    (Neighbours.REPLACE_ONE, 3, 6),
])  # fmt: skip
@pytest.mark.parametrize("is_linear", [False, True])
def test_noise_follows_the_unit_of_privacy(relation, rows_per_person, factor, is_linear):
    """On the finer grid of a linear predictor as well, where noise of as many grid points would be
    a thousandth.
    """
    table, model = (
        exact_sum.Table((np.zeros((3, 2), np.float32),), 3, Unit(relation, rows_per_person)),
        inner_product(2, is_linear),
    )
    answer = lambda key: Gradient(0.5, 3.0).answer(  # noqa: E731
        key, model, gradient.with_scales(table, model), jnp.zeros(2)
    )
    with jax.enable_x64(True):
        variance = jax.jit(lambda key: answer(key).variance)(np.zeros(8, np.uint32))
    np.testing.assert_allclose(variance, (3.0 * 0.5 * factor) ** 2, rtol=1e-6)


def test_costs():
    full = Gradient(1.0, 2.0).cost(Unit())
    assert (
        isinstance(full, costs.Gaussian)
        and full.noise_multiplier == 2.0
        and 0 < full.tv_error < 1e-16
    )
    batch = Gradient(1.0, 2.0, batch=PoissonBatch(0.1)).cost(Unit(Neighbours.ADD_OR_REMOVE_ONE))
    assert (batch.scheme, batch.neighbours) == ("poisson", Neighbours.ADD_OR_REMOVE_ONE)
    assert 0.1 < batch.rate < 0.1 + 1e-12
    fixed = Gradient(1.0, 2.0, batch=FixedBatch(10, 100)).cost(Unit())
    assert (fixed.scheme, fixed.neighbours) == ("fixed", Neighbours.REPLACE_ONE)
    with pytest.raises(UnsupportedQuery, match="rows_per_person=2"):
        Gradient(1.0, 2.0, batch=PoissonBatch(0.1)).cost(Unit(rows_per_person=2))


def test_the_statement_names_the_gradient_and_its_cost():
    model, query = logistic(2, 1.0), Gradient(1.0, 5.0, batch=PoissonBatch(0.05))
    rows = np.zeros((500, 2), np.float32), np.zeros(500, np.float32)
    curator = Curator(rows, model, Budget(4.0, 1e-6))
    traced = curator.trace(lambda ask, key, p: ask(key, query, p), jax.random.key(0), jnp.zeros(2))
    assert traced.plan == {query: 1}
    statement = curator.grant({query: 40}).statement()
    assert f"40 x {query!r}" in str(statement) and query.released in str(statement)
    assert statement.epsilon < 1


# -- batches --------------------------------------------------------------------------------------


def table_of(num_rows: int, capacity: int, num_pieces: int = 3):
    size = -(-capacity // num_pieces)
    whole = np.arange(num_pieces * size, dtype=np.float32)
    return exact_sum.Table(
        tuple(map(jnp.asarray, np.split(whole, num_pieces))), num_rows, Unit(), capacity=capacity
    )


def inclusions(batch, table, number: int, seed: int = 0) -> np.ndarray:
    """Whether each slot is in the batch, for many batches; and each batch's rows must be those of
    its slots.
    """
    rng = np.random.default_rng(seed)

    def one(key):
        slots, is_counted = batch.draw(key, table)
        rows, is_real = batches.gather(table, slots)
        is_counted = is_counted & is_real
        is_right = jnp.all(jnp.where(is_counted, rows == slots, True))
        return jnp.zeros(table.num_slots + 1, jnp.int32).at[slots].add(
            is_counted.astype(jnp.int32)
        ), is_right

    with jax.enable_x64(True):
        found, is_right = jax.jit(lambda keys: lax.map(one, keys, batch_size=500))(
            rng.integers(0, 2**32, size=(number, 8), dtype=np.uint32)
        )
    assert bool(jnp.all(is_right)) and int(found.max()) == 1
    return np.asarray(found)[:, :-1]


@pytest.mark.parametrize(
    "rate",
    [pytest.param(0.02, marks=pytest.mark.slow), 0.3, pytest.param(0.5, marks=pytest.mark.slow)],
)
def test_poisson_batches_hold_every_row_independently(rate):
    number, num_rows = 20_000, 90
    found = inclusions(PoissonBatch(rate), table_of(num_rows, 100), number)
    assert found[:, num_rows:].sum() == 0
    found = found[:, :num_rows]
    # 90 rates, 4 005 correlations and one law of the size; false alarm below 1e-4 + 1e-4 + 1e-4.
    deviation = np.sqrt(rate * (1 - rate) / number)
    assert np.abs(found.mean(0) - rate).max() / deviation < 5.0
    correlations = np.corrcoef(found.T)[np.triu_indices(num_rows, 1)]
    assert np.abs(correlations).max() * number**0.5 < 6.0
    assert abs(correlations.mean() * number**0.5 * len(correlations) ** 0.5) < 4.0
    sizes = found.sum(1)
    values, counts = np.unique(sizes, return_counts=True)
    expected = stats.binom.pmf(values, num_rows, rate) * number
    common = expected > 10
    assert (
        stats.chi2.sf(np.sum((counts - expected)[common] ** 2 / expected[common]), common.sum())
        > 1e-4
    )


@pytest.mark.parametrize(
    "size", [pytest.param(1, marks=pytest.mark.slow), 7, pytest.param(50, marks=pytest.mark.slow)]
)
def test_fixed_batches_have_their_size_and_treat_rows_alike(size):
    number, num_rows = 20_000, 100
    found = inclusions(FixedBatch(size, num_rows), table_of(num_rows, num_rows), number, seed=size)
    assert (found.sum(1) == size).all()
    rate = size / num_rows
    assert (
        np.abs(found[:, :num_rows].mean(0) - rate).max() / np.sqrt(rate * (1 - rate) / number) < 5.0
    )
    if size > 1:
        together = (found[:, :50] * found[:, 50:100]).mean(0)
        chance = rate * (size - 1) / (num_rows - 1)
        assert np.abs(together - chance).max() / np.sqrt(chance / number) < 5.0


def batch_sums(rows, model, clip, batch, number):
    """Sums of clipped gradients over many batches, before the noise, in units of the clip."""
    num_rows = len(jax.tree.leaves(rows)[0])
    table = exact_sum.Table((jax.tree.map(jnp.asarray, rows),), num_rows, Unit(), capacity=num_rows)
    keys = np.random.default_rng(0).integers(0, 2**32, size=(number, 8), dtype=np.uint32)
    bits = exact_sum.BITS if model.linear is None else linear_rows.grid_bits(table.num_slots)

    def one(key):
        return gradient.batch_sum(
            model, table, jnp.zeros(model.dimension), clip, *batch.draw(key, table)
        )

    with jax.enable_x64(True):
        return (
            np.asarray(jax.jit(lambda keys: lax.map(one, keys, batch_size=100))(keys)) / 2.0**bits
        )


@pytest.mark.parametrize("is_linear, batch", [
    (True, PoissonBatch(0.1)),
    (False, FixedBatch(30, 300)),
    pytest.param(False, PoissonBatch(0.1), marks=pytest.mark.slow),
    pytest.param(True, FixedBatch(30, 300), marks=pytest.mark.slow),
], ids=["linear-poisson", "rows-fixed", "rows-poisson", "linear-fixed"])  # fmt: skip
def test_batches_estimate_the_gradient_of_all_rows(is_linear, batch):
    rows = np.random.default_rng(0).normal(0.5, size=(300, 2)).astype(np.float32)
    values = 9.0 * batch_sums(rows, inner_product(2, is_linear), 9.0, batch, 4000) / batch.rate
    z = (values.mean(0) - rows.sum(0)) / (values.std(0) / 4000**0.5)
    assert np.abs(z).max() < 4.5
    assert (values.std(0) > 10).all()


def test_the_answer_of_a_batch_is_scaled_by_its_rate():
    table = exact_sum.Table((np.zeros((300, 2), np.float32),), 300, Unit(), capacity=300)
    query = Gradient(0.5, 3.0, batch=FixedBatch(30, 300))
    with jax.enable_x64(True):
        answer = jax.jit(
            lambda key: query.answer(key, inner_product(2, False), table, jnp.zeros(2))
        )(SECRET[:8])
    np.testing.assert_allclose(answer.variance, (3.0 / 0.1) ** 2, rtol=1e-6)
    assert 0 < np.abs(answer.value).max() < 6 * 30


@pytest.mark.parametrize("is_linear", [False, True])
def test_devices_add_their_parts_of_a_batch(is_linear):
    """Two shards under one axis name give what one table gives."""
    rows, model = (
        np.random.default_rng(0).normal(size=(2, 20, 3)).astype(np.float32),
        inner_product(3, is_linear),
    )
    slots, is_counted = jnp.arange(3, 33), jnp.arange(30) % 3 > 0

    def shard(pieces, axis=None, device=None):
        table = exact_sum.Table(tuple(pieces), 40, Unit(), axis, 40, device=device)
        return gradient.batch_sum(model, table, jnp.zeros(3), 1.0, slots, is_counted)

    with jax.enable_x64(True):
        whole = jax.jit(shard)(rows)
        spread = jax.vmap(lambda piece, device: shard((piece,), "rows", device), axis_name="rows")
        parts = jax.jit(spread)(rows, jnp.arange(2)[:, None])
    np.testing.assert_array_equal(parts, [whole, whole])


def test_large_batches_are_cut_into_exact_blocks():
    rows = (np.ones((60_000, 1), np.float32), np.ones(60_000, np.float32))
    total = batch_sums(rows, logistic(1, 1.0), 1.0, FixedBatch(30_000, 60_000), 1)
    np.testing.assert_allclose(total, [[15_000]], rtol=1e-5)


# -- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize("make, text", [
    (lambda: Gradient(0.0, 1.0), "clip=0.0"),
    (lambda: Gradient(1.0, -1.0), "noise_multiplier=-1.0"),
    (lambda: Gradient(1.0, 1.0, temperature=np.nan), "temperature=nan"),
    (lambda: Gradient(1.0, 1.0, batch=0.1), "batch=0.1"),
    (lambda: FixedBatch(2.5, 100), "size=2.5 must be a whole number"),
    (lambda: FixedBatch(2, 100.5), "of=100.5 must be a whole number"),
    (lambda: PoissonBatch(0.6), "rate=0.6"),
    (lambda: FixedBatch(60, 100), "size=60"),
])  # fmt: skip
def test_bad_settings_are_named(make, text):
    with pytest.raises(ValueError, match=text):
        make()


def test_a_fixed_batch_must_know_the_table():
    curator = Curator(np.zeros((10, 2), np.float32), inner_product(2, True), None)
    with pytest.raises(ValueError, match=r"of=12 .* 10"):
        ask_many(curator, Gradient(1.0, 1.0, batch=FixedBatch(2, 12)), jnp.zeros((1, 2)))
