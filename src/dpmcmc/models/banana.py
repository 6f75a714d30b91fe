r"""The banana: a Gaussian bent along a parabola, as the posterior of an inference problem.

Straighten a position by a map of Jacobian 1 (a: curvature, m: vertex, b: shift),

    u(theta) = (theta_1, theta_2 + a (theta_1 - m)^2 + b, theta_3, ..., theta_d).

The model is  row x ~ N(u(theta), diag(v))  with prior  u(theta) ~ N(0, s^2 I):  the Gaussian model,
in u. So is its posterior, tempered or not, and a draw of it bent back,

    theta(u) = (u_1, u_2 - a (u_1 - m)^2 - b, u_3, ..., u_d),

is an exact draw of theta. With the likelihood raised to the power T and t_i = T n / v_i, the u_i
are independent with mean t_i xbar_i / (t_i + 1/s^2) and variance 1 / (t_i + 1/s^2)
(:cite:p:`raisa2021thesis`, Theorem 5.2).

No bound: the gradient grows without limit in x and in theta, so `lipschitz` is None and a clip has
to be chosen.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from dpmcmc.models.gaussian import gaussian
from dpmcmc.types import Array, Model


def banana(
    variances: Any,
    curvature: float,
    shift: float = 0.0,
    vertex: float = 0.0,
    prior_scale: Any = 1.0,
) -> Model:
    """A Gaussian bent along a parabola, on rows of shape (d,).

    Args:
        variances: The d >= 2 variances of a row's entries.
        curvature: The a of the parabola; with 0 the model is Gaussian.
        shift: The parabola's b.
        vertex: The parabola's m.
        prior_scale: Standard deviation of the straightened position's prior.

    Returns:
        The model.

    Raises:
        ValueError: An argument is out of its range.

    Example:
        >>> from dpmcmc import models
        >>> models.banana([1.0, 1.0], curvature=2.0).dimension
        2
    """
    straight = gaussian(checked_variances(variances), prior_scale)
    bend = parabola(curvature, shift, vertex)

    def straighten(position: Array) -> Array:
        return position.at[1].add(bend(position[0]))

    return Model(
        log_likelihood=lambda position, row: straight.log_likelihood(straighten(position), row),
        log_prior=lambda position: straight.log_prior(straighten(position)),
        unravel=lambda position: {"theta": position},
        dimension=straight.dimension,
    )


def parabola(curvature: float, shift: float, vertex: float) -> Callable[[Array], Array]:
    """The function by which the second entry is bent, of the first."""
    for name, value in (("curvature", curvature), ("shift", shift), ("vertex", vertex)):
        if not math.isfinite(value):
            raise ValueError(
                f"{name}={value} must be finite: it shapes curvature * (theta_1 - vertex)^2 + shift"
            )
    return lambda first: curvature * (first - vertex) ** 2 + shift


def checked_variances(variances: Any) -> np.ndarray:
    """Two or more variances, or a ValueError."""
    array = np.asarray(variances, dtype=float)
    if array.ndim != 1 or len(array) < 2 or not (np.isfinite(array).all() and (array > 0).all()):
        raise ValueError(
            f"variances={variances} must be two or more positive numbers: one for each column of a "
            "row"
        )
    return array
