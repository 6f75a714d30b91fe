"""Refusals: each names the value and the way out, spends nothing, and tells nothing about the
rows."""

import dataclasses
import json
import re
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpmcmc import (
    Barker,
    Budget,
    BudgetExceeded,
    Federation,
    LazyBarker,
    Model,
    Neighbours,
    Penalty,
    Sampler,
    UnboundedQueries,
    UnsupportedQuery,
    accept_walk,
    exponential_penalty,
    guided_walk,
    hmc,
    load,
    models,
    newton_start,
    penalty,
    random_walk,
    recipes,
    sample,
    save,
    sgld,
    statement_of,
)
from dpmcmc.acceptance import Metropolis
from dpmcmc.accounting.statement import Statement
from dpmcmc.queries import (
    Accept,
    FixedBatch,
    Gradient,
    LogRatio,
    NonPrivateRatio,
    PenaltyAccept,
    PoissonBatch,
)
from dpmcmc.recipes import forecast
from dpmcmc.run import plan as plans
from dpmcmc.run import progress
from tests import tiny

pytestmark = pytest.mark.usefixtures("quick_compilation")

ADD_OR_REMOVE = Budget(1.0, 1e-6, Neighbours.ADD_OR_REMOVE_ONE)
CALM = LogRatio(clip=1.0, noise_multiplier=0.1)


def model(
    log_likelihood=tiny.MODEL.log_likelihood, log_prior=tiny.log_prior, unravel=tiny.MODEL.unravel
):
    return Model(log_likelihood, log_prior, unravel, dimension=1)


class Bare:
    """Not all of a query."""

    def answer(self, key, model, rows, *points): ...


@dataclasses.dataclass
class Thawed(Bare):
    """One that can change."""

    clip: float = 1.0
    released = "nothing"

    def cost(self, unit): ...


# -- values that are refused where they enter -----------------------------------------------------

