"""The engine that reads one batch after the other, in this process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dpmcmc.engines.partitions import Function, Partial, Partitions, Report, pass_over
from dpmcmc.tables import Dataset


class Stream(Partitions):
    """Reads one batch after the other, in this process. A `Curator` makes it of a dataset.

    Args:
        dataset: The rows, opened by `tables.dataset`.

    Example:
        >>> from pathlib import Path
        >>> from dpmcmc import tables
        >>> written = Path("cities.csv").write_text("age,ill\\n41,1\\n29,0\\n50,1\\n")
        >>> engine = Stream(tables.dataset("cities.csv", {"age": (20, 60)}, "ill", batch_rows=2))
        >>> engine.num_rows
        3
        >>> engine.total(lambda rows, number: rows[1][:number].astype("int64").sum()).tolist()
        2
    """

    name = "the stream of batches of one process"
    who_sees = "this process"

    def partials(
        self, function: Function, arguments: tuple[Any, ...], report: Report | None
    ) -> Iterator[Partial]:
        """The sum of each part, one after the other.

        Args:
            function: From the rows of a batch, how many there are, and the arguments, to integers.
            arguments: What else the function is given.
            report: Called with the number of batches that were read, and that of all.

        Yields:
            One partial sum for each part.
        """
        num_read = 0

        def after_batch() -> None:
            nonlocal num_read
            num_read += 1
            if report is not None:
                report(num_read, self.dataset.num_batches)

        for partition in range(len(self.dataset.parts)):
            yield pass_over(self.dataset, partition, function, arguments, after_batch)


def engine_of(rows: Any) -> Partitions | None:
    """Who has the rows, if they are not arrays.

    Args:
        rows: Arrays, a dataset, or an engine.

    Returns:
        The engine: a `Stream` for a dataset, and None for arrays.
    """
    if isinstance(rows, Dataset):
        return Stream(rows)
    return rows if isinstance(rows, Partitions) else None
