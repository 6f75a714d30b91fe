"""A pass of integers over rows that are not here, but with an engine.

The compiled program calls back to this module with a position, which is public. The engine gives
every batch of rows to a `BatchPass`, and adds what comes back. The program goes on with the sum, as
if it had made it itself: the integers are those of `integer_rows`, to the last bit.

A callback must never show a cell, so errors of other libraries are replaced by their kind.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_batching import custom_vmap
from jax.experimental import io_callback

from dpmcmc.curator.programs.jaxprs import OwnCallback
from dpmcmc.curator.sums.integer_rows import (
    BLOCK,
    IntegerRows,
    as_integers,
    public_tables,
    row_reader,
    size_of,
    sum_here,
)
from dpmcmc.curator.sums.rowwise import rowwise
from dpmcmc.curator.whitened import sums
from dpmcmc.curator.whitened.sums import Kind
from dpmcmc.engines.partitions import Partitions, hidden
from dpmcmc.errors import PrivacyRefusal
from dpmcmc.precision import own_settings
from dpmcmc.types import Model

logger = logging.getLogger("dpmcmc")
AT_A_TIME = 2**12  # rows that become integers
Kinds = tuple[str, ...] | Kind
NO_TABLES = (
    "rows with an engine are read in passes of integers, and this model has no public tables for "
    "them (Linear.labelled, such as that of models.logistic, for rows (x, y) with a label): load "
    "the table into memory, with dpmcmc.tables.read_columns"
)


@dataclass(frozen=True)
class BatchPass:
    """From the rows of a batch to the integers that they add. It can be pickled by cloudpickle.

    Attributes:
        source: For each entry of the model's features the cell that it is, or -1.
        constants: For each of them the constant that it is, if it is no cell.
        label: From one row to its label.
        tables: What a row may contribute.
        kinds: Which sums: "gradient", "hessian", both, or those over whitened rows.
    """

    source: np.ndarray
    constants: np.ndarray
    label: Callable[[Any], Any]
    tables: IntegerRows
    kinds: Kinds

    def __call__(self, rows: Any, number: int, positions: np.ndarray) -> np.ndarray:
        """The sums over a batch.

        Args:
            rows: The rows, of the shape of all batches.
            number: How many of them there are: the others are ignored.
            positions: The positions as integers, one in each line.

        Returns:
            For each of the positions the exact sums in one vector, int64.
        """
        with own_settings(), jax.default_device(jax.local_devices(backend="cpu")[0]):
            integers = self._integers(rows, number)
            sums = [np.asarray(_sum(integers, at, self.kinds)) for at in positions]
        return np.stack(sums)

    def _integers(self, rows: Any, number: int) -> IntegerRows:
        """The rows as integers, some at a time, so that what is made of them fits the cache."""
        size = len(rows[1]) + -len(rows[1]) % BLOCK
        features = np.zeros((size, len(self.source)), np.int16)
        labels = np.zeros(size, np.int8)
        label = np.asarray(self._labels(rows))
        for start in range(0, number, AT_A_TIME):
            some = slice(start, min(start + AT_A_TIME, number))
            cells = moved(self.source, self.constants, tuple(leaf[some] for leaf in rows))
            features[some], labels[some] = as_integers(self.tables, cells, label[some])
        return dataclasses.replace(self.tables, features=features, labels=labels)

    @functools.cached_property
    def _labels(self) -> Any:
        return jax.jit(rowwise(self.label))

    def __getstate__(self) -> dict[str, Any]:
        """Without what was compiled."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}


def moves_of(model: Model, row: Any) -> tuple[np.ndarray, np.ndarray]:
    """Which cell, or which constant, each entry of the features is.

    A curator uses no other features (`linear_rows.freeze_features`). What moves cells about can be
    found by looking where numbered cells go. No row is needed.

    Args:
        model: A model that has public tables.
        row: Shapes and types of one row: a vector and a label, of type float32.

    Returns:
        For each entry the number of its cell, the label's being the last, or -1, and its constant.

    Raises:
        ValueError: The features change cells, such as to numbers of another type.
    """
    size = row[0].shape[0]
    read = row_reader(model)

    def read_cells(cells: np.ndarray) -> np.ndarray:
        rows = cells[:, :size].astype(np.float32), cells[:, size].astype(np.float32)
        with own_settings():
            return np.asarray(read(rows)[0], np.float64)

    numbered = 2.0 * np.arange(size + 1) + 1
    low, high = read_cells(np.stack([numbered, numbered + 1]))
    is_cell = high - low == 1
    source = np.where(is_cell, (low - 1) / 2, -1).astype(np.int64)
    constants = np.where(is_cell, 0.0, low)
    some = np.random.default_rng(0).standard_normal((8, size + 1)).astype(np.float32)
    found = moved(source, constants, (some[:, :size], some[:, size]))
    if not np.array_equal(found, read_cells(some)):
        raise ValueError(NO_TABLES)
    return source, constants


