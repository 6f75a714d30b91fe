"""The noisy sufficient statistic of an exponential family: summed once, released as often as asked.

A row's centred statistic (S(x) - c) / R is computed in float64, moved to the unit ball, made whole
numbers on the grid 2^-30, and its length is held to the bound in exact integers. The exact sum V of
these and the number N of rows are all that is ever needed of the rows: they are found before the
program's loops, so a step takes the same time for any number of rows.

**Sensitivity** of (V, N) in units of the grid. A person with a rows contributes a vector of length
at most a, and a to N. When a person with a rows is replaced by one with b, both at most k, the pair
moves by at most

    ((a + b)^2 + (a - b)^2)^(1/2) = (2 a^2 + 2 b^2)^(1/2) <= 2 k :

to count the rows costs nothing. When k rows are added or removed it moves by at most 2^(1/2) k.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from dpmcmc.accounting import costs
from dpmcmc.checks import check_exact, check_sizes, positive
from dpmcmc.curator.noise import gaussian
from dpmcmc.curator.noise.noisy_sums import MAX_DIMENSION, vector_tv_error
from dpmcmc.curator.sums.exact_sum import (
    BITS,
    Table,
    ball_integers,
    one_row,
    sum_counted,
    sum_row_vectors,
)
from dpmcmc.curator.sums.rowwise import rowwise
from dpmcmc.types import Answer, Array, Family, Model, Neighbours, Unit


@dataclass(frozen=True)
class SufficientStatistic:
    """The noisy sum of the rows' sufficient statistics, and the number of rows.

    Released is  T (sum_i (S(x_i) - c) + N(0, s^2 I))  and, as one more entry at the end, T times
    the number of rows.

    S, its center c and its radius R are those of the model's `family`; T = temperature, a public
    constant. s = noise_multiplier * R * (2 when a row is replaced, sqrt(2) when one is added or
    removed) * rows per person. The number of rows is exact where it is public (one row is
    replaced); otherwise its noise is s / R. `variance` has one entry for each.

    Every ask has fresh noise. Rows whose statistic is outside the ball are moved to it, those at
    its surface by at most (m + 16) 2^-28 of R; a NaN counts as the center. Asked with the chain's
    position, which sets the precision of the answer and nothing else.

    Attributes:
        noise_multiplier: Standard deviation of the noise, divided by the sensitivity of the sum.
        temperature: T, the power of the likelihood.

    Raises:
        ValueError: A number is not positive and finite.

    Example:
        >>> from dpmcmc import Unit, queries
        >>> query = queries.SufficientStatistic(noise_multiplier=5.0)
        >>> round(query.cost(Unit()).rho(), 3)
        0.02
    """

    released: ClassVar[str] = (
        "sums of a sufficient statistic over the rows, each row's clipped, with Gaussian noise"
    )
    adds: ClassVar[bool] = True

    noise_multiplier: float
    temperature: float = 1.0

    def __post_init__(self) -> None:
        check_sizes(self, "noise_multiplier", "temperature")

    def answer(self, key: Array, model: Model, rows: Table, position: Array) -> Answer:
        """Compute on the rows what is released.

        Args:
            key: Eight secret words, for the noise and the coins.
            model: What one row contributes.
            rows: The rows.
            position: Where the chain is.

        Returns:
            What is released, and the variance of the noise in it.

        Raises:
            ValueError: The model has no `family`, or its parts do not fit together.
        """
        family = _family(model, rows)
        total = statistic_sum(family, rows) if rows.statistic is None else rows.statistic
        sigma = self._integer_sigma(rows.unit)
        num_noisy = total.size + (not rows.unit.is_count_public)
        integers = jnp.append(total, jnp.asarray(rows.num_rows, jnp.int64) << BITS)
        integers = integers.at[:num_noisy].add(gaussian.discrete_gaussian(key, (num_noisy,), sigma))
        grid = (
            self.temperature * np.append(np.full(total.size, float(family.radius)), 1.0) / 2.0**BITS
        )
        is_noisy = np.arange(total.size + 1) < num_noisy
        return Answer(
            grid * integers.astype(jnp.float64),
            jnp.asarray((grid * is_noisy * gaussian.gaussian_sigma(sigma)) ** 2),
        )

    def cost(self, unit: Unit) -> costs.Gaussian:
        """What one release reveals.

        Args:
            unit: Whom the promise protects.

        Returns:
            The cost.
        """
        return costs.Gaussian(self.noise_multiplier, vector_tv_error(self._integer_sigma(unit)))

    def _integer_sigma(self, unit: Unit) -> float:
        return self.noise_multiplier * joint_sensitivity(unit) * 2.0**BITS


def joint_sensitivity(unit: Unit) -> float:
    """How far one person can move a sum of unit-ball vectors together with the number of rows."""
    # math.sqrt(2) is above the square root of 2.
    return unit.rows_per_person * (
        2.0 if unit.neighbours is Neighbours.REPLACE_ONE else math.sqrt(2)
    )


def with_statistic(table: Table, model: Model) -> Table:
    """The table with the sum of the model's statistic.

    It is computed once per program, if a query there asks for it.
    """
    if model.family is None:
        return table
    return dataclasses.replace(table, statistic=statistic_sum(_family(model, table), table))


def statistic_sum(family: Family, table: Table):
    """The exact integer sum of the rows' centred and clipped statistics / radius: shape (m,).

    It is in units of 2^-BITS.
    """

    def block_sum(rows, is_counted):
        return sum_counted(row_integers(family, rows, table.num_rows), is_counted)

    return sum_row_vectors(block_sum, table, _shape(family, table)[0])


def row_integers(family: Family, rows, num_rows):
    """Each row's (S - c) / R as integers on the grid 2^-BITS.

    The shape is (rows, m), and each length at most 2^BITS.
    """

    def centred():
        # Once per program, so in float64: the rounding of a float32 would not average out over many
        # rows.
        with jax.enable_x64(True):
            statistics = rowwise(family.statistic)(jax.tree.map(_double, rows))
            return statistics.astype(jnp.float64) - jnp.asarray(family.center, jnp.float64)

    return ball_integers(centred, float(family.radius), num_rows)


def same_family(one: Model, other: Model, row: Any) -> bool:
    """Whether two families agree but for their radius, at some positions and on made-up rows."""
    positions = (
        np.modf(0.618 * np.arange(1, 1 + 3 * one.dimension))[0].reshape(3, -1).astype(np.float32)
    )
    rows = jax.tree.map(
        lambda leaf: np.stack([np.zeros(leaf.shape, leaf.dtype), np.ones(leaf.shape, leaf.dtype)]),
        row,
    )

    def values_of(family: Family) -> list[np.ndarray]:
        of_positions = jax.jit(
            jax.vmap(lambda position: (family.natural(position), family.log_partition(position)))
        )(positions)
        return list(
            map(
                np.asarray,
                jax.tree.leaves(
                    (family.center, of_positions, jax.jit(jax.vmap(family.statistic))(rows))
                ),
            )
        )

    if one.family is None or other.family is None:
        return one.family is other.family
    here = values_of(one.family)
    there = values_of(other.family)
    return all(
        a.shape == b.shape and np.allclose(a, b, 1e-5, 1e-5, True)
        for a, b in zip(here, there, strict=True)
    )


def _double(leaf):
    return leaf.astype(jnp.float64) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf


def _family(model: Model, table: Table) -> Family:
    """The model's family, if it is one and fits together."""
    family = model.family
    if family is None:
        raise ValueError(
            "the model has no `family`, so its rows have no sufficient statistic with a public "
            "bound: declare the bounds that the model takes (radius=..., max_count=...), or use "
            "LogRatio"
        )
    check_exact("radius", family.radius)
    positive("radius", family.radius)
    shape = _shape(family, table)
    natural = jax.eval_shape(
        family.natural, jax.ShapeDtypeStruct((model.dimension,), jnp.float32)
    ).shape
    if len(shape) != 1 or natural != shape or np.shape(family.center) not in ((), shape):
        raise ValueError(
            f"statistic has shape {shape}, natural {natural} and center {np.shape(family.center)}: "
            "they must be (m,), (m,), and (m,) or a number"
        )
    if shape[0] >= MAX_DIMENSION:
        raise ValueError(
            f"a statistic of {shape[0]} entries is too long: noise is charged for {MAX_DIMENSION}, "
            "less one"
        )
    return family


def _shape(family: Family, table: Table) -> tuple[int, ...]:
    return jax.eval_shape(family.statistic, one_row(table.pieces[0])).shape
