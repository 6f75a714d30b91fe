"""`dpmcmc run`: every model from a file, what it prints, what it refuses, and that bad cells do not
show.
"""

import inspect
import os
import re
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest
import xarray
from typer.testing import CliRunner

import dpmcmc.results.files
from dpmcmc import Budget, cli, findings, load, recipes, statement_of
from dpmcmc.cli import main
from dpmcmc.cli.problems import ModelName, Problem, Settings, problem_of, rows_of
from dpmcmc.curator.grants import Grant
from dpmcmc.curator.noise import stream
from dpmcmc.models.robust_linear import HUBER
from dpmcmc.recipes import SamplerName, forecast
from dpmcmc.recipes.langevin import langevin_steps
from dpmcmc.recipes.walks import STEPS_PER_DRAW
from dpmcmc.run.progress import Progress
from dpmcmc.tables.declared import Bounds, parse_bounds

pytestmark = pytest.mark.usefixtures("quick_compilation")

N = 173
GENERATOR = np.random.default_rng(0)
AGE = GENERATOR.uniform(20, 60, N).round(1)
HEIGHT = GENERATOR.normal(170, 10, N).round(1)
LABEL = GENERATOR.integers(0, 2, N)
PROMISE = ["--epsilon", "4", "--delta", "1e-4"]
TWO = ["--features", "age,height", "--bounds", "age=20:60,height=140:200"]
UNNAMED = ["logistic", "table.csv", *TWO, "--label", "ill", *PROMISE, "--chains", "1"]
LINEAR = [
    "linear",
    "table.csv",
    "--label",
    "height",
    "--bounds",
    "age=20:60,height=140:200",
    *PROMISE,
]
# Named: the table is hopelessly small
LOGISTIC, LANGEVIN = ([*UNNAMED, "--sampler", name] for name in ("barker", "sgld"))


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "table.csv", AGE, HEIGHT, LABEL)
    np.save("ages.npy", AGE)
    Path("no.csv.gz").write_text("Smith,58,1")
    Path("people.xlsx").write_text("Smith,58,1")
    np.savez("both.npz", age=AGE, height=HEIGHT)
    Path("noise.csv").write_text("noise_scale,ill\n" + "1,0\n" * 9)
    Path("intercepts.csv").write_text("intercept,ill\n" + "1,0\n" * 9)
    return tmp_path


def write(path, *columns):
    lines = [",".join(map(str, line)) for line in zip(*columns, strict=True)]
    path.write_text("\n".join(["age,height,ill", *lines]) + "\n")


def invoke(*arguments):
    return CliRunner().invoke(main, ["run", *map(str, arguments)])


DONE, NOT_RELIABLE = 0, 3


def codes(path="posterior.nc"):
    return [finding.code for finding in findings(load(path))]


def check_is_done(result, path="posterior.nc"):
    """That a run came to its end; the exit status depends on nothing but its findings."""
    is_severe = any(finding.is_severe for finding in findings(load(path)))
    assert result.exit_code == (NOT_RELIABLE if is_severe else DONE), result.output
    assert result.output.count("DO NOT RELY") == is_severe


