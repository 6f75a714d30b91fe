"""The exhibit of the published algorithm has the noise, and the faults, of the library's query."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpmcmc.papers import problems
from dpmcmc.papers.fastmh import published
from dpmcmc.queries import PublishedFastMH

TEMPERATURE, LENGTH = 1 / 500, 0.06
PROBLEM = problems.mixture(jax.random.key(0), 50_000, 2.0, TEMPERATURE, copies=50)
HERE, THERE = jnp.array([0.0, 1.0]), jnp.array([0.0, 1.0 + LENGTH])
KEYS = jax.random.split(jax.random.key(1), 4000)


def query(epsilon: float) -> PublishedFastMH:
    bound = PROBLEM.model.lipschitz * LENGTH
    return PublishedFastMH(
        bound,
        epsilon=epsilon,
        delta=published.DELTA,
        max_batch=published.most_batch(epsilon),
        ratio=50_000 * TEMPERATURE * bound / published.LAMBDA,
        temperature=TEMPERATURE,
    )


def ratio_of_all(epsilon):
    settings = published.Settings(epsilon, LENGTH, is_full=True)
    run = jax.vmap(lambda key: published._of_all(PROBLEM, settings)(key, HERE, THERE, LENGTH))
    return np.asarray(jax.jit(run)(KEYS))


def ratios_of_few(epsilon, first=HERE, second=THERE):
    settings = published.Settings(epsilon, LENGTH, is_full=False)
    reach = 50_000 * TEMPERATURE * PROBLEM.model.lipschitz * LENGTH
    of_few = published._of_few(PROBLEM, settings)

    def one(key):
        key_size, key_ratio = jax.random.split(key)
        size = jax.random.poisson(key_size, published.LAMBDA + reach)
        return of_few(key_ratio, first, second, LENGTH, size)

    return np.asarray(jax.jit(jax.vmap(one))(KEYS))


def exact_ratio():
    of_rows = jax.vmap(PROBLEM.model.log_likelihood, (None, 0))
    return PROBLEM.power * float(
        jnp.sum(of_rows(THERE, PROBLEM.rows) - of_rows(HERE, PROBLEM.rows))
    )


@pytest.mark.parametrize("epsilon", [0.0001, 0.05])
def test_the_noise_of_all_rows(epsilon):
    """What is subtracted is there whether or not noise was added."""
    _, (deviation, is_noisy) = query(epsilon).noises(50_000)
    found = ratio_of_all(epsilon)
    assert is_noisy == (epsilon == 0.0001)
    expected = exact_ratio() - deviation**2 / 2
    tolerance = 6 * deviation / np.sqrt(len(KEYS)) if is_noisy else 1e-3
    assert abs(found.mean() - expected) < tolerance
    assert abs(found.std() - is_noisy * deviation) < max(0.1 * deviation * is_noisy, 1e-3)


def test_a_minibatch_without_noise_subtracts_what_noise_would_call_for():
    """With the penalty put back it is TunaMH: moves and their reverses are accepted in the ratio of
    the densities (within six standard errors, some 10 %). As published both are accepted less.
    """
    (deviation, is_noisy), _ = query(0.05).noises(50_000)
    assert not is_noisy and deviation > 0.1
    there, back = (ratios_of_few(0.05, *way) for way in ((HERE, THERE), (THERE, HERE)))
    forth, reverse = (np.minimum(1.0, np.exp(r + deviation**2 / 2)) for r in (there, back))
    error = sum(r.std() / r.mean() for r in (forth, reverse)) / np.sqrt(len(KEYS))
    assert error < 0.03
    assert abs(np.log(forth.mean() / reverse.mean()) - exact_ratio()) < 6 * error
    for published_ones, exact in ((there, forth), (back, reverse)):
        assert np.minimum(1.0, np.exp(published_ones)).mean() < 0.97 * exact.mean()
