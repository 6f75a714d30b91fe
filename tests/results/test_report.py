"""The page about a posterior: what it says, that names on it are only text, and what it refuses."""

import re
from types import SimpleNamespace

import h5py
import numpy as np
import pytest
from typer.testing import CliRunner

from dpmcmc import report, save, statement_of, summary
from dpmcmc.cli import main
from dpmcmc.finding import DO_NOT_RELY, Finding, Severity
from dpmcmc.results import arviz as results
from dpmcmc.results import plots
from dpmcmc.results.summary import scalars
from tests import tiny

pytestmark = pytest.mark.usefixtures("quick_compilation")
DRAWS = np.random.default_rng(0).normal(size=(2, 400, 6))


@pytest.fixture(autouse=True)
def quick_figure(request, monkeypatch):
    """A figure takes a second: it is made where it is what a test is about."""
    if "figure" not in request.node.name:
        monkeypatch.setattr(plots, "chains", lambda draws: b"")


def unravel(position):
    return {"scale": position[0], "<script>": position[1], "effects": position[2:].reshape(2, 2)}


def make(draws=DRAWS, note="a note", found=(), **options):
    statement = tiny.make_curator(fixed_secret=None).grant({tiny.RATIO: 20}).statement(note)
    return results.from_draws(draws, None, unravel, statement, findings=found, **options)


def severe(text):
    return Finding("a-code", Severity.SEVERE, text)


def box_of(told, kind):
    """The text in the only box of this kind."""
    (inside,) = re.findall(rf'<div class="{kind}">(.*?)</div>', told)
    return inside


def page(result, tmp_path, **options):
    report(result, tmp_path / "page.html", **options)
    return (tmp_path / "page.html").read_text()


def test_the_page_says_what_the_posterior_says(tmp_path):
    result = make()
    result.posterior["scale"].attrs["unit"] = "metres"
    result.posterior.attrs["plan"] = "the plan"
    told = page(result, tmp_path, title="Heights & weights")
    assert "<title>Heights &amp; weights</title>" in told
    assert "the plan" in told and "<td>metres</td>" in told
    assert (
        "PRIVACY STATEMENT" in told
        and "Promise: (" in told
        and "Unit: one row, replaced by any other" in told
    )
    assert "<p>Means: Somebody who knows every other row" in told
    for line in summary(result).splitlines()[1:]:
        mean, sd, low, high, _, _, effective, _, r_hat = line.rsplit(maxsplit=9)[-9:]
        assert float(low) < float(mean) < float(high)
        assert (
            "".join(f"<td>{cell}</td>" for cell in (mean, sd, low, high, effective, r_hat, ""))
            in told
        )
    assert (
        "<th>mean</th><th>sd</th><th>94 % from</th><th>to</th><th>effective "
        "draws</th><th>R-hat</th><th>note</th>" in told
    )


def test_a_parameter_as_wide_as_its_prior_is_marked_and_explained(tmp_path):
    """The draws have a standard deviation of 1: more than 0.7 of a prior of width 1, less of one of
    width 2.
    """
    told = page(
        make(log_prior=lambda position: -0.5 * (position[0] ** 2 + (position[1] / 2) ** 2)),
        tmp_path,
    )
    marks = dict(re.findall(r"<tr><td>([^<]*)</td>(?:<td>[^<]*</td>){6}<td>([^<]*)</td>", told))
    assert marks["scale"] == "prior" and not any(
        mark for name, mark in marks.items() if name != "scale"
    )
    assert (
        "marks a parameter whose posterior standard deviation is more than 0.7 times its prior"
        in told
    )


def test_a_page_with_its_figure_needs_nothing_else_and_names_are_only_text(tmp_path):
    told = page(make(note="<img src=elsewhere>"), tmp_path, title="<script>")
    assert "&lt;script&gt;" in told and "&lt;img" in told
    assert not any(
        tag in told for tag in ("<script", "<img src=", "http:", "https:", "<link", "@import")
    )
    assert 'src="data:image/png;base64,iVBOR' in told


def test_every_line_of_the_summary_has_its_draws():
    result = make()
    found = scalars(result)
    assert list(found) == list(results.summary_table(result).index)
    np.testing.assert_allclose(
        [values.mean() for values in found.values()],
        results.summary_table(result)["mean"],
        rtol=1e-12,
    )


def test_good_draws_pass(tmp_path):
    told = page(make(), tmp_path)
    assert 'class="good"' in told and 'class="bad"' not in told and "R-hat is at most 1.1" in told
    alone = page(make(DRAWS[:1]), tmp_path)
    assert (
        'class="good"' in alone
        and "one chain has no R-hat" in alone
        and "R-hat is at most" not in alone
    )


APART = DRAWS + np.array([0, 3]).reshape(2, 1, 1)


