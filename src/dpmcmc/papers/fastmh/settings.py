r"""What reading few rows costs and gains, on a mixture of two Gaussians: :cite:p:`zhang2023dpfast`,
Figure 1.

The paper's rows, temperature and delta. All methods make the same moves, with a proved bound on
what a row can say; what differs is how many rows a step reads, and what it releases. The paper's
own method is not among them: it is not private (its rejections show rows), and where it adds no
noise it still subtracts what noise would call for. Minibatch Barker is what we make of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import dpmcmc
from dpmcmc import Barker
from dpmcmc.accounting import papers
from dpmcmc.papers import problems
from dpmcmc.papers.comparison import Method
from dpmcmc.papers.problems import Problem
from dpmcmc.queries import (
    Accept,
    BatchBarker,
    FixedBatch,
    LogRatio,
    PenaltyAccept,
    TunaBarker,
    TunaRatio,
)
from dpmcmc.types import Budget, Key, Model, Query

NUM_ROWS = 50_000
VARIANCE = 2.0
TEMPERATURE = 1 / 500
DELTA = 1e-5
BUDGETS = [Budget(epsilon, DELTA) for epsilon in (0.25, 0.5, 1, 2, 4)]
NUM_CHAINS, NUM_REPEATS = 1, 20
SCALE = 0.25  # of the moves
LONGEST = 1.5 * SCALE * math.sqrt(2)  # in root mean squares 1.5: longer ones are shortened
NOISE = 1.5  # standard deviation for a move of this length
BARKER_BATCH, BARKER_SCALE = 1000, 0.1  # DP Barker, of moves that its fixed clip allows
PAPERS_LAMBDA, PAPERS_EPSILON, PAPERS_STEPS = 10.0, 0.05, 20_000


class Reading(NamedTuple):
    """A method, and how many rows a step of it reads on average."""

    method: Method
    num_rows: float


def readings(model: Model, copies: int = 1) -> dict[str, Reading]:
    """By name, as in the figure.

    Where a row stands for many copies, what is billed is for all of them, and samplers ask with the
    same noise on fewer rows.
    """
    assert model.lipschitz is not None
    # of a row's log-ratio: for each unit of the move, and for the longest
    clip = model.lipschitz
    bound = model.lipschitz * LONGEST
    multiplier = NOISE / (2 * TEMPERATURE * bound)
    few = NUM_ROWS * TEMPERATURE * bound / PAPERS_LAMBDA

    def reading(query: Callable[[int], Query], ratio: float | None = None) -> Reading:
        billed = query(1)
        asked = query(copies)
        walk = dpmcmc.random_walk(SCALE, LONGEST)
        make = dpmcmc.accept_walk if hasattr(billed, "is_bit") else dpmcmc.penalty
        rows = NUM_ROWS * TEMPERATURE * bound * (1 + 1 / ratio) if ratio else NUM_ROWS
        return Reading(Method(make(model.log_prior, asked, walk), {billed: 1}), rows)

    return {
        "DP-penalty": reading(lambda k: LogRatio(clip, multiplier / k, TEMPERATURE * k)),
        "Penalty, bit alone": reading(
            lambda k: PenaltyAccept(clip, multiplier / k, LONGEST, TEMPERATURE * k)
        ),
        "Barker's bit of all rows": reading(lambda k: Accept(Barker(), bound, TEMPERATURE * k)),
        "Minibatch Barker": reading(lambda k: TunaBarker(bound, 1.0, TEMPERATURE * k), 1.0),
        "Minibatch Barker, λ = 10": reading(lambda k: TunaBarker(bound, few, TEMPERATURE * k), few),
        "Noisy ratio of a minibatch": reading(
            lambda k: TunaRatio(bound, NOISE / math.log(2), 1.0, TEMPERATURE * k), 1.0
        ),
    }


def published_promise(num_steps: int = PAPERS_STEPS) -> tuple[float, float]:
    """What the paper's epsilon of each step comes to by advanced composition: (epsilon, delta)."""
    return papers.advanced_composition(num_steps, PAPERS_EPSILON, DELTA, DELTA)


def experiment(rng_key: Key, name: str, copies: int) -> tuple[Problem, dict[str, Method]]:
    """The mixture and its methods, each of its rows standing for so many."""
    problem = problems.mixture(rng_key, NUM_ROWS, VARIANCE, TEMPERATURE, copies)
    methods = {name: one.method for name, one in readings(problem.model, copies).items()}
    if copies == 1:  # among fewer rows the batch would be a large part of them
        bit = BatchBarker(FixedBatch(BARKER_BATCH, NUM_ROWS), TEMPERATURE)
        walk = dpmcmc.random_walk(BARKER_SCALE)
        sampler = dpmcmc.accept_walk(problem.model.log_prior, bit, walk)
        methods["DP Barker"] = Method(sampler, {bit: 1})
    return problem, methods
