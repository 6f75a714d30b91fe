"""The time of a step against the number of rows :cite:p:`yildirim2019exact` (Algorithm 3): an
exponential family reads its rows once, and a step does not depend on how many they are.
"""

from __future__ import annotations

import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import dpmcmc
from dpmcmc.papers.reproduce import drawing
from dpmcmc.papers.reproduce.figure import Cell, Figure, Results, Shown, Size
from dpmcmc.queries import LogRatio, SufficientStatistic
from dpmcmc.testing import simulate_gaussian_rows

ROWS = (1000, 10_000, 100_000, 1_000_000)
THIN = 20
SHORT = 20  # steps of the run that is subtracted: start and end
NAMES = ("DP-penalty", "Exponential family")
READINGS = 2e8  # rows that a run of the penalty test reads: long beside the time of its start
REPEATS = 2  # of which the quickest counts: the machine may have other work
RADIUS = 4.0


def cell(num_rows: int, seed: int) -> dict[str, float]:
    """CPU seconds of a step: the difference of a long run and a short one."""
    rows = np.asarray(simulate_gaussian_rows(jax.random.key(seed), num_rows, jnp.zeros(1), [1.0]))
    model = dpmcmc.models.gaussian([1.0], prior_scale=10.0, radius=RADIUS)
    walk = dpmcmc.random_walk(num_rows**-0.5)
    assert model.lipschitz is not None
    samplers = {
        "DP-penalty": dpmcmc.penalty(model.log_prior, LogRatio(model.lipschitz, 50.0), walk),
        "Exponential family": dpmcmc.exponential_penalty(model, SufficientStatistic(50.0), walk),
    }
    steps = {"DP-penalty": min(5000, round(READINGS / num_rows)), "Exponential family": 100_000}
    return {name: _seconds(samplers[name], rows, model, steps[name]) for name in NAMES}


def _seconds(sampler: Any, rows: np.ndarray, model: Any, num_steps: int) -> float:
    curator = dpmcmc.Curator(rows, model, None)

    def run(count: int) -> float:
        begun = time.process_time()
        dpmcmc.sample(
            jax.random.key(1),
            sampler,
            curator,
            jnp.zeros((1, 1)),
            num_steps=count,
            num_chains=1,
            thin=THIN,
            warmup=0.0,
            progress=False,
        )
        return time.process_time() - begun

    counts = SHORT, SHORT + num_steps
    short, long = (min(run(count) for _ in range(REPEATS)) for count in counts)
    return max(long - short, 1e-7) / num_steps


def _cells(size: Size) -> list[Cell]:
    return [
        Cell(
            f"penalty/speed/{count}",
            "dpmcmc.papers.penalty.speed:cell",
            {"num_rows": count, "seed": size.seed},
            30.0,
        )
        for count in ROWS
    ]


def _show(size: Size, results: Results) -> Shown:
    cells = _cells(size)
    rows = [one.arguments["num_rows"] for one in cells]
    figure, axes = drawing.grid(1, 1, 6.0, 4.0)
    curves = {name: (rows, [1000 * results[one.name][name] for one in cells]) for name in NAMES}
    drawing.lines(axes[0, 0], curves)
    drawing.logarithmic(axes[0, 0], rows)
    axes[0, 0].set_yscale("log")
    drawing.title(
        axes[0, 0], "One chain, mean of a Gaussian", "n", "milliseconds of a step, all cores"
    )
    drawing.legend(figure)
    table = [
        {"n": count, **{f"{name}, ms": times[1][at] for name, times in curves.items()}}
        for at, count in enumerate(rows)
    ]
    growth = {name: values[1][-1] / values[1][0] for name, values in curves.items()}
    return Shown(
        f"From n = {rows[0]} to {rows[-1]} a step of the penalty test on all rows takes "
        f"{growth['DP-penalty']:.0f} times as long, one on the statistic "
        f"{growth['Exponential family']:.1f} times.",
        table,
        figure,
    )


FIGURES = [
    Figure(
        "P4",
        "Penalty paper",
        "Time of a step against n for an exponential family",
        "With a sufficient statistic the time of a step does not depend on n after one pass.",
        "",
        _cells,
        _show,
        lambda size: "Processor time, added over cores, of the machine that made this page.",
    )
]
