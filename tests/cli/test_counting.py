"""The count before a noise-aware run, and the parts of a budget: what a spoiled study costs, and
what is left.
"""

import json
import re

import numpy as np
import pytest
from typer.testing import CliRunner

from dpmcmc import Budget, load, recipes, statement_of
from dpmcmc.accounting.ledger import audit
from dpmcmc.cli import main
from dpmcmc.curator.noise import stream

pytestmark = pytest.mark.usefixtures("quick_compilation")

N, EPSILON = 2000, 2.0
GENERATOR = np.random.default_rng(5)
AGE = GENERATOR.uniform(20, 60, N).round(1)
IS_ILL = GENERATOR.uniform(size=N) < 1 / (1 + np.exp((40 - AGE) / 10))
DAYS = GENERATOR.integers(1, 29, N)
PROMISE = [
    "--epsilon",
    EPSILON,
    "--delta",
    "1e-5",
    "--ledger",
    "spent.json",
    "--chains",
    "1",
    "--steps",
    "100",
]
LOGISTIC = ["logistic", "table.csv", "--label", "ill", "--bounds", "age=20:60", *PROMISE]
YES_NO = ["--positive", "Yes", "--negative", "No"]
DATES = ["linear", "table.csv", "--label", "age", "--bounds", "age=20:60,day=0:1e9", *PROMISE]

DONE = (0, 3)  # so few draws are not to be relied on


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(stream, "fresh_secret", lambda: np.arange(16, dtype=np.uint32))
    lines = (
        f"{age},{'Yes' if ill else 'No'},2021-05-{day:02}"
        for age, ill, day in zip(AGE, IS_ILL, DAYS, strict=True)
    )
    (tmp_path / "table.csv").write_text("\n".join(["age,ill,day", *lines]) + "\n")
    return tmp_path


def run(*arguments):
    return CliRunner().invoke(main, ["run", *map(str, arguments)])


def verified(path):
    result = CliRunner().invoke(main, ["account", "ledger", path, "--json"])
    return result.exit_code == 0 and json.loads(result.stdout)


SPOILED = {
    "undeclared text": LOGISTIC,
    "wrong case": [*LOGISTIC, "--positive", "yes", "--negative", "no"],
    "one level in another spelling": [*LOGISTIC, "--positive", "Yes", "--negative", "no"],
    "dates as numbers": DATES,
}


@pytest.mark.parametrize("arguments", SPOILED.values(), ids=SPOILED)
def test_a_spoiled_study_is_stopped_with_nearly_all_of_the_budget_left(arguments, folder):
    """All of epsilon was spent, and then the draws were of nothing.

    With other noise 1 of 30 000 such runs is not stopped.
    """
    result = run(*arguments)
    assert result.exit_code == 4 and "Stopped: that is below" in result.output, result.output
    assert not (folder / "posterior.nc").exists()
    assert audit(folder / "spent.json").left.startswith(("98.7% of the", "99.0% of the"))
    (worth,) = re.findall(
        r"9[89].\d% are left in spent.json, worth epsilon = ([\d.]+) by themselves", result.output
    )
    assert 0.98 * EPSILON < float(worth) < EPSILON
    assert "--no-count" in result.output and ("--positive" in result.stderr) == (
        "--label ill" in " ".join(map(str, arguments))
    )


def test_half_a_label_is_refused_before_anything_is_spent(folder):
    result = run(*LOGISTIC, "--positive", "yes")
    assert result.exit_code == 2 and "--positive and --negative go together" in result.output
    assert not (folder / "spent.json").exists()


