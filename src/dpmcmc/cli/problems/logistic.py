"""A logistic regression."""

from __future__ import annotations

from typing import Any

from dpmcmc.cli.problems.features import feature_rows, features_of
from dpmcmc.cli.problems.settings import Problem, Settings


def logistic(settings: Settings) -> Problem:
    import numpy as np

    from dpmcmc import models
    from dpmcmc.cli.problems import made_up
    from dpmcmc.recipes import forecast

    features = features_of(settings, "log-odds")
    model = models.logistic(
        features.num_columns,
        features.radius,
        settings.prior_scale,
        settings.intercept,
        domain=features.domain,
    )
    model = model._replace(unravel=features.named)
    prior = (
        f"prior: normal with mean 0 and standard deviation {settings.prior_scale:g}, for each of "
        f"these: {features.prior}"
    )
    notes = (*(f"{name}: {unit}" for name, unit in features.units.items()), prior)
    information = np.array(features.information) / 5  # a row says at most 1/4 about its logit
    precision = settings.prior_scale**-2
    start = np.zeros(model.dimension)
    return Problem(
        model,
        start,
        information,
        precision,
        notes,
        features.units,
        forecast.FILLED,
        is_measured=True,
        made_up=made_up.of_logistic(settings),
    )


def logistic_rows(cells: dict[str, Any], settings: Settings) -> Any:
    from dpmcmc.tables import labels

    assert settings.label is not None
    return feature_rows(cells, settings), labels(
        cells[settings.label], settings.positive, settings.negative
    )
