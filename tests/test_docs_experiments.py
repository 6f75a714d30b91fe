"""The page about experiments runs as printed."""

import re
from pathlib import Path

import numpy as np

PAGE = Path(__file__).parents[1] / "docs" / "experiments.md"


def test_the_page_runs(quick_compilation):
    (block,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    names: dict = {"__name__": "experiments"}
    exec(compile(block, PAGE.name, "exec"), names)
    ratio, bit = names["found"].scores.values()
    assert all(more > fewer for more, fewer in zip(bit.num_steps, ratio.num_steps, strict=True))
    assert np.isfinite([ratio.mmd, bit.mmd]).all()
