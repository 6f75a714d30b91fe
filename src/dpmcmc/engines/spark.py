"""The engine that has a pass made by the executors of Apache Spark, over the rows of a DataFrame.

A pass is one job: the rows of each partition become one row of integers, and Spark's own
aggregation adds these. A partition that a task has lost is computed again: of integers, the sum has
the same bits.

The driver and all executors see rows or sums without noise. They are inside of what the promise
trusts.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from dpmcmc.engines.partitions import (
    Function,
    Partial,
    Partitions,
    Report,
    ahead,
    hidden,
    loaded,
    mark_of,
    sum_over,
)
from dpmcmc.errors import PrivacyRefusal
from dpmcmc.tables.dataset import BATCH_ROWS, Dataset, cells_of, declared, without_cells

MARK_BITS = 32  # of a word of a mark: the sum of 2^31 words fits 64 bits
MARK_WORDS = 4
COUNTS = 1 + MARK_WORDS  # before the sums: rows, and the words of the mark
SCHEMA = "shape array<long>, numbers array<long>"


class SparkPartitions(Partitions):
    """Has the executors of Spark make the passes. Give it to a `Curator` in place of rows.

    The rows are those that `tables.dataset` would make of the same columns. Every executor must
    have this package. The DataFrame must have the same rows in the same partitions whenever it is
    computed: read it from files, and choose and filter columns, or write it to files before.

    Args:
        frame: A DataFrame of `pyspark.sql`.
        bounds: The lower and the upper bound of each feature, by column. Public: do not compute
            them from the rows.
        label: The column of the label.
        positive: The level of the label that becomes 1. Give both levels, or none if they are 1
            and 0, or true and false.
        negative: The level that becomes 0.
        batch_rows: The number of rows of a batch.

    Raises:
        ModuleNotFoundError: `pyspark` is not installed.
        TypeError: The frame is of another kind, or `bounds` is not a dict.
        ValueError: The frame may have other rows in every pass, it has not these columns, or a
            declaration is not clear. No error shows a cell.

    Example:
        >>> from dpmcmc.engines import Partitions
        >>> issubclass(SparkPartitions, Partitions)  # so that a Curator takes it
        True
    """

    name = "the executors of Spark"

    def __init__(
        self,
        frame: Any,
        bounds: Mapping[str, tuple[Any, Any]],
        label: str,
        *,
        positive: Any = None,
        negative: Any = None,
        batch_rows: int = BATCH_ROWS,
    ) -> None:
        dataset = declared(bounds, label, positive, negative, batch_rows)
        self._frame = _chosen(frame, dataset)
        super().__init__(dataset)
        self._digest = self._metadata()
        self._found = self._sums(_nothing, ())

    def __repr__(self) -> str:
        return f"SparkPartitions({len(self.dataset.bounds)} features)"

    @property
    def num_rows(self) -> int:
        """The number of rows, counted when the engine was made. Public under replace-one alone."""
        return self._found.num_rows

    def expected(self) -> tuple[int, int, int]:
        """How many partitions and rows a pass has, and the sum of the partitions' marks."""
        return self._found[1:]

    @property
    def who_sees(self) -> str:  # type: ignore[override]
        """Who sees sums without noise, in words."""
        conf = self._frame.sparkSession.conf
        settings = ("spark.network.crypto.enabled", "spark.ssl.rpc.enabled")
        is_encrypted = "true" in (conf.get(name, "false") for name in settings)
        how = "encrypted" if is_encrypted else "not encrypted"
        return f"this process, the driver and all executors, whose connections are {how}"

    def check(self) -> None:
        """Refuse files that are not those that the frame was made of.

        Raises:
            PrivacyRefusal: A file was changed, or is gone.
        """
        try:
            is_same = self._metadata() == self._digest
        except Exception:  # of Java: a file that is gone
            is_same = False
        if not is_same:
            raise PrivacyRefusal(
                "a file of the DataFrame was changed or moved since it was given: every pass must "
                "read the same rows. Read it again, and make a new curator, with a ledger= that "
                "knows what was spent"
            )

    def partials(
        self, function: Function, arguments: tuple[Any, ...], report: Report | None
    ) -> Iterator[Partial]:
        """The sum of all partitions, by Spark's own aggregation.

        Args:
            function: From the rows of a batch, how many there are, and the arguments, to integers.
            arguments: What else the function is given.
            report: Called at the end with the number of partitions that were read.

        Yields:
            One sum.
        """
        found = self._sums(function, arguments)
        if report is not None:
            report(found.num_batches, found.num_batches)
        yield found

    def _sums(self, function: Function, arguments: tuple[Any, ...]) -> Partial:
        from pyspark.sql import functions

        work = _Work(self.dumped(function), pickle.dumps(arguments), self.dataset)
        # A task that fails, or is slow, is run again, and Spark takes what one of its runs has
        # returned: of the results of a job, unlike of its accumulators, every partition is in the
        # sum once. The counts and marks show it if not
        made = self._frame.mapInArrow(work, SCHEMA)
        numbers = made.select("shape", functions.posexplode("numbers").alias("place", "number"))
        # What overflows becomes null
        total = functions.try_sum("number").alias("total")
        rows = (
            numbers.groupBy("place")
            .agg(total, functions.count("number"), functions.max("shape"))
            .collect()
        )
        return _partial_of([tuple(row) for row in rows])

    def _metadata(self) -> str:
        """Of the names, sizes and times of the files, and the schema. Cells are not read."""
        session = self._frame.sparkSession
        digest = hashlib.sha256(self._frame.schema.json().encode())
        for name in sorted(self._frame.inputFiles()):
            path = session._jvm.org.apache.hadoop.fs.Path(name)
            settings = session._jsparkSession.sessionState().newHadoopConf()
            facts = path.getFileSystem(settings).getFileStatus(path)
            digest.update(repr((name, facts.getLen(), facts.getModificationTime())).encode())
        return digest.hexdigest()


