"""What was typed about a model, and what a model with public facts is."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from dpmcmc.finding import Finding


class ModelName(enum.StrEnum):
    logistic = "logistic"
    linear = "linear"
    gaussian = "gaussian"
    banana = "banana"
    circle = "circle"
    mixture = "mixture"


REGRESSIONS = (ModelName.logistic, ModelName.linear)


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
    temperature: float = 1.0

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


class MadeUp(NamedTuple):
    """Rows that were made up, and the parameters that they were made with."""

    rows: Any
    guess: Any


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
    # The posterior is nearly normal; otherwise the worth of steps in draws cannot be predicted
    is_round: bool = True
    # Of the result: findings about draws of such a model
    checks: Callable[[Any], list[Finding]] | None = None
    # Rows for simulations; where there are none, settings cannot be found by simulation
    made_up: MadeUp | None = None
    reading: str = ""  # what to bear in mind when reading the result: said beside it

    def tempered(self, temperature: float) -> Problem:
        """With the likelihood raised to this power, and the warning that belongs to such draws."""
        if temperature == 1:
            return self
        import numpy as np

        warning = (
            f"TEMPERED: these are draws of the prior times the likelihood to the power "
            f"{temperature:g}, not of the posterior. They are about as wide as a posterior of that "
            f"part of the rows: {temperature**-0.5:.3g} times as wide as this one where the prior "
            "matters little."
        )
        model = self.model.tempered(temperature)
        information = temperature * np.asarray(self.information)
        reading = f"{warning} {self.reading}".strip()
        return self._replace(
            model=model, information=information, is_measured=False, reading=reading
        )


def bounded_columns(model: ModelName, settings: Settings) -> tuple[str, ...]:
    """The columns with bounds or levels. A label of the logistic model has none."""
    if model is not ModelName.linear:
        return settings.columns
    assert settings.label is not None
    return (*settings.columns, settings.label)


def parameter(name: str) -> str:
    """The name of a parameter: in a NetCDF file a slash would make a group of it."""
    return name.replace("/", "|")


def variances_of(settings: Settings, count: int) -> Any:
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


def in_table_units(value: Any, unit: float, origin: float) -> Any:
    """In double precision: an origin may be far larger than the unit."""
    import jax
    import jax.numpy as jnp

    with jax.enable_x64(True):
        return origin + unit * jnp.asarray(value, jnp.float64)
