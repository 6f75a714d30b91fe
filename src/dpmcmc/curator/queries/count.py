"""How many rows can be used, of which kind they are, and how many are clipped: exact counts with
Gaussian noise.

Each row adds 1 to the count of at most one kind: a row is given one whole number, which equals at
most one place. So a person with a rows adds a vector v of whole numbers of at least 0 with the sum
a, and its length is at most a.

**Sensitivity.** When a person's rows, which add v, are replaced by others, which add w, both of at
most k rows, v . w >= 0 and so

    |v - w|^2 = |v|^2 + |w|^2 - 2 v . w <= 2 k^2,

which is attained when all rows change from one kind to another. When k rows are added or removed
the counts move by at most k. A count of a single kind, such as that of the clipped rows, moves by
at most k in either case: a person's rows add a whole number from 0 to k before and after.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from dpmcmc.accounting import costs
from dpmcmc.checks import check_sizes
from dpmcmc.curator.noise.gaussian import gaussian_tv_error
from dpmcmc.curator.noise.noisy_sums import noisy, vector_tv_error
from dpmcmc.curator.sums.exact_sum import BITS, Table, once, sum_counted, sum_row_vectors
from dpmcmc.curator.sums.rowwise import rowwise
from dpmcmc.types import Answer, Array, Model, Neighbours, Unit


@dataclass(frozen=True)
class Count:
    """The number of rows of each of the model's `kinds`, with Gaussian noise on each.

    A model without `kinds` has one kind. The noise has the standard deviation s =
    noise_multiplier * (sqrt(2) when a row is replaced, 1 when one is added or removed) * rows per
    person. A row is counted if its log-likelihood at the position is finite: all others contribute
    nothing to the posterior.

    Attributes:
        noise_multiplier: Standard deviation of the noise, divided by the sensitivity of the
            counts.

    Raises:
        ValueError: The noise multiplier is not positive and finite.

    Example:
        >>> from dpmcmc import Unit, queries
        >>> query = queries.Count(noise_multiplier=10.0)
        >>> round(query.cost(Unit()).rho(), 4)
        0.005
        >>> round(query.deviation(Unit()), 2)
        14.14
    """

    released: ClassVar[str] = "numbers of rows that can be used, with Gaussian noise"
    adds: ClassVar[bool] = True  # the answers of several owners

    noise_multiplier: float

    def __post_init__(self) -> None:
        check_sizes(self, "noise_multiplier")

    def answer(self, key: Array, model: Model, rows: Table, position: Array) -> Answer:
        # On a fine grid rounded noise is near its ideal law
        """Compute on the rows what is released.

        Args:
            key: Eight secret words, for the noise and the coins.
            model: What one row contributes.
            rows: The rows.
            position: Where the chain is.

        Returns:
            What is released, and the variance of the noise in it.
        """
        total = count_sum(model, rows, position) << BITS
        return noisy(key, total, self._integer_sigma(rows.unit), 2.0**-BITS)

    def cost(self, unit: Unit) -> costs.Gaussian:
        """What one release reveals.

        Args:
            unit: Whom the promise protects.

        Returns:
            The cost.
        """
        return costs.Gaussian(self.noise_multiplier, vector_tv_error(self._integer_sigma(unit)))

    def deviation(self, unit: Unit) -> float:
        """The standard deviation of the noise on each count.

        Args:
            unit: Whom the promise protects.

        Returns:
            The standard deviation, in rows.
        """
        return self.noise_multiplier * count_sensitivity(unit)

    def _integer_sigma(self, unit: Unit) -> float:
        return self.deviation(unit) * 2.0**BITS


class _ClippedRows:
    """What the counts of clipped rows share: one number from 0 to the number of rows."""

    adds: ClassVar[bool] = True  # the answers of several owners

    clip: float
    noise_multiplier: float

    def __post_init__(self) -> None:
        check_sizes(self, "clip", "noise_multiplier")

    def cost(self, unit: Unit) -> costs.Gaussian:
        """What one release reveals.

        Args:
            unit: Whom the promise protects.

        Returns:
            The cost.
        """
        return costs.Gaussian(self.noise_multiplier, gaussian_tv_error(self._integer_sigma(unit)))

    def _released(self, key: Array, table: Table, is_clipped: Any, entries: int) -> Answer:
        def block_sum(rows, is_counted):
            return sum_counted(is_clipped(rows).astype(jnp.int32)[:, None], is_counted)

        total = sum_row_vectors(block_sum, table, entries).reshape(()) << BITS
        return noisy(key, total, self._integer_sigma(table.unit), 2.0**-BITS)

    def _integer_sigma(self, unit: Unit) -> float:
        return self.noise_multiplier * unit.rows_per_person * 2.0**BITS


@dataclass(frozen=True)
class ClippedRatios(_ClippedRows):
    """The number of rows whose log-ratio for a move is beyond clip |move|, with Gaussian noise.

    Asked at a position and a proposal, before a clip is chosen or after a run that had it. The
    noise has the standard deviation noise_multiplier * rows per person. A row whose log-ratio is
    not a number is not counted: it is ignored, not clipped.

    Attributes:
        clip: Per unit of the move's length, as of `LogRatio`.
        noise_multiplier: Standard deviation of the noise, divided by the sensitivity of the count.

    Raises:
        ValueError: A number is not positive and finite.

    Example:
        >>> from dpmcmc import Unit, queries
        >>> query = queries.ClippedRatios(clip=1.0, noise_multiplier=10.0)
        >>> round(query.cost(Unit()).rho(), 4)
        0.005
    """

    released: ClassVar[str] = "numbers of rows with clipped log-ratios, with Gaussian noise"

    clip: float
    noise_multiplier: float

    def answer(
        self, key: Array, model: Model, rows: Table, position: Array, proposal: Array
    ) -> Answer:
        """Compute on the rows what is released.

        Args:
            key: Eight secret words, for the noise and the coins.
            model: What one row contributes.
            rows: The rows.
            position: Where the chain is.
            proposal: Where it may move to.

        Returns:
            What is released, and the variance of the noise in it.
        """
        points = [jnp.asarray(point, rows.dtype) for point in (position, proposal)]

        def is_clipped(some):
            with jax.enable_x64(rows.is_double):
                log_likelihoods = rowwise(model.log_likelihood, (None, 0))
                before, after = (log_likelihoods(point, some) for point in points)
                bound = jnp.asarray(self.clip, rows.dtype) * jnp.linalg.norm(points[1] - points[0])
                return jnp.abs(after - before) > bound

        return self._released(key, rows, is_clipped, 1)


@dataclass(frozen=True)
class ClippedGradients(_ClippedRows):
    """The number of rows whose gradient at a position is longer than the clip, with Gaussian noise.

    The noise has the standard deviation noise_multiplier * rows per person. A row whose gradient
    is not a number is not counted: it is ignored, not clipped.

    Attributes:
        clip: As of `Gradient`.
        noise_multiplier: Standard deviation of the noise, divided by the sensitivity of the count.

    Raises:
        ValueError: A number is not positive and finite.

    Example:
        >>> from dpmcmc import Unit, queries
        >>> query = queries.ClippedGradients(clip=1.0, noise_multiplier=10.0)
        >>> round(query.cost(Unit()).rho(), 4)
        0.005
    """

    released: ClassVar[str] = "numbers of rows with clipped gradients, with Gaussian noise"

    clip: float
    noise_multiplier: float

    def answer(self, key: Array, model: Model, rows: Table, position: Array) -> Answer:
        """Compute on the rows what is released.

        Args:
            key: Eight secret words, for the noise and the coins.
            model: What one row contributes.
            rows: The rows.
            position: Where the chain is.

        Returns:
            What is released, and the variance of the noise in it.
        """
        point = jnp.asarray(position, rows.dtype)

        def is_clipped(some):
            with jax.enable_x64(rows.is_double):
                slopes = rowwise(jax.grad(model.log_likelihood), (None, 0))(point, some)
                return jnp.linalg.norm(slopes, axis=1) > jnp.asarray(self.clip, rows.dtype)

        return self._released(key, rows, is_clipped, model.dimension)


def count_sensitivity(unit: Unit) -> float:
    """How far one person can move the counts, as the length of a vector."""
    # math.sqrt(2) is above the square root of 2.
    return unit.rows_per_person * (
        math.sqrt(2) if unit.neighbours is Neighbours.REPLACE_ONE else 1.0
    )


def count_sum(model: Model, table: Table, position):
    """The exact numbers of rows that can be used, of each kind."""
    num_kinds = 1 if model.kinds is None else len(model.kinds.names)
    places = jnp.arange(num_kinds, dtype=jnp.int32)

    def block_sum(rows, is_counted):
        kinds = row_places(model, rows, table, position)
        return sum_counted((kinds[:, None] == places).astype(jnp.int32), is_counted)

    return sum_row_vectors(block_sum, table, max(num_kinds, model.dimension))


def row_places(model: Model, rows, table: Table, position):
    """The place of each row's kind, or -1 for a row that cannot be used."""

    def find():
        # The model is traced in the precision of the rows, as for all other queries.
        with jax.enable_x64(table.is_double):
            log_likelihoods = rowwise(model.log_likelihood, (None, 0))(
                jnp.asarray(position, table.dtype), rows
            )
            places = 0 if model.kinds is None else rowwise(model.kinds.of_row)(rows)
            return jnp.where(jnp.isfinite(log_likelihoods), places, -1).astype(jnp.int32)

    return once(find, table.num_rows)