def moved(source: np.ndarray, constants: np.ndarray, rows: Any) -> np.ndarray:
    """The features of some rows, in float64: cells and constants.

    Args:
        source: For each entry the number of its cell, or -1.
        constants: For each entry its constant.
        rows: Features and labels of the dataset.

    Returns:
        The features of the model, one row in each line.
    """
    cells = np.column_stack(rows)[:, source].astype(np.float64)
    cells[:, source < 0] = constants[source < 0]
    return cells


@functools.partial(jax.jit, static_argnames="kinds")
def _sum(rows: IntegerRows, point: Any, kinds: Kinds) -> Any:
    if isinstance(kinds, Kind):
        return sums.sum_here(rows, point, kinds)
    return sum_here(rows, point, kinds)


class Passes:
    """Makes the passes of one curator.

    Args:
        engine: Who has the rows.
        model: What one row contributes.
        is_count_public: Whether the number of rows is public: then progress is shown.

    Raises:
        ValueError: The model has no public tables.
    """

    def __init__(self, engine: Partitions, model: Model, is_count_public: bool) -> None:
        tables = public_tables(model)
        if tables is None:
            raise ValueError(NO_TABLES)
        self.engine = engine
        self._is_count_public = is_count_public
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()  # one pass at a time: each fills the disk's bandwidth
        self._failure: Exception | None = None
        source, constants = moves_of(model, engine.row)
        assert model.linear is not None and model.linear.labelled is not None
        label = model.linear.labelled.of_row
        self._dimension = model.dimension
        self._pass = functools.cache(functools.partial(BatchPass, source, constants, label, tables))
        self.rows = dataclasses.replace(tables, slopes=None, roots=None, passes=self)

    def total(self, kinds: Kinds, position: Any) -> Any:
        """The exact sums over all rows, inside a compiled program.

        Args:
            kinds: "gradient", "hessian", both, or sums over whitened rows.
            position: The position as integers, or whatever public numbers such a sum needs, as one
                vector. With vmap, one pass serves all positions.

        Returns:
            The sums in one vector, int64.
        """

        def on_host(words: Any) -> np.ndarray:
            positions = np.asarray(words).view(np.float64)[..., 0]
            return self._on_host(kinds, positions)[..., None].view(np.uint32)

        # JAX hands numbers of 64 bits to a callback as numbers of 32, if that is the setting of the
        # thread that it happens to run in. So they are handed over as pairs of words
        def call(positions: Any) -> Any:
            shape = (*positions.shape[:-1], self._size(kinds), 2)
            words = io_callback(
                OwnCallback(on_host),
                jax.ShapeDtypeStruct(shape, jnp.uint32),
                lax.bitcast_convert_type(positions, jnp.uint32),
            )
            return lax.bitcast_convert_type(words, jnp.int64)

        one = custom_vmap(call)

        @one.def_vmap
        def many(size: int, is_batched: Any, positions: Any) -> Any:
            with jax.enable_x64(True):
                return one(positions), True

        return one(position)

    def failure(self) -> Exception | None:
        """Why a pass ended, once: a compiled program raises an error of its own."""
        failure, self._failure = self._failure, None
        return failure

    def _size(self, kinds: Kinds) -> int:
        """How many numbers the sums have together."""
        if isinstance(kinds, Kind):
            return kinds.size
        return size_of(kinds, self._dimension)

    def _on_host(self, kinds: Kinds, positions: np.ndarray) -> np.ndarray:
        lanes, size = positions.shape[:-1], positions.shape[-1]
        with self._lock:
            report = self._reporter() if self._is_count_public else None
            try:
                function = self._pass(kinds)
                flat = positions.reshape(-1, size)
                total = self.engine.total(function, flat, report=report)
            except Exception as error:
                self._failure = error if isinstance(error, PrivacyRefusal) else hidden(error)
                raise self._failure from None
        return np.ascontiguousarray(total).reshape(*lanes, self._size(kinds))

    def _reporter(self) -> Any:
        number = next(self._numbers)

        def report(done: int, of_all: int) -> None:
            if done * 10 // of_all > (done - 1) * 10 // of_all:  # ten lines at most
                logger.info("pass %d over the rows: batch %d of %d", number, done, of_all)

        return report
