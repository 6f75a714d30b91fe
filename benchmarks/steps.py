"""What privacy costs in time: a private step against a BlackJAX random-walk step on the same
likelihood and rows, in one run.

    make bench              n = 10^5, d = 10 and n = 10^6, d = 50; 1 and 4 chains

Every line is the median of rounds in which the programs take turns, so that a busy machine slows
all of them alike. BlackJAX keeps the log-density of the current point, so it evaluates one
likelihood per step where the curator evaluates two. The last column drives the same private step
from a Python loop, one call per step.
"""

from __future__ import annotations

import argparse
import statistics
import time

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dpmcmc import Barker, Curator, accept_walk, models, penalty, random_walk, sgld
from dpmcmc.queries import Accept, Gradient, LogRatio
from dpmcmc.run.programs import Begin, Block

SIZES = [(10**5, 10, 100), (10**6, 50, 8)]  # rows, dimension, steps in a block
ROUNDS = 7


def simulated_rows(num_rows: int, dimension: int):
    rng = np.random.default_rng(0)
    features = rng.standard_normal((num_rows, dimension), np.float32)
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    return features, (rng.random(num_rows) < 0.5).astype(np.float32)


def blackjax_block(model, rows, keys, positions, num_steps: int):
    def run(rows, keys, positions):
        def log_density(position):
            return jax.vmap(model.log_likelihood, (None, 0))(
                position, rows
            ).sum() + model.log_prior(position)

        move = blackjax.mcmc.random_walk.normal(0.01 * jnp.eye(model.dimension))
        walk = blackjax.additive_step_random_walk(log_density, move)

        def body(states, index):
            states, _ = jax.vmap(
                lambda key, state: walk.step(jax.random.fold_in(key, index), state)
            )(keys, states)
            return states, states.position

        return lax.scan(body, jax.vmap(walk.init)(positions), jnp.arange(num_steps))

    rows = jax.tree.map(jnp.asarray, rows)
    compiled = jax.jit(run).lower(rows, keys, positions).compile()
    return lambda: jax.block_until_ready(compiled(rows, keys, positions))


def private_block(sampler, model, rows, keys, positions, num_steps: int, calls: int = 1):
    """`calls` blocks of `num_steps` steps."""
    curator = Curator(rows, model, None)
    start = curator.trace(Begin(sampler), keys, positions)
    block = curator.trace(Block(sampler, num_steps, 1), keys, *start.shapes, jnp.int32(0))
    runner = block.compile()
    grant = curator.grant(
        {query: count * calls * (ROUNDS + 1) for query, count in block.plan.items()}
    )
    learned, first = grant.run(start.compile(), keys, positions)

    def run():
        states = first
        for call in range(calls):
            states, _ = grant.run(runner, keys, learned, states, jnp.int32(call * num_steps))

    return run


def gradient_block(gradient, model, rows, keys, positions, num_steps: int):
    """Langevin steps on a gradient that is not private: `gradient(position, rows)`."""

    def run(rows, keys, positions):
        def body(positions, index):
            def step(key, position):
                slope = gradient(position, rows) + jax.grad(model.log_prior)(position)
                return (
                    position
                    + 1e-9 * slope
                    + 1e-5 * jax.random.normal(jax.random.fold_in(key, index), position.shape)
                )

            positions = jax.vmap(step)(keys, positions)
            return positions, positions

        return lax.scan(body, positions, jnp.arange(num_steps))

    rows = jax.tree.map(jnp.asarray, rows)
    compiled = jax.jit(run).lower(rows, keys, positions).compile()
    return lambda: jax.block_until_ready(compiled(rows, keys, positions))


def plain_gradient(model):
    """What BlackJAX's HMC evaluates: the gradient of the summed log-likelihood."""
    return jax.grad(
        lambda position, rows: jax.vmap(model.log_likelihood, (None, 0))(position, rows).sum()
    )


