"""Findings about what a private start in whitened coordinates has released."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpmcmc.diagnostics.chains import listed
from dpmcmc.diagnostics.survey import MAX_HESSIAN_CHANGE, MAX_WIDENING, MOSTLY, labels
from dpmcmc.finding import Finding, note, severe
from dpmcmc.types import Model

MUCH = 0.01  # of the width: an allowance below it is not worth a word


def of_whitened(model: Model, found: Any) -> list[Finding]:
    """How much wider noise has made the posterior, and whether the start has arrived.

    Args:
        model: The model of the run.
        found: What the private start has released; only one in whitened coordinates has findings.

    Returns:
        The findings.
    """
    if getattr(found, "matrices", None) is None:
        return []
    return _of_widths(model, found) + _of_hidden(model, found) + _of_distance(found)


def _of_widths(model: Model, found: Any) -> list[Finding]:
    total, rows = (np.asarray(part, float) for part in found.widths)
    widths = np.sqrt(np.linalg.eigvals(np.linalg.solve(rows, total)).real)
    least, most = widths.min(), widths.max()
    allowance = float(found.misfit)
    text = (
        f"The privacy noise makes the posterior {least:.3g} to {most:.3g} times as wide as without "
        "privacy, depending on the direction, by what was released."
    )
    if allowance > (1 + MUCH) ** 2 - 1:
        text = (
            f"{text} An allowance for a model that does not hold, since rows far out count less, "
            f"is part of that: {np.sqrt(1 + allowance):.3g} times."
        )
    numbers = {"least": least, "most": most, "allowance": allowance}
    longest = np.sqrt(np.linalg.eigvalsh(total).max())
    bends = (model.self_concordance or 0) * longest > np.log(MAX_HESSIAN_CHANGE)
    if most <= MAX_WIDENING and not bends:
        return [note("widening", text, **numbers)]
    return [
        severe(
            "too-wide",
            f"{text} The normal approximation of the likelihood fails where that is more than "
            f"{MAX_WIDENING:g}, or where its curvature may change by a factor of "
            f"{MAX_HESSIAN_CHANGE:g} within a standard deviation: more rows, a larger budget or "
            "tighter bounds would help.",
            **numbers,
        )
    ]


def _of_hidden(model: Model, found: Any) -> list[Finding]:
    """Directions whose curvature could be nothing but noise."""
    matrices = found.matrices
    values, vectors = np.linalg.eigh(np.asarray(matrices.slope, float))
    is_hidden = values < np.sqrt(2 * len(values) * float(matrices.variance))
    if not is_hidden.any():
        return []
    # Of the variance of each parameter, how much is along a hidden direction
    parts = (np.asarray(found.axes, float) @ vectors) ** 2
    shares = parts[:, is_hidden].sum(axis=1) / parts.sum(axis=1)
    names = labels(model, np.flatnonzero(shares > MOSTLY))
    count = int(np.count_nonzero(is_hidden))
    return [
        severe(
            "lost-in-noise",
            f"In {count} of {len(values)} directions the privacy noise hides the data; there, "
            f"estimates reflect the prior and the noise (mostly {listed(names)}). Columns and "
            "levels that no cell matches, because of another spelling for example, are a cause, "
            "and so are rare levels.",
            directions=count,
            of=len(values),
            parameters=names,
        )
    ]


def _of_distance(found: Any) -> list[Finding]:
    """Newton steps that were still long at the end: the curvature has changed on the way."""
    noise = float(found.variances[-1]) + float(np.mean(np.diag(found.matrices.spread)))
    excess = np.sqrt(1 + float(found.bend) / noise)
    if excess < 2:
        return []
    return [
        severe(
            "not-arrived",
            "The private start has not arrived: its last step was so long that the curvature may "
            f"have changed on the way, by {excess:.2g} times what noise explains. Effects are "
            "strong or the rows few, and the posterior cannot be computed well from there. More "
            "rows, a larger budget or another sampler (sgld) would help.",
            excess=excess,
        )
    ]
