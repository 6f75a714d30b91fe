"""The workers of a Dask cluster: the same bits as from memory, also when a worker is killed."""

import logging
import os
import signal
import threading
import time

import jax
import numpy as np
import pytest

import dpmcmc
from dpmcmc import Budget, Curator, PrivacyRefusal
from tests.chains import SECRET
from tests.engines.files import MODEL, columns_of, opened, rows_of, write
from tests.engines.test_stream import COLUMNS, GRADIENT, answers, assert_same

distributed = pytest.importorskip("distributed", reason="needs the extra dpmcmc[dask]")
pytestmark = [
    pytest.mark.engines,
    pytest.mark.usefixtures("quick_compilation"),
    pytest.mark.filterwarnings("ignore"),  # of sockets and processes that the cluster closes late
]


@pytest.fixture(scope="module")
def cluster():
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
    ) as made:
        yield made


@pytest.fixture
def client(cluster):
    with distributed.Client(cluster) as made:
        made.wait_for_workers(2, timeout=60)
        yield made


@pytest.fixture
def people(tmp_path):
    """Ten files."""
    for part in range(10):
        rows = slice(300 * part, 300 * part + 300)
        write(tmp_path / f"{part}.csv", {name: cells[rows] for name, cells in COLUMNS.items()})
    return opened(str(tmp_path / "?.csv"), batch_rows=128)


def engine_of(client, dataset):
    from dpmcmc.engines.dask import DaskPartitions

    return DaskPartitions(client, dataset)


def test_the_bits_are_those_from_memory(client, people, caplog):
    with caplog.at_level(logging.INFO, "dpmcmc"):
        found = answers(engine_of(client, people))
    assert_same(found, answers(rows_of(COLUMNS)))
    assert "pass 1 over the rows: batch 30 of 30" in caplog.text


def slow_ones(rows, number, position):
    """How many rows there are, after a while."""
    time.sleep(0.2)
    return np.int64(number) * np.ones(2, np.int64)


def test_a_killed_worker_changes_no_bit(client, people):
    """Twice: in a pass that is known to be under way, and in a run of the noise-aware recipe."""
    before = set(client.run(os.getpid).values())
    killer = threading.Timer(1.5, os.kill, (min(before), signal.SIGKILL))
    killer.start()
    total = engine_of(client, people).total(slow_ones, 0.0)
    killer.join()
    np.testing.assert_array_equal(total, [3000, 3000])
    client.wait_for_workers(2, timeout=60)
    assert min(before) not in client.run(os.getpid).values()


def test_a_worker_that_dies_in_a_run_costs_nothing_further(client, people):
    def draws(rows, is_killing):
        curator = Curator(rows, MODEL, Budget(4.0, 1e-6), fixed_secret=SECRET)
        recipe = dpmcmc.recipes.noise_aware_for(curator, num_chains=2, num_steps=20)
        pids = client.run(os.getpid).values() if is_killing else ()
        killed = threading.Event()

        class Killer(logging.Handler):
            """Kills a worker in the middle of the third pass."""

            def emit(self, record):
                if is_killing and record.getMessage().startswith("pass 3") and not killed.is_set():
                    killed.set()
                    os.kill(min(pids), signal.SIGKILL)

        logger, handler = logging.getLogger("dpmcmc"), Killer()
        logger.addHandler(handler)
        level = logger.level
        logger.setLevel(logging.INFO)
        try:
            start = np.zeros(3, np.float32)
            options = {**recipe.options, "progress": False}
            result = dpmcmc.sample(jax.random.key(1), recipe.sampler, curator, start, **options)
        finally:
            logger.removeHandler(handler)
            logger.setLevel(level)
        assert killed.is_set() == is_killing
        return result, curator

    found, curator = draws(engine_of(client, people), True)
    wanted, from_memory = draws(rows_of(COLUMNS), False)
    for name in wanted.posterior.data_vars:
        np.testing.assert_array_equal(found.posterior[name], wanted.posterior[name])
    assert curator.num_grants == 1
    assert curator.share_left == from_memory.share_left


def test_the_statement_says_who_sees_sums_without_noise(client, people):
    grant = Curator(engine_of(client, people), MODEL, Budget(4.0, 1e-6)).grant({GRADIENT: 1})
    (line,) = (line for line in grant.statement().assumptions if "Dask" in line)
    assert "all workers and the scheduler, whose connections are not encrypted" in line


def failing(rows, number):
    raise ValueError("cannot read 'cell-of-a-person'")


def test_no_error_of_a_worker_shows_a_cell(client, people):
    with pytest.raises(RuntimeError, match="ended with a ValueError") as caught:
        engine_of(client, people).total(failing)
    assert "cell-of-a-person" not in str(caught.value)
    logs = [line for lines in client.get_worker_logs().values() for _, line in lines]
    assert "cell-of-a-person" not in "".join(logs)


def test_a_file_that_was_changed_is_refused(client, people):
    engine = engine_of(client, people)
    os.utime(people.paths[3], (0, 0))
    with pytest.raises(PrivacyRefusal, match="changed or moved since it was opened"):
        engine.total(slow_ones, 0.0)


def test_a_client_of_another_kind_is_refused(people):
    from dpmcmc.engines.dask import DaskPartitions

    with pytest.raises(TypeError, match=r"give a distributed\.Client"):
        DaskPartitions("scheduler:8786", people)
    with (
        distributed.Client(processes=False, dashboard_address=None, n_workers=1) as threads,
        pytest.raises(ValueError, match="processes=True"),
    ):
        DaskPartitions(threads, people)


def test_parquet_on_workers(client, tmp_path):
    pytest.importorskip("pyarrow", reason="Parquet files need pyarrow")
    columns = columns_of(1500, seed=2)
    dataset = opened(write(tmp_path / "people.parquet", columns), batch_rows=256)
    assert len(dataset.parts) == 3  # row groups
    assert_same(
        answers(engine_of(client, dataset)),
        answers(rows_of(columns)),
    )
