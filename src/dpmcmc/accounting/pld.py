r"""Privacy-loss distributions by connect-the-dots.

A profile known at epsilons e_i is bounded from above by the profile that is linear in e^epsilon between them
:cite:p:`doroshenko2022connect`: a law with losses at these dots, of chance

    p_i = (d_{i+1} - d_i) / (e^h_i - 1) - (d_i - d_{i-1}) / (1 - e^-h_{i-1}),       d_i = delta(e_i),  h_i = e_{i+1} - e_i,

and an infinite loss of chance delta at the last one. The dots lie on a grid of equal cells: evenly up to a loss of `LARGE`, on all
of it unless the losses spread widely; beyond, their distance grows in proportion to the loss. Losses of composed queries add, so
their laws are convolved, by one Fourier transform per cost raised to the power of its count. The window is chosen so that what lies
outside has a chance of at most 1e-14 (Chernoff's bound), and that chance is added to delta. Cells are 1e-4 wide or less, wider only
where windows would have more than 2^22 of them in all. Both orders of the two tables are composed, each by itself: the direction
of a change is the same in every step.

A bound on what the Fourier sums misplace is added to delta. It grows with the number of steps: with doubles it is about 1e-9 for
10^4; where that is more than `ALLOWED` of delta the sums are done again in extended precision, which takes up to ten times as
long, with 1e-13 for 10^4 and 1e-9 for 10^8. Below delta = 1e-10 the answer is refused. So much of delta is charged in any case:
epsilon should not fall where the precision changes, nor differ between processors, whose extended precisions do (1e-7 is left).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy import fft

from dpmcmc.accounting.profiles import SMALLEST_DELTA, Pair, Profile
from dpmcmc.errors import UnsupportedQuery

INTERVAL = 1e-4
CELLS_PER_SPREAD = 10  # the grid adds a variance of about h^2/6 to each loss: 0.2 % of it with ten cells
DOTS_PER_SPREAD = 2500  # more are not needed, however fine the grid is
MOST_CELLS = 2**21
LARGE = 8.0
TAIL = 1e-14
NEGLIGIBLE = 1e-26  # a Fourier coefficient this small is left out
PRECISIONS: tuple[type, ...] = (np.float64, np.longdouble) if np.finfo(np.longdouble).eps < np.finfo(float).eps else (np.float64,)
ALLOWED = 0.001  # of delta: 0.005 % of an epsilon of 1
TILTS = np.geomspace(1e-6, 400.0, 32)

LARGEST_LOSS = 700.0  # beyond, e^loss leaves the floating-point range


class Losses(NamedTuple):
    """A law of the privacy loss on the grid h * (first + 0, 1, 2, ...), and its logarithmic moments for the window."""

    chances: np.ndarray
    first: int
    infinite: float
    upper: np.ndarray  # log E e^(t loss) for t in TILTS
    lower: np.ndarray  # log E e^(-t loss)


class Composed(NamedTuple):
    """The law of a whole ledger's loss."""

    losses: np.ndarray
    chances: np.ndarray
    infinite: float
    misplaced: float  # of `infinite`, what is there for the rounding of the Fourier sums


def connect_the_dots(profile: Profile, interval: float) -> Losses:
    """The least law on the grid whose profile is above the given one."""
    if max(abs(profile.low), abs(profile.high)) > LARGEST_LOSS:
        raise UnsupportedQuery(f"a single release of this ledger has losses up to {profile.high:.3g}: no grid resolves them")
    stride = max(1, math.floor(profile.spread / DOTS_PER_SPREAD / interval))
    dots = _dots(
        math.floor(profile.low / interval) - 1,
        math.ceil(profile.high / interval) + 1,
        max(1, round(LARGE / interval)),
        stride,
    )
    losses = interval * dots
    excess = profile.excess(losses)
    # Two equal laws have all their loss at zero; the excess over their profile adds the rest (and takes from zero).
    steps, gaps = np.diff(excess), np.diff(losses)
    chances = np.concatenate([[-excess[0]], steps / np.expm1(-gaps)])
    chances[:-1] += steps / np.expm1(gaps)
    chances[np.searchsorted(dots, 0)] += 1
    chances = np.maximum(chances, 0.0)
    moments = [[_log_moment(chances, losses, sign * tilt) for tilt in TILTS] for sign in (1, -1)]
    on_grid = np.zeros(dots[-1] - dots[0] + 1)
    on_grid[dots - dots[0]] = chances
    return Losses(on_grid, int(dots[0]), max(float(excess[-1]), 0.0), np.array(moments[0]), np.array(moments[1]))


def _dots(first: int, last: int, large: int, stride: int = 1) -> np.ndarray:
    """Every `stride`-th integer from `first` to `last`, sparser beyond `large`: distances grow there in proportion."""
    most = max(-first, last)
    sizes = np.arange(0, min(large, most), stride)
    if large < most:
        powers = np.arange(math.ceil(large / stride * math.log(most / large)) + 1)
        sizes = np.append(sizes, np.floor(large * np.exp(powers * stride / large)).astype(int))
        sizes = sizes[np.diff(sizes, prepend=-1) > 0]
    both = np.concatenate([-sizes[:0:-1], sizes])
    return np.concatenate([[first], both[(first < both) & (both < last)], [last]])


