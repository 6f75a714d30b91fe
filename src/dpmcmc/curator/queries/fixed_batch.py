r"""Acceptance tests on b of the n rows, drawn without replacement: the minibatch penalty and DP
Barker (approximate chains).

Row i of the batch gives v_i = clip(r_i / B) in [-1, 1], r_i its log-ratio and B its bound. With S =
sum v_i and Q = sum v_i^2,

    l*  = (n T B / b) S,
    v*  = (n T B)^2 (1 - b/n) (Q - S^2 / b) / (b (b - 1)).

l* estimates the tempered log-ratio of all rows, and v* the variance of l*, both without bias (the
papers divide by b instead of b - 1 and leave out the factor 1 - b/n of a draw without
replacement).

**One row.** Replace v by v' and let R be the sum of the others, |R| <= b - 1. Then

    S            changes by  v - v',
    Q - S^2 / b  changes by  (v - v') ((1 - 1/b)(v + v') - 2 R / b),

the latter by at most (1 - 1/b) u (|v + v'| + 2), u = |v - v'|. As |v + v'| <= 2 - u, that is at
most 4 (1 - 1/b), when all others agree and v changes its sign; when v' = 0 stands for an absent
row, |v + v'| = u <= 1 and it is at most 3 (1 - 1/b). Both are attained, together with the largest
change of S, so the sensitivity of l* - v* / 2 is exactly

    2 g + 2 g h    (replace),
    g + 3/2 g h    (add or remove),      g = n T B / b,  h = (1 - b/n) g.

That is for one and the same batch. Between batches that differ in one slot a row is swapped for
another, which is a replacement under both relations: at most twice the latter, as
`costs.SubsampledGaussian` assumes.

**Integers.** S is a sum of 30-bit integers. Their squares would not fit, so v* is made of v_i
rounded to a coarser grid 2^-c, such that b Q - S^2 fits 63 bits. The bounds above hold on any grid,
each by itself, so they are facts about integers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp

from dpmcmc.accounting import costs
from dpmcmc.checks import check_sizes
from dpmcmc.curator.noise import coins, gaussian, stream
from dpmcmc.curator.noise.noisy_sums import noisy
from dpmcmc.curator.queries import batches
from dpmcmc.curator.queries.accept import clamped_log_ratio, decide
from dpmcmc.curator.queries.correction import CORRECTIONS, Correction, draw
from dpmcmc.curator.queries.log_ratio import move_length, unit_ratios
from dpmcmc.curator.sums.exact_sum import BITS, Table, fixed_point, once, sum_counted
from dpmcmc.types import Answer, Array, Model, Neighbours, Unit

# Constants that carry a bound are taken this much smaller, for their own rounding
BELOW = 1 - 2.0**-50
# The same for DP Barker's log-ratio, whose bit is a comparison. Its rounding is a move of the
# log-ratio, as in `accept`, here by at most 2^-44: 2^-46 of itself within +-64, 2^-45 of the normal
# number times its deviation, and 2^-46 of sums below 128. Two tables make that 2^-43, and one row
# moves the log-ratio by more than 2^-16: what it is taken smaller by covers it.
BIT_BELOW = 1 - 2.0**-26


class BatchSums(NamedTuple):
    """The two sums of a batch, in integers."""

    total: Any  # S, in units of 2^-BITS
    spread: Any  # b Q - S^2 on the coarse grid, in units of 2^-2c: from 0 to b^2 2^2c


def coarse_bits(size: int) -> int:
    """c, such that (size 2^c)^2 is at most 2^62."""
    return min(15, 31 - (size - 1).bit_length())


def batch_sums(
    model: Model, table: Table, position, proposal, bound, size: int, slots, is_drawn
) -> BatchSums:
    """S and b Q - S^2 of the drawn slots; a slot without a row counts as v = 0."""
    rows, is_real = batches.gather(table, slots)
    # S and Q of the same
    units = once(lambda: unit_ratios(model, table, rows, position, proposal, bound), table.num_rows)
    # round() is odd, so v* is the same for the move and its reverse.
    coarse = jnp.round(units * 2.0 ** coarse_bits(size)).astype(jnp.int64)
    sums = [
        sum_counted(integers, is_drawn & is_real)
        for integers in (fixed_point(units), coarse, coarse * coarse)
    ]
    total, coarse_sum, squares = table.over_devices(sums)
    return BatchSums(total, size * squares - coarse_sum * coarse_sum)


@dataclass(frozen=True)
class BatchRatio:
    """The log-ratio of a batch, corrected and with Gaussian noise, for the `penalty` sampler.

    Released is  l* - v* / 2 + N(0, s^2)  (:cite:p:`raisa2021thesis` section 3.4). Each row's
    log-ratio is clipped to B = clip * |proposal - position|. l* estimates T times the log-ratio of
    all rows, T = temperature, and v* the variance of l*; subtracting v* / 2 here, as the sampler
    subtracts s^2 / 2, corrects for the batch. s = noise_multiplier * the sensitivity at this move
    (see the module), so the cost does not depend on the move. The sensitivity grows with n T / b
    times the bound, and its part from v* with the square of that: temper, and keep moves short.

    The chain is approximate: v* is itself an estimate, and l* only nearly normal. With v the
    variance of l* and k the skewness of the row ratios, a move far downhill is accepted about
    exp(v^2 / 4b - k v^(3/2) / 3 b^(1/2))  times as often as it should be: 1.0025 times for v = 1, b
    = 100 and rows without skewness or excess kurtosis.

    Attributes:
        clip: The most that one row contributes, per unit of the move's length.
        noise_multiplier: Standard deviation of the noise, divided by the sensitivity.
        batch: How many rows are drawn, of how many: at least 2.
        temperature: T, the power of the likelihood, a public constant.

    Raises:
        ValueError: A number is not positive and finite, or the batch is too small.

    Example:
        >>> from dpmcmc import Unit, queries
        >>> batch = queries.FixedBatch(10, of=1000)
        >>> query = queries.BatchRatio(clip=1.0, noise_multiplier=3.0, batch=batch)
        >>> round(query.cost(Unit()).rate, 4)  # the part of the rows in a batch
        0.01
    """

    released: ClassVar[str] = (
        "log-likelihood ratios of proposed moves on random batches, less half the variance, with "
        "Gaussian noise"
    )
    adds: ClassVar[bool] = True  # the answers of several owners

    clip: float
    noise_multiplier: float
    batch: batches.FixedBatch
    temperature: float = 1.0

    def __post_init__(self) -> None:
        check_sizes(self, "clip", "noise_multiplier", "temperature")
        _check_batch(self.batch, smallest=2)

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
        key_noise, key_batch = stream.random_words(key, (2, 8))
        slots = self.batch.draw(key_batch, rows)
        sums = batch_sums(model, rows, position, proposal, bound, self.batch.size, *slots)
        integer, grid = self.in_units_of_sensitivity(sums, bound, rows.unit)
        return noisy(key_noise, integer, self._integer_sigma(), grid)

    def in_units_of_sensitivity(
        self, sums: BatchSums, bound: Array, unit: Unit
    ) -> tuple[Array, Array]:
        """(l* - v* / 2) / its sensitivity as an integer multiple of 2^-BITS, and that unit's value.

        One row moves the integer by at most 2^BITS + `slack()`: the two weights are those of a
        mean, and what they multiply moves by at most `range_total` and `range_spread`.

        Args:
            sums: The sums of the batch.
            bound: B, what each row's log-ratio is clipped to.
            unit: Whom the promise protects.

        Returns:
            The integer, and what one step of it is worth.
        """
        size = self.batch.size
        of = self.batch.of
        range_total, range_spread = (
            (2.0, 2.0) if unit.neighbours is Neighbours.REPLACE_ONE else (1.0, 1.5)
        )
        g = self.temperature * bound * (of / size)
        h = (1 - self.batch.rate) * g
        weight_total = 1 / (range_total + h * range_spread)
        # = h weight_total, and finite for any h
        weight_spread = (1 - range_total * weight_total) / range_spread
        per_spread = BELOW * 2.0 ** (BITS - 2 * coarse_bits(size)) / (2 * (size - 1))
        value = weight_total * sums.total.astype(jnp.float64) - weight_spread * (
            per_spread * sums.spread.astype(jnp.float64)
        )
        return jnp.round(value).astype(jnp.int64), g * (range_total + h * range_spread) / 2.0**BITS

    def slack(self) -> float:
        """What rounding adds to the sensitivity 2^BITS of the integer.

        Both terms are below 2^BITS size and take fewer than 16 roundings in float64, on two tables:
        size 2^-17. Rounding to an integer adds at most 1.

        Returns:
            A bound on what rounding adds.
        """
        return 1 + self.batch.size * 2.0**-17

    def cost(self, unit: Unit) -> costs.SubsampledGaussian:
        """What one release reveals.

        Args:
            unit: Whom the promise protects.

        Returns:
            The cost.

        Raises:
            UnsupportedQuery: A person may have several rows.
        """
        return batches.subsampled_cost(
            self.batch,
            unit,
            self.noise_multiplier,
            gaussian.gaussian_tv_error(self._integer_sigma()),
        )

    def _integer_sigma(self) -> float:
        return self.noise_multiplier * (2.0**BITS + self.slack())


@dataclass(frozen=True)
class BatchBarker:
    """The accept bit of DP Barker, on a random batch.

    (:cite:p:`heikkila2019differentially`; :cite:p:`raisa2021thesis` Algorithm 3.) The move is
    accepted when  l* + c + N(0, s^2 - v*) + V > 0,  c the public part of the log-ratio, s^2 =
    noise_variance (2 or 1.5) and V the `correction` that makes N(0, s^2) + V nearly logistic: the
    batch brings the noise v*, the curator the rest.

    Each row's log-ratio is clipped to `bound`, about (s^2 b / 2)^(1/2) / (n T): then v* is at most
    s^2 / 2. Divided by (s^2 / 2)^(1/2), l* moves by at most 2 / b^(1/2) with one row, v* by at most
    4 (b - 1) / b^2, and the noise has a variance of 1 to 2: this is what `costs.DPBarker` is about,
    for the noisy log-ratio; the bit is made of it. So s^2 = 1.5 costs the same. It has a clip 13 %
    lower and a twentieth of the correction's error.

    The chain is approximate. The correction moves the chance of accepting by at most 5.9e-4 (s^2 =
    2) or 2.8e-5 (s^2 = 1.5). Besides, l* is only nearly normal and v* an estimate, which matters as
    v* approaches its bound and for small batches.

    Attributes:
        batch: How many rows are drawn, of how many: at least 6.
        temperature: T, the power of the likelihood, a public constant.
        noise_variance: s^2, 2.0 or 1.5: the variance of batch and noise together.

    Raises:
        ValueError: A number is not positive and finite, the batch is too small, or there is no
            correction for the noise variance.

    Example:
        >>> from dpmcmc import Unit, queries
        >>> query = queries.BatchBarker(queries.FixedBatch(10, of=1000))
        >>> query.cost(Unit()).batch
        10
        >>> round(query.bound, 4)
        0.003
    """

    released: ClassVar[str] = "accept bits of proposed moves, tested on random batches"
    is_bit: ClassVar[bool] = True

    batch: batches.FixedBatch
    temperature: float = 1.0
    noise_variance: float = 2.0

    def __post_init__(self) -> None:
        check_sizes(self, "temperature")
        _check_batch(self.batch, smallest=6)
        if self.noise_variance not in CORRECTIONS:
            raise ValueError(
                f"noise_variance={self.noise_variance} must be one of {sorted(CORRECTIONS)}: each "
                "needs its correction"
            )

    @property
    def correction(self) -> Correction:
        """The law of V."""
        return CORRECTIONS[self.noise_variance]

    @property
    def bound(self) -> float:
        """What each row's log-ratio is clipped to."""
        return self._scale() * math.sqrt(self.batch.size) / (self.batch.of * self.temperature)

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
        key_normal, key_correction, key_batch = stream.random_words(key, (3, 8))
        slots = self.batch.draw(key_batch, rows)
        sums = batch_sums(model, rows, position, proposal, self.bound, self.batch.size, *slots)
        mean, variance = self.noisy_log_ratio(sums, log_ratio)
        noise = jnp.sqrt(variance) * coins.normal(key_normal) + draw(
            key_correction, self.correction
        )
        return decide(mean, noise, jnp.all(jnp.isfinite(proposal)))

    def noisy_log_ratio(self, sums: BatchSums, log_ratio: Array) -> tuple[Array, Array]:
        """Mean and variance of the normal law that the cost is about: l* + c and s^2 - v*.

        Args:
            sums: The sums of the batch.
            log_ratio: c, the public part of the log-ratio.

        Returns:
            The mean and the variance.
        """
        size = self.batch.size
        mean = clamped_log_ratio(
            sums.total, log_ratio, BIT_BELOW * self._scale() / math.sqrt(size) / 2.0**BITS
        )
        per_spread = (
            BELOW
            * self._scale() ** 2
            * (1 - self.batch.rate)
            / (size * (size - 1))
            / 4.0 ** coarse_bits(size)
        )
        return mean, self.noise_variance - per_spread * sums.spread.astype(jnp.float64)

    def cost(self, unit: Unit) -> costs.DPBarker:
        """What one release reveals.

        It is the same for both relations: an absent row is a row with v = 0.

        Args:
            unit: Whom the promise protects.

        Returns:
            The cost.

        Raises:
            UnsupportedQuery: A person may have several rows.
        """
        batches.refuse_several_rows(unit)
        return costs.DPBarker(
            self.batch.size, self.batch.of, tv_error=coins.REAL_TV_ERROR + batches.TV_ERROR
        )

    def _scale(self) -> float:
        """n T bound / b^(1/2): the largest for which l* and v* keep their bounds.

        Neither does l* move too far nor can v*, the unbiased one, exceed s^2 / 2.
        """
        size = self.batch.size
        return math.sqrt(
            self.noise_variance / 2 * min(1.0, (size - 1) / size / (1 - self.batch.rate))
        )


def _check_batch(batch: Any, smallest: int) -> None:
    if not isinstance(batch, batches.FixedBatch):
        raise ValueError(f"batch={batch!r} must be a FixedBatch(size, of)")
    if batch.size < smallest:
        raise ValueError(
            f"size={batch.size} must be at least {smallest}: the batch's variance is estimated "
            "from its rows"
        )
