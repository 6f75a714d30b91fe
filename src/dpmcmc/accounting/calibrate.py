"""From a budget to the number of steps, or to the noise; and what a ledger leaves of a budget. One
search for all.
"""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from dpmcmc.accounting import accountants
from dpmcmc.accounting.costs import Costs, Gaussian, Radial
from dpmcmc.accounting.laws import gaussian
from dpmcmc.accounting.search import LIMIT, largest_within
from dpmcmc.errors import BudgetExceeded, UnsupportedQuery

NOISE_DIGITS = 10_000  # noise multipliers are whole numbers of ten-thousandths
RADIAL_DIGITS = 2**20  # the epsilon of radial noise is so many times finer than the budget's
MARGIN = 1e-9  # of epsilon: Gaussian costs that compose to `mu` do so up to rounding


def steps(
    per_step: Costs,
    epsilon: float,
    delta: float,
    initial: Costs | None = None,
    method: str | None = None,
) -> int:
    """Return the largest k such that `initial` and k times `per_step` stay within the budget.

    Args:
        per_step: How often one step incurs each cost.
        epsilon: The epsilon of the promise.
        delta: The delta of the promise.
        initial: The costs that come before the first step.
        method: The name of an accountant; without it the best quick one is used.

    Returns:
        The number of steps; 0 if not even 1 fits.

    Raises:
        UnsupportedQuery: The method has no bound for some cost, or does not compose so many.
        ValueError: An argument is out of range, or a step has no costs.

    Example:
        >>> from dpmcmc.accounting import calibrate
        >>> from dpmcmc.accounting.costs import Gaussian
        >>> calibrate.steps({Gaussian(50.0): 1}, 1.0, 1e-6)
        140
    """
    accountants.check_budget(epsilon, delta)
    per_step = accountants.checked_step(per_step)
    start = accountants.checked(initial or {})
    if method == "recursion":
        return _recursion_steps(per_step, epsilon, delta, start)
    excess = lambda count: _log_ratio(  # noqa: E731
        _spent(combined(start, per_step, count), delta, method), epsilon
    )
    guess = 1 if start else _guess(per_step, epsilon, delta)
    most = _most(per_step, start, method)
    if guess > most:
        way_out = "" if any(math.isinf(cost.rdp([2.0])[0]) for cost in per_step) else ": try rdp"
        raise UnsupportedQuery(
            f"some {guess:.2g} steps would fit, but pld composes up to "
            f"{accountants.MOST_PLD_QUERIES:g} queries{way_out}"
        )
    most_steps = largest_within(excess, guess, most)
    if most_steps == 0:
        with contextlib.suppress(BudgetExceeded):
            # Refused if the method has no bound for such costs
            _reached_epsilon(combined(start, per_step), delta, method)
    return most_steps


def held_back(per_step: Costs, epsilon: float, delta: float, initial: Costs | None = None) -> bool:
    """Whether more steps would fit if every release had exactly its ideal law.

    Then no larger epsilon allows more.

    Args:
        per_step: How often one step incurs each cost.
        epsilon: The epsilon of the promise.
        delta: The delta of the promise.
        initial: The costs that come before the first step.

    Returns:
        Whether the total-variation errors limit the number of steps.

    Raises:
        UnsupportedQuery: As in `steps`.
        ValueError: As in `steps`.

    Example:
        >>> from dpmcmc.accounting import calibrate
        >>> from dpmcmc.accounting.costs import Gaussian
        >>> calibrate.held_back({Gaussian(50.0): 1}, 1.0, 1e-6)
        False
    """
    ideal = [ideal_costs(part) for part in (per_step, initial or {})]
    kept = (1 - accountants.RESERVE) * delta
    return steps(ideal[0], epsilon, kept, ideal[1]) > steps(per_step, epsilon, delta, initial)


def noise(
    ledger: Callable[[float], Costs], epsilon: float, delta: float, method: str | None = None
) -> float:
    """Return the smallest noise multiplier, rounded up to four decimals, that fits the budget.

    Args:
        ledger: A function from the noise multiplier to the costs.
        epsilon: The epsilon of the promise.
        delta: The delta of the promise.
        method: The name of an accountant; without it the best quick one is used.

    Returns:
        The noise multiplier.

    Raises:
        BudgetExceeded: Not even the largest noise multiplier fits.
        UnsupportedQuery: The method has no bound for some cost.
        ValueError: An argument is out of range.

    Example:
        >>> from dpmcmc.accounting import calibrate
        >>> from dpmcmc.accounting.costs import Gaussian
        >>> calibrate.noise(lambda multiplier: {Gaussian(multiplier): 10}, 1.0, 1e-6) > 10
        True
    """
    accountants.check_budget(epsilon, delta)

    def room(digits: int) -> float:
        spent = _spent(ledger(digits / NOISE_DIGITS), delta, method) if digits else math.inf
        return -math.inf if math.isnan(spent) else -_log_ratio(spent, epsilon) or math.inf

    digits = largest_within(room, NOISE_DIGITS)  # the last with too little noise
    if digits == LIMIT:
        with contextlib.suppress(BudgetExceeded):
            # Refused if the method has no bound for such costs
            _reached_epsilon(ledger(LIMIT / NOISE_DIGITS), delta, method)
        raise BudgetExceeded(
            f"not even the noise multiplier {LIMIT / NOISE_DIGITS:.3g} fits epsilon={epsilon:g}, "
            f"delta={delta:g}: ask for less"
        )
    return (digits + 1) / NOISE_DIGITS


