"""What the curator refuses at its door: points that make many answers of one ask, models that
speak; and what it will not tell.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.custom_batching import custom_vmap
from jax.experimental import checkify

import dpmcmc
from dpmcmc import Barker, Curator, UnboundedQueries
from dpmcmc.curator import checks
from dpmcmc.curator.noise import stream
from dpmcmc.curator.owner import AXIS
from dpmcmc.curator.programs import answers
from dpmcmc.curator.sums.exact_sum import Table
from dpmcmc.curator.sums.rowwise import rowwise
from dpmcmc.types import Unit
from tests import tiny
from tests.cases.queries import (
    ALL,
    LABELLED_MODEL,
    LABELLED_ROWS,
    MODEL,
    ROBUST_MODEL,
    ROWS,
    THREE,
    TWO,
)

pytestmark = pytest.mark.usefixtures("quick_compilation")

QUERIES = {case.query: case.shapes for case in ALL}
SHAPES = {type(query): shapes for query, shapes in QUERIES.items()}


@pytest.fixture(scope="module")
def curator():
    return Curator(ROWS, MODEL, None)


@pytest.fixture(scope="module")
def curator_of(curator):
    """From a query to a curator that can be asked it."""
    others = {LABELLED_MODEL, ROBUST_MODEL}
    curators = {model: Curator(LABELLED_ROWS, model, None) for model in others}
    models = {case.query: case.model for case in ALL}
    return lambda query: curators.get(models[query], curator)


def trace(curator, query, shapes, dtype=jnp.float32):
    points = [jnp.zeros(shape, dtype) for shape in shapes]
    return curator.trace(
        lambda ask, key, *points: ask(key, query, *points), jax.random.key(0), *points
    )


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: type(query).__name__)
def test_one_ask_has_one_answer(curator_of, query):
    """Stacked points, or a vector of log-ratios, would have several answers for one bill, all with
    the same noise.
    """
    curator = curator_of(query)
    shapes = QUERIES[query]
    assert trace(curator, query, shapes).plan == {query: 1}
    if query is not next(query for query in QUERIES if QUERIES[query] == shapes):
        return  # the door knows the shapes alone
    for index, shape in enumerate(shapes):
        for wrong in ((3,), (2, 3), (3, 2), (1, 2), (1,), ()):
            if wrong != shape:
                with pytest.raises(ValueError, match="for several asks use vmap"):
                    trace(curator, query, [*shapes[:index], wrong, *shapes[index + 1 :]])


@pytest.mark.parametrize("query, shapes", QUERIES.items(), ids=lambda value: type(value).__name__)
def test_secret_words_serve_one_purpose(curator_of, query, shapes, monkeypatch):
    """Noise made of the words that also chose the batch would tell of it.

    One key, words of one shape: they are told apart so.
    """
    used, words = [], stream.random_words
    monkeypatch.setattr(
        stream, "random_words", lambda key, shape: used.append((key, shape)) or words(key, shape)
    )
    trace(curator_of(query), query, shapes)
    kinds: dict = {}
    assert all(kinds.setdefault(id(key), shape) == shape for key, shape in used)


@pytest.mark.parametrize("dtype", [jnp.int32, jnp.float16, jnp.bool_])
def test_points_are_floats(curator, dtype):
    with pytest.raises(ValueError, match="float32 or float64"):
        trace(curator, dpmcmc.queries.LogRatio(1.0, 1.0), TWO, dtype)


def test_no_more_points_than_a_query_takes(curator):
    with pytest.raises(ValueError, match="ask with a position"):
        trace(curator, dpmcmc.queries.LogRatio(1.0, 1.0), [])
    with pytest.raises(ValueError, match="ask with a position"):
        trace(curator, dpmcmc.queries.Accept(Barker(), 1.0), [*THREE, ()])


@pytest.mark.parametrize("query, most", [
    (dpmcmc.queries.Gradient(1.0, 1.0), 4096),
    (dpmcmc.queries.CenteredGradient(1.0, 1.0), 4096),
    (dpmcmc.queries.Curvature(1.0, 1.0), 90),
], ids=["gradient", "centred", "curvature"])  # fmt: skip
def test_a_vector_has_no_more_entries_than_its_noise_is_charged_for(query, most):
    def ask(dimension):
        model = tiny.MODEL._replace(
            dimension=dimension, center=lambda position: position, spread=1.0
        )
        return trace(Curator(tiny.ROWS, model, None), query, [(dimension,)])

    assert ask(most).plan == {query: 1}
    with pytest.raises(ValueError, match="4096"):
        ask(most + 1)


@pytest.mark.parametrize("part", ["log_likelihood", "statistic"])
@pytest.mark.parametrize("call", ["print", "callback"])
def test_a_model_does_not_speak(part, call):
    def speak(value):
        if call == "print":
            jax.debug.print("{}", value)
            return value
        return jax.pure_callback(lambda value: value, value, value)

    def loud(position, row):
        return jax.lax.cond(
            position[0] > 0, lambda: speak(MODEL.log_likelihood(position, row)), lambda: 0.0
        )

    if part == "log_likelihood":
        model = MODEL._replace(log_likelihood=loud)
    else:
        model = MODEL._replace(
            family=MODEL.family._replace(statistic=lambda row: speak(MODEL.family.statistic(row)))
        )
    with pytest.raises(ValueError, match=f"{part} prints or calls back"):
        Curator(ROWS, model, None)


@jax.custom_vjp
def loud_backwards(value):
    return value


def _print_back(_, slope):
    jax.debug.print("{}", slope)
    return (slope,)


loud_backwards.defvjp(lambda value: (value, None), _print_back)


@jax.custom_jvp
def loud_forwards(value):
    return value


@loud_forwards.defjvp
def _print_forwards(primals, tangents):
    jax.debug.print("{}", primals[0])
    return primals[0], tangents[0]


@custom_vmap
def mixed(value):
    return value


@mixed.def_vmap
def _mix(size, is_batched, value):
    return value / jnp.max(jnp.abs(value)), True


@jax.custom_vjp
def mixed_backwards(value):
    return value


mixed_backwards.defvjp(lambda value: (value, None), lambda _, slope: (mixed(slope),))


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (loud_backwards, "the derivative of log_likelihood prints"),
        (loud_forwards, "the derivative of log_likelihood prints"),
        (
            mixed,
            "^log_likelihood uses `custom_vmap_call`. The rule of a custom_vmap would read all "
            "rows at once",
        ),
        (mixed_backwards, "the derivative of log_likelihood uses `custom_vmap_call`"),
    ],
    ids=["vjp", "jvp", "vmap", "vmap in vjp"],
)
def test_rules_for_derivatives_and_vmap_are_looked_at(rule, words):
    """The first two printed rows; the others let one row move the terms of all."""
    model = MODEL._replace(
        log_likelihood=lambda position, row: rule(MODEL.log_likelihood(position, row))
    )
    with pytest.raises(ValueError, match=words):
        Curator(ROWS, model, None)


def drawn(impl=None):
    """The log-likelihood of a row with a random effect of its own."""

    def log_likelihood(position, row):
        key = jax.random.fold_in(jax.random.key(0, impl=impl), (100 * row[0]).astype(jnp.int32))
        return MODEL.log_likelihood(position, row + jax.random.normal(key))

    return log_likelihood


@pytest.mark.parametrize("impl", ["rbg", "unsafe_rbg"])
def test_random_numbers_that_are_drawn_for_all_rows_with_the_key_of_one_are_refused(impl):
    """Under vmap these draw all with the first key: one row moved the terms of all others. Looked
    at in the program, too.
    """
    Curator(ROWS, MODEL._replace(log_likelihood=drawn("threefry2x32")), None)
    with pytest.raises(ValueError, match="other than JAX's default, threefry"):
        Curator(ROWS, MODEL._replace(log_likelihood=drawn(impl)), None)
    curator = Curator(ROWS, MODEL._replace(log_likelihood=drawn()), None)
    assert trace(curator, dpmcmc.queries.LogRatio(1.0, 1.0), TWO).plan
    with jax.default_prng_impl(impl):  # the chain's own keys may be of that kind
        assert trace(Curator(ROWS, MODEL, None), dpmcmc.queries.LogRatio(1.0, 1.0), TWO).plan
        with pytest.raises(ValueError, match="other than JAX's default, threefry"):
            trace(curator, dpmcmc.queries.LogRatio(1.0, 1.0), TWO)


def test_a_model_that_raises_errors_when_it_runs_is_refused():
    """Such an error would come from a row, and name its value."""

    def log_likelihood(position, row):
        checkify.check(row[0] >= -2, "a negative income: {}", row[0])
        return MODEL.log_likelihood(position, row)

    with (
        jax._src.config.xla_runtime_errors(True),
        pytest.raises(ValueError, match="calls back to Python, which would show rows"),
    ):
        Curator(ROWS, MODEL._replace(log_likelihood=log_likelihood), None)


LATER = [
    ("log_likelihood", dpmcmc.queries.LogRatio(1.0, 1.0)),
    ("log_likelihood", dpmcmc.queries.Gradient(1.0, 1.0)),
    ("rule", dpmcmc.queries.Gradient(1.0, 1.0)),
    ("statistic", dpmcmc.queries.LogRatio(1.0, 1.0)),
]


@pytest.mark.parametrize(
    ("part", "query"),
    LATER,
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_a_model_that_begins_to_speak_later_is_refused_as_well(part, query):
    is_loud = []

    def speak(value):
        if is_loud:
            jax.debug.print("{}", value)
        return value

    @jax.custom_jvp
    def rule(value):
        return value

    rule.defjvp(lambda primals, tangents: (speak(primals[0]), tangents[0]))
    if part == "statistic":
        model = MODEL._replace(
            family=MODEL.family._replace(statistic=lambda row: speak(MODEL.family.statistic(row)))
        )
    else:
        own = rule if part == "rule" else speak
        model = MODEL._replace(
            log_likelihood=lambda position, row: own(MODEL.log_likelihood(position, row))
        )
    curator = Curator(ROWS, model, None)
    trace(curator, query, SHAPES[type(query)])
    is_loud.append(True)
    with pytest.raises(ValueError, match="the model prints or calls back to Python"):
        trace(curator, query, SHAPES[type(query)])


@pytest.mark.parametrize(
    "name, value",
    [("budget", dpmcmc.Budget(100.0, 0.1)), ("capacity", 7), ("unit", None), ("model", None)],
)
def test_a_promise_does_not_change(name, value):
    with pytest.raises(AttributeError):
        setattr(tiny.make_curator(), name, value)


@pytest.mark.parametrize("switch", [jax.debug_nans, jax.debug_infs, jax.debug_key_reuse])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_switches_for_finding_bugs_tell_nothing_of_the_rows(switch, bad):
    rows = tiny.ROWS.copy()
    rows[3] = bad
    with switch(True):
        draws = tiny.means(tiny.run(tiny.make_curator(rows)))
    assert np.all(np.isfinite(draws))


def test_other_switches_cost_no_grant():
    expected = tiny.means(tiny.run())
    with jax.numpy_rank_promotion("raise"):
        assert np.array_equal(tiny.means(tiny.run()), expected)
    with jax.disable_jit():
        assert np.array_equal(tiny.means(tiny.run()), expected)


def test_parameters_have_all_their_digits():
    """In float32 the bill would lose what rounding adds to a range, and coins their last digits."""
    with pytest.raises(TypeError, match=r"give float\(bound\)"):
        dpmcmc.queries.Accept(Barker(), np.float32(0.1))
    # As it stands on the bill
    assert repr(dpmcmc.queries.Accept(Barker(), np.float64(0.1))) == repr(
        dpmcmc.queries.Accept(Barker(), 0.1)
    )
    assert repr(dpmcmc.queries.Gradient(np.float64(1), np.float64(2))) == repr(
        dpmcmc.queries.Gradient(1.0, 2.0)
    )


def test_equal_asks_do_not_share_their_noise(curator):
    """Two places of a program, and two runs of it, may round the rows in two ways: on both, one
    noise would show the difference.
    """
    query, key, point = dpmcmc.queries.LogRatio(1.0, 50.0), jax.random.key(0), jnp.ones(2)

    def program(ask, key, same_key, position, proposal):
        return ask(key, query, position, proposal).value, ask(
            same_key, query, position, proposal
        ).value

    arguments = key, key, jnp.zeros(2), point
    executable = curator.trace(program, *arguments).compile()
    grant = curator.grant({query: 4})
    values = [float(value) for _ in range(2) for value in grant.run(executable, *arguments)]
    assert len(set(values)) == 4


def test_nothing_is_answered_while_the_program_is_traced(curator):
    query = dpmcmc.queries.LogRatio(1.0, 50.0)

    def program(ask, key):
        with jax.ensure_compile_time_eval():
            return ask(jax.random.key(7), query, jnp.zeros(2), jnp.ones(2)).value

    # On a GPU JAX comes first, which does not make the kernel of the noise while a program is
    # traced.
    with pytest.raises(
        (UnboundedQueries, ValueError), match="on no bill" if jax.default_backend() == "cpu" else ""
    ):
        curator.trace(program, jax.random.key(0))


def test_a_choice_may_depend_on_the_chain(curator):
    """As plain as `where` on the answer: both sides run in every lane, the rows are not copied for
    each, and the bill has both.
    """
    query = dpmcmc.queries.Accept(Barker(), 0.5)

    def chosen(ask, key, position):
        here = lambda: ask(key, query, position, position + 0.1, jnp.float32(0)).value  # noqa: E731
        return lax.cond(position[0] < 2, here, lambda: False)

    def masked(ask, key, position):
        return ask(key, query, position, position + 0.1, jnp.float32(0)).value & (position[0] < 2)

    arguments = jax.random.split(jax.random.key(0), 5), jnp.arange(10.0).reshape(5, 2)
    found, memory = [], []
    for one in (chosen, masked):

        def program(ask, *lanes, one=one):
            return jax.vmap(lambda *lane: one(ask, *lane))(*lanes)

        executable = curator.trace(program, *arguments).compile()
        assert executable.plan == {query: 5}
        memory.append(executable.compiled.memory_analysis().temp_size_in_bytes)
        found.append(curator.grant(executable.plan).run(executable, *arguments))
    assert not np.any(found[0][1:]) and not np.any(found[1][1:])
    assert memory[0] < 1.5 * memory[1]


@pytest.mark.parametrize("name", [AXIS, "rows"])
def test_a_program_must_not_know_its_device(name):
    """With a key for each device there would be as many answers, and one on the bill: it is traced
    where there are none.
    """
    spread, query = (
        Curator(ROWS, MODEL, None, devices=jax.devices()[:1]),
        dpmcmc.queries.LogRatio(1.0, 50.0),
    )

    def program(ask, key, is_told):
        own = jax.random.fold_in(key, lax.axis_index(name)) if is_told else key
        return ask(own, query, jnp.zeros(2), jnp.ones(2)).value

    with pytest.raises(NameError, match="axis name"):
        spread.trace(lambda ask, key: program(ask, key, True), jax.random.key(0))
    assert spread.trace(lambda ask, key: program(ask, key, False), jax.random.key(0)).plan == {
        query: 1
    }


def test_devices_answer_together_what_the_first_is_asked(curator):
    """Each has half of the rows.

    What another would ask, about another point or with another key, is no second answer.
    """
    query, secret, halves = (
        dpmcmc.queries.LogRatio(1.0, 1.0),
        np.arange(16, dtype=np.uint32),
        ROWS.reshape(2, 6, 2),
    )
    words, points = (
        np.arange(6, dtype=np.uint32).reshape(2, 3),
        np.array([[[0, 0], [2, 0]], [[1, 0], [0, 1]]], np.float32),
    )

    def answer(pieces, axis, device, words, *points):
        table = Table(tuple(pieces), 12, Unit(), axis, 12, device=device)
        return curator.answer((table, secret), words, query, points, 0, {}).value

    with jax.enable_x64(True):
        alone = jax.jit(lambda *given: answer(halves, None, None, *given))(
            words[0], *(point[0] for point in points)
        )
        spread = jax.vmap(
            lambda half, *given: answer((half,), "devices", *given), axis_name="devices"
        )
        together = jax.jit(spread)(halves, np.arange(2)[:, None], words, *points)
    np.testing.assert_allclose(together, np.stack([alone, alone]), rtol=1e-6, atol=1e-6)


def test_a_program_is_called_once():
    """What it does in another call would be on no bill."""
    spread, query, calls = (
        Curator(ROWS, MODEL, None, devices=jax.devices()[:1]),
        dpmcmc.queries.LogRatio(1.0, 50.0),
        [],
    )

    def program(ask, key):
        calls.append(key)
        keys = jax.random.split(key, len(calls))
        return [
            ask(keys[index], query, jnp.zeros(2), jnp.ones(2)).value for index in range(len(calls))
        ]

    traced = spread.trace(program, jax.random.key(0))
    assert traced.plan == {query: 1} and len(calls) == len(traced.shapes) == 1


def test_lanes_of_equal_keys_and_points_do_not_share_their_noise(curator):
    """Some lane of a matrix product may be rounded in another way than the others."""
    query = dpmcmc.queries.LogRatio(1.0, 50.0)

    def program(ask, keys, position, proposal):
        return jax.vmap(lambda key: ask(key, query, position, proposal).value)(keys)

    keys = jax.random.wrap_key_data(jnp.tile(jax.random.key_data(jax.random.key(0)), (5, 1)))
    arguments = keys, jnp.zeros(2), jnp.ones(2)
    executable = curator.trace(program, *arguments).compile()
    values = curator.grant(executable.plan).run(executable, *arguments)
    assert len(set(map(float, values))) == 5


def test_what_sees_rows_is_called_once_and_is_what_was_looked_at():
    """A function may be another one when it is called again: what runs is the trace that was
    checked.
    """
    calls = []
    assert (
        answers.without_side_effects(
            lambda value: calls.append(value) or 2 * value, jnp.float32(1.5)
        )
        == 3.0
        and len(calls) == 1
    )
    with pytest.raises(ValueError, match="prints or calls back"):
        answers.without_side_effects(
            lambda value: jax.debug.print("{}", value) or value, jnp.float32(1.5)
        )
    rows, later = jnp.array([1.0, 4.0]), iter([lambda row: row, mixed])
    np.testing.assert_array_equal(rowwise(lambda row: next(later)(row))(rows), rows)


def test_a_wide_number_that_overflows_is_not_told():
    with np.errstate(all="raise"):
        assert checks.as_column(np.full(2, np.finfo(np.longdouble).max)).dtype == np.float32
