"""Nothing but a curator's private fields holds a cell of the table: no repr, pickle or text, and
nothing within reach.

One row of each table has cells that occur nowhere else. They are looked for, as the file has them
and as the model has them, in everything that a public object refers to: closures, bound methods,
partial functions, defaults, fields.
"""

import contextlib
import copy
import functools
import gc
import pickle
import sys
import traceback
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray
from typer.testing import CliRunner

import dpmcmc
from dpmcmc import Budget, Curator, Federation, Model, PrivacyRefusal, models, recipes, tables
from dpmcmc.cli import main
from dpmcmc.curator.grants import Grant
from dpmcmc.queries import Gradient
from dpmcmc.run.programs import Begin
from tests import tiny

pytestmark = pytest.mark.usefixtures("quick_compilation")

AGE, HEIGHT, NAME = 31.41593, 162.71828, "Mx Sentinel"
BOUNDS = {"age": (20.0, 60.0), "height": (140.0, 200.0)}
AS_ROWS = [(AGE - 40) / 20, (HEIGHT - 170) / 30]  # scaled to their bounds
SENTINELS = np.array([AGE, HEIGHT, *AS_ROWS])
# What NumPy, JAX and Python print begin alike
TEXTS = [NAME, *(f"{abs(value):.9f}"[:6] for value in SENTINELS)]
# Rows are in single precision
NUMBERS = np.concatenate([SENTINELS, SENTINELS.astype(np.float32).astype(float)])
BYTES = [text.encode() for text in TEXTS] + [
    kind(number).tobytes() for kind in (np.float32, np.float64) for number in NUMBERS
]
NO_VALUES = types.ModuleType, types.CodeType, types.FrameType, type


def has_cell(value) -> bool:
    """Whether the value itself, apart from what it refers to, is a cell or has one."""
    if isinstance(value, str):
        return any(text in value for text in TEXTS)
    if isinstance(value, bytes | bytearray):
        return any(found in value for found in BYTES)
    if isinstance(value, int | float | np.ndarray | np.generic | jax.Array):
        if jax.dtypes.issubdtype(getattr(value, "dtype", float), jax.dtypes.prng_key):
            return False
        array = np.asarray(value)
        if array.dtype.kind not in "iuf":
            return has_cell(" ".join(map(str, array.ravel().tolist())))
        return bool(
            np.isclose(array.astype(float).ravel()[:, None], SENTINELS, rtol=1e-6, atol=0).any()
        )
    return False


def cells_within(root, closed=()):
    """Paths to the cells that can be reached from an object, by whatever it refers to, except
    through these types.
    """
    modules = {
        id(vars(module))
        for module in list(sys.modules.values())
        if isinstance(module, types.ModuleType)
    }
    seen, waiting, found = {id(root)}, [(root, type(root).__name__)], []
    kept = [root]  # so that no id is used twice
    while waiting:
        value, path = waiting.pop()
        if has_cell(value):
            found.append(path)
        extra = [value.values] if isinstance(value, xarray.Variable) else []
        for next_one in [*gc.get_referents(value), *extra]:
            if (
                isinstance(next_one, NO_VALUES)
                or id(next_one) in modules | seen
                or isinstance(next_one, closed)
            ):
                continue
            seen.add(id(next_one))
            kept.append(next_one)
            waiting.append((next_one, f"{path} > {type(next_one).__name__}"))
    return found


def pickled(value) -> bytes:
    """What others would get, if it can be pickled at all."""
    with contextlib.suppress(
        TypeError, AttributeError, pickle.PicklingError, PrivacyRefusal, NotImplementedError
    ):
        return pickle.dumps(value)
    return b""


def assert_holds_no_cell(value):
    public = (
        [getattr(value, name) for name in dir(value) if not name.startswith("_")]
        if isinstance(value, CLOSED)
        else [value]
    )
    assert [path for part in public for path in cells_within(part, CLOSED)] == []
    for shown in (repr(value), str(value), pickled(value)):
        assert not has_cell(shown)


# Their private fields hold rows, or a curator: that is what they are for
CLOSED = Curator, Federation, Grant


