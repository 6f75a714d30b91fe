"""The bill of every sampler, by chains and by the length of a block, is the hand count."""

import jax
import jax.numpy as jnp
import pytest

import dpmcmc
from dpmcmc import Curator
from dpmcmc.run.loop import begin_program, block_program
from dpmcmc.types import is_standing
from tests.table import ALL, CONTRACT, GRID, LANGEVIN

# A proposal asks nothing: of those in the grid, some are enough every day.
SLOW = [case for case in GRID if case not in CONTRACT and not case.name.endswith(", isotropic")]


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=pytest.mark.slow) if case in SLOW else case for case in ALL],
    ids=str,
)
def test_plan_is_the_hand_count(case):
    curator = Curator(case.rows, case.model, None)
    keys = jax.random.split(jax.random.key(0), 3)
    begin = curator.trace(
        begin_program(case.sampler, case.start), keys, jnp.zeros((3, case.model.dimension))
    )
    block = curator.trace(block_program(case.sampler, 5), keys, *begin.shapes, jnp.int32(0))
    assert begin.plan == {query: 3 * count for query, count in case.at_start.items()} | dict(
        case.by_the_start
    )
    assert block.plan == {
        query: (1 if is_standing(query) else 15) * count for query, count in case.per_step.items()
    }


def test_every_sampler_and_start_is_in_the_table():
    """By the function that made it: noise_aware, survey and newton_start were in no table."""
    samplers = [case.sampler.step if case.start is None else case.sampler for case in CONTRACT]
    starts = [case.start for case in CONTRACT if case.start is not None]
    made = {step.__qualname__.partition(".")[0] for step in (*samplers, *starts)}
    # Called by a function of what the start finds
    made |= {name for step in samplers for name in step.__code__.co_names}
    listed = {
        name
        for module, names in dpmcmc._NAMES.items()
        for name in names
        if module.startswith("samplers.") and name.islower()
    }
    # Proposals, which the grid has
    assert listed - made == {"guided_walk", "one_component", "random_walk"}


def test_thinning_does_not_change_the_bill():
    case = LANGEVIN[0]
    curator = Curator(case.rows, case.model, None)
    keys = jax.random.split(jax.random.key(0), 2)
    begin = curator.trace(begin_program(case.sampler), keys, jnp.zeros((2, 2)))
    plans = [
        curator.trace(block_program(case.sampler, 6, thin), keys, *begin.shapes, jnp.int32(0)).plan
        for thin in (1, 3)
    ]
    assert plans[0] == plans[1] == {case.query: 12}
