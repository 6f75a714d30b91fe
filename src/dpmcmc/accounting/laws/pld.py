r"""Privacy-loss distributions by connect-the-dots.

A profile known at epsilons e_i is bounded from above by the profile that is linear in e^epsilon
between them :cite:p:`doroshenko2022connect`: a law with losses at these dots, of chance

    p_i = (d_{i+1} - d_i) / (e^h_i - 1) - (d_i - d_{i-1}) / (1 - e^-h_{i-1}),
    d_i = delta(e_i),  h_i = e_{i+1} - e_i,

and an infinite loss of chance delta at the last one. The dots lie on a grid of equal cells: evenly
up to a loss of `LARGE` in cells of 1e-4, up to as many cells where they are smaller; beyond, their
distance grows in proportion to the loss. Losses add, so their laws are convolved, by one Fourier
transform per cost raised to the power of its count. The window is chosen so that what lies outside
has a chance of at most 1e-14 (Chernoff's bound), and that chance is added to delta. Cells are 1e-4
wide or less, wider only where windows would have more than 2^22 of them in all. Both orders of the
two tables are composed, each by itself: the direction of a change is the same in every step.

A bound on what the rounding of the Fourier sums misplaces is added to delta. As they are commonly
done it would grow with the number of steps, to 1e-9 for 10^4 and beyond delta for 10^7;
`_logarithm` says how it is kept to about 1e-13 for any number, or 1e-11 where rows are so rarely
read that the summed loss is mostly one atom. Below delta = 1e-10 the answer is refused.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.polynomial import polynomial
from scipy import fft

from dpmcmc.accounting.laws.profiles import SMALLEST_DELTA, Pair, Profile
from dpmcmc.errors import UnsupportedQuery

INTERVAL = 1e-4
# The grid adds a variance of about h^2/6 to each loss: 0.2 % of it with ten cells
CELLS_PER_SPREAD = 10
DOTS_PER_SPREAD = 2500  # more are not needed, however fine the grid is
MOST_CELLS = 2**21
LARGE = 8.0
TAIL = 1e-14
NEGLIGIBLE = 1e-26  # a Fourier coefficient this small is left out
EPS = float(np.finfo(float).eps)
ROUNDED = 4e-15  # of a law: so much may be missing in every step
# Of all steps together: what is left to fast transforms, unless there are more terms than
RARE = 0.1
FEW = 8  # So many steps are left to fast transforms altogether: each is off by some 1e-13
MOST_TERMS = 2**22
# The best is some 8 over the spread of the summed loss, which is above 2 delta
TILTS = np.geomspace(1e-6, 1e11, 62)

LARGEST_LOSS = 700.0  # beyond, e^loss leaves the floating-point range


class Losses(NamedTuple):
    """A law of the privacy loss on the grid h * (first + 0, 1, 2, ...), and its logarithmic moments
    for the window.
    """

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


def connect_the_dots(profile: Profile, interval: float) -> Losses:
    """The least law on the grid whose profile is above the given one."""
    if max(abs(profile.low), abs(profile.high)) > LARGEST_LOSS:
        raise UnsupportedQuery(
            f"a single release of this ledger has losses up to {profile.high:.3g}: no grid "
            "resolves them"
        )
    stride = max(1, math.floor(profile.spread / DOTS_PER_SPREAD / interval))
    dots = _dots(
        math.floor(profile.low / interval) - 1,
        math.ceil(profile.high / interval) + 1,
        max(1, round(LARGE / max(interval, INTERVAL))),
        stride,
    )
    losses = interval * dots
    excess = profile.excess(losses)
    # Two equal laws have all their loss at zero; the excess over their profile adds the rest (and
    # takes from zero).
    steps = np.diff(excess)
    gaps = np.diff(losses)
    chances = np.concatenate([[-excess[0]], steps / np.expm1(-gaps)])
    chances[:-1] += steps / np.expm1(gaps)
    chances[np.searchsorted(dots, 0)] += 1
    chances = np.maximum(chances, 0.0)
    on_grid = np.zeros(dots[-1] - dots[0] + 1)
    on_grid[dots - dots[0]] = chances
    upper, lower = (_log_moments(on_grid, int(dots[0]), interval, sign * TILTS) for sign in (1, -1))
    return Losses(on_grid, int(dots[0]), max(float(excess[-1]), 0.0), upper, lower)


def _dots(first: int, last: int, large: int, stride: int) -> np.ndarray:
    """Every `stride`-th integer from `first` to `last`, sparser beyond `large`: distances grow
    there in proportion.
    """
    most = max(-first, last)
    sizes = np.arange(0, min(large, most), stride)
    if large < most:
        powers = np.arange(math.ceil(large / stride * math.log(most / large)) + 1)
        sizes = np.append(sizes, np.floor(large * np.exp(powers * stride / large)).astype(int))
        sizes = sizes[np.diff(sizes, prepend=-1) > 0]
    both = np.concatenate([-sizes[:0:-1], sizes])
    return np.concatenate([[first], both[(first < both) & (both < last)], [last]])


def _log_moments(chances: np.ndarray, first: int, interval: float, tilts: np.ndarray) -> np.ndarray:
    """log E e^(tilt loss), as a product of matrices: e^(tilt loss) is one factor for a block of
    cells, one for the cell in it.
    """
    block = math.isqrt(chances.size)
    rows = np.pad(chances, (0, -chances.size % block)).reshape(-1, block)
    starts = interval * (first + block * np.arange(len(rows)))
    cells = interval * np.arange(block)
    # Where e^(tilt loss) might overflow, the rarest losses rule the moment, and a smaller tilt
    # gives the better bound.
    tame = np.abs(tilts) * interval * max(-first, first + chances.size) < 700
    moments = np.full(tilts.size, math.inf)
    moments[tame] = np.sum(
        np.exp(np.outer(starts, tilts[tame])) * (rows @ np.exp(np.outer(cells, tilts[tame]))),
        axis=0,
    )
    return np.log(moments)


def epsilon(costs: Mapping[Any, int], delta: float) -> float:
    """The least epsilon of the composed ledger at this delta, over both orders of the tables.

    As if each release had its ideal law: `accountants` adds total-variation errors.
    """
    if delta < SMALLEST_DELTA:
        has_rdp = all(np.isfinite(cost.rdp(np.array([2.0]))[0]) for cost in costs)
        way_out = "try rdp" if has_rdp else "promise a larger one"
        raise UnsupportedQuery(
            f"delta={delta:g} is below {SMALLEST_DELTA:g}, where Fourier sums are no upper bounds: "
            f"{way_out}"
        )
    return _ledger_epsilon(_sorted(costs), delta)


@functools.lru_cache(maxsize=4096)
def _ledger_epsilon(items: tuple[tuple[Any, int], ...], delta: float) -> float:
    return max((_epsilon(law, delta) for law in _both_orders(items)), default=0.0)


def delta(costs: Mapping[Any, int], epsilon: float) -> float:
    """The least delta of the composed ledger at this epsilon, over both orders of the tables."""
    return max([SMALLEST_DELTA, *(_delta(law, epsilon) for law in both_orders(costs))])


def both_orders(costs: Mapping[Any, int]) -> tuple[Composed, ...]:
    """The composed laws: one when every cost is its own mirror image."""
    return _both_orders(_sorted(costs))


def _sorted(costs: Mapping[Any, int]) -> tuple[tuple[Any, int], ...]:
    # Other integers wrap around
    whole = {cost: int(count) for cost, count in costs.items() if count}
    return tuple(sorted(whole.items(), key=repr))


@functools.lru_cache(maxsize=128)
def _both_orders(items: tuple[tuple[Any, int], ...]) -> tuple[Composed, ...]:
    if not items:
        return ()
    pairs = [cost.profiles() for cost, _ in items]
    if any(pair is None for pair in pairs):
        raise UnsupportedQuery(
            "some cost of this ledger has no exact profile to compose (accept bits: use the "
            "recursion)"
        )
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
            raise UnsupportedQuery(
                "the summed losses of this ledger spread so widely that no grid resolves them: use "
                "rdp or pure"
            )
    return tuple(_compose(s, counts, w, interval) for s, w in zip(laws, windows, strict=True))


def _interval(pairs: list[Pair], counts: list[int]) -> float:
    # Of all losses together: rare or tiny ones add little to the sum, and may be resolved less
    # well.
    variance = math.fsum(
        count * pair.forward.spread**2 for pair, count in zip(pairs, counts, strict=True)
    ) / max(1, sum(counts))
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
    most = sum(
        count * (law.first + law.chances.size - 1) for law, count in zip(laws, counts, strict=True)
    )
    least = sum(count * law.first for law, count in zip(laws, counts, strict=True))
    high = np.min((upper + math.log(2 / TAIL)) / TILTS) / interval
    low = -np.min((lower + math.log(2 / TAIL)) / TILTS) / interval
    return math.floor(max(least, low)), math.ceil(min(most, high))


def _compose(
    laws: list[Losses], counts: list[int], window: tuple[int, int], interval: float
) -> Composed:
    if counts == [1]:
        (law,) = laws
        losses = interval * np.arange(law.first, law.first + law.chances.size)
        # For what rounding takes from either
        return Composed(losses, law.chances * (1 + ROUNDED), law.infinite + TAIL)
    size = fft.next_fast_len(window[1] - window[0] + 1, real=True)
    transform, errors = _product_of_powers([_folded(law.chances, size) for law in laws], counts)
    start = sum(count * law.first for law, count in zip(laws, counts, strict=True))
    chances = np.roll(fft.irfft(transform, size), start - window[0])
    finite = math.fsum(
        count * math.log1p(-law.infinite) for law, count in zip(laws, counts, strict=True)
    )
    chances = np.maximum(chances, 0.0) * (1 + ROUNDED * sum(counts))
    losses = interval * np.arange(window[0], window[0] + size)
    # By Cauchy's inequality and Parseval's theorem the misplaced chances add up to the Euclidean
    # length of the errors at most.
    errors = errors + _unit(size) * np.abs(transform)  # the transform back adds as much
    misplaced = math.sqrt(2 * float(np.sum(errors**2))) + 2 * transform.size * NEGLIGIBLE
    return Composed(losses, chances, TAIL + misplaced - math.expm1(finite))


def _unit(size: int) -> float:
    """How far off a fast transform of chances can be, for each unit of chance."""
    return 4 * math.log2(2 * size) * EPS


def _product_of_powers(laws: list[np.ndarray], counts: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """The Fourier transform of the summed loss and how far off it can be, where it is above
    NEGLIGIBLE; zero elsewhere.
    """
    size = laws[0].size
    most = sum(
        count * np.log(np.abs(fft.rfft(law)) + _unit(size))
        for law, count in zip(laws, counts, strict=True)
    )
    large = np.flatnonzero(most > math.log(NEGLIGIBLE))
    exponent = np.zeros(large.size, complex)
    error = np.zeros(large.size)
    ticks = np.zeros(large.size, int)
    for law, count in zip(laws, counts, strict=True):
        logarithm, wrong, phase = _logarithm(law, large, count)
        exponent += count * logarithm
        error += count * (np.log1p(wrong) + 16 * EPS * np.abs(logarithm))
        ticks = (ticks + count % size * phase) % size
    transform = np.zeros(size // 2 + 1, complex)
    errors = np.zeros(size // 2 + 1)
    transform[large] = np.exp(exponent - 2j * math.pi / size * ticks)
    errors[large] = np.abs(transform[large]) * np.expm1(np.minimum(error + 16 * EPS, 700.0))
    return transform, errors


def _logarithm(
    chances: np.ndarray, frequencies: np.ndarray, count: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The logarithm of the Fourier transform at some frequencies, but for a phase; its relative
    error; and the phase, in ticks.

    A tick is 1 / size of a turn: whole ones can be multiplied exactly. A fast transform is off by
    units of all the chance, too many once it is raised to a high power. But then only transforms
    near 1 count, where nearly all cells are within small angles of one phase. So the likeliest
    cells are summed from such a phase, and of the rest a fast transform is off by units of its
    small chance.
    """
    size = chances.size
    if count <= FEW:
        value = fft.rfft(chances)[frequencies]
        length = np.maximum(np.abs(value), 1e-100)
        wrong = 2 * _unit(size) * np.sum(chances) / length
        return np.log(length) + 1j * np.angle(value), wrong, np.zeros(frequencies.size, int)
    filled = np.flatnonzero(chances)
    filled = filled[np.argsort(chances[filled], kind="stable")]
    left = np.cumsum(chances[filled])
    rare = min(
        max(
            int(np.searchsorted(left, RARE / count)),
            filled.size - MOST_TERMS // max(1, frequencies.size),
        ),
        filled.size - 1,
    )
    if rare and left[rare - 1] > 0.5:  # a few cells more or less are of no use
        rare = filled.size - 1
    unlikely = filled[:rare]
    likely = filled[rare:]
    value, wrong, phase = _from_a_phase(chances[likely], likely - likely[-1], frequencies, size)
    phase = (phase + frequencies * likely[-1]) % size
    value += math.fsum([*chances[likely], -1.0])
    if unlikely.size:
        rest = np.zeros(size)
        rest[unlikely] = chances[unlikely]
        value += fft.rfft(rest)[frequencies] * np.exp(2j * math.pi / size * phase)
        wrong += 2 * _unit(size) * np.sum(rest)
    # its square - 1
    length = np.maximum(np.abs(1 + value), 1e-100)
    excess = 2 * value.real + np.abs(value) ** 2
    logarithm = np.where(
        excess > -0.5, np.log1p(np.maximum(excess, -0.5)) / 2, np.log(length)
    ) + 1j * np.angle(1 + value)
    return logarithm, (wrong + 4 * EPS * np.abs(value)) / length, phase


