"""How far a clip moves a posterior: on simulated rows, before anything is spent."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpmcmc.checks import is_number, whole
from dpmcmc.types import Model


def clip_shift(model: Model, made_up: Any, position: Any, clip: float, num_rows: int) -> np.ndarray:
    """How far a clip of gradients moves the posterior mean, in posterior standard deviations.

    To first order: clipped gradients sum to zero where the clipped posterior is, so it is off by
    their sum here over how fast that sum decreases. **Not private**: for simulated rows only.

    Args:
        model: The model.
        made_up: Rows that were simulated at this position. Simulate many, 20 000 or more: the
            result depends on the few that are clipped.
        position: The parameters that the rows were simulated with.
        clip: The length of a row's gradient beyond which it is shortened.
        num_rows: The number of rows of the table.

    Returns:
        One number for each component.

    Raises:
        ValueError: clip or num_rows is not positive.

    Example:
        >>> import numpy as np
        >>> from dpmcmc import models
        >>> rows = np.array([[-1.0], [0.0], [3.0]])
        >>> shift = clip_shift(models.gaussian([1.0]), rows, np.array([0.5]), 2.0, num_rows=100)
        >>> shift.round(1).tolist()
        [-2.5]
    """
    import jax
    import jax.numpy as jnp

    if not (is_number(clip) and clip > 0):
        raise ValueError(
            f"clip={clip} must be positive: the length of a row's gradient beyond which it is "
            "shortened"
        )
    num_rows = whole("num_rows", num_rows)

    def clipped(position, row):
        gradient = jax.grad(model.log_likelihood)(position, row)
        length = jnp.sqrt(jnp.sum(gradient**2))
        is_long = length > clip
        return jnp.where(is_long, gradient * (clip / jnp.where(is_long, length, 1)), gradient)

    def mean(function):
        return jnp.mean(jax.vmap(function, (None, 0))(position, made_up), axis=0)

    def facts(position):
        gradient = jax.grad(model.log_likelihood)
        prior = -jax.hessian(model.log_prior)(position) / num_rows
        decrease = -mean(jax.jacfwd(clipped)) + prior
        hessian = -mean(jax.hessian(model.log_likelihood)) + prior
        return mean(lambda *at: clipped(*at) - gradient(*at)), decrease, hessian

    position = jnp.asarray(position, float)
    bias, decrease, hessian = (np.asarray(fact, float) for fact in jax.jit(facts)(position))
    return np.linalg.solve(decrease, bias) * np.sqrt(num_rows / np.diag(np.linalg.inv(hessian)))
