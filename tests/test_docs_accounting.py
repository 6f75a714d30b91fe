"""The Python blocks of the accounting page run, and the numbers in their comments are true."""

import re
from pathlib import Path

from dpmcmc.accounting import accountants, guess, papers
from dpmcmc.accounting.costs import Gaussian
from dpmcmc.accounting.laws import gaussian
from dpmcmc.accounting.statement import percent

PAGE = Path(__file__).parents[1] / "docs" / "accounting.md"


def test_the_page_runs_and_its_numbers_are_true():
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    names: dict = {}
    for block in blocks:
        exec(block, names)
    assert names["budget"].steps({names["Gaussian"](80.0): 1}) > 0
    claims = re.findall(
        r"^((?:calibrate|accountants)\..*\))  # (.*)$", "\n".join(blocks), re.MULTILINE
    )
    assert len(claims) == 5
    assert papers.penalty_steps(1.0, 1e-6, tau=0.1, rows=100_000) == 34
    assert names["calibrate"].steps({names["Gaussian"](0.1 * 100_000**0.5): 1}, 1.0, 1e-6) == 56
    for expression, value in claims:
        assert repr(eval(expression, names)).startswith(value.split("...")[0]), expression


def test_the_chances_of_a_guess_are_those_of_a_statement():
    """Rounded up, as upper bounds must be: a run that spends all of (1, 1e-6) prints 54.8."""
    text = " ".join(PAGE.read_text().split())
    written = re.search(
        r"At \(1, 10⁻⁶\) that is ([\d.]+) % for Gaussian answers and at \(4, 10⁻⁶\) ([\d.]+) %; "
        r"of any mechanism "
        r"with these promises nothing better than ([\d.]+) % and ([\d.]+) % can be said",
        text,
    )
    of_gaussians, of_any = [], []
    for epsilon in (1.0, 4.0):
        multiplier = 1 / gaussian.mu(epsilon, (1 - accountants.RESERVE) * 1e-6)
        for costs, found in (
            ({Gaussian(multiplier): 1}, of_gaussians),
            ({Gaussian(1e-3): 1}, of_any),
        ):
            found.append(percent(guess.chance(costs, epsilon, 1e-6, "gaussian")))
    assert list(written.groups()) == of_gaussians + of_any
