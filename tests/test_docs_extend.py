"""The page about models and samplers of one's own runs as printed."""

import re
from pathlib import Path

import numpy as np

import dpmcmc

PAGE = Path(__file__).parents[1] / "docs" / "extend.md"


def test_the_page_runs(tmp_path, monkeypatch, quick_compilation):
    monkeypatch.chdir(tmp_path)
    names: dict = {"__name__": "extend"}
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL):
        exec(compile(block, PAGE.name, "exec"), names)
    # As the page has them
    told = [f"{names[name].factor:.3g} times" for name in ("refuted", "verdict")]
    assert (
        names["refuted"].is_refuted
        and not names["verdict"].is_refuted
        and all(text in PAGE.read_text() for text in told)
    )
    posterior = dpmcmc.load("location.nc")
    assert posterior.attrs["epsilon"] <= 4 and "acceptance" in posterior.sample_stats
    # What it says of the slope holds, and no less would.
    model, points = names["model"], np.linspace(-10, 10, 20_001)
    slopes = np.abs(np.gradient(np.asarray(model.log_likelihood([0.0], points), float), points))
    assert 0.999 * model.lipschitz < slopes.max() < 1.001 * model.lipschitz
