r"""The success probability behind counts of successes.

    row y in {0, ..., m}:  y ~ Binomial(m, p),      position theta = log(p / (1 - p)),      p ~ Beta(a, b)

The density of theta has p (1 - p) from the change of variables: log prior  a log p + b log(1 - p).
With n rows and the likelihood raised to the power T the posterior is  p ~ Beta(a + T sum y, b + T
(n m - sum y)). The log-likelihood y theta - m log(1 + e^theta) leaves out its constant; m = 1 is a
Bernoulli trial. A count outside [0, m] counts as the nearer end.

**Bound.** |y - m p| < m, so  |log-ratio| <= m |theta' - theta|. The count is a sufficient
statistic, at most m/2 away from m/2.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from dpmcmc.checks import positive, whole
from dpmcmc.models import _checks
from dpmcmc.types import Array, Family, Key, Model


def binomial(num_trials: int = 1, successes: float = 1.0, failures: float = 1.0) -> Model:
    """Rows are single counts of successes among `num_trials`.

    The prior is Beta(successes, failures): (1, 1) is uniform.
    """
    num_trials = whole(
        "num_trials", num_trials, 1, "a row counts the successes among so many trials"
    )
    successes = positive("successes", successes, "the prior is Beta(successes, failures)")
    failures = positive("failures", failures, "the prior is Beta(successes, failures)")

    def log_partition(position: Array) -> Array:
        return num_trials * jax.nn.softplus(position[0])

    def log_likelihood(position: Array, row: Array) -> Array:
        _checks.row(row, ())
        return jnp.clip(row, 0, num_trials) * position[0] - log_partition(position)

    def log_prior(position: Array) -> Array:
        return successes * jax.nn.log_sigmoid(position[0]) + failures * jax.nn.log_sigmoid(
            -position[0]
        )

    half = num_trials / 2
    return Model(
        log_likelihood,
        log_prior,
        unravel=lambda position: {"probability": jax.nn.sigmoid(position[0])},
        dimension=1,
        lipschitz=float(num_trials),
        self_concordance=1.0,
        declared=f"counts from 0 to {num_trials}",
        family=Family(
            lambda row: jnp.clip(row, 0, num_trials)[None],
            lambda position: position,
            log_partition,
            half,
            half,
        ),
    )


def binomial_posterior(
    rows,
    num_trials: int = 1,
    successes: float = 1.0,
    failures: float = 1.0,
    temperature: float = 1.0,
):
    """(a, b): the exact tempered posterior of p is Beta(a, b). **Not private**: it reads the rows;
    for tests and figures.
    """
    temperature = _checks.temperature(temperature)
    total = float(np.sum(np.asarray(rows), dtype=np.float64))
    return successes + temperature * total, failures + temperature * (
        len(rows) * num_trials - total
    )


def draw_binomial_posterior(
    rng_key: Key,
    num_draws: int,
    rows,
    num_trials: int = 1,
    successes: float = 1.0,
    failures: float = 1.0,
    temperature: float = 1.0,
) -> Array:
    """Independent draws (num_draws, 1) of theta. **Not private**: for tests and figures."""
    a, b = binomial_posterior(rows, num_trials, successes, failures, temperature)
    key_success, key_failure = jax.random.split(rng_key)
    # The logarithm of a gamma draw does not underflow where a beta draw would round to 0 or 1.
    gammas = (
        jax.random.loggamma(key_success, a, (num_draws, 1)),
        jax.random.loggamma(key_failure, b, (num_draws, 1)),
    )
    return gammas[0] - gammas[1]


def simulate_binomial_rows(rng_key: Key, num_rows: int, position, num_trials: int = 1) -> Array:
    """Counts (num_rows,) drawn from the model at a position you choose: made-up data for tests and
    figures.
    """
    probability = jax.nn.sigmoid(jnp.asarray(position, float)[0])
    return jax.random.bernoulli(rng_key, probability, (num_rows, num_trials)).sum(axis=1)
