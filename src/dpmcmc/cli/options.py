"""What the commands share."""

from __future__ import annotations

import enum
import json
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from dpmcmc.errors import PrivacyRefusal
from dpmcmc.types import Neighbours


class Relation(enum.StrEnum):
    """Which two tables must be hard to tell apart, as it is typed: in short, or as answers and statements have it."""

    REPLACE = "replace"
    ADD_REMOVE = "add-remove"
    REPLACE_ONE = Neighbours.REPLACE_ONE.value
    ADD_OR_REMOVE_ONE = Neighbours.ADD_OR_REMOVE_ONE.value

    @property
    def neighbours(self) -> Neighbours:
        return Neighbours.REPLACE_ONE if self.startswith("replace") else Neighbours.ADD_OR_REMOVE_ONE


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
