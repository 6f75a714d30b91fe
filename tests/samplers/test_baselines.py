"""The gradient samplers on exact answers: classic Hamiltonian Monte Carlo keeps the posterior, and
a clip that bites is seen.

Random-walk Metropolis and Barker's test without privacy are in tests/cases/samplers.py. |t| below
the limit: false-alarm rate 1e-3 for the 5 moments of 64 chains together (Bonferroni, Student's law
with 63 degrees of freedom).
"""

import numpy as np
import pytest

from dpmcmc import hmc
from dpmcmc.queries import NonPrivateGradient, NonPrivateRatio
from tests.chains import EXACT_COVARIANCE, EXACT_MEAN, MODEL, run_chains
from tests.statistics import effective_size, moment_z_scores, threshold

LIMIT = threshold(num_scores=5, num_chains=64)
MASS = np.linalg.inv(EXACT_COVARIANCE)


def chains(gradient, ratio):
    sampler = hmc(MODEL.log_prior, gradient, ratio, 1.0, 2, MASS, jitter=0.3)
    found, info = run_chains(sampler, ratio, num_steps=300)
    return found, np.abs(moment_z_scores(found, EXACT_MEAN, EXACT_COVARIANCE)).max(), info


@pytest.mark.slow
def test_hamiltonian_monte_carlo_keeps_the_posterior():
    found, score, info = chains(NonPrivateGradient(), NonPrivateRatio())
    assert score < LIMIT and effective_size(found) >= 2000
    # Exact gradients: the leapfrog's own error is all there is
    assert np.mean(info.is_accepted) > 0.9


@pytest.mark.slow
def test_clipped_gradients_cost_acceptance_and_nothing_else():
    found, score, info = chains(NonPrivateGradient(0.5), NonPrivateRatio())
    assert score < LIMIT and effective_size(found) >= 2000
    assert np.mean(info.is_accepted) < 0.9


@pytest.mark.slow
def test_clipped_ratios_are_caught():
    """The twin, and what the clip is there to show: rows that reach it move the law."""
    assert chains(NonPrivateGradient(), NonPrivateRatio(0.6))[1] > LIMIT


@pytest.mark.slow
def test_a_tempered_ratio_is_caught():
    assert chains(NonPrivateGradient(), NonPrivateRatio(temperature=0.5))[1] > LIMIT
