"""The posterior as InferenceData: named parameters, released statistics, the statement, and a round
trip through NetCDF.
"""

import errno
import json
import os
import re
import shutil
from pathlib import Path
from typing import NamedTuple

import h5py
import jax.numpy as jnp
import numpy as np
import pytest
import xarray
from typer.testing import CliRunner

from dpmcmc import findings, load, save, statement_of, summary
from dpmcmc.accounting import verify
from dpmcmc.accounting.statement import FederatedStatement
from dpmcmc.cli import main
from dpmcmc.results import arviz as results
from dpmcmc.results.summary import rounded_table
from tests import tiny

pytestmark = pytest.mark.usefixtures("quick_compilation")


class Info(NamedTuple):
    is_accepted: np.ndarray
    log_ratio: np.ndarray


def unravel(position):
    return {"location": position[0], "scale": jnp.exp(position[1]), "weights": position[2:]}


POSITIONS = np.random.default_rng(0).normal(size=(2, 10, 5)).astype(np.float32)
INFO = Info(POSITIONS[..., 0] > 0, POSITIONS[..., 1])


def make_statement():
    return tiny.make_curator(fixed_secret=None).grant({tiny.RATIO: 20}).statement("a note")


def make(**options):
    statement = make_statement()
    return results.from_draws(POSITIONS, INFO, unravel, statement, **options), statement


def test_parameters_have_their_names_and_shapes():
    result, _ = make()
    assert set(result.groups()) == {"posterior", "sample_stats"}
    assert {name: values.shape for name, values in result.posterior.items()} == {
        "location": (2, 10),
        "scale": (2, 10),
        "weights": (2, 10, 3),
    }
    np.testing.assert_allclose(result.posterior["scale"], np.exp(POSITIONS[..., 1]), rtol=1e-6)


def test_warmup_has_groups_of_its_own():
    result, _ = make(num_warmup=4, thin=3)
    assert set(result.groups()) == {
        "posterior",
        "sample_stats",
        "warmup_posterior",
        "warmup_sample_stats",
    }
    np.testing.assert_array_equal(result.warmup_posterior["location"], POSITIONS[:, :4, 0])
    np.testing.assert_array_equal(result.posterior["location"], POSITIONS[:, 4:, 0])
    assert result.sample_stats.sizes["draw"] == 6 and result.warmup_sample_stats.sizes["draw"] == 4
    assert result.attrs["thinning"] == 3


@pytest.mark.parametrize("num_warmup", [0, 4])
def test_netcdf_keeps_everything(num_warmup, tmp_path):
    result, statement = make(num_warmup=num_warmup)
    save(result, tmp_path / "posterior.nc")
    loaded = load(tmp_path / "posterior.nc")
    assert loaded.groups() == result.groups()
    for group in result.groups():
        for name, values in result[group].items():
            np.testing.assert_array_equal(loaded[group][name], values)
            assert loaded[group][name].dtype == values.dtype
    assert statement_of(loaded) == str(statement)
    assert loaded.attrs["epsilon"] == statement.epsilon and loaded.attrs["delta"] == statement.delta
    ledger = json.loads(loaded.posterior.attrs["dpmcmc_ledger"])
    assert ledger == json.loads(statement.ledger_json())
    assert ledger["entries"][0]["count"] == 20
    assert os.listdir(tmp_path) == ["posterior.nc"]  # no draft is left behind


def test_an_infinite_epsilon_survives_the_round_trip(tmp_path):
    save(tiny.run(num_steps=1), tmp_path / "posterior.nc")
    loaded = load(tmp_path / "posterior.nc")
    assert loaded.attrs["epsilon"] == np.inf
    assert "NO PRIVACY IS PROMISED" in statement_of(loaded)


def test_what_is_no_posterior_is_named(tmp_path):
    (tmp_path / "table.csv").write_text("age,income")
    with pytest.raises(ValueError, match=r"table\.csv is no posterior: it must be a NetCDF file"):
        load(tmp_path / "table.csv")
    with pytest.raises(FileNotFoundError, match=r"nowhere\.nc is no file"):
        load(tmp_path / "nowhere.nc")
    with pytest.raises(ValueError, match="its folder does not exist; make it first"):
        save(make()[0], tmp_path / "missing" / "posterior.nc")


