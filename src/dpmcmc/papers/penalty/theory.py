r"""What the penalty paper proves :cite:p:`yildirim2019exact`, drawn: Theorem 1's schedule,
Proposition 1, and Corollary 1.

Theorem 1: with a sensitivity of c n^-alpha and noise sigma, k(n) = k0 n^(2 alpha) / log n steps are
(epsilon, delta)-private with

    epsilon <= 2 (k0 (2 alpha + beta) beta)^(1/2) c / sigma + 4 k0 (c / sigma)^2 (2 alpha + beta),
    delta   <= 1.25 k0 n^-beta / log n + n^-beta.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import dpmcmc
from dpmcmc.acceptance import Penalty
from dpmcmc.accounting import accountants, calibrate
from dpmcmc.accounting.costs import Gaussian
from dpmcmc.papers.reproduce import drawing
from dpmcmc.papers.reproduce.figure import Cell, Figure, Results, Shown, Size, no_cells
from dpmcmc.queries import SufficientStatistic
from dpmcmc.testing import simulate_gaussian_rows

PAPER = "Penalty paper"
ALPHA, BETA, K0, C = 0.5, 1.1, 0.02, 1.0
SIGMAS = (0.5, 1.0, 2.0)
NUMBERS = np.geomspace(1e3, 1e7, 9)
RATIOS = (-2.0, -1.0, 0.0, 1.0, 2.0)
MONTE_CARLO = 200_000
ROWS = (10_000, 100_000, 1_000_000)  # of Corollary 1's runs
QUICK_STEPS, FULL_STEPS = 500, 5000
MOVE = 1.5  # times n^-1/2
RADIUS = 4.0
RATIO_NOISE = 1.5  # standard deviation in the log-ratio for a move of one scale


def schedule(num_rows: float, sigma: float) -> tuple[int, float, float]:
    """Theorem 1: steps, epsilon and delta."""
    logarithm = math.log(num_rows)
    steps = math.floor(K0 * num_rows ** (2 * ALPHA) / logarithm)
    first = 2 * math.sqrt(K0 * (2 * ALPHA + BETA) * BETA) * C / sigma
    epsilon = first + 4 * K0 * (C / sigma) ** 2 * (2 * ALPHA + BETA)
    delta = 1.25 * K0 * num_rows**-BETA / logarithm + num_rows**-BETA
    return steps, epsilon, delta


def exact_epsilon(num_rows: float, sigma: float) -> float:
    """Of the same steps at the same delta, by the closed form for composed Gaussians."""
    steps, _, delta = schedule(num_rows, sigma)
    if steps < 1:
        return float("nan")
    multiplier = sigma / (C * num_rows**-ALPHA)
    return accountants.gaussian_epsilon({Gaussian(multiplier): steps}, delta)


def _show_schedule(size: Size, results: Results) -> Shown:
    figure, axes = drawing.grid(1, 2)
    left, right = axes[0]
    steps = [schedule(number, 1.0)[0] for number in NUMBERS]
    drawing.lines(left, {"steps, k(n)": (NUMBERS, steps)})
    left.set_xscale("log")
    left.set_yscale("log")
    drawing.title(left, f"Schedule, k0 = {K0:g}, α = {ALPHA:g}", "n", "steps")
    table = []
    for number, sigma in enumerate(SIGMAS):
        theirs = [schedule(count, sigma)[1] for count in NUMBERS]
        exact = [exact_epsilon(count, sigma) for count in NUMBERS]
        colour = drawing.OTHERS[number]
        right.plot(NUMBERS, theirs, "--", color=colour, label=f"σ = {sigma:g}: Theorem 1")
        right.plot(NUMBERS, exact, "-o", ms=4, color=colour, label=f"σ = {sigma:g}: exact")
        table += [
            {
                "n": round(count),
                "sigma": sigma,
                "steps": schedule(count, sigma)[0],
                "delta": schedule(count, sigma)[2],
                "epsilon, Theorem 1": bound,
                "epsilon, exact": value,
            }
            for count, bound, value in zip(NUMBERS, theirs, exact, strict=True)
        ]
    right.set_xscale("log")
    right.set_yscale("log")
    drawing.title(right, f"ε of the schedule, β = {BETA:g}", "n", "ε")
    drawing.legend(figure, 4)
    last = table[len(NUMBERS) * 2 - 1]
    multiplier = 1.0 / (C * NUMBERS[-1] ** -ALPHA)
    more = calibrate.steps(
        {Gaussian(multiplier): 1}, last["epsilon, Theorem 1"], last["delta"], method="gaussian"
    )
    return Shown(
        "The schedule is private with a constant ε while k(n) grows almost like n: at σ = 1 and n "
        f"= 10⁷ the theorem has ε = {last['epsilon, Theorem 1']:.2f}, the exact composition of the "
        f"same steps at the same δ {last['epsilon, exact']:.2f}. With the theorem's ε and δ it "
        f"allows {more} steps in place of {last['steps']}.",
        table,
        figure,
    )


def _show_acceptance(size: Size, results: Results) -> Shown:
    sigmas = np.linspace(0.02, 5, 60)
    figure, axes = drawing.grid(1, 1, 6.0, 4.0)
    generator = np.random.default_rng(size.seed)
    noise = generator.normal(size=MONTE_CARLO)
    table: list[dict[str, Any]] = []
    worst = 0.0
    curves = {}
    for ratio in RATIOS:
        exact = [float(Penalty(sigma).probability(ratio)) for sigma in sigmas]
        curves[f"λ = {ratio:g}"] = (sigmas, exact)
        for sigma in sigmas[9::15]:
            drawn = np.mean(np.minimum(1.0, np.exp(ratio + sigma * noise - sigma**2 / 2)))
            formula = float(Penalty(float(sigma)).probability(ratio))
            worst = max(worst, abs(float(drawn) - formula))
            table.append(
                {
                    "log-ratio": ratio,
                    "sigma": float(sigma),
                    "formula": formula,
                    "drawn": float(drawn),
                }
            )
    drawing.lines(axes[0, 0], curves, has_marks=False)
    drawing.paper_points(
        axes[0, 0],
        [row["sigma"] for row in table],
        [row["drawn"] for row in table],
        "E min(1, exp(λ + σZ − σ²/2)), drawn",
    )
    drawing.title(axes[0, 0], "Penalty test", "σ", "probability to accept")
    drawing.legend(figure, 3)
    falls = all(np.all(np.diff(values) <= 0) for _, values in curves.values())
    return Shown(
        f"{'Every curve falls' if falls else 'NOT every curve falls'} with σ; the formula and "
        f"{MONTE_CARLO} draws of its definition differ by {worst:.4f} at most.",
        table,
        figure,
    )


def statistic_cell(num_rows: int, num_steps: int, seed: int) -> dict[str, Any]:
    """A run of the penalty test on a noisy statistic, with Corollary 1's noise for so many rows."""
    key_rows, key_run = jax.random.split(jax.random.key(seed))
    rows = simulate_gaussian_rows(key_rows, num_rows, jnp.zeros(1), [1.0])
    model = dpmcmc.models.gaussian([1.0], prior_scale=10.0, radius=RADIUS)
    length = MOVE * num_rows**-0.5
    # Noise growing like n^(1/2), for moves that shrink like n^(-1/2): RATIO_NOISE in the log-ratio
    query = SufficientStatistic(RATIO_NOISE / (2 * RADIUS * length))
    walk = dpmcmc.random_walk(length, 3 * length)
    secret = np.asarray(jax.random.bits(key_run, (16,)))
    found = dpmcmc.sample(
        key_run,
        dpmcmc.exponential_penalty(model, query, walk),
        dpmcmc.Curator(np.asarray(rows), model, None, fixed_secret=secret),
        jnp.zeros((4, 1)),
        num_steps=num_steps,
        num_chains=4,
        warmup=0.2,
        progress=False,
    )
    stats = found.sample_stats
    budget = dpmcmc.Budget(4.0, 0.1 / num_rows)
    steps = calibrate.steps({query.cost(budget.unit): 1}, budget.epsilon, budget.delta)
    return {"accepted": float(np.mean(stats["acceptance"].values)), "steps": steps}


