"""Models to try samplers on: banana, circle, mixture."""

from __future__ import annotations

from typing import Any

from dpmcmc.cli.problems.settings import Problem, Settings, variances_of


def banana(settings: Settings) -> Problem:
    import numpy as np

    from dpmcmc import models
    from dpmcmc.cli.problems import made_up

    if settings.curvature is None:
        raise ValueError("the banana model needs --curvature")
    count = len(settings.columns)
    if count < 2:
        raise ValueError("the banana model needs two columns or more")
    variances = variances_of(settings, count)
    model = models.banana(variances, settings.curvature, prior_scale=settings.prior_scale)
    prior = (
        "prior: normal around 0 along the parabola, with a standard deviation of "
        f"{settings.prior_scale:g}"
    )
    return Problem(
        model,
        np.zeros(count),
        1 / variances,
        settings.prior_scale**-2,
        (prior,),
        made_up=made_up.of_banana(variances),
    )


def circle(settings: Settings) -> Problem:
    from dpmcmc import models

    if settings.sharpness is None:
        raise ValueError("the circle model needs --sharpness")
    radius = _largest_size(settings)
    # A ring of radius r has the width 1 / sqrt(8 n a r^2); r is guessed as half of the largest.
    information = [2 * settings.sharpness * radius**2] * 2
    notes = ("x, y: a point; the rows determine its distance from 0, and no direction",)
    model = models.circle(settings.sharpness, radius)
    return Problem(model, [radius / 2, 0.0], information, 0.0, notes, is_round=False)


def mixture(settings: Settings) -> Problem:
    from dpmcmc import models

    row_bound = _largest_size(settings)
    (variance,) = variances_of(settings, 1)
    bound = row_bound if settings.position_bound is None else settings.position_bound
    # The two components overlap, which costs about three quarters of the information.
    notes = (
        "rows come from two equal normals: theta_1 is the mean of one, theta_1 + theta_2 that of "
        "the other",
        "nobody knows which is which: (theta_1 + theta_2, -theta_2) is as likely as (theta_1, "
        "theta_2), and a run may see one only",
    )
    model = models.mixture(variance, row_bound, bound)
    return Problem(model, [0.0, bound / 3], [1 / (4 * variance)] * 2, 0.0, notes, is_round=False)


def plain_rows(cells: dict[str, Any], settings: Settings) -> Any:
    """The columns within their bounds, shape (rows, columns)."""
    import numpy as np

    from dpmcmc.tables.columns import numbers

    values = [numbers(cells[name], limits) for name, limits in settings.limits.items()]
    # Whether a cell is too large or too small for its type is not reported
    with np.errstate(all="ignore"):
        return np.stack(values, axis=1).astype(np.float32)


def numbers_of(cells: dict[str, Any], settings: Settings) -> Any:
    """The one column within its bounds, shape (rows,)."""
    return plain_rows(cells, settings)[:, 0]


def _largest_size(settings: Settings) -> float:
    if len(settings.columns) != 1:
        raise ValueError(
            f"this model takes one column, {len(settings.columns)} were named: "
            f"{', '.join(settings.columns)}"
        )
    return max(map(abs, settings.bounds[settings.columns[0]]))