@pytest.mark.parametrize("read", [load, verify.read], ids=["load", "ledger"])
def test_a_damaged_posterior_is_named_as_one(read, tmp_path):
    """In the words of this library: those of HDF5 are about its object headers and its links."""
    path = tmp_path / "posterior.nc"
    save(tiny.run(num_steps=8), path)
    whole, generator, num_refused = path.read_bytes(), np.random.default_rng(0), 0
    for size in (100, len(whole) // 2, *(len(whole),) * 8):
        damaged = np.frombuffer(whole[:size], np.uint8).copy()
        damaged[generator.integers(8, size, 100)] ^= 0xFF
        path.write_bytes(damaged.tobytes())
        try:
            read(path)
        except json.JSONDecodeError:  # in the text of the ledger
            pass
        except ValueError as error:
            assert "posterior.nc is no posterior: it must be a NetCDF file" in str(error)
            num_refused += 1
    assert num_refused >= 5


def test_a_file_of_other_arrays_is_no_posterior(tmp_path):
    xarray.Dataset({"x": ("row", np.zeros(3))}).to_netcdf(tmp_path / "other.nc", engine="h5netcdf")
    with pytest.raises(ValueError, match=r"other\.nc is no posterior: it must be a NetCDF file"):
        load(tmp_path / "other.nc")


@pytest.mark.skipif(
    not Path("/proc/self").is_dir(), reason="no folder in which nobody can make a file"
)
def test_a_file_that_cannot_be_made_is_named_with_the_reason():
    with pytest.raises(
        OSError, match=re.escape(f"{os.strerror(errno.ENOENT)}: '/proc/posterior.nc'")
    ) as caught:
        save(make()[0], "/proc/posterior.nc")
    assert "synchronously" not in str(caught.value)


def test_saving_again_replaces_the_file(tmp_path):
    result, _ = make()
    save(result, tmp_path / "posterior.nc")
    save(load(tmp_path / "posterior.nc"), tmp_path / "posterior.nc")
    np.testing.assert_array_equal(
        load(tmp_path / "posterior.nc").posterior["location"], POSITIONS[..., 0]
    )


def test_what_could_not_be_written_leaves_no_half_of_it(monkeypatch, tmp_path):
    """A run tries again after every block: the halves would keep a full disk full."""
    result, _ = make()

    def fail(self, path, **options):
        Path(path).write_bytes(b"half")
        raise OSError("no space left")

    monkeypatch.setattr(type(result), "to_netcdf", fail)
    with pytest.raises(OSError, match="no space left"):
        save(result, tmp_path / "posterior.nc")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("sampler", "expected"),
    [
        (tiny.PENALTY, {"acceptance", "log_ratio", "move_length", "is_outside"}),
        (tiny.BARKER, {"acceptance", "move_length", "is_outside"}),
    ],
    ids=["penalty", "Barker"],
)
def test_statistics_are_what_was_released(sampler, expected):
    statistics = tiny.run(sampler=sampler).sample_stats
    assert set(statistics) == expected
    assert statistics["acceptance"].dtype == bool
    moved = np.diff(tiny.means(tiny.run(sampler=sampler)), axis=1) != 0
    np.testing.assert_array_equal(statistics["acceptance"][:, 1:], moved)


def test_many_chains_and_few_draws_need_no_warning():
    assert tiny.means(tiny.run(num_chains=3, num_steps=2)).shape == (3, 2)


def test_the_summary_has_a_line_for_every_component():
    text = summary(make()[0])
    names = {line.split()[0] for line in text.splitlines()[1:]}
    assert names == {"location", "scale", "weights[0]", "weights[1]", "weights[2]"}
    assert "ess_bulk" in text and "r_hat" in text


def test_the_summary_has_two_digits_of_the_standard_deviation():
    draws = np.random.default_rng(2).normal(size=(2, 400, 3)) * np.array([0.0123, 1.23, 123.0])
    result = results.from_draws(
        draws, None, lambda p: {"a": p[0], "b": p[1], "c": p[2]}, make_statement()
    )
    table = rounded_table(result)
    assert [len(text.partition(".")[2]) for text in table["sd"]] == [3, 1, 0]


def drifting(share, distance, num_draws=400):
    """Two chains that begin at a distance, for this share of the draws, and are then where they
    belong.
    """
    draws = np.random.default_rng(0).normal(size=(2, num_draws, 1))
    draws[:, : int(share * num_draws)] += distance
    return results.from_draws(draws, None, lambda position: {"x": position[0]}, make_statement())