VALUES = [
    (lambda: Budget(0.0, 1e-6), "epsilon=0.0 must be positive and finite"),
    (lambda: Budget(-1.0, 1e-6), "epsilon=-1.0 must be positive and finite"),
    (lambda: Budget(float("nan"), 1e-6), "epsilon=nan must be positive and finite"),
    (lambda: Budget(float("inf"), 1e-6), "epsilon=inf must be positive and finite"),
    (lambda: Budget(1.0, 0.0), r"delta=0.0 must lie in \(0, 1\), well below 1/n"),
    (lambda: Budget(1.0, 1.0), r"delta=1.0 must lie in \(0, 1\)"),
    (lambda: Budget(1.0, float("nan")), r"delta=nan must lie in \(0, 1\)"),
    (lambda: Budget(1.0, 1e-6, "replace-one"), "neighbours='replace-one' must be one of"),
    (
        lambda: Budget(1.0, 1e-6, rows_per_person=0),
        "rows_per_person=0 must be a whole number, at least 1",
    ),
    (lambda: Budget(1.0, 1e-6, rows_per_person=1.5), "rows_per_person=1.5 must be a whole number"),
    (lambda: Budget("4", 1e-6), "epsilon='4' must be positive and finite"),
    (lambda: Budget(1.0, None), r"delta=None must lie in \(0, 1\)"),
    (
        lambda: Budget(1.0, 1e-6, rows_per_person="2"),
        "rows_per_person='2' must be a whole number, at least 1",
    ),
    (lambda: Budget([4.0], 1e-6), r"epsilon=\[4.0\] must be positive and finite"),
    (
        lambda: Budget(1.0, 1e-6, rows_per_person=float("inf")),
        "rows_per_person=inf must be a whole number",
    ),
    (lambda: models.logistic(2, None), "radius=None must be positive and finite"),
    (lambda: models.logistic("2", 1.0), "num_features='2' must be a whole number, at least 1"),
    (lambda: models.logistic(float("inf"), 1.0), "num_features=inf must be a whole number"),
    (lambda: PoissonBatch("0.1"), r"rate='0.1' must lie in \(0, 0.5\]"),
    (
        lambda: hmc(tiny.log_prior, Gradient(1.0, 9.0), tiny.RATIO, 0.1, None),
        "num_leapfrog=None must be a whole number",
    ),
    (
        lambda: hmc(tiny.log_prior, Gradient(1.0, 9.0), tiny.RATIO, 0.1, 2, jitter="a"),
        r"jitter='a' must lie in \[0, 1\]",
    ),
    (lambda: random_walk("a"), "scale='a' must be a number, or an array"),
    (lambda: random_walk(1.0, max_move="a"), "max_move='a' must be positive"),
    (
        lambda: sgld(tiny.log_prior, Gradient(1.0, 9.0), 0.1, "identity"),
        "preconditioner='identity' must be a number",
    ),
    (
        lambda: forecast.forecasts(0, 3, tiny.BUDGET),
        "num_rows=0 must be a whole number, at least 1",
    ),
    (lambda: LogRatio(clip=0.0, noise_multiplier=1.0), "clip=0.0 must be positive and finite"),
    (lambda: LogRatio(clip=-1.0, noise_multiplier=1.0), "clip=-1.0 must be positive"),
    (
        lambda: LogRatio(clip=float("inf"), noise_multiplier=1.0),
        "clip=inf must be positive and finite",
    ),
    (lambda: LogRatio(clip=1.0, noise_multiplier=0.0), "noise_multiplier=0.0 must be positive"),
    (
        lambda: LogRatio(clip=1.0, noise_multiplier=float("nan")),
        "noise_multiplier=nan must be positive",
    ),
    (
        lambda: LogRatio(clip=1.0, noise_multiplier=1.0, temperature=0.0),
        "temperature=0.0 must be positive",
    ),
    (lambda: Accept(Barker(), bound=0.0), "bound=0.0 must be positive"),
    (
        lambda: PenaltyAccept(clip=1.0, noise_multiplier=1.0, max_move=0.0),
        "max_move=0.0 must be positive",
    ),
    (
        lambda: PenaltyAccept(clip=1.0, noise_multiplier=-2.0, max_move=1.0),
        "noise_multiplier=-2.0 must be positive",
    ),
    (lambda: Penalty(0.0), "sigma=0.0 must be positive"),
    (lambda: LazyBarker(0.0), r"kappa=0.0 must lie in \(0, 1\]"),
    (lambda: LazyBarker(1.5), r"kappa=1.5 must lie in \(0, 1\]"),
    (lambda: random_walk(0.0), "scale=0.0 must be positive"),
    (lambda: random_walk(float("nan")), "must be finite"),
    (lambda: random_walk(1.0, max_move=0.0), "max_move=0.0 must be positive"),
    (
        lambda: tiny.run(sampler=penalty(tiny.log_prior, tiny.RATIO, random_walk([1.0, 1.0]))),
        r"scale of shape \(2,\) does not fit",
    ),
    (
        lambda: tiny.run(sampler=penalty(tiny.log_prior, tiny.RATIO, guided_walk([1.0, 1.0]))),
        r"scale of shape \(2,\) does not fit",
    ),
    (
        lambda: tiny.run(sampler=sgld(tiny.log_prior, Gradient(1.0, 9.0), 0.1, [1.0, 2.0])),
        "a matrix for 2 entries does not fit",
    ),
    (lambda: newton_start(tiny.log_prior, None, None, 2.5), "num_steps=2.5 must be a whole number"),
    (
        lambda: recipes.langevin(models.logistic(1, 1.0), 0, tiny.BUDGET),
        "num_rows=0 must be a whole number, at least 1",
    ),
    (
        lambda: recipes.langevin(models.logistic(1, 1.0), 9, tiny.BUDGET, num_chains=0),
        "num_chains=0 must be a whole number",
    ),
    (
        lambda: recipes.langevin(models.logistic(1, 1.0), 9, tiny.BUDGET, stiffness=0.0),
        "stiffness=0.0 must be positive",
    ),
    (
        lambda: recipes.langevin(models.logistic(1, 1.0), 9, tiny.BUDGET, clip=0.0),
        "clip=0.0 must be positive and finite",
    ),
    (
        lambda: recipes.langevin(models.logistic(1, 1.0), 9, tiny.BUDGET, clip="a"),
        "clip='a' must be positive and finite",
    ),
    (
        lambda: recipes.langevin(models.logistic(1, 1.0), 9, tiny.BUDGET, stiffness="a"),
        "stiffness=a must be positive",
    ),
    (lambda: Budget(np.array([4.0, 5.0]), 1e-6), r"epsilon=array\(\[4., 5.\]\) must be positive"),
    (lambda: models.logistic(2, np.ones(2)), r"radius=array\(\[1., 1.\]\) must be positive"),
    (lambda: models.logistic(2, 1.0, "a"), "prior_scale=a must be a finite number or 2 of them"),
    (lambda: random_walk(1.0, max_move=np.ones(2)), "max_move=.* must be positive"),
    (
        lambda: recipes.langevin(models.poisson(1), 9, tiny.BUDGET, clip=1.0),
        "or else clip= and hessian_bound=",
    ),
    (
        lambda: tiny.make_curator(fixed_secret=np.zeros(8, np.uint32)),
        r"fixed_secret of shape \(8,\) must be 16 words",
    ),
]


