"""The cells of a column: what text, number or date each of them is."""

from __future__ import annotations

import datetime
import math
import re
from typing import Any

import numpy as np

EPOCH = datetime.datetime(1970, 1, 1)
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}([T ]|$)")
Cells = Any  # a one-dimensional array of numbers or text, a column of a DataFrame, or a list


def as_numbers(cells: Cells) -> np.ndarray:
    """Every cell as a number, or a NaN: float64."""
    cells = as_cells(cells)
    if cells.dtype.kind in "biuf":
        with np.errstate(all="ignore"):
            return cells.astype(np.float64)
    return np.array([number_of(text_of(cell)) for cell in cells], np.float64)


def as_days(cells: Cells) -> np.ndarray:
    """Every cell as days since 1970-01-01, or a NaN: float64."""
    array = as_cells(cells, has_dates=True)
    if array.dtype.kind in "biuf" and isinstance(cells, np.ndarray):
        raise ValueError("the column holds numbers, and its bounds are dates: declare numbers")
    return np.array([days_of(text_of(cell)) for cell in array], np.float64)


def as_cells(cells: Cells, has_dates: bool = False) -> np.ndarray:
    """A column as an array of numbers, text or whatever has cells to be read as text."""
    # One cell for each entry of a list, whatever it is: a cell that is a list itself must not show
    # by an axis more.
    if isinstance(cells, str | bytes):
        raise ValueError(
            "a column is an array or a list of cells, not a text: give the column itself"
        )
    if isinstance(cells, np.ma.MaskedArray):
        raise ValueError(
            "a masked array would lose its mask: fill it first, with array.filled(nan) for missing "
            "numbers"
        )
    array = np.asarray(cells) if hasattr(cells, "__array__") else np.fromiter(cells, object)
    kinds = "biufUSO" + "M" * has_dates
    # With a time zone pandas makes objects of times
    kind = getattr(getattr(cells, "dtype", None), "kind", "O")
    if array.ndim != 1 or array.dtype.kind not in kinds or (kind in "mM" and kind not in kinds):
        axes = "" if array.ndim == 1 else f" with {array.ndim} axes"
        # The whole dtype of texts would show how long the longest is
        kind = array.dtype.type.__name__
        raise ValueError(
            f"a column of type {kind}{axes} cannot be used: it must hold numbers or text, one per "
            "row, or dates "
            "where its bounds are dates, such as 2021-03-04"
        )
    return array


def is_none(cell: Any) -> bool:
    """None, or no time: pandas has it for what is missing among dates."""
    return cell is None or (
        type(cell).__name__ in ("NaTType", "datetime64", "timedelta64") and str(cell) == "NaT"
    )


def text_of(cell: Any) -> str:
    """A cell as text, without blanks around it."""
    try:
        if isinstance(cell, np.floating):
            # As the column has it where all its cells are numbers: 0.1 in float32 is another number
            # than "0.1"
            cell = float(cell)
        return (
            cell.decode("utf-8", "surrogateescape") if isinstance(cell, bytes) else str(cell)
        ).strip()
    except Exception:  # Python prints no integer of 5000 digits
        return ""


def number_of(text: str) -> float:
    """A text as a number, 1 or 0 for true or false, NaN for any other."""
    try:
        return float(text)
    except ValueError:
        return {"true": 1.0, "false": 0.0}.get(text.lower(), math.nan)


def days_of(text: str) -> float:
    """An ISO date, perhaps with a time, as days since 1970-01-01; of a time zone the local time."""
    try:
        if not _DATE.match(text):
            return math.nan
        time = datetime.datetime.fromisoformat(text).replace(tzinfo=None)
    except (ValueError, OverflowError):
        return math.nan
    return (time - EPOCH) / datetime.timedelta(days=1)