def severe_codes(result):
    return [finding.code for finding in findings(result) if finding.is_severe]


def test_chains_that_arrive_together_and_late_are_found():
    """R-hat sees chains that differ.

    With normal draws a distance of 5 has no chance worth stating.
    """
    (drift,) = (finding for finding in findings(drifting(0.08, 30.0)) if finding.code == "drift")
    assert (
        drift.is_severe
        and drift.numbers["parameter"] == "x"
        and 29 < drift.numbers["distance"] < 31
    )
    for share, distance, num_draws in (
        (0.0, 0.0, 400),
        (0.02, 30.0, 400),
        (0.08, 2.0, 400),
        (0.0, 0.0, 40),
    ):
        assert "drift" not in severe_codes(drifting(share, distance, num_draws))


GOOD = np.random.default_rng(1).normal(size=(2, 400))
AT_SEVEN = np.arange(400) == 7


def judged(**variables):
    """Parameters by name as a result that was judged."""
    draws = np.stack(list(variables.values()), axis=-1)
    return results.from_draws(
        draws, None, lambda position: dict(zip(variables, position, strict=True)), make_statement()
    )


@pytest.mark.parametrize("name", ["a", "z"])
@pytest.mark.parametrize(
    "bad, expected",
    [
        (GOOD + [[0.0], [5.0]], {"r-hat"}),
        (np.where(AT_SEVEN, np.nan, GOOD), {"not-finite", "no-effective-draws"}),
        (np.where(AT_SEVEN, np.inf, GOOD), {"not-finite"}),
    ],
    ids=["torn", "NaN", "infinite"],
)
def test_one_bad_parameter_is_enough(name, bad, expected):
    assert severe_codes(judged(good=GOOD)) == []
    result = judged(**{"good": GOOD, name: bad})
    assert expected <= set(severe_codes(result)) and "not-checked" not in severe_codes(result)
    assert all(
        finding.numbers["parameters"] == [name] for finding in findings(result) if finding.is_severe
    )


def test_one_parameter_among_many_is_enough():
    """On average all would be well."""
    many = {
        f"p{index}": np.random.default_rng(index).normal(size=(2, 400)) for index in range(2, 32)
    }
    assert severe_codes(judged(**many)) == []
    assert {"r-hat", "few-effective-draws"} <= set(
        severe_codes(judged(**many, torn=GOOD + [[0.0], [1.0]]))
    )


def test_what_was_not_judged_has_no_findings():
    import arviz

    with pytest.raises(
        ValueError, match="there are no findings here: dpmcmc has not made this posterior"
    ):
        findings(arviz.from_dict(posterior={"x": GOOD}))


def test_sums_of_draws_are_taken_in_double_precision():
    """In float32 the mean of these was off by a standard deviation."""
    draws = np.float32(2004 + 0.05 * np.random.default_rng(0).normal(size=(4, 5000, 2)))
    result = results.from_draws(draws, None, lambda position: {"x": position}, make_statement())
    means = results.summary_table(result)["mean"].to_numpy()
    np.testing.assert_allclose(means, draws.astype(float).mean((0, 1)), rtol=0, atol=1e-6)


def test_the_summary_has_the_order_of_the_model(tmp_path):
    """ArviZ, NetCDF and JAX sort by name."""
    draws = np.random.default_rng(0).normal(size=(2, 50, 3)).astype(np.float32)
    made = results.from_draws(
        draws, None, lambda position: {"z": position[0], "b": position[1:]}, make_statement(), 10
    )
    save(made, tmp_path / "posterior.nc")
    for result in (made, load(tmp_path / "posterior.nc")):
        assert list(results.summary_table(result).index) == ["z", "b[0]", "b[1]"]
        assert list(result.posterior) == ["z", "b"] == list(result.warmup_posterior)
        np.testing.assert_array_equal(result.posterior["z"], draws[:, 10:, 0])
        # What one computes from it is there, too
        result.posterior["a"] = np.exp(result.posterior["z"])
        result.posterior = result.posterior.drop_vars("b")
        assert list(results.summary_table(result).index) == ["z", "a"]
    result.to_netcdf(tmp_path / "changed.nc", engine="h5netcdf")
    changed = load(tmp_path / "changed.nc")
    assert list(changed.posterior) == ["z", "a"] and list(changed.warmup_posterior) == ["z", "b"]


