"""`dpmcmc run`: the posterior of a built-in model from a table in a file, within a privacy budget.

    dpmcmc run logistic table.csv --features age,education --label y --bounds
    age=21:64,education=6:20 --epsilon 4 --delta 1e-6

A table in a CSV file has a first line that names the columns, then one line per row. A line break
inside quotes belongs to its cell if the file is a well-formed export, which the statement assumes.
Bounds are declared, not computed from the table: every cell is moved into its bounds, and a row
with a missing or unreadable one says nothing. Features of a regression are scaled so that the
bounds become -1 and 1, levels of text become corners of a simplex, columns of a Gaussian are scaled
by their standard deviation: this makes the clip of the model a proved one. What is reported is in
the units of the table. Step size, longest move and noise follow from public facts (`dpmcmc.tuning`)
unless given. Regressions and Gaussian means take the posterior given a few noisy looks at the rows,
which gets furthest (several runs share a budget by --part); the others, and all with settings of
your own, Barker's accept bit.

Before a noise-aware run a hundredth of its budget is spent on a count of the rows that can be used:
where these are next to none, or a label is missing, the run stops with the rest unspent.

Exit codes: 0 done; 1 broke off after the budget was spent; 2 refused, nothing spent (but a count,
if there was one); 3 done, and DO NOT RELY on the draws; 4 stopped after the count, the rest
unspent; 130 interrupted.
"""

from __future__ import annotations

import enum
import functools
import tempfile
import warnings
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from dpmcmc.cli import choices
from dpmcmc.cli.choices import ByHand, Chosen, SamplerName
from dpmcmc.cli.options import Relation, refusals, say
from dpmcmc.cli.problems import (
    PRIOR_SCALES,
    REGRESSIONS,
    ModelName,
    Problem,
    Settings,
    problem_of,
    rows_of,
)

# What tables and settings may be, besides out of range
UNREADABLE = TypeError, OSError, EOFError, zlib.error
FAR = "is more than rows can be seen through: more of them, a larger budget or tighter --bounds would help"
LEAST_PART = 0.01  # of a budget: what rounding leaves of one that is used up is less
ROUNDING = 1e-6  # of a budget: three thirds fit
STOPPED = 4  # the exit code of a run that was stopped by its count
LARGE_EPSILON = 10.0  # above, a promise protects hardly anything
MAX_SEED = 2**32 - 1  # JAX takes a larger one modulo 2^32, or not at all


class SharedBy(enum.StrEnum):
    gaussian_dp = "gaussian-dp"
    zcdp = "zcdp"
    renyi = "renyi"


TABLE, PROMISE, MODEL, SAMPLER = (
    "The table",
    "The promise",
    "The model",
    "The sampler (by default from public facts)",
)


def _option(panel: str, text: str, *names: str, **options: Any) -> Any:
    return typer.Option(*names, help=text, rich_help_panel=panel, **options)


