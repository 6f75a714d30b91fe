"""Which recipe to take if none is named, and what to expect of it: from public facts."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

from dpmcmc.recipes import counting, forecast
from dpmcmc.recipes.budgets import part_of
from dpmcmc.recipes.hope import why_hopeless
from dpmcmc.recipes.langevin import ATTAINED, STIFFNESS, langevin_for, langevin_steps, step_size
from dpmcmc.recipes.noise_aware import noise_aware_for, widening_for
from dpmcmc.recipes.recipe import COUNT_SHARE, Recipe, SamplerName
from dpmcmc.recipes.simulated.recipe import SIMULATED, simulated_for
from dpmcmc.recipes.walks import STEPS_PER_DRAW, Moves, effective_draws, moves, walk


class Problem(Protocol):
    """A model, and public facts about the information in its rows."""

    @property
    def model(self) -> Any: ...

    @property
    def information(self) -> Any:
        """A guess of one row's information about each component: an inverse variance."""

    @property
    def prior_precision(self) -> Any:
        """A number, or one for each component."""

    @property
    def is_exact(self) -> bool:
        """Whether the information is known and not guessed."""

    @property
    def is_measured(self) -> bool:
        """Whether `recipes.forecast` was measured on such models."""

    @property
    def start(self) -> Any:
        """Where a run starts."""

    @property
    def made_up(self) -> Any:
        """Simulated `rows`, and the `guess` that they were simulated at; or None."""


class ByHand(NamedTuple):
    """Settings that a person may choose; public facts give the others.

    Attributes:
        clip: The bound of a row's log-ratio per unit of move.
        step_size: The standard deviation of a move.
        max_move: The longest move.
        noise_multiplier: Noise over sensitivity, of a penalty test.
    """

    clip: float | None = None
    step_size: float | None = None
    max_move: float | None = None
    noise_multiplier: float | None = None

    @property
    def given(self) -> list[str]:
        """The names of those that were chosen, as options of the command line."""
        found = [name for name, value in self._asdict().items() if value is not None]
        return [f"--{name.replace('_', '-')}" for name in found]


def name_of(
    name: SamplerName | None, problem: Problem, by_hand: ByHand, is_shared: bool
) -> SamplerName:
    """The sampler of this name, or else the one that is expected to be the most accurate."""
    has_bounds = problem.model.lipschitz is not None and problem.model.hessian_bound is not None
    if name is not None or not has_bounds or by_hand.given:
        return name or SamplerName.barker
    # A budget that is shared by a filter needs steps; noise_aware asks nothing in its steps
    return SamplerName.sgld if is_shared else SamplerName.noise_aware


def choose(
    name: SamplerName,
    is_named: bool,
    problem: Problem,
    curator: Any,
    num_chains: int,
    by_hand: ByHand,
    kappa: float,
    part: float = 1.0,
    is_counted: bool = False,
    is_weighted: bool = True,
    is_forced: bool = False,
) -> Recipe:
    """The recipe of this sampler.

    Args:
        name: The sampler.
        is_named: Whether a person has chosen it: otherwise it is refused where it is hopeless.
        problem: The model, and a guess of the information in its rows.
        curator: The curator, whose capacity and budget the recipe is for.
        num_chains: The number of chains that share the budget.
        by_hand: Settings that a person has chosen.
        kappa: The probability that a step of the lazy test reads the rows.
        part: The part of the budget that a noise-aware run takes.
        is_counted: Whether a noise-aware run begins with a count of the rows that can be used.
        is_weighted: Whether rows that are far out may count less in a noise-aware run.
        is_forced: Whether a recipe by simulation is taken however little it forecasts.

    Returns:
        The recipe.

    Raises:
        ValueError: The settings do not fit the sampler, or the run is hopeless.
    """
    if by_hand.given and name not in STEPS_PER_DRAW:
        raise ValueError(
            f"{', '.join(by_hand.given)}: {name.value} takes these from public facts; leave them "
            "out, or choose another --sampler"
        )
    if name is SamplerName.noise_aware:
        recipe = _noise_aware(curator, num_chains, part, is_counted, is_weighted)
    elif name is SamplerName.sgld:
        recipe = _langevin(problem, curator, num_chains)
    elif name in SIMULATED and not by_hand.given:
        return _simulated(name, problem, curator, num_chains, is_forced)
    else:
        recipe = as_typed(name, problem, curator, by_hand, kappa)
    if not is_named and not by_hand.given:
        _check_hope(curator, recipe, problem, num_chains, kappa)
    return recipe


def _noise_aware(
    curator: Any, num_chains: int, part: float, is_counted: bool, is_weighted: bool
) -> Recipe:
    """The posterior given a few noisy sums, after a count of the rows that can be used."""
    count = counting.counting_for(curator, COUNT_SHARE * part)
    no_count = "" if is_counted else "--no-count"
    if not no_count and not count.is_decisive:
        no_count = (
            f"a hundredth of the budget adds a noise of +-{count.deviation:.0f}, "
            "too much for so few rows"
        )
    share = part if no_count else part * (1 - COUNT_SHARE)
    with warnings.catch_warnings(action="ignore"):  # what to expect is part of the plan
        recipe = noise_aware_for(curator, max(1, num_chains), share=share, is_weighted=is_weighted)
    return replace(recipe, part=part, counting=None if no_count else count, no_count=no_count)


