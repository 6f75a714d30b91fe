"""Clip what one row contributes.

Total: at zero, at the bound, at infinity and at NaN the result is a public, finite value.
"""

from __future__ import annotations

import jax.numpy as jnp


def clip_to_unit(value, bound):
    """value / bound, clipped to [-1, 1]; NaN (also 0/0) gives 0. Odd in value, so a clipped
    log-ratio stays antisymmetric.
    """
    ratio = value / bound
    return jnp.where(jnp.isnan(ratio), 0.0, jnp.clip(ratio, -1.0, 1.0)).astype(ratio.dtype)


HUGE = 2.0**50  # squares of it add up without overflow, and it is beyond any clip


def clip_to_unit_ball(vector, bound):
    """vector / bound along the last axis, shortened to length 1 if it is longer, less a margin for
    rounding.

    The margin covers the rounding of the length, of the quotient and of a truncation toward zero,
    and what `shrink_to_ball` may overestimate a length by (d 2^-28): a vector at the bound must not
    count as too long. A NaN anywhere gives the zero vector; infinite entries outweigh finite ones.
    """
    scaled = jnp.clip(vector * (1 / bound), -HUGE, HUGE)
    squared = jnp.sum(scaled * scaled, axis=-1, keepdims=True)
    longest = 1.0 - (vector.shape[-1] + 16) * max(float(jnp.finfo(scaled.dtype).eps), 2.0**-28)
    factor = jnp.where(squared > longest**2, longest / jnp.sqrt(squared), 1.0)
    return jnp.where(jnp.isnan(squared), 0.0, scaled * factor).astype(scaled.dtype)