def radial_epsilon(epsilon: float, delta: float, mu: float, dimension: int) -> float:
    """Return the largest epsilon of one release with radial noise that fits beside Gaussian ones.

    One hundredth of delta is left for total-variation errors, as accountants leave it.

    Args:
        epsilon: The epsilon of the promise, for all releases together.
        delta: The delta of the promise.
        mu: The Gaussian-DP parameter of the Gaussian releases: `accountants.gaussian_mu`, or 0.
        dimension: The number of entries of the vector.

    Returns:
        The `epsilon` of `costs.Radial`, a millionth of the promise's too small at most.

    Raises:
        BudgetExceeded: The Gaussian releases leave nothing.
        ValueError: An argument is out of range.

    Example:
        >>> from dpmcmc.accounting import accountants, calibrate
        >>> from dpmcmc.accounting.costs import Gaussian, Radial
        >>> size = calibrate.radial_epsilon(1.0, 1e-6, mu=0.1, dimension=7)
        >>> 0.7 < size < 0.9
        True
        >>> both = {Gaussian(1 / 0.1): 1, Radial(size, 7): 1}
        >>> accountants.epsilon(both, 1e-6).epsilon <= 1
        True
    """
    accountants.check_budget(epsilon, delta)
    if not 0 <= mu < math.inf:
        raise ValueError(f"mu={mu} must be at least 0 and finite: it is a Gaussian-DP parameter")
    kept = (1 - accountants.RESERVE) * delta
    gaussian_costs = {Gaussian(1 / mu): 1} if mu > 0 else {}
    target = (1 - MARGIN) * epsilon
    unit = epsilon / RADIAL_DIGITS

    def excess(digits: int) -> float:
        if digits == 0:
            return -math.inf
        costs = gaussian_costs | {Radial(digits * unit, dimension): 1}
        return _log_ratio(_spent(costs, kept, None), target)

    # As if it were Gaussian, but for what radial noise is known to gain
    rest = math.sqrt(max(0.0, gaussian.mu(epsilon, kept) ** 2 - mu**2))
    guess = rest * math.sqrt(dimension + 6) / unit if unit > 0 else 1.0
    digits = largest_within(excess, max(1, round(guess)))
    if digits == 0:
        raise BudgetExceeded(
            f"Gaussian releases of mu={mu:.6g} leave nothing of epsilon={epsilon:g}, "
            f"delta={delta:g} for radial noise: spend less on them"
        )
    return digits * unit


def left(
    ledger: Costs, epsilon: float, delta: float, per_step: Costs, method: str | None = None
) -> int:
    """Return how many more steps fit after given costs, all of them chosen in advance.

    For steps that are chosen on the way use a filter.

    Args:
        ledger: How often each cost was incurred.
        epsilon: The epsilon of the promise.
        delta: The delta of the promise.
        per_step: How often one step incurs each cost.
        method: The name of an accountant; without it the best quick one is used.

    Returns:
        The number of steps.

    Raises:
        UnsupportedQuery: As in `steps`.
        ValueError: As in `steps`.

    Example:
        >>> from dpmcmc.accounting import calibrate
        >>> from dpmcmc.accounting.costs import Gaussian
        >>> step = {Gaussian(50.0): 1}
        >>> fits = calibrate.steps(step, 1.0, 1e-6)
        >>> fits - calibrate.left({Gaussian(50.0): 10}, 1.0, 1e-6, step)
        10
    """
    return steps(per_step, epsilon, delta, initial=ledger, method=method)


def epsilon_left(ledger: Costs, epsilon: float, delta: float) -> float:
    """Return the epsilon that is not spent yet at this delta, 0 if the costs are over budget.

    More fits than has this epsilon by itself, for epsilons do not add up: `left` returns how many
    steps.

    Args:
        ledger: How often each cost was incurred.
        epsilon: The epsilon of the promise.
        delta: The delta of the promise.

    Returns:
        The remaining epsilon.

    Raises:
        UnsupportedQuery: No method bounds the costs.
        ValueError: An argument is out of range.

    Example:
        >>> from dpmcmc.accounting import calibrate
        >>> from dpmcmc.accounting.costs import Gaussian
        >>> 0 < calibrate.epsilon_left({Gaussian(50.0): 10}, 1.0, 1e-6) < 1
        True
    """
    accountants.check_budget(epsilon, delta)
    return max(0.0, epsilon - accountants.epsilon(ledger, delta).epsilon)


