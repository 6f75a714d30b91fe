r"""Accept bits of one kind, composed exactly up to a grid.

Let V_k(g) be the largest  P(S) - g Q(S)  that k bits allow when somebody chooses the state of the
chain before each of them. Then  delta_k(epsilon) = V_k(e^epsilon),  V_0(g) = max(0, 1 - g),  and by
conditioning on the first bit

    V_k(g) = sup over states  P(accept) V_{k-1}(g Q(accept)/P(accept))
                            + P(reject) V_{k-1}(g Q(reject)/P(reject)).

How it is made an upper bound:

    states     the supremum runs over boxes of `bits`, which cover all states; a box is split while
               it is the maximum somewhere, until it is at most EXCESS more costly than its dearest
               cell
    grid       x = log g is a multiple of the step h; V is convex in g, so its chords between grid
               points lie above it
    x < 0      V_k(x) = 1 - e^x + e^x V_k(-x): the set of pairs is closed under swapping the two
               tables
    x large    V falls, so its value at the last point kept bounds it from there on; where the bits
               are purely private, it is 0 beyond the sum of their epsilons

The work grows with the number of steps to the power 3/2: 2 000 steps take half a minute to a
minute, MOST_STEPS minutes. More are refused, and so are bits that reveal so little that the grid
would have too many points.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import scipy.sparse

from dpmcmc.acceptance import Barker
from dpmcmc.accounting.costs import AcceptBit, MinibatchBarker
from dpmcmc.accounting.laws import renyi
from dpmcmc.accounting.laws.bits import LARGEST, Boxes, is_resolved, two_point
from dpmcmc.errors import UnsupportedQuery

# Grid step = typical loss range / 32: inflates the variance of a loss by about 0.1 %
POINTS_PER_RANGE = 32
MOST_POINTS = 256  # for short runs, where the shape of each loss matters
EXCESS = 0.003  # a tenth of it for short runs
LEAD = 1e-3
FIRST_LEAF = 2048  # cells
PART = 400  # grid points that share their leaves
RENEWAL = 32  # steps after which leaves that do not win any more are joined again
ROUNDING = 1e-11
NEGLIGIBLE = 1e-9  # of delta, for each step
MOST_STEPS = 8192
# V so close to delta, or so few steps: another grid may give one step more or less
CLOSE, SHORT = 1e-6, 64
MOST_GRID = 2**15


@functools.lru_cache(maxsize=256)
def steps(cost: Any, epsilon: float, delta: float) -> int:
    """The largest number of bits within (epsilon, delta), as if each had its ideal law:
    `calibrate.steps` adds total-variation errors.
    """
    too_large = UnsupportedQuery(
        f"losses above {LARGEST:g}, or too small to distinguish from rounding, are more than the "
        "recursion can follow; use rdp or pure"
    )
    if epsilon > LARGEST:
        raise too_large
    certain = _certain(cost, epsilon)
    _check_length(certain, cost)
    reach, expected = _reach(cost, epsilon, delta)
    if not _is_resolved(cost, reach):
        raise too_large
    _check_length(expected // 2, cost)
    last = 0.0
    for count, (grid, values) in enumerate(
        _values(cost, reach, delta * NEGLIGIBLE, expected), start=1
    ):
        value = _at(grid, values, epsilon)
        if count > certain and value > delta:
            is_close = last > (1 - CLOSE) * delta or value < (1 + CLOSE) * delta
            return (
                _checked_steps(cost, count - 1, epsilon, delta)
                if is_close or count < SHORT
                else count - 1
            )
        last = value
    raise AssertionError("the recursion does not end")


def _checked_steps(cost: Any, count: int, epsilon_: float, delta: float) -> int:
    """The number of steps by `epsilon`, near `count`.

    Its grid is another one. Where the two numbers could differ, this one is returned.
    """
    while count > 0 and epsilon(cost, count, delta) > epsilon_:
        count -= 1
    while count < MOST_STEPS and epsilon(cost, count + 1, delta) <= epsilon_:
        count += 1
    return count


@functools.lru_cache(maxsize=256)
def epsilon(cost: Any, count: int, delta: float) -> float:
    """The least epsilon of `count` bits at this delta, as if each had its ideal law: `accountants`
    adds total-variation errors.
    """
    certain = math.inf if cost.pure() is None else count * cost.pure()
    reach = min(certain, _renyi_epsilon(cost, count, delta / 1000))
    if not _is_resolved(cost, reach):
        if cost.pure() is None:
            raise UnsupportedQuery(
                f"{cost} has losses above {LARGEST:g}, which the recursion cannot follow; use rdp"
            )
        return certain
    _check_length(count, cost)
    grid, values = _after(cost, count, reach, delta * NEGLIGIBLE)
    if values[0] <= delta:
        return 0.0
    index = int(np.argmax(values <= delta))
    if values[index] > delta:
        return certain
    part = (values[index - 1] - delta) / (values[index - 1] - values[index])
    return min(
        certain,
        float(grid[index - 1] + math.log1p(part * math.expm1(grid[index] - grid[index - 1]))),
    )


def delta(cost: Any, count: int, epsilon: float) -> float:
    """The least delta of `count` bits at this epsilon, as if each had its ideal law."""
    if count == 0:
        return 0.0
    if not _is_resolved(cost, epsilon + 2 * _margin(cost, count)):
        raise UnsupportedQuery(
            f"{cost} has losses above {LARGEST:g}, which the recursion cannot follow; use rdp or "
            "pure"
        )
    _check_length(count, cost)
    grid, values = _after(cost, count, epsilon + 2 * _margin(cost, count), 0.0)
    return _at(grid, values, epsilon)


def ledger_epsilon(costs: Mapping[Any, int], delta: float) -> float:
    """The least epsilon of a ledger that holds accept bits of one kind and nothing else."""
    return epsilon(only_bit(costs), int(sum(costs.values())), delta)


def only_bit(costs: Iterable[Any]) -> AcceptBit | MinibatchBarker:
    """The one kind of accept bit that a ledger holds; any other ledger is refused."""
    kinds = list(costs)
    if len(kinds) != 1 or not isinstance(kinds[0], AcceptBit | MinibatchBarker):
        raise UnsupportedQuery(
            "the recursion composes accept bits of one kind and nothing else; use rdp for other "
            "ledgers"
        )
    return kinds[0]


def _certain(cost: Any, epsilon: float) -> int:
    """As many bits as are purely epsilon-private."""
    if cost.pure() is None:
        return 0
    count = math.floor(epsilon / cost.pure())
    return count if count * cost.pure() <= epsilon else count - 1


def _is_resolved(cost: Any, reach: float) -> bool:
    """Whether the losses are small enough to compute with, and large enough."""
    if isinstance(cost, AcceptBit) and not is_resolved(cost.test, cost.range):
        return False
    return bool(max(reach, *(np.max(part) for part in cost.boxes()[:2])) <= LARGEST)


def _check_length(count: int, cost: Any) -> None:
    if count > MOST_STEPS:
        raise UnsupportedQuery(
            f"{count} steps or more of {cost} would take the recursion too long, it follows up to "
            f"{MOST_STEPS}; use rdp, which "
            "gives 10 to 18 % fewer steps"
        )


@functools.lru_cache(maxsize=64)
def _after(cost: Any, count: int, reach: float, floor: float) -> tuple[np.ndarray, np.ndarray]:
    for number, curve in enumerate(_values(cost, reach, floor, count), start=1):
        if number == count:
            return curve
    raise AssertionError("the recursion does not end")


def _at(grid: np.ndarray, values: np.ndarray, epsilon: float) -> float:
    """V at epsilon, on the chord in g."""
    index = min(int(np.searchsorted(grid, epsilon, side="right")) - 1, grid.size - 2)
    part = math.expm1(epsilon - grid[index]) / math.expm1(grid[1] - grid[0])
    return (
        float((1 - part) * values[index] + part * values[index + 1]) * (1 + ROUNDING)
        if part <= 1
        else 1.0
    )


def _renyi_epsilon(cost: Any, count: int, delta: float) -> float:
    return renyi.least(
        lambda a: count * cost.rdp(a), functools.partial(renyi.best_epsilon, delta=delta)
    )


def _margin(cost: Any, count: int) -> float:
    return math.sqrt(2 * count * float(cost.rdp(np.array([1.05]))[0])) * 3 + float(
        np.max(cost.boxes().accept)
    )


def _reach(cost: Any, epsilon: float, delta: float) -> tuple[float, int]:
    """The epsilon beyond which V stays negligible for as many steps as fit, and about how many
    these are.
    """
    count = 1
    while _renyi_epsilon(cost, count, delta) <= epsilon:
        count = 2 * count
    return max(_renyi_epsilon(cost, count, delta / 100), epsilon + _margin(cost, count)), count


def _values(
    cost: Any, reach: float, floor: float, expected: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """V_1, V_2, ...

    on a grid of epsilons from 0 to `reach`; values below `floor` are not followed further out.
    """
    boxes = cost.boxes()
    points = min(MOST_POINTS, max(POINTS_PER_RANGE, 2048 // expected))
    step = _typical_loss(boxes) * 2 / points
    if reach / step > MOST_GRID:
        raise UnsupportedQuery(
            f"one bit of {cost} reveals so little that the recursion would need {reach / step:.2g} "
            "grid points; use rdp or pure"
        )
    grid = step * np.arange(math.ceil(reach / step) + 2)
    values = np.maximum(0.0, -np.expm1(grid))
    is_mirrored = isinstance(cost, AcceptBit) and isinstance(cost.test, Barker)
    excess = EXCESS * min(1.0, max(0.1, expected / 60))
    cuts = [(start, min(start + PART, grid.size)) for start in range(0, grid.size, PART)]
    parts = [Part(boxes, step, is_mirrored, excess, *cut) for cut in cuts]
    for count in itertools.count():
        values = _advance(parts, grid, values, count % RENEWAL == RENEWAL - 1, floor)
        yield grid, values


def _typical_loss(boxes: Boxes) -> float:
    return math.sqrt(float(np.max(boxes.accept * boxes.reject)))


def _advance(
    parts: list[Part], grid: np.ndarray, values: np.ndarray, renew: bool, floor: float
) -> np.ndarray:
    """One step of the recursion, part by part of the grid, as far out as V is above the floor."""
    margin = max(part.farthest for part in parts) + 1
    extended = _extended(grid, values, margin)
    new = np.zeros(grid.size)
    for part in parts:
        new[part.start : part.stop] = part.maximum(extended, margin, renew)
        if new[part.stop - 1] <= floor:
            new[part.stop :] = new[part.stop - 1]
            break
    return new + parts[0].boxes.beyond * (1 + np.exp(grid))


def _extended(grid: np.ndarray, values: np.ndarray, margin: int) -> np.ndarray:
    """V from `margin` points before the grid to as many after it."""
    points = (grid[1] - grid[0]) * np.arange(margin, 0, -1)
    mirror = values[np.minimum(np.arange(margin, 0, -1), values.size - 1)]
    return np.concatenate(
        [-np.expm1(-points) + np.exp(-points) * mirror, values, np.full(margin, values[-1])]
    )


class Part:
    """A part of the grid with its own way of cutting all cells into leaves, fine only where a leaf
    is the maximum.
    """

    def __init__(
        self, boxes: Boxes, step: float, is_mirrored: bool, excess: float, start: int, stop: int
    ):
        self.boxes = boxes
        self.start = start
        self.stop = stop
        self._step = step
        self._is_mirrored = is_mirrored
        self._excess = excess
        self._coarsest = np.append(np.arange(0, boxes.accept.size, FIRST_LEAF), boxes.accept.size)
        self._cut(self._coarsest)

    def maximum(self, extended: np.ndarray, margin: int, renew: bool) -> np.ndarray:
        """The largest expected V over all leaves; coarse leaves that could add to it are split
        until fine.
        """
        before = extended[self.start + margin : self.stop + margin]
        while True:
            totals = self._totals(extended, margin)
            best = np.max(totals, axis=0)
            coarse = self._coarse_winners(totals, best, before)
            if coarse.size == 0:
                break
            cuts = [np.linspace(self._edges[i], self._edges[i + 1], 5).astype(int) for i in coarse]
            self._cut(np.union1d(self._edges, np.concatenate(cuts)))
        if renew:
            winners = np.unique(np.argmax(totals, axis=0) % self._is_coarse.size)
            near = np.clip(winners[:, None] + np.arange(-2, 4), 0, self._edges.size - 1)
            self._cut(np.union1d(self._coarsest, self._edges[near.ravel()]))
        return best

    def _coarse_winners(
        self, totals: np.ndarray, best: np.ndarray, before: np.ndarray
    ) -> np.ndarray:
        """Coarse leaves above all fine ones somewhere, by more than a thousandth of what this step
        adds to V.
        """
        is_coarse = np.tile(self._is_coarse, totals.shape[0] // self._is_coarse.size)
        if not is_coarse.any():
            return np.empty(0, int)
        fine = np.max(totals[~is_coarse], axis=0, initial=0.0)
        enough = fine + LEAD * np.maximum(best - before, 0.0)
        return np.unique(np.flatnonzero(np.any(totals > enough, axis=1)) % self._is_coarse.size)

    def _totals(self, extended: np.ndarray, margin: int) -> np.ndarray:
        """The expected V of each leaf, at each x."""
        windows = np.lib.stride_tricks.sliding_window_view(extended, self.stop - self.start)
        return self._weights @ windows[self.start + margin - self._shifts]

    def _cut(self, edges: np.ndarray) -> None:
        """Make [edges[i], edges[i+1]) the leaves: each one box, in both orders of the tables unless
        they are alike.
        """
        accept = self.boxes.accept
        reject = self.boxes.reject
        up = np.maximum.reduceat(accept, edges[:-1])
        down = np.maximum.reduceat(reject, edges[:-1])
        dearest = np.maximum.reduceat(accept * reject, edges[:-1])
        self._edges = edges
        self._is_coarse = (np.diff(edges) > 1) & (up * down > (1 + self._excess) * dearest)
        q, r = two_point(up, down)
        losses = [up, -down]
        chances = [q * np.exp(up), r * np.exp(-down)]
        if not self._is_mirrored:
            losses = [np.append(losses[0], -up), np.append(losses[1], down)]
            chances = [np.append(chances[0], q), np.append(chances[1], r)]
        self._plan(losses, chances)

    def _plan(self, losses: list[np.ndarray], chances: list[np.ndarray]) -> None:
        """V(x - loss) is a chord between two grid points, at the same distance from every x."""
        shifts = []
        weights = []
        for loss, chance in zip(losses, chances, strict=True):
            shift = np.ceil(loss / self._step)
            part = np.expm1(shift * self._step - loss) / math.expm1(self._step)
            shifts += [shift, shift - 1]
            weights += [chance * (1 - part), chance * part]
        self._shifts, column = np.unique(np.array(shifts, int), return_inverse=True)
        leaf = np.broadcast_to(np.arange(losses[0].size), column.shape)
        self._weights = scipy.sparse.csr_array((np.ravel(weights), (leaf.ravel(), column.ravel())))
        self.farthest = int(np.max(np.abs(self._shifts)))
