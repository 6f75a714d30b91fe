"""How far a public set of rows reaches, and how far a row of it can move a sum: never above the
bound, and within a few per cent of it.
"""

import itertools

import jax
import numpy as np
import pytest

from dpmcmc.domains import CONSTANT, INTERVAL, Ball, Corners, Domain, Limits, RowSet, bounds
from dpmcmc.tables import simplex
from dpmcmc.types import Neighbours, Unit

REPLACE, ADD = Unit(), Unit(Neighbours.ADD_OR_REMOVE_ONE)
ENDS = np.arange(4097) / 128 - 16


def corners_of(places):
    return Corners(tuple(map(tuple, np.asarray(places).tolist())))


# -- sets -----------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def in_double():
    with jax.enable_x64(True):
        yield


def corners(domain):
    return np.array(
        [np.concatenate(each) for each in itertools.product(*(p.corners for p in domain.parts))]
    )


def test_of_a_few_corners_the_radius_is_exact():
    levels = corners_of(simplex(4).T), corners_of(np.eye(3, 2, -1))
    domain = Domain((CONSTANT, INTERVAL, INTERVAL, *levels))
    generator = np.random.default_rng(0)
    matrix = generator.standard_normal((8, 8))
    theta = generator.standard_normal(8)
    points = corners(domain)
    lengths = np.linalg.norm(points @ matrix, axis=1)
    np.testing.assert_allclose(domain.radius(matrix), lengths.max(), rtol=1e-12)
    np.testing.assert_allclose(domain.reach(theta), np.abs(points @ theta).max(), rtol=1e-12)
    assert domain.longest == pytest.approx(np.linalg.norm(points, axis=1).max())


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_of_a_ball_beside_a_constant_it_is_nearly_exact(scale):
    domain = Domain((CONSTANT, Ball(2, 2.0)))
    generator = np.random.default_rng(1)
    turns = np.linspace(0, 2 * np.pi, 5000)
    points = np.column_stack([np.ones(5000), 2 * np.cos(turns), 2 * np.sin(turns)])
    for _ in range(10):
        matrix = generator.standard_normal((3, 3)) * [[scale], [1], [1]]
        longest = np.linalg.norm(points @ matrix, axis=1).max()
        assert longest * (1 - 1e-9) <= domain.radius(matrix) <= 1.005 * longest
        reach = np.abs(points @ matrix[:, 0]).max()
        assert reach * (1 - 1e-9) <= domain.reach(matrix[:, 0]) <= reach * 1.001


def test_of_many_corners_it_is_a_bound():
    domain = Domain((INTERVAL,) * 14)
    points = corners(domain)
    generator = np.random.default_rng(2)
    for _ in range(5):
        matrix = generator.standard_normal((14, 14)) * generator.exponential(1, (14, 1))
        longest = np.linalg.norm(points @ matrix, axis=1).max()
        assert longest <= domain.radius(matrix) <= 1.3 * longest


# -- rows -----------------------------------------------------------------------------------------


def sigmoid(values):
    return 1 / (1 + np.exp(-values))


def row_set(slopes, roots):
    slopes, roots = np.atleast_2d(slopes), np.atleast_2d(roots)
    chances = np.full(slopes.shape, 1 / len(slopes))
    return RowSet(Domain((Ball(3, 1.0),)), 0.0, ENDS, slopes, roots, chances)


ROOT = np.sqrt(sigmoid(ENDS) * sigmoid(-ENDS))
LOGISTIC = row_set([-sigmoid(ENDS), sigmoid(-ENDS)], [ROOT, ROOT])
ONE_LABEL = row_set(sigmoid(-ENDS), ROOT)
# Rows on two cones around phi, so that the farthest two are neither along phi nor across it
CONES = row_set(np.exp(-((np.abs(ENDS) - 4) ** 2) * 40) + 1e-3, ROOT)
LIMITS = [(1.0, 0.01, 1.0), (1.0, 3.0, 0.6), (1.0, 6.0, 1.0), (1.0, 30.0, 0.3)]
CAPS = [np.inf, 0.8, 0.25, 0.02]


