"""The page about results runs as printed, on the file that the first command of the README
writes."""

import re
from pathlib import Path

import numpy as np
from typer.testing import CliRunner

from dpmcmc.cli import main

ROOT = Path(__file__).parents[1]


def test_the_page_runs(tmp_path, monkeypatch, quick_compilation):
    monkeypatch.chdir(tmp_path)
    generator = np.random.default_rng(0)
    cells = np.column_stack(
        [
            generator.integers(0, 2, 3000),
            generator.uniform(21, 64, 3000),
            generator.uniform(6, 20, 3000),
        ]
    )
    np.savetxt("people.csv", cells, "%.1f", ",", header="y,age,education", comments="")
    command = re.search(
        r"^    dpmcmc (run logistic [^#\n]*)", (ROOT / "README.md").read_text(), re.M
    )
    assert command is not None
    result = CliRunner().invoke(main, [*command[1].split(), "--sampler", "sgld", "--steps", "40"])
    assert result.exit_code == 3, result.output  # 40 steps are few: DO NOT RELY
    names: dict = {"__name__": "results"}
    for block in re.findall(
        r"```python\n(.*?)```", (ROOT / "docs" / "results.md").read_text(), re.DOTALL
    ):
        exec(compile(block, "results.md", "exec"), names)
    draws, later, chance = names["draws"], names["later"], names["chance"]
    assert CliRunner().invoke(main, ["report", "people.nc"]).exit_code == 0
    assert draws["age"].attrs["unit"] == "log-odds per 1 of age"
    assert later.posterior.sizes["draw"] == draws.sizes["draw"] // 2 and chance.dims == (
        "chain",
        "draw",
    )
