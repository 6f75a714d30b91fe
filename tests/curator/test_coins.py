"""Accept bits: what rounding does to them is a small move of the log-ratio, and their bill has no
limit but the budget.
"""

from fractions import Fraction

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from scipy import stats

from dpmcmc import Barker, LazyBarker, models
from dpmcmc.acceptance import Penalty
from dpmcmc.accounting import calibrate
from dpmcmc.curator.noise import cipher, coins, stream
from dpmcmc.curator.queries import accept
from dpmcmc.curator.queries.accept import SHORTEST, SMALLEST
from dpmcmc.curator.sums.exact_sum import Table
from dpmcmc.queries import Accept, NonPrivateAccept, PenaltyAccept, TunaBarker
from dpmcmc.types import Neighbours, Unit

BITS = 192
TESTS = [Barker(), LazyBarker(0.3), Penalty(0.02), Penalty(2.2), Penalty(30.0)]


def uniforms(seed, smallest):
    """192-bit integers: everywhere, near 1/2, and in both tails as far as `smallest` bits."""
    rng = np.random.default_rng(seed)
    anywhere = [int.from_bytes(rng.bytes(BITS // 8), "big") for _ in range(60)]
    tails = [int(mpmath.mpf(2) ** size) for size in rng.uniform(smallest, BITS, 60)]
    middle = [
        2 ** (BITS - 1) + sign * 2**size for size in range(0, BITS - 1, 8) for sign in (-1, 1)
    ]
    return [*anywhere, *tails, *(2**BITS - 1 - k for k in tails), *middle]


def words_of(integers):
    words = [[(k >> shift) % 2**32 for shift in range(BITS - 32, -1, -32)] for k in integers]
    return jnp.asarray(np.array(words, np.uint32))


@pytest.fixture
def from_words(monkeypatch):
    """draw(function, k): a draw of real noise, compiled, of each 192-bit uniform k."""
    monkeypatch.setattr(stream, "random_words", lambda words, shape: words)

    def draw(function, integers):
        with jax.enable_x64(True):
            return np.asarray(jax.jit(jax.vmap(function))(words_of(integers)))

    return draw


def ends(integer):
    """Between these is the uniform number whose first bits are those of the integer."""
    return mpmath.mpf(integer) / 2**BITS, mpmath.mpf(integer + 1) / 2**BITS


def normal_quantile(u):
    part = min(u, 1 - u)
    x = -mpmath.sqrt(max(0, -2 * mpmath.log(2 * part)))
    for _ in range(200):
        step = (mpmath.ncdf(x) - part) / mpmath.npdf(x)
        step /= 1 + x * step / 2
        x -= step
        if abs(step) < mpmath.mpf(10) ** -40:
            return x if u < 0.5 else -x
    raise AssertionError(u)


REAL = {
    "logistic": (coins.logistic, lambda u: mpmath.log(u / (1 - u)), coins.LOGISTIC_ERROR, 90),
    "exponential": (coins.exponential, lambda u: -mpmath.log(u), coins.EXPONENTIAL_ERROR, 50),
    "normal": (coins.normal, normal_quantile, coins.NORMAL_ERROR, 50),
}


def worst(found, exact, integers):
    return max(
        abs(exact(u) - mpmath.mpf(float(value)))
        for value, k in zip(found, integers, strict=True)
        for u in ends(k)
    )


@pytest.mark.parametrize("name", REAL)
def test_real_noise_is_within_its_error_of_any_continuation_of_its_bits(from_words, name):
    function, exact, error, smallest = REAL[name]
    integers = uniforms(1, smallest)
    with mpmath.workdps(80):
        assert worst(from_words(function, integers), exact, integers) < error / 2
        single = [np.float32(value) for value in from_words(function, integers)]
        assert worst(single, exact, integers) > 1000 * error


def test_real_noise_beyond_its_bits_is_far_out(from_words):
    """Fewer leading bits than the errors are stated for: wherever the ideal draw is, both are
    beyond any clamped log-ratio.
    """
    few = [0, 1, 2**50, 2**90]
    assert np.all(from_words(coins.logistic, few) < -accept.CLAMP - 1)
    assert np.all(from_words(coins.logistic, [2**BITS - 1 - k for k in few]) > accept.CLAMP + 1)
    assert -np.log(2.0) * (BITS - 92) < -accept.CLAMP


@pytest.mark.parametrize("sigma", [1e-3, 0.1, 2.2, 30.0, 300.0])
def test_rounding_of_the_penalty_noise_is_charged(monkeypatch, sigma):
    """sigma Z - sigma^2 / 2 + E against 60 digits, from Z and E as the compiled block draws
    them."""
    rng = np.random.default_rng(2)
    normals, exponentials = rng.normal(size=500) * 5, rng.exponential(size=500) * 5
    monkeypatch.setattr(stream, "random_words", lambda pair, shape: pair)
    monkeypatch.setattr(coins, "normal", lambda value: value)
    monkeypatch.setattr(coins, "exponential", lambda value: value)
    with jax.enable_x64(True):
        pairs = jnp.asarray(np.stack([normals, exponentials], axis=1))
        found = np.asarray(
            jax.jit(jax.vmap(lambda pair: accept.penalty_noise(pair, jnp.float64(sigma))))(pairs)
        )
    s = Fraction(sigma)
    exact = [
        s * Fraction(z) - s * s / 2 + Fraction(e)
        for z, e in zip(normals, exponentials, strict=True)
    ]
    error = float(max(abs(Fraction(float(f)) - e) for f, e in zip(found, exact, strict=True)))
    rest = coins.EXPONENTIAL_ERROR + sigma * coins.NORMAL_ERROR + 2.0**-46
    assert 2 * (error + rest) + 2 * 2.0**-43 < accept.rounding(sigma)
    assert accept.rounding(sigma) < 1e-10 * (1 + sigma)  # or every range would cost noticeably more


def test_rounding_of_a_clamped_log_ratio_is_charged():
    rng = np.random.default_rng(3)
    totals, grids = rng.integers(-(2**50), 2**50, 500), 2.0 ** rng.uniform(-54, -30, 500)
    # Large, and nearly what the rows say: only integers cancel exactly
    public = rng.uniform(-60, 60, 500) - grids * totals
    with jax.enable_x64(True):
        found = jax.jit(accept.clamped_log_ratio)(
            jnp.asarray(totals), jnp.asarray(public), jnp.asarray(grids)
        )
    integers = totals + np.round(public / grids).astype(np.int64)
    exact = [min(max(Fraction(g) * int(t), -64), 64) for g, t in zip(grids, integers, strict=True)]
    error = float(max(abs(Fraction(float(f)) - e) for f, e in zip(found, exact, strict=True)))
    assert 2.0**-49 < error <= 2.0**-46
    assert 2 * (error + coins.LOGISTIC_ERROR) + 2.0**-43 < accept.ROUNDING


# -- how often they fall --------------------------------------------------------------------------

NUM, LOG_RATIOS = 200_000, (-2.5, -0.8, 0.4, 3.0)


def falls(draw):
    """How many bits of NUM are 1, for each log-ratio."""
    with jax.enable_x64(True):
        counters = jnp.pad(jnp.arange(NUM, dtype=jnp.uint32)[:, None], ((0, 0), (0, 3)))
        keys = cipher.chacha20(jnp.arange(8, dtype=jnp.uint32), counters)[:, :8]
        bits = jax.jit(
            jax.vmap(lambda key: accept.decide(jnp.asarray(LOG_RATIOS), draw(key), True).value)
        )(keys)
        return np.asarray(bits.sum(axis=0)).tolist()


def smallest_pvalue(test, draw):
    chances = np.exp(test.log_probabilities(np.array(LOG_RATIOS))[0])
    return min(
        stats.binomtest(heads, NUM, chance).pvalue
        for heads, chance in zip(falls(draw), chances, strict=True)
    )


@pytest.mark.parametrize(
    "test", [*TESTS[:-1], pytest.param(TESTS[-1], marks=pytest.mark.slow)], ids=str
)
def test_bits_fall_as_often_as_they_should(test):
    # False alarm: 4e-6 per test (exact binomial tests).
    assert smallest_pvalue(test, lambda key: accept.noise_of(key, test)) > 1e-6


BROKEN = {
    "logistic five per cent wide": (Barker(), lambda key: 1.05 * coins.logistic(key)),
    "lazy coin forgotten": (LazyBarker(0.98), lambda key: coins.logistic(key)),
    "penalty not subtracted": (
        Penalty(0.2),
        lambda key: accept.penalty_noise(key, 0.2) + 0.2**2 / 2,
    ),
    "exponential forgotten": (
        Penalty(2.2),
        lambda key: accept.penalty_noise(key, 2.2) - coins.exponential(key),
    ),
    "one key for both": (
        Penalty(2.2),
        lambda key: 2.2 * coins.normal(key) - 2.2**2 / 2 + coins.exponential(key),
    ),
}


@pytest.mark.parametrize("test, draw", BROKEN.values(), ids=BROKEN)
def test_broken_bits_are_caught(test, draw):
    assert smallest_pvalue(test, draw) < 1e-6


# -- the bill -------------------------------------------------------------------------------------


def test_a_larger_budget_buys_more_bits():
    for query in (
        Accept(Barker(), 0.02),
        Accept(LazyBarker(0.5), 0.02),
        PenaltyAccept(1.0, 50.0, 0.02),
    ):
        fits = [
            calibrate.steps({query.cost(Unit()): 1}, epsilon, 1e-6)
            for epsilon in (4.0, 8.0, 20.0, 50.0)
        ]
        assert np.all(np.diff(fits) > 0.2 * np.array(fits[:-1])), (query, fits)


@pytest.mark.parametrize("query, rounding, distance", [
    (Accept(Barker(), 0.02), accept.ROUNDING, 0.0),
    (Accept(LazyBarker(0.5), 0.02), accept.ROUNDING, 0.0),
    (Accept(Penalty(2.0), 0.02), accept.rounding(2.0), 2 * coins.REAL_TV_ERROR),
    (PenaltyAccept(1.0, 50.0, 0.02), accept.rounding(2.0) / SHORTEST, 2 * coins.REAL_TV_ERROR),
], ids=["barker", "lazy", "penalty", "moves"])  # fmt: skip
def test_bits_are_charged_for_rounding_and_barkers_costs_nothing_of_delta(
    query, rounding, distance
):
    cost = query.cost(Unit())
    assert cost.range - 0.04 == pytest.approx(rounding, rel=1e-3, abs=1e-16)
    assert cost.tv_error == distance < 1e-41


UNITS = {
    "replace": (Unit(), 2),
    "add": (Unit(Neighbours.ADD_OR_REMOVE_ONE), 1),
    "two rows": (Unit(rows_per_person=2), 4),
}


@pytest.mark.parametrize("unit, factor", UNITS.values(), ids=UNITS)
def test_the_noise_of_a_bit_that_follows_the_move_is_the_stated_one(unit, factor):
    """False alarm: 1e-6 per unit (exact binomial test of 20 000 bits). Half of the noise is caught,
    and so is a tenth more.
    """
    query = PenaltyAccept(clip=1.0, noise_multiplier=4.0, max_move=1.0, temperature=0.5)
    with jax.enable_x64(True):
        table = Table((jnp.zeros((8, 1), jnp.float32),), jnp.int64(8), unit)
        keys = stream.random_words(jnp.arange(8, dtype=jnp.uint32), (20_000, 8))

        @jax.jit
        def accepted(move, log_ratio):
            points = jnp.zeros(1, jnp.float32), jnp.full(1, move, jnp.float32), log_ratio
            return jax.vmap(
                lambda key: query.answer(key, models.gaussian(np.ones(1)), table, *points).value
            )(keys).sum()

        # Eight rows at 0 say -1/8 each of a move of 1/2, all in all -1/2: so the log-ratio of this
        # one is 0.
        heads = int(accepted(0.5, 0.5))
        assert accepted(1.25, 60.0) == 0  # longer than it is billed for
    sigma = 4.0 * 0.5 * factor * 0.5
    chances = {part: 2 * stats.norm.cdf(-part * sigma / 2) for part in (1.0, 0.5, 1.1)}
    found = {
        part: stats.binomtest(heads, 20_000, chance).pvalue > 1e-6
        for part, chance in chances.items()
    }
    assert found == {1.0: True, 0.5: False, 1.1: False}


@pytest.mark.parametrize("part", [1.0, 0.3, 1e-2, 1e-6, 1e-12])
def test_short_moves_keep_the_ratio_of_range_and_noise_that_is_charged(part):
    """The clip and the noise of a move, rounding included, in units of the noise."""
    query, unit = PenaltyAccept(2.0, 40.0, 0.5), Unit()
    cost = query.cost(unit)
    range_ = 2 * query.clip * query.max_move * max(part, accept.SHORTEST)
    sigma = query.noise_multiplier * range_
    assert (range_ + accept.rounding(sigma)) / sigma <= cost.range / cost.test.sigma
    unlimited = 2 * query.clip * query.max_move * part
    is_covered = (unlimited + accept.rounding(0.0)) / (
        query.noise_multiplier * unlimited
    ) <= cost.range / cost.test.sigma
    assert is_covered == (part > 1e-3)


@pytest.mark.parametrize("make, least", [
    (lambda size: Accept(Barker(), bound=size), SMALLEST),
    (lambda size: Accept(Barker(), bound=4 * size, temperature=0.25), SMALLEST),
    (lambda size: NonPrivateAccept(Barker(), bound=size), SMALLEST),
    (lambda size: PenaltyAccept(1.0, 2.0, max_move=size), SMALLEST / SHORTEST),
    (lambda size: TunaBarker(1.0, ratio=size), SMALLEST * (1 + SMALLEST)),
])  # fmt: skip
def test_a_grid_too_fine_for_the_prior_is_refused(make, least):
    """95 % of the draws of an exponential prior were negative."""
    make(least)
    with pytest.raises(
        ValueError, match="is too small beside the prior's rounding: choose a larger bound"
    ):
        make(0.9 * least)
