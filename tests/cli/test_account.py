"""The command line: every kind, both questions, JSON and table, refusals and exit codes."""

import json
import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from dpmcmc.accounting import accountants
from dpmcmc.accounting.costs import Gaussian, to_json
from dpmcmc.accounting.ledger import _document
from dpmcmc.cli import main

KINDS = {
    "gaussian": "--noise-multiplier 30",
    "radial": "--size 0.1 --dimension 7",
    "accept-bit": "--test barker --range 0.04",
    "accept-bit lazy": "--test lazy-barker --kappa 0.5 --range 0.04",
    "accept-bit penalty": "--test penalty --sigma 1 --range 0.03",
    "accept-bit exact": "--test barker --range 0.2 --method exact",
    "subsampled-gaussian poisson": "--scheme poisson --rate 0.01 --noise-multiplier 1.5 "
    "--neighbours add-remove",
    "subsampled-gaussian fixed": "--scheme fixed --rate 0.01 --noise-multiplier 1.5 --neighbours "
    "replace --method rdp",
    "poisson-mixture": "--rate 0.01 --weight 1 --std 1.5 --neighbours replace",
    "minibatch-barker": "--row-bound 0.02 --ratio 1",
    "minibatch-barker pure": "--row-bound 0.02 --ratio 1 --method pure",
    "dp-barker": "--batch 1000 --rows 100000 --bound paper --conversion paper",
    "hmc": "--ratio-multiplier 100 --gradient-multiplier 200 --leapfrog 5",
    "hmc without reuse": "--ratio-multiplier 100 --gradient-multiplier 200 --leapfrog 5 --no-reuse",
}


def call(*words):
    return CliRunner().invoke(main, ["account", *(part for word in words for part in word.split())])


def answer(*words):
    result = call(*words, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.output)


@pytest.mark.parametrize("name", KINDS)
def test_steps_and_back(name):
    options = (name.split()[0], KINDS[name], "--delta 1e-6")
    given = answer(*options, "--epsilon 1")
    assert given["steps"] > 0 and given["epsilon"] == 1.0 and given["delta"] == 1e-6
    assert {"steps", "epsilon", "delta", "method", "relation"} <= set(given)
    back = answer(*options, f"--steps {given['steps']}")
    assert 0.8 < back["epsilon"] <= 1.0 + 1e-9
    assert answer(*options, f"--steps {given['steps'] + 2}")["epsilon"] > 1.0


@pytest.mark.parametrize(
    "words, steps",
    [
        ("gaussian --noise-multiplier 33.333333333 --epsilon 1 --delta 1e-6", 62),
        ("accept-bit --test barker --range 0.04 --epsilon 1 --delta 1e-6", 123),
        (
            "dp-barker --batch 1000 --rows 100000 --bound paper --conversion paper --epsilon 1 "
            "--delta 1e-6",
            181,
        ),
    ],
)
def test_known_answers(words, steps):
    assert answer(words)["steps"] == steps


def test_relations():
    question = (
        "poisson-mixture --rate 0.01 --weight 1 --std 1.5 --epsilon 1 --delta 1e-5 --neighbours"
    )
    add = answer(question, "add-remove")
    assert answer(question, add["relation"]) == add  # what an answer prints can be asked with
    refusal = call(question, "both --json")
    assert (
        refusal.exit_code == 2
        and "'both' is not one of 'replace', 'add-remove', 'replace-one', 'add-or-remove-one'"
        in refusal.stdout
    )
    assert add["relation"] == "add-or-remove-one" and add["method"] == "pld"
    assert answer("hmc", KINDS["hmc"], "--epsilon 1 --delta 1e-6")["relation"] == "replace-one"


def test_the_table_is_for_people():
    result = call("gaussian --noise-multiplier 30 --steps 50 --delta 1e-6")
    assert result.exit_code == 0
    assert "0.995438" in result.output and "gaussian" in result.output and "{" not in result.output


