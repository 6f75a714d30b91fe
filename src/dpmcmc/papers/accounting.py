r"""How many steps a budget allows, by the papers' bounds and by ours: :cite:p:`raisa2021thesis`,
Figure 6.1.

    python -m dpmcmc.papers.accounting

The thesis' settings for the two-dimensional flat banana, of 100 000 rows. For each algorithm the
looser and the tighter of the thesis' two bounds, and what this package runs instead: the accept bit
alone in place of the noisy ratio, with the same noise; the exact profile of a batch of fixed size;
one gradient less in each step of DP-HMC. And Barker's test on minibatches, for which the thesis has
one bound and asks for a better one. No rows are needed.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping

import numpy as np

from dpmcmc.acceptance import Penalty
from dpmcmc.accounting import calibrate, papers
from dpmcmc.accounting.costs import AcceptBit, DPBarker, Gaussian, SubsampledGaussian
from dpmcmc.results import plots
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


def table(results: Mapping[str, Curves]) -> str:
    """In Markdown."""
    lines = [
        f"| | {' | '.join(f'ε = {epsilon:g}' for epsilon in EPSILONS)} |",
        "|---" * (1 + len(EPSILONS)) + "|",
    ]
    for name, curves in results.items():
        for label, steps in curves.items():
            lines.append(
                f"| {name}, {label} | "
                f"{' | '.join(f'{count:,}'.replace(',', ' ') for count in steps)} |"
            )
    return "\n".join(lines)


def figure(results: Mapping[str, Curves], path: str) -> None:
    panels = []
    for name, curves in results.items():
        values = {
            label: (EPSILONS, np.where(np.array(steps) > 0, steps, np.nan)[:, None])
            for label, steps in curves.items()
        }
        panels.append(plots.Panel(f"{name}: steps", "ε", values, is_high=True))
    plots.medians(panels, path, is_shared=False)


def main(path: str = "accounting.png") -> None:
    results = {name: curves() for name, curves in ALGORITHMS.items()}
    print(table(results))
    figure(results, path)
    print(f"\nWritten to {path}.")


if __name__ == "__main__":
    main(*sys.argv[1:])