TYPES = [
    (
        lambda: Gradient(models.poisson(2).lipschitz, 1.0),
        "clip=None must be a number: a model without a proved bound has none",
    ),
    (lambda: Gradient(jnp.float32(1.0), 1.0), r"must be a plain number: give float\(clip\)"),
    (lambda: Accept(Barker(), "1"), r"bound='1' must be a plain number"),
    (
        lambda: Gradient(np.float32(1.0), 1.0),
        r"has fewer digits than the bill is made with: give float\(clip\)",
    ),
    (lambda: Gradient(1.0, np.uint8(200)), r"may wrap around: give float\(noise_multiplier\)"),
    (lambda: tiny.make_curator().grant({tiny.RATIO: 1.5}), "integer"),
    (
        lambda: accept_walk(tiny.MODEL, tiny.BIT, tiny.WALK),
        r"log_prior is a Model: give model\.log_prior",
    ),
    (
        lambda: sgld(None, Gradient(1.0, 1.0), 0.1),
        "log_prior is a NoneType: it must be a function of the position",
    ),
    (
        lambda: penalty(tiny.log_prior, tiny.WALK, tiny.RATIO),
        "proposal is a LogRatio: it comes last, after the query",
    ),
    (
        lambda: exponential_penalty(tiny.log_prior, tiny.RATIO, tiny.WALK),
        "model is a function: this sampler needs the whole Model",
    ),
    (
        lambda: tiny.make_curator(model=models.logistic),
        "the model is a function: it must be a Model",
    ),
    (
        lambda: tiny.make_curator(model=tiny.BUDGET, budget=tiny.MODEL),
        "the budget is a Model: give a Budget",
    ),
    (
        lambda: recipes.langevin(None, 100, tiny.BUDGET),
        "model is a NoneType: give the curator's Model",
    ),
    (lambda: Federation(tiny.make_curator()), "a federation is of several curators"),
    (
        lambda: tiny.run(sampler=penalty(tiny.log_prior, Bare(), tiny.WALK)),
        "Bare has no `cost`: a query needs `cost`, what it costs",
    ),
    (
        lambda: tiny.run(sampler=penalty(tiny.log_prior, Thawed(), tiny.WALK)),
        "Thawed cannot be a key .* frozen dataclass",
    ),
    (
        lambda: recipes.langevin(models.logistic(1, 1.0), 100, 4.0),
        "budget is a float: give the curator's Budget",
    ),
    (
        lambda: sample(
            jax.random.key(0), tiny.PENALTY, tiny.make_curator(), tiny.START, start=[0.0]
        ),
        "start is a list: it must be a private start",
    ),
    (
        lambda: tiny.run(start={"mean": 0.0}),
        "initial_position is a dict: it must be a flat array of 1 numbers",
    ),
    (
        lambda: tiny.run(sampler=accept_walk(tiny.log_prior, Barker(), tiny.WALK)),
        r"Barker is no query: ask with Accept",
    ),
]


@pytest.mark.parametrize(("build", "words"), TYPES, ids=[words for _, words in TYPES])
def test_a_value_of_another_type_is_named(build, words):
    with pytest.raises(TypeError, match=words):
        build()


@pytest.mark.parametrize(("build", "words"), VALUES, ids=[words for _, words in VALUES])
def test_a_bad_value_is_named(build, words):
    with pytest.raises(ValueError, match=words):
        build()


@pytest.mark.parametrize(
    "test", [Metropolis(), Barker, "barker"], ids=["metropolis", "a class", "a name"]
)
def test_other_bits_than_those_of_private_tests_are_refused(test):
    with pytest.raises(
        UnsupportedQuery, match=r"not private; use Barker\(\), LazyBarker\(\) or Penalty\(sigma\)"
    ):
        Accept(test, bound=1.0)


# -- tables that are refused at the door ----------------------------------------------------------

