"""When a budget buys too little: the one place where `recipes` decides what is hopeless.

Two figures decide. A chain is judged by the number of independent draws that its steps are worth;
a noise-aware posterior by its widening, which is how many times as wide as without privacy it is.
The figure may be expected, or the best that any table could give.
"""

from __future__ import annotations

import math
import os
import sys
import warnings

FEWEST_DRAWS = 15  # effective ones, of every parameter, that a run's own checks require
MAX_WIDENING = 3.0  # beyond it the normal approximation fails
MAX_ERROR = 1.0  # posterior standard deviations: beyond it the prior may be as good
# Effective draws on average: some parameter may have a quarter of them, too few for a run's checks
FEW_ON_AVERAGE = 60
FEW_AT_WORST = 25  # of the worst parameter
OUT = "More rows, a larger budget or tighter bounds would help"


def why_hopeless(*, widening: float | None = None, draws: float | None = None) -> str | None:
    """What makes a run hopeless, in words.

    Args:
        widening: How many times as wide as without privacy a noise-aware posterior is expected.
        draws: How many independent draws a chain is expected to be worth.

    Returns:
        What the budget gives, or None if that is worth having.

    Example:
        >>> why_hopeless(draws=0.25)
        'posterior means off by about 2.0 posterior standard deviations'
        >>> why_hopeless(widening=1.5)
    """
    if widening is not None and widening > MAX_WIDENING:
        if math.isinf(widening):
            return "a posterior that is the prior"
        return f"a posterior some {widening:.2g} times as wide as without privacy"
    if draws is not None and draws <= MAX_ERROR**-2:
        if draws <= 0:
            return "posterior means of nothing but noise"
        return f"posterior means off by about {draws**-0.5:.1f} posterior standard deviations"
    return None


def is_few(draws: float, is_worst: bool) -> bool:
    """Whether a run of so many draws, of the worst parameter or on average, may fail its checks."""
    return draws < (FEW_AT_WORST if is_worst else FEW_ON_AVERAGE)


def warn_of_widening(least: float) -> None:
    """Warn if the posterior is too wide whatever the rows are: `least` is the smallest widening."""
    if least > MAX_WIDENING:
        _warn(
            f"hopeless: with the noise of this budget the posterior is at least {least:.2g} times "
            "as wide as without, even in the direction that the rows determine best. "
            f"{OUT}"
        )


def warn_of_few_draws(most: float, clip: float) -> None:
    """Warn if a run cannot pass its own checks: `most` is the largest number of draws there is."""
    if most < FEWEST_DRAWS:
        _warn(
            f"hopeless: this budget buys {most:.2g} independent draws at most, even in the "
            f"direction that the rows determine best, and a run's own checks require {FEWEST_DRAWS}"
            f". Noise is proportional to the clip, {clip:.4g}: where the gradients of nearly all "
            "rows are far smaller, give clip= and hessian_bound=, chosen on simulated rows. "
            f"{OUT}"
        )


def _warn(text: str) -> None:
    """Warn at the line outside this folder where a recipe was asked for."""
    here = os.path.dirname(__file__)
    frame = sys._getframe()
    level = 1
    while os.path.dirname(frame.f_code.co_filename) == here and frame.f_back is not None:
        frame = frame.f_back
        level = level + 1
    warnings.warn(text, stacklevel=level)
