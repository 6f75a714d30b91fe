"""The noisy gradient: every row's gradient is clipped to a length, added exactly, and released with Gaussian noise.

A row's gradient divided by the clip is shortened to the unit ball, truncated to integers on the grid 2^-30, and its length is
checked in exact integers. Replacing a row then moves the integer sum by at most 2 * 2^30 in length, whatever floating point did.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp

from dpmcmc.accounting import costs
from dpmcmc.curator import noise
from dpmcmc.curator.clipping import clip_to_unit_ball
from dpmcmc.curator.exact_sum import BITS, Table, fixed_point, shrink_to_ball, sum_rows
from dpmcmc.curator.queries import check_positive, sensitivity
from dpmcmc.types import Answer, Model, Unit

MAX_DIMENSION = 2**12  # what the distance of the noise from its ideal is charged for
BLOCK_ENTRIES = 2**15  # about so many gradient entries are made at a time: they stay in the cache


@dataclass(frozen=True)
class Gradient:
    """Release  T (sum_i clip(g_i) + N(0, s^2 I)),  g_i the gradient of row i's log-likelihood, shortened to length `clip`.

    s = noise_multiplier * (2 clip when a row is replaced, clip when one is added or removed) * rows per person;  T = temperature,
    a public constant. Noise and sum live on the integer grid clip 2^-30. With the model's `lipschitz` as the clip no row is
    shortened. A NaN gradient counts as zero.
    """

    released: ClassVar[str] = "gradients of the log-likelihood, each row's clipped, with Gaussian noise"

    clip: float
    noise_multiplier: float
    temperature: float = 1.0

    def __post_init__(self) -> None:
        check_positive(clip=self.clip, noise_multiplier=self.noise_multiplier, temperature=self.temperature)

    def answer(self, key, model: Model, rows: Table, position) -> Answer:
        if model.dimension > MAX_DIMENSION:
            raise ValueError(f"dimension={model.dimension} is more than {MAX_DIMENSION}, which gradient noise is charged for")
        sigma = self._integer_sigma(rows.unit)
        total = gradient_sum(model, rows, position, self.clip) + noise.discrete_gaussian(key, (model.dimension,), sigma)
        grid = self.temperature * self.clip / 2.0**BITS
        return Answer(grid * total.astype(jnp.float64), jnp.asarray((grid * noise.gaussian_sigma(sigma)) ** 2))

    def cost(self, unit: Unit) -> costs.Gaussian:
        return costs.Gaussian(self.noise_multiplier, distance=MAX_DIMENSION * noise.gaussian_distance(self._integer_sigma(unit)))

    def _integer_sigma(self, unit: Unit) -> float:
        return self.noise_multiplier * sensitivity(unit) * 2.0**BITS


def gradient_sum(model: Model, table: Table, position, clip: float):
    """The exact integer sum of the rows' clipped gradients / clip, in units of 2^-BITS: shape (d,)."""
    block = max(64, 2 ** ((BLOCK_ENTRIES // model.dimension).bit_length() - 1))
    return sum_rows(lambda rows: row_integers(model, rows, position, clip, table.is_double), table, block)


def row_integers(model: Model, rows, position, clip: float, is_double: bool):
    """Each row's clipped gradient / clip as integers, of shape (rows, d) and length at most 2^BITS."""
    position = jnp.asarray(position, jnp.float64 if is_double else jnp.float32)
    # The model is traced in the precision of the rows, so that constants in it do not silently double the work.
    with jax.enable_x64(is_double):
        gradients = jax.vmap(jax.grad(model.log_likelihood), (None, 0))(position, rows)
        integers = fixed_point(clip_to_unit_ball(gradients, clip))
    return shrink_to_ball(integers)
