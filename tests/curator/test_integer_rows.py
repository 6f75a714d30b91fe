"""The pass of integers: the same bits whatever the shapes, no row beyond its sensitivity, and sums
that are close to those in floating point.
"""

import functools
import hashlib
import math
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpmcmc import Curator, Neighbours, models
from dpmcmc.curator.sums import gpu_integers, layouts
from dpmcmc.curator.sums import integer_rows as module
from dpmcmc.curator.sums.exact_sum import Table
from dpmcmc.curator.sums.integer_rows import gradient_sum, hessian_sum, integer_rows
from dpmcmc.queries import Curvature, Gradient
from dpmcmc.types import Unit
from tests.chains import SECRET

MODEL = models.logistic(3, radius=1.0, intercept=True)
POSITIONS = np.float32([[0, 0, 0, 0], [0.3, -1, 2, 0.5], [-4, 30, -20, 9], [1e30, np.nan, 1, -1e9]])
# Of the integers below: a CPU and a GPU must both have it (`pytest -k digest` there)
DIGEST = "64bc79"


def rows_of(number, generator=None):
    generator = generator or np.random.default_rng(0)
    features = np.clip(generator.standard_normal((number, 3)) / 4, -0.5, 0.5).astype(np.float32)
    return features, (generator.random(number) < 0.4).astype(np.float32)


def table_of(rows, model=MODEL, capacity=None):
    number = len(rows[1])
    integers = integer_rows(model, rows, number, capacity or number)
    integers = jax.tree.map(jnp.asarray, integers)
    return Table((), jnp.asarray(number), Unit(), integers=integers)


@jax.jit
def both_sums(table, positions):
    """Of the gradient and of the Hessian, at each of the positions."""
    both = [
        jax.vmap(lambda at, of=of: of(table, at))(positions) for of in (gradient_sum, hessian_sum)
    ]
    return both


def sums(rows, positions=POSITIONS, **options):
    with jax.enable_x64(True):
        found = both_sums(table_of(rows, **options), jnp.asarray(positions))
        return [np.asarray(each) for each in found]


def sums_by_hand(rows, position):
    """The same in Python's integers, row by row, from the features and tables alone."""
    table = table_of(rows).integers
    features, labels, slopes, roots = (
        np.asarray(part) for part in (table.features, table.labels, table.slopes, table.roots)
    )
    with jax.enable_x64(True):
        whole = np.asarray(module._position_integers(jnp.asarray(position)))
    gradient, hessian = np.zeros(4, object), np.zeros((4, 4), object)
    for row, label in zip(features[: len(rows[1])], labels, strict=False):
        numbers = [int(entry) for entry in row]
        predictor = sum(entry * int(at) for entry, at in zip(numbers, whole, strict=True))
        place = math.floor(Fraction(predictor) * Fraction(table.step) / 2**7 + Fraction(1, 2))
        place = min(max(place, -(2**21)), 2**21 - 1) + 2**21
        cell = (place >> 10) + int(label) * 4097
        slope, root = (
            int(of[cell]) + (((int(of[cell + 1]) - int(of[cell])) * (place & 1023) + 512) >> 10)
            for of in (slopes, roots)
        )
        gradient += slope * np.array(numbers, object)
        entries = np.array([round(Fraction(entry * root, 2**15)) for entry in numbers], object)
        hessian += np.outer(entries, entries)
    return gradient, hessian


def test_the_sums_are_those_of_pythons_integers():
    rows = rows_of(50)
    gradients, hessians = sums(rows)
    for position, gradient, hessian in zip(POSITIONS, gradients, hessians, strict=True):
        by_hand = sums_by_hand(rows, position)
        assert gradient.tolist() == by_hand[0].tolist()
        assert hessian.tolist() == by_hand[1].tolist()


