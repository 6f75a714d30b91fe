"""Bounds on the probabilities of events, and what costs admit of these probabilities."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from dpmcmc.accounting import accountants
from dpmcmc.accounting.costs import Cost as KnownCost
from dpmcmc.accounting.costs import NonPrivate
from dpmcmc.checks import is_number, whole
from dpmcmc.errors import PrivacyRefusal
from dpmcmc.types import Cost

NUM_EPSILONS = 13
ORDERS = np.array([1.5, 3.0, 8.0, 32.0])  # of Renyi divergences
MIN_DIVERGENCE = 1e-9  # a smaller claim counts as this much


class Claim(NamedTuple):
    """What costs admit of an event's probabilities p and q under two neighbouring tables."""

    delta: float
    claimed_epsilon: float  # at delta
    epsilons: np.ndarray
    deltas: np.ndarray  # at these
    divergences: np.ndarray  # of ORDERS
    tv_error: float  # between the answers and the law that the divergences are about

    def factor(self, p, q) -> np.ndarray:
        """The largest ratio of a difference between p and q to what is admitted."""
        p, q = (np.asarray(probability, float)[..., None] for probability in (p, q))
        excess = (p - np.exp(self.epsilons) * q) / self.deltas
        divergence = _coin_divergences(p - self.tv_error, q + self.tv_error) / self.divergences
        return np.maximum(0.0, np.maximum(excess.max(axis=-1), divergence.max(axis=-1)))

    def epsilon(self, p, q) -> np.ndarray:
        """The smallest epsilon, at delta, that admits p and q."""
        return np.log(np.maximum(np.asarray(p, float) - self.delta, 1e-300) / q)


def _coin_divergences(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """Renyi divergences, of ORDERS, between coins of probabilities p and q; 0 where p <= q."""
    p = np.clip(p, 1e-300, 1.0)
    q = np.clip(q, 1e-300, 1 - 1e-16)
    with np.errstate(divide="ignore"):
        sides = (
            ORDERS * np.log(one) + (1 - ORDERS) * np.log(other)
            for one, other in ((p, q), (1 - p, 1 - q))
        )
        return np.where(p > q, np.logaddexp(*sides) / (ORDERS - 1), 0.0)


def claim_of(costs: Mapping[Cost, int], delta: float, num_answers: int) -> Claim:
    """What the costs admit, at epsilons where so many answers can show a difference."""
    # A smaller delta counts as this one: so small a probability is never established
    min_delta = 1 / num_answers
    largest = min(_epsilon(costs, min_delta), math.log(num_answers))
    epsilons = np.linspace(0.0, largest, NUM_EPSILONS)
    deltas = [accountants.delta(costs, epsilon) for epsilon in epsilons.tolist()]
    return Claim(
        delta=delta,
        claimed_epsilon=_epsilon(costs, delta),
        epsilons=epsilons,
        deltas=np.maximum(deltas, min_delta),
        divergences=np.maximum(accountants.curve(costs)(ORDERS), MIN_DIVERGENCE),
        tv_error=accountants.total_tv_error(costs),
    )


def _epsilon(costs: Mapping[Any, int], delta: float) -> float:
    try:
        return accountants.epsilon(costs, delta).epsilon
    except PrivacyRefusal:
        return math.inf  # the costs claim none


def checked_costs(costs: Mapping[Cost, int]) -> dict[Cost, int]:
    """The costs as accountants take them; refused if they claim nothing."""
    if not (isinstance(costs, Mapping) and all(isinstance(cost, KnownCost) for cost in costs)):
        raise TypeError(
            f"costs are {costs!r}: they must be like {{Gaussian(1.0): 2}}, with query.cost(unit) "
            f"and not the query"
        )
    costs = accountants.checked(
        {cost: whole(f"the count of {cost}", count, 0) for cost, count in costs.items()}
    )
    if not costs or any(isinstance(cost, NonPrivate) for cost in costs):
        raise ValueError("nothing is asked, or its costs claim nothing: there is nothing to refute")
    return costs


def check_probabilities(delta: float, alarm: float) -> None:
    """Refuse a delta or a probability of false alarms outside (0, 1)."""
    for name, value in (("delta", delta), ("alarm", alarm)):
        if not (is_number(value) and 0 < value < 1):
            raise ValueError(f"{name}={value!r} must lie in (0, 1): it is a probability")


def bounded_events(
    chosen: Sequence[np.ndarray],
    judged: Sequence[np.ndarray],
    thresholds: Sequence[np.ndarray],
    criteria: Sequence[Callable],
    error: float,
    caution: int,
) -> Iterator[tuple]:
    """For each criterion, choose the best event by one part of the answers and bound its
    probabilities by the other.

    Args:
        chosen: For both tables the sorted statistics, (statistics, answers), to choose events by.
        judged: The same of the answers that bound the probabilities.
        thresholds: For each statistic the thresholds that define its events.
        criteria: Functions of two probabilities: the event of the largest value is chosen.
        error: The probability that one bound is wrong.
        caution: Above 1, events are chosen by wider intervals: fewer are chosen by chance, but
            rare ones are missed.

    Yields:
        A lower bound of the event's probability under the first table, and an upper bound under
        the second.
    """
    # Chosen as if there were as many answers as will judge: otherwise rare events are not chosen
    weight = len(judged[0][0]) / len(chosen[0][0])
    parts = zip(*chosen, thresholds, strict=True)
    bounds = [
        _bounded_probabilities(one, other, some, error**caution, weight)
        for one, other, some in parts
    ]
    lower, upper = np.stack(bounds, axis=1)
    for criterion in criteria:
        best = np.argmax(criterion(lower, upper))
        statistic, place = map(int, np.unravel_index(best, lower.shape))
        yield _bounded_probabilities(
            judged[0][statistic], judged[1][statistic], thresholds[statistic][place], error
        )


def _bounded_probabilities(
    one: np.ndarray, other: np.ndarray, thresholds, error: float, weight: float = 1.0
) -> tuple[np.ndarray, np.ndarray]:
    """For "above the threshold", a lower bound of its probability under one table and an upper
    bound under the other, each wrong with probability `error`; answers count `weight` times.
    """
    above = len(one) - np.searchsorted(one, thresholds, side="right")
    below = np.searchsorted(other, thresholds, side="right")
    lower = _lower_bound(weight * above, weight * len(one), error)
    upper = 1 - _lower_bound(weight * below, weight * len(other), error)
    return lower, upper


def _lower_bound(counts: np.ndarray, number: float, error: float) -> np.ndarray:
    """Clopper and Pearson's lower bound of a probability."""
    quantiles = stats.beta.ppf(error, np.maximum(counts, 1), 1 + number - counts)
    return np.where(counts > 0, quantiles, 0.0)
