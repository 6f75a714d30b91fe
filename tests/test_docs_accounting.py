"""The Python blocks of the accounting page run, and the numbers in their comments are true."""

import re
from pathlib import Path

from dpmcmc.accounting import papers

PAGE = Path(__file__).parents[1] / "docs" / "accounting.md"


def test_the_page_runs_and_its_numbers_are_true():
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    names: dict = {}
    for block in blocks:
        exec(block, names)
    assert names["budget"].steps({names["Gaussian"](80.0): 1}) > 0
    claims = re.findall(r"^((?:calibrate|accountants)\..*\))  # (.*)$", "\n".join(blocks), re.MULTILINE)
    assert len(claims) == 5
    assert papers.penalty_steps(1.0, 1e-6, tau=0.1, rows=100_000) == 34
    assert names["calibrate"].steps({names["Gaussian"](0.1 * 100_000**0.5): 1}, 1.0, 1e-6) == 56
    for expression, value in claims:
        assert repr(eval(expression, names)).startswith(value.split("...")[0]), expression
