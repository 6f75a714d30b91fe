r"""What one query reveals: frozen values with all that an accountant needs.

A `Cost` bounds the release in up to four ways, and accountants use those that it knows.

`tv_error` is the total-variation error: the tv_error between the law of the release as computed and
the ideal law that the bounds are about (floating point, coins with finitely many random bits).
Accountants add it to delta.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from typing import Any, ClassVar

import numpy as np

from dpmcmc.acceptance import Barker, LazyBarker, Metropolis, Penalty
from dpmcmc.accounting.laws import bits, minibatch, profiles, radial, renyi, sampled
from dpmcmc.accounting.search import LIMIT
from dpmcmc.errors import UnsupportedQuery
from dpmcmc.types import Neighbours

# A range for which Barker's rho is D^2/8 but for some 2e-4: it is attained at order 1 up to D^4
SHORT = 0.1


class Cost:
    """Bounds on one release.

    Each kind of cost overrides the bounds that it knows; the others are as here: none.

    Attributes:
        is_of_one_row: Whether the cost is about a person with one row: a batch may hold several
            rows of a person.

    Example:
        >>> from dpmcmc.accounting.costs import Cost
        >>> print(Cost().rho())
        None
    """

    # Whether it is about a person with one row: a batch may hold several of them
    is_of_one_row: ClassVar[bool] = False

    def rdp(self, orders) -> np.ndarray:
        """An upper bound of the Renyi divergence of each order, for both orders of the tables;
        infinite if none is known.
        """
        return np.full(np.shape(orders), math.inf)

    def rho(self) -> float | None:
        """The smallest known rho with  rdp(a) <= rho a  for every a > 1 (zero-concentrated DP)."""
        return None

    def pure(self) -> float | None:
        """The smallest known epsilon with delta = 0."""
        return None

    def profiles(self) -> profiles.Pair | None:
        """The exact delta(epsilon) of the worst pair of tables, in both orders."""
        return None


@dataclass(frozen=True)
class Gaussian(Cost):
    """A value with Gaussian noise of standard deviation noise_multiplier * sensitivity.

    Attributes:
        noise_multiplier: The standard deviation of the noise over the sensitivity.
        tv_error: The total-variation error of the release as computed.

    Example:
        >>> from dpmcmc.accounting.costs import Gaussian
        >>> Gaussian(noise_multiplier=1.0).rho()
        0.5
    """

    noise_multiplier: float
    tv_error: float = 0.0

    def __post_init__(self) -> None:
        _check(self, noise_multiplier=_size)

    def rdp(self, orders) -> np.ndarray:
        """a / (2 z^2), attained."""
        return self.rho() * np.asarray(orders, float)

    def rho(self) -> float:
        return 1 / (2 * self.noise_multiplier**2)

    def profiles(self) -> profiles.Pair:
        return profiles.gaussian(1 / self.noise_multiplier)


@dataclass(frozen=True)
class AcceptBit(Cost):
    """The accept bit of a test whose log-ratio changes by a bounded amount.

    It has no profiles: composing the worst one over all log-ratios would be valid, but would cost a
    quarter of the steps or more.

    Attributes:
        test: The acceptance test.
        range: The largest change of the log-ratio when the table changes by one unit of privacy.
        tv_error: The total-variation error of the release as computed.

    Example:
        >>> from dpmcmc import Barker
        >>> from dpmcmc.accounting.costs import AcceptBit
        >>> AcceptBit(Barker(), range=0.25).pure()
        0.25
    """

    test: Barker | LazyBarker | Penalty
    range: float
    tv_error: float = 0.0

    def __post_init__(self) -> None:
        if isinstance(self.test, Metropolis):
            raise UnsupportedQuery(
                "the accept bit of Metropolis' test is not private at any epsilon: one step has "
                "delta 1 - exp(-range); use Barker, LazyBarker or Penalty"
            )
        if not isinstance(self.test, Barker | LazyBarker | Penalty):
            raise UnsupportedQuery(f"no bound is known for the accept bit of {self.test!r}")
        _check(self, range=_size)
        if isinstance(self.test, Penalty):
            _check_value("sigma", self.test.sigma, _size)

    def rdp(self, orders) -> np.ndarray:
        """The supremum over all log-ratios, from above; capped by the closed forms below."""
        orders = np.atleast_1d(orders)
        return np.array([bits.accept_rdp(self.test, self.range, float(a)) for a in orders])

    def rho(self) -> float:
        """D^2/8 for Barker (its losses have range D), D^2/(2 s^2) for the penalty (a Gaussian,
        post-processed).
        """
        if isinstance(self.test, Penalty):
            return self.range**2 / (2 * self.test.sigma**2)
        if self.range < SHORT and isinstance(self.test, Barker):
            return self.range**2 / 8
        return min(self.range**2 / 8, bits.accept_rho(self.test, self.range))

    def pure(self) -> float | None:
        return None if isinstance(self.test, Penalty) else self.range

    def boxes(self) -> bits.Boxes:
        """Two-point pairs that cover every log-ratio, for the exact recursion."""
        return bits.accept_boxes(self.test, self.range)


@dataclass(frozen=True)
class Pure(Cost):
    """Any release with pure epsilon-differential privacy.

    Attributes:
        epsilon: Its epsilon.
        tv_error: The total-variation error of the release as computed.

    Example:
        >>> from dpmcmc.accounting.costs import Pure
        >>> Pure(epsilon=1.0).rho()
        0.5
    """

    epsilon: float
    tv_error: float = 0.0

    def __post_init__(self) -> None:
        _check(self, epsilon=_size_or_zero)

    def rdp(self, orders) -> np.ndarray:
        """That of randomised response, the worst release with this epsilon."""
        loss = max(self.epsilon, bits.TINY)
        return np.array([float(bits.renyi(loss, loss, order)) for order in np.atleast_1d(orders)])

    def rho(self) -> float:
        """epsilon^2 / 2 (:cite:p:`bun2016concentrated` Proposition 1.4)."""
        return self.epsilon**2 / 2

    def pure(self) -> float:
        return self.epsilon

    def profiles(self) -> profiles.Pair:
        return profiles.pure(self.epsilon)


@dataclass(frozen=True)
class Radial(Cost):
    """A vector sum with radial noise, of density proportional to exp(-epsilon |z| / sensitivity).

    The sensitivity is in the Euclidean norm. The loss of privacy is at most epsilon, and in many
    dimensions nearly always much less, so a sum of epsilons is far above what several such
    releases cost together. Its profile is exact (`laws.radial`).

    Attributes:
        epsilon: The sensitivity over the scale of the noise: the pure epsilon of the release.
        dimension: The number of entries of the vector.
        tv_error: The total-variation error of the release as computed.

    Example:
        >>> from dpmcmc.accounting.costs import Radial
        >>> Radial(epsilon=1.0, dimension=7).pure()
        1.0
        >>> round(Radial(epsilon=1.0, dimension=7).rho(), 3)
        0.071
    """

    epsilon: float
    dimension: int
    tv_error: float = 0.0

    def __post_init__(self) -> None:
        _check(self, epsilon=_size)
        if not 1 <= self.dimension <= MOST_ENTRIES:
            raise ValueError(f"dimension={self.dimension} must lie between 1 and {MOST_ENTRIES}")
        _make_whole(self, "dimension")

    def rdp(self, orders) -> np.ndarray:
        """In closed form but for one integral; attained."""
        return radial.rdp(self.epsilon, self.dimension, np.atleast_1d(np.asarray(orders, float)))

    def rho(self) -> float:
        """The largest rdp(a) / a, a thousandth above it at most."""
        return radial.rho(self.epsilon, self.dimension)

    def pure(self) -> float:
        return self.epsilon

    def profiles(self) -> profiles.Pair:
        return radial.pair(self.epsilon, self.dimension)


@dataclass(frozen=True)
class ZCDP(Cost):
    """Any release with rho-zero-concentrated differential privacy.

    Attributes:
        zcdp: Its rho.
        tv_error: The total-variation error of the release as computed.

    Example:
        >>> from dpmcmc.accounting.costs import ZCDP
        >>> ZCDP(zcdp=0.25).rho()
        0.25
    """

    zcdp: float
    tv_error: float = 0.0

    def __post_init__(self) -> None:
        _check(self, zcdp=_size_or_zero)

    def rdp(self, orders) -> np.ndarray:
        return self.zcdp * np.asarray(orders, float)

    def rho(self) -> float:
        return self.zcdp


@dataclass(frozen=True)
class SubsampledGaussian(Cost):
    """A Gaussian query on a random batch of rows.

    The sensitivity is that of the query on all rows: with per-row norms up to c it is 2c when a row
    is replaced, c when one is added or removed. A fixed-size batch always has another row in the
    place of a removed one, so there the batch changes by 2c under both relations.

    Attributes:
        scheme: How the batch is drawn: "poisson", each row with probability `rate`, or "fixed", a
            fixed number of rows.
        rate: The share of the rows that a batch has, on average.
        noise_multiplier: The standard deviation of the noise over the sensitivity, for
            `neighbours`.
        neighbours: Which tables are neighbours.
        tv_error: The total-variation error of the release as computed.

    Example:
        >>> from dpmcmc.accounting.costs import SubsampledGaussian
        >>> from dpmcmc.types import Neighbours
        >>> SubsampledGaussian("poisson", 0.01, 1.0, Neighbours.ADD_OR_REMOVE_ONE).rho()
        0.5
    """

    is_of_one_row: ClassVar[bool] = True

    scheme: str
    rate: float
    noise_multiplier: float
    neighbours: Neighbours
    tv_error: float = 0.0

    def __post_init__(self) -> None:
        if self.scheme not in ("poisson", "fixed"):
            raise ValueError(f"scheme={self.scheme!r} must be 'poisson' or 'fixed'")
        _check(self, rate=_rate, noise_multiplier=_size)

    def replacement_multiplier(self) -> float:
        """std / sensitivity of the batch when one of its rows is replaced (of use for fixed-size
        batches).
        """
        return self.noise_multiplier / (1 if self.neighbours is Neighbours.REPLACE_ONE else 2)

    def rdp(self, orders) -> np.ndarray:
        """Never above that of the query on all rows (a mixture reveals no more than its parts)."""
        orders = np.atleast_1d(np.asarray(orders, float))
        if self.rate == 1 and self.scheme == "poisson":
            return Gaussian(self.noise_multiplier).rdp(orders)
        whole = self._on_all_rows()
        if self.scheme == "fixed":
            values = renyi.amplified(whole.rdp, self.rate)(orders)
        elif self.neighbours is Neighbours.REPLACE_ONE:
            values = sampled.replace_rdp(self.rate, self.noise_multiplier, orders)
        else:
            values = sampled.add_or_remove_rdp(self.rate, self.noise_multiplier, orders)
        return np.minimum(values, whole.rdp(orders))

    def rho(self) -> float:
        """That of the query on all rows: no smaller one holds for all orders."""
        return self._on_all_rows().rho()

    def _on_all_rows(self) -> Gaussian:
        is_fixed = self.scheme == "fixed"
        return Gaussian(self.replacement_multiplier() if is_fixed else self.noise_multiplier)

    def profiles(self) -> profiles.Pair:
        if self.scheme == "fixed":
            return profiles.fixed_size(self.rate, self.replacement_multiplier())
        if self.neighbours is Neighbours.REPLACE_ONE:
            return profiles.poisson_replace(self.rate, self.noise_multiplier)
        return profiles.poisson_add_or_remove(self.rate, self.noise_multiplier)


@dataclass(frozen=True)
class PoissonMixture(Cost):
    """A noisy sum over rows that are drawn a Poisson(rate) number of times each.

    It has no finite Renyi divergence: a row is drawn k times with a probability near 1/k!, and the
    divergence then grows like e^(k^2).

    Attributes:
        rate: The mean number of draws of a row.
        weight: The largest change of the sum by one draw.
        std: The standard deviation of the noise.
        neighbours: Which tables are neighbours.
        tv_error: The total-variation error of the release as computed.

    Example:
        >>> from dpmcmc.accounting.costs import PoissonMixture
        >>> from dpmcmc.types import Neighbours
        >>> PoissonMixture(0.01, 1.0, 2.0, Neighbours.REPLACE_ONE).rdp([2.0]).tolist()
        [inf]
    """

    is_of_one_row: ClassVar[bool] = True

    rate: float
    weight: float
    std: float
    neighbours: Neighbours
    tv_error: float = 0.0

    def __post_init__(self) -> None:
        _check(self, rate=_draws, weight=_size, std=_size)

    def profiles(self) -> profiles.Pair:
        if self.neighbours is Neighbours.REPLACE_ONE:
            return profiles.poisson_mixture_replace(self.rate, self.weight / self.std)
        return profiles.poisson_mixture_add_or_remove(self.rate, self.weight / self.std)


@dataclass(frozen=True)
class MinibatchBarker(Cost):
    """The accept bit of Barker's test on a TunaMH batch.

    Attributes:
        bound: The bound c M of the absolute value of a row's energy difference.
        ratio: n * bound / lambda, with lambda the constant part of the mean batch size: it is
            large if few rows are read.
        tv_error: The total-variation error of the release as computed.
        rounding: What floating point adds to either loss.

    Example:
        >>> from dpmcmc.accounting.costs import MinibatchBarker
        >>> MinibatchBarker(bound=0.01, ratio=0.1).pure() < 0.1
        True
    """

    is_of_one_row: ClassVar[bool] = True

    bound: float
    ratio: float
    tv_error: float = 0.0
    rounding: float = 0.0

    def __post_init__(self) -> None:
        _check(self, bound=_size, ratio=_size, rounding=_size_or_zero)

    def rdp(self, orders) -> np.ndarray:
        """The supremum over the other rows' sum and the changed row's two differences, capped by
        the pure bound.
        """
        orders = np.atleast_1d(np.asarray(orders, float))
        cap = np.minimum(self.pure(), self.pure() ** 2 / 2 * orders)
        parameters = (self.bound, self.ratio, self.rounding)
        values = [minibatch.accept_rdp(*parameters, float(order)) for order in orders]
        return np.minimum(cap, values)

    def rho(self) -> float:
        range_ = minibatch.loss_range(self.bound, self.ratio) + 2 * self.rounding
        return min(range_**2 / 8, minibatch.accept_rho(self.bound, self.ratio, self.rounding))

    def pure(self) -> float:
        return max(minibatch.pure_losses(self.bound, self.ratio)) + self.rounding

    def boxes(self) -> bits.Boxes:
        """Two-point pairs that cover every sum of the other rows, for the exact recursion."""
        return minibatch.boxes(self.bound, self.ratio, self.rounding)


@dataclass(frozen=True)
class DPBarker(Cost):
    """A step of DP Barker (:cite:p:`raisa2021thesis`, Algorithm 3).

    It has noise of variance 2, a batch, and ratios within sqrt(b)/n. bound="paper" is the base
    divergence of Theorem 3.3 there; bound="tight" is its exact value,

        -log(1 + d)/2 - log(1 - (a-1) d)/(2 (a-1)) + 2a/(b (1 - (a-1) d)),

    with  d = 4 (b-1)/b^2  and  (a-1) d < 1.

    Attributes:
        batch: The number b of rows in a batch.
        rows: The number n of rows.
        bound: Which bound is used, "tight" or "paper".
        tv_error: The total-variation error of the release as computed.

    Example:
        >>> from dpmcmc.accounting.costs import DPBarker
        >>> DPBarker(batch=100, rows=10_000).rdp([2.0]).item() < 1
        True
    """

    is_of_one_row: ClassVar[bool] = True

    batch: int
    rows: int
    bound: str = "tight"
    tv_error: float = 0.0

    def __post_init__(self) -> None:
        if self.bound not in ("tight", "paper"):
            raise ValueError(f"bound={self.bound!r} must be 'tight' or 'paper'")
        if not 6 <= self.batch <= self.rows <= LIMIT:
            raise ValueError("batch must lie between 6 and rows, and rows be at most 2^60")
        _check(self)
        _make_whole(self, "batch", "rows")

    def base_rdp(self, orders) -> np.ndarray:
        """Divergence of one batch's release when one of its rows is replaced."""
        return renyi.dp_barker(self.batch, self.bound, np.asarray(orders, float))

    def rdp(self, orders) -> np.ndarray:
        return renyi.amplified(self.base_rdp, self.batch / self.rows)(np.atleast_1d(orders))


