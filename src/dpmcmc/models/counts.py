r"""Models of single counts and categories, with sufficient statistics.

# `binomial`: the success probability behind counts of successes.

    row y in {0, ..., m}:  y ~ Binomial(m, p),    p ~ Beta(a, b)
    position theta = log(p / (1 - p))

The density of theta has p (1 - p) from the change of variables: log prior  a log p + b log(1 - p).
With n rows and the likelihood raised to the power T the posterior is  p ~ Beta(a + T sum y, b + T
(n m - sum y)). The log-likelihood y theta - m log(1 + e^theta) leaves out its constant; m = 1 is a
Bernoulli trial. A count outside [0, m] counts as the nearer end.

**Bound.** |y - m p| < m, so  |log-ratio| <= m |theta' - theta|. The count is a sufficient
statistic, at most m/2 away from m/2.

# `categorical`: the probabilities of K categories.

    row y in {0, ..., K - 1}:  P(y = k) = p_k,    p ~ Dirichlet(a)
    position theta_k = log(p_k / p_(K-1)),  k < K - 1

The density of theta has the product of all p_k from the change of variables: log prior  sum_k a_k
log p_k. With the likelihood raised to the power T the posterior is  p ~ Dirichlet(a + T (numbers of
rows in the categories)). A row with any other value counts as a K-th part of a row in each
category.

**Bound.** The gradient is e_y - p without its last entry, e_y the unit vector of the category:
shorter than sqrt(2), and than 1 when K = 2, so |log-ratio| <= sqrt(2) |theta' - theta|.

**Family.** The statistic is e_y less the center 1/K, of length (1 - 1/K)^(1/2). The natural
parameter is the logarithm of p less its mean over the categories: of all natural parameters that
give the same log-ratios it moves least, so log-ratios have the least noise.

# `poisson_rate`: the rate behind counts.

    row y in {0, 1, ..., M}:  y ~ Poisson(r),    r ~ Gamma(shape a, rate b)
    position theta = log r

The density of theta has r from the change of variables: log prior  a theta - b e^theta. With n rows
and the likelihood raised to the power T the posterior is  r ~ Gamma(a + T sum y, b + T n). The
log-likelihood y theta - e^theta leaves out its constant. M is public and declared; a larger count
counts as M, a negative one as 0.

**Bound.** The gradient y - e^theta has none, for e^theta has none. The count is a sufficient
statistic, at most M/2 away from M/2.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpmcmc.checks import positive, whole
from dpmcmc.models import _checks
from dpmcmc.types import Array, Family, Model


def binomial(num_trials: int = 1, successes: float = 1.0, failures: float = 1.0) -> Model:
    """The success probability behind rows of single counts.

    Args:
        num_trials: The number of trials behind each count.
        successes: The a of the prior Beta(a, b); a = b = 1 is uniform.
        failures: The b of the prior.

    Returns:
        The model.

    Raises:
        ValueError: An argument is out of its range.

    Example:
        >>> from dpmcmc import models
        >>> models.binomial(num_trials=3).lipschitz
        3.0
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


def categorical(num_categories: int, concentration: Any = 1.0) -> Model:
    """The probabilities of categories, on rows of single codes 0, ..., num_categories - 1.

    Args:
        num_categories: The number K of categories.
        concentration: Of the Dirichlet prior: one number, or one for each category.

    Returns:
        The model.

    Raises:
        ValueError: An argument is out of its range.

    Example:
        >>> from dpmcmc import models
        >>> models.categorical(4).dimension
        3
    """
    num_categories = whole(
        "num_categories", num_categories, 2, "a row is one of so many categories"
    )
    concentration = checked_concentration(concentration, num_categories)

    def log_likelihood(position: Array, row: Array) -> Array:
        _checks.row(row, ())
        return jnp.sum(
            _unit_vector(row, num_categories, position.dtype) * _log_probabilities(position)
        )

    def log_prior(position: Array) -> Array:
        return jnp.sum(jnp.asarray(concentration, position.dtype) * _log_probabilities(position))

    def natural(position: Array) -> Array:
        logits = category_logits(position)
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


def _unit_vector(row: Array, num_categories: int, dtype) -> Array:
    """e_y; for anything but a category all entries are 1/K."""
    is_category = row == jnp.arange(num_categories)
    return jnp.where(
        jnp.any(is_category), is_category.astype(dtype), jnp.asarray(1 / num_categories, dtype)
    )


def category_logits(position: Array) -> Array:
    """The logits of all categories: that of the last one is 0."""
    return jnp.append(position, jnp.zeros((), position.dtype))


def _log_probabilities(position: Array) -> Array:
    return jax.nn.log_softmax(category_logits(position))


def checked_concentration(concentration: Any, num_categories: int) -> np.ndarray:
    """One positive number for each category."""
    return _checks.positive_vector(
        "concentration", concentration, num_categories, "the prior is Dirichlet(concentration)"
    )


def poisson_rate(max_count: int, prior_shape: float = 1.0, prior_rate: float = 1.0) -> Model:
    """The rate behind rows of single counts; for counts with features see `poisson`.

    Log-ratios have no proved bound: choose a clip for them.

    Args:
        max_count: Larger counts are clipped to this one. Choose it from public knowledge, well
            above the rate: clipping biases the posterior, and the noise of a
            `SufficientStatistic` grows with it.
        prior_shape: The shape of the rate's prior, a Gamma law.
        prior_rate: The rate of that prior.

    Returns:
        The model.

    Raises:
        ValueError: An argument is out of its range.

    Example:
        >>> from dpmcmc import models
        >>> models.poisson_rate(max_count=20).declared
        'counts from 0 to 20'
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
