r"""How many steps a budget allows, by the papers' bounds and by ours: :cite:p:`raisa2021thesis`,
Figure 6.1.

The thesis' settings for the two-dimensional flat banana, of 100 000 rows. For each algorithm the
looser and the tighter of the thesis' two bounds, and what this package runs instead: the accept bit
alone in place of the noisy ratio, with the same noise; the exact profile of a batch of fixed size;
one gradient less in each step of DP-HMC. And Barker's test on minibatches, for which the thesis has
one bound and asks for a better one. No rows are needed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from dpmcmc.acceptance import Penalty
from dpmcmc.accounting import calibrate, papers
from dpmcmc.accounting.costs import AcceptBit, DPBarker, Gaussian, SubsampledGaussian
from dpmcmc.papers.reproduce import drawing
from dpmcmc.papers.reproduce.figure import Cell, Figure, Results, Shown, Size
from dpmcmc.types import Neighbours

NUM_ROWS = 100_000
EPSILONS = (0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0)
DELTA = 0.1 / NUM_ROWS
TAU = 0.1  # DP-penalty, and the ratio of DP-HMC: noise of 2 tau n^(1/2) clips
TAU_GRADIENT, LEAPFROG = 0.4, 10
BATCH, BATCH_TAU = 1000, 0.7  # minibatch penalty: a variance of tau squared sensitivities
BARKER_BATCH = 1300
LONGEST_NOISE = 2.0  # inside a penalty bit, at the longest move

Curves = Mapping[str, list[int]]  # steps by epsilon


def penalty() -> Curves:
    """Noisy ratios, and the bits of the same test."""
    noise = TAU * math.sqrt(NUM_ROWS)
    bit = AcceptBit(Penalty(LONGEST_NOISE), LONGEST_NOISE / noise)
    return {
        "zCDP (Theorem 3.1)": [
            papers.penalty_steps(epsilon, DELTA, TAU, NUM_ROWS) for epsilon in EPSILONS
        ],
        "exact (Theorem 3.2)": _steps({Gaussian(noise): 1}),
        "ours: the bit alone": _steps({bit: 1}),
    }


def minibatch_penalty() -> Curves:
    """Noisy ratios of fixed-size batches."""
    batch = SubsampledGaussian(
        "fixed", BATCH / NUM_ROWS, math.sqrt(BATCH_TAU), Neighbours.REPLACE_ONE
    )
    return {
        "Rényi (Theorem 3.5)": _steps({batch: 1}, "rdp-paper"),
        "Fourier accountant's pair": _steps({batch: 1}, "pld-pair"),
        "ours: exact profile": _steps({batch: 1}),
    }


def hmc() -> Curves:
    """A noisy ratio and noisy gradients."""
    ratio = Gaussian(TAU * math.sqrt(NUM_ROWS))
    gradient = Gaussian(TAU_GRADIENT * math.sqrt(NUM_ROWS))
    return {
        "zCDP (Theorem 4.2)": [
            papers.hmc_steps(epsilon, DELTA, TAU, TAU_GRADIENT, NUM_ROWS, LEAPFROG)
            for epsilon in EPSILONS
        ],
        "exact (Theorem 4.3)": _steps({ratio: 1, gradient: LEAPFROG + 1}),
        "ours: a gradient less": _steps({ratio: 1, gradient: LEAPFROG}, initial={gradient: 1}),
    }


def barker() -> Curves:
    """DP Barker on minibatches."""
    paper, tight = (DPBarker(BARKER_BATCH, NUM_ROWS, bound) for bound in ("paper", "tight"))
    return {
        "Rényi (Theorem 3.3)": _steps({paper: 1}, "rdp-paper"),
        "its best conversion": _steps({paper: 1}, "rdp"),
        "ours: tight divergence": _steps({tight: 1}),
    }


def _steps(per_step, method: str | None = None, initial=None) -> list[int]:
    return [calibrate.steps(per_step, epsilon, DELTA, initial, method) for epsilon in EPSILONS]


ALGORITHMS = {
    "DP-penalty": penalty,
    "Minibatch penalty": minibatch_penalty,
    "DP-HMC": hmc,
    "DP Barker": barker,
}


def steps(algorithm: str) -> dict[str, list[int]]:
    """A cell: the curves of one algorithm."""
    return {
        label: [int(count) for count in some] for label, some in ALGORITHMS[algorithm]().items()
    }


def _cells(size: Size) -> list[Cell]:
    return [
        Cell(
            f"thesis/accounting-{name.lower().replace(' ', '-')}/steps",
            "dpmcmc.papers.thesis.accounting:steps",
            {"algorithm": name},
            60.0 if name.startswith("Minibatch") else 10.0,
        )
        for name in ALGORITHMS
    ]


def _show(size: Size, results: Results) -> Shown:
    by_name = {cell.arguments["algorithm"]: results[cell.name] for cell in _cells(size)}
    figure, axes = drawing.grid(2, 2)
    table: list[dict[str, Any]] = []
    gains = []
    for place, (name, curves) in zip(axes.ravel(), by_name.items(), strict=True):
        positive = {
            label: (EPSILONS, np.where(np.array(counts) > 0, counts, np.nan))
            for label, counts in curves.items()
        }
        drawing.lines(place, positive)
        place.set_yscale("log")
        drawing.title(place, name, "ε", "steps")
        place.legend(frameon=False, fontsize=8)
        table += [
            {"algorithm": name, "bound": label, "epsilon": epsilon, "steps": count}
            for label, counts in curves.items()
            for epsilon, count in zip(EPSILONS, counts, strict=True)
        ]
        first, *_, last = curves.values()
        gains.append(f"{name} {last[-1] / first[-1]:.2f}")
    return Shown(
        "Steps by our bound for each step by the first at ε = 6: " + ", ".join(gains),
        table,
        figure,
    )


FIGURES = [
    Figure(
        "T6.1",
        "Räisä's thesis",
        "Steps that a budget allows, by each bound",
        "Tight bounds allow many more steps than zCDP or Rényi bounds, for all three algorithms; a "
        "better one for DP Barker is asked for.",
        "Besides the thesis' bounds there are ours: the accept bit alone, exact profiles of "
        "batches, a gradient less in a step, and a tight Rényi divergence for DP Barker.",
        _cells,
        _show,
        lambda size: (
            f"Flat banana, d = 2: n = {NUM_ROWS}, δ = {DELTA:g}. Nothing is drawn at random."
        ),
    )
]
