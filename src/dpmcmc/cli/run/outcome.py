"""The run itself, and what is printed of it."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer

from dpmcmc.accounting.statement import ATTRIBUTE, TITLE, Statement
from dpmcmc.cli.options import refusals, say
from dpmcmc.cli.problems import ModelName
from dpmcmc.cli.run.checks import UNREADABLE
from dpmcmc.cli.run.plan import of_each, plain
from dpmcmc.cli.run.study import Study
from dpmcmc.recipes import SamplerName

DETAILS = f"{TITLE} (the promise is above)"


def _arguments(study: Study, out: Path | None, plan: list[str]) -> tuple[tuple, dict[str, Any]]:
    """What `sample` is called with."""
    import jax
    import numpy as np

    problem = study.problem
    # How the parameters are to be read, and the plan: the file may be opened by somebody else.
    texts = {"parameters": "; ".join(problem.notes), "plan": "\n".join(plan)}
    if problem.reading:
        texts["reading"] = problem.reading
    options = {
        "num_steps": study.num_steps,
        "num_chains": study.num_chains,
        "thin": study.thin,
        "warmup": study.warmup,
        "start": study.recipe.start,
        "path": out,
        "attributes": {name: plain(text) for name, text in texts.items()},
        "units": {name: plain(unit) for name, unit in problem.units.items()},
    }
    key = jax.random.key(study.sampler.seed)
    position = np.asarray(problem.start, np.float32)
    return (key, study.recipe.sampler, study.curator, position), options


def end_dry_run(study: Study, out: Path, plan: list[str], is_writable: bool) -> None:
    """Prepare the run as far as it goes without the budget: what it would be refused for, and its
    notes.
    """
    import jax

    import dpmcmc
    from dpmcmc.finding import in_words

    with refusals(*UNREADABLE):
        if (preview := study.recipe.preview) is not None:
            key = jax.random.key(study.sampler.seed)
            rest = preview.rehearsed(study.recipe, key, study.curator, study.problem.start)
            study = replace(study, recipe=rest)
        arguments, options = _arguments(study, out if is_writable else None, plan)
        found = dpmcmc.plan(*arguments, **options).findings
    if found:
        say(in_words(found))
    refused = "" if is_writable else " The run itself would be refused."
    say(f"Nothing is spent: this was a dry run.{refused}")
    if not is_writable:
        raise typer.Exit(2)


def draw(study: Study, out: Path, plan: list[str]) -> Any:
    """Run the sampler, and say what is spent and kept if it breaks off."""
    from dpmcmc import RunFailed, sample

    arguments, options = _arguments(study, out, plan)
    curator = study.curator
    before = curator.num_grants
    try:
        with refusals(*UNREADABLE):
            # What was found is printed once, below.
            checks = study.problem.checks
            return sample(*arguments, **options, progress="bar", checks=checks)
    except KeyboardInterrupt:
        cost = "the budget is spent, and there are no draws"
        if curator.num_grants == before:
            is_counted = study.recipe.counting is not None
            cost = "nothing but the count was spent" if is_counted else "nothing was spent"
        typer.echo(f"Interrupted: {cost}.", err=True)
        raise typer.Exit(130) from None
    except RunFailed as error:
        typer.echo(f"failed: {error.__cause__ or error}", err=True)
        left = "there are no draws"
        if error.posterior is not None:
            left = f"finished draws are in {kept(error.posterior, out)}"
        typer.echo(f"The budget is spent; {left}.", err=True)
        raise typer.Exit(1) from error


def num_kept(result: Any) -> int:
    """Draws of a chain, warm-up included."""
    return sum(
        result[group].sizes["draw"]
        for group in ("posterior", "warmup_posterior")
        if group in result.groups()
    )


def kept(result: Any, out: Path) -> str:
    """Where the draws are: if they cannot be written where they should be, among temporary files,
    or on the screen.
    """
    from dpmcmc import findings, save, statement_of, summary
    from dpmcmc.finding import in_words

    for folder in (lambda: out.parent, lambda: Path(tempfile.mkdtemp(prefix="dpmcmc-"))):
        with suppress(Exception):
            path = folder() / out.name
            save(result, path)
            return str(path)
    say(f"\n{summary(result)}\n\n{in_words(findings(result))}\n\n{statement_of(result)}\n")
    return "no file: this summary is all that is left of them"


def print_outcome(result: Any, study: Study, out: Path) -> bool:
    """Print what came of a run. Returns whether its draws may be relied on."""
    from dpmcmc import findings, summary
    from dpmcmc.finding import in_words

    found = findings(result)
    is_reliable = not any(finding.is_severe for finding in found)
    say()
    statement = Statement.from_json(json.loads(result.posterior.attrs[ATTRIBUTE]))
    for line in statement.promise():
        say(line)
    for line in _sentences(study, num_kept(result), len(found), is_reliable):
        say(line)
    say(f"\n{summary(result)}\n")
    if study.problem.reading:
        say(f"{study.problem.reading}\n")
    if found:
        say(f"{in_words(found)}\n")
    if not is_reliable:
        say(f"{_what_would_help(study)}\n")
    say(DETAILS)
    for line in statement.details():
        say(f"  {line}")
    say(
        f"\nWritten to {out}. Look at it with `dpmcmc report {out}`, read it with dpmcmc.load or "
        "ArviZ."
    )
    if study.promise.ledger is None:
        say(
            "To share one budget among runs give all of them --ledger FILE, and --part 1/3 or so "
            "to noise-aware ones, --shared-by to others."
        )
    return is_reliable


def _sentences(study: Study, num_draws: int, num_findings: int, is_reliable: bool) -> Iterator[str]:
    """What there is and what is doubtful, in plain sentences."""
    yield f"Found:     {num_draws} draws {of_each(study.num_chains)}, warm-up included."
    if not is_reliable:
        yield "Doubtful:  these draws fail a check. The reasons stand below the table."
    elif num_findings:
        yield "Doubtful:  no check has failed; remarks stand below the table."
    else:
        yield "Doubtful:  nothing that the checks can find."


def _what_would_help(study: Study) -> str:
    """What to try where the draws are not to be relied on."""
    model = study.table.model
    more = "More" if study.sampler.steps is None else "More --steps, more"
    of_label = ", above all those of the label," if model is ModelName.linear else ""
    options = "--decimal and --levels"
    if model is ModelName.logistic:
        options = "--decimal, --levels, --positive and --negative"
    return (
        f"{more} rows, a larger budget, narrower --bounds{of_label} or fewer parameters would "
        "help. If you expected more from "
        "these rows: columns or labels that could not be read (decimal commas, text, another "
        "spelling) have the same effect. "
        f"See above how cells are read, and {options}."
    )


def print_what_is_left(study: Study) -> None:
    """Print what a shared budget has left."""
    curator = study.curator
    ledger = study.promise.ledger
    if study.promise.shared_by is not None:
        left = curator.max_steps(study.recipe.initial, study.per_step)
        say(f"Left in {ledger}: {left} more such steps {of_each(study.num_chains)}.")
    elif study.recipe.name is SamplerName.noise_aware and ledger is not None:
        say(f"Left in {ledger}: {curator.share_left:.1%} of the budget.")
