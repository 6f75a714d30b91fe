"""Figures of draws."""

from __future__ import annotations

from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

# The largest figure of chains
MOST_ROWS = 16
MOST_POINTS = 1000
COLOURS = ("#1f5fa8", "#d9822b", "#4f9a5b", "#8457a8")


def against_reference(
    results: Mapping[float, Any], reference: Mapping[str, Any], title: str, path: str | Path
) -> None:
    """Draw 90 % intervals of private posteriors, by epsilon, beside the one without privacy.

    The latter is given by (mean, sd) of each parameter, and is the unit of the axis.
    """
    # Not pyplot, which would show a window or change the caller's backend
    from matplotlib.figure import Figure

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
            axes.plot(
                [low, high],
                [height, height],
                color=colour,
                linewidth=3,
                solid_capstyle="round",
                zorder=3,
                label=f"private, ε = {epsilon:g}, 90 %" if row == 0 else None,
            )
            axes.plot(
                draws.mean(),
                height,
                "o",
                color=colour,
                markeredgecolor="white",
                markersize=8,
                zorder=4,
            )
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_xlabel("distance from the non-private posterior mean, in its standard deviations")
    axes.set_title(title, loc="left")
    axes.legend(
        loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=1 + len(results), frameon=False
    )
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)


def chains(draws: Mapping[str, np.ndarray]) -> bytes:
    """A PNG of all draws (chain, draw) of each parameter.

    A histogram, and beside it the path of each chain.
    """
    from matplotlib.figure import Figure

    shown = list(draws.items())[:MOST_ROWS]
    figure = Figure(figsize=(9, 1.25 * len(shown) + 0.6), layout="constrained")
    for row, (histogram, ways) in zip(
        shown, figure.subplots(len(shown), 2, width_ratios=(1, 2), squeeze=False), strict=True
    ):
        label = row[0]
        values = np.asarray(row[1], float)
        finite = values[np.isfinite(values)]
        # If all values are equal, there are no bins
        if finite.size and np.ptp(finite) > 1e-9 * np.max(np.abs(finite)):
            histogram.hist(finite, bins=40, color="0.75")
        for index, chain in enumerate(values):
            every = -(-len(chain) // MOST_POINTS)
            steps = np.arange(0, len(chain), every)
            ways.plot(
                steps, chain[::every], color=COLOURS[index % len(COLOURS)], linewidth=0.7, alpha=0.8
            )
        histogram.set_title(label, loc="left", fontsize=10, parse_math=False)
        histogram.set_yticks([])
        histogram.locator_params(axis="x", nbins=5)
        for axes in (histogram, ways):
            axes.tick_params(labelsize=8)
            axes.spines[["top", "right"]].set_visible(False)
        histogram.spines["left"].set_visible(False)
    if len(draws) > len(shown):
        figure.suptitle(
            f"the first {len(shown)} of {len(draws)} parameters", x=0, ha="left", fontsize=10
        )
    ways.set_xlabel("draw, each chain in its colour", fontsize=9)
    out = BytesIO()
    figure.savefig(out, dpi=120)
    return out.getvalue()
