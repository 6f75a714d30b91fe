"""The examples in docstrings run and print what they say."""

import doctest
import importlib

import pytest

MODULES = [
    "acceptance",
    "audit.attack",
    "audit.verdict",
    "models.banana",
    "models.circle",
    "models.counts",
    "models.gaussian",
    "models.linear",
    "models.logistic",
    "models.mixture",
    "models.poisson",
    "models.robust_linear",
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name):
    results = doctest.testmod(importlib.import_module(f"dpmcmc.{name}"))
    assert results.attempted > 0 and results.failed == 0
