"""The bill is read off the program."""

import dataclasses
import functools
import itertools
import os
import threading
import time
import warnings
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import sparse
from jax.experimental.pallas import pallas_call
from jax.extend.core import ClosedJaxpr, Literal, Primitive, jaxpr_as_fun
from jax.interpreters import mlir

from dpmcmc import Curator, Federation, models
from dpmcmc.accounting import costs
from dpmcmc.curator.grants import Granted
from dpmcmc.curator.programs.asked import asked
from dpmcmc.curator.programs.interpreter import count_queries, put_answers
from dpmcmc.errors import BudgetExceeded, PrivacyRefusal, UnboundedQueries, UnsupportedQuery
from dpmcmc.queries import LogRatio
from dpmcmc.types import Answer

pytestmark = pytest.mark.usefixtures("quick_compilation")

KEY = jax.random.key(0)
POINT = jnp.ones(3)


@dataclasses.dataclass(frozen=True)
class Named:
    name: str


Q, R = Named("q"), Named("r")


PLACES = itertools.count()


def respond(key, lane, *points):
    """An answer that tells what an ask is named by."""
    return Answer(jnp.append(jax.random.key_data(key), lane), jnp.float32(0))


def traced_answer(_, *operands):
    return jax.make_jaxpr(respond)(*operands)


def words_at_once(key, *points):
    return asked(key, Q, points, next(PLACES), traced_answer).value


def ask(key, query, *points):
    return 1.0 * asked(key, query, points, next(PLACES), traced_answer).value.sum()


def plan(program, *arguments):
    return count_queries(jax.make_jaxpr(program)(*arguments))


def turns(key, number, body):
    return lax.fori_loop(0, number, lambda i, total: total + body(jax.random.fold_in(key, i)), 0.0)


def test_one_ask():
    assert plan(lambda key: ask(key, Q, POINT), KEY) == {Q: 1}


def test_two_keys_two_asks_two_queries():
    def program(key):
        one, two = jax.random.split(key)
        return ask(one, Q, POINT) + ask(two, R, POINT)

    assert plan(program, KEY) == {Q: 1, R: 1}


def test_scan_and_fori_count_by_their_length():
    assert plan(lambda key: turns(key, 5, lambda k: ask(k, Q, POINT)), KEY) == {Q: 5}

    def nested(key):
        return turns(key, 3, lambda k: turns(k, 4, lambda k2: ask(k2, Q, POINT)))

    assert plan(nested, KEY) == {Q: 12}


def test_a_loop_that_never_turns_asks_nothing():
    assert plan(lambda key: turns(key, 0, lambda k: ask(k, Q, POINT)), KEY).get(Q, 0) == 0


def test_vmap_counts_by_its_size_also_when_nested():
    keys = jax.random.split(KEY, 12).reshape(3, 4)
    program = jax.vmap(jax.vmap(lambda key: ask(key, Q, POINT)))
    assert plan(program, keys) == {Q: 12}


def test_jit_is_transparent():
    assert plan(lambda key: jax.jit(jax.jit(lambda k: ask(k, Q, POINT)))(key), KEY) == {Q: 1}


def test_one_jitted_body_at_two_spots_is_refused():
    """Compiled twice it may round the rows in two ways, and its two asks have one place: with equal
    keys, one noise.
    """

    def used(first, second):
        def program(key):
            body = jax.jit(lambda k: ask(k, Q, POINT))
            one, two = jax.random.split(key)
            return first(body)(one) + second(body)(two)

        return program

    def mapped(body):
        return lambda key: jax.vmap(body)(jax.random.split(key)).sum()

    def as_it_is(body):
        return body

    for first in (as_it_is, mapped):
        with pytest.raises(UnboundedQueries, match="give each use a function of its own"):
            plan(used(first, as_it_is), KEY)

    def apart(key):  # every turn of a loop is the same spot, and each jit its own
        bodies = [jax.jit(lambda k: ask(k, Q, POINT)) for _ in range(2)]
        return sum(
            turns(jax.random.fold_in(key, index), 3, body) for index, body in enumerate(bodies)
        )

    assert plan(apart, KEY) == {Q: 6}


