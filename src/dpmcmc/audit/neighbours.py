"""Checks of the two tables that an audit compares."""

from __future__ import annotations

from collections import Counter
from typing import Any

import jax
import numpy as np

from dpmcmc.types import Budget, Neighbours, Unit

ANY_DELTA = 0.01  # a budget is made only to have its unit checked


def check_made_up(*arguments: Any) -> None:
    """Refuse curators: their rows may be real."""
    if any(hasattr(argument, "grant") for argument in arguments):
        raise TypeError(
            "an audit asks many thousands of times without any budget: it takes no curator, but "
            "a model and two tables of made-up rows"
        )


def checked_unit(unit: Unit | None) -> Unit:
    """The unit. If there is none, it is one row that is replaced."""
    if not isinstance(unit, Unit | None):
        raise TypeError(
            f"unit is a {type(unit).__name__}: it must be a Unit, such as "
            "Unit(Neighbours.ADD_OR_REMOVE_ONE)"
        )
    return Budget(1.0, ANY_DELTA, *(unit or Unit())).unit


def check_neighbours(first: Any, second: Any, unit: Unit) -> tuple[int, int]:
    """Refuse tables that are no neighbours, and return how many rows each has.

    The order of the rows does not matter.
    """
    if _row_type(first) != _row_type(second):
        raise ValueError(
            f"the rows of the two tables differ in shape or type, {_row_type(first)} and "
            f"{_row_type(second)}"
        )
    counts = [Counter(_rows(table)) for table in (first, second)]
    num_first_alone = (counts[0] - counts[1]).total()
    num_second_alone = (counts[1] - counts[0]).total()
    least = min(num_first_alone, num_second_alone)
    most = max(num_first_alone, num_second_alone)
    is_replaced = unit.neighbours is Neighbours.REPLACE_ONE
    is_neighbour = (
        0 < most <= unit.rows_per_person
        and (not unit.is_count_public or least == most)
        and (is_replaced or least == 0)
    )
    if not is_neighbour:
        wanted = (
            "one row of the first must be replaced"
            if is_replaced
            else "one of them must be the other without one row"
        )
        several = (
            f", up to {unit.rows_per_person} rows for one person"
            if unit.rows_per_person > 1
            else ""
        )
        raise ValueError(
            f"the two tables are no neighbours ({unit.neighbours.value}): {num_first_alone} rows "
            f"are in the first alone and {num_second_alone} in the second alone; "
            f"{wanted}{several}"
        )
    return counts[0].total(), counts[1].total()


def _row_type(table: Any) -> Any:
    """Shapes and types of one row."""
    leaves, tree = jax.tree.flatten(table)
    columns = [np.asarray(leaf) for leaf in leaves]
    if (
        not columns
        or any(column.ndim == 0 for column in columns)
        or len({len(column) for column in columns}) > 1
    ):
        raise ValueError(
            "a table is an array, or a tuple or dict of arrays, with one entry per row"
        )
    return tree, [f"{column.dtype}{list(column.shape[1:])}" for column in columns]


def _rows(table: Any) -> list[tuple[bytes, ...]]:
    """Rows as hashable values."""
    columns = [np.asarray(leaf) for leaf in jax.tree.leaves(table)]
    return [tuple(cell.tobytes() for cell in row) for row in zip(*columns, strict=True)]