def run(
    model: Annotated[ModelName, typer.Argument(help="What a row says about the parameters.")],
    table: Annotated[
        Path,
        typer.Argument(
            help="A .csv or .tsv file (one line per row), also .gz, or a .npy or .npz file.",
            exists=True,
            dir_okay=False,
        ),
    ],
    epsilon: Annotated[float, _option(PROMISE, "The privacy budget.")],
    delta: Annotated[float, _option(PROMISE, "The probability of failure, well below 1/n.")],
    bounds: Annotated[
        str,
        _option(
            TABLE,
            "Public bounds of every column of numbers or dates: NAME=LOW:HIGH,... with dates such "
            "as 2021-03-04.",
        ),
    ] = "",
    levels: Annotated[
        str,
        _option(
            TABLE,
            "Regressions: public values of every column of text, each against the first: "
            "NAME=ONE/TWO/...,... "
            "Put a name or value with one of , = / in double quotes, here and in --bounds and "
            "--features, and "
            "double a quote in it.",
        ),
    ] = "",
    features: Annotated[
        str | None,
        _option(
            TABLE,
            "Columns, by commas; by default those with bounds or levels.",
            "--features",
            "--columns",
        ),
    ] = None,
    label: Annotated[str | None, _option(TABLE, "Regressions: the column to explain.")] = None,
    positive: Annotated[
        str | None, _option(TABLE, "Logistic: the label that counts as 1; by default 1, or true.")
    ] = None,
    negative: Annotated[
        str | None, _option(TABLE, "Logistic: the label that counts as 0; by default 0, or false.")
    ] = None,
    delimiter: Annotated[
        str | None,
        _option(
            TABLE, "Between the cells of a CSV file; by default a comma, of a .tsv file a tab."
        ),
    ] = None,
    decimal: Annotated[
        str, _option(TABLE, "What numbers in a CSV file have before their fraction: . or ,")
    ] = ".",
    neighbours: Annotated[
        Relation,
        _option(
            PROMISE,
            "What is protected: a row's values, or its presence (and its values at twice epsilon).",
        ),
    ] = Relation.REPLACE,
    rows_per_person: Annotated[
        int,
        _option(
            PROMISE,
            "Protect persons that have up to so many rows each: visits, purchases. Needs "
            "--capacity.",
            min=1,
        ),
    ] = 1,
    person: Annotated[
        str | None,
        _option(
            PROMISE,
            "The column that tells whose row it is: only the first --rows-per-person of each are "
            "used.",
        ),
    ] = None,
    capacity: Annotated[
        int | None,
        _option(
            PROMISE,
            "Where the number of rows is private (add-remove, several rows per person): a bound "
            "on it.",
        ),
    ] = None,
    ledger: Annotated[
        Path | None, _option(PROMISE, "A file that remembers what was spent on this table.")
    ] = None,
    shared_by: Annotated[
        SharedBy | None,
        _option(
            PROMISE,
            "With --ledger, from the first run on: let several runs of some --steps share the "
            "budget.",
        ),
    ] = None,
    part: Annotated[
        str | None,
        _option(
            PROMISE,
            "With --ledger, noise-aware: this part of the whole budget, as 1/3 or 0.3; by default "
            "all that is left.",
        ),
    ] = None,
    count: Annotated[
        bool,
        _option(
            PROMISE,
            "Noise-aware: first count the rows that can be used, for 1 % of the budget.",
            "--count/--no-count",
        ),
    ] = True,
    intercept: Annotated[bool, _option(MODEL, "Regressions: with an intercept.")] = True,
    prior_scale: Annotated[
        float | None,
        _option(
            MODEL,
            "Standard deviation of the prior, by default 1, linear 10; the plan shows its units.",
        ),
    ] = None,
    variances: Annotated[
        str | None,
        _option(MODEL, "Gaussian, banana, mixture: known variances, in the table's units."),
    ] = None,
    curvature: Annotated[float | None, _option(MODEL, "Banana: of the parabola.")] = None,
    sharpness: Annotated[
        float | None, _option(MODEL, "Circle: how sharply a row tells the distance.")
    ] = None,
    position_bound: Annotated[
        float | None, _option(MODEL, "Mixture: half the side of the prior's square.")
    ] = None,
    sampler: Annotated[
        SamplerName | None,
        _option(
            SAMPLER,
            "What is released; by default noise-aware where bounds are proved (sgld with "
            "--shared-by), else barker.",
        ),
    ] = None,
    kappa: Annotated[
        float, _option(SAMPLER, "Lazy Barker: the chance that the rows are looked at.")
    ] = 0.5,
    steps: Annotated[
        int | None,
        _option(
            SAMPLER,
            "Per chain; by default all that the budget allows (noise-aware, whose steps are free: "
            "1000).",
        ),
    ] = None,
    chains: Annotated[int, _option(SAMPLER, "They share the budget.")] = 2,
    thin: Annotated[
        int | None,
        _option(
            SAMPLER,
            "Keep every thin-th step; by default every one, of sgld so many that some 2000 draws "
            "per chain are left.",
        ),
    ] = None,
    warmup: Annotated[
        float | None,
        _option(
            SAMPLER,
            "Share of the draws kept apart as warm-up; by default 0.5, of sgld and noise-aware "
            "0.1.",
        ),
    ] = None,
    clip: Annotated[
        float | None,
        _option(SAMPLER, "Bound on a row's log-ratio per unit of move; by default the proved one."),
    ] = None,
    step_size: Annotated[
        float | None, _option(SAMPLER, "Standard deviation of a move, in each component.")
    ] = None,
    max_move: Annotated[float | None, _option(SAMPLER, "The longest move.")] = None,
    noise_multiplier: Annotated[
        float | None, _option(SAMPLER, "Penalty: noise over range of the log-ratio.")
    ] = None,
    seed: Annotated[
        int,
        _option(
            SAMPLER, "Of the chains; the privacy noise never comes from it.", min=0, max=MAX_SEED
        ),
    ] = 0,
    out: Annotated[Path, typer.Option(help="The posterior, as NetCDF for ArviZ.")] = Path(
        "posterior.nc"
    ),
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Tell the plan and stop: nothing is spent.")
    ] = False,
) -> None:
    """Draw from the posterior of a built-in model, with differential privacy for the rows of a
    table.
    """
    with refusals(*UNREADABLE):
        from dpmcmc import Budget, Curator
        from dpmcmc.tables.declared import parse_bounds, parse_levels, parse_names
        from dpmcmc.tables.files import delimiter_of

        not_writable = list(_why_not_writable(out, ledger))
        if not_writable and not dry_run:
            raise ValueError(not_writable[0])
        for why in not_writable:  # a dry run goes on: there may be more to say
            typer.echo(f"refused: {why}", err=True)
        if shared_by is not None and ledger is None:
            raise ValueError(
                f"--shared-by {shared_by.value} needs --ledger FILE: the runs share what is left "
                "in it"
            )
        if part is not None and ledger is None:
            raise ValueError(f"--part {part} needs --ledger FILE: the other parts are left in it")
        budget = Budget(epsilon, delta, neighbours.neighbours, rows_per_person)
        if not budget.unit.is_count_public and capacity is None:
            raise ValueError(
                "the number of rows is private here: declare --capacity, a public bound on it (of "
                "persons, times rows)"
            )
        limits = parse_bounds(bounds)
        values = parse_levels(levels)
        named = dict.fromkeys([*limits, *values])
        settings = Settings(
            parse_names(features)
            if features is not None
            else tuple(name for name in named if name != label),
            label,
            positive,
            limits,
            values,
            intercept,
            PRIOR_SCALES.get(model, 1.0) if prior_scale is None else prior_scale,
            None if variances is None else _floats("--variances", variances),
            curvature,
            sharpness,
            position_bound,
            negative,
        )
        delimiter = delimiter_of(table) if delimiter is None else delimiter.replace("\\t", "\t")
        problem = problem_of(model, settings)
        by_hand = ByHand(clip, step_size, max_move, noise_multiplier)
        name = choices.name_of(sampler, problem, by_hand, shared_by is not None)
        filter_name = _filter_name(name, shared_by, part)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "delta = .* is above")  # the plan says it
            curator = Curator(
                rows_of(model, table, delimiter, decimal, settings), problem.model, budget, capacity=capacity,
                persons=_persons(table, person, delimiter, settings, budget), ledger=ledger, shared_by=filter_name,
            )  # fmt: skip
        _check_open(curator, ledger)
        taken = _taken(curator, part, ledger) if name is SamplerName.noise_aware else 1.0
        chosen = choices.choose(
            name, sampler is not None, problem, curator, chains, by_hand, kappa, taken, count
        )
        thin = _thin(chosen.thin, steps) if thin is None else thin
        warmup = chosen.warmup if warmup is None else warmup
        num_steps = _num_steps(curator, chosen, steps, chains, thin)
        if shared_by is not None and steps is None:
            raise ValueError(
                "--shared-by needs --steps: without, this run would take all that is left, "
                f"{num_steps} steps"
            )
        if by_hand.given and sampler is None:
            say(
                f"Settings of your own ({', '.join(by_hand.given)}) are for accept bits: "
                f"{chosen.name.value} is used."
            )
        is_automatic = (
            problem.is_round and not set(by_hand.given) - {"--clip"} and chosen.query is not None
        )
        draws = (
            choices.draws_worth(curator, chosen, problem, num_steps * chains, kappa)
            if is_automatic
            else None
        )
        lines = _plan_lines(
            model, table, settings, problem, curator, chosen, num_steps, chains, draws, person
        )
        plan = [_plain(line) for line in lines]
        plan.append(
            f"Chains:   keep 1 of {thin} steps, and {warmup:.0%} of these apart as warm-up; seed "
            f"{seed}"
        )
        for line in plan:
            say(line)
    run_of = functools.partial(
        _arguments, curator, chosen, problem, seed, num_steps, chains, thin, warmup, out
    )
    if dry_run:
        arguments, options = run_of(plan)
        _end_dry_run(
            arguments,
            options if not not_writable else {**options, "path": None},
            bool(not_writable),
        )
        return
    if chosen.counting is not None:
        plan.append(_count(curator, chosen, problem, seed, ledger))
    result = _sample(curator, chosen, problem, *run_of(plan))
    is_reliable = _report(result, model, problem, out, ledger, steps)
    if shared_by is not None:
        left = curator.max_steps(chosen.initial, chosen.per_step(chains))
        say(f"Left in {ledger}: {left} more such steps {_of_each(chains)}.")
    elif chosen.name is SamplerName.noise_aware and ledger is not None:
        say(f"Left in {ledger}: {curator.share_left:.1%} of the budget.")
    if _num_kept(result) * thin < num_steps:
        raise typer.Exit(130)
    if not is_reliable:
        raise typer.Exit(3)


