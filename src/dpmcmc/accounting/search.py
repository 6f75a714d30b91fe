"""One search for every question of the form "how much fits?"."""

from __future__ import annotations

import math
from collections.abc import Callable

LIMIT = 2**60  # more steps than anybody takes: the answer where a ledger is still within budget there


def largest(fits: Callable[[int], bool], guess: int = 1) -> int:
    """The largest whole number that fits, at most LIMIT, 0 if 1 does not; `fits` turns false once and stays so.

    The bracket grows from `guess` by doubling steps, then it is halved.
    """
    step = max(1, guess // 64)
    if fits(max(1, guess)):
        low, high = max(1, guess), max(1, guess) + step
        while high < LIMIT and fits(high):
            low, high, step = high, high + 2 * step, 2 * step
        if high >= LIMIT and fits(LIMIT):
            return LIMIT
    else:
        low, high = max(0, guess - step), max(1, guess)
        while low > 0 and not fits(low):
            low, high, step = max(0, low - 2 * step), low, 2 * step
    return _halve(fits, low, min(high, LIMIT))


def _halve(fits: Callable[[int], bool], low: int, high: int) -> int:
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def largest_exponential(excess: Callable[[float], float], low: float, high: float) -> float:
    """The largest x between e^low and e^high with excess(x) <= 0, rounded down; 0 if there is none. The excess grows with x."""
    falling = lambda t: excess(math.exp(-t))  # noqa: E731
    if falling(-high) <= 0:
        return math.exp(high)
    if falling(-low) > 0:
        return 0.0
    return math.exp(-crossing(falling, -high, -low)[1])


def crossing(function: Callable[[float], float], low: float, high: float, tolerance: float = 1e-14) -> tuple[float, float]:
    """A bracket of the sign change of a falling function, a few roundings wide: function(low) > 0 >= function(high).

    Ridders' rule: one halving, then one false position on the values straightened by an exponential. The bracket at
    least halves in each round and the number of right digits doubles.
    """
    at_low, at_high = function(low), function(high)
    while at_high < 0 and high - low > tolerance * max(abs(low), abs(high)):
        middle = (low + high) / 2
        at_middle = function(middle)
        guess = middle + (middle - low) * at_middle / math.sqrt(at_middle * at_middle - at_low * at_high)
        # A step past the guess, too, so that both ends of the bracket close in.
        for point in (middle, guess, guess + math.copysign(abs(guess) * tolerance / 4, at_middle)):
            if low < point < high:
                value = at_middle if point == middle else function(point)
                low, at_low, high, at_high = (point, value, high, at_high) if value > 0 else (low, at_low, point, value)
        if not low < (low + high) / 2 < high:
            break
    return low, high
