"""The acceptance tests are reversible, and the chain the curator's coin makes is in detailed
balance.
"""

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from scipy import special, stats

from dpmcmc.acceptance import Barker, LazyBarker, Metropolis, Penalty
from dpmcmc.curator.queries.accept import clamped_log_ratio
from dpmcmc.curator.sums.exact_sum import BITS

TESTS = [
    Metropolis(),
    Barker(),
    LazyBarker(0.3),
    LazyBarker(1.0),
    Penalty(0.05),
    Penalty(0.5),
    Penalty(2.0),
    Penalty(6.0),
]
BITS_TESTS = TESTS[1:]


@pytest.mark.parametrize("test", TESTS, ids=str)
def test_reversible(test):
    log_ratio = np.linspace(-30, 30, 2001)
    np.testing.assert_allclose(
        test.probability(log_ratio), np.exp(log_ratio) * test.probability(-log_ratio), rtol=1e-11
    )


@pytest.mark.parametrize("test", TESTS, ids=str)
def test_probabilities_lie_in_the_unit_interval_and_grow(test):
    values = test.probability(np.linspace(-700, 700, 4001))
    assert np.all((values >= 0) & (values <= 1)) and np.all(np.diff(values) >= -1e-15)


def test_the_penalty_is_the_average_of_metropolis_over_its_noise():
    # Monte Carlo with 10^6 draws; false alarm 1e-4 in all (4 points, two-sided).
    normal = np.random.default_rng(1).standard_normal(1_000_000)
    for log_ratio in (-2.0, -0.1, 0.5, 3.0):
        draws = np.minimum(1, np.exp(log_ratio + 1.3 * normal - 1.3**2 / 2))
        z = (draws.mean() - Penalty(1.3).probability(log_ratio)) / (draws.std() / 1000)
        assert abs(z) < stats.norm.isf(1e-4 / 8)


@pytest.mark.parametrize("test", BITS_TESTS, ids=str)
def test_log_probabilities_are_accurate_in_both_tails(test):
    log_ratios = np.array([-80.0, -20.0, -3.0, -0.01, 0.0, 0.7, 5.0, 30.0, 80.0])
    log_accept, log_reject = test.log_probabilities(log_ratios)
    with mpmath.workdps(60):
        for l, yes, no in zip(log_ratios, log_accept, log_reject, strict=True):
            accept, reject = _reference(test, mpmath.mpf(l))
            assert abs(float(mpmath.log(accept)) - yes) < 1e-9 * max(1, abs(yes))
            assert abs(float(mpmath.log(reject)) - no) < 1e-7 * max(1, abs(no))


def _reference(test, l):
    """a(l) and 1 - a(l), each as a sum or difference that keeps its digits."""
    if isinstance(test, Penalty):
        s = mpmath.mpf(test.sigma)
        below, above = l / s - s / 2, l / s + s / 2
        tail = mpmath.exp(l) * mpmath.ncdf(-above)
        return mpmath.ncdf(below) + tail, mpmath.ncdf(-below) - tail
    kappa = mpmath.mpf(getattr(test, "kappa", 1))
    return kappa / (1 + mpmath.exp(-l)), (1 + (1 - kappa) * mpmath.exp(l)) / (1 + mpmath.exp(l))


# -- detailed balance on a small state space ------------------------------------------------------

NUM_STATES, NUM_ROWS, BOUND = 9, 40, 5.0
ROW_TERMS = np.random.default_rng(3).uniform(-1, 1, (NUM_STATES, NUM_ROWS))  # log p(x_i | state)
LOG_PRIOR = np.random.default_rng(4).normal(size=NUM_STATES)


def transition_matrix(accept_probability):
    """A walk on a circle of states: to either neighbour with probability 1/2, accepted as told."""
    matrix = np.zeros((NUM_STATES, NUM_STATES))
    for i in range(NUM_STATES):
        for j in ((i - 1) % NUM_STATES, (i + 1) % NUM_STATES):
            matrix[i, j] = 0.5 * accept_probability(i, j)
        matrix[i, i] = 1 - matrix[i].sum()
    return matrix


def curator_probability(test):
    """The coin's probability as the compiled block computes it: integer sums, public part on the
    grid, clamp, a(l).
    """

    def probability(i, j):
        with jax.enable_x64(True):
            integers = np.trunc((ROW_TERMS[j] - ROW_TERMS[i]) / BOUND * 2.0**BITS).astype(np.int64)
            public = jnp.float64(LOG_PRIOR[j] - LOG_PRIOR[i])
            log_ratio = clamped_log_ratio(
                jnp.int64(integers.sum()), public, jnp.float64(BOUND / 2.0**BITS)
            )
            return float(test.probability(log_ratio, jnp, jax.scipy.special))

    return probability


def log_target():
    """The law the chain has: that of the rows as the grid holds them."""
    grid = BOUND / 2.0**BITS
    total = np.zeros(NUM_STATES)
    for i in range(NUM_STATES - 1):
        step = np.trunc((ROW_TERMS[i + 1] - ROW_TERMS[i]) / BOUND * 2.0**BITS).sum() * grid
        total[i + 1] = total[i] + step + np.round((LOG_PRIOR[i + 1] - LOG_PRIOR[i]) / grid) * grid
    return total


def imbalance(matrix):
    target = special.softmax(log_target())
    flow = target[:, None] * matrix
    inner = np.ix_(range(NUM_STATES - 1), range(1, NUM_STATES))
    pairs = np.abs(flow - flow.T)[inner].diagonal()  # the edges between i and i + 1
    return pairs.max()


@pytest.mark.parametrize("test", TESTS, ids=str)
def test_detailed_balance(test):
    assert imbalance(transition_matrix(curator_probability(test))) < 1e-12


def test_the_grid_moves_the_target_by_less_than_its_resolution():
    exact = ROW_TERMS.sum(axis=1) + LOG_PRIOR
    assert (
        np.abs((log_target() - log_target()[0]) - (exact - exact[0])).max()
        < NUM_STATES * NUM_ROWS * BOUND / 2.0**BITS
    )


BROKEN = {
    "penalty not subtracted": lambda l: special.ndtr(l) + np.exp(l + 0.5) * special.ndtr(-l - 1),
    "penalty subtracted for nothing": lambda l: np.minimum(1, np.exp(l - 0.5)),
    "logistic of half": lambda l: special.expit(l / 2),
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
def test_broken_tests_are_out_of_balance(broken):
    class Twin:
        def probability(self, log_ratio, xp, special):
            return broken(np.asarray(log_ratio))

    assert imbalance(transition_matrix(curator_probability(Twin()))) > 1e-4
