"""What every sampler promises: its types, one chain among others, no key used twice, and that
nothing but answers is used.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import io_callback

from dpmcmc import Curator
from dpmcmc.errors import UnboundedQueries
from tests.cases import by_schedule
from tests.cases.samplers import ALL
from tests.chains import SECRET, compiled

pytestmark = pytest.mark.usefixtures("quick_compilation")

NUM_STEPS = 4


def chain(sampler, ask, rng_key, position):
    """A short chain: the states, and what was released in each step."""

    def step(state, key):
        state, info = sampler.step(key, state, ask)
        return state, (state, info)

    keys = jax.random.split(rng_key, NUM_STEPS + 1)
    return jax.lax.scan(step, sampler.init(keys[0], position, ask), keys[1:])[1]


def begun(case, ask, position):
    """The sampler, and where it begins: of a private start, as that has found it."""
    if case.start is None:
        return case.sampler, position
    found = case.start(jax.random.key(11), position, ask)
    return case.sampler(found), found.position


def recording(ask, answers):
    """`ask` that also writes each answer down, by its key."""

    def recorded(rng_key, query, *points):
        answer = ask(rng_key, query, *points)
        io_callback(
            lambda name, answer: answers.update({np.asarray(name).tobytes(): answer}),
            None,
            _name(rng_key),
            answer,
        )
        return answer

    return recorded


def playing(shapes, answers):
    """`ask` that knows nothing but the answers written down."""

    def play(rng_key, query, *points):
        return io_callback(
            lambda name: answers[np.asarray(name).tobytes()], shapes[query], _name(rng_key)
        )

    return play


def _name(rng_key):
    return jax.random.key_data(rng_key)


def run(case, program, *arguments):
    """A program on the rows of the case."""
    curator = Curator(case.rows, case.model, None, fixed_secret=SECRET)
    traced = curator.trace(program, *arguments)
    return jax.tree.map(np.asarray, curator.grant(traced.plan).run(compiled(traced, 0), *arguments))


def assert_close(left, right):
    """But for the roundings of two compiled programs, which the steps of a chain amplify."""
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), left, right)


EACH = pytest.mark.parametrize("case", by_schedule(ALL), ids=str)


@EACH
def test_the_contract(case):
    answers, answer_shapes = {}, {}

    def noting(ask):
        def noted(rng_key, query, *points):
            answer = ask(rng_key, query, *points)
            answer_shapes[query] = jax.tree.map(
                lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), answer
            )
            return answer

        return recording(noted, answers)

    def together(ask, keys, positions):
        sampler, position = begun(case, noting(ask), positions[0])
        positions = positions if case.start is None else jnp.broadcast_to(position, positions.shape)
        return jax.vmap(lambda key, position: chain(sampler, noting(ask), key, position))(
            keys, positions
        )

    start = jnp.full(case.model.dimension, 0.2)
    keys, starts = jax.random.split(jax.random.key(7), 2), jnp.stack([start, start + 0.5])
    states, info = run(case, together, keys, starts)
    # Types: flat float32 positions (a scan has carried the state), and a NamedTuple of released
    # values.
    assert (
        states.position.shape == (2, NUM_STEPS, case.model.dimension)
        and states.position.dtype == jnp.float32
    )
    assert hasattr(info, "_fields") and all(
        leaf.shape[:2] == (2, NUM_STEPS) for leaf in jax.tree.leaves(info)
    )
    of_chains = 2 * (sum(case.at_start.values()) + NUM_STEPS * sum(case.per_step.values()))
    assert len(answers) == sum(case.by_the_start.values()) + of_chains

    # Rows withheld, one chain at a time: the answers played back outside of any curator give the
    # same chains.
    def alone(key, position):
        play = playing(answer_shapes, answers)
        sampler, position = begun(case, play, position)
        return chain(sampler, play, key, position)

    replay = jax.jit(alone)
    for index in range(2):
        begin = starts[index if case.start is None else 0]
        assert_close(
            replay(keys[index], begin),
            jax.tree.map(lambda leaf: leaf[index], (states, info)),  # noqa: B023
        )


@EACH
def test_a_key_used_twice_is_refused(case):
    def twice(ask, key, position):
        if case.start is not None:
            return [case.start(key, position, ask).position for _ in range(2)]
        state = case.sampler.init(jax.random.fold_in(key, 1), position, ask)
        state, _ = case.sampler.step(key, state, ask)
        return case.sampler.step(key, state, ask)[0].position

    with pytest.raises(UnboundedQueries, match="a random key is used for two asks"):
        Curator(case.rows, case.model, None).trace(
            twice, jax.random.key(0), jnp.zeros(case.model.dimension)
        )