def test_compare():
    result = call("compare accept-bit --test barker --range 0.2 --epsilon 1 --delta 1e-6 --json")
    answers = {entry["method"]: entry["steps"] for entry in json.loads(result.output)["answers"]}
    assert answers["recursion"] >= answers["rdp"] >= answers["zcdp"] >= answers["zcdp-paper"]
    assert "gaussian" not in answers
    table = call("compare gaussian --noise-multiplier 30 --steps 50 --delta 1e-6").output
    assert table.index("gaussian") < table.index("rdp") < table.index("advanced")


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("question", ["--epsilon 0.3", "--steps 3"])
def test_every_kind_is_compared_in_both_directions(name, question):
    # So that few steps fit, and the recursion is quick
    words = KINDS[name].replace("--range 0.0", "--range 0.")
    result = call("compare", name.split()[0], words, question, "--delta 1e-5 --json")
    assert result.exit_code == 0, result.output
    answers = json.loads(result.output)["answers"]
    own = answer(name.split()[0], words, question, "--delta 1e-5")
    assert own in answers
    unknown = "epsilon" if "steps" in question else "steps"
    values = [entry[unknown] for entry in answers]
    assert values == sorted(values, reverse=unknown == "steps")


@pytest.mark.parametrize(
    "words, message",
    [
        ("accept-bit --test metropolis --range 0.04 --epsilon 1 --delta 1e-6", "not private"),
        ("accept-bit --test penalty --range 0.04 --epsilon 1 --delta 1e-6", "--sigma"),
        ("accept-bit --test lazy-barker --range 0.04 --epsilon 1 --delta 1e-6", "--kappa"),
        ("gaussian --noise-multiplier 30 --delta 1e-6", "either"),
        ("gaussian --noise-multiplier 30 --delta 1e-6 --epsilon 1 --steps 3", "either"),
        (
            "gaussian --noise-multiplier -3 --delta 1e-6 --epsilon 1",
            "--noise-multiplier -3.0 must be positive",
        ),
        ("gaussian --noise-multiplier 3 --delta 2 --epsilon 1", "--delta 2.0 must lie"),
        (
            "minibatch-barker --row-bound -1 --ratio 1 --epsilon 1 --delta 1e-6",
            "--row-bound -1.0 must be positive",
        ),
        (
            "poisson-mixture --rate 0.01 --weight 1 --std 1 --neighbours replace --epsilon 1 "
            "--delta 1e-12",
            "below",
        ),
        (
            "compare poisson-mixture --rate 0.01 --weight 1 --std 1 --neighbours replace "
            "--epsilon 1 --delta 1e-12",
            "no method",
        ),
        (
            "poisson-mixture --rate 1e6 --weight 1 --std 1 --neighbours replace --steps 1 --delta "
            "1e-6",
            "draws",
        ),
        ("gaussian --noise-multiplier 1e-200 --delta 1e-6 --epsilon 1", "between"),
        (
            "accept-bit --test penalty --sigma inf --range 0.04 --epsilon 1 --delta 1e-6",
            "--sigma inf must be a number",
        ),
        (
            "accept-bit --test penalty --sigma nan --range 0.04 --epsilon 1 --delta 1e-6",
            "--sigma nan must be a number",
        ),
        (
            "accept-bit --test barker --sigma 3 --range 0.04 --epsilon 1 --delta 1e-6",
            "the barker test takes no --sigma",
        ),
        (
            "accept-bit --test barker --kappa 0.5 --range 0.04 --epsilon 1 --delta 1e-6",
            "the barker test takes no --kappa",
        ),
        (
            "accept-bit --test barker --range 0.001 --epsilon 1 --delta 1e-6 --method exact",
            "use rdp",
        ),
        (
            "poisson-mixture --rate .1 --weight 1 --std 1 --neighbours replace --steps 1 --delta "
            "1e-11",
            "promise a larger one",
        ),
        (
            "hmc --ratio-multiplier 9 --gradient-multiplier 9 --leapfrog 10000000 --steps 1 "
            "--delta 1e-6",
            "leapfrog must be at least 1 and at most 999998",
        ),
        *(
            (
                f"minibatch-barker --method pure --row-bound {bound} --ratio {ratio} --steps 1 "
                "--delta 1e-6",
                "must be positive",
            )
            for bound, ratio in ((0.02, -1), (0.02, 0), (-0.02, 1), (3, 1e300))
        ),
    ],
)
def test_refusals(words, message):
    result = call(words)
    assert result.exit_code == 2 and isinstance(result.exception, SystemExit)
    assert message in result.stderr and result.stdout == ""
    result = call(words, "--json")
    assert result.exit_code == 2
    assert message in json.loads(result.stdout)["error"] and message in result.stderr


