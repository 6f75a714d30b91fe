"""Findings about a model and its settings, from public facts and made-up rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpmcmc.finding import Finding, note
from dpmcmc.keeping import made_once
from dpmcmc.precision import is_double, own_settings
from dpmcmc.types import Model, Traits, traits

CLOSE = 1e-6  # a clip that is meant to be the proved bound may be rounded
ROUGHLY = 1e-3  # of a gradient in float32
FEW_ROWS = 50  # in a batch
ENOUGH = 1000  # positions at which a function is tried
CONTRADICTION = (
    "Queries use different parts, so that the draws are not those of one posterior. Make the "
    "parts agree."
)
BIAS = (
    "Clipping biases the draws: measured in standard deviations, the more the larger the table is"
)
HOW_MUCH = " (recipes.clip_shift computes how much, on simulated rows)"


def of_settings(model: Model, plan: Mapping[Any, int]) -> list[Finding]:
    """Clips that may shorten some rows, and settings that change the likelihood.

    Args:
        model: The model of the run.
        plan: The plan of queries.

    Returns:
        The findings.

    Example:
        >>> from dpmcmc import models, queries
        >>> model = models.logistic(1, radius=1.0)
        >>> plan = {queries.LogRatio(clip=0.5, noise_multiplier=9.0): 10}
        >>> [finding.code for finding in of_settings(model, plan)]
        ['clip-below-bound']
    """
    found = []
    # Queries that differ in nothing but their noise have one finding
    for trait, query in {traits(query): query for query in plan}.items():
        if trait.is_direction and not _is_untested(plan):
            continue  # its errors reduce acceptance and change nothing else
        name = trait.bounded_by
        clip = trait.clip
        bias = BIAS + (HOW_MUCH if trait.is_direction and name == "lipschitz" else "")
        proved = getattr(model, name)
        if clip is not None and proved is not None and clip < proved * (1 - CLOSE):
            found.append(
                note(
                    "clip-below-bound",
                    f"Some rows may be clipped: the clip of {query} is below the model's {name}, "
                    f"{proved:.4g}. {bias}.",
                    clip=clip,
                    bound=proved,
                )
            )
        elif (clip is not None or trait.bound is not None) and proved is None:
            found.append(
                note(
                    "no-proved-bound",
                    f"Some rows may be clipped by {query}: the model has no proved `{name}`. "
                    f"{bias}.",
                )
            )
        found += _of_changed_likelihood(query, trait)
    return found


def _of_changed_likelihood(query: Any, trait: Traits) -> list[Finding]:
    """Batches that are too small for their correction, and a likelihood raised to a power."""
    found = []
    size = getattr(trait.batch, "size", FEW_ROWS)
    if size < FEW_ROWS and trait.clip is not None and not trait.is_direction:
        found.append(
            note(
                "small-batches",
                f"{query} corrects by the variance within each batch, and {size} rows "
                "estimate it badly: the draws are biased where rows are skewed. Use batches "
                f"of {FEW_ROWS} rows or more.",
                size=size,
            )
        )
    if trait.temperature != 1:
        factor = trait.temperature**-0.5
        found.append(
            note(
                "tempered",
                f"{query} raises the likelihood to the power temperature={trait.temperature:g}: "
                f"the draws are those of a tempered posterior, about {factor:.3g} times as wide "
                "as the posterior.",
                temperature=trait.temperature,
                widening=factor,
            )
        )
    return found


def of_values(model: Model, row: Any, position: Any) -> list[Finding]:
    """A log-likelihood that is not a number where the chains start, for every made-up row: all rows
    may be ignored there.

    Args:
        model: The model of the run.
        row: The shape and type of one row.
        position: Where the chains start.

    Returns:
        One finding, or none.
    """
    if not all(np.isnan(value) for _, value in _of_made_up(row, _value, model, position)):
        return []
    return [
        note(
            "no-log-likelihood-at-start",
            "The log-likelihood of every made-up row (zeros, ones, fractions) is not a number at "
            "initial_position. If it is so for your rows, they are ignored there: look for a "
            "logarithm or a root of something negative.",
        )
    ]


def of_bounds(model: Model, row: Any, position: Any) -> list[Finding]:
    """A `lipschitz` or `spread` that a made-up row contradicts, where the model does not declare
    which rows are allowed.

    Args:
        model: The model of the run.
        row: The shape and type of one row.
        position: Where the chains start.

    Returns:
        One finding, or none.
    """
    words = {
        "lipschitz": "has a log-likelihood whose gradient is of length",
        "spread": "has a gradient whose distance from center is",
    }
    proved = {bound: getattr(model, bound) for bound in words if getattr(model, bound) is not None}
    if model.declared or not proved:
        return []

    for name, found in _of_made_up(row, _bounded, model, position):
        for bound, limit in proved.items():
            length = float(np.linalg.norm(found[bound]))
            if limit * (1 + ROUGHLY) < length < np.inf:
                return [
                    note(
                        "bound-contradicted",
                        f"A made-up row of {name} {words[bound]} {length:.3g} at initial_position, "
                        f"above the model's {bound}, {limit:.4g}: if such rows can occur, they "
                        f"are clipped. {BIAS}. If they cannot, declare in the model's `declared` "
                        "which rows can.",
                        found=length,
                        bound=limit,
                    )
                ]
    return []


def of_gradients(model: Model, row: Any, position: Any, plan: Mapping[Any, int]) -> list[Finding]:
    """Gradients that are not numbers where the log-likelihood is one, for made-up rows: such rows
    are ignored.

    Args:
        model: The model of the run.
        row: The shape and type of one row.
        position: Where the chains start.
        plan: The plan of queries.

    Returns:
        One finding, or none.
    """
    if not _is_untested(plan):
        return []
    point = position + 0.1 * _fractions(model.dimension)  # not a special one
    for name, (value, gradient) in _of_made_up(row, _value_and_gradient, model, point):
        if np.isfinite(value) and np.isnan(gradient).any():
            return [
                note(
                    "no-gradient",
                    f"The gradient of log_likelihood is not a number for a made-up row of {name}, "
                    "though log_likelihood is one: such rows are ignored, and the draws are not "
                    "those of the posterior. JAX differentiates both branches of a `where`: keep "
                    "the arguments of log, sqrt and the like in their range in both.",
                )
            ]
    return []


def of_parts(model: Model, row: Any, position: Any) -> list[Finding]:
    """A `linear` or a `family` that contradicts the log-likelihood, for made-up rows.

    Args:
        model: The model of the run.
        row: The shape and type of one row.
        position: Where the chains start.

    Returns:
        One finding, or none.
    """
    parts = _parts(model)
    if not parts:
        return []
    for name, (found, (gradient, features)) in _of_made_up(
        row, _all_values, model, position + 0.2 * _fractions(2, model.dimension)
    ):
        values = {
            part: np.where(np.isfinite(value), value, np.nan).astype(float)
            for part, value in found.items()
        }
        for part in parts:
            if _differ(
                np.diff(values[""]),
                np.diff(values[part]),
                np.abs(values[""]).max() + np.abs(values[part]).max(),
            ):
                text = (
                    f"`{part}` of the model contradicts its log_likelihood, for a made-up row of "
                    f"{name}. {CONTRADICTION}"
                )
                return [note("parts-disagree", text)]
        if _differ(gradient, features, np.abs(gradient).max()):
            text = (
                "linear.features are not the gradient of linear.predictor, for a made-up row of "
                f"{name}. {CONTRADICTION}"
            )
            return [note("parts-disagree", text)]
    return []


def _differ(one: np.ndarray, other: np.ndarray, scale: float) -> bool:
    """Whether two arrays differ by more than float32 explains, where both are numbers."""
    with np.errstate(invalid="ignore"):
        return bool(
            np.any(np.abs(one - other) > 1e-3 * (np.abs(one) + np.abs(other)) + 1e-5 * scale)
        )


def _parts(model: Model) -> dict[str, Callable]:
    """The log-likelihood by each of the other ways that the model gives."""
    known = {"linear": _linear_values(model), "family": _family_values(model)}
    return {name: values for name, values in known.items() if values is not None}


def _linear_values(model: Model) -> Callable | None:
    parts = model.linear
    return (
        None
        if parts is None
        else lambda position, row: parts.log_likelihood(parts.predictor(position, row), row)
    )


def _gradient_and_features(parts: Any, position: Any, row: Any) -> tuple[Any, Any]:
    return jax.grad(parts.predictor)(position, row), jnp.concatenate(parts.features(row))


def _family_values(model: Model) -> Callable | None:
    """The log-likelihood by the family, without the term that does not depend on the position."""
    parts = model.family
    if parts is None:
        return None
    return lambda position, row: (
        jnp.dot(parts.natural(position), parts.statistic(row)) - parts.log_partition(position)
    )


def of_positions(model: Model, row: Any, positions: np.ndarray) -> list[Finding]:
    """Log-likelihoods that are not numbers at some positions, for made-up rows: rows are ignored
    there.

    Args:
        model: The model of the run.
        row: The shape and type of one row.
        positions: The draws, of shape (..., d).

    Returns:
        One finding, or none.
    """
    flat = positions.reshape(-1, positions.shape[-1])
    for name, values in _of_made_up(row, _values, model, some(flat)):
        share = float(np.mean(np.isnan(values)))
        if 0 < share < 1:
            return [
                note(
                    "no-log-likelihood",
                    f"At {share:.0%} of all positions, warm-up included, the log-likelihood of a "
                    f"made-up row of {name} is not a number: rows are ignored there. Let "
                    "log_prior be -inf where parameters have no meaning, or choose other "
                    "parameters.",
                    share=share,
                )
            ]
    return []


def _is_untested(plan: Mapping[Any, int]) -> bool:
    """Whether gradients are asked for, and no test of the moves made with them."""
    return bool(plan) and all(traits(query).is_direction for query in plan)


# Functions of a position, or several, and a row


def _value(model: Model) -> Callable:
    return model.log_likelihood


def _values(model: Model) -> Callable:
    return jax.vmap(model.log_likelihood, (0, None))


def _value_and_gradient(model: Model) -> Callable:
    return jax.value_and_grad(model.log_likelihood)


def _bounded(model: Model) -> Callable:
    """What `lipschitz` and `spread` are bounds of."""

    def gradients(position, row):
        gradient = jax.grad(model.log_likelihood)(position, row)
        return {
            "lipschitz": gradient,
            "spread": gradient if model.center is None else gradient - model.center(position),
        }

    return gradients


def _all_values(model: Model) -> Callable:
    """The log-likelihood by every way that the model gives, and the gradient of its predictor."""
    ways = {"": model.log_likelihood, **_parts(model)}

    def all_values(points, row):
        values = {name: jax.vmap(way, (0, None))(points, row) for name, way in ways.items()}
        return values, (0.0, 0.0) if model.linear is None else _gradient_and_features(
            model.linear, points[0], row
        )

    return all_values


@made_once
def _compiled(make: Callable[[Model], Callable], model: Model) -> Any:
    return jax.jit(make(model))


def _of_made_up(
    row: Any, make: Callable[[Model], Callable], model: Model, points: Any
) -> Iterator[tuple[str, Any]]:
    """The values of a function at points and made-up rows, in the precision that a curator uses for
    such rows.
    """
    points = np.asarray(points, np.float64 if is_double(row) else np.float32)
    compiled = _compiled(make, model)
    for name, made_up in _made_up(row):
        with own_settings(is_double(row)):
            found = jax.tree.map(np.asarray, compiled(points, made_up))
        yield name, found


def _made_up(row: Any) -> Iterator[tuple[str, Any]]:
    """Rows of this shape and type that have nothing to do with the table."""
    yield "zeros", jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), row)
    yield "ones", jax.tree.map(lambda leaf: np.ones(leaf.shape, leaf.dtype), row)
    yield "fractions", jax.tree.map(_fractional, row)


def _fractional(leaf: Any) -> np.ndarray:
    """Fractions, or ones where the type is of whole numbers."""
    is_whole = not np.issubdtype(leaf.dtype, np.floating)
    return (
        np.ones(leaf.shape, leaf.dtype) if is_whole else _fractions(*leaf.shape).astype(leaf.dtype)
    )


def _fractions(*shape: int) -> np.ndarray:
    """Different numbers between 0 and 1."""
    return np.modf(0.618 * np.arange(1, 1 + math.prod(shape)))[0].reshape(shape)


def some(array: np.ndarray) -> np.ndarray:
    """About ENOUGH of the entries, evenly spread, because all of them would take too long."""
    return array[:: -(-len(array) // ENOUGH)]
