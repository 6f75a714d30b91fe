"""The runs behind the figures of the mixture :cite:p:`zhang2023dpfast`: the published algorithm,
and methods of ours whose convergence is watched.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpmcmc import models
from dpmcmc.papers import cells, metrics, problems
from dpmcmc.papers.fastmh import published, settings

POINTS = (0.04, 0.08, 0.16, 0.32, 0.64, 1.0)  # of a run, at which its divergence is computed
NUM_DRAWS = 3000  # that are kept


def _compiled(chain: Callable, is_full: bool) -> Callable:
    """From keys and starts to runs.

    Chains side by side would compute both branches of a step: those that read few rows are computed
    one after the other.
    """
    if is_full:
        return jax.jit(jax.vmap(chain))
    return jax.jit(lambda keys, starts: jax.lax.map(lambda pair: chain(*pair), (keys, starts)))


def published_cell(
    is_full: bool,
    scale: float,
    epsilons: list[float],
    num_steps: int,
    repeats: int,
    copies: int,
    seed: int,
) -> dict[str, Any]:
    """The published algorithm: divergence, rows of a step, and draws, by the epsilon of a step."""
    key_rows, key_starts, key_chains = jax.random.split(jax.random.key(seed), 3)
    problem = problems.mixture(
        key_rows, settings.NUM_ROWS, settings.VARIANCE, settings.TEMPERATURE, copies
    )
    starts = jnp.asarray(problems.starts(key_starts, problem, repeats))
    found: dict[str, Any] = {"kl": [], "rows": [], "mmd": []}
    mmd = metrics.mmd_from(problem.reference)
    for epsilon in epsilons:
        chosen = published.Settings(epsilon, scale, is_full)
        run = _compiled(published.chain(problem, chosen, num_steps), is_full)
        keys = jax.random.split(key_chains, repeats)
        draws, rows = map(np.asarray, run(keys, starts))
        kept = draws[:, num_steps // 2 :]
        found["kl"].append([_kl(problem, one) for one in kept])
        found["mmd"].append([mmd(one) for one in kept])
        found["rows"].append(rows.mean(axis=1).tolist())
        if epsilon == published.MOST_BATCH_EPSILON:
            begun = time.perf_counter()
            jax.block_until_ready(run(keys, starts))
            seconds = time.perf_counter() - begun
            found |= _course(problem, draws, float(rows.mean()), seconds)
    return found


def long_cell(method: str, num_steps: int, repeats: int, copies: int, seed: int) -> dict[str, Any]:
    """A method of ours: its divergence as a run goes on, and its draws."""
    problem, methods = cells.experiment("dpmcmc.papers.fastmh.settings", "Mixture", copies, seed)
    key_starts, key_chains = jax.random.split(jax.random.key(seed + 2))
    positions = problems.starts(key_starts, problem, repeats).reshape(repeats, 1, -1)
    begun = time.perf_counter()
    draws = cells.run_chains(key_chains, problem, methods[method], positions, num_steps)[:, 0]
    seconds = time.perf_counter() - begun
    return _course(problem, draws, _rows_of(method), seconds)


def _rows_of(method: str) -> float:
    """That a step reads on average."""
    if method == "DP Barker":
        return settings.BARKER_BATCH
    return settings.readings(models.mixture(settings.VARIANCE))[method].num_rows


def _course(
    problem: problems.Problem, draws: np.ndarray, rows: float, seconds: float
) -> dict[str, Any]:
    """Divergence of the second half of what there is after so many steps."""
    ends = [max(4, int(part * draws.shape[1])) for part in POINTS]
    kls = [[_kl(problem, run[end // 2 : end]) for run in draws] for end in ends]
    kept = draws[:, draws.shape[1] // 2 :].reshape(-1, 2)
    some = kept[np.linspace(0, len(kept) - 1, min(NUM_DRAWS, len(kept))).astype(int)]
    return {
        "course": kls,
        "ends": ends,
        "rows_of_a_step": rows,
        "seconds": seconds,
        "draws": np.asarray(some, float).round(3).tolist(),
    }


def _kl(problem: problems.Problem, draws: np.ndarray) -> float:
    assert problem.cells is not None
    return metrics.symmetric_kl(draws, problem.cells, problem.bound)