@pytest.fixture
def table():
    """Rows in the units of the file."""
    generator = np.random.default_rng(0)
    age, height = generator.uniform(20, 60, 40).round(1), generator.uniform(140, 200, 40).round(1)
    age[7], height[7] = AGE, HEIGHT
    return {"age": age, "height": height, "ill": (np.arange(40) % 2).astype(float)}


@pytest.fixture
def rows(table):
    return tables.scaled(table, BOUNDS), table["ill"].astype(np.float32)


def logistic():
    return models.logistic(2, 2**0.5, 1.0, True)


class Holder:
    def __init__(self, rows):
        self.rows = rows

    def method(self):
        return self.rows


def with_default(value):
    return lambda position, rows=value: (position, rows)


HIDES = {
    "closure": lambda rows: lambda: rows,
    "bound method": lambda rows: Holder(rows).method,
    "partial": lambda rows: functools.partial(max, rows),
    "default": with_default,
    "field": lambda rows: logistic()._replace(unravel=Holder(rows).method),
    "jit": lambda rows: jax.jit(lambda: rows),
    "device": lambda rows: (jnp.asarray(rows[0]),),
    "text": lambda rows: ValueError(f"{rows!r}"),
    "dataset": lambda rows: xarray.Dataset({"x": xarray.DataArray(rows[0])}),
}


@pytest.mark.parametrize("hide", HIDES.values(), ids=HIDES)
def test_a_cell_is_found_wherever_it_is_hidden(hide, rows):
    with np.printoptions(threshold=sys.maxsize):
        assert cells_within(hide(rows))


def test_a_cell_is_found_in_a_pickle_and_in_a_curator(rows):
    assert has_cell(pickle.dumps(rows)) and has_cell(pickle.dumps(rows[0].astype(float)))
    assert cells_within(Curator(rows, logistic(), Budget(1, 1e-3)))


def test_a_curator_and_what_it_gives_out_hold_no_cell(rows):
    curator = Curator(rows, logistic(), Budget(1, 1e-3))
    keys, positions = jax.random.split(jax.random.key(0), 1), jnp.zeros((1, 3))
    sampler = dpmcmc.sgld(curator.model.log_prior, Gradient(2.0, 500.0), 0.01)
    traced = curator.trace(Begin(sampler), keys, positions)
    grant = curator.grant({Gradient(2.0, 500.0): 1})
    for value in (curator, grant, grant.statement(), curator.model, traced, traced.compile()):
        assert_holds_no_cell(value)


def test_the_values_of_a_run_hold_no_cell(rows):
    """Facts, plan and record; the recipe is below, and the grant above."""
    curator = Curator(rows, logistic(), Budget(1, 1e-3))
    sampler = dpmcmc.sgld(curator.model.log_prior, Gradient(2.0, 500.0), 0.01)
    planned = dpmcmc.plan(jax.random.key(0), sampler, curator, num_steps=2, num_chains=1)
    record = planned.run(progress=False)
    for value in (curator.facts, planned, planned.to_json(), record, record.to_json()):
        assert_holds_no_cell(value)
    assert not has_cell(record.summary())


def test_recipes_and_models_hold_no_cell(rows):
    curator = Curator(rows, logistic(), Budget(4, 1e-3))
    with pytest.warns(UserWarning, match="hopeless"):
        found = recipes.noise_aware_for(curator), recipes.langevin_for(curator)
    for value in (*found, Federation([curator])):
        assert_holds_no_cell(value)


def test_a_numpyro_model_holds_no_cell(rows):
    numpyro = pytest.importorskip("numpyro")

    def program(features, labels):
        slope = numpyro.sample(
            "slope", numpyro.distributions.Normal(0.0, 1.0).expand([2]).to_event(1)
        )
        numpyro.sample("y", numpyro.distributions.Bernoulli(logits=features @ slope), obs=labels)

    assert_holds_no_cell(models.from_numpyro(program, rows))


