"""Queries without noise, for baselines: what the samplers would do without privacy.

**Not private at any price.** With them the private samplers are the classic ones: `penalty` is
random-walk Metropolis, `hmc` is Hamiltonian Monte Carlo, `accept_walk` is Metropolis or Barker,
`sgld` is Langevin dynamics. A clip, where one is given, is the private query's own: what clipping
does can then be separated from what noise does. Without a clip the rows' values are added in
float64.

A curator with a budget refuses them. Without one its statement has epsilon = infinity, and the
reason.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax.scipy import special

from dpmcmc.acceptance import AcceptanceTest, Metropolis
from dpmcmc.accounting import costs
from dpmcmc.checks import check_sizes
from dpmcmc.curator.noise import stream
from dpmcmc.curator.queries import accept, batches, gradient
from dpmcmc.curator.queries.log_ratio import log_ratio_sum, move_length
from dpmcmc.curator.sums.exact_sum import (
    BITS,
    Table,
    rows_per_block,
    sum_blocks,
    sum_pieces,
    sum_row_vectors,
)
from dpmcmc.curator.sums.rowwise import rowwise
from dpmcmc.types import Answer, Array, Model, Unit


@dataclass(frozen=True)
class NonPrivateRatio:
    """The log-ratio of a proposed move, without noise: NOT private.

    Released is  T sum_i r_i,  r_i = log p(x_i|proposal) - log p(x_i|position), clipped to clip *
    |proposal - position| if a clip is given.

    Attributes:
        clip: The most that one row contributes, per unit of the move's length; None does not clip.
        temperature: T, the power of the likelihood.

    Raises:
        ValueError: A number is not positive and finite.

    Example:
        >>> from dpmcmc import Unit, queries
        >>> queries.NonPrivateRatio().cost(Unit())
        NonPrivate(reason='the exact log-ratio is released, without noise')
    """

    released: ClassVar[str] = "log-likelihood ratios of proposed moves, WITHOUT NOISE"
    adds: ClassVar[bool] = True

    clip: float | None = None
    temperature: float = 1.0

    def __post_init__(self) -> None:
        _check(self, "clip")

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
        if self.clip is None:
            total = _ratio_sum(model, rows, position, proposal)
        else:
            bound = self.clip * move_length(position, proposal)
            total = (
                bound
                / 2.0**BITS
                * log_ratio_sum(model, rows, position, proposal, bound).astype(jnp.float64)
            )
        return Answer(self.temperature * total, jnp.zeros(()))

    def cost(self, unit: Unit) -> costs.NonPrivate:
        """What one release reveals.

        Args:
            unit: Whom the promise protects.

        Returns:
            The cost.
        """
        return costs.NonPrivate("the exact log-ratio is released, without noise")


@dataclass(frozen=True)
class NonPrivateAccept:
    """The accept bit of any test, Metropolis' too, without a bound on what it reveals: NOT private.

    Released is one coin of probability a(l), l = T sum_i r_i + the public part, each r_i clipped to
    +-bound if it is given. Asked with (position, proposal, log_ratio), as `Accept` is.

    Attributes:
        test: The acceptance test.
        bound: The most that one row contributes to the log-ratio; None does not clip.
        temperature: T, the power of the likelihood.

    Raises:
        ValueError: A number is not positive and finite, or `test` is not an acceptance test.

    Example:
        >>> from dpmcmc import Metropolis, Unit, queries
        >>> queries.NonPrivateAccept(Metropolis()).cost(Unit()).rho()
        inf
    """

    released: ClassVar[str] = "accept bits of proposed moves, WITHOUT A BOUND ON WHAT THEY REVEAL"
    is_bit: ClassVar[bool] = True

    test: AcceptanceTest | Metropolis
    bound: float | None = None
    temperature: float = 1.0

    def __post_init__(self) -> None:
        _check(self, "bound")
        if self.bound is not None:
            accept.check_bound(self.temperature * self.bound)
        if not hasattr(self.test, "probability"):
            raise ValueError(
                f"test={self.test!r} must be an acceptance test: Metropolis(), Barker(), ..."
            )

    def answer(
        self,
        key: Array,
        model: Model,
        rows: Table,
        position: Array,
        proposal: Array,
        log_ratio: Array,
    ) -> Answer:
        """Compute on the rows what is released.

        Args:
            key: Eight secret words, for the noise and the coins.
            model: What one row contributes.
            rows: The rows.
            position: Where the chain is.
            proposal: Where it may move to.
            log_ratio: The public part of the log-ratio.

        Returns:
            The accept bit.
        """
        if self.bound is None:
            total = self.temperature * _ratio_sum(
                model, rows, position, proposal
            ) + log_ratio.astype(jnp.float64)
            clamped = jnp.clip(
                jnp.where(jnp.isnan(total), -accept.CLAMP, total), -accept.CLAMP, accept.CLAMP
            )
        else:
            bound = jnp.asarray(self.bound, jnp.float64)
            total = log_ratio_sum(model, rows, position, proposal, bound)
            clamped = accept.clamped_log_ratio(
                total, log_ratio, self.temperature * bound / 2.0**BITS
            )
        return accept.toss(
            key, self.test.probability(clamped, jnp, special), jnp.all(jnp.isfinite(proposal))
        )

    def cost(self, unit: Unit) -> costs.NonPrivate:
        """What one release reveals.

        Args:
            unit: Whom the promise protects.

        Returns:
            The cost.
        """
        return costs.NonPrivate(
            "the accept bit is offered as a baseline, without a bound on what it reveals"
        )


@dataclass(frozen=True)
class NonPrivateGradient:
    """The gradient of the log-likelihood, without noise: NOT private.

    Released is  (T / q) sum_i g_i,  g_i the gradient of row i's log-likelihood, shortened to length
    `clip` if it is given. The sum is over all rows, q = 1, or over a random batch that has each row
    with probability q.

    Attributes:
        clip: The largest length of one row's gradient; None does not clip.
        batch: The random batch that is read; None reads all rows.
        temperature: T, the power of the likelihood.

    Raises:
        ValueError: A number is not positive and finite, or `batch` is not a batch.

    Example:
        >>> from dpmcmc import Unit, queries
        >>> queries.NonPrivateGradient().cost(Unit())
        NonPrivate(reason='the exact gradient is released, without noise')
    """

    released: ClassVar[str] = "gradients of the log-likelihood, WITHOUT NOISE"
    adds: ClassVar[bool] = True
    is_direction: ClassVar[bool] = True

    clip: float | None = None
    batch: batches.PoissonBatch | batches.FixedBatch | None = None
    temperature: float = 1.0

    def __post_init__(self) -> None:
        _check(self, "clip")
        batches.check(self.batch)

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
        _, key_batch = stream.random_words(key, (2, 8))
        slots = None if self.batch is None else self.batch.draw(key_batch, rows)
        if self.clip is None:
            total = _gradient_sum(model, rows, position, slots)
        else:
            total = gradient.clipped_sum(model, rows, position, self.clip, slots)
        rate = 1.0 if self.batch is None else self.batch.rate
        return Answer(self.temperature / rate * total, jnp.zeros(()))

    def cost(self, unit: Unit) -> costs.NonPrivate:
        """What one release reveals.

        Args:
            unit: Whom the promise protects.

        Returns:
            The cost.
        """
        return costs.NonPrivate("the exact gradient is released, without noise")


def _check(query: Any, bound: str) -> None:
    check_sizes(query, "temperature", *([bound] if getattr(query, bound) is not None else []))


def _ratio_sum(model: Model, table: Table, position, proposal):
    """The float64 sum of all rows' log-ratios; a NaN counts as zero."""
    position = jnp.asarray(position, table.dtype)
    proposal = jnp.asarray(proposal, table.dtype)

    def values(rows):
        log_likelihoods = rowwise(model.log_likelihood, (None, 0))
        return log_likelihoods(proposal, rows) - log_likelihoods(position, rows)

    return sum_pieces(_float_sum(values, table), table, table.pieces)


def _gradient_sum(model: Model, table: Table, position, slots):
    """The float64 sum of the gradients of all rows, or of the counted slots.

    A NaN entry counts as zero.
    """
    position = jnp.asarray(position, table.dtype)
    add = _float_sum(
        lambda rows: rowwise(jax.grad(model.log_likelihood), (None, 0))(position, rows), table
    )
    if slots is None:
        return sum_row_vectors(add, table, model.dimension)
    rows, is_real = batches.gather(table, slots[0])
    return table.over_devices(
        sum_blocks(add, rows, slots[1] & is_real, rows_per_block(model.dimension))
    )


def _float_sum(values: Callable[[Any], Any], table: Table):
    """(rows, is_counted) -> the float64 sum of the counted rows' values.

    The values are computed in the precision of the rows.
    """

    def add(rows, is_counted):
        with jax.enable_x64(table.is_double):
            each = values(rows)
        mask = is_counted.reshape((-1,) + (1,) * (each.ndim - 1)) & ~jnp.isnan(each)
        return jnp.sum(jnp.where(mask, each, 0.0), axis=0, dtype=jnp.float64)

    return add
