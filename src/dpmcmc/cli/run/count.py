"""The count of rows that comes first, and the run that stops after it."""

from __future__ import annotations

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
    import jax

    curator = study.curator
    counting = study.recipe.counting
    before = curator.num_grants
    with refusals(*UNREADABLE):
        try:
            found = counting.take(jax.random.key(study.sampler.seed), curator, study.problem.start)
        except KeyboardInterrupt:
            cost = (
                "nothing was spent"
                if curator.num_grants == before
                else "the count is spent, and nothing else"
            )
            typer.echo(f"Interrupted: {cost}.", err=True)
            raise typer.Exit(130) from None
        except Exception as error:
            if curator.num_grants == before:
                raise
            typer.echo(f"failed: {error}\nThe count is spent, and nothing else.", err=True)
            raise typer.Exit(1) from error
    line = f"Counted:  {found}"
    say(line)
    if not found.is_enough:
        typer.echo(_why_stopped(found, study), err=True)
        raise typer.Exit(STOPPED)
    return line


def _why_stopped(found: Any, study: Study) -> str:
    from dpmcmc import recipes

    curator = study.curator
    ledger = study.promise.ledger
    of_label = (
        "labels in another spelling than --positive and --negative; "
        if found.counting.names
        else ""
    )
    cost = f"The count has cost {COUNT_SHARE * study.recipe.part:.1%} of the budget"
    worth = recipes.part_of(curator.budget, curator.share_left).epsilon
    rest = (
        f"{curator.share_left:.1%} are left in {ledger}, worth epsilon = {worth:.4g} by "
        "themselves: correct the options, and give "
        "the command again with this --ledger"
        if ledger is not None
        else "the rest is unspent. Without --ledger nobody remembers this: the epsilon of a "
        "further run adds to that of the count, "
        f"{found.statement.second_epsilon:.3g}"
    )
    return (
        f"Stopped: that is {found.counting.rule()}. The posterior would be made of next to "
        "nothing.\n"
        f"Probably something cannot be read as it was declared: {of_label}--levels in another "
        "spelling; decimal commas "
        "(--decimal); a column of dates or text among the --bounds; another --delimiter.\n"
        f"{cost}; {rest}.\n"
        "If so few rows were to be expected, leave the count out with --no-count."
    )
