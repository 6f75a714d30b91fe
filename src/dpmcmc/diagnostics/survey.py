"""Findings about a private start and the survey there: from what they have released."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from scipy import special

from dpmcmc.diagnostics.chains import listed
from dpmcmc.finding import Finding, note, severe
from dpmcmc.precision import in_double, own_settings
from dpmcmc.types import Answer, Model

# By what factor a row's Hessian may change within a standard deviation. Beyond it 90 % intervals of
# simulated regressions held the truth 55 to 85 % of the time (benchmarks/coverage.py)
MAX_HESSIAN_CHANGE = 2.0
# The widening where no such factor is known: beyond it they held as little as 60 % of the time
MAX_WIDENING = 3.0
# The same where a model knows the curvature in the direction that is widest
MAX_KNOWN = 6.0
LEAST = 1e-9  # of the largest precision: a smaller one counts as zero
BY_CHANCE = 1e-3  # how often noise alone is taken for data
MOSTLY = 0.25  # of the square of a direction: parameters with so much of it are named


def of_start(start: Any) -> list[Finding]:
    """A private start whose Hessian cannot be distinguished from its own noise.

    Args:
        start: What the private start has released.

    Returns:
        One severe finding, or none.

    Example:
        >>> from dpmcmc.samplers.start import Start
        >>> start = Start(np.zeros(2), np.eye(2), Answer(0.1 * np.eye(2), variance=9.0))
        >>> [finding.code for finding in of_start(start)]
        ['nothing-but-noise']
    """
    answer = getattr(start, "gram", None) or getattr(start, "hessian", None)
    if not isinstance(answer, Answer) or np.ndim(answer.value) != 2:  # a start of another kind
        return []
    # If it is nothing but noise this is chi-squared, with one degree of freedom for each entry of
    # the upper triangle: those off the diagonal have half of the variance, but are there twice.
    size = float(np.sum(np.square(np.asarray(answer.value, float)))) / float(answer.variance)
    dimension = len(answer.value)
    if size > special.chdtri(dimension * (dimension + 1) / 2, BY_CHANCE):
        return []
    return [
        severe(
            "nothing-but-noise",
            "At the private start the data cannot be distinguished from the privacy noise. It is "
            "so if cells or labels could not be read, because of another spelling for example; "
            "otherwise more rows or a larger budget would help.",
        )
    ]


def of_survey(model: Model, start: Any) -> list[Finding]:
    """How much wider the noise of a survey has made the posterior, and whether the survey was made
    near it.

    Args:
        model: The model of the run.
        start: What the private start has released; only a survey has findings.

    Returns:
        The findings.
    """
    hessian = getattr(start, "hessian", None)
    gradient = getattr(start, "gradient", None)
    if not (isinstance(hessian, Answer) and isinstance(gradient, Answer)):
        return []
    with own_settings(in_double()):
        pull, prior = (
            np.asarray(jax.jit(of(model.log_prior))(start.position), float)
            for of in (jax.grad, jax.hessian)
        )
    total = np.asarray(gradient.value, float) + pull
    gram = getattr(start, "gram", None)
    limit = MAX_WIDENING if gram is None else MAX_KNOWN
    widths = _of_widths(-prior, hessian, start.combined.gradient, model.self_concordance, limit)
    hidden = _of_hidden_directions(model, hessian if gram is None else gram)
    return widths + hidden + _of_distance(total, start) + _of_arrival(start)


def _of_hidden_directions(model: Model, hessian: Answer) -> list[Finding]:
    """Directions whose curvature could be nothing but noise."""
    values, axes = np.linalg.eigh(np.asarray(hessian.value, float))
    # A symmetric matrix of noise of variance v has eigenvalues up to about sqrt(2 d v).
    is_hidden = values < np.sqrt(2 * len(values) * float(hessian.variance))
    if not is_hidden.any():
        return []
    places = np.flatnonzero(np.max(axes[:, is_hidden] ** 2, axis=1) > MOSTLY)
    names = labels(model, places)
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


def labels(model: Model, places: np.ndarray) -> list[str]:
    """Entries of a position by the names of the parameters, if there is one for each."""
    labels: list[str] = []

    def collect(position):
        for name, leaf in model.unravel(position).items():  # JAX would sort them by name
            labels.extend(
                [f"{name}[{index}]" for index in range(leaf.size)] if leaf.shape else [name]
            )

    jax.eval_shape(collect, jax.ShapeDtypeStruct((model.dimension,), np.float32))
    if len(labels) != model.dimension:
        return [f"component {place} of the position" for place in places]
    return [labels[place] for place in places]


def _of_widths(
    prior: np.ndarray,
    hessian: Answer,
    gradient: Answer,
    self_concordance: float | None,
    limit: float,
) -> list[Finding]:
    values, axes = np.linalg.eigh(np.asarray(hessian.value, float))
    values = np.maximum(values, 0)
    known = values * values / (values + float(gradient.variance))
    with_noise, without = (prior + (axes * part) @ axes.T for part in (known, values))
    if not np.linalg.eigvalsh(with_noise).min() > LEAST * np.abs(with_noise).max():
        return [
            severe(
                "undetermined",
                "In some direction neither the prior nor the released values limit the posterior, "
                "so that the draws may go any distance. A prior that is narrower near the start, "
                "more rows or a larger budget would help.",
            )
        ]
    widths = np.sqrt(np.linalg.eigvals(np.linalg.solve(with_noise, without)).real)
    least = widths.min()
    most = widths.max()
    text = (
        f"The noise in the released gradients makes the posterior {least:.3g} to {most:.3g} times "
        "as wide as without privacy, depending on the direction, by the released Hessian."
    )
    numbers = {"least": least, "most": most}
    if self_concordance is None:
        is_inaccurate = not most <= limit
        why = (
            "The normal approximation of the likelihood fails where noise widens the posterior "
            f"more than {limit:g} times"
        )
    else:
        longest = np.linalg.eigvalsh(with_noise).min() ** -0.5
        is_inaccurate = self_concordance * longest > np.log(MAX_HESSIAN_CHANGE)
        why = (
            "The normal approximation of the likelihood fails here: its curvature may change by a "
            f"factor of more than {MAX_HESSIAN_CHANGE:g} within a standard deviation"
        )
    if not is_inaccurate:
        return [note("widening", text, **numbers)]
    return [
        severe(
            "too-wide",
            f"{text} {why}: more rows, a larger budget or tighter bounds would help.",
            **numbers,
        )
    ]


def _of_distance(gradient: np.ndarray, start: Any) -> list[Finding]:
    """A survey that was made too far from the posterior.

    Near the posterior the gradient is nothing but noise: that of the start, that of the survey, and
    the effect of the noise in a Hessian on the step s between them, whose variance is (|s|^2 + s
    s') / 2 times that of the Hessian.
    """
    if start.included is None:
        return []
    step = np.asarray(start.position - start.included.position, float)
    noise = float(start.included.gradient.variance + start.gradient.variance) + float(
        start.step_variance
    ) / 2 * np.sum(step**2)
    if noise == 0:
        return []
    spread = noise * np.eye(len(gradient)) + float(start.step_variance) / 2 * np.outer(step, step)
    size = float(gradient @ np.linalg.solve(spread, gradient))
    if size <= special.chdtri(len(gradient), BY_CHANCE):
        return []
    return [_not_arrived((size / len(gradient)) ** 0.5)]


def _of_arrival(start: Any) -> list[Finding]:
    """A last gradient that contradicts all that were asked before it, and so the curvature that led
    there.
    """
    arrival = getattr(start, "arrival", None)
    if arrival is None:
        return []
    size = float(np.sum(np.square(np.asarray(arrival.value, float)))) / float(arrival.variance)
    dimension = len(arrival.value)
    if size <= special.chdtri(dimension, BY_CHANCE):
        return []
    return [_not_arrived((size / dimension) ** 0.5)]


def _not_arrived(excess: float) -> Finding:
    return severe(
        "not-arrived",
        "The private start has not arrived: where it ended, the gradient of the posterior is "
        f"{excess:.2g} times what noise explains. Effects are strong, the rows few or limits "
        "of the prior in the way, and the posterior cannot be computed well from there. A "
        "start from a better public guess would help, or another sampler (sgld).",
        excess=excess,
    )