@dataclass(frozen=True)
class NonPrivate(Cost):
    """A release without any bound. It makes every epsilon infinite.

    Attributes:
        reason: Why it has no bound, in words.

    Example:
        >>> from dpmcmc.accounting.costs import NonPrivate
        >>> NonPrivate("the rows are released").rho()
        inf
    """

    reason: str
    tv_error: ClassVar[float] = 0.0

    def rho(self) -> float:
        return math.inf

    def pure(self) -> float:
        return math.inf


Costs = Mapping[Any, int]  # a ledger: how often each cost was incurred


def _check(cost, **rules) -> None:
    """Make numbers plain Python numbers (a ledger is written as JSON) and refuse those outside
    their range.
    """
    relation = getattr(cost, "neighbours", Neighbours.REPLACE_ONE)
    if not isinstance(relation, Neighbours):
        raise ValueError(f"neighbours={relation!r} must be one of {list(Neighbours)}")
    rules["tv_error"] = _probability_or_zero
    for name, rule in rules.items():
        object.__setattr__(cost, name, float(getattr(cost, name)))
        _check_value(name, getattr(cost, name), rule)


def _make_whole(cost, *names: str) -> None:
    """The same for whole numbers."""
    for name in names:
        if getattr(cost, name) != int(getattr(cost, name)):
            raise ValueError(f"{name}={getattr(cost, name)} must be a whole number")
        object.__setattr__(cost, name, int(getattr(cost, name)))


