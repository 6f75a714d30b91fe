"""The posterior of simulated rows: its mean and covariance by importance sampling around its mode,
and bounds that nearly all of the rows stay below.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from scipy import special

from dpmcmc.recipes.simulated.answers import MadeUp
from dpmcmc.recipes.simulated.quick import compiled
from dpmcmc.types import Array

NUM_DRAWS = 4096
FEWEST = 200  # of the draws, by their weights: with fewer the mean is not known
# Draws are normal, times one of these with equal chances: tails may be heavy
WIDTHS = np.array([1.0, 1.15, 1.6, 2.5])
NEWTON_STEPS = 30
FLATTEST = 1e-6  # of the largest precision
MOST_EXCESS = 1.5
NEARLY_ALL = 0.999  # of the rows
NUM_PLACES = 8  # where rows' gradients are measured


class Posterior(NamedTuple):
    """What is known of the posterior of simulated rows."""

    mean: np.ndarray
    covariance: np.ndarray
    num_draws: float  # that importance sampling is worth
    places: np.ndarray  # some draws
    # The largest variance, over directions, in units of that of the normal law at the mode
    excess: float = np.inf

    @property
    def is_known(self) -> bool:
        """Whether enough of the draws count."""
        return self.num_draws >= FEWEST

    @property
    def is_nearly_normal(self) -> bool:
        """Whether the curvature at the mode says how wide it is."""
        return self.excess <= MOST_EXCESS


def posterior_of(seed: int, table: MadeUp, guess: Any) -> Posterior:
    """The posterior of these rows, which were simulated at `guess`."""
    guess = jnp.asarray(guess, jnp.float32)
    mode, precision = _on_rows(_mode, table, guess)
    values, axes = np.linalg.eigh(np.asarray(precision, float))
    root = axes / np.sqrt(np.maximum(values, FLATTEST * abs(values[-1]) + 1e-300))
    random = np.random.default_rng(seed)
    width = random.choice(WIDTHS, (NUM_DRAWS, 1))
    standard = width * random.standard_normal((NUM_DRAWS, len(mode)))
    draws = np.asarray(mode, float) + standard @ root.T
    single = jnp.asarray(draws, jnp.float32)
    log_target = np.asarray(_on_rows(_of_draws, table, single, mode), float)
    squares = np.sum(standard**2, axis=1, keepdims=True)
    log_proposal = -squares / 2 / WIDTHS**2 - len(mode) * np.log(WIDTHS)
    log_weights = log_target - special.logsumexp(log_proposal, axis=1)
    if not np.any(np.isfinite(log_weights)):
        return Posterior(np.asarray(mode), np.asarray(precision), 0.0, draws[:0])
    weights = special.softmax(np.where(np.isfinite(log_weights), log_weights, -np.inf))
    mean = weights @ draws
    covariance = (draws - mean).T @ ((draws - mean) * weights[:, None])
    places = random.choice(NUM_DRAWS, NUM_PLACES, p=weights)
    whitened = np.linalg.solve(root, np.linalg.solve(root, covariance).T)
    excess = float(np.linalg.eigvalsh((whitened + whitened.T) / 2)[-1])
    return Posterior(mean, covariance, float(1 / np.sum(weights**2)), draws[places], excess)


def _on_rows(function: Any, table: MadeUp, *arguments: Array) -> Any:
    """The function of these rows' log-density. Compilation is slow if rows are constants."""

    def run(rows: Any, *arguments: Array) -> Any:
        return function(_log_density(table._replace(rows=rows)), *arguments)

    return compiled(run, table.rows, *arguments)(table.rows, *arguments)


def _log_density(table: MadeUp) -> Any:
    """A position's, relative to another, row by row: sums of many rows round."""
    model = table.model

    def log_density(position: Array, base: Array) -> Array:
        of_rows = table.total(
            lambda row: model.log_likelihood(position, row) - model.log_likelihood(base, row)
        )
        return of_rows + model.log_prior(position) - model.log_prior(base)

    return log_density


def _of_draws(log_density: Any, draws: Array, base: Array) -> Array:
    return lax.map(lambda draw: log_density(draw, base), draws, batch_size=64)


def _mode(log_density: Any, guess: Array) -> tuple[Array, Array]:
    """The mode and the precision there, by Newton steps, halved as often as one would lead down."""
    shares = 0.5 ** jnp.arange(12)

    def precision_at(position: Array) -> Array:
        return -jax.hessian(log_density)(position, position)

    def step(_: int, position: Array) -> Array:
        slope = jax.grad(log_density)(position, position)
        values, axes = jnp.linalg.eigh(precision_at(position))
        values = jnp.maximum(jnp.abs(values), FLATTEST * jnp.max(jnp.abs(values)))
        move = axes @ ((axes.T @ slope) / values)
        gains = lax.map(lambda share: log_density(position + share * move, position), shares)
        best = jnp.argmax(jnp.where(jnp.isnan(gains), -jnp.inf, gains))
        return jnp.where(gains[best] > 0, position + shares[best] * move, position)

    mode = lax.fori_loop(0, NEWTON_STEPS, step, guess)
    return mode, precision_at(mode)


def nearly_all_below(table: MadeUp, posterior: Posterior, derivative: Any) -> float:
    """What the lengths of nearly all rows' gradients or Hessians are below, where the posterior is.

    `derivative` is `jax.grad` or `jax.hessian`.
    """
    function = derivative(table.model.log_likelihood)

    def lengths(rows: Any, places: Array) -> Array:
        def length(place: Array, row: Any) -> Array:
            return jnp.sqrt(jnp.sum(function(place, row) ** 2))

        return lax.map(lambda place: jax.vmap(lambda row: length(place, row))(rows), places)

    arguments = table.rows, jnp.asarray(posterior.places, jnp.float32)
    found = compiled(lengths, *arguments)(*arguments)
    return float(np.quantile(np.asarray(found), NEARLY_ALL))
