"""Answers from simulated rows, each of which stands for several, with the noise of the real ones.

The law of an answer is that of the query of the same name in `dpmcmc.queries`, in floating point
and with random numbers of JAX: it protects nobody, and is for rows that are nobody's. Numbers of a
query may be traced, so that one compiled simulation serves many settings.
"""

from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpmcmc import queries
from dpmcmc.recipes.simulated.quick import compiled
from dpmcmc.types import Answer, Array, Key, Model, Query, Unit


class MadeUp(NamedTuple):
    """Simulated rows, and what is public about the table that they stand for."""

    model: Model
    rows: Any
    num_rows: int  # of the table
    units: tuple[Unit, ...]  # one of each owner, whose noises add
    shift: Any = 0.0  # is added to the statistic of every row

    @property
    def copies(self) -> float:
        """How many rows each of these stands for."""
        return self.num_rows / len(jax.tree.leaves(self.rows)[0])

    def total(self, function: Any) -> Array:
        """The sum of a function of a row over the table."""
        return self.copies * jnp.sum(jax.vmap(function)(self.rows), axis=0)

    @property
    def sensitivity(self) -> float:
        """By how much a sum of numbers in [-1, 1] changes, of all owners together."""
        return float(np.hypot.reduce([one.sensitivity for one in self.units]))


def centred(table: MadeUp, guess: Any) -> MadeUp:
    """The same with the mode of the likelihood at the guess.

    With so few rows it would be many posterior standard deviations away. So the mean of the rows'
    gradients at the guess is taken off that of each, and off its statistic what makes the same
    difference.
    """
    model = table.model
    guess = jnp.asarray(guess, jnp.float32)

    def slopes(rows: Any) -> Array:
        each = jax.vmap(jax.grad(model.log_likelihood), (None, 0))(guess, rows)
        return jnp.mean(each, axis=0)

    slope = compiled(slopes, table.rows)(table.rows)

    def log_likelihood(position: Array, row: Any) -> Array:
        return model.log_likelihood(position, row) - jnp.sum(slope * (position - guess))

    shift = table.shift
    if model.family is not None:
        change = jax.jacobian(model.family.natural)(guess)
        shift = -np.linalg.lstsq(np.asarray(change).T, np.asarray(slope), rcond=None)[0]
    centred_model = model._replace(log_likelihood=log_likelihood)
    return table._replace(model=centred_model, shift=shift)


class Simulated:
    """A query that is asked of simulated rows: of the kind of a real one, with its numbers."""

    def __init__(self, kind: type, **numbers: Any) -> None:
        self.kind = kind
        self.is_bit = getattr(kind, "is_bit", False)
        self.__dict__.update(numbers)


def asker(table: MadeUp) -> Any:
    """The function `ask`, for real queries as for `Simulated` ones."""

    def ask(rng_key: Key, query: Query | Simulated, *points: Array) -> Answer:
        kind = query.kind if isinstance(query, Simulated) else type(query)
        return _ANSWERS[kind](table, query, rng_key, *points)

    return ask


def _log_ratio(table: MadeUp, query: Any, key: Key, position: Array, proposal: Array) -> Answer:
    bound = query.clip * jnp.linalg.norm(proposal - position)
    total = jnp.sum(table.copies * _ratios(table, position, proposal, bound))
    return _noisy(key, total, query.noise_multiplier * table.sensitivity * bound)


def _gradient(table: MadeUp, query: Any, key: Key, position: Array) -> Answer:
    slope = jax.grad(table.model.log_likelihood)
    total = table.total(lambda row: _shortened(slope(position, row), query.clip))
    return _noisy(key, total, query.noise_multiplier * table.sensitivity * query.clip)


def _centered_gradient(table: MadeUp, query: Any, key: Key, position: Array) -> Answer:
    assert table.model.center is not None
    center = table.model.center(position)
    slope = jax.grad(table.model.log_likelihood)
    total = table.total(lambda row: _shortened(slope(position, row) - center, query.clip))
    deviation = query.noise_multiplier * table.sensitivity * query.clip
    return _noisy(key, table.num_rows * center + total, deviation)


def _curvature(table: MadeUp, query: Any, key: Key, position: Array) -> Answer:
    hessian = jax.hessian(table.model.log_likelihood)
    total = table.total(lambda row: _shortened(-hessian(position, row), query.clip))
    deviation = query.noise_multiplier * table.sensitivity * query.clip
    normal = jax.random.normal(key, total.shape)
    # Half of the variance off the diagonal
    return Answer(total + deviation * (normal + normal.T) / 2, jnp.square(deviation))


def _statistic(table: MadeUp, query: Any, key: Key, position: Array) -> Answer:
    family = table.model.family
    assert family is not None

    def from_center(row: Any) -> Array:
        return _shortened(family.statistic(row) - family.center, family.radius)

    of_count = query.noise_multiplier * float(np.hypot.reduce([_joint(one) for one in table.units]))
    total = table.total(from_center) + table.num_rows * table.shift
    is_private = not all(unit.is_count_public for unit in table.units)
    deviations = jnp.append(jnp.full(total.shape, family.radius), float(is_private)) * of_count
    return _noisy(key, jnp.append(total, float(table.num_rows)), deviations)


def _joint(unit: Unit) -> float:
    """By how much one person moves a sum of vectors in the unit ball and the number of rows."""
    return unit.rows_per_person * (unit.sensitivity / unit.rows_per_person * 2) ** 0.5


def _tuna_barker(
    table: MadeUp, query: Any, key: Key, position: Array, proposal: Array, public: Array
) -> Answer:
    """The number of kept draws of a row is Poisson; that of all rows together nearly normal."""
    x = query.ratio
    b = query.bound
    ratios = _ratios(table, position, proposal, b)
    terms = 2 * jnp.arctanh(ratios / (b * (1 + 2 / x)))
    numbers = table.copies * (b / x + (b - ratios) / 2)
    deviation = jnp.sqrt(jnp.sum(numbers * terms**2))
    key_batch, key_coin = jax.random.split(key)
    total = jnp.sum(numbers * terms) + deviation * jax.random.normal(key_batch)
    is_accepted = jax.random.uniform(key_coin) < jax.nn.sigmoid(total + public)
    return Answer(is_accepted, jnp.zeros(()))


def _ratios(table: MadeUp, position: Array, proposal: Array, bound: Array) -> Array:
    """Each row's log-ratio, clipped."""

    def of_row(row: Any) -> Array:
        before = table.model.log_likelihood(position, row)
        after = table.model.log_likelihood(proposal, row)
        return jnp.clip(after - before, -bound, bound)

    return jax.vmap(of_row)(table.rows)


def _shortened(value: Array, clip: Any) -> Array:
    length = jnp.sqrt(jnp.sum(value**2))
    return value * jnp.where(length > clip, clip / jnp.where(length > clip, length, 1.0), 1.0)


def _noisy(key: Key, total: Array, deviation: Any) -> Answer:
    noise = deviation * jax.random.normal(key, jnp.shape(total))
    return Answer(total + noise, jnp.square(deviation))


_ANSWERS: dict[type, Any] = {
    queries.LogRatio: _log_ratio,
    queries.Gradient: _gradient,
    queries.CenteredGradient: _centered_gradient,
    queries.Curvature: _curvature,
    queries.SufficientStatistic: _statistic,
    queries.TunaBarker: _tuna_barker,
}
# Makes simulated queries by the names of `dpmcmc.queries`
simulated = SimpleNamespace(
    **{kind.__name__: functools.partial(Simulated, kind) for kind in _ANSWERS}
)
