"""The smallest private run there is, for tests of everything around it: forty numbers and their
mean.
"""

import jax
import jax.numpy as jnp
import numpy as np

from dpmcmc import Barker, Budget, Curator, Model, accept_walk, penalty, random_walk, sample
from dpmcmc.queries import Accept, LogRatio

ROWS = np.linspace(-1, 1, 40, dtype=np.float32)
BUDGET = Budget(1.0, 1e-6)
SECRET = np.arange(16, dtype=np.uint32)
# A small clip: with little noise the chain moves
RATIO = LogRatio(clip=0.01, noise_multiplier=30.0)
BIT = Accept(Barker(), bound=0.01)
WALK = random_walk(0.3)
START = np.zeros(1, np.float32)


def log_prior(position):
    return -0.5 * jnp.sum(position**2)


MODEL = Model(
    log_likelihood=lambda position, row: -0.5 * (row - position[0]) ** 2,
    log_prior=log_prior,
    unravel=lambda position: {"mean": position[0]},
    dimension=1,
)
PENALTY = penalty(log_prior, RATIO, WALK)
BARKER = accept_walk(log_prior, BIT, WALK)


def make_curator(rows=ROWS, model=MODEL, budget=BUDGET, fixed_secret=SECRET, **options):
    return Curator(rows, model, budget, fixed_secret=fixed_secret, **options)


def run(curator=None, sampler=PENALTY, start=START, **options):
    """Twelve steps of two chains, unless told otherwise."""
    options = {"num_steps": 12, "num_chains": 2, "warmup": 0.0, "progress": False, **options}
    return sample(jax.random.key(0), sampler, curator or make_curator(), start, **options)


def means(posterior):
    """The draws, shape (chains, draws)."""
    return np.asarray(posterior.posterior["mean"])