@pytest.mark.parametrize(
    "words, message",
    [
        ("gaussian --noise-multiplie 3 --steps 5 --delta 1e-6", "No such option"),
        ("gaussian --noise-multiplier 3 --steps 5", "--delta"),
        ("compare gaussian --noise-multiplier three --steps 5 --delta 1e-6", "--noise-multiplier"),
        ("gausian --noise-multiplier 3 --steps 5 --delta 1e-6", "No such command"),
        ("ledger no-such-file.json", "does not exist"),
    ],
)
def test_a_wrong_option_is_an_object_too(words, message):
    result = call(words, "--json")
    assert result.exit_code == 2 and message in json.loads(result.stdout)["error"]
    result = call(words)
    assert result.exit_code == 2 and result.stdout == "" and result.stderr


def test_json_before_the_command_is_a_wrong_option():
    result = call("--json gaussian --noise-multiplier 3 --steps 5 --delta 1e-6")
    assert result.exit_code == 2 and "--json" in json.loads(result.stdout)["error"]


def test_tables_round_up():
    """To the nearest would be 1.46363, at which delta is 5e-5 of it too large."""
    options = "gaussian --noise-multiplier 30 --steps 102 --delta 1e-6"
    assert "1.46364" in call(options).output and "1.46364" in call("compare", options).output
    assert 1.46363 < answer(options)["epsilon"] < 1.46364


def test_nothing_is_compared_by_the_methods_that_have_a_bound():
    found = answer("compare gaussian --noise-multiplier 30 --steps 0 --delta 1e-6")["answers"]
    assert {each["method"] for each in found} == {
        "gaussian",
        "pld",
        "rdp",
        "zcdp",
        "rdp-paper",
        "zcdp-paper",
        "advanced",
    }


def test_pure_is_the_better_of_two_bounds_from_the_proved_losses():
    """One or two bits cost the sum of their losses; of many, the range of the losses proves more,
    by zCDP.
    """
    few = answer("minibatch-barker --row-bound 1 --ratio 1 --method pure --delta 1e-6", "--steps 2")
    assert few["method"] == "pure" and few["epsilon"] == pytest.approx(2 * 2.5)
    many = answer(
        "minibatch-barker --row-bound 0.01 --ratio 1 --method pure --delta 1e-6", "--epsilon 1"
    )
    assert many["method"] == "zcdp" and many["per_step"][0]["cost"]["zcdp"] == pytest.approx(
        4.5e-2**2 / 8
    )
    assert many["steps"] > 1 / 2.5e-2


def test_the_better_of_renyi_and_pure_is_the_default_for_bits():
    """A bit of tiny range costs its range, and no order of Renyi divergence proves so little."""
    options = ("accept-bit --test barker --range 1e-12 --delta 1e-6", "--steps 10")
    best = answer(*options)
    assert best["method"] == "pure" and best["epsilon"] == pytest.approx(1e-11)
    assert answer(*options, "--method rdp")["epsilon"] > 1e-6
    assert (
        answer("minibatch-barker --row-bound 1e-12 --ratio 1 --delta 1e-6", "--steps 10")["method"]
        == "pure"
    )
    assert (
        answer("accept-bit --test barker --range 0.04 --delta 1e-6", "--epsilon 1")["method"]
        == "rdp"
    )
    assert answer("accept-bit --test barker --range 0.04 --delta 1e-6", "--steps 0")["epsilon"] == 0


