"""The engine that has a pass made by the workers of a Dask cluster.

A pass is one task for each partition, and a tree of additions. A worker that dies loses what it has
computed, and Dask computes it again elsewhere: of integers, the sum has the same bits. The noise is
added once, here, so that this costs nothing.

All workers, and the scheduler, see rows or sums without noise. They are inside of what the promise
trusts.
"""

from __future__ import annotations

import functools
import pickle
from collections.abc import Iterator
from typing import Any

from dpmcmc.engines.partitions import (
    Function,
    Partial,
    Partitions,
    Report,
    add,
    hidden,
    loaded,
    pass_over,
)
from dpmcmc.errors import PrivacyRefusal
from dpmcmc.tables import Dataset

BRANCHES = 8  # of the tree of additions


class DaskPartitions(Partitions):
    """Has the workers of a Dask cluster make the passes. Give it to a `Curator` in place of rows.

    Every worker must see the files by the same names, and have this package.

    Args:
        client: A client of the cluster, a `distributed.Client`.
        dataset: The rows, opened by `tables.dataset`.

    Raises:
        ModuleNotFoundError: `distributed` is not installed.
        TypeError: The client is of another kind, or the dataset is none.
        ValueError: The workers are threads of this process.

    Example:
        >>> from dpmcmc.engines import Partitions
        >>> issubclass(DaskPartitions, Partitions)  # so that a Curator takes it
        True
    """

    name = "the workers of a Dask cluster"

    def __init__(self, client: Any, dataset: Dataset) -> None:
        try:
            import distributed
        except ModuleNotFoundError:
            raise ModuleNotFoundError(
                "this engine needs Dask: pip install 'dpmcmc[dask]'"
            ) from None
        if not isinstance(client, distributed.Client) or client.asynchronous:
            raise TypeError(
                f"the client is a {type(client).__name__}: give a distributed.Client that is not "
                "asynchronous"
            )
        if _address(client).startswith("inproc:"):
            raise ValueError(
                "the workers are threads of this process, where a pass could wait for the program "
                "that waits for it: make the cluster with processes=True, or give the dataset "
                "itself to the curator"
            )
        super().__init__(dataset)
        self._client = client

    @property
    def who_sees(self) -> str:  # type: ignore[override]
        """Who sees sums without noise, in words."""
        how = "encrypted by TLS" if _address(self._client).startswith("tls:") else "not encrypted"
        return f"this process, all workers and the scheduler, whose connections are {how}"

    def partials(
        self, function: Function, arguments: tuple[Any, ...], report: Report | None
    ) -> Iterator[Partial]:
        """The sum of all partitions, by a tree of additions on the workers.

        Args:
            function: From the rows of a batch, how many there are, and the arguments, to integers.
            arguments: What else the function is given.
            report: Called with the number of batches that were read, and that of all.

        Yields:
            One sum.
        """
        if not self.dataset.parts:
            return
        numbers = range(len(self.dataset.parts))
        # Sent once, and to be had again from the scheduler when a worker has died
        work = self._client.submit(
            _Work, self.dumped(function), pickle.dumps(arguments), self.dataset, pure=False
        )
        level = tasks = self._client.map(_partial, numbers, work=work, pure=False)
        while len(level) > 1:
            groups = [level[start : start + BRANCHES] for start in range(0, len(level), BRANCHES)]
            level = [self._client.submit(_sum, group, pure=False) for group in groups]
        if report is not None:
            self._follow(tasks, report)
        yield level[0].result()

    def _follow(self, tasks: list[Any], report: Report) -> None:
        """Report each partition when it is read."""
        import distributed

        size = self.dataset.batch_rows
        sizes = {
            task.key: -(-part.num_rows // size)
            for task, part in zip(tasks, self.dataset.parts, strict=True)
        }
        num_read = 0
        for task in distributed.as_completed(tasks):
            num_read += sizes[task.key]
            if sizes[task.key]:
                report(num_read, self.dataset.num_batches)


def _address(client: Any) -> str:
    """Of the scheduler, with the protocol."""
    return str(client.scheduler.address)


class _Work:
    """What every task of a pass is given."""

    def __init__(self, function: bytes, arguments: bytes, dataset: Dataset) -> None:
        self.function = function
        self.arguments = arguments
        self.dataset = dataset


def _partial(number: int, work: _Work) -> Partial:
    """The sum of one partition, on a worker. What it logs must show no cell, either."""
    try:
        function = loaded(work.function)
        return pass_over(work.dataset, number, function, pickle.loads(work.arguments))
    except PrivacyRefusal:
        raise
    except Exception as error:
        raise hidden(error) from None


def _sum(partials: list[Partial]) -> Partial:
    return functools.reduce(add, partials)
