"""Rows that are read from files in batches: the same integers as from memory, and refusals."""

import logging
import os
from dataclasses import replace

import jax
import numpy as np
import pytest

import dpmcmc
from dpmcmc import Budget, Curator, Neighbours, PrivacyRefusal, UnsupportedQuery, models, queries
from dpmcmc.curator.programs import compiling as programs
from dpmcmc.engines import Stream, pass_over
from tests.chains import SECRET
from tests.engines.files import BOUNDS, LEVELS, MODEL, columns_of, opened, rows_of, write

pytestmark = pytest.mark.usefixtures("quick_compilation")

COLUMNS = columns_of(3000)
POSITIONS = np.float32([[0.1, 0.2, 0.3], [-2, 30, 0.5]])
GRADIENT = queries.Gradient(MODEL.lipschitz, 10.0)
CURVATURE = queries.Curvature(MODEL.hessian_bound, 10.0)
BUDGET = Budget(epsilon=4.0, delta=1e-6)


@pytest.fixture(params=[".csv", ".parquet", ".feather"])
def path(request, tmp_path):
    if request.param != ".csv":
        pytest.importorskip("pyarrow", reason="Parquet and Feather files need pyarrow")
    return write(tmp_path / f"people{request.param}", COLUMNS)


@pytest.fixture
def text(tmp_path):
    return write(tmp_path / "people.csv", COLUMNS)


def asking(ask, key, positions):
    """Both queries, also with vmap."""
    keys = jax.random.split(key, 4)
    return (
        ask(keys[0], GRADIENT, positions[0]).value,
        ask(keys[1], CURVATURE, positions[1]).value,
        jax.vmap(lambda key, at: ask(key, GRADIENT, at).value)(keys[2:], positions),
    )


def answers(rows, program=asking, **options):
    curator = Curator(rows, MODEL, None, fixed_secret=SECRET, **options)
    compiled = curator.trace(program, jax.random.key(0), POSITIONS).compile()
    found = curator.grant(compiled.plan).run(compiled, jax.random.key(0), POSITIONS)
    return jax.tree.map(np.asarray, found)


def assert_same(found, wanted):
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_array_equal(one, other)


def test_the_bits_are_those_from_memory(path):
    wanted = answers(rows_of(COLUMNS))
    for batch_rows in (17, 1024, 2**16):
        assert_same(answers(opened(path, batch_rows=batch_rows)), wanted)


def test_several_files_are_one_table(tmp_path):
    for part, rows in enumerate((slice(0, 5), slice(5, 2000), slice(2000, None))):
        some = {name: cells[rows] for name, cells in COLUMNS.items()}
        write(tmp_path / f"part-{part}.csv", some)
    dataset = opened(str(tmp_path / "part-*.csv"), batch_rows=512)
    assert (dataset.num_rows, dataset.num_batches) == (3000, 1 + 4 + 2)
    assert_same(answers(dataset), answers(rows_of(COLUMNS)))


def test_a_private_number_of_rows(text, caplog):
    unit = dpmcmc.Unit(Neighbours.ADD_OR_REMOVE_ONE)
    options = {"capacity": 4000, "unit": unit}
    with caplog.at_level(logging.INFO, "dpmcmc"):
        found = answers(opened(text), **options)
    assert "batch" not in caplog.text  # whose number would show the number of rows
    assert_same(found, answers(rows_of(COLUMNS), **options))
    with pytest.raises(ValueError, match="declare capacity="):
        Curator(opened(text), MODEL, None, unit=unit)


@pytest.mark.parametrize("path", [".csv", ".parquet"], indirect=True)
def test_the_noise_aware_recipe_gives_the_draws_from_memory(path):
    def draws(rows):
        curator = Curator(rows, MODEL, BUDGET, fixed_secret=SECRET)
        recipe = dpmcmc.recipes.noise_aware_for(curator, num_chains=2, num_steps=20)
        key, start = jax.random.key(1), np.zeros(3, np.float32)
        options = {**recipe.options, "progress": False}
        return dpmcmc.sample(key, recipe.sampler, curator, start, **options), curator

    streamed, curator = draws(opened(path, batch_rows=500))
    from_memory, _ = draws(rows_of(COLUMNS))
    for name in from_memory.posterior.data_vars:
        np.testing.assert_array_equal(streamed.posterior[name], from_memory.posterior[name])
    assert curator.num_grants == 1