def test_one_body_in_two_loops_or_branches_is_refused():
    """JAX traces a body once for both.

    Of a choice only one branch runs, but in the next turn of a loop it may be another.
    """

    def body(total, key):
        return total + ask(key, Q, POINT), None

    def loops(key):
        one, two = jax.random.split(key)
        half = lax.scan(body, jnp.float32(0), jax.random.split(one, 3))[0]
        return lax.scan(body, half, jax.random.split(two, 3))[0]

    with pytest.raises(UnboundedQueries, match="such as a lambda around it"):
        plan(loops, KEY)

    def branch(key):
        return ask(key, Q, POINT)

    with pytest.raises(UnboundedQueries, match="such as a lambda around it"):
        plan(lambda key, which: lax.switch(which, [branch, branch, lambda key: 0.0], key), KEY, 1)
    apart = [lambda key: branch(key), lambda key: branch(key)]
    assert plan(lambda key, which: lax.switch(which, apart, key), KEY, 1) == {Q: 1}


@pytest.mark.parametrize("unroll", [2, 3, True])
def test_an_unrolled_loop_is_refused(unroll):
    """Its turns are compiled one by one: with equal keys, which are not seen here, they would share
    their noise.
    """

    def program(key):
        body = lambda total, key: (total + ask(key, Q, POINT), None)  # noqa: E731
        return lax.scan(body, jnp.float32(0), jnp.stack([key] * 6), unroll=unroll)[0]

    with pytest.raises(UnboundedQueries, match="leave unroll out"):
        plan(program, KEY)


def test_an_ask_while_the_program_is_traced_is_refused():
    """It would be on no bill."""

    def program(key):
        with jax.ensure_compile_time_eval():
            return ask(KEY, Q, POINT)

    with pytest.raises(UnboundedQueries, match="leave jax.ensure_compile_time_eval out"):
        plan(program, KEY)


def words_of(program, *arguments):
    """What the asks of a program are named by, a row for each."""

    def find(query, place, maps, company, *operands):
        mapped = respond
        for dims in maps:
            mapped = jax.vmap(mapped, dims)
        return mapped(*operands)

    traced = jax.make_jaxpr(program)(*arguments)
    (found,) = map(
        np.asarray, jax.jit(lambda *arguments: put_answers(traced, arguments, find))(*arguments)
    )
    return found.reshape(-1, found.shape[-1])


def words_in_a_branch(key):
    """Under vmap a cond whose predicate depends on the lane has everything once for each."""
    return lax.cond(
        jax.random.key_data(key)[0] % 2 == 1, lambda: words_at_once(key), lambda: words_at_once(key)
    )


def words_in_a_loop(key):
    return lax.scan(
        lambda total, i: (total, words_at_once(jax.random.fold_in(key, i))), 0.0, jnp.arange(4)
    )[1]


@pytest.mark.parametrize("in_axes, out_axes", [(0, 0), (1, 1)])
@pytest.mark.parametrize("words", [words_at_once, words_in_a_branch, words_in_a_loop])
def test_lanes_have_words_of_their_own(words, in_axes, out_axes):
    """Equal keys are seen as they are traced; in an array they are not, and every lane has a
    number.
    """
    keys = jax.random.wrap_key_data(jnp.tile(jax.random.key_data(KEY), (2, 3, 1)))
    found = words_of(jax.vmap(jax.vmap(words), in_axes, out_axes), keys)
    assert (
        len({row.tobytes() for row in found})
        == len(found)
        == (24 if words is words_in_a_loop else 6)
    )
    assert set(found[:, -1]) == set(range(6))


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg", "unsafe_rbg"])
def test_words_are_those_of_the_key_whatever_its_generator(impl):
    """Some generators would draw the bits of all lanes with the first key: asks that have it in
    common would share all noise.
    """
    keys = jnp.stack([jax.random.key(seed, impl=impl) for seed in range(3)])
    found = words_of(jax.vmap(words_at_once), keys)
    np.testing.assert_array_equal(found[:, :-1], jax.random.key_data(keys))