def _log_moment(chances: np.ndarray, losses: np.ndarray, tilt: float) -> float:
    # Where e^(tilt loss) overflows, the rarest losses rule the moment, and a smaller tilt gives the better bound.
    if abs(tilt) * max(abs(losses[0]), abs(losses[-1])) > 700:
        return math.inf
    return math.log(float(np.exp(tilt * losses) @ chances))


def epsilon(costs: Mapping[Any, int], delta: float) -> float:
    """The least epsilon of the composed ledger at this delta, over both orders of the tables.

    As if each release had its ideal law: `accountants` knows of distances.
    """
    if delta < SMALLEST_DELTA:
        has_rdp = all(np.isfinite(cost.rdp(np.array([2.0]))[0]) for cost in costs)
        way_out = "try rdp" if has_rdp else "promise a larger one"
        raise UnsupportedQuery(f"delta={delta:g} is below {SMALLEST_DELTA:g}, where Fourier sums are no upper bounds: {way_out}")
    return _ledger_epsilon(_sorted(costs), delta)


@functools.lru_cache(maxsize=4096)
def _ledger_epsilon(items: tuple[tuple[Any, int], ...], delta: float) -> float:
    for precision in PRECISIONS:
        laws = _both_orders(items, precision)
        if _is_good(laws, delta):
            break
    return max(_epsilon(_charged(law, delta), delta) for law in laws)


def delta(costs: Mapping[Any, int], epsilon: float) -> float:
    """The least delta of the composed ledger at this epsilon, over both orders of the tables."""
    for precision in PRECISIONS:
        laws = both_orders(costs, precision)
        found = max(max(value, (value - law.misplaced) / (1 - ALLOWED)) for law in laws for value in [_delta(law, epsilon)])
        if _is_good(laws, found):
            break
    return max(min(1.0, found), SMALLEST_DELTA)


def _is_good(laws: tuple[Composed, ...], delta: float) -> bool:
    return max(law.misplaced for law in laws) <= ALLOWED * delta


def _charged(law: Composed, delta: float) -> Composed:
    """With what is charged in any case."""
    return law._replace(infinite=law.infinite + max(0.0, ALLOWED * delta - law.misplaced))


def both_orders(costs: Mapping[Any, int], precision: type = PRECISIONS[0]) -> tuple[Composed, ...]:
    """The composed laws: one when every cost is its own mirror image."""
    return _both_orders(_sorted(costs), precision)


def _sorted(costs: Mapping[Any, int]) -> tuple[tuple[Any, int], ...]:
    whole = {cost: int(count) for cost, count in costs.items()}  # other integers wrap around
    return tuple(sorted(whole.items(), key=repr))


@functools.lru_cache(maxsize=128)
def _both_orders(items: tuple[tuple[Any, int], ...], precision: type) -> tuple[Composed, ...]:
    pairs = [cost.profiles() for cost, _ in items]
    if any(pair is None for pair in pairs):
        raise UnsupportedQuery("some cost of this ledger has no exact profile to compose (accept bits: use the recursion)")
    known = [pair for pair in pairs if pair is not None]
    sides = (0,) if all(pair.forward is pair.backward for pair in known) else (0, 1)
    counts = [count for _, count in items]
    interval = _interval(known, counts)
    while True:
        laws = [[_law(cost, side, interval) for cost, _ in items] for side in sides]
        windows = [_window(side, counts, interval) for side in laws]
        if sum(high - low for low, high in windows) < 2 * MOST_CELLS:
            break
        interval *= 4
        if interval > LARGEST_LOSS:
            raise UnsupportedQuery("the summed losses of this ledger spread so widely that no grid resolves them: use rdp or pure")
    return tuple(_compose(s, counts, w, interval, precision) for s, w in zip(laws, windows, strict=True))


def _interval(pairs: list[Pair], counts: list[int]) -> float:
    # Of all losses together: rare or tiny ones add little to the sum, and may be resolved less well.
    variance = math.fsum(count * pair.forward.spread**2 for pair, count in zip(pairs, counts, strict=True)) / max(1, sum(counts))
    finest = min(INTERVAL, math.sqrt(variance) / CELLS_PER_SPREAD)
    widest = max(pair.forward.high - pair.forward.low for pair in pairs)
    # A power of two times the default, so that ledgers with a cost in common share its law.
    return INTERVAL * 2.0 ** math.floor(math.log2(max(finest, widest / MOST_CELLS) / INTERVAL))


@functools.lru_cache(maxsize=64)
def _law(cost: Any, side: int, interval: float) -> Losses:
    return connect_the_dots(cost.profiles()[side], interval)


