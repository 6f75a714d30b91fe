"""The cell that most figures are made of: one method on one posterior, for a block of repeats."""

from __future__ import annotations

import functools
import importlib
from typing import Any

import jax
import numpy as np

import dpmcmc
from dpmcmc.papers import clip_shares, comparison, metrics, problems
from dpmcmc.papers.comparison import Method
from dpmcmc.papers.problems import Problem
from dpmcmc.papers.reproduce.figure import Cell
from dpmcmc.types import Budget

BLOCK = 20  # repeats of a cell
NUM_POINTS = 6  # of each run, that shares of clipped rows are from
NUM_DRAWS = 600  # of each run, that are kept for pictures
COMPILATION = 12.0  # seconds


@functools.lru_cache(maxsize=3)
def experiment(module: str, name: str, copies: int, seed: int) -> tuple[Problem, dict[str, Method]]:
    """A posterior and its methods: `experiment` of a paper's settings."""
    return importlib.import_module(module).experiment(jax.random.key(seed), name, copies)


def cell(
    module: str,
    name: str,
    method: str,
    block: int,
    repeats: int,
    chains: int,
    epsilons: list[float],
    delta: float,
    most_steps: int,
    copies: int,
    seed: int,
    has_shares: bool = False,
    has_draws: bool = False,
) -> dict[str, Any]:
    """Scores of a method, shape (budgets, repeats) each."""
    problem, methods = experiment(module, name, copies, seed)
    chosen = methods[method]
    lengths = [
        min(most_steps, comparison.num_steps(chosen, Budget(epsilon, delta), chains))
        for epsilon in epsilons
    ]
    allowed = [comparison.num_steps(chosen, Budget(epsilon, delta), chains) for epsilon in epsilons]
    key = jax.random.fold_in(jax.random.key(seed + 1), block)
    # The same starts for all methods, other chains for each
    key_starts, key_chains, key_floor = jax.random.split(key, 3)
    positions = problems.starts(key_starts, problem, repeats * chains)
    runs = run_chains(
        jax.random.fold_in(key_chains, list(methods).index(method)),
        problem,
        chosen,
        positions.reshape(repeats, chains, -1),
        max(lengths),
    )
    kept = [[_kept(run, length, max(lengths)) for run in runs] for length in lengths]
    found = {
        "allowed": allowed,
        "steps": lengths,
        "floor": comparison.floor(key_floor, problem, 10),
        **_scores(kept, problem),
    }
    if has_shares:
        found |= _shares(key, problem, chosen, kept)
    if has_draws:
        found["draws"] = [_some(run, NUM_DRAWS).round(6).tolist() for run in kept[-1]]
    return found


def run_chains(
    rng_key: Any, problem: Problem, method: Method, positions: np.ndarray, length: int
) -> np.ndarray:
    """Draws (repeats, chains, draws, d) of runs that begin at positions (repeats, chains, d)."""
    secret = np.asarray(jax.random.bits(rng_key, (16,)))
    # Nobody's rows: a run comes out the same again
    curator = dpmcmc.Curator(problem.rows, problem.model, None, fixed_secret=secret)
    thin = max(1, length // comparison.MOST_KEPT)
    draws = comparison.draws(
        rng_key,
        method.sampler,
        curator,
        positions.reshape(-1, positions.shape[-1]),
        length - length % thin,
        thin,
    )
    return draws.reshape(*positions.shape[:2], *draws.shape[1:])


def _kept(run: np.ndarray, length: int, most: int) -> np.ndarray:
    """What a budget of this length keeps of a run (chains, draws, d): its second half."""
    end = round(run.shape[1] * length / max(1, most))
    return run[:, int(end * comparison.DISCARDED) : end].reshape(-1, run.shape[-1])


def _scores(kept: list[list[np.ndarray]], problem: Problem) -> dict[str, Any]:
    reference = problem.reference
    mmd = metrics.mmd_from(reference)
    measures = {
        "mmd": mmd,
        "mean_error": lambda draws: metrics.mean_error(draws, reference),
        "width": lambda draws: metrics.width_ratio(draws, reference),
    }
    if problem.cells is not None:
        law, bound = problem.cells, problem.bound
        measures["kl"] = lambda draws: metrics.symmetric_kl(draws, law, bound)
    return {
        name: [[measure(draws) if len(draws) > 1 else np.nan for draws in row] for row in kept]
        for name, measure in measures.items()
    }


def _shares(
    key: Any, problem: Problem, method: Method, kept: list[list[np.ndarray]]
) -> dict[str, Any]:
    """NaN where a budget allows too few steps."""
    usable = [[run for run in row if len(run) > 1] for row in kept]
    flat = [run for row in usable for run in row]
    found = iter(clip_shares.by_run(key, problem, method.sampler, flat, NUM_POINTS))
    table = [[next(found) for _ in row] for row in usable]
    missing = [[clip_shares.Shares(np.nan, np.nan)] * len(row) for row in kept]
    whole = [row or empty for row, empty in zip(table, missing, strict=True)]
    return {
        f"{kind}_share": [[getattr(one, kind) for one in row] for row in whole]
        for kind in ("ratio", "gradient")
    }


def _some(draws: np.ndarray, num: int) -> np.ndarray:
    return draws[np.linspace(0, len(draws) - 1, min(num, len(draws))).round().astype(int)]


def of_methods(
    folder: str, methods: list[str], total: int, seconds: dict[str, float], **arguments: Any
) -> list[Cell]:
    """One cell for each method and block of repeats."""
    cells = []
    for method in methods:
        for block in range(-(-total // BLOCK)):
            repeats = min(BLOCK, total - block * BLOCK)
            cells.append(
                Cell(
                    f"{folder}/{file_name(method)}-{block}",
                    "dpmcmc.papers.cells:cell",
                    {**arguments, "method": method, "block": block, "repeats": repeats},
                    seconds.get(method, COMPILATION),
                )
            )
    return cells


def file_name(text: str) -> str:
    """The text as a part of a path."""
    kept = "".join(letter if letter.isalnum() else "-" for letter in text.lower())
    return "-".join(part for part in kept.split("-") if part)


def joined(results: list[dict[str, Any]]) -> dict[str, Any]:
    """Blocks of one method as one."""
    first = results[0]
    whole = {name: first[name] for name in ("allowed", "steps", "floor")}
    for name in first:
        if name == "draws":
            whole[name] = [run for one in results for run in one[name]]
        elif name not in whole:
            whole[name] = np.concatenate([np.asarray(one[name], float) for one in results], axis=1)
    return whole
