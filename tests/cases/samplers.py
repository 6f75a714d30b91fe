"""Every sampler, private start and proposal, on problems whose posterior is known."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import jax.numpy as jnp

import dpmcmc
from dpmcmc import (
    Barker,
    LazyBarker,
    Metropolis,
    Penalty,
    accept_walk,
    exponential_penalty,
    guided_walk,
    hmc,
    langevin_walk,
    newton_start,
    noise_aware,
    one_component,
    penalty,
    random_walk,
    sgld,
    sgnht,
    survey,
)
from dpmcmc.queries import (
    Accept,
    BatchBarker,
    BatchRatio,
    Curvature,
    FilteredAccept,
    FixedBatch,
    Gradient,
    LogRatio,
    NonPrivateAccept,
    NonPrivateGradient,
    NonPrivateRatio,
    PenaltyAccept,
    PublishedFastMH,
    SufficientStatistic,
    TunaBarker,
    TunaMetropolis,
    TunaRatio,
)
from tests.chains import COINS, COINS_MODEL, MODEL, ROOT, ROWS


class Case(NamedTuple):
    """A sampler on a small problem, and what it asks."""

    name: str
    of: tuple[Callable, ...]  # the public functions that it is a case of
    sampler: Any  # with a start: a function of what that releases
    query: Any  # asked once a step; None where a step asks nothing
    besides: Mapping[Any, int] = MappingProxyType({})  # asked in each step too
    at_start: Mapping[Any, int] = MappingProxyType({})
    model: Any = MODEL
    rows: Any = ROWS
    start: Any = None
    # Asked by the start: once for all chains
    by_the_start: Mapping[Any, int] = MappingProxyType({})
    # Whether test_stationarity holds its law; other laws have files of their own
    is_law_tested: bool = False
    # Its tests run every day, as one representative of its function; the others run at night
    daily: bool = False

    @property
    def per_step(self) -> dict:
        return ({} if self.query is None else {self.query: 1}) | dict(self.besides)

    def __str__(self) -> str:
        return self.name


def public_functions() -> set[Callable]:
    """All samplers, private starts and proposals that users may call."""
    return {
        getattr(dpmcmc, name)
        for module, names in dpmcmc._NAMES.items()
        for name in names
        if module.startswith("samplers.") and name.islower()
    }


# -- random walks ---------------------------------------------------------------------------------


def _slanted(position):
    """The log-density of a public law that is not the posterior: the drift of a Langevin move."""
    return -jnp.sum((position - jnp.array([1.0, -0.5])) ** 2)


PROPOSALS = {
    "isotropic": partial(random_walk, 0.3),
    "diagonal": partial(random_walk, [0.25, 0.4]),
    "full covariance": partial(random_walk, 1.2 * ROOT),
    "one component": partial(one_component, [0.35, 0.5]),
    "guided": partial(guided_walk, [0.35, 0.5]),
    "langevin": lambda cap: langevin_walk(_slanted, 0.5),
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
    Case(
        f"{test}, {name}",
        (make, getattr(walk, "func", langevin_walk)),
        make(MODEL.log_prior, query, walk(CAP)),
        query,
        is_law_tested=True,
        daily=(test, name)
        in (
            ("penalty ratio", "isotropic"),
            ("barker", "isotropic"),
            ("penalty ratio", "langevin"),
        ),
    )
    for test, (make, query) in TESTS.items()
    for name, walk in PROPOSALS.items()
]
STATISTIC = SufficientStatistic(noise_multiplier=0.1)
FILTERED = FilteredAccept(clip=20.0, rho=1e9)
OTHERS = [
    Case(
        "exponential penalty, langevin",
        (exponential_penalty, langevin_walk),
        exponential_penalty(MODEL, STATISTIC, PROPOSALS["langevin"](CAP)),
        STATISTIC,
        is_law_tested=True,
    ),
    Case(
        "exponential penalty, guided",
        (exponential_penalty, guided_walk),
        exponential_penalty(MODEL, STATISTIC, PROPOSALS["guided"](CAP)),
        STATISTIC,
        is_law_tested=True,
        daily=True,
    ),
    Case(
        "barker, filtered",
        (accept_walk,),
        accept_walk(MODEL.log_prior, FILTERED, PROPOSALS["isotropic"](CAP)),
        FILTERED,
        is_law_tested=True,
        daily=True,
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
    Case(
        name,
        (make, random_walk),
        make(MODEL.log_prior, query, BATCH_PROPOSAL),
        query,
        is_law_tested=True,
    )
    for name, (make, query) in BATCH_TESTS.items()
]
# Not private: epsilon is infinite.
NON_PRIVATE = [
    Case(
        "random-walk Metropolis",
        (penalty,),
        penalty(MODEL.log_prior, NonPrivateRatio(), PROPOSALS["isotropic"](CAP)),
        NonPrivateRatio(),
        is_law_tested=True,
    ),
    *(
        Case(
            f"{test}, not private",
            (accept_walk,),
            accept_walk(MODEL.log_prior, NonPrivateAccept(test), PROPOSALS["full covariance"](CAP)),
            NonPrivateAccept(test),
            is_law_tested=True,
        )
        for test in (Metropolis(), Barker())
    ),
]
# Neither private nor exact
PUBLISHED = PublishedFastMH(bound=2.8, epsilon=0.05, delta=1e-6, max_batch=60, ratio=8.0)
EXHIBITS = [
    Case(
        "DP-Fast MH as published",
        (accept_walk,),
        accept_walk(MODEL.log_prior, PUBLISHED, BATCH_PROPOSAL),
        PUBLISHED,
    )
]

# -- gradients: their laws are tested in files of their own ---------------------------------------

GRADIENT = Gradient(20.0, 0.1)
LEAPFROG = 3
HMC_TESTS = {
    "penalty ratio": LogRatio(20.0, 0.1),
    "penalty bit": PenaltyAccept(20.0, 0.1, 5.0),
    "barker": Accept(Barker(), 25.0),
}
HAMILTONIAN = [
    Case(
        f"hmc, {name}, {'reuse' if reuse else 'no reuse'}",
        (hmc,),
        hmc(MODEL.log_prior, GRADIENT, test, 0.1, LEAPFROG, reuse=reuse),
        test,
        {GRADIENT: LEAPFROG if reuse else LEAPFROG + 1},
        {GRADIENT: 1} if reuse else {},
        daily=name == "penalty ratio" and reuse,
    )
    for name, test in HMC_TESTS.items()
    for reuse in (True, False)
]
LANGEVIN = [
    Case("sgld", (sgld,), sgld(MODEL.log_prior, GRADIENT, 0.01), GRADIENT, daily=True),
    Case("sgnht", (sgnht,), sgnht(MODEL.log_prior, GRADIENT, 0.01), GRADIENT, daily=True),
]
NON_PRIVATE_GRADIENTS = [
    Case(
        "hmc, not private",
        (hmc,),
        hmc(MODEL.log_prior, NonPrivateGradient(), NonPrivateRatio(), 0.1, LEAPFROG),
        NonPrivateRatio(),
        {NonPrivateGradient(): LEAPFROG},
        {NonPrivateGradient(): 1},
    ),
    Case(
        "sgld, not private",
        (sgld,),
        sgld(MODEL.log_prior, NonPrivateGradient(), 0.01),
        NonPrivateGradient(),
    ),
]

# -- private starts, and the sampler that asks nothing after one ----------------------------------

# So little noise that the posterior given the survey is that of the rows: their log-likelihood is
# quadratic.
STEPS = {Gradient(20.0, 1e-4): 2}
HESSIANS = {Curvature(3.0, 1e-5): 1}
AT_THE_END = Gradient(20.0, 2e-5), Curvature(3.0, 2e-5)
NEWTON = newton_start(MODEL.log_prior, STEPS, HESSIANS)
STARTED = [
    Case(
        "noise-aware after a survey",
        (noise_aware, survey, newton_start),
        lambda found: noise_aware(MODEL.log_prior, found),
        None,
        start=survey(NEWTON, *AT_THE_END),
        by_the_start={**STEPS, **HESSIANS, **dict.fromkeys(AT_THE_END, 1)},
        is_law_tested=True,
        daily=True,
    ),
    Case(
        "sgld after Newton steps",
        (sgld, newton_start),
        lambda found: sgld(MODEL.log_prior, GRADIENT, 0.2, jnp.linalg.inv(found.precision)),
        GRADIENT,
        start=NEWTON,
        by_the_start={**STEPS, **HESSIANS},
    ),
]

# -- approximate samplers: what their stationary law is off by, at most ---------------------------


class Approximate(NamedTuple):
    """A sampler on the coins, what it asks once a step, and the bias that we state for it."""

    name: str
    make: Callable
    sampler: Any
    query: Any
    temperature: float
    mean_bias: float  # of the mean, in posterior standard deviations
    variance_bias: float  # of the variance, relative

    @property
    def case(self) -> Case:
        return Case(
            self.name,
            (self.make, random_walk),
            self.sampler,
            self.query,
            model=COINS_MODEL,
            rows=COINS,
        )

    def __str__(self) -> str:
        return self.name


def _coins(
    name: str,
    make: Callable,
    query: Any,
    walk: tuple[float, float],
    mean_bias: float,
    variance_bias: float,
) -> Approximate:
    sampler = make(COINS_MODEL.log_prior, query, random_walk(*walk))
    return Approximate(name, make, sampler, query, query.temperature, mean_bias, variance_bias)


BATCH = FixedBatch(100, 1000)
APPROXIMATE = [
    _coins(
        "penalty, batch of 50",
        penalty,
        BatchRatio(2.2, 0.5, FixedBatch(50, 1000), 0.03),
        (0.2, 0.6),
        0.006,
        0.004,
    ),
    _coins(
        "penalty, batch of 5",
        penalty,
        BatchRatio(3.0, 0.1, FixedBatch(5, 1000), 0.005),
        (0.5, 1.5),
        0.03,
        0.045,
    ),
    _coins(
        "barker, variance 2", accept_walk, BatchBarker(BATCH, 0.08, 2.0), (0.08, 0.08), 0.002, 0.004
    ),
    _coins(
        "barker, variance 1.5",
        accept_walk,
        BatchBarker(BATCH, 0.08, 1.5),
        (0.07, 0.07),
        0.002,
        0.001,
    ),
]

ALL = (
    GRID
    + OTHERS
    + NON_PRIVATE
    + EXHIBITS
    + HAMILTONIAN
    + LANGEVIN
    + NON_PRIVATE_GRADIENTS
    + STARTED
    + [row.case for row in APPROXIMATE]
)