def test_an_infinite_epsilon_is_compared_and_shown():
    words = (
        "compare subsampled-gaussian --scheme poisson --neighbours replace --rate 1 "
        "--noise-multiplier 0.05 --delta 1e-6 --steps"
    )
    assert call(words, "1").exit_code == 0
    values = [
        entry["epsilon"]
        for entry in json.loads(
            call(
                "compare accept-bit --test barker --range 800 --delta 1e-6", "--steps 2 --json"
            ).stdout
        )["answers"]
    ]
    assert values[-1] == "inf" and values[0] == pytest.approx(1600)
    assert (
        "inf" in call("compare accept-bit --test barker --range 800 --delta 1e-6 --steps 2").stdout
    )


def test_a_number_of_steps_at_the_limit_of_the_search_is_said_to_be_one():
    result = call("gaussian --noise-multiplier 1e30 --epsilon 1 --delta 1e-6")
    assert f"at least {2**60}" in result.stdout
    assert answer("gaussian --noise-multiplier 1e30 --epsilon 1 --delta 1e-6")["steps"] == 2**60


def test_a_long_recursion_is_announced(monkeypatch):
    monkeypatch.setattr("dpmcmc.cli.account.answers.MAX_QUICK_RECURSION", 2)
    result = call(
        "accept-bit --test barker --range 0.2 --method exact --steps 5 --delta 1e-6 --json"
    )
    assert "--method rdp" in result.stderr and json.loads(result.stdout)["method"] == "recursion"


@pytest.mark.parametrize("factor, code", [(1.0, 0), (0.99, 1)])
def test_ledgers_are_reverified(tmp_path, factor, code):
    epsilon = accountants.epsilon({Gaussian(50.0): 100}, 1e-6).epsilon * factor
    claim = {"epsilon": epsilon, "delta": 1e-6, "method": "gaussian"}
    entry = {"query": "LogRatio()", "cost": to_json(Gaussian(50.0)), "count": 100}
    path = tmp_path / "ledger.json"
    path.write_text(
        json.dumps(
            {
                "format": "dpmcmc-ledger-1",
                "claim": claim,
                "neighbours": "replace-one",
                "entries": [entry],
            }
        )
    )
    result = call(f"ledger {path} --json")
    assert result.exit_code == code
    assert json.loads(result.output)["is_reproduced"] is (code == 0)
    words = call(f"ledger {path}").output
    assert ("NOT reproduced" in words) is (code == 1)


def test_the_name_of_an_owner_forges_no_verdict(tmp_path):
    claim = {"epsilon": 9.0, "delta": 1e-6, "method": "gaussian"}
    ledger = {
        "format": "dpmcmc-ledger-1",
        "claim": claim,
        "neighbours": "replace-one",
        "entries": [],
    }
    path = tmp_path / "ledger.json"
    owners = {"north": ledger, "a is reproduced\n\x1b[2K": ledger, "\ud800": ledger}
    path.write_text(json.dumps({"format": "dpmcmc-federated-ledger-1", "owners": owners}))
    result = call(f"ledger {path}")
    assert result.exit_code == 0 and "the claim of north is reproduced" in result.output
    assert (
        r"the claim of a is reproduced \x1b[2K is reproduced" in result.output
        and r"\ud800" in result.output
    )
    path.write_text(
        json.dumps({"dpmcmc_ledger": ledger, "accountant": "x\nall is reproduced\x1b[8m"})
    )
    result = call(f"ledger {path}")
    assert (
        result.exit_code == 1
        and "\x1b[8m" not in result.output
        and "\nall is reproduced" not in result.output
    )


def test_a_false_claim_is_not_taken_for_spends(tmp_path):
    """Facts and grants beside it are refused, and change nothing about the claim."""
    claim = {"epsilon": 0.01, "delta": 1e-6, "method": "gaussian"}
    entry = {"query": "LogRatio()", "cost": to_json(Gaussian(30.0)), "count": 10_000}
    facts = {"budget": [1, 1e-6], "neighbours": "replace-one", "shared_by": None}
    path = tmp_path / "ledger.json"
    statement = {
        "format": "dpmcmc-ledger-1",
        "claim": claim,
        "neighbours": "replace-one",
        "entries": [entry],
    }
    path.write_text(json.dumps(statement | {"facts": facts, "grants": []}))
    assert call(f"ledger {path}").exit_code == 2
    path.write_text(json.dumps(statement))
    result = call(f"ledger {path} --json")
    assert result.exit_code == 1 and json.loads(result.output)["is_reproduced"] is False


