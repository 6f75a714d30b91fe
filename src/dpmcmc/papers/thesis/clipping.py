"""Figure 6.2 of the thesis :cite:p:`raisa2021thesis`: what clipping does to the flat bananas."""

from __future__ import annotations

from dpmcmc.papers import clipping
from dpmcmc.papers.reproduce.figure import Figure, Results, Shown, Size

NAMES = ("Flat banana, d = 2", "Flat banana, d = 10")
QUICK = clipping.Numbers(repeats=4, walk_steps=3000, hmc_steps=250, copies=100)
FULL = clipping.Numbers(repeats=20, walk_steps=3000, hmc_steps=500, copies=1)


def numbers(size: Size) -> clipping.Numbers:
    """How much is computed."""
    chosen = QUICK if size.is_quick else FULL
    return chosen._replace(copies=size.copies or chosen.copies)


def _cells(size: Size):
    return clipping.cells_of(NAMES, numbers(size), size)


def _show(size: Size, results: Results) -> Shown:
    return clipping.show(NAMES, _cells(size), results)


FIGURES = [
    Figure(
        "T6.2",
        "Räisä's thesis",
        "What clipped log-ratios do to the posterior",
        "There is no effect but for the lowest clips; less than 20 % clipped is likely "
        "undetectable without a large sample.",
        "The moves of the walk are those of the private runs; the thesis' own for this figure are "
        "not printed. Rows of these posteriors pull either way alike, so that clips on both sides "
        "cancel: figure Clip has a posterior where they do not.",
        _cells,
        _show,
        lambda size: clipping.about(numbers(size)),
    )
]
