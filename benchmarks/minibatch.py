"""What a batch saves: a minibatch Barker step against the full-data one, and the same batch from
larger and larger tables.

    python benchmarks/minibatch.py      n = 10^6, d = 50, one row in a hundred;
                                        then 10 000 and 1000 rows of 10^5, 10^6 and 10^7

Every line is the median of rounds in which the programs take turns, so that a busy machine slows
all of them alike.
"""

from __future__ import annotations

import argparse

import jax
import jax.numpy as jnp
from steps import medians, private_block, simulated_rows

from dpmcmc import Barker, accept_walk, models, random_walk
from dpmcmc.queries import Accept, TunaBarker

RATIO = 1.0
WALK = random_walk(0.005)


def program(query, rows, num_steps: int, num_chains: int = 1):
    dimension = rows[0].shape[1]
    model = models.logistic(dimension, radius=1.0)
    keys, positions = (
        jax.random.split(jax.random.key(0), num_chains),
        jnp.zeros((num_chains, dimension)),
    )
    return private_block(
        accept_walk(model.log_prior, query, WALK), model, rows, keys, positions, num_steps
    )


def bound_for(share: float) -> float:
    """The bound at which this share of the rows is drawn."""
    return share / (1 + 1 / RATIO)


def against_all_rows(num_chains: int) -> dict[str, float]:
    """Milliseconds per step at n = 10^6, d = 50, one row in a hundred."""
    rows, bound = simulated_rows(10**6, 50), bound_for(0.01)
    programs = {
        "all rows": program(Accept(Barker(), bound), rows, 24, num_chains),
        "batch": program(TunaBarker(bound, RATIO), rows, 24, num_chains),
    }
    return medians(programs, 24)


def against_table_size(draws: int, sizes=(10**5, 10**6, 10**7)) -> dict[int, float]:
    """Milliseconds per step by the number of rows, at a fixed mean number of draws and d = 50."""
    programs = {
        size: program(TunaBarker(bound_for(draws / size), RATIO), simulated_rows(size, 50), 50)
        for size in sizes
    }
    return medians(programs, 50)


def main() -> None:
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    print("A Barker step at n = 10^6, d = 50: all rows, and one in a hundred")
    for num_chains in (1, 4):
        found = against_all_rows(num_chains)
        ratio = found["all rows"] / found["batch"]
        print(
            f"  {num_chains} chains: {found['all rows']:8.2f} ms | {found['batch']:8.2f} ms | "
            f"{ratio:.1f} times the steps",
            flush=True,
        )
    for draws in (10_000, 1000):
        found = against_table_size(draws)
        print(f"A minibatch Barker step on about {draws} rows, by the size of the table, d = 50")
        for size, milliseconds in found.items():
            print(
                f"  n = {size:>9}: {milliseconds:8.3f} ms | {milliseconds / found[10**5]:.2f} "
                "times n = 10^5",
                flush=True,
            )


if __name__ == "__main__":
    main()
