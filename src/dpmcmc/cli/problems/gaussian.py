"""The means of normal columns with known variances."""

from __future__ import annotations

import math
from typing import Any

from dpmcmc.cli.problems.settings import Problem, Settings, in_table_units, parameter, variances_of


def gaussian(settings: Settings) -> Problem:
    import numpy as np

    from dpmcmc import models
    from dpmcmc.cli.problems import made_up

    count = len(settings.columns)
    middle = np.array([limits.middle for limits in settings.limits.values()])
    means = [parameter(name) for name in settings.columns]
    # In units of its standard deviation every column says as much as any other, and gradients have
    # the same size in all of them.
    deviation = np.sqrt(variances_of(settings, count))
    width = _widths(settings)
    model = models.gaussian(
        np.ones(count), settings.prior_scale * width, radius=math.sqrt(math.fsum(width**2))
    )

    def unravel(position):
        return {
            name: in_table_units(position[i], deviation[i], middle[i])
            for i, name in enumerate(means)
        }

    prior = (
        "prior: normal around the middle of the bounds, with a standard deviation of "
        f"{settings.prior_scale:g} half widths"
    )
    notes = ("the parameters are means, in the units of the table", prior)
    precision = (settings.prior_scale * width) ** -2
    named = model._replace(unravel=unravel)
    units = dict.fromkeys(means, "mean, in the units of the table")
    return Problem(
        named,
        np.zeros(count),
        np.ones(count),
        precision,
        notes,
        units,
        is_exact=True,
        made_up=made_up.of_gaussian(width),
    )


def _widths(settings: Settings) -> Any:
    """Half the width of the bounds of each column, in its standard deviations."""
    import numpy as np

    half = np.array([limits.half for limits in settings.limits.values()])
    return half / np.sqrt(variances_of(settings, len(settings.columns)))


def gaussian_rows(cells: dict[str, Any], settings: Settings) -> Any:
    import numpy as np

    from dpmcmc.tables import scaled

    # Whether a cell is too large or too small for its type is not reported
    with np.errstate(all="ignore"):
        return scaled(cells, settings.limits) * _widths(settings).astype(np.float32)
