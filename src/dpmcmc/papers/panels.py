"""Scores against the budget, one panel a posterior: the picture, the table and the comparisons of
figures that show methods side by side.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dpmcmc.papers import cells
from dpmcmc.papers.reproduce import drawing
from dpmcmc.papers.reproduce.figure import Cell, Results

Found = dict[str, dict[str, dict[str, Any]]]  # joined cells by posterior and method


def collect(wanted: Sequence[Cell], results: Results) -> Found:
    """The cells of each posterior and method as one."""
    grouped: dict[str, dict[str, list[Any]]] = {}
    for cell in wanted:
        name, method = cell.arguments["name"], cell.arguments["method"]
        grouped.setdefault(name, {}).setdefault(method, []).append(results[cell.name])
    return {
        name: {method: cells.joined(blocks) for method, blocks in some.items()}
        for name, some in grouped.items()
    }


def picture(
    found: Found,
    epsilons: Mapping[str, Sequence[float]],
    metrics: Mapping[str, str],
    columns: int = 2,
) -> Any:
    """A panel for each posterior and metric; metrics are the fields of a cell and their titles."""
    wanted = [(name, metric) for name in found for metric in metrics]
    rows = -(-len(wanted) // columns)
    figure, axes = drawing.grid(rows, columns, 4.6 if columns < 4 else 3.4)
    for place in axes.ravel()[len(wanted) :]:
        place.remove()
    for place, (name, metric) in zip(axes.ravel(), wanted, strict=False):
        curves = {
            method: (epsilons[name], percent(metric) * np.asarray(one[metric], float))
            for method, one in found[name].items()
        }
        drawing.lines(place, curves)
        drawing.title(place, name, "ε", metrics[metric])
        if metric == "ratio_share":
            drawing.per_cent(place)
            continue
        drawing.from_zero(place)
        if metric == "mmd":
            floor = np.median([one["floor"] for one in found[name].values()])
            drawing.level(place, float(floor), "exact draws")
    drawing.legend(figure)
    return figure


def percent(metric: str) -> float:
    """Shares are shown in per cent."""
    return 100.0 if metric.endswith("_share") else 1.0


def table(
    found: Found, epsilons: Mapping[str, Sequence[float]], metrics: Sequence[str]
) -> list[dict[str, Any]]:
    """Medians and quartiles over repeats."""
    rows = []
    for name, methods in found.items():
        for method, one in methods.items():
            for at, epsilon in enumerate(epsilons[name]):
                row = {
                    "posterior": name,
                    "method": method,
                    "epsilon": epsilon,
                    "steps allowed": one["allowed"][at],
                    "steps run": one["steps"][at],
                    "repeats": len(one["mmd"][at]),
                }
                for metric in metrics:
                    low, middle, high = np.quantile(one[metric][at], (0.25, 0.5, 0.75))
                    row |= {metric: middle, f"{metric} low": low, f"{metric} high": high}
                rows.append(row)
    return rows


def last(found: Found, name: str, method: str, metric: str = "mmd") -> float:
    """The median at the largest budget."""
    return float(np.nanmedian(found[name][method][metric][-1]))


def ranking(found: Found, name: str, metric: str = "mmd") -> str:
    """Methods from the best to the worst at the largest budget, with their medians."""
    medians = {method: last(found, name, method, metric) for method in found[name]}
    order = sorted(medians, key=lambda method: medians[method])
    return ", ".join(f"{method} {medians[method]:.2f}" for method in order)
