"""Attacks on what a query says that it costs: whoever knows all rows but one, can he tell two
neighbouring tables apart better?

    verdict = audit.query(Mine(noise_multiplier=1.0), model, first, second, [position])
    print(verdict)          # REFUTED, NOT REFUTED (which is no proof), or SAW NOTHING (which is not even evidence)
    sys.exit(verdict.exit_status)

`first` and `second` are made up: tables that differ in one row, chosen so that it shows most. The
query is asked about each of them many thousands of times, through curators made here that have no
budget, with a known secret, so that clip, sum, noise, batch and coin are all in it. **Nobody pays
for these answers. Of real rows an audit would be a release without any privacy.**

From one half of the answers the attacker learns which event tells the tables apart best; on the
other half its chances are bounded (exact binomial intervals). What the cost admits of such chances,
for every event and in both orders of the tables, is

    P(event) - e^epsilon Q(event) <= delta(epsilon),       and Renyi divergences of the event and its opposite <= rdp(order).

He tries eight events, so that all that a verdict says is true but for a chance of `alarm`: each of
their sixteen chances is within its bound but for a sixteenth of that. Other tables, other points or
a better attack may refute what these do not. Noise made in floating point breaks promises by its
low bits, and these do not always show: only where one table's answers are finer, or where numbers
come again.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from dpmcmc import Curator
from dpmcmc.accounting import accountants
from dpmcmc.accounting.bill import costs_of
from dpmcmc.accounting.costs import Cost as KnownCost
from dpmcmc.accounting.costs import NonPrivate
from dpmcmc.checks import is_number, whole
from dpmcmc.errors import PrivacyRefusal
from dpmcmc.types import Ask, Budget, Cost, Key, Model, Neighbours, Query, Unit, is_standing

NUM_ANSWERS, FEWEST_ANSWERS = 100_000, 1000
DELTA, ALARM = 0.01, 1e-6
NUM_EVENTS = 8  # two orders of the tables, and in each two for the factor and two for epsilon
NUM_EPSILONS = 13
ORDERS = np.array([1.5, 3.0, 8.0, 32.0])
LEAST_DIVERGENCE = 1e-9  # a claim of less counts as this much
# Of both tables' answers together: where thresholds are tried
TAILS = 1 / (1 + np.exp(-np.linspace(-8, 8, 201)))
# Of an entry whose variance is 1 in both tables' answers together
FARTHEST, LEAST_VARIANCE = 1e100, 1e-6
AT_ONCE = 30_000  # rows that are looked at together
# Exit statuses: of the command line's, 2 is a refusal and 3 a run not to rely on
NOT_REFUTED, REFUTED, SAW_NOTHING = 0, 1, 4


@dataclass(frozen=True)
class Verdict:
    """What an attack has shown, on made-up rows. It is about the costs, and no private release."""

    # How much better than the costs admit the tables are surely told apart; up to 1 it refutes
    # nothing
    factor: float
    epsilon: float  # surely no smaller one holds, at delta
    claimed_epsilon: float  # at delta, by the costs; infinite where they claim none
    delta: float
    # The chance that factor or epsilon is too large: that costs that hold are called refuted
    alarm: float
    num_answers: int  # about each table
    costs: Mapping[Cost, int]

    @property
    def is_refuted(self) -> bool:
        return self.factor > 1 or self.epsilon > self.claimed_epsilon

    @property
    def saw_nothing(self) -> bool:
        """Whether no event surely tells the tables apart: such an attack would not have seen a cost
        that is too small either.
        """
        return not self.is_refuted and self.factor == 0 and self.epsilon == 0

    @property
    def exit_status(self) -> int:
        """For a script that ends with an audit: 0 not refuted, 1 refuted, 4 saw nothing."""
        return REFUTED if self.is_refuted else SAW_NOTHING if self.saw_nothing else NOT_REFUTED

    def __str__(self) -> str:
        costs = " and ".join(f"{count} x {cost}" for cost, count in self.costs.items())
        # Else epsilon alone is too large
        by_how_much = f"{self.factor:.3g} times " if self.factor > 1 else ""
        told = [f"REFUTED: the tables are told apart {by_how_much}better than the cost admits"]
        if self.saw_nothing:
            told = [
                "SAW NOTHING: the attack cannot tell the tables apart, so that this is no "
                "evidence for the cost",
                "  Take rows that differ more, points where that matters, less noise, or more "
                "answers.",
            ]
        elif not self.is_refuted:
            told = [
                f"NOT REFUTED: the tables are told apart {self.factor:.3g} times as well as the "
                "cost admits",
                "  An audit proves nothing: other tables, other points or a better attack may "
                "refute it.",
            ]
        return "\n".join(
            [
                *told,
                f"  Cost:      {costs}",
                f"  Epsilon:   at least {self.epsilon:.4g} at delta = {self.delta:g}; the cost "
                f"claims {self.claimed_epsilon:.4g}",
                f"  Seen:      {self.num_answers} answers about each table; a false alarm has a "
                f"chance of at most {self.alarm:g}",
                "  Not for real rows: the answers are unpaid, with a known secret. NOTHING HERE "
                "IS PRIVATE.",
            ]
        )


def query(
    asked: Query,
    model: Model,
    first: Any,
    second: Any,
    points: Sequence[Any],
    unit: Unit | None = None,
    **options: Any,
) -> Verdict:
    """Attack the cost of one query, asked at `points` about two made-up tables.

    The rest as in `program`.
    """
    if not isinstance(points, list | tuple):
        raise TypeError(
            f"points is a {type(points).__name__}: it must be a list, such as [position] or "
            "[position, proposal]"
        )
    return program(
        lambda ask, rng_key: ask(rng_key, asked, *_floats(points)),
        model,
        first,
        second,
        unit,
        **options,
    )


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
    """Attack the bill of a program that asks once or several times, such as some steps of a
    sampler.

    Parameters
    ----------
    asking
        ``asking(ask, rng_key)`` returns all that is released: arrays, or a pytree of them. Its bill
        is read off it. The keys of its asks are made from ``rng_key``.
    model
        says what one row contributes.
    first, second
        two MADE-UP tables that are neighbours. Choose the row in which they differ so that it shows
        most: beyond every clip, for example, in opposite directions. If you try several pairs their
        alarms add up.
    unit
        whom the cost is about: ``Unit(Neighbours.ADD_OR_REMOVE_ONE)``, or one row that is replaced
        if left out.
    num_answers
        how often each table is asked. What the attacker cannot be sure of shrinks with its root.
    seed
        of the secrets and the keys: everything comes out the same again.
    delta
        where to bound epsilon from below. Below some 1 / num_answers the bound is far from the
        truth.
    alarm
        the chance of a false alarm, in the whole call.
    """
    _check_chances(delta, alarm)
    seen, costs = answers(asking, model, first, second, unit, num_answers=num_answers, seed=seed)
    return compare(*seen, costs, delta=delta, alarm=alarm)


def answers(
    asking: Callable[[Ask, Key], Any],
    model: Model,
    first: Any,
    second: Any,
    unit: Unit | None = None,
    *,
    num_answers: int = NUM_ANSWERS,
    seed: int = 0,
) -> tuple[tuple[np.ndarray, np.ndarray], Mapping[Cost, int]]:
    """What is released about either table, shape (num_answers, entries), and what one such release
    is said to cost.
    """
    num_answers = whole("num_answers", num_answers, FEWEST_ANSWERS, "few tell nothing for sure")
    unit = _checked_unit(unit)
    _check_made_up(model, first, second)
    capacity = max(_check_neighbours(first, second, unit))
    curators = [
        Curator(rows, model, None, capacity=capacity, unit=unit, fixed_secret=_words(seed, number))
        for number, rows in enumerate((first, second))
    ]
    alone = curators[0].trace(asking, jax.random.key(0))
    plan = alone.plan
    if standing := [one for one in plan if is_standing(one)]:
        raise ValueError(
            f"{standing[0]} costs the same however often it is asked, so that one answer has no "
            "cost of its own"
        )
    costs = _checked(costs_of(plan, unit))
    _check_numbers([leaf.dtype for leaf in jax.tree.leaves(alone.shapes)])
    _check_apart(asking, curators[0])
    keys = [jax.random.key(int(_words(seed, number)[0])) for number in (2, 3)]
    seen = [
        _released(asking, *pair, capacity, num_answers) for pair in zip(curators, keys, strict=True)
    ]
    return (seen[0], seen[1]), costs


def compare(
    first: Any,
    second: Any,
    costs: Mapping[Cost, int],
    *,
    delta: float = DELTA,
    alarm: float = ALARM,
) -> Verdict:
    """What answers about two neighbouring tables, one in each row and independent of each other,
    say of the costs of an answer.
    """
    _check_chances(delta, alarm)
    costs = _checked(costs)
    tables = _cleaned(first, second)
    num_answers = min(map(len, tables))
    claim = _claim(costs, delta, num_answers)
    looks = _looks(*(table[::4] for table in tables))
    chosen, judged = (
        [looks(table[start::step]) for table in tables] for start, step in ((2, 4), (1, 2))
    )
    limits = [np.quantile(np.concatenate(pair), TAILS) for pair in zip(*chosen, strict=True)]
    chances = [
        pair
        for order in (1, -1)
        for caution in (1, 2)
        for pair in _judged(
            chosen[::order],
            judged[::order],
            limits,
            (claim.factor, claim.epsilon),
            alarm / (2 * NUM_EVENTS),
            caution,
        )
    ]
    return Verdict(
        factor=max(float(claim.factor(*pair)) for pair in chances),
        epsilon=max(0.0, *(float(claim.epsilon(*pair)) for pair in chances)),
        claimed_epsilon=claim.claimed_epsilon,
        delta=delta,
        alarm=alarm,
        num_answers=num_answers,
        costs=costs,
    )


# -- the two tables
# ----------------------------------------------------------------------------------------------------------


def _check_made_up(*given: Any) -> None:
    if any(hasattr(one, "grant") for one in given):
        raise TypeError(
            "an audit asks many thousands of times and nobody pays for it: it takes no curator, "
            "but a model and two tables of "
            "made-up rows"
        )


def _checked_unit(unit: Unit | None) -> Unit:
    if not isinstance(unit, Unit | None):
        raise TypeError(
            f"unit is a {type(unit).__name__}: it must be a Unit, such as "
            "Unit(Neighbours.ADD_OR_REMOVE_ONE)"
        )
    return Budget(1.0, DELTA, *(unit or Unit())).unit  # which checks its parts


def _check_neighbours(first: Any, second: Any, unit: Unit) -> tuple[int, int]:
    """Refuse tables that are no neighbours, whatever the order of their rows; return how many rows
    they have.
    """
    if _kinds(first) != _kinds(second):
        raise ValueError(
            f"the rows of the two tables differ in shape or type, {_kinds(first)} and "
            f"{_kinds(second)}"
        )
    counts = [Counter(_rows(table)) for table in (first, second)]
    gone, new = ((counts[i] - counts[1 - i]).total() for i in (0, 1))
    least = min(gone, new)
    most = max(gone, new)
    is_replaced = unit.neighbours is Neighbours.REPLACE_ONE
    is_neighbour = (
        0 < most <= unit.rows_per_person
        and (not unit.is_count_public or least == most)
        and (is_replaced or least == 0)
    )
    if not is_neighbour:
        wanted = (
            "one row of the first must be replaced"
            if is_replaced
            else "one of them must lack one row of the other"
        )
        several = (
            f", up to {unit.rows_per_person} rows for one person"
            if unit.rows_per_person > 1
            else ""
        )
        raise ValueError(
            f"the two tables are no neighbours ({unit.neighbours.value}): {gone} rows are in the "
            f"first alone and {new} in the "
            f"second alone; {wanted}{several}"
        )
    return counts[0].total(), counts[1].total()


def _kinds(table: Any) -> Any:
    """Shapes and types of one row."""
    leaves, tree = jax.tree.flatten(table)
    columns = [np.asarray(leaf) for leaf in leaves]
    if (
        not columns
        or any(column.ndim == 0 for column in columns)
        or len({len(column) for column in columns}) > 1
    ):
        raise ValueError(
            "a table is an array, or a tuple or dict of arrays, with one entry per row"
        )
    return tree, [f"{column.dtype}{list(column.shape[1:])}" for column in columns]


def _rows(table: Any) -> list[tuple[bytes, ...]]:
    columns = [np.asarray(leaf) for leaf in jax.tree.leaves(table)]
    return [tuple(cell.tobytes() for cell in row) for row in zip(*columns, strict=True)]


# -- their answers
# -----------------------------------------------------------------------------------------------------------


def _floats(points: Sequence[Any]) -> list[Any]:
    return [jnp.asarray(point, jnp.result_type(float)) for point in points]


def _words(seed: int, number: int) -> np.ndarray:
    """A known secret: it makes the audit come out the same, and whatever it is used for promises
    nothing.
    """
    return np.random.SeedSequence([whole("seed", seed, 0), number]).generate_state(16, np.uint32)


def _many(asking: Callable[[Ask, Key], Any]) -> Callable[[Ask, Key], Any]:
    """The same for each of the keys, in turns."""

    def many(ask, keys):
        return jax.lax.scan(
            lambda _, some: (None, jax.vmap(lambda key: asking(ask, key))(some)), None, keys
        )[1]

    return many


def _check_apart(asking: Callable[[Ask, Key], Any], curator: Any) -> None:
    """Refuse asks that are made once for several keys, whose answers are then copies."""
    one, two = (
        curator.trace(_many(asking), jax.random.split(jax.random.key(0), (1, number))).plan
        for number in (1, 2)
    )
    for query, count in one.items():
        if two[query] != 2 * count:
            raise ValueError(
                f"{query} would be asked once for many answers, which then are copies and no "
                "evidence: make the key of every ask "
                "from rng_key, as in ask(rng_key, ...), or with jax.random.split(rng_key) where "
                "there are several"
            )


def _released(
    asking: Callable[[Ask, Key], Any], curator: Any, rng_key: Key, num_rows: int, num_answers: int
) -> np.ndarray:
    """(num_answers, entries), each with randomness of its own."""
    keys = jax.random.split(rng_key, _turns(num_answers, num_rows))
    traced = curator.trace(_many(asking), keys)
    released = curator.grant(traced.plan).run(traced.compile(), keys)
    entries = [np.asarray(leaf, float).reshape(keys.size, -1) for leaf in jax.tree.leaves(released)]
    return np.concatenate(entries, axis=1)[:num_answers]


def _turns(num_answers: int, num_rows: int) -> tuple[int, int]:
    """How many turns, of how many answers each: tables that are large by themselves have one in
    each.
    """
    num_turns = math.ceil(num_answers / max(1, AT_ONCE // max(num_rows, 1)))
    return num_turns, math.ceil(num_answers / num_turns)


def _check_numbers(dtypes: Sequence[Any]) -> None:
    if not dtypes:
        raise ValueError(
            "nothing is released: the program must return all that it tells, such as ask(...).value"
        )
    for dtype in dtypes:
        if not any(
            jax.dtypes.issubdtype(dtype, kind) for kind in (np.bool_, np.integer, np.floating)
        ):
            raise TypeError(
                f"what is released has the type {dtype}, and only real numbers are compared: give "
                "real and imaginary parts, or "
                "jax.random.key_data of a key"
            )


def _cleaned(first: Any, second: Any) -> list[np.ndarray]:
    """(answers, entries) of either table; of an entry that is no number at times, which of these it
    is too.
    """
    tables = [np.atleast_1d(table) for table in (first, second)]
    _check_numbers([table.dtype for table in tables])
    tables = [
        np.asarray(table, float).reshape(len(table), math.prod(table.shape[1:])) for table in tables
    ]
    shapes = [table.shape for table in tables]
    if shapes[0][1] != shapes[1][1] or shapes[0][1] == 0 or min(map(len, tables)) < FEWEST_ANSWERS:
        raise ValueError(
            f"answers of shapes {shapes} must have the same entries, some at all, and be at least "
            f"{FEWEST_ANSWERS}"
        )
    is_spoiled = ~np.all(np.isfinite(np.concatenate(tables)), axis=0)
    kinds = (np.isnan, np.isposinf, np.isneginf)
    return [
        np.hstack(
            [
                np.nan_to_num(table, posinf=0, neginf=0),
                *(kind(table[:, is_spoiled]) for kind in kinds),
            ]
        )
        for table in tables
    ]


# -- the attack
# --------------------------------------------------------------------------------------------------------------


def _looks(first: np.ndarray, second: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Numbers to look at in each answer, learned from these: events are that one of them is large.
    Sorted, for all answers.

    They are where it lies, how much oftener its entries were seen under the first table than under
    the second, to the last digit, and how much oftener numbers with their first and last bits; and
    the opposites of all.
    """
    lies = _lies(first, second)
    exactly = _oftener(first, second)
    roughly = _oftener(_ends(first), _ends(second))

    def looks(table: np.ndarray) -> np.ndarray:
        numbers = np.sort([*lies(table), exactly(table), roughly(_ends(table))])
        return np.concatenate([numbers, -numbers[:, ::-1]])

    return looks


