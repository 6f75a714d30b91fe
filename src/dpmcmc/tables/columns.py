"""Numbers within public bounds, made from the cells of columns.

A bad cell must not become visible: not as an error, not as a missing row, not as a count. So a cell
outside its bounds is moved to the nearer one, and a cell that is missing or not a number becomes a
NaN. Its row is then ignored (its log-likelihood term is 0), so the posterior is about the complete
rows. Any number in its place would be a made-up observation: in a skewed column the middle of the
bounds is far from all other cells, and changed coefficients by several standard deviations. The one
exception is `SufficientStatistic`, which takes the center of the statistic for a NaN: fill in
missing cells before you use it. Errors name files, column names and declared types, never cells.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dpmcmc.tables.cells import Cells, as_cells, as_days, as_numbers, is_none, number_of, text_of
from dpmcmc.tables.declared import Bounds, DateBounds, checked_bounds

# Names of persons that count as missing, in upper or lower case
MISSING = ("", ".", "?", "na", "n/a", "nan", "<na>", "null")


def scaled(columns: Mapping[str, Cells], bounds: Mapping[str, tuple[Any, Any]]) -> np.ndarray:
    """Numbers or dates, scaled so that their public bounds are -1 and 1.

    The length of a row is then at most sqrt(k), which is the `radius` of a regression, and a
    coefficient is the effect of half the width of the bounds. A cell outside its bounds is moved to
    the nearer one. A cell that is missing or not a number becomes a NaN, and its row is ignored. (A
    `SufficientStatistic` takes its center instead: fill in missing cells before you use it.)

    If the bounds are dates, as in ``("1940-01-01", "2010-12-31")``, so are the cells: ISO texts
    such as 2021-03-04 or 2021-03-04 10:30 (with a time zone, the local time counts), or dates of
    Python, NumPy or pandas.

    Args:
        columns: The table, as a dict of columns or a DataFrame.
        bounds: The lower and the upper bound of each column to take, by name. Public: do not
            compute them from the rows.

    Returns:
        One column for each of the k bounds, in their order, of shape (rows, k) and type float32.

    Raises:
        TypeError: An argument is not a dict or a DataFrame.
        ValueError: A column is missing, bounds are not two finite numbers or dates, or columns have
            different numbers of rows.

    Example:
        >>> from dpmcmc import tables
        >>> tables.scaled({"age": [20, 40, 99, "?"]}, {"age": (20, 60)}).ravel().tolist()
        [-1.0, 0.0, 1.0, nan]
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
        # The error does not name the other columns: without a header, names are cells of a row.
        raise ValueError(
            f"no column {', '.join(map(repr, missing))}, of those that the bounds name"
        )
    values = [numbers(columns[name], pair) for name, pair in limits.items()]
    if len({len(column) for column in values}) > 1:
        raise ValueError(
            f"the columns {', '.join(map(repr, limits))} have different numbers of rows: they must "
            "agree"
        )
    rows = np.empty((len(values[0]), len(values)), np.float32)
    # A warning would show that a cell is too large or too small for its type
    with np.errstate(all="ignore"):
        for place, (column, pair) in enumerate(zip(values, limits.values(), strict=True)):
            column -= pair.middle
            column /= pair.half
            rows[:, place] = np.clip(column, -1, 1, out=column)
    return rows


def numbers(cells: Cells, bounds: Bounds) -> np.ndarray:
    """Every cell as a number within the bounds, or a NaN: float64; dates are days since 1970."""
    values = as_days(cells) if isinstance(bounds, DateBounds) else as_numbers(cells)
    return np.clip(values, bounds.low, bounds.high)


