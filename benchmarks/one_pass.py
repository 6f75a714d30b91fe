"""The exact pass of integers beside a plain float32 gradient and Hessian, and a whole default run
beside eight plain Newton iterations.

    python benchmarks/one_pass.py [--rows 1e6] [--columns 10]

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


def ask_time(rows, query):
    """Seconds of one ask, noise included."""
    model = model_of(rows[0].shape[1])
    curator = dpmcmc.Curator(rows, model, None)
    arguments = jax.random.key(0), jnp.zeros(model.dimension)
    traced = curator.trace(lambda ask, key, position: ask(key, query, position), *arguments)
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


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=float, default=1e6)
    parser.add_argument("--columns", type=int, default=10)
    arguments = parser.parse_args()
    rows = simulate(int(arguments.rows), arguments.columns)
    model = model_of(arguments.columns)
    base = plain_time(rows)
    gradient = ask_time(rows, Gradient(model.lipschitz, 10.0)) / base
    hessian = ask_time(rows, Curvature(model.hessian_bound, 10.0)) / base
    print(f"{arguments.rows:.0e} rows, {arguments.columns} columns, {jax.default_backend()}")
    print(f"plain gradient and Hessian: {1e3 * base:.1f} ms")
    both = gradient + hessian
    print(f"beside it: gradient {gradient:.2f}, Hessian {hessian:.2f}, both {both:.2f}")
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
