"""Figures 1, 2 and 4 of the DP-Fast MH paper :cite:p:`zhang2023dpfast`, on a mixture of two
Gaussians: divergence against the budget, rows that a step reads, convergence, and densities.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dpmcmc import models
from dpmcmc.papers import cells, panels
from dpmcmc.papers.fastmh import settings
from dpmcmc.papers.reproduce import drawing
from dpmcmc.papers.reproduce.figure import Cell, Figure, Results, Shown, Size

PAPER = "DP-Fast MH paper"
EPSILONS = [0.25, 0.5, 1.0, 2.0, 4.0]
QUICK_EPSILONS = [0.5, 1.0, 4.0]
STEP_EPSILONS = [0.01, 0.02, 0.05, 0.1]  # that the paper claims for each step
PUBLISHED_SCALE = 0.06  # of its moves, as in the paper
PUBLISHED = {
    "Published DP-Fast MH (not private)": False,
    "Published DP-Fast MH, full batch (not private)": True,
}
OURS = (
    "DP-penalty",
    "Penalty, bit alone",
    "Barker's bit of all rows",
    "Minibatch Barker",
    "Minibatch Barker, λ = 10",
    "Noisy ratio of a minibatch",
)
WATCHED = ("DP-penalty", "Barker's bit of all rows", "Minibatch Barker", "DP Barker")
QUICK_REPEATS, FULL_REPEATS = 3, 20
QUICK_STEPS, FULL_STEPS = 2000, 100_000
QUICK_LONG, FULL_LONG = 6000, 10_000  # steps of the runs whose convergence is shown
QUICK_COPIES = 50


def _copies(size: Size) -> int:
    return size.copies or (QUICK_COPIES if size.is_quick else 1)


def _repeats(size: Size) -> int:
    return QUICK_REPEATS if size.is_quick else FULL_REPEATS


def _epsilons(size: Size) -> list[float]:
    return QUICK_EPSILONS if size.is_quick else EPSILONS


def _budget_cells(size: Size) -> list[Cell]:
    return [
        cell
        for method in (*OURS, "DP Barker")
        for cell in cells.of_methods(
            "fastmh/mixture",
            [method],
            _repeats(size),
            {},
            module="dpmcmc.papers.fastmh.settings",
            name="Mixture",
            chains=1,
            epsilons=_epsilons(size),
            delta=settings.DELTA,
            most_steps=QUICK_STEPS if size.is_quick else FULL_STEPS,
            # DP Barker's batch would be a large part of fewer rows
            copies=1 if method == "DP Barker" else _copies(size),
            seed=size.seed,
        )
    ]


def _exhibit_cells(size: Size) -> list[Cell]:
    return [
        Cell(
            f"fastmh/published/{'full' if is_full else 'few'}",
            "dpmcmc.papers.fastmh.runs:published_cell",
            {
                "is_full": is_full,
                "scale": PUBLISHED_SCALE,
                "epsilons": STEP_EPSILONS,
                "num_steps": QUICK_LONG if size.is_quick else FULL_LONG,
                "repeats": _repeats(size),
                "copies": _copies(size),
                "seed": size.seed,
            },
            40.0,
        )
        for is_full in PUBLISHED.values()
    ]


def _long_cells(size: Size) -> list[Cell]:
    return [
        Cell(
            f"fastmh/long/{cells.file_name(method)}",
            "dpmcmc.papers.fastmh.runs:long_cell",
            {
                "method": method,
                "num_steps": QUICK_LONG if size.is_quick else FULL_LONG,
                "repeats": _repeats(size),
                "copies": 1 if method == "DP Barker" else _copies(size),
                "seed": size.seed,
            },
            20.0,
        )
        for method in WATCHED
    ]


def _kl_cells(size: Size) -> list[Cell]:
    return _budget_cells(size) + _exhibit_cells(size)


def _course_cells(size: Size) -> list[Cell]:
    return _long_cells(size) + _exhibit_cells(size)


def _exhibits(size: Size, results: Results) -> dict[str, Any]:
    return {
        name: results[cell.name] for name, cell in zip(PUBLISHED, _exhibit_cells(size), strict=True)
    }


def _runs(size: Size, results: Results) -> dict[str, Any]:
    ours = {
        method: results[cell.name] for method, cell in zip(WATCHED, _long_cells(size), strict=True)
    }
    return ours | _exhibits(size, results)


def _show_kl(size: Size, results: Results) -> Shown:
    found = panels.collect(_budget_cells(size), results)
    exhibits = _exhibits(size, results)
    epsilons = _epsilons(size)
    figure, axes = drawing.grid(1, 2)
    left, right = axes[0]
    drawing.lines(left, {name: (epsilons, one["kl"]) for name, one in found["Mixture"].items()})
    drawing.title(left, "Private methods, whole run", "ε of the whole run", "symmetric KL")
    drawing.lines(right, {name: (STEP_EPSILONS, one["kl"]) for name, one in exhibits.items()})
    drawing.title(right, "Published algorithm (exhibit)", "ε claimed for each step", "symmetric KL")
    for place, budgets in ((left, epsilons), (right, STEP_EPSILONS)):
        drawing.logarithmic(place, budgets)
    drawing.logarithmic_beside(left)
    right.set_ylim(bottom=0)
    drawing.legend(figure, 3)
    table = panels.table(found, {"Mixture": epsilons}, ["kl", "mmd", "width"])
    table += [
        {"method": name, "epsilon of a step": epsilon, "kl": float(np.median(kls))}
        for name, one in exhibits.items()
        for epsilon, kls in zip(STEP_EPSILONS, one["kl"], strict=True)
    ]
    steps = QUICK_LONG if size.is_quick else FULL_LONG
    epsilon, delta = settings.published_promise(steps)
    rest = ", ".join(f"{name} {np.median(one['kl'][2]):.2f}" for name, one in exhibits.items())
    return Shown(
        f"At ε = {epsilons[-1]:g} in all: {panels.ranking(found, 'Mixture', 'kl')}. {rest}, at "
        f"0.05 a step for {steps} steps, which even if each step were private would come to ε = "
        f"{epsilon:.0f}, δ = {delta:.2g}.",
        table,
        figure,
    )


def _show_rows(size: Size, results: Results) -> Shown:
    exhibits = _exhibits(size, results)
    figure, axes = drawing.grid(1, 2)
    left, right = axes[0]
    drawing.lines(left, {name: (STEP_EPSILONS, one["rows"]) for name, one in exhibits.items()})
    drawing.title(
        left, "Published algorithm (exhibit)", "ε claimed for each step", "rows of a step"
    )
    drawing.logarithmic(left, STEP_EPSILONS)
    left.set_yscale("log")
    ratios = np.geomspace(0.1, 8, 25)
    model = models.mixture(settings.VARIANCE)
    assert model.lipschitz is not None
    strength = settings.NUM_ROWS * settings.TEMPERATURE * model.lipschitz * settings.LONGEST
    rows = strength * (1 + 1 / ratios)
    cost = _reading_costs(ratios, strength / settings.NUM_ROWS)
    drawing.lines(right, {"Minibatch Barker": (rows, cost)}, has_marks=False)
    drawing.logarithmic(right, (200, 300, 500, 1000, 2000))
    drawing.title(right, "Private: the price of reading few", "rows of a step", "cost / all rows'")
    drawing.legend(figure, 3)
    table = [
        {"method": name, "epsilon of a step": epsilon, "rows of a step": float(np.mean(counts))}
        for name, one in exhibits.items()
        for epsilon, counts in zip(STEP_EPSILONS, one["rows"], strict=True)
    ]
    table += [
        {"method": "Minibatch Barker", "rows of a step": float(count), "cost / all rows'": value}
        for count, value in zip(rows, cost, strict=True)
    ]
    few = published_rows(exhibits)
    at = int(np.argmin(np.abs(ratios - 1)))
    return Shown(
        f"The published algorithm reads {few[0]:.0f} rows a step where it claims ε = "
        f"{STEP_EPSILONS[0]:g} and {few[-1]:.0f} where it claims {STEP_EPSILONS[-1]:g}. Minibatch "
        f"Barker reads {rows[at]:.0f} of {settings.NUM_ROWS} for {cost[at]:.3f} times the cost of "
        "a step that reads all.",
        table,
        figure,
    )


def published_rows(exhibits: dict[str, Any]) -> list[float]:
    """Of a step, by the epsilon that is claimed for it."""
    first = next(iter(exhibits.values()))
    return [float(np.mean(counts)) for counts in first["rows"]]


def _reading_costs(ratios: np.ndarray, row_bound: float) -> list[float]:
    """The Rényi divergence of order 8 of minibatch Barker, relative to the bit of all rows."""
    from dpmcmc import Barker
    from dpmcmc.accounting.costs import AcceptBit, MinibatchBarker

    whole = AcceptBit(Barker(), 2 * row_bound).rdp(8.0)[0]
    return [float(MinibatchBarker(row_bound, float(ratio)).rdp(8.0)[0] / whole) for ratio in ratios]


def _show_course(size: Size, results: Results) -> Shown:
    runs = _runs(size, results)
    figure, axes = drawing.grid(1, 2)
    left, right = axes[0]
    by_step = {name: (one["ends"], one["course"]) for name, one in runs.items()}
    by_time = {
        name: (np.asarray(one["ends"]) / one["ends"][-1] * one["seconds"], one["course"])
        for name, one in runs.items()
    }
    drawing.lines(left, by_step)
    drawing.lines(right, by_time)
    drawing.title(left, "By steps", "steps", "symmetric KL")
    drawing.title(
        right, "By time (compilation included for ours)", "seconds for all repeats", "symmetric KL"
    )
    drawing.logarithmic(left, (300, 1000, 3000, 10_000))
    right.set_xscale("log")
    for place in (left, right):
        drawing.logarithmic_beside(place)
    drawing.legend(figure, 3)
    finals = {name: float(np.median(one["course"][-1])) for name, one in runs.items()}
    return Shown(
        f"After {next(iter(runs.values()))['ends'][-1]} steps: "
        + ", ".join(f"{name} {kl:.2f}" for name, kl in finals.items()),
        _course_table(runs),
        figure,
    )


def _course_table(runs: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "method": name,
            "steps": end,
            "rows read": end * one["rows_of_a_step"],
            "seconds": end / one["ends"][-1] * one["seconds"],
            "kl": float(np.median(kls)),
        }
        for name, one in runs.items()
        for end, kls in zip(one["ends"], one["course"], strict=True)
    ]


def _show_densities(size: Size, results: Results) -> Shown:
    runs = _runs(size, results)
    problem, _ = cells.experiment("dpmcmc.papers.fastmh.settings", "Mixture", 1, size.seed)
    assert problem.cells is not None
    rows = -(-(1 + len(runs)) // 4)
    figure, axes = drawing.grid(rows, 4, 3.0, 2.9)
    places = axes.ravel()
    extent = (-problem.bound, problem.bound, -problem.bound, problem.bound)
    places[0].imshow(problem.cells.T, origin="lower", extent=extent, cmap="Blues")
    drawing.title(places[0], "Exact posterior", "θ₁", "θ₂", 9)
    table = []
    for place, (name, one) in zip(places[1:], runs.items(), strict=False):
        draws = np.asarray(one["draws"])
        place.hist2d(*draws.T, bins=40, range=[extent[:2], extent[2:]], cmap="Blues")
        drawing.title(place, name.replace(" (", "\n("), "θ₁", "θ₂", 9)
        table.append({"method": name, "share in the first mode": float(np.mean(draws[:, 1] > 0))})
    for place in places[1 + len(runs) :]:
        place.remove()
    shares = ", ".join(f"{row['method']} {row['share in the first mode']:.2f}" for row in table)
    return Shown(f"Share of draws in the first mode (exact 0.50): {shares}", table, figure)


def _show_used(size: Size, results: Results) -> Shown:
    runs = _runs(size, results)
    figure, axes = drawing.grid(1, 1, 6.5, 4.0)
    curves = {
        name: (np.asarray(one["ends"]) * one["rows_of_a_step"], one["course"])
        for name, one in runs.items()
    }
    drawing.lines(axes[0, 0], curves)
    axes[0, 0].set_xscale("log")
    drawing.logarithmic_beside(axes[0, 0])
    drawing.title(axes[0, 0], "Mixture", "rows read", "symmetric KL")
    drawing.legend(figure, 2)
    ratio = (
        runs["Barker's bit of all rows"]["rows_of_a_step"]
        / runs["Minibatch Barker"]["rows_of_a_step"]
    )
    return Shown(
        f"Minibatch Barker reads one row where the same test on all of them reads {ratio:.0f}.",
        _course_table(runs),
        figure,
    )


def about(size: Size) -> str:
    """How the numbers were made."""
    steps, long = (QUICK_STEPS, QUICK_LONG) if size.is_quick else (FULL_STEPS, FULL_LONG)
    copies = _copies(size)
    standing = f" one made-up row stands for {copies};" if copies > 1 else ""
    return (
        f"{_repeats(size)} repeats of one chain, n = {settings.NUM_ROWS}, temperature 500;"
        f"{standing} chains are stopped at {steps} steps, those whose convergence is shown take "
        f"{long}. Lines are medians, bands quartiles. Draws are compared with the posterior on 20 "
        "× 20 squares. Times are for all repeats, side by side; those of the published algorithm "
        "that read few rows are computed one after the other."
    )


WHY = (
    "A rejection of the published test depends on the rows without any bound on its loss, and "
    "where it adds no noise it still subtracts what noise would call for, which sharpens the "
    "draws: it is shown as an exhibit. Ours are private for the whole run."
)
FIGURES = [
    Figure("F1a", PAPER, "Symmetric KL against ε", "DP-Fast MH is best at every ε.", WHY,
           _kl_cells, _show_kl, about),
    Figure("F1b", PAPER, "Rows that a step reads against ε",
           "DP-Fast MH reads few rows, more of them for a smaller ε.", WHY,
           _exhibit_cells, _show_rows, about),
    Figure("F1c", PAPER, "Convergence by steps and by time (Figure 1c and d)",
           "DP-Fast MH converges after 4 000 steps, the penalty has not after 10 000, Barker's "
           "method fails.", WHY + " The penalty and Barker's test take larger moves here.",
           _course_cells, _show_course, about),
    Figure("F2", PAPER, "Densities at the end of these runs",
           "DP-Fast MH is close to the posterior; the penalty has wrong weights of the two modes; "
           "Barker's method fails.", WHY, _course_cells, _show_densities, about),
    Figure("F4", PAPER, "Symmetric KL against the rows read",
           "DP-Fast MH needs the fewest rows.", WHY, _course_cells, _show_used, about),
]  # fmt: skip
