"""The executors of Spark: the same bits as from memory, also when a task fails."""

import logging
import os
import shutil
import sys

import numpy as np
import pytest

from dpmcmc import Budget, Curator, Neighbours, PrivacyRefusal, Unit
from tests.engines.files import BOUNDS, LEVELS, MODEL, rows_of, write
from tests.engines.test_stream import COLUMNS, GRADIENT, answers, assert_same

pytest.importorskip("pyspark", reason="needs the extra dpmcmc[spark]")
pytestmark = [
    pytest.mark.engines,
    pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java"),
    pytest.mark.usefixtures("quick_compilation"),
    pytest.mark.filterwarnings("ignore"),  # of sockets that Spark closes late, and of pandas
]


@pytest.fixture(scope="module")
def session():
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    made = (
        SparkSession.builder.master("local[2, 3]")  # a task may fail twice
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.log.level", "OFF")
        .getOrCreate()
    )
    yield made
    made.stop()


@pytest.fixture
def path(tmp_path):
    """Three files."""
    (tmp_path / "people").mkdir()
    for part in range(3):
        rows = slice(1000 * part, 1000 * part + 1000)
        some = {name: cells[rows] for name, cells in COLUMNS.items()}
        write(tmp_path / "people" / f"{part}.parquet", some)
    return tmp_path / "people"


def engine_of(session, path, **options):
    from dpmcmc.engines.spark import SparkPartitions

    frame = session.read.parquet(str(path))
    return SparkPartitions(frame, BOUNDS, "ill", **LEVELS, batch_rows=256, **options)


def test_the_bits_are_those_from_memory(session, path, caplog):
    with caplog.at_level(logging.INFO, "dpmcmc"):
        found = answers(engine_of(session, path))
    assert_same(found, answers(rows_of(COLUMNS)))
    assert "pass 1 over the rows" in caplog.text


def test_a_private_number_of_rows(session, path, caplog):
    options = {"capacity": 4000, "unit": Unit(Neighbours.ADD_OR_REMOVE_ONE)}
    engine = engine_of(session, path)
    with caplog.at_level(logging.INFO, "dpmcmc"):
        assert_same(answers(engine, **options), answers(rows_of(COLUMNS), **options))
    assert "batch" not in caplog.text
    with pytest.raises(ValueError, match="declare capacity="):
        Curator(engine, MODEL, None, unit=options["unit"])


def counted(rows, number):
    return np.int64(number) * np.ones((2, 2), np.int64)


def failing_at_first(rows, number):
    """In the first run of each task, after it has counted for a while."""
    from pyspark import TaskContext

    if TaskContext.get().attemptNumber() == 0:
        raise ValueError("cannot read 'cell-of-a-person'")
    return counted(rows, number)


def failing(rows, number):
    raise ValueError("cannot read 'cell-of-a-person'")


def test_a_task_that_is_run_again_is_added_once(session, path):
    total = engine_of(session, path).total(failing_at_first)
    np.testing.assert_array_equal(total, [[3000, 3000], [3000, 3000]])


def test_no_error_shows_a_cell(session, path):
    with pytest.raises(Exception, match="ended with a ValueError") as caught:
        engine_of(session, path).total(failing)
    assert "cell-of-a-person" not in str(caught.value)


@pytest.mark.parametrize("again", [0, 2])
def test_a_partition_that_is_lost_or_added_twice_is_refused(session, path, again):
    """A twin that reads one of the files never, or twice, each time as a partition of its own."""
    engine = engine_of(session, path)
    made = engine._frame
    files = [session.read.parquet(str(path / f"{part}.parquet")) for part in range(3)]
    twice = files[0]
    for other in files[1:] if not again else [files[0], *files[1:]]:
        twice = twice.union(other)
    engine._frame = twice.select(*made.columns) if again else files[0].select(*made.columns)
    engine._digest = engine._metadata()
    with pytest.raises(PrivacyRefusal, match="lost a batch of rows, or has added one twice"):
        engine.total(counted)


def test_a_sum_beyond_64_bits_is_refused(session, path):
    """And one that is just within is right: 3000 rows."""
    largest = (2**63 - 1) // 3000
    engine = engine_of(session, path)
    total = engine.total(lambda rows, number: np.int64(number) * np.array([largest, -largest]))
    np.testing.assert_array_equal(total, [3000 * largest, -3000 * largest])
    for beyond in (  # in the aggregation, and in a partition
        lambda rows, number: np.int64(number) * np.array([largest + 10**15]),
        lambda rows, number: np.array([-(2**62)]),
    ):
        with pytest.raises(Exception, match=r"OverflowError|beyond 64 bits"):
            engine.total(beyond)


def test_sums_that_overflow_in_the_aggregation_are_refused():
    from dpmcmc.engines.spark import _partial_of

    rows = [(place, 1, 2, []) for place in range(5)]
    assert _partial_of([*rows, (5, 7, 2, [])]).total == 7
    with pytest.raises(OverflowError, match="beyond 64 bits"):
        _partial_of([*rows, (5, None, 2, [])])


def test_changed_files_are_refused(session, path):
    engine = engine_of(session, path)
    write(path / "1.parquet", {name: cells[:900] for name, cells in COLUMNS.items()})
    with pytest.raises(PrivacyRefusal, match="changed or moved since it was given"):
        engine.total(counted)


def test_frames_that_may_have_other_rows_are_refused(session, path):
    from pyspark.sql import functions

    from dpmcmc.engines.spark import SparkPartitions

    frame = session.read.parquet(str(path))
    with pytest.raises(ValueError, match="other rows whenever it is computed"):
        SparkPartitions(frame.where(functions.rand() < 0.5), BOUNDS, "ill", **LEVELS)
    with pytest.raises(TypeError, match="give a DataFrame of a SparkSession"):
        SparkPartitions(path, BOUNDS, "ill", **LEVELS)
    with pytest.raises(ValueError, match="no column 'height'"):
        SparkPartitions(frame, {"height": (1, 2)}, "ill", **LEVELS)


def test_the_statement_says_who_sees_sums_without_noise(session, path):
    grant = Curator(engine_of(session, path), MODEL, Budget(4.0, 1e-6)).grant({GRADIENT: 1})
    (line,) = (line for line in grant.statement().assumptions if "Spark" in line)
    assert "the driver and all executors, whose connections are not encrypted" in line
