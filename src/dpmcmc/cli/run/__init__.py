"""`dpmcmc run`: the posterior of a built-in model from a table in a file, within a privacy budget.

    dpmcmc run logistic table.csv --features age,education --label y --bounds
    age=21:64,education=6:20 --epsilon 4 --delta 1e-6

A table in a CSV file has a first line that names the columns, then one line per row. A line break
inside quotes belongs to its cell if the file is a well-formed export, which the statement assumes.
Bounds are declared, not computed from the table: every cell is moved into its bounds, and a row
with a missing or unreadable one is ignored. Features of a regression are scaled so that the
bounds become -1 and 1, levels of text become corners of a simplex, columns of a Gaussian are scaled
by their standard deviation: this makes the clip of the model a proved one. What is reported is in
the units of the table. Step size, longest move and noise follow from public facts
(`dpmcmc.recipes`) unless given. Regressions and Gaussian means take the posterior given a few noisy
gradients and Hessians, which makes the best use of a budget (several runs share one by --part); the
other models, and all with settings of your own, take Barker's accept bit.

Before a noise-aware run a hundredth of its budget is spent on a count of the rows that can be used:
if hardly any can be used, or one of the labels does not occur, the run stops with the rest unspent.
Of a logistic regression a tenth is spent next, on what to expect of each parameter: if one would be
too wide to be useful, the run stops there.

Exit codes: 0 done; 1 broke off after the budget was spent; 2 refused, nothing spent (but a count,
if there was one); 3 done, and DO NOT RELY on the draws; 4 stopped after the count or the forecast,
the rest unspent; 130 interrupted.
"""

from __future__ import annotations

import contextlib
import threading

import typer

from dpmcmc.cli.options import refusals, say
from dpmcmc.cli.run.checks import UNREADABLE, writable_or_refuse
from dpmcmc.cli.run.count import take_count, take_preview
from dpmcmc.cli.run.options import (
    MAX_SEED,
    ModelOptions,
    OutputOptions,
    PromiseOptions,
    SamplerOptions,
    TableOptions,
    flat,
)
from dpmcmc.cli.run.outcome import draw, end_dry_run, num_kept, print_outcome, print_what_is_left
from dpmcmc.cli.run.plan import by_hand_note, plan_of
from dpmcmc.cli.run.study import study_of

__all__ = ["MAX_SEED", "run"]


@flat
def run(
    table: TableOptions,
    promise: PromiseOptions,
    model: ModelOptions,
    sampler: SamplerOptions,
    output: OutputOptions,
) -> None:
    """Draw from the posterior of a built-in model, with differential privacy for the rows of a
    table.
    """
    threading.Thread(target=_import_arviz, daemon=True).start()
    with refusals(*UNREADABLE):
        is_writable = writable_or_refuse(output.out, promise.ledger, output.dry_run)
        study = study_of(table, promise, model, sampler)
        if (note := by_hand_note(study)) is not None:
            say(note)
        plan = plan_of(study)
        for line in plan:
            say(line)
    if output.dry_run:
        end_dry_run(study, output.out, plan, is_writable)
        return
    if study.recipe.counting is not None:
        plan.append(take_count(study))
    if study.recipe.preview is not None:
        study, line = take_preview(study)
        plan.append(line)
    result = draw(study, output.out, plan)
    is_reliable = print_outcome(result, study, output.out)
    print_what_is_left(study)
    if num_kept(result) * study.thin < study.num_steps:
        raise typer.Exit(130)
    if not is_reliable:
        raise typer.Exit(3)


def _import_arviz() -> None:
    """Import ArviZ, which takes seconds, while the table is read and programs are compiled.

    Where it fails, it fails again when ArviZ is needed, with a message.
    """
    from dpmcmc.results.arviz import arviz_library

    with contextlib.suppress(Exception):
        arviz_library()
