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
"""

from __future__ import annotations

import math
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
