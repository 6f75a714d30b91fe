"""The settings are the papers': against the file that they were read from, where it is at hand."""

import math
import tomllib
from pathlib import Path

import numpy as np
import pytest

from dpmcmc.papers.dphmc import settings as hmc_comparison
from dpmcmc.papers.dphmc.settings import Settings
from dpmcmc.papers.fastmh import settings as fast_mh_comparison
from dpmcmc.papers.thesis import accounting
from dpmcmc.papers.thesis import settings as thesis_comparison

FILE = Path(__file__).parents[3] / "shared" / "paper-settings.toml"


@pytest.fixture(scope="module")
def papers():
    if not FILE.exists():
        pytest.skip("the file of the papers' settings is not beside this project")
    return tomllib.loads(FILE.read_text())


def flat(settings: Settings) -> dict:
    s = settings
    return {
        "dp-hmc": {
            "tau": s.ratio_tau,
            "tau_gradient": s.gradient_tau,
            "step_size": s.leapfrog_step,
            "leapfrog_steps": s.leapfrog,
            "mass": 1,
            "ratio_clip": s.ratio_clip,
            "gradient_clip": s.gradient_clip,
        },
        "dp-penalty": {"tau": s.walk_tau, "proposal_sd": s.walk_scale, "ratio_clip": s.walk_clip},
        "dp-sgld": {"batch_size": 1000, "gradient_clip": s.sgld_clip, "step_size": s.sgld_step},
        "dp-sgnht": {
            "batch_size": 1000,
            "gradient_clip": s.sgnht_clip,
            "step_size": s.sgnht_step,
            "friction": s.friction,
        },
    }


@pytest.mark.parametrize(
    "name, settings", [("banana", hmc_comparison.BANANA), ("gauss-10d", hmc_comparison.GAUSSIAN)]
)
def test_those_of_the_hmc_paper(papers, name, settings):
    theirs = papers["dphmc_paper"]
    assert flat(settings) == {
        kind: theirs[kind][name] for kind in ("dp-hmc", "dp-penalty", "dp-sgld", "dp-sgnht")
    }
    assert (
        hmc_comparison.BATCH.size == 1000 and hmc_comparison.BATCH.of == papers["model"][name]["n"]
    )
    assert [budget.epsilon for budget in hmc_comparison.BUDGETS] == theirs["epsilons"]
    assert {budget.delta for budget in hmc_comparison.BUDGETS} == {0.1 / papers["model"][name]["n"]}
    assert (theirs["chains"], theirs["repeats"]) == (
        hmc_comparison.NUM_CHAINS,
        hmc_comparison.NUM_REPEATS,
    )


def test_posteriors_of_the_hmc_paper(papers):
    banana, gaussian = papers["model"]["banana"], papers["model"]["gauss-10d"]
    assert (banana["sigma2_1"], banana["sigma2_2"]) == hmc_comparison.BANANA_VARIANCES
    assert banana["a"] == hmc_comparison.BANANA_CURVATURE
    assert math.sqrt(banana["prior_variance"]) == hmc_comparison.BANANA_PRIOR_SCALE
    assert gaussian["prior_sd"] == hmc_comparison.GAUSSIAN_PRIOR_SCALE
    np.testing.assert_allclose(
        hmc_comparison.GAUSSIAN_COVARIANCE, gaussian["covariance"], rtol=0, atol=5.1e-8
    )


MODELS = dict(
    zip(
        thesis_comparison.SETTINGS,
        (
            "flat-banana-2d",
            "tempered-banana-2d",
            "flat-banana-10d",
            "tempered-banana-10d",
            "gauss-30d",
            "narrow-banana",
            "correlated-gauss",
            "circle",
        ),
        strict=True,
    )
)


