"""Traps of dp-accounting 0.6 that a wrapper would fall into, and what we answer instead."""

import math

import pytest

from dpmcmc.accounting import accountants, pld
from dpmcmc.accounting.costs import Gaussian, Pure, SubsampledGaussian
from dpmcmc.types import Neighbours


def test_counts_are_not_ignored():
    """Their PLD accountant composes randomised response once, whatever the count: epsilon 0.20 instead of 9.79."""
    import dp_accounting
    from dp_accounting.pld import PLDAccountant

    event = dp_accounting.RandomizedResponseDpEvent(noise_parameter=0.9, num_buckets=2)
    accountant = PLDAccountant(dp_accounting.NeighboringRelation.REPLACE_SPECIAL)
    try:
        theirs = accountant.compose(event, 100).get_epsilon(1e-5)
    except Exception:
        theirs = None
    once = math.log(0.55 / 0.45)
    ours = accountants.epsilon({Pure(once): 100}, 1e-5).epsilon
    assert ours == pytest.approx(9.79, rel=0.01)
    assert theirs is None or theirs < 0.5 or theirs == pytest.approx(ours, rel=0.01)


def test_the_same_noise_multiplier_means_the_same_in_both_accountants():
    """Under replacement their PLD accountant reads std / clip and their RDP one std / sensitivity; ours agree."""
    cost = SubsampledGaussian("poisson", 1.0, 5.0, Neighbours.REPLACE_ONE)
    exact = accountants.epsilon({Gaussian(5.0): 10}, 1e-6).epsilon
    assert accountants.epsilon_by("pld", {cost: 10}, 1e-6) == pytest.approx(exact, rel=1e-3)
    by_renyi = accountants.epsilon_by("rdp", {cost: 10}, 1e-6)
    assert by_renyi == pytest.approx(accountants.epsilon_by("rdp", {Gaussian(5.0): 10}, 1e-6), rel=1e-6)
    assert exact <= by_renyi


def test_both_orders_of_the_tables_are_covered():
    cost = SubsampledGaussian("poisson", 0.3, 0.7, Neighbours.ADD_OR_REMOVE_ONE)
    one_way, other_way = (pld._epsilon(law, 1e-6) for law in pld.both_orders({cost: 5}))
    assert accountants.epsilon_by("pld", {cost: 5}, 1e-6) == max(one_way, other_way) > min(one_way, other_way)


def test_rounding_is_upwards_at_the_smallest_delta_allowed():
    for count in (1, 100, 100_000):
        cost = Gaussian(3.0 * math.sqrt(count))
        exact = accountants.epsilon_by("gaussian", {cost: count}, 1e-10)
        assert accountants.epsilon_by("pld", {cost: count}, 1e-10) >= exact * (1 - 1e-9)
