"""Sums over rows in changed coordinates: what one row adds, in exact integers, is at most what the
noise is scaled to, and nearly that somewhere; and the same bits come out of every order.
"""

import itertools
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpmcmc import Curator, Federation, Neighbours, UnsupportedQuery, audit, models, queries
from dpmcmc.curator.sums.exact_sum import Table
from dpmcmc.curator.sums.integer_rows import integer_rows
from dpmcmc.curator.whitened import gram, points, sums, weighted_sums
from dpmcmc.domains import INTERVAL, Corners, Domain
from dpmcmc.types import Unit
from tests.chains import SECRET

pytestmark = pytest.mark.usefixtures("quick_compilation")

REPLACE, ADD = Unit(), Unit(Neighbours.ADD_OR_REMOVE_ONE)
BALL = models.logistic(3, radius=1.0)
BOX = models.logistic(
    3,
    radius=3**0.5,
    intercept=True,
    domain=Domain((INTERVAL, Corners(((0.0, 0.0), (1.0, 0.0), (0.0, 1.0))))),
)
STRETCHED = np.array([[2.0, 0.3, 0], [0, 0.5, -0.1], [0.4, 0, 0.02]])
INF = np.inf


class Point(NamedTuple):
    """Where a query is asked; the cap is relative to the longest row."""

    matrix: np.ndarray
    phi: np.ndarray
    cap: float


POINTS = [
    Point(matrix, np.array(phi), cap)
    for matrix, phi, cap in [
        (np.eye(3), [0, 0, 0], INF),
        (np.eye(3), [2.0, 0, 0], INF),
        (np.eye(3), [0.5, -6, 3], INF),
        (np.eye(3), [1.0, -3, 0], 0.6),
        (np.eye(3), [0.1, 0.2, 0], 0.3),
        (STRETCHED, [1.0, 2, 3], 0.9),
        (STRETCHED, [0, -0.7, 20], 0.25),
        (STRETCHED, [30.0, 1, 0], 0.02),
        (1e-6 * STRETCHED, [1e6, 0, 1e6], 0.5),
    ]
]


def hostile_rows(model, matrix, phi, cap, seed=0):
    """Rows of all directions and labels, most of them where weights and signs change; some beyond
    what is declared, and some that are no numbers.
    """
    generator = np.random.default_rng(seed)
    size = model.dimension - (model is BOX)
    directions = generator.standard_normal((1500, size))
    if model is BALL:
        # As seen in the coordinates of the query: half of them in one plane with phi, and many
        # where weights have a kink, |u| = C or 2 C
        along = phi / np.linalg.norm(phi) if np.any(phi) else np.array([1.0, 0, 0])
        across = np.cross(along, [0.3, -0.5, 0.8])
        axes = np.stack([along, across / np.linalg.norm(across)])
        turns = np.linspace(0, 2 * np.pi, 60)
        in_plane = np.column_stack([np.cos(turns), np.sin(turns)]) @ axes
        directions[:1200] = np.linalg.solve(matrix.T, np.tile(in_plane, (20, 1)).T).T
        directions /= np.linalg.norm(directions, axis=1, keepdims=True)
        kinks = cap / np.linalg.norm(directions @ matrix, axis=1)
        shares = np.repeat([1.0, 1.2, 1.4, 1.7, 2.0, 3.0, 0.7, INF, INF, INF], 60)
        lengths = np.minimum(np.resize(shares, 1500) * kinks, 1)
        lengths[1200:] *= generator.random(300) ** 0.3
        features = directions * lengths[:, None]
        features[-5:] *= 3.0
    else:
        corners = [part.corners for part in BOX.linear.labelled.domain.parts[1:]]
        all_corners = np.array([np.concatenate(each) for each in itertools.product(*corners)])
        features = generator.uniform(-1, 1, (1500, size))
        features[:, 1:] = generator.dirichlet(np.ones(3), 1500)[:, :2]
        features[: len(all_corners) * 100] = np.repeat(all_corners, 100, axis=0)
        features[-5:] = generator.uniform(-1.7, 1.7, (5, size))  # outside of it
    features = features.astype(np.float32)
    features[:3] = [[np.nan, 0, 0], [np.inf, 0, 0], [3e38] * 3]
    labels = np.repeat(np.float32([0, 1, 0]), [600, 600, 300])
    labels[1200::2] = 1
    labels[-20:-10] = np.nan
    return features, labels


