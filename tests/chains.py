"""A small problem whose posterior is known, coins, and chains on them."""

from __future__ import annotations

from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np

from dpmcmc import Curator, models, testing
from dpmcmc.curator.programs.compiling import EXACTLY
from dpmcmc.curator.programs.program import Executable
from dpmcmc.run.programs import Begin, Block

SECRET = np.arange(16, dtype=np.uint32)

# A small conjugate problem: 16 rows in the plane, so the posterior is known and no row comes near
# the clips below.
COVARIANCE = np.array([[1.0, 0.6], [0.6, 2.0]])
PRIOR_SCALE = 1.0
ROWS = np.asarray(
    testing.simulate_gaussian_rows(jax.random.key(5), 16, np.array([0.5, -0.3]), COVARIANCE),
    np.float32,
)
MODEL = models.gaussian(COVARIANCE, prior_scale=PRIOR_SCALE)
# No row is farther out; the prior stays whole
MODEL = MODEL._replace(family=models.gaussian(COVARIANCE, radius=8.0).family)
EXACT_MEAN, EXACT_COVARIANCE = map(
    np.asarray, testing.gaussian_posterior(ROWS, COVARIANCE, prior_scale=PRIOR_SCALE)
)
ROOT = np.linalg.cholesky(EXACT_COVARIANCE)

# 1000 rows of -1 or +1: what a batch holds has a binomial-like law, so that the chain's bias can be
# computed without error.
COINS = np.repeat(np.array([[-1.0], [1.0]], np.float32), [560, 440], axis=0)
COINS_MODEL = models.gaussian(np.ones(1), prior_scale=1.0)


def run_chains(
    sampler,
    query,
    num_chains: int = 64,
    num_steps: int = 2000,
    seed: int = 0,
    model=MODEL,
    rows=ROWS,
    mean=EXACT_MEAN,
    root=ROOT,
    curator=None,
    start=None,
):
    """Chains (chains, steps, d) that start in the posterior itself: a kernel that keeps it never
    leaves it.

    A private start has them begin at one point; the first tenth, on the way from there, is left
    out.
    """
    keys = jax.random.split(jax.random.key(seed), num_chains)
    noise = jax.random.normal(jax.random.key(seed + 1000), (num_chains, len(mean)))
    starts = jnp.asarray(mean, jnp.float32) + noise @ jnp.asarray(root.T, jnp.float32)
    curator = curator or Curator(rows, model, None, fixed_secret=SECRET)
    begin = curator.trace(Begin(sampler, start), keys, starts)
    block = curator.trace(Block(sampler, num_steps, 1), keys, *begin.shapes, jnp.int32(0))
    assert query is None or query in block.plan
    grant = curator.grant(
        {q: begin.plan.get(q, 0) + block.plan.get(q, 0) for q in {*begin.plan, *block.plan}}
    )
    begun = grant.run(compiled(begin, 1), keys, starts)
    _, (positions, info) = grant.run(compiled(block, 1), keys, *begun, jnp.int32(0))
    num_left_out = 0 if start is None else num_steps // 10
    return np.asarray(positions).swapaxes(0, 1)[:, num_left_out:], info


def compiled(traced, effort: int) -> Executable:
    """The program, compiled with less effort (0 to 3) than is worth its while in a long run."""
    with mock.patch.dict(EXACTLY, xla_backend_optimization_level=effort):
        return traced.compile()
