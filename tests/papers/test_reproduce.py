"""Figures from their cells to the page: end to end, once more where a run was stopped, and where a
cell fails.
"""

import csv
import math

import jax
import numpy as np
import pytest
from scipy.special import log_ndtr
from typer.testing import CliRunner

from dpmcmc.cli import main
from dpmcmc.papers import comparison
from dpmcmc.papers.dphmc import settings as dphmc
from dpmcmc.papers.reproduce import cells, command, drawing, registry
from dpmcmc.papers.reproduce.figure import Cell, Figure, Shown, Size
from dpmcmc.papers.thesis import comparison as thesis_figures
from dpmcmc.papers.thesis import settings as thesis
from dpmcmc.types import Budget

QUICK = Size(is_quick=True, seed=3)


def toy(name: str, log, work: str = "square", numbers=(2.0, 3.0)) -> Figure:
    """A figure of squares."""

    def of_size(size):
        return [
            Cell(
                f"{name}/{number:g}",
                f"tests.papers.toys:{work}",
                {"number": number, "log": str(log)},
            )
            for number in numbers
        ]

    def show(size, results):
        squares = [result["square"] for result in results.values()]
        picture, axes = drawing.grid(1, 1)
        drawing.lines(axes[0, 0], {"DP-HMC": (numbers, squares)})
        table = [{"number": n, "square": s} for n, s in zip(numbers, squares, strict=True)]
        return Shown(f"the sum is {sum(squares):g}", table, picture)

    return Figure(name, "A paper", "Squares <of numbers>", "they grow", "", of_size, show)


def computed(log) -> list[float]:
    return sorted(map(float, log.read_text().split()))


def test_a_figure_end_to_end_and_again(tmp_path):
    log, out = tmp_path / "log", tmp_path / "out"
    said: list[str] = []
    figures = [toy("Toy", log), toy("Other", log, numbers=(5.0,))]
    assert command.reproduce(figures, QUICK, out, 2, said.append) == {}
    assert computed(log) == [2.0, 3.0, 5.0]
    assert "3 cells, 0 of them computed before; the others take about" in said[0]
    assert sum(line.startswith("[") for line in said) == 3
    with (out / "Toy.csv").open() as file:
        assert [row["square"] for row in csv.DictReader(file)] == ["4", "9"]
    assert (out / "Toy.png").stat().st_size > 5000
    page = (out / "index.html").read_text()
    assert "Squares &lt;of numbers&gt;" in page and "the sum is 13" in page and "they grow" in page
    # A stopped run: one cell is missing, and nothing else is computed again
    cells.path_of(figures[0].cells(QUICK)[1], out / "cells").unlink()
    assert command.reproduce(figures, QUICK, out, 2, said.append) == {}
    assert computed(log) == [2.0, 3.0, 3.0, 5.0]


def test_other_arguments_are_another_cell(tmp_path):
    (one, _), (other, _) = (toy("Toy", log).cells(QUICK) for log in ("a", "b"))
    assert cells.path_of(one, tmp_path) != cells.path_of(other, tmp_path)


@pytest.mark.parametrize("work, why", [("fail", "no square of 2"), ("die", "its process ended")])
def test_a_failing_figure_leaves_the_others_alone(tmp_path, work, why):
    log, out = tmp_path / "log", tmp_path / "out"
    figures = [toy("Bad", log, work), toy("Good", log)]
    failures = command.reproduce(figures, QUICK, out, 2, lambda text: None)
    assert list(failures) == ["Bad"] and why in failures["Bad"]
    page = (out / "index.html").read_text()
    assert "the sum is 13" in page and why in page


def test_a_cell_that_failed_is_tried_again(tmp_path):
    log, out = tmp_path / "log", tmp_path / "out"
    figures = [toy("Mended", log, "mended"), toy("Same", log, "mended", numbers=(7.0,))]
    assert len(command.reproduce(figures, QUICK, out, 1, lambda text: None)) == 2
    log.write_text("")
    assert command.reproduce(figures, QUICK, out, 1, lambda text: None) == {}


def test_the_command(tmp_path, monkeypatch):
    log = tmp_path / "log"
    figures = {"Good": toy("Good", log), "Bad": toy("Bad", log, "fail")}
    monkeypatch.setattr(registry, "figures", lambda: figures)
    run = CliRunner().invoke
    assert "Squares <of numbers>" in run(main, ["reproduce", "list"]).output
    out = str(tmp_path / "out")
    good = run(main, ["reproduce", "good", "--out", out])
    assert good.exit_code == 0 and "the sum is 13" in good.output
    assert run(main, ["reproduce", "all", "--out", out]).exit_code == 1
    unknown = run(main, ["reproduce", "T9.9", "--out", out])
    assert unknown.exit_code == 2 and "T9.9" in unknown.output


