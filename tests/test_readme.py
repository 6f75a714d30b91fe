"""The README runs as printed, and every citation has its entry."""

import pkgutil
import re
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from dpmcmc import findings, load, statement_of
from dpmcmc.cli import main

ROOT = Path(__file__).parents[1]


def test_the_example_runs(tmp_path, monkeypatch, capsys):
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    assert len([line for line in code.splitlines() if line.strip()]) <= 15
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "README.md", "exec"), {"__name__": "readme"})
    posterior = load(tmp_path / "posterior.nc")
    told = capsys.readouterr().out
    assert "r_hat" in told and statement_of(posterior) in told
    assert 3.9 < posterior.attrs["epsilon"] <= 4
    # The posterior of these rows is (1.00, -0.95) +- 0.03. Noise, new each time, moves the means by
    # 0.0035 (sd, twelve runs).
    assert posterior.posterior["coefficients"].mean(("chain", "draw")).values == pytest.approx(
        [1.0, -0.95], abs=0.05
    )
    assert not any(finding.is_severe for finding in findings(posterior))


def test_the_commands_are_understood(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    generator = np.random.default_rng(0)
    cells = np.column_stack(
        [
            generator.integers(0, 2, 20_000),
            generator.uniform(21, 64, 20_000),
            generator.uniform(6, 20, 20_000),
        ]
    )
    wages = generator.normal(30, 15, 20_000)
    np.savetxt(
        "people.csv",
        np.column_stack([cells, wages]),
        "%.1f",
        ",",
        header="y,age,education,wage",
        comments="",
    )
    commands = re.findall(r"^    dpmcmc ([^#\n]*)", (ROOT / "README.md").read_text(), re.M)
    assert len(commands) == 5
    for command in commands:
        arguments = command.split()
        if "people.nc" not in arguments[1:3]:  # of a file that the first would write
            result = CliRunner().invoke(main, arguments + ["--dry-run"] * (arguments[0] == "run"))
            assert result.exit_code == 0, result.output


def test_every_name_in_the_docs_exists():
    """dpmcmc.x, and dpmcmc.x.y where x is a module."""
    text = "\n".join(
        path.read_text() for path in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    )
    named = set(re.findall(r"\bdpmcmc\.([a-zA-Z_]\w*(?:\.\w+)?)", text))
    assert {"Curator", "recipes.langevin_for"} <= named
    for name in named:
        pkgutil.resolve_name(f"dpmcmc.{name}")


def test_citations_and_references_match():
    files = [*(ROOT / "src").rglob("*.py"), *(ROOT / "docs").glob("*.md")]
    sources = "\n".join(path.read_text() for path in files)
    cited = {
        key.strip()
        for keys in re.findall(r":cite:\w*:?`([^`]+)`", sources)
        for key in keys.split(",")
    }
    listed = re.findall(r"^@\w+\{([^,]+),", (ROOT / "docs" / "refs.bib").read_text(), re.M)
    assert len(listed) == len(set(listed))
    assert cited == set(listed)
