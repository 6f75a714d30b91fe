"""One owner and three have the same posterior, for every sampler of the table whose answers add.

Welch's test of five moments' averages over 64 independent chains; false-alarm rate 1e-3 for all cases together.
"""

import functools

import numpy as np
import pytest
from scipy import stats

from dpmcmc import Curator, Federation, FixedBatch
from tests.table import CONTRACT, EXACT_MEAN, MODEL, ROWS, SECRET, run_chains

NUM_STEPS = 300
EVERY_DAY = ("sgld",)


def adds(case) -> bool:
    # A batch of fixed size is drawn from one owner's public number of rows: such queries fit owners of that size only.
    return all(
        getattr(query, "adds", False) and not isinstance(getattr(query, "batch", None), FixedBatch)
        for query in {**case.per_step, **case.at_start}
    )


CASES = [
    case for case in CONTRACT if adds(case) and ("penalty ratio" not in case.name or "guided" in case.name or "hmc" in case.name)
]


def owners(parts):
    curators = [Curator(part, MODEL, None, fixed_secret=SECRET + np.uint32(index)) for index, part in enumerate(parts)]
    return Federation(curators)


@functools.cache
def moments_of_one(name):
    return moments(next(case for case in CASES if case.name == name), seed=0)


def moments(case, seed, curator=None):
    chains = run_chains(case.sampler, case.query, num_steps=NUM_STEPS, seed=seed, curator=curator)[0] - EXACT_MEAN
    products = [chains[..., i] * chains[..., j] for i, j in ((0, 0), (0, 1), (1, 1))]
    return np.stack([chains[..., 0], chains[..., 1], *products], axis=-1).mean(axis=1)


def least_p_value(left, right) -> float:
    return float(stats.ttest_ind(left, right, equal_var=False).pvalue.min())


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=() if case.name in EVERY_DAY else pytest.mark.slow) for case in CASES], ids=str
)
def test_one_owner_and_three_agree(case):
    one, three = moments_of_one(case.name), moments(case, 1, owners(np.split(ROWS, [5, 11])))
    assert least_p_value(one, three) > 1e-3 / (5 * len(CASES))


def test_an_owner_left_out_is_caught():
    case = next(case for case in CASES if case.name == "sgld")
    one, two = moments_of_one(case.name), moments(case, 1, owners(np.split(ROWS, [5, 11])[:2]))
    assert least_p_value(one, two) < 1e-6


def test_every_query_that_adds_is_here():
    assert {type(query).__name__ for case in CASES for query in case.per_step} >= {
        "LogRatio",
        "Gradient",
        "SufficientStatistic",
        "MinibatchNoisyRatio",
    }