def test_progress_is_made_of_public_numbers(text, caplog):
    with caplog.at_level(logging.INFO, "dpmcmc"):
        answers(opened(text, batch_rows=100))
    lines = [record.message for record in caplog.records if record.name == "dpmcmc"]
    assert "pass 1 over the rows: batch 3 of 30" in lines
    assert "pass 3 over the rows: batch 30 of 30" in lines  # with vmap, one pass for two positions
    assert len(lines) == 30


def test_the_statement_names_the_engine(text):
    grant = Curator(opened(text), MODEL, BUDGET).grant({GRADIENT: 1})
    assert any(
        "the stream of batches of one process" in line and "seen by this process" in line
        for line in grant.statement().assumptions
    )
    statement = Curator(rows_of(COLUMNS), MODEL, BUDGET).grant({GRADIENT: 1}).statement()
    assert not any("stream of batches" in line for line in statement.assumptions)


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        (queries.Count(noise_multiplier=5.0), "load the table into memory"),
        (queries.Gradient(1.0, 10.0), "would clip rows.*lipschitz"),
        (queries.Curvature(0.1, 10.0), "would clip rows.*hessian_bound"),
        (replace(GRADIENT, batch=queries.PoissonBatch(0.1)), "recipes.noise_aware"),
    ],
)
def test_other_queries_are_refused_before_anything_is_spent(text, query, reason):
    curator = Curator(opened(text), MODEL, BUDGET)
    with pytest.raises(UnsupportedQuery, match=reason):
        curator.trace(lambda ask, key: ask(key, query, POSITIONS[0]).value, jax.random.key(0))
    with pytest.raises(UnsupportedQuery, match=reason):
        curator.grant({query: 1})
    assert curator.num_grants == 0


def test_other_models_and_options_are_refused(text):
    dataset = opened(text)
    with pytest.raises(ValueError, match="no public tables.*load the table into memory"):
        Curator(dataset, models.linear(2, noise_scale=1.0), BUDGET)
    with pytest.raises(ValueError, match="persons="):
        Curator(dataset, MODEL, BUDGET, persons=np.arange(3000))
    with pytest.raises(ValueError, match="devices="):
        Curator(dataset, MODEL, BUDGET, devices=jax.devices())
    with pytest.raises(ValueError, match="does not take such rows"):
        Curator(dataset, models.logistic(3, radius=1.0), BUDGET)


def touch(path):
    later = path.stat().st_mtime_ns + 10**9
    os.utime(path, ns=(later, later))


def remove_a_line(path):
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))


@pytest.mark.parametrize("change", [touch, remove_a_line, os.remove])
def test_a_changed_file_is_refused(text, change):
    curator = Curator(opened(text), MODEL, BUDGET, shared_by="zcdp")
    program = curator.trace(asking, jax.random.key(0), POSITIONS).compile()
    grant = curator.grant(program.plan)
    change(text)
    with pytest.raises(PrivacyRefusal, match="changed or moved since it was opened"):
        grant.run(program, jax.random.key(0), POSITIONS)
    with pytest.raises(PrivacyRefusal, match="changed or moved since it was opened"):
        curator.grant(program.plan)
    assert curator.num_grants == 1


def test_a_file_that_loses_rows_during_a_pass_is_refused(text):
    dataset = opened(text, batch_rows=100)
    dataset = replace(dataset, parts=(replace(dataset.parts[0], num_rows=2999),))
    with pytest.raises(PrivacyRefusal, match="changed while it was read"):
        list(dataset.batches(0))


class Faulty(Stream):
    """Reads the parts in this order, whatever they are."""

    order = ()

    def partials(self, function, arguments, report):
        for partition in self.order:
            yield pass_over(self.dataset, partition, function, arguments)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)])
