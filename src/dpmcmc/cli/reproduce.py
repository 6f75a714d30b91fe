"""`dpmcmc reproduce`: the figures of the papers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dpmcmc.cli.options import refusals, say


def reproduce(
    figures: Annotated[
        list[str],
        typer.Argument(help="Names of figures, such as T6.1; or all; or list, for their names."),
    ],
    is_quick: Annotated[
        bool,
        typer.Option(
            "--quick/--full",
            help="A first impression, or as many repeats, steps and rows as the papers had "
            "(days on a CPU, hours on a GPU).",
        ),
    ] = True,
    out: Annotated[
        Path, typer.Option(help="Folder for the page, the pictures, the tables and the cells.")
    ] = Path("reproduction"),
    seed: Annotated[int, typer.Option(min=0, help="Of everything that is drawn.")] = 0,
    processes: Annotated[
        int, typer.Option(min=1, help="How many cells are computed at a time.")
    ] = 2,
    copies: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Let one made-up row stand for so many, with the noise and the steps of all of "
            "them: 20 makes a full run that much shorter.",
        ),
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Folder with the papers' tables (mnist_784.npz).")
    ] = None,
) -> None:
    """Show figures of the papers as this library makes them, beside what the papers report.

    All rows are made up or public. What is computed is kept, and not computed again.
    """
    from dpmcmc.papers.reproduce import command, registry
    from dpmcmc.papers.reproduce.figure import Size

    if figures == ["list"]:
        for figure in registry.figures().values():
            typer.echo(f"{figure.name:<16}{figure.paper:<16}{figure.title}")
        return
    with refusals():
        chosen = registry.choose(figures)
    size = Size(is_quick, seed, copies, None if data is None else str(data.resolve()))
    failures = command.reproduce(chosen, size, out, processes, say)
    if failures:
        raise typer.Exit(1)
