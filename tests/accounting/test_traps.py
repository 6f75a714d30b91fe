"""Traps of dp-accounting 0.6 that a wrapper would fall into, and what we answer instead."""

import math

import numpy as np
import pytest

from dpmcmc.acceptance import Barker
from dpmcmc.accounting import accountants, calibrate, filters
from dpmcmc.accounting.costs import AcceptBit, Gaussian, Pure, SubsampledGaussian
from dpmcmc.accounting.laws import pld
from dpmcmc.types import Neighbours


def test_counts_are_not_ignored():
    """Their PLD accountant composes randomised response once, whatever the count: epsilon 0.20
    instead of 9.79.
    """
    once = math.log(0.55 / 0.45)
    assert accountants.epsilon({Pure(once): 100}, 1e-5).epsilon == pytest.approx(9.79, rel=0.01)
    assert accountants.epsilon({Pure(once): 1}, 1e-5).epsilon == pytest.approx(0.20, rel=0.01)


def test_the_same_noise_multiplier_means_the_same_in_both_accountants():
    """Under replacement their PLD accountant reads std / clip and their RDP one std / sensitivity;
    ours agree.
    """
    cost = SubsampledGaussian("poisson", 1.0, 5.0, Neighbours.REPLACE_ONE)
    exact = accountants.epsilon({Gaussian(5.0): 10}, 1e-6).epsilon
    assert accountants.epsilon_by("pld", {cost: 10}, 1e-6) == pytest.approx(exact, rel=1e-3)
    by_renyi = accountants.epsilon_by("rdp", {cost: 10}, 1e-6)
    assert by_renyi == pytest.approx(
        accountants.epsilon_by("rdp", {Gaussian(5.0): 10}, 1e-6), rel=1e-6
    )
    assert exact <= by_renyi


def test_both_orders_of_the_tables_are_covered():
    cost = SubsampledGaussian("poisson", 0.3, 0.7, Neighbours.ADD_OR_REMOVE_ONE)
    one_way, other_way = (pld._epsilon(law, 1e-6) for law in pld.both_orders({cost: 5}))
    assert (
        accountants.epsilon_by("pld", {cost: 5}, 1e-6)
        == max(one_way, other_way)
        > min(one_way, other_way)
    )


def test_rounding_is_upwards_at_the_smallest_delta_allowed():
    for count in (1, 100, 100_000):
        cost = Gaussian(3.0 * math.sqrt(count))
        exact = accountants.epsilon_by("gaussian", {cost: count}, 1e-10)
        assert accountants.epsilon_by("pld", {cost: count}, 1e-10) >= exact * (1 - 1e-9)


@pytest.mark.parametrize(
    "count", [np.int32(171_420), np.int64(171_420), 171_420.0], ids=["int32", "int64", "float"]
)
def test_counts_that_would_wrap_around_are_whole_numbers(count):
    """171 420 cells times 30 000 is more than an int32 holds: the law came out shifted, and stayed
    so in the cache.
    """
    cost = SubsampledGaussian("fixed", 1e-3, 1.0, Neighbours.REPLACE_ONE)
    assert (
        accountants.epsilon({cost: count}, 1e-6).epsilon
        == accountants.epsilon({cost: 171_420}, 1e-6).epsilon
        > 3.3
    )


def test_filters_and_searches_do_not_wrap_around_either():
    shared = filters.zcdp_filter(1.0, 1e-6)
    for _ in range(3):
        shared.spend({Gaussian(1000.0): np.int8(100)})
    assert shared._granted == {Gaussian(1000.0): 300}
    bit = AcceptBit(Barker(), 0.04)
    assert (
        calibrate.steps({bit: np.int8(100)}, 20.0, 1e-6)
        == calibrate.steps({bit: 100}, 20.0, 1e-6)
        > 0
    )


def test_costs_that_differ_in_their_distance_alone_are_added():
    ledger = {Gaussian(30.0, 1e-40): 1, Gaussian(30.0): 2}
    assert calibrate.ideal_costs(ledger) == {Gaussian(30.0): 3}
    assert not calibrate.held_back(ledger, 1.0, 1e-6)
