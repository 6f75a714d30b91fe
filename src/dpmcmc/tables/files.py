"""Columns of a .csv, .tsv, .npy or .npz file.

Errors name files and column names, never cells.

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
import gzip
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from dpmcmc.tables.cells import Cells

# Endings of files
TEXT = (".csv", ".csv.gz", ".tsv", ".tsv.gz")
ARRAYS = (".npy", ".npz")
# The functions of pandas that read other files
CONVERTERS = {
    ".xlsx": "read_excel",
    ".xls": "read_excel",
    ".ods": "read_excel",
    ".parquet": "read_parquet",
    ".feather": "read_feather",
    ".dta": "read_stata",
    ".sav": "read_spss",
    ".sas7bdat": "read_sas",
}


def read_columns(
    path: str | Path, names: Sequence[str] | None, delimiter: str | None = None
) -> dict[str, Cells]:
    """Read columns of a .csv, .tsv, .npy or .npz file; .csv and .tsv may be compressed (.gz).

    Args:
        path: The file.
        names: The columns to read; `None` reads all.
        delimiter: One character between cells of a text file; by default a tab for .tsv and a comma
            for .csv.

    Returns:
        The cells of each column by name, equally many in each.

    Raises:
        ValueError: The file has another ending, no header, or not these columns. No error shows a
            cell.

    Example:
        >>> from pathlib import Path
        >>> from dpmcmc import tables
        >>> written = Path("people.csv").write_text("age,city\\n41,Oslo\\n29,Bergen\\n")
        >>> tables.read_columns("people.csv", names=["age"])
        {'age': ['41', '29']}
    """
    path = Path(path)
    name = path.name.lower()
    if name.endswith(TEXT):
        return _read_csv(path, names, delimiter_of(path) if delimiter is None else delimiter)
    if not name.endswith(ARRAYS):
        raise ValueError(
            f"{path.name} must end with one of {', '.join(TEXT + ARRAYS)}{_conversion(path)}"
        )
    arrays = _read_arrays(path)
    return _chosen(arrays, names, path, f"; it has {', '.join(arrays)}")


def delimiter_of(path: Path) -> str:
    """The character between the cells of a file with this ending."""
    return "\t" if path.name.lower().endswith((".tsv", ".tsv.gz")) else ","


def _conversion(path: Path) -> str:
    """How to convert another kind of file to CSV, if pandas can read it."""
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
    with _hiding_contents(path):
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
    places = _places(first, names, path, delimiter)
    cells: dict[str, list[str]] = {name: [] for name in places}
    for row in rows:
        if row is None:
            return None
        for name, place in places.items():
            cells[name].append(row[place] if place < len(row) else "")
    return cells


def _places(
    first: list[str], names: Sequence[str] | None, path: Path, delimiter: str
) -> dict[str, int]:
    """Where the named columns are in each row, by the header."""
    header = [_printable(name).strip() for name in first]
    if not any(header):
        raise ValueError(f"{path.name} has no header: its first line must name the columns")
    single = {name: place for place, name in enumerate(header) if header.count(name) == 1}
    if twice := [name for name in names or () if header.count(name) > 1]:
        raise ValueError(
            f"{path.name} names {', '.join(map(repr, twice))} more than once: it is not clear "
            "which is meant"
        )
    # The error does not name the other columns: without a header, the first line is a row.
    return _chosen(
        single,
        names,
        path,
        " in its first line: is it spelled like that there, and does that line name the columns, "
        f"separated by {delimiter!r}, and end with a line feed?",
    )


def rows_of_text(
    path: Path, names: Sequence[str], delimiter: str, by_quotes: bool
) -> Iterator[list[str] | None]:
    """The cells of the named columns, row by row, for a file that does not fit memory.

    Args:
        path: A .csv or .tsv file.
        names: The columns.
        delimiter: The character between cells.
        by_quotes: The first of the two readings; otherwise every line is a row.

    Yields:
        The cells of each row; None, and then nothing more, where the file turns out not to have
        the first reading.
    """
    quotes = _Quotes(delimiter)
    with _hiding_contents(path), _opened(path) as file:
        rows: Iterator[list[str] | None] = (
            quotes.rows(file) if by_quotes else map(quotes.cells, file)
        )
        first = next(rows, [])
        if first is None:
            yield None
            return
        places = list(_places(first, names, path, delimiter).values())
        for row in rows:
            if row is None:
                yield None
                return
            yield [row[place] if place < len(row) else "" for place in places]


class _Quotes:
    """Splits a CSV file with this delimiter into rows and cells.

    The csv module of Python is not used, because it ends a row at a lone carriage return.
    """

    def __init__(self, delimiter: str) -> None:
        end = re.escape(delimiter)
        self._delimiter = delimiter
        # Both patterns are for a text with a delimiter before every cell. A cell may begin with a
        # quoted part, which the end of the text also closes.
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
        """The rows of a well-formed export.

        None, and then nothing more, if a row has several lines and the file is not well-formed. If
        all rows have one line, this is the same as `cells` of every line, well-formed or not.
        """
        is_well_formed = True
        has_long_rows = False
        num_cells = None
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
        """The line, and further ones while a quote is open: while the number of quotes is odd."""
        if line.count('"') % 2 == 0:
            return line
        lines = [line]
        for another in more:
            lines.append(another)
            if another.count('"') % 2:
                break
        return "".join(lines)


def _opened(path: Path) -> IO[str]:
    # Bytes that are not text must not raise an error either, and cells that differ in such a byte
    # stay different. Only a line feed ends a line.
    if path.name.lower().endswith(".gz"):
        return gzip.open(path, "rt", encoding="utf-8-sig", errors="surrogateescape", newline="\n")
    return path.open(encoding="utf-8-sig", errors="surrogateescape", newline="\n")


def _printable(name: str) -> str:
    """The name without bytes that cannot be printed."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


@contextlib.contextmanager
def _hiding_contents(path: Path) -> Iterator[None]:
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
    columns: Mapping[str, Any], names: Sequence[str] | None, path: Path, hint: str
) -> dict[str, Any]:
    """The named columns. If some are missing, an error says so and ends with the hint."""
    if names is None:
        return dict(columns)
    missing = [name for name in names if name not in columns]
    if missing:
        raise ValueError(f"{path.name} has no column {', '.join(map(repr, missing))}{hint}")
    return {name: columns[name] for name in names}