@pytest.mark.parametrize("name", MODELS)
def test_those_of_the_thesis(papers, name):
    settings, thesis, model = thesis_comparison.SETTINGS[name], papers["thesis"], MODELS[name]

    def theirs(kind: str, *fields: str):
        found = thesis[kind].get(model)
        return found and tuple(found[field] for field in fields)

    walk = ("tau", "proposal_sd", "ratio_clip")
    assert settings.penalty == theirs("dp-penalty", *walk)
    assert settings.guided == theirs("dp-penalty-guided", *walk)
    assert settings.hmc == theirs(
        "dp-hmc",
        "tau",
        "tau_gradient",
        "leapfrog_steps",
        "step_size",
        "ratio_clip",
        "gradient_clip",
    )
    assert settings.minibatch == theirs("minibatch-penalty", *walk, "batch_size")
    assert settings.guided_minibatch == theirs("minibatch-penalty-guided", *walk, "batch_size")
    assert settings.barker == theirs("dp-barker", "proposal_sd", "batch_size")
    assert list(thesis_comparison.EPSILONS) == thesis["epsilons"]
    assert (
        list(thesis_comparison.CIRCLE_EPSILONS) == thesis["epsilons_circle"]
        and thesis["chains"] == thesis_comparison.NUM_REPEATS
    )


@pytest.mark.parametrize("name", MODELS)
def test_posteriors_of_the_thesis(papers, name, monkeypatch):
    """What each is made with; the rows themselves are many."""
    theirs, seen = papers["model"][MODELS[name]], {}
    for kind in ("banana", "gaussian", "circle"):
        monkeypatch.setattr(
            thesis_comparison.problems,
            kind,
            lambda key, *given, kind=kind, **rest: seen.update({kind: given}),
        )
    thesis_comparison.make(None, name)
    if name == "Correlated Gaussian":
        assert seen == {
            "gaussian": (theirs["n"], theirs["covariance"], math.sqrt(theirs["prior_variance"]))
        }
        return
    if name == "Circle":
        assert seen == {"circle": (theirs["n"], theirs["a"])}
        return
    (num_rows, variances, curvature, prior_scale, *rest) = seen["banana"]
    temperature = rest[:1]
    assert (num_rows, len(variances), curvature) == (theirs["n"], theirs["d"], theirs["a"])
    assert variances[:2] == [theirs["sigma2_1"], theirs["sigma2_2"]] and set(variances[2:]) <= {1.0}
    assert prior_scale == math.sqrt(theirs["prior_variance"])
    assert (temperature or [1.0]) == [theirs.get("n0", num_rows) / num_rows]


def test_those_of_the_fast_mh_paper(papers):
    model, theirs, ours = (
        papers["model"]["mixture"],
        papers["dpfastmh_paper"]["mixture"],
        fast_mh_comparison,
    )
    assert (model["n"], model["temperature"]) == (ours.NUM_ROWS, 1 / ours.TEMPERATURE)
    assert {budget.delta for budget in ours.BUDGETS} == {theirs["delta"]}
    assert (
        theirs["lambda"],
        theirs["epsilon_per_iteration"],
        theirs["iterations"],
    ) == (ours.PAPERS_LAMBDA, ours.PAPERS_EPSILON, ours.PAPERS_STEPS)


def test_those_of_the_accounting(papers):
    thesis, name = papers["thesis"], "flat-banana-2d"
    assert papers["model"][name]["n"] == accounting.NUM_ROWS
    assert {thesis["dp-penalty"][name]["tau"], thesis["dp-hmc"][name]["tau"]} == {accounting.TAU}
    assert (thesis["dp-hmc"][name]["tau_gradient"], thesis["dp-hmc"][name]["leapfrog_steps"]) == (
        accounting.TAU_GRADIENT,
        accounting.LEAPFROG,
    )
    assert (
        thesis["minibatch-penalty"][name]["batch_size"],
        thesis["minibatch-penalty"][name]["tau"],
    ) == (
        accounting.BATCH,
        accounting.BATCH_TAU,
    )
    assert thesis["dp-barker"][name]["batch_size"] == accounting.BARKER_BATCH