def table_of(model, rows, unit=REPLACE):
    integers = jax.tree.map(jnp.asarray, integer_rows(model, rows, len(rows[1]), len(rows[1])))
    return Table((), jnp.asarray(len(rows[1])), unit, integers=integers, capacity=2**21)


def of_each_row(table, kind, lens):
    """What every row adds, in place of the sum: by the blocks that the sum is made of."""
    lens = kind.unpacked(kind.packed(lens))
    one = lambda features, label: sums.block_sums(  # noqa: E731
        kind, lens, features[None], label[None]
    )
    flat = jax.vmap(one)(table.integers.features, table.integers.labels.astype(jnp.int32))
    return kind.parts(flat)


def gradient_total(model, table, matrix, phi, cap):
    """The sum of the rows' k U, the bits of what one unit moves it by at most, and its unit."""
    found = weighted_sums.sums.__wrapped__(model, table, ("gradient",), matrix, phi, cap)
    total, grid = found["gradient"]
    return total, weighted_sums.gradient_bits(table), grid


def curvature_total(model, table, matrix, phi, cap):
    """The sums of the rows' r r', their unit, and whether they differ."""
    found = weighted_sums.sums.__wrapped__(model, table, ("curvature",), matrix, phi, cap)
    return found["curvature"]


def gram_total(model, table, matrix, cap):
    """The sum of the rows' r r', and its unit."""
    return gram.gram_sums.__wrapped__(model, table, ("gram",), matrix, cap)["gram"]


@pytest.fixture
def each_row(monkeypatch):
    monkeypatch.setattr(sums, "BLOCK", 1)
    for module in (weighted_sums, gram):
        monkeypatch.setattr(module, "whitened_sums", of_each_row)


def attacks(total, model, unit=REPLACE, at=POINTS):
    """What every row adds, in exact integers, with the rest of what `total` returns: one by one."""
    run = jax.jit(lambda *given: total(model, *given))
    with jax.enable_x64(True):
        for point in at:
            matrix, phi, cap = _for(model, point)
            cap = cap * float(points.row_set(model).radius(jnp.asarray(matrix)))
            rows = hostile_rows(model, matrix, phi, min(cap, 1e9))
            each, *rest = run(table_of(model, rows, unit), matrix, phi, cap)
            yield point, np.asarray(each), *(np.asarray(other) for other in rest)


def _for(model, point):
    """The point with an entry for an intercept, where there is one."""
    if model is BALL:
        return point
    matrix = np.eye(4) * abs(point.matrix[0, 0])
    matrix[1:, 1:] = point.matrix
    matrix[0, 2] = -0.3 * point.matrix[0, 0]
    return Point(matrix, np.append(0.7 * point.phi[0], point.phi), point.cap)


def largest_change(each, unit=REPLACE):
    """The largest squared length of a row's integers, or of a difference of two rows', exactly."""
    flat = each.reshape(len(each), -1).astype(float)
    if unit is ADD:
        worst = flat[[np.argmax(np.sum(flat**2, axis=1))]]
        return sum(int(entry) ** 2 for entry in worst[0])
    squares = np.sum(flat**2, axis=1)
    apart = squares[:, None] + squares - 2 * flat @ flat.T
    first, second = np.unravel_index(np.argmax(apart), apart.shape)
    exact = each.reshape(len(each), -1).astype(object)
    return sum((one - other) ** 2 for one, other in zip(exact[first], exact[second], strict=True))


# -- one row --------------------------------------------------------------------------------------


