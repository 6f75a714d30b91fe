"""One search for every question of the form "how much fits?"."""

from __future__ import annotations

import math
from collections.abc import Callable

ROUNDING = 1e-14  # of a number: how wide a closed bracket is, a few roundings
# More steps than anybody takes: the answer where a ledger is still within budget there
LIMIT = 2**60


def largest(fits: Callable[[int], bool], guess: int = 1) -> int:
    """The largest whole number that fits, at most LIMIT, 0 if 1 does not; `fits` turns false once
    and stays so.
    """
    return largest_within(lambda count: -math.inf if fits(count) else math.inf, guess)


def largest_within(excess: Callable[[int], float], guess: int, most: int = LIMIT) -> int:
    """The same for what fits where its excess is at most 0, up to `most`. Finite excesses show how
    far it is to the answer, best if they go like the logarithm of the number.

    The bracket grows from `guess` to where two excesses point to, by steps four times as long each
    at least, then it closes in. An excess that is not a number counts as too much, and the answer
    may be a thousandth too small beside it.
    """
    low = high = min(max(1, guess), most)
    at_low = at_high = excess(low)
    step = max(1, low // 64)
    slope = 0.5
    while at_high <= 0:
        if high == most:
            return most
        low = high
        at_low = at_high
        high = min(most, max(high + step, _pointed(high, at_high, slope)))
        step = 4 * step
        at_high = excess(high)
        slope = _slope(low, at_low, high, at_high)
    while not at_low <= 0 and low > 0:
        high = low
        at_high = at_low
        low = max(0, min(low - step, _pointed(low, at_low, slope)))
        step = 4 * step
        at_low = excess(low)
        slope = _slope(low, at_low, high, at_high)
    return _close_in(excess, low, min(at_low, 0.0), high, at_high)


def _slope(low: int, at_low: float, high: int, at_high: float) -> float:
    """Of the excess in the logarithm of the number, within what accountants have; steep where it is
    not known.
    """
    rise = at_high - at_low
    return (
        min(max(rise / math.log(high / low), 0.1), 4.0) if low > 0 and math.isfinite(rise) else 4.0
    )


def _pointed(count: int, excess: float, slope: float) -> int:
    """A little beyond where the excess would be 0."""
    if not math.isfinite(excess):
        return count
    return round(count * math.exp(min(max(-1.05 * excess / slope, -10.0), 10.0)))


def _close_in(
    excess: Callable[[int], float], low: int, at_low: float, high: int, at_high: float
) -> int:
    """False position. After a point that did not halve the bracket the value of the end that stayed
    is halved, so that it moves next; after three the middle is tried, as it is where excesses are
    infinite.
    """
    slow = 0
    while high - low > max(1, low // 1000 if math.isnan(at_high) else 1):
        width = high - low
        is_finite = math.isfinite(at_low) and math.isfinite(at_high) and slow < 3
        share = at_low / (at_low - at_high) if is_finite else 0.5
        point = (
            round(low * (high / low) ** share)
            if is_finite and low > 0
            else low + round(width * share)
        )
        point = min(max(point, low + 1), high - 1)
        value = excess(point)
        low, at_low, high, at_high = (
            (point, value, high, at_high) if value <= 0 else (low, at_low, point, value)
        )
        slow = 0 if 2 * (high - low) <= width + 1 else slow + 1
        if slow:
            at_low, at_high = (at_low, at_high / 2) if low == point else (at_low / 2, at_high)
    return low


def largest_exponential(excess: Callable[[float], float], low: float, high: float) -> float:
    """The largest x between e^low and e^high with excess(x) <= 0, rounded down; 0 if there is none.
    The excess grows with x.
    """
    falling = lambda t: excess(math.exp(-t))  # noqa: E731
    if falling(-high) <= 0:
        return math.exp(high)
    if falling(-low) > 0:
        return 0.0
    return math.exp(-crossing(falling, -high, -low)[1])


def crossing(function: Callable[[float], float], low: float, high: float) -> tuple[float, float]:
    """A bracket of the sign change of a falling function, a few roundings wide: function(low) > 0
    >= function(high).

    Ridders' rule: one halving, then one false position on the values straightened by an
    exponential. The bracket at least halves in each round and the number of right digits doubles.
    """
    at_low = function(low)
    at_high = function(high)
    while at_high < 0 and high - low > ROUNDING * max(abs(low), abs(high)):
        middle = (low + high) / 2
        at_middle = function(middle)
        guess = middle + (middle - low) * at_middle / math.sqrt(
            at_middle * at_middle - at_low * at_high
        )
        # A step past the guess, too, so that both ends of the bracket close in.
        for point in (middle, guess, guess + math.copysign(abs(guess) * ROUNDING / 4, at_middle)):
            if low < point < high:
                value = at_middle if point == middle else function(point)
                low, at_low, high, at_high = (
                    (point, value, high, at_high) if value > 0 else (low, at_low, point, value)
                )
        if not low < (low + high) / 2 < high:
            break
    return low, high
