"""The settings that do best on simulated rows."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpmcmc.accounting import calibrate
from dpmcmc.accounting.bill import costs_of
from dpmcmc.recipes.budgets import Budgets, every_budget
from dpmcmc.recipes.recipe import SamplerName
from dpmcmc.recipes.simulated.answers import MadeUp, centred
from dpmcmc.recipes.simulated.methods import METHODS, Guess, Numbers, real_asks
from dpmcmc.recipes.simulated.reference import Posterior, nearly_all_below, posterior_of
from dpmcmc.recipes.simulated.simulation import MOST_STEPS, Simulation
from dpmcmc.recipes.start import private_start, start_plan, with_bounds
from dpmcmc.types import Model

FURTHEST = 4  # times as many steps as are simulated
NUM_LAST = 2  # as many times as many runs for the forecast as for the choice


class Facts(NamedTuple):
    """What is public, and what follows from simulated rows."""

    model: Model  # with bounds
    table: MadeUp
    posterior: Posterior
    guess: Guess
    is_proved: bool  # the clip


class Found(NamedTuple):
    """The best settings, and what came of runs with them."""

    numbers: Numbers
    num_steps: int  # of all chains together
    error: float


def facts_of(
    name: SamplerName,
    seed: int,
    model: Model,
    made_up: Any,
    guess: Any,
    num_rows: int,
    budget: Budgets,
    clip: float | None,
    hessian_bound: float | None,
) -> Facts:
    """The posterior of the simulated rows, and bounds of the model."""
    units = tuple(one.unit for one in every_budget(budget))
    rows = jax.tree.map(jnp.asarray, made_up)
    table = centred(MadeUp(model, rows, num_rows, units), guess)
    posterior = posterior_of(seed, table, guess)
    if not posterior.is_known:
        raise ValueError(
            "no forecast: the posterior of the simulated rows is so far from normal that settings "
            "for it cannot be found by simulation. Another guess or more simulated rows may help; "
            "or choose settings of your own"
        )
    if name is SamplerName.sgnht and not posterior.is_nearly_normal:
        raise ValueError(
            "no forecast: the posterior of the simulated rows is curved, in some direction "
            f"{posterior.excess**0.5:.2g} times as wide as it is near its mode, and the friction "
            "of sgnht must suit all directions. Take guided, which is exact"
        )
    is_proved = clip is None and model.lipschitz is not None
    if clip is None and not is_proved:
        clip = nearly_all_below(table, posterior, jax.grad)
    if hessian_bound is None and model.hessian_bound is None:
        hessian_bound = nearly_all_below(table, posterior, jax.hessian)
    bounded = with_bounds(model, budget, clip, hessian_bound)
    joint = math.hypot(*(math.sqrt(2 * one.sensitivity * one.rows_per_person) for one in units))
    guessed = Guess(bounded, posterior.covariance, table.sensitivity, joint)
    return Facts(bounded, table, posterior, guessed, is_proved)


def best(
    seed: int, name: SamplerName, facts: Facts, budget: Budgets, num_chains: int, begin: Any
) -> Found:
    """The settings with the smallest error, and the error of further runs with them."""
    method = METHODS[name]
    start = private_start(facts.model, budget)
    simulation = Simulation(
        method, facts.guess, facts.table, facts.posterior, start, begin, num_chains
    )
    key_search, *keys_last = jax.random.split(jax.random.key(seed), 1 + NUM_LAST)
    counted = []
    for numbers in method.settings(facts.guess):
        num_steps = steps(name, facts, budget, numbers, num_chains)
        if num_steps > 0:
            counted.append((num_steps, numbers))
    if not counted:
        return Found({}, 0, math.inf)
    # The fewest steps, and those that the simulation is long enough for
    fewest = min(num_steps for num_steps, _ in counted)
    most = max(fewest, FURTHEST * MOST_STEPS)
    results = []
    for num_steps, numbers in counted:
        if num_steps <= most:
            squares = simulation.squares(key_search, numbers, num_steps)
            results.append(Found(numbers, num_steps, math.sqrt(np.mean(squares))))
    found = min(results, key=lambda each: each.error)
    last = [simulation.squares(key, found.numbers, found.num_steps) for key in keys_last]
    return found._replace(error=math.sqrt(np.mean(last)))


def steps(
    name: SamplerName, facts: Facts, budget: Budgets, numbers: Numbers, num_chains: int
) -> int:
    """How many steps of all chains together the budget allows."""
    per_step = dict(real_asks(METHODS[name], facts.guess, numbers))
    first = initial(name, facts, budget, numbers, num_chains)
    return num_chains * min(
        calibrate.steps(
            {cost: num_chains * count for cost, count in costs_of(per_step, one.unit).items()},
            one.epsilon,
            one.delta,
            costs_of(first, one.unit),
        )
        for one in every_budget(budget)
    )


def initial(
    name: SamplerName, facts: Facts, budget: Budgets, numbers: Numbers, num_chains: int
) -> dict[Any, int]:
    """What is asked before the first step."""
    first = dict(start_plan(facts.model, budget))
    if METHODS[name].is_asked_at_start:
        query, _ = real_asks(METHODS[name], facts.guess, numbers)[0]
        first[query] = first.get(query, 0) + num_chains
    return first
