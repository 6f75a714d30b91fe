"""Pictures in one style: an algorithm has one colour and one marker everywhere; lines are medians,
bands are quartiles over repeats.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

# One colour an algorithm, in all figures
STYLES = {
    "DP-HMC": ("#1f5fa8", "o"),
    "HMC": ("#1f5fa8", "o"),
    "DP-penalty": ("#d9822b", "s"),
    "Random walk": ("#d9822b", "s"),
    "DP-penalty, guided": ("#8c510a", "D"),
    "Penalty, bit alone": ("#c9a227", "v"),
    "Barker's bit of all rows": ("#4f9a5b", "^"),
    "Lazy Barker": ("#9ccf8f", "<"),
    "Minibatch penalty": ("#8457a8", "P"),
    "Minibatch penalty, guided": ("#c78bb0", "X"),
    "DP Barker": ("#b5403f", "*"),
    "DP-SGLD": ("#6b7d00", "h"),
    "DP-SGLD as published": ("#c0cc3f", "p"),
    "DP-SGNHT": ("#17becf", ">"),
    "Minibatch Barker": ("#0b6e4f", "d"),
    "Minibatch Barker, λ = 10": ("#6fb98f", "8"),
    "Noisy ratio of a minibatch": ("#7f4f24", "H"),
    "Published DP-Fast MH (not private)": ("#111111", "x"),
    "Published DP-Fast MH, full batch (not private)": ("#888888", "+"),
    "Newton": ("#e377c2", "o"),
    "Exponential family": ("#e377c2", "o"),
}
OTHERS = ("#1f5fa8", "#d9822b", "#4f9a5b", "#8457a8", "#b5403f", "#5b6770", "#17becf", "#c78bb0")
MARKERS = "osD^vP*X"


def style(name: str, number: int = 0) -> tuple[str, str]:
    """Colour and marker of an algorithm; of any other curve, by its number."""
    return STYLES.get(name, (OTHERS[number % len(OTHERS)], MARKERS[number % len(MARKERS)]))


def grid(rows: int, columns: int, width: float = 4.6, height: float = 3.4) -> tuple[Any, Any]:
    """A figure and its axes, shape (rows, columns)."""
    # Not pyplot, which would show a window or change the caller's backend
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * columns, height * rows + 0.6), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False)


def title(axes: Any, text: str, below: str = "", beside: str = "", size: float = 10.5) -> None:
    """Titles of one panel and of its axes."""
    axes.set_title(text, loc="left", fontsize=size)
    axes.set_xlabel(below)
    axes.set_ylabel(beside)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8.5)
    if axes.get_xscale() == "linear":
        axes.locator_params(axis="x", nbins=5)


def lines(axes: Any, curves: Mapping[str, tuple[Any, Any]], has_marks: bool = True) -> None:
    """Curves by name: places, and values of shape (places,) or (places, repeats).

    Repeats are shown as their median and a band of quartiles; what is not a number is left out.
    """
    for number, (name, (at, values)) in enumerate(curves.items()):
        colour, marker = style(name, number)
        table = np.asarray(values, float)
        table = table[:, None] if table.ndim == 1 else table
        if not np.isfinite(table).any():
            continue
        low, middle, high = np.quantile(table, (0.25, 0.5, 0.75), axis=1)
        axes.plot(
            at,
            middle,
            color=colour,
            marker=marker if has_marks else None,
            markersize=5,
            linewidth=1.5,
            label=name,
        )
        if table.shape[1] > 1:
            axes.fill_between(at, low, high, color=colour, alpha=0.13, linewidth=0)
    axes.set_axisbelow(True)
    axes.grid(axis="y", color="0.93")


def logarithmic(axes: Any, places: Sequence[float]) -> None:
    """A logarithmic axis below, with a tick at each of these places."""
    axes.set_xscale("log")
    names = [f"{place:g}" if place < 1e4 else f"{place:,.0f}" for place in places]
    axes.set_xticks(list(places), [name.replace(",", " ") for name in names])
    axes.tick_params(axis="x", which="minor", bottom=False, labelbottom=False)


def logarithmic_beside(axes: Any) -> None:
    """A logarithmic axis beside, with ticks at 1, 2 and 5 times powers of ten."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, place: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def from_zero(axes: Any) -> None:
    """The axis beside begins at 0, and has room above the highest curve."""
    axes.set_ylim(0, 1.06 * axes.dataLim.ymax)


def per_cent(axes: Any) -> None:
    """An axis beside that shows both shares of one per cent and of almost all."""
    axes.set_yscale("symlog", linthresh=1)
    ticks = (0, 1, 2, 5, 10, 20, 50, 100)
    axes.set_yticks(ticks, [str(tick) for tick in ticks])
    axes.minorticks_off()
    axes.set_ylim(0, 110)


def level(axes: Any, value: float, name: str) -> None:
    """A dotted line at what would be ideal."""
    axes.axhline(value, color="0.3", linestyle=":", linewidth=1.2, label=name)


def paper_points(axes: Any, at: Sequence[float], values: Sequence[float], name: str) -> None:
    """Numbers that a paper prints."""
    axes.plot(at, values, "o", mfc="none", mec="black", markersize=9, label=name)


def legend(figure: Any, columns: int = 4) -> None:
    """One for all panels, below."""
    handles: dict[str, Any] = {}
    for axes in figure.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    figure.legend(
        handles.values(), handles, loc="outside lower center", ncols=columns, frameon=False,
        fontsize=9,
    )  # fmt: skip


def levels(shares: Sequence[float]) -> list[float]:
    """Squared distances that hold these shares of a two-dimensional normal law."""
    return [-2 * float(np.log(1 - share)) for share in shares]
