"""The options of `dpmcmc run`, in groups as its help shows them."""

from __future__ import annotations

import enum
import inspect
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from dpmcmc.cli.options import Relation
from dpmcmc.cli.problems import ModelName
from dpmcmc.recipes import ByHand, SamplerName
from dpmcmc.types import Budget

MAX_SEED = 2**32 - 1  # JAX takes a larger one modulo 2^32, or not at all
TABLE, PROMISE, MODEL, SAMPLER = (
    "The table",
    "The promise",
    "The model",
    "The sampler (by default from public facts)",
)


class SharedBy(enum.StrEnum):
    gaussian_dp = "gaussian-dp"
    gaussian_then_radial = "gaussian-then-radial"
    zcdp = "zcdp"
    renyi = "renyi"


def _option(panel: str, text: str, *names: str, **options: Any) -> Any:
    return typer.Option(*names, help=text, rich_help_panel=panel, **options)


@dataclass(frozen=True, kw_only=True)
class TableOptions:
    """What the file is, and what its columns hold."""

    model: Annotated[ModelName, typer.Argument(help="What a row says about the parameters.")]
    table: Annotated[
        Path,
        typer.Argument(
            help="A .csv or .tsv file (one line per row), also .gz, or a .npy or .npz file.",
            exists=True,
            dir_okay=False,
        ),
    ]
    bounds: Annotated[
        str,
        _option(
            TABLE,
            "Public bounds of every column of numbers or dates: NAME=LOW:HIGH,... with dates such "
            "as 2021-03-04.",
        ),
    ] = ""
    levels: Annotated[
        str,
        _option(
            TABLE,
            "Regressions: public values of every column of text, each against the first: "
            "NAME=ONE/TWO/...,... "
            "Put a name or value with one of , = / in double quotes, here and in --bounds and "
            "--features, and "
            "double a quote in it.",
        ),
    ] = ""
    features: Annotated[
        str | None,
        _option(
            TABLE,
            "Columns, by commas; by default those with bounds or levels.",
            "--features",
            "--columns",
        ),
    ] = None
    label: Annotated[str | None, _option(TABLE, "Regressions: the column to explain.")] = None
    positive: Annotated[
        str | None, _option(TABLE, "Logistic: the label that counts as 1; by default 1, or true.")
    ] = None
    negative: Annotated[
        str | None, _option(TABLE, "Logistic: the label that counts as 0; by default 0, or false.")
    ] = None
    delimiter: Annotated[
        str | None,
        _option(
            TABLE, "Between the cells of a CSV file; by default a comma, of a .tsv file a tab."
        ),
    ] = None
    decimal: Annotated[
        str, _option(TABLE, "What numbers in a CSV file have before their fraction: . or ,")
    ] = "."


@dataclass(frozen=True, kw_only=True)
class PromiseOptions:
    """What is promised, and what remembers it."""

    epsilon: Annotated[float, _option(PROMISE, "The privacy budget.")]
    delta: Annotated[float, _option(PROMISE, "The probability of failure, well below 1/n.")]
    neighbours: Annotated[
        Relation,
        _option(
            PROMISE,
            "What is protected: a row's values, or its presence (and its values at twice epsilon).",
        ),
    ] = Relation.REPLACE
    rows_per_person: Annotated[
        int,
        _option(
            PROMISE,
            "Protect persons that have up to so many rows each: visits, purchases. Needs "
            "--capacity.",
            min=1,
        ),
    ] = 1
    person: Annotated[
        str | None,
        _option(
            PROMISE,
            "The column that identifies the person of a row: only the first --rows-per-person of "
            "each are used.",
        ),
    ] = None
    capacity: Annotated[
        int | None,
        _option(
            PROMISE,
            "Where the number of rows is private (add-remove, several rows per person): a bound "
            "on it.",
        ),
    ] = None
    ledger: Annotated[
        Path | None, _option(PROMISE, "A file that remembers what was spent on this table.")
    ] = None
    shared_by: Annotated[
        SharedBy | None,
        _option(
            PROMISE,
            "With --ledger, from the first run on: let several runs of some --steps share the "
            "budget.",
        ),
    ] = None
    part: Annotated[
        str | None,
        _option(
            PROMISE,
            "With --ledger, noise-aware: this part of the whole budget, as 1/3 or 0.3; by default "
            "all that is left.",
        ),
    ] = None
    count: Annotated[
        bool,
        _option(
            PROMISE,
            "Noise-aware: first count the rows that can be used, for 1 % of the budget.",
            "--count/--no-count",
        ),
    ] = True

    @property
    def budget(self) -> Budget:
        """What is promised, as a value."""
        return Budget(self.epsilon, self.delta, self.neighbours.neighbours, self.rows_per_person)


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """The prior, and what else a model takes."""

    intercept: Annotated[bool, _option(MODEL, "Regressions: with an intercept.")] = True
    prior_scale: Annotated[
        float | None,
        _option(
            MODEL,
            "Standard deviation of the prior, by default 1, linear 10; the plan shows its units.",
        ),
    ] = None
    variances: Annotated[
        str | None,
        _option(MODEL, "Gaussian, banana, mixture: known variances, in the table's units."),
    ] = None
    curvature: Annotated[float | None, _option(MODEL, "Banana: of the parabola.")] = None
    sharpness: Annotated[
        float | None, _option(MODEL, "Circle: the precision of the distance in one row.")
    ] = None
    position_bound: Annotated[
        float | None, _option(MODEL, "Mixture: half the side of the prior's square.")
    ] = None
    temperature: Annotated[
        float,
        _option(
            MODEL,
            "The power of the likelihood, at most 1: draws below 1 are wider than the posterior.",
        ),
    ] = 1.0


