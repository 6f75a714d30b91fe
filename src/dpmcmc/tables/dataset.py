"""Files that are read in batches of one shape, for tables that do not fit memory.

A batch has the rows that `scaled` and `labels` would make of its cells. Everything about a file
that decides its batches is read from its metadata, and noted in a digest when the dataset is
opened.

Parquet and Feather files are read by `pyarrow.dataset`. A CSV file is read by the reader of this
library, because that of Arrow ends a row at a lone carriage return, so that a cell could make rows.
"""

from __future__ import annotations

import glob
import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from dpmcmc.checks import whole
from dpmcmc.errors import PrivacyRefusal
from dpmcmc.tables.columns import labels as labels_of
from dpmcmc.tables.columns import scaled
from dpmcmc.tables.declared import checked_bounds
from dpmcmc.tables.files import TEXT, delimiter_of, rows_of_text

BATCH_ROWS = 2**16
ARROW = {".parquet": "parquet", ".feather": "feather", ".arrow": "feather"}
CHANGED = "a file of the dataset was changed while it was read: open it again, when it is complete"
Batch = tuple[
    tuple[np.ndarray, np.ndarray], int
]  # features and labels, and how many rows there are


@dataclass(frozen=True)
class Part:
    """A file, or a row group of a Parquet file. Its number of rows is known from metadata."""

    path: str
    group: int | None
    num_rows: int
    by_quotes: bool = True  # which of the two readings of a CSV file