def test_any_order_of_parts_is_right(three_files, order):
    class Other(Faulty):
        pass

    Other.order = order
    assert_same(answers(Other(three_files)), answers(rows_of(COLUMNS)))


@pytest.mark.parametrize("order", [(), (0, 1), (0, 1, 2, 2), (0, 0, 1)])
def test_a_batch_that_is_lost_or_added_twice_is_refused(three_files, order):
    class Other(Faulty):
        pass

    Other.order = order
    with pytest.raises(PrivacyRefusal, match="lost a batch of rows, or has added one twice"):
        answers(Other(three_files))


def test_a_sum_beyond_64_bits_is_refused(three_files):
    """And one that is just within is right: 3000 rows."""
    largest = (2**63 - 1) // 3000
    engine = Stream(three_files)
    total = engine.total(lambda rows, number: np.int64(number) * np.array([largest, -largest]))
    np.testing.assert_array_equal(total, [3000 * largest, -3000 * largest])
    for beyond in (largest + 2**20, -largest - 2**20):
        with pytest.raises(OverflowError, match="beyond 64 bits"):
            engine.total(lambda rows, number: np.int64(number) * np.array([beyond]))  # noqa: B023


def test_an_accumulator_of_32_bits_is_refused(three_files):
    with pytest.raises(TypeError, match="a pass gave int32"):
        Stream(three_files).total(lambda rows, number: np.int32(number))


def test_no_table_that_is_accepted_overflows():
    """The most that so many rows add is within 64 bits, and one bit less would not do."""
    from dpmcmc.curator.sums.exact_sum import MAX_ROWS
    from dpmcmc.curator.sums.integer_rows import (
        FEATURE_BITS,
        HESSIAN_SENSITIVITY,
        SLOPE_BITS,
        public_tables,
    )

    tables = public_tables(MODEL)
    assert tables.longest <= 2**FEATURE_BITS
    most = max(2**SLOPE_BITS * 2**FEATURE_BITS, HESSIAN_SENSITIVITY)
    assert 2**61 < MAX_ROWS * most < 2**63


@pytest.fixture
def three_files(tmp_path):
    """Of equal numbers of rows, so that counts alone do not show which were read."""
    for part in range(3):
        rows = slice(1000 * part, 1000 * part + 1000)
        write(tmp_path / f"{part}.csv", {name: cells[rows] for name, cells in COLUMNS.items()})
    return opened(str(tmp_path / "?.csv"))


class Talkative(Stream):
    """Fails with an error that shows a cell."""

    def partials(self, function, arguments, report):
        raise ValueError("cannot read 'cell-of-a-person'")


def test_no_error_of_a_pass_shows_a_cell(text):
    with pytest.raises(RuntimeError, match="ended with a ValueError") as caught:
        answers(Talkative(opened(text)))
    error = caught.value
    while error is not None:
        assert "cell-of-a-person" not in str(error)
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def test_compiled_programs_with_callbacks_are_not_shared(tmp_path):
    """Their text is the same for two datasets of one shape, and their rows are not."""
    other = columns_of(3000, seed=1)
    found = [
        answers(opened(write(tmp_path / f"{seed}.csv", columns)))
        for seed, columns in enumerate((COLUMNS, other))
    ]
    assert_same(found[0], answers(rows_of(COLUMNS)))
    assert_same(found[1], answers(rows_of(other)))
    assert (found[0][0] != found[1][0]).any()
    before = set(programs._PROGRAMS)
    answers(opened(tmp_path / "0.csv"))
    assert set(programs._PROGRAMS) == before


def test_a_file_is_read_as_it_is_in_memory(tmp_path):
    """A lone carriage return ends no row, quotes hide line feeds, and broken quotes do not."""
    head = "age,income,ill\n"
    for number, body in enumerate(
        ('30,"1\r2",yes\n40,5,no\n', '30,"1\n2",yes\n40,5,no\n', '30,"1\n40,5,no\n50,6"7,yes\n')
    ):
        path = tmp_path / f"{number}.csv"
        path.write_bytes((head + body).encode())
        columns = dpmcmc.tables.read_columns(path, ["age", "income", "ill"])
        wanted = rows_of(columns)
        rows = [(x[:n], y[:n]) for (x, y), n in opened(path, batch_rows=1).batches(0)]
        for place in range(2):
            found = np.concatenate([batch[place] for batch in rows])
            np.testing.assert_array_equal(found, wanted[place])


