"""The noisy log-ratio.

A query is a frozen value: what is computed on the rows, and what that costs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp

from dpmcmc.accounting import costs
from dpmcmc.checks import check_sizes
from dpmcmc.curator.noise import gaussian
from dpmcmc.curator.noise.noisy_sums import integer_sigma, noisy
from dpmcmc.curator.sums import fused
from dpmcmc.curator.sums.clipping import clip_to_unit
from dpmcmc.curator.sums.exact_sum import BITS, Table, fixed_point, sum_rows
from dpmcmc.curator.sums.rowwise import rowwise
from dpmcmc.types import Answer, Array, Model, Unit


def unit_ratios(model: Model, table: Table, rows, position, proposal, bound):
    """clip(log p(x_i|proposal) - log p(x_i|position), bound) / bound for each of these rows."""
    position, proposal, bound = (
        jnp.asarray(value, table.dtype) for value in (position, proposal, bound)
    )
    # The model is traced in the precision of the rows, so that constants in it do not double
    # the work.
    with jax.enable_x64(table.is_double):
        log_likelihoods = rowwise(model.log_likelihood, (None, 0))
        # Two products with a vector: faster than one with a matrix of two columns, on a CPU and on
        # a GPU.
        before = log_likelihoods(position, rows)
        after = log_likelihoods(proposal, rows)
        return clip_to_unit(after - before, bound)


def log_ratio_sum(model: Model, table: Table, position, proposal, bound):
    """The exact integer sum of all rows' clipped log-ratios / bound, in units of 2^-BITS."""
    layout = fused.row_layout(model, table.pieces[0])
    if layout is not None:
        points = (jnp.asarray(value, jnp.float32) for value in (position, proposal, bound))
        return fused.ratio_sum(model, table, layout, *points)
    return sum_rows(
        lambda rows: fixed_point(unit_ratios(model, table, rows, position, proposal, bound)), table
    )


@dataclass(frozen=True)
class LogRatio:
    """The noisy log-ratio of a proposed move: the sum of the rows' clipped log-ratios, plus noise.

    Released is  T (sum_i clip(r_i, b) + N(0, s^2)),  r_i = log p(x_i|proposal) - log
    p(x_i|position).

    b = clip * |proposal - position|;  s = noise_multiplier * (2b when a row is replaced, b when one
    is added or removed), times the rows per person;  T = temperature, a public constant. Noise and
    sum live on the integer grid b 2^-30. The cost depends on neither the points nor the clip. A row
    whose log-likelihood is clip-Lipschitz in the position is never clipped.

    Attributes:
        clip: The most that one row contributes, per unit of the move's length.
        noise_multiplier: Standard deviation of the noise, divided by the sensitivity of the sum.
        temperature: T, the power of the likelihood.

    Raises:
        ValueError: A number is not positive and finite.

    Example:
        >>> from dpmcmc import Unit, queries
        >>> query = queries.LogRatio(clip=1.0, noise_multiplier=5.0)
        >>> round(query.cost(Unit()).rho(), 3)
        0.02
    """

    released: ClassVar[str] = "log-likelihood ratios of proposed moves, with Gaussian noise"
    adds: ClassVar[bool] = True  # the answers of several owners

    clip: float
    noise_multiplier: float
    temperature: float = 1.0

    def __post_init__(self) -> None:
        check_sizes(self, "clip", "noise_multiplier", "temperature")

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
        bound = self.clip * move_length(position, proposal)
        total = log_ratio_sum(model, rows, position, proposal, bound)
        return noisy(
            key,
            total,
            integer_sigma(self.noise_multiplier, rows.unit),
            self.temperature * bound / 2.0**BITS,
        )

    def cost(self, unit: Unit) -> costs.Gaussian:
        """What one release reveals.

        Args:
            unit: Whom the promise protects.

        Returns:
            The cost.
        """
        return costs.Gaussian(
            self.noise_multiplier,
            gaussian.gaussian_tv_error(integer_sigma(self.noise_multiplier, unit)),
        )


def move_length(position, proposal):
    return jnp.linalg.norm(proposal.astype(jnp.float64) - position.astype(jnp.float64))
