r"""The circle: a thin ring that a random walk has to travel around.

    row r in R,  position (x, y),  flat prior:      log-likelihood  -a (x^2 + y^2 - r^2)^2,      a: sharpness

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

import jax
import jax.numpy as jnp

from dpmcmc.checks import positive
from dpmcmc.models import _checks
from dpmcmc.types import Array, Key, Model


def circle(sharpness: float, radius: float | None = None) -> Model:
    """Rows are single numbers r, positions points (x, y) of the plane.

    With `radius`, |r| <= radius is declared and the flat prior ends there, which buys a proved
    `lipschitz`; start the chain inside. Without it there is no bound: choose a clip.
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


def draw_circle_posterior(
    rng_key: Key,
    num_draws: int,
    rows,
    sharpness: float,
    radius: float | None = None,
    temperature: float = 1.0,
) -> Array:
    """Exact, independent draws (num_draws, 2) of the tempered posterior.

    **Not private**: for tests and figures.
    """
    sharpness = positive("sharpness", sharpness, "it is the a in -a (x^2 + y^2 - r^2)^2")
    temperature = _checks.temperature(temperature)
    key_angle, key_square = jax.random.split(rng_key)
    center = jnp.mean(jnp.square(rows))
    scale = (2 * len(rows) * sharpness * temperature) ** -0.5
    upper = jnp.inf if radius is None else (radius**2 - center) / scale
    normal = jax.random.truncated_normal(
        key_square, -center / scale, upper, (num_draws,), center.dtype
    )
    distance = jnp.sqrt(jnp.maximum(center + scale * normal, 0.0))
    angle = 2 * jnp.pi * jax.random.uniform(key_angle, (num_draws,), center.dtype)
    return distance[:, None] * jnp.stack([jnp.cos(angle), jnp.sin(angle)], axis=1)


def simulate_circle_rows(
    rng_key: Key, num_rows: int, mean: float = 3.0, scale: float = 1.0
) -> Array:
    """Rows (num_rows,) from N(mean, scale^2), as in :cite:p:`raisa2021thesis`: the model itself
    does not say how rows arise.
    """
    return mean + scale * jax.random.normal(rng_key, (num_rows,))
