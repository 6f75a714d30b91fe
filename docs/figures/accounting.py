"""Steps against epsilon for every kind of query and every valid method:
docs/figures/accounting.png.

python docs/figures/accounting.py
"""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from dpmcmc.acceptance import Barker, LazyBarker, Penalty
from dpmcmc.accounting import calibrate
from dpmcmc.accounting.costs import (
    ZCDP,
    AcceptBit,
    DPBarker,
    Gaussian,
    MinibatchBarker,
    PoissonMixture,
    SubsampledGaussian,
)
from dpmcmc.accounting.laws.minibatch import loss_range
from dpmcmc.types import Neighbours

DELTA = 1e-6
EPSILONS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
REPLACE, ADD = Neighbours.REPLACE_ONE, Neighbours.ADD_OR_REMOVE_ONE
LARGEST_RECURSION = 4.0  # a longer run takes minutes
RANGE, SIGMA = 0.1, 1.0
ROW_BOUND = RANGE / 2
RATE, MULTIPLIER = 0.01, 2.5

BARKER, LAZY, PENALTY, RATIO = "#0072B2", "#009E73", "#D55E00", "#555555"
FIXED, POISSON, MIXTURE = "#D55E00", "#0072B2", "#CC79A7"
BEST, FINE, LOOSE, PAPER = "-", (0, (5, 1.5)), (0, (3, 1.5, 1, 1.5)), (0, (1, 1.2))

# label, cost, method, colour, line
FULL = [
    (
        "lazy Barker bit, κ = ¼: recursion",
        AcceptBit(LazyBarker(0.25), RANGE),
        "recursion",
        LAZY,
        BEST,
    ),
    ("lazy Barker bit, κ = ¼: RDP", AcceptBit(LazyBarker(0.25), RANGE), "rdp", LAZY, FINE),
    ("Barker bit: recursion", AcceptBit(Barker(), RANGE), "recursion", BARKER, BEST),
    ("Barker bit: RDP", AcceptBit(Barker(), RANGE), "rdp", BARKER, FINE),
    ("Barker bit: zCDP", AcceptBit(Barker(), RANGE), "zcdp", BARKER, LOOSE),
    ("Barker bit: advanced", AcceptBit(Barker(), RANGE), "advanced", BARKER, PAPER),
    ("penalty bit, σ = 1: recursion", AcceptBit(Penalty(SIGMA), RANGE), "recursion", PENALTY, BEST),
    ("penalty bit, σ = 1: RDP", AcceptBit(Penalty(SIGMA), RANGE), "rdp", PENALTY, FINE),
    ("penalty ratio, σ = 1: exact", Gaussian(SIGMA / RANGE), "gaussian", RATIO, BEST),
    ("penalty ratio: zCDP, papers", Gaussian(SIGMA / RANGE), "zcdp-paper", RATIO, LOOSE),
    ("penalty ratio: advanced", Gaussian(SIGMA / RANGE), "advanced", RATIO, PAPER),
]
BATCHES = [
    (
        "Poisson, add/remove: PLD",
        SubsampledGaussian("poisson", RATE, MULTIPLIER, ADD),
        "pld",
        POISSON,
        BEST,
    ),
    (
        "Poisson, replace: PLD",
        SubsampledGaussian("poisson", RATE, MULTIPLIER, REPLACE),
        "pld",
        POISSON,
        LOOSE,
    ),
    (
        "Poisson, add/remove: RDP",
        SubsampledGaussian("poisson", RATE, MULTIPLIER, ADD),
        "rdp",
        POISSON,
        FINE,
    ),
    (
        "fixed size: PLD of the profile",
        SubsampledGaussian("fixed", RATE, MULTIPLIER, REPLACE),
        "pld",
        FIXED,
        BEST,
    ),
    (
        "fixed size: PLD of the ± pair",
        SubsampledGaussian("fixed", RATE, MULTIPLIER, REPLACE),
        "pld-pair",
        FIXED,
        LOOSE,
    ),
    ("fixed size: RDP", SubsampledGaussian("fixed", RATE, MULTIPLIER, REPLACE), "rdp", FIXED, FINE),
    (
        "fixed size: RDP, papers",
        SubsampledGaussian("fixed", RATE, MULTIPLIER, REPLACE),
        "rdp-paper",
        FIXED,
        PAPER,
    ),
    (
        "draws Poisson(0.0015), S/W = 0.97, add/remove: PLD",
        PoissonMixture(1.5e-3, 1.0, 0.97, ADD),
        "pld",
        MIXTURE,
        BEST,
    ),
    (
        "draws Poisson(0.0015), S/W = 0.97, replace: PLD",
        PoissonMixture(1.5e-3, 1.0, 0.97, REPLACE),
        "pld",
        MIXTURE,
        LOOSE,
    ),
]
BARKERS = [
    ("DP Barker, tight bound: RDP", DPBarker(1000, 100_000), "rdp", FIXED, BEST),
    ("DP Barker, tight bound: RDP, papers'", DPBarker(1000, 100_000), "rdp-paper", FIXED, FINE),
    ("DP Barker, papers' bound: RDP", DPBarker(1000, 100_000, "paper"), "rdp", FIXED, LOOSE),
    (
        "DP Barker, papers' bound: RDP, papers'",
        DPBarker(1000, 100_000, "paper"),
        "rdp-paper",
        FIXED,
        PAPER,
    ),
    ("full-data Barker bit: RDP", AcceptBit(Barker(), RANGE), "rdp", BARKER, BEST),
    ("minibatch Barker, ratio 1: RDP", MinibatchBarker(ROW_BOUND, 1.0), "rdp", LAZY, BEST),
    ("minibatch Barker, ratio 6.6: RDP", MinibatchBarker(ROW_BOUND, 6.6), "rdp", LAZY, FINE),
    (
        "minibatch Barker, ratio 1: proved range",
        ZCDP(loss_range(ROW_BOUND, 1.0) ** 2 / 8),
        "zcdp",
        LAZY,
        PAPER,
    ),
]
PANELS = [
    ("All rows read\nrange Δ = 0.1", FULL),
    ("Gaussian noise on batches\nq = 0.01, std / sensitivity = 2.5", BATCHES),
    ("Accept bits on batches\nDP Barker: b = 1 000, n = 100 000; rest: Δ = 0.1", BARKERS),
]


