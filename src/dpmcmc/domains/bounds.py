r"""How much a row can contribute to a weighted sum in changed coordinates.

With u = A' x and theta = A phi, a row acts through its length |u|, its predictor t = u . phi and
its label y. Its weight

    w = min(1, C / (q |u|)) min(1, 2 C / |u|),      q(t) = max |f'(t, y)| over all labels y,

knows nothing of the label. The row adds w f' u to a gradient, and w v u u' and w^2 v u u' with
v = -f'' to two matrices. How far a row can move these sums is bounded here over all rows with
|u| <= R and |t| <= L:

**Gradient.** The set of all w f' u is a solid of revolution around phi, and it holds 0. Its
diameter is its largest width over directions e, the width being h(e) + h(-e) with the support
function h(e) = max e . (w f' u). Predictors and lengths are cut into cells, and h is bounded over
each cell: there w |u| f' <= min(r1 F, C G) min(1, 2 C / r0), where r0 and r1 are the ends of the
lengths, F bounds f' and G bounds f' / q, and the angle to phi lies between those of the cell's
ends. Directions have a step of d between them, so that the largest width over those that are tried
is at least cos(d / 2) of the diameter.

**Matrices.** Both have the length w v |u|^2 and w^2 v |u|^2, and w v |u|^2 is at most
V min(r1^2, C r1 / q, 2 C r1, 2 C^2 / q), with V the largest v and q the least q in the cell.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

from dpmcmc.domains.sets import Domain
from dpmcmc.types import Array, Neighbours, Unit

NUM_DIRECTIONS = 16  # of a quarter turn
NUM_LENGTHS = 64
FINEST = 3  # table cells in one cell around the predictor 0
GROWTH = 0.02  # of the width of a cell beyond
SLACK = 1e-6  # relative, for rounding here
REPLACE_ONE = Unit()
SMALLEST_CAP = 2.0**-10  # over the largest length


class Cells(NamedTuple):
    """What the tables say about cells of the predictor.

    Attributes:
        low: The lower ends.
        high: The upper ends.
        rise: The largest f' over all labels, or 0.
        fall: The largest -f', or 0.
        rise_share: The largest f' / q, or 0.
        fall_share: The largest -f' / q, or 0.
        steepest: The least q.
        bend: The largest -f''.
    """

    low: Array
    high: Array
    rise: Array
    fall: Array
    rise_share: Array
    fall_share: Array
    steepest: Array
    bend: Array


class Limits(NamedTuple):
    """What bounds a row in the coordinates of a query.

    Attributes:
        radius: R: of |u|.
        reach: L: of |t|.
        steepness: |phi|.
    """

    radius: Array
    reach: Array
    steepness: Array


@dataclass(frozen=True, eq=False)
class RowSet:
    """The public set of rows of a model with a linear predictor and a few labels.

    Attributes:
        domain: The public set of features.
        step: What features are rounded to: a placed row is within `Limits` all the same.
        ends: Predictors, where the tables below have values, at equal distances. Beyond the first
            and the last, the derivatives are those of the nearest.
        slopes: f' of each label, (labels, ends); between two ends it lies between their values.
        roots: The same of the root of -f''.
        chances: The chance of each label under the model, of the same shape.

    Example:
        >>> import numpy as np
        >>> from dpmcmc import Curator, models
        >>> rows = np.zeros((100, 2), np.float32), np.zeros(100, np.float32)
        >>> facts = Curator(rows, models.logistic(2, radius=3.0), None).facts
        >>> axes, phi = 2 * np.eye(2), np.zeros(2)
        >>> round(float(facts.row_set.radius(axes)), 1)
        6.0
        >>> round(float(facts.row_set.gradient_diameter(axes, phi, cap=np.inf)))
        6
        >>> round(float(facts.row_set.gradient_diameter(axes, phi, cap=1.0)), 1)
        2.0
    """

    domain: Domain
    step: float
    ends: np.ndarray
    slopes: np.ndarray
    roots: np.ndarray
    chances: np.ndarray

    def radius(self, matrix: Array) -> Array:
        """The largest length |A' x| of a row, or a bound of it.

        Args:
            matrix: A, of shape (d, d).

        Returns:
            A number.
        """
        exact = self.domain.radius(matrix)
        lengths = jnp.sum(jnp.linalg.norm(matrix, axis=1))
        return exact * (1 + self.step / self.domain.longest) + self.step * lengths

    def reach(self, theta: Array) -> Array:
        """The largest predictor |x . theta| of a row.

        Args:
            theta: The position.

        Returns:
            A number.
        """
        exact = self.domain.reach(theta)
        return exact * (1 + self.step / self.domain.longest) + self.step * jnp.sum(jnp.abs(theta))

    def slope(self, predictor: Array) -> Array:
        """q: the largest |f'| over all labels.

        Args:
            predictor: t, of any shape.

        Returns:
            Numbers of that shape.
        """
        return jnp.interp(predictor, self.ends, np.max(np.abs(self.slopes), axis=0))

    def information(self, predictor: Array) -> Array:
        """The mean of -f'' over labels, as likely as the model has them.

        Args:
            predictor: t, of any shape.

        Returns:
            Numbers of that shape.
        """
        return jnp.interp(predictor, self.ends, np.sum(self.chances * self.roots**2, axis=0))

    def gradient_diameter(
        self, matrix: Array, phi: Array, cap: Any = math.inf, unit: Unit = REPLACE_ONE
    ) -> Array:
        """How far one unit can move the sum of all rows' w f' u: a proved bound.

        Args:
            matrix: A, of shape (d, d).
            phi: The position in these coordinates.
            cap: C; infinite for no weights.
            unit: Whom the promise protects.

        Returns:
            A number.
        """
        return self.gradient_bound(self.limits(matrix, phi), len(phi), cap, unit)

    def curvature_bound(
        self, matrix: Array, phi: Array, cap: Any = math.inf, unit: Unit = REPLACE_ONE
    ) -> Array:
        """How far one unit can move both sums of matrices, in Frobenius norm: a proved bound.

        Args:
            matrix: A, of shape (d, d).
            phi: The position in these coordinates.
            cap: C; infinite for no weights, where the sums are one.
            unit: Whom the promise protects.

        Returns:
            A number.
        """
        return self.longest_matrices(self.limits(matrix, phi), cap) * apart(unit)

    def limits(self, matrix: Array, phi: Array) -> Limits:
        """What bounds a row at these points."""
        matrix = jnp.asarray(matrix)
        return Limits(
            self.radius(matrix), self.reach(matrix @ phi), jnp.linalg.norm(jnp.asarray(phi))
        )

    def gradient_bound(self, limits: Limits, dimension: int, cap: Any, unit: Unit) -> Array:
        """The bound of `gradient_diameter` for rows within limits."""
        cap = self.held_cap(limits, cap)
        cells, r0, r1 = self._over(limits, cap)
        fade = jnp.minimum(1, 2 * cap / r0)
        rise = jnp.minimum(r1 * cells.rise, cap * cells.rise_share) * fade
        fall = jnp.minimum(r1 * cells.fall, cap * cells.fall_share) * fade
        if unit.neighbours is not Neighbours.REPLACE_ONE:
            widest = jnp.max(jnp.maximum(rise, fall))
            return unit.rows_per_person * widest * (1 + SLACK)
        first, last = _angles(cells, limits, r0, r1)

        def width(direction):
            near = _largest_cosine(first, last, direction)
            far = _largest_cosine(first, last, math.pi - direction)
            forth = jnp.max(jnp.maximum(rise * near, fall * far))
            back = jnp.max(jnp.maximum(rise * far, fall * near))
            return jnp.maximum(forth, 0) + jnp.maximum(back, 0)

        number = 0 if dimension == 1 else NUM_DIRECTIONS
        turn = math.pi / 2 / max(number, 1)
        directions = jnp.arange(number + 1, dtype=rise.dtype) * turn
        widest = jnp.max(lax.map(width, directions))
        margin = _between_directions(turn) if number else 1.0
        return unit.rows_per_person * widest * margin * (1 + SLACK)

    def longest_matrices(self, limits: Limits, cap: Any) -> Array:
        """The largest length of one row's pair of matrices, or of one of them without weights."""
        cap = self.held_cap(limits, cap)
        cells, r0, r1 = self._over(limits, cap)
        most = jnp.minimum(1, cap / (cells.steepest * r0)) * jnp.minimum(1, 2 * cap / r0)
        length = jnp.minimum(r1, cap / cells.steepest) * jnp.minimum(r1, 2 * cap)
        both = jnp.where(self.is_weighted(limits, cap), jnp.sqrt(1 + most**2), 1.0)
        return jnp.max(cells.bend * length * both) * (1 + SLACK)

    def is_weighted(self, limits: Limits, cap: Any) -> Array:
        """Whether any row within limits may have a weight below 1."""
        cap = self.held_cap(limits, cap)
        cells, _, _ = self._over(limits, cap)
        steepest = jnp.max(jnp.maximum(cells.rise, cells.fall))
        return cap < jnp.maximum(0.5, steepest) * limits.radius

    def held_cap(self, limits: Limits, cap: Any) -> Array:
        """The cap that is used: not so small that no row counts, and no larger than has a use.

        One that is no number stands for no weights.
        """
        most = jnp.asarray(self._widest * limits.radius)
        held = jnp.clip(jnp.asarray(cap, most.dtype), SMALLEST_CAP * limits.radius, most)
        return jnp.where(jnp.isnan(held), most, held)

    @functools.cached_property
    def _widest(self) -> float:
        """A cap of so many radii gives no row a weight below 1."""
        return max(0.5, self.steepest)

    @functools.cached_property
    def steepest(self) -> float:
        """The largest |f'| of all."""
        return float(np.max(np.abs(self.slopes)))

    def _over(self, limits: Limits, cap: Any) -> tuple[Cells, Array, Array]:
        """Cells of the predictor as columns, and the ends of the lengths as lines.

        What no row within limits has is left out, by a bound of 0.
        """
        radius = limits.radius
        scale = jnp.minimum(radius, cap)
        first = jnp.linspace(0.25 * scale, jnp.minimum(radius, 2.2 * scale), NUM_LENGTHS // 2)
        rest = first[-1] * (radius / first[-1]) ** jnp.linspace(0, 1, NUM_LENGTHS // 2)
        ends = jnp.concatenate([jnp.zeros(1, first.dtype), first, rest[1:-1], radius[None]])
        tiny = 1e-30 * radius
        r0, r1 = jnp.maximum(ends[:-1], tiny), jnp.maximum(ends[1:], tiny)
        cells = Cells(*(jnp.asarray(each, first.dtype)[:, None] for each in self._cells))
        nearest = jnp.maximum(jnp.maximum(cells.low, -cells.high), 0)
        is_there = nearest <= jnp.minimum(limits.reach, limits.steepness * r1)
        kept = {
            name: jnp.where(is_there, getattr(cells, name), 0)
            for name in ("rise", "fall", "rise_share", "fall_share", "bend")
        }
        return cells._replace(**kept), r0, r1

    @functools.cached_property
    def _cells(self) -> Cells:
        """The tables' cells, several of them together where the predictor is large."""
        places = _places(len(self.ends))
        q = np.max(np.abs(self.slopes), axis=0)
        steepest = np.maximum(np.maximum(q[:-1], q[1:]), 1e-30)
        rise, fall = (np.maximum(np.max(sign * self.slopes, axis=0), 0) for sign in (1, -1))
        bend = np.max(self.roots, axis=0) ** 2
        starts, stops = places[:-1], places[1:]

        def largest(values):  # at the ends
            return np.array([np.max(values[a : b + 1]) for a, b in zip(starts, stops, strict=True)])

        def largest_share(values):  # of fine cells
            share = np.maximum(values[:-1], values[1:]) / steepest
            return np.array([np.max(share[a:b]) for a, b in zip(starts, stops, strict=True)])

        low, high = self.ends[starts].copy(), self.ends[stops].copy()
        low[0], high[-1] = -1e30, 1e30
        return Cells(
            low, high, largest(rise), largest(fall), largest_share(rise), largest_share(fall),
            np.maximum(-largest(-q), 1e-30), largest(bend),
        )  # fmt: skip


def apart(unit: Unit) -> float:
    """How far one unit moves a sum of positive semi-definite matrices of norm at most 1.

    Two such sums S and T of at most m rows each are at most sqrt(|S|^2 + |T|^2) apart.
    """
    is_replaced = unit.neighbours is Neighbours.REPLACE_ONE
    # math.sqrt(2) is above the square root of 2.
    return unit.rows_per_person * (math.sqrt(2) if is_replaced else 1.0)


def _places(num_ends: int) -> np.ndarray:
    """Which ends of the tables' cells are ends here too: dense in the middle."""
    middle = num_ends // 2
    places = [middle]
    while places[-1] < num_ends - 1:
        width = max(FINEST, round(GROWTH * (places[-1] - middle)))
        places.append(min(places[-1] + width, num_ends - 1))
    above = np.array(places)
    below = np.maximum(2 * middle - above[:0:-1], 0)
    return np.unique(np.concatenate([below, above]))


def _between_directions(turn: float) -> float:
    """By how much the diameter may exceed the largest width over directions a turn apart."""
    return 1 / math.cos(turn / 2)


def _angles(cells: Cells, limits: Limits, r0, r1):
    """Between which angles to phi the rows of a cell lie."""
    tiny = 1e-30
    near, far = (jnp.maximum(limits.steepness * r, tiny) for r in (r0, r1))
    low = jnp.maximum(cells.low, -limits.reach)
    high = jnp.minimum(cells.high, limits.reach)
    least = jnp.where(low < 0, low / near, low / far)
    most = jnp.where(high < 0, high / far, high / near)
    return jnp.arccos(jnp.clip(most, -1, 1)), jnp.arccos(jnp.clip(least, -1, 1))


def _largest_cosine(first, last, direction):
    """The largest cos(angle - direction) over angles between the first and the last."""
    nearest = jnp.clip(direction, first, jnp.maximum(last, first))
    return jnp.cos(nearest - direction)
