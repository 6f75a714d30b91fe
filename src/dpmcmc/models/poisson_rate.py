r"""The rate behind counts.

    row y in {0, 1, ..., M}:  y ~ Poisson(r),      position theta = log r,      r ~ Gamma(shape a, rate b)

The density of theta has r from the change of variables: log prior  a theta - b e^theta. With n rows
and the likelihood raised to the power T the posterior is  r ~ Gamma(a + T sum y, b + T n). The
log-likelihood y theta - e^theta leaves out its constant. M is public and declared; a larger count
counts as M, a negative one as 0.

**Bound.** The gradient y - e^theta has none, for e^theta has none. The count is a sufficient
statistic, at most M/2 away from M/2.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from dpmcmc.checks import positive, whole
from dpmcmc.models import _checks
from dpmcmc.types import Array, Family, Key, Model


def poisson_rate(max_count: int, prior_shape: float = 1.0, prior_rate: float = 1.0) -> Model:
    """Rows are single counts up to `max_count`; for counts with features see `poisson`.

    Choose max_count from public knowledge, well above the rate: rows that exceed it bias the
    posterior, and the noise of a `SufficientStatistic` grows with it. Log-ratios have no proved
    bound: for these choose a clip.
    """
    max_count = whole("max_count", max_count, 1, "larger counts count as this one")
    prior_shape = positive(
        "prior_shape", prior_shape, "the rate's prior is Gamma(prior_shape, prior_rate)"
    )
    prior_rate = positive(
        "prior_rate", prior_rate, "the rate's prior is Gamma(prior_shape, prior_rate)"
    )

    def log_likelihood(position: Array, row: Array) -> Array:
        _checks.row(row, ())
        return jnp.clip(row, 0, max_count) * position[0] - jnp.exp(position[0])

    def log_prior(position: Array) -> Array:
        return prior_shape * position[0] - prior_rate * jnp.exp(position[0])

    half = max_count / 2
    return Model(
        log_likelihood,
        log_prior,
        unravel=lambda position: {"rate": jnp.exp(position[0])},
        dimension=1,
        self_concordance=1.0,
        declared=f"counts from 0 to {max_count}",
        family=Family(
            lambda row: jnp.clip(row, 0, max_count)[None],
            lambda position: position,
            lambda p: jnp.exp(p[0]),
            half,
            half,
        ),
    )


def poisson_rate_posterior(
    rows, prior_shape: float = 1.0, prior_rate: float = 1.0, temperature: float = 1.0
):
    """(shape, rate): the exact tempered posterior of r is Gamma(shape, rate). **Not private**: it
    reads the rows.
    """
    temperature = _checks.temperature(temperature)
    total = float(np.sum(np.asarray(rows), dtype=np.float64))
    return prior_shape + temperature * total, prior_rate + temperature * len(rows)


def draw_poisson_rate_posterior(
    rng_key: Key,
    num_draws: int,
    rows,
    prior_shape: float = 1.0,
    prior_rate: float = 1.0,
    temperature: float = 1.0,
) -> Array:
    """Independent draws (num_draws, 1) of theta. **Not private**: for tests and figures."""
    shape, rate = poisson_rate_posterior(rows, prior_shape, prior_rate, temperature)
    return jax.random.loggamma(rng_key, shape, (num_draws, 1)) - np.log(rate)


def simulate_poisson_rate_rows(rng_key: Key, num_rows: int, position, max_count: int) -> Array:
    """Counts (num_rows,) drawn from the model at a position you choose: made-up data for tests and
    figures.
    """
    rate = jnp.exp(jnp.asarray(position, float)[0])
    return jnp.minimum(jax.random.poisson(rng_key, rate, (num_rows,)), max_count)
