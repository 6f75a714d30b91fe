"""Every recipe, on a small logistic regression."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from dpmcmc import Budget, models, recipes, testing

MODEL = models.logistic(2, radius=1.0)
NUM_ROWS = 5000
BUDGET = Budget(1.0, 1e-6)


class Case(NamedTuple):
    """A recipe made from public facts."""

    of: Callable  # the public function that it is a case of
    make: Callable[[], Any]
    label: str = ""
    model: Any = MODEL
    is_slow: bool = False

    @property
    def recipe(self) -> Any:
        return _made(self)

    def __str__(self) -> str:
        return f"{self.of.__name__} {self.label}".strip()


@functools.cache
def _made(case: Case) -> Any:
    return case.make()


FAMILY = models.gaussian(np.ones(2), radius=3.0)


def _simulated(name: str, model: Any) -> Case:
    """By simulation, which takes seconds."""

    def make():
        key = jax.random.key(0)
        guess = np.zeros(2)
        rows = (
            testing.simulate_logistic_rows(key, 64, guess, 1.0)
            if model is MODEL
            else testing.simulate_gaussian_rows(key, 64, guess, np.ones(2))
        )
        return recipes.simulated(name, model, rows, guess, NUM_ROWS, BUDGET, least_draws=0)

    return Case(recipes.simulated, make, name, model, is_slow=True)


ALL = [
    Case(recipes.noise_aware, lambda: recipes.noise_aware(MODEL, NUM_ROWS, BUDGET)),
    Case(recipes.langevin, lambda: recipes.langevin(MODEL, NUM_ROWS, BUDGET)),
    Case(
        recipes.walk,
        lambda: recipes.walk("barker", MODEL, BUDGET, recipes.moves([0.05, 0.05], 1.0, NUM_ROWS)),
    ),
    Case(
        recipes.walk_after_start,
        lambda: recipes.walk_after_start(MODEL, NUM_ROWS, BUDGET, "barker"),
    ),
    *(
        _simulated(name.value, FAMILY if name.value == "exponential-penalty" else MODEL)
        for name in recipes.SIMULATED
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
