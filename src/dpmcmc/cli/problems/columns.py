"""Which columns a model takes, and how much must be declared of each."""

from __future__ import annotations

from dpmcmc.cli.problems.settings import REGRESSIONS, ModelName, Settings, parameter


def check_columns(model: ModelName, settings: Settings) -> None:
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
    _check_declared(model, settings)


def _check_declared(model: ModelName, settings: Settings) -> None:
    """Refuse columns with too little declared, or with too much."""
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
