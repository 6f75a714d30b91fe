"""The public module for authors of queries, and the checks of numbers: their examples run."""

import doctest

import pytest

from dpmcmc import checks, queries
from dpmcmc.curator.noise import noisy_sums


@pytest.mark.parametrize(
    "module", [checks, queries, noisy_sums], ids=lambda module: module.__name__
)
def test_the_examples_run(module):
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0


def test_every_public_name_is_there():
    assert all(hasattr(queries, name) for name in queries.__all__)
