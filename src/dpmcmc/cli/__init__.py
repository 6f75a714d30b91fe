"""The command line.

Each command lives in its own file; nothing heavy is imported before a command runs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dpmcmc import __version__
from dpmcmc.cli import account, reproduce, run
from dpmcmc.cli.options import Commands, Relation, refusals, say

main = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    # Local values are rows; some versions of typer show them by default
    pretty_exceptions_show_locals=False,
    help="Differentially private Markov chain Monte Carlo.",
)
main.add_typer(account.app, name="account")
main.command("run", no_args_is_help=True)(run.run)
main.command("reproduce", no_args_is_help=True)(reproduce.reproduce)


@main.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the posterior and the figure.")] = Path(
        "demo-output"
    ),
    seed: Annotated[
        int,
        typer.Option(
            min=0, max=run.MAX_SEED, help="Of the chains; the privacy noise never comes from it."
        ),
    ] = 0,
) -> None:
    """A private logistic regression on an embedded table of 61 395 workers, beside the answer
    without privacy.
    """
    from dpmcmc import demo as demo_module

    # A run that fails its checks, as some do by chance, says so: the demo itself has not failed
    demo_module.main(out, seed)


@main.command()
def plan(
    rows: Annotated[int, typer.Option(min=1, help="The number of rows, which is public.")],
    dimension: Annotated[
        int, typer.Option(min=1, help="The number of parameters, the intercept among them.")
    ],
    epsilon: Annotated[float, typer.Option(help="The budget.")],
    delta: Annotated[float, typer.Option(help="The budget.")],
    neighbours: Annotated[
        Relation, typer.Option(help="What is protected: values, or presence.")
    ] = Relation.REPLACE,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object instead of a table.")
    ] = False,
) -> None:
    """What each sampler would make of a logistic regression, from public facts alone."""
    from dpmcmc.recipes import forecast
    from dpmcmc.types import Budget

    with refusals(as_json=as_json):
        budget = Budget(epsilon, delta, neighbours.neighbours)
        render = forecast.plan_json if as_json else forecast.plan_text
        text = render(rows, dimension, budget)
    typer.echo(text) if as_json else say(text)


@main.command()
def report(
    file: Annotated[
        Path, typer.Argument(help="A posterior, as `run` writes it.", exists=True, dir_okay=False)
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="The page; by default beside the file, with the ending .html."),
    ] = None,
    title: Annotated[
        str | None, typer.Option(help="The headline; by default the name of the file.")
    ] = None,
) -> None:
    """Write one page: whether to rely on the draws, the parameters, the chains, and what was
    promised. Costs nothing.
    """
    from dpmcmc import load
    from dpmcmc import report as write

    page = file.with_suffix(".html") if out is None else out
    with refusals(OSError):
        write(load(file), page, file.stem if title is None else title)
    say(f"Written to {page}.")


@main.callback(invoke_without_command=True)
def _commands(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Differentially private Markov chain Monte Carlo."""
    if version:
        typer.echo(__version__)
        raise typer.Exit
