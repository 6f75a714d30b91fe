"""What the regressions share: z = x . b (+ a, the intercept, which comes first), its prior and its
names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from dpmcmc.checks import positive
from dpmcmc.models import _checks
from dpmcmc.models.gaussian import HIGHEST
from dpmcmc.types import Array, Labelled, Linear, Row


def predictor(position: Array, features: Array, intercept: bool) -> Array:
    """z of one row. Under `vmap` over rows and positions it is a single matrix product."""
    product = jnp.dot(features, position[int(intercept) :], precision=HIGHEST)
    return product + position[0] if intercept else product


def linear(
    log_likelihood: Callable[[Array, Row], Array],
    intercept: bool,
    labelled: Labelled | None = None,
) -> Linear:
    """The parts of a regression on rows (x, y) whose log-likelihood, given z, is the given one."""

    def features(row: Row) -> tuple[Array, ...]:
        return (jnp.ones((1,), row[0].dtype), row[0]) if intercept else (row[0],)

    def checked_predictor(position: Array, row: Row) -> Array:
        _checks.row(row, (position.size - bool(intercept),), ())
        return predictor(position, row[0], intercept)

    return Linear(checked_predictor, features, log_likelihood, labelled)


def prior(
    prior_scale, dimension: int, position_radius: float | None = None
) -> Callable[[Array], Array]:
    """Independent normals around 0, restricted to a ball if `position_radius` is given."""
    scale = _checks.prior_scale(prior_scale, dimension)

    def log_prior(position: Array) -> Array:
        log_density = -0.5 * jnp.sum((position / jnp.asarray(scale, position.dtype)) ** 2)
        if position_radius is None:
            return log_density
        return jnp.where(jnp.sum(position**2) <= position_radius**2, log_density, -jnp.inf)

    return log_prior


def unravel(
    dimension: int, intercept: bool, names: Sequence[str] | None
) -> Callable[[Array], dict[str, Array]]:
    """One entry for each name; without names the coefficients stay together."""
    if names is not None:
        return _unravel_by_name(dimension, names)
    if intercept:
        return lambda position: {"intercept": position[0], "coefficients": position[1:]}
    return lambda position: {"coefficients": position}


def row_radius(radius: float, intercept: bool) -> float:
    """The largest length of x, or of (1, x) with an intercept, when |x| <= radius."""
    radius = positive(
        "radius", radius, "it bounds |x| of every row; scale x by public constants to fit"
    )
    return float(np.hypot(1.0, radius)) if intercept else radius


class Limits(NamedTuple):
    """Public limits of a regression, from which its bound follows."""

    row: float  # of |x|, or |(1, x)| with an intercept
    response: float  # of |y|
    predictor: float  # of |z|


def limits(
    radius: float | None,
    response_bound: float | None,
    position_radius: float | None,
    intercept: bool,
) -> Limits | None:
    """The limits that three declarations imply, or None when there are none of them."""
    if radius is None and response_bound is None and position_radius is None:
        return None
    if radius is None or response_bound is None or position_radius is None:
        given = (
            f"radius={radius}, response_bound={response_bound}, position_radius={position_radius}"
        )
        raise ValueError(f"{given}: a bound needs all three; give all, or none and choose a clip")
    response_bound = positive("response_bound", response_bound, "it bounds |y| of every row")
    position_radius = positive(
        "position_radius", position_radius, "the prior is restricted to this ball"
    )
    row = row_radius(radius, intercept)
    return Limits(row, response_bound, row * position_radius)


def _unravel_by_name(dimension: int, names: Sequence[str]) -> Callable[[Array], dict[str, Array]]:
    if isinstance(names, str) or len(names) != dimension or len(set(names)) != dimension:
        raise ValueError(
            f"names={names!r} must be {dimension} different names: one per entry, the intercept "
            "first"
        )
    return lambda position: {name: position[i] for i, name in enumerate(names)}
