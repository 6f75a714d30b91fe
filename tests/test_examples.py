"""The examples in docstrings run and print what they say."""

import doctest
import importlib
from pathlib import Path

import pytest

import dpmcmc

ROOT = Path(dpmcmc.__file__).parent
PATHS = [path for path in sorted(ROOT.rglob("*.py")) if ">>> " in path.read_text()]
MODULES = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in PATHS]


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name):
    results = doctest.testmod(importlib.import_module(f"dpmcmc.{name}"))
    assert results.failed == 0
