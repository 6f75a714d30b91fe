"""Columns of a .csv, .tsv, .npy or .npz file, and numbers within public bounds made of their cells.

A bad cell must not show: not as an error, not as a missing row, not as a count. So a cell outside
its bounds is moved to the nearer one, and a cell that is missing or not a number becomes a NaN: to
a curator its row is one that says nothing, so that the complete rows are what a posterior is about.
(Any number in its place would be a made-up observation: of a skewed column the middle of its bounds
lies far from all others, and moved slopes by several standard deviations. A `SufficientStatistic`
alone knows all rows together, and takes a NaN for its center: fill in what is missing there.)
Errors name files, column names and declared types, never cells.

No cell may make a row, or move another row's cells. A row of a CSV file ends at a line feed (or CR
LF) and nowhere else: neither at a lone carriage return nor at any of Unicode's line ends. Two
readings of quotes are possible, and no rule is right for every file: the same bytes may be one row
with a line feed within quotes, or two rows whose cells happen to hold quotes.

- The file is a well-formed export, as RFC 4180 defines it: cells with quotes, delimiters or line
  ends stand in quotes, and a quote in them is doubled. Then quotes decide where each row ends,
  whatever a person wrote into a cell.
- Otherwise each line is one row, and a quote left open ends with its line, so that a bad line
  spoils no other.

The first reading is taken if all of the file agrees with it: every quoted cell is closed before a
delimiter or a line end, no other cell has a quote, and every row has as many cells as the header
(empty lines aside). So if the file is a well-formed export, changing a row changes this row only;
the privacy statement names this assumption. Which reading was taken depends on the rows: nothing
may show it.
"""

from __future__ import annotations

import contextlib
import datetime
import gzip
import math
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

# endings of files
TEXT = (".csv", ".csv.gz", ".tsv", ".tsv.gz")
ARRAYS = (".npy", ".npz")
CONVERTERS = {  # of other files, the function of pandas that reads them
    ".xlsx": "read_excel",
    ".xls": "read_excel",
    ".ods": "read_excel",
    ".parquet": "read_parquet",
    ".feather": "read_feather",
    ".dta": "read_stata",
    ".sav": "read_spss",
    ".sas7bdat": "read_sas",
}
_EPOCH = datetime.datetime(1970, 1, 1)
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}([T ]|$)")
MISSING = ("", ".", "?", "na", "n/a", "nan", "<na>", "null")  # of names of persons, in any case
Cells = Any  # a one-dimensional array of numbers or text, a column of a DataFrame, or a list


class Bounds(NamedTuple):
    """Public limits of a column."""

    low: float
    high: float

    @property
    def middle(self) -> float:
        return self.low / 2 + self.high / 2

    @property
    def half(self) -> float:
        """Half of the width."""
        return self.high / 2 - self.low / 2

    @property
    def words(self) -> str:
        return f"{self.low:g} and {self.high:g}"

    @property
    def step(self) -> str:
        """What a coefficient is about: a change by so much."""
        return "1"


class DateBounds(Bounds):
    """Public limits of a column of dates, in days since 1970-01-01."""

    __slots__ = ()

    @property
    def words(self) -> str:
        low, high = (_EPOCH + datetime.timedelta(days=limit) for limit in self)
        return f"{low:%Y-%m-%d} and {high:%Y-%m-%d} (dates, read as days since {_EPOCH:%Y-%m-%d})"

    @property
    def step(self) -> str:
        return "day"


def parse_bounds(text: str) -> dict[str, Bounds]:
    """``age=21:64,"income, yearly"=0:1e5,birth=1940-01-01:2010-12-31`` -> bounds by column."""
    found: dict[str, Bounds] = {}
    for part in filter(None, _split(text, ",")):
        *names, last = _split(part, "=")
        name = _unquoted("=".join(names))
        limits = [limit.strip() for limit in last.split(":")]
        if not name or len(limits) != 2 or _kind_of(limits) is None:
            raise ValueError(
                f"bounds {part!r} must read COLUMN=LOW:HIGH, two numbers or two dates, as in "
                "age=21:64 or "
                "birth=1940-01-01:2010-12-31"
            )
        if name in found:
            raise ValueError(f"column {name!r} has two bounds: give one")
        found[name] = _checked(name, limits)
    return found


