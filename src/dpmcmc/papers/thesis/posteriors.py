"""Figures 4.1 and 5.1 and Table 5.1 of the thesis :cite:p:`raisa2021thesis`: a trajectory of
DP-HMC, the posteriors in the plane with the starts of the chains, and the settings of the models.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpmcmc.papers import problems
from dpmcmc.papers.reproduce import drawing
from dpmcmc.papers.reproduce.figure import Cell, Figure, Results, Shown, Size, no_cells
from dpmcmc.papers.thesis import settings
from dpmcmc.testing import gaussian_posterior

PAPER = "Räisä's thesis"
COPIES = 20  # a row stands for so many
NUM_STARTS = 20
IN_THE_PLANE = (
    "Flat banana, d = 2",
    "Tempered banana, d = 2",
    "Narrow banana",
    "Correlated Gaussian",
    "Circle",
)
START = (0.0, 3.0)  # of the trajectory, on the ring
NUM_PATHS = 3


def trajectory(seed: int) -> dict[str, Any]:
    """Leapfrog steps on the circle with clipped and noisy gradients, and without either."""
    problem = settings.make(jax.random.key(seed), "Circle", COPIES)
    keys = jax.random.split(jax.random.key(seed + 1), NUM_PATHS)
    noisy = [_leapfrog(problem, key, is_private=True) for key in keys]
    exact = [_leapfrog(problem, key, is_private=False) for key in keys]
    radii = np.linalg.norm(problem.reference, axis=1)
    return {
        "noisy": noisy,
        "exact": exact,
        "radius": float(np.mean(radii)),
        "width": float(np.std(radii)),
    }


def _leapfrog(problem: problems.Problem, key: Any, is_private: bool) -> list[list[float]]:
    """The positions of a trajectory; the momentum is the same with and without noise."""
    chosen = settings.SETTINGS["Circle"].hmc
    key_momentum, key_noise = jax.random.split(key)
    # of 2 tau n^(1/2) clips: the ring's settings of the thesis
    deviation = 2 * chosen.tau_gradient * np.sqrt(problem.num_rows) * chosen.gradient_clip
    row_slope = jax.vmap(jax.grad(problem.model.log_likelihood), (None, 0))

    @jax.jit
    def slope(position, key):
        slopes = row_slope(position, problem.rows)
        lengths = jnp.linalg.norm(slopes, axis=1, keepdims=True)
        if is_private:
            slopes = slopes * jnp.minimum(1.0, chosen.gradient_clip / lengths)
        total = problem.copies * jnp.sum(slopes, axis=0)
        return total + is_private * deviation * jax.random.normal(key, position.shape)

    position = jnp.asarray(START)
    momentum = jax.random.normal(key_momentum, position.shape)
    path = [position]
    keys = jax.random.split(key_noise, chosen.leapfrog + 1)
    momentum = momentum + chosen.step_size / 2 * slope(position, keys[0])
    for step_key in keys[1:]:
        position = position + chosen.step_size * momentum
        momentum = momentum + chosen.step_size * slope(position, step_key)
        path.append(position)
    return np.asarray(path, float).round(5).tolist()


def _trajectory_cells(size: Size) -> list[Cell]:
    return [
        Cell(
            "thesis/trajectory/paths",
            "dpmcmc.papers.thesis.posteriors:trajectory",
            {"seed": size.seed},
            4.0,
        )
    ]


def _show_trajectory(size: Size, results: Results) -> Shown:
    found = results["thesis/trajectory/paths"]
    figure, axes = drawing.grid(1, 2)
    angles = np.linspace(0, 2 * np.pi, 200)
    table = []
    off = {}
    for place, (kind, title) in zip(
        axes[0],
        (("noisy", "Clipped and noisy gradients"), ("exact", "Exact gradients")),
        strict=True,
    ):
        for radius in (found["radius"] - 2 * found["width"], found["radius"] + 2 * found["width"]):
            place.plot(radius * np.cos(angles), radius * np.sin(angles), color="0.7", linewidth=1)
        for number, path in enumerate(np.asarray(found[kind])):
            place.plot(*path.T, ".-", color=drawing.OTHERS[number], linewidth=1, markersize=3)
            place.plot(*path[0], "o", color="black", markersize=5, zorder=5)
            place.plot(*path[-1], "*", color=drawing.OTHERS[number], markersize=13, zorder=5)
            table += [
                {"kind": kind, "path": number, "step": step, "x": x, "y": y}
                for step, (x, y) in enumerate(path.tolist())
            ]
        radii = np.linalg.norm(np.asarray(found[kind]), axis=2)
        off[kind] = float(np.max(np.abs(radii - found["radius"]))) / found["width"]
        place.set_aspect("equal")
        drawing.title(place, title, "θ₁", "θ₂")
    return Shown(
        f"All {NUM_PATHS} trajectories of {settings.SETTINGS['Circle'].hmc.leapfrog} steps stay "
        f"within {off['noisy']:.1f} posterior standard deviations of the ring's middle with noise "
        f"and clipping, within {off['exact']:.1f} without. Grey: two standard deviations to either "
        "side; dots: starts; stars: ends.",
        table,
        figure,
    )


def plane(seed: int) -> dict[str, Any]:
    """What the posteriors in the plane are drawn from."""
    found = {}
    for number, name in enumerate(IN_THE_PLANE):
        key_rows, key_starts = jax.random.split(jax.random.fold_in(jax.random.key(seed), number))
        problem = settings.make(key_rows, name, COPIES)
        starts = problems.starts(key_starts, problem, NUM_STARTS)
        found[name] = {
            "starts": np.asarray(starts, float).tolist(),
            "draws": np.asarray(problem.reference, float).round(6).tolist(),
            **_shape(name, problem),
        }
    return found


def _shape(name: str, problem: problems.Problem) -> dict[str, Any]:
    """Mean and covariance of the posterior in straight coordinates."""
    if name == "Circle":
        squares = float(np.mean(np.square(problem.rows)))
        spread = 1 / np.sqrt(2 * problem.num_rows * settings.CIRCLE_SHARPNESS)
        return {"kind": "ring", "mean": squares, "spread": float(spread)}
    covariance = settings.CORRELATED
    prior_scale = settings.CORRELATED_PRIOR_SCALE
    curvature = 0.0
    if "banana" in name:
        covariance = np.diag([20.0, 2.5]).tolist()
        prior_scale = settings.PRIOR_SCALE
        curvature = 350.0 if name == "Narrow banana" else 20.0
    mean, spread = gaussian_posterior(problem.rows, covariance, prior_scale, 0.0, problem.power)
    return {
        "kind": "plane",
        "mean": np.asarray(mean, float).tolist(),
        "covariance": np.asarray(spread, float).tolist(),
        "curvature": curvature,
    }


def _plane_cells(size: Size) -> list[Cell]:
    return [
        Cell(
            "thesis/plane/posteriors",
            "dpmcmc.papers.thesis.posteriors:plane",
            {"seed": size.seed},
            8.0,
        )
    ]


def _show_plane(size: Size, results: Results) -> Shown:
    found = results["thesis/plane/posteriors"]
    figure, axes = drawing.grid(2, 3, 4.0, 3.4)
    axes[1, 2].remove()
    table = []
    for place, (name, one) in zip(axes.ravel(), found.items(), strict=False):
        draws, starts = np.asarray(one["draws"]), np.asarray(one["starts"])
        place.plot(*draws[::4].T, ".", color="0.75", markersize=2, zorder=1)
        _contours(place, one, np.vstack([draws, starts]))
        place.plot(*starts.T, "o", color=drawing.OTHERS[1], markersize=4, zorder=4)
        drawing.title(place, name, "θ₁", "θ₂")
        for number, (x, y) in enumerate(starts.tolist()):
            table.append({"posterior": name, "start": number, "x": x, "y": y})
    return Shown(
        "The same shapes. Contours hold 50 % and 95 % of the exact posterior, grey points are "
        f"exact draws, orange ones the {NUM_STARTS} starts.",
        table,
        figure,
    )


def _contours(axes: Any, one: dict[str, Any], points: np.ndarray) -> None:
    low, high = points.min(axis=0), points.max(axis=0)
    margin = 0.15 * (high - low)
    grid = [np.linspace(*ends, 400) for ends in zip(low - margin, high + margin, strict=True)]
    x, y = np.meshgrid(*grid)
    if one["kind"] == "ring":
        distance = ((x**2 + y**2 - one["mean"]) / one["spread"]) ** 2
        levels = [0.455, 3.84]  # of one squared normal
    else:
        straight = np.stack([x, y + one["curvature"] * x**2], axis=-1) - np.asarray(one["mean"])
        inverse = np.linalg.inv(np.asarray(one["covariance"]))
        distance = np.einsum("...i,ij,...j", straight, inverse, straight)
        levels = drawing.levels((0.5, 0.95))
    axes.contour(x, y, distance, levels, colors=[drawing.OTHERS[0]], linewidths=1)


def _show_models(size: Size, results: Results) -> Shown:
    """Table 5.1, from the settings."""
    table = []
    for name in settings.SETTINGS:
        made = _made_with(name)
        table.append({"name": name, **made})
    rows = {row["n"] for row in table}
    return Shown(
        f"Our settings: {len(table)} models of {min(rows):,} to {max(rows):,} rows.".replace(
            ",", " "
        ),
        table,
    )


def _made_with(name: str) -> dict[str, Any]:
    """What a posterior is made with, read off a small one."""
    of_two = "d = 2" in name or name in ("Narrow banana", "Correlated Gaussian", "Circle")
    dimension = 2 if of_two else 10 if "10" in name else 30
    rows = 150_000 if name == "Narrow banana" else 100_000
    if name in ("Correlated Gaussian", "Gaussian, d = 30") or name.endswith("10"):
        rows = 200_000
    curvature = {"Narrow banana": 350.0, "Circle": settings.CIRCLE_SHARPNESS}.get(
        name, 20.0 if "banana" in name else 0.0
    )
    prior = settings.PRIOR_SCALE if name != "Correlated Gaussian" else 10.0
    return {
        "d": dimension,
        "n": rows,
        "n0": 1000 if "Tempered" in name else "",
        "a": curvature,
        "prior variance": "flat" if name == "Circle" else round(prior**2),
    }


FIGURES = [
    Figure(
        "T4.1",
        PAPER,
        "A trajectory of DP-HMC on the circle",
        "Even with noisy and clipped gradients a trajectory stays inside the thin ring.",
        "",
        _trajectory_cells,
        _show_trajectory,
        lambda size: f"One made-up row stands for {COPIES}; the noise is that of all rows.",
    ),
    Figure(
        "T5.1",
        PAPER,
        "The posteriors in the plane, and where chains start",
        "Contours of the posteriors with the starts of 20 chains.",
        "Other rows and other starts.",
        _plane_cells,
        _show_plane,
        lambda size: f"One made-up row stands for {COPIES}; posteriors are as wide as with all.",
    ),
    Figure(
        "Table5.1",
        PAPER,
        "What the models are made with",
        "n0 / n is the power of the likelihood where a model is tempered.",
        "",
        no_cells,
        _show_models,
    ),
]
