"""Settings for samplers by simulation, and what to expect of them.

Public rows are simulated at a public guess of the parameters, and each stands for several of the
table. Runs on these, with the noise of private ones, show how far off the posterior mean will be
for each of a few settings (`methods`); the settings with the smallest error are taken, and what to
expect is the error of further runs with them. So the forecast holds for tables that are like the
simulated rows, and no row of the table has a part in it.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from dpmcmc.checks import whole
from dpmcmc.recipes.budgets import Budgets, every_budget, gaussian_mu, public_facts
from dpmcmc.recipes.hope import FEWEST_DRAWS
from dpmcmc.recipes.recipe import Recipe, SamplerName, clip_words
from dpmcmc.recipes.start import private_start
from dpmcmc.types import Model

# The samplers whose settings are found so
SIMULATED = (
    SamplerName.penalty,
    SamplerName.guided,
    SamplerName.hmc,
    SamplerName.sgnht,
    SamplerName.minibatch_barker,
    SamplerName.exponential_penalty,
)


class Expected(NamedTuple):
    """What to expect of a run, by simulation.

    Attributes:
        error: How far off the posterior means are, in posterior standard deviations: root mean
            square over parameters and runs.
        num_steps: The number of steps of all chains together.
        constant: K of the error sqrt(K d / (mu^2 n)), for other numbers of rows and budgets.

    Example:
        >>> Expected(error=0.25, num_steps=1000, constant=70.0).draws
        16.0
    """

    error: float
    num_steps: int
    constant: float

    @property
    def draws(self) -> float:
        """About how many independent draws the run is worth."""
        return 1 / self.error**2 if self.error > 0 else math.inf


def simulated(
    sampler: SamplerName | str,
    model: Model,
    made_up: Any,
    guess: Any,
    num_rows: int,
    budget: Budgets,
    num_chains: int = 2,
    clip: float | None = None,
    hessian_bound: float | None = None,
    begin: Any = None,
    least_draws: float = FEWEST_DRAWS,
    seed: int = 0,
) -> Recipe:
    """A sampler whose settings were chosen on simulated rows, after a private Newton start.

    Args:
        sampler: "penalty", "guided", "hmc", "sgnht", "minibatch-barker" or "exponential-penalty".
        model: The curator's model.
        made_up: Rows that were simulated at `guess`: some hundreds, never rows of the table.
        guess: Public: parameters as they might be.
        num_rows: The number of rows of all owners, or the declared capacity where it is private.
        budget: The curator's budget, or a list, one of each owner.
        num_chains: The number of chains that share the budget.
        clip: In place of the model's `lipschitz`. If it has none either, what 99.9 % of the
            simulated rows' gradients stay below.
        hessian_bound: In place of the model's `hessian_bound`, likewise.
        begin: Where the run will start, `initial_position` of `sample`; the guess, if left out.
        least_draws: Refuse a run that is worth fewer independent draws. 0 refuses none.
        seed: Of the simulation.

    Returns:
        A recipe whose `expected` is the forecast.

    Raises:
        TypeError: model is not a `Model`, or budget is not a `Budget`.
        ValueError: The sampler has no such recipe or does not fit the model, the posterior of the
            simulated rows is not known well enough for a forecast, or too little is to be expected.

    Example:
        >>> import jax
        >>> import dpmcmc
        >>> model = dpmcmc.models.logistic(1, radius=1.0)
        >>> guess = [0.5]
        >>> made_up = dpmcmc.testing.simulate_logistic_rows(jax.random.key(0), 128, guess, 1.0)
        >>> facts = model, made_up, guess, 50_000, dpmcmc.Budget(4.0, 1e-6)

        ``simulated("sgnht", *facts)`` takes some seconds. Its `expected.draws` are about 360.
    """
    name = _checked(sampler, model)
    from dpmcmc.recipes.simulated import search  # imports JAX

    num_rows = whole("num_rows", num_rows)
    num_chains = whole("num_chains", num_chains)
    facts = search.facts_of(
        name, seed, model, made_up, guess, num_rows, budget, clip, hessian_bound
    )
    begin = guess if begin is None else begin
    found = search.best(seed, name, facts, budget, num_chains, begin)
    constant = found.error**2 * gaussian_mu(budget) ** 2 * num_rows / model.dimension
    expected = Expected(found.error, found.num_steps, constant)
    if found.num_steps < 1 or not expected.draws >= least_draws:
        raise ValueError(_refusal(name, expected, least_draws, num_rows, model.dimension, budget))
    return _recipe(name, facts, found, expected, budget, num_chains)


def simulated_for(
    curator: Any,
    sampler: SamplerName | str,
    made_up: Any,
    guess: Any,
    num_chains: int = 2,
    **options: Any,
) -> Recipe:
    """`simulated` for a curator or a federation, whose model, capacity and budgets are public.

    Args:
        curator: A `Curator` or a `Federation` with budgets.
        sampler: As in `simulated`.
        made_up: Rows that were simulated at `guess`.
        guess: Public: parameters as they might be.
        num_chains: The number of chains that share the budget.
        **options: Further arguments of `simulated`.

    Returns:
        The recipe.

    Raises:
        TypeError: An owner has no budget.
        ValueError: As in `simulated`.

    Example:
        >>> import numpy as np
        >>> import dpmcmc
        >>> model = dpmcmc.models.logistic(1, radius=1.0)
        >>> rows = np.zeros((900, 1), np.float32), np.zeros(900, np.float32)
        >>> curator = dpmcmc.Curator(rows, model, dpmcmc.Budget(1.0, 1e-6))
        >>> simulated_for(curator, "barker", made_up=rows, guess=[0.0])
        Traceback (most recent call last):
        ...
        ValueError: sampler='barker' must have settings by simulation, as sgnht or penalty have
    """
    num_rows, budgets = public_facts(curator, "recipes.simulated(sampler, model, ..., budget)")
    budget = budgets[0] if len(budgets) == 1 else budgets
    return simulated(
        sampler, curator.model, made_up, guess, num_rows, budget, num_chains, **options
    )


def _checked(sampler: SamplerName | str, model: Model) -> SamplerName:
    """The name of a sampler that has such a recipe and fits the model."""
    if sampler not in list(SIMULATED):
        raise ValueError(
            f"sampler={str(sampler)!r} must have settings by simulation, as sgnht or penalty have"
        )
    name = SamplerName(sampler)
    if name is SamplerName.exponential_penalty and model.family is None:
        raise ValueError(
            "exponential-penalty needs a model with a `family`, such as a Gaussian with a radius: "
            "for this one take penalty"
        )
    return name


def _refusal(
    name: SamplerName,
    expected: Expected,
    least_draws: float,
    num_rows: int,
    dimension: int,
    budget: Budgets,
) -> str:
    """Why a run is not worth its budget, and what would help."""
    worth = "not one step"
    needed = ""
    if expected.num_steps > 0 and math.isfinite(expected.error):
        worth = (
            f"{expected.draws:.2g} independent draws (means off by about {expected.error:.2g} "
            "posterior standard deviations)"
        )
        times = max(1.0, least_draws / expected.draws)
        needed = f" About {times * num_rows:.2g} rows would be enough."
    elif expected.num_steps > 0:
        worth = "draws that are not finite"
    epsilon = min(one.epsilon for one in every_budget(budget))
    return (
        f"hopeless: with {num_rows} rows, {dimension} parameters and epsilon = {epsilon:g} {name} "
        f"gives {worth} in a simulation at the public guess, and a run's own checks require "
        f"{least_draws:g}.{needed} A larger budget or tighter bounds would help too; or take "
        "noise-aware, which asks much less, or sgld. To spend the budget all the same, give "
        "least_draws=0, on the command line --steps"
    )


def _recipe(
    name: SamplerName,
    facts: Any,
    found: Any,
    expected: Expected,
    budget: Budgets,
    num_chains: int,
) -> Recipe:
    """What `sample` takes."""
    from dpmcmc.recipes.simulated import search
    from dpmcmc.recipes.simulated.methods import METHODS, covariance_of, real_asks

    asks = real_asks(METHODS[name], facts.guess, found.numbers)
    *besides, (query, _) = asks

    def sampler(start: Any) -> Any:
        covariance = covariance_of(facts.guess, start.precision)
        queries = [query for query, _ in asks]
        return METHODS[name].sampler(facts.guess, queries, found.numbers, covariance)

    settings = ", ".join(f"{key} {value:.3g}" for key, value in found.numbers.items())
    return Recipe(
        sampler=sampler,
        query=query,
        name=name,
        words=f"{name} after a private start, clip {facts.model.lipschitz:.4g} "
        f"({clip_words(facts.is_proved)}); by simulation: {settings}",
        start=private_start(facts.model, budget),
        initial=search.initial(name, facts, budget, found.numbers, num_chains),
        num_chains=num_chains,
        warmup=0.1,
        besides=dict(besides),
        expected=expected,
    )
