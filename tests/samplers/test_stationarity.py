"""Every test with every proposal keeps the exact posterior; deliberately broken twins do not.

5 moments of each case: family-wise false-alarm rate 1e-3 (Bonferroni over all scores, Student's law
with 63 degrees of freedom).
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpmcmc.queries import LogRatio
from dpmcmc.samplers.penalty import PenaltyInfo, WalkState, choose
from dpmcmc.samplers.proposals import Proposal, guided_walk
from dpmcmc.types import Answer, Sampler
from tests.cases import by_schedule
from tests.cases.samplers import ALL, CAP, PROPOSALS, TESTS
from tests.chains import EXACT_COVARIANCE, EXACT_MEAN, MODEL, run_chains
from tests.statistics import effective_size, moment_z_scores, threshold

STATIONARY = [case for case in ALL if case.is_law_tested]
LIMIT = threshold(num_scores=5 * len(STATIONARY), num_chains=64)
# Effective draws: a mean off by a sixth of a standard deviation is caught, a variance by a quarter
FEWEST = 1500


def scores(sampler, query, start=None):
    # After a start steps are long: draws are nearly independent.
    chains, _ = run_chains(sampler, query, num_steps=2000 if start is None else 400, start=start)
    return chains, np.abs(moment_z_scores(chains, EXACT_MEAN, EXACT_COVARIANCE))


@pytest.mark.parametrize("case", by_schedule(STATIONARY), ids=str)
def test_the_posterior_is_stationary(case):
    chains, found = scores(case.sampler, case.query, case.start)
    assert found.max() < LIMIT
    assert effective_size(chains) >= FEWEST


# -- twins ----------------------------------------------------------------------------------------

MAKE_PENALTY, RATIO = TESTS["penalty ratio"]


def without_correction(log_prior, ratio, proposal):
    """The penalty test that forgets to subtract v / 2."""

    def step(rng_key, state, ask):
        key_move, key_ask, key_accept = jax.random.split(rng_key, 3)
        point, if_accepted, if_rejected = proposal.propose(key_move, state.position, state.memory)
        answer = ask(key_ask, ratio, state.position, point)
        log_ratio = answer.value + log_prior(point) - log_prior(state.position)
        is_accepted = -jax.random.exponential(key_accept) < log_ratio
        return choose(is_accepted, point, if_accepted, state, if_rejected), PenaltyInfo(
            is_accepted, log_ratio, 0.0 * log_ratio, ~is_accepted
        )

    return Sampler(lambda key, position, ask: WalkState(position, ()), step)


@dataclasses.dataclass(frozen=True)
class ClaimsNoiseItDoesNotAdd(LogRatio):
    """Reports the variance of its noise but adds (next to) none: then v / 2 is subtracted for
    nothing.
    """

    def answer(self, key, model, rows, position, proposal):
        exact = LogRatio(self.clip, 1e-6).answer(key, model, rows, position, proposal)
        honest = super().answer(key, model, rows, position, proposal)
        return Answer(exact.value, honest.variance)


def guided_by_the_state(scale, cap):
    """A guided walk whose component depends on where it is."""
    honest = guided_walk(scale, cap)

    def propose(rng_key, position, direction):
        component = jnp.argmax(jnp.abs(position))
        size = scale[0] * jnp.abs(jax.random.normal(rng_key, (), position.dtype))
        flipped = direction.at[component].multiply(-1)
        return position.at[component].add(size * direction[component]), direction, flipped

    return Proposal(honest.init, propose)


def guided_without_flips(scale, cap):
    honest = guided_walk(scale, cap)

    def propose(rng_key, position, direction):
        proposal, if_accepted, _ = honest.propose(rng_key, position, direction)
        return proposal, if_accepted, if_accepted

    return Proposal(honest.init, propose)


TWINS = {
    "penalty not subtracted": (
        without_correction(MODEL.log_prior, RATIO, PROPOSALS["isotropic"](CAP)),
        RATIO,
    ),
    "subtracted when nothing was added": (
        MAKE_PENALTY(
            MODEL.log_prior, ClaimsNoiseItDoesNotAdd(20.0, 0.07), PROPOSALS["isotropic"](CAP)
        ),
        ClaimsNoiseItDoesNotAdd(20.0, 0.07),
    ),
    "guided component depends on the state": (
        MAKE_PENALTY(MODEL.log_prior, RATIO, guided_by_the_state([0.35, 0.5], CAP)),
        RATIO,
    ),
    "guided direction not flipped": (
        MAKE_PENALTY(MODEL.log_prior, RATIO, guided_without_flips([0.35, 0.5], CAP)),
        RATIO,
    ),
}


WITHOUT_RATIO = PROPOSALS["langevin"](CAP)._replace(log_density_ratio=lambda *points: 0.0)
TWINS |= {
    f"asymmetric move without its ratio, {test}": (
        make(MODEL.log_prior, query, WITHOUT_RATIO),
        query,
    )
    for test, (make, query) in TESTS.items()
    if test in ("penalty ratio", "barker")
}


@pytest.mark.parametrize(
    "sampler, query",
    [
        pytest.param(*twin, marks=() if name == "penalty not subtracted" else pytest.mark.slow)
        for name, twin in TWINS.items()
    ],
    ids=TWINS,
)
def test_twins_are_caught(sampler, query):
    assert scores(sampler, query)[1].max() > LIMIT
