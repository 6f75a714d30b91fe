"""What was made for some arguments is found again for equal ones."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

MOST = 128  # that are kept by `keep_last`
Arguments = ParamSpec("Arguments")
Made = TypeVar("Made")
_keeping = threading.Lock()


def made_once(make: Callable[Arguments, Made]) -> Callable[Arguments, Made]:
    """The same function, which returns the same value for equal arguments.

    Arguments that cannot be compared, such as arrays, have it made anew each time.

    Args:
        make: The function. It depends on its arguments alone.

    Returns:
        The function.

    Example:
        >>> pair = made_once(lambda left, right: [left, right])
        >>> pair(1, 2) is pair(1, 2)
        True
        >>> pair([], 2) is pair([], 2)
        False
    """
    kept: Callable[..., Made] = functools.lru_cache(maxsize=16, typed=True)(make)

    @functools.wraps(make)
    def found(*arguments: Arguments.args, **named: Arguments.kwargs) -> Made:
        try:
            hash((arguments, tuple(named.values())))
        except TypeError:
            return make(*arguments, **named)
        return kept(*arguments, **named)

    return found


def keep_last(kept: dict[Any, Any], key: Any, make: Callable[[], Any]) -> Any:
    """The value of a key, made if there is none. Of all keys the last ones are kept.

    Args:
        kept: The values.
        key: The key.
        make: Makes the value.

    Returns:
        The value.

    Example:
        >>> values = {}
        >>> keep_last(values, "one", lambda: 1), keep_last(values, "one", lambda: 2)
        (1, 1)
    """
    with _keeping:
        if key in kept:
            return kept[key]
    value = make()
    with _keeping:
        kept[key] = value
        if len(kept) > MOST:
            del kept[next(iter(kept))]
    return value
