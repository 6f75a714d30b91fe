r"""Filters: budgets fixed in advance for queries that are chosen on the way.

When the next run is chosen after the last one's answers are known, adding up costs and then
converting is not enough: the conversion must not depend on the answers. A filter fixes it at
creation, and grants as long as a running sum stays within its total:

    gaussian_filter  sum of 1/z^2 <= mu^2, where mu-Gaussian DP is exactly (epsilon, delta)-private
                     :cite:p:`smith2022fully,koskela2023individual`; Gaussian queries alone
    zcdp_filter      sum of rho <= rho*  :cite:p:`feldman2021individual`;
                     then D_a <= rho* a at every order a
    renyi_filter     sum of D_a <= D* at one order a, fixed in advance (same source). It is useful
                     for the penalty's accept bit: its zCDP bound is that of the released ratio, but
                     its divergence at the order that matters is smaller.
    closing_filter   as gaussian_filter, with a tenth of delta; and one grant may close it, which
                     releases a sum with radial noise too (`ClosingFilter`)

One hundredth of delta is kept for the total-variation errors of the releases (`accountants`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from dpmcmc.accounting import accountants, calibrate
from dpmcmc.accounting.costs import Costs, Gaussian, NonPrivate, Radial
from dpmcmc.accounting.laws import gaussian, renyi
from dpmcmc.accounting.search import largest, largest_exponential
from dpmcmc.errors import BudgetExceeded, UnsupportedQuery

# Of a filter that a grant with radial noise may close: the share of delta for other courses, and
# the share of mu^2 that may come before that grant
OTHERS = 0.1
BEFORE = 0.12
ROUNDING = 1e-9  # of what may come before


class Filter:
    """A total, a measure of costs that adds up, and what was spent so far.

    Args:
        epsilon: The epsilon of the promise.
        delta: The delta of the promise.
        total: The largest sum of the measure.
        measure: A function from costs to a number that adds up.
        unit: The name of that number, for messages.

    Example:
        >>> from dpmcmc.accounting import filters
        >>> from dpmcmc.accounting.costs import Gaussian
        >>> shared = filters.zcdp_filter(1.0, 1e-6)
        >>> shared.spend({Gaussian(50.0): 10})
        >>> shared.fits({Gaussian(1.0): 1})
        False
    """

    def __init__(
        self,
        epsilon: float,
        delta: float,
        total: float,
        measure: Callable[[Costs], float],
        unit: str,
    ):
        self.epsilon = epsilon
        self.delta = delta
        self.total = total
        self.unit = unit
        self.tv_error_total = accountants.room_for_tv_errors(epsilon, delta)
        self._measure = measure
        self._granted: dict[Any, int] = {}

    @property
    def spent(self) -> float:
        """The running sum."""
        return self._measure(self._granted)

    @property
    def left(self) -> float:
        """What may still be spent."""
        return max(0.0, self.total - self.spent)

    def fits(self, costs: Costs) -> bool:
        """Whether these costs may be granted now. Depends on public numbers alone.

        Args:
            costs: How often each cost would be incurred.

        Returns:
            Whether they fit.

        Raises:
            UnsupportedQuery: The filter has no bound for some cost.
        """
        together = self._with(costs)
        return (
            self._measure(together) <= self.total
            and accountants.total_tv_error(together) <= self.tv_error_total
        )

    def spend(self, costs: Costs) -> None:
        """Grant these costs, or refuse all of them.

        Args:
            costs: How often each cost is incurred.

        Raises:
            BudgetExceeded: They do not fit.
            UnsupportedQuery: The filter has no bound for some cost.
        """
        self.check(costs)
        self._granted = self._with(costs)

    def check(self, costs: Costs) -> None:
        """Refuse costs that may not be granted now. Spends nothing.

        Args:
            costs: How often each cost would be incurred.

        Raises:
            BudgetExceeded: They do not fit.
            UnsupportedQuery: The filter has no bound for some cost.
        """
        if not self.fits(costs):
            together = self._with(costs)
            if self._measure(together) <= self.total:
                tv_error = accountants.total_tv_error(together)
                raise BudgetExceeded(
                    f"the total-variation error of the releases would be {tv_error:.3g} in all, "
                    f"and the filter allows {self.tv_error_total:.3g} (budget: "
                    f"epsilon={self.epsilon:g}, delta={self.delta:g}): ask for fewer steps"
                )
            raise BudgetExceeded(
                f"this costs {self._measure(costs):.6g} {self.unit}, {self.left:.6g} of "
                f"{self.total:.6g} is left "
                f"(budget: epsilon={self.epsilon:g}, delta={self.delta:g})"
            )

    def steps(self, per_step: Costs, initial: Costs | None = None) -> int:
        """Return the largest number of copies of `per_step` that may be granted now.

        Args:
            per_step: How often one step incurs each cost.
            initial: The costs that come before the first step.

        Returns:
            The number of steps.

        Raises:
            ValueError: A step has no costs.
            UnsupportedQuery: The filter has no bound for some cost.
        """
        costs = accountants.checked_step(per_step)
        return largest(lambda count: self.fits(calibrate.combined(initial or {}, costs, count)))

    def _with(self, costs: Costs) -> dict[Any, int]:
        return accountants.checked(calibrate.combined(self._granted, accountants.checked(costs)))


def gaussian_filter(epsilon: float, delta: float) -> Filter:
    """Return a filter that sums 1/z^2, for Gaussian queries alone.

    Args:
        epsilon: The epsilon of the promise.
        delta: The delta of the promise.

    Returns:
        The filter, with nothing spent.

    Raises:
        ValueError: An argument is out of range.

    Example:
        >>> from dpmcmc.accounting import filters
        >>> from dpmcmc.accounting.costs import Gaussian
        >>> filters.gaussian_filter(1.0, 1e-6).fits({Gaussian(50.0): 10})
        True
    """
    accountants.check_budget(epsilon, delta)
    total = gaussian.mu(epsilon, (1 - accountants.RESERVE) * delta) ** 2

    def measure(costs: Costs) -> float:
        _check_known("gaussian-dp", costs)
        return accountants.gaussian_mu(costs) ** 2

    return Filter(epsilon, delta, total, measure, "of squared Gaussian-DP mu")


class ClosingFilter(Filter):
    r"""A filter of Gaussian queries that one last grant, with radial noise in it, may close.

    Gaussian queries share a tenth of delta (`OTHERS`). A grant may close the filter if at most
    mu_b^2 was spent before, with mu_b^2 an eighth or so of what the other nine tenths of delta
    allow (`BEFORE`): its costs and one Gaussian query of mu_b together must be within these nine
    tenths.

    *Why that is enough.* Whoever closes has not spent more than mu_b^2 before, and may as well
    spend the rest of it on answers that are thrown away. So there are two courses from there, of
    which one is chosen after the answers y so far: further Gaussian queries, or the last grant. Let
    l(y) be the privacy loss of these answers. A bound of delta for both together is the mean of

        max(g(epsilon - l), r(epsilon - l))  <=  g(epsilon - l) + r(epsilon - l),

    where g and r bound the delta of each course. The mean of g(epsilon - l) is the delta of
    Gaussian queries alone, and that of r(epsilon - l) that of one query of mu_b and the last grant.
    Each is within its share.

    Example:
        >>> from dpmcmc.accounting import filters
        >>> from dpmcmc.accounting.costs import Gaussian, Radial
        >>> shared = filters.closing_filter(1.0, 1e-6)
        >>> shared.spend({Gaussian(20.0): 1})
        >>> shared.spend({Gaussian(10.0): 1, Radial(0.7, 7): 1})
        >>> shared.left
        0.0
    """

    def __init__(self, epsilon: float, delta: float):
        kept = (1 - accountants.RESERVE) * delta
        others = gaussian.mu(epsilon, OTHERS * kept) ** 2

        def measure(costs: Costs) -> float:
            _check_known("gaussian-then-radial", costs)
            return others if _is_closing(costs) else accountants.gaussian_mu(costs) ** 2

        super().__init__(epsilon, delta, others, measure, "of squared Gaussian-DP mu")
        self._before = before_closing(epsilon, delta)
        self._closing_delta = (1 - OTHERS) * kept

    def fits(self, costs: Costs) -> bool:
        """Whether these costs may be granted now.

        Args:
            costs: How often each cost would be incurred.

        Returns:
            Whether they fit.

        Raises:
            UnsupportedQuery: The filter has no bound for some cost.
        """
        together = self._with(costs)
        if _is_closing(self._granted):
            return not costs
        if not _is_closing(costs):
            return super().fits(costs)
        _check_known("gaussian-then-radial", together)
        if accountants.gaussian_mu(self._granted) ** 2 > self._before * (1 + ROUNDING):
            return False
        first = Gaussian(1 / math.sqrt(self._before))
        padded = calibrate.combined({first: 1}, accountants.checked(costs))
        return (
            accountants.pld_epsilon(padded, self._closing_delta) <= self.epsilon
            and accountants.total_tv_error(together) <= self.tv_error_total
        )

    def check(self, costs: Costs) -> None:
        """Refuse costs that may not be granted now. Spends nothing.

        Args:
            costs: How often each cost would be incurred.

        Raises:
            BudgetExceeded: They do not fit.
            UnsupportedQuery: The filter has no bound for some cost.
        """
        if _is_closing(costs) and not self.fits(costs):
            raise BudgetExceeded(
                "a release with radial noise is the last one of this budget, and costs more than "
                f"it allows after {self.spent:.3g} {self.unit} ({self._before:.3g} may come "
                f"before; budget: epsilon={self.epsilon:g}, delta={self.delta:g})"
            )
        super().check(costs)


def before_closing(epsilon: float, delta: float) -> float:
    """The squared Gaussian-DP parameter that may be spent before a grant that closes a filter.

    Args:
        epsilon: The epsilon of the promise.
        delta: The delta of the promise.

    Returns:
        mu^2.

    Example:
        >>> from dpmcmc.accounting import filters
        >>> round(filters.before_closing(1.0, 1e-6), 5)
        0.00665
    """
    kept = (1 - accountants.RESERVE) * (1 - OTHERS) * delta
    return BEFORE * gaussian.mu(epsilon, kept) ** 2


def _is_closing(costs: Costs) -> bool:
    return any(isinstance(cost, Radial) for cost in costs)


def closing_filter(epsilon: float, delta: float) -> Filter:
    """Return a filter of Gaussian queries that a last grant with radial noise may close.

    Args:
        epsilon: The epsilon of the promise.
        delta: The delta of the promise.

    Returns:
        The filter, with nothing spent.

    Raises:
        ValueError: An argument is out of range.

    Example:
        >>> from dpmcmc.accounting import filters
        >>> from dpmcmc.accounting.costs import Radial
        >>> filters.closing_filter(1.0, 1e-6).fits({Radial(0.7, 7): 1})
        True
    """
    accountants.check_budget(epsilon, delta)
    return ClosingFilter(epsilon, delta)


def zcdp_filter(epsilon: float, delta: float) -> Filter:
    """Return a filter that sums rho, for costs with a zCDP bound.

    Args:
        epsilon: The epsilon of the promise.
        delta: The delta of the promise.

    Returns:
        The filter, with nothing spent.

    Raises:
        ValueError: An argument is out of range.

    Example:
        >>> from dpmcmc.accounting import filters
        >>> from dpmcmc.accounting.costs import Gaussian
        >>> filters.zcdp_filter(1.0, 1e-6).fits({Gaussian(50.0): 10})
        True
    """
    accountants.check_budget(epsilon, delta)

    def measure(costs: Costs) -> float:
        _check_known("zcdp", costs)
        return accountants.zcdp_rho(costs)

    return Filter(
        epsilon,
        delta,
        largest_rho(epsilon, (1 - accountants.RESERVE) * delta),
        measure,
        "of rho (zCDP)",
    )


def renyi_filter(epsilon: float, delta: float) -> Filter:
    """Return a filter that sums Renyi divergences of one order.

    The order is the one that is best for costs that grow in proportion to it.

    Args:
        epsilon: The epsilon of the promise.
        delta: The delta of the promise.

    Returns:
        The filter, with nothing spent.

    Raises:
        ValueError: An argument is out of range.

    Example:
        >>> from dpmcmc.accounting import filters
        >>> from dpmcmc.accounting.costs import Gaussian
        >>> filters.renyi_filter(1.0, 1e-6).fits({Gaussian(50.0): 10})
        True
    """
    accountants.check_budget(epsilon, delta)
    kept = (1 - accountants.RESERVE) * delta
    order = float(renyi.ORDERS[np.argmax(_total(renyi.ORDERS, epsilon, kept) / renyi.ORDERS)])
    total = float(_total(np.array(order), epsilon, kept))

    def measure(costs: Costs) -> float:
        _check_known("renyi", costs)
        return float(accountants.curve(costs)(np.array([order]))[0]) if costs else 0.0

    return Filter(
        epsilon, delta, max(0.0, total), measure, f"of Renyi divergence at order {order:.4g}"
    )


KNOWS: dict[str, Callable[[Any], bool]] = {  # which costs a filter has a bound for
    "gaussian-dp": lambda cost: isinstance(cost, Gaussian),
    "gaussian-then-radial": lambda cost: isinstance(cost, Gaussian | Radial),
    "zcdp": lambda cost: cost.rho() is not None,
    "renyi": lambda cost: bool(np.isfinite(cost.rdp(renyi.ORDERS[:1])).all()),
}


def _check_known(shared_by: str, costs: Costs) -> None:
    """Refuse costs that a filter cannot sum up, and name those that could."""
    if reasons := [cost.reason for cost in costs if isinstance(cost, NonPrivate)]:
        raise UnsupportedQuery(
            f"no budget pays for this: {reasons[0]}. Use a private query, or a curator without a "
            "budget"
        )
    others = sorted({type(cost).__name__ for cost in costs if not KNOWS[shared_by](cost)})
    if not others:
        return
    able = [name for name, knows in KNOWS.items() if all(knows(cost) for cost in costs)]
    way_out = (
        f"have it shared by {' or '.join(able)} from the first spend on"
        if able
        else "give these queries a budget of their own"
    )
    only = " (sgld, penalty with all rows)" if shared_by == "gaussian-dp" else ""
    raise UnsupportedQuery(
        f"a budget shared by {shared_by} cannot sum up {', '.join(others)}: {way_out}, or choose a "
        "sampler that asks for others"
        f"{only}"
    )


# As owners are asked to share the budget by
FILTERS = {
    "gaussian-dp": gaussian_filter,
    "gaussian-then-radial": closing_filter,
    "zcdp": zcdp_filter,
    "renyi": renyi_filter,
}
# As statements have them
NAMES = {
    "gaussian-dp": "gaussian-filter",
    "gaussian-then-radial": "closing-filter",
    "zcdp": "zcdp-filter",
    "renyi": "renyi-filter",
}
BY_NAME = {NAMES[shared_by]: make for shared_by, make in FILTERS.items()}


def largest_rho(epsilon: float, delta: float) -> float:
    """Return the largest rho whose best conversion stays within (epsilon, delta); 0 if none does.

    Args:
        epsilon: The epsilon of the promise.
        delta: The delta of the promise.

    Returns:
        The largest rho.

    Example:
        >>> from dpmcmc.accounting import filters
        >>> filters.largest_rho(1.0, 1e-6) < 0.1
        True
    """
    return largest_exponential(lambda rho: renyi.zcdp_epsilon(rho, delta) - epsilon, -60.0, 25.0)


def _total(order: np.ndarray, epsilon: float, delta: float) -> np.ndarray:
    """`renyi.best_epsilon` solved for the divergence."""
    return epsilon - np.log1p(-1 / order) + np.log(delta * order) / (order - 1)
