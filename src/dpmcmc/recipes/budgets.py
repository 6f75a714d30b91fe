"""What a budget buys, as the Gaussian-DP parameter mu, and parts of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from dpmcmc.checks import is_number
from dpmcmc.types import Budget

# Total-variation error of a million noisy gradients: delta pays for e^epsilon times as much
TV_ERROR = 1e-23
Budgets = Budget | Sequence[Budget]  # one for each owner


def gaussian_mu(budget: Budgets) -> float:
    """The Gaussian-DP parameter that the whole budget buys (of several, the least), as far as noise
    is near enough to ideal.
    """
    from dpmcmc.accounting import accountants
    from dpmcmc.accounting.laws import gaussian

    def mu(one: Budget) -> float:
        usable = max(1.0, math.log(accountants.RESERVE * one.delta / TV_ERROR))
        return gaussian.mu(min(one.epsilon, usable), (1 - accountants.RESERVE) * one.delta)

    return min(map(mu, every_budget(budget)))


def part_of(budget: Budget, share: float) -> Budget:
    """What a share of the budget's mu^2 would be as a budget of its own: the same delta and a
    smaller epsilon.

    Gaussian queries alone: their mu^2 add up, as a budget that is shared by "gaussian-dp" counts
    them.
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
            f"{share:.3g} of {budget} is next to nothing: its delta alone pays for that much"
        )
    return replace(budget, epsilon=epsilon)


def multiplier(budget: Budgets, share: float) -> float:
    """The noise multiplier of one Gaussian query that takes a share of mu^2."""
    return rounded_up(1 / math.sqrt(share) / gaussian_mu(budget))


def every_budget(budget: Budgets) -> tuple[Budget, ...]:
    return (budget,) if isinstance(budget, Budget) else tuple(budget)


def reach(lipschitz: float, budget: Budgets) -> float:
    """How far one person moves the sum of the gradients, as the noises of all owners add up."""
    return lipschitz * math.hypot(*(one.unit.sensitivity for one in every_budget(budget)))


def rounded_up(value: float) -> float:
    """To four digits, so that a bill is pleasant to read."""
    digits = 3 - math.floor(math.log10(value))
    return math.ceil(value * 10**digits) / 10**digits


def public_facts(curator: Any, by_hand: str) -> tuple[int, list[Budget]]:
    """The rows of all owners at most, and the budget of each."""
    owners = list(getattr(curator, "owners", {"": curator}).values())
    if missing := [
        owner for owner in owners if not isinstance(getattr(owner, "budget", None), Budget)
    ]:
        raise TypeError(
            f"{missing[0]!r} has no budget to take the settings from: give a Curator or a "
            "Federation with one, or say all with "
            f"{by_hand}"
        )
    return sum(owner.capacity for owner in owners), [owner.budget for owner in owners]