def is_round(model, point):
    """Whether the public set of rows is a ball in these coordinates, as bounds take it to be."""
    return model is BALL and np.all(point.matrix == np.eye(3))


@pytest.mark.parametrize("unit", [REPLACE, ADD], ids=["replace", "add"])
@pytest.mark.parametrize("model", [BALL, BOX], ids=["ball", "box"])
def test_no_row_moves_a_gradient_by_more_than_its_sensitivity(each_row, model, unit):
    """And some come within 5 % of it."""
    for point, each, bits, _ in attacks(gradient_total, model, unit):
        assert bits == 40
        assert largest_change(each, unit) <= 4**40, point
        if is_round(model, point):
            assert largest_change(each, unit) > 0.9 * 4**40, point


@pytest.mark.parametrize("model", [BALL, BOX], ids=["ball", "box"])
def test_no_row_moves_the_matrices_by_more_than_their_sensitivity(each_row, model):
    most = int(points.MATRIX_LENGTH) ** 4
    for point, each, _, is_weighted in attacks(curvature_total, model):
        assert bool(is_weighted) is (point.cap < 0.95)  # without weights there is one matrix
        both = each if is_weighted else each[:, :1]
        assert largest_change(both, ADD) <= most, point
        assert largest_change(both, REPLACE) <= 2 * most, point
        if is_round(model, point):
            assert largest_change(both, ADD) > 0.9 * most, point


@pytest.mark.parametrize("model", [BALL, BOX], ids=["ball", "box"])
def test_no_row_moves_a_gram_matrix_by_more_than_its_sensitivity(each_row, model):
    def total(model, table, matrix, phi, cap):
        return gram_total(model, table, matrix, cap)

    most = int(points.MATRIX_LENGTH) ** 4
    for point, each, _ in attacks(total, model):
        assert 0.9 * most < largest_change(each, ADD) <= most, point
        assert largest_change(each) <= 2 * most, point


def test_a_row_is_in_one_cell_at_most(each_row):
    ends = np.array([0.1, 0.0, np.nan, 0.5, 0.4, INF])  # that they increase is enforced

    def total(model, table, matrix, phi, cap):
        return (gram.counts_sums.__wrapped__(model, table, ("counts",), matrix, ends)["counts"],)

    ((_, each),) = attacks(total, BALL, at=POINTS[:1])
    assert set(np.unique(each)) == {0, 1}
    assert each.sum(axis=1).max() == 1


NOT_FINITE = [
    Point(np.full((3, 3), np.nan), np.zeros(3), 0.5),
    Point(np.diag([1.0, INF, -INF]), np.array([1.0, 2, 3]), INF),
    Point(np.zeros((3, 3)), np.full(3, np.nan), INF),
    Point(np.eye(3), np.array([INF, np.nan, -INF]), INF),
    Point(np.eye(3), np.array([1e30, -1e30, 0]), 0.4),
    Point(1e300 * np.eye(3), np.array([1e300, 1, 0]), 0.4),
    Point(1e-300 * np.eye(3), np.array([1e-300, 1, 0]), 0.4),
    Point(np.eye(3), np.array([1.0, 2, 3]), np.nan),
    Point(np.eye(3), np.array([1.0, 2, 3]), 0.0),
    Point(np.eye(3), np.array([1.0, 2, 3]), -1.0),
    Point(np.eye(3), np.array([1.0, 2, 3]), -INF),
    Point(np.eye(3), np.array([1.0, 2, 3]), 1e-30),
]


