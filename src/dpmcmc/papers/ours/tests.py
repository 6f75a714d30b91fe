"""Every acceptance test at equal cost, and one chain under every accountant."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpmcmc.acceptance import Barker, LazyBarker, Penalty
from dpmcmc.accounting import accountants, calibrate
from dpmcmc.accounting.costs import AcceptBit, Gaussian
from dpmcmc.papers.reproduce import drawing
from dpmcmc.papers.reproduce.figure import Cell, Figure, Results, Shown, Size, no_cells

RANGES = (0.02, 0.05, 0.1, 0.2)  # of the log-ratio, by one row
EPSILON, DELTA = 4.0, 1e-6
SPREADS = (0.5, 1.0, 2.0)  # of log-ratios: N(-s^2 / 2, s^2), as in a chain at rest
RATIO, PENALTY_BIT = "DP-penalty", "Penalty, bit alone"
RATIO_SIGMA = 1.5  # of a ratio that is released
SIGMA = 2.19  # that is best for the penalty's bit at log-ratio 0
CHAIN_STEPS = (1, 10, 100, 1000, 10_000)
CHAIN_NOISE = 40.0  # of the ratio's noise multiplier
TESTS: dict[str, Penalty | Barker | LazyBarker] = {
    RATIO: Penalty(RATIO_SIGMA),
    PENALTY_BIT: Penalty(SIGMA),
    "Barker's bit of all rows": Barker(),
    "Lazy Barker": LazyBarker(0.25),
}


def steps_cell(name: str, ranges: list[float]) -> dict[str, list[int]]:
    """Steps at the budget, for each range."""
    test = TESTS[name]
    found = []
    for width in ranges:
        cost: Any = (
            Gaussian(test.sigma / width)
            if name == RATIO and isinstance(test, Penalty)
            else AcceptBit(test, width)
        )
        found.append(calibrate.steps({cost: 1}, EPSILON, DELTA))
    return {"steps": found}


def accepted(name: str, spread: float) -> float:
    """The mean probability to accept, over the log-ratios of a chain at rest."""
    places = np.linspace(-8, 8, 4001)
    weights = np.exp(-(places**2) / 2)
    ratios = -(spread**2) / 2 + spread * places
    return float(np.average(TESTS[name].probability(ratios), weights=weights))


def _cells(size: Size) -> list[Cell]:
    return [
        Cell(
            f"ours/tests/{number}",
            "dpmcmc.papers.ours.tests:steps_cell",
            {"name": name, "ranges": list(RANGES)},
            5.0,
        )
        for number, name in enumerate(TESTS)
    ]


def _show(size: Size, results: Results) -> Shown:
    steps = {cell.arguments["name"]: results[cell.name]["steps"] for cell in _cells(size)}
    ranges = RANGES
    figure, axes = drawing.grid(1, 1 + len(SPREADS), 3.6, 3.4)
    drawing.lines(axes[0, 0], {name: (ranges, counts) for name, counts in steps.items()})
    axes[0, 0].set_yscale("log")
    drawing.title(axes[0, 0], f"ε = {EPSILON:g}, δ = {DELTA:g}", "range of one row, Δ", "steps")
    table = []
    for place, spread in zip(axes[0, 1:], SPREADS, strict=True):
        curves = {}
        for name, counts in steps.items():
            share = accepted(name, spread)
            moves = [share * count * width**2 for count, width in zip(counts, ranges, strict=True)]
            curves[name] = (ranges, moves)
            table += [
                {"test": name, "range": width, "steps": count, "spread": spread,
                 "share accepted": share, "accepted × Δ²": move}
                for width, count, move in zip(ranges, counts, moves, strict=True)
            ]  # fmt: skip
        drawing.lines(place, curves)
        place.set_ylim(bottom=0)
        drawing.title(place, f"log-ratios of spread {spread:g}", "Δ", "accepted moves × Δ²")
    drawing.legend(figure)
    at = 0
    best = {
        name: accepted(name, 1.0) * counts[at] * ranges[at] ** 2 for name, counts in steps.items()
    }
    return Shown(
        f"Accepted moves, times Δ², at Δ = {ranges[at]:g} and a spread of 1: "
        + ", ".join(f"{name} {value:.2f}" for name, value in best.items()),
        table,
        figure,
    )


def accountants_table() -> list[dict[str, Any]]:
    """Epsilon of a chain of noisy ratios by every accountant, at delta = 1e-6."""
    rows = []
    for steps in CHAIN_STEPS:
        costs = {Gaussian(CHAIN_NOISE): steps}
        found = accountants.epsilons(costs, DELTA)
        rows += [
            {"steps": steps, "accountant": name, "epsilon": float(value)}
            for name, value in found.items()
        ]
    return rows


def _show_accountants(size: Size, results: Results) -> Shown:
    table = accountants_table()
    figure, axes = drawing.grid(1, 2)
    left, right = axes[0]
    exact = {row["steps"]: row["epsilon"] for row in table if row["accountant"] == "gaussian"}
    curves: dict[str, tuple[list[float], list[float]]] = {}
    for row in table:
        at, values = curves.setdefault(row["accountant"], ([], []))
        at.append(row["steps"])
        values.append(row["epsilon"])
    drawing.lines(left, curves)
    ratios = {
        name: (at, [value / exact[steps] for steps, value in zip(at, values, strict=True)])
        for name, (at, values) in curves.items()
    }
    drawing.lines(right, ratios)
    for place in (left, right):
        place.set_xscale("log")
        place.set_yscale("log")
    title = f"Noisy ratios with {CHAIN_NOISE:g} times the sensitivity"
    drawing.title(left, title, "steps", f"ε at δ = {DELTA:g}")
    drawing.title(right, "Beside the exact closed form", "steps", "ε / exact ε")
    drawing.legend(figure)
    last = {row["accountant"]: row["epsilon"] for row in table if row["steps"] == CHAIN_STEPS[-1]}
    order = sorted(last, key=lambda name: last[name])
    return Shown(
        f"ε of {CHAIN_STEPS[-1]} steps: " + ", ".join(f"{name} {last[name]:.2f}" for name in order),
        table,
        figure,
    )


FIGURES = [
    Figure(
        "O1",
        "Ours",
        "Moves for a unit of budget, for every acceptance test",
        "",
        "A ratio that is released costs more than the bit that is made of it. Lazy Barker gains "
        "only where Δ is small beside the budget.",
        _cells,
        _show,
        lambda size: (
            f"The noise of the penalty test is {RATIO_SIGMA:g} where the ratio is released "
            f"and {SIGMA:g} for its bit. A cost of a step is about proportional to Δ²."
        ),
    ),
    Figure(
        "O2",
        "Ours",
        "One chain under every accountant",
        "",
        "All are bounds for the same chain; the exact closed form is the least.",
        no_cells,
        _show_accountants,
    ),
]