MODELS = {
    "logistic": (LOGISTIC, "barker", {"intercept", "age", "height"}),
    "linear": (LINEAR, "sgld", {"intercept", "age", "noise_scale"}),
    "gaussian": (
        ["gaussian", "both.npz", *TWO, "--variances", "100,100", "--clip", "9"],
        "penalty",
        {"age", "height"},
    ),
    "banana": (
        ["banana", "both.npz", *TWO, "--variances", "9,9", "--curvature", "0.1", "--clip", "5"],
        "penalty-bit",
        {"theta"},
    ),
    "circle": (
        ["circle", "ages.npy", "--bounds", "0=0:60", "--sharpness", "0.001", "--max-move", "1e-3"],
        "lazy-barker",
        {"x", "y"},
    ),
    "mixture": (
        ["mixture", "ages.npy", "--bounds", "0=0:60", "--variances", "100", "--step-size", "0.1"],
        "barker",
        {"theta_1", "theta_2"},
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_every_model_runs(name):
    arguments, sampler, parameters = MODELS[name]
    result = invoke(
        *arguments, *PROMISE, "--sampler", sampler, "--steps", "2", "--chains", "1", "--warmup", "0"
    )
    check_is_done(result)
    posterior = load("posterior.nc")
    assert set(posterior.posterior.data_vars) == parameters
    assert posterior.posterior.sizes["draw"] == 2
    assert "2 steps of one chain" in result.output
    assert ("no row reaches it" in result.output) == (name != "banana")
    # A ring and a pair of modes take longer to go round than any rule for normal posteriors says.
    assert ("Expect:" in result.output) == (name not in ("circle", "mixture"))
    assert ("a run may see one only" in result.output) == (name == "mixture")


@pytest.mark.parametrize(
    ("moment", "words"),
    [("trace", "nothing was spent"), ("grant", "the budget is spent, and there are no draws")],
)
def test_an_interrupt_says_whether_anything_was_spent(moment, words, monkeypatch):
    def strike(self, *arguments):
        raise KeyboardInterrupt

    owner, name = (dpmcmc.Curator, "trace") if moment == "trace" else (Grant, "run")
    monkeypatch.setattr(owner, name, strike)
    result = invoke(*LOGISTIC, "--steps", "2")
    assert result.exit_code == 130 and f"Interrupted: {words}." in result.output


def test_an_interrupted_run_keeps_its_draws_and_does_not_exit_as_one_that_ended(monkeypatch):
    advance = Progress.advance

    def strike(self, num_steps, info):
        advance(self, num_steps, info)
        raise KeyboardInterrupt

    monkeypatch.setattr(Progress, "advance", strike)
    result = invoke(*LOGISTIC, "--steps", "2")
    assert result.exit_code == 130 and "interrupted" in codes()
    assert result.output.count("was interrupted after 1 of 2 steps") == 1


def test_a_dry_run_tells_the_plan_and_spends_nothing(folder):
    result = invoke(*LANGEVIN, "--ledger", "spent.json", "--dry-run")
    assert (
        result.exit_code == 0
        and "Sampler:  sgld" in result.output
        and "Nothing is spent: this was a dry run." in result.output
    )
    assert not (folder / "spent.json").exists() and not (folder / "posterior.nc").exists()


def test_a_tempered_run_says_what_it_is(folder):
    """In the file and on the screen; a power that is none is refused before anything is spent."""
    result = invoke(*LANGEVIN, "--temperature", "0.25", "--steps", "20", "--thin", "1")
    assert (
        "TEMPERED: these are draws of the prior times the likelihood to the power 0.25"
        in " ".join(result.output.split())
    )
    assert "2 times as wide" in " ".join(result.output.split())
    refused = invoke(*LANGEVIN, "--temperature", "2", "--dry-run")
    assert refused.exit_code == 2 and "temperature=2.0 must lie in (0, 1]" in refused.output


def test_a_dry_run_says_all_that_the_run_would_refuse(folder):
    """After the plan, which is worth a look all the same.

    It was silent about an output that exists, and about warm-up.
    """
    (folder / "paper.csv").write_text("of another run")
    given = [*LOGISTIC, "--steps", "2", "--out", "paper.csv", "--warmup", "1"]
    planned = invoke(*given, "--dry-run")
    assert planned.exit_code == 2 and "Budget:   epsilon = 4" in planned.output
    assert re.findall("refused: (.*)", planned.output) == [
        "--out paper.csv exists: name another file, a posterior that was paid for is not replaced",
        "--out paper.csv must end in .nc: the posterior is a NetCDF file",
        "warmup=1.0 must lie in [0, 1): it is the share of the draws kept apart",
    ]
    without = invoke(*given[:-2], "--dry-run")
    assert without.exit_code == 2
    assert without.output.endswith("this was a dry run. The run itself would be refused.\n")
    found = invoke(*given)
    assert found.exit_code == 2 and found.output.startswith("refused: --out paper.csv exists")


def test_a_dry_run_refuses_names_that_a_file_cannot_have(folder):
    """What only the rehearsal of the file finds."""
    text = "chain"
    (folder / "table.csv").write_text(f"{text},ill\n" + "1,0\n2,1\n" * 40)
    given = [
        "logistic",
        "table.csv",
        "--label",
        "ill",
        "--bounds",
        f"{text}=0:3",
        *PROMISE,
        "--sampler",
        "barker",
    ]
    planned, found = (invoke(*given, "--steps", "2", *more) for more in (["--dry-run"], []))
    assert planned.exit_code == found.exit_code == 2
    refused = re.search("refused: (.*)", planned.output)[1]
    assert "could not be made into a posterior" in refused and refused in found.output


def test_a_large_epsilon_is_told():
    given = [*LOGISTIC, "--steps", "2", "--dry-run", "--epsilon"]
    assert (
        "epsilon = 10.5 is above 10, where a promise protects hardly anything"
        in invoke(*given, "10.5").output
    )
    assert "hardly anything" not in invoke(*given, "10").output


@pytest.mark.slow
def test_the_result_of_linear_says_that_it_is_the_line_of_the_bulk(folder):
    result = invoke(*LINEAR, "--sampler", "barker", "--steps", "2")
    check_is_done(result)
    words = (
        "The coefficients describe the bulk of the rows: rows whose height is far off have little "
        "influence."
    )
    _, below = result.output.split("r_hat", 1)
    assert result.output.count(words) == below.count(words) == 1
    assert words in load("posterior.nc").posterior.attrs["reading"]
    assert CliRunner().invoke(main, ["report", "posterior.nc"]).exit_code == 0
    assert words in Path("posterior.html").read_text()


def test_the_file_says_how_to_read_the_parameters():
    result = invoke(*LOGISTIC, "--steps", "2")
    posterior = load("posterior.nc").posterior
    assert posterior["age"].attrs["unit"] == "log-odds per 1 of age"
    assert (
        "intercept: log-odds at the middle of all bounds; age: log-odds per 1 of age"
        in posterior.attrs["parameters"]
    )
    assert (
        "declared of every row: age within 20 and 60, height within 140 and 200"
        in posterior.attrs["privacy_statement"]
    )
    assert (
        "Sampler:  barker, moves up to" in posterior.attrs["plan"]
        and posterior.attrs["plan"] in result.output
    )
    assert result.output.count("age: log-odds per 1 of age") == 1  # in the plan


def test_text_is_compared_with_its_first_level(folder):
    """What is no level is as good as missing."""
    sexes = np.where(np.arange(N) % 3 == 0, "f", "m")
    write(folder / "text.csv", AGE, np.where(np.arange(N) == 7, "?", sexes), LABEL)
    arguments = [
        "logistic",
        "text.csv",
        "--label",
        "ill",
        "--bounds",
        "age=20:60",
        "--levels",
        "height=f/m/x",
        *PROMISE,
    ]
    result = invoke(*arguments, "--sampler", "barker", "--steps", "2")
    check_is_done(result)
    posterior = load("posterior.nc").posterior
    assert set(posterior.data_vars) == {"intercept", "age", "height=m", "height=x"}
    assert posterior["height=x"].attrs["unit"] == "log-odds against height=f"
    assert (
        "intercept: log-odds at the middle of all bounds and the first of all levels"
        in posterior.attrs["parameters"]
    )
    assert (
        "age within 20 and 60, height one of f, m, x (a row with"
        in posterior.attrs["privacy_statement"]
    )
    # The intercept and two columns: each adds 1
    assert "clip 1.732 (proved: no row reaches it)" in result.output
    limits, levels = {"age": Bounds(20.0, 60.0)}, {"height": ("f", "m", "x")}
    settings = Settings(
        ("height", "age"), "ill", None, limits, levels, True, 1.0, None, None, None, None
    )
    features, _ = rows_of(ModelName.logistic, folder / "text.csv", ",", ".", settings)
    np.testing.assert_array_equal(
        features[:3, :2], dpmcmc.tables.simplex(3).T[[0, 1, 1]].astype(np.float32)
    )
    assert np.isnan(features[7, :2]).all() and np.isfinite(np.delete(features, 7, 0)).all()
    (folder / "commas.csv").write_text("age;height;ill\n20,5;a,b;1\n30,5;c;0\n")
    commas = settings._replace(levels={"height": ("c", "a,b")})
    features, _ = rows_of(ModelName.logistic, folder / "commas.csv", ";", ",", commas)
    np.testing.assert_allclose(features, [[-1, -0.975], [1, -0.475]], rtol=1e-6)
    without, _ = rows_of(
        ModelName.logistic, folder / "commas.csv", ";", ",", commas._replace(intercept=False)
    )
    np.testing.assert_allclose(without, [[1, -0.975], [0, -0.475]])


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("model", ["logistic", "linear"])
def test_named_parameters_predict_as_the_model_does(model, intercept, folder):
    """In the units of the table, levels against the first: however the model itself has them."""
    places = np.arange(N) % 4
    write(folder / "levels.csv", AGE, np.array(["n", "e", "s", "w"])[places], LABEL)
    limits, levels = (
        {"age": Bounds(20.0, 60.0), "ill": Bounds(0.0, 4.0)},
        {"height": ("n", "e", "s", "w")},
    )
    settings = Settings(
        ("age", "height"), "ill", None, limits, levels, intercept, 2.0, None, None, None, None
    )
    problem = problem_of(ModelName(model), settings)
    rows = rows_of(ModelName(model), folder / "levels.csv", ",", ".", settings)
    position = np.linspace(-0.7, 0.9, problem.model.dimension, dtype=np.float32)
    told = {name: float(value) for name, value in problem.model.unravel(position).items()}
    names = (
        ["intercept"] * intercept
        + ["age", "height=e", "height=s", "height=w"]
        + ["noise_scale"] * (model == "linear")
    )
    assert list(told) == names and problem.prior_precision == 0.25
    of_level = np.array([0.0, told["height=e"], told["height=s"], told["height=w"]])[places]
    found = jax.jit(jax.vmap(problem.model.log_likelihood, (None, 0)))(position, rows)
    predicted = (
        told.get("intercept", 0.0 if model == "logistic" else 2.0)
        + told["age"] * (AGE - 40)
        + of_level
    )
    if model == "logistic":
        wanted = -np.logaddexp(0, np.where(LABEL > 0.5, -predicted, predicted))
    else:
        error = (LABEL - predicted) / told["noise_scale"]
        huber = np.where(np.abs(error) <= 1.345, error**2 / 2, 1.345 * np.abs(error) - 1.345**2 / 2)
        wanted = np.log(2 / told["noise_scale"]) - huber
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_levels_that_are_equally_common_do_not_hide_each_other(folder):
    """Noise is alike in all directions, so what counts is the direction that rows say least about;
    with 0 and 1 it was a sixth.
    """
    write(
        folder / "levels.csv",
        np.where(np.arange(N) % 2 < 1, 20, 60),
        np.array(["n", "e", "s", "w"])[np.arange(N) % 4],
        LABEL,
    )
    settings = Settings(
        ("height",),
        "ill",
        None,
        {},
        {"height": ("n", "e", "s", "w")},
        True,
        1.0,
        None,
        None,
        None,
        None,
    )
    features, _ = rows_of(ModelName.logistic, folder / "levels.csv", ",", ".", settings)
    rows = np.column_stack([np.ones(N), features])
    with_zeros = np.column_stack([np.ones(N), np.arange(N)[:, None] % 4 == np.arange(1, 4)])
    least, with_zeros = (
        np.linalg.eigvalsh(features.T @ features / N)[0] for features in (rows, with_zeros)
    )
    assert least > 0.31 and with_zeros < 0.054


def test_persons_with_several_rows_are_a_unit():
    options = ["--rows-per-person", "3", "--capacity", "300", "--steps", "2"]
    result = invoke(*LOGISTIC, *options)
    check_is_done(result)
    assert (
        "one person with at most 3 rows" in result.output
        and "at most 300 rows" in result.output
        and "173" not in result.output
    )
    assert load("posterior.nc").posterior.attrs["rows_per_person"] == 3


def test_decimal_commas_are_read(folder, monkeypatch):
    seen, curator = [], dpmcmc.Curator
    monkeypatch.setattr(
        "dpmcmc.Curator",
        lambda rows, *rest, **options: (seen.append(rows), curator(rows, *rest, **options))[1],
    )
    (folder / "table.csv").write_text("age;height;ill\n30,5;170,25;1\n50;150;0\n")
    options = ["--delimiter", ";", "--decimal", ",", "--dry-run", "--steps", "1", "--delta", "0.4"]
    assert invoke(*LOGISTIC, *options).exit_code == 0
    np.testing.assert_allclose(seen[0][0], [[-0.475, 0.25 / 30], [0.5, -20 / 30]], rtol=1e-5)


def test_dates_are_read_as_days_and_told_so(folder):
    days = np.datetime64("1970-01-01") + np.arange(N)
    write(folder / "dates.csv", days, HEIGHT, LABEL)
    arguments = [
        "logistic",
        "dates.csv",
        "--label",
        "ill",
        "--bounds",
        "age=1970-01-01:1970-06-30",
        *PROMISE,
    ]
    result = invoke(*arguments, "--sampler", "barker", "--dry-run")
    assert result.exit_code == 0, result.output
    assert "age: log-odds per day of age" in result.output
    assert (
        "age within 1970-01-01 and 1970-06-30 (dates, read as days since 1970-01-01)"
        in result.output
    )
    limits = parse_bounds("age=1970-01-01:1970-06-30")
    settings = Settings(("age",), "ill", None, limits, {}, True, 1.0, None, None, None, None)
    problem = problem_of(ModelName.logistic, settings)
    features, _ = rows_of(ModelName.logistic, folder / "dates.csv", ",", ".", settings)
    np.testing.assert_allclose(features[:, 0], np.arange(N) / 90 - 1, atol=1e-6)
    per_day = problem.model.unravel(np.array([0.0, 9.0]))["age"]
    np.testing.assert_allclose(per_day, 9 / 90)  # half of the width


@pytest.mark.slow
def test_levels_may_have_commas_and_slashes(folder):
    """In a NetCDF file a slash would make a group of the parameter."""
    regions = np.array(["North, East", "South/West", "50%"])[np.arange(N) % 3]
    write(folder / "levels.csv", AGE, [f'"{region}"' for region in regions], LABEL)
    declared = 'height="North, East"/"South/West"/50%'
    arguments = ["logistic", "levels.csv", "--label", "ill", "--levels", declared, *PROMISE]
    result = invoke(*arguments, "--sampler", "barker", "--steps", "2")
    check_is_done(result)
    assert 'height one of "North, East", South/West, 50%' in result.output
    posterior = load("posterior.nc").posterior
    assert set(posterior.data_vars) == {"intercept", "height=South|West", "height=50%"}
    assert posterior["height=South|West"].attrs["unit"] == "log-odds against height=North, East"


def test_the_plan_names_the_spellings_of_a_missing_cell():
    result = invoke(*LOGISTIC, "--dry-run")
    assert (
        "missing: an empty cell, or one that reads ., ?, na, n/a, nan, <na> or null, in upper or "
        "lower case" in result.output
    )


def test_a_tsv_file_needs_no_delimiter(folder):
    (folder / "table.tsv").write_text((folder / "table.csv").read_text().replace(",", "\t"))
    outputs = [
        invoke("logistic", f"table.{end}", *LOGISTIC[2:], "--dry-run").output
        for end in ("csv", "tsv")
    ]
    assert outputs[1] == outputs[0].replace("table.csv", "table.tsv") and "173 rows" in outputs[1]


def test_a_file_name_that_is_no_text_costs_no_draws(folder):
    """The plan names the file, and is kept with the draws."""
    name = os.fsdecode(b"caf\xe9.csv")
    try:
        (folder / name).write_bytes((folder / "table.csv").read_bytes())
    except OSError:
        pytest.skip("this file system takes names in UTF-8 only")
    result = invoke(LOGISTIC[0], name, *LOGISTIC[2:], "--steps", "2")
    check_is_done(result)
    assert "Table:    caf?.csv" in load("posterior.nc").posterior.attrs["plan"]


def test_only_so_many_rows_of_a_person_are_used(folder, monkeypatch):
    seen, curator = [], dpmcmc.Curator
    monkeypatch.setattr(
        "dpmcmc.Curator",
        lambda *given, **options: (seen.append(options["persons"]), curator(*given, **options))[1],
    )
    lines = [
        "age,height,ill,id",
        *(f"{30 + i},170,{i % 2},{name}" for i, name in enumerate(["x", "y", "x", "", "x", "y"])),
    ]
    (folder / "table.csv").write_text("\n".join(lines))
    options = [
        "--rows-per-person",
        "2",
        "--person",
        "id",
        "--capacity",
        "300",
        "--steps",
        "2",
        "--epsilon",
        "50",
    ]
    result = invoke(*LOGISTIC, *options)
    check_is_done(result)
    assert (
        "one person, by the column id: the first 2 rows of each are used" in result.output
        and "enforced" in result.output
    )
    assert "Table:    table.csv, at most 300 rows used\n" in result.output
    assert (seen[0] < 0).tolist() == [False, False, False, True, False, False] and len(
        set(seen[0][[0, 2, 4]])
    ) == 1
    refused = invoke(*LOGISTIC, "--person", "id", "--steps", "2", "--out", "other.nc")
    assert (
        refused.exit_code == 2
        and "say how many of each to use, with --rows-per-person" in refused.output
    )
    misspelled = invoke(*LOGISTIC, *options, "--person", "idd", "--out", "other.nc")
    assert (
        misspelled.exit_code == 2
        and "no column 'idd' in its first line: is it spelled" in misspelled.output
    )


def test_draws_that_cannot_be_written_are_kept_elsewhere(folder, monkeypatch):
    write = dpmcmc.results.files.write_draft

    def fail(result, path):
        if "privacy_statement" in result.posterior.attrs and Path(path).parent == Path():
            raise OSError("no space left")
        return write(result, path)

    monkeypatch.setattr(dpmcmc.results.files, "write_draft", fail)
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    result = invoke(*LOGISTIC, "--steps", "2")
    (place,) = re.findall(r"finished draws are in (\S+)\.", result.output)
    assert (
        result.exit_code == 1
        and place != "posterior.nc"
        and load(place).posterior.sizes["draw"] == 1
    )


def test_langevin_is_for_models_with_proved_bounds_and_has_settings_of_its_own():
    assert "sgld takes these from public facts" in invoke(*LANGEVIN, "--max-move", "0.1").output
    others = [*MODELS["mixture"][0][:-2], *PROMISE, "--steps", "2", "--chains", "1"]
    assert "needs a model with proved bounds" in invoke(*others, "--sampler", "sgld").output
    means = invoke(
        "gaussian", "both.npz", *TWO, "--variances", "100,100", *PROMISE, "--epsilon", "0.5"
    )
    assert (
        "hopeless: with 173 rows and 2 parameters" in means.output
        and "narrower bounds would help" in means.output
    )
    assert (
        "Sampler:  barker"
        in invoke(*UNNAMED, "--max-move", "0.1", "--steps", "2", "--dry-run").output
    )
    shared = invoke(
        *LANGEVIN, "--ledger", "spent.json", "--shared-by", "zcdp", "--steps", "2", "--dry-run"
    )
    assert "Sampler:  sgld" in shared.output


def test_by_default_all_of_the_budget_goes_to_a_few_looks(folder):
    """The draws are free then, and as many as are wanted.

    Where runs share a budget each takes steps of its own.
    """
    generator = np.random.default_rng(3)
    age, height = generator.uniform(20, 60, 4000), generator.uniform(140, 200, 4000)
    write(
        folder / "table.csv",
        age,
        height,
        (generator.uniform(size=4000) < 1 / (1 + np.exp((40 - age) / 10))).astype(int),
    )
    plan = invoke(*UNNAMED, "--dry-run")
    assert "Sampler:  noise-aware, in whitened coordinates: 4 rough steps" in plan.output
    assert re.search(
        r"Expect:   a posterior roughly 1\.\d* times as wide as without privacy\n", plan.output
    )
    result = invoke(*UNNAMED, "--steps", "200", "--ledger", "spent.json")
    check_is_done(result)
    assert "200 steps of one chain" in result.output
    # Steps cost nothing: 400 could be had
    assert codes()[-2:] == ["few-effective-draws", "few-tail-draws"]
    posterior = load("posterior.nc").posterior
    assert posterior.sizes["draw"] == 180 and 0.05 < float(posterior["age"].mean()) < 0.15
    shared = [
        "--ledger",
        "shared.json",
        "--shared-by",
        "gaussian-dp",
        "--steps",
        "2",
        "--dry-run",
        "--out",
        "shared.nc",
    ]
    assert "Sampler:  sgld" in invoke(*UNNAMED, *shared).output
    refused = invoke(*UNNAMED, *shared, "--sampler", "noise-aware")
    assert (
        refused.exit_code == 2
        and "noise-aware shares a budget by parts: leave --shared-by out" in refused.output
    )
    typed = invoke(*UNNAMED, "--sampler", "noise-aware", "--max-move", "0.1", "--out", "typed.nc")
    assert typed.exit_code == 2 and "noise-aware takes these from public facts" in typed.output


def test_labels_that_could_not_be_read_are_thought_of(folder):
    """The draws themselves are fine, chains of them alike: it is the start that shows it. Said
    once, and by the exit status.
    """
    generator = np.random.default_rng(3)
    write(
        folder / "table.csv",
        generator.uniform(20, 60, 4000),
        generator.uniform(140, 200, 4000),
        ["no", "yes"] * 2000,
    )
    result = invoke(*UNNAMED, "--steps", "200", "--no-count")
    assert result.exit_code == NOT_RELIABLE, result.output
    assert "nothing-but-noise" in codes()
    assert (
        result.output.count(
            "DO NOT RELY on these draws:\n  - At the private start the data cannot be "
            "distinguished from the"
        )
        == 1
    )
    assert result.output.count("DO NOT RELY") == 1
    told = [finding.text for finding in findings(load("posterior.nc"))]
    assert all(result.output.count(text) == 1 for text in told)
    assert (
        "See above how cells are read, and --decimal, --levels, --positive and --negative"
        in result.output
    )
    table, verdict, statement = (
        result.output.index(words) for words in ("r_hat", "DO NOT RELY", "PRIVACY STATEMENT")
    )
    assert table < verdict < statement


def test_only_regressions_are_told_of_levels():
    means = invoke(
        "gaussian",
        "both.npz",
        *TWO,
        "--variances",
        "100,100",
        *PROMISE,
        "--max-move",
        "0.1",
        "--dry-run",
    )
    assert means.exit_code == 0 and "is no number" in means.output and "levels" not in means.output
    assert "see --levels" in invoke(*LANGEVIN, "--dry-run").output


def test_a_hopeless_table_costs_nothing_unless_a_sampler_is_named(folder):
    result = invoke(*UNNAMED, "--epsilon", "1", "--ledger", "spent.json")
    assert (
        result.exit_code == 2
        and "hopeless: with 173 rows and 3 parameters epsilon = 1 gives a posterior some"
        in result.output
    )
    assert not (folder / "posterior.nc").exists()
    needed = int(re.search(r" n = ([\d,]+)", result.output)[1].replace(",", ""))
    assert forecast.forecast_error("noise-aware", needed, 3, Budget(1, 1e-4)) <= 0.5
    assert forecast.forecast_error("noise-aware", needed - 1, 3, Budget(1, 1e-4)) > 0.5


def test_a_run_says_what_it_does(folder):
    result = invoke(*LANGEVIN, "--ledger", "spent.json")
    check_is_done(result)
    for words in (
        "Model:    logistic, 3 parameters",
        "age: log-odds per 1 of age",
        "Table:    table.csv, 173 rows",
        "height within 140 and 200",
        "ill counts as 1 where it is 1, or true, and as 0 where it is 0, or false;",
        "Count:    none (only noise-aware takes one)",
        "Sampler:  sgld after a private start",
        "clip 1.732 (proved: no row reaches it)",
        "Budget:   epsilon = 4, delta = 0.0001: ",
        "Unit:     one row. If people can have several, use --rows-per-person.",
        "Expect:   less than one independent draw's worth on average over parameters",
        "assuming features spread over their bounds, balanced levels and no collinearity",
        "a column whose cells crowd in a third of its bounds gets a ninth of the draws, or fewer",
        "Chains:   every step is kept, and the first 10% of these apart as warm-up; seed 0",
        "r_hat",
        "DO NOT RELY on these draws:\n  - ",  # 173 rows are few
        "PRIVACY STATEMENT",
        "Promise:   (",
        "Bill:      1 x Curvature(",
        "Bill:      8 x Gradient(",
        "Written to posterior.nc",
    ):
        assert words in result.output, words
    steps = int(re.search(r"(\d+) steps of one chain", result.output)[1])
    posterior = load("posterior.nc")
    assert set(posterior.posterior.data_vars) == {"intercept", "age", "height"}
    assert posterior.posterior.sizes["draw"] + posterior.warmup_posterior.sizes["draw"] == steps
    assert 3 < posterior.attrs["epsilon"] <= 4
    title, *lines = statement_of(posterior).splitlines()
    assert title in result.output
    assert all(result.output.count(line.strip()) == 1 for line in set(lines))
    # The ledger remembers: the same table has nothing left.
    again = invoke(*LANGEVIN, "--ledger", "spent.json", "--out", "again.nc")
    assert (
        again.exit_code == 2
        and "the budget in spent.json went to one run and is closed" in again.output
    )
    assert (
        "Runs that share a budget say so from the first one on, with --shared-by zcdp"
        in again.output
    )
    assert not (folder / "again.nc").exists()


@pytest.mark.slow
def test_runs_share_a_budget(folder):
    shared = [*LOGISTIC, "--ledger", "spent.json", "--shared-by", "zcdp"]
    first = invoke(*shared, "--steps", "2")
    check_is_done(first)
    left = int(
        re.search(r"Left in spent.json: (\d+) more such steps of one chain", first.output)[1]
    )
    too_many = invoke(*shared, "--steps", left + 1, "--out", "second.nc")
    assert too_many.exit_code == 2 and "is left" in too_many.output
    all_of_it = invoke(*shared, "--out", "second.nc")
    assert (
        all_of_it.exit_code == 2
        and f"this run would take all that is left, {left} steps" in all_of_it.output
    )
    long_moves = invoke(*shared, "--max-move", "100", "--out", "second.nc")
    assert (
        long_moves.exit_code == 2
        and "what is left of the budget of epsilon=4, delta=" in long_moves.output
    )
    second = invoke(*shared, "--steps", "2", "--out", "second.nc")
    assert f"Left in spent.json: {left - 2} more" in second.output, second.output
    alone = invoke(*LOGISTIC, "--ledger", "spent.json", "--out", "third.nc")
    assert alone.exit_code == 2 and "was opened with shared_by=zcdp, now it is None" in alone.output


@pytest.mark.parametrize(
    "table",
    [
        ["logistic", "table.csv", "--label", "ill"],
        ["gaussian", "both.npz", "--variances", "100,100"],
    ],
)
def test_next_to_no_budget_is_hopeless_and_no_error(table):
    """There was a division by zero, or an error of 31623 standard deviations."""
    result = invoke(*table, *TWO, "--epsilon", "0.01", "--delta", "1e-4")
    assert (
        result.exit_code == 2 and "hopeless: " in result.output and "a posterior" in result.output
    )


def test_steps_are_thinned_by_a_number_that_divides_them():
    assert [
        cli.run.checks.thin_that_divides(wanted, steps)
        for wanted, steps in ((3, None), (3, 100), (4, 100), (7, 14), (7, 13))
    ] == [3, 2, 4, 7, 1]


def test_one_step_more_than_the_budget_allows_is_refused():
    planned = invoke(*LOGISTIC, "--steps", "100000")
    assert (
        planned.exit_code == 2 and "the budget is epsilon=4: ask for fewer steps" in planned.output
    )
    fits = re.search(
        r"the budget of epsilon=4, delta=\S+ allows (\d+) steps of 1 chains", planned.output
    )[1]
    assert invoke(*LOGISTIC, "--steps", int(fits) + 1).exit_code == 2


def test_sharing_needs_a_ledger():
    result = invoke(*LOGISTIC, "--shared-by", "zcdp")
    assert result.exit_code == 2 and "--shared-by zcdp needs --ledger FILE" in result.output


def test_accept_bits_cannot_be_shared_as_gaussians(folder):
    result = invoke(
        *LOGISTIC, "--shared-by", "gaussian-dp", "--ledger", "spent.json", "--steps", "2"
    )
    assert (
        result.exit_code == 2
        and "cannot sum up AcceptBit: have it shared by zcdp or renyi" in result.output
    )
    assert not (folder / "spent.json").exists()


def test_means_are_in_the_units_of_the_table():
    arguments = [
        "gaussian",
        "both.npz",
        *TWO,
        "--variances",
        "100,100",
        *PROMISE,
        "--max-move",
        "0.01",
    ]
    result = invoke(*arguments, "--steps", "2", "--chains", "1", "--warmup", "0")
    check_is_done(result)
    posterior = load("posterior.nc").posterior
    assert float(posterior["age"].mean()) == pytest.approx(40, abs=1)
    assert float(posterior["height"].mean()) == pytest.approx(170, abs=1)


def test_a_linear_run_tells_its_units(folder):
    result = invoke(*LINEAR, "--sampler", "sgld", "--steps", "2", "--dry-run")
    assert result.exit_code == 0, result.output
    for words in (
        "intercept: height at the middle of all bounds",
        "age: height per 1 of age",
        "noise_scale: scale of the noise of height around its prediction (for normal noise, 0.87 "
        "standard deviations)",
        "noise: normal up to 1.345 times its scale, then with exponential tails",
        "height within 140 and 200",
        "prior: normal with mean 0 (of the intercept 170) and a standard deviation of 10 times "
        "noise_scale, for each of these: the intercept in the middle of all bounds; the change "
        "over half the width of its bounds, of each column",
        "prior of 30 / noise_scale: normal with mean 1.345 and standard deviation 40",
        "Expect:   less than one independent draw's worth of the worst parameter",
        "and noise_scale is 6; a quarter as many where it is half of that",
        "a scale above 15 is a sign of bounds of height that are too narrow",
    ):
        assert words in result.output, words
    assert "counts as 1" not in result.output
    run = invoke(*LINEAR, "--sampler", "barker", "--steps", "2", "--warmup", "0")
    assert "declared of every row: age within 20 and 60, height within 140 and 200" in run.output
    assert (
        "narrower --bounds, above all those of the label, or fewer parameters would help"
        in run.output
    )
    posterior = load("posterior.nc").posterior
    assert posterior["age"].attrs["unit"] == "height per 1 of age"
    without = invoke(
        *LINEAR, "--no-intercept", "--sampler", "barker", "--dry-run", "--prior-scale", "3"
    )
    assert (
        "(there is no intercept: height at the middle of all bounds is 170) and a standard "
        "deviation of 3 times noise_scale" in without.output
    )
    assert "Expect:" in without.output and "and noise_scale is" not in without.output


def test_the_levels_of_a_column_that_is_not_used_are_not_told():
    result = invoke(
        *LINEAR, "--features", "age", "--levels", "ill=0/1", "--sampler", "sgld", "--dry-run"
    )
    assert "intercept: height at the middle of all bounds\n" in result.output, result.output


def test_a_linear_row_says_as_much_as_is_guessed_where_noise_and_slopes_are_typical(folder):
    generator = np.random.default_rng(5)
    x, noise = generator.uniform(-1, 1, (4000, 2)), 0.2
    y = x @ [0.32, -0.24] + noise / 0.871 * generator.normal(size=4000)
    np.savez("typical.npz", a=x[:, 0], b=x[:, 1], y=y)
    bounds = dict.fromkeys("aby", Bounds(-1.0, 1.0))
    settings = Settings(("a", "b"), "y", None, bounds, {}, True, 10.0, None, None, None, None)
    problem = problem_of(ModelName.linear, settings)
    rows = rows_of(ModelName.linear, folder / "typical.npz", ",", ".", settings)
    position = np.array(
        [0.0, 0.32 / noise, -0.24 / noise, (1 / noise - HUBER) / (3 / 2) ** 0.5], np.float32
    )
    assert float(problem.model.unravel(position)["noise_scale"]) == pytest.approx(noise)
    hessians = jax.jit(jax.vmap(jax.hessian(problem.model.log_likelihood), (None, 0)))(
        position, rows
    )
    least = np.linalg.eigvalsh(-np.asarray(hessians).mean(0))[0]
    assert 0.8 * least < min(problem.information) < 1.25 * least
    about_intercept = -np.asarray(hessians).mean(0)[0, 0]
    assert 0.9 * about_intercept < problem.information[0] < 1.1 * about_intercept
    told = [
        "--bounds",
        "a=-1:1,b=-1:1,y=-1:1",
        "--label",
        "y",
        "--epsilon",
        "20",
        "--delta",
        "1e-4",
    ]
    output = invoke("linear", "typical.npz", *told, "--sampler", "sgld", "--dry-run").output
    numbers = (
        r"step size ([\d.e-]+)",
        r"(\d+) steps for each of 2 chains",
        r"roughly (\d+) independent draws' worth of the worst",
    )
    step_size, steps, draws = (float(re.search(number, output)[1]) for number in numbers)
    # The rule of `recipes`
    assert draws == pytest.approx(
        2 * steps * step_size * 4000 * min(problem.information) / 4, rel=0.1
    )


@pytest.mark.parametrize(
    ("noise", "code", "words"),
    [
        (1.1, "noise-scale-small", "is below 1.2, a 50th of the width"),
        (2.0, None, ""),
        (14.0, None, ""),
        (15.1, "noise-scale-unknown", "may be above 15, a quarter"),
    ],
)
def test_a_noise_that_is_small_or_large_beside_the_bounds_is_found(noise, code, words, folder):
    """There are 60 between them. Where it is large all coefficients are unknown too."""
    bounds = {"age": Bounds(20.0, 60.0), "height": Bounds(140.0, 200.0)}
    settings = Settings(("age",), "height", None, bounds, {}, True, 10.0, None, None, None, None)
    problem = problem_of(ModelName.linear, settings)
    found = problem.checks(
        SimpleNamespace(posterior={"noise_scale": xarray.DataArray(np.full((2, 50), noise))})
    )
    assert [finding.code for finding in found] == [code] * (code is not None)
    assert all(words in finding.text and "--bounds height" in finding.text for finding in found)
    assert [finding.is_severe for finding in found] == [code == "noise-scale-unknown"] * (
        code is not None
    )


@pytest.mark.slow
def test_a_run_that_lost_the_noise_scale_is_not_to_be_relied_on(folder):
    """Heights are at either end of their bounds.

    The model's finding is in the file and in the exit status, as others are.
    """
    write(folder / "table.csv", AGE, np.where(LABEL, 200, 140), LABEL)
    result = invoke(*LINEAR, "--sampler", "noise-aware", "--steps", "20")
    assert result.exit_code == NOT_RELIABLE, result.output
    (lost,) = (
        finding
        for finding in findings(load("posterior.nc"))
        if finding.code == "noise-scale-unknown"
    )
    assert lost.is_severe and result.output.count(lost.text) == 1


def test_a_column_called_intercept_is_not_taken_for_one(folder):
    bounds = {"intercept": Bounds(0.0, 1.0), "ill": Bounds(0.0, 4.0)}
    settings = Settings(
        ("intercept",), "ill", None, bounds, {}, False, 10.0, None, None, None, None
    )
    problem = problem_of(ModelName.linear, settings)
    assert float(problem.model.unravel(np.zeros(2, np.float32))["intercept"]) == 0


def test_an_origin_far_larger_than_its_unit_keeps_its_digits(folder):
    """In single precision 100000048 was the only value near 100000050."""
    far = [f"{height + 1e8:.1f}" for height in HEIGHT]
    write(folder / "far.csv", AGE, far, LABEL)
    bounds = {"age": Bounds(20.0, 60.0), "height": Bounds(1e8 + 140, 1e8 + 200)}
    linear = Settings(("age",), "height", None, bounds, {}, True, 10.0, None, None, None, None)
    gaussian = Settings(("height",), None, None, bounds, {}, True, 1.0, (100.0,), None, None, None)
    for model, settings, place in (
        (ModelName.linear, linear, "intercept"),
        (ModelName.gaussian, gaussian, "height"),
    ):
        problem = problem_of(model, settings)
        positions = np.linspace(0, 0.1, 101, dtype=np.float32)[:, None] * np.ones(
            problem.model.dimension, np.float32
        )
        found = np.asarray(jax.jit(jax.vmap(problem.model.unravel))(positions)[place])
        assert len(set(found)) == 101 and np.all(np.abs(found - 1e8 - 170) < 3)


@pytest.mark.parametrize("decimal", [".", ","])
def test_a_linear_model_is_in_the_units_of_the_table(decimal, folder):
    """A row's log-likelihood is that of its distance from the line that the named parameters tell,
    over the noise they tell.
    """
    text = [
        f"{age}; {height}".replace(".", decimal) for age, height in zip(AGE, HEIGHT, strict=True)
    ]
    (folder / "metric.csv").write_text("\n".join(["age;height", *text]))
    bounds = {"age": Bounds(20.0, 60.0), "height": Bounds(140.0, 200.0)}
    settings = Settings(("age",), "height", None, bounds, {}, True, 10.0, None, None, None, None)
    problem = problem_of(ModelName.linear, settings)
    position = np.array([0.3, -0.2, 1.5], np.float32)
    told = {name: float(value) for name, value in problem.model.unravel(position).items()}
    error = (HEIGHT - told["intercept"] - told["age"] * (AGE - 40)) / told["noise_scale"]
    huber = np.where(np.abs(error) <= 1.345, error**2 / 2, 1.345 * np.abs(error) - 1.345**2 / 2)
    features, response = rows_of(ModelName.linear, folder / "metric.csv", ";", decimal, settings)
    found = [
        float(problem.model.log_likelihood(position, (features[i], response[i])))
        for i in range(0, N, 20)
    ]
    np.testing.assert_allclose(
        found, (np.log(30 / told["noise_scale"]) - huber)[::20], rtol=1e-4, atol=1e-4
    )


REFUSED = [
    (
        [
            "logistic",
            "table.csv",
            "--features",
            "age,height",
            "--bounds",
            "age=20:60",
            "--label",
            "ill",
            *PROMISE,
        ],
        "no bounds or levels for height: declare them, as in --bounds height=LOW:HIGH, or "
        "--levels height=ONE/TWO",
    ),
    (
        [*LOGISTIC, "--levels", "age=old/young"],
        "bounds and levels for age: a column of numbers takes --bounds",
    ),
    ([*LOGISTIC, "--levels", "sex"], "levels 'sex' must read COLUMN=ONE/TWO"),
    (
        ["logistic", "intercepts.csv", "--label", "ill", "--bounds", "intercept=0:1", *PROMISE],
        "two parameters would have one name",
    ),
    (
        ["gaussian", "both.npz", *TWO, "--levels", "sex=f/m", "--features", "age,height", *PROMISE],
        "model takes no --levels",
    ),
    (
        ["logistic", "table.csv", "--label", "ill", *PROMISE],
        "name the columns that explain ill by their public limits",
    ),
    (["logistic", "table.csv", *TWO, *PROMISE], "needs --label: the column to explain"),
    (["gaussian", "both.npz", *TWO, "--label", "age", *PROMISE], "and the label not among them"),
    (
        ["gaussian", "both.npz", *TWO, "--label", "ill", *PROMISE],
        "the gaussian model takes no --label",
    ),
    (
        ["linear", "table.csv", *TWO, *PROMISE],
        "the linear model needs --label: the column to explain",
    ),
    (
        ["linear", "table.csv", "--bounds", "age=20:60", "--label", "height", *PROMISE],
        "no bounds for height: declare them, as in --bounds height=LOW:HIGH, from public knowledge",
    ),
    (
        [*LINEAR, "--levels", "height=short/tall"],
        "--levels are for the columns that explain, not for height",
    ),
    ([*LINEAR, "--positive", "tall"], "the linear model takes no --positive: leave it out"),
    (
        [*LINEAR[:2], "--label", "age", "--bounds", "age=20:60,weight=1:2", *PROMISE],
        "has no column 'weight'",
    ),
    (
        ["linear", "noise.csv", "--label", "ill", "--bounds", "ill=0:1,noise_scale=1:2", *PROMISE],
        "a column cannot be named noise_scale: that is a parameter of its own; rename it",
    ),
    ([*LINEAR, "--epsilon", "1"], "hopeless: with 173 rows and 3 parameters"),
    (
        [
            "logistic",
            "table.csv",
            "--features",
            "age,weight",
            "--bounds",
            "age=1:2,weight=1:2",
            "--label",
            "ill",
            *PROMISE,
        ],
        "has no column 'weight' in its first line: is it spelled like that there",
    ),
    (
        ["logistic", "table.csv", *TWO, "--label", "ill", "--epsilon", "0", "--delta", "1e-4"],
        "epsilon=0.0 must be positive",
    ),
    (
        ["logistic", "table.csv", *TWO, "--label", "ill", "--epsilon", "1", "--delta", "1"],
        "delta=1.0 must lie in (0, 1)",
    ),
    (
        [*LOGISTIC[:3], "age", "--bounds", "age=60:20", "--label", "ill", *PROMISE],
        "the lower first",
    ),
    ([*UNNAMED, "--clip", "0"], "must be positive"),
    ([*UNNAMED, "--step-size", "-1"], "must be positive"),
    ([*UNNAMED, "--max-move", "0"], "max_move=0.0 must be positive"),
    ([*LOGISTIC, "--sampler", "lazy-barker", "--kappa", "2"], "kappa=2.0 must lie in (0, 1]"),
    (
        [*LOGISTIC, "--sampler", "penalty", "--noise-multiplier", "0"],
        "noise_multiplier=0.0 must be positive",
    ),
    ([*LOGISTIC, "--sampler", "exponential-penalty"], "for this one take penalty"),
    ([*LOGISTIC, "--sampler", "hmc", "--max-move", "0.1"], "--max-move: hmc takes these from"),
    (
        ["circle", "ages.npy", "--bounds", "0=0:60", "--sharpness", "0.001", *PROMISE]
        + ["--sampler", "sgnht"],
        "sgnht has no settings by simulation for this model",
    ),
    (
        [*UNNAMED, "--max-move", "100"],
        "allows 0 steps of 1 chains: use fewer chains, shorter moves",
    ),
    (
        [*LOGISTIC, "--steps", "5", "--thin", "2"],
        "--steps 5 must be positive, and a multiple of --thin 2",
    ),
    (
        [*UNNAMED, "--sampler", "noise-aware", "--thin", "3", "--dry-run"],
        "--steps 1000 must be positive, and a multiple of",
    ),
    (
        [
            *UNNAMED,
            "--sampler",
            "noise-aware",
            "--ledger",
            "shared.json",
            "--shared-by",
            "zcdp",
            "--steps",
            "2",
        ],
        "noise-aware shares a budget by parts: leave --shared-by out and give --part",
    ),
    (
        [*LOGISTIC, "--part", "1/3"],
        "barker takes steps and no --part: give --shared-by and --steps, or",
    ),
    (
        [*UNNAMED, "--sampler", "noise-aware", "--part", "4/3"],
        "--part 4/3 must be above 0 and at most 1, as in --part 1/3",
    ),
    (
        [*UNNAMED, "--sampler", "noise-aware", "--part", "1/0"],
        "--part 1/0 must be above 0 and at most 1",
    ),
    (
        [*LOGISTIC, "--positive", "yes"],
        "--positive and --negative go together: declare both levels of ill, as in --positive yes",
    ),
    ([*LOGISTIC, "--negative", "no"], "--positive and --negative go together"),
    ([*LINEAR, "--negative", "small"], "the linear model takes no --negative: leave it out"),
    ([*LOGISTIC, "--chains", "0"], "--chains 0 must be at least 1"),
    (
        [*LOGISTIC[:1], "no.csv.gz", *LOGISTIC[2:]],
        "no.csv.gz could not be read: it is no whole gzip file",
    ),
    (["logistic", "people.xlsx", *LOGISTIC[2:]], "people.xlsx must end with one of .csv"),
    (["gaussian", "both.npz", "--bounds", "a/b=0:1,a|b=0:1", *PROMISE], "every column once"),
    ([*LOGISTIC, "--out", "spent.json"], "--out and --ledger are both spent.json"),
    ([*LOGISTIC, "--variances", "3"], "the logistic model takes no --variances: leave it out"),
    ([*LOGISTIC, "--decimal", ","], "--decimal , must be . or , and not the --delimiter"),
    (
        [*LOGISTIC, "--rows-per-person", "4"],
        "the number of rows is private here: declare --capacity",
    ),
    (
        ["mixture", "ages.npy", "--bounds", "0=0:60", "--variances", "100", *PROMISE],
        "hopeless: with 173 rows and 2 parameters",
    ),
    ([*LOGISTIC, "--warmup", "1"], "warmup=1.0 must lie in [0, 1)"),
    ([*LOGISTIC, "--out", "missing/posterior.nc"], "its folder does not exist"),
    ([*LOGISTIC, "--out", "ages.npy"], "exists: name another file"),
    (
        [*LOGISTIC, "--neighbours", "add-remove"],
        "the number of rows is private here: declare --capacity, a public bound",
    ),
    ([*LOGISTIC, "--capacity", "5"], "capacity=5 differs from n=173"),
    (["gaussian", "both.npz", *TWO, *PROMISE], "needs --variances: 2 known variances"),
    (
        ["gaussian", "both.npz", *TWO, "--variances", "1,x", *PROMISE],
        "--variances 1,x must be numbers",
    ),
    (
        ["gaussian", "both.npz", *TWO, "--variances", "1,-1", *PROMISE],
        "must be positive and finite",
    ),
    (
        ["banana", "both.npz", *TWO, "--variances", "1,1", "--curvature", "1", *PROMISE],
        "no proved bound: choose --clip",
    ),
    (["circle", "ages.npy", "--bounds", "0=0:60", *PROMISE], "needs --sharpness"),
    (
        ["circle", "both.npz", *TWO, "--sharpness", "1", *PROMISE],
        "takes one column, 2 were named: age, height",
    ),
    (
        ["mixture", "ages.npy", "--bounds", "0=0:60", *PROMISE],
        "needs --variances: 1 known variance",
    ),
    (["logistic", "nowhere.csv", *TWO, "--label", "ill", *PROMISE], "does not exist"),
    (["cubic", "table.csv", *TWO, *PROMISE], "cubic"),
    ([*LOGISTIC, "--shared-by", "best"], "gaussian-dp"),
    ([*LOGISTIC, "--seed", 2**32], "Invalid value for '--seed'"),
    ([*LOGISTIC, "--seed", 2**70], "Invalid value for '--seed': "),
]


@pytest.mark.parametrize(("arguments", "words"), REFUSED, ids=[words for _, words in REFUSED])
def test_bad_input_is_refused_and_nothing_is_spent(arguments, words, folder):
    result = invoke(*arguments, "--ledger", "spent.json")
    # The help box around a usage error breaks lines.
    assert words in result.output or words in re.sub(r"[\s│]+", " ", result.output), result.output
    assert result.exit_code == 2
    assert not (folder / "spent.json").exists() and not (folder / "posterior.nc").exists()


EQUAL = [("", "n/a"), ("60", "1e9")]  # the bounds are 20 and 60


@pytest.mark.parametrize(
    "cells", [EQUAL[0], pytest.param(EQUAL[1], marks=pytest.mark.slow)], ids=str
)
def test_bad_cells_do_not_show(cells, folder, monkeypatch):
    monkeypatch.setattr(stream, "fresh_secret", lambda: np.arange(16, dtype=np.uint32))
    outcomes = []
    for cell in cells:
        write(folder / "table.csv", [cell, *AGE[1:]], HEIGHT, LABEL)
        (folder / "posterior.nc").unlink(missing_ok=True)
        result = invoke(*LOGISTIC, "--steps", "2")
        check_is_done(result)
        values = {
            name: draws.values.tobytes() for name, draws in load("posterior.nc").posterior.items()
        }
        outcomes.append((result.stdout, result.stderr, values))
    assert all(outcome == outcomes[0] for outcome in outcomes)


@pytest.mark.parametrize("model", ["gaussian", "mixture"])
def test_cells_beyond_the_type_of_rows_are_not_told(model, folder):
    """A warning would be about them."""
    cells = ["1e45", *AGE[1:]]
    write(folder / "wide.csv", cells, HEIGHT, LABEL)
    bounds = {"age": Bounds(0.0, 1e50)}
    settings = Settings(("age",), None, None, bounds, {}, True, 1.0, (1.0,), None, None, None)
    with np.errstate(over="raise", invalid="raise"):
        rows = rows_of(ModelName(model), folder / "wide.csv", ",", ".", settings)
    assert len(rows) == N


def test_a_private_number_of_rows_is_not_told():
    options = ["--neighbours", "add-remove", "--capacity", "500"]
    result = invoke(*LOGISTIC, *options, "--steps", "2")
    check_is_done(result)
    refused = [
        invoke(*LOGISTIC, "--neighbours", "add-remove", "--capacity", capacity, "--out", "o.nc")
        for capacity in (0, 9)
    ]
    assert all(found.exit_code == 2 for found in refused)
    assert not any(str(N) in found.output for found in (result, *refused))
    assert "at most 500 rows" in result.output
    assert "in proportion fewer if the table is not full" in result.output


def test_few_draws_and_a_large_delta_are_told():
    result = invoke(*LOGISTIC, "--steps", "2", "--delta", "0.5", "--dry-run")
    assert re.search(
        r"FEW: more steps \(\d+ would fit\), a larger table or budget or fewer features would help",
        result.output,
    )
    several = invoke(*LOGISTIC, "--steps", "2", "--chains", "2", "--dry-run")
    assert "fewer features or fewer chains would help" in several.output
    assert "delta = 0.5 is above 1/n" in result.output


@pytest.mark.slow
def test_settings_by_simulation_come_with_a_forecast_or_are_refused():
    """Of 173 rows nothing can be hoped; with typed --steps the run is taken all the same."""
    sgnht = [*UNNAMED, "--sampler", "sgnht", "--dry-run"]
    refused = invoke(*sgnht)
    assert refused.exit_code == 2
    assert "hopeless: with 173 rows, 3 parameters and epsilon = 4 sgnht gives" in refused.output
    forced = invoke(*sgnht, "--steps", "2")
    assert "posterior standard deviations with all" in forced.output
    assert "noise-aware, the default, is off by about" in forced.output


def test_a_budget_that_buys_nothing_is_not_recommended():
    """A noisy ratio at epsilon = 400 is limited by its distance from a Gaussian; an accept bit has
    none.
    """
    wide = ["--epsilon", "400", "--steps", "2", "--dry-run"]
    ratio, bit = (
        invoke(*LOGISTIC, *wide, "--sampler", name).output for name in ("penalty", "barker")
    )
    assert forecast.HELD_BACK in ratio and "larger table or budget" not in ratio
    assert forecast.HELD_BACK not in bit


def test_a_crash_exits_with_one_and_keeps_the_draws(monkeypatch):
    def strike(self, num_steps, info):
        raise OSError("disk")

    monkeypatch.setattr(Progress, "advance", strike)
    result = invoke(*LOGISTIC, "--steps", "10")
    assert result.exit_code == 1
    assert "The budget is spent; finished draws are in posterior.nc" in result.output
    assert load("posterior.nc").posterior.sizes["draw"] == 1


@pytest.mark.parametrize("module", [cli, cli.account.commands], ids=["cli", "account"])
def test_a_traceback_shows_no_local_values(module):
    """They are rows.

    Said outright everywhere: what typer does by default depends on its version.
    """
    source = inspect.getsource(module)
    assert source.count("typer.Typer(") == source.count("pretty_exceptions_show_locals=False") > 0


def test_the_version_is_told():
    assert CliRunner().invoke(main, ["--version"]).output.strip() == dpmcmc.__version__


def test_help_is_quick_and_complete():
    result = invoke("--help")
    assert result.exit_code == 0
    for option in ("--epsilon", "--bounds", "--sampler", "--ledger", "--out"):
        assert option in result.output


def settings_of(columns, bounds, **others):
    given = {
        "variances": None,
        "curvature": None,
        "sharpness": None,
        "position_bound": None,
        "prior_scale": 1.0,
    } | others
    return Settings(
        columns=columns,
        label=None,
        positive=None,
        bounds=bounds,
        levels={},
        intercept=True,
        **given,
    )


def log_ratios(problem, rows, old, new):
    """Of the rows, and of the prior."""
    with jax.enable_x64(True):
        each = jax.vmap(problem.model.log_likelihood, (None, 0))
        rows, old, new = (jax.numpy.asarray(value, float) for value in (rows, old, new))
        found = (
            each(new, rows) - each(old, rows),
            problem.model.log_prior(new) - problem.model.log_prior(old),
        )
        return jax.tree.map(np.asarray, found)


def test_a_gaussian_is_that_of_the_table_and_its_prior_reaches_all_corners(folder):
    """Between any two positions, by the means that people get; the radius takes in every allowed
    row.
    """
    bounds, variances = (
        {"age": Bounds(20.0, 60.0), "height": Bounds(140.0, 200.0)},
        np.array([100.0, 25.0]),
    )
    settings = settings_of(("age", "height"), bounds, variances=tuple(variances), prior_scale=0.7)
    problem = problem_of(ModelName.gaussian, settings)
    rows = rows_of(ModelName.gaussian, folder / "both.npz", ",", ".", settings)
    old, new = np.array([0.3, -1.0]), np.array([-0.5, 2.0])
    means = [
        np.array([float(value) for value in problem.model.unravel(np.float32(place)).values()])
        for place in (old, new)
    ]
    cells = np.column_stack([AGE, np.clip(HEIGHT, 140, 200)])
    middle, half = np.array([40.0, 170.0]), np.array([20.0, 30.0])
    logs, priors = zip(
        *(
            (
                -((cells - mean) ** 2 / variances).sum(1) / 2,
                -(((mean - middle) / half / 0.7) ** 2).sum() / 2,
            )
            for mean in means
        ),
        strict=True,
    )
    ratios, prior_ratio = log_ratios(problem, rows, old, new)
    np.testing.assert_allclose(ratios, logs[1] - logs[0], rtol=1e-4, atol=1e-4)
    assert float(prior_ratio) == pytest.approx(priors[1] - priors[0], rel=1e-5)
    corner = np.float32(0.9999 * half / variances**0.5)
    assert (
        np.isfinite(problem.model.log_prior(corner))
        and problem.model.log_prior(np.float32(1.001) * corner) == -np.inf
    )
    np.testing.assert_allclose(problem.prior_precision, variances / (0.7 * half) ** 2)
    np.testing.assert_array_equal(problem.information, 1)
    budget = Budget(8, 1e-4)
    curator = dpmcmc.Curator(rows, problem.model, budget)
    chosen = recipes.choose(SamplerName.sgld, True, problem, curator, 2, recipes.ByHand(), 0.5)
    # Curvature is what is proved: the step is a fifth
    expected = 5 * (N * 2**0.5 + max(problem.prior_precision))
    assert 1 / recipes.step_size(chosen.query, budget) == pytest.approx(expected, rel=2e-3)


def test_other_models_are_those_of_the_table(folder):
    np.savez("signs.npz", x=np.array([-60.0, 5.0, 99.0]), y=np.array([1.0, 2.0, 3.0]))
    bounds = {"x": Bounds(-60.0, 10.0), "y": Bounds(0.0, 9.0)}
    given = {
        ModelName.circle: settings_of(("x",), bounds, sharpness=0.001),
        ModelName.mixture: settings_of(("x",), bounds, variances=(100.0,), position_bound=20.0),
        ModelName.banana: settings_of(
            ("x", "y"), bounds, variances=(9.0, 4.0), curvature=0.1, prior_scale=2.0
        ),
    }
    circle, mixture, banana = (problem_of(model, settings) for model, settings in given.items())
    table = folder / "signs.npz"
    of_circle, of_mixture, of_banana = (
        rows_of(model, table, ",", ".", settings) for model, settings in given.items()
    )
    for problem, rows, expected in (
        (circle, of_circle, dpmcmc.models.circle(0.001, 60.0)),
        (mixture, of_mixture, dpmcmc.models.mixture(100.0, 60.0, 20.0)),
        (banana, of_banana, dpmcmc.models.banana([9.0, 4.0], 0.1, prior_scale=2.0)),
    ):
        assert problem.model.lipschitz == expected.lipschitz
        for found, wanted in zip(
            log_ratios(problem, rows, np.array([3.0, 4.0]), np.array([-5.0, 15.0])),
            log_ratios(
                problem._replace(model=expected), rows, np.array([3.0, 4.0]), np.array([-5.0, 15.0])
            ),
            strict=True,
        ):
            np.testing.assert_array_equal(found, wanted)
        assert np.isfinite(problem.model.log_prior(jax.numpy.asarray(problem.start, np.float32)))
    for rows in (of_circle, of_mixture):
        np.testing.assert_array_equal(rows, [-60, 5, 10])
    np.testing.assert_array_equal(of_banana, [[-60, 1], [5, 2], [10, 3]])
    # At half the largest radius the ring has the precision 8 n a r^2, and at a mode of the mixture
    # a quarter of what is said.
    np.testing.assert_allclose(
        [*circle.information, *mixture.information], [2 * 0.001 * 3600] * 2 + [1 / 400] * 2
    )


def test_a_walk_asks_what_was_chosen_and_pays_for_its_longest_move():
    model, budget = dpmcmc.models.logistic(2, radius=3.0), Budget(4, 1e-4)
    problem = Problem(model, np.zeros(2), np.array([0.5, 0.2]), 2.0)
    curator = SimpleNamespace(capacity=1000, budget=budget)
    public = recipes.moves([0.5, 0.2], 2.0, 1000).max_move
    for typed, longest, clip in (
        (recipes.ByHand(None, None, None, None), public, 3.0),
        (recipes.ByHand(2.0, 0.3, None, 7.0), 0.3 * 2**0.5, 2.0),
        (recipes.ByHand(4.0, 0.3, 0.1, 7.0), 0.1, 4.0),
    ):
        walks = [SamplerName(name) for name in STEPS_PER_DRAW]
        found = {name: recipes.as_typed(name, problem, curator, typed, 0.25) for name in walks}
        ratio, bit = (
            typed.noise_multiplier or recipes.noise_multiplier(name, clip, longest, budget)
            for name in ("penalty", "penalty-bit")
        )
        expected = {
            "barker": dpmcmc.queries.Accept(dpmcmc.Barker(), clip * longest),
            "lazy-barker": dpmcmc.queries.Accept(dpmcmc.LazyBarker(0.25), clip * longest),
            "penalty": dpmcmc.queries.LogRatio(clip, ratio),
            "penalty-bit": dpmcmc.queries.PenaltyAccept(clip, bit, longest),
        }
        assert {name.value: chosen.query for name, chosen in found.items()} == expected
        is_proved = {"no row reaches it" in chosen.words for chosen in found.values()}
        assert is_proved == {clip >= 3}


def test_what_steps_are_worth_is_told_of_all_chains_and_of_lazy_ones():
    model, budget = dpmcmc.models.logistic(2, radius=3.0), Budget(4, 1e-4)
    problem = Problem(model, np.zeros(2), np.array([0.5, 0.2]), 2.0, is_measured=True)
    curator = SimpleNamespace(capacity=10**6, budget=budget, max_steps=lambda initial, plan: 700)
    for name in (SamplerName.barker, SamplerName.lazy_barker):
        chosen = recipes.Recipe(None, None, name, "")
        expected = recipes.effective_draws(
            "barker", 2100 * (0.25 if "lazy" in name.value else 1), 2
        )
        assert recipes.most_draws(curator, chosen, problem, 3, 0.25) == pytest.approx(expected)
    gradient = dpmcmc.queries.Gradient(3.0, 50.0)
    all_steps = langevin_steps(50.0, budget)
    for num_steps in (all_steps, all_steps // 3):
        found = recipes.draws_worth(
            curator, recipes.Recipe(None, gradient, SamplerName.sgld, ""), problem, num_steps, 0.5
        )
        assert found == pytest.approx(
            num_steps / all_steps / forecast.forecast_error("sgld", 10**6, 2, budget) ** 2
        )
