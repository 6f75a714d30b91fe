"""Which queries are answered by passes of integers over rows that are not in memory."""

from __future__ import annotations

from dpmcmc.curator.queries.curvature import ALMOST, Curvature
from dpmcmc.curator.queries.gradient import Gradient, RadialGradient
from dpmcmc.curator.sums.integer_rows import IntegerRows
from dpmcmc.curator.whitened.gram import Gram, NormCounts
from dpmcmc.curator.whitened.weighted import (
    WeightedCurvature,
    WeightedGradient,
    WeightedRadialGradient,
)
from dpmcmc.errors import UnsupportedQuery
from dpmcmc.types import Query

WHITENED = (Gram, NormCounts, WeightedCurvature, WeightedGradient, WeightedRadialGradient)


def check_streamed(query: Query, rows: IntegerRows) -> None:
    """Refuse a query that needs the rows in memory.

    Args:
        query: The query.
        rows: The public facts of the passes.

    Raises:
        UnsupportedQuery: The query is not answered by a pass of integers.
    """
    way_out = (
        "load the table into memory, with dpmcmc.tables.read_columns, or take "
        "recipes.noise_aware, whose passes are few"
    )
    if type(query) in WHITENED:
        return
    if type(query) is RadialGradient or (type(query) is Gradient and query.batch is None):
        name, least = "lipschitz", rows.clip
        is_answered = query.clip >= rows.clip
    elif type(query) is Curvature:
        name, least = "hessian_bound", rows.hessian_clip
        is_answered = query.clip >= ALMOST * rows.hessian_clip
    else:
        raise UnsupportedQuery(
            f"{query} is not asked of rows that are read in batches, where only gradients and "
            f"Hessians of all rows are exact sums of one pass: {way_out}"
        )
    if not is_answered:
        raise UnsupportedQuery(
            f"{query} would clip rows, and a pass over rows that are read in batches does not clip "
            f"any: leave the clip out, for the model's proved {name}, or give {least:.6g} or more; "
            f"or {way_out}"
        )