def _lies(first: np.ndarray, second: np.ndarray) -> Callable[[np.ndarray], list[np.ndarray]]:
    """How far towards the first table's mean, as Fisher's discriminant has it; how far from the
    middle of all; and how much nearer to the first table's answers than to the second's, each with
    their own spreads and correlations.
    """
    standard = _standard(first, second)
    parts = [standard(first), standard(second)]
    means = [np.mean(part, axis=0) for part in parts]
    direction = np.linalg.pinv(_covariance(np.concatenate(parts))) @ (means[0] - means[1])
    shapes = [np.linalg.inv(_steady(_covariance(part), len(part))) for part in parts]

    def lies(table: np.ndarray) -> list[np.ndarray]:
        offsets = standard(table)
        near, far = (
            np.sum((offsets - mean) @ shape * (offsets - mean), axis=1)
            for mean, shape in zip(means, shapes, strict=True)
        )
        return [offsets @ direction, np.sum(offsets**2, axis=1), far - near]

    return lies


def _standard(first: np.ndarray, second: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """To units in which all of these lie around 0 with deviations of 1, or are 0 where they are all
    the same.
    """
    both = np.concatenate([first, second])
    # Of two: no digit is lost, and squares stay within floating point
    exponents = np.frexp(np.max(np.abs(both), axis=0))[1]
    # So that entries that never change are zero, to the last digit
    origin = np.ldexp(first[0], -exponents)
    both = np.ldexp(both, -exponents) - origin
    scale = np.std(both, axis=0)
    scale[scale == 0] = 1.0
    middle = np.mean(both, axis=0) / scale

    def standard(table: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore"):
            return np.clip(
                (np.ldexp(table, -exponents) - origin) / scale - middle, -FARTHEST, FARTHEST
            )

    return standard


def _covariance(part: np.ndarray) -> np.ndarray:
    return np.atleast_2d(np.cov(part, rowvar=False))


def _steady(covariance: np.ndarray, num_answers: int) -> np.ndarray:
    """Nearly the same, with an inverse where entries never change under one of the tables, or are
    more than the answers.
    """
    trust = num_answers / (num_answers + np.count_nonzero(np.diag(covariance)))
    return np.where(np.eye(len(covariance)) == 1, covariance + LEAST_VARIANCE, trust * covariance)


def _oftener(first: np.ndarray, second: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """How much oftener the entries of an answer were seen under the first table: the sum of the
    logarithms of these ratios.
    """
    ratios = [_ratios(*columns) for columns in zip(first.T, second.T, strict=True)]

    def oftener(table: np.ndarray) -> np.ndarray:
        total = np.zeros(len(table))
        for column, (values, logs) in zip(table.T, ratios, strict=True):
            place = np.searchsorted(values, column)
            total += np.where(values[place] == column, logs[place], 0.0)
        return total

    return oftener


def _ratios(one: np.ndarray, other: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The values that were seen, sorted, up to an infinity; and how much oftener in the first, in
    logarithms.
    """
    values, places, counts = np.unique(
        np.concatenate([one, other]), return_inverse=True, return_counts=True
    )
    ones = np.bincount(places[: len(one)], minlength=len(values))
    return np.append(values, np.inf), np.append(np.log((ones + 0.5) / (counts - ones + 0.5)), 0.0)


def _ends(table: np.ndarray) -> np.ndarray:
    """The same numbers with all bits cleared but the first and the last: how large they are, and
    how fine.
    """
    mantissas, exponents = np.frexp(table)
    bits = np.abs(np.ldexp(mantissas, 53)).astype(np.int64)
    return np.ldexp(np.sign(mantissas) * (2**52 | bits & -bits), exponents - 53)


def _judged(
    chosen, judged, limits, worths: Sequence[Callable], surely: float, caution: int
) -> Iterator[tuple]:
    """The least chance under the first table, and the most under the second, of the event that
    seems worth most, for each worth.

    Chosen by intervals that are wider than those it is judged by (caution above 1) it is less often
    one that stands out by luck alone; but rare events are then not seen.
    """
    # By as few as are left to choose by, what is seldom would not be chosen
    times = len(judged[0][0]) / len(chosen[0][0])
    parts = zip(*chosen, limits, strict=True)
    least, most = np.stack(
        [_chances(one, other, some, surely**caution, times) for one, other, some in parts], axis=1
    )
    for worth in worths:
        look, place = np.unravel_index(np.argmax(worth(least, most)), least.shape)
        yield _chances(judged[0][look], judged[1][look], limits[look][place], surely)


def _chances(
    one: np.ndarray, other: np.ndarray, limits, surely: float, times: float = 1.0
) -> tuple[np.ndarray, np.ndarray]:
    """Of "above the limit": the least chance under one table, the most under the other; each is
    wrong with a chance of `surely`.

    As if there were so many times as many answers, all alike.
    """
    above = len(one) - np.searchsorted(one, limits, side="right")
    below = np.searchsorted(other, limits, side="right")
    return _least(times * above, times * len(one), surely), 1 - _least(
        times * below, times * len(other), surely
    )


def _least(counts: np.ndarray, number: float, surely: float) -> np.ndarray:
    """Clopper and Pearson's lower bound."""
    return np.where(
        counts > 0, stats.beta.ppf(surely, np.maximum(counts, 1), 1 + number - counts), 0.0
    )


# -- what costs admit
# --------------------------------------------------------------------------------------------------------


class _Claim(NamedTuple):
    """What costs admit of the chances p and q of an event under two neighbouring tables."""

    delta: float
    claimed_epsilon: float  # at delta
    epsilons: np.ndarray
    deltas: np.ndarray  # at these
    divergences: np.ndarray  # of ORDERS
    distance: float  # of the answers from the law that the divergences are about

    def factor(self, p, q) -> np.ndarray:
        """How many times as large as admitted the differences of p and q are, at most."""
        p, q = (np.asarray(chance, float)[..., None] for chance in (p, q))
        excess = (p - np.exp(self.epsilons) * q) / self.deltas
        divergence = _renyi(p - self.distance, q + self.distance) / self.divergences
        return np.maximum(0.0, np.maximum(excess.max(axis=-1), divergence.max(axis=-1)))

    def epsilon(self, p, q) -> np.ndarray:
        """The least epsilon, at delta, that admits them."""
        return np.log(np.maximum(np.asarray(p, float) - self.delta, 1e-300) / q)


def _renyi(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """Divergences of two coins, of ORDERS; 0 where the first does not have the larger chance."""
    p = np.clip(p, 1e-300, 1.0)
    q = np.clip(q, 1e-300, 1 - 1e-16)
    with np.errstate(divide="ignore"):
        sides = (
            ORDERS * np.log(one) + (1 - ORDERS) * np.log(other)
            for one, other in ((p, q), (1 - p, 1 - q))
        )
        return np.where(p > q, np.logaddexp(*sides) / (ORDERS - 1), 0.0)


def _check_chances(delta: float, alarm: float) -> None:
    for name, value in (("delta", delta), ("alarm", alarm)):
        if not (is_number(value) and 0 < value < 1):
            raise ValueError(f"{name}={value!r} must lie in (0, 1): it is a probability")


def _checked(costs: Mapping[Cost, int]) -> dict[Cost, int]:
    if not (isinstance(costs, Mapping) and all(isinstance(cost, KnownCost) for cost in costs)):
        raise TypeError(
            f"costs are {costs!r}: they must be like {{Gaussian(1.0): 2}}, with query.cost(unit) "
            f"and not the query"
        )
    costs = accountants.checked(
        {cost: whole(f"the count of {cost}", count, 0) for cost, count in costs.items()}
    )
    if not costs or any(isinstance(cost, NonPrivate) for cost in costs):
        raise ValueError(
            "nothing is asked, or the costs of it claim nothing: there is nothing to refute"
        )
    return costs


def _claim(costs: Mapping[Cost, int], delta: float, num_answers: int) -> _Claim:
    # A smaller delta counts as this one: nothing is lost, for so little is never sure
    visible = 1 / num_answers
    epsilons = np.linspace(0.0, min(_epsilon(costs, visible), math.log(num_answers)), NUM_EPSILONS)
    return _Claim(
        delta=delta,
        claimed_epsilon=_epsilon(costs, delta),
        epsilons=epsilons,
        deltas=np.maximum(
            [accountants.delta(costs, epsilon) for epsilon in epsilons.tolist()], visible
        ),
        divergences=np.maximum(accountants.curve(costs)(ORDERS), LEAST_DIVERGENCE),
        distance=accountants.total_distance(costs),
    )


def _epsilon(costs: Mapping[Any, int], delta: float) -> float:
    try:
        return accountants.epsilon(costs, delta).epsilon
    except PrivacyRefusal:
        return math.inf  # none is claimed
