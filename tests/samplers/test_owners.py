"""One owner and three have the same posterior, for every sampler of the table whose answers add.

Welch's test of five moments' averages over 64 independent chains; false-alarm rate 1e-3 for all
cases together.
"""

import functools

import numpy as np
import pytest
from scipy import stats

from dpmcmc import Curator, Federation, penalty, random_walk, testing
from dpmcmc.queries import BatchRatio, FixedBatch
from tests.cases.samplers import ALL, TESTS
from tests.chains import COINS, COINS_MODEL, EXACT_MEAN, MODEL, ROWS, SECRET, run_chains

NUM_STEPS = 300


def adds(case) -> bool:
    # A batch of fixed size is drawn from one owner's public number of rows: such queries have a
    # test of their own below.
    return all(
        getattr(query, "adds", False) and not isinstance(getattr(query, "batch", None), FixedBatch)
        for query in {**case.per_step, **case.at_start, **case.by_the_start}
    )


def is_proposed_anew(case) -> bool:
    """Whether it differs from another case in more than its proposal, which no owner sees."""
    test, _, name = case.name.rpartition(", ")
    return test not in TESTS or name == "guided"


CASES = [case for case in ALL if adds(case) and is_proposed_anew(case)]


def owners(parts):
    curators = [
        Curator(part, MODEL, None, fixed_secret=SECRET + np.uint32(index))
        for index, part in enumerate(parts)
    ]
    return Federation(curators)


@functools.cache
def moments_of_one(name):
    return moments(next(case for case in CASES if case.name == name), seed=0)


def moments(case, seed, curator=None):
    chains, _ = run_chains(
        case.sampler, case.query, num_steps=NUM_STEPS, seed=seed, curator=curator, start=case.start
    )
    chains = chains - EXACT_MEAN
    products = [chains[..., i] * chains[..., j] for i, j in ((0, 0), (0, 1), (1, 1))]
    return np.stack([chains[..., 0], chains[..., 1], *products], axis=-1).mean(axis=1)


def least_p_value(left, right) -> float:
    return float(stats.ttest_ind(left, right, equal_var=False).pvalue.min())


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=str)
def test_one_owner_and_three_agree(case):
    one, three = moments_of_one(case.name), moments(case, 1, owners(np.split(ROWS, [5, 11])))
    assert least_p_value(one, three) > 1e-3 / (5 * len(CASES))


@pytest.mark.slow
def test_an_owner_left_out_is_caught():
    case = next(case for case in CASES if case.name == "sgld")
    one, two = moments_of_one(case.name), moments(case, 1, owners(np.split(ROWS, [5, 11])[:2]))
    assert least_p_value(one, two) < 1e-6


# -- a batch of fixed size is one owner's: every owner draws its own ------------------------------

COIN_MEAN, COIN_VARIANCE = (
    np.asarray(part, float)
    for part in testing.gaussian_posterior(
        COINS[:999], np.ones(1), prior_scale=1.0, temperature=0.03
    )
)


def coin_moments(parts, seed: int):
    """51 of 999 rows, or as many of all owners together: the first owner has tails only, the last
    one heads only.
    """
    query = BatchRatio(2.2, 0.3, FixedBatch(51 // len(parts), 999 // len(parts)), 0.03)
    curators = [
        Curator(part, COINS_MODEL, None, fixed_secret=SECRET + np.uint32(index))
        for index, part in enumerate(parts)
    ]
    sampler = penalty(COINS_MODEL.log_prior, query, random_walk(0.2, 0.6))
    root = np.sqrt(COIN_VARIANCE)
    chains, _ = run_chains(
        sampler,
        query,
        num_steps=1000,
        seed=seed,
        mean=COIN_MEAN,
        root=root,
        curator=Federation(curators),
    )
    centred = (chains[..., 0] - COIN_MEAN) / root[0, 0]
    return np.stack([centred, centred**2], axis=-1).mean(axis=1)


@functools.cache
def coins_of_one():
    return coin_moments([COINS[:999]], 0)


@pytest.mark.slow
def test_one_owner_and_three_agree_with_batches_of_fixed_size():
    """False-alarm rate 1e-3.

    The bias of a batch, below 0.006 posterior standard deviations, is not seen by so few chains.
    """
    one, three = coins_of_one(), coin_moments(np.split(COINS[:999], 3), 1)
    assert least_p_value(one, three) > 1e-3 / 2


@pytest.mark.slow
def test_answers_that_are_too_small_are_caught(monkeypatch):
    one, answer = coins_of_one(), BatchRatio.answer

    def scaled(*arguments):
        found = answer(*arguments)
        return found._replace(value=0.7 * found.value)

    monkeypatch.setattr(BatchRatio, "answer", scaled)
    assert least_p_value(one, coin_moments(np.split(COINS[:999], 3), 1)) < 1e-6


def test_every_query_that_adds_is_here():
    assert {type(query).__name__ for case in CASES for query in case.per_step} >= {
        "LogRatio",
        "Gradient",
        "SufficientStatistic",
        "TunaRatio",
    }
