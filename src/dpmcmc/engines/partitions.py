"""What an engine does: from the rows of each partition to integers, and the sum of these.

Integers add up to the same bits in any order. So an engine is free to choose it, and may compute a
part again that was lost. What must not happen is that a batch is added twice, or not at all. So
each partial sum carries the batches and rows that are in it, and the total is refused unless these
are what the metadata of the files say.
"""

from __future__ import annotations

import abc
import concurrent.futures
import functools
import hashlib
import itertools
import pickle
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np

from dpmcmc.errors import PrivacyRefusal
from dpmcmc.tables import Dataset
from dpmcmc.tables.dataset import Batch

Function = Callable[
    ..., np.ndarray
]  # (rows of a batch, how many there are, *arguments) -> integers
Report = Callable[[int, int], None]  # (batches that were read, all batches)


class Partial(NamedTuple):
    """A sum over some batches, and which batches these are.

    Attributes:
        total: The sum, of 64-bit integers.
        num_batches: The number of batches in it.
        num_rows: The number of rows in it.
        marks: The sum of the marks of these batches: another one if a batch is there twice.
    """

    total: Any
    num_batches: int
    num_rows: int
    marks: int


def add(one: Partial, other: Partial) -> Partial:
    """The sum over the batches of both.

    Args:
        one: A partial sum.
        other: Another one.

    Returns:
        Their sum.

    Raises:
        OverflowError: The sum is beyond 64 bits.

    Example:
        >>> add(Partial(2, 1, 10, 5), Partial(3, 1, 7, 6))
        Partial(total=np.int64(5), num_batches=2, num_rows=17, marks=11)
    """
    total = np.add(one.total, other.total)
    # The sign of a sum that is too large is neither that of the one nor that of the other
    if np.any((total ^ one.total) & (total ^ other.total) < 0):
        raise OverflowError("a sum of a pass is beyond 64 bits")
    return Partial(total, *(mine + its for mine, its in zip(one[1:], other[1:], strict=True)))


def hidden(error: Exception) -> RuntimeError:
    """An error of another library without its text, which may show cells.

    Args:
        error: The error.

    Returns:
        One that names its kind alone.

    Example:
        >>> str(hidden(KeyError("a cell"))).partition(",")[0]
        'a pass over the rows ended with a KeyError'
    """
    return RuntimeError(
        f"a pass over the rows ended with a {type(error).__name__}, whose text is hidden because "
        "it may show cells: see that the files and the workers can be reached, and run again"
    )


NOTHING = Partial(np.int64(0), 0, 0, 0)


def mark_of(partition: int, batch: int) -> int:
    """A number that stands for one batch: no sum of other ones is equal to it, but by chance.

    Args:
        partition: The number of the partition.
        batch: The number of the batch in it.

    Returns:
        A whole number of 128 bits.
    """
    name = f"{partition} {batch}".encode()
    return int.from_bytes(hashlib.sha256(name).digest()[:16], "big")


def pass_over(
    dataset: Dataset,
    partition: int,
    function: Function,
    arguments: tuple[Any, ...],
    after_batch: Callable[[], None] | None = None,
) -> Partial:
    """The sum over the batches of one partition.

    Args:
        dataset: The rows.
        partition: The number of the partition.
        function: From the rows of a batch, how many there are, and the arguments, to integers.
        arguments: What else the function is given.
        after_batch: Called after each batch.

    Returns:
        The sum.

    Raises:
        PrivacyRefusal: The partition has not the number of rows that it had.

    Example:
        >>> from pathlib import Path
        >>> from dpmcmc import tables
        >>> written = Path("ages.csv").write_text("age,ill\\n41,1\\n29,0\\n50,1\\n")
        >>> ages = tables.dataset("ages.csv", {"age": (20, 60)}, "ill", batch_rows=2)
        >>> found = pass_over(ages, 0, lambda rows, number: np.int64(rows[1][:number].sum()), ())
        >>> int(found.total), found.num_batches, found.num_rows
        (2, 2, 3)
    """
    marks = (mark_of(partition, batch) for batch in itertools.count())
    batches = ahead(dataset.batches(partition))
    return sum_over(batches, function, arguments, marks, after_batch)


def sum_over(
    batches: Iterable[Batch],
    function: Function,
    arguments: tuple[Any, ...],
    marks: Iterable[int] | None = None,
    after_batch: Callable[[], None] | None = None,
) -> Partial:
    """The sum over some batches.

    Args:
        batches: Rows, and how many there are.
        function: As in `pass_over`.
        arguments: As in `pass_over`.
        marks: The marks of the batches; none if left out.
        after_batch: Called after each batch.

    Returns:
        The sum.

    Raises:
        TypeError: The function gives no integers of type int64.
        OverflowError: The sum is beyond 64 bits.

    Example:
        >>> sum_over([(None, 2), (None, 3)], lambda rows, number: np.int64(number), ())[:3]
        (np.int64(5), 2, 5)
    """
    found = NOTHING
    for (rows, number), mark in zip(batches, marks or itertools.repeat(0), strict=False):
        total = np.asarray(function(rows, number, *arguments))
        if total.dtype != np.int64:
            raise TypeError(f"a pass gave {total.dtype}: it must give integers of type int64")
        found = add(found, Partial(total, 1, number, mark))
        if after_batch is not None:
            after_batch()
    return found