def attained(rows, radius, steepness, reach, cap):
    """The diameter, the longest vector and the longest pair of matrices on a fine grid of rows."""
    lengths = np.unique(
        np.concatenate([np.linspace(0.01, 1, 100), np.minimum(cap * np.linspace(0.9, 2.4, 50), 1)])
    )
    reach = min(reach, steepness * radius)
    turns = np.sinh(np.linspace(-1, 1, 301) * np.arcsinh(20 * reach)) / 20
    lengths, predictors = np.meshgrid(lengths * radius, turns, indexing="ij")
    is_row = np.abs(predictors) <= steepness * lengths + 1e-12
    lengths, predictors = lengths[is_row], predictors[is_row]
    of_label = lambda table: [np.interp(predictors, ENDS, line) for line in table]  # noqa: E731
    slopes, roots = of_label(rows.slopes), of_label(rows.roots)
    q = np.max(np.abs(slopes), axis=0)
    weights = np.minimum(1, cap / (q * lengths)) * np.minimum(1, 2 * cap / lengths)
    along = predictors / steepness
    across = np.sqrt(np.maximum(lengths**2 - along**2, 0))
    vectors = np.concatenate(
        [
            (slope * weights)[:, None] * np.column_stack([along, side * across])
            for slope in slopes
            for side in (1, -1)
        ]
    )
    turns = np.linspace(0, np.pi / 2, 46)
    widths = np.ptp(vectors @ np.stack([np.cos(turns), np.sin(turns)]), axis=0)
    both = np.sqrt(1 + weights**2) if (weights < 1 - 1e-9).any() else 1.0
    matrices = np.max(roots, axis=0) ** 2 * weights * lengths**2 * both
    return widths.max(), np.linalg.norm(vectors, axis=1).max(), matrices.max()


def stated(rows):
    return jax.jit(
        lambda limits, cap: (
            rows.gradient_bound(limits, 3, cap, REPLACE),
            rows.gradient_bound(limits, 3, cap, ADD),
            rows.longest_matrices(limits, cap),
        )
    )


def ratios(rows):
    """What is stated over what is attained."""
    run = stated(rows)
    for (radius, steepness, share), cap in itertools.product(LIMITS, CAPS):
        limits = Limits(radius, share * steepness * radius, steepness)
        found = attained(rows, radius, steepness, limits.reach, cap)
        yield np.array(run(limits, cap)) / found


@pytest.mark.parametrize("rows", [LOGISTIC, ONE_LABEL], ids=["logistic", "one label"])
def test_bounds_hold_and_are_within_two_per_cent(rows):
    """Of matrices within eight, where weights begin and two terms are bounded apart."""
    for found in ratios(rows):
        assert np.all(found > 1 - 1e-9)
        assert np.all(found[:2] < 1.02)
        assert found[2] < 1.08


def test_directions_without_their_margin_would_miss_the_diameter(monkeypatch):
    assert min(found[0] for found in ratios(CONES)) > 1
    monkeypatch.setattr(bounds, "NUM_DIRECTIONS", 1)
    monkeypatch.setattr(bounds, "_between_directions", lambda turn: 1.0)
    assert min(found[0] for found in ratios(CONES)) < 0.9


def test_points_in_place_of_cells_would_miss_the_diameter(monkeypatch):
    monkeypatch.setattr(bounds, "NUM_LENGTHS", 8)
    right = bounds.RowSet._over

    def at_lower_ends(self, limits, cap):
        cells, r0, _ = right(self, limits, cap)
        return cells, r0, r0

    monkeypatch.setattr(bounds.RowSet, "_over", at_lower_ends)
    assert min(found[0] for found in ratios(LOGISTIC)) < 0.99


def test_a_person_with_several_rows_counts_for_each():
    limits = Limits(*jax.numpy.ones(3))
    one = [float(LOGISTIC.gradient_bound(limits, 3, 0.5, unit)) for unit in (REPLACE, ADD)]
    many = [
        float(LOGISTIC.gradient_bound(limits, 3, 0.5, unit._replace(rows_per_person=4)))
        for unit in (REPLACE, ADD)
    ]
    np.testing.assert_allclose(many, 4 * np.array(one))
    assert bounds.apart(REPLACE._replace(rows_per_person=4)) == pytest.approx(4 * 2**0.5)
    assert bounds.apart(ADD) == 1
