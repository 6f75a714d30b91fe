"""A budget that Gaussian queries share until one grant with radial noise closes it.

The promise is checked against an adversary who chooses between both courses after each outcome: the
mean, over the loss so far, of the larger delta of the two.
"""

import math

import numpy as np
import pytest
from scipy import stats

from dpmcmc.accounting import calibrate, filters
from dpmcmc.accounting.costs import Gaussian, Pure, Radial
from dpmcmc.accounting.laws import gaussian, pld
from dpmcmc.errors import BudgetExceeded, UnsupportedQuery

DELTA = 1e-6
CELLS = 4000


def last_grant(epsilon, dimension, share=0.2, others=filters.OTHERS):
    """The largest grant that may close, with this share of mu^2 for its Gaussian queries."""
    delta = (1 - others) * DELTA
    mu = gaussian.mu(epsilon, 0.99 * delta)
    before = filters.BEFORE * mu**2
    size = calibrate.radial_epsilon(epsilon, delta, math.sqrt(before + share * mu**2), dimension)
    return {Gaussian(1 / (mu * math.sqrt(share))): 1, Radial(size, dimension): 1}


def worst_delta(epsilon, grant, before, rest):
    """Of somebody who spends `before` of mu^2, and then takes the worse of both courses."""
    (law,) = pld.both_orders(grant)
    chances = np.append(np.cumsum(law.chances[::-1])[::-1], 0)
    scaled = np.append(np.cumsum((law.chances * np.exp(-law.losses))[::-1])[::-1], 0)
    places = (np.arange(CELLS) + 0.5) / CELLS * 16 - 8
    mass = stats.norm.pdf(places) * 16 / CELLS
    left = epsilon - (before / 2 + math.sqrt(before) * places)
    index = np.searchsorted(law.losses, left, side="right")
    closing = law.infinite + chances[index] - np.exp(left) * scaled[index]
    mu = math.sqrt(rest)
    going_on = stats.norm.sf(left / mu - mu / 2) - np.exp(left) * stats.norm.sf(left / mu + mu / 2)
    return float(mass @ np.maximum(closing, going_on))


@pytest.mark.parametrize("epsilon, dimension", [(0.5, 2), (1.0, 7), (4.0, 20)])
def test_whoever_chooses_between_both_courses_stays_within_delta(epsilon, dimension):
    shared = filters.closing_filter(epsilon, DELTA)
    before = filters.before_closing(epsilon, DELTA)
    grant = last_grant(epsilon, dimension)
    assert shared.fits(grant)
    worst = worst_delta(epsilon, grant, before, shared.total - before)
    assert 0.8 * DELTA < worst <= 0.99 * DELTA
    # A twin that gives all of delta to either course
    twin = last_grant(epsilon, dimension, others=0.0)
    whole = gaussian.mu(epsilon, 0.99 * DELTA) ** 2
    assert (
        worst_delta(epsilon, twin, filters.BEFORE * whole, (1 - filters.BEFORE) * whole)
        > 1.02 * DELTA
    )
    assert not shared.fits(twin)


def test_the_last_grant_costs_little_more_than_it_would_alone():
    mu = gaussian.mu(1.0, 0.99 * DELTA)
    alone = calibrate.radial_epsilon(1.0, DELTA, math.sqrt(filters.BEFORE + 0.2) * mu, 7)
    size = next(cost.epsilon for cost in last_grant(1.0, 7) if isinstance(cost, Radial))
    assert 0.99 * alone < size < alone


def test_only_one_grant_closes_and_nothing_comes_after():
    shared = filters.closing_filter(1.0, DELTA)
    half = Gaussian(1 / math.sqrt(filters.before_closing(1.0, DELTA) / 2))
    shared.spend({half: 2})
    assert 0.8 < shared.left / shared.total < 1
    grant = last_grant(1.0, 7)
    too_much = {cost: count for cost, count in grant.items() if isinstance(cost, Gaussian)}
    too_much[Radial(1.001 * max(grant, key=lambda cost: isinstance(cost, Radial)).epsilon, 7)] = 1
    with pytest.raises(BudgetExceeded, match="radial"):
        shared.spend(too_much)
    shared.spend(grant)
    assert shared.left == 0
    for cost in (Gaussian(1e4), Radial(1e-3, 7)):
        assert not shared.fits({cost: 1})
        with pytest.raises(BudgetExceeded):
            shared.spend({cost: 1})


def test_a_grant_that_comes_too_late_does_not_close():
    shared = filters.closing_filter(1.0, DELTA)
    shared.spend({Gaussian(1 / math.sqrt(1.01 * filters.before_closing(1.0, DELTA))): 1})
    assert not shared.fits({Radial(1e-3, 7): 1})
    assert shared.fits({Gaussian(20.0): 1})


def test_other_costs_are_refused():
    with pytest.raises(UnsupportedQuery, match="Pure"):
        filters.closing_filter(1.0, DELTA).fits({Pure(0.1): 1})