def _persons(
    table: Path, column: str | None, delimiter: str, settings: Settings, budget: Any
) -> Any:
    """Whose row each is."""
    from dpmcmc.tables import persons, read_columns

    if column is None:
        return None
    if budget.unit.is_count_public:
        raise ValueError(
            f"--person {column} leaves rows out, and their number is public here: say how many of "
            "each to use, with "
            "--rows-per-person, or --neighbours add-remove"
        )
    known = settings.columns[0]  # was found: so a misspelled name is told what there is
    return persons(read_columns(table, (column, known), delimiter)[column])


def _why_not_writable(out: Path, ledger: Path | None) -> Iterator[str]:
    """Why the run could not write its files, and what to do about each."""
    from dpmcmc.results.files import why_not_new

    if why := why_not_new(out):
        yield f"--out {out} {why}"
    if ledger is not None and ledger.resolve() == out.resolve():
        yield f"--out and --ledger are both {out}: the posterior would replace what is kept of the spends"
    elif out.suffix.lower() != ".nc":
        yield f"--out {out} must end in .nc: the posterior is a NetCDF file"
    for option, file in {"--out": out, "--ledger": ledger}.items():
        if file is None or not file.absolute().parent.is_dir():
            continue
        try:
            tempfile.TemporaryFile(dir=file.absolute().parent).close()
        except OSError as error:
            yield f"{option} {file} cannot be written ({error.strerror}): name a file in another folder"


