"""What a figure is: cells to compute, and a picture, a table and a sentence made of their results.

A cell is the smallest piece that is computed and kept: one algorithm on one posterior, for a block
of repeats, at all budgets (what a smaller budget gives is the beginning of the run with the
largest). Figures that show the same runs share their cells.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

Result = dict[str, Any]  # of a cell, as JSON has it
Results = Mapping[str, Result]  # by the cell's name


class Cell(NamedTuple):
    """One piece of work.

    Attributes:
        name: Its file, without the ending; slashes are folders.
        work: The function that computes it, as "module:function".
        arguments: Of that function, as JSON has them.
        seconds: About how long it takes on one core.
    """

    name: str
    work: str
    arguments: dict[str, Any]
    seconds: float = 1.0


class Size(NamedTuple):
    """How much is computed.

    Attributes:
        is_quick: A first impression: few repeats, short chains.
        seed: Of everything that is drawn.
        copies: How many rows one made-up row stands for, None for the figure's own choice.
        data: A folder with the papers' tables, if there is one.
    """

    is_quick: bool = True
    seed: int = 0
    copies: int | None = None
    data: str | None = None


class Shown(NamedTuple):
    """A finished figure.

    Attributes:
        finding: What we find, in a sentence, with its numbers.
        table: The numbers, one dictionary for each row.
        picture: A matplotlib figure, None for a printed table.
    """

    finding: str
    table: list[dict[str, Any]]
    picture: Any = None


class Figure(NamedTuple):
    """A figure of a paper, or one of ours.

    Attributes:
        name: What the command calls it.
        paper: The paper's name.
        title: What it shows.
        claim: What the paper found.
        why: Why the two differ, where they do.
        cells: From a size to the cells.
        show: From a size and the results to what is shown.
        about: From a size to how the numbers were made: repeats, chains, rows.
    """

    name: str
    paper: str
    title: str
    claim: str
    why: str
    cells: Callable[[Size], Sequence[Cell]]
    show: Callable[[Size, Results], Shown]
    about: Callable[[Size], str] = lambda size: ""


def no_cells(size: Size) -> Sequence[Cell]:
    """Of a figure that is computed in a moment."""
    return ()