def parse_levels(text: str) -> dict[str, tuple[str, ...]]:
    """``sex=female/male,region="North, East"/South`` -> levels by column."""
    found: dict[str, tuple[str, ...]] = {}
    for part in filter(None, _split(text, ",")):
        name, *values = _split(part, "=")
        name = _unquoted(name)
        levels = tuple(_unquoted(value) for value in _split("=".join(values), "/"))
        is_clear = len(levels) > 1 and all(levels) and len(set(levels)) == len(levels)
        if not name or not is_clear or name in found:
            raise ValueError(
                f"levels {part!r} must read COLUMN=ONE/TWO/..., two different values or more, and "
                "each column "
                'once; put a name or value with one of , = / in quotes, as in region="North, East"/South'
            )
        found[name] = levels
    return found


def parse_names(text: str) -> tuple[str, ...]:
    """``age,"income, yearly"`` -> names."""
    return tuple(name for part in _split(text, ",") if (name := _unquoted(part)))


def _split(text: str, separator: str) -> list[str]:
    """The parts between separators, but for separators in quotes."""
    if text.count('"') % 2:
        raise ValueError(
            f"{text!r} leaves a quote open: put names and values with one of , = / in quotes, and "
            "double a quote in them"
        )
    parts = re.findall(rf'{separator}((?:"[^"]*"|[^"{separator}])*)', separator + text)
    return [part.strip() for part in parts]


def _unquoted(text: str) -> str:
    """A part as it is meant: what is in quotes without them, and one quote for two."""
    line = text.replace("\n", " ").replace("\r", " ")  # as in a script
    return re.sub(r'"((?:[^"]|"")*)"', lambda quoted: quoted[1].replace('""', '"'), line).strip()


def _checked(name: str, limits: Any) -> Bounds:
    if isinstance(limits, Bounds):
        kind, (low, high) = type(limits), limits
    else:
        kind, (low, high) = _kind_of(limits) or (Bounds, (math.nan, math.nan))
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ValueError(
            f"bounds {name}={limits} must be two finite numbers, the lower first (or two dates, "
            "such as 2021-03-04)"
        )
    return kind(low, high)


def _kind_of(limits: Any) -> tuple[type[Bounds], tuple[float, float]] | None:
    """Whether limits are dates or numbers, and which; None if they are neither."""
    try:
        low, high = limits
        days = _days(_text(low)), _days(_text(high))
        if not any(map(math.isnan, days)):
            return DateBounds, days
        return Bounds, (float(low), float(high))
    except (TypeError, ValueError):
        return None


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
    limits = {name: _checked(name, pair) for name, pair in bounds.items()}
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
        # Those that are there are not told: a frame read without a header has a row for names.
        raise ValueError(
            f"no column {', '.join(map(repr, missing))}, of those that the bounds name"
        )
    values = [numbers(columns[name], pair) for name, pair in limits.items()]
    if len({len(column) for column in values}) > 1:
        raise ValueError(
            f"the columns {', '.join(map(repr, limits))} have different numbers of rows: they must "
            "agree"
        )
    # Whether a cell is too large or too small for its type is not told
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
    values = _as_days(cells) if isinstance(bounds, DateBounds) else _as_numbers(cells)
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
    array = _as_cells(cells)
    text = _text(level)
    wanted = _number(text)
    if array.dtype.kind in "biuf":
        # The type of a DataFrame's column may depend on its cells
        if math.isnan(wanted) and isinstance(cells, np.ndarray):
            raise ValueError(f"the column holds numbers: {level!r} is none")
        return _as_numbers(array) == wanted
    texts = ["" if _is_none(cell) else _text(cell) for cell in array]
    return np.array([cell == text or _number(cell) == wanted for cell in texts], bool)


