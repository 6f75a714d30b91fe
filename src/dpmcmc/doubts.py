"""What to doubt about a run, in words: told from public settings and from what was released, as any reader could tell it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dpmcmc.types import Model

HARDLY = 0.01  # of the steps
CLOSE = 1e-6  # a clip that is meant to be the proved bound may be rounded
BIAS = "Clipped rows bias the draws, in standard deviations the more the larger the table"


def of_clips(model: Model, plan: Mapping[Any, int]) -> list[str]:
    """Clips that some row could reach: it then counts for less than it says, which moves the posterior."""
    told = []
    for query in plan:
        name = getattr(query, "bounded_by", "lipschitz")
        clip, bound, proved = getattr(query, "clip", None), getattr(query, "bound", None), getattr(model, name)
        if clip is not None and proved is not None and clip < proved * (1 - CLOSE):
            told.append(f"rows may be clipped: the clip of {query} is below the model's {name}, {proved:.4g}. {BIAS}")
        elif (clip is not None or bound is not None) and proved is None:
            told.append(f"rows may be clipped by {query}: the model has no proved `{name}`. {BIAS}")
    return told


def of_draws(model: Model, plan: Mapping[Any, int], draws: list, thin: int) -> list[str]:
    """What is plainly wrong, for those who look at R-hat alone."""
    infos = [info for _, info in draws]
    told = []
    if hasattr(infos[0], "is_accepted"):
        accepted = float(np.mean([np.mean(info.is_accepted) for info in infos]))
        if accepted < HARDLY:
            told.append(f"{accepted:.1%} of all moves were accepted, so the draws say little: too long moves, or too much noise")
    if hasattr(infos[0], "is_saturated"):
        saturated = float(np.mean([np.mean(info.is_saturated) for info in infos]))
        if saturated > HARDLY:
            told.append(
                f"in {saturated:.0%} of the steps the gradient's noise was more than the step may add, so the draws are spread too "
                "widely: steps were too long for this noise (sgld: step_size * variance * preconditioner may be 4 at most)"
            )
    bounds = [query.bound for query in plan if getattr(query, "bound", None) is not None]
    if bounds and model.lipschitz is not None and thin == 1:
        longest = max((float(np.max(_lengths(positions), initial=0.0)) for positions, _ in draws), default=0.0)
        allowed = min(bounds) / model.lipschitz
        if longest > allowed * (1 + CLOSE):
            told.append(
                f"rows may have been clipped: moves of up to {longest:.3g} were accepted, the bound is proved up to {allowed:.3g} "
                f"(give the proposal that max_move). {BIAS}"
            )
    return told


def _lengths(positions: np.ndarray) -> np.ndarray:
    """Of the moves between positions (steps, chains, d)."""
    return np.linalg.norm(np.diff(np.asarray(positions, float), axis=0), axis=-1)
