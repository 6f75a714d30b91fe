"""How far a clip moves a posterior: on simulated rows, before anything is spent."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpmcmc.checks import is_number, whole
from dpmcmc.types import Model


def clip_shift(model: Model, made_up: Any, position, clip: float, num_rows: int) -> np.ndarray:
    """How far a clip of gradients moves the posterior mean, in posterior standard deviations: one
    number for each component.

    For a table of `num_rows` rows like the `made_up` ones, which were made at this position. Make
    up many, 20 000 or more: the figures hang on the few that are clipped. To first order: clipped
    slopes add up to zero where the clipped posterior is, so it is off by what they add up to here,
    over how fast that falls. **Not private**: for made-up rows, before anything is spent.
    """
    import jax
    import jax.numpy as jnp

    if not (is_number(clip) and clip > 0):
        raise ValueError(
            f"clip={clip} must be positive: the length of a row's slope beyond which it is "
            "shortened"
        )
    num_rows = whole("num_rows", num_rows)

    def clipped(position, row):
        slope = jax.grad(model.log_likelihood)(position, row)
        length = jnp.sqrt(jnp.sum(slope**2))
        return jnp.where(length > clip, slope * (clip / jnp.where(length > clip, length, 1)), slope)

    def mean(function):
        return jnp.mean(jax.vmap(function, (None, 0))(position, made_up), axis=0)

    def facts(position):
        slope = jax.grad(model.log_likelihood)
        prior = -jax.hessian(model.log_prior)(position) / num_rows
        fall = -mean(jax.jacfwd(clipped)) + prior
        curvature = -mean(jax.hessian(model.log_likelihood)) + prior
        return mean(lambda *at: clipped(*at) - slope(*at)), fall, curvature

    position = jnp.asarray(position, float)
    lost, fall, curvature = (np.asarray(fact, float) for fact in jax.jit(facts)(position))
    return np.linalg.solve(fall, lost) * np.sqrt(num_rows / np.diag(np.linalg.inv(curvature)))
