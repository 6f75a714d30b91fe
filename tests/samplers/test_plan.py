"""The bill of every sampler, by chains and by the length of a block, is the hand count."""

import jax
import jax.numpy as jnp
import pytest

from dpmcmc import Curator
from dpmcmc.loop import begin_program, block_program
from tests.table import HAMILTONIAN, LANGEVIN, MODEL, ROWS, SAMPLERS

CURATOR = Curator(ROWS, MODEL, None)
CASES = SAMPLERS + HAMILTONIAN + LANGEVIN


@pytest.mark.parametrize("case", CASES, ids=str)
def test_plan_is_the_hand_count(case):
    for num_chains, num_steps in ((1, 5), (3, 1)):
        keys = jax.random.split(jax.random.key(0), num_chains)
        begin = CURATOR.trace(begin_program(case.sampler), keys, jnp.zeros((num_chains, 2)))
        block = CURATOR.trace(block_program(case.sampler, num_steps), keys, *begin.shapes, jnp.int32(0))
        assert begin.plan == {query: num_chains * count for query, count in case.at_start.items()}
        assert block.plan == {query: num_chains * num_steps * count for query, count in case.per_step.items()}


def test_thinning_does_not_change_the_bill():
    case = LANGEVIN[0]
    keys = jax.random.split(jax.random.key(0), 2)
    begin = CURATOR.trace(begin_program(case.sampler), keys, jnp.zeros((2, 2)))
    plans = [CURATOR.trace(block_program(case.sampler, 6, thin), keys, *begin.shapes, jnp.int32(0)).plan for thin in (1, 3)]
    assert plans[0] == plans[1] == {case.query: 12}
