"""The bill of every sampler, by chains and by the length of a block, is the hand count."""

import jax
import jax.numpy as jnp
import pytest

from dpmcmc import Curator, one_component
from dpmcmc.run.programs import Begin, Block
from dpmcmc.types import is_standing
from tests.cases import by_schedule
from tests.cases.samplers import ALL, LANGEVIN, public_functions


@pytest.mark.parametrize("case", by_schedule(ALL), ids=str)
def test_plan_is_the_hand_count(case):
    curator = Curator(case.rows, case.model, None)
    keys = jax.random.split(jax.random.key(0), 3)
    begin = curator.trace(
        Begin(case.sampler, case.start), keys, jnp.zeros((3, case.model.dimension))
    )
    block = curator.trace(Block(case.sampler, 5), keys, *begin.shapes, jnp.int32(0))
    assert begin.plan == {query: 3 * count for query, count in case.at_start.items()} | dict(
        case.by_the_start
    )
    assert block.plan == {
        query: (1 if is_standing(query) else 15) * count for query, count in case.per_step.items()
    }


def test_every_public_sampler_start_and_proposal_is_in_the_table():
    assert {function for case in ALL for function in case.of} == public_functions()


def test_every_public_sampler_has_a_daily_case():
    """Of the proposals the others run at night."""
    daily = {function for case in ALL if case.daily for function in case.of}
    assert public_functions() - daily == {one_component}


def test_cases_are_of_the_functions_that_made_them():
    """By the names of their steps: a case that names another function would hide a missing one."""
    for case in ALL:
        makers = {case.sampler.step if case.start is None else case.start}
        assert {maker.__qualname__.partition(".")[0] for maker in makers} <= {
            function.__name__ for function in case.of
        }


def test_thinning_does_not_change_the_bill():
    case = LANGEVIN[0]
    curator = Curator(case.rows, case.model, None)
    keys = jax.random.split(jax.random.key(0), 2)
    begin = curator.trace(Begin(case.sampler), keys, jnp.zeros((2, 2)))
    plans = [
        curator.trace(Block(case.sampler, 6, thin), keys, *begin.shapes, jnp.int32(0)).plan
        for thin in (1, 3)
    ]
    assert plans[0] == plans[1] == {case.query: 12}