def test_shapes_and_orders_change_no_bit():
    rows = rows_of(5000)
    order = np.random.default_rng(1).permutation(5000)
    expected = sums(rows)
    for other in (
        sums(rows, capacity=20_000),
        sums(tuple(leaf[order] for leaf in rows)),
        [
            np.concatenate(parts)
            for parts in zip(*[sums(rows, POSITIONS[i : i + 1]) for i in range(4)], strict=True)
        ],
    ):
        for one, same in zip(expected, other, strict=True):
            np.testing.assert_array_equal(one, same)


def test_the_digest_is_that_of_every_device():
    digest = hashlib.sha256(b"".join(part.astype("<i8").tobytes() for part in sums(rows_of(5000))))
    assert digest.hexdigest()[:6] == DIGEST


def test_sums_are_close_to_those_in_floating_point():
    """A gradient within 2e-6 for each row, and a Hessian within 1.2 % of its largest entry: for a
    constant feature all rows round r alike, by at most 1/2 of some 89.
    """
    rows = rows_of(20_000)
    table = table_of(rows).integers
    design = np.column_stack([np.ones(20_000), rows[0]]).astype(float)
    for position, gradient, hessian in zip(
        POSITIONS[:2], *(s[:2] for s in sums(rows)), strict=True
    ):
        chance = 1 / (1 + np.exp(-(design @ position.astype(float))))
        expected = design.T @ (rows[1] - chance)
        np.testing.assert_allclose(gradient * table.slope_unit, expected, atol=2e-6 * 20_000)
        weighted = (design * (chance * (1 - chance))[:, None]).T @ design
        error = np.abs(hessian * table.root_unit - weighted).max()
        assert error < 0.012 * weighted.max()


# -- one row --------------------------------------------------------------------------------------


def hostile_rows():
    """Rows on the sphere and beyond it, in all directions, tiny ones, and no numbers."""
    generator = np.random.default_rng(2)
    directions = generator.standard_normal((3000, 3))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    lengths = np.tile([1.0, 1 - 1e-7, 1 + 1e-7, 1.5, 1e3, 1e30, 1e-30, 0.999], 375)
    features = (directions * lengths[:, None]).astype(np.float32)
    features[:8] = [[np.nan, 0, 0], [np.inf, 0, 0], [-np.inf, np.inf, 1], [3e38, 3e38, 3e38],
                    [1, 0, 0], [-1, 0, 0], [0.57735, 0.57735, 0.57735], [0, 0, 0]]  # fmt: skip
    labels = np.resize(np.float32([0, 1, np.nan, np.inf, -np.inf, 0.5]), 3000)
    return features, labels


def largest_contributions(rows, model):
    """The largest |K X| and |r| of any of the rows at hostile positions, in exact integers."""
    integers = jax.tree.map(jnp.asarray, integer_rows(model, rows, len(rows[1]), len(rows[1])))
    generator = np.random.default_rng(3)
    positions = np.concatenate(
        [
            np.zeros((1, model.dimension)),
            *(generator.standard_normal((4, model.dimension)) * 10.0**s for s in range(-3, 4)),
        ]
    )
    longest = [0, 0]
    with jax.enable_x64(True):
        for position in positions:
            whole = module._position_integers(jnp.asarray(position))
            cell, place = module._places(integers, integers.features, integers.labels, whole)
            slopes, roots = (
                np.asarray(module.looked_up(of.__getitem__, cell, place)).astype(object)
                for of in (integers.slopes, integers.roots)
            )
            features = np.asarray(integers.features).astype(object)
            squares = (features**2).sum(axis=1)
            vectors = np.round(
                np.asarray(integers.features) * np.asarray(roots, float)[:, None] / 2**15
            )
            lengths = (vectors.astype(int) ** 2).sum(axis=1)
            longest = [
                max(longest[0], max(slopes**2 * squares)),
                max(longest[1], int(lengths.max())),
            ]
    return longest


