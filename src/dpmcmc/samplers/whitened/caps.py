r"""How far out a row may count: the cap of its weight, chosen on simulated rows.

In whitened coordinates a row u with predictor t = u . phi gets the weight

    w = min(1, C / (q |u|)) min(1, 2 C / |u|),      q = the largest |f'| at t over all labels,

which depends on the features and on phi and never on the label: whatever w is, the weighted score
w f' u has the mean 0 under the model. A small cap C needs little noise and wastes rows. Where the
model does not hold, weights move the answer too, and by how much nobody knows. So a cap is charged
with an allowance, which also widens the posterior: that the mean score of what is taken away is off
by a quarter of a row's standard deviation (`MISFIT`), which shifts the posterior by
sqrt(n) MISFIT E[1 - w]  of its standard deviations.

Rows are simulated from a noisy histogram of their lengths |u|, their directions uniform. In the
direction of phi and across it, with N the variance of the gradient's noise,

    H = n E[v a],   J = n E[v w a],   V = n E[v w^2 a],     a = the square of u along the direction,

and what noise and weights add to the variance of the posterior mean is  N / J^2 + V / J^2 - 1 / H.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy import special

from dpmcmc.domains import RowSet
from dpmcmc.types import Answer, Array

NUM_CELLS = 24  # of the histogram
WIDEST = 12.0  # the longest row over the end of the first cell
PER_CELL = 4  # simulated lengths in a cell
NUM_COSINES = 24
STEEPEST = 1.3  # the first cell's rows are not below its end over this
MISFIT = 0.25
# Caps that are tried, in units of a typical length
CAPS = (
    0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.8, 0.9, 1.0,
    1.1, 1.2, 1.35, 1.5, 1.75, 2.0, 2.25, 2.5, 3.0, 3.5, 4.0, 5.0,
)  # fmt: skip


class Rows(NamedTuple):
    """Simulated rows in whitened coordinates.

    Attributes:
        lengths: |u|.
        cosines: Of the angle to phi.
        shares: How much of all rows each stands for.
    """

    lengths: Array
    cosines: Array
    shares: Array


class Expected(NamedTuple):
    """What a cap is expected to give, along phi and across it: each of shape (2,).

    Attributes:
        without: H, the information of all rows.
        slope: J.
        spread: V.
        noise: The variance that noise adds to that of the posterior mean without privacy, 1 / H,
            relative to it.
        waste: The same of the weights.
        misfit: The same of the allowance for a model that does not hold.
    """

    without: Array
    slope: Array
    spread: Array
    noise: Array
    waste: Array
    misfit: Array

    @property
    def excess(self) -> Array:
        """All that is added."""
        return self.noise + self.waste + self.misfit


def edges(radius: Array) -> Array:
    """The ends of the histogram's cells: the last one holds the longest row there may be."""
    ends = (radius / WIDEST) * WIDEST ** jnp.linspace(0, 1, NUM_CELLS)
    return jnp.concatenate([jnp.zeros_like(ends[:1]), ends.at[-1].multiply(1.000001)])


def simulated(counts: Answer, ends: Array, dimension: int) -> tuple[Rows, Array]:
    """Rows as the histogram has them, and about how many there are."""
    known = jnp.where(counts.value > jnp.sqrt(counts.variance), counts.value, 0)
    total = jnp.sum(known)
    shares = jnp.where(total > 0, known / jnp.maximum(total, 1e-9), 1 / NUM_CELLS)
    low = jnp.maximum(ends[:-1], ends[1:] / STEEPEST)
    places = (jnp.arange(PER_CELL) + 0.5) / PER_CELL
    lengths = low[:, None] + (ends[1:] - low)[:, None] * places
    cosines = jnp.asarray(_cosines(dimension), lengths.dtype)
    shape = (NUM_CELLS, PER_CELL, len(cosines))
    return Rows(
        jnp.broadcast_to(lengths[:, :, None], shape).ravel(),
        jnp.broadcast_to(cosines, shape).ravel(),
        jnp.broadcast_to(shares[:, None, None] / shape[1] / shape[2], shape).ravel(),
    ), total


def _cosines(dimension: int) -> np.ndarray:
    """Of random directions with a fixed one, each as likely."""
    if dimension == 1:
        return np.array([-1.0, 1.0])
    places = (np.arange(NUM_COSINES) + 0.5) / NUM_COSINES
    half = (dimension - 1) / 2
    return 2 * special.betaincinv(half, half, places) - 1


def weights(rows_of: RowSet, lengths: Array, predictors: Array, cap: Array) -> Array:
    """w of each row."""
    lengths = jnp.maximum(lengths, 1e-30)
    steep = jnp.minimum(1, cap / (rows_of.slope(predictors) * lengths))
    return steep * jnp.minimum(1, 2 * cap / lengths)


def expected(
    rows_of: RowSet, rows: Rows, num_rows: Array, dimension: int, phi: Array, reach: Array,
    variance: Array, cap: Array,
) -> Expected:  # fmt: skip
    """What this cap would give where the gradient's noise has this variance."""
    predictors = jnp.clip(jnp.linalg.norm(phi) * rows.lengths * rows.cosines, -reach, reach)
    kept = weights(rows_of, rows.lengths, predictors, cap)
    along = rows.cosines**2
    parts = jnp.stack([along, (1 - along) / max(dimension - 1, 1)])
    said = rows.shares * rows_of.information(predictors) * rows.lengths**2 * parts
    without, slope, spread = (
        jnp.maximum(num_rows * jnp.sum(said * kept**power, axis=1), 1e-6) for power in (0, 1, 2)
    )
    shift = num_rows * (MISFIT * jnp.sum(rows.shares * (1 - kept))) ** 2
    return Expected(
        without,
        slope,
        spread,
        variance * without / slope**2,
        jnp.maximum(spread * without / slope**2 - 1, 0),
        shift * jnp.ones(2),
    )


def choose(
    expect: Callable[[Array], Expected], typical: Array, radius: Array, dimension: int
) -> tuple[Array, Expected]:
    """The cap that adds least to the variances, and what to expect of it."""
    caps = jnp.append(typical * jnp.asarray(CAPS), radius)
    caps = jnp.where(caps < radius, caps, jnp.inf)  # which stands for no weights
    found: Any = jax.lax.map(expect, caps)
    times = jnp.array([1.0, dimension - 1.0])
    best = jnp.argmin(found.excess @ times)
    return caps[best], jax.tree.map(lambda leaf: leaf[best], found)
