"""Every recipe, on a small logistic regression."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

from dpmcmc import Budget, models, recipes

MODEL = models.logistic(2, radius=1.0)
NUM_ROWS = 5000
BUDGET = Budget(1.0, 1e-6)


class Case(NamedTuple):
    """A recipe made from public facts."""

    of: Callable  # the public function that it is a case of
    recipe: Any

    def __str__(self) -> str:
        return self.of.__name__


ALL = [
    Case(recipes.noise_aware, recipes.noise_aware(MODEL, NUM_ROWS, BUDGET)),
    Case(recipes.langevin, recipes.langevin(MODEL, NUM_ROWS, BUDGET)),
    Case(
        recipes.walk,
        recipes.walk("barker", MODEL, BUDGET, recipes.moves([0.05, 0.05], 1.0, NUM_ROWS)),
    ),
    Case(
        recipes.walk_after_start,
        recipes.walk_after_start(MODEL, NUM_ROWS, BUDGET, "barker"),
    ),
]


CHOOSERS = {"choose", "as_typed"}  # they return one of the recipes


def public_recipes() -> set[Callable]:
    """Every public function that makes a `Recipe`, but for those that take a curator's facts."""
    members = inspect.getmembers(recipes, inspect.isfunction)
    return {
        member
        for name, member in members
        if inspect.signature(member).return_annotation == "Recipe"
        and not name.startswith("_")
        and not name.endswith("_for")
        and name not in CHOOSERS
    }
