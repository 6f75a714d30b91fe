r"""The probabilities of K categories.

    row y in {0, ..., K - 1}:  P(y = k) = p_k,      position theta_k = log(p_k / p_(K-1)), k < K - 1,      p ~ Dirichlet(a)

The density of theta has the product of all p_k from the change of variables: log prior  sum_k a_k
log p_k. With the likelihood raised to the power T the posterior is  p ~ Dirichlet(a + T (numbers of
rows in the categories)). A row with any other value counts as a K-th part of a row in each
category.

**Bound.** The gradient is e_y - p without its last entry, e_y the unit vector of the category:
shorter than sqrt(2), and than 1 when K = 2, so |log-ratio| <= sqrt(2) |theta' - theta|.

**Family.** The statistic is e_y less the center 1/K, of length (1 - 1/K)^(1/2). The natural
parameter is the logarithm of p less its mean over the categories: of all that give the same
log-ratios it moves least, so the least noise reaches them.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from dpmcmc.checks import whole
from dpmcmc.models import _checks
from dpmcmc.types import Array, Family, Key, Model


def categorical(num_categories: int, concentration=1.0) -> Model:
    """Rows are single categories 0, ..., num_categories - 1.

    The prior is Dirichlet: one concentration, or one for each.
    """
    num_categories = whole(
        "num_categories", num_categories, 2, "a row is one of so many categories"
    )
    concentration = _concentration(concentration, num_categories)

    def log_likelihood(position: Array, row: Array) -> Array:
        _checks.row(row, ())
        return jnp.sum(
            _unit_vector(row, num_categories, position.dtype) * _log_probabilities(position)
        )

    def log_prior(position: Array) -> Array:
        return jnp.sum(jnp.asarray(concentration, position.dtype) * _log_probabilities(position))

    def natural(position: Array) -> Array:
        logits = _logits(position)
        return logits - jnp.mean(logits)

    # Of two logits, in a move of length 1
    spread = 1.0 if num_categories == 2 else float(np.sqrt(2))
    return Model(
        log_likelihood,
        log_prior,
        unravel=lambda position: {"probabilities": jnp.exp(_log_probabilities(position))},
        dimension=num_categories - 1,
        lipschitz=spread,
        self_concordance=spread,
        declared=f"codes from 0 to {num_categories - 1}",
        family=Family(
            statistic=lambda row: _unit_vector(row, num_categories, jnp.result_type(float)),
            natural=natural,
            log_partition=lambda position: jax.nn.logsumexp(natural(position)),
            radius=float(np.sqrt(1 - 1 / num_categories)),
            center=1 / num_categories,
        ),
    )


def categorical_posterior(
    rows, num_categories: int, concentration=1.0, temperature: float = 1.0
) -> np.ndarray:
    """The concentration of the exact tempered posterior of p, a Dirichlet.

    **Not private**: it reads the rows.
    """
    temperature = _checks.temperature(temperature)
    counts = np.array([np.sum(np.asarray(rows) == category) for category in range(num_categories)])
    return _concentration(concentration, num_categories) + temperature * counts


def draw_categorical_posterior(
    rng_key: Key,
    num_draws: int,
    rows,
    num_categories: int,
    concentration=1.0,
    temperature: float = 1.0,
) -> Array:
    """Independent draws (num_draws, K - 1) of theta. **Not private**: for tests and figures."""
    posterior = categorical_posterior(rows, num_categories, concentration, temperature)
    # The logarithm of a gamma draw does not underflow where a Dirichlet draw would round to 0.
    gammas = jax.random.loggamma(
        rng_key, jnp.asarray(posterior, float), (num_draws, num_categories)
    )
    return gammas[:, :-1] - gammas[:, -1:]


def simulate_categorical_rows(rng_key: Key, num_rows: int, position) -> Array:
    """Categories (num_rows,) drawn from the model at a position you choose: made-up data for tests
    and figures.
    """
    return jax.random.categorical(rng_key, _logits(jnp.asarray(position, float)), shape=(num_rows,))


def _unit_vector(row: Array, num_categories: int, dtype) -> Array:
    """e_y; for anything but a category all entries are 1/K."""
    is_category = row == jnp.arange(num_categories)
    return jnp.where(
        jnp.any(is_category), is_category.astype(dtype), jnp.asarray(1 / num_categories, dtype)
    )


def _logits(position: Array) -> Array:
    return jnp.append(position, jnp.zeros((), position.dtype))


def _log_probabilities(position: Array) -> Array:
    return jax.nn.log_softmax(_logits(position))


def _concentration(concentration, num_categories: int) -> np.ndarray:
    return _checks.positive_vector(
        "concentration", concentration, num_categories, "the prior is Dirichlet(concentration)"
    )
