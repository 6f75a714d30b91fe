r"""The penalty test on a noisy sufficient statistic :cite:p:`yildirim2019exact` (Algorithm 3).

In an exponential family, log p(x|t) = h(x) + f(t) . S(x) - A(t), the log-ratio of n rows for a move
from t to t' is

    (f' - f) . V + n ((f' - f) . c - (A' - A)),      V = sum_i (S(x_i) - c),

where c is a public center. The curator releases V, and n where it is private, with fresh Gaussian
noise in every step. The log-ratio is linear in what is released, so its noise is Gaussian too, of
the variance

    v = sum_j (f' - f)_j^2 var(V_j) + ((f' - f) . c - (A' - A))^2 var(n),

and the penalty test with v / 2 keeps the posterior exactly. A statistic that is released once and
used in every step would not keep it: the law of the chain would be the posterior of other rows.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from dpmcmc.precision import always_double
from dpmcmc.samplers import roles
from dpmcmc.samplers.penalty import penalty
from dpmcmc.samplers.proposals import Proposal
from dpmcmc.types import Answer, Array, Family, Model, Position, Query, Sampler


def exponential_penalty(model: Model, statistic: Query, proposal: Proposal) -> Sampler:
    """Random-walk sampler that receives one noisy sufficient statistic per step, for a model with a
    `family`.

    The time of a step does not depend on the number of rows. The answers of several owners add.

    Args:
        model: The model; its `family` says what the statistic is.
        statistic: A `SufficientStatistic` query.
        proposal: How the chain moves, such as `random_walk(scale)`.

    Returns:
        The sampler.

    Raises:
        TypeError: model is not a `Model`, or proposal is not a `Proposal`.
        ValueError: The model has no `family`.

    Example:
        >>> import dpmcmc
        >>> model = dpmcmc.models.categorical(3)
        >>> statistic = dpmcmc.queries.SufficientStatistic(noise_multiplier=30.0)
        >>> walk = dpmcmc.random_walk(scale=0.1)
        >>> sampler = dpmcmc.exponential_penalty(model, statistic, walk)

        ``dpmcmc.sample(rng_key, sampler, curator, position)`` runs it.
    """
    roles.check_model(model)
    family = model.family
    if family is None:
        raise ValueError(
            "the model has no `family`: declare the bounds that make it one (radius=..., "
            "max_count=...), or use "
            "penalty(model.log_prior, LogRatio(...), proposal)"
        )

    walk = penalty(model.log_prior, statistic, proposal)

    def step(rng_key, state, ask):
        def ask_ratio(rng_key, statistic, position, point):
            return _log_ratio(
                change(family, position, point), ask(rng_key, statistic, position), position.dtype
            )

        return walk.step(rng_key, state, ask_ratio)

    return Sampler(walk.init, step)


def change(family: Family, position: Position, proposal: Position) -> Array:
    """The weights of the answer's entries in the log-ratio, float64 of shape (m + 1,):

    f' - f and (f' - f) . c - (A' - A).
    """

    def difference(position, proposal):
        before = position.astype(jnp.float64)
        after = proposal.astype(jnp.float64)
        natural = family.natural(after) - family.natural(before)
        partition = family.log_partition(after) - family.log_partition(before)
        return jnp.append(
            natural, jnp.sum(natural * jnp.asarray(family.center, jnp.float64)) - partition
        )

    # A float32 difference is off by 1e-7 of its terms, and it is multiplied by the number of rows.
    with jax.enable_x64(True):
        return always_double(difference)(position, proposal)


def _log_ratio(weights, answer: Answer, dtype) -> Answer:
    """The rows' noisy log-ratio and the variance of its noise."""
    with jax.enable_x64(True):
        ratio = jnp.sum(weights * answer.value.astype(jnp.float64))
        variance = jnp.sum(weights**2 * answer.variance.astype(jnp.float64))
        return Answer(ratio.astype(dtype), variance.astype(dtype))
