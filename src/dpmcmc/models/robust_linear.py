r"""Linear regression with an unknown noise and robust tails: like logistic regression, a model with
a bound for free.

    row (x, y),  x in R^k,  y in R;    y = z + s e,   z = x . b  (+ a, the intercept)
    s: the noise, unknown
    e has Huber's density (:cite:p:`huber1964robust`), normal up to K and exponential beyond:

        -log p(e) = h(e) = e^2 / 2,   or  K |e| - K^2 / 2  where |e| > K

Declare |x| <= R and |y| <= Y. With v for x, or (1, x) with an intercept, and R' >= |v|, the
position is  c = (a, b) / s  and a number t that stands for the noise:

    Y / s = q = K0 + R' t / sqrt(2)
    every c_i ~ N(0, prior_scale^2),   t ~ N(0, 40^2),   independently,

with K0 = 1.345: at zero no row is in the tails, where its Hessian is 0, so a private start finds
curvature there.

So coefficients have their prior in units of the noise. Up to a constant a row's log-likelihood is

    log q - h(u),      u = q y / Y - v . c,

and where q < 1 the logarithm is continued by its tangent. In these coordinates
(:cite:p:`olsen1978note`) it is concave everywhere: there is one maximum, and gradients lead to it
from every start.

The likelihood itself has its maximum at q >= 1: the mean over rows of h'(u) v is 0 there and that
of h'(u) y / Y is 1 / q, so that of h'(u) u is 1; and |h'(u) y / Y| <= |h'(u)| has a mean of at most
1, because h'(u)^2 <= h'(u) u.

**Bound.** Its gradient is h'(u) v in c and  R' / sqrt(2) (1 / max(q, 1) - h'(u) y / Y)  in t, and
|h'| <= K. So

    |log-ratio| <= R' (K^2 + (K + 1)^2 / 2)^(1/2) |theta' - theta|,

attained by a row with |v| = R' and |y| = Y that is far off, at q <= 1. Minus the Hessian is 0, or
the product of (-v, w y / Y) with itself, w = R' / sqrt(2), and  w^2 / q^2  in t: its squared norm
is at most  ((1 + 1/2)^2 + 3 (1/2)^2) R'^4 = 3 R'^4,  as at q = 1.

All gradients have  w / max(q, 1)  in t in common. Around this center they are  h'(u) (v, -w y / Y),
within  K R' (3/2)^(1/2), which is 0.77 of the bound above, and 0 is within w: with a public number
of rows that much less noise will do (`CenteredGradient`).

**Curvature.** Along  (c, q / w),  which changes the noise and no coefficient of people, the Hessian
is small, and noise that is released with it would hide it. But u is homogeneous: minus the Jacobian
M of the gradients around the center, times (c, q / w), is the sum of the h'(u) (-v, w y / Y) of the
rows within K, and where no row is beyond K minus the gradient itself. Its product with (c, q / w)
is the sum of their u^2: 0.36 of the number of rows where the model holds, 0.38 where the noise is
normal. So M follows from the Gram matrix of the v of rows within K, from the gradient and from that
number (`vectors`). If cells are missing, the Gram matrix's first entry says about how many.

Normal noise (linear.py) has no such bounds. If the noise is normal, K = 1.345 costs 7 % of the
rows' information, and s is 0.87 of its standard deviation. A row far off has no more influence than
one at K. Because t is in units of R', privacy noise, which is equal in all directions, leaves s
about as well known as the coefficients if s is a quarter of Y, and less well if s is smaller.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpmcmc.checks import positive, whole
from dpmcmc.keeping import made_once
from dpmcmc.models import _checks, _regression
from dpmcmc.types import Array, Model, Position, Row, Vectors

HUBER = 1.345
CENTER = HUBER  # of Y / s
SHARE = 0.5  # of R'^2, in the square of the unit of t
NOISE_PRIOR = 40.0  # standard deviation of t: wide enough for a noise of about 1 % of Y
NOISE = "noise_scale"  # its name among the parameters
# Of the rows: if fewer are within K, cells are missing. Of normal noise there are 0.76
FEWEST_WITHIN = 0.65
LEAST_SQUARES = 0.01  # of the number of rows, for the sum of u^2
LEAST_LEFT = 1 / 9  # of that sum, when the other coordinates are known: q at most triples


@made_once
def robust_linear(
    num_features: int,
    radius: float,
    response_bound: float,
    prior_scale: Any = 10.0,
    intercept: bool = False,
    names: Sequence[str] | None = None,
    threshold: float = HUBER,
) -> Model:
    """Robust linear regression with an unknown noise, on rows (x, y).

    The position has the coefficients divided by the noise, and then t, which determines the noise;
    a chain may start at zero. The released parameters are the coefficients and `noise_scale`.

    Outliers have little influence. If errors are skewed, the coefficients therefore describe the
    bulk of the rows, and not the conditional mean that least squares estimates.

    Args:
        num_features: The number of columns of x.
        radius: The public bound of |x|, without the intercept's constant 1.
        response_bound: The public bound of |y|.
        prior_scale: Standard deviation of the coefficients' priors, in units of the noise.
        intercept: Whether z has an intercept; it then comes first in the position and in `names`.
        names: One name for each coefficient; without names they stay together.
        threshold: K, in units of the noise: beyond it the tails are exponential.

    Returns:
        The model.

    Raises:
        ValueError: An argument is out of its range.

    Example:
        >>> from dpmcmc import models
        >>> models.robust_linear(2, radius=1.0, response_bound=5.0).dimension
        3
    """
    num_features = whole("num_features", num_features, 1, "the number of columns of x")
    bound = positive("response_bound", response_bound, "it bounds |y|; move y by a constant to fit")
    threshold = positive("threshold", threshold, "larger errors, in noises, pull no harder")
    row_radius = _regression.row_radius(radius, intercept)
    weight = math.sqrt(SHARE) * row_radius
    dimension = num_features + bool(intercept) + 1
    scale = _checks.positive_vector(
        "prior_scale", prior_scale, dimension - 1, "it is the prior's standard deviation, in noises"
    )
    coefficients = _regression.unravel(dimension - 1, intercept, names)
    _check_names(names)

    def inverse_noise(position: Position) -> Array:
        return CENTER + weight * position[-1]

    def log_likelihood(position: Position, row: Row) -> Array:
        _checks.row(row, (num_features,), ())
        inverse = inverse_noise(position)
        error = inverse * (row[1] / bound) - _regression.predictor(position[:-1], row[0], intercept)
        return _checks.if_known(error, _log(inverse) - _huber(threshold, error))

    def center(position: Position) -> Array:
        return jnp.zeros_like(position).at[-1].set(weight / jnp.maximum(inverse_noise(position), 1))

    def unravel(position: Position) -> dict[str, Array]:
        noise = bound / jnp.maximum(inverse_noise(position), 0.5)  # draws are near 1 at the least
        return {**coefficients(noise * position[:-1]), NOISE: noise}

    return Model(
        log_likelihood=log_likelihood,
        log_prior=_regression.prior(np.append(scale, NOISE_PRIOR), dimension),
        unravel=unravel,
        dimension=dimension,
        lipschitz=math.hypot(threshold * row_radius, (threshold + 1) * weight),
        hessian_bound=row_radius**2 * math.sqrt((1 + SHARE) ** 2 + 3 * SHARE**2),
        declared=f"|x| <= {radius:g}, |y| <= {bound:g}",
        center=center,
        # The latter is that of a row that is ignored
        spread=max(threshold * math.hypot(row_radius, weight), weight),
        vectors=_vectors(threshold, row_radius, weight, bound, intercept, inverse_noise),
    )


def _vectors(
    threshold: float,
    row_radius: float,
    weight: float,
    bound: float,
    intercept: bool,
    inverse_noise: Callable[[Position], Array],
) -> Vectors:
    """The v of rows within K, and the curvature made of them."""
    squares = _squares_within(threshold)

    def of_row(position: Position, row: Row) -> Array:
        error = inverse_noise(position) * (row[1] / bound) - _regression.predictor(
            position[:-1], row[0], intercept
        )
        features = row[0]
        if intercept:
            features = jnp.concatenate([jnp.ones(1, features.dtype), features])
        return jnp.where(jnp.abs(error) <= threshold, features, 0)

    def curvature(position: Position, gradient: Array, gram: Array, num_rows: float) -> Array:
        known = jnp.minimum(num_rows, gram[0, 0] / FEWEST_WITHIN) if intercept else num_rows
        inverse = jnp.maximum(inverse_noise(position), 1)
        pull = gradient[:-1]
        total = -(pull @ position[:-1] + gradient[-1] * inverse / weight)
        total = jnp.minimum(total, squares * known - (num_rows - known))
        total = jnp.maximum(total, LEAST_SQUARES * num_rows)
        explained = pull @ jnp.linalg.solve(gram, pull)
        total = explained + jnp.maximum(total - explained, LEAST_LEFT * total)
        # In coordinates that are coefficients of people, over the noise, and log(q)
        inner = jnp.block([[gram, -pull[:, None]], [-pull[None], total[None, None]]])
        turn = jnp.eye(len(position), dtype=position.dtype)
        turn = turn.at[:-1, -1].set(-position[:-1] * weight / inverse)
        turn = turn.at[-1, -1].set(weight / inverse)
        return turn.T @ inner @ turn

    return Vectors(of_row, row_radius, curvature)


def _squares_within(threshold: float) -> float:
    """The mean over all rows of u^2 where |u| <= K, and else 0, if u has Huber's density."""
    middle = math.sqrt(2 * math.pi) * math.erf(threshold / math.sqrt(2))
    end = 2 * math.exp(-(threshold**2) / 2)
    return (middle - threshold * end) / (middle + end / threshold)


def _check_names(names: Sequence[str] | None) -> None:
    if NOISE in (names or ()):
        raise ValueError(
            f"names={names!r} must be without {NOISE!r}: that is a parameter of its own"
        )


def _log(inverse: Array) -> Array:
    """The logarithm, and its tangent below 1."""
    return jnp.log(jnp.maximum(inverse, 1)) + jnp.minimum(inverse - 1, 0)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _huber(threshold: float, error: Array) -> Array:
    """h."""
    pull = jnp.clip(error, -threshold, threshold)
    return pull * (error - pull / 2)


@_huber.defjvp
def _huber_derivative(threshold, values, tangents):
    return _huber(threshold, values[0]), jnp.clip(values[0], -threshold, threshold) * tangents[0]
