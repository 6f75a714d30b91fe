"""The examples in docstrings run and print what they say, and every public name has its parts.

Examples of the modules in `SHARED` are about a run. They share a small setting, and the docstrings
use its names without making it again:

- `key`: a random key, `jax.random.key(0)`
- `curator`: holds 200 made-up rows of `models.binomial()`, with a budget of epsilon = 1 that is not
  spent yet: each docstring has a curator of its own
- `recipe`: a random walk with accept bits for it
- `record`: what `dpmcmc.plan(key, recipe, curator, num_steps=20).run()` gave

The examples of a module run in an empty folder, so they may write files.
"""

import dataclasses
import doctest
import enum
import functools
import importlib
import inspect
import re
from pathlib import Path

import jax
import numpy as np
import pytest

import dpmcmc
from dpmcmc import recipes

ROOT = Path(dpmcmc.__file__).parent
PATHS = [path for path in sorted(ROOT.rglob("*.py")) if ">>> " in path.read_text()]
MODULES = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in PATHS]
SHARED = (
    "curator.facts",
    "results.arviz",
    "results.files",
    "results.report",
    "results.summary",
    "run.plan",
    "run.record",
)
ROOMS = ("dpmcmc", *(f"dpmcmc.{name}" for name in dpmcmc._MODULES))
NAMES = [(room, name) for room in ROOMS for name in importlib.import_module(room).__all__]


def new_curator():
    rows = dpmcmc.testing.simulate_binomial_rows(jax.random.key(0), 200, [0.5])
    budget = dpmcmc.Budget(epsilon=1.0, delta=1e-6)
    return dpmcmc.Curator(np.asarray(rows, np.float32), dpmcmc.models.binomial(), budget)


def small_recipe():
    model = dpmcmc.models.binomial()
    moves = recipes.moves([0.25], 1.0, 200, scale=0.01)
    return recipes.walk("barker", model, dpmcmc.Budget(epsilon=1.0, delta=1e-6), moves)


@functools.cache
def finished_record():
    planned = dpmcmc.plan(jax.random.key(0), small_recipe(), new_curator(), num_steps=20)
    return planned.run(progress=False)


def shared_setting():
    """With a new curator, whose budget is for one run."""
    return {
        "key": jax.random.key(0),
        "curator": new_curator(),
        "recipe": small_recipe(),
        "record": finished_record(),
    }


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    runner = doctest.DocTestRunner()
    for example in doctest.DocTestFinder().find(importlib.import_module(f"dpmcmc.{name}")):
        if name in SHARED and example.examples:
            example.globs.update(shared_setting())
        runner.run(example)
    results = runner.summarize()
    assert results.attempted > 0
    assert results.failed == 0


def test_no_example_is_skipped():
    assert [str(path) for path in PATHS if "+SKIP" in path.read_text()] == []


@pytest.mark.parametrize(("room", "name"), NAMES)
def test_every_public_name_says_what_it_takes(room, name):
    thing = getattr(importlib.import_module(room), name)
    if inspect.isclass(thing):
        assert missing_of_class(thing) == []
    elif inspect.isfunction(thing):
        assert missing_of_function(thing) == []


def missing_of_class(thing):
    text = own_docstring(thing)
    told = entries(text, "Attributes") | entries(text, "Args")
    missing = [name for name in fields_of(thing) if name not in told]
    return missing + [part for part in ("Example",) if not has_section(text, part)]


def missing_of_function(function):
    text = own_docstring(function)
    signature = inspect.signature(function)
    names = [starred(parameter) for parameter in signature.parameters.values()]
    missing = [name for name in names if name not in entries(text, "Args")]
    is_none = signature.return_annotation in (None, "None")
    parts = ("Example",) if is_none else ("Returns", "Example")
    return missing + [part for part in parts if not has_section(text, part)]


def own_docstring(thing):
    """Not an inherited one, nor the one that dataclasses and named tuples are given."""
    text = inspect.cleandoc(vars(thing).get("__doc__") or "") if inspect.isclass(thing) else ""
    text = text or inspect.getdoc(thing) or ""
    is_made = text.startswith(f"{thing.__name__}(")
    return "" if is_made else text


def fields_of(thing):
    if issubclass(thing, tuple) and hasattr(thing, "_fields"):
        return list(thing._fields)
    if dataclasses.is_dataclass(thing):
        return [each.name for each in dataclasses.fields(thing) if not each.name.startswith("_")]
    if issubclass(thing, enum.Enum):
        return list(thing.__members__)
    return []


def starred(parameter):
    stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}
    return stars.get(parameter.kind, "") + parameter.name


def has_section(text, name):
    return re.search(rf"^{name}s?:\n    ", text, re.MULTILINE) is not None


def entries(text, section):
    """The names that a section of a docstring explains."""
    found = re.search(rf"^{section}:\n((?:    .*\n|\n)*)", text + "\n", re.MULTILINE)
    return (
        set()
        if found is None
        else set(re.findall(r"^    (\*{0,2}\w+)(?: \(.*\))?:", found[1], re.M))
    )


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("", ["rows", "**options", "Returns", "Example"]),
        ("One.\n\nArgs:\n    rows: All.\n    **options: More.\n\nReturns:\n    It.", ["Example"]),
        ("One.\n\nArgs:\n    rows, others: All.\n\nExample:\n    >>> 1", None),
    ],
)
def test_a_missing_part_is_found(text, missing):
    def function(rows, **options):
        return rows

    function.__doc__ = text
    if missing is None:
        missing = ["rows", "**options", "Returns"]
    assert missing_of_function(function) == missing
