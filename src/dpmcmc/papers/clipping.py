r"""What clipped log-ratios do to the posterior: :cite:p:`raisa2021thesis`, Figure 6.2;
:cite:p:`raisa2021hamiltonian`, Figure 3.

    python -m dpmcmc.papers.clipping

A random walk with Metropolis' test and no noise at all, whose rows' log-ratios are clipped to clip
|move|, for many clips: how far are its draws from the exact posterior, and what share of the ratios
was clipped?

The papers' posteriors are symmetric: rows pull either way alike, and as many are clipped on one
side as on the other. So clipping costs little there until it is common. The third one, ours, is
not: an event that one row in a hundred has. The rows with the event pull a hundred times as hard as
those without, and are the only ones that are clipped. The posterior then moves, the further in its
own standard deviations the more rows there are.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import dpmcmc
from dpmcmc.papers import comparison, hmc_comparison, problems
from dpmcmc.papers.comparison import Scores
from dpmcmc.papers.problems import Problem
from dpmcmc.results import plots
from dpmcmc.types import Key

NUM_STEPS, NUM_CHAINS, NUM_REPEATS = 10_000, 4, 10
NUM_MOVES = 50  # that the share of clipped ratios is an average over
CHANCE = 0.01  # of the rare event


class Trial(NamedTuple):
    """A posterior, the walk on it, and the clips to try."""

    make: Callable[[Key], Problem]
    scale: float
    clips: tuple[float, ...]


def _banana(key: Key) -> Problem:
    chosen = hmc_comparison
    return problems.banana(
        key,
        chosen.NUM_ROWS,
        chosen.BANANA_VARIANCES,
        chosen.BANANA_CURVATURE,
        chosen.BANANA_PRIOR_SCALE,
    )


def _gaussian(key: Key) -> Problem:
    chosen = hmc_comparison
    return problems.gaussian(
        key, chosen.NUM_ROWS, chosen.GAUSSIAN_COVARIANCE, chosen.GAUSSIAN_PRIOR_SCALE
    )


def _rare(num_rows: int) -> Trial:
    spread = (num_rows * CHANCE) ** -0.5  # of the posterior
    return Trial(
        lambda key: problems.rare_event(key, num_rows, CHANCE),
        2 * spread,
        (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 1.0),
    )


TRIALS = {
    "Banana": Trial(_banana, 0.06, (0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.5, 1.0)),
    "Gaussian, d = 10": Trial(_gaussian, 0.0007, (0.1, 0.2, 1.0, 5.0, 10.0, 15.0, 20.0, 50.0)),
    "Rare event, n = 10⁴": _rare(10_000),
    "Rare event, n = 10⁵": _rare(100_000),
}


class Found(NamedTuple):
    """For one trial, by clip."""

    clips: tuple[float, ...]
    shares: list[float]  # of ratios that were clipped
    mmd: np.ndarray  # (clips, repeats)
    floor: float


def run(
    num_repeats: int = NUM_REPEATS, num_steps: int = NUM_STEPS, report: comparison.Report = print
) -> dict[str, Found]:
    """All trials."""
    return {
        name: try_clips(jax.random.key(number), name, num_repeats, num_steps, report)
        for number, name in enumerate(TRIALS)
    }


def try_clips(
    rng_key: Key, name: str, num_repeats: int, num_steps: int, report: comparison.Report
) -> Found:
    key_rows, key_starts, key_chains, key_moves, key_floor = jax.random.split(rng_key, 5)
    trial = TRIALS[name]
    problem = trial.make(key_rows)
    positions = problems.starts(key_starts, problem, num_repeats * NUM_CHAINS).reshape(
        num_repeats, NUM_CHAINS, -1
    )
    curator = dpmcmc.Curator(problem.rows, problem.model, None)
    steepness = ratios_per_length(key_moves, problem, trial.scale)
    shares = []
    mmds = []
    for clip in trial.clips:
        sampler = dpmcmc.penalty(
            problem.model.log_prior,
            dpmcmc.queries.NonPrivateRatio(clip),
            dpmcmc.random_walk(trial.scale),
        )
        scores: Scores = comparison.score(
            key_chains, sampler, curator, positions, [num_steps], problem.reference
        )
        shares.append(float(np.mean(steepness > clip)))
        mmds.append(scores.mmd[0])
        report(f"{name}, clip {clip:g}: {shares[-1]:.1%} clipped, MMD {np.median(scores.mmd):.3f}")
    return Found(
        trial.clips, shares, np.array(mmds), comparison.floor(key_floor, problem, num_repeats)
    )


def ratios_per_length(rng_key: Key, problem: Problem, scale: float) -> np.ndarray:
    """|log-ratio| / |move| of all rows, for moves that the walk proposes from exact draws: shape
    (moves, rows).
    """
    here = jnp.asarray(problem.reference[:NUM_MOVES], jnp.float32)
    moves = scale * jax.random.normal(rng_key, here.shape)

    @jax.jit
    def ratios(position, move):
        there, back = (
            jax.vmap(lambda row, at=at: problem.model.log_likelihood(at, row))(problem.rows)
            for at in (position + move, position)
        )
        return jnp.abs(there - back) / jnp.linalg.norm(move)

    return np.array([ratios(*pair) for pair in zip(here, moves, strict=True)])


def table(results: Mapping[str, Found]) -> str:
    """In Markdown: medians over the repeats."""
    lines = []
    for name, one in results.items():
        lines += [
            "",
            f"{name}; exact draws have {one.floor:.3f}",
            "",
            f"| clip | {' | '.join(f'{clip:g}' for clip in one.clips)} |",
        ]
        lines += ["|---" * (1 + len(one.clips)) + "|"]
        lines += [f"| clipped | {' | '.join(f'{100 * share:.2g} %' for share in one.shares)} |"]
        lines += [f"| MMD | {' | '.join(f'{np.median(mmd):.3f}' for mmd in one.mmd)} |"]
    return "\n".join(lines)


def figure(results: Mapping[str, Found], path: str) -> None:
    """MMD against the share of clipped ratios for the papers' posteriors; for the rare event, of
    which 1 % is, against the clip.
    """
    rare = {name: one for name, one in results.items() if name.startswith("Rare")}
    usual = {name: one for name, one in results.items() if name not in rare}
    by_share = {
        name: ([100 * share for share in one.shares], one.mmd) for name, one in usual.items()
    }
    by_clip = {name: (one.clips, one.mmd) for name, one in rare.items()}
    panels = [
        plots.Panel(
            "The papers' posteriors: MMD",
            "share of log-ratios that are clipped, %",
            by_share,
            _least(usual),
        ),
        plots.Panel(
            "Rare event, in 1 % of rows: MMD",
            "clip; rows with the event need 0.99",
            by_clip,
            _least(rare),
        ),
    ]
    plots.medians(panels, path, is_shared=False)


def _least(results: Mapping[str, Found]) -> float:
    return float(np.median([one.floor for one in results.values()]))


def main() -> None:
    parser = argparse.ArgumentParser(description="Minutes on a GPU, hours on a CPU.")
    parser.add_argument("--out", default="clipping.png", help="where the figure goes (%(default)s)")
    parser.add_argument(
        "--repeats", type=int, default=NUM_REPEATS, help="runs for each clip (%(default)s)"
    )
    parser.add_argument("--steps", type=int, default=NUM_STEPS, help="of a chain (%(default)s)")
    options = parser.parse_args()
    with comparison.unwarned():
        results = run(options.repeats, options.steps)
    print(table(results))
    figure(results, options.out)
    print(f"\nWritten to {options.out}.")


if __name__ == "__main__":
    main()
