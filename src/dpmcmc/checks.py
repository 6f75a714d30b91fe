"""Checks of numbers that users give, with the same wording everywhere."""

from __future__ import annotations

import math
import numbers
from typing import Any

NO_NUMBERS = "OSUmMc"  # kinds of dtypes that are not real numbers


def is_number(value: Any) -> bool:
    """Whether the value is one real number: Python's, NumPy's or JAX's.

    A text is not a number, and neither is an array of several numbers.

    Args:
        value: Anything.

    Returns:
        True for a number.

    Example:
        >>> is_number(1.5), is_number("1.5")
        (True, False)
    """
    is_real = (
        not isinstance(value, str)
        and getattr(getattr(value, "dtype", None), "kind", "f") not in NO_NUMBERS
    )
    return is_real and hasattr(value, "__float__") and getattr(value, "shape", ()) == ()


def positive(name: str, value: Any, why: str = "") -> float:
    """The value as Python's own float, checked to be positive and finite.

    Args:
        name: The name of the number, for the message.
        value: The number.
        why: What it is for; the message ends with it.

    Returns:
        The value as a float.

    Raises:
        ValueError: It is not a positive, finite number.

    Example:
        >>> positive("radius", 2, "it bounds every row")
        2.0
        >>> positive("radius", -1.0, "it bounds every row")
        Traceback (most recent call last):
        ...
        ValueError: radius=-1.0 must be positive and finite: it bounds every row
    """
    if not (is_number(value) and 0 < value < math.inf):
        shown = value if is_number(value) else repr(value)
        raise ValueError(
            f"{name}={shown} must be positive and finite" + (f": {why}" if why else "")
        )
    return float(value)


def whole(name: str, value: Any, least: int = 1, why: str = "", most: float = math.inf) -> int:
    """The value as Python's own integer, checked to be a whole number in a range.

    Args:
        name: The name of the number, for the message.
        value: The number.
        least: The smallest value that is allowed.
        why: What it is for; the message ends with it.
        most: The largest value that is allowed.

    Returns:
        The value as an int.

    Raises:
        ValueError: It is not a whole number, or outside the range.

    Example:
        >>> whole("num_chains", 4.0)
        4
        >>> whole("num_chains", 0)
        Traceback (most recent call last):
        ...
        ValueError: num_chains=0 must be a whole number, at least 1
    """
    is_inside = is_number(value) and least <= value <= most and value < math.inf
    if not (is_inside and int(value) == value):
        wanted = f", at least {least}" if most == math.inf else f" between {least} and {most}"
        raise ValueError(
            f"{name}={value!r} must be a whole number{wanted}" + (f": {why}" if why else "")
        )
    return int(value)


def check_exact(name: str, value: Any) -> None:
    """Refuse a number that may have one value on the bill and another in the noise.

    A JAX scalar may be unknown when the bill is made. A NumPy number of fewer digits, or an
    integer that wraps around, may be another number in the noise than on the bill.

    Args:
        name: The name of the number, for the message.
        value: The number.

    Raises:
        TypeError: It is not a number that keeps its value in all arithmetic.

    Example:
        >>> check_exact("clip", 1.5)
        >>> check_exact("clip", "1.5")
        Traceback (most recent call last):
        ...
        TypeError: clip='1.5' must be a plain number: give float(clip)
    """
    if value is None:
        raise TypeError(
            f"{name}=None must be a number: a model without a proved bound has none to offer, so "
            "choose one"
        )
    if not isinstance(value, numbers.Real):
        raise TypeError(f"{name}={value!r} must be a plain number: give float({name})")
    dtype = getattr(value, "dtype", None)
    if dtype is not None and not isinstance(value, float):
        why = (
            "has fewer digits than the bill is made with"
            if dtype.kind == "f"
            else "may wrap around"
        )
        raise TypeError(f"{name}={value!r} {why}: give float({name})")


def check_sizes(query: Any, *names: str) -> None:
    """Check the numbers of a query, and keep them as Python's own, as a bill shows them.

    For the `__post_init__` of a query, which is a frozen dataclass.

    Args:
        query: The query.
        *names: The names of its fields that must be positive, finite and exact.

    Raises:
        TypeError: One is not a plain number.
        ValueError: One is not positive and finite.

    Example:
        >>> import dataclasses
        >>> from dpmcmc.queries import check_sizes
        >>> @dataclasses.dataclass(frozen=True)
        ... class Median:
        ...     clip: float
        ...     def __post_init__(self):
        ...         check_sizes(self, "clip")
        >>> Median(clip=-1.0)
        Traceback (most recent call last):
        ...
        ValueError: clip=-1.0 must be positive and finite
    """
    for name in names:
        value = getattr(query, name)
        check_exact(name, value)
        positive(name, value)
        if type(value) not in (int, float):
            object.__setattr__(query, name, float(value))
