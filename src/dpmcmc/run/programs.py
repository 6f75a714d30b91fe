"""The programs of a run: how chains begin, and a block of steps.

They are values: a further run with an equal sampler finds what was compiled for this one. A block
is called again with the next step index.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from dpmcmc.types import Ask, Position, Sampler


@dataclass(frozen=True)
class Begin:
    """How chains begin: from (ask, keys, positions) to their first states.

    It also returns what the private start has found, or None.

    Attributes:
        sampler: The sampler, or a function of what the start has found.
        start: The private start, or None.
    """

    sampler: Sampler | Callable[[Any], Sampler]
    start: Callable | None = None

    def __call__(self, ask: Ask, keys: Any, positions: Any) -> tuple[Any, Any]:
        # Steps fold in 0, 1, 2, ...; the start folds in the two largest indices.
        learned = None
        if self.start is not None:
            returned = self.start(jax.random.fold_in(keys[0], 2**32 - 2), positions[0], ask)
            learned = _checked_state("start", returned, positions[0])
            positions = jnp.broadcast_to(learned.position, positions.shape)
        own_keys = jax.vmap(lambda key: jax.random.fold_in(key, 2**32 - 1))(keys)
        init = _made(self.sampler, learned).init
        return learned, jax.vmap(
            lambda key, position: _first_state(init(key, position, ask), position)
        )(own_keys, positions)


def _first_state(returned: Any, position: Position) -> Any:
    """The state that a chain begins with.

    Its numbers get a fixed type: that of a plain 0 would change in a loop.
    """
    return jax.tree.map(
        lambda leaf: jnp.asarray(leaf, jnp.result_type(leaf)),
        _checked_state("init", returned, position),
    )


@dataclass(frozen=True)
class Block:
    """A block of steps: from (ask, keys, learned, states, first step) to (states, draws).

    The draws are (positions, info) of every thin-th step.

    Attributes:
        sampler: The sampler, or a function of what the start has found.
        num_steps: How many steps.
        thin: Of how many steps one is kept.
    """

    sampler: Sampler | Callable[[Any], Sampler]
    num_steps: int
    thin: int = 1

    def __call__(
        self, ask: Ask, keys: Any, learned: Any, states: Any, first_step: Any
    ) -> tuple[Any, Any]:
        made = _made(self.sampler, learned)

        def body(states, index):
            def step(key, state):
                return _checked_step(made.step(jax.random.fold_in(key, index), state, ask))

            states, info = jax.vmap(step)(keys, states)
            return states, (states.position, info)

        steps = first_step + jnp.arange(self.num_steps, dtype=jnp.int32)
        states, draws = lax.scan(body, states, steps)
        return states, jax.tree.map(lambda leaf: leaf[self.thin - 1 :: self.thin], draws)


def _made(sampler: Sampler | Callable[[Any], Sampler], learned: Any) -> Sampler:
    made = sampler if isinstance(sampler, Sampler) else sampler(learned)
    if not isinstance(made, Sampler):
        raise TypeError(
            f"the function for the sampler returned a {type(made).__name__}: it must return a "
            "Sampler"
        )
    return made


def _checked_step(returned: Any) -> tuple[Any, Any]:
    if type(returned) is not tuple or len(returned) != 2:
        problem = (
            f"{len(returned)} values" if type(returned) is tuple else f"a {type(returned).__name__}"
        )
        raise TypeError(f"the sampler's step returned {problem}: return (state, info)")
    return _checked_state("step", returned[0]), returned[1]


def _checked_state(name: str, state: Any, position: Position | None = None) -> Any:
    who = "start" if name == "start" else f"the sampler's {name}"
    if not hasattr(state, "position"):
        kind = "an array" if isinstance(state, jax.Array) else f"a {type(state).__name__}"
        raise TypeError(f"the state that {who} returned is {kind}: it needs a field `position`")
    shape = getattr(state.position, "shape", None)
    if position is not None and shape != position.shape:
        problem = f"is a {type(state.position).__name__}" if shape is None else f"has shape {shape}"
        raise TypeError(
            f"the position in the state that {who} returned {problem}: it must be an array of the "
            f"model's shape, {position.shape}. Keep what else the chain has, such as other "
            "replicas, in other fields"
        )
    return state
