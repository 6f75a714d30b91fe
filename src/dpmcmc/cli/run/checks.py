"""What is refused before anything is spent."""

from __future__ import annotations

import json
import tempfile
import warnings
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from dpmcmc.accounting.statement import LargeDelta
from dpmcmc.cli.problems import Settings
from dpmcmc.cli.run.options import PromiseOptions, SharedBy
from dpmcmc.recipes import Recipe, SamplerName

# What tables and settings may be, besides out of range
UNREADABLE = TypeError, OSError, EOFError, zlib.error
LEAST_PART = 0.01  # of a budget: what rounding leaves of one that is used up is less
ROUNDING = 1e-6  # of a budget: three thirds fit


def writable_or_refuse(out: Path, ledger: Path | None, is_dry: bool) -> bool:
    """Whether the run could write its files; a dry run goes on if not: there may be more to say."""
    reasons = list(why_not_writable(out, ledger))
    if reasons and not is_dry:
        raise ValueError(reasons[0])
    for why in reasons:
        typer.echo(f"refused: {why}", err=True)
    return not reasons


def check_promise(promise: PromiseOptions) -> None:
    """Refuse options that need others."""
    if promise.shared_by is not None and promise.ledger is None:
        raise ValueError(
            f"--shared-by {promise.shared_by.value} needs --ledger FILE: the runs share what is "
            "left in it"
        )
    if promise.part is not None and promise.ledger is None:
        raise ValueError(
            f"--part {promise.part} needs --ledger FILE: the other parts are left in it"
        )
    if not promise.budget.unit.is_count_public and promise.capacity is None:
        raise ValueError(
            "the number of rows is private here: declare --capacity, a public bound on it (of "
            "persons, times rows)"
        )


def check_steps_are_given(shared_by: SharedBy | None, steps: int | None, fits: int) -> None:
    """Refuse a run that would leave nothing to those that it shares a budget with."""
    if shared_by is not None and steps is None:
        raise ValueError(
            "--shared-by needs --steps: without, this run would take all that is left, "
            f"{fits} steps"
        )


def why_not_writable(out: Path, ledger: Path | None) -> Iterator[str]:
    """Why the run could not write its files, and what to do about each."""
    from dpmcmc.results.files import why_not_new

    if why := why_not_new(out):
        yield f"--out {out} {why}"
    if ledger is not None and ledger.resolve() == out.resolve():
        yield (
            f"--out and --ledger are both {out}: the posterior would replace what is kept of the "
            "grants"
        )
    elif out.suffix.lower() != ".nc":
        yield f"--out {out} must end in .nc: the posterior is a NetCDF file"
    for option, file in {"--out": out, "--ledger": ledger}.items():
        if file is None or not file.absolute().parent.is_dir():
            continue
        try:
            tempfile.TemporaryFile(dir=file.absolute().parent).close()
        except OSError as error:
            yield (
                f"{option} {file} cannot be written ({error.strerror}): name a file in another "
                "folder"
            )


def filter_name(
    name: SamplerName,
    shared_by: SharedBy | None,
    part: str | None,
    ledger: Path | None,
) -> str | None:
    """How the budget is shared.

    A run after a count depends on its answer, so that both need a filter; for Gaussian queries
    alone a filter costs nothing, and one more that ends with a radial release next to nothing.
    """
    if name is SamplerName.noise_aware and shared_by is not None:
        raise ValueError(
            "noise-aware shares a budget by parts: leave --shared-by out and give --part, as in "
            "--part 1/3, or choose another "
            "--sampler"
        )
    if name is not SamplerName.noise_aware and part is not None:
        raise ValueError(
            f"{name.value} takes steps and no --part: give --shared-by and --steps, or choose "
            "--sampler noise-aware"
        )
    if name is SamplerName.noise_aware:
        by_parts = SharedBy.gaussian_dp.value
        if part is not None or _shared_by_of(ledger) == by_parts:
            return by_parts
        return SharedBy.gaussian_then_radial.value
    return None if shared_by is None else shared_by.value