def _check_value(name: str, value: float, rule: Rule) -> None:
    is_allowed, requirement = rule
    if not is_allowed(value):
        raise ValueError(f"{name}={value} must be {requirement}")


Rule = tuple[Callable[[float], bool], str]


# Wide enough for every query there is, and squares, quotients and sums of what lies within them are
# floats.
SMALLEST, LARGEST, LEAST_RATE, MOST_DRAWS = 1e-50, 1e50, 1e-12, 100.0
MOST_ENTRIES = 2**12  # of a vector with radial noise


def _between(low: float, high: float, requirement: str) -> Rule:
    return (lambda value: low <= value <= high), requirement


_size = _between(SMALLEST, LARGEST, f"positive, between {SMALLEST:g} and {LARGEST:g}")
_size_or_zero = _between(0, LARGEST, f"at least zero and at most {LARGEST:g}")
_rate = _between(LEAST_RATE, 1, f"in (0, 1], and at least {LEAST_RATE:g}")
_draws = _between(
    LEAST_RATE, MOST_DRAWS, f"between {LEAST_RATE:g} and {MOST_DRAWS:g} draws of a row"
)
_probability_or_zero = (lambda value: 0 <= value < 1, "in [0, 1): it is a total-variation error")


KINDS: dict[str, type] = {
    "gaussian": Gaussian,
    "accept-bit": AcceptBit,
    "pure": Pure,
    "radial": Radial,
    "zcdp": ZCDP,
    "subsampled-gaussian": SubsampledGaussian,
    "poisson-mixture": PoissonMixture,
    "minibatch-barker": MinibatchBarker,
    "dp-barker": DPBarker,
    "non-private": NonPrivate,
}
TESTS: dict[str, type] = {"barker": Barker, "lazy-barker": LazyBarker, "penalty": Penalty}
NAMES = {kind: name for name, kind in (KINDS | TESTS).items()}