@pytest.mark.parametrize("intercept", [False, True])
def test_no_row_moves_a_sum_by_more_than_its_sensitivity(intercept):
    """In exact integers; and the bounds are nearly attained."""
    model = models.logistic(3, radius=1.0, intercept=intercept)
    rows = hostile_rows()
    slope_square, root_square = largest_contributions(rows, model)
    integers = integer_rows(model, rows, len(rows[1]), len(rows[1]))
    most = int(integers.gradient_sensitivity(model.lipschitz)) ** 2
    assert 0.98 * most < slope_square <= most
    assert (
        0.95 * 127**2 < root_square <= integers.hessian_sensitivity(model.hessian_bound) == 127**2
    )


def test_rows_rounded_to_the_nearest_without_a_check_would_be_too_long(monkeypatch):
    def nearest(features, step, longest):
        is_finite = np.isfinite(features).all(axis=1)
        scaled = np.where(is_finite[:, None], features, 0) / step
        length = np.linalg.norm(scaled, axis=1)
        shorter = scaled * np.minimum(1, longest / np.maximum(length, 1e-300))[:, None]
        return np.rint(shorter).astype(int), is_finite

    monkeypatch.setattr(module, "rounded", nearest)
    model = models.logistic(3, radius=1.0)
    with np.errstate(all="ignore"):
        slope_square, _ = largest_contributions(hostile_rows(), model)
        integers = integer_rows(model, hostile_rows(), 3000, 3000)
    assert slope_square > int(integers.gradient_sensitivity(model.lipschitz)) ** 2


def test_without_room_for_rounding_a_hessian_would_be_too_large(monkeypatch):
    monkeypatch.setattr(module, "ROUNDING", 0.0)
    model = models.logistic(3, radius=1.0)
    _, root_square = largest_contributions(hostile_rows(), model)
    assert root_square > 127**2


def test_sums_of_the_largest_products_are_exact_in_float32():
    """1024 rows at the bound, of one sign, stay below 2^24; twice as many would not."""
    assert (
        module.BLOCK * module.HESSIAN_SENSITIVITY
        < 2**24
        < 2 * module.BLOCK * module.HESSIAN_SENSITIVITY
    )
    features = np.zeros((1024, 3), np.float32)
    features[:, 0] = 1.0
    model = models.logistic(3, radius=1.0)
    rows = features, np.zeros(1024, np.float32)
    with jax.enable_x64(True):
        total = hessian_sum(table_of(rows, model), jnp.zeros(3))
    assert int(total[0, 0]) == 1024 * 126**2  # 127 less the room for rounding


# -- the queries ----------------------------------------------------------------------------------


def answer(query, rows, capacity=None, unit=None):
    curator = Curator(rows, MODEL, None, capacity=capacity, unit=unit, fixed_secret=SECRET)
    key = jax.random.key(0)
    traced = curator.trace(lambda ask, key, at: ask(key, query, at), key, POSITIONS[1])
    return curator.grant(traced.plan).run(traced.compile(), key, POSITIONS[1])


@pytest.mark.parametrize(
    "query", [Gradient(MODEL.lipschitz, 0.01), Curvature(MODEL.hessian_bound, 0.01)]
)
def test_a_private_number_of_rows_has_the_same_sum(query):
    """Where rows may be absent the answer has the same mean; false alarm below 1e-6."""
    rows = rows_of(3000)
    unit = Unit(Neighbours.ADD_OR_REMOVE_ONE)
    both = [answer(query, rows), answer(query, rows, capacity=5000, unit=unit)]
    error = np.abs(np.asarray(both[0].value) - np.asarray(both[1].value)).max()
    assert error < 6 * math.sqrt(float(both[0].variance) + float(both[1].variance))


