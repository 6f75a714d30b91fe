"""Every sampler explores the same curved posterior, within a budget:
docs/figures/samplers/NAME.png.

MPLBACKEND=Agg python docs/figures/samplers.py            # all of them: some minutes on two cores
MPLBACKEND=Agg python docs/figures/samplers.py hmc sgld   # these

The rows are simulated, and the noise comes from a fixed secret so that the figures can be made
again. The budgets are real. Clips and steps were chosen with the shape of the posterior in mind; on
real rows they have to come from public facts. The contours hold 50 % and 95 % of the exact
posterior.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

import dpmcmc
from dpmcmc import Barker, Budget, Curator, models, random_walk, recipes, testing
from dpmcmc.accounting import accountants
from dpmcmc.accounting.costs import ZCDP
from dpmcmc.queries import FixedBatch, Gradient, LogRatio
from dpmcmc.results.plots import COLOURS

FOLDER = Path(__file__).with_suffix("")
SECRET = np.arange(16, dtype=np.uint32)
ROWS, BUDGET = 100_000, Budget(4, 1e-6)
CHAIN, DRAWS = COLOURS[1], COLOURS[0]
LIMITS = (-3.6, 3.6), (-2.2, 4.8)
START = (0.0, 3.0)  # public, and six standard deviations off

# Of the posterior, whatever the number of rows
DEVIATIONS, CURVATURE, PRIOR_SCALE = np.array([1.0, 0.6]), -0.3, 10.0
# Of the Gaussian posterior, its mean about
COVARIANCE, MEAN = np.array([[1.0, 0.5], [0.5, 0.8]]), np.array([0.0, 0.4])
LONGEST = 0.6  # move


class Problem(NamedTuple):
    """A table, a model, and the exact posterior."""

    model: Any
    rows: Any
    clip: float  # that few rows reach, per length of a move
    # Squared, from the posterior mean, in standard deviations: of points (..., 2)
    distance: Callable[[np.ndarray], np.ndarray]


def banana(num_rows: int = ROWS, temperature: float = 1.0) -> Problem:
    """Rows that are as wide as to make the posterior, tempered or not, the same for every number of
    rows.
    """
    variances = temperature * num_rows * DEVIATIONS**2
    rows = np.asarray(
        testing.simulate_banana_rows(jax.random.key(1), num_rows, (0.0, 0.0), variances, CURVATURE),
        np.float32,
    )
    mean, covariance = map(
        np.asarray, testing.gaussian_posterior(rows, variances, PRIOR_SCALE, 0.0, temperature)
    )

    def distance(points):
        straight = np.stack(
            [points[..., 0], points[..., 1] + CURVATURE * points[..., 0] ** 2], axis=-1
        )
        return np.sum((straight - mean) ** 2 / np.diag(covariance), axis=-1)

    # A row that is r standard deviations off has a gradient of about  r / 0.6 (1 + (0.6
    # theta_1)^2)^(1/2)  in units of this root: clipped are rows with r > 4.5 at theta_1 = 0, and
    # with r > 2.9 at theta_1 = 2.
    clip = 7.5 / np.sqrt(temperature * num_rows)
    return Problem(
        models.banana(variances, CURVATURE, prior_scale=PRIOR_SCALE), rows, clip, distance
    )


def ellipse() -> Problem:
    """A Gaussian posterior: an exponential family has a public ball for its rows."""
    covariance, radius = ROWS * COVARIANCE, 4.5 * np.sqrt(ROWS * np.linalg.eigvalsh(COVARIANCE)[-1])
    rows = np.asarray(
        testing.simulate_gaussian_rows(jax.random.key(1), ROWS, MEAN, covariance), np.float32
    )
    mean, spread = map(np.asarray, testing.gaussian_posterior(rows, covariance, PRIOR_SCALE))
    precision = np.linalg.inv(spread)
    model = models.gaussian(covariance, PRIOR_SCALE, radius=radius)

    def distance(points):
        return np.einsum("...i,ij,...j", points - mean, precision, points - mean)

    return Problem(model, rows, model.lipschitz, distance)


class Run(NamedTuple):
    """What one figure shows."""

    title: str
    problem: Problem
    sampler: Any
    curator: Any
    num_steps: int | None = None
    num_shown: int = 250  # steps of the path
    start: Any = None


def curator(problem: Problem, budget: Budget | None = BUDGET) -> Curator:
    return Curator(problem.rows, problem.model, budget, fixed_secret=SECRET)


def walk_run(
    title: str,
    make: Callable,
    query: Any,
    problem: Problem,
    proposal=None,
    budget=BUDGET,
    num_steps=None,
) -> Run:
    """A random walk whose moves are at most `LONGEST`."""
    proposal = proposal or random_walk(LONGEST / 2**0.5, LONGEST)
    return Run(
        title,
        problem,
        make(problem.model.log_prior, query, proposal),
        curator(problem, budget),
        num_steps,
    )


def ratio_noise(problem: Problem, num_owners: int = 1) -> float:
    """The multiplier that gives the longest move's ratio, a sum over owners, the noise that mixes
    best.
    """
    return recipes.RATIO_NOISE / (2 * problem.clip * LONGEST * num_owners**0.5)


def bound(problem: Problem) -> float:
    return problem.clip * LONGEST


# -- the runs -------------------------------------------------------------------------------------


def penalty() -> Run:
    problem = banana()
    query = LogRatio(problem.clip, ratio_noise(problem))
    return walk_run("Penalty test on a noisy ratio", dpmcmc.penalty, query, problem)


def penalty_bit() -> Run:
    problem = banana()
    noise = recipes.BIT_NOISE / (2 * bound(problem))
    query = dpmcmc.queries.PenaltyAccept(problem.clip, noise, LONGEST)
    return walk_run("Accept bit of the penalty test", dpmcmc.accept_walk, query, problem)


def barker() -> Run:
    problem = banana()
    return walk_run(
        "Barker's accept bit",
        dpmcmc.accept_walk,
        dpmcmc.queries.Accept(Barker(), bound(problem)),
        problem,
    )


def guided() -> Run:
    problem = banana()
    query, proposal = (
        dpmcmc.queries.Accept(Barker(), bound(problem)),
        dpmcmc.guided_walk(LONGEST, LONGEST),
    )
    return walk_run(
        "Guided walk, Barker's accept bit", dpmcmc.accept_walk, query, problem, proposal
    )


def filtered() -> Run:
    problem = banana()
    query = dpmcmc.queries.FilteredAccept(problem.clip, affordable_rho(BUDGET))
    proposal = random_walk(LONGEST / 2)
    return walk_run(
        "Filtered Barker", dpmcmc.accept_walk, query, problem, proposal, num_steps=10_000
    )


def hmc() -> Run:
    problem, budget = banana(1_000_000), Budget(4, 1e-7)
    gradient, test = Gradient(problem.clip, 60.0), LogRatio(problem.clip, 60.0)
    sampler = dpmcmc.hmc(problem.model.log_prior, gradient, test, step_size=0.35, num_leapfrog=4)
    return Run("DP-HMC", problem, sampler, curator(problem, budget), num_shown=60)


def noise_aware() -> Run:
    problem = ellipse()
    surveyed = curator(problem, Budget(1, 1e-6))
    recipe = recipes.noise_aware_for(surveyed)
    return Run(
        "Noise-aware (Gaussian)",
        problem,
        recipe.sampler,
        surveyed,
        recipe.num_steps,
        50,
        recipe.start,
    )


def sgld() -> Run:
    problem = banana()
    sampler = dpmcmc.sgld(problem.model.log_prior, Gradient(problem.clip, 70.0), step_size=0.05)
    return Run("DP-SGLD", problem, sampler, curator(problem))


def sgnht() -> Run:
    problem = banana()
    sampler = dpmcmc.sgnht(
        problem.model.log_prior, Gradient(problem.clip, 70.0), step_size=0.15, friction=1.5
    )
    return Run("DP-SGNHT", problem, sampler, curator(problem))


def exponential() -> Run:
    problem = ellipse()
    query = dpmcmc.queries.SufficientStatistic(60.0)
    sampler = dpmcmc.exponential_penalty(
        problem.model, query, random_walk(LONGEST / 2**0.5, LONGEST)
    )
    return Run("Exponential family (Gaussian)", problem, sampler, curator(problem))


def minibatch_barker() -> Run:
    problem, longest = banana(), 0.15
    query = dpmcmc.queries.TunaBarker(problem.clip * longest, ratio=0.3)
    return walk_run(
        "Minibatch Barker",
        dpmcmc.accept_walk,
        query,
        problem,
        random_walk(longest / 2**0.5, longest),
    )._replace(num_shown=2500)


def minibatch_ratio() -> Run:
    problem, longest = banana(), 0.1
    query = dpmcmc.queries.TunaRatio(problem.clip * longest, noise_multiplier=10.0, ratio=0.1)
    return walk_run(
        "Penalty test on a batch's noisy ratio",
        dpmcmc.penalty,
        query,
        problem,
        random_walk(longest / 2**0.5, longest),
    )._replace(num_shown=2500)


def minibatch_penalty() -> Run:
    temperature = 0.01
    problem = banana(temperature=temperature)
    query = dpmcmc.queries.BatchRatio(problem.clip, 8.0, FixedBatch(2000, ROWS), temperature)
    title, proposal = "Minibatch penalty, b = 2 000, T = 0.01", random_walk(0.35, 0.5)
    return walk_run(title, dpmcmc.penalty, query, problem, proposal, Budget(1, 1e-6))


def dp_barker() -> Run:
    temperature = 0.01
    problem = banana(temperature=temperature)
    query = dpmcmc.queries.BatchBarker(FixedBatch(1000, ROWS), temperature)
    title, proposal = "DP Barker on minibatches, b = 1 000, T = 0.01", random_walk(0.15, 0.2)
    return walk_run(title, dpmcmc.accept_walk, query, problem, proposal, Budget(2, 1e-6))._replace(
        num_shown=1000
    )


def federation() -> Run:
    problem = banana()
    thirds = np.array_split(problem.rows, 3)
    owners = [
        Curator(rows, problem.model, BUDGET, fixed_secret=SECRET + index)
        for index, rows in enumerate(thirds)
    ]
    query = LogRatio(problem.clip, ratio_noise(problem, len(owners)))
    run = walk_run("Penalty test, three owners of a third each", dpmcmc.penalty, query, problem)
    return run._replace(curator=dpmcmc.Federation(owners))


def metropolis() -> Run:
    problem = banana()
    title = "Baseline: random-walk Metropolis"
    return walk_run(
        title,
        dpmcmc.penalty,
        dpmcmc.queries.NonPrivateRatio(),
        problem,
        random_walk(0.8),
        budget=None,
        num_steps=3000,
    )


RUNS = [
    penalty,
    penalty_bit,
    barker,
    guided,
    filtered,
    hmc,
    noise_aware,
    sgld,
    sgnht,
    exponential,
    minibatch_barker,
    minibatch_ratio,
    minibatch_penalty,
    dp_barker,
    federation,
    metropolis,
]


def affordable_rho(budget: Budget) -> float:
    """The largest rho, to three digits, that a filter can be granted."""
    low, high = 0.0, 10.0
    while high - low > 1e-3:
        middle = (low + high) / 2
        fits = accountants.epsilon({ZCDP(middle): 1}, 0.99 * budget.delta).epsilon <= budget.epsilon
        low, high = (middle, high) if fits else (low, middle)
    return low


# -- the pictures ---------------------------------------------------------------------------------


def draw(name: str, run: Run) -> str:
    """Run it once, draw it, and return a line about what the picture shows."""
    posterior = dpmcmc.sample(
        jax.random.key(2),
        run.sampler,
        run.curator,
        START,
        num_steps=run.num_steps,
        num_chains=1,
        warmup=0.2,
        progress=False,
        start=run.start,
    )
    (parameter,) = posterior.posterior.data_vars
    warmup, kept = (
        getattr(posterior, group)[parameter].values[0]
        for group in ("warmup_posterior", "posterior")
    )
    distances = run.problem.distance(kept.astype(float))
    inside = [f"{np.mean(distances < threshold):.0%}".replace("%", " %") for threshold in LEVELS]
    title = f"{_title(run)}, {_spaced(len(warmup) + len(kept))} steps"
    path = np.concatenate([[START], warmup, kept])[: run.num_shown + 1]
    effective = " and ".join(f"{value:.0f}" for value in _effective(posterior))
    caption = f"draws after warm-up, {effective} effective,\n{inside[0]} and {inside[1]} inside"
    picture(FOLDER / f"{name}.png", run, title, path, kept, caption)
    return f"{name}: {title}; {caption}; accepted {_accepted(posterior)}".replace("\n", " ")


LEVELS = (2 * np.log(2), 2 * np.log(20))  # of a squared distance in two dimensions: 50 % and 95 %


def picture(path: Path, run: Run, title: str, chain, draws, caption: str) -> None:
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(
        1, 2, figsize=(7, 3.25), sharex=True, sharey=True, layout="constrained"
    )
    figure.suptitle(title, fontsize=10)
    grid = np.stack(np.meshgrid(*(np.linspace(*limits, 300) for limits in LIMITS)), axis=-1)
    for axes in panels:
        axes.contour(
            grid[..., 0],
            grid[..., 1],
            run.problem.distance(grid),
            LEVELS,
            colors="0.35",
            linewidths=[1.4, 0.9],
            zorder=3,
        )
        axes.set(xlim=LIMITS[0], ylim=LIMITS[1], xlabel="θ₁")
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("θ₂")
    panels[0].plot(
        *chain.T, color=CHAIN, linewidth=0.7, alpha=0.8, marker=".", markersize=2.5, zorder=2
    )
    panels[0].plot(*chain[0], "o", color=CHAIN, markeredgecolor="white", markersize=7, zorder=4)
    panels[0].set_title(f"the start and the first {len(chain) - 1} steps", fontsize=9)
    panels[1].plot(
        *draws.T,
        ".",
        color=DRAWS,
        markersize=3,
        alpha=min(0.6, 1200 / len(draws)),
        markeredgewidth=0,
        zorder=2,
    )
    panels[1].set_title(caption, fontsize=9)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def _title(run: Run) -> str:
    budget = run.curator.budget
    budget = next(iter(budget.values())) if isinstance(budget, dict) else budget
    promise = (
        "ε = ∞"
        if budget is None
        else f"ε = {budget.epsilon:g}, δ = {budget.delta:.0e}".replace("e-0", "e-")
    )
    return f"{run.title}\nn = {_spaced(len(run.problem.rows))}, {promise}"


def _spaced(number: int) -> str:
    return f"{number:,}".replace(",", " ")


def _effective(posterior) -> np.ndarray:
    from dpmcmc.results.arviz import summary_table

    return summary_table(posterior)["ess_bulk"].to_numpy()


def _accepted(posterior) -> str:
    statistics = posterior.sample_stats
    return f"{float(statistics.acceptance.mean()):.0%}" if "acceptance" in statistics else "always"


def main(names: list[str]) -> None:
    FOLDER.mkdir(exist_ok=True)
    for make in RUNS:
        if not names or make.__name__ in names:
            began = time.perf_counter()
            print(
                draw(make.__name__, make()),
                f"{time.perf_counter() - began:.0f} s",
                sep="; ",
                flush=True,
            )


if __name__ == "__main__":
    main(sys.argv[1:])
