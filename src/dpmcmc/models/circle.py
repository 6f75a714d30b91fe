r"""The circle: a thin ring that a random walk has to travel around.

    row r in R,  position (x, y),  flat prior
    log-likelihood  -a (x^2 + y^2 - r^2)^2,    a: sharpness

A row only says how far from the origin the position is. In polar coordinates dx dy = (du / 2) dphi
with u = x^2 + y^2, so under the posterior of n rows with the likelihood raised to the power T the
angle is uniform and, independently,

    u ~ N(mean of r_i^2, 1 / (2 n a T)), restricted to u > 0:

exact draws exist, which :cite:p:`raisa2021thesis`, chapter 5, did without. The ring's radius is the
root mean square of the rows, not their mean: sqrt(10) for rows from N(3, 1).

**Bound.** The gradient -4 a (|theta|^2 - r^2) theta has no bound on the plane. With |r| <= R, and
the flat prior restricted to the disc |theta| <= R, its length is at most 4 a R^3: where r^2 <=
|theta|^2 it is at most 4 a |theta|^3, elsewhere at most 4 a (R^2 - t^2) t <= 8 a R^3 / sqrt(27), t
= |theta|. It is attained on the rim by the row r = 0.
"""

from __future__ import annotations

import jax.numpy as jnp

from dpmcmc.checks import positive
from dpmcmc.models import _checks
from dpmcmc.types import Array, Model


def circle(sharpness: float, radius: float | None = None) -> Model:
    """A thin ring: rows are single numbers r, positions are points (x, y) of the plane.

    Args:
        sharpness: The a of the log-likelihood.
        radius: Declares |r| <= radius and restricts the flat prior to that disc: then `lipschitz`
            is proved. Start the chain inside. Without it choose a clip.

    Returns:
        The model.

    Raises:
        ValueError: An argument is out of its range.

    Example:
        >>> from dpmcmc import models
        >>> models.circle(0.5, radius=1.0).lipschitz
        2.0
    """
    sharpness = positive("sharpness", sharpness, "it is the a in -a (x^2 + y^2 - r^2)^2")
    if radius is not None:
        radius = positive("radius", radius, "rows and positions are no farther than this from 0")

    def log_likelihood(position: Array, row: Array) -> Array:
        _checks.row(row, ())
        return -sharpness * (jnp.sum(position**2) - jnp.asarray(row, position.dtype) ** 2) ** 2

    def log_prior(position: Array) -> Array:
        flat = jnp.zeros((), position.dtype)
        return (
            flat if radius is None else jnp.where(jnp.sum(position**2) <= radius**2, flat, -jnp.inf)
        )

    lipschitz = None if radius is None else 4 * sharpness * radius**3
    declared = None if radius is None else f"|row| <= {radius:g}"
    return Model(
        log_likelihood,
        log_prior,
        lambda position: {"x": position[0], "y": position[1]},
        2,
        lipschitz,
        declared=declared,
    )