def test_types_of_columns_decide_by_the_schema_alone(tmp_path):
    pa = pytest.importorskip("pyarrow", reason="Parquet files need pyarrow")
    import pyarrow.parquet

    def opened_as(**columns):
        pyarrow.parquet.write_table(pa.table(columns), tmp_path / "typed.parquet")
        bounds = {"x": (0, 10)} if "x" in columns else {"day": ("2020-01-01", "2020-01-11")}
        dataset = dpmcmc.tables.dataset(tmp_path / "typed.parquet", bounds, "y", batch_rows=2)
        ((features, labels), number), *_ = dataset.batches(0)
        assert number == 2
        return features[:, 0].tolist(), labels.tolist()

    y = pa.array([True, None])
    assert opened_as(x=pa.array([10, 5]), y=pa.array([True, False])) == ([1.0, 0.0], [1.0, 0.0])
    missing = opened_as(x=pa.array([10, None], pa.int64()), y=y)
    assert missing[0][0] == 1.0 and np.isnan([missing[0][1], missing[1][1]]).all()
    assert opened_as(x=pa.array(["10", "5"]).dictionary_encode(), y=y)[0] == [1.0, 0.0]
    days = pa.array(["2020-01-01", "2020-01-11"]).cast(pa.date32())
    assert opened_as(day=days, y=y)[0] == [-1.0, 1.0]
    assert opened_as(day=days.cast(pa.timestamp("ns")), y=y)[0] == [-1.0, 1.0]
    with pytest.raises(ValueError, match="column 'x' of type list"):
        opened_as(x=pa.array([[1], [2]]), y=y)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("no-such-*.csv", BOUNDS, "ill"), "there is no file"),
        (("people.csv", {"height": (1, 2)}, "ill"), "no column 'height'"),
        (("people.csv", {"ill": (1, 2)}, "ill"), "is the label, and has bounds"),
        (("people.csv", {"age": (2, 1)}, "ill"), "the lower first"),
        (("people.txt", BOUNDS, "ill"), "must end with one of"),
    ],
)
def test_a_dataset_that_is_not_clear_is_refused(tmp_path, monkeypatch, arguments, reason):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "people.csv", COLUMNS)
    (tmp_path / "people.txt").write_text("age\n")
    with pytest.raises(ValueError, match=reason):
        dpmcmc.tables.dataset(*arguments, **LEVELS)


def test_files_that_are_no_files_of_arrow_are_refused(tmp_path):
    pytest.importorskip("pyarrow", reason="Parquet files need pyarrow")
    (tmp_path / "bad.parquet").write_bytes(b"cell-of-a-person" * 10)
    with pytest.raises(ValueError, match="it is no parquet file") as caught:
        opened(tmp_path / "bad.parquet")
    assert "cell-of" not in str(caught.value) and caught.value.__suppress_context__


def test_sums_in_changed_coordinates_have_the_bits_from_memory(text):
    axes = np.float32([[0.1, 0.02, 0], [0, 0.3, 0.01], [0.2, 0, 0.1]])
    phi, cap = np.float32([3, -4, 5]), np.float32(0.05)

    def program(ask, key, _):
        keys = jax.random.split(key, 5)
        caps = jax.numpy.stack([cap, np.float32(np.inf)])
        gradient = queries.WeightedGradient(2.0)
        return (
            ask(keys[0], queries.Gram(2.0), axes, cap),
            ask(keys[1], queries.NormCounts(3, 2.0), axes, np.float32([0, 0.1, 0.2, 1])),
            ask(keys[2], queries.WeightedCurvature(2.0), axes, phi, cap),
            jax.vmap(lambda key, cap: ask(key, gradient, axes, phi, cap))(keys[3:], caps),
        )

    wanted = answers(rows_of(COLUMNS), program)
    assert_same(answers(opened(text, batch_rows=500), program), wanted)
