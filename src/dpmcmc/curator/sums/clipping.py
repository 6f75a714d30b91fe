"""Clip what one row contributes.

Total: at zero, at the bound, at infinity and at NaN the result is a public, finite value.
"""

from __future__ import annotations

import jax.numpy as jnp

from dpmcmc.types import Array


def clip_to_unit(value: Array, bound: Array) -> Array:
    """value / bound, clipped to [-1, 1]; NaN (also 0/0) gives 0.

    It is odd in value, so a clipped log-ratio stays antisymmetric.

    Args:
        value: The values of the rows.
        bound: The largest absolute value.

    Returns:
        The clipped quotients, in the type of the quotient.

    Example:
        >>> import jax
        >>> import numpy as np
        >>> from dpmcmc import queries
        >>> values = np.array([1.0, -8.0, np.nan], np.float32)
        >>> jax.jit(queries.clip_to_unit)(values, 4.0).tolist()
        [0.25, -1.0, 0.0]
    """
    ratio = value / bound
    return jnp.where(jnp.isnan(ratio), 0.0, jnp.clip(ratio, -1.0, 1.0)).astype(ratio.dtype)


HUGE = 2.0**50  # squares of it add up without overflow, and it is beyond any clip


def clip_to_unit_ball(vector: Array, bound: Array) -> Array:
    """vector / bound along the last axis, shortened to length 1 if it is longer.

    It is shortened a little more, by a margin for the rounding of the length, of the quotient and
    of a truncation toward zero, and for what `shrink_to_ball` may overestimate a length by (d
    2^-28): a vector at the bound must not count as too long. A NaN anywhere gives the zero vector;
    infinite entries outweigh finite ones.

    Args:
        vector: The vectors of the rows, along the last axis.
        bound: The largest length.

    Returns:
        The shortened quotients, in the type of the quotient.

    Example:
        >>> import jax
        >>> import numpy as np
        >>> from dpmcmc import queries
        >>> vectors = np.array([[3.0, 4.0], [0.25, 0.5]], np.float32)
        >>> shortened = jax.jit(queries.clip_to_unit_ball)(vectors, 1.0)
        >>> np.asarray(shortened, float).round(3).tolist()
        [[0.6, 0.8], [0.25, 0.5]]
    """
    scaled = jnp.clip(vector * (1 / bound), -HUGE, HUGE)
    squared = jnp.sum(scaled * scaled, axis=-1, keepdims=True)
    longest = 1.0 - (vector.shape[-1] + 16) * max(float(jnp.finfo(scaled.dtype).eps), 2.0**-28)
    factor = jnp.where(squared > longest**2, longest / jnp.sqrt(squared), 1.0)
    return jnp.where(jnp.isnan(squared), 0.0, scaled * factor).astype(scaled.dtype)