TABLES = [
    (
        {"rows": np.zeros(0, np.float32)},
        ValueError,
        r"the table is empty \(n=0\): there is nothing to learn from",
    ),
    ({"rows": ()}, ValueError, "rows holds no array: give an array, or a tuple or dict of arrays"),
    (
        {"rows": 3.0},
        ValueError,
        "rows must be arrays with a leading axis, one entry per row; a scalar was given",
    ),
    (
        {"rows": (np.zeros(3), np.zeros(4))},
        ValueError,
        r"different numbers of rows \(\[3, 4\]\): they must agree",
    ),
    (
        {"rows": np.array(["a", "b"])},
        TypeError,
        "rows of type str_ cannot be used: encode them as numbers",
    ),
    (
        {"rows": np.array([1, None])},
        TypeError,
        "rows of type object_ cannot be used: encode them as numbers",
    ),
    ({"rows": np.zeros(3, complex)}, TypeError, "rows of type complex128 cannot be used"),
    ({"rows": np.zeros(3, "datetime64[D]")}, TypeError, "cannot be used: encode them as numbers"),
    (
        {"budget": 1.0},
        TypeError,
        r"the budget is a float: give a Budget\(epsilon, delta\), or None to promise nothing",
    ),
    (
        {"capacity": 41},
        ValueError,
        "capacity=41 differs from n=40: under replace-one n is public, leave capacity out",
    ),
    ({"capacity": 0}, ValueError, "capacity=0 must be a whole number between 1 and"),
    (
        {"budget": ADD_OR_REMOVE},
        ValueError,
        "the number of rows is private here: declare capacity=",
    ),
    (
        {"budget": ADD_OR_REMOVE, "capacity": 2**31},
        ValueError,
        "capacity=2147483648 must be a whole number between 1 and",
    ),
    (
        {"budget": ADD_OR_REMOVE, "capacity": 50.5},
        ValueError,
        "capacity=50.5 must be a whole number",
    ),
    (
        {"budget": ADD_OR_REMOVE, "capacity": float("nan")},
        ValueError,
        "capacity=nan must be a whole number",
    ),
    (
        {"budget": ADD_OR_REMOVE, "capacity": 30},
        ValueError,
        "more rows than the declared capacity=30: declare a larger one",
    ),
    ({"budget": Budget(1.0, 1e-6, rows_per_person=2)}, ValueError, "persons times rows_per_person"),
    (
        {"model": model(lambda p, x: (x - p) ** 2)},
        ValueError,
        r"one floating-point scalar .* float32 of shape \(1,\): sum",
    ),
    ({"model": model(lambda p, x: jnp.int32(1))}, ValueError, r"it returned int32 of shape \(\)"),
    ({"model": model(lambda p, x: (x, p))}, ValueError, "it returned a tuple"),
    (
        {"model": model(lambda p, x: -(x**2) if x > 0 else -(p[0] ** 2))},
        ValueError,
        "log_likelihood needs a number in Python that is known only when it runs .*: use jnp.where",
    ),
    (
        {"model": model(lambda p, x: np.log(p[0]) * x)},
        ValueError,
        "log_likelihood needs a number in Python .* use jnp.where",
    ),
    (
        {"model": model(log_prior=lambda p: -(p**2))},
        ValueError,
        r"log_prior must return one .* float32 of shape \(1,\): sum it",
    ),
    (
        {"model": model(log_prior=lambda p: (p[0], 0.0))},
        ValueError,
        "log_prior must return one .* it returned a tuple",
    ),
    (
        {"model": model(log_prior=lambda p: -jnp.sum(p.reshape(2) ** 2))},
        ValueError,
        "log_prior does not take a position of 1 numbers, the model's dimension",
    ),
    (
        {"model": model(lambda p, x: -((x - p[3]) ** 2))},
        ValueError,
        "log_likelihood reads an entry that is not there",
    ),
    (
        {"model": model(log_prior=lambda p: -(p[1] ** 2))},
        ValueError,
        "log_prior reads .*: positions have 1 numbers",
    ),
    (
        {"rows": {"x": [1.0, 2.0]}},
        ValueError,
        r"a list counts as a tuple of scalars: make it an array with np.asarray",
    ),
    (
        {"rows": np.ma.masked_equal([1.0, 2.0], 2.0)},
        TypeError,
        r"would lose their mask: fill it first, with array.filled\(nan\)",
    ),
    (
        {"rows": {"x": np.zeros(3)}, "model": model(lambda p, row: row["y"])},
        ValueError,
        r"does not take such rows: one of them is \{'x': 'float64\[\]'\}, and log_likelihood "
        r"failed on it \(KeyError: 'y'\)",
    ),
    (
        {"rows": {"x": np.zeros((3, 2)), "y": np.zeros(3)}, "model": models.linear(2, 1.0)},
        ValueError,
        "does not take such rows",
    ),
    (
        {
            "rows": (np.zeros((3, 4), np.float32), np.zeros(3, np.float32)),
            "model": models.logistic(2, 1.0),
        },
        ValueError,
        r"one of them is \('float32\[4\]', 'float32\[\]'\).*rows must be a tuple of arrays of "
        r"shapes \(n, 2\) and \(n,\)",
    ),
    (
        {"rows": (np.zeros((3, 2)), np.zeros((3, 1))), "model": models.logistic(2, 1.0)},
        ValueError,
        r"shapes \(n, 2\) and \(n,\)",
    ),
    (
        {"rows": np.zeros((3, 3)), "model": models.poisson(2)},
        ValueError,
        r"rows must be a tuple of arrays",
    ),
    (
        {"rows": np.zeros((3, 1)), "model": models.gaussian([1.0, 1.0])},
        ValueError,
        r"rows must be an array of shape \(n, 2\)",
    ),
    (
        {"rows": np.zeros(3), "model": models.banana([1.0, 1.0], 0.1)},
        ValueError,
        r"rows must be an array of shape \(n, 2\)",
    ),
    (
        {"rows": np.zeros((3, 3)), "model": models.categorical(3)},
        ValueError,
        r"rows must be an array of shape \(n,\)",
    ),
    (
        {"rows": (np.zeros(3),), "model": models.mixture()},
        ValueError,
        r"rows must be an array of shape \(n,\)",
    ),
    (
        {"rows": np.zeros((40, 2), np.float32)},
        ValueError,
        r"it returned float32 of shape \(2,\): sum what belongs to a row",
    ),
]


@pytest.mark.parametrize(
    ("options", "kind", "words"), TABLES, ids=[words for _, _, words in TABLES]
)
def test_a_bad_table_is_refused(options, kind, words, tmp_path):
    ledger = tmp_path / "table.ledger"
    with pytest.raises(kind, match=words):
        tiny.make_curator(**options, ledger=ledger)
    assert not ledger.exists()


