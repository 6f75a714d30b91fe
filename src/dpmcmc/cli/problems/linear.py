"""A robust linear regression."""

from __future__ import annotations

import math
from typing import Any

from dpmcmc.cli.problems.features import Features, feature_rows, features_of
from dpmcmc.cli.problems.settings import Problem, Settings, in_table_units
from dpmcmc.finding import Finding, note, severe

# What share of the width of its bounds: it is estimated too large, or hardly known
SMALL_NOISE, LARGE_NOISE = 50, 4


# Of a linear regression, beside half the width of the bounds
TYPICAL_NOISE, TYPICAL_SLOPES = 0.2, 0.4


def linear(settings: Settings) -> Problem:
    import numpy as np

    from dpmcmc import models
    from dpmcmc.cli.problems import made_up
    from dpmcmc.models.robust_linear import CENTER, NOISE, SHARE
    from dpmcmc.recipes import forecast

    assert settings.label is not None
    label = settings.label
    limits = settings.bounds[settings.label]
    features = features_of(settings, label)
    model = models.robust_linear(
        features.num_columns, features.radius, 1.0, settings.prior_scale, settings.intercept
    )
    if NOISE in features.units:
        raise ValueError(
            f"a column cannot be named {NOISE}: that is a parameter of its own; rename it"
        )
    units = features.units | {
        NOISE: f"scale of the noise of {label} around its prediction (for normal noise, 0.87 "
        "standard deviations)"
    }

    size = features.radius**2 + settings.intercept  # of a row, at most
    # In units of the noise a normal row says 0.8 about its predictor. It says 1.4 about log(noise),
    # which moves all coefficients.
    of_noise = 1.4 * TYPICAL_NOISE**2 / (TYPICAL_SLOPES**2 + 1 / (SHARE * size))
    information = np.array([*(0.8 * each for each in features.information), of_noise])
    return Problem(
        model._replace(unravel=_in_units_of_the_table(model, features, settings)),
        np.zeros(model.dimension),
        information,
        settings.prior_scale**-2,
        _notes(settings, features, units),
        units,
        reading=_line_of_the_bulk(label),
        where=(
            f"{forecast.FILLED}, and {NOISE} is {TYPICAL_NOISE * limits.half:g}; a quarter as many "
            "where it is half of that"
        ),
        made_up=made_up.of_linear(settings, features, CENTER, SHARE, TYPICAL_SLOPES, TYPICAL_NOISE),
        checks=lambda result: _of_noise(result.posterior[NOISE], 2 * limits.half, label),
    )


def _in_units_of_the_table(model: Any, features: Features, settings: Settings) -> Any:
    """The function from a position to the parameters by name."""
    from dpmcmc.models.robust_linear import NOISE

    assert settings.label is not None
    limits = settings.bounds[settings.label]

    def unravel(position):
        import jax.numpy as jnp

        parts = model.unravel(position)
        coefficients = (
            jnp.append(parts["intercept"], parts["coefficients"])
            if settings.intercept
            else parts["coefficients"]
        )
        named = {**features.named(coefficients), NOISE: parts[NOISE]}
        origins = {"intercept": limits.middle} if settings.intercept else {}
        return {
            name: in_table_units(value, limits.half, origins.get(name, 0.0))
            for name, value in named.items()
        }

    return unravel


def _notes(settings: Settings, features: Features, units: dict[str, str]) -> tuple[str, ...]:
    """How to read the parameters, and what the prior is."""
    from dpmcmc.models.robust_linear import CENTER, HUBER, NOISE, NOISE_PRIOR, SHARE

    label = settings.label
    assert label is not None
    limits = settings.bounds[label]
    size = features.radius**2 + settings.intercept  # of a row, at most
    through = (
        "of the intercept"
        if settings.intercept
        else f"there is no intercept: {label} at {features.place} is"
    )
    return (
        *(f"{name}: {unit}" for name, unit in units.items()),
        f"noise: normal up to {HUBER:g} times its scale, then with exponential tails, so that rows "
        "far off have no more influence than nearer ones; a scale "
        f"above {limits.half / 2:g} is a sign of bounds of {label} that are too narrow, or of "
        "rows that no line fits",
        f"prior: normal with mean 0 ({through} {limits.middle:g}) and a standard deviation of "
        f"{settings.prior_scale:g} times {NOISE}, for each of these: {features.prior}",
        f"prior of {limits.half:g} / {NOISE}: normal with mean {CENTER:g} and standard deviation "
        f"{NOISE_PRIOR * math.sqrt(SHARE * size):.3g}",
    )


def _line_of_the_bulk(label: str) -> str:
    """The noise has heavy tails, so that the line is not that of least squares."""
    return (
        f"The coefficients describe the bulk of the rows: rows whose {label} is far off have "
        "little influence. "
        "So this is not the line of the means, which least squares estimates: the two differ where "
        f"the values of {label} around the line are skewed, or outliers lie on one side of it."
    )


def linear_rows(cells: dict[str, Any], settings: Settings) -> Any:
    from dpmcmc.tables import scaled

    assert settings.label is not None
    label = scaled(cells, {settings.label: settings.bounds[settings.label]})
    return feature_rows(cells, settings), label[:, 0]


def _of_noise(noise: Any, width: float, label: str) -> list[Finding]:
    """A noise that is small or large beside the width of the label's bounds."""
    small = width / SMALL_NOISE
    large = width / LARGE_NOISE
    median = float(noise.median())
    upper = float(noise.quantile(0.95))
    if median < small:
        return [
            note(
                "noise-scale-small",
                f"The noise_scale is below {small:.3g}, a {SMALL_NOISE}th of the width of --bounds "
                f"{label}: the true "
                "noise, and the uncertainty of the other parameters, may well be smaller than the "
                "draws show. Narrower bounds would help.",
                median=median,
                limit=small,
            )
        ]
    if upper > large:
        return [
            severe(
                "noise-scale-unknown",
                f"The noise_scale may be above {large:.3g}, a quarter of the width of --bounds "
                f"{label}, and the other parameters "
                "are then unknown too: there are too few rows or too little budget, the bounds "
                "cut off much, or no line fits.",
                upper=upper,
                limit=large,
            )
        ]
    return []