def test_cond_and_switch_count_the_dearest_branch_query_by_query():
    def program(key, which):
        one, two = jax.random.split(key)
        branches = [
            lambda: ask(one, Q, POINT),
            lambda: ask(one, Q, POINT) + ask(two, Q, POINT),
            lambda: ask(one, R, POINT),
        ]
        return lax.switch(which, branches)

    assert plan(program, KEY, 0) == {Q: 2, R: 1}


def test_a_platform_has_the_branch_that_it_had():
    """That of another one could perhaps not be compiled here."""

    def program(ask, key):
        other = lambda x: pallas_call(  # noqa: E731
            lambda x, y: y.__setitem__(0, x[0]), jax.ShapeDtypeStruct((1,), jnp.float32)
        )(x)
        default = lambda x: x + ask(key, RATIO, jnp.zeros(1), x).value  # noqa: E731
        return lax.platform_dependent(jnp.ones(1), cuda=other, rocm=other, default=default)

    owner = curator()
    traced = owner.trace(program, KEY)
    assert traced.plan == {RATIO: 1} and owner.grant(traced.plan).run(
        traced.compile(), KEY
    ).shape == (1,)


def test_a_program_is_put_together_as_this_jax_wants_it():
    """What it warns of an earlier version may no longer do, and who makes errors of warnings could
    ask nothing.
    """
    owner = curator()
    with warnings.catch_warnings(action="error"):
        traced = owner.trace(
            lambda ask, key: jnp.sin(ask(key, RATIO, jnp.zeros(1), jnp.ones(1)).value), KEY
        )
        assert owner.grant(traced.plan).run(traced.compile(), KEY).shape == ()


def test_a_mapped_cond_runs_both_branches_and_is_billed_for_both():
    def program(key, value):
        one, two = jax.random.split(key)
        return lax.cond(value > 0, lambda: ask(one, Q, POINT), lambda: ask(two, R, POINT))

    assert plan(jax.vmap(program), jax.random.split(KEY, 5), jnp.arange(5.0)) == {Q: 5, R: 5}


def test_while_loops_are_refused():
    with pytest.raises(UnboundedQueries, match="while.*fixed number"):
        plan(lambda key, number: turns(key, number, lambda k: ask(k, Q, POINT)), KEY, 3)


def test_unknown_primitives_are_refused():
    with pytest.raises(UnboundedQueries, match="remat"):
        plan(lambda key: jax.checkpoint(lambda k: ask(k, Q, POINT))(key), KEY)


@pytest.mark.parametrize("name", ["jit", "scan", "cond"])
def test_an_operation_of_the_same_name_is_not_the_same(name):
    """It may run its program as often as it likes."""
    own = Primitive(name)
    own.multiple_results = True
    own.def_abstract_eval(lambda _, jaxpr, **__: jaxpr.out_avals)

    def program(key):
        asking = jax.make_jaxpr(lambda key: ask(key, Q, POINT))(key)
        return own.bind(key, jaxpr=asking, branches=(asking,), length=1)

    with pytest.raises(UnboundedQueries, match=f"inside `{name}` cannot be counted"):
        plan(program, KEY)


@pytest.mark.parametrize("derivative", [jax.grad, jax.jacfwd, jax.jacrev, jax.hessian])
def test_derivatives_through_ask_are_refused(derivative):
    with pytest.raises(UnsupportedQuery, match="without noise"):
        plan(lambda key: derivative(lambda point: ask(key, Q, point))(POINT), KEY)


def test_a_key_is_one_typed_key():
    with pytest.raises(TypeError, match="jax.random.key, not jax.random.PRNGKey"):
        plan(words_at_once, jax.random.PRNGKey(0))
    with pytest.raises(TypeError, match=r"one random key, not an array of shape \(2,\)"):
        plan(words_at_once, jax.random.split(KEY))


