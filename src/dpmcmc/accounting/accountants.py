r"""From a ledger to (epsilon, delta): one function per method, each an upper bound.

A ledger is a mapping from costs to how often each was incurred. The methods, by name:

    gaussian      exact, for Gaussian queries alone (:cite:p:`raisa2021hamiltonian`, Theorem 2.4)
    pld           privacy-loss distributions by connect-the-dots on exact profiles; almost exact,
                  for costs that all have a profile. Gaussian ones are composed to one before
    recursion     exact for accept bits of one kind, up to its grid; slow, so only when asked for
    rdp           Renyi divergences of the best order, best conversion; for costs that all have
                  finite divergences and were chosen in advance
    rdp-paper     the same orders with the papers' conversion
    zcdp          sum of rho, best conversion
    zcdp-paper    rho + sqrt(4 rho log 1/delta)
    advanced      the advanced composition theorem, for queries of one kind
                  (:cite:p:`yildirim2019exact`, Theorem 3)
    pure          sum of pure epsilons
    pld-pair      pld with the looser pair of laws for fixed-size batches that the papers' Fourier
                  accountant uses

`epsilon` returns the smallest result of the quick methods. Releases whose total-variation error
(`tv_error`) is positive use one hundredth of delta:  k releases with errors t_j add
(1 + e^epsilon) sum_j t_j  to delta.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from dpmcmc.accounting import papers
from dpmcmc.accounting.costs import Cost, Costs, Gaussian, NonPrivate, SubsampledGaussian
from dpmcmc.accounting.laws import gaussian, profiles, renyi
from dpmcmc.errors import BudgetExceeded, UnsupportedQuery

RESERVE = 0.01  # part of delta that pays for total-variation errors
ROUNDING = 1e-12  # of a delta in closed form


class Spent(NamedTuple):
    """What a ledger costs at the given delta, and which method proves it.

    Attributes:
        epsilon: The smallest epsilon that was proved.
        method: The name of the method that proved it.

    Example:
        >>> from dpmcmc.accounting import accountants, costs
        >>> accountants.epsilon({costs.Gaussian(10.0): 4}, 1e-5).method
        'gaussian'
    """

    epsilon: float
    method: str


def gaussian_epsilon(costs: Costs, delta: float) -> float:
    """Return the exact epsilon of Gaussian queries.

    Args:
        costs: How often each cost was incurred.
        delta: The delta of the promise.

    Returns:
        The epsilon at `delta`.

    Raises:
        UnsupportedQuery: A cost is not `Gaussian`.

    Example:
        >>> from dpmcmc.accounting import accountants
        >>> from dpmcmc.accounting.costs import Gaussian
        >>> accountants.gaussian_epsilon({Gaussian(10.0): 4}, 1e-5) < 1
        True
    """
    return gaussian.epsilon(delta, gaussian_mu(costs))


def gaussian_mu(costs: Costs) -> float:
    """Return the Gaussian-DP parameter of Gaussian queries: mu^2 = sum of count / z^2.

    Args:
        costs: How often each cost was incurred.

    Returns:
        The parameter mu.

    Raises:
        UnsupportedQuery: A cost is not `Gaussian`.

    Example:
        >>> from dpmcmc.accounting import accountants
        >>> from dpmcmc.accounting.costs import Gaussian
        >>> accountants.gaussian_mu({Gaussian(10.0): 4})
        0.2
    """
    if not all(isinstance(cost, Gaussian) for cost in costs):
        raise UnsupportedQuery(
            "the exact Gaussian composition needs a ledger of Gaussian costs alone"
        )
    return math.sqrt(math.fsum(count / cost.noise_multiplier**2 for cost, count in costs.items()))


def rdp_epsilon(costs: Costs, delta: float) -> float:
    """Return epsilon by Renyi divergences: the best order and the best conversion.

    Args:
        costs: How often each cost was incurred.
        delta: The delta of the promise.

    Returns:
        The epsilon at `delta`.

    Raises:
        UnsupportedQuery: No order has a finite divergence for all costs.

    Example:
        >>> from dpmcmc.accounting import accountants
        >>> from dpmcmc.accounting.costs import Gaussian
        >>> accountants.rdp_epsilon({Gaussian(10.0): 4}, 1e-5) < 1
        True
    """
    return _finite(
        renyi.least(curve(costs), functools.partial(renyi.best_epsilon, delta=delta)), costs
    )


def rdp_paper_epsilon(costs: Costs, delta: float) -> float:
    """Return epsilon by Renyi divergences: the best order, and the papers' conversion.

    The conversion is that of :cite:p:`raisa2021thesis`, Theorem 2.5.

    Args:
        costs: How often each cost was incurred.
        delta: The delta of the promise.

    Returns:
        The epsilon at `delta`.

    Raises:
        UnsupportedQuery: No order has a finite divergence for all costs.

    Example:
        >>> from dpmcmc.accounting import accountants
        >>> from dpmcmc.accounting.costs import Gaussian
        >>> costs = {Gaussian(10.0): 4}
        >>> accountants.rdp_paper_epsilon(costs, 1e-5) > accountants.rdp_epsilon(costs, 1e-5)
        True
    """
    return _finite(
        renyi.least(curve(costs), functools.partial(renyi.paper_epsilon, delta=delta)), costs
    )


def _finite(epsilon: float, costs: Costs) -> float:
    if math.isinf(epsilon):
        without = [
            cost for cost in costs if np.all(np.isinf(_rdp(cost, tuple(renyi.ORDERS.tolist()))))
        ]
        reason = (
            f"{without[0]} has no finite Renyi divergence"
            if without
            else "no order has a finite Renyi divergence for all costs"
        )
        way_out = (
            f": use pld and delta >= {profiles.SMALLEST_DELTA:g}"
            if all(cost.profiles() for cost in costs)
            else ""
        )
        raise UnsupportedQuery(reason + way_out)
    return epsilon


def curve(costs: Costs) -> renyi.Curve:
    """Return the Renyi divergence of all costs together as a function of the order.

    Args:
        costs: How often each cost was incurred.

    Returns:
        A function of an array of orders.

    Example:
        >>> import numpy as np
        >>> from dpmcmc.accounting import accountants
        >>> from dpmcmc.accounting.costs import Gaussian
        >>> accountants.curve({Gaussian(1.0): 4})(np.array([2.0])).tolist()
        [4.0]
    """

    def at(orders: np.ndarray) -> np.ndarray:
        known = tuple(orders.tolist())
        return np.sum([count * _rdp(cost, known) for cost, count in costs.items()], axis=0)

    return at


@functools.lru_cache(maxsize=4096)
def _rdp(cost: Cost, orders: tuple[float, ...]) -> np.ndarray:
    return cost.rdp(np.array(orders))


def zcdp_epsilon(costs: Costs, delta: float) -> float:
    """Return epsilon by zero-concentrated DP: the sum of rho, and the best conversion.

    Args:
        costs: How often each cost was incurred.
        delta: The delta of the promise.

    Returns:
        The epsilon at `delta`.

    Raises:
        UnsupportedQuery: A cost has no bound of this kind.

    Example:
        >>> from dpmcmc.accounting import accountants
        >>> from dpmcmc.accounting.costs import Gaussian
        >>> accountants.zcdp_epsilon({Gaussian(10.0): 4}, 1e-5) < 1
        True
    """
    return renyi.zcdp_epsilon(zcdp_rho(costs), delta)


def zcdp_paper_epsilon(costs: Costs, delta: float) -> float:
    """Return epsilon by zero-concentrated DP: the sum of rho, and the papers' conversion.

    The conversion is that of :cite:p:`raisa2021thesis`, Theorem 2.5.

    Args:
        costs: How often each cost was incurred.
        delta: The delta of the promise.

    Returns:
        The epsilon at `delta`.

    Raises:
        UnsupportedQuery: A cost has no bound of this kind.

    Example:
        >>> from dpmcmc.accounting import accountants
        >>> from dpmcmc.accounting.costs import Gaussian
        >>> costs = {Gaussian(10.0): 4}
        >>> accountants.zcdp_paper_epsilon(costs, 1e-5) > accountants.zcdp_epsilon(costs, 1e-5)
        True
    """
    return renyi.zcdp_epsilon_paper(zcdp_rho(costs), delta)


def zcdp_rho(costs: Costs) -> float:
    """Return rho of all costs together.

    Args:
        costs: How often each cost was incurred.

    Returns:
        The sum of rho.

    Raises:
        UnsupportedQuery: A cost has no bound of this kind.

    Example:
        >>> from dpmcmc.accounting import accountants
        >>> from dpmcmc.accounting.costs import Gaussian
        >>> accountants.zcdp_rho({Gaussian(1.0): 4})
        2.0
    """
    rhos = {cost: cost.rho() for cost in costs}
    if unknown := sorted({type(cost).__name__ for cost, rho in rhos.items() if rho is None}):
        raise UnsupportedQuery(f"{', '.join(unknown)} has no zCDP bound: choose another method")
    return math.fsum(count * rhos[cost] for cost, count in costs.items())


def pure_epsilon(costs: Costs, delta: float) -> float:
    """Return the sum of pure epsilons, which holds with delta = 0.

    Args:
        costs: How often each cost was incurred.
        delta: Not used: the sum holds for every delta.

    Returns:
        The sum.

    Raises:
        UnsupportedQuery: A cost has no bound of this kind.

    Example:
        >>> from dpmcmc.accounting import accountants
        >>> from dpmcmc.accounting.costs import Pure
        >>> accountants.pure_epsilon({Pure(0.25): 4}, 1e-5)
        1.0
    """
    pures = {cost: cost.pure() for cost in costs}
    if unknown := sorted({type(cost).__name__ for cost, value in pures.items() if value is None}):
        raise UnsupportedQuery(f"{', '.join(unknown)} has no pure epsilon: choose another method")
    return math.fsum(count * pures[cost] for cost, count in costs.items())


def pld_epsilon(costs: Costs, delta: float) -> float:
    """Return epsilon by privacy-loss distributions of the exact profiles.

    Args:
        costs: How often each cost was incurred.
        delta: The delta of the promise.

    Returns:
        The epsilon at `delta`.

    Raises:
        UnsupportedQuery: A cost has no profile, there are too many queries, or `delta` is too
            small.

    Example:
        >>> from dpmcmc.accounting import accountants
        >>> from dpmcmc.accounting.costs import Gaussian
        >>> accountants.pld_epsilon({Gaussian(10.0): 4}, 1e-5) < 1
        True
    """
    from dpmcmc.accounting.laws import pld

    _check_number(costs)
    return pld.epsilon(_with_one_gaussian(costs), delta)


def pld_pair_epsilon(costs: Costs, delta: float) -> float:
    """Return epsilon by privacy-loss distributions, with a looser pair for fixed-size batches.

    The pair is  (1-q) N(0,1) + q N(+-mu,1), as in the papers' Fourier accountant.

    Args:
        costs: How often each cost was incurred.
        delta: The delta of the promise.

    Returns:
        The epsilon at `delta`.

    Raises:
        UnsupportedQuery: No cost is a fixed-size batch, or as in `pld_epsilon`.

    Example:
        >>> from dpmcmc.accounting import accountants
        >>> from dpmcmc.accounting.costs import SubsampledGaussian
        >>> from dpmcmc.types import Neighbours
        >>> costs = {SubsampledGaussian("fixed", 0.1, 5.0, Neighbours.REPLACE_ONE): 2}
        >>> accountants.pld_pair_epsilon(costs, 1e-5) >= accountants.pld_epsilon(costs, 1e-5)
        True
    """
    from dpmcmc.accounting.laws import pld

    if not any(isinstance(cost, SubsampledGaussian) and cost.scheme == "fixed" for cost in costs):
        raise UnsupportedQuery("this ledger has no fixed-size batch: the pair is the same as pld")
    _check_number(costs)
    loosened = {_loosened(cost): count for cost, count in costs.items()}
    return pld.epsilon(_with_one_gaussian(loosened), delta)


def _with_one_gaussian(costs: Costs) -> Costs:
    """The costs with all Gaussian ones among them composed, exactly, to one.

    A ledger of Gaussian costs alone stays as it is.
    """
    gaussian_costs = {cost: count for cost, count in costs.items() if isinstance(cost, Gaussian)}
    others = {cost: count for cost, count in costs.items() if not isinstance(cost, Gaussian)}
    if not gaussian_costs or not others:
        return costs
    return {Gaussian(1 / gaussian_mu(gaussian_costs)): 1} | others


def _check_number(costs: Costs) -> None:
    if sum(costs.values()) > MOST_PLD_QUERIES:
        raise UnsupportedQuery(
            f"pld composes up to {MOST_PLD_QUERIES:g} queries: beyond, its grid is too coarse; use "
            "rdp"
        )


class _Loosened(SubsampledGaussian):
    """A fixed-size batch with the looser pair."""

    def profiles(self) -> profiles.Pair:
        return profiles.fixed_size_pair(self.rate, self.replacement_multiplier())


def _loosened(cost: Any) -> Any:
    is_fixed = isinstance(cost, SubsampledGaussian) and cost.scheme == "fixed"
    return _Loosened(*dataclasses.astuple(cost)) if is_fixed else cost


def recursion_epsilon(costs: Costs, delta: float) -> float:
    """Return epsilon of accept bits of one kind by the exact recursion.

    Args:
        costs: How often each cost was incurred.
        delta: The delta of the promise.

    Returns:
        The epsilon at `delta`.

    Raises:
        UnsupportedQuery: There are other costs, or too many bits.

    Example:
        >>> from dpmcmc import Barker
        >>> from dpmcmc.accounting import accountants
        >>> from dpmcmc.accounting.costs import AcceptBit
        >>> accountants.recursion_epsilon({AcceptBit(Barker(), 0.1): 2}, 1e-3) < 0.2
        True
    """
    from dpmcmc.accounting.laws import recursion

    return recursion.ledger_epsilon(costs, delta)


def advanced_epsilon(costs: Costs, delta: float) -> float:
    """Return epsilon by advanced composition of one kind of query.

    The queries are pure ones, or Gaussian ones with half of delta for the steps.

    Args:
        costs: How often each cost was incurred.
        delta: The delta of the promise.

    Returns:
        The epsilon at `delta`.

    Raises:
        UnsupportedQuery: There are several kinds of cost, or the theorem has no bound for it.

    Example:
        >>> from dpmcmc.accounting import accountants
        >>> from dpmcmc.accounting.costs import Gaussian
        >>> accountants.advanced_epsilon({Gaussian(100.0): 4}, 1e-5) < 1
        True
    """
    if len(costs) != 1:
        raise UnsupportedQuery("advanced composition is for one kind of query")
    ((cost, count),) = costs.items()
    if isinstance(cost, Gaussian):
        step = papers.gaussian_step(cost.noise_multiplier, delta / 2 / count)
        if step >= 1:
            raise UnsupportedQuery(
                "the Gaussian theorem of advanced composition needs one step's epsilon below 1"
            )
        return papers.advanced_composition(count, step, delta / 2 / count, delta / 2)[0]
    if cost.pure() is None:
        raise UnsupportedQuery("advanced composition needs (epsilon, delta) of one step")
    return papers.advanced_composition(count, cost.pure(), 0.0, delta)[0]


METHODS: dict[str, Callable[[Costs, float], float]] = {
    "gaussian": gaussian_epsilon,
    "recursion": recursion_epsilon,
    "pld": pld_epsilon,
    "rdp": rdp_epsilon,
    "zcdp": zcdp_epsilon,
    "pure": pure_epsilon,
    "pld-pair": pld_pair_epsilon,
    "rdp-paper": rdp_paper_epsilon,
    "zcdp-paper": zcdp_paper_epsilon,
    "advanced": advanced_epsilon,
}
QUICK = ("rdp", "pure")
WITH_PROFILES = ("pld", "pure")
MOST_PLD_QUERIES = 10**10
MOST_QUERIES = 2**80  # in a ledger: `search.LIMIT` steps of a million queries
MANY_QUERIES = 10**7  # for pld: what its grid loses grows with them, and rdp may be better


def epsilons(costs: Costs, delta: float, methods: Iterable[str] | None = None) -> dict[str, float]:
    """Return epsilon by every method that applies to the costs.

    A method is left out if it has no bound for some cost, or if its epsilon is so large that the
    total-variation errors use up delta.

    Args:
        costs: How often each cost was incurred.
        delta: The delta of the promise.
        methods: The names of the methods; without them all but the recursion are tried.

    Returns:
        The epsilons by the methods' names.

    Example:
        >>> from dpmcmc.accounting import accountants
        >>> from dpmcmc.accounting.costs import Gaussian
        >>> accountants.epsilons({Gaussian(1.0): 4}, 1e-5, ["pure", "gaussian"]).keys()
        dict_keys(['gaussian'])
    """
    names = [name for name in METHODS if name != "recursion"] if methods is None else list(methods)
    bounds = {}
    for name in names:
        try:
            bounds[name] = epsilon_by(name, costs, delta)
        except (UnsupportedQuery, BudgetExceeded):
            continue
    return bounds


def epsilon_by(method: str, costs: Costs, delta: float) -> float:
    """Return epsilon by one method.

    Args:
        method: The method's name, one of `METHODS`.
        costs: How often each cost was incurred.
        delta: The delta of the promise.

    Returns:
        The epsilon at `delta`.

    Raises:
        UnsupportedQuery: The method has no bound for some cost.
        BudgetExceeded: The total-variation errors use up delta.
        ValueError: There is no such method, or an argument is out of range.

    Example:
        >>> from dpmcmc.accounting import accountants
        >>> from dpmcmc.accounting.costs import Gaussian
        >>> accountants.epsilon_by("gaussian", {Gaussian(10.0): 4}, 1e-5) < 1
        True
    """
    if method not in METHODS:
        raise ValueError(f"method={method!r} must be one of {list(METHODS)}")
    costs = checked(costs)
    _check_delta(delta)
    if any(isinstance(cost, NonPrivate) for cost in costs):
        return math.inf
    if not costs:
        return 0.0
    tv_error = total_tv_error(costs)
    spent = METHODS[method](costs, delta if tv_error == 0 else (1 - RESERVE) * delta)
    _check_tv_error(tv_error, spent, delta)
    return spent


def epsilon(costs: Costs, delta: float) -> Spent:
    """Return the least epsilon that a quick method proves.

    That is the closed form for Gaussians, PLD or pure where profiles are known, and RDP or pure
    where they are not or PLD has no answer.

    Args:
        costs: How often each cost was incurred.
        delta: The delta of the promise.

    Returns:
        The epsilon, and the method that proves it.

    Raises:
        UnsupportedQuery: No method bounds the costs.
        BudgetExceeded: The total-variation errors use up delta.
        ValueError: An argument is out of range.

    Example:
        >>> from dpmcmc.accounting import accountants
        >>> from dpmcmc.accounting.costs import Gaussian
        >>> accountants.epsilon({Gaussian(10.0): 4}, 1e-5).method
        'gaussian'
    """
    costs = checked(costs)
    _check_delta(delta)
    if any(isinstance(cost, NonPrivate) for cost in costs):
        return Spent(math.inf, "none")
    if all(isinstance(cost, Gaussian) for cost in costs):
        return Spent(epsilon_by("gaussian", costs, delta), "gaussian")
    known = delta >= profiles.SMALLEST_DELTA and all(cost.profiles() is not None for cost in costs)
    bounds = epsilons(costs, delta, WITH_PROFILES) if known else {}
    if not math.isfinite(bounds.get("pld", math.inf)) or sum(costs.values()) > MANY_QUERIES:
        bounds |= epsilons(costs, delta, QUICK)
    if not bounds:
        if known:
            with contextlib.suppress(UnsupportedQuery):
                # Says why, if there would be a figure but for total-variation errors
                epsilon_by("pld", costs, delta)
        try:
            epsilon_by("rdp", costs, delta)
        except UnsupportedQuery:
            if known:
                epsilon_by("pld", costs, delta)  # its own reason: "use pld" would be no help
            raise
        raise UnsupportedQuery("no method bounds this ledger")
    best = min(bounds, key=lambda name: bounds[name])
    return Spent(bounds[best], best)


def delta(costs: Costs, epsilon: float) -> float:
    """Return the least delta that a quick method proves at this epsilon.

    It includes what the total-variation errors add.

    Args:
        costs: How often each cost was incurred.
        epsilon: The epsilon of the promise.

    Returns:
        The delta at `epsilon`.

    Raises:
        ValueError: `epsilon` is negative, or a count is out of range.

    Example:
        >>> from dpmcmc.accounting import accountants
        >>> from dpmcmc.accounting.costs import Gaussian
        >>> accountants.delta({Gaussian(10.0): 4}, 1.0) < 1e-6
        True
    """
    costs = checked(costs)
    if not epsilon >= 0:
        raise ValueError(f"epsilon={epsilon} must be at least 0: it bounds the privacy loss")
    if any(isinstance(cost, NonPrivate) for cost in costs):
        return 1.0
    if not costs or math.isinf(epsilon):
        return 0.0
    ideal = min(_deltas(costs, epsilon)) * (1 + ROUNDING)
    return min(1.0, ideal + _charge(total_tv_error(costs), epsilon))


def _deltas(costs: Costs, epsilon: float) -> list[float]:
    if all(isinstance(cost, Gaussian) for cost in costs):
        return [gaussian.delta(epsilon, gaussian_mu(costs))]
    convert = functools.partial(renyi.best_log_delta, epsilon=epsilon)
    bounds = [math.exp(renyi.least(curve(costs), convert))]
    with contextlib.suppress(UnsupportedQuery):
        from dpmcmc.accounting.laws import pld

        _check_number(costs)
        bounds.append(pld.delta(_with_one_gaussian(costs), epsilon))
    with contextlib.suppress(UnsupportedQuery):
        bounds.append(0.0 if pure_epsilon(costs, 0.0) <= epsilon else 1.0)
    return bounds


def checked(costs: Costs) -> dict[Any, int]:
    """Return the costs that were incurred at all, with counts that are Python's own integers.

    Integer types of NumPy and JAX wrap around.

    Args:
        costs: How often each cost was incurred.

    Returns:
        The costs whose count is positive.

    Raises:
        ValueError: A count is negative, too large or not a whole number, or costs are for two
            relations.

    Example:
        >>> from dpmcmc.accounting import accountants
        >>> from dpmcmc.accounting.costs import Gaussian
        >>> accountants.checked({Gaussian(1.0): 4.0, Gaussian(2.0): 0})
        {Gaussian(noise_multiplier=1.0, tv_error=0.0): 4}
    """
    for cost, count in costs.items():
        if not (0 <= count <= MOST_QUERIES and count == int(count)):
            raise ValueError(
                f"a ledger counts whole numbers of queries, none negative, up to 2^80; {cost!r} "
                f"has {count}"
            )
    counted = {cost: int(count) for cost, count in costs.items() if count > 0}
    if len({cost.neighbours for cost in counted if hasattr(cost, "neighbours")}) > 1:
        raise ValueError(
            "a ledger is about one relation of neighbouring tables, this one has costs for two: "
            "give all for the same"
        )
    return counted


def checked_step(per_step: Costs) -> dict[Any, int]:
    """Return the costs of one step, and refuse a step without any.

    Args:
        per_step: How often one step incurs each cost.

    Returns:
        The costs whose count is positive.

    Raises:
        ValueError: There are no costs, or as in `checked`.

    Example:
        >>> from dpmcmc.accounting import accountants
        >>> from dpmcmc.accounting.costs import Gaussian
        >>> accountants.checked_step({Gaussian(1.0): 2})
        {Gaussian(noise_multiplier=1.0, tv_error=0.0): 2}
    """
    costs = checked(per_step)
    if not costs:
        raise ValueError(
            "a step that asks nothing costs nothing, so any number of steps fits: say what one "
            "step asks"
        )
    return costs


def check_budget(epsilon: float, delta: float) -> None:
    """Refuse numbers that are not an (epsilon, delta).

    Args:
        epsilon: The epsilon of the promise.
        delta: The delta of the promise.

    Raises:
        ValueError: `epsilon` is negative or infinite, or `delta` is not in (0, 1).

    Example:
        >>> from dpmcmc.accounting import accountants
        >>> accountants.check_budget(1.0, 1e-6)
    """
    if not 0 <= epsilon < math.inf:
        raise ValueError(
            f"epsilon={epsilon} must be at least 0 and finite: it bounds the privacy loss"
        )
    _check_delta(delta)


def _check_delta(delta: float) -> None:
    if not 0 < delta < 1:
        raise ValueError(f"delta={delta} must lie in (0, 1): it is a probability of failure")


def total_tv_error(costs: Costs) -> float:
    """Return a bound on the total-variation error of all releases together.

    Args:
        costs: How often each cost was incurred.

    Returns:
        The sum of `tv_error`.

    Example:
        >>> from dpmcmc.accounting import accountants
        >>> from dpmcmc.accounting.costs import Gaussian
        >>> accountants.total_tv_error({Gaussian(1.0, tv_error=0.25): 2})
        0.5
    """
    return math.fsum(count * cost.tv_error for cost, count in costs.items())


def room_for_tv_errors(epsilon: float, delta: float) -> float:
    """Return how large the total-variation error of all releases may be.

    (1 + e^epsilon) times it is the hundredth of delta that is reserved.

    Args:
        epsilon: The epsilon of the promise.
        delta: The delta of the promise.

    Returns:
        The largest total-variation error.

    Example:
        >>> from dpmcmc.accounting import accountants
        >>> accountants.room_for_tv_errors(0.0, 0.5)
        0.0025
    """
    return RESERVE * delta / (1 + math.exp(epsilon)) if epsilon < 700 else 0.0


def _charge(tv_error: float, epsilon: float) -> float:
    """What total-variation errors add to delta: (1 + e^epsilon) times their sum."""
    return (
        math.exp(min(700.0, math.log(tv_error) + np.logaddexp(0.0, epsilon)))
        if tv_error > 0
        else 0.0
    )


def _check_tv_error(tv_error: float, epsilon: float, delta: float) -> None:
    """(1 + e^epsilon) D must fit into the hundredth of delta that was kept for it."""
    if math.isinf(epsilon):
        return
    charge = _charge(tv_error, epsilon)
    if charge > RESERVE * delta:
        raise BudgetExceeded(
            f"the total-variation error of the releases is {tv_error:.3g} in all; at "
            f"epsilon={epsilon:.3g} that "
            f"adds {charge:.3g} to delta, more than the hundredth of delta={delta:.3g} kept for "
            "it: "
            "ask for fewer steps, or promise a larger delta; a larger epsilon does not help"
        )
