"""Everything that is decided before a run: a value that the plan and the outcome are made from."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpmcmc.accounting.statement import LargeDelta
from dpmcmc.cli.problems import PRIOR_SCALES, Problem, Settings, problem_of, rows_of
from dpmcmc.cli.run import checks
from dpmcmc.cli.run.options import ModelOptions, PromiseOptions, SamplerOptions, TableOptions
from dpmcmc.recipes import Recipe, SamplerName


@dataclass(frozen=True)
class Study:
    """What was typed, and what follows from it."""

    table: TableOptions
    promise: PromiseOptions
    sampler: SamplerOptions
    settings: Settings
    problem: Problem
    curator: Any
    recipe: Recipe
    num_steps: int  # of each chain
    thin: int
    warmup: float
    cautions: tuple[str, ...]  # what the curator has warned of

    @property
    def num_chains(self) -> int:
        return self.sampler.chains

    @property
    def per_step(self) -> dict[Any, int]:
        """What a step of all chains asks."""
        return self.recipe.per_step(self.num_chains)

    @property
    def draws(self) -> float | None:
        """About how many independent draws the steps are worth, where that can be predicted."""
        from dpmcmc import recipes

        is_by_hand = bool(set(self.sampler.by_hand.given) - {"--clip"})
        is_simulated = self.recipe.expected is not None
        if self.recipe.query is None or not (is_simulated or self.problem.is_round):
            return None
        if is_by_hand:
            return None
        num_steps = self.num_steps * self.num_chains
        return recipes.draws_worth(
            self.curator, self.recipe, self.problem, num_steps, self.sampler.kappa
        )


def study_of(
    table: TableOptions, promise: PromiseOptions, model: ModelOptions, sampler: SamplerOptions
) -> Study:
    """Read the table and decide everything. Nothing is spent.

    Raises:
        ValueError: If something does not fit together, or too little can be hoped for.
    """
    from dpmcmc import recipes
    from dpmcmc.tables.files import delimiter_of

    checks.check_promise(promise)
    settings = settings_of(table, model)
    typed = table.delimiter
    delimiter = delimiter_of(table.table) if typed is None else typed.replace("\\t", "\t")
    problem = problem_of(table.model, settings)
    by_hand = sampler.by_hand
    name = recipes.name_of(sampler.sampler, problem, by_hand, promise.shared_by is not None)
    curator, cautions = _curator(table, promise, settings, problem, delimiter, name)
    checks.check_open(curator, promise.ledger)
    is_noise_aware = name is SamplerName.noise_aware
    part = checks.part_taken(curator, promise.part, promise.ledger) if is_noise_aware else 1.0
    recipe = recipes.choose(
        name,
        sampler.sampler is not None,
        problem,
        curator,
        sampler.chains,
        by_hand,
        sampler.kappa,
        part,
        promise.count,
        sampler.weights,
        is_forced=sampler.steps is not None,
    )
    thin = sampler.thin
    if thin is None:
        thin = checks.thin_that_divides(recipe.thin, sampler.steps)
    num_steps = checks.num_steps(curator, recipe, sampler.steps, sampler.chains, thin)
    checks.check_steps_are_given(promise.shared_by, sampler.steps, num_steps)
    warmup = recipe.warmup if sampler.warmup is None else sampler.warmup
    return Study(
        table,
        promise,
        sampler,
        settings,
        problem,
        curator,
        recipe,
        num_steps,
        thin,
        warmup,
        tuple(cautions),
    )


def settings_of(table: TableOptions, model: ModelOptions) -> Settings:
    """What was typed about the model."""
    from dpmcmc.tables.declared import parse_bounds, parse_levels, parse_names

    limits = parse_bounds(table.bounds)
    values = parse_levels(table.levels)
    named = dict.fromkeys([*limits, *values])
    if table.features is not None:
        columns = parse_names(table.features)
    else:
        columns = tuple(name for name in named if name != table.label)
    scale = model.prior_scale
    variances = model.variances
    return Settings(
        columns=columns,
        label=table.label,
        positive=table.positive,
        negative=table.negative,
        bounds=limits,
        levels=values,
        intercept=model.intercept,
        prior_scale=PRIOR_SCALES.get(table.model, 1.0) if scale is None else scale,
        variances=None if variances is None else checks.floats("--variances", variances),
        curvature=model.curvature,
        sharpness=model.sharpness,
        position_bound=model.position_bound,
        temperature=model.temperature,
    )


def _curator(
    table: TableOptions,
    promise: PromiseOptions,
    settings: Settings,
    problem: Problem,
    delimiter: str,
    name: SamplerName,
) -> tuple[Any, list[str]]:
    """Who holds the rows, and what it warns of."""
    from dpmcmc import Curator

    budget = promise.budget
    file: Path = table.table
    filter_name = checks.filter_name(
        name,
        promise.shared_by,
        promise.part,
        promise.ledger,
    )
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", LargeDelta)
        curator = Curator(
            rows_of(table.model, file, delimiter, table.decimal, settings),
            problem.model,
            budget,
            capacity=promise.capacity,
            persons=checks.persons(file, promise.person, delimiter, settings, budget),
            ledger=promise.ledger,
            shared_by=filter_name,
        )
    return curator, checks.cautions(warned)
