"""The tables that the tests run over: every sampler, every query, every proposal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpmcmc import (
    Accept,
    Barker,
    Curator,
    LazyBarker,
    LogRatio,
    MinibatchAccept,
    MinibatchNoisyRatio,
    Penalty,
    PenaltyAccept,
    TunaAccept,
    accept_walk,
    guided_walk,
    models,
    one_component,
    penalty,
    random_walk,
)
from dpmcmc.loop import begin_program, block_program

SECRET = np.arange(16, dtype=np.uint32)

# A small conjugate problem: 16 rows in the plane, so the posterior is known and no row comes near the clips below.
COVARIANCE = np.array([[1.0, 0.6], [0.6, 2.0]])
PRIOR_SCALE = 1.0
ROWS = np.asarray(models.simulate_gaussian_rows(jax.random.key(5), 16, np.array([0.5, -0.3]), COVARIANCE), np.float32)
MODEL = models.gaussian(COVARIANCE, prior_scale=PRIOR_SCALE)
EXACT_MEAN, EXACT_COVARIANCE = map(np.asarray, models.gaussian_posterior(ROWS, COVARIANCE, prior_scale=PRIOR_SCALE))
ROOT = np.linalg.cholesky(EXACT_COVARIANCE)


class Case(NamedTuple):
    """A sampler on the small problem, and what it asks once a step."""

    name: str
    sampler: Any
    query: Any

    def __str__(self) -> str:
        return self.name


PROPOSALS: dict[str, Callable[[float], Any]] = {
    "isotropic": lambda cap: random_walk(0.3, cap),
    "diagonal": lambda cap: random_walk([0.25, 0.4], cap),
    "full covariance": lambda cap: random_walk(1.2 * ROOT, cap),
    "one component": lambda cap: one_component([0.35, 0.5], cap),
    "guided": lambda cap: guided_walk([0.35, 0.5], cap),
}
CAP = 0.9  # shortens a few per cent of the moves
TESTS: dict[str, tuple[Callable, Any]] = {
    "penalty ratio": (penalty, LogRatio(clip=20.0, noise_multiplier=0.07)),
    "penalty bit": (accept_walk, PenaltyAccept(clip=20.0, noise_multiplier=0.07, max_move=CAP)),
    "penalty bit, constant": (accept_walk, Accept(Penalty(0.8), bound=25.0)),
    "barker": (accept_walk, Accept(Barker(), bound=25.0)),
    "lazy barker": (accept_walk, Accept(LazyBarker(0.5), bound=25.0)),
}
SAMPLERS = [
    Case(f"{test}, {proposal}", make(MODEL.log_prior, query, PROPOSALS[proposal](CAP)), query)
    for test, (make, query) in TESTS.items()
    for proposal in PROPOSALS
]


def run_chains(sampler, query, num_chains: int = 64, num_steps: int = 2000, seed: int = 0, model=MODEL, rows=ROWS):
    """Chains (chains, steps, d) that start in the posterior itself: a kernel that keeps it never leaves it."""
    keys = jax.random.split(jax.random.key(seed), num_chains)
    noise = jax.random.normal(jax.random.key(seed + 1000), (num_chains, len(EXACT_MEAN)))
    starts = jnp.asarray(EXACT_MEAN, jnp.float32) + noise @ jnp.asarray(ROOT.T, jnp.float32)
    curator = Curator(rows, model, None, fixed_secret=SECRET)
    start = curator.trace(begin_program(sampler), keys, starts)
    block = curator.trace(block_program(sampler, num_steps, 1), keys, *start.shapes, jnp.int32(0))
    assert query in block.plan
    grant = curator.grant({q: start.plan.get(q, 0) + block.plan.get(q, 0) for q in {*start.plan, *block.plan}})
    begun = grant.run(start.compile(), keys, starts)
    _, (positions, info) = grant.run(block.compile(), keys, *begun, jnp.int32(0))
    return np.asarray(positions).swapaxes(0, 1), info


# Short moves: rows' log-ratios reach 2.1, so each row is drawn only 3.15 times a step on average.
BATCH_PROPOSAL = random_walk(0.2, 0.45)
BATCH_TESTS: dict[str, tuple[Callable, Any]] = {
    "minibatch barker": (accept_walk, MinibatchAccept(bound=2.8, ratio=8.0)),
    "minibatch penalty": (penalty, MinibatchNoisyRatio(bound=2.8, noise_multiplier=0.4, ratio=8.0)),
    "tuna": (accept_walk, TunaAccept(bound=2.8, ratio=8.0)),
}
SAMPLERS += [Case(name, make(MODEL.log_prior, query, BATCH_PROPOSAL), query) for name, (make, query) in BATCH_TESTS.items()]
