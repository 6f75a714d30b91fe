"""Cells are computed side by side, each kept as a file when it is done, so that a run that was
stopped goes on where it was.

Cells of one folder are computed by one process, one after the other: what they share, such as
made-up rows, is made once there. A process that fails, or is killed, leaves the others alone.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import logging
import multiprocessing
import os
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from dpmcmc.papers.reproduce.figure import Cell, Result

PAUSE = 0.2  # seconds between two checks of the folder
START = 6.0  # seconds that a process takes before it computes
Report = Callable[[str], Any]


def path_of(cell: Cell, folder: Path) -> Path:
    """The file of a cell: other arguments are another file."""
    text = json.dumps([cell.work, cell.arguments], sort_keys=True)
    mark = hashlib.sha256(text.encode()).hexdigest()[:8]
    return folder / f"{cell.name}-{mark}.json"


def result(cell: Cell, folder: Path) -> Result | None:
    """What was found, None if it is yet to be computed."""
    path = path_of(cell, folder)
    return json.loads(path.read_text())["result"] if path.exists() else None


def failure(cell: Cell, folder: Path) -> str:
    """Why there is no result."""
    path = path_of(cell, folder).with_suffix(".failed")
    return path.read_text() if path.exists() else "its process ended before it was computed"


def compute(cell: Cell, folder: Path) -> bool:
    """Compute one cell and keep it.

    Returns:
        Whether that succeeded; if not, the reason is beside where the file would be.
    """
    path = path_of(cell, folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    failed = path.with_suffix(".failed")
    failed.unlink(missing_ok=True)
    module, name = cell.work.split(":")
    begun = time.perf_counter()
    try:
        found = getattr(importlib.import_module(module), name)(**cell.arguments)
    except Exception:
        failed.write_text(traceback.format_exc())
        return False
    kept = {
        "work": cell.work,
        "arguments": cell.arguments,
        "seconds": round(time.perf_counter() - begun, 2),
        "result": found,
    }
    part = path.with_suffix(f".{os.getpid()}.part")
    part.write_text(json.dumps(kept))
    part.replace(path)
    return True


def compute_all(
    cells: Sequence[Cell],
    folder: Path,
    num_processes: int,
    report: Report = lambda text: None,
    estimate: str | None = None,
) -> list[Cell]:
    """Compute the cells that are not there yet.

    Args:
        cells: The cells.
        folder: Where they are kept.
        num_processes: How many are computed at a time.
        report: Is given a line when something is done.
        estimate: How long it takes, None for the sum of what each cell is expected to take.

    Returns:
        Those that failed.
    """
    wanted = unique(cells)
    missing = [cell for cell in wanted if not path_of(cell, folder).exists()]
    groups: dict[str, list[Cell]] = {}
    for cell in missing:
        path_of(cell, folder).with_suffix(".failed").unlink(missing_ok=True)
        groups.setdefault(cell.name.rpartition("/")[0], []).append(cell)
    # The longest first, so that none is left alone at the end
    waiting = sorted(groups.values(), key=lambda group: -_seconds(group))
    side_by_side = max(1, min(num_processes, len(waiting)))
    expected = estimate or f"about {_time(sum(map(_seconds, waiting)) / side_by_side)}"
    report(
        f"{len(wanted)} cells, {len(wanted) - len(missing)} of them computed before; the others "
        f"take {expected} with {num_processes} processes"
    )
    _watch(waiting, folder, num_processes, report)
    return [cell for cell in wanted if not path_of(cell, folder).exists()]


def unique(cells: Sequence[Cell]) -> list[Cell]:
    """Each name once."""
    return list({cell.name: cell for cell in cells}.values())


def _watch(waiting: list[list[Cell]], folder: Path, num_processes: int, report: Report) -> None:
    """Run so many groups at a time, and report each cell that is done."""
    context = multiprocessing.get_context("spawn")
    open_cells = [cell for group in waiting for cell in group]
    count = len(open_cells)
    expected = sum(cell.seconds for cell in open_cells)
    running: list[Any] = []
    begun = time.perf_counter()
    done_seconds = 0.0
    try:
        while open_cells and (waiting or running):
            running = [process for process in running if process.is_alive()]
            while waiting and len(running) < num_processes:
                arguments = (waiting.pop(0), folder, os.getpid())
                process = context.Process(target=_compute_group, args=arguments)
                process.start()
                running.append(process)
            time.sleep(PAUSE)
            for cell in [cell for cell in open_cells if _is_over(cell, folder)]:
                open_cells.remove(cell)
                done_seconds += cell.seconds
                left = (time.perf_counter() - begun) * (expected / done_seconds - 1)
                place = f"[{count - len(open_cells)}/{count}]"
                report(f"{place} {cell.name}: {_outcome(cell, folder)}; about {_time(left)} left")
        for process in running:
            process.join()
    finally:
        for process in running:
            process.terminate()


def _is_over(cell: Cell, folder: Path) -> bool:
    path = path_of(cell, folder)
    return path.exists() or path.with_suffix(".failed").exists()


def _outcome(cell: Cell, folder: Path) -> str:
    """How long it took, or why it failed."""
    path = path_of(cell, folder)
    if path.exists():
        return f"{json.loads(path.read_text())['seconds']:.0f} s"
    return f"FAILED: {failure(cell, folder).strip().splitlines()[-1]}"


def _compute_group(group: Sequence[Cell], folder: Path, parent: int) -> None:
    """In a process of its own, which ends with the one that started it."""
    # How far off such runs are is what is measured
    logging.getLogger("dpmcmc").setLevel(logging.ERROR)
    for cell in group:
        if os.getppid() == parent:
            compute(cell, folder)


def _seconds(group: Sequence[Cell]) -> float:
    return START + sum(cell.seconds for cell in group)


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
