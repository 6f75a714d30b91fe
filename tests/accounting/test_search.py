import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpmcmc.accounting.search import LIMIT, crossing, largest, largest_within


@given(st.integers(0, 10**12), st.integers(0, 10**12))
def test_largest_from_any_guess(answer, guess):
    calls = []
    assert largest(lambda count: calls.append(count) or count <= answer, guess) == answer
    assert len(calls) < 150


def test_largest_of_what_never_ends():
    """The limit stands for itself and everything above."""
    assert largest(lambda count: True) == largest(lambda count: True, LIMIT) == LIMIT
    assert largest(lambda count: count < LIMIT) == LIMIT - 1


@given(
    st.integers(0, 10**12),
    st.floats(0.02, 50.0),
    st.sampled_from([math.sqrt, float, lambda n: n**0.2, lambda n: n + 2 * n**0.5]),
)
def test_excesses_lead_to_the_answer_in_few_steps(answer, off, epsilon):
    """A guess that is off by a factor of fifty costs a dozen values of an accountant; halving the
    bracket would take forty.
    """
    calls = []
    budget = (epsilon(answer) + epsilon(answer + 1)) / 2
    excess = lambda count: math.log(epsilon(count) / budget) if count else -math.inf  # noqa: E731
    assert (
        largest_within(lambda count: calls.append(count) or excess(count), int(off * answer))
        == answer
    )
    assert len(calls) <= 14


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6))
def test_excesses_that_are_sometimes_infinite_or_jump(answer, guess, told):
    excess = lambda count: (  # noqa: E731
        (count - answer) ** 3 - 0.5
        if abs(count - answer) <= told
        else math.copysign(math.inf, count - answer)
    )
    assert largest_within(excess, guess) == answer


def test_nothing_fits_where_nothing_is_left():
    """A ledger that is over budget before the first step has an excess at 0, too."""
    assert largest_within(lambda count: 1.0 + count, 1000) == 0


@pytest.mark.parametrize("root", [1e-9, 0.3, 7.0])
def test_crossing_brackets_tightly(root):
    low, high = crossing(lambda x: math.atan(root - x) + (root - x) ** 3, -3.0, 50.0)
    assert low <= root * (1 + 1e-12) and high >= root * (1 - 1e-12)
    assert high - low < 1e-12 * max(1, abs(root))
