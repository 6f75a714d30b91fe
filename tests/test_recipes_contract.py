"""What every recipe promises: that it asks what it says, and no more than the budget allows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpmcmc import Curator
from dpmcmc.accounting import accountants
from dpmcmc.accounting.bill import entries, total_costs
from dpmcmc.run.programs import Begin
from tests.cases.recipes import ALL, BUDGET, MODEL, public_recipes

EACH = pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=[pytest.mark.slow] * case.is_slow) for case in ALL],
    ids=str,
)


def test_every_public_recipe_is_in_the_table():
    assert {case.of for case in ALL} == public_recipes()


@EACH
def test_the_start_asks_what_the_recipe_says(case):
    """It is traced only: nothing is spent."""
    features = np.zeros((10, 2), np.float32)
    rows = (features, np.zeros(10, np.float32)) if case.model is MODEL else features
    recipe = case.recipe
    keys = jax.random.split(jax.random.key(0), recipe.num_chains)
    positions = jnp.zeros((recipe.num_chains, MODEL.dimension))
    program = Begin(recipe.sampler, recipe.start)
    plan = Curator(rows, case.model, None).trace(program, keys, positions).plan
    assert plan == recipe.initial


@EACH
def test_the_start_leaves_the_budget_for_the_steps(case):
    """A recipe whose steps ask nothing spends nearly all of it on the start."""
    costs = total_costs(entries(case.recipe.initial, BUDGET.unit))
    epsilon = accountants.epsilon(costs, BUDGET.delta).epsilon
    least = 0.95 if case.recipe.query is None else 0.0
    assert least * BUDGET.epsilon <= epsilon <= BUDGET.epsilon