def _langevin(problem: Problem, curator: Any, num_chains: int) -> Recipe:
    """Langevin dynamics after a private start."""
    stiffness = ATTAINED if problem.is_exact else STIFFNESS
    with warnings.catch_warnings(action="ignore"):  # what to expect is part of the plan
        return langevin_for(curator, max(1, num_chains), stiffness)


def _simulated(
    name: SamplerName, problem: Problem, curator: Any, num_chains: int, is_forced: bool
) -> Recipe:
    """Settings by simulation; refused where it forecasts too little."""
    if problem.made_up is None:
        by_hand = " with --max-move and --clip" if name in STEPS_PER_DRAW else ""
        raise ValueError(
            f"{name.value} has no settings by simulation for this model, whose posterior is far "
            f"from normal: take --sampler barker, or penalty{by_hand}"
        )
    rows, guess = problem.made_up
    least = {"least_draws": 0.0} if is_forced else {}
    return simulated_for(
        curator, name, rows, guess, max(1, num_chains), begin=problem.start, **least
    )


def instead(recipe: Recipe, problem: Problem, curator: Any) -> str:
    """How the default compares with a recipe by simulation, in words."""
    if problem.model.lipschitz is None or problem.model.hessian_bound is None:
        return "noise-aware, the default, needs proved bounds, which this model has not"
    error = math.sqrt(max(0.0, expected_widening(problem, curator, 1.0) ** 2 - 1))
    is_better = "better" if error < recipe.expected.error else "no better"
    return (
        f"noise-aware, the default, is off by about {error:.2g} of these: {is_better} if the "
        "posterior is nearly normal"
    )


def as_typed(
    name: SamplerName, problem: Problem, curator: Any, by_hand: ByHand, kappa: float
) -> Recipe:
    """A random walk, its settings from public facts where they are not chosen."""
    found = moves(problem.information, problem.prior_precision, curator.capacity, by_hand.step_size)
    if by_hand.max_move is not None:
        found = Moves(found.scale, by_hand.max_move)
    return walk(
        name.value,
        problem.model,
        curator.budget,
        found,
        by_hand.clip,
        by_hand.noise_multiplier,
        kappa,
    )


def expected_widening(problem: Problem, curator: Any, share: float) -> float:
    """About how many times as wide as without privacy a noise-aware posterior will be: along the
    worst parameter where that can be predicted.
    """
    if problem.is_measured:
        return forecast.expected_widening(
            curator.capacity, problem.model.dimension, part_of(curator.budget, share)
        )
    recipe = _langevin(problem, curator, 1)
    return widening_for(share * most_draws(curator, recipe, problem, 1, 1.0))


def _check_hope(
    curator: Any, recipe: Recipe, problem: Problem, num_chains: int, kappa: float
) -> None:
    """Refuse to spend a budget on a hopeless run."""
    rows = curator.capacity
    epsilon = curator.budget.epsilon
    dimension = problem.model.dimension
    if recipe.query is None:
        found = why_hopeless(widening=expected_widening(problem, curator, recipe.share))
    else:
        found = why_hopeless(draws=most_draws(curator, recipe, problem, num_chains, kappa))
    if found is None:
        return
    way_out = "More rows, a larger budget or narrower bounds would help"
    if recipe.start is not None and problem.is_measured:
        needed = forecast.needed_text(recipe.name.value, rows, dimension, curator.budget)
        way_out = f"For means within half a standard deviation you would need {needed}"
    raise ValueError(
        f"hopeless: with {rows} rows and {dimension} parameters epsilon = {epsilon:g} gives "
        f"{found}. {way_out}. To spend the budget all the same, name the --sampler"
    )


def draws_worth(
    curator: Any, recipe: Recipe, problem: Problem, num_steps: int, kappa: float
) -> float:
    """About how many independent draws `num_steps` steps, of all chains together, are worth: on
    average, or for the worst parameter if that can be predicted.
    """
    if recipe.expected is not None:
        return recipe.expected.draws * num_steps / max(1, recipe.expected.num_steps)
    if recipe.name is not SamplerName.sgld:
        return effective_draws(recipe.name.value, num_steps, problem.model.dimension, kappa)
    rows = curator.capacity
    budget = curator.budget
    query = recipe.query
    if not problem.is_measured:
        precision = min(rows * problem.information + problem.prior_precision)
        return num_steps * step_size(query, budget) * precision / 4
    draws = forecast.forecast_error("sgld", rows, problem.model.dimension, budget) ** -2
    return draws * num_steps / max(1, langevin_steps(query.noise_multiplier, budget))


def most_draws(
    curator: Any, recipe: Recipe, problem: Problem, num_chains: int, kappa: float
) -> float:
    """The same for as many steps as the budget allows."""
    if recipe.name is SamplerName.sgld:
        num_steps = langevin_steps(recipe.query.noise_multiplier, curator.budget)
    else:
        per_step = recipe.per_step(max(1, num_chains))
        num_steps = num_chains * curator.max_steps(recipe.initial, per_step)
    return draws_worth(curator, recipe, problem, num_steps, kappa)


def is_about_the_worst(recipe: Recipe, problem: Problem) -> bool:
    """Whether `draws_worth` is about the worst parameter and not an average."""
    return recipe.name is SamplerName.sgld and not problem.is_measured