def _from_a_phase(
    chances: np.ndarray, cells: np.ndarray, frequencies: np.ndarray, size: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """sum p (e^-iy - 1), its error, and the phase in ticks that the angles y are counted from.

    It is - sum p (1 - cos y) + i sum p (y - sin y) - i sum p y. The phase makes the last small; it
    is summed without rounding but for the last bits of p. The others are right relative to their
    own size.
    """
    value = np.empty(frequencies.size, complex)
    wrong = np.empty(frequencies.size)
    phase = np.empty(frequencies.size, int)
    tick = 2 * math.pi / size
    # Sums of its products with ticks are exact: they have 53 bits
    high = np.rint(chances * 2.0**30) / 2.0**30
    low = chances - high
    rows = max(1, 2**16 // cells.size)
    for start in range(0, frequencies.size, rows):
        part = slice(start, start + rows)
        ticks = (frequencies[part, None] * cells + size // 2) % size - size // 2
        phase[part] = np.rint(ticks @ chances / np.sum(chances))
        ticks = ticks - phase[part, None].astype(float)
        angles = tick * ticks
        flat = 2 * chances * np.sin(angles / 2) ** 2
        skew = chances * _above_sine(angles)
        rest = low * angles
        mean = tick * (ticks @ high) + np.sum(rest, axis=1)
        value[part] = -np.sum(flat, axis=1) + 1j * (np.sum(skew, axis=1) - mean)
        wrong[part] = 32 * EPS * (np.sum(flat + np.abs(skew) + np.abs(rest), axis=1) + np.abs(mean))
    return value, wrong, phase


def _above_sine(angles: np.ndarray) -> np.ndarray:
    """y - sin y, right relative to its size."""
    squares = angles**2
    series = polynomial.polyval(squares, [(-1) ** k / math.factorial(2 * k + 3) for k in range(8)])
    return np.where(squares < 1, angles * squares * series, angles - np.sin(angles))


def _folded(chances: np.ndarray, size: int) -> np.ndarray:
    """Chances summed modulo `size`: a circular convolution sees no difference."""
    padded = np.zeros(-(-chances.size // size) * size)
    padded[: chances.size] = chances
    return padded.reshape(-1, size).sum(axis=0)


def _delta(law: Composed, epsilon: float) -> float:
    return _delta_from(law, int(np.searchsorted(law.losses, epsilon, side="right")), epsilon)


def _delta_from(law: Composed, index: int, epsilon: float) -> float:
    """delta at epsilon, when the losses from `index` on are those above it."""
    return min(
        1.0, law.infinite - float(np.expm1(epsilon - law.losses[index:]) @ law.chances[index:])
    )


def _epsilon(law: Composed, delta: float) -> float:
    if law.infinite > delta:
        return math.inf
    if _delta(law, 0.0) <= delta:
        return 0.0
    # The chance of a loss above e is more than delta(e), so the first index where it is small
    # enough is an upper end.
    above = law.infinite + np.cumsum(law.chances[::-1])[::-1]
    high = min(int(np.searchsorted(-above, -delta)), law.losses.size - 1)
    low = max(0, int(np.searchsorted(law.losses, 0.0)) - 1)
    while high - low > 1:
        middle = (low + high) // 2
        value = _delta_from(law, middle + 1, float(law.losses[middle]))
        low, high = (middle, high) if value > delta else (low, middle)
    # Between two grid points delta(e) = U - e^e L is solved exactly, with L scaled by
    # e^losses[high].
    upper = float(above[high])
    lower = float(np.exp(law.losses[high] - law.losses[high:]) @ law.chances[high:])
    return max(0.0, float(law.losses[high]) + min(0.0, math.log((upper - delta) / lower)))