@dataclass(frozen=True)
class Dataset:
    """Rows in files, made by `dataset`. It holds names and declarations, and no row.

    Attributes:
        paths: The files, in the order of their names.
        bounds: The public bounds of each feature, by column.
        label: The column of the label.
        levels: The level that becomes 1 and the one that becomes 0, or None twice.
        batch_rows: The number of rows of every batch.
        parts: What is read at a time.
        digest: Of the names, sizes, times, schemas and numbers of rows of all files.

    Example:
        >>> from pathlib import Path
        >>> from dpmcmc import tables
        >>> written = Path("few.csv").write_text("age,ill\\n41,1\\n29,0\\n50,1\\n")
        >>> few = tables.dataset("few.csv", {"age": (20, 60)}, "ill", batch_rows=2)
        >>> few.num_rows, few.num_batches
        (3, 2)
        >>> [rows for _, rows in few.batches(0)]
        [2, 1]
    """

    paths: tuple[str, ...]
    bounds: tuple[tuple[str, tuple[Any, Any]], ...]
    label: str
    levels: tuple[Any, Any]
    batch_rows: int
    parts: tuple[Part, ...]
    digest: str

    def __repr__(self) -> str:
        return f"Dataset({len(self.paths)} files, {len(self.bounds)} features)"

    @property
    def num_features(self) -> int:
        """The number of columns of x. A row is not longer than its square root."""
        return len(self.bounds)

    @property
    def num_rows(self) -> int:
        """The number of rows of all files."""
        return sum(part.num_rows for part in self.parts)

    @property
    def num_batches(self) -> int:
        """The number of batches of all files."""
        return sum(-(-part.num_rows // self.batch_rows) for part in self.parts)

    def check(self) -> None:
        """Refuse files that are not those that were opened.

        Raises:
            PrivacyRefusal: A file was changed, or is gone.
        """
        try:
            is_same = _digest(self.paths, self.parts) == self.digest
        except OSError:
            is_same = False
        if not is_same:
            raise PrivacyRefusal(
                "a file of the dataset was changed or moved since it was opened: every pass must "
                "read the same rows. Open it again, with dpmcmc.tables.dataset, and make a new "
                "curator, with a ledger= that knows what was spent"
            )

    def batches(self, index: int) -> Iterator[Batch]:
        """The rows of one part, in batches of one shape.

        Args:
            index: The number of the part.

        Yields:
            The features, of shape (batch_rows, k), the labels, of shape (batch_rows,), both
            float32, and how many of them are rows. The others are NaN.

        Raises:
            PrivacyRefusal: The part has not the number of rows that it had.
        """
        part = self.parts[index]
        num_read = 0
        for batch in self.in_batches(_read(part, self.columns, self.batch_rows)):
            num_read += batch[1]
            if num_read > part.num_rows:
                break
            yield batch
        if num_read != part.num_rows:
            raise PrivacyRefusal(CHANGED)

    def in_batches(self, pieces: Iterable[Mapping[str, Any]]) -> Iterator[Batch]:
        """Rows in batches of one shape.

        Args:
            pieces: The cells of each column, some rows at a time.

        Yields:
            Batches, as in `batches`.
        """
        features, labels = _empty(self.batch_rows, self.num_features)
        filled = 0
        for columns in pieces:
            some = self.rows(columns)
            start = 0
            while start < len(some[1]):
                taken = min(self.batch_rows - filled, len(some[1]) - start)
                features[filled : filled + taken] = some[0][start : start + taken]
                labels[filled : filled + taken] = some[1][start : start + taken]
                filled, start = filled + taken, start + taken
                if filled == self.batch_rows:
                    yield (features, labels), filled
                    features, labels = _empty(self.batch_rows, self.num_features)
                    filled = 0
        if filled:
            yield (features, labels), filled

    @property
    def columns(self) -> list[str]:
        """The columns that are read."""
        return [*(name for name, _ in self.bounds), self.label]

    def rows(self, columns: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray]:
        """Cells as rows of a regression.

        Args:
            columns: The cells of each column.

        Returns:
            The features and the labels, float32.
        """
        features = scaled(columns, dict(self.bounds))
        return features, labels_of(columns[self.label], *self.levels)


def dataset(
    paths: str | Path | Sequence[str | Path],
    bounds: Mapping[str, tuple[Any, Any]],
    label: str,
    *,
    positive: Any = None,
    negative: Any = None,
    batch_rows: int = BATCH_ROWS,
) -> Dataset:
    """Open Parquet, Feather or CSV files as rows (x, y) that are read in batches.

    A `Curator` takes it in place of arrays, for models such as `models.logistic`. Its rows are
    `(scaled(columns, bounds), labels(columns[label], positive, negative))`.

    Args:
        paths: A file, a pattern such as "people/*.parquet", or several of them.
        bounds: The lower and the upper bound of each feature, by column. Public: do not compute
            them from the rows.
        label: The column of the label.
        positive: The level of the label that becomes 1. Give both levels, or none if they are 1
            and 0, or true and false.
        negative: The level that becomes 0.
        batch_rows: The number of rows of a batch.

    Returns:
        The dataset.

    Raises:
        TypeError: `bounds` is not a dict.
        ValueError: There is no such file, it has another ending or not these columns, or a
            declaration is not clear. No error shows a cell.
        ModuleNotFoundError: `pyarrow` is needed, and is not installed.

    Example:
        >>> from pathlib import Path
        >>> from dpmcmc import tables
        >>> written = Path("many.csv").write_text("age,ill\\n41,yes\\n29,no\\n")
        >>> tables.dataset("many.csv", {"age": (20, 60)}, "ill", positive="yes", negative="no")
        Dataset(1 files, 1 features)
    """
    declaration = declared(bounds, label, positive, negative, batch_rows)
    files = _files([paths] if isinstance(paths, str | Path) else paths)
    columns = declaration.columns
    for path in files:  # refuses a column that has another kind of cells, by its type alone
        declaration.rows(_no_cells(path, columns))
    parts = tuple(part for path in files for part in _parts(path, columns))
    return replace(declaration, paths=files, parts=parts, digest=_digest(files, parts))


def declared(
    bounds: Mapping[str, tuple[Any, Any]],
    label: str,
    positive: Any = None,
    negative: Any = None,
    batch_rows: int = BATCH_ROWS,
) -> Dataset:
    """What becomes of columns, without any files.

    Args:
        bounds: As in `dataset`.
        label: As in `dataset`.
        positive: As in `dataset`.
        negative: As in `dataset`.
        batch_rows: As in `dataset`.

    Returns:
        A dataset of no files.

    Raises:
        TypeError: `bounds` is not a dict.
        ValueError: A declaration is not clear.
    """
    if not isinstance(bounds, Mapping):
        raise TypeError(
            f"bounds is a {type(bounds).__name__}: give a dict, such as {{'age': (21, 64)}}"
        )
    batch_rows = whole("batch_rows", batch_rows, 1, "the number of rows of a batch")
    if label in bounds:
        raise ValueError(f"column {label!r} is the label, and has bounds: features have bounds")
    for name, pair in bounds.items():
        checked_bounds(name, pair)
    return Dataset((), tuple(bounds.items()), label, (positive, negative), batch_rows, (), "")


def _files(patterns: Sequence[str | Path]) -> tuple[str, ...]:
    """The files, each once, in the order of their names."""
    found: set[str] = set()
    for pattern in map(str, patterns):
        names = [pattern] if Path(pattern).is_file() else glob.glob(pattern)
        if not names:
            raise ValueError(f"there is no file {pattern}: give a file, or a pattern of files")
        found.update(str(Path(name).resolve()) for name in names)
    for name in sorted(found):
        if not name.lower().endswith((*TEXT, *ARROW)):
            endings = ", ".join((*ARROW, *TEXT))
            raise ValueError(f"{Path(name).name} must end with one of {endings}")
    return tuple(sorted(found))


def _empty(size: int, num_features: int) -> tuple[np.ndarray, np.ndarray]:
    """A batch without any row."""
    return (
        np.full((size, num_features), math.nan, np.float32),
        np.full(size, math.nan, np.float32),
    )


def _is_text(path: str) -> bool:
    return path.lower().endswith(TEXT)


def _digest(paths: Sequence[str], parts: Sequence[Part]) -> str:
    """Of what the metadata of all files say. Cells are not read."""
    digest = hashlib.sha256()
    for path in paths:
        facts = Path(path).stat()
        schema = "" if _is_text(path) else str(_fragment(path).physical_schema)
        counts = (
            [part.num_rows for part in parts if part.path == path]
            if _is_text(path)
            else [part.num_rows for part in _parts(path, ())]
        )
        digest.update(repr((path, facts.st_size, facts.st_mtime_ns, schema, counts)).encode())
    return digest.hexdigest()


def _parts(path: str, columns: Sequence[str]) -> list[Part]:
    if _is_text(path):
        return [_part_of_text(path, columns)]
    fragment = _fragment(path)
    if not path.lower().endswith(".parquet"):
        return [Part(path, None, fragment.count_rows())]
    return [Part(path, group.id, group.num_rows) for group in fragment.row_groups]


def _part_of_text(path: str, columns: Sequence[str]) -> Part:
    """The whole file, which is read once to see which reading it has."""
    for by_quotes in (True, False):
        num_rows = 0
        for row in rows_of_text(Path(path), columns, delimiter_of(Path(path)), by_quotes):
            if row is None:
                break
            num_rows += 1
        else:
            break
    return Part(path, None, num_rows, by_quotes)


def _no_cells(path: str, columns: Sequence[str]) -> dict[str, np.ndarray]:
    """The columns of a file without their cells, in the types that the cells will have."""
    if _is_text(path):
        return {name: np.empty(0, object) for name in columns}
    return without_cells(_fragment(path).physical_schema, columns, Path(path).name)


def _read(part: Part, columns: Sequence[str], batch_rows: int) -> Iterator[dict[str, Any]]:
    """The cells of the columns, some rows at a time."""
    if _is_text(part.path):
        yield from _read_text(part, columns, batch_rows)
        return
    fragment = _fragment(part.path)
    if part.group is not None:
        fragment = fragment.subset(row_group_ids=[part.group])
    names = list(dict.fromkeys(columns))
    batches = fragment.scanner(
        columns=names, batch_size=batch_rows, batch_readahead=1, fragment_readahead=1
    ).to_batches()
    for batch in batches:
        yield cells_of(batch, names)


def cells_of(batch: Any, columns: Sequence[str]) -> dict[str, np.ndarray]:
    """The cells of some columns of a record batch of Arrow's.

    Args:
        batch: The record batch.
        columns: The names of the columns.

    Returns:
        The cells of each column, in a type that follows from the schema alone.
    """
    return {name: _cells(name, batch.schema.field(name).type, batch[name]) for name in columns}


def without_cells(schema: Any, columns: Sequence[str], where: str) -> dict[str, np.ndarray]:
    """The columns of a table of Arrow's without their cells, in the types that these will have.

    Args:
        schema: The schema of the table.
        columns: The names of the columns.
        where: What the table is, for the error.

    Returns:
        No cells, of each column.

    Raises:
        ValueError: A column is missing, is there twice, or has a type that cannot be read.
    """
    missing = [name for name in columns if schema.names.count(name) != 1]
    if missing:
        names = ", ".join(map(repr, missing))
        raise ValueError(f"{where} has no column {names}, or has it more than once: see its schema")
    return {name: _cells(name, schema.field(name).type, None) for name in columns}


def _read_text(part: Part, columns: Sequence[str], batch_rows: int) -> Iterator[dict[str, Any]]:
    path = Path(part.path)
    some: list[list[str]] = []
    for row in rows_of_text(path, columns, delimiter_of(path), part.by_quotes):
        if row is None:
            raise PrivacyRefusal(CHANGED)
        some.append(row)
        if len(some) == batch_rows:
            yield _by_column(columns, some)
            some = []
    if some:
        yield _by_column(columns, some)


def _by_column(columns: Sequence[str], rows: list[list[str]]) -> dict[str, list[str]]:
    return {name: list(cells) for name, cells in zip(columns, zip(*rows, strict=True), strict=True)}


def _fragment(path: str) -> Any:
    """One file of Arrow's."""
    try:
        import pyarrow.dataset
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            "Parquet and Feather files are read by pyarrow: pip install 'dpmcmc[stream]'"
        ) from None
    kind = ARROW[Path(path).suffix.lower()]
    try:
        (fragment,) = pyarrow.dataset.dataset(path, format=kind).get_fragments()
        assert fragment.physical_schema is not None  # which reads the metadata
    except (ValueError, pyarrow.ArrowException):  # whose texts may show bytes of the file
        raise ValueError(f"{Path(path).name} could not be read: it is no {kind} file") from None
    return fragment


def _cells(name: str, kind: Any, column: Any) -> np.ndarray:
    """A column of Arrow's as cells, whose type in NumPy follows from the schema alone.

    Without a column there are none.
    """
    import pyarrow as pa

    column = pa.array([], kind) if column is None else column
    types = pa.types
    if types.is_dictionary(kind):
        column, kind = column.dictionary_decode(), kind.value_type
    if types.is_floating(kind):
        return column.to_numpy(zero_copy_only=False)  # what is missing becomes NaN
    if types.is_integer(kind) or types.is_boolean(kind):
        if types.is_boolean(kind):
            column = column.cast(pa.uint8())
        return column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    is_time = types.is_date(kind) or (types.is_timestamp(kind) and kind.tz is None)
    if types.is_string(kind) or types.is_large_string(kind):
        column = column.cast(pa.large_binary())  # bytes that are no text raise no error
    elif is_time or types.is_decimal(kind):
        column = column.cast(pa.string())
    else:
        raise ValueError(
            f"column {name!r} of type {kind} cannot be read: it must hold numbers, text, or dates "
            "without a time zone"
        )
    return np.array(["" if cell is None else cell for cell in column.to_pylist()], object)