def _filter_name(name: SamplerName, shared_by: SharedBy | None, part: str | None) -> str | None:
    """How the budget is shared.

    A run after a count is chosen with a look at it; all Gaussian, it loses nothing by a filter.
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
        return SharedBy.gaussian_dp.value
    return None if shared_by is None else shared_by.value


def _taken(curator: Any, part: str | None, ledger: Path | None) -> float:
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


def _check_open(curator: Any, ledger: Path | None) -> None:
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


def _thin(wanted: int, steps: int | None) -> int:
    """As wanted, or the next smaller one that divides the steps."""
    return (
        wanted if steps is None else max(thin for thin in range(1, wanted + 1) if steps % thin == 0)
    )


def _num_steps(curator, chosen: Chosen, steps: int | None, chains: int, thin: int) -> int:
    from dpmcmc.curator.programs.interpreter import total_plan
    from dpmcmc.run.plan import check_fits

    for name, value in (("--chains", chains), ("--thin", thin)):
        if value < 1:
            raise ValueError(f"{name} {value} must be at least 1")
    per_step = chosen.per_step(chains)
    steps = chosen.num_steps if steps is None else steps
    if steps is not None and (steps < 1 or steps % thin):
        raise ValueError(f"--steps {steps} must be positive, and a multiple of --thin {thin}")
    if steps is not None:
        check_fits(
            curator, total_plan((chosen.once, 1), (per_step, steps)), chosen.once, per_step, chains
        )
        return steps
    fits = curator.max_steps(chosen.initial, per_step)
    if fits < thin:
        raise ValueError(
            f"{curator.what_is_left()} allows {fits} steps of {chains} chains: "
            "use fewer chains, shorter moves, more noise, or a larger budget"
        )
    return fits - fits % thin


def _plan_lines(
    model, table, settings, problem, curator, chosen, num_steps, chains, draws, person
) -> Iterator[str]:
    from dpmcmc import forecast, tuning
    from dpmcmc.accounting import calibrate
    from dpmcmc.accounting.bill import costs_of
    from dpmcmc.curator.account import doubtful_delta
    from dpmcmc.tables.columns import MISSING

    budget = curator.budget
    dimension = problem.model.dimension
    is_public = curator.unit.is_count_public
    yield f"Model:    {model.value}, {dimension} parameters"
    for note in problem.notes:
        yield f"          {note}"
    are_used = "" if person is None else " used"  # the file may have more
    yield f"Table:    {table.name}, " + (
        f"{curator.capacity} rows" if is_public else f"at most {curator.capacity} rows{are_used}"
    )
    for text in problem.allowed:
        yield f"          {text}"
    if model in REGRESSIONS:
        yield "          a cell outside its bounds is moved to the nearer one; a row with one that is missing, or no number or date"
        yield "          as declared, or none of the levels, says nothing (text is no number: see --levels)"
    else:
        yield "          a cell outside its bounds is moved to the nearer one; a row with one that is missing, or no number,"
        yield "          says nothing"
    *missing, last = filter(None, MISSING)
    yield f"          missing: an empty cell, or one that reads {', '.join(missing)} or {last}, in upper or lower case"
    if model is ModelName.logistic:
        is_one, is_zero = ("1, or true", "0, or false")
        if settings.positive is not None:
            is_one = repr(settings.positive)
            is_zero = repr(settings.negative)
        yield f"          {settings.label} counts as 1 where it is {is_one}, and as 0 where it is {is_zero};"
        yield "          any other is missing (see --positive and --negative)"
    if person is not None:
        how_many = "row" if budget.rows_per_person == 1 else f"{budget.rows_per_person} rows"
        yield f"Unit:     one person, by the column {person}: the first {how_many} of each are used, and none where it is missing"
    elif budget.rows_per_person == 1:
        yield "Unit:     one row; of a person with several rows only one is protected, else say --rows-per-person"
    else:
        yield f"Unit:     one person with at most {budget.rows_per_person} rows, which nobody checks: see --person"
    yield f"Sampler:  {chosen.words}"
    part = "" if chosen.part == 1 else f"{chosen.part:.1%} of "
    yield f"Budget:   {part}epsilon = {budget.epsilon:g}, delta = {budget.delta:g}: {num_steps} steps {_of_each(chains)}"
    yield from _count_lines(chosen)
    if chosen.query is None:
        widening = choices.expected_widening(problem, curator, chosen.share)
        yield f"Expect:   a posterior roughly {widening:.3g} times as wide as without privacy" + (
            f", which {FAR}" if widening > tuning.MAX_WIDENING else ""
        )
    if draws is not None:
        few = (
            "less than one independent draw's worth"
            if draws < 0.95
            else "roughly one independent draw's worth"
        )
        expected = few if draws < 1.5 else f"roughly {round(draws)} independent draws' worth"
        of_which = (
            "of the worst parameter"
            if choices.is_worst(chosen, problem)
            else "on average over parameters"
        )
        yield f"Expect:   {expected} {of_which}, warm-up included" + (
            "" if is_public else "; in proportion fewer if the table is not full"
        )
        if problem.where and chosen.name is SamplerName.sgld:
            yield f"          {problem.where};"
            yield f"          {forecast.CROWDED}"
        first, each = (
            costs_of(plan, curator.unit) for plan in (chosen.initial, chosen.per_step(chains))
        )
        is_held_back = calibrate.held_back(each, budget.epsilon, budget.delta, first)
        if is_held_back:
            yield f"          {forecast.HELD_BACK}"
        if choices.is_few(draws, chosen, problem):
            larger = "table or delta" if is_held_back else "table or budget"
            fits = curator.max_steps(chosen.initial, chosen.per_step(chains))
            more = f"more steps ({fits} would fit), " if fits > 1.1 * num_steps else ""
            fewer = (
                "fewer features"
                if chains == 1 or chosen.start is not None
                else "fewer features or fewer chains"
            )
            yield f"          FEW: {more}a larger {larger} or {fewer} would help"
    if budget.epsilon > LARGE_EPSILON:
        yield (
            f"          epsilon = {budget.epsilon:g} is above {LARGE_EPSILON:g}, where a promise "
            "protects hardly anything: "
            "1 is a strong one, and few take more than 10"
        )
    for doubt in doubtful_delta(budget, curator.capacity):
        yield f"          {doubt}"


def _count_lines(chosen: Chosen) -> Iterator[str]:
    from dpmcmc import counting

    if chosen.counting is None:
        yield f"Count:    none ({chosen.no_count}): if cells cannot be read as declared, the budget is spent on nothing"
        return
    names = "".join(f", and how many with {name}" for name in chosen.counting.names)
    noise = f"+-{chosen.counting.deviation:.0f}{' each' if names else ''}"
    yield f"Count:    first, for {counting.SHARE:.0%} of that: how many rows can be used{names} (noise {noise});"
    yield f"          the run stops there, the rest unspent, {chosen.counting.rule()}"


def _count(curator: Any, chosen: Chosen, problem: Problem, seed: int, ledger: Path | None) -> str:
    """Take the count and say what it has found.

    Stops a run that would spend its budget on nothing.
    """
    import jax

    before = curator.num_grants
    with refusals(*UNREADABLE):
        try:
            found = chosen.counting.take(jax.random.key(seed), curator, problem.start)
        except KeyboardInterrupt:
            told = (
                "nothing was spent"
                if curator.num_grants == before
                else "the count is spent, and nothing else"
            )
            typer.echo(f"Interrupted: {told}.", err=True)
            raise typer.Exit(130) from None
        except Exception as error:
            if curator.num_grants == before:
                raise
            typer.echo(f"failed: {error}\nThe count is spent, and nothing else.", err=True)
            raise typer.Exit(1) from error
    line = f"Counted:  {found}"
    say(line)
    if not found.is_enough:
        typer.echo(_why_stopped(found, curator, chosen, ledger), err=True)
        raise typer.Exit(STOPPED)
    return line


def _why_stopped(found: Any, curator: Any, chosen: Chosen, ledger: Path | None) -> str:
    from dpmcmc import counting, tuning

    of_label = (
        "labels in another spelling than --positive and --negative; "
        if found.counting.names
        else ""
    )
    cost = f"The count has cost {counting.SHARE * chosen.part:.1%} of the budget"
    worth = tuning.part_of(curator.budget, curator.share_left).epsilon
    rest = (
        f"{curator.share_left:.1%} are left in {ledger}, worth epsilon = {worth:.4g} by "
        "themselves: correct the options, and give "
        "the command again with this --ledger"
        if ledger is not None
        else "the rest is unspent. Without --ledger nobody remembers this: the epsilon of a further run adds to that of the count, "
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


def _of_each(chains: int) -> str:
    return "of one chain" if chains == 1 else f"for each of {chains} chains"


def _arguments(
    curator, chosen, problem, seed, num_steps, chains, thin, warmup, out, plan: list[str]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What `sample` is called with."""
    import jax
    import numpy as np

    # How the parameters are to be read, and the plan: whoever opens the file later has not seen
    # them.
    texts = {"parameters": "; ".join(problem.notes), "plan": "\n".join(plan)}
    if problem.reading:
        texts["reading"] = problem.reading
    options = {
        "num_steps": num_steps,
        "num_chains": chains,
        "thin": thin,
        "warmup": warmup,
        "start": chosen.start,
        "path": out,
        "attributes": {name: _plain(text) for name, text in texts.items()},
        "units": {name: _plain(unit) for name, unit in problem.units.items()},
    }
    return (
        jax.random.key(seed),
        chosen.sampler,
        curator,
        np.asarray(problem.start, np.float32),
    ), options