REUSE = {
    "twice": lambda key: ask(key, Q, POINT) + ask(key, Q, 2 * POINT),
    "two queries": lambda key: ask(key, Q, POINT) + ask(key, R, POINT),
    "equal slices": lambda key: (
        ask(jax.random.split(key)[0], Q, POINT) + ask(jax.random.split(key)[0], Q, POINT)
    ),
    "equal folds": lambda key: (
        ask(jax.random.fold_in(key, 7), Q, POINT) + ask(jax.random.fold_in(key, 7), Q, POINT)
    ),
    "inside jit": lambda key: ask(key, Q, POINT) + jax.jit(lambda k: ask(k, Q, POINT))(key),
    "turn after turn": lambda key: lax.fori_loop(
        0, 5, lambda i, total: total + ask(key, Q, POINT), 0.0
    ),
    "carried on": lambda key: lax.scan(lambda k, _: (k, ask(k, Q, POINT)), key, None, length=3)[
        1
    ].sum(),
    "after a branch": lambda key: (
        lax.cond(POINT[0] > 0, lambda: ask(key, Q, POINT), lambda: 0.0) + ask(key, Q, POINT)
    ),
    "a constant": lambda key: lax.fori_loop(
        0, 5, lambda i, total: total + jax.jit(lambda: ask(KEY, Q, POINT))(), 0.0
    ),
    "across points": lambda key: jax.vmap(lambda point: ask(key, Q, point))(jnp.ones((2, 3))).sum(),
}


@pytest.mark.parametrize("program", REUSE.values(), ids=REUSE)
def test_visible_key_reuse_is_refused(program):
    with pytest.raises(UnboundedQueries, match="key"):
        plan(program, KEY)


def test_branches_may_share_a_key():
    program = lambda key: lax.cond(  # noqa: E731
        POINT[0] > 0, lambda: ask(key, Q, POINT), lambda: ask(key, R, POINT)
    )
    assert plan(program, KEY) == {Q: 1, R: 1}


# -- with a curator -------------------------------------------------------------------------------

ROWS = np.linspace(-1, 1, 10, dtype=np.float32)[:, None]
RATIO = LogRatio(clip=5.0, noise_multiplier=1.0)


def curator(**options):
    return Curator(ROWS, models.gaussian(np.ones(1)), None, **options)


def test_a_hidden_reuse_repeats_an_answer_for_equal_points_and_none_for_others():
    def program(ask, key, ends):
        def turn(_, i):
            return None, ask(jax.random.fold_in(key, i % 2), RATIO, jnp.zeros(1), ends[i]).value

        return lax.scan(turn, None, jnp.arange(6))[1]

    ends = jnp.array([1.0, 1.0, 1.0, 1.0, 0.5, 2.0])[:, None]
    owner = curator()
    traced = owner.trace(program, KEY, ends)
    assert traced.plan == {RATIO: 6}
    values = np.asarray(owner.grant(traced.plan).run(traced.compile(), KEY, ends))
    assert values[0] == values[2] and values[1] == values[3] and values[0] != values[1]
    # What is left when the exact sums are taken out is the noise, in units of the move: fresh for
    # each different point.
    exact = -(10 * ends[:, 0] ** 2 / 2 - ends[:, 0] * ROWS.sum())
    noise = (values - exact) / ends[:, 0]
    assert len({round(float(unit), 3) for unit in noise}) == 4


def out_of_sight(function, *arguments):
    """function(*arguments), by an operation that does not show what it is made of."""
    hidden = jax.make_jaxpr(function)(*arguments)
    number = len(hidden.consts)
    operation = Primitive("opaque")
    operation.multiple_results = True
    operation.def_abstract_eval(lambda *_: hidden.out_avals)

    def run(*values):
        return jaxpr_as_fun(ClosedJaxpr(hidden.jaxpr, values[:number]))(*values[number:])

    mlir.register_lowering(operation, mlir.lower_fun(run, multiple_results=True))
    (value,) = operation.bind(*hidden.consts, *arguments)
    return value


def by_custom_root(function, key):
    """JAX 0.12 does not show what this one is made of."""
    return lax.custom_root(
        lambda x: x - 1,
        0.0,
        lambda _, guess: guess + function(key),
        lambda slope, y: y / slope(1.0),
    )


def check_not_compiled(program):
    with pytest.raises(UnboundedQueries, match="on no bill|cannot be counted"):
        curator().trace(
            lambda ask, key: program(
                lambda key: ask(key, RATIO, jnp.zeros(1), jnp.ones(1)).value, key
            ),
            KEY,
        ).compile()