@pytest.mark.parametrize(
    "draws, found, why",
    [
        (APART, [], "R-hat is up to"),
        (DRAWS, [severe("The steps are too long.")], "The steps are too long."),
        (np.where(np.arange(400).reshape(1, 400, 1) == 7, np.nan, DRAWS), [], "no effective draws"),
        (np.zeros_like(DRAWS), [], "never moved"),
        (
            np.where(np.arange(400).reshape(1, 400, 1) == 7, np.inf, DRAWS),
            [],
            "are not finite numbers",
        ),
    ],
    ids=["chains that disagree", "found during the run", "NaN", "constant", "infinite"],
)
def test_draws_with_a_severe_finding_are_in_a_red_box(tmp_path, draws, found, why):
    told = page(make(draws, found=found), tmp_path)
    assert box_of(told, "bad").startswith(f"<b>{DO_NOT_RELY}</b>") and why in box_of(told, "bad")
    assert 'class="good"' not in told and told.count(DO_NOT_RELY) == 1
    assert ".bad { border-color: #b00020; background: #f9d0d0 }" in told


def test_notes_are_beside_a_good_verdict(tmp_path):
    told = page(make(found=[Finding("a-code", Severity.NOTE, "Noise <widens>.")]), tmp_path)
    assert "These draws pass their checks" in box_of(told, "good") and 'class="bad"' not in told
    assert "<li>Noise &lt;widens&gt;.</li>" in box_of(told, "note")
    assert 'class="note"' not in page(make(), tmp_path)


def test_the_verdict_names_the_limits_of_its_run(tmp_path):
    """Where more steps cost nothing they are stricter."""
    told = page(make(limits=results.Limits(1.05, 100)), tmp_path)
    assert (
        "R-hat is at most 1.05, and every parameter has at least 100 effective draws, in the bulk "
        "and in the tails" in told
    )


def test_the_command_shows_severe_findings_and_exits_as_usual(tmp_path):
    save(make(APART), tmp_path / "paid.nc")
    done = CliRunner().invoke(main, ["report", str(tmp_path / "paid.nc")])
    assert done.exit_code == 0 and box_of((tmp_path / "paid.html").read_text(), "bad")


def test_several_owners_have_the_weakest_promise_in_front(tmp_path):
    from dpmcmc.accounting.statement import FederatedStatement

    (one, other) = (
        tiny.make_curator(fixed_secret=None).grant({tiny.RATIO: count}).statement()
        for count in (10, 20)
    )
    result = results.from_draws(
        DRAWS, None, unravel, FederatedStatement({"north": one, "south": other})
    )
    told = page(result, tmp_path)
    assert "each owner" not in page(named_owners(), tmp_path)
    promise = next(line for line in str(other).splitlines() if "Promise:" in line).split()[1]
    assert (
        one.epsilon < other.epsilon
        and f"Promise: {promise}" in told
        and "each owner (north, south)" in told
    )
    assert (
        f"<p>Owner south. Promise: {promise} 1e-06)-differential privacy. Unit: one row, replaced "
        "by any other (the" in told
    )
    assert told.count("is public). Means: Somebody who knows every other row and") == 2
    assert "<h1>A posterior</h1>" in told  # whether it is private, what is promised tells


def named_owners():
    """An attribute that somebody chose."""
    result = make()
    result.posterior.attrs["owners"] = "The hospital"
    return result


@pytest.mark.parametrize(
    "draws",
    [
        {f"p{i}": DRAWS[..., 0] for i in range(40)},
        {"p": DRAWS[:1, :1, 0]},
        {"cost_$_vs_$": 1 + 1e-15 * DRAWS[..., 0]},
    ],
    ids=["many", "one draw", "dollars and a few ulps"],
)
def test_figures_of_any_size(draws):
    assert plots.chains(draws).startswith(b"\x89PNG")


