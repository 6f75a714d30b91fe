"""Figures for people. The one file that knows matplotlib."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

COLOURS = ("#1f5fa8", "#d9822b", "#4f9a5b", "#8457a8")


def against_reference(results: Mapping[float, Any], reference: Mapping[str, Any], title: str, path: str | Path) -> None:
    """Private posteriors, by epsilon, beside the one without privacy, (mean, sd) by parameter: 90 % intervals in its sds."""
    from matplotlib.figure import Figure  # not pyplot: nothing is shown, and the caller's backend is left alone

    names = list(reference)
    figure = Figure(figsize=(8, 0.62 * len(names) + 1.6), layout="constrained")
    axes = figure.subplots()
    axes.axvspan(-1.645, 1.645, color="0.9", label="not private, 90 %", zorder=0)
    axes.axvline(0, color="0.6", linewidth=1, zorder=1)
    for index, (epsilon, result) in enumerate(results.items()):
        for row, name in enumerate(names):
            mean, sd = reference[name]
            draws = (result.posterior[name].values.ravel() - mean) / sd
            low, high = np.quantile(draws, [0.05, 0.95])
            height = row + 0.3 * (index - (len(results) - 1) / 2)
            colour = COLOURS[index % len(COLOURS)]
            axes.plot([low, high], [height, height], color=colour, linewidth=3, solid_capstyle="round", zorder=3,
                      label=f"private, ε = {epsilon:g}, 90 %" if row == 0 else None)  # fmt: skip
            axes.plot(draws.mean(), height, "o", color=colour, markeredgecolor="white", markersize=8, zorder=4)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_xlabel("distance from the non-private posterior mean, in its standard deviations")
    axes.set_title(title, loc="left")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=1 + len(results), frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)