@pytest.mark.parametrize("hide", [out_of_sight, by_custom_root])
@pytest.mark.parametrize("also_in_sight", [False, True])
def test_an_ask_that_no_walk_sees_is_not_compiled(hide, also_in_sight):
    def program(ask, key):
        one, two = jax.random.split(key)
        return (ask(two) if also_in_sight else 0.0) + hide(ask, one)

    check_not_compiled(program)


def by_jit(function):
    return jax.jit(lambda key: function(key))


def by_scan(function):
    """The body is traced once for all scans of it."""
    body = lambda total, key: (total + function(key), None)  # noqa: E731
    return lambda key: lax.scan(body, 0.0, key[None])[0]


@pytest.mark.parametrize("hide", [out_of_sight, by_custom_root])
@pytest.mark.parametrize("share", [by_jit, by_scan])
@pytest.mark.parametrize("is_hidden_first", [False, True])
def test_a_function_that_asks_in_sight_does_not_ask_out_of_it(hide, share, is_hidden_first):
    """Both uses are of one trace, with one place: the bill would be 1, and the answers as many as
    are wanted.
    """

    def program(ask, key):
        one, two = jax.random.split(key)
        function = share(ask)
        uses = [lambda: function(one), lambda: hide(function, two)]
        return sum(use() for use in (reversed(uses) if is_hidden_first else uses))

    check_not_compiled(program)


def scaled(around, ask):
    return around(lambda scale, key: scale * ask(key, RATIO, jnp.zeros(1), jnp.ones(1)).value)


def scaled_in_turns(around, ask):
    turn = around(lambda scale, key: (scaled(lambda function: function, ask)(scale, key), None))
    return lambda scale, key: lax.scan(turn, scale, jax.random.split(key, 3))[0]


@pytest.mark.parametrize("program, count", [(scaled, 1), (scaled_in_turns, 3)])
def test_an_answer_is_not_computed_again_on_the_way_back(program, count):
    """It would have the same noise, and rows may round to other numbers there."""

    def traced(around):
        return curator().trace(lambda ask, key: jax.grad(program(around, ask))(1.0, key), KEY)

    assert traced(lambda function: function).plan == {RATIO: count}
    kept = lambda function: jax.checkpoint(  # noqa: E731
        function, policy=lambda operation, *_, **__: operation.name == "asked"
    )
    assert traced(kept).plan == {RATIO: count}
    with pytest.raises(UnboundedQueries):
        traced(jax.checkpoint)


def asking(ask, key):
    return lambda scale: scale * ask(key, RATIO, jnp.zeros(1), jnp.ones(1)).value


def pulled_in_turns(ask, key):
    return lax.scan(
        lambda total, key: (total, jax.vjp(jax.checkpoint(asking(ask, key)), 1.0)),
        0.0,
        jax.random.split(key, 2),
    )


HANDED_OVER = {
    "pullback": lambda ask, key: jax.vjp(jax.checkpoint(asking(ask, key)), 1.0),
    "derivative": lambda ask, key: jax.linearize(jax.checkpoint(asking(ask, key)), 1.0),
    "pullbacks": pulled_in_turns,
    "lanes": lambda ask, key: jax.vmap(lambda key: jax.vjp(jax.checkpoint(asking(ask, key)), 1.0))(
        jax.random.split(key, 2)
    ),
    "consts": lambda ask, key: jax.make_jaxpr(asking(ask, key))(1.0).consts,
    "converted": lambda ask, key: jax.closure_convert(asking(ask, key), 1.0)[1],
}
OWNERS = {
    "alone": lambda **options: curator(**options),
    "on devices": lambda **options: curator(devices=jax.devices()[:1], **options),
    "together": lambda **options: Federation({"east": curator(**options), "west": curator()}),
}


def has_rows(leaves):
    inside = ROWS[1:-1]  # the ends are round numbers
    return any(np.isin(np.asarray(without_keys(leaf)), inside).any() for leaf in leaves)


