"""Radial noise as it is drawn: its law, what it reveals, and its errors.

Statistical tests: each fails if the code is right with a chance below 1e-5 (4.5 standard errors),
some hundred comparisons in all. They find a scale that is 3 % off.
"""

import math

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from scipy import stats

from dpmcmc.accounting.costs import Radial
from dpmcmc.curator.noise import coins, gaussian, radial, stream

FAR = 4.5  # standard errors
SCALE = 1000 * 2.0**12
NUMBER = 10_000
DIMENSIONS = [1, 2, 7]


def draws(dimension: int, scale: float = SCALE):
    number = NUMBER if dimension > 2 else 2 * NUMBER
    with jax.enable_x64(True):
        keys = stream.random_words(jnp.arange(8, dtype=jnp.uint32) + dimension, (number, 8))
        one = jax.jit(lambda key: radial.radial_noise(key, dimension, scale))
        return np.asarray(jax.lax.map(one, keys, batch_size=1000))


@pytest.fixture(scope="module", params=DIMENSIONS)
def noise(request):
    return draws(request.param)


def mean_score(values, expected: float) -> float:
    """How many standard errors the mean is off."""
    return abs(np.mean(values) - expected) / (np.std(values) / math.sqrt(len(values)))


def is_radial(vectors, scale: float = SCALE) -> bool:
    """Whether the length has the law Gamma(d), the direction none, and both nothing in common."""
    dimension = vectors.shape[1]
    length = np.linalg.norm(vectors / scale, axis=1)
    directions = vectors / scale / length[:, None]
    scores = [
        mean_score(length, dimension),
        mean_score((length - dimension) ** 2, dimension),
        *(mean_score(directions[:, i], 0) for i in range(dimension)),
        *(mean_score(directions[:, i] * (length - dimension), 0) for i in range(dimension)),
    ]
    if dimension > 1:
        scores += [mean_score(directions[:, i] ** 2, 1 / dimension) for i in range(dimension)]
        fourth = 3 / (dimension * (dimension + 2))
        scores += [mean_score(directions[:, i] ** 4, fourth) for i in range(dimension)]
        scores += [mean_score(directions[:, 0] * directions[:, i], 0) for i in range(1, dimension)]
    fit = stats.kstest(length, stats.gamma(dimension).cdf).pvalue
    return max(scores) < FAR and fit > 1e-5


def test_length_is_gamma_and_direction_uniform(noise):
    assert noise.dtype == np.int64
    assert is_radial(noise)


@pytest.mark.parametrize("twin", ["scale", "one degree less", "polar", "gaussian"])
def test_other_laws_are_found(monkeypatch, twin):
    """A scale 3 % low; chi-squared with d degrees; a length of Gamma(d - 1); one variance."""
    chi_squared = radial._chi_squared
    if twin == "scale":
        vectors = draws(7, 0.97 * SCALE)
    elif twin == "one degree less":
        monkeypatch.setattr(radial, "_chi_squared", lambda key, free: chi_squared(key, free - 1))
        vectors = draws(7)
    elif twin == "polar":
        vectors = draws(7)
        vectors = vectors * (1 - np.random.default_rng(0).beta(1, 6, NUMBER))[:, None]
    else:
        monkeypatch.setattr(radial, "_chi_squared", lambda key, free: jnp.float64(free))
        vectors = draws(7)
    assert not is_radial(vectors)


def loss_scores(vectors, epsilon: float, scale: float = SCALE):
    """By how many standard errors the loss of privacy exceeds the claims of delta, and falls short
    of the exact profile.
    """
    z = vectors / (scale * epsilon)  # in units of the sensitivity
    number, dimension = z.shape
    # Moved by each unit vector and its negative: all are alike, and the mean has less noise
    squares = np.sum(z**2, axis=1, keepdims=True)
    moved = np.sqrt(squares + 1 + 2 * np.concatenate([z, -z], axis=1))
    losses = epsilon * (moved - np.sqrt(squares))
    targets = epsilon * np.linspace(0, 0.5, 6)
    claims = Radial(epsilon, dimension).profiles().forward.excess(targets)
    found = [np.mean(np.maximum(-np.expm1(target - losses), 0), axis=1) for target in targets]
    scores = [
        (np.mean(part) - claim) / (np.std(part) / math.sqrt(number))
        for part, claim in zip(found, claims, strict=True)
    ]
    return np.array(scores)


@pytest.mark.parametrize("epsilon", [0.5, 3.0])
def test_the_loss_of_the_real_sampler_is_as_claimed(noise, epsilon):
    """From both sides: no more than the claim, and no less than the profile."""
    scores = loss_scores(noise, epsilon)
    assert np.max(scores) < FAR
    assert np.min(scores) > -FAR


def test_a_scale_five_percent_low_exceeds_the_claim(noise):
    """A twin: what is asked for is 1 / 0.95 of what is drawn."""
    assert np.max(loss_scores(0.95 * noise, 1.0)) > FAR


