"""How much of an accelerator's own read bandwidth a private step uses.

    python benchmarks/device.py            n = 10^7, d = 50, float32; 1, 4 and 64 chains

The rows are made on the device. The yardstick is the device's measured read bandwidth: a sum over the same rows. A step that reads
the rows once at that speed scores 1.
"""

from __future__ import annotations

import sys
import time

import jax
import jax.numpy as jnp
import numpy as np

from dpmcmc import Accept, Barker, Curator, Gradient, LogRatio, accept_walk, models, penalty, random_walk, sgld
from dpmcmc.curator.exact_sum import piece_layout
from dpmcmc.loop import begin_program, block_program

NUM_STEPS = 20


def make_curator(model, num_rows: int, dimension: int) -> Curator:
    """A curator whose rows were drawn on the device: 2 GB need not travel."""
    curator = Curator((np.zeros((64, dimension), np.float32), np.zeros(64, np.float32)), model, None)
    num_pieces, size = piece_layout(num_rows)

    @jax.jit
    def piece(key):
        features = jax.random.normal(key, (size, dimension))
        return features / jnp.linalg.norm(features, axis=1, keepdims=True), jax.random.bernoulli(key, 0.5, (size,)).astype(
            jnp.float32
        )

    curator._rows = tuple(piece(jax.random.key(index)) for index in range(num_pieces))
    curator.capacity = num_rows
    with jax.enable_x64(True):
        curator._num_rows = jnp.asarray(num_rows, jnp.int64)
    return curator


def seconds(run, repeats: int = 5) -> float:
    jax.block_until_ready(run())
    found = []
    for _ in range(repeats):
        began = time.perf_counter()
        jax.block_until_ready(run())
        found.append(time.perf_counter() - began)
    return float(np.median(found))


def read_seconds(curator: Curator) -> float:
    total = jax.jit(lambda pieces: sum(jnp.sum(features) for features, _ in pieces))
    return min(seconds(lambda: total(curator._rows), 20) for _ in range(3))


def step_seconds(curator, sampler, num_chains: int, dimension: int) -> float:
    keys, positions = jax.random.split(jax.random.key(0), num_chains), jnp.zeros((num_chains, dimension))
    begin = curator.trace(begin_program(sampler), keys, positions)
    block = curator.trace(block_program(sampler, NUM_STEPS), keys, *begin.shapes, jnp.int32(0))
    grant = curator.grant({query: 10 * count for query, count in block.plan.items()})
    first, runner = grant.run(begin.compile(), keys, positions), block.compile()
    return seconds(lambda: grant.run(runner, keys, *first, jnp.int32(0))) / NUM_STEPS


def main() -> None:
    num_rows, dimension = (int(float(value)) for value in sys.argv[1:3]) if len(sys.argv) > 2 else (10**7, 50)
    model = models.logistic(dimension, radius=1.0)
    curator = make_curator(model, num_rows, dimension)
    size = 4 * num_rows * (dimension + 1)
    base = read_seconds(curator)
    print(
        f"{jax.devices()[0].device_kind}: {size / 1e9:.2f} GB of rows read in {base * 1e3:.3f} ms, {size / base / 1e12:.2f} TB/s",
        flush=True,
    )
    samplers = {
        "penalty": penalty(model.log_prior, LogRatio(1.0, 30.0), random_walk(0.001)),
        "barker": accept_walk(model.log_prior, Accept(Barker(), 0.1), random_walk(0.001)),
        "sgld": sgld(model.log_prior, Gradient(1.0, 300.0), 1e-8),
    }
    for name, sampler in samplers.items():
        for num_chains in (1, 4, 64):
            found = step_seconds(curator, sampler, num_chains, dimension)
            print(
                f"{name:8} {num_chains:3} chains: {found * 1e3:8.3f} ms a step, {base / found:.2f} of the read bandwidth",
                flush=True,
            )


if __name__ == "__main__":
    main()
