"""Reading traced programs: what is inside an equation, and whether anything has side effects."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


def open_jaxpr(jaxpr):
    """The jaxpr without its constants."""
    return getattr(jaxpr, "jaxpr", jaxpr)


def inner_jaxprs(equation):
    """The programs within an equation, such as the body of a loop."""
    for value in equation.params.values():
        for item in value if isinstance(value, (tuple, list)) else (value,):
            if hasattr(open_jaxpr(item), "eqns"):
                yield open_jaxpr(item)


def contains(jaxpr, is_it: Callable[[Any], bool]) -> bool:
    """Whether any equation, at any depth, fulfils the condition."""
    return any(
        is_it(equation) or any(contains(inner, is_it) for inner in inner_jaxprs(equation))
        for equation in jaxpr.eqns
    )


@dataclass(frozen=True)
class OwnCallback:
    """A callback of the curator's own: it is given nothing of rows but what answers have shown."""

    function: Callable[..., Any]

    def __call__(self, *arguments):
        return self.function(*arguments)


def has_callbacks(jaxpr) -> bool:
    """Whether a traced function calls back to Python, to the curator's own callbacks, too."""
    return contains(jaxpr, lambda equation: "callback" in equation.primitive.name)


def has_side_effects(jaxpr) -> bool:
    """Whether a traced function prints, or calls back to Python."""
    return contains(jaxpr, is_effectful)


def is_effectful(equation) -> bool:
    """Whether an equation prints or calls back to Python."""
    if isinstance(getattr(equation.params.get("callback"), "callback_func", None), OwnCallback):
        return False
    name = equation.primitive.name
    return name == "check" or any(word in name for word in ("callback", "debug"))