def _statistic_cells(size: Size) -> list[Cell]:
    return [
        Cell(
            f"penalty/statistic/{num_rows}",
            "dpmcmc.papers.penalty.theory:statistic_cell",
            {
                "num_rows": num_rows,
                "num_steps": QUICK_STEPS if size.is_quick else FULL_STEPS,
                "seed": size.seed,
            },
            12.0,
        )
        for num_rows in ROWS
    ]


def _show_statistic(size: Size, results: Results) -> Shown:
    found = [results[cell.name] for cell in _statistic_cells(size)]
    figure, axes = drawing.grid(1, 2)
    left, right = axes[0]
    drawing.lines(left, {"accepted moves": (ROWS, [one["accepted"] for one in found])})
    drawing.lines(right, {"steps at ε = 4": (ROWS, [one["steps"] for one in found])})
    left.set_ylim(0, 1)
    right.set_yscale("log")
    for place in (left, right):
        place.set_xscale("log")
    drawing.title(left, "Noise growing like the root of n", "n", "share accepted")
    drawing.title(right, "Steps that a budget allows", "n", "steps, δ = 0.1 / n")
    table = [
        {"n": count, "accepted": one["accepted"], "steps at epsilon 4": one["steps"]}
        for count, one in zip(ROWS, found, strict=True)
    ]
    growth = found[-1]["steps"] / found[0]["steps"]
    return Shown(
        "Noise of √n on the statistic leaves the acceptance where it is ("
        + ", ".join(f"{one['accepted']:.2f}" for one in found)
        + f") while the steps at ε = 4 grow {growth:.0f}-fold from n "
        f"= {ROWS[0]} to {ROWS[-1]}.",
        table,
        figure,
    )


FIGURES = [
    Figure(
        "P1",
        PAPER,
        "Theorem 1: how many steps, at which ε",
        "The number of steps grows almost like n^(2α) at a constant ε and with noise that does not "
        "grow; ε = O(1) and δ = o(1/n).",
        "True, and loose: advanced composition of Gaussians, where their exact composition is "
        "known.",
        no_cells,
        _show_schedule,
        lambda size: f"c = {C:g}, β = {BETA:g}; nothing is drawn at random.",
    ),
    Figure(
        "P2",
        PAPER,
        "Proposition 1: acceptance against σ",
        "The probability to accept decreases in σ².",
        "",
        no_cells,
        _show_acceptance,
    ),
    Figure(
        "P5",
        PAPER,
        "Corollary 1: exponential families keep a bounded noise",
        "With noise of variance n^(2α) on the statistic the log-ratio's noise stays bounded, and "
        "the budget is that of Theorem 1.",
        "",
        _statistic_cells,
        _show_statistic,
        lambda size: (
            f"Mean of a Gaussian, 4 chains of {QUICK_STEPS if size.is_quick else FULL_STEPS} steps "
            f"for each n; moves of {MOVE:g} n^(-1/2)."
        ),
    ),
]