def draw(axes, title, curves):
    """Steps that fit at each epsilon; a budget that allows none is left out."""
    for label, cost, method, colour, line in curves:
        budgets = [
            epsilon for epsilon in EPSILONS if method != "recursion" or epsilon <= LARGEST_RECURSION
        ]
        steps = [calibrate.steps({cost: 1}, epsilon, DELTA, method=method) for epsilon in budgets]
        shown = [
            (epsilon, count) for epsilon, count in zip(budgets, steps, strict=True) if count > 0
        ]
        axes.plot(
            *zip(*shown, strict=True), color=colour, linestyle=line, linewidth=1.7, label=label
        )
        print(f"{label:45s}", *(f"{count:9d}" for count in steps), flush=True)
    axes.set(xscale="log", yscale="log", xlabel="ε")
    axes.set_title(title, fontsize=10)
    axes.set_xticks(EPSILONS, [f"{epsilon:g}" for epsilon in EPSILONS], minor=False)
    axes.minorticks_off()
    axes.grid(color="#dddddd", linewidth=0.6)
    axes.legend(
        fontsize=8,
        frameon=False,
        loc="upper center",
        bbox_to_anchor=(0.5, -0.14),
        ncol=1,
        handlelength=3.5,
    )


def main():
    figure, panels = plt.subplots(1, 3, figsize=(13, 7.4))
    for axes, (title, curves) in zip(panels, PANELS, strict=True):
        draw(axes, title, curves)
    panels[0].set_ylabel("steps that fit, δ = 1e-6")
    figure.tight_layout()
    figure.savefig(Path(__file__).with_suffix(".png"), dpi=130)


if __name__ == "__main__":
    main()
