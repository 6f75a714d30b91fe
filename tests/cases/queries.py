"""Every query, at small settings: what it is asked with, and what its noise lacks to be ideal."""

from __future__ import annotations

import inspect
from typing import Any, NamedTuple

import numpy as np

import dpmcmc
from dpmcmc import Barker, LazyBarker, models
from dpmcmc.curator.noise import coins, gaussian, radial
from dpmcmc.curator.noise.noisy_sums import MAX_DIMENSION
from dpmcmc.curator.queries import batches
from dpmcmc.curator.sums.exact_sum import BITS
from dpmcmc.queries import (
    Accept,
    BatchBarker,
    BatchRatio,
    CenteredGradient,
    CenteredRadialGradient,
    ClippedGradients,
    ClippedRatios,
    Count,
    Curvature,
    FilteredAccept,
    FixedBatch,
    Gradient,
    Gram,
    LogRatio,
    NonPrivateAccept,
    NonPrivateGradient,
    NonPrivateRatio,
    NormCounts,
    PenaltyAccept,
    PoissonBatch,
    PublishedFastMH,
    RadialGradient,
    RowGram,
    SufficientStatistic,
    TunaBarker,
    TunaMetropolis,
    TunaRatio,
    WeightedCurvature,
    WeightedGradient,
    WeightedRadialGradient,
)

# Rows and a model that all queries can be asked of
ROWS = np.linspace(-1, 1, 24, dtype=np.float32).reshape(12, 2)
MODEL = models.gaussian(np.eye(2), prior_scale=1.0, radius=2.0)
# The same with labels, for queries that need a model with public tables
LABELLED_ROWS = ROWS / 2, np.arange(12, dtype=np.float32) % 2
LABELLED_MODEL = models.logistic(2, radius=1.0)
# And with vectors of the rows
ROBUST_MODEL = models.robust_linear(2, radius=1.0, response_bound=1.0)
POISSON, FIXED = PoissonBatch(0.1), FixedBatch(6, of=12)

# The shapes of what a query is asked with: a position; a proposal too; the public part of the
# log-ratio too
ONE, TWO, THREE = [(2,)], [(2,), (2,)], [(2,), (2,), ()]
# In changed coordinates: a matrix, a position and a cap
WHITENED = [(2, 2), (2,), ()]

# The total-variation error of integer noise, of one number when a row is replaced
FULL = 2**BITS
GRID = gaussian.gaussian_tv_error(3.0 * 2 * FULL)
OF_COUNTS = gaussian.gaussian_tv_error(3.0 * 2**0.5 * FULL)
OF_MATRIX = gaussian.gaussian_tv_error(3.0 * FULL)  # off the diagonal, where it is smaller
OF_BATCH = gaussian.gaussian_tv_error(BatchRatio(1.0, 3.0, FIXED)._integer_sigma())


class Case(NamedTuple):
    """A query, and what is expected of it."""

    query: Any
    shapes: list[tuple[int, ...]]
    # What its answers lack to be ideal, charged to delta; None: of a bit, tests/curator/test_coins
    tv_error: float | None = None
    rate: float | None = None  # the share of the rows that it reads, where that lowers its cost
    model: Any = MODEL
    rows: Any = ROWS

    def __str__(self) -> str:
        return str(self.query)


def _labelled(query: Any, shapes: list[tuple[int, ...]], of_one: float) -> Case:
    return Case(query, shapes, MAX_DIMENSION * of_one, None, LABELLED_MODEL, LABELLED_ROWS)


ALL = [
    Case(LogRatio(1.0, 3.0), TWO, GRID),
    Case(BatchRatio(1.0, 3.0, FIXED), TWO, OF_BATCH + batches.TV_ERROR, 0.5),
    Case(TunaRatio(0.1, 3.0), TWO, gaussian.gaussian_tv_error(3.0 * FULL) + batches.TV_ERROR, 0.2),
    # Of a vector for as many entries as it may have
    Case(Gradient(1.0, 3.0), ONE, MAX_DIMENSION * GRID),
    Case(Gradient(1.0, 3.0, POISSON), ONE, MAX_DIMENSION * GRID + batches.TV_ERROR, 0.1),
    Case(Gradient(1.0, 3.0, FIXED), ONE, MAX_DIMENSION * GRID + batches.TV_ERROR, 0.5),
    Case(CenteredGradient(1.0, 3.0), ONE, MAX_DIMENSION * GRID),
    Case(RadialGradient(1.0, 0.5, 2), ONE, radial.radial_tv_error(2, 4.0 * FULL)),
    Case(CenteredRadialGradient(1.0, 0.5, 2), ONE, radial.radial_tv_error(2, 4.0 * FULL)),
    Case(Curvature(1.0, 3.0), ONE, MAX_DIMENSION * GRID),
    Case(RowGram(1.0, 3.0), [(3,)], MAX_DIMENSION * OF_MATRIX, None, ROBUST_MODEL, LABELLED_ROWS),
    Case(SufficientStatistic(3.0), ONE, MAX_DIMENSION * GRID),
    Case(ClippedRatios(1.0, 3.0), TWO, gaussian.gaussian_tv_error(3.0 * FULL)),
    Case(ClippedGradients(1.0, 3.0), ONE, gaussian.gaussian_tv_error(3.0 * FULL)),
    Case(Count(3.0), ONE, MAX_DIMENSION * OF_COUNTS),
    _labelled(Gram(3.0), [(2, 2), ()], OF_MATRIX),
    _labelled(NormCounts(4, 3.0), [(2, 2), (5,)], OF_COUNTS),
    _labelled(WeightedGradient(3.0), WHITENED, GRID),
    Case(
        WeightedRadialGradient(0.8, 2),
        WHITENED,
        radial.radial_tv_error(2, 2.0**31 / 0.8),
        None,
        LABELLED_MODEL,
        LABELLED_ROWS,
    ),
    _labelled(WeightedCurvature(3.0), WHITENED, OF_MATRIX),
    Case(Accept(Barker(), 1.0), THREE),
    Case(Accept(LazyBarker(0.5), 1.0), THREE),
    Case(PenaltyAccept(1.0, 1.0, 1.0), THREE),
    Case(FilteredAccept(1.0, 1.0), THREE),
    Case(TunaBarker(0.1), THREE, batches.TV_ERROR),
    Case(BatchBarker(FIXED), THREE, coins.REAL_TV_ERROR + batches.TV_ERROR),
    # Not private, or not by the accounting that is published for it
    Case(NonPrivateRatio(), TWO),
    Case(NonPrivateGradient(), ONE),
    Case(NonPrivateAccept(Barker()), THREE),
    Case(TunaMetropolis(1.0), THREE),
    Case(PublishedFastMH(1.0, epsilon=0.05, delta=1e-6, max_batch=6), THREE),
]


def public_queries() -> set[type]:
    """Every public class whose values can be asked."""
    members = {getattr(dpmcmc.queries, name) for name in dpmcmc.queries.__all__}
    return {
        member
        for member in members
        if inspect.isclass(member)
        and hasattr(member, "answer")
        and hasattr(member, "cost")
        and member is not dpmcmc.queries.Query
    }