def indicators(cells: Cells, levels: Sequence[Any]) -> np.ndarray:
    """For each of the public `levels` but the first, whether a cell equals it: shape (rows,
    len(levels) - 1), float32.

    A row is then no longer than 1. A cell that is none of the levels makes NaNs, and its row says
    nothing.
    """
    values = [
        _text(level) if math.isnan(_number(_text(level))) else _number(_text(level))
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
    makes NaNs, and its row says nothing.
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
    array = _as_cells(cells)
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
    text = _text(cell) if is_number or isinstance(cell, str | bytes) else ""
    return "" if text.lower() in MISSING else text


def read_columns(
    path: str | Path, names: Sequence[str] | None, delimiter: str | None = None
) -> dict[str, Cells]:
    """The cells of the named columns, all columns if no names are given; equally many in each.

    Without a `delimiter` it is the one of the file's ending: a tab for .tsv, a comma for .csv.
    """
    path = Path(path)
    name = path.name.lower()
    if name.endswith(TEXT):
        return _read_csv(path, names, delimiter_of(path) if delimiter is None else delimiter)
    if not name.endswith(ARRAYS):
        raise ValueError(
            f"{path.name} must end with one of {', '.join(TEXT + ARRAYS)}{_way_out(path)}"
        )
    arrays = _read_arrays(path)
    return _chosen(arrays, names, path, f"; it has {', '.join(arrays)}")


def delimiter_of(path: Path) -> str:
    """What stands between the cells of a file with this ending."""
    return "\t" if path.name.lower().endswith((".tsv", ".tsv.gz")) else ","


def _way_out(path: Path) -> str:
    """How to make a CSV file of another kind of file, where pandas can."""
    reader = CONVERTERS.get(path.suffix.lower())
    if reader is None:
        return ""
    command = f"pandas.{reader}({path.name!r}).to_csv({path.stem + '.csv'!r}, index=False)"
    return f": save the table as CSV, or convert it in Python with {command}"


def _read_csv(path: Path, names: Sequence[str] | None, delimiter: str) -> dict[str, Cells]:
    if len(delimiter) != 1 or delimiter in '"\r\n':
        raise ValueError(
            f"delimiter={delimiter!r} must be one character, and no quote or line break"
        )
    quotes = _Quotes(delimiter)
    with _unshown(path):
        with _opened(path) as file:
            cells = _read_rows(quotes.rows(file), names, path, delimiter)
        if cells is None:
            with _opened(path) as file:
                cells = _read_rows(map(quotes.cells, file), names, path, delimiter)
    assert cells is not None
    return cells


def _read_rows(
    rows: Iterator[list[str] | None], names: Sequence[str] | None, path: Path, delimiter: str
) -> dict[str, Cells] | None:
    """The named columns of the rows, of which the first is the header.

    None as soon as a row is None.
    """
    first = next(rows, [])
    if first is None:
        return None
    header = [_shown(name).strip() for name in first]
    if not any(header):
        raise ValueError(f"{path.name} has no header: its first line must name the columns")
    single = {name: place for place, name in enumerate(header) if header.count(name) == 1}
    if twice := [name for name in names or () if header.count(name) > 1]:
        raise ValueError(
            f"{path.name} names {', '.join(map(repr, twice))} more than once: there is no telling "
            "which is meant"
        )
    # The others are not told: the first line may be a row, of a file without a header.
    places = _chosen(
        single,
        names,
        path,
        " in its first line: is it spelled like that there, and does that line name the columns, "
        f"separated by {delimiter!r}, "
        "and end with a line feed?",
    )
    cells: dict[str, list[str]] = {name: [] for name in places}
    for row in rows:
        if row is None:
            return None
        for name, place in places.items():
            cells[name].append(row[place] if place < len(row) else "")
    return cells


class _Quotes:
    """How a CSV file with this delimiter is taken apart.

    (The csv module ends a row at a lone carriage return.)
    """

    def __init__(self, delimiter: str) -> None:
        end = re.escape(delimiter)
        self._delimiter = delimiter
        # Of a text with a delimiter before every cell. A cell may begin with a quoted part, which
        # the end of the text closes, too.
        self._cell = re.compile(rf'{end}(?:"([^"]*+(?:""[^"]*+)*+)"?+)?+([^{end}]*+)')
        self._well_formed = re.compile(rf'(?:{end}(?:"[^"]*+(?:""[^"]*+)*+"|[^"{end}]*+))++')

    def cells(self, row: str) -> list[str]:
        """The cells of a row by itself."""
        row = row.removesuffix("\n").removesuffix("\r")
        if '"' not in row:
            return row.split(self._delimiter)
        cells = self._cell.findall(self._delimiter + row)
        return [quoted.replace('""', '"') + rest for quoted, rest in cells]

    def rows(self, lines: Iterator[str]) -> Iterator[list[str] | None]:
        """The rows of a well-formed export. None if one has several lines and the file turns out to
        be none.

        Of a file whose rows have one line each this is what `cells` makes of every line,
        well-formed or not.
        """
        is_well_formed, has_long_rows, num_cells = True, False, None
        for line in lines:
            row = line
            if '"' in line:
                row = self._whole_row(line, lines)
                has_long_rows |= len(row) > len(line)
                text = row.removesuffix("\n").removesuffix("\r")
                is_well_formed &= self._well_formed.fullmatch(self._delimiter + text) is not None
            cells = self.cells(row)
            num_cells = len(cells) if num_cells is None else num_cells
            is_well_formed &= len(cells) == num_cells or not row.strip("\r\n")
            if has_long_rows and not is_well_formed:
                yield None
                return
            yield cells

    def _whole_row(self, line: str, more: Iterator[str]) -> str:
        """The line, and further ones as long as a quote is open: then the number of quotes is odd."""
        if line.count('"') % 2 == 0:
            return line
        lines = [line]
        for another in more:
            lines.append(another)
            if another.count('"') % 2:
                break
        return "".join(lines)


def _opened(path: Path) -> IO[str]:
    # A byte that is no text must not show either; what differs in one stays different. Only a line
    # feed ends a line.
    if path.name.lower().endswith(".gz"):
        return gzip.open(path, "rt", encoding="utf-8-sig", errors="surrogateescape", newline="\n")
    return path.open(encoding="utf-8-sig", errors="surrogateescape", newline="\n")


def _shown(name: str) -> str:
    """A name that can be printed."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


@contextlib.contextmanager
def _unshown(path: Path) -> Iterator[None]:
    try:
        yield
    except (gzip.BadGzipFile, EOFError, zlib.error):  # some of their texts show bytes of the file
        raise ValueError(f"{path.name} could not be read: it is no whole gzip file") from None


def _read_arrays(path: Path) -> dict[str, Cells]:
    try:
        loaded = np.load(path, allow_pickle=False)
        arrays = dict(loaded) if hasattr(loaded, "files") else {"": loaded}
    except Exception:  # its text may show bytes of the file
        raise ValueError(
            f"{path.name} could not be read: it must hold plain arrays of numbers or text"
        ) from None
    columns: dict[str, Cells] = {}
    for name, array in arrays.items():
        columns.update(_array_columns(name, array))
    if len({len(column) for column in columns.values()}) > 1:
        raise ValueError(
            f"the arrays of {path.name} have different numbers of rows: they must agree"
        )
    return columns


def _array_columns(name: str, array: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    if array.dtype.names is not None and array.ndim == 1:
        yield from ((field, array[field]) for field in array.dtype.names)
    elif array.ndim == 1:
        yield name or "0", array
    elif array.ndim == 2:
        yield from (
            (f"{name}.{index}" if name else str(index), array[:, index])
            for index in range(array.shape[1])
        )
    else:
        raise ValueError(
            f"array {name!r} has shape {array.shape[1:]} per row: a column holds one number per row"
        )


def _chosen(
    columns: Mapping[str, Any], names: Sequence[str] | None, path: Path, told: str
) -> dict[str, Any]:
    """The named columns. If some are missing this is told."""
    if names is None:
        return dict(columns)
    missing = [name for name in names if name not in columns]
    if missing:
        raise ValueError(f"{path.name} has no column {', '.join(map(repr, missing))}{told}")
    return {name: columns[name] for name in names}


def _as_numbers(cells: Cells) -> np.ndarray:
    cells = _as_cells(cells)
    if cells.dtype.kind in "biuf":
        with np.errstate(all="ignore"):
            return cells.astype(np.float64)
    return np.array([_number(_text(cell)) for cell in cells], np.float64)


def _as_days(cells: Cells) -> np.ndarray:
    array = _as_cells(cells, has_dates=True)
    if array.dtype.kind in "biuf" and isinstance(cells, np.ndarray):
        raise ValueError("the column holds numbers, and its bounds are dates: declare numbers")
    return np.array([_days(_text(cell)) for cell in array], np.float64)


def _as_cells(cells: Cells, has_dates: bool = False) -> np.ndarray:
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
        # The whole dtype of texts would tell how long the longest is
        kind = array.dtype.type.__name__
        raise ValueError(
            f"a column of type {kind}{axes} cannot be used: it must hold numbers or text, one per "
            "row, or dates "
            "where its bounds are dates, such as 2021-03-04"
        )
    return array


def _is_none(cell: Any) -> bool:
    """None, or no time: pandas has it for what is missing among dates."""
    return cell is None or (
        type(cell).__name__ in ("NaTType", "datetime64", "timedelta64") and str(cell) == "NaT"
    )


def _text(cell: Any) -> str:
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


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return {"true": 1.0, "false": 0.0}.get(text.lower(), math.nan)


def _days(text: str) -> float:
    """An ISO date, perhaps with a time, as days since 1970-01-01; of a time zone the local time."""
    try:
        if not _DATE.match(text):
            return math.nan
        time = datetime.datetime.fromisoformat(text).replace(tzinfo=None)
    except (ValueError, OverflowError):
        return math.nan
    return (time - _EPOCH) / datetime.timedelta(days=1)
