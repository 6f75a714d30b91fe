"""The answers to a program about each of two tables, and what one answer costs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from dpmcmc import Curator
from dpmcmc.accounting.bill import costs_of
from dpmcmc.audit.bounds import checked_costs
from dpmcmc.audit.neighbours import check_made_up, check_neighbours, checked_unit
from dpmcmc.checks import whole
from dpmcmc.types import Ask, Cost, Key, Model, Unit, is_standing

NUM_ANSWERS = 100_000
MIN_ANSWERS = 1000
MAX_ROWS_AT_ONCE = 30_000


def collect_answers(
    asking: Callable[[Ask, Key], Any],
    model: Model,
    first: Any,
    second: Any,
    unit: Unit | None = None,
    *,
    num_answers: int = NUM_ANSWERS,
    seed: int = 0,
) -> tuple[tuple[np.ndarray, np.ndarray], Mapping[Cost, int]]:
    """Run a program many times on each of two made-up tables.

    Args:
        asking: `asking(ask, rng_key)` returns all that is released, as in `program`.
        model: What one row contributes.
        first: A MADE-UP table.
        second: A MADE-UP table that is a neighbour of the first.
        unit: What the cost protects; one replaced row if left out.
        num_answers: How often each table is asked, at least 1000.
        seed: The seed of the secrets and the keys.

    Returns:
        The answers about both tables, each of shape (num_answers, entries), and the claimed costs
        of one answer.

    Raises:
        TypeError: A curator is given, or the answers are no real numbers.
        ValueError: As in `program`.

    Example:
        >>> import jax.numpy as jnp
        >>> import dpmcmc
        >>> from dpmcmc import audit, models
        >>> noisy = dpmcmc.queries.LogRatio(clip=1.0, noise_multiplier=2.0)
        >>> first = jnp.array([1.0, 0.0])
        >>> second = jnp.array([0.0, 0.0])
        >>> here, there = jnp.zeros(1), jnp.ones(1)
        >>> def asking(ask, rng_key):
        ...     return ask(rng_key, noisy, here, there).value
        >>> answers, costs = audit.collect_answers(
        ...     asking, models.binomial(), first, second, num_answers=1000
        ... )
        >>> answers[0].shape
        (1000, 1)
    """
    num_answers = whole(
        "num_answers", num_answers, MIN_ANSWERS, "with fewer the bounds are useless"
    )
    unit = checked_unit(unit)
    check_made_up(model, first, second)
    capacity = max(check_neighbours(first, second, unit))
    curators = [
        Curator(
            rows,
            model,
            None,
            capacity=capacity,
            unit=unit,
            fixed_secret=_known_secret(seed, number),
        )
        for number, rows in enumerate((first, second))
    ]
    traced = curators[0].trace(asking, jax.random.key(0))
    plan = traced.plan
    if standing := [query for query in plan if is_standing(query)]:
        raise ValueError(
            f"{standing[0]} costs the same however often it is asked, so that one answer has no "
            "cost of its own"
        )
    costs = checked_costs(costs_of(plan, unit))
    check_numeric([leaf.dtype for leaf in jax.tree.leaves(traced.shapes)])
    check_keys_differ(asking, curators[0])
    keys = [jax.random.key(int(_known_secret(seed, number)[0])) for number in (2, 3)]
    first_answers, second_answers = (
        _released(asking, curator, key, capacity, num_answers)
        for curator, key in zip(curators, keys, strict=True)
    )
    return (first_answers, second_answers), costs


def _released(
    asking: Callable[[Ask, Key], Any], curator: Any, rng_key: Key, num_rows: int, num_answers: int
) -> np.ndarray:
    """Answers (num_answers, entries), each with its own randomness."""
    keys = jax.random.split(rng_key, _batch_shape(num_answers, num_rows))
    traced = curator.trace(_batched(asking), keys)
    released = curator.grant(traced.plan).run(traced.compile(), keys)
    entries = [np.asarray(leaf, float).reshape(keys.size, -1) for leaf in jax.tree.leaves(released)]
    return np.concatenate(entries, axis=1)[:num_answers]


def _batch_shape(num_answers: int, num_rows: int) -> tuple[int, int]:
    """(number of batches, answers in each), so that no batch reads too many rows at once."""
    num_turns = math.ceil(num_answers / max(1, MAX_ROWS_AT_ONCE // max(num_rows, 1)))
    return num_turns, math.ceil(num_answers / num_turns)


def _batched(asking: Callable[[Ask, Key], Any]) -> Callable[[Ask, Key], Any]:
    """The program for keys of shape (batches, keys in each), one batch after the other."""

    def batched(ask, keys):
        def one_batch(_, batch):
            return None, jax.vmap(lambda key: asking(ask, key))(batch)

        return jax.lax.scan(one_batch, None, keys)[1]

    return batched


def check_keys_differ(asking: Callable[[Ask, Key], Any], curator: Any) -> None:
    """Refuse a program that ignores its key: one answer would then serve several repetitions."""
    one, two = (
        curator.trace(_batched(asking), jax.random.split(jax.random.key(0), (1, number))).plan
        for number in (1, 2)
    )
    for query, count in one.items():
        if two[query] != 2 * count:
            raise ValueError(
                f"{query} would be asked once for many answers, which then are copies and no "
                "evidence: make the key of every ask from rng_key, as in ask(rng_key, ...), or "
                "with jax.random.split(rng_key) where there are several"
            )


def _known_secret(seed: int, number: int) -> np.ndarray:
    """A secret that everybody can compute: the audit is reproducible, and nothing is private."""
    return np.random.SeedSequence([whole("seed", seed, 0), number]).generate_state(16, np.uint32)


def check_numeric(dtypes: Sequence[Any]) -> None:
    """Refuse answers that are not real numbers."""
    if not dtypes:
        raise ValueError(
            "nothing is released: the program must return all that it releases, such as "
            "ask(...).value"
        )
    for dtype in dtypes:
        if not any(
            jax.dtypes.issubdtype(dtype, kind) for kind in (np.bool_, np.integer, np.floating)
        ):
            raise TypeError(
                f"what is released has the type {dtype}, and only real numbers are compared: give "
                "real and imaginary parts, or jax.random.key_data of a key"
            )


def as_numbers(first: Any, second: Any) -> list[np.ndarray]:
    """Both tables' answers as finite numbers, each of shape (answers, entries).

    An entry that is not finite in some answer becomes 0 there; three further entries state whether
    it was NaN, infinity or minus infinity.
    """
    tables = [np.atleast_1d(table) for table in (first, second)]
    check_numeric([table.dtype for table in tables])
    tables = [
        np.asarray(table, float).reshape(len(table), math.prod(table.shape[1:])) for table in tables
    ]
    shapes = [table.shape for table in tables]
    if shapes[0][1] != shapes[1][1] or shapes[0][1] == 0 or min(map(len, tables)) < MIN_ANSWERS:
        raise ValueError(
            f"answers of shapes {shapes} must have the same entries, at least one, and be at least "
            f"{MIN_ANSWERS}"
        )
    is_not_finite = ~np.all(np.isfinite(np.concatenate(tables)), axis=0)
    kinds = (np.isnan, np.isposinf, np.isneginf)
    return [
        np.hstack(
            [
                np.nan_to_num(table, posinf=0, neginf=0),
                *(kind(table[:, is_not_finite]) for kind in kinds),
            ]
        )
        for table in tables
    ]