def _end_dry_run(arguments: tuple[Any, ...], options: dict[str, Any], is_refused: bool) -> None:
    """Prepare the run as far as it goes without the budget: what it would be refused for, and its
    notes.
    """
    from dpmcmc import plan
    from dpmcmc.finding import in_words

    with refusals(*UNREADABLE):
        found = plan(*arguments, **options).findings
    if found:
        say(in_words(found))
    say("Nothing is spent: this was a dry run." + " The run itself would be refused." * is_refused)
    if is_refused:
        raise typer.Exit(2)


def _sample(
    curator: Any,
    chosen: Chosen,
    problem: Problem,
    arguments: tuple[Any, ...],
    options: dict[str, Any],
) -> Any:
    from dpmcmc import RunFailed, sample

    before = curator.num_grants
    out = options["path"]
    try:
        with refusals(*UNREADABLE):
            # What was found is printed once, below.
            return sample(*arguments, **options, progress="bar", checks=problem.checks)
    except KeyboardInterrupt:
        nothing = (
            "nothing was spent" if chosen.counting is None else "nothing but the count was spent"
        )
        told = (
            nothing
            if curator.num_grants == before
            else "the budget is spent, and there are no draws"
        )
        typer.echo(f"Interrupted: {told}.", err=True)
        raise typer.Exit(130) from None
    except RunFailed as error:
        typer.echo(f"failed: {error.__cause__ or error}", err=True)
        told = (
            "there are no draws"
            if error.posterior is None
            else f"finished draws are in {_kept(error.posterior, out)}"
        )
        typer.echo(f"The budget is spent; {told}.", err=True)
        raise typer.Exit(1) from error


