"""The cells of a column as texts, numbers or dates."""

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
    """A column as an array of numbers, texts, or objects that are read as text."""
    # A list becomes an array with one cell for each entry: a cell that is itself a list must not
    # become visible as a further axis.
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
    # Times with a time zone become objects, but the column of pandas still has the kind "M"
    kind = getattr(getattr(cells, "dtype", None), "kind", "O")
    if array.ndim != 1 or array.dtype.kind not in kinds or (kind in "mM" and kind not in kinds):
        axes = "" if array.ndim == 1 else f" with {array.ndim} axes"
        # Not the whole dtype: that of texts shows the length of the longest one
        kind = array.dtype.type.__name__
        raise ValueError(
            f"a column of type {kind}{axes} cannot be used: it must hold numbers or text, one per "
            "row, or dates where its bounds are dates, such as 2021-03-04"
        )
    return array


def is_none(cell: Any) -> bool:
    """Whether a cell is None, or "not a time", which marks missing dates."""
    return cell is None or (
        type(cell).__name__ in ("NaTType", "datetime64", "timedelta64") and str(cell) == "NaT"
    )


def text_of(cell: Any) -> str:
    """A cell as text, without spaces around it."""
    try:
        if isinstance(cell, np.floating):
            # The same number as in a column of numbers: 0.1 in float32 is not the number "0.1"
            cell = float(cell)
        return (
            cell.decode("utf-8", "surrogateescape") if isinstance(cell, bytes) else str(cell)
        ).strip()
    except Exception:  # Python refuses to print an integer of 5000 digits
        return ""


def number_of(text: str) -> float:
    """A text as a number: true is 1, false is 0, and what is not a number is NaN."""
    try:
        return float(text)
    except ValueError:
        return {"true": 1.0, "false": 0.0}.get(text.lower(), math.nan)


def days_of(text: str) -> float:
    """An ISO date, perhaps with a time, as days since 1970-01-01. Time zones are ignored."""
    try:
        if not _DATE.match(text):
            return math.nan
        time = datetime.datetime.fromisoformat(text).replace(tzinfo=None)
    except (ValueError, OverflowError):
        return math.nan
    return (time - EPOCH) / datetime.timedelta(days=1)