@pytest.mark.parametrize(
    "name, owner",
    [
        *((name, "alone") for name in HANDED_OVER),
        ("pullback", "on devices"),
        ("pullback", "together"),
    ],
)
def test_what_jax_hands_over_has_nothing_of_the_rows(name, owner):
    """What it keeps in order to compute something again, and the constants of a function, are what
    the program has in its trace.
    """
    secret = np.arange(16, dtype=np.uint32) + 2**31
    owner = OWNERS[owner](fixed_secret=secret)
    traced = owner.trace(HANDED_OVER[name], KEY)
    leaves = jax.tree.leaves(owner.grant(traced.plan).run(traced.compile(), KEY))
    assert not has_rows(leaves) and has_rows([*leaves, ROWS])
    assert not any(
        np.isin(np.asarray(leaf), secret).any() for leaf in leaves if leaf.dtype == np.uint32
    )
    assert sum(leaf.size for leaf in leaves) < len(ROWS)


@dataclasses.dataclass(frozen=True)
class Waves:
    """An answer that depends on neither rows nor noise."""

    released: ClassVar[str] = "nothing of the rows"
    sign: float = 1.0

    def answer(self, key, model, rows, position, end):
        value = jnp.sum(
            jnp.sin(position.astype(jnp.float64)) - 2 * jnp.sin(end.astype(jnp.float64))
        )
        return Answer(self.sign * value, 2.0 + value**2)

    def cost(self, unit):
        return costs.Gaussian(1.0)


def plain_ask(key, query, position, end):
    with jax.enable_x64(True):  # of its key it has a zero, as something that vmap sees
        found = query.answer(
            None, None, None, position + 0 * jax.random.key_data(key)[0].astype(jnp.float32), end
        )
        return Answer(*(part.astype(jnp.float32) for part in found))


def wave(ask, key, x, sign=1.0):
    return ask(key, Waves(sign), jnp.reshape(x, (1,)).astype(jnp.float32), jnp.ones(1)).value


def either(ask, key, which, x):
    one, two = jax.random.split(key)
    branches = [
        lambda x: wave(ask, one, x),
        lambda x: 2 * x,
        lambda x: x - wave(ask, one, x, -1.0) * wave(ask, two, x),
    ]
    return lax.switch(which, branches, x)


def carried(ask, key):
    def turn(carry, given):
        key, (count, total) = carry
        key, own = jax.random.split(key)
        here = wave(ask, own, total + given["x"])
        return (key, (count + 1, total + here)), {
            "here": (here, count),
            "none": None,
            "empty": jnp.zeros((0, 2)),
            "key": own,
        }

    return lax.scan(turn, (key, (0, 1.0)), {"x": jnp.arange(4.0)}, reverse=True)


def lanes(ask, key):
    points = jnp.arange(6.0).reshape(3, 1, 2)
    mapped = jax.vmap(lambda key, x, end: ask(key, Waves(), x, end), (0, 1, None))
    return jax.vmap(mapped, (1, 0, None), 1)(jax.random.split(key, (2, 3)), points, jnp.ones(1))


def turns_of_lanes(ask, key):
    turn = lambda c, key: (c + wave(ask, key, c), lax.psum(c, "lanes"))  # noqa: E731
    body = lambda key, x: lax.scan(turn, x, jax.random.split(key, 3))  # noqa: E731
    return jax.vmap(body, axis_name="lanes")(jax.random.split(key, 4), jnp.arange(4.0))