@pytest.mark.parametrize(
    "question",
    [
        f"gaussian --noise-multiplier 1 --delta 1e-6 --steps {10**400}",
        f"hmc --ratio-multiplier 1 --gradient-multiplier 1 --leapfrog {10**400} --delta 1e-6 "
        "--steps 1",
        f"dp-barker --batch 1000 --rows {10**400} --delta 1e-6 --steps 1",
        "accept-bit --test barker --range 1e-10 --epsilon 1e300 --delta 1e-6 --method exact",
        "accept-bit --test barker --range 2 --epsilon 699 --delta 1e-6 --method exact",
    ],
)
def test_numbers_beyond_reason_are_refused_in_one_line(question):
    result = call(question)
    assert (
        result.exit_code == 2
        and result.output.startswith("refused: ")
        and "domain" not in result.output
    )


@pytest.mark.parametrize(
    "text, words",
    [
        ("[" * 100_000, "holds no ledger: it must be a JSON object"),
        (
            '{"format": "dpmcmc-ledger-1", "neighbours": "replace-one", "entries": [], "claim": '
            '{"epsilon": 1%s, "delta": 1e-6, '
            '"method": "rdp"}}' % ("0" * 400),
            "'epsilon' is too large to be a number",
        ),
        ("{}", "holds no ledger: it must be an object whose format is 'dpmcmc-ledger-1'"),
        (
            "58,1,Smith\n",
            "holds no ledger: it must be a JSON object, or a posterior saved as NetCDF",
        ),
        ('[[58, 1, "Smith"]]', "holds no ledger: it must be an object"),
        ('"Smith"', "holds no ledger: it must be a JSON object"),
        (
            '{"format": "dpmcmc-federated-ledger-1", "owners": {"a": ["Smith"]}}',
            "holds no ledger: it must be an object",
        ),
        (
            '{"name": "Smith", "format": "Smith, 03/02/1980"}',
            "holds no ledger: it must be an object",
        ),
        (
            '{"format": "dpmcmc-ledger-1", "claim": {}, "neighbours": "Smith"}',
            "'epsilon' must be of type float, it is missing",
        ),
        (
            '{"format": "dpmcmc-ledger-1", "entries": []}',
            "'claim' must be of type dict, it is missing",
        ),
        (json.dumps(_document({}, [])), "holds no whole ledger: 'neighbours' is missing in it"),
        (
            '{"format": "dpmcmc-spends-2", "facts": {"name": "Smith"}, "grants": []}',
            "is not as a curator wrote it",
        ),
    ],
)
def test_a_file_without_a_ledger_is_refused_and_not_shown(text, words, tmp_path):
    path = tmp_path / "other.json"
    path.write_text(text)
    result = call(f"ledger {path}")
    assert result.exit_code == 2 and words in result.output and "Smith" not in result.output


def test_a_cold_start_is_quick():
    """Less than twice the work of importing the libraries it cannot do without, and then some:
    other processes do not count.
    """
    words = [
        sys.executable,
        "-m",
        "dpmcmc",
        "account",
        "gaussian",
        "--noise-multiplier",
        "30",
        "--steps",
        "9",
    ]

    def seconds(command):
        before = os.times()
        subprocess.run(command, check=True, capture_output=True)
        after = os.times()
        return (
            after.children_user
            + after.children_system
            - before.children_user
            - before.children_system
        )

    ours = min(seconds([*words, "--delta", "1e-6"]) for _ in range(2))
    base = min(
        seconds([sys.executable, "-c", "import typer, rich.table, scipy.special"]) for _ in range(2)
    )
    assert ours < 2 * base + 0.3