def to_json(cost: Any) -> dict[str, Any]:
    """Return a cost as a JSON object with the field "kind" and one field for each parameter.

    Args:
        cost: The cost.

    Returns:
        The object.

    Example:
        >>> from dpmcmc.accounting import costs
        >>> costs.to_json(costs.Pure(1.0))
        {'kind': 'pure', 'epsilon': 1.0, 'tv_error': 0.0}
    """
    return {"kind": NAMES[type(cost)]} | {
        field.name: _plain(getattr(cost, field.name)) for field in fields(cost)
    }


def from_json(value: Any, kinds: dict[str, type] = KINDS) -> Any:
    """Return the cost that `to_json` was given.

    What is unknown, missing or of another type is refused, never skipped or guessed.

    Args:
        value: What `to_json` returned.
        kinds: The classes by the value of the field "kind".

    Returns:
        The cost.

    Raises:
        ValueError: It is no cost of these kinds, or a field is missing, unknown or of another type.

    Example:
        >>> from dpmcmc.accounting import costs
        >>> costs.from_json(costs.to_json(costs.Gaussian(2.0)))
        Gaussian(noise_multiplier=2.0, tv_error=0.0)
    """
    if not isinstance(value, dict) or value.get("kind") not in list(kinds):
        raise ValueError(
            f"a {'cost' if kinds is KINDS else 'test'} is an object with a field kind, one of "
            f"{sorted(kinds)}"
        )
    kind = kinds[value["kind"]]
    known = {field.name: field for field in fields(kind)}
    missing = {name for name, field in known.items() if field.default is MISSING} - set(value)
    if missing or not set(value) <= {"kind", *known}:
        raise ValueError(
            f"a cost of kind {value['kind']!r} has the fields {sorted(known)}, not "
            f"{sorted(set(value) - {'kind'})}"
        )
    return kind(
        **{name: _parsed(known[name], part) for name, part in value.items() if name != "kind"}
    )


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return to_json(value)
    return value.value if isinstance(value, enum.Enum) else value


def _parsed(field: Field, value: Any) -> Any:
    if field.name == "neighbours":
        return Neighbours(value)
    if field.name == "test":
        return from_json(value, TESTS)
    types = {"float": (int, float), "int": (int,), "str": (str,)}[str(field.type)]
    if not isinstance(value, types) or isinstance(value, bool):
        raise ValueError(f"{field.name} must be of type {field.type}, it is {type(value).__name__}")
    return value