def test_points_that_are_not_finite_keep_the_bounds(each_row):
    def totals(table, matrix, phi, cap):
        return (
            gradient_total(BALL, table, matrix, phi, cap),
            curvature_total(BALL, table, matrix, phi, cap),
            gram_total(BALL, table, matrix, cap),
        )

    table = table_of(BALL, hostile_rows(BALL, np.eye(3), np.ones(3), 0.5))
    most = int(points.MATRIX_LENGTH) ** 4
    with jax.enable_x64(True):
        run = jax.jit(totals)
        for point in NOT_FINITE:
            (each, bits, grid), (both, fine, is_weighted), (matrices, step) = run(table, *point)
            both = np.asarray(both) if is_weighted else np.asarray(both)[:, :1]
            assert largest_change(np.asarray(each)) <= 4 ** int(bits), point
            assert largest_change(both, ADD) <= most, point
            assert largest_change(np.asarray(matrices), ADD) <= most, point
            assert all(0 < float(unit) < INF for unit in (grid, fine, step)), point


# -- twins with a mistake -------------------------------------------------------------------------


def exceeds():
    """Whether any row of the attack moves the gradient by more than is stated."""
    found = attacks(gradient_total, BALL)
    return any(largest_change(each) > 4 ** int(bits) for _, each, bits, _ in found)


def test_weights_of_the_nearest_corner_would_be_too_large(each_row, monkeypatch):
    def at_lower_ends(function, unit):
        return right(lambda length: function(length / (1 + 2.0**-6) ** 0.5), unit)

    right = points.length_table
    monkeypatch.setattr(points, "length_table", at_lower_ends)
    assert exceeds()


def test_rows_beyond_the_public_set_are_ignored(each_row):
    model = models.logistic(1, radius=9.0, domain=Domain((INTERVAL,)))
    rows = np.float32([[8.0], [-8.0], [1.0]]), np.float32([1, 0, 1])
    run = jax.jit(lambda table: gradient_total(model, table, np.eye(1), np.zeros(1), INF))
    with jax.enable_x64(True):
        each, _, _ = run(table_of(model, rows))
    assert each[:3, 0].astype(bool).tolist() == [False, False, True]


# -- the queries ----------------------------------------------------------------------------------

ROWS = hostile_rows(BALL, np.eye(3), np.array([1.0, -2, 0]), 0.3)
ASKED = [
    (queries.Gram(0.01), (np.eye(3), 0.5)),
    (queries.NormCounts(3, 0.01), (np.eye(3), np.array([0, 0.4, 0.9, 2]))),
    (queries.WeightedGradient(0.01), (np.eye(3), np.array([1.0, -2, 0]), 0.4)),
    (queries.WeightedCurvature(0.01), (np.eye(3), np.array([1.0, -2, 0]), 0.4)),
]
WHITENED = pytest.mark.parametrize("query, at", ASKED, ids=lambda value: type(value).__name__)


def answer(query, at, curator):
    at = [np.asarray(point, np.float32) for point in at]
    key = jax.random.key(0)
    traced = curator.trace(lambda ask, key: ask(key, query, *at), key)
    return curator.grant(traced.plan).run(traced.compile(), key)


def in_floats(query, at):
    """The same in floating point, without noise."""
    is_used = np.isfinite(ROWS[0]).all(axis=1) & np.isfinite(ROWS[1])
    rows, labels = (leaf[is_used].astype(float) for leaf in ROWS)
    with np.errstate(over="ignore", divide="ignore"):
        rows /= np.maximum(np.linalg.norm(rows, axis=1), 1)[:, None]
        lengths = np.linalg.norm(rows, axis=1)
        if isinstance(query, queries.Gram):
            return (rows * np.minimum(1, (at[1] / lengths) ** 2)[:, None]).T @ rows
        if isinstance(query, queries.NormCounts):
            return np.histogram(lengths, at[1])[0]
        chance = 1 / (1 + np.exp(-rows @ at[1]))
        weight = np.minimum(1, at[2] / (np.maximum(chance, 1 - chance) * lengths))
        weight *= np.minimum(1, 2 * at[2] / lengths)
    if isinstance(query, queries.WeightedGradient):
        return (weight * (labels - chance)) @ rows
    information = chance * (1 - chance)
    return np.stack([(rows.T * information * weight**power) @ rows for power in (1, 2)])


