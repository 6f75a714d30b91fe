"""How wide the prior alone is, in the named parameters."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpmcmc.precision import in_double, own_settings

FLAT = 1e-9  # of the largest precision: below it the prior is flat along that direction
NEGLIGIBLE = 1e-12  # of a squared gradient: what is smaller is rounding


def prior_widths(
    log_prior: Callable, unravel: Callable, position: np.ndarray
) -> dict[str, np.ndarray]:
    """The prior's standard deviation of every real parameter by name, to first order around a
    position.

    With P minus the Hessian of the log prior and J the Jacobian of the parameters, the variances
    are the diagonal of J P^-1 J'. They are infinite where the prior is flat.

    Args:
        log_prior: The logarithm of the prior's density.
        unravel: From a position to the parameters by name.
        position: Where the derivatives are taken.

    Returns:
        The standard deviations, by the name of the parameter.
    """
    with own_settings(in_double()):
        precision, gradients = jax.tree.map(
            np.asarray,
            _derivatives(log_prior, unravel, jnp.asarray(position, jnp.result_type(float))),
        )
    values, axes = np.linalg.eigh(np.asarray(precision, float))
    is_flat = ~(values > FLAT * max(np.abs(values).max(), 0.0))
    variances = np.where(is_flat, np.inf, 1 / np.where(is_flat, 1.0, values))
    found = {}
    for name, gradient in gradients.items():
        squares = np.square(np.asarray(gradient, float) @ axes)
        is_relevant = squares > NEGLIGIBLE * squares.sum(axis=-1, keepdims=True)
        found[name] = np.sqrt(
            np.sum(
                np.where(is_relevant, squares, 0.0) * np.where(is_relevant, variances, 0.0), axis=-1
            )
        )
    return found


@functools.partial(jax.jit, static_argnums=(0, 1))
def _derivatives(
    log_prior: Callable, unravel: Callable, position: Any
) -> tuple[Any, dict[str, Any]]:
    def real(position):
        return {
            name: value
            for name, value in unravel(position).items()
            if jnp.issubdtype(jnp.result_type(value), jnp.floating)
        }

    return -jax.hessian(log_prior)(position), jax.jacfwd(real)(position)
