"""One table each of samplers, queries, models and recipes, with every public member in it.

A new member gets its row here, and all tests of its kind then run over it.
"""

from collections.abc import Iterable
from typing import Any

import pytest


def by_schedule(cases: Iterable[Any]) -> list[Any]:
    """Cases as parameters: those that are `daily` run in the everyday suite, the rest at night."""
    return [pytest.param(case, marks=() if case.daily else pytest.mark.slow) for case in cases]
