"""Findings about the draws: from what was released."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from dpmcmc.diagnostics.model import BIAS, CLOSE, some
from dpmcmc.finding import Finding, Severity, note, severe
from dpmcmc.precision import in_double, own_settings
from dpmcmc.types import Model, statistics_of, traits

MIN_ACCEPTANCE = 0.01  # share of the steps
MAX_SATURATED = 0.01  # share of the steps
ROUNDING = 4 * 2.0**-23  # of positions in float32
AT_THE_LIMIT = 0.05  # of the steps
# Step size times precision, of Langevin dynamics: beyond, a variance is a quarter too large or more
STIFF = 0.8
SURE = 4.0  # standard errors
FEWEST = 50  # draws that a standard error needs
# Times the width of the posterior: the draws must not be relied on
WIDE = 1.5
MUCH = 5.0  # a larger factor is not reported as a number
SKIPPED = 0.3  # of log-density, in a step
# How far one row of a batch may move its log-ratio: beyond it the batch's error is far from normal
HEAVY = 0.5
PULLED = 4.0  # standard deviations
BATCHES = 5  # of each chain; their means give a standard error
HOT = 1.5  # mean square of a momentum that should be standard normal: a width off by a fifth
FAIRLY = 3.0  # standard errors


def of_draws(
    model: Model, plan: Mapping[Any, int], draws: list, thin: int, warmup: float = 0.0
) -> list[Finding]:
    """Findings that R-hat does not show, from the draws and the steps' reports.

    Args:
        model: The model of the run.
        plan: The plan of queries of the steps.
        draws: Of each block, the positions (steps, chains, d) and the info.
        thin: Every so many steps a draw was kept.
        warmup: The share of the draws that is dropped at the beginning.

    Returns:
        The findings.

    Example:
        >>> from dpmcmc import models
        >>> blocks = [(np.zeros((4, 2, 1)), {"is_accepted": np.zeros((4, 2), bool)})]
        >>> [finding.code for finding in of_draws(models.gaussian([1.0]), {}, blocks, thin=1)]
        ['few-accepted']
    """
    positions = np.concatenate([np.asarray(part, float) for part, _ in draws])
    kept = slice(int(len(positions) * warmup), None)
    positions = positions[kept]
    blocks = [statistics_of(info) for _, info in draws]
    info = {
        name: np.concatenate([np.asarray(block[name]) for block in blocks])[kept]
        for name in blocks[0]
    }
    longest = _longest(positions, info, thin)
    found = _of_shares(info) + _of_unmoved_components(positions)
    if {"gradient", "move"} <= info.keys():
        found += _of_langevin(positions, info["move"], plan)
    if {"friction", "momentum"} <= info.keys():
        found += _of_temperatures(info["momentum"])
    if "move" in info and _skips(model.log_prior, positions, info["move"]):
        found.append(
            note(
                "steps-skip-prior",
                "The steps are too long for this prior: within a step it changes by more than its "
                "gradients at both ends explain, so that the draws are spread too widely, perhaps "
                "by far. Take a shorter step_size (recipes.langevin: a smaller stiffness).",
            )
        )
    found += _of_long_moves(model, plan, longest, positions)
    found += [each for query in plan for each in _of_batches(query, longest)]
    return found + _of_prior(model.log_prior, positions)


def _of_shares(info: Mapping[str, np.ndarray]) -> list[Finding]:
    """Steps of a kind that should be rare."""
    share = {
        name: float(np.mean(values)) for name, values in info.items() if name.startswith("is_")
    }
    found = _of_accepted(info, share) + _of_saturated(info, share)
    if "is_accepted" not in info and share.get("is_divergent", 0.0) > 0:
        text = (
            f"The trajectory became non-finite in a share of {share['is_divergent']:.2g} of the "
            "steps: they are much too long."
        )
        found.append(severe("divergent", text, share=share["is_divergent"]))
    if share.get("is_outside", 0.0) > AT_THE_LIMIT:
        why = (
            "its limits cut the posterior"
            if "is_accepted" in info
            else "the draws pile up at its limits"
        )
        found.append(
            note(
                "outside-prior",
                f"{share['is_outside']:.0%} of the steps led to where the prior has no density, "
                f"and were not taken: {why}. Are they too narrow?",
                share=share["is_outside"],
            )
        )
    return found


def _of_accepted(info: Mapping[str, np.ndarray], share: Mapping[str, float]) -> list[Finding]:
    if share.get("is_accepted", 1.0) < MIN_ACCEPTANCE and (size := info["is_accepted"].size) > 1:
        share_of = (
            f"{share['is_accepted']:.1%} of the" if share["is_accepted"] > 0 else f"none of {size}"
        )
        return [
            note(
                "few-accepted",
                f"Moves were accepted at {share_of} draws, which then carry little information: "
                "moves are too long, or there is too much noise.",
                share=share["is_accepted"],
            )
        ]
    return []


def _of_saturated(info: Mapping[str, np.ndarray], share: Mapping[str, float]) -> list[Finding]:
    if share.get("is_saturated", 0.0) > MAX_SATURATED:
        factor = float(np.sqrt(np.mean(info["noise_ratio"]))) if "noise_ratio" in info else 1.0
        how_wide = f", up to {factor:.2g} times as widely as they should be" if factor > 1 else ""
        return [
            Finding(
                "gradient-noise",
                Severity.SEVERE if factor > WIDE else Severity.NOTE,
                f"In {share['is_saturated']:.0%} of the steps the gradient's noise was more than "
                f"the step may add, so the draws are spread too widely{how_wide}: steps were too "
                "long for this noise (sgld: step_size * variance * preconditioner may be 4 at "
                "most, 0.4 with subtract_noise=False; sgnht: half of that product at most the "
                "friction). recipes.langevin_for finds a step that fits, for several owners too.",
                {"share": share["is_saturated"], "widening": factor},
            )
        ]
    return []


def _of_unmoved_components(positions: np.ndarray) -> list[Finding]:
    spread = np.ptp(positions, axis=(0, 1))
    if len(positions) == 1 or not (np.any(spread == 0) and np.any(spread > 0)):
        return []
    still = np.flatnonzero(spread == 0)
    return [
        note(
            "component-still",
            f"Component {', '.join(map(str, still))} of the position never moved, while others "
            "did: its moves are perhaps too short for float32, which has seven digits. Subtract "
            "a public constant, or choose other units.",
            components=still,
        )
    ]


def _of_long_moves(
    model: Model, plan: Mapping[Any, int], longest: float, positions: np.ndarray
) -> list[Finding]:
    bounds = [bound for query in plan if (bound := traits(query).bound) is not None]
    if not bounds or model.lipschitz is None:
        return []
    allowed = min(bounds) / model.lipschitz
    if longest <= allowed * (1 + CLOSE) + ROUNDING * np.max(np.abs(positions)):
        return []
    return [
        note(
            "long-moves",
            f"Some rows may have been clipped: moves of up to {longest:.3g} were accepted, and "
            f"the bound is proved up to {allowed:.3g} (give the proposal that max_move). {BIAS}.",
            longest=longest,
            allowed=allowed,
        )
    ]


def _of_batches(query: Any, longest: float) -> list[Finding]:
    """Batches in which one row has so much weight that their errors may be skewed, which the test
    does not correct.
    """
    trait = traits(query)
    if trait.is_direction or trait.clip is None or not hasattr(trait.batch, "of"):
        return []
    largest = trait.batch.of * trait.temperature * trait.clip * longest / trait.batch.size
    if largest <= HEAVY:
        return []
    return [
        note(
            "heavy-rows",
            f"One row of a batch may move its log-ratio by {largest:.2g} (rows * temperature * "
            "clip * move / size; slots without a row count as rows), so that the draws are biased "
            "where rows are skewed. Take shorter moves, larger batches or a smaller temperature: "
            f"{HEAVY / 2:g} is small enough.",
            reach=largest,
        )
    ]


def _longest(positions: np.ndarray, info: Mapping[str, np.ndarray], thin: int) -> float:
    """The length of the longest accepted move.

    Where no move was released, it is that between successive draws.
    """
    if {"move_length", "is_accepted"} <= info.keys():
        return float(np.max(info["move_length"], initial=0.0, where=info["is_accepted"]))
    return (
        float(np.max(np.linalg.norm(np.diff(positions, axis=0), axis=-1), initial=0.0))
        if thin == 1
        else 0.0
    )


def _of_prior(log_prior: Callable, positions: np.ndarray) -> list[Finding]:
    """A prior and rows that contradict each other: two normals that are at least eight standard
    deviations apart.
    """
    flat = positions.reshape(-1, positions.shape[-1])
    if len(flat) < FEWEST:
        return []
    with own_settings(in_double()):
        gradients = np.asarray(
            jax.jit(jax.vmap(jax.grad(log_prior)))(some(flat).astype(np.float32)), float
        )
    known = gradients[np.isfinite(gradients).all(axis=-1)]
    deviations = np.std(flat, axis=0)
    every = known @ np.atleast_2d(np.cov(flat.T)) / np.where(deviations > 0, deviations, np.inf)
    if not len(every):
        return []
    pulls = np.abs(np.mean(every, axis=0))
    worst = int(np.argmax(pulls))
    # The pull of a normal prior varies by a quarter at most from draw to draw; near the edge of a
    # prior it may vary far more.
    if not (pulls[worst] > PULLED and np.std(every[:, worst]) < pulls[worst] / 2):
        return []
    return [
        note(
            "prior-contradicts-rows",
            f"The prior pulls component {worst} of the position by {pulls[worst]:.2g} of its "
            "standard deviations, against the rows. Is it meant in the units of the rows, and "
            "around the right place?",
            component=worst,
            pull=pulls[worst],
        )
    ]


def _of_langevin(
    positions: np.ndarray, moves: np.ndarray, plan: Mapping[Any, int]
) -> list[Finding]:
    found = []
    if (factor := _too_wide(positions, moves)) is not None:
        how_wide = f"{factor:.2g} times" if factor < MUCH else "many times"
        found.append(
            Finding(
                "steps-too-long",
                Severity.SEVERE if factor > WIDE else Severity.NOTE,
                f"The steps are too long for this posterior: the draws are spread {how_wide} as "
                "widely as it, or more. step_size times the posterior's largest precision (1 / "
                "variance, times the preconditioner) should be well below 1 (recipes.langevin: is "
                "num_rows that of the table? langevin_for takes it from the curator. Are the "
                "rows within what is declared of them, as columns are that dpmcmc.tables "
                "scaled?).",
                {"widening": factor},
            )
        )
    if any(traits(query).batch is not None for query in plan):
        found.append(
            note(
                "batch-noise",
                "sgld does not subtract the batches' own noise from what it adds, because it "
                "is unknown: the draws are spread too widely where step_size times its variance is "
                "not well below 4 (sgnht absorbs it, if it is alike in all directions).",
            )
        )
    return found


def _of_temperatures(momenta: np.ndarray) -> list[Finding]:
    """Directions whose momentum is not standard normal: the draws are too wide or too narrow by the
    same factor.
    """
    length = len(momenta) // BATCHES
    if length * BATCHES < FEWEST:
        return []
    parts = np.mean(
        momenta[: length * BATCHES].reshape(BATCHES, length, *momenta.shape[1:]).astype(float) ** 2,
        axis=1,
    )
    squares = parts.mean(axis=(0, 1))
    errors = parts.std(axis=(0, 1), ddof=1) / parts[..., 0].size ** 0.5
    sizes = np.abs(np.log(np.maximum(squares, 1e-30)))
    sure = FAIRLY + np.sqrt(2 * np.log(len(squares)))  # of the largest of so many
    is_off = (sizes > np.log(HOT)) & (
        sure * np.mean(errors / np.maximum(squares, 1e-30)) < np.log(HOT)
    )
    if not is_off.any():
        return []
    widths = np.sqrt([squares.min(), squares.max()])
    return [
        note(
            "uneven-temperature",
            "One friction does not suit all directions: by the momenta the draws are spread "
            f"{widths[0]:.2g} to {widths[1]:.2g} times as widely as they should be, by direction "
            "(the axes of the preconditioner). Batches whose noise differs between directions "
            "are a cause, and so are steps that are too long: precondition, or take larger "
            "batches or all rows.",
            least=widths[0],
            most=widths[1],
        )
    ]


def _too_wide(positions: np.ndarray, moves: np.ndarray) -> float | None:
    """By what factor the draws of Langevin dynamics are too wide, if its steps are too long.

    Along a direction of posterior precision p a step of size h has, on average, the square h p
    times the variance of the draws, and that variance is 1 / (p (1 - h p / 4)).
    """
    centred = positions - positions.mean(axis=(0, 1))
    count = centred[..., 0].size
    dimension = centred.shape[-1]
    if count < FEWEST:
        return None
    variances, axes = np.linalg.eigh(
        np.cov(centred.reshape(count, dimension).T).reshape(dimension, dimension)
    )
    is_moving = variances > (ROUNDING * np.max(np.abs(positions))) ** 2
    if not is_moving.any():
        return None
    stiffness = float(
        np.max(np.mean((moves @ axes) ** 2, axis=(0, 1)) / np.where(is_moving, variances, np.inf))
    )
    if not stiffness > STIFF * (1 + SURE * (2 / count) ** 0.5):
        return None
    return max(1e-3, 1 - stiffness / 4) ** -0.5


def _skips(log_prior: Callable, positions: np.ndarray, moves: np.ndarray) -> bool:
    """Whether the prior changes too much within a step.

    Along a move the logarithm of a normal density changes by the move times the mean of its
    gradients at both ends. A prior that deviates much from that, on average, has corners or walls
    that such steps jump over.
    """
    after, move = (
        some(array.reshape(-1, array.shape[-1])).astype(np.float32) for array in (positions, moves)
    )
    value_and_gradient = jax.jit(jax.vmap(jax.value_and_grad(log_prior)))
    with own_settings(in_double()):
        (values, gradients), (old_values, old_gradients) = (
            map(np.asarray, value_and_gradient(end)) for end in (after, after - move)
        )
    with np.errstate(invalid="ignore"):  # where the prior is zero
        errors = values - old_values - 0.5 * np.sum((gradients + old_gradients) * move, axis=-1)
    is_known = np.isfinite(errors)
    rounding = ROUNDING * np.abs(values)
    return bool(is_known.any() and np.mean(np.abs(errors[is_known]) - rounding[is_known]) > SKIPPED)
