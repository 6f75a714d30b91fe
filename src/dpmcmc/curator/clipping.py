"""Clip what one row contributes. Total: at zero, at the bound, at infinity and at NaN the result is a public, finite value."""

from __future__ import annotations

import jax.numpy as jnp


def clip_to_unit(value, bound):
    """value / bound, clipped to [-1, 1]; NaN (also 0/0) gives 0. Odd in value, so a clipped log-ratio stays antisymmetric."""
    ratio = value / bound
    return jnp.where(jnp.isnan(ratio), 0.0, jnp.clip(ratio, -1.0, 1.0)).astype(ratio.dtype)
