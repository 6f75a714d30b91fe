"""How a chain mixes when several owners add noise of their own :cite:p:`yildirim2019exact`
(Algorithm 2): each owner's ratio has the whole noise, and the variances add.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import dpmcmc
from dpmcmc.acceptance import Penalty
from dpmcmc.papers.reproduce import drawing
from dpmcmc.papers.reproduce.figure import Cell, Figure, Results, Shown, Size
from dpmcmc.queries import LogRatio
from dpmcmc.results.arviz import summary_table
from dpmcmc.testing import simulate_gaussian_rows

OWNERS = (1, 2, 4, 8)
NUM_ROWS = 8000  # of all owners
NOISE = 1.0  # of each owner's ratio, for the typical move
STEP = 1.5  # in posterior standard deviations
RADIUS = 4.0
QUICK_STEPS, FULL_STEPS = 2000, 5000
MONTE_CARLO = 4000  # moves that the expected share is the mean of
NUM_CHAINS = 8


def cell(num_owners: int, num_steps: int, seed: int) -> dict[str, Any]:
    """Accepted moves, and effective draws for each step."""
    key_rows, key_run = jax.random.split(jax.random.key(seed))
    rows = np.asarray(simulate_gaussian_rows(key_rows, NUM_ROWS, jnp.zeros(1), [1.0]))
    model = dpmcmc.models.gaussian([1.0], prior_scale=10.0, radius=RADIUS)
    scale = STEP * NUM_ROWS**-0.5
    assert model.lipschitz is not None
    query = LogRatio(model.lipschitz, NOISE / (2 * model.lipschitz * scale))
    parts = np.array_split(rows, num_owners)
    curators = [dpmcmc.Curator(part, model, None) for part in parts]
    data = curators[0] if num_owners == 1 else dpmcmc.Federation(curators)
    found = dpmcmc.sample(
        key_run,
        dpmcmc.penalty(model.log_prior, query, dpmcmc.random_walk(scale)),
        data,
        jnp.zeros((NUM_CHAINS, 1)),
        num_steps=num_steps,
        num_chains=NUM_CHAINS,
        warmup=0.2,
        progress=False,
    )
    accepted = found.sample_stats["acceptance"].values
    effective = float(summary_table(found)["ess_bulk"].iloc[0])
    return {"accepted": float(np.mean(accepted)), "effective": effective / accepted.size}


def expected(seed: int) -> list[float]:
    """The share of accepted moves by number of owners: Proposition 1, on average over the moves of
    a chain that has the posterior's law, which is Gaussian.
    """
    generator = np.random.default_rng(seed)
    position, move = generator.normal(size=(2, MONTE_CARLO))
    ratios = (position**2 - (position + STEP * move) ** 2) / 2
    shares = []
    for count in OWNERS:
        deviations = NOISE * count**0.5 * np.abs(move)
        each = [
            Penalty(float(deviation)).probability(float(ratio))
            for deviation, ratio in zip(deviations, ratios, strict=True)
        ]
        shares.append(float(np.mean(each)))
    return shares


def _cells(size: Size) -> list[Cell]:
    return [
        Cell(
            f"penalty/owners/{count}",
            "dpmcmc.papers.penalty.owners:cell",
            {
                "num_owners": count,
                "num_steps": QUICK_STEPS if size.is_quick else FULL_STEPS,
                "seed": size.seed,
            },
            15.0,
        )
        for count in OWNERS
    ]


def _show(size: Size, results: Results) -> Shown:
    found = [results[one.name] for one in _cells(size)]
    figure, axes = drawing.grid(1, 2)
    left, right = axes[0]
    accepted = [one["accepted"] for one in found]
    effective = [one["effective"] for one in found]
    drawing.lines(left, {"DP-penalty": (OWNERS, accepted)})
    left.plot(OWNERS, expected(size.seed), ":", color="0.3", label="expected by Proposition 1")
    left.set_ylim(0, 1)
    drawing.title(left, "Accepted moves", "owners", "share")
    drawing.lines(right, {"DP-penalty": (OWNERS, effective)})
    right.set_ylim(bottom=0)
    drawing.title(right, "Mixing", "owners", "effective draws for each step")
    drawing.legend(figure)
    table = [
        {"owners": count, "accepted": one["accepted"], "effective draws a step": one["effective"]}
        for count, one in zip(OWNERS, found, strict=True)
    ]
    return Shown(
        f"From one owner to {OWNERS[-1]} the share of accepted moves falls from {accepted[0]:.2f} "
        f"to {accepted[-1]:.2f}, and effective draws of a step from {effective[0]:.3f} to "
        f"{effective[-1]:.3f}.",
        table,
        figure,
    )


FIGURES = [
    Figure(
        "P3",
        "Penalty paper",
        "Mixing against the number of owners",
        "With several owners the variances of the noise add, and acceptance falls; the chain stays "
        "exact.",
        "",
        _cells,
        _show,
        lambda size: (
            f"Mean of a Gaussian, n = {NUM_ROWS} in all, {NUM_CHAINS} chains of "
            f"{QUICK_STEPS if size.is_quick else FULL_STEPS} steps; each owner's noise has a "
            f"standard deviation of {NOISE:g} for a move of one scale."
        ),
    )
]
