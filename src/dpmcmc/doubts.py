"""What to doubt about a run, in words: told from public settings and from what was released, as any reader could tell it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dpmcmc.types import Model

HARDLY = 0.01  # of the steps
CLOSE = 1e-6  # a clip that is meant to be the proved bound may be rounded
SLOW_ENOUGH = 0.6  # correlation of two steps of Langevin dynamics: below, a variance is a quarter too large or more
SURE = 4.0  # standard errors
BIAS = "Clipped rows bias the draws, in standard deviations the more the larger the table"


def of_settings(model: Model, plan: Mapping[Any, int]) -> list[str]:
    """Clips that some row could reach, which then counts for less than it says, and likelihoods that are not taken as they are."""
    told = []
    for query in plan:
        name = getattr(query, "bounded_by", "lipschitz")
        clip, bound, proved = getattr(query, "clip", None), getattr(query, "bound", None), getattr(model, name)
        if clip is not None and proved is not None and clip < proved * (1 - CLOSE):
            told.append(f"rows may be clipped: the clip of {query} is below the model's {name}, {proved:.4g}. {BIAS}")
        elif (clip is not None or bound is not None) and proved is None:
            told.append(f"rows may be clipped by {query}: the model has no proved `{name}`. {BIAS}")
        temperature = getattr(query, "temperature", 1.0)
        if temperature != 1:
            told.append(
                f"the likelihood is taken to the power temperature={temperature:g} by {query}: the draws are those of a tempered "
                f"posterior, about {temperature**-0.5:.3g} times as wide as the posterior"
            )
    return told


def of_draws(model: Model, plan: Mapping[Any, int], draws: list, thin: int) -> list[str]:
    """What is plainly wrong, for those who look at R-hat alone. Draws: of each block, positions (steps, chains, d) and info."""
    positions = np.concatenate([np.asarray(part, float) for part, _ in draws])
    info = {name: np.concatenate([np.asarray(getattr(part, name)) for _, part in draws]) for name in _fields(draws[0][1])}
    told = []
    if "is_accepted" in info and np.mean(info["is_accepted"]) < HARDLY:
        accepted = f"{np.mean(info['is_accepted']):.1%}"
        told.append(f"{accepted} of all moves were accepted, so the draws say little: too long moves, or too much noise")
    if "is_saturated" in info and np.mean(info["is_saturated"]) > HARDLY:
        told.append(
            f"in {np.mean(info['is_saturated']):.0%} of the steps the gradient's noise was more than the step may add, so the "
            "draws are spread too widely: steps were too long for this noise (sgld: step_size * variance * preconditioner may be 4 "
            "at most; sgnht: half of that product at most the friction)"
        )
    if "is_outside" in info and np.mean(info["is_outside"]) > HARDLY:
        told.append(
            f"{np.mean(info['is_outside']):.0%} of the steps led to where the prior has no density, and were not taken: the draws "
            "pile up at its limits. Are these too narrow?"
        )
    if "gradient" in info and (factor := _too_wide(positions, thin)) is not None:
        told.append(
            f"the steps are too long for this posterior: the draws are spread {factor}too widely. step_size times the posterior's "
            "largest precision (1 / variance, times the preconditioner) should be well below 1"
        )
    bounds = [query.bound for query in plan if getattr(query, "bound", None) is not None]
    if bounds and model.lipschitz is not None:
        longest, allowed = _longest(positions, info, thin), min(bounds) / model.lipschitz
        if longest > allowed * (1 + CLOSE):
            told.append(
                f"rows may have been clipped: moves of up to {longest:.3g} were accepted, the bound is proved up to {allowed:.3g} "
                f"(give the proposal that max_move). {BIAS}"
            )
    return told


def _fields(info: Any) -> tuple[str, ...]:
    return getattr(info, "_fields", ())


def _longest(positions: np.ndarray, info: Mapping[str, np.ndarray], thin: int) -> float:
    """Of the accepted moves."""
    if "move_length" in info:
        return float(np.max(info["move_length"], initial=0.0, where=info["is_accepted"]))
    return float(np.max(np.linalg.norm(np.diff(positions, axis=0), axis=-1), initial=0.0)) if thin == 1 else 0.0


def _too_wide(positions: np.ndarray, thin: int) -> str | None:
    """Whether Langevin dynamics takes too long steps, and by what factor its draws are then too wide, in words.

    Along a direction of posterior precision p a step of size h multiplies what the chain remembers by r = 1 - h p / 2, and the
    variance of the draws is 1 / (p (1 - h p / 4)). r is seen in the draws: r^thin is the correlation of one and the next.
    """
    kept = positions[len(positions) // 2 :]
    kept = kept - kept.mean(axis=(0, 1))
    _, axes = np.linalg.eigh(np.cov(kept.reshape(-1, kept.shape[-1]).T).reshape(kept.shape[-1], -1))
    along = kept @ axes
    variances = np.mean(along**2, axis=(0, 1))
    moving = variances > 0
    if not moving.any() or len(kept) < 2:
        return None
    correlation = float(np.min(np.mean(along[1:] * along[:-1], axis=(0, 1))[moving] / variances[moving]))
    unsure = SURE / np.sqrt(along[1:, :, 0].size)
    if not correlation < max(SLOW_ENOUGH**thin, unsure) - 2 * unsure:
        return None
    if thin > 1 or correlation <= -1 + unsure:
        return "much "
    return f"{(1 - (1 - correlation) / 2) ** -0.5:.2g} times "
