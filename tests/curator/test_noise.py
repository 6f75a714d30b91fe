"""The secret stream, the coins and the integer noise."""

import hashlib

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from scipy import stats

from dpmcmc.acceptance import Barker, LazyBarker, Penalty
from dpmcmc.curator.noise import cipher, coins, gaussian, stream
from dpmcmc.curator.noise.noisy_sums import integer_sigma
from dpmcmc.curator.sums.exact_sum import BITS
from dpmcmc.types import Neighbours, Unit

SECRET = jnp.arange(16, dtype=jnp.uint32)
WORDS = jnp.arange(3, dtype=jnp.uint32)


def test_chacha20_gives_the_published_block():
    # RFC 8439, section 2.3.2.
    key = jnp.asarray(np.frombuffer(bytes(range(32)), "<u4"))
    block = cipher.chacha20(key, jnp.array([1, 0x09000000, 0x4A000000, 0], jnp.uint32))
    expected = (
        "10f1e7e4d13b5915500fdd1fa32071c4c7d1f4c733c068030422aa9ac3d46c4e"
        "d2826446079faa0914c2d705d98b02a2b5129cd1de164eb9cbd083e8a2503c4e"
    )
    assert np.asarray(block).astype("<u4").tobytes().hex() == expected


def test_an_ask_has_its_own_key():
    points = [jnp.zeros(3), jnp.ones(3)]
    base = stream.ask_key(SECRET, WORDS, "query", points, 0)
    others = [
        stream.ask_key(SECRET + 1, WORDS, "query", points, 0),
        stream.ask_key(SECRET.at[12].add(1), WORDS, "query", points, 0),
        stream.ask_key(SECRET, WORDS.at[2].add(1), "query", points, 0),
        stream.ask_key(SECRET, WORDS, "another", points, 0),
        stream.ask_key(
            SECRET, WORDS, "query", [jnp.zeros(3), jnp.ones(3).at[2].set(1 + 2**-23)], 0
        ),
        stream.ask_key(SECRET, WORDS, "query", points[::-1], 0),
        stream.ask_key(SECRET, WORDS, "query", points, 1),
    ]
    assert bool(jnp.all(base == stream.ask_key(SECRET, WORDS, "query", points, 0)))
    keys = {np.asarray(key).tobytes() for key in [base, *others]}
    assert len(keys) == 1 + len(others)


def test_points_of_the_same_words_are_different_asks():
    """A point of two floats and one of a double, two points and one, a zero more at the end: the
    words alone would be equal.
    """
    with jax.enable_x64(True):
        pair = jnp.asarray([1.5, -2.5], jnp.float32)
        asks = [
            [pair],
            [pair.view(jnp.float64)],
            [pair[:1], pair[1:]],
            [jnp.append(pair, jnp.float32(0))],
            [pair[:, None]],
        ]
        keys = {
            np.asarray(stream.ask_key(SECRET, WORDS, "query", points, 0)).tobytes()
            for points in asks
        }
    assert len(keys) == len(asks)


def test_an_asks_key_is_the_protected_counter_sum_of_its_message():
    """Piece by piece, each with its number: equal pieces would cancel otherwise, and others could
    change places.
    """
    point = np.array([1.5, -2.5, 0.0, 3.0], np.float32)
    digest = stream._digest("query", [((3,), "uint32"), ((4,), "float32")], 7)
    message = np.array([*digest, *np.asarray(WORDS), *point.view(np.uint32)]).reshape(-1, 3)
    pieces = [
        cipher.chacha20(SECRET[:8], jnp.asarray([j, *piece], jnp.uint32))
        for j, piece in enumerate(message)
    ]
    total = np.bitwise_xor.reduce([np.asarray(piece)[:4] for piece in pieces])
    key = stream.ask_key(SECRET, WORDS, "query", [jnp.asarray(point)], 7)
    np.testing.assert_array_equal(key, cipher.chacha20(SECRET[8:], jnp.asarray(total))[:8])


