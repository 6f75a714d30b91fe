"""Rows made up from what was declared, for recipes by simulation: the table is not read."""

from __future__ import annotations

import math
from typing import Any

from dpmcmc.cli.problems.features import Features, places_of
from dpmcmc.cli.problems.settings import MadeUp, Settings

NUM_ROWS = 256
EFFECT = 1.0  # the standard deviation of the log-odds


def of_logistic(settings: Settings) -> MadeUp:
    """Features spread over their bounds and levels, and effects of both signs."""
    import numpy as np

    random = np.random.default_rng(0)
    features, slopes = _features(settings, random, EFFECT)
    chances = 1 / (1 + np.exp(-features @ slopes))
    labels = (random.random(NUM_ROWS) < chances).astype(np.float32)
    return MadeUp((features, labels), np.append(np.zeros(int(settings.intercept)), slopes))


def of_linear(
    settings: Settings, facts: Features, center: float, share: float, slope: float, noise: float
) -> MadeUp:
    """The same with a label in half widths of its bounds, with normal noise."""
    import numpy as np

    random = np.random.default_rng(0)
    features, slopes = _features(settings, random, slope)
    labels = features @ slopes + noise * random.standard_normal(NUM_ROWS)
    coefficients = np.append(np.zeros(int(settings.intercept)), slopes) / noise
    unit = math.sqrt(share * (facts.radius**2 + settings.intercept))
    guess = np.append(coefficients, (1 / noise - center) / unit)
    rows = features, np.clip(labels, -1, 1).astype(np.float32)
    return MadeUp(rows, guess)


def of_gaussian(widths: Any) -> MadeUp:
    """Columns in their standard deviations, around the middle of their bounds."""
    import numpy as np

    normal = np.random.default_rng(0).standard_normal((NUM_ROWS, len(widths)))
    return MadeUp(np.clip(normal, -widths, widths).astype(np.float32), np.zeros(len(widths)))


def of_banana(variances: Any) -> MadeUp:
    """At the parabola's vertex, with the mean of many rows."""
    import numpy as np

    normal = np.random.default_rng(0).standard_normal((NUM_ROWS, len(variances)))
    rows = np.sqrt(variances) * (normal - normal.mean(axis=0))
    return MadeUp(rows.astype(np.float32), np.zeros(len(variances)))


def _features(settings: Settings, random: Any, effect: float) -> tuple[Any, Any]:
    """Features, and slopes that together have this effect."""
    import numpy as np

    def column(name: str) -> Any:
        if name in settings.bounds:
            return random.uniform(-1, 1, (NUM_ROWS, 1))
        places = places_of(len(settings.levels[name]), settings.intercept)
        return places[random.integers(0, len(places), NUM_ROWS)]

    features = np.concatenate([column(name) for name in settings.columns], axis=1)
    signs = np.resize([1.0, -1.0], features.shape[1])
    slopes = effect * signs / math.sqrt(np.sum(np.var(features, axis=0)))
    return features.astype(np.float32), slopes
