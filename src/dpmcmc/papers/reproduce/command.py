"""What `dpmcmc reproduce` does: choose figures, compute their cells, show them."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from dpmcmc.papers.reproduce import cells, page
from dpmcmc.papers.reproduce.figure import Figure, Shown, Size

LONG = "minutes to hours on a GPU, up to days on a CPU,"  # with --full: figures differ much


def reproduce(
    figures: Sequence[Figure],
    size: Size,
    folder: Path,
    num_processes: int = 2,
    report: Callable[[str], Any] = print,
) -> dict[str, str]:
    """Compute and show these figures.

    Args:
        figures: What to show.
        size: How much to compute.
        folder: Where the page, the pictures and the tables go; the cells are in its folder
            "cells", and those that are there already are used.
        num_processes: How many cells are computed at a time.
        report: Is given a line when something is done.

    Returns:
        Why figures failed, by name.
    """
    folder.mkdir(parents=True, exist_ok=True)
    store = folder / "cells"
    wanted = {figure.name: list(figure.cells(size)) for figure in figures}
    everything = [cell for some in wanted.values() for cell in some]
    estimate = None if size.is_quick else LONG
    cells.compute_all(everything, store, num_processes, report, estimate)
    shown: dict[str, Shown] = {}
    failures: dict[str, str] = {}
    for figure in figures:
        try:
            shown[figure.name] = _show(figure, size, wanted[figure.name], store, folder)
            report(f"{figure.name}: {shown[figure.name].finding}")
        except Exception:
            failures[figure.name] = traceback.format_exc()
            report(f"{figure.name} FAILED: {failures[figure.name].strip().splitlines()[-1]}")
    report(f"Written to {page.write(figures, shown, failures, size, folder)}.")
    return failures


def _show(figure: Figure, size: Size, wanted: list, store: Path, folder: Path) -> Shown:
    """One figure, if all of its cells are there."""
    results = {}
    for cell in wanted:
        found = cells.result(cell, store)
        if found is None:
            raise RuntimeError(f"cell {cell.name}: {cells.failure(cell, store)}")
        results[cell.name] = found
    shown = figure.show(size, results)
    page.write_files(figure, shown, folder)
    return shown
