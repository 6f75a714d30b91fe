"""What the tests of gradient samplers share: a Gaussian target, made-up answers with any noise, and
z-scores of moments.
"""

import functools

import arviz
import jax
import jax.numpy as jnp
import numpy as np

from dpmcmc.types import Answer

PRECISION = np.array([[2.0, 0.6], [0.6, 1.0]], np.float32)  # of the likelihood
CENTER = np.array([0.5, -1.0], np.float32)
PRIOR_SCALE = 2.0
POSTERIOR_PRECISION = PRECISION + np.eye(2) / PRIOR_SCALE**2
MEAN = np.linalg.solve(POSTERIOR_PRECISION, PRECISION @ CENTER)
COVARIANCE = np.linalg.inv(POSTERIOR_PRECISION)


def log_prior(position):
    return -0.5 * jnp.sum(position**2) / PRIOR_SCALE**2


def log_likelihood(position):
    return -0.5 * (position - CENTER) @ PRECISION @ (position - CENTER)


class Ratio:
    is_bit = False


class BarkerBit:
    is_bit = True


class PenaltyBit:
    is_bit = True


def answers(gradient_noise, variance=0.0, deviation=0.7):
    """An `ask` without rows: exact gradients plus `gradient_noise(key, position)`; tests with noise
    `deviation` * |move|.
    """

    def ask(rng_key, query, *points):
        if query == "gradient":
            value = jax.grad(log_likelihood)(points[0]) + gradient_noise(rng_key, points[0])
            return Answer(value, jnp.float32(variance))
        position, proposal, *public = points
        ratio = log_likelihood(proposal) - log_likelihood(position)
        sigma = deviation * jnp.linalg.norm(proposal - position)
        key_noise, key_coin = jax.random.split(rng_key)
        noisy = ratio + sigma * jax.random.normal(key_noise)
        if not query.is_bit:
            return Answer(noisy, sigma**2)
        if isinstance(query, PenaltyBit):
            probability = jnp.exp(jnp.minimum(noisy + public[0] - sigma**2 / 2, 0.0))
        else:
            probability = jax.nn.sigmoid(ratio + public[0])
        return Answer(jax.random.uniform(key_coin) < probability, jnp.zeros(()))

    return ask


def gaussian(scale):
    return lambda key, position: scale * jax.random.normal(key, position.shape)


def discrete(scale):
    return lambda key, position: scale * jax.random.rademacher(key, position.shape, jnp.float32)


def skewed(scale):
    """Exponential, wider to the right of the centre: the law may depend on the position."""

    def noise(key, position):
        return (
            scale
            * (1 + 0.8 * jnp.tanh(position - MEAN))
            * (jax.random.exponential(key, position.shape) - 1)
        )

    return noise


def exact_draws(number, seed=0):
    rng = np.random.default_rng(seed)
    return jnp.asarray(rng.multivariate_normal(MEAN, COVARIANCE, number), jnp.float32)


@functools.partial(jax.jit, static_argnums=(0, 1, 4))
def run(sampler, ask, rng_key, positions, num_steps):
    """Chains started at the given positions: (chains, steps, d), and what was released (chains,
    steps, ...).
    """

    def chain(key, position):
        key_init, key_steps = jax.random.split(key)
        state = sampler.init(key_init, position, ask)

        def step(state, key):
            state, info = sampler.step(key, state, ask)
            return state, (state.position, info)

        return jax.lax.scan(step, state, jax.random.split(key_steps, num_steps))[1]

    return jax.vmap(chain)(jax.random.split(rng_key, len(positions)), positions)


def z_scores(draws, mean=MEAN, covariance=COVARIANCE):
    """z-scores of all first and second moments of the whitened draws, and the least effective
    sample size behind them.
    """
    white = np.einsum(
        "ij,cdj->cdi",
        np.linalg.inv(np.linalg.cholesky(covariance)),
        np.asarray(draws, float) - mean,
    )
    dimension = white.shape[-1]
    functions = [white[..., i] for i in range(dimension)]
    pairs = [(i, j) for i in range(dimension) for j in range(i + 1)]
    functions += [white[..., i] * white[..., j] - (i == j) for i, j in pairs]
    sizes = [float(arviz.ess(values, method="mean")) for values in functions]
    scores = [
        values.mean() / (values.std() / size**0.5)
        for values, size in zip(functions, sizes, strict=True)
    ]
    return np.array(scores), min(sizes)
