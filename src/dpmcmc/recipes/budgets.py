"""A budget as the Gaussian-DP parameter mu, and parts of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from dpmcmc.checks import is_number
from dpmcmc.types import Budget

# Total-variation error of a million noisy gradients: it takes e^epsilon times as much of delta
TV_ERROR = 1e-23
Budgets = Budget | Sequence[Budget]  # one for each owner


def gaussian_mu(budget: Budgets) -> float:
    """The Gaussian-DP parameter mu that a budget is worth.

    Only an epsilon for which delta can also cover the total-variation error of the noise is used.

    Args:
        budget: A `Budget`, or one of each owner: then mu is the minimum over owners.

    Returns:
        mu, the sensitivity over the standard deviation of one Gaussian release that takes it all.

    Example:
        >>> import dpmcmc
        >>> round(dpmcmc.recipes.gaussian_mu(dpmcmc.Budget(1.0, 1e-6)), 3)
        0.237
    """
    from dpmcmc.accounting import accountants
    from dpmcmc.accounting.laws import gaussian

    def mu(one: Budget) -> float:
        usable = max(1.0, math.log(accountants.RESERVE * one.delta / TV_ERROR))
        return gaussian.mu(min(one.epsilon, usable), (1 - accountants.RESERVE) * one.delta)

    return min(map(mu, every_budget(budget)))


def part_of(budget: Budget, share: float) -> Budget:
    """A share of the budget's mu^2 as a budget of its own: the same delta and a smaller epsilon.

    For Gaussian queries only: their mu^2 add, and a budget that is shared by "gaussian-dp" counts
    them so.

    Args:
        budget: The whole budget.
        share: The share of its mu^2, in (0, 1].

    Returns:
        The smaller budget.

    Raises:
        ValueError: share is outside (0, 1], or so small that no epsilon is left.

    Example:
        >>> import dpmcmc
        >>> round(dpmcmc.recipes.part_of(dpmcmc.Budget(4.0, 1e-6), 0.25).epsilon, 2)
        1.86
    """
    from dpmcmc.accounting import accountants
    from dpmcmc.accounting.laws import gaussian

    if not (is_number(share) and 0 < share <= 1):
        raise ValueError(f"share={share} must lie in (0, 1]: it is a part of the budget")
    if share == 1:
        return budget
    # Less for rounding: all parts together must fit
    mu = gaussian_mu(budget) * math.sqrt(share) * (1 - 1e-9)
    epsilon = gaussian.epsilon((1 - accountants.RESERVE) * budget.delta, mu)
    if not epsilon > 0:
        raise ValueError(
            f"{share:.3g} of {budget} is next to nothing: its delta alone is enough for that much"
        )
    return replace(budget, epsilon=epsilon)


def multiplier(budget: Budgets, share: float) -> float:
    """The noise multiplier of one Gaussian query that takes a share of mu^2."""
    return rounded_up(1 / math.sqrt(share) / gaussian_mu(budget))


def every_budget(budget: Budgets) -> tuple[Budget, ...]:
    return (budget,) if isinstance(budget, Budget) else tuple(budget)


def sensitivity(lipschitz: float, budget: Budgets) -> float:
    """The L2 sensitivity of the sum of gradients; of several owners, in units of their noise
    multiplier, for their noises add.
    """
    return lipschitz * math.hypot(*(one.unit.sensitivity for one in every_budget(budget)))


def rounded_up(value: float) -> float:
    """Rounded up to four digits, so that a bill is easy to read."""
    digits = 3 - math.floor(math.log10(value))
    return math.ceil(value * 10**digits) / 10**digits


def public_facts(curator: Any, by_hand: str) -> tuple[int, list[Budget]]:
    """The largest number of rows of all owners together, and the budget of each."""
    owners = list(getattr(curator, "owners", {"": curator}).values())
    if missing := [
        owner for owner in owners if not isinstance(getattr(owner, "budget", None), Budget)
    ]:
        raise TypeError(
            f"{missing[0]!r} has no budget to take the settings from: give a Curator or a "
            f"Federation with one, or say all with {by_hand}"
        )
    return sum(owner.capacity for owner in owners), [owner.budget for owner in owners]
