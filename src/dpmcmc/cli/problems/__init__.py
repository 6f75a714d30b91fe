"""What `dpmcmc run` makes of a table: a built-in model with public facts about it, and the rows.

The two are made apart: the model and the facts from what was typed, the rows from the file. So
nothing that is printed, kept with the draws or named in an error can hold a cell.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from dpmcmc.cli.problems import examples, gaussian, linear, logistic
from dpmcmc.cli.problems.columns import check_columns
from dpmcmc.cli.problems.settings import (
    REGRESSIONS,
    ModelName,
    Problem,
    Settings,
    bounded_columns,
)

__all__ = [
    "PRIOR_SCALES",
    "REGRESSIONS",
    "ModelName",
    "Problem",
    "Settings",
    "problem_of",
    "rows_of",
]

PRIOR_SCALES = {ModelName.linear: 10.0}  # others 1
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
    ModelName.logistic: logistic.logistic,
    ModelName.linear: linear.linear,
    ModelName.gaussian: gaussian.gaussian,
    ModelName.banana: examples.banana,
    ModelName.circle: examples.circle,
    ModelName.mixture: examples.mixture,
}
_ROWS: dict[ModelName, Callable[[dict[str, Any], Settings], Any]] = {
    ModelName.logistic: logistic.logistic_rows,
    ModelName.linear: linear.linear_rows,
    ModelName.gaussian: gaussian.gaussian_rows,
    ModelName.banana: examples.plain_rows,
    ModelName.circle: examples.numbers_of,
    ModelName.mixture: examples.numbers_of,
}


def problem_of(model: ModelName, settings: Settings) -> Problem:
    """The model and the public facts that follow from the settings. The table is not read."""
    check_columns(model, settings)
    for option in _OPTIONS - _TAKEN[model]:
        if getattr(settings, option) is not None:
            raise ValueError(
                f"the {model.value} model takes no --{option.replace('_', '-')}: leave it out"
            )
    problem = _PROBLEMS[model](settings)
    allowed = tuple(settings.allowed(bounded_columns(model, settings)))
    declared = f"{', '.join(allowed)} (a row with a missing cell is ignored)"
    named = problem._replace(model=problem.model._replace(declared=declared), allowed=allowed)
    return named.tempered(settings.temperature)


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
        used = bounded_columns(model, settings)
        numeric = [name for name in used if name in settings.bounds and _is_text(cells[name])]
        cells |= {name: [cell.replace(",", ".") for cell in cells[name]] for name in numeric}
    return _ROWS[model](cells, settings)


def _is_text(cells: Any) -> bool:
    return isinstance(cells, list)  # of a CSV file: those of arrays have types
