r"""The log-likelihood ratio on a random batch, by TunaMH :cite:p:`zhang2020asymptotically`, and
tests that stay exact on it.

Row i's log-ratio d is clipped to the public constant +-b. The row is drawn a Poisson(q) number of
times, q = b (1 + 1/x), each draw is kept by a coin, and each kept draw adds w to the log-ratio:

    w = 2 artanh(d / (b (1 + 2/x))),      |w| <= W = log(1 + x),
    P(keep) = (x + 2)/(x + 1) / (1 + e^w).

x is `ratio`, in the paper n b / lambda. So K ~ Poisson(m) draws are kept, m(d) = b/x + (b - d)/2,
and  m(-d) = e^w m(d)  is why any test with a(l) = e^l a(-l) on the sum l of all K w is reversible,
and exact when no row is clipped. q does not depend on the number of rows: one hundredth of
them is read with b (1 + 1/x) = 0.01.

**On the grid.** w / W is truncated toward zero to the grid 2^-30, which is odd, and the chance of
keeping is computed from the truncated w. Then the pair (w, m) is exactly that of a row with the
difference  d' = b (1 + 2/x) tanh(w/2),  |d'| <= b: the balance above and the bill hold with no
charge for the truncation. The terms are added as integers.

**What is charged** beside the ideal bill. Given what all other rows add, which has the same law on
both tables, only draws of the changed row matter. The noisy ratio's bill is for any row that is
drawn Poisson(q) times and adds at most W, either way, each time, whatever the chance of keeping: so
a coin that is off costs nothing, and the rate q is taken a little larger for its rounding. The
accept bit's bill is for this very law. An error adds to either loss (`rounding`): a chance of
keeping, at least 1/(1 + x), that is off by c makes K Poisson(m (1 + r)) with |r| <= c (1 + x), and
the logarithms of both chances of the bit have derivatives in log m of at most  m e^|w| <= b (1 +
x)^2 / x. The bit is made by comparison, as in `accept`: rounding moves l by at most e, and those
logarithms have derivatives in l of at most 1. Both count twice, once for each table. The
total-variation error of the batch is charged to delta.

**A row added or removed** is a slot that has no row on one of the tables. It adds nothing, and
neither does a row with d = 0, whose w is 0 however often it is kept. So that pair of tables is one
of those that replacing a row allows, and the same bill covers it. (The noisy ratio has a bill of
its own for this relation, and a smaller one.)

DP-Fast MH :cite:p:`zhang2023dpfast` on all rows, with noise and its penalty, is `LogRatio` with the
penalty sampler, or `PenaltyAccept`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
from jax.scipy import special

from dpmcmc.acceptance import Barker, Metropolis
from dpmcmc.accounting import costs
from dpmcmc.checks import check_sizes, whole
from dpmcmc.curator.noise import coins, gaussian, stream
from dpmcmc.curator.noise.noisy_sums import noisy
from dpmcmc.curator.queries import batches
from dpmcmc.curator.queries.accept import (
    ROUNDING,
    check_bound,
    clamped_log_ratio,
    decide,
    noise_of,
    toss,
)
from dpmcmc.curator.queries.log_ratio import log_ratio_sum, unit_ratios
from dpmcmc.curator.sums.exact_sum import BITS, Table, fixed_point, once, sum_counted
from dpmcmc.types import Answer, Array, Model, Unit, traits

LARGE = 2**17  # entries of a batch
MAX_RATIO = 50.0  # beyond, reading fewer rows costs more than it saves


@dataclass(frozen=True)
class TunaBarker:
    """Barker's accept bit on a random batch: private without noise.

    Exact when no row is clipped. Asked with (position, proposal, log_ratio), as `Accept`. Each
    row's log-ratio is clipped to the constant +-bound and then multiplied by the temperature T; a
    row is drawn T bound (1 + 1/ratio) times on average. A larger ratio reads fewer rows, accepts
    less and costs more; a smaller one comes near `Accept` with Barker's test in both.

    Attributes:
        bound: The most that one row contributes to the log-ratio, whatever the move.
        ratio: x of the module's formulas: how few rows are read.
        temperature: T, the power of the likelihood, a public constant.

    Raises:
        ValueError: A number is not positive and finite, or the ratio is out of its range.

    Example:
        >>> from dpmcmc import Unit, queries
        >>> query = queries.TunaBarker(bound=0.1)
        >>> round(query.cost(Unit()).pure(), 3)  # epsilon of one bit
        0.25
    """

    released: ClassVar[str] = "accept bits of proposed moves"
    is_bit: ClassVar[bool] = True

    bound: float
    ratio: float = 1.0
    temperature: float = 1.0

    def __post_init__(self) -> None:
        _check(self)

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
        key_batch, key_coin = stream.random_words(key, (2, 8))
        total = batch_ratio(key_batch, self, model, rows, position, proposal)
        clamped = clamped_log_ratio(total, log_ratio, _grid(self))
        return decide(clamped, noise_of(key_coin, Barker()), jnp.all(jnp.isfinite(proposal)))

    def cost(self, unit: Unit) -> costs.MinibatchBarker:
        """What one release reveals.

        Args:
            unit: Whom the promise protects.

        Returns:
            The cost.

        Raises:
            UnsupportedQuery: A person may have several rows.
        """
        batches.refuse_several_rows(unit)
        bound = self.temperature * self.bound
        rounding = ROUNDING + 2 * coins.COIN_TV_ERROR * bound * (1 + self.ratio) ** 3 / self.ratio
        return costs.MinibatchBarker(
            bound, self.ratio, tv_error=batches.TV_ERROR, rounding=rounding
        )


@dataclass(frozen=True)
class TunaRatio:
    """The log-ratio of a random batch with Gaussian noise, for the `penalty` sampler.

    Several owners' answers add. Rows are clipped and drawn as in `TunaBarker`. The noise has the
    standard deviation noise_multiplier * log(1 + ratio): one draw of one row moves the log-ratio by
    at most log(1 + ratio), and a row may be drawn more than once.

    Attributes:
        bound: The most that one row contributes to the log-ratio, whatever the move.
        noise_multiplier: Standard deviation of the noise, divided by log(1 + ratio).
        ratio: x of the module's formulas: how few rows are read.
        temperature: The power of the likelihood, a public constant.

    Raises:
        ValueError: A number is not positive and finite, or the ratio is out of its range.

    Example:
        >>> from dpmcmc import Unit, queries
        >>> cost = queries.TunaRatio(bound=0.1, noise_multiplier=3.0).cost(Unit())
        >>> round(cost.rate, 3)  # how often a row is drawn, on average
        0.2
    """

    released: ClassVar[str] = (
        "log-likelihood ratios of proposed moves on random batches, with Gaussian noise"
    )
    adds: ClassVar[bool] = True  # the answers of several owners

    bound: float
    noise_multiplier: float
    ratio: float = 1.0
    temperature: float = 1.0

    def __post_init__(self) -> None:
        _check(self)
        check_sizes(self, "noise_multiplier")

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
        key_batch, key_noise = stream.random_words(key, (2, 8))
        total = batch_ratio(key_batch, self, model, rows, position, proposal)
        return noisy(key_noise, total, self.noise_multiplier * 2.0**BITS, _grid(self))

    def cost(self, unit: Unit) -> costs.PoissonMixture:
        """What one release reveals.

        Args:
            unit: Whom the promise protects.

        Returns:
            The cost.

        Raises:
            UnsupportedQuery: A person may have several rows.
        """
        batches.refuse_several_rows(unit)
        rate = _rate(self) * (1 + batches.RATE_ROUNDING)
        weight = math.log1p(self.ratio)
        tv_error = batches.TV_ERROR + gaussian.gaussian_tv_error(self.noise_multiplier * 2.0**BITS)
        return costs.PoissonMixture(
            rate, weight, self.noise_multiplier * weight, unit.neighbours, tv_error=tv_error
        )


@dataclass(frozen=True)
class TunaMetropolis:
    """Metropolis' accept bit on a random batch: TunaMH itself, exact and NOT private.

    It is for comparison with `TunaBarker`, and is asked and drawn as that one.

    Attributes:
        bound: The most that one row contributes to the log-ratio, whatever the move.
        ratio: x of the module's formulas: how few rows are read.
        temperature: The power of the likelihood, a public constant.

    Raises:
        ValueError: A number is not positive and finite, or the ratio is out of its range.

    Example:
        >>> from dpmcmc import Unit, queries
        >>> queries.TunaMetropolis(bound=0.1).cost(Unit()).rho()
        inf
    """

    released: ClassVar[str] = "accept bits of Metropolis' test, without any protection"
    is_bit: ClassVar[bool] = True

    bound: float
    ratio: float = 1.0
    temperature: float = 1.0

    def __post_init__(self) -> None:
        _check(self)

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
        key_batch, key_coin = stream.random_words(key, (2, 8))
        total = batch_ratio(key_batch, self, model, rows, position, proposal)
        probability = Metropolis().probability(
            clamped_log_ratio(total, log_ratio, _grid(self)), jnp, special
        )
        return toss(key_coin, probability, jnp.all(jnp.isfinite(proposal)))

    def cost(self, unit: Unit) -> costs.NonPrivate:
        """What one release reveals.

        Args:
            unit: Whom the promise protects.

        Returns:
            The cost.
        """
        return costs.NonPrivate(
            "Metropolis' test accepts with certainty where the ratio is above one, so a rejection "
            "can rule a table out"
        )


@dataclass(frozen=True)
class PublishedFastMH:
    """The accept bit of DP-Fast MH as published (:cite:p:`zhang2023dpfast` Algorithm 2).

    NOT private: for exhibition only. A batch of `max_batch` draws or more is replaced by all rows.
    Faults kept: the penalty is subtracted even where no noise was added, and the bit is
    Metropolis'. The bounds here are public constants.

    Attributes:
        bound: The most that one row contributes to the log-ratio, whatever the move.
        epsilon: The epsilon that the paper claims for one step.
        delta: The delta that the paper claims for one step.
        max_batch: The number of draws from which on all rows are used.
        ratio: x of the module's formulas: how few rows are read.
        temperature: The power of the likelihood, a public constant.

    Raises:
        ValueError: A number is not positive and finite, or out of its range.

    Example:
        >>> from dpmcmc import Unit, queries
        >>> query = queries.PublishedFastMH(bound=0.1, epsilon=1.0, delta=1e-5, max_batch=100)
        >>> query.cost(Unit()).rho()
        inf
    """

    released: ClassVar[str] = "accept bits of DP-Fast MH as published, without any protection"
    is_bit: ClassVar[bool] = True

    bound: float
    epsilon: float
    delta: float
    max_batch: int
    ratio: float = 1.0
    temperature: float = 1.0

    def __post_init__(self) -> None:
        _check(self)
        check_sizes(self, "epsilon", "delta", "max_batch")
        whole("max_batch", self.max_batch)

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
        key_batch, key_noise, key_coin = stream.random_words(key, (3, 8))
        total, number = _batch(key_batch, self, model, rows, position, proposal)
        is_small = number < self.max_batch
        value = _grid(self) * total.astype(jnp.float64)
        whole = log_ratio_sum(model, rows, position, proposal, self.bound).astype(jnp.float64)
        value = jnp.where(is_small, value, self.temperature * self.bound * 2.0**-BITS * whole)
        for is_used, (deviation, is_noisy) in zip(
            (is_small, ~is_small), self.noises(rows.capacity or rows.num_slots), strict=True
        ):
            noisy = (
                value
                + is_noisy
                * deviation
                * gaussian.discrete_gaussian(key_noise, (), 2.0**BITS)
                * 2.0**-BITS
            )
            value = jnp.where(is_used, noisy - deviation**2 / 2, value)
        probability = Metropolis().probability(value + log_ratio.astype(jnp.float64), jnp, special)
        return toss(key_coin, jnp.nan_to_num(probability), jnp.all(jnp.isfinite(proposal)))

    def noises(self, num_rows: int) -> tuple[tuple[float, bool], tuple[float, bool]]:
        """For the batch and for all rows: a standard deviation, and whether such noise is added.

        Half the square of the standard deviation is subtracted in any case.

        Args:
            num_rows: The number of rows of the table.

        Returns:
            (standard deviation, whether noise is added) of the batch, then of all rows.
        """
        share = 6 * self.max_batch / num_rows
        batch_range = 2 * math.log1p(self.ratio)
        range_ = 2 * self.temperature * self.bound
        batch_scale = (
            share
            * math.sqrt(2 * max(0.0, math.log(2.5 * self.max_batch / num_rows / self.delta)))
            / self.epsilon
        )
        scale = math.sqrt(2 * math.log(1.25 / self.delta)) / self.epsilon
        return (batch_scale * batch_range, batch_range > self.epsilon / share), (
            scale * range_,
            range_ > self.epsilon,
        )

    def cost(self, unit: Unit) -> costs.NonPrivate:
        """What one release reveals.

        Args:
            unit: Whom the promise protects.

        Returns:
            The cost.
        """
        return costs.NonPrivate(
            "DP-Fast MH as published: its proof bounds acceptances only, and a rejection can rule "
            "a table out; its bounds and batch sizes are read off the rows; its penalty is "
            "subtracted where no noise was added; its code draws uniform noise; its composition "
            "allows no step at all at (1, 1e-5)"
        )


def batch_ratio(key, query, model: Model, table: Table, position, proposal):
    """The exact integer sum of the kept draws' terms, in units of W 2^-BITS."""
    return _batch(key, query, model, table, position, proposal)[0]


