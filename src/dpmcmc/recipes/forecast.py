r"""What to expect of a private logistic regression, from public facts: steps, error, effective
draws, or that it is hopeless.

The posterior mean is off by  err = sqrt(K d / (mu^2 n))  posterior standard deviations, root mean
square over the parameters, where mu is the Gaussian-DP parameter of the whole budget. K was
measured (`benchmarks/forecast.py`) on simulated logistic regressions with an intercept and features
uniform in [-1, 1], with the settings of `recipes`, and for random walks those of
`walk_after_start`: a private start, and its shape (`dpmcmc run` gives them neither, and other
numbers of steps). Effective draws are about 1 / err^2. Tables whose features fill only a small part
of their declared bounds do worse: declare tight bounds.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from dpmcmc.checks import whole
from dpmcmc.recipes.budgets import gaussian_mu
from dpmcmc.recipes.hope import FEW_ON_AVERAGE, is_few, why_hopeless
from dpmcmc.recipes.langevin import ATTAINED, langevin_step
from dpmcmc.recipes.start import start_queries
from dpmcmc.recipes.walks import longest_move, walk_query
from dpmcmc.types import Budget, Neighbours


class Constant(NamedTuple):
    """K of one sampler, as measured by `benchmarks/forecast.py fit`: a curve through the medians,
    and the range around it.

    Attributes:
        at: The curve: K by dimension.
        low: The smallest measured K, as a multiple of the curve.
        high: The largest one.
    """

    at: Callable[[int], float]
    low: float
    high: float


CONSTANTS = {
    # More features explain more, so that more labels are nearly certain and rows have less
    # information.
    "sgld": Constant(lambda dimension: 30 + 25 * math.log(dimension), 0.5, 1.3),
    # The cost of a bit is that of the largest ratio of a row, which grows with R = sqrt(d).
    "barker": Constant(lambda dimension: 380.0 * dimension, 0.6, 1.1),
    "penalty": Constant(lambda dimension: 230.0 * dimension, 0.8, 1.9),
}
# Of whitened coordinates, as `benchmarks/rivals.py` has measured it
NOISE_AWARE = Constant(lambda dimension: 18 + 1.3 * dimension, 0.6, 1.8)
FILLED = "assuming features spread over their bounds, balanced levels and no collinearity"
# The information about a column is proportional to its variance.
CROWDED = "a column whose cells crowd in a third of its bounds gets a ninth of the draws, or fewer"
HELD_BACK = (
    "limited by the total-variation error of the noise, which delta covers: a larger epsilon "
    "buys no more steps"
)
# How far the private start is off, as a multiple of the error that the chains alone would have
START_OFFSET = 5.0


def expected_widening(num_rows: int, dimension: int, budget: Budget) -> float:
    """How many times as wide as without privacy a noise-aware posterior of a logistic regression
    will be.

    Args:
        num_rows: The number of rows.
        dimension: The number of parameters.
        budget: The budget of the run.

    Returns:
        The widening, 1 or more.

    Example:
        >>> from dpmcmc import Budget
        >>> round(expected_widening(61_395, 7, Budget(1.0, 1e-6)), 2)
        1.03
    """
    return math.hypot(1, forecast_error("noise-aware", num_rows, dimension, budget))


def _error_of_chains(name: str, num_rows: int, dimension: int, budget: Budget) -> float:
    """The error of the posterior mean if the chains started in the posterior."""
    unit = budget.unit.sensitivity / 2  # K was measured for a replaced row
    constant = NOISE_AWARE if name == "noise-aware" else CONSTANTS[name]
    return unit * math.sqrt(constant.at(dimension) * dimension / num_rows) / gaussian_mu(budget)


def forecast_error(name: str, num_rows: int, dimension: int, budget: Budget) -> float:
    """The expected error of the posterior mean, in posterior standard deviations.

    The error of the start decays exponentially, at the rate at which draws become independent,
    T = 1 / err^2 times in a run of two chains, whose first tenth is warm-up. It is large only where
    a run is nearly hopeless anyway.

    Args:
        name: "noise-aware", "sgld", "barker" or "penalty".
        num_rows: The number of rows.
        dimension: The number of parameters.
        budget: The budget of the run.

    Returns:
        The error.

    Example:
        >>> from dpmcmc import Budget
        >>> round(forecast_error("sgld", 61_395, 7, Budget(4.0, 1e-6)), 2)
        0.11
    """
    error = _error_of_chains(name, num_rows, dimension, budget)
    if name == "noise-aware":
        # Beyond one standard deviation what is released first is too poor for the rest
        return error * max(1.0, error)
    times = 1 / error**2
    left = math.exp(-0.1 * times) * -math.expm1(-0.9 * times) / (0.9 * times)
    return error * math.sqrt(1 + (START_OFFSET * left) ** 2)


class Forecast(NamedTuple):
    """What to expect of one sampler.

    Attributes:
        name: The sampler.
        num_steps: The number of steps of all chains together.
        error: The error of the posterior mean, in posterior standard deviations.
        low: The error at the smallest measured K.
        high: The error at the largest one.
        is_held_back: Whether there are fewer steps than the budget is worth, because delta covers
            the total-variation error of the noise.

    Example:
        >>> Forecast("sgld", 1000, error=0.5, low=0.4, high=0.7).effective_draws
        4.0
    """

    name: str
    num_steps: int
    error: float
    low: float
    high: float
    is_held_back: bool = False

    @property
    def effective_draws(self) -> float:
        """About how many independent draws the run is worth."""
        return 1 / self.error**2


def forecasts(num_rows: int, dimension: int, budget: Budget) -> list[Forecast]:
    """Every sampler on a logistic regression with features scaled to [-1, 1], the most accurate
    first.

    Args:
        num_rows: The number of rows.
        dimension: The number of parameters.
        budget: The budget of the run.

    Returns:
        One forecast for each sampler.

    Raises:
        TypeError: budget is not a `Budget`.
        ValueError: num_rows or dimension is not a positive whole number.

    Example:
        >>> from dpmcmc import Budget
        >>> [forecast.name for forecast in forecasts(61_395, 7, Budget(4.0, 1e-6))]
        ['sgld', 'penalty', 'barker']
    """
    from dpmcmc.accounting import calibrate

    if not isinstance(budget, Budget):
        raise TypeError(f"budget is a {type(budget).__name__}: give a Budget(epsilon, delta)")
    num_rows = whole("num_rows", num_rows)
    dimension = whole("dimension", dimension)
    found = []
    for name, constant in CONSTANTS.items():
        bill = _bill(name, num_rows, dimension, budget)
        num_steps = calibrate.steps(*bill)
        error = forecast_error(name, num_rows, dimension, budget) if num_steps > 0 else math.inf
        low = error * math.sqrt(constant.low)
        high = error * math.sqrt(constant.high)
        found.append(Forecast(name, num_steps, error, low, high, calibrate.held_back(*bill)))
    return sorted(found, key=lambda forecast: forecast.error)


def _bill(
    name: str, num_rows: int, dimension: int, budget: Budget
) -> tuple[dict[Any, int], float, float, dict[Any, int]]:
    """The cost of a step, the budget, and the cost of the start: what `calibrate.steps` takes."""
    from dpmcmc.accounting.bill import costs_of
    from dpmcmc.queries import Gradient

    # In units where R = 1 the curvature of a row is at most 1/4, and the prior's precision 1 / R^2.
    start = start_queries(Gradient, 1.0, 0.25, budget)
    if name == "sgld":
        query: Any = Gradient(
            1.0,
            langevin_step(num_rows / 4 + 1 / (dimension * ATTAINED), 1.0, budget)[0],
        )
    else:
        query = walk_query(name, 1.0, longest_move(num_rows, dimension, 1.0), budget)
    return (
        costs_of({query: 1}, budget.unit),
        budget.epsilon,
        budget.delta,
        costs_of(start, budget.unit),
    )


def plan_text(num_rows: int, dimension: int, budget: Budget) -> str:
    """The forecasts as a table, with a recommendation or the statement that a run is hopeless.

    Args:
        num_rows: The number of rows.
        dimension: The number of parameters.
        budget: The budget of the run.

    Returns:
        The text.

    Raises:
        TypeError: budget is not a `Budget`.
        ValueError: num_rows or dimension is not a positive whole number.

    Example:
        >>> from dpmcmc import Budget
        >>> "Recommended: noise-aware" in plan_text(61_395, 7, Budget(4.0, 1e-6))
        True
    """
    found = forecasts(num_rows, dimension, budget)
    lines = [
        f"{'sampler':9} {'steps':>8} {'expected error':>16} {'spread':>13} {'effective draws':>16}"
    ]
    for forecast in found:
        spread = f"{forecast.low:.2f} - {forecast.high:.2f}"
        lines.append(
            f"{forecast.name:9} {forecast.num_steps:>8} {forecast.error:>13.2f} sd {spread:>13} "
            f"{forecast.effective_draws:>16.0f}"
        )
    held_back = [forecast.name for forecast in found if forecast.is_held_back]
    if held_back:
        lines.append(f"{', '.join(held_back)}: {HELD_BACK}.")
    best = found[0]
    error = forecast_error("noise-aware", num_rows, dimension, budget)
    widening = expected_widening(num_rows, dimension, budget)
    lines.append(
        f"noise-aware: any number of draws, means off by about {error:.2f} sd, from a posterior "
        f"{widening:.3g} times as wide as without privacy."
    )
    if why_hopeless(widening=widening) is None:
        lines.append(
            "Recommended: noise-aware. Errors are of posterior means, in posterior sd; steps are "
            "of all chains together."
        )
        lines.append(
            f"All this holds {FILLED}.\nElse errors may be several times as large: {CROWDED}."
        )
        if is_few(best.effective_draws, is_worst=False):
            lines.append(
                f"FEW: with less than {FEW_ON_AVERAGE} effective draws on average a run of "
                f"{best.name} is "
                "likely to fail its own checks."
            )
    elif best.num_steps == 0:
        lines.append("Hopeless: no sampler has a step left after the private start.")
    else:
        lines.append(
            "Hopeless: you would need "
            f"{needed_text('noise-aware', num_rows, dimension, budget)}, for half a sd."
        )
    if budget.neighbours is Neighbours.REPLACE_ONE and budget.delta > 1 / num_rows:
        lines.append(
            f"delta = {budget.delta:g} is above 1/n: a release of one random row would be within "
            "the promise."
        )
    return "\n".join(lines)


def plan_json(num_rows: int, dimension: int, budget: Budget) -> str:
    """The forecasts as a JSON object; an infinite error is null, and so is the recommendation where
    every sampler is hopeless.

    Args:
        num_rows: The number of rows.
        dimension: The number of parameters.
        budget: The budget of the run.

    Returns:
        The text of the object.

    Raises:
        TypeError: budget is not a `Budget`.
        ValueError: num_rows or dimension is not a positive whole number.

    Example:
        >>> import json
        >>> from dpmcmc import Budget
        >>> json.loads(plan_json(61_395, 7, Budget(4.0, 1e-6)))["recommended"]
        'noise-aware'
    """
    found = forecasts(num_rows, dimension, budget)
    samplers = [
        forecast._asdict() | {"effective_draws": forecast.effective_draws} for forecast in found
    ]
    widening = expected_widening(num_rows, dimension, budget)
    answer = {
        "model": "logistic",
        "rows": num_rows,
        "dimension": dimension,
        "epsilon": budget.epsilon,
        "delta": budget.delta,
        "relation": budget.neighbours.value,
        "recommended": None if why_hopeless(widening=widening) else "noise-aware",
        "noise_aware_widening": widening,
        "samplers": [
            {name: None if value == math.inf else value for name, value in facts.items()}
            for facts in samplers
        ],
    }
    return json.dumps(answer)


def needed_text(name: str, num_rows: int, dimension: int, budget: Budget) -> str:
    """The n, or else the epsilon, for an error of half a standard deviation, in words.

    Args:
        name: "noise-aware", "sgld", "barker" or "penalty".
        num_rows: The number of rows there are.
        dimension: The number of parameters.
        budget: The budget there is.

    Returns:
        The text.

    Example:
        >>> from dpmcmc import Budget
        >>> needed_text("sgld", 100, 7, Budget(1.0, 1e-6)).startswith("n = ")
        True
    """
    rows, epsilon = needed(name, num_rows, dimension, budget)
    other = f"epsilon = {epsilon:.2g} at this n" if math.isfinite(epsilon) else ""
    if not math.isfinite(rows):
        return other or "more than any n or epsilon alone"
    return f"n = {rows:,} at this epsilon" + (
        f", or {other}" if other else " (at this n no epsilon is enough)"
    )


def needed(
    name: str, num_rows: int, dimension: int, budget: Budget, error: float = 0.5
) -> tuple[float, float]:
    """The n, or else the epsilon, that would reduce the error to a number of standard deviations.

    Args:
        name: "noise-aware", "sgld", "barker" or "penalty".
        num_rows: The number of rows there are.
        dimension: The number of parameters.
        budget: The budget there is.
        error: The wanted error of the posterior mean, in posterior standard deviations.

    Returns:
        The number of rows at this epsilon, and the epsilon at this number of rows; each is infinite
        if none is enough.

    Example:
        >>> from dpmcmc import Budget
        >>> rows, epsilon = needed("sgld", 100, 7, Budget(1.0, 1e-6))
        >>> rows > 100 and epsilon > 1.0
        True
    """

    def least(low: float, high: float, is_enough: Callable[[float], bool]) -> float:
        if not is_enough(high):
            return math.inf
        for _ in range(60):
            middle = math.sqrt(low * high)
            low, high = (low, middle) if is_enough(middle) else (middle, high)
        return high

    rows = least(
        num_rows,
        1e15,
        lambda rows: forecast_error(name, math.ceil(rows), dimension, budget) <= error,
    )
    epsilon = least(
        budget.epsilon,
        1e4,
        lambda epsilon: (
            forecast_error(name, num_rows, dimension, replace(budget, epsilon=epsilon)) <= error
        ),
    )
    return rows if math.isinf(rows) else math.ceil(rows), epsilon