@pytest.mark.parametrize(
    "dtype",
    [
        bool,
        np.int8,
        np.uint8,
        np.int64,
        np.uint32,
        np.uint64,
        np.float16,
        np.float64,
        np.longdouble,
    ],
)
def test_numbers_of_every_width_are_accepted(dtype):
    tiny.make_curator(rows=np.ones(5, dtype))


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int16])
def test_narrow_integers_do_not_wrap_around(dtype):
    """A limit of 300 was 44 among numbers of eight bits."""
    counts = np.full(50, 100, dtype)

    def answer(rows):
        curator = tiny.make_curator(rows=rows, model=models.binomial(300), budget=None)
        program = curator.trace(
            lambda ask, key: ask(key, NonPrivateRatio(), jnp.zeros(1), jnp.ones(1)).value,
            jax.random.key(0),
        )
        return curator.grant(program.plan).run(program.compile(), jax.random.key(0))

    assert answer(counts) == answer(counts.astype(np.int64))


def test_a_column_whose_type_depends_on_its_cells_is_refused():
    """One missing cell made float64 of an Int64 column, and all other rows were rounded in another
    way.
    """
    pandas = pytest.importorskip("pandas")
    for dtype in ("Int64", "int64", "boolean", "float64"):
        with pytest.raises(
            TypeError,
            match="rows in a Series have a type that may depend on their cells: declare it",
        ):
            tiny.make_curator(rows={"x": pandas.Series([1, 0, 1], dtype=dtype)})
    with pytest.raises(TypeError, match="rows in a DataFrame"):
        tiny.make_curator(rows=pandas.DataFrame({"x": [1.0]}))
    tiny.make_curator(rows=np.asarray(pandas.Series([1, None, 1], dtype="Int64"), np.float32))


def test_numpys_numbers_in_a_budget_lose_no_draws(tmp_path):
    """They are no JSON: the draws were lost after the grant was spent."""
    budget = Budget(np.float32(1.0), np.float32(1e-6), rows_per_person=np.int64(2))
    assert budget == Budget(1.0, float(np.float32(1e-6)), rows_per_person=2)
    assert [type(part) for part in (budget.epsilon, budget.delta, budget.rows_per_person)] == [
        float,
        float,
        int,
    ]
    curator = tiny.make_curator(budget=budget, capacity=64, ledger=tmp_path / "spent.json")
    assert json.loads(tiny.run(curator).attrs["dpmcmc_ledger"])["rows_per_person"] == 2
    assert all(
        type(size) is int for size in dataclasses.astuple(FixedBatch(np.int64(50), np.int32(500)))
    )
    assert type(PoissonBatch(np.float32(0.1)).rate) is float


def test_a_statement_that_cannot_be_written_spends_nothing(monkeypatch):
    def fails(_):
        raise TypeError("not JSON")

    curator = tiny.make_curator()
    monkeypatch.setattr(Statement, "ledger_json", fails)
    with pytest.raises(TypeError, match="not JSON"):
        curator.grant({tiny.RATIO: 1})
    monkeypatch.undo()
    curator.grant({tiny.RATIO: 1})


def test_a_delta_above_one_in_n_is_told_from_public_facts():
    with pytest.warns(
        UserWarning, match="delta = 0.03 is above 1/n, n = 40: a release of one random row would be"
    ):
        tiny.make_curator(budget=Budget(1.0, 0.03))
    private = Budget(1.0, 0.02, Neighbours.ADD_OR_REMOVE_ONE)
    for rows in (tiny.ROWS, tiny.ROWS[:5]):  # how many there are changes nothing
        with pytest.warns(
            UserWarning, match="delta = 0.02 is above 1/64, the rows of a person over the capacity"
        ):
            tiny.make_curator(rows, budget=private, capacity=64)
        tiny.make_curator(rows, budget=private, capacity=45)  # warnings are errors here


def test_large_integers_saturate_without_a_word():
    for rows in (np.array([2**63, 5], np.uint64), np.array([-(2**40), 5])):
        (piece,), *_ = tiny.make_curator(rows=rows)._placed.stored
        assert piece.dtype == jnp.int32 and abs(int(piece[0])) >= 2**31 - 1 and int(piece[1]) == 5


# -- runs that are refused before anything is spent -----------------------------------------------


def while_loop_step(rng_key, state, ask):
    answer = jax.lax.while_loop(
        lambda value: value < 0,
        lambda value: ask(rng_key, tiny.RATIO, state.position, state.position + 1).value,
        -1.0,
    )
    return tiny.PENALTY.init(rng_key, state.position + answer, ask), ()


def twice_step(rng_key, state, ask):
    for _ in range(2):
        ask(rng_key, tiny.RATIO, state.position, state.position + 1)
    return state, ()


