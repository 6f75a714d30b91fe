"""The noisy log-ratio, and what all queries share.

A query is a frozen value: what is computed on the rows, and what that costs.
"""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from dpmcmc.accounting import costs
from dpmcmc.curator.noise import gaussian
from dpmcmc.curator.sums import fused
from dpmcmc.curator.sums.clipping import clip_to_unit
from dpmcmc.curator.sums.exact_sum import BITS, Table, fixed_point, sum_rows
from dpmcmc.curator.sums.rowwise import rowwise
from dpmcmc.types import Answer, Model, Unit

# Entries of a vector: the distance of its noise from the ideal law is charged for so many
MAX_DIMENSION = 2**12


def check_positive(**values: float) -> None:
    for name, value in values.items():
        if value is None:
            raise TypeError(
                f"{name}=None must be a number: a model without a proved bound has none to offer, "
                "so choose one"
            )
        if not isinstance(value, numbers.Real):
            raise TypeError(f"{name}={value!r} must be a plain number: give float({name})")
        if isinstance(value, np.generic) and not isinstance(value, float):
            why = (
                "has fewer digits than the bill is made with"
                if isinstance(value, np.floating)
                else "may wrap around"
            )
            raise TypeError(f"{name}={value!r} {why}: give float({name})")
        if not (math.isfinite(value) and value > 0):
            raise ValueError(f"{name}={value} must be positive and finite")


def check_sizes(query: Any, *names: str) -> None:
    """Of these fields: as `check_positive`, and kept as plain numbers, as a bill shows them."""
    check_positive(**{name: getattr(query, name) for name in names})
    for name in names:
        if type(getattr(query, name)) not in (int, float):
            object.__setattr__(query, name, float(getattr(query, name)))


def unit_ratios(model: Model, table: Table, rows, position, proposal, bound):
    """clip(log p(x_i|proposal) - log p(x_i|position), bound) / bound for each of these rows of the
    table.
    """
    position, proposal, bound = (
        jnp.asarray(value, table.dtype) for value in (position, proposal, bound)
    )
    # The model is traced in the precision of the rows, so that constants in it do not silently
    # double the work.
    with jax.enable_x64(table.is_double):
        log_likelihoods = rowwise(model.log_likelihood, (None, 0))
        # Two products with a vector: faster than one with a matrix of two columns, on a CPU and on
        # a GPU.
        before = log_likelihoods(position, rows)
        after = log_likelihoods(proposal, rows)
        return clip_to_unit(after - before, bound)


def log_ratio_sum(model: Model, table: Table, position, proposal, bound):
    """The exact integer sum of clip(log p(x_i|proposal) - log p(x_i|position), bound) / bound, in
    units of 2^-BITS.
    """
    layout = fused.row_layout(model, table.pieces[0])
    if layout is not None:
        points = (jnp.asarray(value, jnp.float32) for value in (position, proposal, bound))
        return fused.ratio_sum(model, table, layout, *points)
    return sum_rows(
        lambda rows: fixed_point(unit_ratios(model, table, rows, position, proposal, bound)), table
    )


def integer_sigma(noise_multiplier: float, unit: Unit, bits: int = BITS) -> float:
    """The standard deviation of the noise on a sum of rows' values, each in [-1, 1] or in the unit
    ball, on the grid 2^-bits.
    """
    # NumPy's integers would wrap around
    return float(noise_multiplier) * unit.sensitivity * 2.0**bits


def noisy(key, total, sigma: float, grid) -> Answer:
    """grid (total + noise), for an integer or a vector of them: every entry has noise of its own,
    of the deviation sigma.
    """
    integers = total + gaussian.discrete_gaussian(key, total.shape, sigma)
    return Answer(
        grid * integers.astype(jnp.float64),
        jnp.asarray((grid * gaussian.gaussian_sigma(sigma)) ** 2),
    )


def vector_distance(sigma: float) -> float:
    """How far the noise of a vector is from its ideal law, at most: from above, for vectors up to
    MAX_DIMENSION.
    """
    return MAX_DIMENSION * gaussian.gaussian_distance(sigma)


@dataclass(frozen=True)
class LogRatio:
    """Release  T (sum_i clip(r_i, b) + N(0, s^2)),  r_i = log p(x_i|proposal) - log
    p(x_i|position).

    b = clip * |proposal - position|;  s = noise_multiplier * (2b when a row is replaced, b when one
    is added or removed), times the rows per person;  T = temperature, a public constant. Noise and
    sum live on the integer grid b 2^-30. The cost depends on neither the points nor the clip. A row
    whose log-likelihood is clip-Lipschitz in the position is never clipped.
    """

    released: ClassVar[str] = "log-likelihood ratios of proposed moves, with Gaussian noise"
    adds: ClassVar[bool] = True  # the answers of several owners

    clip: float
    noise_multiplier: float
    temperature: float = 1.0

    def __post_init__(self) -> None:
        check_sizes(self, "clip", "noise_multiplier", "temperature")

    def answer(self, key, model: Model, rows: Table, position, proposal) -> Answer:
        bound = self.clip * move_length(position, proposal)
        total = log_ratio_sum(model, rows, position, proposal, bound)
        return noisy(
            key,
            total,
            integer_sigma(self.noise_multiplier, rows.unit),
            self.temperature * bound / 2.0**BITS,
        )

    def cost(self, unit: Unit) -> costs.Gaussian:
        return costs.Gaussian(
            self.noise_multiplier,
            gaussian.gaussian_distance(integer_sigma(self.noise_multiplier, unit)),
        )


def move_length(position, proposal):
    return jnp.linalg.norm(proposal.astype(jnp.float64) - position.astype(jnp.float64))
