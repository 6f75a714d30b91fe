"""The error of the posterior mean against n, d and epsilon for each sampler of the command, as the
forecast has it, with runs beside it.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import dpmcmc
from dpmcmc.papers.reproduce import drawing
from dpmcmc.papers.reproduce.figure import Cell, Figure, Results, Shown, Size
from dpmcmc.testing import simulate_logistic_rows
from dpmcmc.types import Budget

DELTA = 1e-6
BASE: dict[str, Any] = {"num_rows": 60_000, "dimension": 5, "epsilon": 4.0}
AXES = {
    "num_rows": (10_000, 30_000, 60_000, 200_000, 1_000_000),
    "dimension": (2, 3, 5, 8, 12),
    "epsilon": (0.5, 1.0, 2.0, 4.0, 8.0),
}
LABELS = {"num_rows": "n", "dimension": "d", "epsilon": "ε"}
QUICK_PLACES: tuple[dict[str, Any], ...] = (
    {"num_rows": 20_000},
    {},
)  # where runs are made, in place of the base
FULL_PLACES: tuple[dict[str, Any], ...] = (
    {"num_rows": 20_000},
    {},
    {"num_rows": 200_000},
    {"dimension": 2},
    {"dimension": 8},
    {"epsilon": 1.0},
    {"epsilon": 2.0},
)
COLOURS = {"noise-aware": "Newton", "sgld": "DP-SGLD", "barker": "Barker's bit of all rows",
           "penalty": "DP-penalty"}  # fmt: skip
QUICK_RUNS = {"noise-aware": 3, "sgld": 3}
FULL_RUNS = {"noise-aware": 10, "sgld": 10, "barker": 10, "penalty": 10}


def cell(
    name: str, num_rows: int, dimension: int, epsilon: float, runs: int, seed: int
) -> dict[str, Any]:
    """Root mean square error of the posterior mean, in posterior standard deviations, by run."""
    errors = []
    for run in range(runs):
        key = jax.random.fold_in(jax.random.key(seed), run)
        key_truth, key_rows, key_run = jax.random.split(key, 3)
        radius = math.sqrt(dimension - 1)
        truth = jax.random.normal(key_truth, (dimension,)) * math.sqrt(0.5)
        rows = simulate_logistic_rows(key_rows, num_rows, truth, radius, intercept=True)
        budget = Budget(epsilon, DELTA)
        model = dpmcmc.models.logistic(dimension - 1, radius, prior_scale=5.0, intercept=True)
        recipe = _recipe(name, model, num_rows, budget)
        curator = dpmcmc.Curator(tuple(map(np.asarray, rows)), model, budget)
        found = dpmcmc.sample(
            key_run, recipe.sampler, curator, jnp.zeros(dimension), **recipe.options, progress=False
        )
        parts = [found.posterior[part].values for part in ("intercept", "coefficients")]
        whole = np.concatenate([np.atleast_3d(part) for part in parts], axis=-1)
        draws = whole.reshape(-1, dimension)
        mean, sd = _posterior(rows, dimension)
        errors.append(float(np.sqrt(np.mean(((draws.mean(axis=0) - mean) / sd) ** 2))))
    return {"errors": errors}


def _recipe(name: str, model: Any, num_rows: int, budget: Budget) -> Any:
    from dpmcmc import recipes

    if name == "noise-aware":
        return recipes.noise_aware(model, num_rows, budget)
    if name == "sgld":
        return recipes.langevin(model, num_rows, budget)
    return recipes.walk_after_start(model, num_rows, budget, name)


def _posterior(rows: Any, dimension: int) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviations by Newton's method: at these n the posterior is Gaussian."""
    features, labels = (np.asarray(part, float) for part in rows)
    design = np.column_stack([np.ones(len(features)), features])
    mean = np.zeros(dimension)
    for _ in range(20):
        chances = 1 / (1 + np.exp(-design @ mean))
        weights = (chances * (1 - chances))[:, None]
        precision = design.T @ (design * weights) + np.eye(dimension) / 25
        mean += np.linalg.solve(precision, design.T @ (labels - chances) - mean / 25)
    return mean, np.sqrt(np.diag(np.linalg.inv(precision)))


def forecast(name: str, num_rows: int, dimension: int, epsilon: float) -> float:
    """The error that is expected of a sampler."""
    from dpmcmc.recipes import forecast as forecasts

    budget = Budget(epsilon, DELTA)
    if name == "noise-aware":
        widening = forecasts.expected_widening(num_rows, dimension, budget)
        return math.sqrt(widening**2 - 1)
    return forecasts.forecast_error(name, num_rows, dimension, budget)


def _cells(size: Size) -> list[Cell]:
    found = []
    for name, runs in (QUICK_RUNS if size.is_quick else FULL_RUNS).items():
        for number, change in enumerate(QUICK_PLACES if size.is_quick else FULL_PLACES):
            arguments = {"name": name, **BASE, **change, "runs": runs, "seed": size.seed}
            found.append(
                Cell(
                    f"ours/error-{name}/{number}", "dpmcmc.papers.ours.error:cell", arguments, 40.0
                )
            )
    return found


def _show(size: Size, results: Results) -> Shown:
    figure, axes = drawing.grid(1, 3, 4.2, 3.6)
    table = []
    for place, (axis, values) in zip(axes[0], AXES.items(), strict=True):
        for name, style_name in COLOURS.items():
            curve = [forecast(name, **(BASE | {axis: value})) for value in values]
            colour, _ = drawing.style(style_name)
            place.plot(values, curve, color=colour, label=f"{name}, forecast")
            table += [
                {"sampler": name, **BASE, axis: value, "forecast": error}
                for value, error in zip(values, curve, strict=True)
            ]
        place.set_yscale("log")
        drawing.logarithmic(place, values)
        drawing.title(place, "", LABELS[axis], "error of the mean, posterior sd")
    says = []
    for one in _cells(size):
        at = {key: one.arguments[key] for key in BASE}
        name = one.arguments["name"]
        errors = results[one.name]["errors"]
        error = float(np.sqrt(np.mean(np.square(errors))))
        colour, marker = drawing.style(COLOURS[name])
        for place, axis in zip(axes[0], AXES, strict=True):
            if all(at[key] == BASE[key] for key in BASE if key != axis):
                place.plot(at[axis], error, marker, color=colour, ms=8, label=f"{name}, runs")
        expected = forecast(name, **at)
        says.append(f"{name} at n = {at['num_rows']}: {error:.2f}, forecast {expected:.2f}")
        table.append({"sampler": name, **at, "measured": error, "forecast": expected})
    drawing.legend(figure)
    return Shown("Root mean square over runs: " + "; ".join(says), table, figure)


FIGURES = [
    Figure(
        "O3",
        "Ours",
        "Error of the posterior mean against n, d and ε",
        "",
        "",
        _cells,
        _show,
        lambda size: (
            "Logistic regression with an intercept, whole private runs: start, chains, budget. In "
            f"each panel the other two are n = {BASE['num_rows']}, d = {BASE['dimension']}, ε = "
            f"{BASE['epsilon']:g}; δ = {DELTA:g}. The line of noise-aware is the noise of its "
            "released gradient, by the forecast's widening."
        ),
    )
]