RUNS = [
    ({"num_chains": 0}, ValueError, "num_chains=0 must be a whole number, at least 1"),
    ({"num_chains": 1.5}, ValueError, "num_chains=1.5 must be a whole number"),
    ({"num_chains": float("nan")}, ValueError, "num_chains=nan must be a whole number"),
    ({"thin": 0}, ValueError, "thin=0 must be a whole number, at least 1"),
    ({"thin": 5}, ValueError, "num_steps=12 must be a positive multiple of thin=5"),
    ({"num_steps": 0}, ValueError, "num_steps=0 must be a positive multiple"),
    ({"num_steps": 2.5}, ValueError, "num_steps=2.5 must be a positive multiple"),
    (
        {"warmup": 1.0},
        ValueError,
        r"warmup=1.0 must lie in \[0, 1\): it is the share of the draws kept apart",
    ),
    ({"warmup": -0.1}, ValueError, r"warmup=-0.1 must lie in \[0, 1\)"),
    ({"warmup": float("nan")}, ValueError, r"warmup=nan must lie in \[0, 1\)"),
    (
        {"start": np.zeros(3)},
        ValueError,
        r"initial_position has shape \(3,\), it must be \(1,\) or \(2, 1\)",
    ),
    ({"start": 0.0}, ValueError, r"initial_position has shape \(\), it must be"),
    ({"start": np.array([np.nan])}, ValueError, r"initial_position=\[nan\] must be finite"),
    ({"start": np.array([[0.0], [np.inf]])}, ValueError, "must be finite"),
    (
        {"path": "missing/folder/posterior.nc"},
        ValueError,
        "posterior.nc cannot be written: its folder does not exist",
    ),
    ({"path": "p" * 250}, ValueError, "p cannot be written .*: name a file in another folder"),
    ({"units": {"mean": 1}}, TypeError, "units must be a dict of texts by name"),
    ({"attributes": "plan"}, TypeError, "attributes must be a dict of texts by name"),
    (
        {"path": __file__},
        ValueError,
        r"test_errors\.py exists: name another file, a posterior that was paid for is not replaced",
    ),
    (
        {"num_steps": 100_000},
        BudgetExceeded,
        r"costs epsilon=.* the budget is epsilon=1: ask for fewer steps or add noise",
    ),
    (
        {"sampler": penalty(tiny.log_prior, CALM, tiny.WALK), "num_steps": None},
        BudgetExceeded,
        "allows 0 steps of 2 chains",
    ),
    (
        {"sampler": penalty(tiny.log_prior, CALM, tiny.WALK)},
        BudgetExceeded,
        "the budget is epsilon=1: ask for fewer",
    ),
    (
        {
            "sampler": accept_walk(tiny.log_prior, tiny.BIT, tiny.WALK),
            "thin": 10**6,
            "num_steps": None,
        },
        BudgetExceeded,
        r"and one draw takes 1000000 \(thin\): use fewer chains, more noise, a smaller clip, or a "
        r"larger budget",
    ),
    (
        {"sampler": Sampler(tiny.PENALTY.init, while_loop_step)},
        UnboundedQueries,
        "inside `while` cannot be counted: use scan",
    ),
    (
        {"sampler": Sampler(tiny.PENALTY.init, twice_step)},
        UnboundedQueries,
        "a random key is used for two asks",
    ),
    (
        {
            "sampler": Sampler(tiny.PENALTY.init, lambda key, state, ask: (state, ())),
            "num_steps": None,
        },
        ValueError,
        "any number of steps fits: give num_steps",
    ),
    (
        {"sampler": Sampler(tiny.PENALTY.init, lambda key, state, ask: (state, state.position))},
        TypeError,
        "the sampler's info is an array: return a NamedTuple or a dict of arrays, or None",
    ),
    (
        {
            "sampler": Sampler(
                tiny.PENALTY.init, lambda key, state, ask: (state, {"of": {"a": state.position}})
            )
        },
        TypeError,
        "'of' in the sampler's info is a dict: it must be an array of numbers",
    ),
    (
        {"sampler": Sampler(tiny.PENALTY.init, lambda key, state, ask: (state, {"key": key}))},
        TypeError,
        "'key' in the sampler's info is a random key: it must be an array of numbers",
    ),
    (
        {
            "sampler": Sampler(
                tiny.PENALTY.init, lambda key, state, ask: (state, {"draw": state.position})
            )
        },
        ValueError,
        "'draw' in the sampler's info cannot be the name of a statistic",
    ),
]


@pytest.mark.parametrize(("options", "kind", "words"), RUNS, ids=[words for _, _, words in RUNS])
def test_a_bad_run_is_refused_and_spends_nothing(options, kind, words):
    curator = tiny.make_curator()
    with pytest.raises(kind, match=words):
        tiny.run(curator, **options)
    assert curator._account.ledger.grants == []


def nowhere(position):
    return jnp.where(position[0] > 5, 0.0, -jnp.inf)


