"""What `dpmcmc run` makes of a table: a built-in model, its rows, and public facts about both."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple


class ModelName(enum.StrEnum):
    logistic = "logistic"
    gaussian = "gaussian"
    banana = "banana"
    circle = "circle"
    mixture = "mixture"


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

    @property
    def limits(self) -> dict[str, Any]:
        """The bounds of the columns that are used, in their order."""
        return {name: self.bounds[name] for name in self.columns if name in self.bounds}

    @property
    def allowed(self) -> Iterator[str]:
        """What is declared of the columns that are used, in words."""
        for name in self.columns:
            if name in self.bounds:
                yield f"{name} within {self.bounds[name].low:g} and {self.bounds[name].high:g}"
            else:
                yield f"{name} one of {', '.join(self.levels[name])}"


class Problem(NamedTuple):
    """A model, its rows, and public facts about both."""

    model: Any
    rows: Any
    start: Any
    information: Any  # what one row is guessed to say about each component: an inverse variance
    prior_precision: Any  # a number, or one for each component
    notes: tuple[str, ...] = ()  # how to read the parameters
    units: Mapping[str, str] = MappingProxyType({})  # of each of them
    is_exact: bool = False  # the information is what a row says, no guess
    is_round: bool = True  # the posterior is like a normal one; else some steps are worth fewer draws than can be told


def problem_of(model: ModelName, table: Path, delimiter: str, decimal: str, settings: Settings) -> Problem:
    """The model with the rows of a file."""
    from dpmcmc.tables import read_columns

    if not settings.columns:
        raise ValueError("name the columns by their public limits with --bounds, those of text by their values with --levels")
    if len(set(settings.columns)) < len(settings.columns) or settings.label in settings.columns:
        raise ValueError(f"--features {','.join(settings.columns)}: every column once, and the label not among them")
    without = [name for name in settings.columns if (name in settings.bounds) == (name in settings.levels)]
    if without:
        raise ValueError(
            f"no bounds for {', '.join(without)}, or levels too: declare them, as in --bounds {without[0]}=LOW:HIGH, or --levels "
            f"{without[0]}=ONE/TWO for a column of text, from public knowledge and not from the table"
        )
    if settings.levels and model is not ModelName.logistic:
        raise ValueError(f"the {model.value} model takes no --levels: leave them out")
    if (model is ModelName.logistic) != (settings.label is not None):
        raise ValueError("the logistic model, and no other, needs --label: the column to explain")
    names = settings.columns if settings.label is None else (*settings.columns, settings.label)
    if decimal not in (".", ",") or decimal == delimiter:
        raise ValueError(f"--decimal {decimal} must be . or , and not the --delimiter")
    for option in _OPTIONS - _TAKEN[model]:
        if getattr(settings, option) is not None:
            raise ValueError(f"the {model.value} model takes no --{option.replace('_', '-')}: leave it out")
    cells = read_columns(table, names, delimiter)
    if decimal == ",":
        cells |= {name: [cell.replace(",", ".") for cell in cells[name]] for name in settings.limits if _is_text(cells[name])}
    problem = _PROBLEMS[model](cells, settings)
    declared = f"{', '.join(settings.allowed)} (a row with a missing cell says nothing)"
    return problem._replace(model=problem.model._replace(declared=declared))


def _is_text(cells: Any) -> bool:
    return isinstance(cells, list)  # of a CSV file: those of arrays have types


def _logistic(columns: dict[str, Any], settings: Settings) -> Problem:
    import numpy as np

    from dpmcmc import models
    from dpmcmc.tables import indicators, labels, scaled

    assert settings.label is not None
    features, told, information = [], [], []
    for name in settings.columns:
        # A row says at most 1/4 about its logit, say 1/5; a scaled feature has a square of about 1/5 on average.
        if name in settings.bounds:
            features.append(scaled(columns, {name: settings.bounds[name]}))
            told.append((name, f"log-odds per {settings.bounds[name].half:g}, half the width of its bounds"))
            information.append(1 / 25)
        else:
            first, *others = levels = settings.levels[name]
            features.append(indicators(columns[name], levels))
            told += [(f"{name}={level}", f"log-odds against {name}={first}") for level in others]
            information += [1 / 5 / len(levels)] * len(others)
    if settings.intercept:
        places = {"the middle of all bounds": settings.limits, "the first of all levels": settings.levels}
        place = " and ".join(words for words, declared in places.items() if declared)
        told, information = [("intercept", f"log-odds at {place}"), *told], [1 / 5, *information]
    units = dict(told)
    if len(units) < len(told):
        raise ValueError("two parameters would have one name (intercept, COLUMN or COLUMN=LEVEL): rename a column")
    names, radius = list(units), math.sqrt(len(settings.columns))  # each column adds 1 at most
    model = models.logistic(len(units) - settings.intercept, radius, settings.prior_scale, settings.intercept, names)
    rows = (np.concatenate(features, axis=1), labels(columns[settings.label], settings.positive))
    prior = f"prior: each is normal around 0, with a standard deviation of {settings.prior_scale:g}"
    notes = (*(f"{name}: {unit}" for name, unit in units.items()), prior)
    return Problem(model, rows, np.zeros(len(names)), information, settings.prior_scale**-2, notes, units)


def _gaussian(columns: dict[str, Any], settings: Settings) -> Problem:
    import numpy as np

    from dpmcmc import models
    from dpmcmc.tables import scaled

    count = len(settings.columns)
    half = np.array([limits.half for limits in settings.limits.values()])
    middle = np.array([limits.middle for limits in settings.limits.values()])
    # In units of its standard deviation every column says as much as any other, and gradients have the same size in all of them.
    deviation = np.sqrt(_variances(settings, count))
    width = half / deviation
    model = models.gaussian(np.ones(count), settings.prior_scale * width, radius=math.sqrt(math.fsum(width**2)))

    def unravel(position):
        return {name: middle[i] + deviation[i] * position[i] for i, name in enumerate(settings.columns)}

    prior = f"prior: normal around the middle of the bounds, with a standard deviation of {settings.prior_scale:g} half widths"
    notes = ("the parameters are means, in the units of the table", prior)
    with np.errstate(all="ignore"):
        rows = scaled(columns, settings.limits) * width.astype(np.float32)
    precision = (settings.prior_scale * width) ** -2
    named = model._replace(unravel=unravel)
    units = dict.fromkeys(settings.columns, "mean, in the units of the table")
    return Problem(named, rows, np.zeros(count), np.ones(count), precision, notes, units, is_exact=True)


def _banana(columns: dict[str, Any], settings: Settings) -> Problem:
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
    return Problem(model, _plain(columns, settings), np.zeros(count), 1 / variances, settings.prior_scale**-2, (prior,))


def _circle(columns: dict[str, Any], settings: Settings) -> Problem:
    from dpmcmc import models

    if settings.sharpness is None:
        raise ValueError("the circle model needs --sharpness")
    radius = _largest_size(settings)
    # A ring of radius r has the width 1 / sqrt(8 n a r^2); r is guessed as half of the largest.
    information = [2 * settings.sharpness * radius**2] * 2
    rows = _plain(columns, settings)[:, 0]
    notes = ("x, y: a point whose distance from 0 is what the rows tell; all directions are alike",)
    model = models.circle(settings.sharpness, radius)
    return Problem(model, rows, [radius / 2, 0.0], information, 0.0, notes, is_round=False)


def _mixture(columns: dict[str, Any], settings: Settings) -> Problem:
    from dpmcmc import models

    row_bound = _largest_size(settings)
    (variance,) = _variances(settings, 1)
    bound = row_bound if settings.position_bound is None else settings.position_bound
    rows = _plain(columns, settings)[:, 0]
    # The two components overlap, which costs about three quarters of the information.
    notes = (
        "rows come from two equal normals: theta_1 is the mean of one, theta_1 + theta_2 that of the other",
        "nobody knows which is which: (theta_1 + theta_2, -theta_2) is as likely as (theta_1, theta_2), and a run may see one only",
    )
    model = models.mixture(variance, row_bound, bound)
    return Problem(model, rows, [0.0, bound / 3], [1 / (4 * variance)] * 2, 0.0, notes, is_round=False)


_OPTIONS = {"variances", "curvature", "sharpness", "position_bound"}
_TAKEN = {
    ModelName.logistic: set(),
    ModelName.gaussian: {"variances"},
    ModelName.banana: {"variances", "curvature"},
    ModelName.circle: {"sharpness"},
    ModelName.mixture: {"variances", "position_bound"},
}
_PROBLEMS: dict[ModelName, Callable[[dict[str, Any], Settings], Problem]] = {
    ModelName.logistic: _logistic,
    ModelName.gaussian: _gaussian,
    ModelName.banana: _banana,
    ModelName.circle: _circle,
    ModelName.mixture: _mixture,
}


def _plain(columns: dict[str, Any], settings: Settings) -> Any:
    """The columns within their bounds, shape (rows, columns)."""
    import numpy as np

    from dpmcmc.tables.columns import numbers

    values = [numbers(columns[name], limits) for name, limits in settings.limits.items()]
    with np.errstate(all="ignore"):  # whether a cell is too large or too small for its type is not told
        return np.stack(values, axis=1).astype(np.float32)


def _variances(settings: Settings, count: int) -> Any:
    import numpy as np

    if settings.variances is None or len(settings.variances) != count:
        raise ValueError(f"this model needs --variances: {count} known variance{'s' * (count > 1)}, in the order of --features")
    if not all(math.isfinite(value) and value > 0 for value in settings.variances):
        raise ValueError(f"--variances {','.join(f'{value:g}' for value in settings.variances)} must be positive and finite")
    return np.array(settings.variances)


def _largest_size(settings: Settings) -> float:
    if len(settings.columns) != 1:
        raise ValueError(f"this model takes one column, {len(settings.columns)} were named: {', '.join(settings.columns)}")
    return max(map(abs, settings.bounds[settings.columns[0]]))
