"""Numbers within public bounds, made from the cells of columns.

A bad cell must not show: not as an error, not as a missing row, not as a count. So a cell outside
its bounds is moved to the nearer one, and a cell that is missing or not a number becomes a NaN: its
row is then ignored (its log-likelihood term is 0), so the posterior is about the complete rows.
(Any number in its place would be a made-up observation: of a skewed column the middle of its bounds
lies far from all others, and moved slopes by several standard deviations. A `SufficientStatistic`
alone knows all rows together, and takes a NaN for its center: fill in what is missing there.)
Errors name files, column names and declared types, never cells.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dpmcmc.tables.cells import Cells, as_cells, as_days, as_numbers, is_none, number_of, text_of
from dpmcmc.tables.declared import Bounds, DateBounds, checked_bounds

MISSING = ("", ".", "?", "na", "n/a", "nan", "<na>", "null")  # of names of persons, in any case


def scaled(columns: Mapping[str, Cells], bounds: Mapping[str, tuple[Any, Any]]) -> np.ndarray:
    """The columns that have bounds, in that order, with the bounds moved to -1 and 1: shape (rows,
    k), float32.

    A row is then no longer than sqrt(k), the `radius` to give to a regression, and a coefficient is
    per half the width of the bounds. A cell that is missing or no number is a NaN, and its row says
    nothing (to a `SufficientStatistic` it would say the center: fill it in first). `columns`: a
    dict of arrays, or a DataFrame.

    Bounds that are dates, as in ``("1940-01-01", "2010-12-31")``, make a column one of dates: ISO
    texts such as 2021-03-04 or 2021-03-04 10:30 (of a time zone the local time is taken), or dates
    of Python, NumPy or pandas.
    """
    if not isinstance(bounds, Mapping):
        raise TypeError(
            f"bounds is a {type(bounds).__name__}: give a dict, such as {{'age': (21, 64)}}"
        )
    limits = {name: checked_bounds(name, pair) for name, pair in bounds.items()}
    if not limits:
        raise ValueError("no bounds: they name the columns to take")
    if isinstance(columns, str | Path) or (
        isinstance(columns, np.ndarray) and columns.dtype.names is None
    ):
        kind = type(columns).__name__
        raise TypeError(
            f"the table is a {kind}: give a DataFrame or a dict of columns, as tables.read_columns "
            "makes of a file"
        )
    missing = [name for name in limits if name not in columns]
    if missing:
        # Those that are there are not named: a frame read without a header has a row for names.
        raise ValueError(
            f"no column {', '.join(map(repr, missing))}, of those that the bounds name"
        )
    values = [numbers(columns[name], pair) for name, pair in limits.items()]
    if len({len(column) for column in values}) > 1:
        raise ValueError(
            f"the columns {', '.join(map(repr, limits))} have different numbers of rows: they must "
            "agree"
        )
    # Whether a cell is too large or too small for its type must not show
    with np.errstate(all="ignore"):
        within = [
            (column - pair.middle) / pair.half
            for column, pair in zip(values, limits.values(), strict=True)
        ]
        return np.clip(np.stack(within, axis=1), -1, 1).astype(np.float32)


def numbers(cells: Cells, bounds: Bounds) -> np.ndarray:
    """Every cell as a number within the bounds (float64), a date as days since 1970-01-01, or a
    NaN.
    """
    values = as_days(cells) if isinstance(bounds, DateBounds) else as_numbers(cells)
    return np.clip(values, bounds.low, bounds.high)


def labels(cells: Cells, positive: Any = None, negative: Any = None) -> np.ndarray:
    """1 for a cell that equals `positive`, 0 for one that equals `negative`, as text or number, and
    NaN for any other.

    Both levels are declared, or none: then they are 1 and 0, or true and false. A label of another
    spelling is a missing one, and its row is ignored.
    """
    if (positive is None) != (negative is None):
        raise ValueError(
            f"positive={positive!r}, negative={negative!r}: declare both levels of the label, or "
            "none where they are 1 and 0"
        )
    return indicators(cells, (0, 1) if positive is None else (negative, positive))[:, 0]


def _equals(cells: Cells, level: Any) -> np.ndarray:
    """Which cells are this level, as text or as a number."""
    array = as_cells(cells)
    text = text_of(level)
    wanted = number_of(text)
    if array.dtype.kind in "biuf":
        # The type of a DataFrame's column may depend on its cells
        if math.isnan(wanted) and isinstance(cells, np.ndarray):
            raise ValueError(f"the column holds numbers: {level!r} is none")
        return as_numbers(array) == wanted
    texts = ["" if is_none(cell) else text_of(cell) for cell in array]
    return np.array([cell == text or number_of(cell) == wanted for cell in texts], bool)


def indicators(cells: Cells, levels: Sequence[Any]) -> np.ndarray:
    """For each of the public `levels` but the first, whether a cell equals it: shape (rows,
    len(levels) - 1), float32.

    A row is then no longer than 1. A cell that is none of the levels makes NaNs, and its row is
    ignored.
    """
    values = [
        text_of(level) if math.isnan(number_of(text_of(level))) else number_of(text_of(level))
        for level in levels
    ]
    # A cell of 1 would be both 1 and 1.0
    if isinstance(levels, str) or len(levels) < 2 or len(set(values)) < len(levels):
        raise ValueError(
            f"levels={levels!r} must be two different values or more: each is compared with the "
            "first"
        )
    found = np.stack([_equals(cells, level) for level in levels], axis=1)
    return np.where(found.any(axis=1, keepdims=True), found[:, 1:], np.nan).astype(np.float32)


def corners(cells: Cells, levels: Sequence[Any]) -> np.ndarray:
    """A cell that equals a public level as a corner of the simplex, `simplex(len(levels))`: shape
    (rows, len(levels) - 1), float32.

    Better than `indicators` beside an intercept: where levels are equally common these columns are
    uncorrelated, with each other and with the intercept, and noise that is alike in all directions
    hides none of them more than others. No row is longer than 1. A cell that is none of the levels
    makes NaNs, and its row is ignored.
    """
    others = indicators(cells, levels)
    return (simplex(len(levels)) @ np.stack([1 - others.sum(axis=1), *others.T])).T.astype(
        np.float32
    )


def simplex(num_corners: int) -> np.ndarray:
    """The corners of a regular simplex around 0, as columns (num_corners - 1, num_corners), of
    length 1 but for a rounding.

    From coefficients b to what level j adds to the middle of all levels:  b @ simplex(...)[:, j].
    """
    if num_corners < 2:
        raise ValueError(f"num_corners={num_corners!r} must be at least 2: one for each level")
    places = np.arange(1, num_corners)
    rows = (
        np.tri(num_corners - 1, num_corners, 1)
        - np.eye(num_corners - 1, num_corners, 1) * (1 + places)[:, None]
    )
    corners = (
        rows / np.sqrt(places * (places + 1))[:, None] * math.sqrt(num_corners / (num_corners - 1))
    )
    return corners * (1 - 2.0**-22)  # so that in float32 none is longer


def persons(cells: Cells) -> np.ndarray:
    """A column that names persons as whole numbers, the same for the same name; -1 where it names
    nobody: `Curator(persons=)`.

    Names are text, or whole numbers in an array or a list. Those of a DataFrame must be text (read
    the column with ``dtype=str``): there one missing cell makes fractions of all other numbers, and
    then large ones are alike.
    """
    is_array = isinstance(cells, np.ndarray)
    array = as_cells(cells)
    kinds = {array.dtype.kind, getattr(getattr(cells, "dtype", None), "kind", "O")}
    if kinds & set("bfc") or (not is_array and hasattr(cells, "__array__") and kinds & set("iu")):
        raise ValueError(
            "this column names persons by numbers that could be taken for each other: read it as "
            "text (dtype=str)"
        )
    has_numbers = array.dtype.kind in "iu" or isinstance(cells, list | tuple)
    known: dict[str, int] = {}
    found = [
        known.setdefault(name, len(known)) if name else -1
        for name in (_name(cell, has_numbers) for cell in array)
    ]
    return np.array(found, np.int64)


def _name(cell: Any, has_numbers: bool) -> str:
    """Whom a cell names: "" for nobody, as one that is no text does, because what else it is may
    hang on other cells.
    """
    is_number = has_numbers and isinstance(cell, int | np.integer) and not isinstance(cell, bool)
    text = text_of(cell) if is_number or isinstance(cell, str | bytes) else ""
    return "" if text.lower() in MISSING else text