def _shared_by_of(ledger: Path | None) -> str | None:
    """How the runs before share the budget; a file that cannot be read is refused later."""
    if ledger is None or not ledger.is_file():
        return None
    try:
        return json.loads(ledger.read_text())["facts"]["shared_by"]
    except (ValueError, KeyError, TypeError, OSError):
        return None


def part_taken(curator: Any, part: str | None, ledger: Path | None) -> float:
    """Which part of the whole budget this run takes."""
    left = curator.share_left
    taken = left if part is None else _fraction(part)
    if taken > left + ROUNDING or left < LEAST_PART:
        wanted = "a further run" if part is None else f"one of {part}"
        raise ValueError(
            f"{left:.1%} of the budget is left in {ledger}: {wanted} would be beyond the promise. "
            "Runs that share a budget say so "
            "from the first one on, with a --part each"
        )
    return min(taken, left)


def _fraction(text: str) -> float:
    from fractions import Fraction

    try:
        found = float(Fraction(text))
    except (ValueError, ZeroDivisionError):
        found = 0.0
    if not 0 < found <= 1:
        raise ValueError(
            f"--part {text} must be above 0 and at most 1, as in --part 1/3 or --part 0.3"
        )
    return found


def check_open(curator: Any, ledger: Path | None) -> None:
    from dpmcmc import BudgetExceeded

    try:
        curator.check({})
    except BudgetExceeded as refusal:
        raise ValueError(
            f"the budget in {ledger} went to one run and is closed: a further run would be beyond "
            "the promise. Runs that share a "
            "budget say so from the first one on, with --shared-by zcdp (gaussian-dp for sgld and "
            "penalty) and some --steps each"
        ) from refusal


def cautions(warned: list[warnings.WarningMessage]) -> list[str]:
    """The curator's warnings of a large delta, for the plan; all others are shown as usual."""
    of_delta = []
    for warning in warned:
        if issubclass(warning.category, LargeDelta):
            of_delta.append(str(warning.message))
        else:
            warnings.showwarning(
                warning.message, warning.category, warning.filename, warning.lineno
            )
    return of_delta


def persons(
    table: Path, column: str | None, delimiter: str, settings: Settings, budget: Any
) -> Any:
    """Whose row each is."""
    from dpmcmc.tables import persons as persons_of
    from dpmcmc.tables import read_columns

    if column is None:
        return None
    if budget.unit.is_count_public:
        raise ValueError(
            f"--person {column} leaves rows out, and their number is public here: say how many of "
            "each to use, with "
            "--rows-per-person, or --neighbours add-remove"
        )
    known = settings.columns[0]  # it exists: so the error of a misspelled name lists the names
    return persons_of(read_columns(table, (column, known), delimiter)[column])


def thin_that_divides(wanted: int, steps: int | None) -> int:
    """As wanted, or the next smaller one that divides the steps."""
    return (
        wanted if steps is None else max(thin for thin in range(1, wanted + 1) if steps % thin == 0)
    )


def num_steps(curator: Any, recipe: Recipe, steps: int | None, chains: int, thin: int) -> int:
    from dpmcmc.run.plan import check_fits

    for name, value in (("--chains", chains), ("--thin", thin)):
        if value < 1:
            raise ValueError(f"{name} {value} must be at least 1")
    per_step = recipe.per_step(chains)
    steps = recipe.num_steps if steps is None else steps
    if steps is not None and (steps < 1 or steps % thin):
        raise ValueError(f"--steps {steps} must be positive, and a multiple of --thin {thin}")
    if steps is not None:
        check_fits(curator, recipe.plan(steps, chains), recipe.once, per_step, chains)
        return steps
    fits = curator.max_steps(recipe.initial, per_step)
    if fits < thin:
        raise ValueError(
            f"{curator.what_is_left()} allows {fits} steps of {chains} chains: "
            "use fewer chains, shorter moves, more noise, or a larger budget"
        )
    return fits - fits % thin


def floats(option: str, text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise ValueError(f"{option} {text} must be numbers, by commas") from None