def test_keys_of_other_lengths_cannot_stand_for_a_digest(monkeypatch):
    """Whatever the digests are. With the words in front all these are one message, and two queries
    would have one noise.

    Keys of two generators have two and four words, and keys and points are the sampler's to choose.
    """
    monkeypatch.setattr(stream, "_digest", lambda query, kinds, place: query)
    message = np.arange(20, dtype=np.uint32)
    keys = set()
    for length in (3, 5, 7):
        words, digest, point = np.split(message, [length, length + 8])
        keys.add(
            np.asarray(stream.ask_key(SECRET, words, digest, [point.view(np.float32)], 0)).tobytes()
        )
    assert len(keys) == 3


def test_a_run_has_a_secret_of_its_own_made_of_all_words():
    secrets = [np.asarray(SECRET), *(np.asarray(SECRET.at[index].add(1)) for index in range(16))]
    found = {stream.secret_of(secret, run).tobytes() for secret in secrets for run in (0, 1, 2**32)}
    assert len(found) == 3 * len(secrets)


def test_secrets_come_fresh_from_the_operating_system():
    assert stream.fresh_secret().tobytes() != stream.fresh_secret().tobytes()
    assert stream.fresh_secret().size == 16


def test_words_are_uniform():
    # False alarm: 1e-6 (chi-squared over bytes of 4 MB).
    words = np.asarray(stream.random_words(SECRET[:8], (2**20,)))
    counts = np.bincount(words.astype("<u4").view(np.uint8), minlength=256)
    assert stats.chisquare(counts).pvalue > 1e-6
    assert (
        hashlib.sha256(words.tobytes()).hexdigest()
        != hashlib.sha256(bytes(words.nbytes)).hexdigest()
    )


@pytest.fixture(
    scope="module",
    params=[
        32.0,
        45.0,
        *(pytest.param(sigma, marks=pytest.mark.slow) for sigma in (1000.0, 2.0**35 * 1.3)),
    ],
)
def drawn(request):
    with jax.enable_x64(True):
        draw = jax.jit(lambda key: gaussian.discrete_gaussian(key, (100_000,), request.param))
        return gaussian.gaussian_sigma(request.param), np.asarray(draw(SECRET[:8]))


def smooth(draws):
    """Integers spread uniformly over their cells: then a rounded Gaussian is compared with a
    Gaussian.
    """
    return draws + np.random.default_rng(0).uniform(-0.5, 0.5, draws.shape)


def test_noise_has_its_law(drawn):
    # False alarm: 1e-4 per scale (Kolmogorov-Smirnov, 100 000 draws; the steps of D(32) are far
    # below what it sees).
    sigma, draws = drawn
    assert stats.kstest(smooth(draws), stats.norm(scale=sigma).cdf).pvalue > 1e-4


def test_the_bit_that_sets_the_sign_has_no_part_in_the_size(monkeypatch):
    """It is the last one of every second word.

    One that the size looks at as well would not show in any number of draws.
    """
    words, draws = stream.random_words(SECRET[:8], (100, 2, 4)), []
    for given in (words, words ^ np.array([0, 1, 0, 0], np.uint32)):
        monkeypatch.setattr(
            stream, "random_words", lambda key, shape, given=given: given.reshape(shape)
        )
        with jax.enable_x64(True):
            draws.append(gaussian.discrete_gaussian(SECRET[:8], (100,), 32.0))
    np.testing.assert_array_equal(draws[0], -draws[1])


@pytest.mark.parametrize("wrong", [0.95, 1.05])
def test_noise_of_another_scale_is_caught(drawn, wrong):
    sigma, draws = drawn
    assert stats.kstest(smooth(draws), stats.norm(scale=wrong * sigma).cdf).pvalue < 1e-4


@pytest.mark.parametrize("sigma", [32.0, 33.0, 100.0, 1e4, 7e9, 2.0**40])
def test_noise_is_at_least_what_was_asked_and_barely_more(sigma):
    real = gaussian.gaussian_sigma(sigma)
    assert sigma <= real <= sigma * (1 + (gaussian.BASE / sigma) ** 2 + 1e-12)