FORGED = {
    "as it is": ({}, None),
    "a smaller promise in print": (
        {"privacy_statement": lambda text: text.replace("Promise:   (0.", "Promise:   (0.0")},
        "the printed statement says Promise:   (0.0",
    ),
    "a smaller claim": (
        {
            "dpmcmc_ledger": lambda text: re.sub(
                r'"epsilon": [0-9.]+', '"epsilon": 0.01', text, count=1
            )
        },
        "it claims epsilon = 0.01, and the bill amounts to 0.",
    ),
    "a smaller number beside it": ({"epsilon": lambda number: number / 2}, "epsilon=0."),
    "no bill": ({"dpmcmc_ledger": None}, "there is no bill beside it"),
    "a bill of nothing": (
        {"dpmcmc_ledger": lambda text: "[<b>"},
        "its bill cannot be read (Expecting value",
    ),
    "somebody else's bill": (
        {"dpmcmc_ledger": lambda text: "{}"},
        "holds no ledger: it must be an object",
    ),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_promise_that_is_not_that_of_its_bill_does_not_pass(name, tmp_path):
    changes, why = FORGED[name]
    result = make()
    for attribute, change in changes.items():
        value = result.posterior.attrs.pop(attribute)
        if change is not None:
            result.posterior.attrs[attribute] = change(value)
            assert change(value) != value
    told = page(result, tmp_path)
    assert ("DO NOT BELIEVE THE PROMISE" in told) is ('class="bad"' in told) is (why is not None)
    assert ("is reproduced" in told) is (why is None)
    assert why is None or why in told


def test_nothing_is_reproduced_where_nothing_is_promised(tmp_path):
    statement = tiny.make_curator().grant({tiny.RATIO: 20}).statement()
    told = page(results.from_draws(DRAWS, None, unravel, statement), tmp_path)
    assert (
        "NO PRIVACY IS PROMISED" in told
        and "is reproduced" not in told
        and "DO NOT BELIEVE" not in told
    )


def test_draws_that_were_paid_for_are_not_replaced(tmp_path):
    save(make(), tmp_path / "paid.nc")
    before = (tmp_path / "paid.nc").read_bytes()
    refused = CliRunner().invoke(
        main, ["report", str(tmp_path / "paid.nc"), "--out", str(tmp_path / "paid.nc")]
    )
    assert refused.exit_code == 2 and "ends in .html" in refused.output
    assert (tmp_path / "paid.nc").read_bytes() == before


def test_a_posterior_that_calls_itself_a_page_is_not_replaced(tmp_path):
    save(make(), tmp_path / "paid.html")
    before = (tmp_path / "paid.html").read_bytes()
    assert CliRunner().invoke(main, ["report", str(tmp_path / "paid.html")]).exit_code == 2
    assert (tmp_path / "paid.html").read_bytes() == before
    report(make(), tmp_path / "page.html")
    report(make(), tmp_path / "page.html")  # a page is


def test_the_command_writes_beside_the_file(tmp_path):
    save(make(), tmp_path / "paid.nc")
    done = CliRunner().invoke(main, ["report", str(tmp_path / "paid.nc")])
    assert done.exit_code == 0, done.output
    assert "<h1>paid</h1>" in (tmp_path / "paid.html").read_text()


def test_what_is_no_posterior_is_refused_in_a_line(tmp_path):
    (tmp_path / "table.csv").write_text("a secret")
    refused = CliRunner().invoke(main, ["report", str(tmp_path / "table.csv")])
    assert (
        refused.exit_code == 2
        and "is no posterior" in refused.output
        and "secret" not in refused.output
    )
    stranger = make()
    del stranger.posterior.attrs["privacy_statement"]
    with pytest.raises(ValueError, match="no privacy statement here"):
        statement_of(stranger)
    save(stranger, tmp_path / "stranger.nc")
    with h5py.File(tmp_path / "other.nc", "w") as other:
        other.create_group("numbers")
    for name, words in (("stranger.nc", "no privacy statement"), ("other.nc", "is no posterior")):
        refused = CliRunner().invoke(main, ["report", str(tmp_path / name)])
        assert refused.exit_code == 2 and words in refused.output


def drawn(monkeypatch, draw, *arguments):
    """What a figure has, without the second that it takes to write it."""
    found = []
    monkeypatch.setattr(
        "matplotlib.figure.Figure.savefig", lambda figure, *_, **__: found.append(figure)
    )
    draw(*arguments)
    return found[0].axes


def test_a_figure_has_the_middle_90_percent_in_units_of_the_reference(monkeypatch):
    draws = 3 + 2 * np.linspace(0, 1, 101) ** 2  # of a mean that is not the median
    results = {
        epsilon: SimpleNamespace(posterior={"a": SimpleNamespace(values=draws[None])})
        for epsilon in (1.0, 4.0)
    }
    (axes,) = drawn(
        monkeypatch, plots.against_reference, results, {"a": (2.0, 4.0)}, "title", "nowhere"
    )
    lines = [np.asarray(line.get_xdata(), float) for line in axes.lines[1:]]
    for interval, mean in (lines[:2], lines[2:]):
        np.testing.assert_allclose(interval, (np.quantile(draws, [0.05, 0.95]) - 2) / 4)
        np.testing.assert_allclose(mean, (draws.mean() - 2) / 4)
    np.testing.assert_allclose(
        axes.patches[0].get_x() + np.array([0, axes.patches[0].get_width()]), [-1.645, 1.645]
    )
    assert [text.get_text() for text in axes.get_legend().get_texts()][1:] == [
        f"private, ε = {e}, 90 %" for e in (1, 4)
    ]


def test_a_figure_of_long_chains_has_their_draws_where_they_are(monkeypatch):
    draws = np.arange(2 * 2500.0).reshape(2, 2500)
    _, ways = drawn(monkeypatch, plots.chains, {"a": draws})
    for line, chain in zip(ways.lines, draws, strict=True):
        steps = np.asarray(line.get_xdata(), int)
        np.testing.assert_array_equal(line.get_ydata(), chain[steps])
        assert 800 < len(steps) <= plots.MOST_POINTS and steps[-1] > 2490
