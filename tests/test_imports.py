"""Who may import whom, as the table of docs/architecture.md says, and what is imported late."""

import ast
import functools
import re
import subprocess
import sys
from pathlib import Path

import pytest

import dpmcmc

ROOT = Path(dpmcmc.__file__).parent

PAGE = Path(__file__).parents[1] / "docs" / "architecture.md"


def arrows(page: str) -> dict[str, set[str]]:
    """The table of rooms: whom each may import. A room is a folder or a file of the package."""
    _, _, rest = page.partition("| room | what it is for | may import |\n")
    table, _, _ = rest.partition("\n\n")
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    rooms = [room.strip("`") for room, _, _ in rows[1:]]
    assert len(rooms) == len(set(rooms)), "a room has two rows"
    allowed = {room.strip("`"): set(re.findall(r"`(\w+)`", cell)) for room, _, cell in rows[1:]}
    assert allowed, "no table of rooms"
    return allowed


ALLOWED = arrows(PAGE.read_text())
HEAVY_HOMES = {
    "pyarrow": {"tables/dataset.py", "engines/spark.py"},
    "pyspark": {"engines/spark.py"},
    "cloudpickle": {"engines/partitions.py"},
    "distributed": {"engines/dask.py"},
    "arviz": {"results/arviz.py"},
    "h5py": {"accounting/reading.py"},
    "matplotlib": {"results/plots.py", "papers/reproduce/drawing.py"},
    "numpyro": {"models/numpyro.py"},
    "rich": {"run/progress.py", "cli/account/output.py"},
}
NO_JAX = {"types", "errors", "acceptance", "accounting", "finding", "__init__"}


def layer(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


@functools.cache
def imported(path: Path, top_level_only: bool = False) -> list[str]:
    tree = ast.parse(path.read_text())
    guarded = {id(sub) for node in ast.walk(tree) if _is_for_types(node) for sub in ast.walk(node)}
    names = []
    for node in tree.body if top_level_only else ast.walk(tree):
        if id(node) in guarded:
            continue
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return names


def _is_for_types(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.If)
        and isinstance(node.test, ast.Name)
        and node.test.id == "TYPE_CHECKING"
    )


def violations(layer_name: str, names: list[str]) -> list[str]:
    ours = [name for name in names if name.split(".")[0] == "dpmcmc"]
    targets = {name: _target(name) for name in ours}
    return [
        name
        for name, target in targets.items()
        if target != layer_name and target not in ALLOWED[layer_name]
    ]


def _target(name: str) -> str:
    part = (name.split(".") + ["__init__"])[1]
    is_ours = (ROOT / part).is_dir() or (ROOT / f"{part}.py").exists()
    return part if is_ours else "__init__"  # a public name


FILES = sorted(ROOT.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_arrows_point_the_right_way(path):
    assert violations(layer(path), imported(path)) == []


def test_the_table_has_every_room_and_no_other():
    rooms = {layer(path) for path in FILES}
    assert set(ALLOWED) == rooms
    assert set().union(*ALLOWED.values()) <= rooms


WRONG_ARROWS = {
    "samplers": "dpmcmc.curator.noise",
    "accounting": "dpmcmc.run.execute",
    "curator": "dpmcmc.samplers.hmc",
    "audit": "dpmcmc.curator.owner",
    "papers": "dpmcmc.run.execute",
    "cli": "dpmcmc.samplers.hmc",
    "models": "dpmcmc.Curator",
}


@pytest.mark.parametrize("room", WRONG_ARROWS)
def test_a_wrong_arrow_is_seen(room):
    name = WRONG_ARROWS[room]
    assert violations(room, [name, f"dpmcmc.{room}.own", "jax"]) == [name]


def test_the_page_decides():
    table = (
        "| room | what it is for | may import |\n|---|---|---|\n"
        "| `a` | x | |\n| `b` | y | `a`, `c` |\n\n| `d` | z | |"
    )
    assert arrows(table) == {"a": set(), "b": {"a", "c"}}


def test_the_walk_to_the_sum_of_rows_is_short_and_exists():
    section = PAGE.read_text().partition("## A row's way through")[2].partition("\n## ")[0]
    files = re.findall(r"^\d+\. `([\w/]+\.py)`", section, re.M)
    assert files[0].startswith("cli/") and "curator/sums/exact_sum.py" in files
    assert len(files) <= 12
    assert [name for name in files if not (ROOT / name).is_file()] == []
    # What else an entry names is in its file
    for entry in re.split(
        r"^\d+\. ", section.partition("\n\n1. ")[2].rpartition("\n\n")[0], flags=re.M
    ):
        file, *names = re.findall(r"`([\w./]+)`", entry)
        text = (ROOT / file).read_text()
        for name in names:
            assert name.rpartition(".")[2] in text, (file, name)


@pytest.mark.parametrize("library", HEAVY_HOMES)
def test_heavy_libraries_have_one_home_and_load_late(library):
    homes = {
        str(path.relative_to(ROOT)) for path in ROOT.rglob("*.py") if _uses(path, library, False)
    }
    assert homes == HEAVY_HOMES[library]
    assert not any(_uses(path, library, True) for path in ROOT.rglob("*.py"))


def _uses(path, library, top_level_only):
    return any(name.split(".")[0] == library for name in imported(path, top_level_only))


@pytest.mark.parametrize(
    "path", [p for p in sorted(ROOT.rglob("*.py")) if layer(p) in NO_JAX], ids=lambda p: p.name
)
def test_the_calculator_does_without_jax(path):
    assert not _uses(path, "jax", False)


def test_importing_the_package_loads_neither_jax_nor_scipy():
    code = (
        "import sys, dpmcmc; "
        "print([m for m in ('jax', 'scipy', 'arviz', 'dp_accounting') if m in sys.modules])"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.strip()
        == "[]"
    )


def test_types_are_checked_on_the_names_that_are_loaded():
    """Every public name is written twice: for the reader of types, and where it is loaded from."""
    body = next(
        node.body
        for node in ast.parse((ROOT / "__init__.py").read_text()).body
        if _is_for_types(node)
    )
    seen = {alias.asname: (node.module, alias.name) for node in body for alias in node.names}
    loaded = {name: (home, name) for name, home in dpmcmc._HOMES.items()}
    assert seen == loaded | {name: ("dpmcmc", name) for name in dpmcmc._MODULES}
