"""A program of the same text is compiled once in a process, and one of another text is not
confused with it.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpmcmc import Curator, models
from dpmcmc.queries import Gradient

ROWS = np.linspace(-1, 1, 24, dtype=np.float32)[:, None]
ARGUMENTS = jax.random.key(0), jnp.zeros(1), jnp.ones(1)


def compiled(program, rows=ROWS, variance=1.0, devices=None):
    """What JAX has compiled, for a curator and a model that are made anew."""
    curator = Curator(rows, models.gaussian([variance]), None, devices=devices)
    return curator.trace(program, *ARGUMENTS).compile().compiled


def asking(noise_multiplier=20.0, offset=0.0):
    def program(ask, rng_key, first, second):
        query = Gradient(1.0, noise_multiplier)
        return ask(rng_key, query, first).value + offset

    return program


def test_a_second_run_compiles_nothing():
    assert compiled(asking()) is compiled(asking())
    assert compiled(asking()) is compiled(asking(), ROWS[::-1])


@pytest.mark.parametrize(
    "other",
    [
        lambda: compiled(asking(noise_multiplier=21.0)),
        lambda: compiled(asking(offset=1.0)),
        lambda: compiled(asking(offset=np.arange(1.0, 2.0, dtype=np.float32))),
        lambda: compiled(asking(), ROWS[:-1]),
        lambda: compiled(asking(), variance=2.0),
        lambda: compiled(asking(), devices=jax.devices()[:1]),
    ],
    ids=["noise", "constant", "array", "shape", "model", "devices"],
)
def test_another_program_is_compiled_anew(other):
    assert other() is not compiled(asking())


def test_keys_among_the_constants_are_told_apart():
    """Keys of a private start that a program has as constants."""

    def drawing(seed):
        own_key = jax.random.key(seed)
        return lambda ask, rng_key, first, second: jax.random.normal(own_key, first.shape) + first

    assert compiled(drawing(0)) is compiled(drawing(0))
    assert compiled(drawing(0)) is not compiled(drawing(1))


def test_programs_of_different_arguments_are_not_confused():
    def first(ask, rng_key, first, second):
        return first

    def second(ask, rng_key, first, second):
        return second

    assert compiled(first) is not compiled(second)
