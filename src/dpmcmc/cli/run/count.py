"""What is released first, a count and a forecast, and the run that stops after it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import typer

from dpmcmc.cli.options import refusals, say
from dpmcmc.cli.run.checks import UNREADABLE
from dpmcmc.cli.run.study import Study
from dpmcmc.recipes import COUNT_SHARE

STOPPED = 4  # the exit code of a run that was stopped by its count


def take_count(study: Study) -> str:
    """Take the count and say what it has found.

    Stops a run that would spend its budget on nothing.
    """
    found = _taken(study, study.recipe.counting, "the count")
    line = f"Counted:  {found}"
    say(line)
    if not found.is_enough:
        typer.echo(_why_stopped(found, study), err=True)
        raise typer.Exit(STOPPED)
    return line


def take_preview(study: Study) -> tuple[Study, str]:
    """Take what is released first, and say what to expect of each parameter.

    Stops a run whose posterior would be too wide to be useful. Returns the study of the rest.
    """
    found = _taken(study, study.recipe.preview, "what comes first")
    line = f"Expected: times as wide as without privacy: {found}"
    say(line)
    if found.is_hopeless and study.sampler.sampler is None:
        typer.echo(
            f"Stopped: {found.worst} would be {found.widest:.2g} times as wide as without "
            "privacy, which is too wide to be useful. More rows, a larger budget or tighter "
            f"--bounds would help.\n{_what_is_left(study, found, 'what was released')}.\n"
            "To spend the budget all the same, name the --sampler.",
            err=True,
        )
        raise typer.Exit(STOPPED)
    return replace(study, recipe=found.rest_of(study.recipe)), line


def _taken(study: Study, part: Any, name: str) -> Any:
    """The answer to a part of the run that is granted by itself."""
    import jax

    curator = study.curator
    before = curator.num_grants
    with refusals(*UNREADABLE):
        try:
            return part.take(jax.random.key(study.sampler.seed), curator, study.problem.start)
        except KeyboardInterrupt:
            cost = (
                "nothing was spent"
                if curator.num_grants == before
                else f"{name} is spent, and nothing else"
            )
            typer.echo(f"Interrupted: {cost}.", err=True)
            raise typer.Exit(130) from None
        except Exception as error:
            if curator.num_grants == before:
                raise
            typer.echo(
                f"failed: {error}\n{name.capitalize()} is spent, and nothing else.", err=True
            )
            raise typer.Exit(1) from error


def _why_stopped(found: Any, study: Study) -> str:
    of_label = (
        "labels in another spelling than --positive and --negative; "
        if found.counting.names
        else ""
    )
    return (
        f"Stopped: that is {found.counting.rule()}. The posterior would be made of next to "
        "nothing.\n"
        f"Probably something cannot be read as it was declared: {of_label}--levels in another "
        "spelling; decimal commas "
        "(--decimal); a column of dates or text among the --bounds; another --delimiter.\n"
        f"The count has cost {COUNT_SHARE * study.recipe.part:.1%} of the budget; "
        f"{_what_is_left(study, found, 'the count')}.\n"
        "If so few rows were to be expected, leave the count out with --no-count."
    )


def _what_is_left(study: Study, found: Any, name: str) -> str:
    """What a run that has stopped leaves for others."""
    from dpmcmc import recipes

    curator = study.curator
    ledger = study.promise.ledger
    if ledger is None:
        return (
            "the rest is unspent. Without --ledger nobody remembers this: the epsilon of a "
            f"further run adds to that of {name}, "
            f"{found.statement.second_epsilon:.3g}"
        )
    return (
        f"{curator.share_left:.1%} are left in {ledger}, worth epsilon = "
        f"{recipes.worth_left(curator):.4g} by themselves: correct the options, and give the "
        "command again with this --ledger"
    )
