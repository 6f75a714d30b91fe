"""Passes over rows that do not fit memory, and by several processes.

    python benchmarks/engines.py [--rows 2e7] [stream] [dask] [processes] [spark]

`stream`: a pass (gradient and Hessian) over Parquet files of ten float32 columns and a label beside
pyarrow that reads the same files into arrays of float32, and the resident memory. `dask` and
`processes`: two worker processes beside one, each with one thread. `spark`: a pass of local[2].
Figures are the best of several passes.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import jax
import numpy as np

import dpmcmc
from dpmcmc import models
from dpmcmc.queries import Curvature, Gradient

COLUMNS = 10
REPEATS = 4
PER_FILE = 10**6
NAMES = [f"x{number}" for number in range(COLUMNS)]
BOUNDS = {name: (-4, 4) for name in NAMES}
MODEL = models.logistic(COLUMNS, radius=COLUMNS**0.5)
SPARK_ROWS = 2 * 10**6
PROCESS_ROWS = 4 * 10**6


def some_rows(number):
    generator = np.random.default_rng(number)
    features = generator.standard_normal((PER_FILE, COLUMNS), np.float32)
    return features, (generator.random(PER_FILE) < 0.5).astype(np.float32)


def write(folder, num_rows):
    import pyarrow as pa
    import pyarrow.parquet

    for number in range(num_rows // PER_FILE):
        features, labels = some_rows(number)
        columns = dict(zip(NAMES, features.T, strict=True))
        path = Path(folder) / f"{number:03}.parquet"
        pyarrow.parquet.write_table(pa.table({**columns, "y": labels}), path)
    return sorted(map(str, Path(folder).glob("*.parquet")))


def best_of(run):
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def pass_of(rows, **options):
    """A function that makes one pass: a gradient and a Hessian at one point."""
    curator = dpmcmc.Curator(rows, MODEL, None, **options)

    def both(ask, key, position):
        keys = jax.random.split(key)
        gradient = ask(keys[0], Gradient(MODEL.lipschitz, 10.0), position)
        return gradient.value, ask(keys[1], Curvature(MODEL.hessian_bound, 10.0), position).value

    arguments = jax.random.key(0), np.zeros(COLUMNS, np.float32)
    executable = curator.trace(both, *arguments).compile()

    def run():
        curator.grant(executable.plan).run(executable, *arguments)

    run()
    return run


def read_alone(paths):
    """Reads all rows to arrays of float32, and keeps none."""
    import pyarrow.dataset

    for batch in pyarrow.dataset.dataset(paths).to_batches(batch_size=2**16):
        rows = np.empty((batch.num_rows, COLUMNS + 1), np.float32)
        for place, column in enumerate(batch.columns):
            rows[:, place] = column.to_numpy(zero_copy_only=False)


def stream(paths):
    run = pass_of(dpmcmc.tables.dataset(paths, BOUNDS, "y"))
    found = best_of(run)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    alone = best_of(lambda: read_alone(paths))
    size = sum(os.path.getsize(path) for path in paths) / 1e9
    print(f"stream: {len(paths) * PER_FILE:.0e} rows, {size:.2f} GB: a pass {found:.2f} s")
    print(f"  beside pyarrow alone ({alone:.2f} s): {found / alone:.2f}; memory {memory:.2f} GB")


def dask(paths):
    from distributed import Client, LocalCluster

    from dpmcmc.engines.dask import DaskPartitions

    dataset = dpmcmc.tables.dataset(paths, BOUNDS, "y")
    times = []
    for number in (1, 2):
        with (
            LocalCluster(
                n_workers=number, threads_per_worker=1, processes=True, dashboard_address=None
            ) as cluster,
            Client(cluster) as client,
        ):
            times.append(best_of(pass_of(DaskPartitions(client, dataset))))
    print(f"Dask: one worker {times[0]:.2f} s, two {times[1]:.2f} s: {times[0] / times[1]:.2f}")


def one_process(number, of_all, port):
    """One of the processes of `processes`: prints the seconds of a pass."""
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    if of_all > 1:
        jax.distributed.initialize(f"127.0.0.1:{port}", of_all, number)
    parts = [some_rows(number) for number in range(PROCESS_ROWS // PER_FILE)]
    rows = tuple(map(np.concatenate, zip(*parts, strict=True)))
    rows = np.clip(rows[0] / 4, -1, 1), rows[1]
    print(f"seconds {best_of(pass_of(rows, devices=jax.devices()))}")


def processes():
    times = []
    one_thread = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    for of_all in (1, 2):
        command = [sys.executable, __file__, "--process"]
        started = [
            subprocess.Popen(
                [*command, f"{number},{of_all},12399"],
                env={**os.environ, "XLA_FLAGS": one_thread, "OPENBLAS_NUM_THREADS": "1"},
                stdout=subprocess.PIPE,
                text=True,
            )
            for number in range(of_all)
        ]
        printed = [each.communicate()[0].splitlines()[-1] for each in started]
        times.append(max(float(line.split()[1]) for line in printed))
    print(f"processes: one {times[0]:.3f} s, two {times[1]:.3f} s: {times[0] / times[1]:.2f}")


def spark(paths):
    from pyspark.sql import SparkSession

    from dpmcmc.engines.spark import SparkPartitions

    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.log.level", "OFF")
        .getOrCreate()
    )
    few = paths[: SPARK_ROWS // PER_FILE]
    engine = SparkPartitions(session.read.parquet(*few), BOUNDS, "y")
    print(f"Spark: a pass of {len(few) * PER_FILE:.0e} rows {best_of(pass_of(engine)):.2f} s")
    session.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("which", nargs="*", default=["stream", "dask", "processes", "spark"])
    parser.add_argument("--rows", type=float, default=2e7)
    parser.add_argument("--process", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.process is not None:
        return one_process(*map(int, arguments.process.split(",")))
    with tempfile.TemporaryDirectory() as folder:
        paths = write(folder, int(arguments.rows)) if set(arguments.which) - {"processes"} else []
        if "stream" in arguments.which:
            stream(paths)
        if "processes" in arguments.which:
            processes()
        if "dask" in arguments.which:
            dask(paths)
        if "spark" in arguments.which:
            spark(paths)


if __name__ == "__main__":
    main()
