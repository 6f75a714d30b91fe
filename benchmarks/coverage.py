"""How often do the 90 % intervals of noise-aware posteriors hold the effects that rows were made
with? For docs/samplers.md.

    python benchmarks/coverage.py logistic        some minutes on two cores
    python benchmarks/coverage.py robust

Rows: an intercept and two features uniform in [-1, 1]. Effects of `logistic` are drawn from the
prior, whose width says how strong they are. Of `robust_linear` the noise is a given share of the
response's bound, and the intercept anywhere in the middle six tenths of it. The noise of the
answers comes from JAX and not from a curator, so that many tables run side by side. A run is to be
doubted if it says DO NOT RELY.
"""

from __future__ import annotations

import itertools
import sys
import warnings

import jax
import jax.numpy as jnp
import numpy as np
from simulated import asker

from dpmcmc import Budget, diagnostics, models, recipes
from dpmcmc.models.robust_linear import HUBER

DELTA, NUM_TABLES, AT_ONCE = 1e-6, 300, 50
NUM_WARMUP, NUM_DRAWS = 40, 300
NUM_FEATURES, RADIUS = 2, 2**0.5
SHARES = (0.1, 0.05, 0.025, 0.0125)
MUS, NUM_ROWS = (0.1, 0.3, 1.0), (2_000, 20_000)  # epsilon = 0.4, 1.3 and 5


def logistic_rows(key, num_rows: int, scale: float):
    """(rows, effects)"""
    key_row, key_effect, key_label = jax.random.split(key, 3)
    features = jax.random.uniform(key_row, (num_rows, NUM_FEATURES), minval=-1, maxval=1)
    effects = scale * jax.random.normal(key_effect, (NUM_FEATURES + 1,))
    chance = jax.nn.sigmoid(effects[0] + features @ effects[1:])
    return (
        features,
        (jax.random.uniform(key_label, (num_rows,)) < chance).astype(jnp.float32),
    ), effects


def robust_rows(key, num_rows: int, share: float):
    """The response is within [-1, 1], and its noise this share of that, with Huber's density.

    Of the effects it is the last.
    """
    key_row, key_effect, key_side, key_size = jax.random.split(key, 4)
    features = jax.random.uniform(key_row, (num_rows, NUM_FEATURES), minval=-1, maxval=1)
    effects = jnp.array([0.6, 0.15, 0.15]) * jax.random.uniform(
        key_effect, (NUM_FEATURES + 1,), minval=-1
    )
    grid = jnp.linspace(0, 12, 4001)
    huber = jnp.where(grid < HUBER, grid**2 / 2, HUBER * (grid - HUBER / 2))
    below = jnp.cumsum(jnp.exp(-huber))
    size = jnp.interp(jax.random.uniform(key_size, (num_rows,)), below / below[-1], grid)
    noise = share * size * jax.random.rademacher(key_side, (num_rows,))
    return (features, jnp.clip(effects[0] + features @ effects[1:] + noise, -1, 1)), jnp.append(
        effects, share
    )


def _findings(model, found):
    return diagnostics.of_survey(model, found) + diagnostics.of_whitened(model, found)


def run(model, make, mu: float, num_rows: int, num_tables: int) -> dict[str, float]:
    """Shares of intervals that held, of runs to be doubted, of intervals that held in the others; a
    median standard deviation.
    """
    epsilon = next(
        epsilon
        for epsilon in np.geomspace(0.01, 50, 400)
        if recipes.gaussian_mu(Budget(epsilon, DELTA)) >= mu
    )
    with warnings.catch_warnings(action="ignore"):
        recipe = recipes.noise_aware(model, num_rows, Budget(epsilon, DELTA))
    dimension = model.dimension

    def one(key):
        key_rows, key_start, key_chain = jax.random.split(key, 3)
        rows, effects = make(key_rows, num_rows)

        found = recipe.start(key_start, jnp.zeros(dimension), asker(model, rows))
        sampler = recipe.sampler(found)

        def step(state, key):
            state, _ = sampler.step(key, state, None)
            parts = model.unravel(state.position)
            # In the order of the effects
            return state, jnp.concatenate([jnp.ravel(part) for part in parts.values()])

        keys = jax.random.split(key_chain, NUM_WARMUP + NUM_DRAWS)
        _, draws = jax.lax.scan(step, sampler.init(key_chain, found.position, None), keys)
        ranks = jnp.mean(draws[NUM_WARMUP:] < effects, axis=0)
        return found, (ranks > 0.05) & (ranks < 0.95), draws[NUM_WARMUP:].std(axis=0)

    keys = jax.random.split(jax.random.key(3), num_tables)
    many = jax.jit(lambda keys: jax.lax.map(one, keys, batch_size=AT_ONCE))
    surveys, held, widths = jax.tree.map(np.asarray, many(keys))
    found = [
        _findings(model, jax.tree.map(lambda leaf, i=i: leaf[i], surveys))
        for i in range(num_tables)
    ]
    in_doubt = np.array([any(finding.is_severe for finding in each) for each in found])
    others = held[~in_doubt, : NUM_FEATURES + 1].mean() if not in_doubt.all() else np.nan
    told = {
        "epsilon": epsilon,
        "held": held[:, : NUM_FEATURES + 1].mean(),
        "doubt": in_doubt.mean(),
        "others": others,
    }
    return told | {
        "sd": np.median(widths[:, : NUM_FEATURES + 1]),
        "noise": held[:, NUM_FEATURES + 1 :].mean(),
    }


def main() -> None:
    is_logistic = sys.argv[1] == "logistic"
    num_tables = int(sys.argv[2]) if len(sys.argv) > 2 else NUM_TABLES
    of_noise = "" if is_logistic else " of the noise held |"
    print(
        f"| {'effects' if is_logistic else 'noise'} | rows | epsilon | held | to be doubted | in "
        f"the others | median sd |{of_noise}"
    )
    print("|---|---|---|---|---|---|---|---|" if of_noise else "|---|---|---|---|---|---|---|")
    for size, num_rows, mu in itertools.product(
        (1.0, 2.0, 4.0, 6.0) if is_logistic else SHARES, NUM_ROWS, MUS
    ):
        if is_logistic:
            model = models.logistic(NUM_FEATURES, RADIUS, prior_scale=size, intercept=True)
        else:
            model = models.robust_linear(NUM_FEATURES, RADIUS, 1.0, intercept=True)
        make = logistic_rows if is_logistic else robust_rows
        found = run(
            model,
            lambda key, num, make=make, size=size: make(key, num, size),
            mu,
            num_rows,
            num_tables,
        )
        cells = [
            f"{size:g}",
            f"{num_rows}",
            f"{found['epsilon']:.2g}",
            f"{found['held']:.0%}",
            f"{found['doubt']:.0%}",
        ]
        cells += [f"{found['others']:.0%}", f"{found['sd']:.3f}"] + [f"{found['noise']:.0%}"] * (
            not is_logistic
        )
        print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
