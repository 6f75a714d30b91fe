"""How much of an accelerator's own read bandwidth a private step uses.

    python benchmarks/device.py            n = 10^7, d = 50, float32; 1, 4 and 64 chains

The rows are made on the device. The yardstick is the device's measured read bandwidth: a sum over
the same rows, once called by itself and once in a queue of twenty, which hides what a call costs
the host. A step that reads the rows once at that speed scores 1. The last lines compare the fused
kernels' sums with those of the path through XLA.
"""

from __future__ import annotations

import sys
import time

import jax
import jax.numpy as jnp
import numpy as np

from dpmcmc import Barker, Curator, accept_walk, models, penalty, random_walk, sgld
from dpmcmc.curator.placement import Placed, shape_of
from dpmcmc.curator.queries import gradient, log_ratio
from dpmcmc.curator.sums import exact_sum, fused, linear_rows
from dpmcmc.curator.sums.exact_sum import piece_layout
from dpmcmc.queries import Accept, Gradient, LogRatio
from dpmcmc.run.programs import Begin, Block

NUM_STEPS = 20


def make_curator(model, num_rows: int, dimension: int) -> Curator:
    """A curator whose rows were drawn on the device: 2 GB need not travel."""
    few = np.zeros((64, dimension), np.float32), np.zeros(64, np.float32)
    curator, layout = Curator(few, model, None), fused.row_layout(model, few)
    is_fused = layout is not None
    num_pieces, size = piece_layout(num_rows, layout.width if layout else None)

    @jax.jit
    def piece(key):
        features = jax.random.normal(key, (dimension, size) if is_fused else (size, dimension))
        labels = jax.random.bernoulli(jax.random.fold_in(key, 1), 0.5, (size,)).astype(jnp.float32)
        return features / jnp.linalg.norm(
            features, axis=0 if is_fused else 1, keepdims=True
        ), labels

    pieces = tuple(piece(jax.random.key(index)) for index in range(num_pieces))
    stored = pieces, None, None, None
    with jax.enable_x64(True):
        number = jnp.asarray(num_rows, jnp.int64)
    by_columns = curator._placed.by_columns
    curator._placed = Placed(
        None, lambda: stored, jax.tree.map(shape_of, stored), number, by_columns
    )
    curator._account.capacity = num_rows
    return curator


def seconds(run, repeats: int = 5) -> float:
    jax.block_until_ready(run())
    found = []
    for _ in range(repeats):
        began = time.perf_counter()
        jax.block_until_ready(run())
        found.append(time.perf_counter() - began)
    return float(np.median(found))


def read_seconds(curator: Curator) -> tuple[float, float]:
    """Of one call, and of each call in a queue."""
    total = jax.jit(lambda pieces: sum(jnp.sum(features) for features, _ in pieces))
    alone = min(seconds(lambda: total(curator._placed.stored[0]), 20) for _ in range(3))
    return alone, seconds(lambda: [total(curator._placed.stored[0]) for _ in range(20)]) / 20


def step_seconds(curator, sampler, num_chains: int, dimension: int) -> float:
    keys, positions = (
        jax.random.split(jax.random.key(0), num_chains),
        jnp.zeros((num_chains, dimension)),
    )
    begin = curator.trace(Begin(sampler), keys, positions)
    block = curator.trace(Block(sampler, NUM_STEPS), keys, *begin.shapes, jnp.int32(0))
    grant = curator.grant({query: 10 * count for query, count in block.plan.items()})
    first, runner = grant.run(begin.compile(), keys, positions), block.compile()
    return seconds(lambda: grant.run(runner, keys, *first, jnp.int32(0))) / NUM_STEPS