MODELS = [
    (
        model(log_prior=nowhere),
        "has no prior density: start the chains where the prior allows them",
    ),
    (model(log_prior=lambda position: jnp.nan * position[0]), "has no prior density"),
    (model(unravel=lambda position: position), "unravel must return a dict"),
    (model(unravel=lambda position: {}), "unravel returned no parameter"),
    (
        model(unravel=lambda position: {"a/b": position[0]}),
        "'a/b' cannot be the name of a variable in a NetCDF file: no '/'",
    ),
    (
        model(unravel=lambda position: {".": position[0]}),
        "'.' cannot be the name of a variable in a NetCDF file",
    ),
    (
        model(unravel=lambda position: {"mean": [position[0], position[0]]}),
        "'mean' is a list.*: unravel must return a dict",
    ),
    (
        model(unravel=lambda position: {"mean": position[5, 2]}),
        r"could not be made into a posterior \(IndexError",
    ),
    (model(unravel=lambda position: {"draw": position[0]}), "not 'chain' or 'draw'"),
]


@pytest.mark.parametrize(("bad", "words"), MODELS, ids=[words for _, words in MODELS])
def test_a_model_that_would_waste_the_budget_is_refused(bad, words):
    curator = tiny.make_curator(model=bad)
    with pytest.raises(ValueError, match=words):
        tiny.run(curator)
    assert curator._account.ledger.grants == []


KEYS = [0, None, np.zeros(2, np.uint32), jax.random.PRNGKey(0), jax.random.split(jax.random.key(0))]


@pytest.mark.parametrize(
    "name, bound",
    [
        ("lipschitz", -1.0),
        ("lipschitz", float("nan")),
        ("spread", float("inf")),
        ("hessian_bound", 0.0),
        ("lipschitz", "1"),
    ],
)
def test_a_bound_that_cannot_be_is_refused(name, bound):
    with pytest.raises(
        ValueError, match=f"the model's {name}=.* must be positive and finite: give None"
    ):
        tiny.make_curator(model=tiny.MODEL._replace(**{name: bound}))


def test_what_is_declared_of_the_rows_is_in_the_statement():
    declared = tiny.MODEL._replace(declared="|row| <= 1")
    assert "Note:      declared of every row: |row| <= 1; one beyond is clipped" in statement_of(
        tiny.run(tiny.make_curator(model=declared))
    )
    assert "declared" not in statement_of(tiny.run())


@pytest.mark.parametrize("key", KEYS, ids=["int", "none", "array", "old style", "several"])
def test_what_is_not_one_typed_key_is_refused(key):
    curator = tiny.make_curator()
    with pytest.raises(
        TypeError, match=r"must be one typed random key: make it with jax.random.key\(0\)"
    ):
        sample(key, tiny.PENALTY, curator, tiny.START, num_steps=2)
    assert curator._account.ledger.grants == []


SCALES = [jnp.array(-1.0), jnp.array(np.nan), jnp.ones((2, 2, 2)), np.array(-1.0), 0.0]


@pytest.mark.parametrize("scale", SCALES, ids=str)
def test_a_scale_that_cannot_be_is_refused_whoever_made_the_array(scale):
    for proposal in (random_walk, guided_walk):
        with pytest.raises(ValueError, match="scale"):
            proposal(scale)


PRIOR, MOVES, BIT = tiny.MODEL.log_prior, random_walk(0.1), Accept(Barker(), 0.1)
MISFITS = {
    "accept_walk": accept_walk(PRIOR, LogRatio(1.0, 5.0), MOVES),
    "penalty": penalty(PRIOR, BIT, MOVES),
    "penalty of a gradient": penalty(PRIOR, Gradient(1.0, 5.0), MOVES),
    "sgld": sgld(PRIOR, LogRatio(1.0, 5.0), 0.1),
    "hmc": hmc(PRIOR, LogRatio(1.0, 5.0), BIT, 0.1, 2),
}


@pytest.mark.parametrize("sampler", MISFITS.values(), ids=MISFITS)
def test_a_query_of_another_sampler_is_refused_with_the_way_out(sampler):
    curator = tiny.make_curator()
    with pytest.raises(
        ValueError, match="cannot be asked with . points: log-ratios go with penalty"
    ):
        sample(jax.random.key(0), sampler, curator, tiny.START, num_steps=2)
    assert curator._account.ledger.grants == []


def test_a_sampler_and_a_curator_in_each_others_place_are_told_apart():
    curator = tiny.make_curator()
    with pytest.raises(
        TypeError,
        match=r"the sampler is a Curator: call sample\(rng_key, sampler, curator, "
        r"initial_position\)",
    ):
        sample(jax.random.key(0), curator, tiny.PENALTY, tiny.START, num_steps=2)
    with pytest.raises(TypeError, match=r"the curator is a ndarray: call sample"):
        sample(jax.random.key(0), tiny.PENALTY, tiny.ROWS, tiny.START, num_steps=2)
    assert curator._account.ledger.grants == []


# -- nothing is told about the rows ---------------------------------------------------------------

LINEAR = Model(
    log_likelihood=lambda position, row: row * position[0],
    log_prior=lambda position: jnp.zeros(()),
    unravel=lambda position: {"mean": position[0]},
    dimension=1,
)
# Every position stays positive, so an infinite row always gives inf - inf
FAR = np.array([100.0], np.float32)
# Tables that differ in one row, with equal answers: clipped to the same bound, or not a number and
# so counted as zero.
EQUAL = {"clipped": [0.5, 1e30], "bad": [0.0, np.nan], "infinite": [0.0, np.inf]}


