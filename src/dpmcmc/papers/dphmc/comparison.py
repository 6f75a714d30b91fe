"""Figures 1 and 2 of the DP-HMC paper :cite:p:`raisa2021hamiltonian`: MMD and errors of the mean on
a banana and a Gaussian, and what the draws on the banana are like.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dpmcmc.papers import cells, panels
from dpmcmc.papers.dphmc import settings
from dpmcmc.papers.reproduce import drawing
from dpmcmc.papers.reproduce.figure import Cell, Figure, Results, Shown, Size

PAPER = "DP-HMC paper"
NAMES = ("Banana", "Gaussian, d = 10")
ALL_ROWS = ("DP-HMC", "DP-penalty", "Penalty, bit alone")
QUICK_EPSILONS = (2, 6, 15)
EPSILONS = (2, 4, 6, 8, 10, 12, 15)
QUICK_REPEATS, FULL_REPEATS = 3, 10
QUICK_STEPS, QUICK_HMC_STEPS, QUICK_BATCH_STEPS = 1000, 250, 3000
FULL_STEPS = 200_000
QUICK_COPIES = 100
QUICK_HMC_COPIES = 20  # its clipped gradients ask for more rows, as in the thesis' figures
NUM_CHAINS = 4  # share a budget
SHOWN = ("DP-HMC", "DP-penalty", "DP-SGLD", "DP-SGLD as published", "DP-SGNHT")


def epsilons(size: Size) -> list[float]:
    """The budgets."""
    return list(QUICK_EPSILONS if size.is_quick else EPSILONS)


def _cells(size: Size) -> list[Cell]:
    return [cell for name in NAMES for cell in _of_posterior(name, size)]


def _of_posterior(name: str, size: Size) -> list[Cell]:
    shared = {
        "module": "dpmcmc.papers.dphmc.settings",
        "name": name,
        "chains": NUM_CHAINS,
        "epsilons": epsilons(size),
        "delta": 0.1 / settings.NUM_ROWS,
        "seed": size.seed,
        "has_draws": name == "Banana",
    }
    total = QUICK_REPEATS if size.is_quick else FULL_REPEATS
    copies = size.copies or (QUICK_COPIES if size.is_quick else 1)
    limits = {
        **dict.fromkeys(ALL_ROWS, QUICK_STEPS),
        **dict.fromkeys(settings.READ_FEW, QUICK_BATCH_STEPS),
        "DP-HMC": QUICK_HMC_STEPS,
    }
    rows_for = {"DP-HMC": QUICK_HMC_COPIES if size.is_quick and size.copies is None else copies}
    found = []
    for method, most in limits.items():
        found += cells.of_methods(
            f"dphmc/{cells.file_name(name)}",
            [method],
            total,
            {"DP-HMC": 40.0} | dict.fromkeys(settings.READ_FEW, 25.0),
            most_steps=most if size.is_quick else FULL_STEPS,
            copies=rows_for.get(method, copies) if method in ALL_ROWS else 1,
            **shared,
        )
    return found


def about(size: Size) -> str:
    """How the numbers were made."""
    copies = size.copies or (QUICK_COPIES if size.is_quick else 1)
    repeats = QUICK_REPEATS if size.is_quick else FULL_REPEATS
    stop = (
        f"chains are stopped at {QUICK_STEPS} steps, those of DP-HMC at {QUICK_HMC_STEPS}, those "
        f"that read batches at {QUICK_BATCH_STEPS}"
        if size.is_quick
        else f"chains are stopped at {FULL_STEPS} steps"
    )
    fewer = f" ({QUICK_HMC_COPIES} for DP-HMC)" * (size.is_quick and size.copies is None)
    standing = f"; one made-up row stands for {copies}{fewer}, but where batches are read"
    standing *= copies > 1
    return (
        f"{repeats} repeats of {NUM_CHAINS} chains that share a budget; {stop}{standing}. Lines "
        "are medians, bands quartiles; δ = 10⁻⁶."
    )


def _show(size: Size, results: Results) -> Shown:
    found = panels.collect(_cells(size), results)
    by_name = {name: epsilons(size) for name in NAMES}
    metrics = {"mmd": "MMD", "mean_error": "error of the mean"}
    ranks = "; ".join(f"{name}: {panels.ranking(found, name)}" for name in NAMES)
    return Shown(
        f"MMD at ε = 15: {ranks}",
        panels.table(found, by_name, [*metrics, "width"]),
        panels.picture(found, by_name, metrics),
    )


def _show_densities(size: Size, results: Results) -> Shown:
    found = panels.collect(_of_posterior("Banana", size), results)["Banana"]
    exact = np.asarray(settings.make(_key(size), "Banana", 1).draw(_key(size)))
    figure, axes = drawing.grid(3, len(SHOWN), 3.0, 2.7)
    table: list[dict[str, Any]] = []
    for column, method in enumerate(SHOWN):
        runs = [np.asarray(run, float) for run in found[method]["draws"]]
        order = np.argsort(found[method]["mmd"][-1])
        for line, (label, at) in enumerate(
            zip(("best", "median", "worst"), (0, len(order) // 2, -1), strict=True)
        ):
            run = runs[order[at]]
            mmd = float(np.asarray(found[method]["mmd"][-1])[order[at]])
            _panel(axes[line, column], run, exact, method)
            drawing.title(
                axes[line, column],
                f"{method}:\n{label}, MMD {mmd:.2f}",
                "θ₁" if line == 2 else "",
                "θ₂" if column == 0 else "",
                9,
            )
            table.append(
                {
                    "method": method,
                    "run": label,
                    "mmd": mmd,
                    "θ₁ width": float(np.std(run[:, 0]) / np.std(exact[:, 0])),
                    "largest |θ₁|": float(np.max(np.abs(run[:, 0]))),
                    "exact largest |θ₁|": float(np.max(np.abs(exact[:, 0]))),
                }
            )
    widths = {row["method"]: row["θ₁ width"] for row in table if row["run"] == "median"}
    return Shown(
        "Width of the first parameter in the median run, exact draws 1: "
        + ", ".join(f"{method} {width:.2f}" for method, width in widths.items()),
        table,
        figure,
    )


def _key(size: Size) -> Any:
    import jax

    return jax.random.fold_in(jax.random.key(size.seed), 0)


def _panel(axes: Any, run: np.ndarray, exact: np.ndarray, method: str) -> None:
    """Draws beside exact ones, and densities of both at the edges."""
    colour, _ = drawing.style(method)
    axes.plot(*exact[::2].T, ".", color="0.75", markersize=2)
    axes.plot(*run.T, ".", color=colour, markersize=2, alpha=0.6)
    for dimension in (0, 1):
        _edge(axes, exact[:, dimension], run[:, dimension], dimension, colour)


def _edge(axes: Any, exact: np.ndarray, run: np.ndarray, dimension: int, colour: str) -> None:
    """Both marginal densities along an axis, the higher one a fifth of the panel high."""
    from scipy.stats import gaussian_kde

    low, high = exact.min(), exact.max()
    margin = 0.3 * (high - low)
    at = np.linspace(low - margin, high + margin, 120)
    found = {"0.5": gaussian_kde(exact)(at)}
    if np.ptp(run) > 0:
        found[colour] = gaussian_kde(run)(at)
    most = max(density.max() for density in found.values())
    for tint, density in found.items():
        height = 0.2 * density / most
        if dimension == 0:
            axes.plot(at, height, color=tint, transform=axes.get_xaxis_transform(), linewidth=1)
            axes.set_xlim(at[0], at[-1])
        else:
            axes.plot(height, at, color=tint, transform=axes.get_yaxis_transform(), linewidth=1)
            axes.set_ylim(at[0], at[-1])


FIGURES = [
    Figure(
        "H1",
        PAPER,
        "MMD and error of the mean against ε",
        "Banana: DP-HMC and DP-penalty alike, DP-SGLD and DP-SGNHT much worse. Gaussian: DP-SGLD "
        "best, DP-HMC and DP-SGNHT alike, DP-penalty worst.",
        "The published DP-SGLD has half the noise that Langevin dynamics asks for: it is shown "
        "beside the right one. DP-HMC keeps a gradient for the next step, batches have their exact "
        "profile, and the accept bit alone is ours.",
        _cells,
        _show,
        about,
    ),
    Figure(
        "H2",
        PAPER,
        "Draws on the banana at ε = 15: the best, the median and the worst run by MMD",
        "DP-SGLD and DP-SGNHT hardly reach the long tail; DP-penalty may have a chain stuck in it; "
        "DP-HMC is more consistent.",
        "With the right noise DP-SGLD goes further into the tail than as published.",
        lambda size: _of_posterior("Banana", size),
        _show_densities,
        lambda size: about(size) + " Grey: exact draws; lines at the edges: densities.",
    ),
]