def without_keys(leaf):
    return jax.random.key_data(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf


COMPUTED = {
    "constants": (
        1,
        lambda ask, key: (1, 2.0, np.int8(3), key, wave(ask, key, 1.0), jnp.arange(3)),
    ),
    "carried": (4, carried),
    "nothing carried": (
        3,
        lambda ask, key: lax.map(lambda key: wave(ask, key, 1.0), jax.random.split(key, 3)),
    ),
    "in parts": (
        5,
        lambda ask, key: lax.map(
            lambda key: wave(ask, key, 1.0), jax.random.split(key, 5), batch_size=2
        ),
    ),
    "no turn": (
        0,
        lambda ask, key: lax.scan(
            lambda c, key: (c + wave(ask, key, c), c), 1.0, jax.random.split(key, 3)[:0]
        ),
    ),
    "nested": (
        6,
        lambda ask, key: turns(key, 3, lambda key: turns(key, 2, lambda key: wave(ask, key, 0.5))),
    ),
    "choices": (
        12,
        lambda ask, key: lax.map(
            lambda i: either(ask, jax.random.fold_in(key, i), i, 0.3 * i), jnp.arange(-1, 5)
        ),
    ),
    "choice of a lane": (
        9,
        lambda ask, key: jax.vmap(lambda k, i: either(ask, k, i, 0.3 * i))(
            jax.random.split(key, 3), jnp.arange(3)
        ),
    ),
    "choice of all": (
        6,
        lambda ask, key: jax.vmap(lambda k, x: either(ask, k, (x.shape == ()) * 2, x))(
            jax.random.split(key, 3), jnp.arange(3.0)
        ),
    ),
    "lanes": (6, lanes),
    "turns of lanes": (12, turns_of_lanes),
    "slope": (
        3,
        lambda ask, key: jax.value_and_grad(
            lambda x: turns(key, 3, lambda key: x**2 * wave(ask, key, 0.5))
        )(1.5),
    ),
    "jit": (
        1,
        lambda ask, key: jax.jit(lambda key, x: (x, wave(ask, key, x)), donate_argnums=1)(
            key, jnp.float32(2.0)
        ),
    ),
}


@pytest.mark.parametrize("owner", ["alone", pytest.param("on devices", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", COMPUTED)
def test_a_program_computes_what_it_would_with_an_ordinary_function(name, owner):
    """Values, and the types of all that it returns: the answers are put in by rules of our own for
    loops, branches and lanes.
    """
    count, program = COMPUTED[name]
    owner = OWNERS[owner]()
    traced = owner.trace(program, KEY)
    found = owner.grant(traced.plan).run(traced.compile(), KEY)
    assert sum(traced.plan.values()) == count
    wanted = jax.jit(functools.partial(program, plain_ask))(KEY)
    assert jax.tree.structure(found) == jax.tree.structure(wanted)
    for one, other in zip(
        map(without_keys, jax.tree.leaves(found)),
        map(without_keys, jax.tree.leaves(wanted)),
        strict=True,
    ):
        assert (one.shape, one.dtype, one.weak_type) == (other.shape, other.dtype, other.weak_type)
        np.testing.assert_allclose(one, other, 2e-6, 2e-6)


def test_a_program_that_is_evaluated_anew_keeps_its_noise():
    """In JAX 0.8 the tables that noise is made from were cut to 32 bits: answers had none."""
    program = lambda ask, key: sparse.sparsify(asking(ask, key))(jnp.float32(1.0))  # noqa: E731
    found = []
    for _ in range(3):
        owner = curator()
        traced = owner.trace(program, KEY)
        found.append(float(owner.grant(traced.plan).run(traced.compile(), KEY)))
    # Equal by chance, on a grid of more than 2^20 units of noise: below 1e-5
    assert len(set(found)) == 3


def evaluated(closed_jaxpr, answer):
    """A program evaluated operation by operation, with a rule of its own for an answer."""
    values = dict(zip(closed_jaxpr.jaxpr.constvars, closed_jaxpr.consts, strict=True))
    for equation in closed_jaxpr.jaxpr.eqns:
        given = [
            atom.val if isinstance(atom, Literal) else values[atom] for atom in equation.invars
        ]
        rule = answer if equation.primitive.name == "asked" else as_it_is
        found = rule(equation, given)
        values.update(
            zip(
                equation.outvars,
                found if equation.primitive.multiple_results else [found],
                strict=True,
            )
        )
    return [values[variable] for variable in closed_jaxpr.jaxpr.outvars]


def as_it_is(equation, given):
    return equation.primitive.bind(*given, **equation.params)


def in_double_precision(equation, given):
    with jax.enable_x64(True):
        return as_it_is(
            equation,
            [value.astype(jnp.float64) if value.dtype == jnp.float32 else value for value in given],
        )


def test_an_answer_is_as_it_was_traced():
    def program(rule):
        return lambda ask, key: evaluated(
            jax.make_jaxpr(lambda: asking(ask, key)(jnp.float32(1.0)))(), rule
        )

    assert curator().trace(program(as_it_is), KEY).plan == {RATIO: 1}
    with pytest.raises(PrivacyRefusal, match="is not as it was traced"):
        curator().trace(program(in_double_precision), KEY).compile()


@pytest.mark.parametrize(
    "change",
    [jax.grad, jax.hessian, lambda f: lambda x: jax.vjp(f, x)[1](1.0), jax.value_and_grad, jax.jit],
)
def test_what_follows_from_answers_goes_out(change):
    def program(ask, key):
        def turn(total, key):
            return total * asking(ask, key)(1.0), lax.cond(total > 0, lambda: total, lambda: -total)

        return change(lambda x: lax.scan(turn, x, jax.random.split(key, 3))[0])(1.0)

    assert curator().trace(program, KEY).plan == {RATIO: 3}


def test_more_lanes_than_have_numbers_are_refused():
    keys = jax.eval_shape(lambda: jax.random.split(KEY, (2**16, 2**16)))
    assert plan(jax.vmap(jax.vmap(words_at_once)), keys) == {Q: 2**32}
    with pytest.raises(UnboundedQueries, match="at most 4294967296 lanes"):
        # 2^32 + 1
        plan(
            jax.vmap(jax.vmap(words_at_once)),
            jax.eval_shape(lambda: jax.random.split(KEY, (641, 6_700_417))),
        )


def test_what_asks_nothing_may_be_out_of_sight():
    program = lambda ask, key: out_of_sight(  # noqa: E731
        jnp.cos, ask(key, RATIO, jnp.zeros(1), jnp.ones(1)).value
    )
    owner = curator()
    traced = owner.trace(program, KEY)
    assert traced.plan == {RATIO: 1} and np.isfinite(
        owner.grant(traced.plan).run(traced.compile(), KEY)
    )


def test_a_new_grant_draws_new_noise():
    owner = curator()
    program = lambda ask, key: ask(key, RATIO, jnp.zeros(1), jnp.ones(1)).value  # noqa: E731
    executable = owner.trace(program, KEY).compile()
    assert owner.grant({RATIO: 1}).run(executable, KEY) != owner.grant({RATIO: 1}).run(
        executable, KEY
    )


def test_a_copy_of_the_process_does_not_spend_the_budget_again(monkeypatch):
    """A fork copies what is left of a grant, and its secret.

    Here the process just has another number.
    """
    owner = curator()
    traced = owner.trace(lambda ask, key: ask(key, RATIO, jnp.zeros(1), jnp.ones(1)).value, KEY)
    grant, compiled = owner.grant({RATIO: 2}), traced.compile()
    grant.run(compiled, KEY)
    monkeypatch.setattr(os, "getpid", lambda: -1)
    for spend in (lambda: grant.run(compiled, KEY), lambda: owner.grant({RATIO: 1})):
        with pytest.raises(BudgetExceeded, match="would spend its budget once more"):
            spend()


def test_a_program_that_asks_once_more_than_granted_does_not_run():
    owner = curator()

    def program(ask, key):
        return turns(key, 3, lambda k: ask(k, RATIO, jnp.zeros(1), jnp.ones(1)).value)

    executable = owner.trace(program, KEY).compile()
    grant = owner.grant({RATIO: 5})
    grant.run(executable, KEY)
    with pytest.raises(BudgetExceeded, match="3 times, 2 are left"):
        grant.run(executable, KEY)
    with pytest.raises(BudgetExceeded, match="0 are left"):
        owner.grant({LogRatio(1.0, 1.0): 9}).run(executable, KEY)


@pytest.mark.parametrize("owner", ["alone", "together"])
def test_two_threads_do_not_run_what_was_granted_once(owner, monkeypatch):
    """Each would find the ask still there, if the other could come between a look at the grant and
    what is taken off it.
    """
    owner, check, refused = OWNERS[owner](), Granted.check, []
    executable = owner.trace(
        lambda ask, key: ask(key, RATIO, jnp.zeros(1), jnp.ones(1)).value, KEY
    ).compile()
    grant = owner.grant({RATIO: 1})

    def go():
        try:
            grant.run(executable, KEY)
        except BudgetExceeded as refusal:
            refused.append(refusal)

    monkeypatch.setattr(Granted, "check", lambda self, plan: (check(self, plan), time.sleep(0.1)))
    threads = [threading.Thread(target=go) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(refused) == 1
