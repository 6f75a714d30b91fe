"""How far off is the posterior mean? Measures K of `dpmcmc.recipes.forecast` and compares its
forecast with runs it was not fitted on.

    python benchmarks/forecast.py fit      K of every sampler, over simulated logistic regressions
    python benchmarks/forecast.py check    forecast against measured error, over other tables,
                                           dimensions and budgets

Rows: an intercept and d - 1 features uniform in [-1, 1], so R = sqrt(d); coefficients N(0, 1/2).
Every run is a whole private run: start, chains, budget. The error is the root mean square, over
parameters and runs, of (mean of the draws - exact mean) / exact sd.
"""

from __future__ import annotations

import sys

import jax
import jax.numpy as jnp
import numpy as np

from dpmcmc import Budget, Curator, models, recipes, sample
from dpmcmc.recipes import forecast

DELTA = 1e-6
FIT = [(30_000, 3, 2.0), (30_000, 6, 4.0), (100_000, 10, 2.0)]
FIT += [(n, d, epsilon) for n in (20_000, 60_000) for d in (2, 5, 8) for epsilon in (1.0, 3.0)]
CHECK = [(n, d, epsilon) for n in (25_000, 80_000) for d in (3, 6, 9) for epsilon in (1.5, 4.0)]
RECIPES = {
    "sgld": recipes.langevin,
    "barker": lambda *facts: recipes.walk_after_start(*facts, "barker"),
    "penalty": lambda *facts: recipes.walk_after_start(*facts, "penalty"),
}


def simulate(num_rows: int, dimension: int, seed: int):
    """Features, labels, and the exact posterior's mean and sd (Newton's method; at these n it is
    Gaussian).
    """
    rng = np.random.default_rng(seed)
    features = rng.uniform(-1, 1, (num_rows, dimension - 1))
    design = np.column_stack([np.ones(num_rows), features])
    truth = rng.normal(0, np.sqrt(0.5), dimension)
    labels = (rng.random(num_rows) < 1 / (1 + np.exp(-design @ truth))).astype(float)
    mean = np.zeros(dimension)
    for _ in range(15):
        p = 1 / (1 + np.exp(-design @ mean))
        precision = design.T @ (design * (p * (1 - p))[:, None]) + np.eye(dimension) / 25
        mean += np.linalg.solve(precision, design.T @ (labels - p) - mean / 25)
    return (
        features.astype(np.float32),
        labels.astype(np.float32),
        mean,
        np.sqrt(np.diag(np.linalg.inv(precision))),
    )


def measured_error(
    name: str, num_rows: int, dimension: int, epsilon: float, num_runs: int
) -> float:
    squares = []
    for seed in range(num_runs):
        features, labels, mean, sd = simulate(num_rows, dimension, seed)
        model = models.logistic(
            dimension - 1, np.sqrt(dimension - 1), prior_scale=5.0, intercept=True
        )
        budget = Budget(epsilon, DELTA)
        recipe = RECIPES[name](model, num_rows, budget)
        result = sample(
            jax.random.key(seed),
            recipe.sampler,
            Curator((features, labels), model, budget),
            jnp.zeros(dimension),
            **recipe.options,
            progress=False,
        )
        named = result.posterior  # the intercept, then the coefficients
        parts = [named["intercept"].values[..., None], named["coefficients"].values]
        draws = np.concatenate(parts, axis=-1).reshape(-1, dimension)
        squares.append(((draws.mean(axis=0) - mean) / sd) ** 2)
    return float(np.sqrt(np.mean(squares)))


def constant(error: float, num_rows: int, dimension: int, epsilon: float) -> float:
    mu = recipes.gaussian_mu(Budget(epsilon, DELTA))
    return error**2 * mu**2 * num_rows / dimension


def main() -> None:
    is_fit = sys.argv[1] == "fit"
    names = sys.argv[2:] or list(RECIPES)
    for name in names:
        for num_rows, dimension, epsilon in FIT if is_fit else CHECK:
            error = measured_error(
                name, num_rows, dimension, epsilon, num_runs=max(3, -(-24 // dimension))
            )
            expected = forecast.forecast_error(name, num_rows, dimension, Budget(epsilon, DELTA))
            k = constant(error, num_rows, dimension, epsilon)
            print(
                f"{name:8} n={num_rows:6} d={dimension:2} epsilon={epsilon}: error {error:.3f} "
                f"sd, K {k:7.1f}; "
                f"forecast {expected:.3f}, measured / forecast {error / expected:.2f}",
                flush=True,
            )


if __name__ == "__main__":
    jax.config.update("jax_compilation_cache_dir", ".venv/compiled")
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    main()