@pytest.mark.parametrize("dimension", [1, 2, 3, 8])
def test_the_variance_is_drawn_to_the_last_digits(dimension):
    """Against 60 digits of the same random words. The mean error is part of the bound; a logarithm
    in float32 would be 10^7 times worse.
    """
    with jax.enable_x64(True):
        keys = stream.random_words(jnp.arange(8, dtype=jnp.uint32), (60, 8))
        computed = jax.jit(jax.vmap(lambda key: radial._chi_squared(key, dimension + 1)))(keys)
        errors = []
        for key, value in zip(keys, np.asarray(computed), strict=True):
            ideal = ideal_chi_squared(key, dimension + 1)
            errors.append(float(abs(value - ideal) / ideal))
    bound = (59 + dimension / 16) * radial.UNIT
    assert 0.001 * bound < np.mean(errors) < 0.2 * bound


def ideal_chi_squared(key, freedom: int):
    with mpmath.workdps(70):
        key_pairs, key_odd = stream.random_words(key, (2, 8))
        words = np.asarray(stream.random_words(key_pairs, (6, freedom // 2)))
        total = 2 * sum(-mpmath.log(fraction(column)) for column in words.T)
        if freedom % 2:
            uniform = fraction(np.asarray(stream.random_words(key_odd, (6,))))
            start = float(coins.normal(key_odd))
            total += mpmath.findroot(lambda x: mpmath.ncdf(x) - uniform, start) ** 2
        return total


def fraction(words):
    whole = 0
    for word in words:
        whole = whole << 32 | int(word)
    return (whole + mpmath.mpf(1) / 2) / mpmath.mpf(2) ** 192


@pytest.fixture(scope="module")
def split():
    """Variances from the smallest to the largest, and their multipliers."""
    rng = np.random.default_rng(5)
    variances = np.concatenate(
        [
            np.exp2(rng.uniform(-20, 116, 20_000)),
            gaussian.BASE**2 * (np.arange(5_000) + rng.uniform(0, 1, 5_000)),
            [0.0, 2.0**116],
        ]
    )
    with jax.enable_x64(True):
        multipliers = jax.jit(jax.vmap(lambda v: radial._multipliers(v, 20)))(variances)
    return variances, np.asarray(multipliers)


def test_squares_add_up_to_the_variance(split):
    """Within 2 of 32^2, and two units of the last place. As many squares as are made are enough."""
    variances, multipliers = split
    for variance, some in zip(variances, multipliers.tolist(), strict=True):
        total = gaussian.BASE**2 * sum(a * a for a in some)
        error = abs(total - mpmath.mpf(float(variance)))
        assert error < 2 * gaussian.BASE**2 + 2 * radial.UNIT * variance
    used = np.sum(multipliers > 0, axis=1)
    for scale in np.exp2(np.arange(10, 53)):
        is_drawn = variances <= radial._largest_variance(1, scale)
        assert np.max(used[is_drawn]) <= radial._num_steps(1, scale)
    assert np.max(multipliers) < 2**53  # so that float64 has them exactly


def test_every_multiple_is_smoothed_by_finer_ones(split):
    """Down to 1: or else the noise would show the sum modulo something."""
    _, multipliers = split
    squares = multipliers.astype(float) ** 2
    finer = np.cumsum(squares[:, ::-1], axis=1)[:, ::-1] - squares
    coarse = multipliers > 1
    inner = gaussian.BASE**2 / (1 + squares[coarse] / finer[coarse])
    assert np.max(4 * np.exp(-2 * math.pi**2 * inner)) < gaussian.STEP_TV_ERROR / 2
    assert np.all(np.any(multipliers == 1, axis=1))
    table = (len(gaussian._survival_table().high) + 1) * 2.0**-127
    assert table < gaussian.STEP_TV_ERROR / 2


@pytest.mark.parametrize("dimension", [1, 2, 7, 64])
@pytest.mark.parametrize("scale", [2.0**10, 2.0**14])
def test_the_error_of_a_coarse_grid_is_within_its_bound(dimension, scale):
    """The mean total variation between the Gaussians of the real and the ideal variance, simulated:
    where the grid is coarse this is all of the error. The first square alone would be too few.
    """
    rng = np.random.default_rng(dimension)
    ideal = scale**2 * rng.chisquare(dimension + 1, 20_000)
    with jax.enable_x64(True):
        multipliers = np.asarray(jax.vmap(lambda v: radial._multipliers(v, 12))(ideal))
    bound = radial.radial_tv_error(dimension, scale)

    def error(some):
        real = gaussian.BASE**2 * np.sum(some.astype(float) ** 2, axis=1) - 1 / 12
        return np.mean(np.minimum(1, math.sqrt(dimension) / 2 * np.abs(real / ideal - 1)))

    assert 0.01 * bound < error(multipliers) < bound
    assert error(multipliers[:, :1]) > bound


def test_the_error_falls_with_the_scale():
    errors = [radial.radial_tv_error(7, 2.0**bits) for bits in (12, 20, 30, 52)]
    assert errors == sorted(errors, reverse=True)
    assert errors[2] < 3e-13
    assert radial.radial_tv_error(4096, 2.0**30) < 1e-10
    for scale in (1000.0, 2.0**53, math.nan):
        with pytest.raises(ValueError, match="outside"):
            radial.radial_tv_error(7, scale)


def test_same_noise_in_a_batch_and_alone():
    with jax.enable_x64(True):
        keys = jnp.arange(16, dtype=jnp.uint32).reshape(2, 8)
        one = jax.jit(lambda key: radial.radial_noise(key, 3, 2.0**30))
        both = jax.jit(jax.vmap(one))(keys)
        alone = [one(key) for key in keys]
    assert np.array_equal(both, np.stack(alone))