def labels(cells: Cells, positive: Any = None, negative: Any = None) -> np.ndarray:
    """Labels of two public levels as 1 and 0.

    A cell equals a level as text or as a number. Any other cell becomes a NaN, also one of another
    spelling, and its row is ignored.

    Args:
        cells: The column.
        positive: The level that becomes 1. Give both levels, or none if they are 1 and 0, or true
            and false.
        negative: The level that becomes 0.

    Returns:
        Shape (rows,), float32.

    Raises:
        ValueError: One level is given without the other.

    Example:
        >>> from dpmcmc import tables
        >>> tables.labels(["yes", "no", "Yes"], positive="yes", negative="no").tolist()
        [1.0, 0.0, nan]
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
    """For each public level except the first, whether a cell equals it.

    The length of a row is at most 1. A cell that is none of the levels becomes NaNs, and its row is
    ignored.

    Args:
        cells: The column.
        levels: The public levels. Coefficients are compared with the first of them.

    Returns:
        Shape (rows, len(levels) - 1), float32.

    Raises:
        ValueError: There are fewer than two different levels.

    Example:
        >>> from dpmcmc import tables
        >>> tables.indicators(["a", "b", "c"], levels=("a", "b", "c")).tolist()
        [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]
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
    equals = np.stack([_equals(cells, level) for level in levels], axis=1)
    return np.where(equals.any(axis=1, keepdims=True), equals[:, 1:], np.nan).astype(np.float32)


def corners(cells: Cells, levels: Sequence[Any]) -> np.ndarray:
    """For each cell the corner of a regular simplex that stands for its public level.

    Use it rather than `indicators` beside an intercept: if levels are equally common, these columns
    are uncorrelated with each other and with the intercept, so noise that is equal in all
    directions affects all of them equally. The length of a row is at most 1. A cell that is none of
    the levels becomes NaNs, and its row is ignored.

    Args:
        cells: The column.
        levels: The public levels, in the order of the corners of `simplex(len(levels))`.

    Returns:
        Shape (rows, len(levels) - 1), float32.

    Raises:
        ValueError: There are fewer than two different levels.

    Example:
        >>> from dpmcmc import tables
        >>> tables.corners(["a", "b"], levels=("a", "b")).round(3).tolist()
        [[1.0], [-1.0]]
    """
    others = indicators(cells, levels)
    return (simplex(len(levels)) @ np.stack([1 - others.sum(axis=1), *others.T])).T.astype(
        np.float32
    )


def simplex(num_corners: int) -> np.ndarray:
    """The corners of a regular simplex around 0, of length 1 up to rounding.

    With coefficients b, the effect of level j against the mean of all levels is
    b @ simplex(num_corners)[:, j].

    Args:
        num_corners: The number of corners, one for each level.

    Returns:
        The corners as columns, of shape (num_corners - 1, num_corners).

    Raises:
        ValueError: There are fewer than two corners.

    Example:
        >>> from dpmcmc import tables
        >>> tables.simplex(3).round(3).tolist()
        [[0.866, -0.866, 0.0], [0.5, 0.5, -1.0]]
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
    return corners * (1 - 2.0**-22)  # so that no length is above 1 in float32


def persons(cells: Cells) -> np.ndarray:
    """Names of persons as whole numbers, for `Curator(persons=...)`.

    Names are text, or whole numbers in an array or a list. Names in a DataFrame must be text (read
    the column with ``dtype=str``): there, one missing cell turns all other numbers into floats, and
    large ones are then rounded to the same number.

    Args:
        cells: The column with a name for each row.

    Returns:
        One number for each row, the same for the same name, and -1 where no person is named.

    Raises:
        ValueError: The names are numbers that may have been rounded.

    Example:
        >>> from dpmcmc import tables
        >>> tables.persons(["ann", "bob", "ann", ""]).tolist()
        [0, 1, 0, -1]
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
    numbers_of_rows = [
        known.setdefault(name, len(known)) if name else -1
        for name in (_name(cell, has_numbers) for cell in array)
    ]
    return np.array(numbers_of_rows, np.int64)


def _name(cell: Any, has_numbers: bool) -> str:
    """The name in a cell, "" for nobody.

    A cell that is not text names nobody, because its type may depend on other cells.
    """
    is_number = has_numbers and isinstance(cell, int | np.integer) and not isinstance(cell, bool)
    text = text_of(cell) if is_number or isinstance(cell, str | bytes) else ""
    return "" if text.lower() in MISSING else text
