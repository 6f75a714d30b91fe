"""Cells that are computed in a moment, for the tests of the frame."""

from __future__ import annotations

import os
from pathlib import Path


def square(number: float, log: str) -> dict[str, float]:
    """The square, and a line in the log for each time that it is computed."""
    with Path(log).open("a") as file:
        file.write(f"{number}\n")
    return {"square": number**2}


def fail(number: float, log: str) -> dict[str, float]:
    """A cell with a mistake."""
    raise ArithmeticError(f"no square of {number}")


def mended(number: float, log: str) -> dict[str, float]:
    """A cell that fails as long as there is no log."""
    if not Path(log).exists():
        raise ArithmeticError("not yet")
    return {"square": number**2}


def die(number: float, log: str) -> dict[str, float]:
    """A cell whose process is killed."""
    os._exit(9)