@pytest.mark.parametrize(
    "query, is_of_integers",
    [
        (Gradient(MODEL.lipschitz, 1.0), True),
        (Gradient(0.99 * MODEL.lipschitz, 1.0), False),
        (Curvature(MODEL.hessian_bound, 1.0), True),
        (Curvature(0.99 * MODEL.hessian_bound, 1.0), False),
    ],
)
def test_a_clip_below_the_bound_is_kept(query, is_of_integers, monkeypatch):
    """The pass of integers clips nothing, so that it answers with a proved bound alone."""
    asked = []
    for name in ("gradient_sum", "hessian_sum"):
        of = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *given, of=of: asked.append(1) or of(*given))
    answer(query, rows_of(100))
    assert bool(asked) is is_of_integers


def asked(program, curator):
    """What a program returns, with the fixed secret, and the kinds of its passes."""
    kinds = []
    unspied = module.sum_here

    def spy(rows, whole, of_kinds):
        kinds.append(of_kinds)
        return unspied(rows, whole, of_kinds)

    arguments = jax.random.key(5), jnp.asarray(POSITIONS[:2])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "sum_here", spy)
        traced = curator.trace(program, *arguments)
        kinds.clear()  # of what was traced for shapes
        executable = traced.compile()
    return curator.grant(traced.plan).run(executable, *arguments), kinds


def in_a_loop(of_one):
    def program(ask, key, positions):
        def body(carry, part):
            number, position = part
            return carry, of_one(ask, jax.random.fold_in(key, number), position)

        return jax.lax.scan(body, 0, (jnp.arange(2), positions))[1]

    return program


def in_lanes(of_one):
    def program(ask, key, positions):
        keys = jax.random.split(key, 2)
        return jax.vmap(lambda key, position: of_one(ask, key, position))(keys, positions)

    return program


def in_lanes_at_one_point(of_one):
    def program(ask, key, positions):
        keys = jax.random.split(key, 2)
        return jax.vmap(lambda key: of_one(ask, key, positions[1]))(keys)

    return program


@pytest.mark.parametrize("around", [in_a_loop, in_lanes, in_lanes_at_one_point])
def test_one_pass_answers_a_gradient_and_a_hessian_at_one_point(around):
    gradient = Gradient(MODEL.lipschitz, 2.0)
    curvature = Curvature(MODEL.hessian_bound, 3.0)

    def together(ask, key, position):
        first, second = jax.random.split(key)
        return ask(first, gradient, position).value, ask(second, curvature, position).value

    def apart(ask, key, position):
        first, second = jax.random.split(key)
        same = position + jnp.zeros_like(position)  # another point, as far as anybody can see
        return ask(first, gradient, position).value, ask(second, curvature, same).value

    rows = rows_of(3000)
    curator = Curator(rows, MODEL, None, fixed_secret=SECRET)
    found, kinds = asked(around(together), curator)
    assert set(kinds) == {("gradient", "hessian")}
    expected, kinds = asked(around(apart), curator)
    assert set(kinds) == {("gradient",), ("hessian",)}
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("number", [1500, 3000])
def test_the_gpu_kernel_makes_the_same_integers(number, monkeypatch):
    """Step by step on a CPU. That a GPU does is what `pytest -k digest` shows there."""
    table = table_of(rows_of(number))
    with jax.enable_x64(True):
        expected = [module.sums(None, table, ("gradient", "hessian"), at) for at in POSITIONS]
        monkeypatch.setattr(layouts, "INTERPRET", True)
        for at, wanted in zip(POSITIONS, expected, strict=True):
            by_kernel = functools.partial(module.sums, None, kinds=("gradient", "hessian"))
            found = jax.jit(by_kernel)(table=table, position=at)
            for kind in wanted:
                np.testing.assert_array_equal(found[kind], wanted[kind])


def test_every_slope_is_the_sum_of_its_digits():
    slopes = jnp.arange(-(2**20), 2**20 + 1, dtype=jnp.int32)
    column = jnp.broadcast_to(jnp.arange(16), (len(slopes), 16))
    digits = np.asarray(gpu_integers._digits(slopes, column), np.int64)
    assert abs(digits).max() == 64 and not digits[:, 3:].any()
    np.testing.assert_array_equal(digits[:, :3] @ (128 ** np.arange(3)), slopes)
