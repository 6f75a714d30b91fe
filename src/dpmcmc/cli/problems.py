"""What `dpmcmc run` makes of a table: a built-in model with public facts about it, and the rows.

The two are made apart: the model and the facts from what was typed, the rows from the file. So
nothing that is printed, kept with the draws or named in an error can hold a cell.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from dpmcmc.finding import Finding, note, severe


class ModelName(enum.StrEnum):
    logistic = "logistic"
    linear = "linear"
    gaussian = "gaussian"
    banana = "banana"
    circle = "circle"
    mixture = "mixture"


REGRESSIONS = (ModelName.logistic, ModelName.linear)
PRIOR_SCALES = {ModelName.linear: 10.0}  # others 1
# What share of the width of its bounds: it is estimated too large, or hardly known
SMALL_NOISE, LARGE_NOISE = 50, 4
# Of a linear regression, beside half the width of the bounds
TYPICAL_NOISE, TYPICAL_SLOPES = 0.2, 0.4


class Settings(NamedTuple):
    """What was typed about the model."""

    columns: tuple[str, ...]
    label: str | None
    positive: str | None
    bounds: dict[str, Any]
    levels: dict[str, tuple[str, ...]]
    intercept: bool
    prior_scale: float
    variances: tuple[float, ...] | None
    curvature: float | None
    sharpness: float | None
    position_bound: float | None
    negative: str | None = None

    @property
    def limits(self) -> dict[str, Any]:
        """The bounds of the columns that are used, in their order."""
        return {name: self.bounds[name] for name in self.columns if name in self.bounds}

    def allowed(self, names: Sequence[str]) -> Iterator[str]:
        """What is declared of these columns, in words."""
        for name in names:
            if name in self.bounds:
                yield f"{name} within {self.bounds[name].words}"
            else:
                levels = (f'"{level}"' if "," in level else level for level in self.levels[name])
                yield f"{name} one of {', '.join(levels)}"


class Problem(NamedTuple):
    """A model, and public facts about it and its rows.

    It has no rows: those are for the curator alone.
    """

    model: Any
    start: Any
    information: Any  # what one row is guessed to say about each component: an inverse variance
    prior_precision: Any  # a number, or one for each component
    notes: tuple[str, ...] = ()  # how to read the parameters
    units: Mapping[str, str] = MappingProxyType({})  # of each of them
    where: str = ""  # under which conditions the guessed information is right, in words
    allowed: tuple[str, ...] = ()  # what is declared of the columns that are used, in words
    is_exact: bool = False  # the information is what a row says, no guess
    is_measured: bool = False  # `dpmcmc.recipes.forecast` was measured on such models
    # The posterior is like a normal one; else some steps are worth fewer draws than can be told
    is_round: bool = True
    # Of the result: findings about draws of such a model
    checks: Callable[[Any], list[Finding]] | None = None
    reading: str = ""  # what to bear in mind when reading the result: said beside it


def problem_of(model: ModelName, settings: Settings) -> Problem:
    """The model and the public facts that follow from the settings. The table is not read."""
    _check_columns(model, settings)
    for option in _OPTIONS - _TAKEN[model]:
        if getattr(settings, option) is not None:
            raise ValueError(
                f"the {model.value} model takes no --{option.replace('_', '-')}: leave it out"
            )
    problem = _PROBLEMS[model](settings)
    allowed = tuple(settings.allowed(_bounded_columns(model, settings)))
    declared = f"{', '.join(allowed)} (a row with a missing cell says nothing)"
    return problem._replace(model=problem.model._replace(declared=declared), allowed=allowed)


def rows_of(model: ModelName, table: Path, delimiter: str, decimal: str, settings: Settings) -> Any:
    """The rows of a file as the model of `problem_of` has them: for the curator, and for nobody
    else.
    """
    from dpmcmc.tables import read_columns

    if decimal not in (".", ",") or decimal == delimiter:
        raise ValueError(f"--decimal {decimal} must be . or , and not the --delimiter")
    names = settings.columns if settings.label is None else (*settings.columns, settings.label)
    cells = read_columns(table, names, delimiter)
    if decimal == ",":
        used = _bounded_columns(model, settings)
        numeric = [name for name in used if name in settings.bounds and _is_text(cells[name])]
        cells |= {name: [cell.replace(",", ".") for cell in cells[name]] for name in numeric}
    return _ROWS[model](cells, settings)


def _bounded_columns(model: ModelName, settings: Settings) -> tuple[str, ...]:
    """The columns with bounds or levels. A label of the logistic model has none."""
    if model is not ModelName.linear:
        return settings.columns
    assert settings.label is not None
    return (*settings.columns, settings.label)


def _check_columns(model: ModelName, settings: Settings) -> None:
    """Refuse columns that the model has no use for, and those of which too little is declared."""
    if not settings.columns:
        besides = "" if settings.label is None else f" that explain {settings.label}"
        raise ValueError(
            f"name the columns{besides} by their public limits with --bounds, those of text by "
            "their values with --levels"
        )
    if (
        len(set(map(parameter, settings.columns))) < len(settings.columns)
        or settings.label in settings.columns
    ):
        raise ValueError(
            f"--features {','.join(settings.columns)}: every column once, and the label not among "
            "them"
        )
    if model in REGRESSIONS and settings.label is None:
        raise ValueError(f"the {model.value} model needs --label: the column to explain")
    if model not in REGRESSIONS and settings.label is not None:
        raise ValueError(f"the {model.value} model takes no --label: it has nothing to explain")
    if model is ModelName.logistic and (settings.positive is None) != (settings.negative is None):
        raise ValueError(
            f"--positive and --negative go together: declare both levels of {settings.label}, as "
            "in --positive yes --negative no. "
            "A label of 1 and 0, or true and false, needs neither"
        )
    if settings.label in settings.levels:
        raise ValueError(
            f"--levels are for the columns that explain, not for {settings.label}: leave its "
            "levels out"
        )
    if model is ModelName.linear and settings.label not in settings.bounds:
        raise ValueError(
            f"no bounds for {settings.label}: declare them, as in --bounds "
            f"{settings.label}=LOW:HIGH, from public knowledge and "
            "not from the table"
        )
    both = [
        name for name in settings.columns if name in settings.bounds and name in settings.levels
    ]
    if both:
        raise ValueError(
            f"bounds and levels for {', '.join(both)}: a column of numbers takes --bounds, one of "
            "text --levels"
        )
    without = [
        name
        for name in settings.columns
        if name not in settings.bounds and name not in settings.levels
    ]
    if without:
        raise ValueError(
            f"no bounds or levels for {', '.join(without)}: declare them, as in --bounds "
            f"{without[0]}=LOW:HIGH, or --levels "
            f"{without[0]}=ONE/TWO for a column of text, from public knowledge and not from the "
            "table"
        )
    if settings.levels and model not in REGRESSIONS:
        raise ValueError(f"the {model.value} model takes no --levels: leave them out")


def parameter(name: str) -> str:
    """The name of a parameter: in a NetCDF file a slash would make a group of it."""
    return name.replace("/", "|")


def _is_text(cells: Any) -> bool:
    return isinstance(cells, list)  # of a CSV file: those of arrays have types


class _Features(NamedTuple):
    """Public facts about a regression's columns: scaled ones and, beside an intercept, corners of
    simplices.
    """

    num_columns: int  # of the model
    radius: float
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


def _features(settings: Settings, told: str) -> _Features:
    import numpy as np
    from scipy import linalg

    from dpmcmc.tables import simplex

    units: list[tuple[str, str]] = []
    information = []
    blocks = []
    # What the coefficients add up to at the middle of all bounds and the first of all levels
    at_first = [np.ones((1, 1))]
    for name in settings.columns:
        if name in settings.bounds:
            half = settings.bounds[name].half
            units.append((parameter(name), f"{told} per {settings.bounds[name].step} of {name}"))
            information.append(1 / 5)  # a scaled feature has a square of about that on average
            blocks.append(np.array([[1 / half]]))
            at_first.append(np.zeros((1, 1)))
            continue
        first, *others = levels = settings.levels[name]
        units += [
            (parameter(f"{name}={level}"), f"{told} against {name}={first}") for level in others
        ]
        places = (
            simplex(len(levels)).T if settings.intercept else np.eye(len(levels), len(others), -1)
        )
        information += [float(np.mean(places[:, 0] ** 2))] * len(others)
        blocks.append(places[1:] - places[0])
        at_first.append(places[:1])
    where = {
        "the middle of all bounds": settings.bounds,
        "the first of all levels": settings.levels,
    }
    place = " and ".join(
        words for words, declared in where.items() if set(declared) & set(settings.columns)
    )
    if settings.intercept:
        units = [("intercept", f"{told} at {place}"), *units]
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
    return _Features(
        num_columns, radius, dict(units), matrix, information, place, _scales(settings)
    )


def _feature_rows(cells: dict[str, Any], settings: Settings) -> Any:
    """The columns that the facts of `_features` are about, shape (rows, num_columns)."""
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
    """Which numbers the prior of a regression is about."""
    has_levels = len(settings.limits) < len(settings.columns)
    middle = " and ".join(["bounds"] * bool(settings.limits) + ["levels"] * has_levels)
    parts = {
        f"the intercept in the middle of {middle}": settings.intercept,
        "what half the width of its bounds changes for each column": bool(settings.limits),
        "all levels against the mean of their column's": settings.intercept and has_levels,
        "all levels against the first": not settings.intercept and has_levels,
    }
    *before, last = [words for words, is_there in parts.items() if is_there]
    return f"{', '.join(before)} and {last}" if before else last


def _logistic(settings: Settings) -> Problem:
    import numpy as np

    from dpmcmc import models
    from dpmcmc.recipes import forecast

    features = _features(settings, "log-odds")
    model = models.logistic(
        features.num_columns, features.radius, settings.prior_scale, settings.intercept
    )
    model = model._replace(unravel=features.named)
    prior = f"prior, normal around 0 with a standard deviation of {settings.prior_scale:g}: {features.prior}"
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
    )


def _logistic_rows(cells: dict[str, Any], settings: Settings) -> Any:
    from dpmcmc.tables import labels

    assert settings.label is not None
    return _feature_rows(cells, settings), labels(
        cells[settings.label], settings.positive, settings.negative
    )


def _linear(settings: Settings) -> Problem:
    import numpy as np

    from dpmcmc import models
    from dpmcmc.models.robust_linear import CENTER, HUBER, NOISE, NOISE_PRIOR, SHARE
    from dpmcmc.recipes import forecast

    assert settings.label is not None
    label = settings.label
    limits = settings.bounds[settings.label]
    features = _features(settings, label)
    model = models.robust_linear(
        features.num_columns, features.radius, 1.0, settings.prior_scale, settings.intercept
    )
    if NOISE in features.units:
        raise ValueError(
            f"a column cannot be named {NOISE}: that is a parameter of its own; rename it"
        )
    units = features.units | {
        NOISE: f"spread of {label} around what the columns tell (where it is normal, 0.87 standard deviations)"
    }

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
            name: _in_table_units(value, limits.half, origins.get(name, 0.0))
            for name, value in named.items()
        }

    size = features.radius**2 + settings.intercept  # of a row, at most
    through = (
        "the intercept around"
        if settings.intercept
        else f"there is no intercept: {label} at {features.place} is"
    )
    notes = (
        *(f"{name}: {unit}" for name, unit in units.items()),
        f"noise: normal up to {HUBER:g} of its scale, then with exponential tails, so that rows "
        "far off pull no harder; a scale "
        f"above {limits.half / 2:g} tells of bounds of {label} that are too narrow, or of rows "
        "that no line fits",
        f"prior, normal around 0 ({through} {limits.middle:g}) with a standard deviation of "
        f"{settings.prior_scale:g} noises: "
        f"{features.prior}; around {CENTER:g}, with one of "
        f"{NOISE_PRIOR * math.sqrt(SHARE * size):.3g}: {limits.half:g} / {NOISE}",
    )
    # In units of the noise a normal row says 0.8 about its predictor. It says 1.4 about log(noise),
    # which moves all coefficients.
    of_noise = 1.4 * TYPICAL_NOISE**2 / (TYPICAL_SLOPES**2 + 1 / (SHARE * size))
    information = np.array([*(0.8 * each for each in features.information), of_noise])
    return Problem(
        model._replace(unravel=unravel),
        np.zeros(model.dimension),
        information,
        settings.prior_scale**-2,
        notes,
        units,
        reading=_line_of_the_bulk(label),
        where=f"{forecast.FILLED}, and {NOISE} is {TYPICAL_NOISE * limits.half:g}; a quarter as many where it is half of that",
        checks=lambda result: _of_noise(result.posterior[NOISE], 2 * limits.half, label),
    )


def _line_of_the_bulk(label: str) -> str:
    """The noise has heavy tails, so that the line is not that of least squares."""
    return (
        f"The coefficients describe the bulk of the rows: rows whose {label} is far off have "
        "little pull. "
        "So this is not the line of the means, which least squares estimates: the two differ where "
        f"the values of {label} around the line are skewed, or outliers lie on one side of it."
    )


def _linear_rows(cells: dict[str, Any], settings: Settings) -> Any:
    from dpmcmc.tables import scaled

    assert settings.label is not None
    label = scaled(cells, {settings.label: settings.bounds[settings.label]})
    return _feature_rows(cells, settings), label[:, 0]


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
                f"{label}: it may well be smaller "
                "than its draws, and the spread of the other parameters with it. Narrower bounds "
                "would tell.",
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
                "are lost with it: the rows or the budget are too few, the bounds cut off much, "
                "or no line fits.",
                upper=upper,
                limit=large,
            )
        ]
    return []


def _in_table_units(value: Any, unit: float, origin: float) -> Any:
    """In double precision: an origin may be far larger than the unit."""
    import jax
    import jax.numpy as jnp

    with jax.enable_x64(True):
        return origin + unit * jnp.asarray(value, jnp.float64)


def _gaussian(settings: Settings) -> Problem:
    import numpy as np

    from dpmcmc import models

    count = len(settings.columns)
    middle = np.array([limits.middle for limits in settings.limits.values()])
    means = [parameter(name) for name in settings.columns]
    # In units of its standard deviation every column says as much as any other, and gradients have
    # the same size in all of them.
    deviation = np.sqrt(_variances(settings, count))
    width = _widths(settings)
    model = models.gaussian(
        np.ones(count), settings.prior_scale * width, radius=math.sqrt(math.fsum(width**2))
    )

    def unravel(position):
        return {
            name: _in_table_units(position[i], deviation[i], middle[i])
            for i, name in enumerate(means)
        }

    prior = f"prior: normal around the middle of the bounds, with a standard deviation of {settings.prior_scale:g} half widths"
    notes = ("the parameters are means, in the units of the table", prior)
    precision = (settings.prior_scale * width) ** -2
    named = model._replace(unravel=unravel)
    units = dict.fromkeys(means, "mean, in the units of the table")
    return Problem(named, np.zeros(count), np.ones(count), precision, notes, units, is_exact=True)


def _widths(settings: Settings) -> Any:
    """Half the width of the bounds of each column, in its standard deviations."""
    import numpy as np

    half = np.array([limits.half for limits in settings.limits.values()])
    return half / np.sqrt(_variances(settings, len(settings.columns)))


def _gaussian_rows(cells: dict[str, Any], settings: Settings) -> Any:
    import numpy as np

    from dpmcmc.tables import scaled

    # Whether a cell is too large or too small for its type is not told
    with np.errstate(all="ignore"):
        return scaled(cells, settings.limits) * _widths(settings).astype(np.float32)


def _banana(settings: Settings) -> Problem:
    import numpy as np

    from dpmcmc import models

    if settings.curvature is None:
        raise ValueError("the banana model needs --curvature")
    count = len(settings.columns)
    if count < 2:
        raise ValueError("the banana model needs two columns or more")
    variances = _variances(settings, count)
    model = models.banana(variances, settings.curvature, prior_scale=settings.prior_scale)
    prior = f"prior: normal around 0 along the parabola, with a standard deviation of {settings.prior_scale:g}"
    return Problem(model, np.zeros(count), 1 / variances, settings.prior_scale**-2, (prior,))


def _circle(settings: Settings) -> Problem:
    from dpmcmc import models

    if settings.sharpness is None:
        raise ValueError("the circle model needs --sharpness")
    radius = _largest_size(settings)
    # A ring of radius r has the width 1 / sqrt(8 n a r^2); r is guessed as half of the largest.
    information = [2 * settings.sharpness * radius**2] * 2
    notes = ("x, y: a point whose distance from 0 is what the rows tell; all directions are alike",)
    model = models.circle(settings.sharpness, radius)
    return Problem(model, [radius / 2, 0.0], information, 0.0, notes, is_round=False)


def _mixture(settings: Settings) -> Problem:
    from dpmcmc import models

    row_bound = _largest_size(settings)
    (variance,) = _variances(settings, 1)
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


_OPTIONS = {"positive", "negative", "variances", "curvature", "sharpness", "position_bound"}
_TAKEN = {
    ModelName.logistic: {"positive", "negative"},
    ModelName.linear: set(),
    ModelName.gaussian: {"variances"},
    ModelName.banana: {"variances", "curvature"},
    ModelName.circle: {"sharpness"},
    ModelName.mixture: {"variances", "position_bound"},
}
_PROBLEMS: dict[ModelName, Callable[[Settings], Problem]] = {
    ModelName.logistic: _logistic,
    ModelName.linear: _linear,
    ModelName.gaussian: _gaussian,
    ModelName.banana: _banana,
    ModelName.circle: _circle,
    ModelName.mixture: _mixture,
}


def _plain_rows(cells: dict[str, Any], settings: Settings) -> Any:
    """The columns within their bounds, shape (rows, columns)."""
    import numpy as np

    from dpmcmc.tables.columns import numbers

    values = [numbers(cells[name], limits) for name, limits in settings.limits.items()]
    # Whether a cell is too large or too small for its type is not told
    with np.errstate(all="ignore"):
        return np.stack(values, axis=1).astype(np.float32)


def _numbers(cells: dict[str, Any], settings: Settings) -> Any:
    """The one column within its bounds, shape (rows,)."""
    return _plain_rows(cells, settings)[:, 0]


_ROWS: dict[ModelName, Callable[[dict[str, Any], Settings], Any]] = {
    ModelName.logistic: _logistic_rows,
    ModelName.linear: _linear_rows,
    ModelName.gaussian: _gaussian_rows,
    ModelName.banana: _plain_rows,
    ModelName.circle: _numbers,
    ModelName.mixture: _numbers,
}


def _variances(settings: Settings, count: int) -> Any:
    import numpy as np

    if settings.variances is None or len(settings.variances) != count:
        raise ValueError(
            f"this model needs --variances: {count} known variance{'s' * (count > 1)}, in the "
            "order of --features"
        )
    if not all(math.isfinite(value) and value > 0 for value in settings.variances):
        raise ValueError(
            f"--variances {','.join(f'{value:g}' for value in settings.variances)} must be "
            "positive and finite"
        )
    return np.array(settings.variances)


def _largest_size(settings: Settings) -> float:
    if len(settings.columns) != 1:
        raise ValueError(
            f"this model takes one column, {len(settings.columns)} were named: "
            f"{', '.join(settings.columns)}"
        )
    return max(map(abs, settings.bounds[settings.columns[0]]))
