"""How far off the mean of a run is: many runs on simulated rows, with the noise of real ones."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dpmcmc.recipes.simulated.answers import MadeUp, asker, simulated
from dpmcmc.recipes.simulated.methods import Guess, Method, Numbers, covariance_of
from dpmcmc.recipes.simulated.quick import compiled
from dpmcmc.recipes.simulated.reference import Posterior
from dpmcmc.types import Key

WARMUP = 0.1  # of the steps
NUM_RUNS = 16
MOST_STEPS = 1500  # of all chains together; the squared error of longer runs is in proportion


class Simulation:
    """Runs of one sampler: a private start, and chains from there.

    Args:
        method: The sampler.
        guess: What its settings are made from.
        table: The simulated rows.
        posterior: Their posterior.
        start: The private start.
        begin: Where it begins.
        num_chains: The number of chains of a run.
    """

    def __init__(
        self,
        method: Method,
        guess: Guess,
        table: MadeUp,
        posterior: Posterior,
        start: Any,
        begin: Any,
        num_chains: int,
    ) -> None:
        self._method = method
        self._guess = guess
        self._posterior = posterior
        self._num_chains = num_chains
        self._table = table
        self._compiled: dict[tuple[float, ...], Any] = {}
        begin = jnp.asarray(begin, jnp.float32)

        def started(keys: Any, rows: Any) -> Any:
            ask = asker(table._replace(rows=rows))
            return jax.vmap(lambda key: start(key, begin, ask)[:2])(keys)

        self._starts = compiled(started, jax.random.split(jax.random.key(0), NUM_RUNS), table.rows)

    def squares(self, key: Key, numbers: Numbers, num_steps: int) -> np.ndarray:
        """The squared errors of the means of runs, shape (runs, parameters), in units of the
        posterior variance.
        """
        short = min(num_steps, MOST_STEPS)
        length = jnp.asarray(max(1, short // self._num_chains))
        free = {name: each for name, each in numbers.items() if name not in self._method.fixed}
        fixed = {name: numbers[name] for name in self._method.fixed}
        key_starts, key_chains = jax.random.split(key)
        starts = self._starts(jax.random.split(key_starts, NUM_RUNS), self._table.rows)
        keys = jax.random.split(key_chains, (NUM_RUNS, self._num_chains))
        settings = {name: jnp.asarray(each) for name, each in free.items()}
        arguments = keys, starts, settings, length, self._table.rows
        runs = self._compiled.get(tuple(fixed.values()))
        if runs is None:
            runs = compiled(self._runs(fixed), *arguments)
            self._compiled[tuple(fixed.values())] = runs
        means = np.asarray(runs(*arguments), float)
        off = (means - self._posterior.mean) / np.sqrt(np.diag(self._posterior.covariance))
        return np.where(np.isfinite(off), off, np.inf) ** 2 * short / num_steps

    def _runs(self, fixed: Numbers) -> Any:
        """From keys, starts, settings and a number of steps to the mean of each run."""

        def mean(keys: Any, start: Any, free: Numbers, num_steps: Any, rows: Any) -> Any:
            position, precision = start
            ask = asker(self._table._replace(rows=rows))
            numbers = {**fixed, **free}
            covariance = covariance_of(self._guess, precision)
            asked = [query for query, _ in self._method.asks(simulated, self._guess, numbers)]
            sampler = self._method.sampler(self._guess, asked, numbers, covariance)
            chain = jax.vmap(lambda key: _mean_of_chain(key, sampler, position, num_steps, ask))
            return jnp.mean(chain(keys), axis=0)

        return jax.vmap(mean, (0, 0, None, None, None))


def _mean_of_chain(key: Key, sampler: Any, position: Any, num_steps: Any, ask: Any) -> Any:
    """The mean of the positions after the warm-up."""
    first = (WARMUP * num_steps).astype(int)

    def step(index: Any, carried: Any) -> Any:
        state, total = carried
        state, _ = sampler.step(jax.random.fold_in(key, index), state, ask)
        return state, total + jnp.where(index >= first, state.position, 0.0)

    state = sampler.init(jax.random.fold_in(key, num_steps), position, ask)
    begin = state, jnp.zeros_like(position)
    return lax.fori_loop(0, num_steps, step, begin)[1] / (num_steps - first)
