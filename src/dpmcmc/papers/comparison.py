"""Samplers side by side at equal budgets, on made-up rows whose posterior is known.

The settings of a method are the same for every budget; a larger one allows more steps. So one run
holds them all: as many chains as all repeats need, as long as the largest budget allows, on a
curator without a budget, whose noise is that of the unit which the budgets protect. What a smaller
budget would have given is the beginning of it. The first half of every run is left out.

    results = compare(jax.random.key(0), problem, methods, budgets, num_chains=4, num_repeats=10)
    print(table({"Banana": results}))

**Nothing here is private**: it is for rows that are nobody's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import numpy as np

import dpmcmc
from dpmcmc.accounting import calibrate
from dpmcmc.checks import whole
from dpmcmc.papers import metrics
from dpmcmc.papers.problems import Problem, starts
from dpmcmc.types import Budget, Key, Plan, Sampler, Unit

MOST_STEPS = 200_000  # of a chain, even if its budget allows more
MOST_KEPT = 20_000  # draws of a chain
DISCARDED = 0.5  # of every run, from its start


class Method(NamedTuple):
    """A sampler, and what each of its chains asks."""

    sampler: Sampler
    per_step: Plan
    initial: Plan = MappingProxyType({})  # to begin with


class Scores(NamedTuple):
    """How far off the draws were, shape (budgets, repeats); NaN where a budget allows too few
    steps.
    """

    num_steps: list[int]  # of each chain, by budget
    mmd: np.ndarray
    mean_error: np.ndarray
    width: np.ndarray  # as a multiple of the exact posterior's


class Comparison(NamedTuple):
    """Methods on one problem."""

    epsilons: list[float]
    scores: dict[str, Scores]  # by method
    floor: float  # the mmd of exact draws: what a perfect sampler would have


Report = Callable[[str], Any]


def num_steps(method: Method, budget: Budget, num_chains: int) -> int:
    """Steps of each chain, where so many chains share the budget."""
    per_step, initial = (
        {query.cost(budget.unit): num_chains * count for query, count in plan.items()}
        for plan in (method.per_step, method.initial)
    )
    return calibrate.steps(per_step, budget.epsilon, budget.delta, initial=initial)


def compare(
    rng_key: Key,
    problem: Problem,
    methods: Mapping[str, Method],
    budgets: Sequence[Budget],
    num_chains: int,
    num_repeats: int,
    most_steps: int = MOST_STEPS,
    report: Report = lambda text: None,
) -> Comparison:
    """Score each method at each budget.

    All of them begin at the same points; `report` is given a line when one is done.
    """
    num_chains = whole("num_chains", num_chains)
    num_repeats = whole("num_repeats", num_repeats)
    most_steps = whole("most_steps", most_steps, 2, "half of them are left out")
    unit = _common_unit(budgets)
    key_starts, key_chains, key_floor = jax.random.split(rng_key, 3)
    positions = starts(key_starts, problem, num_chains * num_repeats).reshape(
        num_repeats, num_chains, -1
    )
    results = {}
    for name, method in methods.items():
        lengths = [min(most_steps, num_steps(method, budget, num_chains)) for budget in budgets]
        curator = dpmcmc.Curator(problem.rows, problem.model, None, unit=unit)
        results[name] = score(
            key_chains, method.sampler, curator, positions, lengths, problem.reference
        )
        report(
            f"{name}: up to {max(lengths)} steps; MMD {np.median(results[name].mmd[-1]):.3f} at "
            "the "
            "last budget"
        )
    return Comparison(
        [budget.epsilon for budget in budgets], results, floor(key_floor, problem, num_repeats)
    )


def _common_unit(budgets: Sequence[Budget]) -> Unit:
    units = {budget.unit for budget in budgets}
    if len(units) != 1:
        raise ValueError(
            f"budgets for {len(units)} units of privacy: one run holds them all, so they must be "
            "for one and the same"
        )
    return units.pop()


def floor(rng_key: Key, problem: Problem, num_repeats: int) -> float:
    """The median mmd of other exact draws."""
    mmd = metrics.mmd_from(problem.reference)
    return float(
        np.median([mmd(problem.draw(key)) for key in jax.random.split(rng_key, num_repeats)])
    )


def score(
    rng_key: Key,
    sampler: Sampler,
    curator: Any,
    positions: np.ndarray,
    lengths: Sequence[int],
    reference,
) -> Scores:
    """Runs that begin at positions (repeats, chains, d), and are as long as it says, by budget."""
    most = max(lengths)
    thin = max(1, most // MOST_KEPT)
    found = draws(
        rng_key,
        sampler,
        curator,
        positions.reshape(-1, positions.shape[-1]),
        most - most % thin,
        thin,
    )
    runs = found.reshape(*positions.shape[:2], *found.shape[1:])
    mmd = metrics.mmd_from(reference)
    measures = (
        mmd,
        lambda kept: metrics.mean_error(kept, reference),
        lambda kept: metrics.width_ratio(kept, reference),
    )
    values = np.full((len(measures), len(lengths), len(runs)), np.nan)
    for at, length in enumerate(lengths):
        end = length // thin
        kept = runs[:, :, int(end * DISCARDED) : end].reshape(len(runs), -1, runs.shape[-1])
        if kept.shape[1] > 1:
            values[:, at] = [[measure(draws) for draws in kept] for measure in measures]
    return Scores(list(lengths), *values)


def draws(
    rng_key: Key, sampler: Sampler, curator: Any, positions: np.ndarray, length: int, thin: int
) -> np.ndarray:
    """(chains, draws, d), every thin-th step."""
    if length == 0:
        return np.empty((len(positions), 0, positions.shape[-1]))
    posterior = dpmcmc.sample(
        rng_key,
        sampler,
        curator,
        positions,
        num_steps=length,
        num_chains=len(positions),
        thin=thin,
        warmup=0.0,
        progress=False,
    )
    if posterior.posterior.sizes["draw"] < length // thin:
        raise KeyboardInterrupt  # the draws so far would be taken for those of the whole
    draws = [np.asarray(values, float) for values in posterior.posterior.data_vars.values()]
    return np.concatenate([values.reshape(*values.shape[:2], -1) for values in draws], axis=-1)


# -- what is shown --------------------------------------------------------------------------------


def table(results: Mapping[str, Comparison]) -> str:
    """Medians over the repeats, in Markdown."""
    lines = []
    for name, comparison in results.items():
        heads = [f"ε = {epsilon:g}" for epsilon in comparison.epsilons]
        lines += [
            "",
            f"{name}: MMD (steps of each chain); exact draws have {comparison.floor:.3f}",
            "",
        ]
        lines += [
            f"| | {' | '.join(heads)} | width at ε = {comparison.epsilons[-1]:g} |",
            "|---" * (len(heads) + 2) + "|",
        ]
        for label, scores in comparison.scores.items():
            cells = [
                _cell(np.median(mmds), count)
                for mmds, count in zip(scores.mmd, scores.num_steps, strict=True)
            ]
            lines.append(f"| {label} | {' | '.join(cells)} | {np.median(scores.width[-1]):.2f} |")
    return "\n".join(lines)


def _cell(mmd: float, count: int) -> str:
    return f"{'–' if np.isnan(mmd) else f'{mmd:.3f}'} ({f'{count:,}'.replace(',', ' ')})"
