r"""What clipped log-ratios do to the posterior: :cite:p:`raisa2021thesis`, Figure 6.2;
:cite:p:`raisa2021hamiltonian`, Figure 3; and a posterior of ours.

A random walk and HMC with Metropolis' test and no noise at all, whose rows' log-ratios are clipped
to clip |move|, for many clips: how far are their draws from the exact posterior, and what share of
the ratios was clipped?

The papers' posteriors are symmetric: rows pull either way alike, and as many are clipped on one
side as on the other. So clipping costs little there until it is common. Ours is not: an event that
one row in a hundred has. The rows with the event pull a hundred times as hard as those without, and
are the only ones that are clipped. The posterior then moves, the further in its own standard
deviations the more rows there are.

The clip is an argument of the compiled chain, so that all clips share one program: the samplers are
the library's, and what they ask is computed here, on rows that are nobody's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import dpmcmc
from dpmcmc.papers import comparison, metrics, problems
from dpmcmc.papers.dphmc import settings as dphmc
from dpmcmc.papers.problems import Problem
from dpmcmc.papers.reproduce import drawing
from dpmcmc.papers.reproduce.figure import Cell, Results, Shown, Size
from dpmcmc.papers.thesis import settings as thesis
from dpmcmc.queries import NonPrivateGradient, NonPrivateRatio
from dpmcmc.types import Answer, Key, Sampler

CHANCE = 0.01  # of the rare event
NUM_CHAINS = 4
WALK, HMC = "Random walk", "HMC"


class Trial(NamedTuple):
    """A posterior, the chains on it, and the clips to try."""

    make: Callable[[Key, int], Problem]
    scale: float  # of the walk
    clips: tuple[float, ...]
    step_size: float | None = None  # of HMC
    leapfrog: int = 15
    num_rows: int = 100_000


def _rare(num_rows: int) -> Trial:
    spread = (num_rows * CHANCE) ** -0.5  # of the posterior
    clips = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 1.0)
    return Trial(
        lambda key, copies: problems.rare_event(key, num_rows, CHANCE),
        2 * spread,
        clips,
        num_rows=num_rows,
    )


BANANA_CLIPS = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
TRIALS = {
    "Flat banana, d = 2": Trial(
        lambda key, copies: thesis.make(key, "Flat banana, d = 2", copies),
        0.008,
        BANANA_CLIPS,
        0.0008,
    ),
    "Flat banana, d = 10": Trial(
        lambda key, copies: thesis.make(key, "Flat banana, d = 10", copies),
        0.0015,
        BANANA_CLIPS,
        0.0006,
        num_rows=200_000,
    ),
    "Banana": Trial(
        lambda key, copies: dphmc.make(key, "Banana", copies),
        0.06,
        (0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.5, 1.0, 10.0),
        0.006,
    ),
    "Gaussian, d = 10": Trial(
        lambda key, copies: dphmc.make(key, "Gaussian, d = 10", copies),
        0.0007,
        (0.1, 0.2, 1.0, 5.0, 10.0, 15.0, 20.0, 50.0, 100.0),
        0.0003,
    ),
    "Rare event, n = 10⁴": _rare(10_000),
    "Rare event, n = 10⁵": _rare(100_000),
}


def cell(
    name: str, kind: str, num_steps: int, repeats: int, copies: int, seed: int
) -> dict[str, Any]:
    """For each clip and repeat: the share of clipped ratios, and how far off the draws are."""
    trial = TRIALS[name]
    key_rows, key_starts, key_chains, key_floor = jax.random.split(jax.random.key(seed), 4)
    problem = trial.make(key_rows, copies)
    positions = jnp.asarray(problems.starts(key_starts, problem, repeats * NUM_CHAINS))
    one_chain = _chain(problem, _sampler(problem, trial, kind), num_steps)
    chain = jax.jit(jax.vmap(one_chain, (0, 0, None)))
    mmd = metrics.mmd_from(problem.reference)
    keys = jax.random.split(key_chains, len(positions))
    found: dict[str, Any] = {"share": [], "mmd": []}
    for clip in trial.clips:
        draws, shares = map(np.asarray, chain(keys, positions, jnp.float32(clip)))
        kept = draws[:, num_steps // 2 :].reshape(repeats, -1, draws.shape[-1])
        found["mmd"].append([mmd(run) for run in kept])
        found["share"].append(shares[:, num_steps // 2 :].reshape(repeats, -1).mean(1).tolist())
    return found | {"floor": comparison.floor(key_floor, problem, 10)}


def _sampler(problem: Problem, trial: Trial, kind: str) -> Sampler:
    prior = problem.model.log_prior
    if kind == WALK:
        return dpmcmc.penalty(prior, NonPrivateRatio(), dpmcmc.random_walk(trial.scale))
    assert trial.step_size is not None
    return dpmcmc.hmc(
        prior, NonPrivateGradient(), NonPrivateRatio(), trial.step_size, trial.leapfrog
    )


def _chain(problem: Problem, sampler: Sampler, num_steps: int) -> Callable:
    """From a key, a start and a clip to the draws and the share of clipped ratios in each step."""
    rows, power = problem.rows, problem.power
    log_likelihoods = jax.vmap(problem.model.log_likelihood, (None, 0))

    def chain(rng_key, position, clip):
        def slope(position):
            total = jax.grad(lambda at: jnp.sum(log_likelihoods(at, rows)))(position)
            return Answer(power * total, jnp.zeros(()))

        def step(state, key):
            shares = []

            def ask(key, query, position, *proposal):
                if not proposal:
                    return slope(position)
                bound = clip * jnp.linalg.norm(proposal[0] - position)
                ratios = log_likelihoods(proposal[0], rows) - log_likelihoods(position, rows)
                shares.append(jnp.mean(jnp.abs(ratios) > bound))
                return Answer(power * jnp.sum(jnp.clip(ratios, -bound, bound)), jnp.zeros(()))

            state, _ = sampler.step(key, state, ask)
            return state, (state.position, shares[0])

        key_init, key_steps = jax.random.split(rng_key)
        state = sampler.init(key_init, position, lambda key, query, position: slope(position))
        return jax.lax.scan(step, state, jax.random.split(key_steps, num_steps))[1]

    return chain


# -- what figures share ---------------------------------------------------------------------------


class Numbers(NamedTuple):
    """How much is computed."""

    repeats: int
    walk_steps: int
    hmc_steps: int
    copies: int


def cells_of(names: Sequence[str], numbers: Numbers, size: Size) -> list[Cell]:
    """A cell for each posterior and kind of chain."""
    found = []
    for name in names:
        trial = TRIALS[name]
        for kind in (WALK, HMC) if trial.step_size else (WALK,):
            steps = numbers.walk_steps if kind == WALK else numbers.hmc_steps
            arguments = {
                "name": name,
                "kind": kind,
                "num_steps": steps,
                "repeats": numbers.repeats,
                "copies": numbers.copies,
                "seed": size.seed,
            }
            place = "".join(letter for letter in name.lower() if letter.isalnum())
            found.append(
                Cell(
                    f"clipping/{place}/{kind.replace(' ', '-').lower()}",
                    "dpmcmc.papers.clipping:cell",
                    arguments,
                    28.0,
                )
            )
    return found


def about(numbers: Numbers) -> str:
    """How the numbers were made."""
    text = f"{numbers.repeats} runs of {NUM_CHAINS} chains, without noise; second halves."
    if numbers.copies > 1:
        text += (
            f" One made-up row stands for {numbers.copies}: how many more rows are clipped on one "
            f"side than on the other then varies {numbers.copies**0.5:.0f} times as much as with "
            "all rows, so that the effect of clipping is overstated."
        )
    return text


def show(names: Sequence[str], wanted: Sequence[Cell], results: Results) -> Shown:
    """Two panels a posterior: MMD against the clip, and against the share that is clipped."""
    by_key = {(one.arguments["name"], one.arguments["kind"]): results[one.name] for one in wanted}
    figure, axes = drawing.grid(len(names), 2, 4.8, 3.0)
    table = []
    says = []
    for (by_clip, by_share), name in zip(axes, names, strict=True):
        kinds = {kind: one for (of, kind), one in by_key.items() if of == name}
        clips = TRIALS[name].clips
        drawing.lines(by_clip, {kind: (clips, one["mmd"]) for kind, one in kinds.items()})
        if clips[-1] > 4 * clips[0]:
            by_clip.set_xscale("log")
        drawing.title(by_clip, name, "clip per length of the move", "MMD")
        for kind, one in kinds.items():
            shares, mmds = 100 * np.asarray(one["share"]), np.asarray(one["mmd"])
            colour, marker = drawing.style(kind)
            by_share.plot(shares.ravel(), mmds.ravel(), marker, color=colour, ms=4, alpha=0.6)
            says.append(f"{name}, {kind}: {_says(shares, mmds)}")
            for at, clip in enumerate(clips):
                table += [
                    {
                        "posterior": name,
                        "chain": kind,
                        "clip": clip,
                        "clipped, %": share,
                        "mmd": mmd,
                    }
                    for share, mmd in zip(shares[at].tolist(), mmds[at].tolist(), strict=True)
                ]
        drawing.title(by_share, "Each run", "log-ratios that are clipped, %", "MMD")
        for place in (by_clip, by_share):
            place.set_ylim(bottom=0)
            drawing.level(place, next(iter(kinds.values()))["floor"], "exact draws")
    drawing.legend(figure)
    return Shown("; ".join(says), table, figure)


def _says(shares: np.ndarray, mmds: np.ndarray) -> str:
    """The largest clip, that with about a fifth clipped, and the least."""
    middle_shares, middles = np.median(shares, axis=1), np.median(mmds, axis=1)
    # Where few rows are ever clipped, the middle clip in its place
    has_fifth = middle_shares.max() > 20
    fifth = int(np.argmin(np.abs(middle_shares - 20))) if has_fifth else len(middles) // 2
    return (
        f"MMD {middles[-1]:.2f} with {middle_shares[-1]:.1f} % clipped, {middles[fifth]:.2f} with "
        f"{middle_shares[fifth]:.0f} %, {middles[0]:.2f} with {middle_shares[0]:.0f} %"
    )
