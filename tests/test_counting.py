"""Counts before a release, and parts of a budget: what is planned from public facts, and that it
fits a shared budget.
"""

import jax
import numpy as np
import pytest
from scipy import stats

from dpmcmc import Budget, Curator, Federation, Neighbours, models, recipes
from dpmcmc.accounting import filters
from dpmcmc.recipes import COUNT_SHARE as SHARE
from dpmcmc.recipes import counting_for
from dpmcmc.recipes.counting import LEAST_SHARE
from tests.chains import SECRET

N = 1000
MODEL = models.logistic(1, 1.0)
BUDGET, PERSONS = Budget(4.0, 1e-6), Budget(4.0, 1e-6, Neighbours.ADD_OR_REMOVE_ONE, 3)
BUDGETS = [Budget(0.1, 1e-9), Budget(1.0, 1e-6), Budget(4.0, 1e-4), Budget(30.0, 1e-6), PERSONS]


def curator(num_ones=N // 2, num_bad=0, budget=BUDGET, model=MODEL, secret=SECRET):
    """A table of N rows, with so many labels that are 1, and so many that are missing; the rest are
    0.
    """
    labels = np.repeat(np.float32([1, np.nan, 0]), [num_ones, num_bad, N - num_ones - num_bad])
    capacity = None if budget.unit.is_count_public else 3 * N
    rows = np.zeros((N, 1), np.float32), labels
    return Curator(
        rows, model, budget, shared_by="gaussian-dp", capacity=capacity, fixed_secret=secret
    )


def taken(owner, share=SHARE):
    counting = counting_for(owner, share)
    return counting, counting.take(jax.random.key(0), owner, np.zeros(1, np.float32))


@pytest.mark.filterwarnings("ignore:hopeless")
@pytest.mark.parametrize("budget", BUDGETS, ids=str)
def test_parts_fit_a_budget_that_gaussian_queries_share_and_no_more(budget):
    """The filter's total is mu^2 of the whole budget: noise-aware runs lose nothing by it."""
    shared = filters.FILTERS["gaussian-dp"](budget.epsilon, budget.delta)
    assert shared.total == pytest.approx(recipes.gaussian_mu(budget) ** 2, rel=1e-9)
    owner = curator(budget=budget)
    for part in (1 / 3, 1 / 3, 1 / 3):
        before = owner.share_left
        owner.grant(counting_for(owner, SHARE * part).plan)
        owner.grant(recipes.noise_aware_for(owner, share=(1 - SHARE) * part).initial)
        assert 0.99 * part < before - owner.share_left <= part
    assert owner.share_left < 0.01
    again = curator(budget=budget)
    again.grant(recipes.noise_aware_for(again).initial)  # all at once
    assert again.share_left < 0.01


def test_a_part_is_a_budget_of_less_epsilon_and_as_much_delta():
    whole = Budget(4.0, 1e-6)
    parts = [recipes.part_of(whole, share) for share in (0.01, 0.5, 0.99, 1)]
    assert [part.delta for part in parts] == [1e-6] * 4 and parts[-1] == whole
    for part, share in zip(parts, (0.01, 0.5, 0.99, 1), strict=True):
        assert recipes.gaussian_mu(part) ** 2 == pytest.approx(
            share * recipes.gaussian_mu(whole) ** 2, rel=1e-6
        )
    assert 0.98 * 4 < parts[2].epsilon < 4  # a hundredth of mu^2 is less of epsilon
    for share in (0, -1, 1.1, np.nan, "1"):
        with pytest.raises(ValueError, match=r"must lie in \(0, 1\]"):
            recipes.part_of(whole, share)
    with pytest.raises(ValueError, match="next to nothing"):
        recipes.part_of(Budget(0.01, 0.1), 1e-9)


def test_a_count_takes_a_hundredth_of_the_budget_at_most():
    owner = curator()
    counting, found = taken(owner)
    assert 1 - SHARE <= owner.share_left < 1 - 0.99 * SHARE and owner.num_grants == 1
    statement = curator(secret=None).grant(counting.plan).statement()
    assert statement.second_epsilon < 0.7 and statement.bill[0]["query"] == repr(counting.query)
    assert counting.deviation == pytest.approx(
        2**0.5 * 10 / recipes.gaussian_mu(owner.budget), rel=1e-3
    )
    assert found.is_enough and found.total == pytest.approx(N, abs=5 * counting.total_deviation)
    assert f"of {N} rows can be used (noise +-{counting.total_deviation:.0f})" in str(found)
    assert "with label 0, " in str(found) and "with label 1 (+-" in str(found)


@pytest.mark.parametrize(
    "num_ones, num_bad",
    [(0, N), (0, 0), (N, 0), (0, N // 2)],
    ids=["none", "no 1", "no 0", "half, no 1"],
)
def test_a_table_without_rows_or_without_a_label_is_stopped(num_ones, num_bad):
    """With other noise each is taken for good once in 30 000 runs."""
    assert not taken(curator(num_ones, num_bad))[1].is_enough


def test_the_rule_is_public_and_as_sharp_as_stated():
    """A count of no rows passes where the noise is above 4 deviations, and a good table is stopped
    as rarely or more so.
    """
    counting = counting_for(curator(), SHARE)
    assert counting.least == pytest.approx(4 * 2**0.5 * counting.deviation)
    assert counting.least_of_each == pytest.approx(4 * counting.deviation)
    assert stats.norm.sf(counting.least / counting.total_deviation) < 1 / 30_000
    assert counting.is_decisive
    assert stats.norm.cdf((counting.least_of_each - N / 2) / counting.deviation) < 1 / 30_000
    assert counting.rule().endswith("with label 0 or label 1")
    assert not counting_for(curator(budget=Budget(0.2, 1e-6)), SHARE).is_decisive
    precise = counting_for(curator(budget=Budget(50.0, 1e-6)), SHARE)
    assert precise.least == LEAST_SHARE * N > 4 * precise.total_deviation
    private = counting_for(curator(budget=Budget(50.0, 1e-6, Neighbours.ADD_OR_REMOVE_ONE)), SHARE)
    assert private.least == 4 * private.total_deviation  # how full the table is nobody knows


def test_without_kinds_only_rows_are_counted():
    plain = curator(model=MODEL._replace(kinds=None))
    counting, found = taken(plain)
    assert (
        counting.names == ()
        and found.values.shape == (1,)
        and found.is_enough
        and "label" not in str(found) + counting.rule()
    )


def test_owners_are_counted_together():
    owners = Federation([curator(secret=SECRET + offset) for offset in (0, 1)])
    counting, found = taken(owners)
    assert counting.num_rows == 2 * N and counting.deviation == pytest.approx(
        2**0.5 * counting_for(curator(), SHARE).deviation
    )
    assert found.is_enough and found.total == pytest.approx(2 * N, abs=5 * counting.total_deviation)