def sums(curator: Curator, model, positions, proposals, bound: float):
    """Integer sums of clipped ratios and of clipped gradients, before any noise: for a look at the
    numbers alone.
    """

    def run(pieces, num_rows, positions, proposals):
        table = exact_sum.Table(
            pieces,
            num_rows,
            curator.unit,
            capacity=curator.capacity,
            by_columns=curator._placed.by_columns,
        )
        table = gradient.with_scales(table, model)
        ratios = jax.vmap(
            lambda before, after: log_ratio.log_ratio_sum(model, table, before, after, bound)
        )(positions, proposals)
        return ratios, jax.vmap(
            lambda position: gradient.all_rows_sum(model, table, position, 1.0)
        )(positions)

    with jax.enable_x64(True):
        return jax.tree.map(
            np.asarray,
            jax.jit(run)(curator._placed.stored[0], curator._placed.num_rows, positions, proposals),
        )


def compare_paths(model, dimension: int, num_chains: int, num_rows: int = 10**5) -> None:
    """Print how far the fused kernels' sums are from XLA's, in rows at the bound; and that ratios
    are antisymmetric.
    """
    curator = make_curator(model, num_rows, dimension)
    positions, moves = 0.3 * jax.random.normal(jax.random.key(1), (2, num_chains, dimension))
    bound = 0.02 * dimension**0.5
    points = positions, positions + 0.01 * moves
    fused_sums, back = (
        sums(curator, model, *points, bound),
        sums(curator, model, *points[::-1], bound),
    )
    is_on, fused.is_on = fused.is_on, lambda: False
    plain = sums(curator, model, *points, bound)
    fused.is_on = is_on
    bits = [exact_sum.BITS, linear_rows.grid_bits(num_rows)]
    far = [
        np.abs(a - b).max() / 2.0**bit for a, b, bit in zip(fused_sums, plain, bits, strict=True)
    ]
    largest = [np.abs(b).max() / 2.0**bit for b, bit in zip(plain, bits, strict=True)]
    print(
        f"{num_rows} rows, {num_chains} chains: ratios {far[0]:.2g} apart of {largest[0]:.3g}, "
        f"gradients {far[1]:.2g} of "
        f"{largest[1]:.3g}, ratio there and back {np.abs(fused_sums[0] + back[0]).max()}",
        flush=True,
    )


def main() -> None:
    if jax.default_backend() == "cpu" and len(sys.argv) == 1:
        return print("No accelerator here: the share of its read bandwidth is left out")
    num_rows, dimension = (
        (int(float(value)) for value in sys.argv[1:3]) if len(sys.argv) > 2 else (10**7, 50)
    )
    model = models.logistic(dimension, radius=1.0)
    curator = make_curator(model, num_rows, dimension)
    size = 4 * num_rows * (dimension + 1)
    base, queued = read_seconds(curator)
    kernels = "fused kernels" if curator._placed.by_columns is not None else "through XLA"
    print(
        f"{jax.devices()[0].device_kind}: {size / 1e9:.2f} GB in "
        f"{len(curator._placed.stored[0])} pieces, {kernels}"
    )
    for name, time_ in (("one call", base), ("a queue of calls", queued)):
        print(f"read by {name} in {time_ * 1e3:.3f} ms, {size / time_ / 1e12:.2f} TB/s", flush=True)
    samplers = {
        "penalty": penalty(model.log_prior, LogRatio(1.0, 30.0), random_walk(0.001)),
        "barker": accept_walk(model.log_prior, Accept(Barker(), 0.1), random_walk(0.001)),
        "sgld": sgld(model.log_prior, Gradient(1.0, 300.0), 1e-8),
    }
    for name, sampler in samplers.items():
        for num_chains in (1, 4, 64):
            found = step_seconds(curator, sampler, num_chains, dimension)
            print(
                f"{name:8} {num_chains:3} chains: {found * 1e3:8.3f} ms a step, {base / found:.2f} "
                "of the bandwidth of one call, "
                f"{queued / found:.2f} of a queue's",
                flush=True,
            )
    for num_chains in (1, 4, 64):
        compare_paths(model, dimension, num_chains)


if __name__ == "__main__":
    main()