def _window(laws: list[Losses], counts: list[int], interval: float) -> tuple[int, int]:
    """Grid indices outside of which the summed loss lies with a chance of at most TAIL."""
    upper = sum(count * law.upper for law, count in zip(laws, counts, strict=True))
    lower = sum(count * law.lower for law, count in zip(laws, counts, strict=True))
    most = sum(count * (law.first + law.chances.size - 1) for law, count in zip(laws, counts, strict=True))
    least = sum(count * law.first for law, count in zip(laws, counts, strict=True))
    high = np.min((upper + math.log(2 / TAIL)) / TILTS) / interval
    low = -np.min((lower + math.log(2 / TAIL)) / TILTS) / interval
    return math.floor(max(least, low)), math.ceil(min(most, high))


def _compose(laws: list[Losses], counts: list[int], window: tuple[int, int], interval: float, precision: type) -> Composed:
    size = fft.next_fast_len(window[1] - window[0] + 1, real=True)
    transforms = [fft.rfft(_folded(law.chances, size, precision)) for law in laws]
    transform = _product_of_powers(transforms, counts)
    start = sum(count * law.first for law, count in zip(laws, counts, strict=True))
    chances = np.roll(fft.irfft(transform, size), start - window[0]).astype(float)
    finite = math.fsum(count * math.log1p(-law.infinite) for law, count in zip(laws, counts, strict=True))
    # The laws themselves are right to some 1e-15 of what they are: so much may be missing in every step.
    chances = np.maximum(chances, 0.0) * (1 + 1e-15 * sum(counts))
    losses = interval * np.arange(window[0], window[0] + size)
    misplaced = _misplaced(transform, sum(counts))
    return Composed(losses, chances, TAIL + misplaced - math.expm1(finite), misplaced)


def _product_of_powers(transforms: list[np.ndarray], counts: list[int]) -> np.ndarray:
    """Where it is above NEGLIGIBLE, which it mostly is not; zero elsewhere."""
    with np.errstate(divide="ignore"):
        sizes = sum(count * np.log(np.abs(part).astype(float)) for part, count in zip(transforms, counts, strict=True))
    large = np.flatnonzero(sizes > math.log(NEGLIGIBLE))
    product = np.zeros_like(transforms[0])
    product[large] = 1
    for part, count in zip(transforms, counts, strict=True):
        product[large] *= _power(part[large], count)
    return product


def _power(base: np.ndarray, exponent: int) -> np.ndarray:
    """By squaring: in extended precision logarithms are slow. What one product rounds is raised to the powers that follow, so it
    all adds up to `exponent` units, as the errors of the base do."""
    power = np.ones_like(base)
    for digit in reversed(f"{exponent:b}"):
        if digit == "1":
            power *= base
        base *= base
    return power


def _misplaced(transform: np.ndarray, count: int) -> float:
    """How much chance the rounding of the Fourier sums can put in the wrong place.

    A transform of chances is right to 4 log2(size) units in the last place of 1, its power to `count` times that, relative to
    its size; by Cauchy's inequality and Parseval's theorem the misplaced chances add up to the Euclidean length of the errors
    at most. The transform back adds as much as one step.
    """
    unit = 4 * math.log2(2 * transform.size) * float(np.finfo(transform.dtype).eps)
    return (count + 1) * unit * math.sqrt(2 * float(np.sum(np.abs(transform) ** 2))) + 2 * transform.size * NEGLIGIBLE


def _folded(chances: np.ndarray, size: int, precision: type) -> np.ndarray:
    """Chances summed modulo `size`: a circular convolution sees no difference."""
    padded: np.ndarray = np.zeros(-(-chances.size // size) * size, precision)
    padded[: chances.size] = chances
    return padded.reshape(-1, size).sum(axis=0)


def _delta(law: Composed, epsilon: float) -> float:
    return _delta_from(law, int(np.searchsorted(law.losses, epsilon, side="right")), epsilon)


def _delta_from(law: Composed, index: int, epsilon: float) -> float:
    """delta at epsilon, when the losses from `index` on are those above it."""
    return min(1.0, law.infinite - float(np.expm1(epsilon - law.losses[index:]) @ law.chances[index:]))


def _epsilon(law: Composed, delta: float) -> float:
    if law.infinite > delta:
        return math.inf
    if _delta(law, 0.0) <= delta:
        return 0.0
    # The chance of a loss above e is more than delta(e), so the first index where it is small enough is an upper end.
    above = law.infinite + np.cumsum(law.chances[::-1])[::-1]
    high = min(int(np.searchsorted(-above, -delta)), law.losses.size - 1)
    low = max(0, int(np.searchsorted(law.losses, 0.0)) - 1)
    while high - low > 1:
        middle = (low + high) // 2
        value = _delta_from(law, middle + 1, float(law.losses[middle]))
        low, high = (middle, high) if value > delta else (low, middle)
    # Between two grid points delta(e) = U - e^e L is solved exactly, with L scaled by e^losses[high].
    upper = float(above[high])
    lower = float(np.exp(law.losses[high] - law.losses[high:]) @ law.chances[high:])
    return max(0.0, float(law.losses[high]) + min(0.0, math.log((upper - delta) / lower)))
