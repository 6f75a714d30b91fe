"""What the commands share: how they print, refuse and fail."""

from __future__ import annotations

import enum
import json
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

import typer
from typer.core import TyperGroup

from dpmcmc.errors import PrivacyRefusal
from dpmcmc.types import Neighbours


class Relation(enum.StrEnum):
    """Which tables are neighbours, as it is typed: in short, or as in statements."""

    REPLACE = "replace"
    ADD_REMOVE = "add-remove"
    REPLACE_ONE = Neighbours.REPLACE_ONE.value
    ADD_OR_REMOVE_ONE = Neighbours.ADD_OR_REMOVE_ONE.value

    @property
    def neighbours(self) -> Neighbours:
        return (
            Neighbours.REPLACE_ONE if self.startswith("replace") else Neighbours.ADD_OR_REMOVE_ONE
        )


class Commands(TyperGroup):
    """Commands that fail in one line where a file or the output itself cannot be written, without a
    traceback.

    The text of such an error has the name of the file and the system's reason, and nothing of a
    table.
    """

    def main(self, *args: Any, **options: Any) -> Any:
        try:
            try:
                return super().main(*args, **options)
            finally:
                sys.stdout.flush()
        except BrokenPipeError:  # who reads the output has had enough of it, as `head` has
            _fail("")
        except OSError as error:
            _fail(f"failed: {error}")


def _fail(why: str) -> NoReturn:
    with suppress(OSError, ValueError):  # what is left to print would fail once more at the end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if why:
        print(why, file=sys.stderr)
    sys.exit(1)


def say(text: str = "") -> None:
    """Print the text.

    No line of it is wider than the terminal, if it is one: files keep lines as they are.
    """
    typer.echo(wrapped(text, shutil.get_terminal_size().columns) if sys.stdout.isatty() else text)


def wrapped(text: str, width: int) -> str:
    """The text with no line wider than that.

    A line goes on below its first word after a label, such as `Budget:`.
    """
    return "\n".join(line for whole in text.split("\n") for line in _wrapped_line(whole, width))


def _wrapped_line(line: str, width: int) -> list[str]:
    label = re.match(r"\s*(?:[A-Z]\w*:\s+)?", line)
    assert label is not None
    is_table = re.search(r"\S {2,}\S", line[label.end() :])  # its cells stand below each other
    if is_table or len(line) <= width:
        return [line]
    indent = " " * min(label.end(), width // 2)
    return textwrap.wrap(
        line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


@contextmanager
def refusals(*kinds: type[Exception], as_json: bool = False) -> Iterator[None]:
    """Refusals are answers: one line on standard error, one object if JSON was asked for, exit code
    2, no traceback.
    """
    refused: tuple[type[Exception], ...] = (ValueError, PrivacyRefusal, *kinds)
    try:
        yield
    except BrokenPipeError:  # nobody reads on: nothing was refused
        raise
    except refused as error:
        if as_json:
            print(json.dumps({"error": str(error)}))
        typer.echo(f"refused: {error}", err=True)
        raise typer.Exit(2) from error
