"""A program in stages gives the same bits as the same program in one, for the same secret."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from dpmcmc import Curator, models
from dpmcmc.curator.programs.script import Answered, Pass, Script
from dpmcmc.errors import PrivacyRefusal
from dpmcmc.queries import Curvature, FilteredAccept, Gradient, WeightedCurvature, WeightedGradient
from tests.chains import SECRET

MODEL = models.logistic(2, radius=1.0)
GENERATOR = np.random.default_rng(5)
FEATURES = (GENERATOR.uniform(-0.7, 0.7, (300, 2))).astype(np.float32)
ROWS = FEATURES, (FEATURES[:, 0] > 0).astype(np.float32)
ARGUMENTS = jax.random.key(7), jnp.array([0.25, -0.5], jnp.float32)
SLOPE = Gradient(MODEL.lipschitz, 20.0)
BEND = Curvature(MODEL.hessian_bound, 20.0)


def curator_of(model=MODEL, rows=ROWS):
    return Curator(rows, model, None, fixed_secret=SECRET)


def compiled(program, curator, in_stages):
    return curator.trace(program, *ARGUMENTS).compile(in_stages=in_stages)


def both(program, **options):
    """What a program returns, in stages and as one."""
    found = []
    for in_stages in (True, False):
        curator = curator_of(**options)
        executable = compiled(program, curator, in_stages)
        assert isinstance(executable.compiled, Script) is in_stages
        found.append(curator.grant(executable.plan).run(executable, *ARGUMENTS))
    return found


def one_ask(ask, rng_key, position):
    return ask(rng_key, SLOPE, position)


def two_at_one_point(ask, rng_key, position):
    first, second = jax.random.split(rng_key)
    return ask(first, SLOPE, position), ask(second, BEND, position)


def a_loop(ask, rng_key, position):
    """Whose points depend on the answers before: by amounts that any compiler rounds alike."""

    def turn(carry, inputs):
        key, offset = inputs
        answer = ask(key, SLOPE, carry + offset)
        return jnp.sign(answer.value) / 2, answer.value

    inputs = jax.random.split(rng_key, 3), jnp.array([0.0, 0.25, 0.5])
    return lax.scan(turn, position, inputs, reverse=True)


def lanes(ask, rng_key, position):
    keys = jax.random.split(rng_key, 4)
    points = position + jnp.arange(4.0)[:, None]
    return jax.vmap(lambda key, point: ask(key, SLOPE, point))(keys, points)


def whitened(ask, rng_key, position):
    first, second = jax.random.split(rng_key)
    points = jnp.eye(2), position, jnp.asarray(0.5)
    gradient = ask(first, WeightedGradient(20.0), *points)
    return gradient, ask(second, WeightedCurvature(20.0), *points)


@pytest.mark.parametrize("program", [one_ask, two_at_one_point, a_loop, lanes, whitened])
def test_stages_change_no_bit(program, quick_compilation):
    in_stages, as_one = both(program)
    jax.tree.map(np.testing.assert_array_equal, in_stages, as_one)


def test_a_model_without_public_tables(quick_compilation):
    in_stages, as_one = both(two_at_one_point, model=models.linear(2, noise_scale=1.0))
    jax.tree.map(
        lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-5), in_stages, as_one
    )


def test_asks_at_one_point_share_a_pass(quick_compilation):
    script = compiled(two_at_one_point, curator_of(), True).compiled
    assert sum(isinstance(call, Pass) for call in script.calls) == 1
    assert sum(isinstance(call, Answered) for call in script.calls) == 2


def in_a_branch(ask, rng_key, position):
    return lax.cond(
        position[0] > 0, lambda: ask(rng_key, SLOPE, position).value, lambda: 0 * position
    )


def with_a_standing_query(ask, rng_key, position):
    return ask(rng_key, FilteredAccept(1.0, 0.5), position, position, jnp.float32(0))


def too_many(ask, rng_key, position):
    keys = jax.random.split(rng_key, 300)
    return lax.scan(lambda carry, key: (carry, ask(key, SLOPE, carry).value), position, keys)


@pytest.mark.parametrize("program", [in_a_branch, with_a_standing_query, too_many])
def test_a_program_that_has_no_stages_is_compiled_as_one(program, quick_compilation):
    assert not isinstance(compiled(program, curator_of(), True).compiled, Script)


def stages(curator, *noise_multipliers):
    def program(ask, rng_key, position):
        keys = jax.random.split(rng_key, len(noise_multipliers))
        return [
            ask(key, WeightedGradient(each), jnp.eye(2), position + at, jnp.asarray(0.5))
            for at, (key, each) in enumerate(zip(keys, noise_multipliers, strict=True))
        ]

    script = compiled(program, curator, True).compiled
    return [call.stage.compiled for call in script.calls if isinstance(call, Pass | Answered)]


def test_what_is_alike_is_compiled_once(quick_compilation):
    first_pass, first, second_pass, second = stages(curator_of(), 20.0, 30.0)
    assert first_pass is second_pass
    assert first is second  # the size of the noise is an argument
    assert stages(curator_of(), 20.0, 30.0) == [first_pass, first, second_pass, second]
    other = models.logistic(2, radius=1.0, prior_scale=2.0)
    assert stages(curator_of(other), 20.0)[0] is first_pass  # the prior is not in a pass
    assert stages(curator_of(models.logistic(2, radius=0.9)), 20.0)[0] is not first_pass


def test_the_bill_is_the_same(quick_compilation):
    curator = curator_of()
    assert compiled(a_loop, curator, True).plan == compiled(a_loop, curator, False).plan


@dataclasses.dataclass(frozen=True)
class Program:
    """A program that is a value."""

    noise_multiplier: float

    def __call__(self, ask, rng_key, position):
        return ask(rng_key, Gradient(MODEL.lipschitz, self.noise_multiplier), position)


def test_equal_programs_share_a_script_and_no_secret(quick_compilation):
    curators = [Curator(ROWS, MODEL, None) for _ in range(2)]
    first, second = (compiled(Program(20.0), curator, True) for curator in curators)
    assert first.compiled is second.compiled
    assert compiled(Program(21.0), curators[0], True).compiled is not first.compiled
    answers = [
        curator.grant(executable.plan).run(executable, *ARGUMENTS).value
        for curator, executable in zip(curators, (first, second), strict=True)
    ]
    assert np.any(answers[0] != answers[1])


def test_a_program_of_another_curator_is_refused_though_its_script_is_shared(quick_compilation):
    curators = [Curator(ROWS, MODEL, None) for _ in range(2)]
    executables = [compiled(Program(20.0), curator, True) for curator in curators]
    grant = curators[0].grant(executables[0].plan)
    with pytest.raises(PrivacyRefusal, match="another curator"):
        grant.run(executables[1], *ARGUMENTS)
