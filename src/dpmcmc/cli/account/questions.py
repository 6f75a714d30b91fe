"""What is asked of an accountant, and what is given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class Question(NamedTuple):
    """The costs of a step and of the start, and the method that accounts for them."""

    per_step: Mapping[Any, int]
    method: str | None  # None: the best of the quick ones
    initial: Mapping[Any, int] = {}
    # An equivalent question: the better of the two answers is shown
    otherwise: Question | None = None


class Given(NamedTuple):
    """A budget or a number of steps, the delta, and the relation that numbers refer to."""

    epsilon: float | None
    steps: int | None
    delta: float
    relation: str
