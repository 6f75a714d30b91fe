"""DP-HMC: its bill, its stationary law with every test and every kind of noise, and twins that must
be caught.

Every stationarity check takes 5 z-scores; there are 14 checks. |z| < 4.6 has a false-alarm rate of
4.2e-6, 3e-4 for the family. Chains start at exact draws of the target, so nothing is discarded.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpmcmc import Barker, Budget, Curator, hmc, models, sample, testing
from dpmcmc.queries import Accept, Gradient, LogRatio, PenaltyAccept
from dpmcmc.samplers.hmc import HMCInfo, HMCState, halton
from dpmcmc.types import Sampler
from tests.samplers.gradient_chains import (
    COVARIANCE,
    MEAN,
    BarkerBit,
    PenaltyBit,
    Ratio,
    answers,
    discrete,
    exact_draws,
    gaussian,
    log_likelihood,
    log_prior,
    run,
    skewed,
    z_scores,
)

pytestmark = pytest.mark.usefixtures("quick_compilation")

LIMIT = 4.6
DENSE = np.linalg.inv(COVARIANCE) * 0.8
CASES = {
    "penalty bit, reuse, jitter, dense mass, discrete": (
        PenaltyBit(),
        discrete(1.2),
        {"mass": DENSE},
    ),
}
SLOW_CASES = {
    "Barker bit, reuse, diagonal mass, skewed": (
        BarkerBit(),
        skewed(1.2),
        {"jitter": 0.0, "mass": [2.0, 1.0]},
    ),
    "ratio, no reuse, jitter, diagonal mass, skewed": (
        Ratio(),
        skewed(1.2),
        {"reuse": False, "mass": [2.0, 1.0]},
    ),
    "Barker bit, no reuse, jitter, dense mass": (
        BarkerBit(),
        gaussian(1.2),
        {"reuse": False, "mass": DENSE},
    ),
    "ratio, reuse": (Ratio(), gaussian(1.2), {"jitter": 0.0}),
    "penalty bit, no reuse, skewed": (PenaltyBit(), skewed(1.2), {"reuse": False, "jitter": 0.0}),
    "ratio, reuse, jitter, dense mass, skewed": (Ratio(), skewed(1.2), {"mass": DENSE}),
    "ratio, no reuse, dense mass, discrete": (
        Ratio(),
        discrete(1.2),
        {"reuse": False, "jitter": 0.0, "mass": DENSE},
    ),
    "penalty bit, reuse, half jitter": (PenaltyBit(), gaussian(1.2), {"jitter": 0.5, "mass": 1.5}),
    "Barker bit, reuse, jitter, discrete": (BarkerBit(), discrete(1.2), {}),
}


def largest_score(draws):
    """The largest |z| of 5 moments."""
    scores, size = z_scores(draws)
    assert size >= 2000
    return np.abs(scores).max()


def check_posterior(test, noise, options):
    sampler = hmc(log_prior, "gradient", test, 0.5, 3, **options)
    draws, info = run(sampler, answers(noise), jax.random.key(0), exact_draws(256), 600)
    assert 0.1 < info.is_accepted.mean() < 0.95
    assert largest_score(draws) < LIMIT


@pytest.mark.parametrize("name", CASES)
def test_keeps_the_posterior(name):
    check_posterior(*CASES[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW_CASES)
def test_keeps_the_posterior_with_more_settings(name):
    check_posterior(*SLOW_CASES[name])


# -- twins ----------------------------------------------------------------------------------------

FAULTS = [
    "none",
    "first kick only",
    "redrawn on rejection",
    "last kept after rejection",
    "depends on momentum",
]


def written_out(fault):
    """One leapfrog step with reuse, written again with a fault (an index into FAULTS, traced); the
    first one is no fault.
    """
    size, prior_slope, exact = 0.5, jax.grad(log_prior), jax.grad(log_likelihood)

    def init(rng_key, position, ask):
        return HMCState(
            position, ask(rng_key, "gradient", position).value, jnp.uint32(0), jnp.uint32(0)
        )

    def step(rng_key, state, ask):
        key_momentum, key_again, key_last, key_test, key_accept = jax.random.split(rng_key, 5)
        start = jax.random.normal(key_momentum, state.position.shape)
        again = ask(key_again, "gradient", state.position).value
        first = jnp.where(fault == 1, again, state.gradient)
        middle = start + size / 2 * (first + prior_slope(state.position))
        end = state.position + size * middle
        noise = ask(key_last, "gradient", end).value - exact(end)
        noise = jnp.where(
            fault == 1, 0.0, jnp.where(fault == 4, noise * (1 + jnp.tanh(2 * middle)), noise)
        )
        last = exact(end) + noise
        momentum = middle + size / 2 * (last + prior_slope(end))
        answer = ask(key_test, Ratio(), state.position, end)
        public = (
            log_prior(end)
            - log_prior(state.position)
            + (jnp.sum(start**2) - jnp.sum(momentum**2)) / 2
        )
        is_accepted = (
            -jax.random.exponential(key_accept) < answer.value + public - answer.variance / 2
        )
        kept = jnp.where(fault == 2, again, jnp.where(fault == 3, last, first))
        position, released = (
            jnp.where(is_accepted, end, state.position),
            jnp.where(is_accepted, last, kept),
        )
        return HMCState(position, released, state.index, state.flips), HMCInfo(
            is_accepted, ~is_accepted, jnp.zeros(())
        )

    return Sampler(init, step)


def fickle(key, position):
    """0 or 5, more often 5 to the right: a law that depends on the position, and that many paths do
    not survive.
    """
    return 5.0 * jax.random.bernoulli(key, jax.nn.sigmoid(2 * (position - MEAN))).astype(
        jnp.float32
    )


@pytest.mark.slow
def test_faults_are_caught_and_only_they():
    start = exact_draws(1024)
    ask = answers(fickle, deviation=0.3)
    draws = jax.vmap(lambda fault: run(written_out(fault), ask, jax.random.key(0), start, 600)[0])(
        jnp.arange(5)
    )
    scores = {fault: largest_score(draws[index]) for index, fault in enumerate(FAULTS)}
    assert scores.pop("none") < LIMIT
    assert min(scores.values()) > 6, scores


# -- with a curator -------------------------------------------------------------------------------

ROWS = np.array([[0.5, -1.0], [1.5, 0.0], [-0.3, -0.4], [0.9, -2.0]], np.float32)
MODEL = models.gaussian(np.array([[1.5, 0.3], [0.3, 1.0]]), prior_scale=2.0)
CLIP = 30.0  # far above every row's gradient near the posterior
QUERIES = {
    "ratio": (LogRatio(CLIP, 0.005), True),
    "penalty bit": (PenaltyAccept(CLIP, 0.005, max_move=3.0), False),
    "Barker bit": (Accept(Barker(), 100.0), True),
}


@pytest.mark.slow  # every day `test_keeps_the_posterior` and the contract
@pytest.mark.parametrize("name", ["ratio", "Barker bit", "penalty bit"])
def test_keeps_the_posterior_of_rows(name):
    test, reuse = QUERIES[name]
    mean, covariance = testing.gaussian_posterior(
        ROWS, np.array([[1.5, 0.3], [0.3, 1.0]]), prior_scale=2.0
    )
    mass = np.linalg.inv(covariance)
    sampler = hmc(
        MODEL.log_prior, Gradient(CLIP, 0.005), test, 0.9, 2, mass, reuse=reuse, jitter=0.3
    )
    curator = Curator(ROWS, MODEL, None, fixed_secret=np.arange(16, dtype=np.uint32))
    start = np.random.default_rng(1).multivariate_normal(mean, covariance, 128)
    keys = jax.random.split(jax.random.key(2), 128)
    traced = curator.trace(
        lambda ask, keys, start: jax.vmap(
            lambda key, position: _chain(sampler, ask, key, position)
        )(keys, start),
        keys,
        jnp.asarray(start, jnp.float32),
    )
    count = 2 if reuse else 3
    assert traced.plan == {Gradient(CLIP, 0.005): 128 * (200 * count + reuse), test: 128 * 200}
    draws, info = curator.grant(traced.plan).run(traced.compile(), keys, start.astype(np.float32))
    scores, size = z_scores(draws, mean, covariance)
    assert size >= 2000 and 0.1 < info.is_accepted.mean() < 0.99
    assert np.abs(scores).max() < LIMIT


def _chain(sampler, ask, key, position):
    key_init, key_steps = jax.random.split(key)

    def step(state, key):
        state, info = sampler.step(key, state, ask)
        return state, (state.position, info)

    return jax.lax.scan(
        step, sampler.init(key_init, position, ask), jax.random.split(key_steps, 200)
    )[1]


@pytest.mark.parametrize("reuse", [True, False])
def test_the_plan_is_the_papers_count(reuse):
    curator = Curator(ROWS, MODEL, None)
    gradient, test = Gradient(1.0, 1.0), LogRatio(1.0, 1.0)
    sampler = hmc(MODEL.log_prior, gradient, test, 0.1, 7, reuse=reuse)

    def program(ask, keys, positions):
        states = jax.vmap(lambda key, position: sampler.init(key, position, ask))(keys, positions)

        def body(states, index):
            own = jax.vmap(lambda key: jax.random.fold_in(key, index))(keys)
            return jax.vmap(lambda key, state: sampler.step(key, state, ask))(own, states)

        return jax.lax.scan(body, states, jnp.arange(10))

    plan = curator.trace(program, jax.random.split(jax.random.key(0), 3), jnp.zeros((3, 2))).plan
    gradients = 3 * (10 * 7 + 1) if reuse else 3 * 10 * 8
    assert plan == {gradient: gradients, test: 30}


@pytest.mark.slow
def test_runs_within_a_budget():
    curator = Curator(np.repeat(ROWS, 500, axis=0), MODEL, Budget(4.0, 1e-5))
    sampler = hmc(MODEL.log_prior, Gradient(4.0, 60.0), LogRatio(4.0, 60.0), 0.01, 3)
    result = sample(jax.random.key(0), sampler, curator, np.zeros(2), num_chains=2, progress=False)
    assert 3.5 < result.posterior.attrs["epsilon"] <= 4.0
    assert set(result.sample_stats) == {"acceptance", "diverging", "move_length"}


# -- details --------------------------------------------------------------------------------------


def test_a_divergent_path_is_a_rejection():
    positions = exact_draws(8)
    draws, info = run(
        hmc(log_prior, "gradient", BarkerBit(), 1e20, 5),
        answers(gaussian(0.1)),
        jax.random.key(0),
        positions,
        3,
    )
    assert info.is_divergent.all() and not info.is_accepted.any()
    np.testing.assert_array_equal(
        draws, np.broadcast_to(np.asarray(positions)[:, None], draws.shape)
    )


def test_leaving_the_prior_is_a_rejection():
    def inside(position):
        return jnp.where(jnp.sum(position**2) < 4.0, log_prior(position), -jnp.inf)

    sampler = hmc(inside, "gradient", BarkerBit(), 0.5, 3)
    draws, info = run(sampler, answers(gaussian(0.5)), jax.random.key(0), jnp.zeros((32, 2)), 200)
    assert np.sum(np.asarray(draws) ** 2, axis=-1).max() < 4.0 and info.is_divergent.any()


def test_step_factors_fill_the_unit_interval_evenly():
    for flips in (0, 0xDEADBEEF):
        values = np.sort(np.asarray(halton(jnp.arange(256, dtype=jnp.uint32), jnp.uint32(flips))))
        assert values.min() >= 0 and values.max() < 1
        np.testing.assert_array_equal(np.floor(values * 256), np.arange(256))
    assert float(halton(jnp.uint32(1), jnp.uint32(0))) == 0.5


@pytest.mark.parametrize("options, text", [
    ({"step_size": 0.0}, "step_size=0.0"),
    ({"num_leapfrog": 0}, "num_leapfrog=0"),
    ({"num_leapfrog": 1.5}, "num_leapfrog=1.5"),
    ({"jitter": 1.5}, "jitter=1.5"),
    ({"mass": -1.0}, "mass=-1.0"),
    ({"mass": [[1.0, 2.0], [2.0, 1.0]]}, "positive definite"),
    ({"mass": [[1.0, 2.0], [0.0, 1.0]]}, "symmetric"),
])  # fmt: skip
def test_bad_settings_are_named(options, text):
    with pytest.raises(ValueError, match=text):
        hmc(log_prior, "gradient", Ratio(), **{"step_size": 0.1, "num_leapfrog": 3, **options})