def _plain(text: str) -> str:
    """Without the bytes of a file's name that are no text: neither a terminal nor a NetCDF file
    takes them.
    """
    return text.encode("utf-8", "replace").decode()


def _num_kept(result: Any) -> int:
    """Draws of a chain, warm-up included."""
    return sum(
        result[group].sizes["draw"]
        for group in ("posterior", "warmup_posterior")
        if group in result.groups()
    )


def _kept(result: Any, out: Path) -> str:
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


def _report(
    result: Any,
    model: ModelName,
    problem: Problem,
    out: Path,
    ledger: Path | None,
    steps: int | None,
) -> bool:
    """Print what came of a run. Returns whether its draws may be relied on."""
    from dpmcmc import findings, statement_of, summary
    from dpmcmc.finding import in_words

    say(f"\n{summary(result)}\n")
    if problem.reading:
        say(f"{problem.reading}\n")
    found = findings(result)
    if found:
        say(f"{in_words(found)}\n")
    is_reliable = not any(finding.is_severe for finding in found)
    if not is_reliable:
        more = "More" if steps is None else "More --steps, more"
        of_label = ", above all those of the label," if model is ModelName.linear else ""
        options = "--decimal and --levels"
        if model is ModelName.logistic:
            options = "--decimal, --levels, --positive and --negative"
        say(
            f"{more} rows, a larger budget, narrower --bounds{of_label} or fewer parameters would "
            "help. If you expected more from "
            "these rows: columns or labels that could not be read (decimal commas, text, another "
            "spelling) have the same effect. "
            f"See above how cells are read, and {options}.\n"
        )
    say(f"{statement_of(result)}\n")
    say(
        f"Written to {out}. Look at it with `dpmcmc report {out}`, read it with dpmcmc.load or "
        "ArviZ."
    )
    if ledger is None:
        say(
            "The promise is about this run alone: the epsilon and delta of another run on the same "
            "rows add to it. To share one "
            "budget among runs give all of them --ledger FILE, and --part 1/3 or so to noise-aware "
            "ones, --shared-by to others."
        )
    return is_reliable


def _floats(option: str, text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise ValueError(f"{option} {text} must be numbers, by commas") from None