def test_a_posterior_and_the_error_of_a_run_that_broke_off_hold_no_cell(monkeypatch):
    first = (np.arange(40) == 7) * np.float32(AS_ROWS[0])
    assert_holds_no_cell(tiny.run(tiny.make_curator(first)))

    def strike(self, num_steps, info):
        raise OSError("disk")

    monkeypatch.setattr("dpmcmc.run.progress.Progress.advance", strike)
    with pytest.raises(dpmcmc.RunFailed) as caught:
        tiny.run(tiny.make_curator(first))
    assert not has_cell("".join(traceback.format_exception(caught.value)))
    assert cells_within(caught.value.posterior) == []


def test_a_curator_is_not_pickled(rows):
    """Its rows would be in the file, and a second copy of its budget."""
    curator = Curator(rows, logistic(), Budget(1, 1e-3))
    for make in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(
            PrivacyRefusal, match=r"cannot be pickled or copied: make one where it is needed"
        ):
            make(curator)
    # A handle: the curator keeps what belongs to it
    grant = curator.grant({Gradient(2.0, 500.0): 1})
    assert not has_cell(repr(pickle.dumps(grant)))


# -- what the command builds ----------------------------------------------------------------------

BOTH = ["--bounds", "age=20:60,height=140:200"]
PROMISE = ["--epsilon", "4", "--delta", "1e-3", "--steps", "2", "--chains", "1"]
COMMANDS = {
    "logistic": [*BOTH, "--label", "ill", "--sampler", "barker"],
    "linear": ["--label", "height", *BOTH, "--sampler", "barker"],
    # With these variances its rows are those of the other models
    "gaussian": [*BOTH, "--variances", "400,900", "--max-move", "0.01"],
    "banana": [*BOTH, "--variances", "9,9", "--curvature", "0.1", "--clip", "5"],
    "circle": ["--bounds", "age=20:60", "--sharpness", "0.001", "--max-move", "1e-3"],
    "mixture": ["--bounds", "age=20:60", "--variances", "100", "--step-size", "0.1"],
}


@pytest.fixture
def file(table, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = ["age,height,ill,name"]
    lines += [
        f"{age},{height},{ill:g},{NAME}" for age, height, ill in zip(*table.values(), strict=True)
    ]
    (tmp_path / "table.csv").write_text("\n".join(lines))
    return tmp_path / "table.csv"


@pytest.mark.parametrize("model", COMMANDS)
def test_the_command_hands_on_no_cell_but_to_its_curator(model, file, monkeypatch):
    """The model, the sampler, the start and all texts; and the posterior with what is printed."""
    given, sample = [], dpmcmc.sample

    def kept(*arguments, **options):
        given.append((arguments, options))
        given.append(sample(*arguments, **options))
        return given[-1]

    monkeypatch.setattr("dpmcmc.sample", kept)
    result = CliRunner().invoke(main, ["run", model, str(file), *COMMANDS[model], *PROMISE])
    (arguments, options), posterior = given
    (curator,) = (value for value in arguments if isinstance(value, Curator))
    assert isinstance(curator.model, Model)
    for value in (*arguments, *options.values(), *curator.model, posterior, result.output):
        assert_holds_no_cell(value)


SPOILED = {
    "short": f'age,height,ill\n"{NAME},{HEIGHT},1\n{AGE},{HEIGHT}\n',
    "nul": f"age,height,ill\n{AGE}\0,{HEIGHT},{NAME}\n",
    "no such column": f"{NAME},{HEIGHT},ill\n{AGE},{HEIGHT},1\n{AGE},{HEIGHT},0\n",
    "text": f"age,height,ill\n{NAME},{HEIGHT},{NAME}\n{AGE},{NAME},1\n",
}


@pytest.mark.parametrize("text", SPOILED.values(), ids=SPOILED)
def test_what_cannot_be_read_is_not_quoted(text, file):
    """The first line names the columns, and is public."""
    file.write_text(text)
    result = CliRunner().invoke(
        main, ["run", "logistic", str(file), *COMMANDS["logistic"], *PROMISE]
    )
    names, _, _ = text.partition("\n")
    shown = result.output + "".join(
        traceback.format_exception(result.exception) if result.exception else []
    )
    for name in names.split(","):
        shown = shown.replace(name, "")
    assert not has_cell(shown)
