"""The tables that the tests run over: every sampler, every start, every query, every proposal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np

from dpmcmc import (
    Accept,
    Barker,
    BatchBarker,
    BatchRatio,
    Curator,
    Curvature,
    FilteredAccept,
    FixedBatch,
    Gradient,
    LazyBarker,
    LogRatio,
    Metropolis,
    NonPrivateAccept,
    NonPrivateGradient,
    NonPrivateRatio,
    Penalty,
    PenaltyAccept,
    PublishedFastMH,
    SufficientStatistic,
    TunaBarker,
    TunaMetropolis,
    TunaRatio,
    accept_walk,
    exponential_penalty,
    guided_walk,
    hmc,
    models,
    newton_start,
    noise_aware,
    one_component,
    penalty,
    random_walk,
    sgld,
    sgnht,
    survey,
    testing,
)
from dpmcmc.curator.programs.program import EXACTLY, Executable
from dpmcmc.run.loop import begin_program, block_program

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


class Case(NamedTuple):
    """A sampler on the small problem, and what it asks."""

    name: str
    sampler: Any  # with a start: a function of what that finds
    query: Any  # asked once a step; None where a step asks nothing
    besides: Mapping[Any, int] = MappingProxyType({})  # asked in each step too
    at_start: Mapping[Any, int] = MappingProxyType({})
    model: Any = MODEL
    rows: Any = ROWS
    start: Any = None
    # Asked by the start: once for all chains
    by_the_start: Mapping[Any, int] = MappingProxyType({})

    @property
    def per_step(self) -> dict:
        return ({} if self.query is None else {self.query: 1}) | dict(self.besides)

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
GRID = [
    Case(f"{test}, {proposal}", make(MODEL.log_prior, query, PROPOSALS[proposal](CAP)), query)
    for test, (make, query) in TESTS.items()
    for proposal in PROPOSALS
]
STATISTIC, FILTERED = SufficientStatistic(noise_multiplier=0.1), FilteredAccept(clip=20.0, rho=1e9)
OTHERS = [
    Case(
        "exponential penalty, guided",
        exponential_penalty(MODEL, STATISTIC, PROPOSALS["guided"](CAP)),
        STATISTIC,
    ),
    Case(
        "barker, filtered",
        accept_walk(MODEL.log_prior, FILTERED, PROPOSALS["isotropic"](CAP)),
        FILTERED,
    ),
]
# Short moves: rows' log-ratios reach 2.1, so each row is drawn only 3.15 times a step on average.
BATCH_PROPOSAL = random_walk(0.2, 0.45)
BATCH_TESTS: dict[str, tuple[Callable, Any]] = {
    "minibatch barker": (accept_walk, TunaBarker(bound=2.8, ratio=8.0)),
    "minibatch noisy ratio": (penalty, TunaRatio(bound=2.8, noise_multiplier=0.4, ratio=8.0)),
    "tuna, not private": (accept_walk, TunaMetropolis(bound=2.8, ratio=8.0)),
}
OTHERS += [
    Case(name, make(MODEL.log_prior, query, BATCH_PROPOSAL), query)
    for name, (make, query) in BATCH_TESTS.items()
]
# Not private: epsilon is infinite.
BASELINES = [
    Case(
        "random-walk Metropolis",
        penalty(MODEL.log_prior, NonPrivateRatio(), PROPOSALS["isotropic"](CAP)),
        NonPrivateRatio(),
    ),
    *(
        Case(
            f"{test}, not private",
            accept_walk(MODEL.log_prior, NonPrivateAccept(test), PROPOSALS["full covariance"](CAP)),
            NonPrivateAccept(test),
        )
        for test in (Metropolis(), Barker())
    ),
]
SAMPLERS = GRID + OTHERS + BASELINES
# Neither private nor exact
PUBLISHED = PublishedFastMH(bound=2.8, epsilon=0.05, delta=1e-6, max_batch=60, ratio=8.0)
EXHIBITS = [
    Case(
        "DP-Fast MH as published",
        accept_walk(MODEL.log_prior, PUBLISHED, BATCH_PROPOSAL),
        PUBLISHED,
    )
]

# -- gradients: their laws are tested in files of their own
# ------------------------------------------------------------------

GRADIENT, LEAPFROG = Gradient(20.0, 0.1), 3
RATIO, BIT, BARKER = LogRatio(20.0, 0.1), PenaltyAccept(20.0, 0.1, 5.0), Accept(Barker(), 25.0)
HAMILTONIAN = [
    Case(
        f"hmc, {name}, {'reuse' if reuse else 'no reuse'}",
        hmc(MODEL.log_prior, GRADIENT, test, 0.1, LEAPFROG, reuse=reuse),
        test,
        {GRADIENT: LEAPFROG if reuse else LEAPFROG + 1},
        {GRADIENT: 1} if reuse else {},
    )
    for name, test in {"penalty ratio": RATIO, "penalty bit": BIT, "barker": BARKER}.items()
    for reuse in (True, False)
]
LANGEVIN = [
    Case("sgld", sgld(MODEL.log_prior, GRADIENT, 0.01), GRADIENT),
    Case("sgnht", sgnht(MODEL.log_prior, GRADIENT, 0.01), GRADIENT),
]
GRADIENT_BASELINES = [
    Case(
        "hmc, not private",
        hmc(MODEL.log_prior, NonPrivateGradient(), NonPrivateRatio(), 0.1, LEAPFROG),
        NonPrivateRatio(),
        {NonPrivateGradient(): LEAPFROG},
        {NonPrivateGradient(): 1},
    ),
    Case(
        "sgld, not private", sgld(MODEL.log_prior, NonPrivateGradient(), 0.01), NonPrivateGradient()
    ),
]

# -- private starts, and the sampler that asks nothing after one
# -------------------------------------------------------------

# So little noise that the posterior given the survey is that of the rows: their log-likelihood is
# quadratic.
STEPS, LOOK = {Gradient(20.0, 1e-4): 2}, {Curvature(3.0, 1e-5): 1}
AT_THE_END = Gradient(20.0, 2e-5), Curvature(3.0, 2e-5)
NEWTON = newton_start(MODEL.log_prior, STEPS, LOOK)
SURVEYED = [
    Case(
        "noise-aware after a survey",
        lambda found: noise_aware(MODEL.log_prior, found),
        None,
        start=survey(NEWTON, *AT_THE_END),
        by_the_start={**STEPS, **LOOK, **dict.fromkeys(AT_THE_END, 1)},
    )
]
STARTED = [
    *SURVEYED,
    Case(
        "sgld after Newton steps",
        lambda found: sgld(MODEL.log_prior, GRADIENT, 0.2, jnp.linalg.inv(found.precision)),
        GRADIENT,
        start=NEWTON,
        by_the_start={**STEPS, **LOOK},
    ),
]


# -- approximate samplers: what their stationary law is off by, at most
# --------------------------------------------------------


class Approximate(NamedTuple):
    """A sampler on the coins below, what it asks once a step, and the bias we state for it."""

    name: str
    sampler: Any
    query: Any
    temperature: float
    mean_bias: float  # of the mean, in posterior standard deviations
    variance_bias: float  # of the variance, relative

    @property
    def case(self) -> Case:
        return Case(self.name, self.sampler, self.query, model=COINS_MODEL, rows=COINS)

    def __str__(self) -> str:
        return self.name


# 1000 rows of -1 or +1: what a batch holds has a binomial-like law, so that the chain's bias can be
# computed without error.
COINS = np.repeat(np.array([[-1.0], [1.0]], np.float32), [560, 440], axis=0)
COINS_MODEL = models.gaussian(np.ones(1), prior_scale=1.0)


def _coins(
    name: str,
    make: Callable,
    query: Any,
    scale: float,
    cap: float,
    mean_bias: float,
    variance_bias: float,
) -> Approximate:
    sampler = make(COINS_MODEL.log_prior, query, random_walk(scale, cap))
    return Approximate(name, sampler, query, query.temperature, mean_bias, variance_bias)


APPROXIMATE = [
    _coins(
        "penalty, batch of 50",
        penalty,
        BatchRatio(2.2, 0.5, FixedBatch(50, 1000), 0.03),
        0.2,
        0.6,
        0.006,
        0.004,
    ),
    _coins(
        "penalty, batch of 5",
        penalty,
        BatchRatio(3.0, 0.1, FixedBatch(5, 1000), 0.005),
        0.5,
        1.5,
        0.03,
        0.045,
    ),
    _coins(
        "barker, variance 2",
        accept_walk,
        BatchBarker(FixedBatch(100, 1000), 0.08, 2.0),
        0.08,
        0.08,
        0.002,
        0.004,
    ),
    _coins(
        "barker, variance 1.5",
        accept_walk,
        BatchBarker(FixedBatch(100, 1000), 0.08, 1.5),
        0.07,
        0.07,
        0.002,
        0.001,
    ),
]

# -- what the tests run over
# -----------------------------------------------------------------------------------------------

ALL = (
    SAMPLERS
    + EXHIBITS
    + HAMILTONIAN
    + LANGEVIN
    + GRADIENT_BASELINES
    + STARTED
    + [row.case for row in APPROXIMATE]
)
STATIONARY = SAMPLERS + SURVEYED
# The fastest of each sampler, and some queries; the slow suite has all.
QUICK = (
    "penalty ratio, isotropic",
    "barker, isotropic",
    "barker, filtered",
    "exponential penalty, guided",
)
EVERY_DAY = [case for case in SAMPLERS if case.name in QUICK] + SURVEYED
# One of each kind, for tests that look at a sampler rather than at its law; the first ones every
# day.
FIRST = ("penalty ratio, isotropic", "penalty bit, isotropic", "barker, isotropic")
MORE = (
    "penalty ratio, one component",
    "penalty ratio, guided",
    "penalty bit, constant, isotropic",
    "lazy barker, isotropic",
)
CONTRACT = (
    [case for case in GRID if case.name in FIRST] + OTHERS + HAMILTONIAN[:1] + LANGEVIN + STARTED
)
CONTRACT += [APPROXIMATE[0].case]
LIKE_ANOTHER = (  # in what the sampler does; the exponential one has everyday tests of its own
    "penalty bit, isotropic",
    "barker, isotropic",
    "tuna, not private",
    "minibatch noisy ratio",
    "exponential penalty, guided",
    "sgnht",
    "sgld after Newton steps",
    "penalty, batch of 50",
)
CONTRACT_EVERY_DAY = tuple(case.name for case in CONTRACT if case.name not in LIKE_ANOTHER)
CONTRACT += (
    [case for case in GRID if case.name in MORE]
    + BASELINES[:2]
    + EXHIBITS
    + HAMILTONIAN[3:4]
    + GRADIENT_BASELINES
)
CONTRACT += [APPROXIMATE[2].case]


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
    begin = curator.trace(begin_program(sampler, start), keys, starts)
    block = curator.trace(block_program(sampler, num_steps, 1), keys, *begin.shapes, jnp.int32(0))
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
