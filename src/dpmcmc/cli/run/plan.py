"""The plan of a run, in lines: a rendering of what was decided."""

from __future__ import annotations

from collections.abc import Iterator

from dpmcmc.cli.problems import REGRESSIONS, ModelName
from dpmcmc.cli.run.study import Study
from dpmcmc.recipes import COUNT_SHARE, SamplerName

INDENT = " " * 10
LARGE_EPSILON = 10.0  # above, a promise protects hardly anything


def plan_of(study: Study) -> list[str]:
    """All lines of the plan."""
    parts = (
        _model_lines,
        _table_lines,
        _unit_lines,
        _sampler_lines,
        _count_lines,
        _preview_lines,
        _widening_lines,
        _draws_lines,
        _caution_lines,
        _chains_lines,
    )
    return [plain(line) for part in parts for line in part(study)]


def by_hand_note(study: Study) -> str | None:
    """Why the sampler is another one than by default."""
    given = study.sampler.by_hand.given
    if not given or study.sampler.sampler is not None:
        return None
    return (
        f"Settings of your own ({', '.join(given)}) are for accept bits: "
        f"{study.recipe.name.value} is used."
    )


def _model_lines(study: Study) -> Iterator[str]:
    yield f"Model:    {study.table.model.value}, {study.problem.model.dimension} parameters"
    for note in study.problem.notes:
        yield f"{INDENT}{note}"


def _table_lines(study: Study) -> Iterator[str]:
    from dpmcmc.tables.columns import MISSING

    table = study.table
    capacity = study.curator.capacity
    are_used = "" if study.promise.person is None else " used"  # the file may have more
    is_public = study.curator.unit.is_count_public
    how_many = f"{capacity} rows" if is_public else f"at most {capacity} rows{are_used}"
    yield f"Table:    {table.table.name}, {how_many}"
    for text in study.problem.allowed:
        yield f"{INDENT}{text}"
    yield f"{INDENT}a cell outside its bounds is moved to the nearer one; a row is ignored"
    if table.model in REGRESSIONS:
        yield f"{INDENT}if a cell is missing, is no number or date as declared, or none of the"
        yield f"{INDENT}levels (text is no number: see --levels)"
    else:
        yield f"{INDENT}if a cell is missing or is no number"
    *missing, last = filter(None, MISSING)
    words = f"{', '.join(missing)} or {last}"
    yield f"{INDENT}missing: an empty cell, or one that reads {words}, in upper or lower case"
    if table.model is ModelName.logistic:
        yield from _label_lines(study)


def _label_lines(study: Study) -> Iterator[str]:
    table = study.table
    is_one = "1, or true"
    is_zero = "0, or false"
    if table.positive is not None:
        is_one = repr(table.positive)
        is_zero = repr(table.negative)
    yield f"{INDENT}{table.label} counts as 1 where it is {is_one}, and as 0 where it is {is_zero};"
    yield f"{INDENT}any other is missing (see --positive and --negative)"


def _unit_lines(study: Study) -> Iterator[str]:
    rows = study.promise.rows_per_person
    person = study.promise.person
    if person is not None:
        how_many = "row" if rows == 1 else f"{rows} rows"
        yield (
            f"Unit:     one person, by the column {person}: the first {how_many} of each are used, "
            "and none where it is missing"
        )
    elif rows == 1:
        yield "Unit:     one row. If people can have several, use --rows-per-person."
    else:
        yield f"Unit:     one person with at most {rows} rows, which nobody checks: see --person"


def _sampler_lines(study: Study) -> Iterator[str]:
    promise = study.promise
    part = "" if study.recipe.part == 1 else f"{study.recipe.part:.1%} of "
    yield f"Sampler:  {study.recipe.words}"
    yield (
        f"Budget:   {part}epsilon = {promise.epsilon:g}, delta = {promise.delta:g}: "
        f"{study.num_steps} steps {of_each(study.num_chains)}"
    )


def _count_lines(study: Study) -> Iterator[str]:
    counting = study.recipe.counting
    if counting is None:
        yield (
            f"Count:    none ({study.recipe.no_count}): if cells cannot be read as declared, the "
            "budget is spent on nothing"
        )
        return
    names = "".join(f", and how many with {name}" for name in counting.names)
    noise = f"+-{counting.deviation:.0f}{' each' if names else ''}"
    yield (
        f"Count:    first, for {COUNT_SHARE:.0%} of that: how many rows can be used{names} "
        f"(noise {noise});"
    )
    yield f"{INDENT}the run stops there, the rest unspent, {counting.rule()}"


