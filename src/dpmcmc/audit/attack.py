"""Attacks on the cost of a query, on the bill of a program, and on given answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from dpmcmc.audit.answers import NUM_ANSWERS, as_numbers, collect_answers
from dpmcmc.audit.bounds import bounded_events, check_probabilities, checked_costs, claim_of
from dpmcmc.audit.statistics import learn_statistics
from dpmcmc.audit.verdict import Verdict
from dpmcmc.types import Ask, Cost, Key, Model, Query, Unit

DELTA = 0.01
ALARM = 1e-6
NUM_EVENTS = 8  # two orders of the tables, two cautions, two criteria: factor and epsilon
# Thresholds are these quantiles of both tables' answers together
QUANTILES = 1 / (1 + np.exp(-np.linspace(-8, 8, 201)))


def query(
    asked: Query,
    model: Model,
    first: Any,
    second: Any,
    points: Sequence[Any],
    unit: Unit | None = None,
    **options: Any,
) -> Verdict:
    """Attack the cost of one query on two made-up neighbouring tables.

    Args:
        asked: The query.
        model: What one row contributes.
        first: A MADE-UP table.
        second: A MADE-UP table that is a neighbour of the first.
        points: The list of positions that the query is asked at, such as [position, proposal].
        unit: What the cost protects; one replaced row if left out.
        **options: `num_answers`, `seed`, `delta` and `alarm`, as in `program`.

    Returns:
        The verdict on the query's cost.

    Raises:
        TypeError: `points` is no list, or a curator is given.
        ValueError: The tables are no neighbours, or an option is out of range.

    Example:
        >>> import jax.numpy as jnp
        >>> import dpmcmc
        >>> from dpmcmc import audit, models
        >>> model = models.binomial()
        >>> first = jnp.array([1.0, 0.0])
        >>> second = jnp.array([0.0, 0.0])
        >>> noisy = dpmcmc.queries.LogRatio(clip=1.0, noise_multiplier=1.0)
        >>> audit.query(noisy, model, first, second, [[0.0], [1.0]], num_answers=2000).is_refuted
        False
    """
    if not isinstance(points, list | tuple):
        raise TypeError(
            f"points is a {type(points).__name__}: it must be a list, such as [position] or "
            "[position, proposal]"
        )

    def asking(ask: Ask, rng_key: Key) -> Any:
        return ask(rng_key, asked, *_as_floats(points))

    return program(asking, model, first, second, unit, **options)


def program(
    asking: Callable[[Ask, Key], Any],
    model: Model,
    first: Any,
    second: Any,
    unit: Unit | None = None,
    *,
    num_answers: int = NUM_ANSWERS,
    seed: int = 0,
    delta: float = DELTA,
    alarm: float = ALARM,
) -> Verdict:
    """Attack the bill of a program that asks one query or several.

    Such a program may be some steps of a sampler.

    Args:
        asking: `asking(ask, rng_key)` returns all that is released: arrays, or a pytree of them.
            Its bill is derived from its trace. The keys of its asks are made from `rng_key`.
        model: What one row contributes.
        first: A MADE-UP table.
        second: A MADE-UP table that is a neighbour of the first. Choose the row in which they
            differ for the largest effect, for example beyond every clip in opposite directions. If
            you try several pairs, their probabilities of false alarms add up.
        unit: What the cost protects, such as `Unit(Neighbours.ADD_OR_REMOVE_ONE)`; one replaced
            row if left out.
        num_answers: How often each table is asked. The bounds tighten with its square root.
        seed: The seed of the secrets and the keys: the same seed gives the same verdict.
        delta: The delta at which epsilon is bounded from below. Below about 1 / num_answers the
            bound is far from the truth.
        alarm: The probability of a false alarm in the whole call.

    Returns:
        The verdict on the program's bill.

    Raises:
        TypeError: A curator is given, or the answers are no real numbers.
        ValueError: The tables are no neighbours, an ask does not depend on `rng_key`, nothing is
            released, or an option is out of range.

    Example:
        >>> import jax
        >>> import jax.numpy as jnp
        >>> import dpmcmc
        >>> from dpmcmc import audit, models
        >>> noisy = dpmcmc.queries.LogRatio(clip=1.0, noise_multiplier=2.0)
        >>> first = jnp.array([1.0, 0.0])
        >>> second = jnp.array([0.0, 0.0])
        >>> def two_asks(ask, rng_key):
        ...     keys = jax.random.split(rng_key)
        ...     return [ask(key, noisy, jnp.zeros(1), jnp.ones(1)).value for key in keys]
        >>> model = models.binomial()
        >>> audit.program(two_asks, model, first, second, num_answers=1000).is_refuted
        False
    """
    check_probabilities(delta, alarm)
    answers, costs = collect_answers(
        asking, model, first, second, unit, num_answers=num_answers, seed=seed
    )
    return compare(*answers, costs, delta=delta, alarm=alarm)


def compare(
    first: Any,
    second: Any,
    costs: Mapping[Cost, int],
    *,
    delta: float = DELTA,
    alarm: float = ALARM,
) -> Verdict:
    """Attack costs with answers from anywhere about two neighbouring tables.

    Args:
        first: Independent answers about the first table, one in each row, at least 1000.
        second: The same about the second table.
        costs: The claimed costs of one answer with their counts, such as {Gaussian(1.0): 2}.
        delta: The delta at which epsilon is bounded from below.
        alarm: The probability of a false alarm.

    Returns:
        The verdict on the costs.

    Raises:
        TypeError: The answers are no real numbers, or `costs` holds something else than costs.
        ValueError: The answers differ in their entries or are too few, the costs claim nothing, or
            an option is out of range.

    Example:
        >>> import numpy as np
        >>> from dpmcmc import audit
        >>> from dpmcmc.accounting.costs import Gaussian
        >>> rng = np.random.default_rng(0)
        >>> first = rng.normal(1.0, 1.0, 5000)
        >>> second = rng.normal(0.0, 1.0, 5000)
        >>> audit.compare(first, second, {Gaussian(2.0): 1}).is_refuted
        True
    """
    check_probabilities(delta, alarm)
    costs = checked_costs(costs)
    tables = as_numbers(first, second)
    num_answers = min(map(len, tables))
    claim = claim_of(costs, delta, num_answers)
    # Of four answers one is learned from, one chooses events, and two bound their probabilities
    statistics = learn_statistics(*(table[::4] for table in tables))
    chosen = [statistics(table[2::4]) for table in tables]
    judged = [statistics(table[1::2]) for table in tables]
    thresholds = [
        np.quantile(np.concatenate(pair), QUANTILES) for pair in zip(*chosen, strict=True)
    ]
    bounds = [
        pair
        for order in (1, -1)
        for caution in (1, 2)
        for pair in bounded_events(
            chosen[::order],
            judged[::order],
            thresholds,
            (claim.factor, claim.epsilon),
            alarm / (2 * NUM_EVENTS),
            caution,
        )
    ]
    return Verdict(
        factor=max(float(claim.factor(*pair)) for pair in bounds),
        epsilon=max(0.0, *(float(claim.epsilon(*pair)) for pair in bounds)),
        claimed_epsilon=claim.claimed_epsilon,
        delta=delta,
        alarm=alarm,
        num_answers=num_answers,
        costs=costs,
    )


def _as_floats(points: Sequence[Any]) -> list[Any]:
    return [jnp.asarray(point, jnp.result_type(float)) for point in points]