def exact_law(multipliers):
    """The mass function of sum a_l X_l by convolution, in floating point (its own error: about
    1e-15).
    """
    reach = int(13.5 * gaussian.BASE)
    base = np.exp(-0.5 * (np.arange(-reach, reach + 1) / gaussian.BASE) ** 2)
    base /= base.sum()
    law = np.ones(1)
    for a in multipliers:
        spread = np.zeros(2 * reach * a + 1)
        spread[::a] = base
        law = np.convolve(law, spread)
    return law


def rounded_gaussian(sigma, size):
    edges = np.arange(size + 1) - size / 2
    return np.diff(stats.norm.cdf(edges / sigma))


def total_variation(law, variance):
    return np.abs(law - rounded_gaussian(np.sqrt(variance), law.size)).sum() / 2


@pytest.mark.parametrize("sigma", [32.0, 64.0, 90.0, 320.0])
def test_the_stated_distance_is_an_upper_bound_and_not_far(sigma):
    """From a rounded Gaussian with at least the noise asked for; from one of the same variance
    before rounding it is far.
    """
    law, variance = exact_law(gaussian._multipliers(sigma)), gaussian.gaussian_sigma(sigma) ** 2
    assert variance - 1 / 12 >= sigma**2
    stated = gaussian.gaussian_tv_error(sigma)
    # Its terms cancel in part, which is not used
    assert 0.03 * stated < total_variation(law, variance - 1 / 12) < stated
    assert total_variation(law, variance) > 100 * stated


