r"""Coordinates in which the posterior is nearly round, from noisy Gram matrices of the features.

A row's features x become u = A' x and the position theta = A phi. With S the sum of x x', v0 the
information of a row about its predictor at 0 and P the precision of the prior,

    A = (v0 S + P)^(-1/2)

makes minus the Hessian of the log posterior at 0 the identity. S is released with noise: its
eigenvalues are raised to what noise alone could be. That A is off does no harm but that the
posterior is less round, so that noise of one size in all directions is larger in some.

A second matrix, asked in the first coordinates, has less noise where rows are long in few
directions: there a row's part is held to a length that is typical. What is left is its mean
eigenvalue and a part that deviates from it, which is shortened by the share that noise explains.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from dpmcmc.types import Answer, Array

NOISE = 0.5  # of the largest eigenvalue that noise alone is likely to have
LEAST = 0.1  # of the mean eigenvalue in whitened coordinates


class Coordinates(NamedTuple):
    """A, and how far its matrix may be off.

    Attributes:
        axes: A, symmetric.
        doubt: The largest relative error that noise may have made in the matrix behind it.
    """

    axes: Array
    doubt: Array


def first_coordinates(gram: Answer, information: Array, prior: Array) -> Coordinates:
    """Coordinates from a Gram matrix of the rows as they are.

    Args:
        gram: The noisy matrix.
        information: v0.
        prior: P.

    Returns:
        The coordinates.
    """
    noise = _largest_of_noise(gram)
    whitened = information * lift(gram.value, NOISE * noise) + prior
    return Coordinates(inverse_root(whitened), jnp.ones_like(noise))


def second_coordinates(
    first: Coordinates, gram: Answer, information: Array, prior: Array
) -> Coordinates:
    """Coordinates from a second matrix, asked in the first ones.

    Args:
        first: The first ones.
        gram: The noisy matrix of the rows in these.
        information: v0.
        prior: P.

    Returns:
        The coordinates.
    """
    dimension = len(gram.value)
    mean = jnp.trace(gram.value) / dimension
    rest = gram.value - mean * jnp.eye(dimension)
    explained = gram.variance * dimension * (dimension + 1) / 2
    share = jnp.maximum(0, 1 - explained / jnp.maximum(jnp.sum(rest**2), explained))
    noise = share * _largest_of_noise(gram)
    mean = jnp.maximum(mean, _largest_of_noise(gram))
    found = lift(mean * jnp.eye(dimension) + share * rest, jnp.maximum(LEAST * mean, NOISE * noise))
    back = jnp.linalg.inv(first.axes)
    return Coordinates(inverse_root(information * back @ found @ back + prior), noise / mean)


def inverse_root(matrix: Array) -> Array:
    """The inverse of the symmetric root of a positive definite matrix."""
    values, vectors = jnp.linalg.eigh((matrix + matrix.T) / 2)
    return (vectors / jnp.sqrt(values)) @ vectors.T


def lift(matrix: Array, floor: Array) -> Array:
    """The symmetric matrix with its eigenvalues raised to at least `floor`."""
    values, vectors = jnp.linalg.eigh((matrix + matrix.T) / 2)
    return (vectors * jnp.maximum(values, floor)) @ vectors.T


def _largest_of_noise(answer: Answer) -> Array:
    """About the largest eigenvalue of a symmetric matrix of noise."""
    return jnp.sqrt(2 * len(answer.value) * answer.variance)
