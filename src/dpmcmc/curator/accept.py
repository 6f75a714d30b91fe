"""Queries whose answer is the accept bit: the curator tosses the coin and releases nothing else.

With S the exact integer sum of clipped row ratios on the grid u = T b 2^-30 and c the sampler's public log-ratio (prior and
proposal), the coin falls with probability a(l), l = u (S + round(c / u)). Both terms are integers, so two neighbouring tables
differ in l by at most the range 2 T b (replace) or T b (add or remove), times the rows per person, plus the rounding of the
clamped l, which is charged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import jax.numpy as jnp
from jax.scipy import special

from dpmcmc.acceptance import AcceptanceTest, Metropolis, Penalty, penalty_probability
from dpmcmc.accounting import costs
from dpmcmc.curator import noise
from dpmcmc.curator.exact_sum import BITS, Table
from dpmcmc.curator.queries import check_positive, log_ratio_sum, move_length, sensitivity
from dpmcmc.errors import UnsupportedQuery
from dpmcmc.types import Answer, Model, Unit

CLAMP = 64.0  # a(64) and a(-64) differ from 1 and 0 by less than a coin can show
ROUNDING = 2 * CLAMP * 2.0**-51  # how much rounding can add to the distance of two clamped log-ratios


@dataclass(frozen=True)
class Accept:
    """Release one coin of probability a(l): the accept bit of a test, each row's log-ratio clipped to the constant +-bound.

    Asked with (position, proposal, log_ratio): the last is the public part of the log-ratio. A chain in which no row reaches
    the bound has exactly the posterior as its law.
    """

    released: ClassVar[str] = "accept bits of proposed moves"
    is_bit: ClassVar[bool] = True

    test: AcceptanceTest
    bound: float
    temperature: float = 1.0

    def __post_init__(self) -> None:
        check_positive(bound=self.bound, temperature=self.temperature)
        if isinstance(self.test, Metropolis) or not hasattr(self.test, "log_probabilities"):
            raise UnsupportedQuery(f"{self.test}: the accept bit of this test is not private; use Barker, LazyBarker or Penalty")

    def answer(self, key, model: Model, rows: Table, position, proposal, log_ratio) -> Answer:
        bound = jnp.asarray(self.bound, jnp.float64)
        total = log_ratio_sum(model, rows, position, proposal, bound)
        clamped = clamped_log_ratio(total, log_ratio, self.temperature * bound / 2.0**BITS)
        probability = self.test.probability(clamped, jnp, special)
        return toss(key, probability, jnp.all(jnp.isfinite(proposal)))

    def cost(self, unit: Unit) -> costs.AcceptBit:
        range_ = self.temperature * self.bound * sensitivity(unit) + ROUNDING
        return costs.AcceptBit(self.test, range_, distance=noise.COIN_DISTANCE)


@dataclass(frozen=True)
class PenaltyAccept:
    """Release the accept bit of the penalty test whose clip and noise follow the move.

    Each row's log-ratio is clipped to b = clip * |proposal - position|, and the noise inside the test has the standard deviation
    s = noise_multiplier * T * (2b, or b when a row is added or removed) * rows per person. The cost is that of the longest move
    (at fixed range / s it grows with s); a longer one is rejected without reading the rows.
    """

    released: ClassVar[str] = "accept bits of proposed moves"
    is_bit: ClassVar[bool] = True

    clip: float
    noise_multiplier: float
    max_move: float
    temperature: float = 1.0

    def __post_init__(self) -> None:
        check_positive(clip=self.clip, noise_multiplier=self.noise_multiplier)
        check_positive(max_move=self.max_move, temperature=self.temperature)

    def answer(self, key, model: Model, rows: Table, position, proposal, log_ratio) -> Answer:
        move = move_length(position, proposal)
        is_allowed = (move > 0) & (move <= self.max_move)
        bound = self.clip * jnp.where(is_allowed, move, self.max_move)
        total = log_ratio_sum(model, rows, position, proposal, bound)
        clamped = clamped_log_ratio(total, log_ratio, self.temperature * bound / 2.0**BITS)
        sigma = self.noise_multiplier * self.temperature * bound * sensitivity(rows.unit)
        return toss(key, penalty_probability(clamped, sigma, jnp, special), is_allowed)

    def cost(self, unit: Unit) -> costs.AcceptBit:
        range_ = self.temperature * self.clip * self.max_move * sensitivity(unit)
        test = Penalty(self.noise_multiplier * range_)
        return costs.AcceptBit(test, range_ + ROUNDING, distance=noise.COIN_DISTANCE)


def clamped_log_ratio(total, log_ratio, grid):
    """grid (total + round(log_ratio / grid)), clamped."""
    # round() is odd, so l stays antisymmetric; a NaN from the prior is a rejection.
    public = jnp.round(jnp.clip(log_ratio.astype(jnp.float64) / grid, -(2.0**61), 2.0**61))
    public = jnp.where(jnp.isnan(public), -(2.0**61), public).astype(jnp.int64)
    return jnp.clip(grid * (total + public).astype(jnp.float64), -CLAMP, CLAMP)


def toss(key, probability, is_allowed) -> Answer:
    """The answer that is one coin; a move that is not allowed is rejected."""
    return Answer(noise.coin(key, probability) & is_allowed, jnp.zeros(()))
