"""The demo: its columns, its reference, its judgement; and, slowly, that it does what the docs
say."""

import numpy as np
import pytest

from dpmcmc import Finding, Severity, demo
from dpmcmc.results.arviz import from_draws
from tests import tiny


@pytest.fixture(scope="module")
def rows():
    return demo.read_rows()


def test_no_row_is_longer_than_the_radius_and_some_come_close(rows):
    lengths = np.linalg.norm(rows[0].astype(float), axis=1)
    assert len(rows[1]) == 61_395
    assert 0.9 * demo.RADIUS < lengths.max() <= demo.RADIUS * (1 + 1e-6)


def test_the_reference_is_that_of_this_table(rows):
    """Newton's method on the same columns: at this n the posterior is Gaussian to a few per cent of
    a standard deviation.
    """
    import jax
    import jax.numpy as jnp

    design, labels = np.column_stack([np.ones(len(rows[1])), rows[0]]).astype(float), rows[1]
    mean = np.zeros(7)
    for _ in range(20):
        p = 1 / (1 + np.exp(-design @ mean))
        precision = design.T @ (design * (p * (1 - p))[:, None]) + np.eye(7) / demo.PRIOR_SCALE**2
        mean += np.linalg.solve(precision, design.T @ (labels - p) - mean / demo.PRIOR_SCALE**2)
    unravel = demo.make_model().unravel
    slopes = jax.jacobian(unravel)(jnp.zeros(7))
    for name, value in unravel(jnp.asarray(mean)).items():
        slope = np.asarray(slopes[name])
        sd = np.sqrt(slope @ np.linalg.inv(precision) @ slope)
        assert abs(float(value) - demo.REFERENCE[name].mean) < 0.1 * sd
        assert abs(sd / demo.REFERENCE[name].sd - 1) < 0.05


def test_rows_with_missing_cells_say_nothing_and_unknown_regions_are_the_first():
    cells = {
        "age": ["", "900", "nan"],
        "education": ["unknown", "13", "13"],
        "gender": ["", "male", "?"],
    }
    features, labels = demo.rows_of(
        {**cells, "region": ["Atlantis", "West", ""], "earnings": ["a secret", "20.1", "20"]}
    )
    np.testing.assert_array_equal(features[:, :3], [[np.nan] * 3, [1.5, 0, 1], [np.nan, 0, np.nan]])
    np.testing.assert_allclose(features[:, 3:], demo.CORNERS[[0, 3, 0]])
    np.testing.assert_array_equal(labels, [np.nan, 1, 0])


def fake(shift, change=None, found=()):
    """Draws around the reference, as a result that was judged."""
    rng = np.random.default_rng(0)
    draws = {
        name: rng.normal(m + shift * s, s, (2, 400)) for name, (m, s) in demo.REFERENCE.items()
    }
    if change is not None:
        change(draws)
    positions = np.stack(list(draws.values()), axis=-1)
    statement = tiny.make_curator().grant({tiny.RATIO: 2}).statement()
    unravel = lambda position: dict(zip(draws, position, strict=True))  # noqa: E731
    return from_draws(positions, None, unravel, statement, findings=found)


def tear(draws):
    draws["male"][0] += 1.0


def lead_on(draws):
    """Both chains, which R-hat does not see."""
    draws["male"][:, :40] += 10 * demo.REFERENCE["male"].sd


def test_a_good_posterior_passes_and_one_with_a_severe_finding_fails():
    good = demo.judge(fake(0.0))
    assert (
        good.is_success
        and good.rms_error < 0.1
        and abs(good.width - 1) < 0.1
        and good.coverage == 1.0
    )
    found = [Finding("not-arrived", Severity.SEVERE, "It has not arrived.")]
    assert (
        demo.judge(fake(0.0, found=found)).findings == found
        and not demo.judge(fake(0.0, found=found)).is_success
    )
    assert demo.judge(fake(0.0, found=[Finding("widening", Severity.NOTE, "A note.")])).is_success
    assert demo.judge(fake(3.0)).coverage == 0.0
    for change, code in ((tear, "r-hat"), (lead_on, "drift")):
        judgement = demo.judge(fake(0.0, change))
        assert code in [finding.code for finding in judgement.findings] and not judgement.is_success


@pytest.mark.slow
def test_ten_seeds_meet_what_the_demo_promises(tmp_path):
    found = [demo.judge(demo.run(4.0, 1e-6, seed, progress=False)) for seed in range(10)]
    assert np.median([j.rms_error for j in found]) <= 0.25
    assert np.median([j.r_hat for j in found]) <= 1.1
    assert abs(np.median([j.width for j in found]) - 1) <= 0.25
    assert np.mean([j.coverage for j in found]) >= 0.8


@pytest.mark.slow
def test_the_command_writes_its_report(tmp_path, capsys):
    (tmp_path / "posterior.nc").write_text(
        "the name that `dpmcmc run` gives: draws that were paid for"
    )
    demo.main(tmp_path, epsilons=(4.0,))
    assert {file.name for file in tmp_path.iterdir()} == {
        "posterior.nc",
        "demo-epsilon-4.nc",
        "demo.png",
        "demo.html",
    }
    assert (tmp_path / "posterior.nc").read_text().startswith("the name")
    printed = capsys.readouterr().out
    assert "PRIVACY STATEMENT" in printed
    assert all(
        str(tmp_path / name) in printed for name in ("demo-epsilon-4.nc", "demo.png", "demo.html")
    )
    page = (tmp_path / "demo.html").read_text()
    assert "PRIVACY STATEMENT" in page and page.count("<img") == 2
