"""What share of the rows' log-ratios and gradients a method clips, on made-up rows.

A step is made with the chain's own sampler from points that it has been at, and what it asks is
computed here for each row without clipping. **Not private**: for rows that are nobody's.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpmcmc.papers.problems import Problem
from dpmcmc.types import Answer, Key, Sampler

NUM_ROWS = 2000  # that the shares are of
RATIO, GRADIENT = "ratio", "gradient"


class Shares(NamedTuple):
    """Means over steps; NaN for what is not asked."""

    ratio: float
    gradient: float


def shares(rng_key: Key, problem: Problem, sampler: Sampler, positions: np.ndarray) -> list[Shares]:
    """Of a step from each of these positions, shape (positions, d)."""
    noted: list[dict[str, list[float]]] = [{RATIO: [], GRADIENT: []} for _ in positions]

    def note(kind: str, number, share) -> None:
        for one, value in zip(np.ravel(number), np.ravel(share), strict=True):
            noted[int(one)][kind].append(float(value))

    one_step = _step_noting(problem, sampler, note)
    keys = jax.random.split(rng_key, len(positions))
    numbers = jnp.arange(len(positions))
    steps = jax.jit(jax.vmap(one_step))
    jax.block_until_ready(steps(keys, numbers, jnp.asarray(positions, jnp.float32)))
    jax.effects_barrier()
    return [
        Shares(*(float(np.mean(one[kind] or [np.nan])) for kind in (RATIO, GRADIENT)))
        for one in noted
    ]


def _step_noting(problem: Problem, sampler: Sampler, note: Callable) -> Callable:
    """From a key, a number and a position to where the chain is a step later; what is asked is
    noted beside the number.
    """
    rows = problem.rows[:: max(1, len(problem.rows) // NUM_ROWS)]
    scale = len(problem.rows) / len(rows)
    note_ratio, note_gradient = (functools.partial(note, kind) for kind in (RATIO, GRADIENT))

    def one_step(rng_key, number, position):
        def ask(rng_key, query, *points) -> Answer:
            if hasattr(query, "is_direction"):
                return gradient(rng_key, query, points[0])
            share = _ratio_share(problem, rows, query, points[0], points[1])
            jax.debug.callback(note_ratio, number, share)
            value = jnp.asarray(False) if hasattr(query, "is_bit") else jnp.zeros(())
            return Answer(value, jnp.zeros(()))

        def gradient(rng_key, query, position) -> Answer:
            slopes = jax.vmap(jax.grad(problem.model.log_likelihood), (None, 0))(position, rows)
            lengths = jnp.linalg.norm(slopes, axis=1)
            jax.debug.callback(note_gradient, number, jnp.mean(lengths > query.clip))
            clipped = slopes * jnp.minimum(1.0, query.clip / jnp.maximum(lengths, 1e-30))[:, None]
            deviation = 2 * query.temperature * query.clip * query.noise_multiplier
            noise = deviation * jax.random.normal(rng_key, position.shape)
            value = query.temperature * scale * jnp.sum(clipped, axis=0) + noise
            return Answer(value, jnp.full((), deviation**2))

        key_init, key_step = jax.random.split(rng_key)
        state = sampler.init(key_init, position, ask)
        return sampler.step(key_step, state, ask)[0].position

    return one_step


def _ratio_share(problem: Problem, rows: Any, query: Any, position, proposal):
    """Of the rows, those whose log-ratio is beyond the clip."""
    log_likelihood = jax.vmap(problem.model.log_likelihood, (None, 0))
    ratios = jnp.abs(log_likelihood(proposal, rows) - log_likelihood(position, rows))
    if hasattr(query, "clip"):
        bound = query.clip * jnp.linalg.norm(proposal - position)
    elif hasattr(query, "bound"):
        bound = query.bound
    else:  # DP Barker: the batch alone decides
        bound = math.sqrt(query.batch.size) / (len(problem.rows) * query.temperature)
    return jnp.mean(ratios > bound)


def by_run(
    rng_key: Key, problem: Problem, sampler: Sampler, runs: Sequence[np.ndarray], num: int
) -> list[Shares]:
    """For each run's draws, shape (draws, d): the means over so many of them."""
    if not len(runs):
        return []
    chosen = [run[np.linspace(0, len(run) - 1, num).round().astype(int)] for run in runs]
    found = shares(rng_key, problem, sampler, np.concatenate(chosen))
    return [
        Shares(*np.mean(found[begin : begin + num], axis=0).tolist())
        for begin in range(0, len(found), num)
    ]