def test_what_does_not_vary_is_not_cut_off():
    """A constant curve once lay on the upper edge of its panel, half of it hidden."""
    _, ((panel,),) = drawing.grid(1, 1)
    drawing.lines(panel, {"DP-HMC": ([1, 2], [0.3, 0.3])})
    panel.set_ylim(bottom=0)
    assert panel.get_ylim()[1] < 0.32
    drawing.from_zero(panel)
    assert panel.get_ylim()[0] == 0 and panel.get_ylim()[1] > 0.315


def test_every_figure_is_there_and_its_cells_have_names_of_their_own():
    found = registry.figures()
    wanted = "T4.1 T5.1 Table5.1 T6.1 T6.2 T6.3 T6.4 T6.5 T6.6 T6.7 T6.8 H1 H2 H3 F1a F1b F1c F2 F3"
    assert {*wanted.split(), "F4", "P1", "P2", "P3", "P4", "P5", "O1", "O2", "O3"} <= set(found)
    for size in (QUICK, Size(is_quick=False)):
        by_name: dict[str, Cell] = {}
        for figure in found.values():
            for cell in figure.cells(size):
                assert by_name.setdefault(cell.name, cell) == cell, cell.name


def test_what_needs_no_cells_is_shown():
    for name in ("Table5.1", "P1", "P2"):
        shown = registry.figures()[name].show(QUICK, {})
        assert shown.table and shown.finding and "NOT every" not in shown.finding


# -- steps ----------------------------------------------------------------------------------------


def allowed(epsilon: float, delta: float, cost_of_step: float, cost_at_start: float = 0.0) -> int:
    """The papers' accounting: the most steps of composed Gaussians, the closed form of theorem 2.4
    with mu the sum of squared sensitivities over twice the variances.
    """

    def log_delta(mu):
        a = (epsilon - mu) / math.sqrt(2 * mu)
        b = (epsilon + mu) / math.sqrt(2 * mu)
        first, second = log_ndtr(-a), epsilon + log_ndtr(-b)
        return first + np.log1p(-np.exp(second - first))

    low, high = 0, 1
    while log_delta(cost_at_start + high * cost_of_step) <= math.log(delta):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        is_allowed = log_delta(cost_at_start + middle * cost_of_step) <= math.log(delta)
        low, high = (middle, high) if is_allowed else (low, middle)
    return low


def is_near(ours: int, theirs: int) -> bool:
    """Within a per cent, or a step."""
    return abs(ours - theirs) <= max(1, 0.01 * theirs)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name == "Flat banana, d = 2" else pytest.mark.slow)
        for name in thesis.SETTINGS
    ],
)
def test_steps_of_the_thesis(name):
    problem = thesis.make(jax.random.key(0), name, 1000)
    chosen = thesis.SETTINGS[name]
    methods = thesis.methods(problem, chosen)
    num_rows = thesis_figures.NUM_ROWS[name]
    assert problem.num_rows == num_rows
    for epsilon in thesis_figures.epsilons(name, Size(is_quick=False)):
        budget = Budget(epsilon, 0.1 / num_rows)
        for label, walk in (("DP-penalty", chosen.penalty), ("DP-penalty, guided", chosen.guided)):
            theirs = allowed(epsilon, budget.delta, 1 / (2 * walk.tau**2 * num_rows))
            assert is_near(comparison.num_steps(methods[label], budget, 1), theirs), label
        ratio = 1 / (2 * chosen.hmc.tau**2 * num_rows)
        gradient = 1 / (2 * chosen.hmc.tau_gradient**2 * num_rows)
        # L gradients a step and one to begin with, as the thesis counts, k L + 1
        theirs = allowed(epsilon, budget.delta, ratio + chosen.hmc.leapfrog * gradient, gradient)
        assert is_near(comparison.num_steps(methods["DP-HMC"], budget, 1), theirs)


@pytest.mark.parametrize(
    "name", ["Banana", pytest.param("Gaussian, d = 10", marks=pytest.mark.slow)]
)
def test_steps_of_the_hmc_paper(name):
    """Four chains share a budget; the paper's L + 1 gradients are counted here as L and one to
    begin with.
    """
    problem = dphmc.make(jax.random.key(0), name, 1000)
    chosen = dphmc.POSTERIORS[name]
    methods = dphmc.methods(problem, chosen)
    for budget in dphmc.BUDGETS:
        walk = 4 / (2 * chosen.walk_tau**2 * dphmc.NUM_ROWS)
        theirs = allowed(budget.epsilon, budget.delta, walk)
        assert is_near(comparison.num_steps(methods["DP-penalty"], budget, 4), theirs)
        ratio = 4 / (2 * chosen.ratio_tau**2 * dphmc.NUM_ROWS)
        gradient = 4 / (2 * chosen.gradient_tau**2 * dphmc.NUM_ROWS)
        step = ratio + chosen.leapfrog * gradient
        theirs = allowed(budget.epsilon, budget.delta, step, gradient)
        assert is_near(comparison.num_steps(methods["DP-HMC"], budget, 4), theirs)
        papers = allowed(budget.epsilon, budget.delta, step + gradient)
        assert papers <= theirs <= papers * (1 + 1.5 / chosen.leapfrog) + 1