@WHITENED
def test_answers_are_what_is_stated(query, at):
    """Within 1.6 %, by which weights are rounded down; and the noise has the stated variance."""
    curator = Curator(ROWS, BALL, None, fixed_secret=SECRET)
    found = answer(query, at, curator)
    wanted = in_floats(query, at)
    error = np.abs(np.asarray(found.value) - wanted).max()
    assert error < 0.02 * np.abs(wanted).max() + 6 * float(found.variance) ** 0.5


def test_owners_answers_add():
    query, at = ASKED[2]
    owners = {
        name: Curator(tuple(leaf[part] for leaf in ROWS), BALL, None, fixed_secret=SECRET + index)
        for index, (name, part) in enumerate({"a": slice(700), "b": slice(700, None)}.items())
    }
    both = answer(query, at, Federation(owners))
    alone = answer(query, at, Curator(ROWS, BALL, None, fixed_secret=SECRET))
    assert float(both.variance) == pytest.approx(2 * float(alone.variance))
    error = np.abs(np.asarray(both.value) - np.asarray(alone.value)).max()
    assert error < 6 * (3 * float(alone.variance)) ** 0.5


@WHITENED
def test_a_model_without_public_tables_is_refused_when_traced(query, at):
    rows = np.nan_to_num(ROWS[0][:, :2], posinf=0, neginf=0), ROWS[1]
    curator = Curator(rows, models.robust_linear(2, 1.0, 1.0), None)
    with pytest.raises(UnsupportedQuery, match="use Gradient and Curvature"):
        answer(query, at, curator)


def test_one_pass_makes_both_sums_to_the_last_bit():
    at = np.eye(3), np.array([1.0, -2, 0]), 0.4
    with jax.enable_x64(True):
        table = table_of(BALL, ROWS)
        both = weighted_sums.sums(BALL, table, ("curvature", "gradient"), *at)
        for kind in both:
            alone = weighted_sums.sums(BALL, table, (kind,), *at)[kind]
            for one, other in zip(both[kind], alone, strict=True):
                np.testing.assert_array_equal(one, other)


def test_orders_and_capacities_change_no_bit():
    order = np.random.default_rng(3).permutation(1500)
    point = np.eye(3), np.array([1.0, -2, 0]), 0.4

    @jax.jit
    def both(table):
        return [total(BALL, table, *point)[0] for total in (
            gradient_total, curvature_total
        )]  # fmt: skip

    with jax.enable_x64(True):
        wanted = both(table_of(BALL, ROWS))
        other = both(table_of(BALL, tuple(leaf[order] for leaf in ROWS)))
        longer = integer_rows(BALL, ROWS, 1500, 20_000)
        padded = both(
            Table((), jnp.asarray(1500), REPLACE, capacity=2**21,
                  integers=jax.tree.map(jnp.asarray, longer))
        )  # fmt: skip
    for one, same, again in zip(wanted, other, padded, strict=True):
        np.testing.assert_array_equal(one, same)
        np.testing.assert_array_equal(one, again)


class Halved(queries.WeightedGradient):
    """A twin with half of the noise that it is billed for."""

    released: ClassVar[str] = "a twin"

    def answer(self, *given):
        return queries.WeightedGradient(self.noise_multiplier / 2).answer(*given)


@pytest.mark.slow
@pytest.mark.parametrize("kind, is_refuted", [(queries.WeightedGradient, False), (Halved, True)])
def test_an_audit_refutes_half_of_the_noise_alone(kind, is_refuted):
    """False alarm 1e-6."""
    first = np.float32([[0, 1, 0], [0, 0.2, 0]]), np.float32([1, 1])
    second = np.float32([[0, 1, 0], [0, 0.2, 0]]), np.float32([0, 1])
    at = [np.eye(3), np.array([0.5, 0, 0]), 0.3]
    verdict = audit.query(kind(1.0), BALL, first, second, at, num_answers=20_000)
    assert verdict.is_refuted is is_refuted
