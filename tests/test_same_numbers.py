"""The bill, epsilon and the draws of every sampler of the table, and the bill of a run on the
demo's table, are as they were.

The numbers were written down before the code was put into other folders, by `python -m
tests.test_same_numbers`. Draws are those of one secret; where the law or its randomness changes on
purpose, write the file anew and say why in the commit.
"""

import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpmcmc import Budget, Curator, demo, recipes
from dpmcmc.accounting import accountants
from dpmcmc.accounting.bill import entries, to_json, total_costs
from dpmcmc.errors import PrivacyRefusal
from dpmcmc.run.programs import Begin, Block
from dpmcmc.types import Unit
from tests.cases.samplers import ALL
from tests.chains import SECRET, compiled

FILE = pathlib.Path(__file__).parent / "same_numbers.json"
DELTA, NUM_CHAINS, NUM_STEPS = 1e-6, 2, 4


def billed(plan, unit):
    bill = entries(plan, unit)
    try:
        epsilon = accountants.epsilon(total_costs(bill), DELTA).epsilon
    except PrivacyRefusal:
        epsilon = float("inf")
    return {"bill": json.loads(json.dumps(to_json(bill))), "epsilon": epsilon}


def of_case(case):
    curator = Curator(case.rows, case.model, None, fixed_secret=SECRET)
    keys = jax.random.split(jax.random.key(0), NUM_CHAINS)
    positions = jnp.full((NUM_CHAINS, case.model.dimension), 0.1, jnp.float32)
    begin = curator.trace(Begin(case.sampler, case.start), keys, positions)
    block = curator.trace(Block(case.sampler, NUM_STEPS, 1), keys, *begin.shapes, jnp.int32(0))
    plan = {
        query: begin.plan.get(query, 0) + block.plan.get(query, 0)
        for query in {**begin.plan, **block.plan}
    }
    grant = curator.grant(plan)
    begun = grant.run(compiled(begin, 1), keys, positions)
    _, (draws, _) = grant.run(compiled(block, 1), keys, *begun, jnp.int32(0))
    return {**billed(plan, Unit()), "draws": np.asarray(draws, float).tolist()}


def of_demo():
    budget = Budget(1.0, 1e-6)
    num_rows = len(demo.read_rows()[1])
    return billed(recipes.noise_aware(demo.make_model(), num_rows, budget).initial, budget.unit)


def read():
    return json.loads(FILE.read_text())


@pytest.mark.slow
@pytest.mark.parametrize("case", ALL, ids=str)
def test_samplers_are_billed_and_draw_as_before(case):
    found, before = of_case(case), read()[case.name]
    assert found["bill"] == before["bill"]
    assert found["epsilon"] == pytest.approx(before["epsilon"], rel=1e-12)
    np.testing.assert_allclose(found["draws"], before["draws"], rtol=1e-4, atol=1e-5)


def test_a_run_on_the_demo_table_is_billed_as_before():
    found, before = of_demo(), read()["demo"]
    assert found["bill"] == before["bill"]
    assert found["epsilon"] == pytest.approx(before["epsilon"], rel=1e-12)


if __name__ == "__main__":
    FILE.write_text(
        json.dumps({case.name: of_case(case) for case in ALL} | {"demo": of_demo()}, indent=1)
        + "\n"
    )
