"""A program in stages, compiled: one call after the other, by the host.

Each pass over the rows is a function of what is stored and of its points, and returns exact sums.
Each answer is a function of what is stored, of these sums, and of the key, lane and points of the
ask, and returns the sums with noise. Neither leaves the curator but through an answer, as in a
program that is compiled as one.
"""

from __future__ import annotations

import functools
import math
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax

from dpmcmc.curator.programs.answers import answers_of, sums_of
from dpmcmc.curator.programs.compiling import (
    EXACTLY,
    QUICKLY,
    compiled_once,
    with_constants,
)
from dpmcmc.curator.programs.jaxprs import has_callbacks
from dpmcmc.curator.programs.stages import Ask, NotInStages, Recording, segments
from dpmcmc.keeping import keep_last

FEW_NUMBERS = 2**22  # in rows: a pass over them takes less time than compiling it well
_STAGES: dict[Any, Any] = {}  # by what they are for: saves tracing as well


class Stage(NamedTuple):
    """A compiled function, its constants, and the shapes of what it returns."""

    compiled: Future
    constants: list
    shapes: Any

    def __call__(self, *arguments: Any) -> Any:
        return self.compiled.result()(self.constants, *arguments)


class Between(NamedTuple):
    """Operations between asks."""

    stage: Stage
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]

    def run(self, stored: Any, values: dict[Any, Any]) -> None:
        """Add what it returns to the values."""
        found = self.stage(*(values[number] for number in self.inputs))
        values.update(zip(self.outputs, found, strict=True))


class Pass(NamedTuple):
    """A pass over the rows, for all asks at the same points."""

    stage: Stage
    points: tuple[int, ...]
    sums: Any

    def run(self, stored: Any, values: dict[Any, Any]) -> None:
        """Add the sums to the values."""
        values[self.sums] = self.stage(stored, *(values[number] for number in self.points))


class Answered(NamedTuple):
    """The answer to one ask."""

    stage: Stage
    ask: Ask
    sums: Any

    def run(self, stored: Any, values: dict[Any, Any]) -> None:
        """Add the answer to the values."""
        operands = (values[number] for number in self.ask.inputs)
        found = self.stage(stored, values[self.sums], *operands)
        values.update(zip(self.ask.outputs, found, strict=True))


@dataclass(frozen=True)
class Script:
    """A program in stages.

    Attributes:
        calls: What is called, one after the other.
        recorded: The program.
        tree: The structure of what it returns.
    """

    calls: tuple[Between | Pass | Answered, ...]
    recorded: Recording
    tree: Any

    def __call__(self, rows: Any, nums_rows: Any, secrets: Any, *arguments: Any) -> Any:
        """Run the program on what its owners hold.

        Args:
            rows: The rows.
            nums_rows: The number of rows.
            secrets: The secret of the run.
            *arguments: The program's arguments.

        Returns:
            What the program returns.
        """
        values: dict[Any, Any] = dict(self.recorded.known)
        values.update(zip(self.recorded.inputs, jax.tree.leaves(arguments), strict=True))
        for call in self.calls:
            call.run((rows, nums_rows, secrets), values)
        return jax.tree.unflatten(self.tree, [values[each] for each in self.recorded.outputs])


def script_of(owner: Any, asking: Any, stored: Any) -> Script:
    """Compile a program in stages.

    Args:
        owner: Who has the rows.
        asking: The trace that was counted.
        stored: The shapes of what is stored.

    Returns:
        The script.

    Raises:
        NotInStages: The program has an ask in a branch, too many of them, or a pass by callback.
    """
    recorded = Recording(asking.jaxpr)
    making = _Making(owner, stored, recorded.shapes)
    calls: list[Any] = []
    for segment, level in zip(segments(recorded), recorded.levels, strict=True):
        if segment.outputs:
            calls.append(making.between(segment))
        for index, asks in enumerate(level.companies()):
            calls += making.answers(asks, (len(calls), index))
    script = Script(tuple(calls), recorded, jax.tree.structure(asking.out_info))
    for call in calls:
        call.stage.compiled.result()
    return script


class _Making:
    """Makes the stages of one program."""

    def __init__(self, owner: Any, stored: Any, shapes: list[jax.ShapeDtypeStruct]) -> None:
        self._owner = owner
        self._stored = stored
        self._shapes = shapes
        self._segments: dict[Any, Stage] = {}
        leaves = jax.tree.leaves(stored)
        self._kind = owner.kind
        self._stored_kind = tuple((leaf.shape, leaf.dtype) for leaf in leaves)
        self._options: dict[str, Any] = EXACTLY
        if jax.default_backend() == "cpu":
            is_small = sum(math.prod(leaf.shape) for leaf in leaves) <= FEW_NUMBERS
            self._options = QUICKLY if is_small else EXACTLY

    def between(self, segment: Any) -> Between:
        """The operations of a level."""
        stage = self._segments.get(segment.name)
        if stage is None:
            shapes = self._shapes_of(segment.inputs)
            stage = self._segments[segment.name] = _stage(segment.function, shapes, _quickly())
        return Between(stage, segment.inputs, segment.outputs)

    def answers(self, asks: list[Ask], name: Any) -> list[Pass | Answered]:
        """The pass and the answers for asks at the same points."""
        queries = tuple(ask.query for ask in asks)
        points, maps = asks[0].points, asks[0].points_maps
        made = self._stage(
            (queries, maps, self._shapes_of(points)),
            functools.partial(self._sums, queries, maps),
            (self._stored, *self._shapes_of(points)),
            self._options,
        )
        of_asks = [self._answer(ask, made.shapes, name) for ask in asks]
        return [Pass(made, points, name), *of_asks]

    def _answer(self, ask: Ask, sums: Any, name: Any) -> Answered:
        operands = self._shapes_of(ask.inputs)
        given = tuple((leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(sums))
        options = self._options if not sums else _quickly()
        stage = self._stage(
            (ask.query, ask.place, ask.maps, operands, given, jax.tree.structure(sums)),
            functools.partial(self._respond, ask),
            (self._stored, sums, *operands),
            options,
        )
        return Answered(stage, ask, name)

    def _sums(self, queries: tuple, maps: Any, stored: Any, *points: Any) -> Any:
        held = self._owner.hold(*stored)
        return sums_of(self._owner, list(queries), maps, held, *points)

    def _respond(self, ask: Ask, stored: Any, sums: Any, *operands: Any) -> Any:
        held = self._owner.hold(*stored)
        return answers_of(self._owner, ask.query, ask.place, ask.maps, held, sums, *operands)

    def _shapes_of(self, numbers: tuple[int, ...]) -> tuple[jax.ShapeDtypeStruct, ...]:
        return tuple(self._shapes[number] for number in numbers)

    def _stage(self, what: Any, function: Any, shapes: Any, options: Any) -> Stage:
        """A stage that touches rows, or the one that was made for an owner of the same kind."""
        if self._kind is None:
            return _stage(function, shapes, options)
        what = self._kind, self._stored_kind, what, jax.config.values["jax_default_device"]
        return keep_last(_STAGES, what, lambda: _stage(function, shapes, options))


def _stage(function: Any, shapes: tuple[Any, ...], options: Any) -> Stage:
    traced, constants = with_constants(function, *shapes)
    if has_callbacks(traced.jaxpr.jaxpr):  # a host that calls stages must not wait for itself
        raise NotInStages
    return Stage(compiled_once(traced, (), options), constants, traced.out_info)


def _quickly() -> Any:
    return QUICKLY if jax.default_backend() == "cpu" else EXACTLY
