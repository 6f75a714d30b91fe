"""Numbers of steps that were computed independently of this code, at delta = 1e-6 unless said
otherwise.
"""

import pytest

from dpmcmc.acceptance import Barker, Penalty
from dpmcmc.accounting import accountants, calibrate
from dpmcmc.accounting.costs import AcceptBit, DPBarker, Gaussian, SubsampledGaussian
from dpmcmc.types import Neighbours

DELTA = 1e-6
BUDGETS = (0.5, 1.0, 2.0, 4.0, 6.0)


@pytest.mark.parametrize(
    "cost, listed, exact",
    [
        (AcceptBit(Barker(), 0.04), (34, 123, 442, 1556, 3194), (38, 140, 502, 1755, 3579)),
        (AcceptBit(Penalty(1.0), 0.03), (31, 124, 466, 1676, 3463), (36, 143, 533, 1896, 3890)),
    ],
    ids=str,
)
def test_accept_bits_by_renyi_divergences(cost, listed, exact):
    for epsilon, least, most in zip(BUDGETS, listed, exact, strict=True):
        assert least - 1 <= calibrate.steps({cost: 1}, epsilon, DELTA) <= most


def test_the_ratio_behind_the_penalty_bit():
    assert [calibrate.steps({Gaussian(1 / 0.03): 1}, epsilon, DELTA) for epsilon in BUDGETS] == [
        17,
        62,
        223,
        780,
        1590,
    ]


@pytest.mark.parametrize(
    "bound, method, listed",
    [
        ("paper", "rdp-paper", (181, 2850)),
        ("paper", "rdp", (258, 3515)),
        ("tight", "rdp-paper", (1974, 96_620)),
        ("tight", "rdp", (3641, 136_811)),
    ],
)
def test_dp_barker(bound, method, listed):
    cost = DPBarker(1000, 100_000, bound)
    ours = [calibrate.steps({cost: 1}, epsilon, DELTA, method=method) for epsilon in (1.0, 4.0)]
    assert ours == pytest.approx(listed, rel=0.01)


def test_fixed_size_batches_by_the_printed_theorem():
    ledger = {SubsampledGaussian("fixed", 0.01, 2.5, Neighbours.REPLACE_ONE): 10_000}
    assert accountants.epsilon_by("rdp", ledger, DELTA) == pytest.approx(4.43, rel=0.01)
    assert accountants.epsilon_by("rdp-paper", ledger, DELTA) == pytest.approx(4.92, rel=0.01)