def test_the_summary_of_very_few_draws_is_quiet(capsys):
    assert "mean" in summary(tiny.run(num_steps=1))
    assert capsys.readouterr() == ("", "")


FORGED = {
    "epsilon": 0.001,
    "delta": 1e-12,
    "accountant": "magic",
    "rows_per_person": [1, 2],
    "privacy_statement": "Promise: (0.001, 1e-06)",
}


@pytest.fixture(scope="module")
def promised(tmp_path_factory):
    """The file of a run with a promise."""
    path = tmp_path_factory.mktemp("promised") / "posterior.nc"
    tiny.run(tiny.make_curator(fixed_secret=None), path=path)
    return path


@pytest.mark.parametrize("name, forged", FORGED.items())
@pytest.mark.parametrize("group", ["posterior", "/"])
def test_a_file_that_says_something_else_than_its_ledger_is_not_reproduced(
    group, name, forged, promised, tmp_path
):
    shutil.copy(promised, tmp_path)
    arguments = ["account", "ledger", str(tmp_path / "posterior.nc"), "--json"]
    assert CliRunner().invoke(main, arguments).exit_code == 0
    with h5py.File(tmp_path / "posterior.nc", "a") as file:
        file[group].attrs[name] = forged
    found = CliRunner().invoke(main, arguments)
    assert (
        found.exit_code == 1
        and '"is_reproduced": false' in found.output
        and "contradicts its own ledger" in found.output
    )


def test_what_is_promised_is_what_the_line_of_the_promise_says(tmp_path):
    """The true numbers in a note do not make up for false ones in the promise."""
    path = tmp_path / "posterior.nc"
    tiny.run(tiny.make_curator(fixed_secret=None), path=path)
    assert verify.contradictions(path) == []
    with h5py.File(path, "a") as file:
        lines = file["posterior"].attrs["privacy_statement"].splitlines()
        (place,) = (number for number, line in enumerate(lines) if line.startswith("  Promise:"))
        true = lines[place].partition(":")[2].strip()
        lines[place] = "  Promise:   (0.01, 1e-12)-differential privacy"
        file["posterior"].attrs["privacy_statement"] = "\n".join(
            [*lines, f"  Note:      not {true}"]
        )
    assert verify.contradictions(path) == [
        "the printed statement says Promise:   (0.01, 1e-12)-differential privacy",
        f"the printed statement says Note:      not {true}",
    ]


def check_refused(together, tmp_path, words, told):
    """By all that would give draws a statement: in these words, and, of a file, in those."""
    for refuse in (statement_of, lambda result: save(result, tmp_path / "both.nc")):
        with pytest.raises(ValueError, match=words):
            refuse(together)
    together.to_netcdf(str(tmp_path / "both.nc"), engine="h5netcdf")
    result = CliRunner().invoke(main, ["account", "ledger", str(tmp_path / "both.nc")])
    assert result.exit_code == 1 and told in result.output


@pytest.mark.parametrize("axis", ["chain", "draw"])
def test_draws_of_several_runs_do_not_go_under_the_statement_of_one(axis, tmp_path):
    """The bill of one run was printed, and reproduced, for the draws of two."""
    import arviz

    parts = [make(num_warmup=4)[0] for _ in range(2)]
    together = arviz.concat(*parts, dim=axis, reset_dim=True)
    words = "there are 40 draws here, and the statement is about a run of 20"
    check_refused(together, tmp_path, words, "it holds 20 draws more than the run")
    assert (
        CliRunner().invoke(main, ["account", "ledger", str(saved(parts[0], tmp_path))]).exit_code
        == 0
    )
    for fewer in (
        parts[0].isel(draw=slice(2, None)),
        parts[0].isel(chain=0),
        parts[0].isel(chain=[0]),
    ):
        assert statement_of(fewer) == statement_of(parts[0])
        assert (
            CliRunner().invoke(main, ["account", "ledger", str(saved(fewer, tmp_path))]).exit_code
            == 0
        )


