"""Do recipes by simulation keep their forecasts? What they forecast beside what private runs give.

    python benchmarks/simulated_recipes.py [--seeds 10] [--least 15] [TABLE/SAMPLER ...]

Tables: the demo's (epsilon = 4), and two of the thesis, with new rows for each seed (epsilon = 6):
the flat banana and the 30-dimensional Gaussian, whose rows are held to a public ball for
exponential-penalty. Each run is a whole private one: start, chains, budget. The error is the root
mean square, over parameters and seeds, of (mean of the draws - exact mean) / exact sd.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpmcmc import Budget, Curator, demo, models, recipes, sample, testing

NUM_MADE_UP = 256
VARIANCES = {"banana": [20.0, 2.5], "gaussian": [20.0, 2.5] + 28 * [1.0]}
CURVATURE = {"banana": 20.0, "gaussian": 0.0}
NUM_ROWS = {"banana": 100_000, "gaussian": 200_000}
PRIOR_SCALE = 1000**0.5
RADIUS = 15.0  # of a ball that rows of the Gaussian are held to
NUM_REFERENCE = 4000


class Table(NamedTuple):
    """A problem with public simulated rows and real ones."""

    model: Any
    made_up: Any
    guess: Any
    begin: Any
    num_rows: int
    budget: Budget
    real: Callable[[int], tuple[Any, np.ndarray, np.ndarray]]  # rows, exact mean and sd, by seed


def of_the_demo() -> Table:
    """Public knowledge: columns within their bounds, few people at those of education, and about a
    quarter of the people above 20 dollars an hour.
    """
    random = np.random.default_rng(0)
    shape = NUM_MADE_UP
    columns = [
        demo.AGE_SIZE * random.uniform(-1, 1, shape),
        demo.EDUCATION_SIZE * (random.uniform(-1, 1, shape) + random.uniform(-1, 1, shape)) / 2,
        demo.GENDER_SIZE * random.choice([-1.0, 1.0], shape),
    ]
    features = np.column_stack([*columns, demo.CORNERS[random.integers(0, 4, shape)]])
    guess = np.array([-1.2, 0.3, -0.3, 0.3, -0.3, 0.3, -0.3])
    chances = 1 / (1 + np.exp(-guess[0] - features @ guess[1:]))
    labels = (random.random(shape) < chances).astype(np.float32)
    model = models.logistic(6, demo.RADIUS, demo.PRIOR_SCALE, intercept=True)
    rows = demo.read_rows()

    def real(seed: int) -> tuple[Any, np.ndarray, np.ndarray]:
        return rows, *_laplace(rows)

    made_up = features.astype(np.float32), labels
    begin = np.zeros(7)
    return Table(model, made_up, guess, begin, len(rows[1]), Budget(4.0, 1e-6), real)


def _laplace(rows: Any) -> tuple[np.ndarray, np.ndarray]:
    """Newton's method: of so many rows the posterior is normal."""
    is_known = np.isfinite(rows[1]) & np.all(np.isfinite(rows[0]), axis=1)
    design = np.column_stack([np.ones(is_known.sum()), rows[0][is_known]]).astype(float)
    mean = np.zeros(design.shape[1])
    for _ in range(15):
        chances = 1 / (1 + np.exp(-design @ mean))
        weighted = design * (chances * (1 - chances))[:, None]
        precision = design.T @ weighted + np.eye(len(mean)) / demo.PRIOR_SCALE**2
        slope = design.T @ (rows[1][is_known] - chances) - mean / demo.PRIOR_SCALE**2
        mean = mean + np.linalg.solve(precision, slope)
    return mean, np.sqrt(np.diag(np.linalg.inv(precision)))


def of_the_thesis(name: str, is_held: bool) -> Table:
    """Chains start at the true parameters, as in the thesis they do near them."""
    variances = VARIANCES[name]
    truth = np.zeros(len(variances))
    truth[1] = 3.0
    num_rows = NUM_ROWS[name]

    def simulate(seed: int, count: int) -> np.ndarray:
        key = jax.random.key(seed)
        rows = testing.simulate_banana_rows(key, count, truth, variances, CURVATURE[name])
        return np.asarray(rows)

    def real(seed: int) -> tuple[Any, np.ndarray, np.ndarray]:
        rows = simulate(1 + seed, num_rows)
        draws = testing.draw_banana_posterior(
            jax.random.key(seed),
            NUM_REFERENCE,
            rows,
            variances,
            CURVATURE[name],
            prior_scale=PRIOR_SCALE,
        )
        draws = np.asarray(draws, float)
        return rows, draws.mean(axis=0), draws.std(axis=0)

    made_up = simulate(0, NUM_MADE_UP)
    made_up = made_up + truth - made_up.mean(axis=0)  # the banana's first parameter is 0
    if is_held:
        model = models.gaussian(variances, PRIOR_SCALE, radius=RADIUS)
    else:
        model = models.banana(variances, CURVATURE[name], prior_scale=PRIOR_SCALE)
    return Table(model, made_up, truth, truth, num_rows, Budget(6.0, 1e-6), real)


def table_of(name: str, sampler: str) -> Table:
    """The table of this name, as this sampler takes it."""
    if name == "demo":
        return of_the_demo()
    return of_the_thesis(name, name == "gaussian" and sampler == "exponential-penalty")


def outcome(table: Table, recipe: Any, seed: int) -> tuple[np.ndarray, int]:
    """The errors of the means of one private run, and its number of steps."""
    rows, mean, sd = table.real(seed)
    names = table.model._replace(unravel=lambda position: {"all": position})
    result = sample(
        jax.random.key(seed),
        recipe.sampler,
        Curator(rows, names, table.budget),
        jnp.asarray(table.begin, jnp.float32),
        **recipe.options,
        progress=False,
    )
    draws = result.posterior["all"].values
    groups = (result.posterior, result.warmup_posterior)
    num_steps = sum(group.sizes["draw"] * group.sizes["chain"] for group in groups)
    return (draws.reshape(-1, len(mean)).mean(axis=0) - mean) / sd, num_steps


def compare(name: str, sampler: str, num_seeds: int, least: float) -> None:
    """Print one line."""
    table = table_of(name, sampler)
    facts = table.model, table.made_up, table.guess, table.num_rows, table.budget
    start = f"| {name} | {sampler} |"
    try:
        recipe = recipes.simulated(sampler, *facts, begin=table.begin, least_draws=least)
    except ValueError as refusal:
        print(f"{start} refused: {refusal}", flush=True)
        return
    expected = recipe.expected
    runs = [outcome(table, recipe, seed) for seed in range(num_seeds)]
    error = float(np.sqrt(np.mean([off**2 for off, _ in runs])))
    print(
        f"{start} {expected.num_steps} | {runs[0][1]} | {expected.draws:.0f} | "
        f"{expected.error:.3f} | {error:.3f} | {error / expected.error:.2f} | {recipe.words}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--least", type=float, default=15.0)
    every = [f"{name}/{one.value}" for name in ("demo", *VARIANCES) for one in recipes.SIMULATED]
    parser.add_argument("cells", nargs="*", default=every)
    chosen = parser.parse_args()
    print("| table | sampler | steps | of a run | draws | forecast | outcome | ratio |")
    for cell in chosen.cells:
        compare(*cell.split("/"), chosen.seeds, chosen.least)


if __name__ == "__main__":
    main()
