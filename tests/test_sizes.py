"""The sizes that docs/contributing.md promises, and that nothing parses the texts of a promise."""

import ast
from pathlib import Path

import pytest

import dpmcmc

ROOT = Path(dpmcmc.__file__).parent
FOLDERS = [ROOT, *(path for path in ROOT.rglob("*") if path.is_dir() and any(path.glob("*.py")))]
MODULES = sorted(ROOT.rglob("*.py"))
MOST_MODULES, MOST_LINES, MOST_LINES_OF_A_FUNCTION, MOST_COLUMNS = 12, 400, 50, 100
MOST_NAMES = 60
WITH_DOCSTRINGS = ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef


def docstring_lines(tree: ast.AST) -> int:
    """The lines of all docstrings within a piece of code."""
    nodes = [node for node in ast.walk(tree) if isinstance(node, WITH_DOCSTRINGS)]
    texts = [node.body[0] for node in nodes if ast.get_docstring(node) is not None]
    return sum(text.end_lineno - text.lineno + 1 for text in texts)


def too_large(source: str) -> list[str]:
    """What of a module is beyond the limits."""
    tree = ast.parse(source)
    lines = source.splitlines()
    found = [] if len(lines) - docstring_lines(tree) <= MOST_LINES else ["the module"]
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = node.end_lineno - node.lineno + 1 - docstring_lines(node)
            if length > MOST_LINES_OF_A_FUNCTION:
                found.append(node.name)
    return found + [f"line {i}" for i, line in enumerate(lines, 1) if len(line) > MOST_COLUMNS]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_modules_functions_and_lines_are_short(path):
    assert too_large(path.read_text()) == []


def test_what_is_too_large_is_found():
    """Docstrings do not count, and everything else does."""
    text = '    """' + "\n".join(["One."] * 60) + '"""\n'
    fits = "def short():\n" + text + "    act()\n" * (MOST_LINES_OF_A_FUNCTION - 1)
    assert too_large(fits) == []
    assert too_large(fits + "    act()\n") == ["short"]
    assert too_large("act()\n" * MOST_LINES) == []
    assert too_large("act()\n" * (MOST_LINES + 1)) == ["the module"]
    assert too_large("x = 1" + " " * MOST_COLUMNS) == ["line 1"]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_folders_have_few_modules(folder):
    modules = [path for path in folder.glob("*.py") if path.name != "__init__.py"]
    assert len(modules) <= MOST_MODULES


def test_few_names_are_public_at_the_top():
    assert len(dpmcmc.__all__) <= MOST_NAMES


@pytest.mark.parametrize("name", ["accounting/statement", "accounting/verify", "results/report"])
def test_no_text_of_a_promise_is_parsed(name):
    """These modules render values, and compare what they have rendered."""
    tree = ast.parse((ROOT / f"{name}.py").read_text())
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import)]
    assert "re" not in [alias.name for node in imports for alias in node.names]
