r"""Two overlapping Gaussians, the first at theta_1 and the second theta_2 further on.

    row x ~ 1/2 N(theta_1, v) + 1/2 N(theta_1 + theta_2, v)
    flat prior on the square |theta_1|, |theta_2| <= B

The posterior has two modes, (m, d) and (m + d, -d). Rows are declared to lie in [-R, R]
(:cite:p:`zhang2023dpfast`, section 6.1 and appendix E.1). A flat prior on the whole plane would
have no posterior: as theta_2 grows the likelihood tends to a positive constant, and its integral is
infinite. So the square is part of the model; B = 3 is what that paper's constants presume.

**Bound.** In units of sqrt(v), let u = x - theta_1 and w = u - theta_2 be the distances to the two
centers, and p = 1 / (1 + exp((w^2 - u^2) / 2)) the weight of the second. The gradient is ((1-p) u +
p w, p w). Its length F is largest at u = A = R + B:

  - Flipping the signs of u and w together changes nothing, so take u >= 0. Replacing a negative w
    by |w| keeps p, brings w closer to u (so theta_2 = u - w stays allowed) and does not lower F. So
    take w >= 0.
  - Keep p fixed and raise u to A, with w^2 = u^2 - 2 log(p / (1-p)) rising along. Both entries of
    the gradient rise, and |u - w| = 2 |log(p / (1-p))| / (u + w) falls, so theta_2 stays allowed.

What is left is F as a function of w in [R, A + B]. It is evaluated on a grid of step h; between
grid points it is higher by at most H h / 2, where H bounds the Hessian. That is p (1-p) e e^T -
[[1, p], [p, p]] with e = (u - w, -w): a difference of positive semidefinite matrices, of norms at
most (B^2 + (A + B)^2) / 4 and 2, so H is the larger of these. The largest grid value plus H h / 2
is the bound: proved, and within 1 % of the supremum while A <= 40. For R = B = 3, v = 2 it is 3.58;
the paper's constant is 8.75.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from dpmcmc.checks import positive
from dpmcmc.models import _checks
from dpmcmc.types import Array, Model


def mixture(variance: float = 2.0, row_bound: float = 3.0, position_bound: float = 3.0) -> Model:
    """Two overlapping Gaussians, on rows of single numbers.

    Args:
        variance: The variance of each component.
        row_bound: Declares that rows lie in [-row_bound, row_bound]; others are clipped.
        position_bound: Half the side of the square on which the prior is flat. Start the chain
            inside it.

    Returns:
        The model.

    Raises:
        ValueError: An argument is out of its range.

    Example:
        >>> from dpmcmc import models
        >>> models.mixture().dimension
        2
    """
    variance = positive("variance", variance, "it is the variance of each component")
    row_bound = positive("row_bound", row_bound, "every row lies in [-row_bound, row_bound]")
    position_bound = positive(
        "position_bound", position_bound, "it is half the side of the prior's square"
    )

    def log_likelihood(position: Array, row: Array) -> Array:
        _checks.row(row, ())
        first = row - position[0]
        second = row - position[0] - position[1]
        return jnp.logaddexp(-(first**2) / (2 * variance), -(second**2) / (2 * variance))

    def log_prior(position: Array) -> Array:
        is_inside = jnp.max(jnp.abs(position)) <= position_bound
        return jnp.where(is_inside, jnp.zeros((), position.dtype), -jnp.inf)

    def unravel(position: Array) -> dict[str, Array]:
        return {"theta_1": position[0], "theta_2": position[1]}

    bound = _bound(variance, row_bound, position_bound)
    return Model(log_likelihood, log_prior, unravel, 2, bound, declared=f"|row| <= {row_bound:g}")


def _bound(
    variance: float, row_bound: float, position_bound: float, num_points: int = 2**18
) -> float:
    scale = np.sqrt(variance)
    R = row_bound / scale
    B = position_bound / scale
    A = R + B
    w, step = np.linspace(R, A + B, num_points, retstep=True)
    # At e^700 nothing overflows, and p is 0 to all digits
    p = 1 / (1 + np.exp(np.minimum((w**2 - A**2) / 2, 700.0)))
    length = np.hypot((1 - p) * A + p * w, p * w)
    hessian = max(2.0, (B**2 + (A + B) ** 2) / 4)
    return float((length.max() + hessian * step / 2) / scale)
