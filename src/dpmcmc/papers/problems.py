"""The papers' test posteriors: simulated rows, their model, and exact draws.

A row may stand for many `copies`: then there are as many times fewer rows, each with that power of
its likelihood. The posterior is as wide as that of all rows, and chains with the same noise move
alike, in a fraction of the time. The mean of the rows is moved to where that of all rows would be.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpmcmc import models, testing
from dpmcmc.types import Array, Key, Model

NUM_REFERENCE = 1000


class Problem(NamedTuple):
    """Rows that are nobody's, and the posterior that they have."""

    model: Model
    rows: Array
    truth: Array  # the parameters that the rows were made with: chains start around them
    draw: Callable[[Key], np.ndarray]  # exact, independent draws (NUM_REFERENCE, d)
    reference: np.ndarray  # some of them, that draws are compared with
    temperature: float = 1.0  # the power of the likelihood
    spread: float | None = None  # of the starts around the truth, if not that of the posterior
    copies: int = 1  # how many rows each of these stands for
    cells: np.ndarray | None = None  # in the plane: its probabilities on a grid
    bound: float = 0.0  # half the side of that grid

    @property
    def num_rows(self) -> int:
        """Of the table that these rows stand for."""
        return len(self.rows) * self.copies

    @property
    def power(self) -> float:
        """Of the likelihood of these rows: the posterior is as wide as with all of them."""
        return self.temperature * self.copies


def banana(
    rng_key: Key,
    num_rows: int,
    variances: Sequence[float],
    curvature: float,
    prior_scale: float,
    temperature: float = 1.0,
    copies: int = 1,
) -> Problem:
    """True parameters (0, 3, 0, 0, ...)."""
    key_rows, key_reference = jax.random.split(rng_key)
    truth = _truth(len(variances))
    rows = testing.simulate_banana_rows(key_rows, num_rows // copies, truth, variances, curvature)
    rows = _centered(
        rows, truth, copies
    )  # the banana's first parameter is 0: its mean is the truth

    def draw(key):
        posterior = testing.draw_banana_posterior(
            key,
            NUM_REFERENCE,
            rows,
            variances,
            curvature,
            prior_scale=prior_scale,
            temperature=temperature * copies,
        )
        return np.asarray(posterior)

    model = models.banana(variances, curvature, prior_scale=prior_scale)
    return Problem(model, rows, truth, draw, draw(key_reference), temperature, copies=copies)


def gaussian(
    rng_key: Key, num_rows: int, covariance, prior_scale: float, copies: int = 1
) -> Problem:
    """True means (0, 3, 0, 0, ...)."""
    key_rows, key_reference = jax.random.split(rng_key)
    truth = _truth(len(covariance))
    rows = testing.simulate_gaussian_rows(key_rows, num_rows // copies, truth, covariance)
    rows = _centered(rows, truth, copies)

    def draw(key):
        return np.asarray(
            testing.draw_gaussian_posterior(
                key, NUM_REFERENCE, rows, covariance, prior_scale, temperature=copies
            )
        )

    model = models.gaussian(covariance, prior_scale)
    return Problem(model, rows, truth, draw, draw(key_reference), copies=copies)


def circle(rng_key: Key, num_rows: int, sharpness: float, copies: int = 1) -> Problem:
    """Rows from N(3, 1).

    A parameter that they were made with there is not: chains start inside the ring.
    """
    key_rows, key_reference = jax.random.split(rng_key)
    rows = testing.simulate_circle_rows(key_rows, num_rows // copies)

    def draw(key):
        return np.asarray(
            testing.draw_circle_posterior(key, NUM_REFERENCE, rows, sharpness, temperature=copies)
        )

    return Problem(
        models.circle(sharpness),
        rows,
        jnp.array([0.0, 1.0]),
        draw,
        draw(key_reference),
        spread=1.0,
        copies=copies,
    )


def mixture(
    rng_key: Key, num_rows: int, variance: float, temperature: float, copies: int = 1
) -> Problem:
    """Two modes, one the other with its centers exchanged; true parameters (0, 1), and chains start
    in that mode. Exact up to the grid of `testing.mixture_posterior`.
    """
    key_rows, key_reference = jax.random.split(rng_key)
    truth = jnp.array([0.0, 1.0])
    rows = testing.simulate_mixture_rows(key_rows, num_rows // copies, truth, variance)
    axis, cells = testing.mixture_posterior(rows, variance, temperature=temperature * copies)

    def draw(key):
        key_cell, key_inside = jax.random.split(key)
        chosen = jax.random.categorical(key_cell, jnp.log(cells).ravel(), shape=(NUM_REFERENCE,))
        centers = jnp.stack([axis[chosen // len(axis)], axis[chosen % len(axis)]], axis=1)
        half = (axis[1] - axis[0]) / 2
        return np.asarray(
            centers + jax.random.uniform(key_inside, centers.shape, minval=-half, maxval=half)
        )

    return Problem(
        models.mixture(variance),
        rows,
        truth,
        draw,
        draw(key_reference),
        temperature,
        spread=0.2,
        copies=copies,
        cells=np.asarray(cells),
        bound=float(axis[-1] + (axis[1] - axis[0]) / 2),
    )


def rare_event(rng_key: Key, num_rows: int, chance: float) -> Problem:
    """Rows that are 1 with a small chance and else 0; the parameter is the chance's log-odds."""
    key_rows, key_reference = jax.random.split(rng_key)
    truth = jnp.log(jnp.array([chance / (1 - chance)]))
    rows = testing.simulate_binomial_rows(key_rows, num_rows, truth).astype(jnp.float32)

    def draw(key):
        return np.asarray(testing.draw_binomial_posterior(key, NUM_REFERENCE, rows))

    model = models.binomial()._replace(unravel=lambda position: {"log_odds": position})
    return Problem(model, rows, truth, draw, draw(key_reference))


def starts(rng_key: Key, problem: Problem, num: int) -> np.ndarray:
    """(num, d): around the truth, as far off as the components of the posterior are wide on
    average, or as the problem says.
    """
    spread = (
        np.mean(np.std(problem.reference, axis=0)) if problem.spread is None else problem.spread
    )
    return np.asarray(
        problem.truth + spread * jax.random.normal(rng_key, (num, problem.model.dimension)),
        np.float32,
    )


def _centered(rows, truth, copies: int):
    """Moved so that their mean is as near to the truth as that of all rows would be."""
    center = jnp.mean(rows, axis=0)
    return rows - (center - truth) * (1 - copies**-0.5)


def _truth(dimension: int) -> Array:
    return jnp.zeros(dimension).at[1].set(3.0)
