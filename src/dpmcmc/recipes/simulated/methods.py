r"""Which settings each sampler may have. A simulation compares them.

With S the posterior covariance at the public guess, C the covariance that the private start has
released (made smaller where it exceeds S, in its trace or its widest direction, so that no move is
longer than was planned), s the change of a sum that one person makes, and L the clip:

- **penalty, exponential penalty**: moves N(0, l^2 C / d). The noise of the ratio of a typical move,
  of length l (tr S / d)^(1/2), is 2.38: z = 2.38 / (s L times that length).
- **guided**: one component at a time, l times its deviation given the others; z likewise.
- **minibatch Barker**: the moves of penalty, the longest as long as a typical one; x = 0.1.
- **HMC**: mass C^-1, paths of t = h L_steps standard deviations. The ratio of a path has a noise of
  1.6, and the gradients of a path add 1 to each entry of its momentum.
- **SGNHT**: preconditioner C, step h, friction A. The noise of a gradient is what the step may add
  in the widest direction, 2 A h, less three tenths.

How many steps fit follows from the cost of each.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import dpmcmc
from dpmcmc import queries
from dpmcmc.recipes.recipe import SamplerName
from dpmcmc.recipes.walks import RATIO_NOISE
from dpmcmc.types import Model, Sampler

Numbers = Mapping[str, Any]


class Guess(NamedTuple):
    """What settings are made from."""

    model: Model  # with a clip as its `lipschitz`
    covariance: np.ndarray  # of the posterior, at the public guess
    sensitivity: float  # of a sum of numbers in [-1, 1]
    joint: float  # of a sum of vectors in the unit ball, and the number of rows

    @property
    def reach(self) -> float:
        """How far one person moves the log-ratio, for a move of length 1."""
        assert self.model.lipschitz is not None
        return self.sensitivity * self.model.lipschitz

    @property
    def typical(self) -> float:
        """The root mean square of the standard deviations."""
        return math.sqrt(np.trace(self.covariance) / len(self.covariance))


class Method(NamedTuple):
    """A sampler, and the settings to compare."""

    settings: Callable[[Guess], list[dict[str, float]]]
    # From where queries are made, a guess and settings, to those of a step and how often
    asks: Callable[[Any, Guess, Numbers], list[tuple[Any, int]]]
    # From the guess, these queries, the settings and the start's covariance
    sampler: Callable[[Guess, list[Any], Numbers, Any], Sampler]
    fixed: tuple[str, ...] = ()  # settings that a compiled program is made for
    is_asked_at_start: bool = False  # the first query, once for each chain


def grid(**values: list[float]) -> list[dict[str, float]]:
    """Every combination."""
    return [dict(zip(values, each, strict=True)) for each in itertools.product(*values.values())]


def covariance_of(guess: Guess, precision: Any) -> Any:
    """The covariance that the start has found, made smaller where it is larger than the guess: in
    its trace, or in its widest direction.
    """
    found = jnp.linalg.inv(precision)
    widest = np.linalg.eigvalsh(guess.covariance)[-1] * jnp.linalg.eigvalsh(precision)[0]
    total = np.trace(guess.covariance) / jnp.trace(found)
    return found * jnp.clip(jnp.minimum(widest, total), 0.0, 1.0)


def conditional(covariance: Any) -> Any:
    """The standard deviation of each component, given the others."""
    return 1 / jnp.sqrt(jnp.diag(jnp.linalg.inv(covariance)))


def _moves(covariance: Any, length: Any) -> Any:
    """The matrix of moves of this length, in standard deviations."""
    return length / math.sqrt(len(covariance)) * jnp.linalg.cholesky(covariance)


# -- walks ----------------------------------------------------------------------------------------


def _walk_settings(guess: Guess) -> list[dict[str, float]]:
    return [
        {**each, "noise": RATIO_NOISE / (guess.reach * each["l"] * guess.typical)}
        for each in grid(l=[0.5, 1.0, 2.0])
    ]


def _log_ratio(make: Any, guess: Guess, numbers: Numbers) -> list[tuple[Any, int]]:
    return [(make.LogRatio(clip=guess.model.lipschitz, noise_multiplier=numbers["noise"]), 1)]


def _penalty(guess: Guess, asked: list[Any], numbers: Numbers, covariance: Any) -> Sampler:
    walk = dpmcmc.random_walk(_moves(covariance, numbers["l"]))
    return dpmcmc.penalty(guess.model.log_prior, asked[0], walk)


def _guided_settings(guess: Guess) -> list[dict[str, float]]:
    deviations = np.asarray(conditional(guess.covariance))
    typical = float(np.sqrt(np.mean(deviations**2)))
    return [
        {**each, "noise": RATIO_NOISE / (guess.reach * each["l"] * typical)}
        for each in grid(l=[0.5, 1.0, 2.0])
    ]


def _guided(guess: Guess, asked: list[Any], numbers: Numbers, covariance: Any) -> Sampler:
    walk = dpmcmc.guided_walk(numbers["l"] * conditional(covariance))
    return dpmcmc.penalty(guess.model.log_prior, asked[0], walk)


def _exponential_settings(guess: Guess) -> list[dict[str, float]]:
    family = guess.model.family
    assert family is not None
    change = np.asarray(jax.jacobian(family.natural)(jnp.zeros(guess.model.dimension)))
    dimension = len(guess.covariance)
    typical = math.sqrt(np.trace(change @ guess.covariance @ change.T) / dimension)
    reach = guess.joint * float(family.radius)
    return [
        {**each, "noise": RATIO_NOISE / (reach * each["l"] * typical)}
        for each in grid(l=[0.5, 1.0, 2.0])
    ]


def _statistic(make: Any, guess: Guess, numbers: Numbers) -> list[tuple[Any, int]]:
    return [(make.SufficientStatistic(noise_multiplier=numbers["noise"]), 1)]


def _exponential(guess: Guess, asked: list[Any], numbers: Numbers, covariance: Any) -> Sampler:
    walk = dpmcmc.random_walk(_moves(covariance, numbers["l"]))
    return dpmcmc.exponential_penalty(guess.model, asked[0], walk)


BATCH_RATIO = 0.1  # x of TunaMH: a larger one reads fewer rows, and does worse


def _barker_settings(guess: Guess) -> list[dict[str, float]]:
    return [
        {**each, "longest": each["l"] * guess.typical}
        for each in grid(l=[0.4, 0.8, 1.6], ratio=[BATCH_RATIO])
    ]


def _tuna_barker(make: Any, guess: Guess, numbers: Numbers) -> list[tuple[Any, int]]:
    bound = guess.model.lipschitz * numbers["longest"]
    return [(make.TunaBarker(bound=bound, ratio=numbers["ratio"]), 1)]


def _barker(guess: Guess, asked: list[Any], numbers: Numbers, covariance: Any) -> Sampler:
    walk = dpmcmc.random_walk(_moves(covariance, numbers["l"]), numbers["longest"])
    return dpmcmc.accept_walk(guess.model.log_prior, asked[0], walk)


# -- with gradients -------------------------------------------------------------------------------


def _hmc_settings(guess: Guess) -> list[dict[str, float]]:
    return [each | _noises(guess, **each) for each in grid(path=[0.5, 1.0], steps=[2, 5])]


# The noise of a path's ratio, and what that of its gradients adds to each entry of the momentum
OF_PATH, OF_MOMENTUM = 1.6, 1.0


def _noises(guess: Guess, path: float, steps: float) -> dict[str, float]:
    # Steps are spread evenly over (0, h]: a typical one is h / sqrt(3)
    step = path * math.sqrt(3) / steps
    length = path * guess.typical * math.sqrt(len(guess.covariance))
    noise = OF_MOMENTUM / (guess.reach * path / math.sqrt(steps) * guess.typical)
    return {"step": step, "noise": OF_PATH / (guess.reach * length), "noise_of_gradient": noise}


def _paths(make: Any, guess: Guess, numbers: Numbers) -> list[tuple[Any, int]]:
    clip = guess.model.lipschitz
    gradient = make.Gradient(clip=clip, noise_multiplier=numbers["noise_of_gradient"])
    test = make.LogRatio(clip=clip, noise_multiplier=numbers["noise"])
    return [(gradient, int(numbers["steps"])), (test, 1)]


def _hmc(guess: Guess, asked: list[Any], numbers: Numbers, covariance: Any) -> Sampler:
    return dpmcmc.hmc(
        guess.model.log_prior,
        asked[0],
        asked[1],
        numbers["step"],
        int(numbers["steps"]),
        jnp.linalg.inv(covariance),
    )


ROOM = 0.7  # of what a step may add, for the noise of the gradient


def _thermostat_settings(guess: Guess) -> list[dict[str, float]]:
    widest = math.sqrt(np.linalg.eigvalsh(guess.covariance)[-1])
    return [
        {**each, "noise": math.sqrt(ROOM * 2 * each["a"] / each["h"]) / (guess.reach * widest)}
        for each in grid(h=[0.4], a=[1.5, 5.0])
    ]


def _gradient(make: Any, guess: Guess, numbers: Numbers) -> list[tuple[Any, int]]:
    return [(make.Gradient(clip=guess.model.lipschitz, noise_multiplier=numbers["noise"]), 1)]


def _thermostat(guess: Guess, asked: list[Any], numbers: Numbers, covariance: Any) -> Sampler:
    return dpmcmc.sgnht(guess.model.log_prior, asked[0], numbers["h"], numbers["a"], covariance)


METHODS: dict[SamplerName, Method] = {
    SamplerName.penalty: Method(_walk_settings, _log_ratio, _penalty),
    SamplerName.guided: Method(_guided_settings, _log_ratio, _guided),
    SamplerName.exponential_penalty: Method(_exponential_settings, _statistic, _exponential),
    SamplerName.minibatch_barker: Method(_barker_settings, _tuna_barker, _barker),
    SamplerName.hmc: Method(_hmc_settings, _paths, _hmc, ("steps",), is_asked_at_start=True),
    SamplerName.sgnht: Method(_thermostat_settings, _gradient, _thermostat),
}


def real_asks(method: Method, guess: Guess, numbers: Numbers) -> list[tuple[Any, int]]:
    """The queries of a step as the curator answers them."""
    return method.asks(queries, guess, numbers)
