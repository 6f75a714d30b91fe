"""Public declarations about columns: their bounds, their levels and their names."""

from __future__ import annotations

import datetime
import math
import re
from typing import Any, NamedTuple

from dpmcmc.tables.cells import EPOCH, days_of, text_of


class Bounds(NamedTuple):
    """Public limits of a column."""

    low: float
    high: float

    @property
    def middle(self) -> float:
        """The middle between them."""
        return self.low / 2 + self.high / 2

    @property
    def half(self) -> float:
        """Half of the width."""
        return self.high / 2 - self.low / 2

    @property
    def words(self) -> str:
        """Both limits, for people."""
        return f"{self.low:g} and {self.high:g}"

    @property
    def step(self) -> str:
        """The change that a coefficient is the effect of."""
        return "1"


class DateBounds(Bounds):
    """Public limits of a column of dates, in days since 1970-01-01."""

    __slots__ = ()

    @property
    def words(self) -> str:
        low, high = (EPOCH + datetime.timedelta(days=limit) for limit in self)
        return f"{low:%Y-%m-%d} and {high:%Y-%m-%d} (dates, read as days since {EPOCH:%Y-%m-%d})"

    @property
    def step(self) -> str:
        return "day"


def parse_bounds(text: str) -> dict[str, Bounds]:
    """``age=21:64,"income, yearly"=0:1e5,birth=1940-01-01:2010-12-31`` -> bounds by column."""
    bounds: dict[str, Bounds] = {}
    for part in filter(None, _split(text, ",")):
        *names, last = _split(part, "=")
        name = _unquoted("=".join(names))
        limits = [limit.strip() for limit in last.split(":")]
        if not name or len(limits) != 2 or _kind_of(limits) is None:
            raise ValueError(
                f"bounds {part!r} must read COLUMN=LOW:HIGH, two numbers or two dates, as in "
                "age=21:64 or birth=1940-01-01:2010-12-31"
            )
        if name in bounds:
            raise ValueError(f"column {name!r} has two bounds: give one")
        bounds[name] = checked_bounds(name, limits)
    return bounds


def parse_levels(text: str) -> dict[str, tuple[str, ...]]:
    """``sex=female/male,region="North, East"/South`` -> levels by column."""
    levels_of: dict[str, tuple[str, ...]] = {}
    for part in filter(None, _split(text, ",")):
        name, *values = _split(part, "=")
        name = _unquoted(name)
        levels = tuple(_unquoted(value) for value in _split("=".join(values), "/"))
        is_clear = len(levels) > 1 and all(levels) and len(set(levels)) == len(levels)
        if not name or not is_clear or name in levels_of:
            raise ValueError(
                f"levels {part!r} must read COLUMN=ONE/TWO/..., two different values or more, and "
                "each column once; put a name or value with one of , = / in quotes, as in "
                'region="North, East"/South'
            )
        levels_of[name] = levels
    return levels_of


def parse_names(text: str) -> tuple[str, ...]:
    """``age,"income, yearly"`` -> names."""
    return tuple(name for part in _split(text, ",") if (name := _unquoted(part)))


def _split(text: str, separator: str) -> list[str]:
    """The parts between separators that are not in quotes."""
    if text.count('"') % 2:
        raise ValueError(
            f"{text!r} leaves a quote open: put names and values with one of , = / in quotes, and "
            "double a quote in them"
        )
    parts = re.findall(rf'{separator}((?:"[^"]*"|[^"{separator}])*)', separator + text)
    return [part.strip() for part in parts]


def _unquoted(text: str) -> str:
    """A part without its quotes, and with one quote for a doubled one."""
    line = text.replace("\n", " ").replace("\r", " ")  # as in a script
    return re.sub(r'"((?:[^"]|"")*)"', lambda quoted: quoted[1].replace('""', '"'), line).strip()


def checked_bounds(name: str, limits: Any) -> Bounds:
    """Two limits as the bounds of a column, or a ValueError that names it."""
    if isinstance(limits, Bounds):
        kind = type(limits)
        low, high = limits
    else:
        kind, (low, high) = _kind_of(limits) or (Bounds, (math.nan, math.nan))
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ValueError(
            f"bounds {name}={limits} must be two finite numbers, the lower first (or two dates, "
            "such as 2021-03-04)"
        )
    return kind(low, high)


def _kind_of(limits: Any) -> tuple[type[Bounds], tuple[float, float]] | None:
    """Whether limits are dates or numbers, and which; None if they are neither."""
    try:
        low, high = limits
        days = days_of(text_of(low)), days_of(text_of(high))
        if not any(map(math.isnan, days)):
            return DateBounds, days
        return Bounds, (float(low), float(high))
    except (TypeError, ValueError):
        return None
