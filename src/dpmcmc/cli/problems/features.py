"""The columns of a regression: scaled numbers, and levels of text."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from dpmcmc.cli.problems.settings import Settings, parameter


class Features(NamedTuple):
    """Public facts about a regression's columns: scaled ones and, beside an intercept, corners of
    simplices.
    """

    num_columns: int  # of the model
    radius: float
    domain: Any  # the public set of the model's columns
    units: dict[str, str]  # of what people get, the intercept first
    matrix: Any  # from the model's coefficients to that
    # What a row is guessed to say about each coefficient, if it says 1 about the predictor
    information: list[float]
    place: str  # of the intercept: where the coefficients add nothing, in words
    prior: str  # which numbers have it, in words

    def named(self, coefficients: Any) -> dict[str, Any]:
        """The parameters by name, in the units of the table, and in double precision: some may be
        far larger than others.
        """
        import jax
        import jax.numpy as jnp

        with jax.enable_x64(True):
            return dict(
                zip(
                    self.units,
                    jnp.asarray(self.matrix) @ jnp.asarray(coefficients, jnp.float64),
                    strict=True,
                )
            )


def features_of(settings: Settings, effect: str) -> Features:
    import numpy as np
    from scipy import linalg

    units: list[tuple[str, str]] = []
    information = []
    blocks = []
    # What the coefficients add up to at the middle of all bounds and the first of all levels
    at_first = [np.ones((1, 1))]
    for name in settings.columns:
        if name in settings.bounds:
            half = settings.bounds[name].half
            units.append((parameter(name), f"{effect} per {settings.bounds[name].step} of {name}"))
            information.append(1 / 5)  # a scaled feature has a square of about that on average
            blocks.append(np.array([[1 / half]]))
            at_first.append(np.zeros((1, 1)))
            continue
        first, *others = levels = settings.levels[name]
        units += [
            (parameter(f"{name}={level}"), f"{effect} against {name}={first}") for level in others
        ]
        places = places_of(len(levels), settings.intercept)
        information += [float(np.mean(places[:, 0] ** 2))] * len(others)
        blocks.append(places[1:] - places[0])
        at_first.append(places[:1])
    place = _place(settings)
    if settings.intercept:
        units = [("intercept", f"{effect} at {place}"), *units]
        information = [1.0, *information]
    if len(dict(units)) < len(units):
        raise ValueError(
            "two parameters would have one name (intercept, COLUMN or COLUMN=LEVEL): rename a "
            "column"
        )
    matrix = linalg.block_diag(*blocks)
    num_columns = matrix.shape[1]
    if settings.intercept:
        matrix = np.block(
            [[np.concatenate(at_first, axis=1)], [np.zeros((len(matrix), 1)), matrix]]
        )
    # Each column adds 1 at most to the square of a row's length.
    radius = math.sqrt(len(settings.columns))
    domain = _domain(settings)
    scales = _scales(settings)
    return Features(num_columns, radius, domain, dict(units), matrix, information, place, scales)


def places_of(num_levels: int, intercept: bool) -> Any:
    """Where the levels of a column lie, one in each line."""
    import numpy as np

    from dpmcmc.tables import simplex

    return simplex(num_levels).T if intercept else np.eye(num_levels, num_levels - 1, -1)


def _domain(settings: Settings) -> Any:
    """The public set of rows of the columns."""
    from dpmcmc.domains import INTERVAL, Corners, Domain

    def part(name: str) -> Any:
        if name in settings.bounds:
            return INTERVAL
        places = places_of(len(settings.levels[name]), settings.intercept)
        return Corners(tuple(map(tuple, places.tolist())))

    return Domain(tuple(map(part, settings.columns)))


def _place(settings: Settings) -> str:
    """Where all coefficients but the intercept add nothing, in words."""
    declared = {
        "the middle of all bounds": settings.bounds,
        "the first of all levels": settings.levels,
    }
    used = set(settings.columns)
    return " and ".join(words for words, names in declared.items() if set(names) & used)


def feature_rows(cells: dict[str, Any], settings: Settings) -> Any:
    """The columns that the facts of `features_of` are about, shape (rows, num_columns)."""
    import numpy as np

    from dpmcmc.tables import corners, indicators, scaled

    encode = corners if settings.intercept else indicators
    return np.concatenate(
        [
            scaled(cells, {name: settings.bounds[name]})
            if name in settings.bounds
            else encode(cells[name], settings.levels[name])
            for name in settings.columns
        ],
        axis=1,
    )


def _scales(settings: Settings) -> str:
    """The numbers that have the prior of a regression, in words."""
    has_levels = len(settings.limits) < len(settings.columns)
    middle = " and ".join(["bounds"] * bool(settings.limits) + ["levels"] * has_levels)
    parts = {
        f"the intercept in the middle of all {middle}": settings.intercept,
        "the change over half the width of its bounds, of each column": bool(settings.limits),
        "the difference of each level from the mean of its column": settings.intercept
        and has_levels,
        "the difference of each level from the first": not settings.intercept and has_levels,
    }
    return "; ".join(words for words, is_there in parts.items() if is_there)
