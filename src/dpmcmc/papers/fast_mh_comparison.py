r"""What reading few rows costs and gains, on a mixture of two Gaussians: :cite:p:`zhang2023dpfast`,
Figure 1.

    python -m dpmcmc.papers.fast_mh_comparison

The paper's rows, temperature and delta. All methods make the same moves, with a proved bound on
what a row can say; what differs is how many rows a step reads, and what it releases. The paper's
own method is not among them: it is not private (its rejections show rows), and where it adds no
noise it still subtracts what noise would call for. Minibatch Barker is what we make of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import jax
import numpy as np

import dpmcmc
from dpmcmc import Barker, models
from dpmcmc.accounting import papers
from dpmcmc.papers import comparison, problems
from dpmcmc.papers.comparison import Comparison, Method, Report
from dpmcmc.queries import Accept, LogRatio, PenaltyAccept, TunaBarker, TunaRatio
from dpmcmc.results import plots
from dpmcmc.types import Budget, Model, Query

NUM_ROWS = 50_000
VARIANCE = 2.0
TEMPERATURE = 1 / 500
DELTA = 1e-5
BUDGETS = [Budget(epsilon, DELTA) for epsilon in (0.25, 0.5, 1, 2, 4)]
NUM_CHAINS, NUM_REPEATS = 1, 20
SCALE = 0.25  # of the moves
LONGEST = 1.5 * SCALE * math.sqrt(2)  # in root mean squares 1.5: longer ones are shortened
NOISE = 1.5  # standard deviation for a move of this length
PAPERS_LAMBDA, PAPERS_EPSILON, PAPERS_STEPS = 10.0, 0.05, 20_000


class Reading(NamedTuple):
    """A method, and how many rows a step of it reads on average."""

    method: Method
    num_rows: float


def readings(model: Model) -> dict[str, Reading]:
    """By name, as in the figure."""
    assert model.lipschitz is not None
    # of a row's log-ratio: for each unit of the move, and for the longest
    clip = model.lipschitz
    bound = model.lipschitz * LONGEST
    walk = dpmcmc.random_walk(SCALE, LONGEST)
    multiplier = NOISE / (2 * TEMPERATURE * bound)
    papers_ratio = NUM_ROWS * TEMPERATURE * bound / PAPERS_LAMBDA

    def of_ratio(query: Query, num_rows: float = NUM_ROWS) -> Reading:
        return Reading(Method(dpmcmc.penalty(model.log_prior, query, walk), {query: 1}), num_rows)

    def of_bit(query: Query, num_rows: float = NUM_ROWS) -> Reading:
        return Reading(
            Method(dpmcmc.accept_walk(model.log_prior, query, walk), {query: 1}), num_rows
        )

    def batch(ratio: float) -> float:
        return NUM_ROWS * TEMPERATURE * bound * (1 + 1 / ratio)

    return {
        "DP-penalty": of_ratio(LogRatio(clip, multiplier, TEMPERATURE)),
        "Penalty, bit alone": of_bit(PenaltyAccept(clip, multiplier, LONGEST, TEMPERATURE)),
        "Barker's bit of all rows": of_bit(Accept(Barker(), bound, TEMPERATURE)),
        "Minibatch Barker": of_bit(TunaBarker(bound, 1.0, TEMPERATURE), batch(1.0)),
        "Minibatch Barker, λ = 10": of_bit(
            TunaBarker(bound, papers_ratio, TEMPERATURE), batch(papers_ratio)
        ),
        "Noisy ratio of a minibatch": of_ratio(
            TunaRatio(bound, NOISE / math.log(2), 1.0, TEMPERATURE), batch(1.0)
        ),
    }


def published_promise(num_steps: int = PAPERS_STEPS) -> tuple[float, float]:
    """What the paper's epsilon of each step comes to by advanced composition: (epsilon, delta)."""
    return papers.advanced_composition(num_steps, PAPERS_EPSILON, DELTA, DELTA)


def run(
    num_repeats: int = NUM_REPEATS, most_steps: int = comparison.MOST_STEPS, report: Report = print
) -> dict[str, Comparison]:
    """The one posterior."""
    key_rows, key_chains = jax.random.split(jax.random.key(0))
    problem = problems.mixture(key_rows, NUM_ROWS, VARIANCE, TEMPERATURE)
    methods = {name: reading.method for name, reading in readings(problem.model).items()}
    return {
        "Mixture": comparison.compare(
            key_chains, problem, methods, BUDGETS, NUM_CHAINS, num_repeats, most_steps, report
        )
    }


def figure(results: Mapping[str, Comparison], path: str) -> None:
    """MMD against epsilon, and against the rows that were read for it."""
    panels = []
    for name, one in results.items():
        num_rows = {
            label: reading.num_rows for label, reading in readings(models.mixture(VARIANCE)).items()
        }
        by_epsilon = {label: (one.epsilons, scores.mmd) for label, scores in one.scores.items()}
        by_rows = {
            label: (num_rows[label] * np.array(scores.num_steps), scores.mmd)
            for label, scores in one.scores.items()
        }
        panels += [
            plots.Panel(f"{name}: MMD", "ε", by_epsilon, one.floor),
            plots.Panel("The same runs", "rows read by a chain", by_rows, one.floor, is_wide=True),
        ]
    plots.medians(panels, path)


if __name__ == "__main__":
    comparison.main(run, NUM_REPEATS, "fast-mh-comparison.png", figure)
