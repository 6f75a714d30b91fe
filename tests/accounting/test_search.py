import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpmcmc.accounting.search import LIMIT, crossing, largest


@given(st.integers(0, 10**12), st.integers(0, 10**12))
def test_largest_from_any_guess(answer, guess):
    calls = []
    assert largest(lambda count: calls.append(count) or count <= answer, guess) == answer
    assert len(calls) < 150


def test_largest_of_what_never_ends():
    """The limit stands for itself and everything above."""
    assert largest(lambda count: True) == largest(lambda count: True, LIMIT) == LIMIT
    assert largest(lambda count: count < LIMIT) == LIMIT - 1


@pytest.mark.parametrize("root", [1e-9, 0.3, 7.0])
def test_crossing_brackets_tightly(root):
    low, high = crossing(lambda x: math.atan(root - x) + (root - x) ** 3, -3.0, 50.0)
    assert low <= root * (1 + 1e-12) and high >= root * (1 - 1e-12)
    assert high - low < 1e-12 * max(1, abs(root))
