r"""DP-HMC beside other private samplers on a banana and a Gaussian: :cite:p:`raisa2021hamiltonian`,
Figure 1.

The paper's settings, hand-tuned there, and its posteriors, starts and budgets; each run has four
chains that share its budget. What differs from the paper:

- DP-HMC keeps a gradient for the next step, so that a step costs L of them instead of L + 1.
- Batches of fixed size are accounted for by their exact profile: more steps at the same epsilon.
- DP-SGLD moves by eta times the gradient with noise of variance 2 eta in all, as Langevin dynamics
  does. The published code has a variance of eta, and so, but for the noise of the batch, half of
  the posterior variance: it is shown beside it.
- DP-SGNHT takes a symmetric step where the paper takes Euler's.
- "Penalty, bit alone" is DP-penalty with the same noise, whose ratio stays with the curator.

Starting points are drawn around the true parameters, as in the paper; a real run would have to pay
for such a start.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import numpy as np

import dpmcmc
from dpmcmc.papers import problems
from dpmcmc.papers.comparison import Method
from dpmcmc.papers.problems import Problem
from dpmcmc.queries import FixedBatch, Gradient, LogRatio, PenaltyAccept
from dpmcmc.types import Budget, Key, Sampler

NUM_ROWS = 100_000
BUDGETS = [Budget(epsilon, 0.1 / NUM_ROWS) for epsilon in (2, 4, 6, 8, 10, 12, 15)]
NUM_CHAINS, NUM_REPEATS = 4, 10
BATCH = FixedBatch(1000, NUM_ROWS)

BANANA_VARIANCES = (2000.0, 2500.0)
BANANA_CURVATURE = 20.0
BANANA_PRIOR_SCALE = math.sqrt(1000.0)
GAUSSIAN_PRIOR_SCALE = 100.0
# Eigenvalues from a Gamma law of shape 1/2, eigenvectors from a uniform matrix, drawn once by the
# paper's authors.
# fmt: off
GAUSSIAN_COVARIANCE = np.array([
    [0.9059993, -0.2985238, 0.5244587, -0.6462521, -0.6476638,
     0.1164352, 0.2428410, -0.3532962, 0.6739761, 0.4539636],
    [-0.2985238, 0.4686083, -0.3443766, 0.2144353, 0.3718489,
     -0.3077241, -0.0952822, 0.2329846, -0.4306420, -0.2657959],
    [0.5244587, -0.3443766, 0.7821929, -0.6356527, -0.8210103,
     0.0913616, 0.2453931, -0.4209180, 0.7526457, 0.5546290],
    [-0.6462521, 0.2144353, -0.6356527, 0.9355266, 0.7121202,
     -0.0516313, -0.1942759, 0.3208892, -0.8994143, -0.2572306],
    [-0.6476638, 0.3718489, -0.8210103, 0.7121202, 1.0850770,
     -0.2065510, -0.1123076, 0.4822134, -0.8523601, -0.6663635],
    [0.1164352, -0.3077241, 0.0913616, -0.0516313, -0.2065510,
     0.6002488, -0.1633516, 0.0560304, 0.0861295, 0.0117181],
    [0.2428410, -0.0952822, 0.2453931, -0.1942759, -0.1123076,
     -0.1633516, 0.3545890, -0.0631324, 0.1239410, 0.1121131],
    [-0.3532962, 0.2329846, -0.4209180, 0.3208892, 0.4822134,
     0.0560304, -0.0631324, 0.5259457, -0.5919350, -0.5440344],
    [0.6739761, -0.4306420, 0.7526457, -0.8994143, -0.8523601,
     0.0861295, 0.1239410, -0.5919350, 1.3596594, 0.4072493],
    [0.4539636, -0.2657959, 0.5546290, -0.2572306, -0.6663635,
     0.0117181, 0.1121131, -0.5440344, 0.4072493, 0.9042295],
])
# fmt: on


class Settings(NamedTuple):
    """Noise is given as tau: its standard deviation is  2 tau n^(1/2) clip  (a ratio's clip is per
    length of the move).
    """

    ratio_tau: float  # DP-HMC
    gradient_tau: float
    leapfrog: int
    leapfrog_step: float
    ratio_clip: float
    gradient_clip: float
    walk_tau: float  # DP-penalty
    walk_scale: float
    walk_clip: float
    sgld_clip: float  # DP-SGLD
    sgld_step: float  # eta, times n
    sgnht_clip: float  # DP-SGNHT
    sgnht_step: float  # times n
    friction: float


BANANA = Settings(0.1, 0.55, 25, 0.006, 0.1, 0.05, 0.17, 0.06, 0.15, 0.2, 1.0, 0.2, 100.0, 50.0)
GAUSSIAN = Settings(
    0.1, 0.25, 12, 0.00015, 6.0, 10.0, 0.05, 0.0007, 10.0, 15.0, 0.008, 12.0, 0.2, 30.0
)
# Longest move that an accept bit is asked about, in root mean squares: longer ones are next to
# never proposed
LONGEST = 6.0


POSTERIORS = {"Banana": BANANA, "Gaussian, d = 10": GAUSSIAN}


def make(rng_key: Key, name: str, copies: int = 1) -> Problem:
    """The posterior of this name, each of its rows standing for so many."""
    if name == "Banana":
        return problems.banana(
            rng_key,
            NUM_ROWS,
            BANANA_VARIANCES,
            BANANA_CURVATURE,
            BANANA_PRIOR_SCALE,
            copies=copies,
        )
    return problems.gaussian(
        rng_key, NUM_ROWS, GAUSSIAN_COVARIANCE, GAUSSIAN_PRIOR_SCALE, copies=copies
    )


def methods(problem: Problem, settings: Settings) -> dict[str, Method]:
    """By name, as in the figure.

    Where a row stands for many, what is billed is for all of them, and samplers ask with the same
    noise on fewer rows.
    Methods that read batches are for all rows: among fewer a batch would be a large part of them.
    """
    return {
        "DP-HMC": _hamilton(problem, settings),
        "DP-penalty": _walk(problem, settings),
        "Penalty, bit alone": _bit(problem, settings),
        **(_langevin(problem, settings) if problem.copies == 1 else {}),
    }


def _hamilton(problem: Problem, settings: Settings) -> Method:
    root = math.sqrt(problem.num_rows)
    billed_gradient, asked_gradient = (
        Gradient(settings.gradient_clip, settings.gradient_tau * root / copies, None, copies)
        for copies in (1, problem.copies)
    )
    billed_test, asked_test = (
        LogRatio(settings.ratio_clip, settings.ratio_tau * root / copies, copies)
        for copies in (1, problem.copies)
    )
    hmc = dpmcmc.hmc(
        problem.model.log_prior,
        asked_gradient,
        asked_test,
        settings.leapfrog_step,
        settings.leapfrog,
    )
    return Method(hmc, {billed_gradient: settings.leapfrog, billed_test: 1}, {billed_gradient: 1})


def _walk(problem: Problem, settings: Settings) -> Method:
    multiplier = settings.walk_tau * math.sqrt(problem.num_rows)
    billed, asked = (
        LogRatio(settings.walk_clip, multiplier / copies, copies) for copies in (1, problem.copies)
    )
    walk = dpmcmc.random_walk(settings.walk_scale, _longest(problem, settings))
    return Method(dpmcmc.penalty(problem.model.log_prior, asked, walk), {billed: 1})


def _bit(problem: Problem, settings: Settings) -> Method:
    longest = _longest(problem, settings)
    multiplier = settings.walk_tau * math.sqrt(problem.num_rows)
    billed, asked = (
        PenaltyAccept(settings.walk_clip, multiplier / copies, longest, copies)
        for copies in (1, problem.copies)
    )
    walk = dpmcmc.random_walk(settings.walk_scale, longest)
    return Method(dpmcmc.accept_walk(problem.model.log_prior, asked, walk), {billed: 1})


def _longest(problem: Problem, settings: Settings) -> float:
    return LONGEST * settings.walk_scale * math.sqrt(problem.model.dimension)


def _langevin(problem: Problem, settings: Settings) -> dict[str, Method]:
    prior = problem.model.log_prior
    eta = settings.sgld_step / problem.num_rows
    h = settings.sgnht_step / problem.num_rows
    friction = settings.friction
    of_batch = batch_gradient(settings.sgld_clip, 1 / eta)
    push = batch_gradient(settings.sgnht_clip, 2 * friction / h)
    return {
        "DP-SGLD": Method(dpmcmc.sgld(prior, of_batch, 2 * eta), {of_batch: 1}),
        "DP-SGLD as published": Method(published_sgld(prior, of_batch, eta), {of_batch: 1}),
        "DP-SGNHT": Method(dpmcmc.sgnht(prior, push, h, friction), {push: 1}),
    }


def batch_gradient(clip: float, variance: float) -> Gradient:
    """A batch's estimate of the gradient of all rows, with noise of this variance: what the
    published dynamics injects.
    """
    return Gradient(clip, math.sqrt(variance) * BATCH.rate / (2 * clip), BATCH)


class Point(NamedTuple):
    """A chain that remembers nothing else."""

    position: Any


def published_sgld(log_prior, gradient: Gradient, eta: float) -> Sampler:
    """Langevin dynamics with half of the noise that belongs to a step, all of it private.

    For the figure alone.
    """

    def step(rng_key, state, ask):
        of_rows = ask(rng_key, gradient, state.position).value
        of_prior = jax.grad(log_prior)(state.position)
        return Point(state.position + eta * (of_rows + of_prior)), Point(state.position)

    return Sampler(lambda rng_key, position, ask: Point(position), step)


READ_FEW = ("DP-SGLD", "DP-SGLD as published", "DP-SGNHT")


def experiment(rng_key: Key, name: str, copies: int) -> tuple[Problem, dict[str, Method]]:
    """The posterior of this name and its methods, each of its rows standing for so many."""
    problem = make(jax.random.fold_in(rng_key, list(POSTERIORS).index(name)), name, copies)
    return problem, methods(problem, POSTERIORS[name])
