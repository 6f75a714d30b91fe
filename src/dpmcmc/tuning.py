<<<<<<< HEAD
r"""Settings from public facts, and what to expect of them.

Everything here follows from n, d, the proved bounds of the model and the budget; no row is looked at.

**Langevin on full-data gradients.** A replaced row moves the gradient by at most 2R (R: the Lipschitz bound), so the noise in each
coordinate has variance v = (2 R z)^2, and k releases cost mu^2 = k / z^2 in Gaussian DP. The private noise may be all the noise the
dynamics needs when  h v <= 4;  with h = 4 / v the direction of posterior precision p then gives

    k h p / 4  =  mu^2 p / (4 R^2)      effective draws,

whatever z is. z is set so that the step resolves the stiffest direction there could be, h n c <= STIFFNESS, where c bounds a row's
curvature; more noise and more steps would change nothing but the time.

**Forecast.** The posterior mean is off by  err = sqrt(K d / (mu^2 n))  posterior standard deviations, root mean square over the
parameters, where mu is the Gaussian-DP parameter of the whole budget. K was measured (`benchmarks/forecast.py`) on simulated
logistic regressions with an intercept and features uniform in [-1, 1]; effective draws are about 1 / err^2. Tables whose features
huddle in a corner of their declared bounds do worse: tell the bounds tightly.
=======
r"""Settings from public facts alone: the number of rows n, the dimension d, the clip L, and what a row is guessed to say.

Let J_j be a public guess of the information of one row about component j. Then component j of the posterior has a standard
deviation near  s_j = (n J_j + prior precision)^(-1/2).