def within(ledger: Costs, epsilon: float, delta: float, method: str | None = None) -> bool:
    """Whether costs stay within the budget; total-variation errors too large for it count as "no".

    Args:
        ledger: How often each cost was incurred.
        epsilon: The epsilon of the promise.
        delta: The delta of the promise.
        method: The name of an accountant; without it the best quick one is used.

    Returns:
        Whether they do.

    Raises:
        UnsupportedQuery: The method has no bound for some cost.
        ValueError: An argument is out of range.

    Example:
        >>> from dpmcmc.accounting import calibrate
        >>> from dpmcmc.accounting.costs import Gaussian
        >>> calibrate.within({Gaussian(50.0): 10}, 1.0, 1e-6)
        True
    """
    try:
        return _reached_epsilon(ledger, delta, method) <= epsilon
    except BudgetExceeded:
        return False


def _spent(ledger: Costs, delta: float, method: str | None) -> float:
    """Infinite where total-variation errors are too large, not a number where there is no figure:
    more queries than a method composes.
    """
    try:
        spent = _reached_epsilon(ledger, delta, method)
        return spent if math.isfinite(spent) else math.nan
    except BudgetExceeded:
        return math.inf
    except UnsupportedQuery:
        return math.nan


def _log_ratio(spent: float, epsilon: float) -> float:
    """log(spent / epsilon), which goes like the logarithm of a number of steps; of the sign of
    spent - epsilon whatever rounds.
    """
    if spent == 0 or not math.isfinite(spent):
        return spent or -math.inf
    ratio = math.log(spent) - math.log(epsilon) if epsilon > 0 else math.inf
    return max(ratio, sys.float_info.min) if spent > epsilon else min(ratio, 0.0)


def _reached_epsilon(ledger: Costs, delta: float, method: str | None) -> float:
    return (
        accountants.epsilon(ledger, delta).epsilon
        if method is None
        else accountants.epsilon_by(method, ledger, delta)
    )


def combined(first: Costs, second: Costs, times: int = 1) -> dict[Any, int]:
    """Return the costs of `first` and `times` copies of `second`.

    Args:
        first: How often each cost was incurred.
        second: The same of what is copied.
        times: The number of copies.

    Returns:
        The counts by cost.

    Example:
        >>> from dpmcmc.accounting import calibrate
        >>> from dpmcmc.accounting.costs import Gaussian
        >>> list(calibrate.combined({Gaussian(1.0): 1}, {Gaussian(1.0): 2}, 3).values())
        [7]
    """
    total = {cost: int(count) for cost, count in first.items()}
    for cost, count in second.items():
        total[cost] = total.get(cost, 0) + int(times) * int(count)
    return total


def ideal_costs(ledger: Costs) -> dict[Any, int]:
    """Return the costs as if every release had exactly its ideal law.

    Args:
        ledger: How often each cost was incurred.

    Returns:
        The counts by cost, without total-variation errors.

    Example:
        >>> from dpmcmc.accounting import calibrate
        >>> from dpmcmc.accounting.costs import Gaussian
        >>> [cost.tv_error for cost in calibrate.ideal_costs({Gaussian(1.0, tv_error=1e-9): 1})]
        [0.0]
    """
    total: dict[Any, int] = {}
    for cost, count in ledger.items():
        ideal = replace(cost, tv_error=0.0) if cost.tv_error else cost
        total[ideal] = total.get(ideal, 0) + int(count)
    return total


def _most(per_step: Costs, start: Costs, method: str | None) -> int:
    """The largest number of steps with an answer: pld is limited, and some costs need it."""
    needs_pld = method in ("pld", "pld-pair") or any(
        math.isinf(cost.rdp([2.0])[0]) for cost in per_step if method is None
    )
    left = max(0, accountants.MOST_PLD_QUERIES - sum(start.values())) // sum(per_step.values())
    return max(1, left) if needs_pld else LIMIT


def _guess(per_step: Costs, epsilon: float, delta: float) -> int:
    """Where to begin: as if the losses were Gaussian with the variance that the profiles have."""
    pairs = {cost: cost.profiles() for cost in per_step}
    if any(pair is None for pair in pairs.values()):
        return 1
    variance = sum(count * pairs[cost].forward.spread ** 2 for cost, count in per_step.items())
    return max(1, min(LIMIT, math.floor(gaussian.mu(epsilon, delta) ** 2 / variance)))


def _recursion_steps(per_step: Costs, epsilon: float, delta: float, start: Costs) -> int:
    """One run of the recursion answers for every number of steps on its way."""
    from dpmcmc.accounting.laws import recursion

    cost = recursion.only_bit(combined(start, per_step))
    if cost.tv_error == 0:
        total = recursion.steps(cost, epsilon, delta)
    else:
        bearable = accountants.room_for_tv_errors(epsilon, delta) / cost.tv_error
        total = min(
            math.floor(bearable), recursion.steps(cost, epsilon, (1 - accountants.RESERVE) * delta)
        )
    return max(0, total - start.get(cost, 0)) // per_step[cost]
