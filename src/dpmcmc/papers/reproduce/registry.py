"""All figures, by name: each module of a paper has some in its FIGURES."""

from __future__ import annotations

import importlib
from collections.abc import Sequence

from dpmcmc.papers.reproduce.figure import Figure

MODULES = (
    "thesis.posteriors",
    "thesis.accounting",
    "thesis.clipping",
    "thesis.comparison",
    "dphmc.comparison",
    "dphmc.clipping",
    "fastmh.mixture",
    "fastmh.digits",
    "penalty.theory",
    "penalty.owners",
    "penalty.speed",
    "ours.tests",
    "ours.error",
)


def figures() -> dict[str, Figure]:
    """By name, in the order of the papers."""
    found = {}
    for module in MODULES:
        for figure in importlib.import_module(f"dpmcmc.papers.{module}").FIGURES:
            found[figure.name] = figure
    return found


def choose(names: Sequence[str]) -> list[Figure]:
    """Figures of these names, or all of them.

    Raises:
        ValueError: There is no figure of a name.
    """
    known = figures()
    if list(names) == ["all"]:
        return list(known.values())
    by_name = {name.lower(): figure for name, figure in known.items()}
    unknown = [name for name in names if name.lower() not in by_name]
    if unknown:
        raise ValueError(
            f"there is no figure {unknown[0]!r}: `dpmcmc reproduce list` has all names"
        )
    return [by_name[name.lower()] for name in names]
