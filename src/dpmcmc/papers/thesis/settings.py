r"""Private Metropolis-Hastings on bananas, tempered or not, and on harder posteriors:
:cite:p:`raisa2021thesis`, chapter 6.

The thesis' settings, hand-tuned there at epsilon = 4; runs of one chain, each with the whole
budget. What differs from the thesis:

- DP-HMC keeps a gradient for the next step.
- The minibatch penalty has the tight sensitivity and an estimate of the batch's variance without
  bias; its batches and those of DP Barker are accounted for by the tight bounds
  (`dpmcmc.accounting`).
- "Barker's bit of all rows" is ours: the moves and clips of DP-penalty (moves longer than `LONGEST`
  are shortened), and nothing released but the side of a coin.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax

import dpmcmc
from dpmcmc import Barker
from dpmcmc.papers import problems
from dpmcmc.papers.comparison import Method
from dpmcmc.papers.problems import Problem
from dpmcmc.queries import Accept, BatchBarker, BatchRatio, FixedBatch, Gradient, LogRatio
from dpmcmc.types import Key

EPSILONS = (1, 2, 3, 4, 5, 6)
CIRCLE_EPSILONS = (0.5, 0.75, 1)
NUM_REPEATS = 20
PRIOR_SCALE = math.sqrt(1000.0)
CORRELATED_PRIOR_SCALE = 10.0
CORRELATED = [[1.0, 0.999], [0.999, 1.0]]
CIRCLE_SHARPNESS = 1e-5
LONGEST = 1.5  # in root mean squares


class Walk(NamedTuple):
    """Noise of standard deviation  2 tau n^(1/2) clip |move|."""

    tau: float
    scale: float
    clip: float


class Hamilton(NamedTuple):
    """The same for the ratio, and  2 tau_gradient n^(1/2) gradient_clip  for gradients."""

    tau: float
    tau_gradient: float
    leapfrog: int
    step_size: float
    clip: float
    gradient_clip: float


class Minibatch(NamedTuple):
    """Noise whose variance is tau times the squared sensitivity."""

    tau: float
    scale: float
    clip: float
    size: int


class MinibatchBarker(NamedTuple):
    """Noise, clip and cost follow from the size."""

    scale: float
    size: int


class Settings(NamedTuple):
    """Of one posterior."""

    penalty: Walk
    guided: Walk
    hmc: Hamilton
    minibatch: Minibatch | None = None
    guided_minibatch: Minibatch | None = None
    barker: MinibatchBarker | None = None


SETTINGS = {
    "Flat banana, d = 2": Settings(
        Walk(0.1, 0.008, 2.0),
        Walk(0.1, 0.008, 1.8),
        Hamilton(0.1, 0.4, 10, 0.0005, 2.0, 1.0),
        Minibatch(0.7, 0.001, 1.0, 1000),
        Minibatch(0.7, 0.001, 1.0, 1000),
        MinibatchBarker(0.0008, 1300),
    ),
    "Tempered banana, d = 2": Settings(
        Walk(0.2, 0.035, 5.0),
        Walk(0.2, 0.04, 3.5),
        Hamilton(0.2, 0.6, 10, 0.01, 2.5, 2.0),
        Minibatch(1.5, 0.025, 4.0, 1000),
        Minibatch(2.0, 0.04, 4.0, 1000),
        MinibatchBarker(0.12, 1300),
    ),
    "Flat banana, d = 10": Settings(
        Walk(0.1, 0.0015, 2.0),
        Walk(0.1, 0.0015, 3.0),
        Hamilton(0.05, 0.2, 10, 0.00015, 2.5, 3.0),
        Minibatch(0.6, 0.0001, 3.0, 1000),
        Minibatch(0.5, 0.00032, 2.0, 1000),
        MinibatchBarker(0.0008, 2600),
    ),
    "Tempered banana, d = 10": Settings(
        Walk(0.18, 0.02, 3.0),
        Walk(0.1, 0.04, 3.0),
        Hamilton(0.08, 0.2, 10, 0.015, 2.5, 3.5),
        Minibatch(0.7, 0.02, 2.0, 1200),
        Minibatch(0.8, 0.028, 2.0, 1200),
        MinibatchBarker(0.04, 2600),
    ),
    "Gaussian, d = 30": Settings(
        Walk(0.06, 0.00084, 3.0), Walk(0.2, 0.00084, 3.0), Hamilton(0.05, 0.1, 5, 0.00025, 2.5, 6.0)
    ),
    "Narrow banana": Settings(
        Walk(0.2, 0.0015, 5.5), Walk(0.1, 0.0015, 8.5), Hamilton(0.15, 0.25, 5, 0.00045, 5.0, 2.8)
    ),
    "Correlated Gaussian": Settings(
        Walk(0.07, 0.00015, 50.0), Walk(0.1, 0.0002, 45.0), Hamilton(0.05, 0.2, 8, 7e-5, 30.0, 29.0)
    ),
    "Circle": Settings(
        Walk(4.0, 0.2, 0.002), Walk(4.0, 0.3, 0.002), Hamilton(0.6, 1.9, 40, 0.07, 0.001, 0.0015)
    ),
}


def make(rng_key: Key, name: str, copies: int = 1) -> Problem:
    """The posterior of this name, each of its rows standing for so many."""
    if name == "Correlated Gaussian":
        return problems.gaussian(
            rng_key, 200_000, CORRELATED, CORRELATED_PRIOR_SCALE, copies=copies
        )
    if name == "Circle":
        return problems.circle(rng_key, 100_000, CIRCLE_SHARPNESS, copies=copies)
    if name == "Gaussian, d = 30":
        return problems.banana(rng_key, 200_000, _variances(30), 0.0, PRIOR_SCALE, copies=copies)
    if name == "Narrow banana":
        return problems.banana(rng_key, 150_000, _variances(2), 350.0, PRIOR_SCALE, copies=copies)
    num_rows, dimension = (200_000, 10) if name.endswith("10") else (100_000, 2)
    temperature = 1000 / num_rows if name.startswith("Tempered") else 1.0
    return problems.banana(
        rng_key, num_rows, _variances(dimension), 20.0, PRIOR_SCALE, temperature, copies
    )


def _variances(dimension: int) -> list[float]:
    return [20.0, 2.5] + [1.0] * (dimension - 2)


def methods(problem: Problem, settings: Settings) -> dict[str, Method]:
    """By name, as in the figure.

    Where a row stands for many, what is billed is for all of them, and samplers ask with the same
    noise on fewer rows.
    """
    results = {
        "DP-HMC": _hamilton(problem, settings.hmc),
        "DP-penalty": _walk(problem, settings.penalty, dpmcmc.random_walk),
        "DP-penalty, guided": _walk(problem, settings.guided, dpmcmc.guided_walk),
        "Barker's bit of all rows": _bit(problem, settings.penalty),
    }
    # Among fewer rows a batch would be a large part of them
    is_whole = problem.copies == 1
    if is_whole and settings.minibatch and settings.guided_minibatch and settings.barker:
        results["Minibatch penalty"] = _batch(problem, settings.minibatch, dpmcmc.random_walk)
        results["Minibatch penalty, guided"] = _batch(
            problem, settings.guided_minibatch, dpmcmc.guided_walk
        )
        results["DP Barker"] = _batch_barker(problem, settings.barker)
    return results


def _walk(problem: Problem, chosen: Walk, propose) -> Method:
    multiplier = chosen.tau * math.sqrt(problem.num_rows)
    billed = LogRatio(chosen.clip, multiplier, problem.temperature)
    asked = LogRatio(chosen.clip, multiplier / problem.copies, problem.power)
    walk = propose(chosen.scale)
    return Method(dpmcmc.penalty(problem.model.log_prior, asked, walk), {billed: 1})


def _bit(problem: Problem, chosen: Walk) -> Method:
    longest = LONGEST * chosen.scale * math.sqrt(problem.model.dimension)
    billed = Accept(Barker(), chosen.clip * longest, problem.temperature)
    asked = Accept(Barker(), chosen.clip * longest, problem.power)
    walk = dpmcmc.random_walk(chosen.scale, longest)
    return Method(dpmcmc.accept_walk(problem.model.log_prior, asked, walk), {billed: 1})


def _batch(problem: Problem, chosen: Minibatch, propose) -> Method:
    batch = FixedBatch(chosen.size, problem.num_rows)
    ratio = BatchRatio(chosen.clip, math.sqrt(chosen.tau), batch, problem.temperature)
    walk = propose(chosen.scale)
    return Method(dpmcmc.penalty(problem.model.log_prior, ratio, walk), {ratio: 1})


def _batch_barker(problem: Problem, chosen: MinibatchBarker) -> Method:
    bit = BatchBarker(FixedBatch(chosen.size, problem.num_rows), problem.temperature)
    walk = dpmcmc.random_walk(chosen.scale)
    return Method(dpmcmc.accept_walk(problem.model.log_prior, bit, walk), {bit: 1})


def _hamilton(problem: Problem, chosen: Hamilton) -> Method:
    root = math.sqrt(problem.num_rows)
    billed_gradient, asked_gradient = (
        Gradient(chosen.gradient_clip, chosen.tau_gradient * root / copies, None, power)
        for copies, power in ((1, problem.temperature), (problem.copies, problem.power))
    )
    billed_test, asked_test = (
        LogRatio(chosen.clip, chosen.tau * root / copies, power)
        for copies, power in ((1, problem.temperature), (problem.copies, problem.power))
    )
    sampler = dpmcmc.hmc(
        problem.model.log_prior,
        asked_gradient,
        asked_test,
        chosen.step_size,
        chosen.leapfrog,
        jitter=0.0,
    )
    return Method(
        sampler,
        {billed_gradient: chosen.leapfrog, billed_test: 1},
        {billed_gradient: 1},
    )


READ_FEW = ("Minibatch penalty", "Minibatch penalty, guided", "DP Barker")


def experiment(rng_key: Key, name: str, copies: int) -> tuple[Problem, dict[str, Method]]:
    """The posterior of this name and its methods, each of its rows standing for so many."""
    problem = make(jax.random.fold_in(rng_key, list(SETTINGS).index(name)), name, copies)
    return problem, methods(problem, SETTINGS[name])
