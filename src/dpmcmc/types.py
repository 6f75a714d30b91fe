"""The vocabulary: what a model, a query, an answer, a sampler and a budget are.

There is no logic here beyond checks of numbers.

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
Position = Array  # shape (d,): flat, whatever structure the model's parameters have
Row = Any  # one row: a pytree of arrays without the leading axis


class Neighbours(enum.Enum):
    """Which two tables are neighbours: the released values must be nearly as likely on either.

    Attributes:
        REPLACE_ONE: One person's rows are replaced by others. The number of rows is public.
        ADD_OR_REMOVE_ONE: One person's rows are added or removed. The number of rows is private,
            and only a bound on it, the capacity, is public.

    Example:
        >>> from dpmcmc import Neighbours
        >>> Neighbours("replace-one")
        <Neighbours.REPLACE_ONE: 'replace-one'>
    """

    REPLACE_ONE = "replace-one"
    ADD_OR_REMOVE_ONE = "add-or-remove-one"


class Unit(NamedTuple):
    """Whose values or presence are protected: one person with at most `rows_per_person` rows.

    Attributes:
        neighbours: Whether the person's rows are replaced, or added or removed.
        rows_per_person: The largest number of rows that one person has. Public.

    Example:
        >>> from dpmcmc import Unit
        >>> Unit(rows_per_person=3).sensitivity
        6
    """

    neighbours: Neighbours = Neighbours.REPLACE_ONE
    rows_per_person: int = 1

    @property
    def sensitivity(self) -> int:
        """The largest change that one person makes to a sum of values in [-1, 1]."""
        return self.rows_per_person * (2 if self.neighbours is Neighbours.REPLACE_ONE else 1)

    @property
    def is_count_public(self) -> bool:
        """With several rows per person the number of rows is private, even under replace-one."""
        return self == Unit(Neighbours.REPLACE_ONE, 1)


@dataclass(frozen=True)
class Budget:
    """What all grants on a table may cost: (epsilon, delta)-differential privacy for one `Unit`.

    Attributes:
        epsilon: The bound of the privacy loss. Smaller is more private.
        delta: The probability with which that bound may fail: well below one over the number of
            rows.
        neighbours: Which tables are neighbours.
        rows_per_person: The largest number of rows that one person has.

    Raises:
        ValueError: A number is out of its range, or `neighbours` is not a `Neighbours`.

    Example:
        >>> from dpmcmc import Budget
        >>> print(Budget(epsilon=1.0, delta=1e-6))
        the budget of epsilon=1, delta=1e-06
    """

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
        """Whose values or presence are protected."""
        return Unit(self.neighbours, self.rows_per_person)


class Labelled(NamedTuple):
    """A log-likelihood that depends on a row through z = features . position and one of a few
    labels.

    The curator then reads what a row contributes from public tables, in exact integers, and applies
    no function of floating point to it. The log-likelihood must be concave in z, and next to linear
    beyond z = -16 and 16.

    Attributes:
        number: How many labels there are.
        of_row: From one row to its label, 0, 1, ...; a row with any other number is ignored.
        log_likelihood: From z and a label to the row's log-likelihood.
        radius: Public: |features| of every allowed row. A longer row is shortened.
        domain: The public set of features, a `dpmcmc.domains.Domain`; None for all up to `radius`.
            A row outside of it is ignored by queries in changed coordinates.

    Example:
        >>> from dpmcmc import models
        >>> models.logistic(2, radius=1.0).linear.labelled.number
        2
    """

    number: int
    of_row: Callable[[Row], Array]
    log_likelihood: Callable[[Array, Array], Array]
    radius: float
    domain: Any = None


class Linear(NamedTuple):
    """A log-likelihood that depends on the position through one number, z = features . position.

    All three are functions of one row. Features must be cells of the row, in any order and shape,
    and constants. If they are computed in any other way, the curator does not use this shortcut.

    Attributes:
        predictor: From a position and a row to the number z.
        features: From a row to the parts of its features, which have d numbers together: (1, x)
            with an intercept, so that x itself is not copied.
        log_likelihood: From z and a row to the row's log-likelihood.
        labelled: The same with a label in place of the row, where that is all it matters by.

    Example:
        >>> import jax.numpy as jnp
        >>> from dpmcmc import models
        >>> linear = models.logistic(2, radius=1.0).linear
        >>> float(linear.predictor(jnp.array([1.0, 2.0]), (jnp.array([0.5, 0.25]), 1.0)))
        1.0
    """

    predictor: Callable[[Position, Row], Array]
    features: Callable[[Row], tuple[Array, ...]]
    log_likelihood: Callable[[Array, Row], Array]
    labelled: Labelled | None = None


class Family(NamedTuple):
    """A log-likelihood of an exponential family.

    It is  h(x) + natural(position) . statistic(x) - log_partition(position),  where h(x) does not
    matter.

    Attributes:
        statistic: From one row to its statistic, of shape (m,).
        natural: From a position to the natural parameter, of shape (m,).
        log_partition: From a position to a number.
        radius: Public: |statistic(x) - center| <= radius for every allowed row. The statistic of
            any other row is moved to that ball.
        center: Public: one number, or shape (m,).

    Example:
        >>> from dpmcmc import models
        >>> models.binomial(num_trials=4).family.radius
        2.0
    """

    statistic: Callable[[Row], Array]
    natural: Callable[[Position], Array]
    log_partition: Callable[[Position], Array]
    radius: float
    center: Array = 0.0


class Kinds(NamedTuple):
    """Public kinds of rows, such as those with one label and those with the other.

    The query `Count` releases how many rows are of each kind.

    Attributes:
        names: The names of the kinds.
        of_row: From one row to an integer, the place of its kind in `names`. Any other number means
            that the row is of none of them.

    Example:
        >>> from dpmcmc import models
        >>> models.logistic(2, radius=1.0).kinds.names
        ('label 0', 'label 1')
    """

    names: tuple[str, ...]
    of_row: Callable[[Row], Array]


class Vectors(NamedTuple):
    """Vectors of the rows whose Gram matrix says what a model's curvature is.

    For a model whose Hessian, released with noise, would be nothing but noise in directions that
    the model itself says more about. It needs a `center`.

    Attributes:
        of_row: From a position and one row to a vector r.
        length: Proved: |r| <= length.
        curvature: From a position, the sum of the rows' gradients around `center`, the sum of r r'
            and the number of rows to minus the Jacobian of that sum of gradients, as the model lets
            expect it.

    Example:
        >>> from dpmcmc import models
        >>> round(models.robust_linear(3, radius=1.0, response_bound=1.0).vectors.length, 3)
        1.0
    """

    of_row: Callable[[Position, Row], Array]
    length: float
    curvature: Callable[[Position, Array, Array, float], Array]


class Model(NamedTuple):
    """What one row contributes to the log-likelihood, and the prior.

    A proved bound holds for every allowed row and all positions. Without one a clip has to be
    chosen by hand.

    Attributes:
        log_likelihood: From a position and one row to a number.
        log_prior: From a position to the prior's log-density. Public: samplers get it.
        unravel: From a flat position to the parameters by name, with their constraints.
        dimension: The length of a flat position.
        lipschitz: Proved: |log-ratio| <= lipschitz * |proposal - position|.
        hessian_bound: Proved: the Hessian's Frobenius norm is at most this.
        linear: The same log-likelihood in parts, if it is linear in this sense. Gradients are then
            cheap to compute.
        family: The same log-likelihood as an exponential family, up to h(x), if it is one.
        declared: Which rows are allowed, in words.
        center: Public: from a position to the point around which the gradients of all rows lie.
        spread: Proved: the gradient of a row is within this distance of `center`, and so is 0.
        self_concordance: Proved: |D^3[u, u, v]| <= self_concordance * |v| * |D^2[u, u]|.
        kinds: The kinds of rows, for `Count`. Without it all rows are of one kind.
        vectors: Vectors of the rows that the curvature is made of, for `RowGram`.

    Example:
        >>> import jax.numpy as jnp
        >>> from dpmcmc import Model
        >>> location = Model(
        ...     log_likelihood=lambda position, row: -jnp.abs(row - position[0]),
        ...     log_prior=lambda position: -0.5 * jnp.sum(position**2),
        ...     unravel=lambda position: {"location": position[0]},
        ...     dimension=1,
        ...     lipschitz=1.0,
        ... )
        >>> float(location.log_likelihood(jnp.array([2.0]), 0.5))
        -1.5
    """

    log_likelihood: Callable[[Position, Row], Array]
    log_prior: Callable[[Position], Array]
    unravel: Callable[[Position], dict[str, Array]]
    dimension: int
    lipschitz: float | None = None
    hessian_bound: float | None = None
    linear: Linear | None = None
    family: Family | None = None
    declared: str | None = None
    center: Callable[[Position], Array] | None = None
    spread: float | None = None
    self_concordance: float | None = None
    kinds: Kinds | None = None
    vectors: Vectors | None = None

    def tempered(self, temperature: float) -> Model:
        """The model with its likelihood raised to a power: draws are of prior * likelihood^T.

        A row then contributes T times as much, and every proved bound is T times as large, so that
        queries and recipes take it as any other model. The law of the draws is not the posterior:
        it is wider, by about 1 / sqrt(T) where the prior matters little.

        Args:
            temperature: T, public, above 0 and at most 1.

        Returns:
            The tempered model.

        Raises:
            ValueError: The temperature is out of its range.

        Example:
            >>> from dpmcmc import models
            >>> models.logistic(2, radius=1.0).tempered(0.25).lipschitz
            0.25
        """
        if not (is_number(temperature) and 0 < temperature <= 1):
            raise ValueError(
                f"temperature={temperature!r} must lie in (0, 1]: it is the power of the "
                "likelihood, and a power above 1 would count rows that are not there"
            )
        power = float(temperature)

        def scaled(bound: float | None) -> float | None:
            return None if bound is None else power * bound

        center = self.center
        return self._replace(
            log_likelihood=_times(power, self.log_likelihood),
            lipschitz=scaled(self.lipschitz),
            hessian_bound=scaled(self.hessian_bound),
            linear=_tempered_linear(power, self.linear),
            family=_tempered_family(power, self.family),
            center=None if center is None else _times(power, center),
            spread=scaled(self.spread),
            vectors=_tempered_vectors(power, self.vectors),
        )


def _times(power: float, function: Callable[..., Array]) -> Callable[..., Array]:
    return lambda *arguments: power * function(*arguments)


def _tempered_vectors(power: float, vectors: Vectors | None) -> Vectors | None:
    """The same vectors: the curvature is that of rows that count for less."""
    if vectors is None:
        return None
    curvature = vectors.curvature

    def tempered(position: Position, gradient: Array, gram: Array, num_rows: float) -> Array:
        return power * curvature(position, gradient / power, gram, num_rows)

    return vectors._replace(curvature=tempered)


def _tempered_linear(power: float, linear: Linear | None) -> Linear | None:
    if linear is None:
        return None
    labelled = linear.labelled
    if labelled is not None:
        labelled = labelled._replace(log_likelihood=_times(power, labelled.log_likelihood))
    return linear._replace(log_likelihood=_times(power, linear.log_likelihood), labelled=labelled)


def _tempered_family(power: float, family: Family | None) -> Family | None:
    """The statistic and its bound are those of a row; how the position enters is T times."""
    if family is None:
        return None
    return family._replace(
        natural=_times(power, family.natural), log_partition=_times(power, family.log_partition)
    )


class Answer(NamedTuple):
    """What a query releases. Answers of several owners add in both fields.

    Attributes:
        value: What is released.
        variance: The public variance of the noise in it; 0 for an accept bit.

    Example:
        >>> from dpmcmc import Answer
        >>> Answer(value=3.0, variance=0.25).variance
        0.25
    """

    value: Array
    variance: Array


class Cost(Protocol):
    """What one query reveals: a frozen value from `dpmcmc.accounting.costs`."""

    def __hash__(self) -> int: ...


class Query(Protocol):
    """What is computed on the rows and what it costs, in one frozen, hashable value.

    It may also have the attributes of `Traits`.

    Attributes:
        released: What leaves the curator, in words for the statement.

    Example:
        >>> from dpmcmc import Unit, queries
        >>> query = queries.Gradient(clip=1.0, noise_multiplier=10.0)
        >>> type(query.cost(Unit())).__name__
        'Gaussian'
    """

    @property
    def released(self) -> str: ...

    def answer(self, key: Array, model: Model, rows: Any, *points: Position) -> Answer:
        """Compute the answer, with its noise.

        Args:
            key: Eight secret words for the functions of `dpmcmc.queries`; not a JAX key.
            model: The curator's model.
            rows: A `dpmcmc.queries.Table`.
            *points: The positions that the sampler asks at.

        Returns:
            What is released.
        """
        ...

    def cost(self, unit: Unit) -> Cost:
        """What one answer reveals.

        Args:
            unit: Whose values or presence are protected.

        Returns:
            One of the costs that accountants know.
        """
        ...


class Traits(NamedTuple):
    """Optional attributes of a query, with the values that hold where it does not define them.

    Attributes:
        adds: It may be asked of several owners: their answers add in both fields.
        is_bit: The answer is an accept bit, and the last point is the public part of the log-ratio.
        is_standing: One cost covers all its answers in a grant: the curator keeps a running sum.
            Only for queries of this library.
        is_direction: It proposes a direction. If an accept test is asked in the same step, that
            test decides whether the law of the draws is right.
        bounded_by: Which bound of the model its clip is compared with: "lipschitz",
            "hessian_bound" or "spread".
        clip: The largest contribution of a row for each unit of the move.
        bound: The largest contribution of a row, whatever the move.
        batch: The random batch that it reads; None means all rows.
        temperature: The power of the likelihood.

    Example:
        >>> from dpmcmc.types import Traits
        >>> Traits().bounded_by
        'lipschitz'
    """

    adds: bool = False
    is_bit: bool = False
    is_standing: bool = False
    is_direction: bool = False
    bounded_by: str = "lipschitz"
    clip: float | None = None
    bound: float | None = None
    batch: Any = None
    temperature: float = 1.0


def traits(query: Query) -> Traits:
    """The optional attributes of a query, or their defaults."""
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
    """Two pure functions, which learn about the rows by asking only.

    Attributes:
        init: From a random key, a position and `ask` to the first state of a chain. A state has a
            field `position`.
        step: From a random key, a state and `ask` to the next state, and to what is kept with the
            draw: statistics by name, in a NamedTuple or a dict, or None.

    Example:
        >>> from typing import NamedTuple
        >>> from dpmcmc import Sampler
        >>> class State(NamedTuple):
        ...     position: float
        >>> still = Sampler(
        ...     init=lambda rng_key, position, ask: State(position),
        ...     step=lambda rng_key, state, ask: (state, None),
        ... )
        >>> still.init(None, 1.5, None)
        State(position=1.5)
    """

    init: Callable[[Key, Position, Ask], State]
    step: Callable[[Key, State, Ask], tuple[State, Info]]


def statistics_of(info: Info) -> dict[str, Any]:
    """What a sampler reports of its steps, by name."""
    return info._asdict() if hasattr(info, "_asdict") else dict(() if info is None else info)
