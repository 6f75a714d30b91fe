r"""Queries whose answer is the accept bit: the curator tosses the coin and releases nothing else.

With S the exact integer sum of clipped row ratios on the grid u = T b 2^-30 and c the sampler's
public log-ratio (prior and proposal), the coin falls with probability a(l), l = u (S + round(c /
u)). Both terms are integers, so two neighbouring tables differ in l by at most the range 2 T b
(replace) or T b (add or remove), times the rows per person.

**The coin.** Every test accepts when  l + X > 0,  with noise X of its own:

    Barker         X logistic
    lazy Barker    the same, if a coin of probability k allows it
    penalty        X = s Z - s^2/2 + E,  Z standard normal, E standard exponential.

That is how the bit is made. What is computed in floating point differs from l + X by at most some e
(below), so the bit is 1 where l + X > e and 0 where l + X < -e: its probability lies between a(l -
e) and a(l + e). As a is continuous, it is a(l') with |l' - l| <= e, exactly. So rounding moves the
log-ratio and not the law of the coin. It costs 2e of range, one for each of two tables, and nothing
of delta. (An error of a(l) itself would cost delta, e^epsilon-fold, and end what a budget can buy.)

**e.** With |l| <= 64, l takes two roundings: 2^-46. Barker: X adds 2^-44 (`coins.LOGISTIC_ERROR`).
Penalty: s Z adds 17 s 2^-50, E adds 134 2^-50, and the two products and three sums 2^-51 (64 + 17 s
+ s^2/2). The clip, the range and s are themselves public numbers in float64, right to 2^-50 of a
range of at most 128 where it matters: 2^-43 each. `rounding` is more than 2e and these. Z and E can
be further off, which `coins.REAL_TV_ERROR` charges to delta; a k-coin falls too rarely by 2^-62,
which reveals less.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import jax.numpy as jnp

from dpmcmc.acceptance import AcceptanceTest, LazyBarker, Penalty
from dpmcmc.accounting import costs
from dpmcmc.checks import check_sizes
from dpmcmc.curator.noise import coins, stream
from dpmcmc.curator.queries.log_ratio import log_ratio_sum, move_length
from dpmcmc.curator.sums.exact_sum import BITS, Table
from dpmcmc.errors import UnsupportedQuery
from dpmcmc.types import Answer, Array, Model, Unit

CLAMP = 64.0  # Barker's a(64) and a(-64) differ from 1 and 0 by 2^-92
PENALTY_TV_ERROR = 2 * coins.REAL_TV_ERROR
ROUNDING = 2.0**-41  # how much rounding can add to the range of Barker's test
# The penalty's noise follows the move down to this part of the longest: rounding must stay far
# below the noise
SHORTEST = 2.0**-8
# A row may move l by at least this much: 2^61 times its grid, for the public part, is then beyond
# CLAMP
SMALLEST = 2.0**-24


def check_bound(bound: float) -> None:
    """Refuse bits on a grid so fine that the public part of the log-ratio does not fit it."""
    if bound < SMALLEST:
        raise ValueError(
            f"a row's log-ratio is clipped to {bound:.3g}, here or in the shortest moves, and "
            f"less than {SMALLEST:.2g} is too small beside the prior's rounding: choose a larger "
            "bound (or clip, max_move, ratio, temperature)"
        )


def rounding(sigma: float) -> float:
    """How much rounding can add to the range of the penalty test."""
    return 2 * ROUNDING * (1 + sigma / 8) ** 2


@dataclass(frozen=True)
class Accept:
    """The accept bit of a test, each row's log-ratio clipped to the constant +-bound.

    Released is one coin of probability a(l). Asked with (position, proposal, log_ratio): the last
    is the public part of the log-ratio. A chain in which no row is clipped has exactly the
    posterior as its law.

    Attributes:
        test: The acceptance test: Barker(), LazyBarker(kappa) or Penalty(sigma).
        bound: The most that one row contributes to the log-ratio, whatever the move.
        temperature: The power of the likelihood, a public constant.

    Raises:
        ValueError: A number is not positive and finite, or the bound is too small for the grid.
        UnsupportedQuery: The test's accept bit is not private.

    Example:
        >>> from dpmcmc import Barker, Unit, queries
        >>> query = queries.Accept(Barker(), bound=0.1)
        >>> round(query.cost(Unit()).pure(), 3)  # epsilon of one bit
        0.2
    """

    released: ClassVar[str] = "accept bits of proposed moves"
    is_bit: ClassVar[bool] = True

    test: AcceptanceTest
    bound: float
    temperature: float = 1.0

    def __post_init__(self) -> None:
        check_sizes(self, "bound", "temperature")
        check_bound(self.temperature * self.bound)
        if not isinstance(self.test, AcceptanceTest):
            raise UnsupportedQuery(
                f"{self.test}: its accept bit is not private; use Barker(), LazyBarker() or "
                "Penalty(sigma)"
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
        bound = jnp.asarray(self.bound, jnp.float64)
        total = log_ratio_sum(model, rows, position, proposal, bound)
        clamped = clamped_log_ratio(total, log_ratio, self.temperature * bound / 2.0**BITS)
        return decide(clamped, noise_of(key, self.test), jnp.all(jnp.isfinite(proposal)))

    def cost(self, unit: Unit) -> costs.AcceptBit:
        """What one release reveals.

        Args:
            unit: Whom the promise protects.

        Returns:
            The cost.
        """
        range_ = self.temperature * self.bound * unit.sensitivity
        if isinstance(self.test, Penalty):
            return costs.AcceptBit(
                self.test, range_ + rounding(self.test.sigma), tv_error=PENALTY_TV_ERROR
            )
        return costs.AcceptBit(self.test, range_ + ROUNDING)


@dataclass(frozen=True)
class PenaltyAccept:
    """The accept bit of the penalty test whose clip and noise follow the move.

    Each row's log-ratio is clipped to b = clip * |proposal - position|, and the noise inside the
    test has the standard deviation s = noise_multiplier * T * (2b, or b when a row is added or
    removed) * rows per person. The cost is that of the longest move (at fixed range / s it grows
    with s); a longer one is rejected without reading the rows, a very short one (`SHORTEST`) has
    the clip and the noise of a longer one.

    Attributes:
        clip: The most that one row contributes, per unit of the move's length.
        noise_multiplier: Standard deviation of the noise, divided by the range of the log-ratio.
        max_move: The longest move that is tested.
        temperature: T, the power of the likelihood, a public constant.

    Raises:
        ValueError: A number is not positive and finite, or the clip is too small for the grid.

    Example:
        >>> from dpmcmc import Unit, queries
        >>> query = queries.PenaltyAccept(clip=1.0, noise_multiplier=4.0, max_move=0.1)
        >>> round(query.cost(Unit()).rho(), 5)
        0.03125
    """

    released: ClassVar[str] = "accept bits of proposed moves"
    is_bit: ClassVar[bool] = True

    clip: float
    noise_multiplier: float
    max_move: float
    temperature: float = 1.0

    def __post_init__(self) -> None:
        check_sizes(self, "clip", "noise_multiplier", "max_move", "temperature")
        check_bound(self.temperature * self.clip * self.max_move * SHORTEST)

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
        move = move_length(position, proposal)
        is_allowed = (move > 0) & (move <= self.max_move)
        bound = self.clip * jnp.where(
            is_allowed, jnp.maximum(move, SHORTEST * self.max_move), self.max_move
        )
        total = log_ratio_sum(model, rows, position, proposal, bound)
        clamped = clamped_log_ratio(total, log_ratio, self.temperature * bound / 2.0**BITS)
        sigma = self.noise_multiplier * self.temperature * bound * rows.unit.sensitivity
        return decide(clamped, penalty_noise(key, sigma), is_allowed)

    def cost(self, unit: Unit) -> costs.AcceptBit:
        """What one release reveals.

        Args:
            unit: Whom the promise protects.

        Returns:
            The cost.
        """
        range_ = self.temperature * self.clip * self.max_move * unit.sensitivity
        test = Penalty(self.noise_multiplier * range_)
        # Divided by the noise, rounding weighs most at the shortest move.
        return costs.AcceptBit(
            test, range_ + rounding(test.sigma) / SHORTEST, tv_error=PENALTY_TV_ERROR
        )


def clamped_log_ratio(total, log_ratio, grid):
    """grid * (total + round(log_ratio / grid)), added in integers, within +-CLAMP."""
    # round() is odd, so l stays antisymmetric; a NaN from the prior is a rejection.
    public = jnp.round(jnp.clip(log_ratio.astype(jnp.float64) / grid, -(2.0**61), 2.0**61))
    public = jnp.where(jnp.isnan(public), -(2.0**61), public).astype(jnp.int64)
    return jnp.clip(grid * (total + public).astype(jnp.float64), -CLAMP, CLAMP)


def noise_of(key, test: AcceptanceTest):
    """X, such that the test accepts when l + X > 0."""
    if isinstance(test, Penalty):
        return penalty_noise(key, test.sigma)
    if isinstance(test, LazyBarker):
        key, key_lazy = stream.random_words(key, (2, 8))
        return jnp.where(
            coins.coin(key_lazy, jnp.float64(test.kappa)), coins.logistic(key), -jnp.inf
        )
    return coins.logistic(key)


def penalty_noise(key, sigma):
    key_normal, key_exponential = stream.random_words(key, (2, 8))
    return sigma * coins.normal(key_normal) - sigma**2 / 2 + coins.exponential(key_exponential)


def decide(log_ratio, noise, is_allowed) -> Answer:
    """The accept bit l + X > 0; a move that is not allowed is rejected."""
    return Answer((noise > -log_ratio) & is_allowed, jnp.zeros(()))


def toss(key, probability, is_allowed) -> Answer:
    """An accept bit of the given probability, for queries that promise nothing.

    Its rounding is on no bill.
    """
    return Answer(coins.coin(key, probability) & is_allowed, jnp.zeros(()))