def naive_gradient(model):
    """Every row's gradient by itself, clipped, added in floating point."""

    def gradient(position, rows):
        gradients = jax.vmap(jax.grad(model.log_likelihood), (None, 0))(position, rows)
        return (
            gradients / jnp.maximum(1.0, jnp.linalg.norm(gradients, axis=1, keepdims=True))
        ).sum(axis=0)

    return gradient


def compare(num_rows: int, dimension: int, num_chains: int, num_steps: int) -> dict[str, float]:
    """Milliseconds per step of each program."""
    rows, model = simulated_rows(num_rows, dimension), models.logistic(dimension, radius=1.0)
    keys, positions = (
        jax.random.split(jax.random.key(0), num_chains),
        jnp.zeros((num_chains, dimension)),
    )
    ratio_walk = penalty(model.log_prior, LogRatio(1.0, 30.0), random_walk(0.01))
    bit_walk = accept_walk(model.log_prior, Accept(Barker(), 0.1), random_walk(0.01))
    programs = {
        "blackjax": blackjax_block(model, rows, keys, positions, num_steps),
        "penalty": private_block(ratio_walk, model, rows, keys, positions, num_steps),
        "barker": private_block(bit_walk, model, rows, keys, positions, num_steps),
        "python loop": private_block(bit_walk, model, rows, keys, positions, 1, calls=num_steps),
    }
    return medians(programs, num_steps)


def compare_gradients(
    num_rows: int, dimension: int, num_chains: int, num_steps: int
) -> dict[str, float]:
    """Milliseconds per step of a private Langevin step, of a plain gradient and of the naive
    per-row one.
    """
    rows, model = simulated_rows(num_rows, dimension), models.logistic(dimension, radius=1.0)
    keys, positions = (
        jax.random.split(jax.random.key(0), num_chains),
        jnp.zeros((num_chains, dimension)),
    )
    private = sgld(model.log_prior, Gradient(1.0, 300.0), 1e-9)
    programs = {
        "plain": gradient_block(plain_gradient(model), model, rows, keys, positions, num_steps),
        "sgld": private_block(private, model, rows, keys, positions, num_steps),
        "naive": gradient_block(naive_gradient(model), model, rows, keys, positions, num_steps),
    }
    return medians(programs, num_steps)


def medians(programs, num_steps: int) -> dict[str, float]:
    times: dict[str, list[float]] = {name: [] for name in programs}
    for turn in range(ROUNDS + 1):
        for name, program in programs.items():
            began = time.perf_counter()
            program()
            if turn:  # the first is a warm-up
                times[name].append((time.perf_counter() - began) / num_steps * 1e3)
    return {name: statistics.median(values) for name, values in times.items()}


def report(
    title: str, run, base: str, others: tuple[str, ...], share_of_steps: float = 1.0
) -> None:
    """One line per table size and number of chains: milliseconds a step, and how many times the
    base that is.
    """
    print(
        f"{title}\n{'rows':>9} {'d':>3} {'chains':>6} | {base:>12} | "
        + " | ".join(f"{name:>17}" for name in others)
    )
    for num_rows, dimension, num_steps in SIZES:
        for num_chains in (1, 4):
            found = run(num_rows, dimension, num_chains, max(4, int(share_of_steps * num_steps)))
            cells = [f"{found[name]:8.2f} ms {found[name] / found[base]:5.2f}x" for name in others]
            facts = f"{num_rows:>9} {dimension:>3} {num_chains:>6} | {found[base]:>9.2f} ms"
            print(f"{facts} | {' | '.join(f'{cell:>17}' for cell in cells)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.parse_args()
    report(
        "A random-walk step, against BlackJAX",
        compare,
        "blackjax",
        ("penalty", "barker", "python loop"),
    )
    report(
        "A Langevin step, against a plain gradient",
        compare_gradients,
        "plain",
        ("sgld", "naive"),
        share_of_steps=0.5,
    )


if __name__ == "__main__":
    main()