@pytest.mark.slow
def test_what_a_stopped_run_has_left_pays_for_the_corrected_one(folder):
    assert run(*LOGISTIC).exit_code == 4
    result = run(*LOGISTIC, *YES_NO)
    assert result.exit_code in DONE, result.output
    assert "Budget:   98.7% of epsilon = 2, delta = 1e-05: 100 steps of one chain" in result.output
    (line,) = re.findall(r"Counted:  about (?:\d+) of 2000 rows can be used.*", result.output)
    posterior = load("posterior.nc")
    assert line in posterior.posterior.attrs["plan"]  # whoever opens the file sees what was counted
    assert 0.05 < float(posterior.posterior["age"].mean()) < 0.15
    # The promise is about both counts and the run: the filter's, as large as the budget.
    assert (
        posterior.attrs["epsilon"] == EPSILON and posterior.attrs["accountant"] == "closing-filter"
    )
    assert "the promise covers all of them together" in statement_of(posterior)
    assert verified("posterior.nc")["is_reproduced"] and verified("spent.json")["is_within_budget"]
    assert verified("spent.json")["grants"] == 4  # two counts, a forecast, the rest
    again = run(*LOGISTIC, *YES_NO, "--out", "again.nc")
    assert (
        again.exit_code == 2
        and "0.0% of the budget is left in spent.json: a further run would be beyond"
        in again.output
    )


def test_runs_take_parts_of_a_budget(folder):
    """With the default sampler one run took all of it."""
    parts = [*LOGISTIC, *YES_NO, "--part"]
    first = run(*parts, "0.6")
    assert first.exit_code in DONE and "Budget:   60.0% of epsilon = 2" in first.output, (
        first.output
    )
    assert "Left in spent.json: 40.0% of the budget" in first.output
    assert verified("posterior.nc")["claimed_epsilon"] == EPSILON
    more = run(*parts, "0.6", "--out", "more.nc")
    assert (
        more.exit_code == 2
        and "40.0% of the budget is left in spent.json: one of 0.6 would be beyond" in more.output
    )
    rest = run(*parts, "2/5", "--out", "rest.nc", "--dry-run")
    assert rest.exit_code in DONE and "Budget:   40.0% of epsilon = 2" in rest.output, rest.output
    assert (
        "Budget:   40.0% of epsilon = 2" in run(*parts[:-1], "--out", "rest.nc", "--dry-run").output
    )
    assert audit(folder / "spent.json").num_grants == 3  # a count, a forecast, the rest


def test_a_part_needs_a_ledger():
    without = [
        argument for argument in [*LOGISTIC, *YES_NO] if argument not in ("--ledger", "spent.json")
    ]
    result = run(*without, "--part", "1/3")
    assert (
        result.exit_code == 2
        and "--part 1/3 needs --ledger FILE: the other parts are left in it" in result.output
    )


def test_the_plan_says_what_is_counted_and_when_the_run_stops(folder):
    plan = run(*LOGISTIC, *YES_NO, "--dry-run").output
    assert (
        "Count:    first, for 1% of that: how many rows can be used, and how many with label 0, "
        "and how many with" in plan
    )
    least, of_each = re.search(
        r"stops there, the rest unspent, below (\d+) rows .*, or below (\d+) with label 0", plan
    ).groups()
    deviation = 2**0.5 * 10 / recipes.gaussian_mu(Budget(EPSILON, 1e-5))
    assert int(of_each) == pytest.approx(4 * deviation, abs=1) and int(least) == pytest.approx(
        2**0.5 * 4 * deviation, abs=1
    )
    assert (
        "Count:    none (--no-count)" in run(*LOGISTIC, *YES_NO, "--no-count", "--dry-run").output
    )
    barker = [*LOGISTIC, *YES_NO, "--sampler", "barker", "--steps", "2"]
    assert "Count:    none (only noise-aware takes one)" in run(*barker, "--dry-run").output
    little = run(
        *LOGISTIC, *YES_NO, "--sampler", "noise-aware", "--epsilon", "0.1", "--dry-run"
    ).output
    assert "Count:    none (a hundredth of the budget adds a noise of +-" in little
    assert not (folder / "spent.json").exists()


def test_without_a_ledger_a_stop_says_what_it_has_cost():
    without = [argument for argument in LOGISTIC if argument not in ("--ledger", "spent.json")]
    result = run(*without)
    assert (
        result.exit_code == 4
        and "nobody remembers this: the epsilon of a further run adds to that of the count"
        in result.output
    )
