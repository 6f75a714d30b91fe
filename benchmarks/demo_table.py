"""The demo over many seeds and budgets: prints a table of docs/demo.md.

python benchmarks/demo_table.py [number of seeds] [noise-aware or sgld]
"""

from __future__ import annotations

import sys

import jax
import numpy as np

from dpmcmc import demo

EPSILONS, DELTA = (4.0, 2.0, 1.0, 0.5, 0.25), 1e-6


def main() -> None:
    num_seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    sampler = sys.argv[2] if len(sys.argv) > 2 else "noise-aware"
    print(
        "| epsilon | rms error | largest rms error | R-hat | effective draws | width of intervals "
        "| coverage | runs that passed |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for epsilon in EPSILONS:
        found = [
            demo.judge(demo.run(epsilon, DELTA, seed, progress=False, sampler=sampler))
            for seed in range(num_seeds)
        ]
        middle = demo.Judgement(
            *np.median([judgement[:-1] for judgement in found], axis=0), doubt=None
        )
        passed = sum(judgement.is_success for judgement in found)
        worst, coverage = max(j.rms_error for j in found), np.mean([j.coverage for j in found])
        cells = [
            f"{epsilon:g}",
            f"{middle.rms_error:.2f} sd",
            f"{worst:.2f} sd",
            f"{middle.r_hat:.2f}",
            f"{middle.ess:.0f}",
        ]
        cells += [f"{middle.width:.2f}", f"{coverage:.0%}", f"{passed} of {num_seeds}"]
        print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    jax.config.update("jax_compilation_cache_dir", ".venv/compiled")
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    main()
