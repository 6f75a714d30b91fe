"""What the commands share."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer

from dpmcmc.errors import PrivacyRefusal
from dpmcmc.types import Neighbours

RELATIONS = {"replace": Neighbours.REPLACE_ONE, "add-remove": Neighbours.ADD_OR_REMOVE_ONE}


def neighbours_option(help: str, **settings: Any) -> Any:
    """--neighbours: a short name, or the one that answers and statements print."""
    return typer.Option("--neighbours", help=help, parser=_neighbours, metavar=f"[{'|'.join(RELATIONS)}]", **settings)


def _neighbours(typed: str | Neighbours) -> Neighbours:
    if typed in RELATIONS:
        return RELATIONS[typed]
    try:
        return Neighbours(typed)
    except ValueError:
        raise typer.BadParameter(f"{typed!r} is not one of {', '.join(map(repr, RELATIONS))}.") from None


@contextmanager
def refusals(*kinds: type[Exception], as_json: bool = False) -> Iterator[None]:
    """Refusals are answers: one line on standard error, one object if JSON was asked for, exit code 2, no traceback."""
    refused: tuple[type[Exception], ...] = (ValueError, PrivacyRefusal, *kinds)
    try:
        yield
    except refused as error:
        if as_json:
            print(json.dumps({"error": str(error)}))
        typer.echo(f"refused: {error}", err=True)
        raise typer.Exit(2) from error
