"""The public set that a model's features come from, and how far it reaches.

It is a product of balls and of sets of corners: a constant is one corner, a column within bounds
has two, a column with levels has one corner for each. For a matrix A and a vector theta,

    radius(A) = max |A' x|,      reach(theta) = max |x . theta|      over all x of the set.

The reach is exact. The radius is exact for one ball, with constants or without, and for at most
`MOST_CORNERS` corners. For other sets it is a bound: the least of a sum over groups of columns, and
of

    |A' x|^2 <= largest eigenvalue of (D^-1/2 A A' D^-1/2) * max x' D x

with D a diagonal matrix that has one positive number for each column of the table.
"""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from dpmcmc.types import Array

MOST_CORNERS = 2**12  # of several columns together
NUM_TURNS = 12  # that D is improved in
NUM_MULTIPLIERS = 64
SMALLEST = 1e-7  # of these multipliers, over the largest


class Ball(NamedTuple):
    """Vectors up to a length.

    Attributes:
        size: The number of entries.
        radius: The largest length.
    """

    size: int
    radius: float

    @property
    def longest(self) -> float:
        """The largest length."""
        return self.radius


class Corners(NamedTuple):
    """Some vectors, and what lies between them.

    Attributes:
        corners: The vectors, as tuples of one length.
    """

    corners: tuple[tuple[float, ...], ...]

    @property
    def size(self) -> int:
        """The number of entries."""
        return len(self.corners[0])

    @property
    def longest(self) -> float:
        """The largest length."""
        return max(math.hypot(*corner) for corner in self.corners)


CONSTANT = Corners(((1.0,),))
INTERVAL = Corners(((-1.0,), (1.0,)))


@dataclass(frozen=True)
class Domain:
    """The public set of a model's features: a product of parts, in the order of the features.

    Attributes:
        parts: Balls and sets of corners.

    Example:
        >>> import jax.numpy as jnp
        >>> from dpmcmc.domains import CONSTANT, INTERVAL, Domain
        >>> square = Domain((CONSTANT, INTERVAL, INTERVAL))
        >>> float(square.reach(jnp.array([1.0, 2.0, -3.0])))
        6.0
        >>> round(float(square.radius(jnp.eye(3))) ** 2, 3)
        3.0
    """

    parts: tuple[Ball | Corners, ...]

    @property
    def dimension(self) -> int:
        """The number of features."""
        return sum(part.size for part in self.parts)

    @property
    def longest(self) -> float:
        """The largest length of the features."""
        return math.hypot(*(part.longest for part in self.parts))

    def reach(self, theta: Array) -> Array:
        """The largest |x . theta|.

        Args:
            theta: A vector.

        Returns:
            A number.
        """
        high = low = jnp.zeros((), jnp.result_type(theta))
        for part, rows in self._slices():
            if isinstance(part, Ball):
                most = part.radius * jnp.linalg.norm(theta[rows])
                least = -most
            else:
                products = jnp.asarray(part.corners, high.dtype) @ theta[rows]
                most, least = jnp.max(products), jnp.min(products)
            high, low = high + most, low + least
        return jnp.maximum(high, -low)

    def radius(self, matrix: Array) -> Array:
        """The largest |A' x|, or a bound of it.

        Args:
            matrix: A, one line for each feature.

        Returns:
            A number.
        """
        groups, constant, balls = self._grouped
        if len(balls) == 1 and not groups:
            (ball, rows), *_ = balls
            return _from_center(ball.radius, matrix[rows], constant @ matrix)
        lengths = [part.radius * jnp.linalg.norm(matrix[rows], 2) for part, rows in balls]
        # The constants belong to one of the groups
        for index, (corners, rows) in enumerate(groups):
            wide = np.zeros((len(corners), self.dimension))
            wide[:, rows] = corners
            moved = jnp.asarray(wide + (constant if index == 0 else 0)) @ matrix
            lengths.append(jnp.sqrt(jnp.max(jnp.sum(moved**2, axis=1))))
        if not groups:
            lengths.append(jnp.linalg.norm(constant @ matrix))
        total = sum(lengths)
        return total if len(lengths) == 1 else jnp.minimum(total, self._by_eigenvalues(matrix))

    def _slices(self) -> list[tuple[Ball | Corners, slice]]:
        starts = itertools.accumulate((part.size for part in self.parts), initial=0)
        return [
            (part, slice(start, start + part.size))
            for part, start in zip(self.parts, starts, strict=False)
        ]

    @functools.cached_property
    def _grouped(self):
        """Groups of columns with all their corners, the constants, and the balls."""
        groups: list[tuple[np.ndarray, np.ndarray]] = []
        constant = np.zeros(self.dimension)
        balls = []
        for part, rows in self._slices():
            if isinstance(part, Ball):
                balls.append((part, rows))
                continue
            corners = np.array(part.corners)
            if len(corners) == 1:
                constant[rows] = corners[0]
                continue
            places = np.arange(rows.start, rows.stop)
            if groups and len(groups[-1][0]) * len(corners) <= MOST_CORNERS:
                before, known = groups.pop()
                both = [np.append(one, other) for one in before for other in corners]
                groups.append((np.array(both), np.append(known, places)))
            else:
                groups.append((corners, places))
        return groups, constant, balls

    def _by_eigenvalues(self, matrix):
        """The least of the bounds by an eigenvalue, over a few matrices D."""
        column = np.repeat(np.arange(len(self.parts)), [part.size for part in self.parts])
        longest = jnp.asarray([max(part.longest, 1e-9) for part in self.parts]) ** 2
        shares = jnp.sqrt(jnp.sum(matrix**2, axis=1))
        shares = jnp.zeros(len(self.parts)).at[column].add(shares) + 1e-9 * jnp.max(shares)
        best: Array = jnp.inf
        for _ in range(NUM_TURNS):
            shares = shares / jnp.sum(shares)
            inverse = jnp.sqrt(longest / shares)[column]
            scaled = matrix * inverse[:, None]
            values, vectors = jnp.linalg.eigh(scaled @ scaled.T)
            best = jnp.minimum(best, jnp.sqrt(jnp.maximum(values[-1], 0)))
            mass = jnp.zeros(len(self.parts)).at[column].add(vectors[:, -1] ** 2)
            shares = jnp.sqrt(shares * (mass + 1e-6))
        return best


def _from_center(radius, matrix, center):
    """The largest |center + B' x| over |x| <= radius, by duality.

    For every number m above all eigenvalues s of B B', with c = B center in their coordinates,

        |center + B' x|^2 <= |center|^2 + m radius^2 + sum c^2 / (m - s),

    and for one of them the two are equal.
    """
    values, vectors = jnp.linalg.eigh(matrix @ matrix.T)
    products = vectors.T @ (matrix @ center)
    largest = jnp.maximum(values[-1], 0)
    room = jnp.linalg.norm(products) / radius + 1e-12 * largest
    above = room * jnp.geomspace(SMALLEST, 1, NUM_MULTIPLIERS)
    over = above[:, None] + jnp.maximum(largest - values, 0)
    tiny = jnp.finfo(over.dtype).tiny
    rest = jnp.sum(products**2 / jnp.maximum(over, tiny), axis=1)
    bounds = (largest + above) * radius**2 + rest
    return jnp.sqrt(jnp.sum(center**2) + jnp.min(bounds))
