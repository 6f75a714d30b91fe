"""The exact pass of integers beside a plain float32 gradient and Hessian, and a whole default run
beside eight plain Newton iterations.

    python benchmarks/one_pass.py [--rows 1e6] [--columns 10] [--survey]

Each figure is a ratio within one process, the best of several runs. The first run of a process
compiles; the second does not.
"""

import argparse
import time

import jax
import jax.numpy as jnp
import numpy as np

import dpmcmc
from dpmcmc import models
from dpmcmc.queries import Curvature, Gradient

REPEATS = 7
NEWTON_ITERATIONS = 8
FEW_ROWS = 1000


def simulate(num_rows, num_columns):
    generator = np.random.default_rng(0)
    features = generator.standard_normal((num_rows, num_columns), np.float32) / 4
    features = np.clip(features, -0.9, 0.9)
    labels = (generator.random(num_rows) < 0.5).astype(np.float32)
    return features, labels


def model_of(num_columns):
    return models.logistic(num_columns, radius=0.9 * num_columns**0.5)


def best_of(run):
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def ask_time(rows, *queries):
    """Seconds of asking these queries at one point, noise included."""
    model = model_of(rows[0].shape[1])
    curator = dpmcmc.Curator(rows, model, None)
    arguments = jax.random.key(0), jnp.zeros(model.dimension)

    def program(ask, key, position):
        keys = jax.random.split(key, len(queries))
        return [ask(key, query, position) for key, query in zip(keys, queries, strict=True)]

    traced = curator.trace(program, *arguments)
    executable = traced.compile()
    grants = iter([curator.grant(traced.plan) for _ in range(REPEATS + 1)])
    next(grants).run(executable, *arguments)
    return best_of(lambda: next(grants).run(executable, *arguments))


@jax.jit
def plain(features, labels, position):
    chance = jax.nn.sigmoid(features @ position)
    weighted = features * (chance * (1 - chance))[:, None]
    return features.T @ (labels - chance), weighted.T @ features


def plain_time(rows):
    """Seconds of one plain gradient and Hessian."""
    on_device = [jnp.asarray(leaf) for leaf in rows]
    position = jnp.zeros(rows[0].shape[1])
    with jax.default_matmul_precision("highest"):
        jax.block_until_ready(plain(*on_device, position))
        return best_of(lambda: jax.block_until_ready(plain(*on_device, position)))


def run_time(rows):
    """Seconds of a default run, chain and summary included."""
    start = time.perf_counter()
    curator = dpmcmc.Curator(rows, model_of(rows[0].shape[1]), dpmcmc.Budget(1.0, 1e-7))
    recipe = dpmcmc.recipes.noise_aware_for(curator)
    dpmcmc.plan(jax.random.key(0), recipe, curator).run(progress=False).summary()
    return time.perf_counter() - start


def survey_time(rows):
    """Seconds of the private start of a default run: all that it asks of the rows."""
    model = model_of(rows[0].shape[1])
    curator = dpmcmc.Curator(rows, model, dpmcmc.Budget(1.0, 1e-9), shared_by="gaussian-dp")
    parts = REPEATS + 2
    recipe = dpmcmc.recipes.noise_aware_for(curator, share=1 / parts)
    start = recipe.options["start"]
    arguments = jax.random.key(0), jnp.zeros(model.dimension)
    traced = curator.trace(lambda ask, key, position: start(key, position, ask), *arguments)
    executable = traced.compile()
    grants = iter([curator.grant(traced.plan) for _ in range(REPEATS + 1)])
    next(grants).run(executable, *arguments)
    return best_of(lambda: next(grants).run(executable, *arguments))


def peak_memory(rows):
    """The device's memory at its peak, over that of the rows as float32, where it is known."""
    found = jax.devices()[0].memory_stats()
    return found["peak_bytes_in_use"] / rows[0].nbytes if found else float("nan")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=float, default=1e6)
    parser.add_argument("--columns", type=int, default=10)
    parser.add_argument("--survey", action="store_true", help="no chains: what asks the rows")
    arguments = parser.parse_args()
    rows = simulate(int(arguments.rows), arguments.columns)
    model = model_of(arguments.columns)
    if arguments.survey:  # first, so that the memory is its own
        print(f"whole survey: {1e3 * survey_time(rows):.0f} ms")
        print(f"memory at its peak / rows as float32: {peak_memory(rows):.2f}")
    base = plain_time(rows)
    queries = Gradient(model.lipschitz, 10.0), Curvature(model.hessian_bound, 10.0)
    gradient, hessian = (ask_time(rows, query) / base for query in queries)
    both = ask_time(rows, *queries) / base
    print(f"{arguments.rows:.0e} rows, {arguments.columns} columns, {jax.default_backend()}")
    print(f"plain gradient and Hessian: {1e3 * base:.1f} ms")
    print(f"beside it: gradient {gradient:.2f}, Hessian {hessian:.2f}, both {both:.2f}")
    if arguments.survey:
        return
    few = simulate(FEW_ROWS, arguments.columns)
    first, second = run_time(few), run_time(few)
    print(f"default run of {FEW_ROWS} rows: {first:.1f} s, again {second:.1f} s")
    run_time(rows)
    again = run_time(rows)
    ratio = (again - second) / (NEWTON_ITERATIONS * base)
    print(
        f"of all rows, again: {again:.1f} s; the difference is {ratio:.1f} times eight iterations"
    )


if __name__ == "__main__":
    main()