@pytest.mark.parametrize("sigma", [32.0, 1e3, 1e6])
def test_the_ratio_of_masses_is_as_derived(sigma):
    """D(s) over the rounded N(0, s^2 - 1/12), against 60 digits: the terms of order 1 / s^2
    cancel."""
    with mpmath.workdps(60):
        variance = mpmath.mpf(sigma) ** 2
        w = mpmath.sqrt(variance - mpmath.mpf(1) / 12)

        def log_ratio(x):
            mass = (
                mpmath.erfc((x - 0.5) / w / mpmath.sqrt(2))
                - mpmath.erfc((x + 0.5) / w / mpmath.sqrt(2))
            ) / 2
            return mpmath.log(mass) + x**2 / (2 * variance)

        for x in (1, sigma // 2, sigma, 2 * sigma, 5 * sigma):
            stated = x**2 / (288 * w**4 * variance) - x**2 / (720 * w**6) - x**4 / (2880 * w**8)
            found = log_ratio(mpmath.mpf(x)) - log_ratio(mpmath.mpf(0))
            assert abs(found - stated) < 30 / sigma**2 * abs(stated) + mpmath.mpf(10) ** -50


def test_a_coarse_step_that_leaves_gaps_is_caught():
    # a = 60 against a fine part of sd 32: the inner sum is not constant, and the law is visibly not
    # Gaussian.
    law = exact_law((60, 1))
    sigma = gaussian.BASE * np.hypot(60, 1)
    assert total_variation(law, sigma**2 - 1 / 12) > 1e6 / (100 * sigma**4)


def test_the_table_is_exact_to_its_last_bit():
    high, low = gaussian._survival_table()
    with mpmath.workdps(60):
        mass = [
            mpmath.exp(-mpmath.mpf(x * x) / (2 * gaussian.BASE**2)) for x in range(2 * len(high))
        ]
        total = mass[0] + 2 * mpmath.fsum(mass[1:])
        for j in (1, 2, 50, 200, len(high)):
            tail = 2 * mpmath.fsum(mass[j:]) / total * 2**127
            assert abs((int(high[j - 1]) << 64) + int(low[j - 1]) - tail) <= 1


@pytest.mark.parametrize("sigma", [32.0, 64.0, 96.0, 2.0**31, 2.0**36, 20 * 2.0**31, 1e6])
def test_noise_reaches_every_integer(sigma):
    """Exact squares too: 64 = 2 * BASE once came out as even numbers alone."""
    assert gaussian._multipliers(sigma)[-1] == 1


def test_no_noise_is_far_from_its_law():
    """Whatever its size: where the finer steps happened to be too fine, 1 in 200 was at 3e-18, and
    a budget bought nothing.
    """
    sigmas = [
        *np.exp(np.random.default_rng(0).uniform(np.log(2.0**25), np.log(2.0**57.9), 2000)),
        3.778 * 2.0**31,
    ]
    assert (
        max(gaussian.gaussian_tv_error(float(sigma)) - 1 / (100 * sigma**4) for sigma in sigmas)
        < 3e-33
    )
    assert max(gaussian.gaussian_sigma(float(sigma)) / sigma for sigma in sigmas) < 1 + 1e-11


@pytest.mark.parametrize("sigma", [10.0, 31.9, 2.0**58])
def test_noise_too_small_for_the_grid_or_too_large_for_its_integers_is_refused(sigma):
    with pytest.raises(ValueError, match="noise multiplier"):
        gaussian.gaussian_tv_error(sigma)


def test_coins_fall_as_often_as_they_should():
    # False alarm: 1e-6 per probability (exact binomial test, 200 000 coins each).
    with jax.enable_x64(True):
        keys = cipher.chacha20(
            SECRET[:8], jnp.pad(jnp.arange(200_000, dtype=jnp.uint32)[:, None], ((0, 0), (0, 3)))
        )[:, :8]
        for probability in (0.0, 1e-3, 0.3, 0.5, 1.0):
            heads = int(jax.vmap(coins.coin, (0, None))(keys, jnp.float64(probability)).sum())
            assert stats.binomtest(heads, 200_000, probability).pvalue > 1e-6
        # Never, not one time in 2^62
        assert not coins.coin_of(jnp.zeros(2, jnp.uint32), jnp.float64(0.0))


@pytest.mark.parametrize(
    "test", [Barker(), LazyBarker(0.3), Penalty(0.1), Penalty(1.0), Penalty(7.0)], ids=str
)
def test_a_coins_probability_is_within_its_stated_distance(test):
    """Against 50 digits, on the compiled float64 path: rounding of a(l), and the 62-bit uniform."""
    log_ratios = np.concatenate([np.linspace(-64, 64, 400), np.linspace(-3, 3, 200)])
    with jax.enable_x64(True):
        found = np.asarray(
            jax.jit(lambda l: test.probability(l, jnp, jax.scipy.special))(jnp.asarray(log_ratios))
        )
    with mpmath.workdps(50):
        exact = [_reference(test, mpmath.mpf(float(l))) for l in log_ratios]
        worst = max(abs(mpmath.mpf(float(f)) - e) for f, e in zip(found, exact, strict=True))
    assert worst + mpmath.mpf(2) ** -62 < coins.COIN_TV_ERROR


def _reference(test, l):
    if isinstance(test, Penalty):
        s = mpmath.mpf(test.sigma)
        return mpmath.ncdf(l / s - s / 2) + mpmath.exp(l) * mpmath.ncdf(-l / s - s / 2)
    return (test.kappa if isinstance(test, LazyBarker) else 1) / (1 + mpmath.exp(-l))


def test_many_blocks_are_the_same_stream_as_few():
    """From MANY_BLOCKS on the words are made in another order of work; each block is that of a
    short stream.
    """
    counters = np.arange(4 * 2 * cipher.MANY_BLOCKS, dtype=np.uint32).reshape(-1, 4)
    many = np.asarray(cipher.chacha20(SECRET[:8], jnp.asarray(counters)))
    few = [
        np.asarray(cipher.chacha20(SECRET[:8], jnp.asarray(part))) for part in np.split(counters, 8)
    ]
    np.testing.assert_array_equal(many, np.concatenate(few))


def test_a_narrow_integer_does_not_make_noise_small():
    """Of a query that does not check its numbers."""
    unit = Unit(Neighbours.ADD_OR_REMOVE_ONE, rows_per_person=3)
    assert integer_sigma(np.int8(100), unit) == 300 * 2.0**BITS
