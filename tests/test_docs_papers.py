"""The page about experiments runs as printed."""

import re
from pathlib import Path

import numpy as np
import pytest

from dpmcmc import models
from dpmcmc.papers import comparison
from dpmcmc.papers.fastmh import settings as fast_mh_comparison

PAGE = Path(__file__).parents[1] / "docs" / "experiments.md"


@pytest.mark.slow
def test_the_page_runs(quick_compilation):
    (block,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    names: dict = {"__name__": "experiments"}
    exec(compile(block, PAGE.name, "exec"), names)
    ratio, bit = names["found"].scores.values()
    assert all(more > fewer for more, fewer in zip(bit.num_steps, ratio.num_steps, strict=True))
    assert np.isfinite([ratio.mmd, bit.mmd]).all()


def test_the_steps_of_the_mixture_are_those_that_budgets_buy():
    """And what the paper's own budget comes to is as the page says."""
    printed = PAGE.read_text().split("## Reading few rows")[1]
    for name, reading in fast_mh_comparison.readings(
        models.mixture(fast_mh_comparison.VARIANCE)
    ).items():
        (line,) = re.findall(rf"^\| {re.escape(name)} \|.*$", printed, re.M)
        counts = [
            comparison.num_steps(reading.method, budget, 1) for budget in fast_mh_comparison.BUDGETS
        ]
        assert [
            int(found.replace(" ", "")) for found in re.findall(r"\(([\d ]+)\)", line)
        ] == counts, name
        assert f"{reading.num_rows:.0f}" in printed.replace(" 50 000", " 50000")
    epsilon, delta = fast_mh_comparison.published_promise()
    assert f"ε = {epsilon:.0f} and δ = {delta:.1g}" in printed
