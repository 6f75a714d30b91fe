"""Gram matrices of vectors that a model makes of its rows: sensitivity in exact integers, value and
noise.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from dpmcmc import Curator, models
from dpmcmc.curator.queries import curvature
from dpmcmc.curator.queries.curvature import GRAM_BITS, gram_sum
from dpmcmc.curator.sums.exact_sum import Table
from dpmcmc.queries import RowGram
from dpmcmc.types import Neighbours, Unit, Vectors
from tests import tiny

pytestmark = pytest.mark.usefixtures("quick_compilation")

GENERATOR = np.random.default_rng(5)
MODEL = models.robust_linear(2, radius=1.0, response_bound=1.0, intercept=True)
N = 300
ROWS = (
    GENERATOR.uniform(-0.7, 0.7, (N, 2)).astype(np.float32),
    GENERATOR.uniform(-1, 1, N).astype(np.float32),
)
HERE = np.float32([0.3, -0.5, 0.8, 1.5])
UNITS = [Unit(), Unit(Neighbours.ADD_OR_REMOVE_ONE), Unit(Neighbours.REPLACE_ONE, 3)]
EXTREME = [0.0, 1.0, -1.0, 1e-45, 0.7, 3e38, -3e38, np.inf, -np.inf, np.nan]


def plain_model():
    """The vector of a row is the row."""
    return tiny.MODEL._replace(vectors=Vectors(lambda position, row: row, 1.0, None))


def sums_of_one_row():
    rows = np.array([[a, b] for a in EXTREME for b in EXTREME], np.float32)
    sum_of = jax.jit(
        lambda row: gram_sum(
            plain_model(), Table((row,), jnp.int64(1), Unit()), jnp.zeros(1, jnp.float32), 1.0
        )
    )
    with jax.enable_x64(True):
        return [np.asarray(sum_of(jnp.asarray(row[None])), object) for row in rows]


def farthest(totals):
    return max(int(np.sum((one - other) ** 2)) for one in totals for other in totals) ** 0.5


def test_no_row_moves_the_sum_by_more_than_its_sensitivity(monkeypatch):
    """In exact integers, for rows that are no numbers or too long, too. It is attained but for what
    shortens a vector a little more, so a claim that is 1 % less would fail. A twin that does not
    clip is caught.
    """
    totals, longest = sums_of_one_row(), 4.0**GRAM_BITS
    alone = max(int(np.sum(one**2)) for one in totals) ** 0.5
    assert 0.999 * longest < alone <= longest
    assert 0.999 * 2**0.5 * longest < farthest(totals) <= 2**0.5 * longest

    def unclipped(vectors, bound, num_rows):
        return jnp.nan_to_num(jnp.clip(vectors() * 2.0**30, -(2.0**30), 2.0**30)).astype(jnp.int32)

    monkeypatch.setattr(curvature, "ball_integers", unclipped)
    assert farthest(sums_of_one_row()) > 1.9 * longest


def answered(curator, query, position, keys):
    traced = curator.trace(
        lambda ask, keys: jax.lax.map(lambda key: ask(key, query, jnp.asarray(position)), keys),
        keys,
    )
    return curator.grant(traced.plan).run(traced.compile(), keys)


@pytest.mark.parametrize("unit", UNITS, ids=["replace", "add", "three rows"])
def test_value_and_noise(unit):
    """Two chi-squared tests of 300 answers each for three units, false alarm 1e-4 in all; noise
    20 % smaller or larger is caught.
    """
    length, multiplier = MODEL.vectors.length, 2.0
    capacity = None if unit.is_count_public else N
    curator = Curator(ROWS, MODEL, None, unit=unit, capacity=capacity, fixed_secret=tiny.SECRET)
    keys = jax.random.split(jax.random.key(0), 300)
    query = RowGram(length, multiplier)
    values, variances = answered(curator, query, HERE, keys)
    is_replaced = unit.neighbours is Neighbours.REPLACE_ONE
    apart = length**2 * unit.rows_per_person * (2**0.5 if is_replaced else 1)
    np.testing.assert_allclose(np.sqrt(variances), multiplier * apart, rtol=1e-6)
    design = np.column_stack([np.ones(N), ROWS[0]]).astype(float)
    # R' is the root of 2, so that the unit of t is 1
    error = (1.345 + 1.5) * ROWS[1] - design @ HERE[:-1]
    within = design[np.abs(error) <= 1.345]
    z = (np.asarray(values) - within.T @ within) / np.sqrt(np.asarray(variances))[:, None, None]
    for squares in (z[:, range(3), range(3)] ** 2, 2 * z[:, [0, 0, 1], [1, 2, 2]] ** 2):
        low, high = stats.chi2(squares.size).interval(1 - 1e-4 / 6)
        assert low < squares.sum() < high
        assert not low < 0.64 * squares.sum() < high
        assert not low < 1.44 * squares.sum() < high


def test_what_cannot_be_asked_is_refused():
    keys = jax.random.split(jax.random.key(0), 1)
    without = Curator(ROWS, MODEL._replace(vectors=None), None, fixed_secret=tiny.SECRET)
    with pytest.raises(ValueError, match="the model has no `vectors`"):
        answered(without, RowGram(1.0, 1.0), HERE, keys)
    number = MODEL.vectors._replace(of_row=lambda position, row: row[1])
    wrong = Curator(ROWS, MODEL._replace(vectors=number), None, fixed_secret=tiny.SECRET)
    with pytest.raises(ValueError, match="it must be one vector"):
        answered(wrong, RowGram(1.0, 1.0), HERE, keys)
    for settings in ((0.0, 1.0), (1.0, -1.0)):
        with pytest.raises(ValueError, match="must be positive"):
            RowGram(*settings)
