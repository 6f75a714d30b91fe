"""Answers with noise from JAX and not from a curator, so that many tables run side by side."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from dpmcmc import Answer, Unit
from dpmcmc.queries import (
    CenteredGradient,
    CenteredRadialGradient,
    Gradient,
    Gram,
    NormCounts,
    RadialGradient,
    RowGram,
    WeightedCurvature,
    WeightedGradient,
    WeightedRadialGradient,
    row_set,
)

UNIT = Unit()


def asker(model, rows):
    """A function `ask` about these rows, in floating point: its answers protect nobody."""
    public = row_set(model)

    def ask(key, query, *points):
        if isinstance(query, Gradient | CenteredGradient):
            total = _total(model, jax.grad(model.log_likelihood), rows, points[0])
            return _noisy(key, total, 2 * query.clip * query.noise_multiplier)
        if isinstance(query, RadialGradient | CenteredRadialGradient):
            total = _total(model, jax.grad(model.log_likelihood), rows, points[0])
            return _radial(key, query, total, 2 * query.clip)
        if isinstance(query, RowGram):
            vectors = jax.vmap(lambda *row: model.vectors.of_row(points[0], row))(*rows)
            spread = 2**0.5 * query.length**2 * query.noise_multiplier
            return _symmetric(key, vectors.T @ vectors, spread)
        if hasattr(query, "clip"):  # a Curvature
            total = -_total(model, jax.hessian(model.log_likelihood), rows, points[0])
            return _symmetric(key, total, 2 * query.clip * query.noise_multiplier)
        axes = points[0].astype(jnp.float32)
        features = jax.vmap(lambda *row: jnp.concatenate(model.linear.features(row)))(*rows)
        whitened = features @ axes
        lengths = jnp.maximum(jnp.linalg.norm(whitened, axis=1), 1e-30)
        if isinstance(query, Gram):
            shares = jnp.minimum(1, points[1] / lengths) ** 2
            total = (whitened * shares[:, None]).T @ whitened
            return _symmetric(key, total, 2**0.5 * points[1] ** 2 * query.noise_multiplier)
        if isinstance(query, NormCounts):
            counts = jnp.histogram(lengths, points[1])[0].astype(jnp.float32)
            return _noisy(key, counts, 2**0.5 * query.noise_multiplier)
        return _of_weighted(key, query, model, public, rows, (whitened, lengths), points)

    return ask


def _of_weighted(key, query, model, public, rows, moved, points):
    axes, phi, cap = points
    whitened, lengths = moved
    predictors = whitened @ phi.astype(whitened.dtype)
    kept = jnp.minimum(1, cap / (public.slope(predictors) * lengths))
    kept = kept * jnp.minimum(1, 2 * cap / lengths)
    slope = jax.grad(model.linear.log_likelihood)
    if isinstance(query, WeightedCurvature):
        bends = -jax.vmap(jax.grad(slope), (0, 0))(predictors, rows)
        sums = [(whitened * (bends * part)[:, None]).T @ whitened for part in (kept, kept**2)]
        spread = public.curvature_bound(axes, phi, cap, UNIT) * query.noise_multiplier
        answers = [_symmetric(jax.random.fold_in(key, i), sums[i], spread) for i in range(2)]
        return Answer(jnp.stack([answer.value for answer in answers]), spread**2)
    total = (kept * jax.vmap(slope, (0, 0))(predictors, rows)) @ whitened
    bound = public.gradient_diameter(axes, phi, cap, UNIT)
    if isinstance(query, WeightedGradient):
        return _noisy(key, total, bound * query.noise_multiplier)
    assert isinstance(query, WeightedRadialGradient)
    return _radial(key, query, total, bound)


def _radial(key, query, total, bound):
    key_direction, key_length = jax.random.split(key)
    direction = jax.random.normal(key_direction, total.shape)
    length = jnp.sum(jax.random.exponential(key_length, (query.dimension,)))
    noise = bound / query.epsilon * length * direction / jnp.linalg.norm(direction)
    return Answer(total + noise, (query.dimension + 1) * (bound / query.epsilon) ** 2)


def _total(model, function, rows, position):
    each = jax.vmap(lambda *row: function(position, row))(*rows)
    return jnp.sum(each, axis=0)


def _noisy(key, total, deviation):
    deviation = jnp.float32(deviation)
    return Answer(total + deviation * jax.random.normal(key, total.shape), deviation**2)


def _symmetric(key, total, deviation):
    deviation = jnp.float32(deviation)
    noise = jax.random.normal(key, total.shape)
    return Answer(total + deviation * (noise + noise.T) / 2, deviation**2)