**Step.** Component j moves by N(0, (l s_j)^2 / d) with l = 1/2. The bill of an accept bit grows with the squared length of the
longest move, and so does what a step gains: l changes the number of steps more than their worth. Small steps are accepted more
often (93 % of the most that Barker's test can; 73 % at the customary l = 1.2), and the way from the start to the posterior, so many
steps of that length, takes a smaller share of the budget. They cost time only.

**Longest move.** M = the root mean square length of a move; longer ones are shortened to it, since the bill pays for the longest.

**Noise.** The penalty test on a released ratio mixes best per epsilon when the ratio of the longest move has a noise of standard
deviation 2.38 (where s^2 Phi(-s/2) is largest), on its accept bit when 2.19; the multiplier is that over the range of the ratio.

**What to expect.** About 36 d steps of Barker's test, or 80 d of the penalty test, are worth one independent draw.
>>>>>>> front
"""

from __future__ import annotations

import math
<<<<<<< HEAD
from dataclasses import dataclass
from typing import Any, NamedTuple

from dpmcmc.types import Budget, Model, Neighbours

STIFFNESS = 1.0  # at worst the variance of the stiffest direction is then a third too large; on real tables a few per cent
START_SHARE, CURVATURE_SHARE, START_STEPS = 0.08, 0.02, 8  # of mu^2, for the private start
TYPICAL_WEIGHT = 0.07  # of a row in the posterior precision: p (1 - p) times a feature's mean square, in units of R^2 / d
WALK_SCALE = {"barker": 2.4, "penalty": 1.6}  # times sd / sqrt(d)
PENALTY_SIGMA = 1.5  # of the noise in the ratio of the longest move
HOPELESS = 1.0  # an error of a whole posterior standard deviation: the prior could be as good


class Constant(NamedTuple):
    """K of one sampler, as measured by `benchmarks/forecast.py`: the median over simulated tables, and the range of it."""

    middle: float
    low: float
    high: float
    grows_with_dimension: bool  # K d instead of K: a bit pays for the longest move a row could see, which grows with sqrt(d)

    def at(self, dimension: int) -> float:
        return self.middle * (dimension if self.grows_with_dimension else 1)


CONSTANTS = {
    "sgld": Constant(60.0, 45.0, 80.0, False),
    "barker": Constant(400.0, 200.0, 800.0, True),
    "penalty": Constant(400.0, 200.0, 800.0, True),
}


@dataclass(frozen=True)
class Recipe:
    """What to hand to `sample`."""

    sampler: Any
    start: Any
    num_chains: int
    thin: int
    warmup: float


def gaussian_mu(budget: Budget) -> float:
    """The Gaussian-DP parameter that the whole budget buys."""
    from dpmcmc.accounting import accountants, gaussian

    return gaussian.mu(budget.epsilon, (1 - accountants.RESERVE) * budget.delta)


def langevin(model: Model, num_rows: int, budget: Budget, num_chains: int = 2) -> Recipe:
    """Full-data Langevin dynamics on the model's proved bounds, after a private Newton start."""
    from dpmcmc import Gradient, sgld

    if model.lipschitz is None or model.curvature is None:
        raise ValueError("this recipe needs a model with proved bounds (lipschitz and curvature), such as logistic regression")
    noise_multiplier, step_size = langevin_step(num_rows, model.lipschitz, model.curvature, budget)
    return Recipe(
        sampler=sgld(model.log_prior, Gradient(model.lipschitz, noise_multiplier), step_size),
        start=_start(model, budget),
        num_chains=num_chains,
        thin=max(1, int(langevin_steps(noise_multiplier, budget) / num_chains / 2000)),
        warmup=0.1,
    )


def walk(model: Model, num_rows: int, budget: Budget, test: str, num_chains: int = 2) -> Recipe:
    """A random walk with Barker's accept bit or the penalty test on a noisy ratio, after a private Newton start.

    The walk takes the shape of the start's curvature; the cap on its moves, which the bill is for, comes from public facts: a
    precision of `TYPICAL_WEIGHT` n R^2 / d in every direction.
    """
    from dpmcmc import Accept, Barker, LogRatio, accept_walk, penalty, random_walk

    if model.lipschitz is None or model.curvature is None:
        raise ValueError("this recipe needs a model with proved bounds (lipschitz and curvature), such as logistic regression")
    lipschitz = model.lipschitz
    scale = WALK_SCALE[test] / math.sqrt(model.dimension)
    longest = _longest_move(test, num_rows, model.dimension, lipschitz)
    if test == "barker":
        make, query = accept_walk, Accept(Barker(), bound=lipschitz * longest)
    else:
        make, query = penalty, LogRatio(lipschitz, PENALTY_SIGMA / (sensitivity(budget) * lipschitz * longest))

    def sampler(start):
        import jax.numpy as jnp

        shape = jnp.linalg.cholesky(jnp.linalg.inv(start.precision))
        return make(model.log_prior, query, random_walk(scale * shape, longest))

    return Recipe(sampler, _start(model, budget), num_chains, thin=1, warmup=0.1)


def _start(model: Model, budget: Budget):
    from dpmcmc import Curvature, Gradient, newton_start

    mu = gaussian_mu(budget)
    gradient, curvature = Gradient(model.lipschitz, _start_noise(mu)), Curvature(model.curvature, _curvature_noise(mu))
    return newton_start(model.log_prior, gradient, curvature, START_STEPS)


def _start_noise(mu: float) -> float:
    return _round_up(math.sqrt(START_STEPS / START_SHARE) / mu)


def _curvature_noise(mu: float) -> float:
    return _round_up(1 / math.sqrt(CURVATURE_SHARE) / mu)


def _longest_move(test: str, num_rows: int, dimension: int, lipschitz: float) -> float:
    spread = math.sqrt(dimension / (TYPICAL_WEIGHT * num_rows)) / lipschitz
    return WALK_SCALE[test] * spread * (1 + 1 / math.sqrt(dimension))


def sensitivity(budget: Budget) -> int:
    """How far one person moves a sum of values in [-1, 1]."""
    return budget.rows_per_person * (2 if budget.neighbours is Neighbours.REPLACE_ONE else 1)


def langevin_step(num_rows: int, lipschitz: float, curvature: float, budget: Budget) -> tuple[float, float]:
    """(noise multiplier, step size): h v = 4 and h n c = STIFFNESS."""
    reach = lipschitz * sensitivity(budget)
    noise_multiplier = _round_up(math.sqrt(4 * num_rows * curvature / STIFFNESS) / reach)
    return noise_multiplier, 4 / (reach * noise_multiplier) ** 2


def langevin_steps(noise_multiplier: float, budget: Budget) -> int:
    """About how many gradients the chains get in all."""
    return int((1 - START_SHARE - CURVATURE_SHARE) * (gaussian_mu(budget) * noise_multiplier) ** 2)


def _round_up(value: float) -> float:
    """To four digits, so that a bill is pleasant to read."""
    digits = 3 - math.floor(math.log10(value))
    return math.ceil(value * 10**digits) / 10**digits


def forecast_error(name: str, num_rows: int, dimension: int, budget: Budget) -> float:
    """The expected error of the posterior mean, in posterior standard deviations."""
    unit = sensitivity(budget) / 2  # K was measured for a replaced row
    return unit * math.sqrt(CONSTANTS[name].at(dimension) * dimension / num_rows) / gaussian_mu(budget)


class Forecast(NamedTuple):
    """What one sampler is expected to do."""

    name: str
    num_steps: int  # of all chains together
    error: float  # of the posterior mean, in posterior standard deviations
    low: float  # the spread of it that the spread of K implies
    high: float

    @property
    def effective_draws(self) -> float:
        return 1 / self.error**2


def forecasts(num_rows: int, dimension: int, budget: Budget) -> list[Forecast]:
    """Every sampler on a logistic regression with features scaled to [-1, 1], the most accurate first."""
    found = []
    for name, constant in CONSTANTS.items():
        error = forecast_error(name, num_rows, dimension, budget)
        low, high = (error * math.sqrt(k / constant.middle) for k in (constant.low, constant.high))
        found.append(Forecast(name, forecast_steps(name, num_rows, dimension, budget), error, low, high))
    return sorted(found, key=lambda forecast: forecast.error)


def forecast_steps(name: str, num_rows: int, dimension: int, budget: Budget) -> int:
    """How many steps the budget allows after the private start, by the accountants that will bill them."""
    from dpmcmc.acceptance import Barker
    from dpmcmc.accounting import calibrate
    from dpmcmc.accounting.costs import AcceptBit, Gaussian

    mu = gaussian_mu(budget)
    start = {Gaussian(_start_noise(mu)): START_STEPS, Gaussian(_curvature_noise(mu)): 1}
    if name == "sgld":
        # In units where R = 1 the curvature of a row is at most 1/4.
        cost: Any = Gaussian(langevin_step(num_rows, 1.0, 0.25, budget)[0])
    else:
        reach = sensitivity(budget) * _longest_move(name, num_rows, dimension, 1.0)
        cost = AcceptBit(Barker(), reach) if name == "barker" else Gaussian(PENALTY_SIGMA / reach)
    return calibrate.steps({cost: 1}, budget.epsilon, budget.delta, initial=start)


def plan_text(num_rows: int, dimension: int, budget: Budget) -> str:
    """The forecasts as a table, with a recommendation or a plain word that there is none."""
    found = forecasts(num_rows, dimension, budget)
    lines = [f"{'sampler':9} {'steps':>8} {'expected error':>16} {'spread':>13} {'effective draws':>16}"]
    for forecast in found:
        spread = f"{forecast.low:.2f} - {forecast.high:.2f}"
        lines.append(
            f"{forecast.name:9} {forecast.num_steps:>8} {forecast.error:>13.2f} sd {spread:>13} {forecast.effective_draws:>16.0f}"
        )
    best = found[0]
    if best.error < HOPELESS:
        lines.append(f"Recommended: {best.name}. Errors are those of the posterior mean, in posterior standard deviations.")
    else:
        rows, epsilon = needed(best.name, num_rows, dimension, budget)
        lines.append(f"Hopeless: you would need n = {rows:,} at this epsilon, or epsilon = {epsilon:.2g} at this n, for half a sd.")
    return "\n".join(lines)


def needed(name: str, num_rows: int, dimension: int, budget: Budget, error: float = 0.5) -> tuple[int, float]:
    """The n, or else the epsilon, that would bring the error down to so many standard deviations."""
    factor = forecast_error(name, num_rows, dimension, budget) / error
    low, high = budget.epsilon, 1e4
    for _ in range(60):
        middle = math.sqrt(low * high)
        other = Budget(middle, budget.delta, budget.neighbours, budget.rows_per_person)
        low, high = (middle, high) if forecast_error(name, num_rows, dimension, other) > error else (low, middle)
    return math.ceil(num_rows * factor**2), high
=======
from typing import NamedTuple

import numpy as np

LENGTH = 0.5
RATIO_NOISE, BIT_NOISE = 2.38, 2.19
STEPS_PER_DRAW = {"barker": 36.0, "lazy-barker": 36.0, "penalty": 80.0, "penalty-bit": 80.0}  # times d


class Walk(NamedTuple):
    """A random walk: standard deviations of a move, and its largest length."""

    scale: np.ndarray
    max_move: float


def walk(information, prior_precision, num_rows: int, scale: float | None = None) -> Walk:
    """The rule above; `scale` replaces the standard deviations by one number."""
    information = np.asarray(information, float)
    dimension = len(information)
    if scale is None:
        scales = LENGTH / np.sqrt(dimension * (num_rows * information + prior_precision))
    else:
        scales = np.full(dimension, scale)
    return Walk(scales, math.sqrt(math.fsum(scales**2)))


def noise_multiplier(sampler: str, clip: float, max_move: float, sensitivity: int) -> float:
    """Noise over range; `sensitivity` is 2 when a row is replaced, 1 when one is added or removed."""
    return (RATIO_NOISE if sampler == "penalty" else BIT_NOISE) / (clip * max_move * sensitivity)


def effective_draws(sampler: str, num_steps: int, dimension: int, kappa: float = 1.0) -> float:
    """How many independent draws so many steps of all chains are worth, roughly."""
    return num_steps * (kappa if sampler == "lazy-barker" else 1.0) / (STEPS_PER_DRAW[sampler] * dimension)
>>>>>>> front
