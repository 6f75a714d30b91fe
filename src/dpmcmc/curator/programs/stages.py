"""A program in stages: what lies between its asks, each pass over the rows, each answer.

A program that asks a few times, such as a private start, takes long to compile as one: each ask
brings a pass over the rows and its noise, and most of these are alike. In stages, what is alike is
compiled once, the stages are compiled side by side, and the host calls one after the other. The
stages are those of the trace that was counted; loops with asks are taken turn by turn.

An operation belongs to the level of the last answer that it needs. So a program is: the operations
of level 0, the asks that need no others, the operations of level 1, and so on. Asks of one level at
the same points share a pass.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import lax

from dpmcmc.curator.programs.interpreter import Interpreter, by_itself, scan_parts
from dpmcmc.types import Query, is_standing

MOST_ASKS = 256  # that are taken one by one


class NotInStages(Exception):
    """The program asks in a branch, asks too often, or has a standing query."""


class Operation(NamedTuple):
    """One operation without asks, or several as one function.

    Attributes:
        name: Equal for operations that do the same.
        function: From values to values.
        inputs: The numbers of the values that it is given.
        outputs: The numbers of those that it returns.
    """

    name: Any
    function: Callable[..., Sequence]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


class Ask(NamedTuple):
    """One ask.

    Attributes:
        query: What is asked.
        place: The number of the ask in the program.
        maps: The axes that vmap has mapped.
        inputs: The numbers of its key, its lane and its points.
        outputs: The numbers of the two parts of the answer.
    """

    query: Query
    place: int
    maps: tuple[tuple[int | None, ...], ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]

    @property
    def points(self) -> tuple[int, ...]:
        """The numbers of its points."""
        return self.inputs[2:]

    @property
    def points_maps(self) -> tuple[tuple[int | None, ...], ...]:
        """How vmap has mapped them."""
        return tuple(dims[2:] for dims in self.maps)


@dataclass
class Level:
    """What needs the answers of the levels before, and no others."""

    operations: list[Operation] = field(default_factory=list)
    asks: list[Ask] = field(default_factory=list)

    def companies(self) -> list[list[Ask]]:
        """The asks, together where they are at the same points."""
        found: dict[Any, list[Ask]] = {}
        for ask in self.asks:
            found.setdefault((ask.points, ask.points_maps), []).append(ask)
        return list(found.values())


class Recording(Interpreter):
    """Writes a counted program down as levels. A value is a number.

    Attributes:
        shapes: The shape and type of each value.
        known: The values that are known, by their numbers.
        levels: The program.
        inputs: The numbers of its arguments.
        outputs: The numbers of what it returns.
    """

    def __init__(self, closed_jaxpr: Any) -> None:
        self.shapes: list[jax.ShapeDtypeStruct] = []
        self.known: dict[int, Any] = {}
        self.levels: list[Level] = [Level()]
        self._level_of: list[int] = []
        self._num_asks = 0
        self.inputs = [self._value(each.aval, 0) for each in closed_jaxpr.jaxpr.invars]
        self.outputs = self.run(closed_jaxpr, list(self.inputs))

    def constants(self, closed_jaxpr: Any) -> list:
        return [self._known(value) for value in closed_jaxpr.consts]

    def literal(self, atom: Any) -> int:
        return self._known(np.asarray(atom.val, atom.aval.dtype))

    def asked(self, equation: Any, inputs: list) -> list:
        self._num_asks += 1
        if self._num_asks > MOST_ASKS or is_standing(equation.params["query"]):
            raise NotInStages
        level = self._last(inputs)
        outputs = [self._value(each.aval, level + 1) for each in equation.outvars]
        query, place, maps = (equation.params[name] for name in ("query", "place", "maps"))
        self.levels[level].asks.append(Ask(query, place, maps, tuple(inputs), tuple(outputs)))
        return outputs

    def without_asks(self, equation: Any, inputs: list, debug_info: Any) -> list:
        function = functools.partial(by_itself, equation, debug_info=debug_info)
        shapes = [each.aval for each in equation.outvars]
        return self._operation(id(equation), lambda *given: function(list(given)), inputs, shapes)

    def scan(self, equation: Any, inputs: list) -> list:
        consts, carry, slices = scan_parts(equation, inputs)
        length = equation.params["length"]
        if length == 0:
            raise NotInStages
        order = range(length)
        turns: dict[int, list] = {}
        for index in reversed(order) if equation.params["reverse"] else order:
            given = [self._slice(each, index) for each in slices]
            outputs = self.run(equation.params["jaxpr"], consts + carry + given)
            carry, turns[index] = outputs[: len(carry)], outputs[len(carry) :]
        stacked = zip(*(turns[index] for index in order), strict=True)
        return carry + [self._stack(list(each)) for each in stacked]

    def cond(self, equation: Any, inputs: list) -> list:
        raise NotInStages

    def _slice(self, number: int, index: int) -> int:
        shape = self.shapes[number]
        of_one = jax.ShapeDtypeStruct(shape.shape[1:], shape.dtype)
        (found,) = self._operation(
            ("slice", index, of_one), lambda value: [value[index]], [number], [of_one]
        )
        return found

    def _stack(self, numbers: list[int]) -> int:
        shape = self.shapes[numbers[0]]
        of_all = jax.ShapeDtypeStruct((len(numbers), *shape.shape), shape.dtype)

        def stacked(*values):
            return [lax.concatenate([value[None] for value in values], 0)]

        (found,) = self._operation(("stack", of_all), stacked, numbers, [of_all])
        return found

    def _operation(self, name: Any, function: Callable, inputs: list, shapes: list) -> list:
        level = self._last(inputs)
        outputs = [self._value(shape, level) for shape in shapes]
        made = Operation(name, function, tuple(inputs), tuple(outputs))
        self.levels[level].operations.append(made)
        return outputs

    def _last(self, inputs: list) -> int:
        level = max((self._level_of[number] for number in inputs), default=0)
        while level >= len(self.levels):
            self.levels.append(Level())
        return level

    def _value(self, shape: Any, level: int) -> int:
        self.shapes.append(jax.ShapeDtypeStruct(shape.shape, shape.dtype))
        self._level_of.append(level)
        return len(self.shapes) - 1

    def _known(self, value: Any) -> int:
        number = self._value(value, 0)
        self.known[number] = value
        return number


def segments(recorded: Recording) -> list[Operation]:
    """The operations of each level, as one function.

    Args:
        recorded: The program.

    Returns:
        One for each level. It returns what is used after it.
    """
    used = set(recorded.outputs)
    found: list[Operation] = []
    for level in reversed(recorded.levels):
        used.update(number for ask in level.asks for number in ask.inputs)
        found.append(_segment(level.operations, used))
        used.update(found[-1].inputs)
    return found[::-1]


def _segment(operations: list[Operation], used: set[int]) -> Operation:
    needed = set(used)
    kept = []
    for operation in reversed(operations):
        if needed.intersection(operation.outputs):
            kept.append(operation)
            needed.update(operation.inputs)
    kept.reverse()
    made = {number: None for operation in kept for number in operation.outputs}
    given = {number: None for operation in kept for number in operation.inputs}
    inputs = tuple(number for number in given if number not in made)
    outputs = tuple(number for number in made if number in used)
    local = {number: index for index, number in enumerate((*inputs, *made))}

    def function(*values):
        known = dict(zip(inputs, values, strict=True))
        for operation in kept:
            results = operation.function(*(known[number] for number in operation.inputs))
            known.update(zip(operation.outputs, results, strict=True))
        return tuple(known[number] for number in outputs)

    names = tuple((each.name, tuple(local[number] for number in each.inputs)) for each in kept)
    return Operation((names, tuple(local[number] for number in outputs)), function, inputs, outputs)