@dataclass(frozen=True, kw_only=True)
class SamplerOptions:
    """How to draw."""

    sampler: Annotated[
        SamplerName | None,
        _option(
            SAMPLER,
            "What is released; by default noise-aware where bounds are proved (sgld with "
            "--shared-by), else barker.",
        ),
    ] = None
    kappa: Annotated[
        float, _option(SAMPLER, "Lazy Barker: the probability that the rows are read.")
    ] = 0.5
    steps: Annotated[
        int | None,
        _option(
            SAMPLER,
            "Per chain; by default all that the budget allows (noise-aware, whose steps are free: "
            "1000).",
        ),
    ] = None
    chains: Annotated[int, _option(SAMPLER, "They share the budget.")] = 2
    thin: Annotated[
        int | None,
        _option(
            SAMPLER,
            "Keep every thin-th step; by default every one, of sgld so many that some 2000 draws "
            "per chain are left.",
        ),
    ] = None
    warmup: Annotated[
        float | None,
        _option(
            SAMPLER,
            "Share of the draws kept apart as warm-up; by default 0.5, of sgld and noise-aware "
            "0.1.",
        ),
    ] = None
    weights: Annotated[
        bool,
        _option(
            SAMPLER,
            "Noise-aware: rows far out may count less, never by their label.",
            "--weights/--no-weights",
        ),
    ] = True
    clip: Annotated[
        float | None,
        _option(SAMPLER, "Bound on a row's log-ratio per unit of move; by default the proved one."),
    ] = None
    step_size: Annotated[
        float | None, _option(SAMPLER, "Standard deviation of a move, in each component.")
    ] = None
    max_move: Annotated[float | None, _option(SAMPLER, "The longest move.")] = None
    noise_multiplier: Annotated[
        float | None, _option(SAMPLER, "Penalty: noise over range of the log-ratio.")
    ] = None
    seed: Annotated[
        int,
        _option(
            SAMPLER, "Of the chains; the privacy noise never comes from it.", min=0, max=MAX_SEED
        ),
    ] = 0

    @property
    def by_hand(self) -> ByHand:
        """Settings that were typed; public facts give the others."""
        return ByHand(self.clip, self.step_size, self.max_move, self.noise_multiplier)


@dataclass(frozen=True, kw_only=True)
class OutputOptions:
    """What to write."""

    out: Annotated[Path, typer.Option(help="The posterior, as NetCDF for ArviZ.")] = Path(
        "posterior.nc"
    )
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the plan and stop: nothing is spent.")
    ] = False


def flat(command: Callable[..., None]) -> Callable[..., None]:
    """The command with one parameter for each field of the groups that it takes, for typer."""
    groups = get_type_hints(command, include_extras=True)
    groups.pop("return", None)
    parameters = {}
    for group in groups.values():
        hints = get_type_hints(group, include_extras=True)
        for one in fields(group):
            parameters[one.name] = inspect.Parameter(
                one.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=inspect.Parameter.empty if one.default is MISSING else one.default,
                annotation=hints[one.name],
            )

    def flattened(**typed: Any) -> None:
        command(
            **{
                name: group(**{one.name: typed[one.name] for one in fields(group)})
                for name, group in groups.items()
            }
        )

    signature = inspect.Signature(list(parameters.values()))
    flattened.__doc__ = command.__doc__
    flattened.__name__ = command.__name__
    flattened.__signature__ = signature  # type: ignore[attr-defined]
    flattened.__annotations__ = {name: one.annotation for name, one in parameters.items()}
    return flattened
