"""The bill of every sampler, by chains and by the length of a block, is the hand count."""

import jax
import jax.numpy as jnp
import pytest

from dpmcmc import Accept, Barker, Curator, ExactGradient, ExactRatio, Gradient, LogRatio, PenaltyAccept, hmc, sgld, sgnht
from dpmcmc.loop import begin_program, block_program
from tests.table import MODEL, ROWS, SAMPLERS

CURATOR = Curator(ROWS, MODEL, None)
GRADIENT = Gradient(20.0, 0.1)
RATIO, BIT, BARKER = LogRatio(20.0, 0.1), PenaltyAccept(20.0, 0.1, 5.0), Accept(Barker(), 25.0)
LEAPFROG = 3

CASES = {str(case): (case.sampler, {}, {case.query: 1}) for case in SAMPLERS}
CASES |= {
    "sgld": (sgld(MODEL.log_prior, GRADIENT, 0.01), {}, {GRADIENT: 1}),
    "sgnht": (sgnht(MODEL.log_prior, GRADIENT, 0.01), {}, {GRADIENT: 1}),
    "sgld, not private": (sgld(MODEL.log_prior, ExactGradient(), 0.01), {}, {ExactGradient(): 1}),
    "hmc, not private": (
        hmc(MODEL.log_prior, ExactGradient(), ExactRatio(), 0.1, LEAPFROG),
        {ExactGradient(): 1},
        {ExactGradient(): LEAPFROG, ExactRatio(): 1},
    ),
}
for name, test in {"ratio": RATIO, "bit": BIT, "barker": BARKER}.items():
    kept = hmc(MODEL.log_prior, GRADIENT, test, 0.1, LEAPFROG)
    fresh = hmc(MODEL.log_prior, GRADIENT, test, 0.1, LEAPFROG, reuse=False)
    CASES[f"hmc, {name}, reuse"] = (kept, {GRADIENT: 1}, {GRADIENT: LEAPFROG, test: 1})
    CASES[f"hmc, {name}, no reuse"] = (fresh, {}, {GRADIENT: LEAPFROG + 1, test: 1})


@pytest.mark.parametrize("sampler, at_start, per_step", CASES.values(), ids=CASES)
def test_plan_is_the_hand_count(sampler, at_start, per_step):
    for num_chains, num_steps in ((1, 5), (3, 1)):
        keys = jax.random.split(jax.random.key(0), num_chains)
        begin = CURATOR.trace(begin_program(sampler), keys, jnp.zeros((num_chains, 2)))
        block = CURATOR.trace(block_program(sampler, num_steps), keys, *begin.shapes, jnp.int32(0))
        assert begin.plan == {query: num_chains * count for query, count in at_start.items()}
        assert block.plan == {query: num_chains * num_steps * count for query, count in per_step.items()}


def test_thinning_does_not_change_the_bill():
    sampler, _, per_step = CASES["sgld"]
    keys = jax.random.split(jax.random.key(0), 2)
    begin = CURATOR.trace(begin_program(sampler), keys, jnp.zeros((2, 2)))
    plans = [CURATOR.trace(block_program(sampler, 6, thin), keys, *begin.shapes, jnp.int32(0)).plan for thin in (1, 3)]
    assert plans[0] == plans[1] == {query: 12 * count for query, count in per_step.items()}