@pytest.mark.parametrize("first, other", [(None, None), ("zcdp", None), ("zcdp", "gaussian-dp")])
def test_few_draws_of_several_runs_do_not_go_under_the_statement_of_one(first, other, tmp_path):
    """The first halves of two runs are no more draws than one has; and a budget that is shared is
    not shared with every run.
    """
    import arviz

    def half(shared_by):
        statement = (
            tiny.make_curator(fixed_secret=None, shared_by=shared_by)
            .grant({tiny.RATIO: 2})
            .statement()
        )
        return results.from_draws(POSITIONS, INFO, unravel, statement).isel(draw=slice(0, 5))

    together = arviz.concat(half(first), half(other), dim="chain", reset_dim=True)
    words = "draws of several runs were put together here, and the statement is"
    check_refused(together, tmp_path, words, "it holds draws of several runs")
    again = half(None)  # parts of one run may be apart, and together again
    statement_of(
        arviz.concat(
            again.isel(draw=slice(0, 2)), again.isel(draw=slice(2, 5)), dim="draw", reset_dim=True
        )
    )


@pytest.mark.parametrize("axis", ["chain", "draw"])
def test_draws_that_were_put_together_without_a_mark_are_counted(axis, tmp_path):
    """ArviZ marks what it joins, xarray does not: then there are more draws than the run had."""
    import xarray

    parts = [make()[0] for _ in range(2)]
    parts[0].posterior = xarray.concat(
        [part.posterior for part in parts], axis, combine_attrs="override"
    )
    words = "there are 40 draws here, and the statement is about a run of 20"
    check_refused(parts[0], tmp_path, words, "it holds 20 draws more than the run")


def test_draws_that_promise_nothing_may_be_put_together(tmp_path):
    import arviz

    parts = [
        results.from_draws(
            POSITIONS, INFO, unravel, tiny.make_curator().grant({tiny.RATIO: 2}).statement()
        )
        for _ in range(2)
    ]
    together = arviz.concat(*parts, dim="chain", reset_dim=True)
    assert "NO PRIVACY IS PROMISED" in statement_of(together)
    told = CliRunner().invoke(main, ["account", "ledger", str(saved(together, tmp_path))])
    assert (
        told.exit_code == 0
        and "the claim promises no privacy" in told.output
        and "is reproduced\n" not in told.output
    )


def test_one_owner_that_shares_its_budget_is_not_enough(tmp_path):
    """The bill of the other is about one run."""
    import arviz

    def joint(*shared_by):
        owners = {name: tiny.make_curator(fixed_secret=None, shared_by=name) for name in shared_by}
        statements = {
            str(name): [owner.grant({tiny.RATIO: 2}).statement()] for name, owner in owners.items()
        }
        runs = [
            FederatedStatement({name: told for name, (told,) in statements.items()})
            for _ in range(2)
        ]
        return arviz.concat(
            *(results.from_draws(POSITIONS, INFO, unravel, run) for run in runs),
            dim="chain",
            reset_dim=True,
        )

    mixed, shared = joint("zcdp", None), joint("zcdp", "gaussian-dp")
    with pytest.raises(ValueError, match="its bill does not have the cost of the other runs"):
        statement_of(mixed)
    mixed.to_netcdf(str(tmp_path / "mixed.nc"), engine="h5netcdf")
    told = CliRunner().invoke(main, ["account", "ledger", str(tmp_path / "mixed.nc")])
    assert told.exit_code == 1 and "draws more than the run" in told.output
    assert "may share this budget" in statement_of(shared)
    assert (
        CliRunner().invoke(main, ["account", "ledger", str(saved(shared, tmp_path))]).exit_code == 0
    )


def test_draws_that_share_a_budget_may_be_put_together(tmp_path):
    import arviz

    curator = tiny.make_curator(fixed_secret=None, shared_by="zcdp")
    # Of different bills ArviZ makes a list, which is no ledger
    bills = ({tiny.RATIO: count} for count in (2, 3))
    parts = [
        results.from_draws(POSITIONS, INFO, unravel, curator.grant(bill).statement())
        for bill in bills
    ]
    together = arviz.concat(*parts, dim="chain", reset_dim=True)
    assert "may share this budget" in statement_of(together)
    assert (
        CliRunner().invoke(main, ["account", "ledger", str(saved(together, tmp_path))]).exit_code
        == 0
    )


def saved(result, folder):
    save(result, folder / "one.nc")
    return folder / "one.nc"
