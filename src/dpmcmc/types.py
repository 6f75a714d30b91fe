"""The vocabulary: what a model, a query, an answer, a sampler and a budget are. No logic beyond
checking numbers.

Arrays are JAX arrays, typed as ``Any`` here because this module is imported by code that must start
without JAX.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from dpmcmc.checks import is_number, positive, whole

Array = Any
Key = Any  # a typed JAX random key, as made by jax.random.key
Position = Array  # shape (d,): positions are flat; pytrees stop at models/
Row = Any  # one row: a pytree of arrays without the leading axis


class Neighbours(enum.Enum):
    """Which two tables must be hard to tell apart."""

    REPLACE_ONE = "replace-one"  # the number of rows is public
    ADD_OR_REMOVE_ONE = "add-or-remove-one"  # the number of rows is private; a capacity is public


class Unit(NamedTuple):
    """Whose presence or values are protected: one person with at most `rows_per_person` rows."""

    neighbours: Neighbours = Neighbours.REPLACE_ONE
    rows_per_person: int = 1

    @property
    def sensitivity(self) -> int:
        """How far one person can move a sum of values in [-1, 1]."""
        return self.rows_per_person * (2 if self.neighbours is Neighbours.REPLACE_ONE else 1)

    @property
    def is_count_public(self) -> bool:
        """With several rows per person the number of rows is private, even under replace-one."""
        return self == Unit(Neighbours.REPLACE_ONE, 1)


@dataclass(frozen=True)
class Budget:
    """The promise: (epsilon, delta)-differential privacy for one `Unit`."""

    epsilon: float
    delta: float
    neighbours: Neighbours = Neighbours.REPLACE_ONE
    rows_per_person: int = 1

    def __post_init__(self) -> None:
        # As Python's own numbers: NumPy's are not JSON.
        object.__setattr__(
            self, "epsilon", positive("epsilon", self.epsilon, "it bounds the privacy loss")
        )
        if not (is_number(self.delta) and 0 < self.delta < 1):
            raise ValueError(
                f"delta={self.delta!r} must lie in (0, 1), well below 1/n: it is a probability of "
                "failure"
            )
        object.__setattr__(self, "delta", float(self.delta))
        if not isinstance(self.neighbours, Neighbours):
            raise ValueError(
                f"neighbours={self.neighbours!r} must be one of "
                f"{[str(kind) for kind in Neighbours]}"
            )
        object.__setattr__(self, "rows_per_person", whole("rows_per_person", self.rows_per_person))

    def __str__(self) -> str:
        return f"the budget of epsilon={self.epsilon:g}, delta={self.delta:g}"

    @property
    def unit(self) -> Unit:
        return Unit(self.neighbours, self.rows_per_person)


class Linear(NamedTuple):
    """A log-likelihood that sees the position through one number, z = features . position. Row by
    row.

    Features must be cells of the row, moved about and put together, and constants. If anything is
    computed for them, the curator does without this short cut.
    """

    predictor: Callable[[Position, Row], Array]  # z
    # In parts, put together (d,): (1, x) with an intercept, so that x stays as it is
    features: Callable[[Row], tuple[Array, ...]]
    log_likelihood: Callable[[Array, Row], Array]  # given z


class Family(NamedTuple):
    """A log-likelihood of the form  h(x) + natural(position) .

    statistic(x) - log_partition(position).
    """

    statistic: Callable[[Row], Array]  # of ONE row: shape (m,)
    natural: Callable[[Position], Array]  # shape (m,)
    log_partition: Callable[[Position], Array]  # a scalar
    # Public: |statistic(x) - center| <= radius for every allowed row; others are moved to that ball
    radius: float
    center: Array = 0.0  # public: a number, or shape (m,)


class Kinds(NamedTuple):
    """Which of some public kinds a row is of, such as those with one label or the other: what
    `Count` counts.
    """

    names: tuple[str, ...]
    # Of ONE row: an integer, the place of its kind in `names`; any other number is none of them
    of_row: Callable[[Row], Array]


class Model(NamedTuple):
    """What one row says about the parameters, and what is believed before any row is seen."""

    log_likelihood: Callable[[Position, Row], Array]  # of ONE row: a scalar
    log_prior: Callable[[Position], Array]  # public: samplers get this one
    unravel: Callable[[Position], dict[str, Array]]  # flat -> named, constrained, for people
    dimension: int  # length of a flat position
    # Proved for every allowed row: |log-ratio| <= lipschitz * |proposal - position|
    lipschitz: float | None = None
    # Proved for every allowed row: the Hessian's Frobenius norm is at most this
    hessian_bound: float | None = None
    # The same log-likelihood in parts, where it has them: gradients are then nearly for free
    linear: Linear | None = None
    # The same log-likelihood as an exponential family, up to h(x), where it is one
    family: Family | None = None
    declared: str | None = None  # in words: what rows are allowed
    # Public: what the gradients of all rows lie around, at a position
    center: Callable[[Position], Array] | None = None
    # Proved for every allowed row: its gradient is within this distance of `center`, and so is 0
    spread: float | None = None
    # Proved for every allowed row: |D^3[u, u, v]| <= this * |v| * |D^2[u, u]|
    self_concordance: float | None = None
    kinds: Kinds | None = None  # of rows, for `Count`; without, all are of one kind


class Answer(NamedTuple):
    """What a query releases. Answers of several owners add in both fields."""

    value: Array  # what is released
    variance: Array  # public variance of the noise in it (0 for an accept bit)


class Cost(Protocol):
    """What one query reveals: a frozen value from `dpmcmc.accounting.costs`."""

    def __hash__(self) -> int: ...


class Query(Protocol):
    """What is computed on the rows and what it costs, in one frozen, hashable value.

    It may have the attributes of `Traits`.
    """

    @property
    def released(self) -> str: ...  # what leaves the curator, in words for the statement

    # The key is not a JAX key but eight secret words, for `curator.noise`.
    def answer(self, key: Array, model: Model, rows: Any, *points: Position) -> Answer: ...

    def cost(self, unit: Unit) -> Cost: ...


class Traits(NamedTuple):
    """Optional attributes of a query, with their values where it has none."""

    adds: bool = False  # it may be asked of several owners: their answers add in both fields
    # The answer is an accept bit, and the points end with the public part of the log-ratio
    is_bit: bool = False
    # Its cost covers all its asks in one grant: the curator keeps a running sum; of ours alone
    is_standing: bool = False
    # It says where to go: if something else is asked in the step, a test, that decides about it
    is_direction: bool = False
    # Which bound of the model its clip is compared with: this one, "hessian_bound" or "spread"
    bounded_by: str = "lipschitz"
    clip: float | None = None  # the most that a row counts for, per unit of move
    bound: float | None = None  # the same, whatever the move
    batch: Any = None  # the random batch that it reads; None: all rows
    temperature: float = 1.0  # the power of the likelihood


def traits(query: Query) -> Traits:
    return Traits._make(
        getattr(query, name, default) for name, default in Traits._field_defaults.items()
    )


def is_standing(query: Query) -> bool:
    """Whether the query's cost covers all its asks in one grant."""
    return traits(query).is_standing


Ask = Callable[..., Answer]  # ask(rng_key, query, *points)
State = Any
Info = Any  # statistics of a step by name, in a NamedTuple or a dict; or None
Plan = Mapping[Query, int]  # how often each query is asked


class Sampler(NamedTuple):
    """A pure function that may only ask."""

    init: Callable[[Key, Position, Ask], State]  # the state must have a field `position`
    step: Callable[[Key, State, Ask], tuple[State, Info]]


def statistics_of(info: Info) -> dict[str, Any]:
    """What a sampler reports of its steps, by name."""
    return info._asdict() if hasattr(info, "_asdict") else dict(() if info is None else info)