class Outcome(NamedTuple):
    """All that a run lets out."""

    values: list
    attributes: dict
    texts: list[str]
    size_of_file: int


@pytest.fixture
def outcome(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(plans, "NUM_BLOCKS", 2)
    # How many lines there are depends on the machine
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", np.inf)

    def outcome(rows, budget=tiny.BUDGET, **options):
        curator = tiny.make_curator(rows, LINEAR, budget, **options)
        posterior = tiny.run(curator, start=FAR, num_steps=None, progress=True, warmup=0.5)
        save(posterior, tmp_path / "posterior.nc")
        texts = [repr(curator), *capsys.readouterr()]
        for again in (curator, tiny.make_curator(rows, LINEAR, budget, **options)):
            with pytest.raises(BudgetExceeded) as caught:
                tiny.run(again, start=FAR, num_steps=10**6)
            texts += [str(caught.value), *capsys.readouterr()]
        saved = load(tmp_path / "posterior.nc")
        return Outcome(
            [
                (group, name, array.values.tobytes())
                for group in saved.groups()
                for name, array in saved[group].items()
            ],
            {name: value for name, value in saved.attrs.items() if name != "created_at"},
            texts,
            (tmp_path / "posterior.nc").stat().st_size,
        )

    return outcome


@pytest.mark.parametrize(
    "kind",
    ["bad", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("clipped", "infinite"))],
)
def test_neighbours_with_equal_answers_look_the_same(kind, outcome):
    outcomes = []
    for value in EQUAL[kind]:
        rows = tiny.ROWS.copy()
        rows[7] = value
        outcomes.append(outcome(rows))
    assert all(found == outcomes[0] for found in outcomes[1:])
    assert len(set(np.frombuffer(outcomes[0].values[0][2], np.float64))) > 3  # the chain moved


def test_different_answers_show_in_the_draws_and_nowhere_else(outcome):
    first, second = outcome(tiny.ROWS), outcome(-np.ones(40, np.float32))
    assert first.values != second.values
    assert first.attributes == second.attributes


def test_under_add_or_remove_a_row_that_says_nothing_is_not_seen(outcome):
    rows = np.linspace(-1, 1, 37, dtype=np.float32)
    without = outcome(rows, ADD_OR_REMOVE, capacity=64)
    assert outcome(np.append(rows, np.float32(np.nan)), ADD_OR_REMOVE, capacity=64) == without
    assert not any(
        re.search(r"\b37\b", text)
        for text in [*without.texts, without.attributes["privacy_statement"]]
    )


PRIVATE_COUNT = [
    lambda rows: tiny.make_curator(rows, budget=ADD_OR_REMOVE),
    lambda rows: tiny.make_curator(rows, budget=ADD_OR_REMOVE, capacity=30),
    lambda rows: tiny.make_curator((rows, rows[1:]), budget=ADD_OR_REMOVE, capacity=64),
    lambda rows: tiny.make_curator(rows.astype(complex), budget=ADD_OR_REMOVE, capacity=64),
    lambda rows: tiny.make_curator(rows[:, None], budget=ADD_OR_REMOVE, capacity=64),
    lambda rows: tiny.run(
        tiny.make_curator(rows, budget=ADD_OR_REMOVE, capacity=64), num_steps=10**6
    ),
    lambda rows: tiny.make_curator(rows, budget=Budget(1.0, 1e-6, rows_per_person=2)),
    lambda rows: tiny.make_curator(rows, budget=Budget(1.0, 1e-6, rows_per_person=2), capacity=30),
]


@pytest.mark.parametrize("attempt", PRIVATE_COUNT)
def test_a_private_number_of_rows_is_in_no_error(attempt):
    with pytest.raises(Exception) as caught:
        attempt(np.zeros(37, np.float32))
    assert not re.search(r"\b3[67]\b", str(caught.value))


def test_an_empty_table_is_as_good_as_any_when_its_size_is_private(outcome):
    empty = outcome(np.zeros(0, np.float32), ADD_OR_REMOVE, capacity=64)
    assert empty == outcome(np.zeros(3, np.float32), ADD_OR_REMOVE, capacity=64)


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: recipes.effective_draws("Barker", 100, 2), "sampler='Barker' must be one of"),
        (
            lambda: recipes.noise_multiplier("penalty_bit", 1.0, 1.0, Budget(1.0, 1e-6)),
            "must be 'penalty' or 'penalty-bit'",
        ),
        (lambda: recipes.moves([-0.1], 1.0, 1000), "must not be negative"),
        (
            lambda: random_walk(recipes.moves([0.1], 1.0, 1000)),
            r"unpack it, as in random_walk\(\*moves\)",
        ),
        (lambda: forecast.plan_text(1000, 3, 1.0), r"budget is a float: give a Budget"),
    ],
)
def test_what_is_misspelt_in_a_plan_is_named(call, words):
    with pytest.raises((TypeError, ValueError), match=words):
        call()