@functools.lru_cache(maxsize=16)
def loaded(function: bytes) -> Function:
    """The function of a pickle, once in a process, with what it has compiled.

    Args:
        function: Its pickle, of `Partitions.dumped`.

    Returns:
        The function.
    """
    return pickle.loads(function)


def ahead(batches: Iterator[Any]) -> Iterator[Any]:
    """The same batches, each read by a thread while the one before is used.

    Args:
        batches: Them, in their order.

    Yields:
        Each of them.

    Example:
        >>> list(ahead(iter([3, 4, 5])))
        [3, 4, 5]
    """
    with concurrent.futures.ThreadPoolExecutor(1) as reader:
        coming = reader.submit(next, batches, None)
        while (found := coming.result()) is not None:
            coming = reader.submit(next, batches, None)
            yield found


def marks_of(dataset: Dataset) -> int:
    """What the marks of all batches add up to."""
    return sum(
        mark_of(partition, batch)
        for partition, part in enumerate(dataset.parts)
        for batch in range(-(-part.num_rows // dataset.batch_rows))
    )


class Partitions(abc.ABC):
    """Rows in partitions, and who makes a pass over them.

    A further engine defines `partials`, `name` and `who_sees`.

    Args:
        dataset: The rows, opened by `tables.dataset`.

    Raises:
        TypeError: It is no dataset.

    Example:
        >>> from pathlib import Path
        >>> from dpmcmc import tables
        >>> class OneByOne(Partitions):
        ...     name = "a loop"
        ...     who_sees = "this process"
        ...
        ...     def partials(self, function, arguments, report):
        ...         for partition in range(len(self.dataset.parts)):
        ...             yield pass_over(self.dataset, partition, function, arguments)
        >>> written = Path("some.csv").write_text("age,ill\\n41,1\\n29,0\\n")
        >>> engine = OneByOne(tables.dataset("some.csv", {"age": (20, 60)}, "ill"))
        >>> int(engine.total(lambda rows, number: np.int64(number)))
        2
    """

    name: str  # of the engine, for the statement
    who_sees: str  # sums without noise, in words

    def __init__(self, dataset: Dataset) -> None:
        if not isinstance(dataset, Dataset):
            raise TypeError(
                f"a {type(dataset).__name__} is no dataset: open one with dpmcmc.tables.dataset"
            )
        self.dataset = dataset
        self._marks = marks_of(dataset)
        self._dumped: dict[int, tuple[Function, bytes]] = {}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.dataset!r})"

    @property
    def num_rows(self) -> int:
        """The number of rows, from metadata. Public under replace-one alone."""
        return self.dataset.num_rows

    @property
    def row(self) -> tuple[jax.ShapeDtypeStruct, jax.ShapeDtypeStruct]:
        """Shapes and types of one row: its features and its label."""
        features = (self.dataset.num_features,)
        return jax.ShapeDtypeStruct(features, np.float32), jax.ShapeDtypeStruct((), np.float32)

    @property
    def batch(self) -> tuple[jax.ShapeDtypeStruct, jax.ShapeDtypeStruct]:
        """Shapes and types of a batch of rows."""
        size = self.dataset.batch_rows
        features, label = self.row
        return (
            jax.ShapeDtypeStruct((size, *features.shape), features.dtype),
            jax.ShapeDtypeStruct((size,), label.dtype),
        )

    def check(self) -> None:
        """Refuse files that are not those that were opened.

        Raises:
            PrivacyRefusal: A file was changed, or is gone.
        """
        self.dataset.check()

    def expected(self) -> tuple[int, int, int]:
        """How many batches and rows a pass has, and the sum of the batches' marks."""
        return self.dataset.num_batches, self.num_rows, self._marks

    def dumped(self, function: Function) -> bytes:
        """The function, pickled: the same bytes for the same function, for a worker to load once.

        Args:
            function: As in `total`.

        Returns:
            Its pickle.
        """
        import cloudpickle

        if id(function) not in self._dumped:
            self._dumped[id(function)] = function, cloudpickle.dumps(function)
        return self._dumped[id(function)][1]

    def total(
        self, function: Function, *arguments: Any, report: Report | None = None
    ) -> np.ndarray:
        """The exact sum of what the function makes of all batches.

        Args:
            function: From the rows of a batch, how many there are, and the arguments, to integers
                of type int64 that do not depend on the other rows. It can be pickled if the engine
                has workers.
            *arguments: What else the function is given.
            report: Called with the number of batches that were read, and that of all.

        Returns:
            The sum.

        Raises:
            PrivacyRefusal: A file was changed since the dataset was opened, or the engine has lost
                a batch, or has added one twice.
        """
        self.check()
        found = NOTHING
        for partial in self.partials(function, arguments, report):
            found = add(found, partial)
        if found[1:] != self.expected():
            raise PrivacyRefusal(
                f"a pass by {self.name} has lost a batch of rows, or has added one twice: its sum "
                "is not released. Run again; if it happens again, report it"
            )
        return np.asarray(found.total)

    @abc.abstractmethod
    def partials(
        self, function: Function, arguments: tuple[Any, ...], report: Report | None
    ) -> Iterable[Partial]:
        """Sums that have every batch once.

        Args:
            function: As in `total`.
            arguments: As in `total`.
            report: As in `total`.

        Returns:
            Partial sums, in any order.
        """