def _preview_lines(study: Study) -> Iterator[str]:
    if study.recipe.preview is None:
        return
    yield "Forecast: next, for a tenth of that: what to expect of each parameter; the run stops"
    yield f"{INDENT}there, the rest unspent, if one would be too wide to be useful"


def _widening_lines(study: Study) -> Iterator[str]:
    from dpmcmc import recipes

    if study.recipe.query is not None:
        return
    widening = recipes.expected_widening(study.problem, study.curator, study.recipe.share)
    line = f"Expect:   a posterior roughly {widening:.3g} times as wide as without privacy"
    if recipes.why_hopeless(widening=widening) is None:
        yield line
    else:
        yield f"{line}, which is too wide to be"
        yield f"{INDENT}useful: more rows, a larger budget or tighter --bounds would help"


def _draws_lines(study: Study) -> Iterator[str]:
    from dpmcmc import recipes
    from dpmcmc.recipes import forecast

    draws = study.draws
    if draws is None:
        return
    is_worst = recipes.is_about_the_worst(study.recipe, study.problem)
    of_which = "of the worst parameter" if is_worst else "on average over parameters"
    is_public = study.curator.unit.is_count_public
    fewer = "" if is_public else "; in proportion fewer if the table is not full"
    yield f"Expect:   {_draws_words(draws)} {of_which}, warm-up included{fewer}"
    if (expected := study.recipe.expected) is not None:
        yield (
            f"{INDENT}by simulation, on rows made up from what is declared: means off by about "
            f"{expected.error:.2g}"
        )
        yield (
            f"{INDENT}posterior standard deviations with all {expected.num_steps} steps "
            f"(K = {expected.constant:.3g})"
        )
        yield f"{INDENT}{recipes.instead(study.recipe, study.problem, study.curator)}"
    if study.problem.where and study.recipe.name is SamplerName.sgld:
        yield f"{INDENT}{study.problem.where};"
        yield f"{INDENT}{forecast.CROWDED}"
    is_held_back = _is_held_back(study)
    if is_held_back:
        yield f"{INDENT}{forecast.HELD_BACK}"
    if recipes.is_few(draws, is_worst):
        yield f"{INDENT}{_few_words(study, is_held_back)}"


def _draws_words(draws: float) -> str:
    if draws < 0.95:
        return "less than one independent draw's worth"
    if draws < 1.5:
        return "roughly one independent draw's worth"
    return f"roughly {round(draws)} independent draws' worth"


def _is_held_back(study: Study) -> bool:
    """Whether imperfect noise, and not epsilon, limits the number of steps."""
    from dpmcmc.accounting import calibrate
    from dpmcmc.accounting.bill import costs_of

    unit = study.curator.unit
    first = costs_of(study.recipe.initial, unit)
    each = costs_of(study.per_step, unit)
    return calibrate.held_back(each, study.promise.epsilon, study.promise.delta, first)


def _few_words(study: Study, is_held_back: bool) -> str:
    """What would help where draws are few."""
    larger = "table or delta" if is_held_back else "table or budget"
    fits = study.curator.max_steps(study.recipe.initial, study.per_step)
    more = f"more steps ({fits} would fit), " if fits > 1.1 * study.num_steps else ""
    is_one_chain = study.num_chains == 1 or study.recipe.start is not None
    fewer = "fewer features" if is_one_chain else "fewer features or fewer chains"
    return f"FEW: {more}a larger {larger} or {fewer} would help"


def _caution_lines(study: Study) -> Iterator[str]:
    epsilon = study.promise.epsilon
    if epsilon > LARGE_EPSILON:
        yield (
            f"{INDENT}epsilon = {epsilon:g} is above {LARGE_EPSILON:g}, where a promise "
            "protects hardly anything: "
            "1 is a strong one, and few take more than 10"
        )
    for caution in study.cautions:
        yield f"{INDENT}{caution}"


def _chains_lines(study: Study) -> Iterator[str]:
    which = "every step is" if study.thin == 1 else f"one of {study.thin} steps is"
    yield (
        f"Chains:   {which} kept, and the first {study.warmup:.0%} of these apart as warm-up; "
        f"seed {study.sampler.seed}"
    )


def of_each(num_chains: int) -> str:
    """What steps are of, in words."""
    return "of one chain" if num_chains == 1 else f"for each of {num_chains} chains"


def plain(text: str) -> str:
    """Without the bytes of a file's name that are no text: neither a terminal nor a NetCDF file
    takes them.
    """
    return text.encode("utf-8", "replace").decode()