def _chosen(frame: Any, dataset: Dataset) -> Any:
    """The columns of the frame that are read, if it has them."""
    try:
        from pyspark.sql.classic.dataframe import DataFrame
        from pyspark.sql.pandas.types import to_arrow_schema
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            "this engine needs Spark: pip install 'dpmcmc[spark]', and Java 17"
        ) from None
    if not isinstance(frame, DataFrame):
        raise TypeError(
            f"the frame is a {type(frame).__name__}: give a DataFrame of a SparkSession in this "
            "process, not of Spark Connect"
        )
    if not frame._jdf.queryExecution().analyzed().deterministic():
        raise ValueError(
            "the DataFrame may have other rows whenever it is computed (it has random numbers, or "
            "the like): write it to files, and give the DataFrame that reads them"
        )
    dataset.rows(without_cells(to_arrow_schema(frame.schema), dataset.columns, "the DataFrame"))
    return frame.select(*(f"`{name.replace('`', '``')}`" for name in dataset.columns))


class _Work:
    """From the rows of a partition to one row of integers, on an executor.

    What it raises must show no cell, either.
    """

    def __init__(self, function: bytes, arguments: bytes, dataset: Dataset) -> None:
        self.function = function
        self.arguments = arguments
        self.dataset = dataset

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        import pyarrow as pa
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        try:
            pieces = (cells_of(batch, self.dataset.columns) for batch in batches)
            found = sum_over(
                ahead(self.dataset.in_batches(pieces)),
                loaded(self.function),
                pickle.loads(self.arguments),
            )
        except Exception as error:
            raise hidden(error) from None
        mark = mark_of(context.partitionId(), found.num_rows)
        words = [mark >> MARK_BITS * word & (2**MARK_BITS - 1) for word in range(MARK_WORDS)]
        numbers = [found.num_rows, *words]
        shape: tuple[int, ...] = ()
        if found.num_rows:
            shape = found.total.shape
            numbers += found.total.reshape(-1).tolist()
        kind = pa.list_(pa.int64())
        columns = [pa.array([list(shape)], kind), pa.array([numbers], kind)]
        yield pa.RecordBatch.from_arrays(columns, names=["shape", "numbers"])


def _partial_of(rows: list[tuple[Any, ...]]) -> Partial:
    """The sum, of rows (place, total, number of partitions, shape) in any order."""
    rows.sort()
    if any(total is None for _, total, _, _ in rows):
        raise OverflowError("a sum of a pass is beyond 64 bits")
    totals = [total for _, total, _, _ in rows]
    num_rows, *words = totals[:COUNTS] if rows else [0] * COUNTS
    marks = sum(word << MARK_BITS * place for place, word in enumerate(words))
    shape: list[int] = max((shape for *_, shape in rows), default=[])
    numbers = np.array(totals[COUNTS:] or [0], np.int64)
    num_partitions = rows[0][2] if rows else 0
    return Partial(numbers.reshape(shape), num_partitions, num_rows, marks)


def _nothing(rows: Any, number: int) -> Any:
    """No sum: for a pass that counts."""
    return np.int64(0)