def term(unit_value, ratio: float):
    """w / W on the grid, as an integer, from d / b in [-1, 1].

    It is odd, by  2 artanh(t) = sign(t) log1p(2 |t| / (1 - |t|)).
    """
    part = jnp.abs(unit_value.astype(jnp.float64)) / (1 + 2 / ratio)
    size = fixed_point(jnp.minimum(jnp.log1p(2 * part / (1 - part)) / math.log1p(ratio), 1.0))
    return jnp.where(unit_value < 0, -size, size)


def keep_probability(integer_term, ratio: float):
    return (
        (ratio + 2)
        / (ratio + 1)
        * special.expit(-math.log1p(ratio) * 2.0**-BITS * integer_term.astype(jnp.float64))
    )


def _batch(key, query, model: Model, table: Table, position, proposal):
    """The integer sum, and how many draws it took (not for release)."""
    draws = batches.repeated_draws(key, table, _rate(query))
    log_ratios, is_real = batches.map_drawn(
        _by_chains(model, table, position, proposal, query.bound), table, draws
    )
    # What is tossed for is what is added
    terms = once(lambda: term(log_ratios, query.ratio), table.num_rows)
    is_kept = coins.coin_of(draws.words, keep_probability(terms, query.ratio))
    total = sum_counted(terms, is_real & is_kept)
    return table.over_devices(total), draws.ends[-1]


def _by_chains(model: Model, table: Table, position, proposal, bound: float):
    """rows -> each row's log-ratio / bound, clipped to [-1, 1]."""

    def values(position, proposal, rows):
        return unit_ratios(model, table, rows, position, proposal, bound)

    def by_chains(rows):
        # Every chain has rows of its own, and on a CPU several products of a large matrix and a
        # vector are faster one by one.
        is_large = sum(leaf.size for leaf in jax.tree.leaves(rows)) > LARGE
        one_by_one = is_large and jax.default_backend() == "cpu" and not table.is_double
        return (jax.custom_batching.sequential_vmap(values) if one_by_one else values)(
            position, proposal, rows
        )

    return by_chains


def _rate(query) -> float:
    return query.temperature * query.bound * (1 + 1 / query.ratio)


def _grid(query) -> float:
    return math.log1p(query.ratio) / 2.0**BITS


def _check(query) -> None:
    check_sizes(query, "bound", "ratio", "temperature")
    if traits(query).is_bit:
        check_bound(math.log1p(query.ratio))
    if query.ratio > MAX_RATIO:
        raise ValueError(
            f"ratio={query.ratio} must be at most {MAX_RATIO:g}: beyond, a step costs more than it "
            "saves"
        )
