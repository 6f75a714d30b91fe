"""What is found about a run that runs well and may be wrong."""

import dataclasses
import json
import re

import arviz
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpmcmc import (
    Barker,
    Budget,
    Curator,
    Metropolis,
    Sampler,
    accept_walk,
    diagnostics,
    findings,
    load,
    models,
    penalty,
    random_walk,
    recipes,
    sample,
    sgld,
    statement_of,
    summary,
    testing,
)
from dpmcmc.curator.queries.nonprivate import NonPrivateGradient
from dpmcmc.diagnostics import FREE, PAID, of_chains
from dpmcmc.finding import Finding, Severity, in_words
from dpmcmc.queries import (
    Accept,
    BatchBarker,
    BatchRatio,
    CenteredGradient,
    Curvature,
    FixedBatch,
    Gradient,
    LogRatio,
    NonPrivateAccept,
    PenaltyAccept,
    PoissonBatch,
    TunaBarker,
)
from dpmcmc.results import arviz as results_arviz
from dpmcmc.results.summary import rounded_table
from dpmcmc.samplers.accept import AcceptInfo
from dpmcmc.samplers.langevin import LangevinInfo
from dpmcmc.samplers.start import Start
from dpmcmc.samplers.thermostat import ThermostatInfo
from dpmcmc.types import Answer
from tests import tiny

pytestmark = pytest.mark.usefixtures("quick_compilation")

LOGISTIC = models.logistic(2, radius=2.5, intercept=True)
PROVED = LOGISTIC.lipschitz
PLANE = models.logistic(2, radius=2.5)


def codes(found):
    return [finding.code for finding in found]


def severe_codes(found):
    return [finding.code for finding in found if finding.is_severe]


def measured(**variables):
    """What the draws (chain, draw, ...) of these parameters alone show."""
    with results_arviz._quiet():
        result = arviz.from_dict(posterior=variables)
    return results_arviz._of_chains(result, PAID)


@pytest.mark.parametrize(
    "query, is_reported",
    [
        (Gradient(PROVED, 100.0), False),
        (Gradient(PROVED * (1 - 1e-9), 100.0), False),
        (Gradient(2 * PROVED, 100.0), False),
        (Gradient(0.99 * PROVED, 100.0), True),
        (LogRatio(0.5 * PROVED, 100.0), True),
        (PenaltyAccept(0.5 * PROVED, 100.0, 0.1), True),
        (Curvature(LOGISTIC.hessian_bound, 100.0), False),
        (Curvature(0.5 * LOGISTIC.hessian_bound, 100.0), True),
        (Accept(Barker(), 0.1), False),  # depends on the moves
        (NonPrivateGradient(), False),  # clips nothing
    ],
    ids=str,
)
def test_a_clip_below_the_proved_bound_is_reported(query, is_reported):
    assert bool(diagnostics.of_settings(LOGISTIC, {query: 1})) is is_reported


@pytest.mark.parametrize(
    "query",
    [Gradient(1.0, 9.0), LogRatio(1.0, 9.0), Accept(Barker(), 0.1), TunaBarker(0.1)],
    ids=str,
)
def test_any_clip_are_reported_where_nothing_is_proved(query):
    (found,) = diagnostics.of_settings(models.poisson(2), {query: 1})
    assert found.code == "no-proved-bound" and "the model has no proved `lipschitz`" in found.text


@pytest.mark.parametrize(
    "length, is_accepted, is_reported", [(0.9, True, False), (1.1, True, True), (1.1, False, False)]
)
def test_moves_that_are_longer_than_the_bound_is_proved_for_are_reported(
    length, is_accepted, is_reported
):
    bit = Accept(Barker(), 0.1)
    lengths = np.zeros((5, 2))
    lengths[2, 1] = length * bit.bound / PROVED
    info = AcceptInfo(np.full((5, 2), is_accepted), lengths, np.zeros((5, 2), bool))
    plan = {bit: 1, Accept(Barker(), 9 * bit.bound): 1}  # the smaller bound is the one that clips
    found = diagnostics.of_draws(LOGISTIC, plan, [(np.zeros((5, 2, 3)), info)], thin=3)
    assert ("long-moves" in codes(found)) is is_reported


@pytest.mark.parametrize(
    "length, thin, is_reported", [(0.9, 1, False), (1.1, 1, True), (1.1, 2, False)]
)
def test_moves_of_a_sampler_that_does_not_tell_them_are_read_off_the_draws(
    length, thin, is_reported
):
    """Of several steps together nothing can be reported. The move may be between two blocks."""
    bit = Accept(Barker(), 0.1)
    position = np.zeros((1, 2, 3))
    position[0, 1, 0] = length * bit.bound / PROVED
    found = diagnostics.of_draws(
        LOGISTIC, {bit: 1}, [(np.zeros((1, 2, 3)), ()), (position, ())], thin
    )
    assert ("long-moves" in codes(found)) is is_reported


def test_a_tempered_posterior_is_reported():
    (found,) = diagnostics.of_settings(LOGISTIC, {Gradient(PROVED, 100.0, temperature=0.25): 1})
    assert (
        found.code == "tempered"
        and found.numbers["widening"] == 2
        and "about 2 times as wide as the posterior" in found.text
    )


LINE = models.linear(1, 0.5, radius=1.0, response_bound=4.0, position_radius=1.0)


def line_rows(slope):
    generator = np.random.default_rng(0)
    features = generator.uniform(-1, 1, (4000, 1)).astype(np.float32)
    return features, (slope * features[:, 0] + 0.5 * generator.normal(size=4000)).astype(np.float32)


@pytest.mark.slow
@pytest.mark.parametrize("slope, is_reported", [(0.3, False), (1.5, True)])
def test_a_posterior_beyond_the_limits_of_the_prior_is_reported(slope, is_reported):
    """The start ended beyond them, from where no step was taken: sd 0, thousands of effective draws
    and no finding.
    """
    budget = Budget(20.0, 1e-6)
    recipe = recipes.langevin(LINE, 4000, budget, stiffness=recipes.ATTAINED)
    curator = Curator(line_rows(slope), LINE, budget, fixed_secret=tiny.SECRET)
    result = sample(
        jax.random.key(0), recipe.sampler, curator, [0.0], **recipe.options, progress=False
    )
    assert ("the draws pile up at its limits" in in_words(findings(result))) is is_reported
    draws = result.posterior["coefficients"].to_numpy()
    assert np.abs(draws).max() <= 1 and (np.mean(draws) > 0.9) is np.bool_(is_reported)


def test_a_finding_does_not_name_the_number_that_would_be_good():
    """14.6 effective draws were printed as 15, of which 15 would have been enough."""
    columns = {
        "mean": 0.0,
        "hdi_3%": -1.0,
        "hdi_97%": 1.0,
        "ess_bulk": 14.6,
        "ess_tail": 14.6,
        "r_hat": 1.1003,
    }
    draws = np.random.default_rng(0).normal(size=(2, 40))
    found = of_chains(
        {"x": draws}, {column: {"x": value} for column, value in columns.items()}, PAID
    )
    assert codes(found) == ["r-hat", "few-effective-draws", "few-tail-draws"]
    reported = in_words(found)
    assert "R-hat is up to 1.101 (x), and must be at most 1.1." in reported
    assert "Only 14 effective draws (x): at least 15 are needed." in reported
    assert "Only 14 effective draws in the tails (x): at least 15 are needed." in reported


@pytest.mark.parametrize("limits", [PAID, FREE])
@pytest.mark.parametrize(
    "column, code",
    [("ess_bulk", "few-effective-draws"), ("ess_tail", "few-tail-draws"), ("r_hat", "r-hat")],
)
def test_every_limit_is_severe_just_beyond_it(column, code, limits):
    draws = np.random.default_rng(0).normal(size=(2, 40))
    good = {
        "mean": 0.0,
        "hdi_3%": -1.0,
        "hdi_97%": 1.0,
        "ess_bulk": limits.ess,
        "ess_tail": limits.ess,
        "r_hat": limits.r_hat,
    }
    bad = good | {column: good[column] + (1e-6 if column == "r_hat" else -1e-6)}
    for columns, expected in ((good, []), (bad, [code])):
        found = of_chains(
            {"x": draws}, {name: {"x": value} for name, value in columns.items()}, limits
        )
        assert severe_codes(found) == expected


def test_draws_that_never_change_are_no_draws():
    draws = np.random.default_rng(0).normal(size=(2, 12))
    still, apart = np.ones((2, 12)), np.ones((2, 12)) * [[1.0], [2.0]]

    def never_moved(**variables):
        return [found.text for found in measured(**variables) if found.code == "never-moved"]

    assert never_moved(x=draws) == []
    assert never_moved(x=draws, constant=still) == ["constant never moved."]
    for each in (still, apart, still[:, :1]):
        assert never_moved(x=each, y=still[:, : each.shape[1]]) == ["The chains never moved."]
    assert never_moved(x=still[:1, :1]) == [] and "no-effective-draws" in codes(
        measured(x=still[:1, :1])
    )


def test_a_mean_outside_its_own_interval_is_severe():
    """One chain ran off: an intercept of 34 980 with a 94 % interval of [25 579, 26 320], under a
    good verdict.
    """
    draws = np.random.default_rng(0).normal(25_950, 200, size=(2, 1000))
    assert "mean-outside-interval" not in codes(measured(x=draws))
    draws[1, :50] = 4e5
    (found,) = (
        each
        for each in measured(y=draws[:, ::-1] / draws, x=draws)
        if each.code == "mean-outside-interval"
    )
    assert found.is_severe and "x" in found.numbers["parameters"] and "The mean of" in found.text
    # A share is in no interval of truth values
    assert "mean-outside-interval" not in codes(measured(flag=draws > 1e5))


@pytest.mark.parametrize("share, is_found", [(0.005, False), (0.02, True)])
@pytest.mark.parametrize("side", [np.maximum, np.minimum])
def test_draws_at_a_bound_are_severe(side, share, is_found):
    """Of 4000 independent draws 80 lie at the bound, or 20: with other keys, more than 40 of the 20
    have a chance of 1e-4.
    """
    draws = np.random.default_rng(0).normal(size=(2, 2000))
    sign = 1 if side is np.maximum else -1
    bounded = side(
        draws, sign * np.quantile(sign * draws, share) if sign > 0 else -np.quantile(-draws, share)
    )
    found = measured(free=draws, x=bounded, flag=bounded > 0, count=np.round(bounded).astype(int))
    assert ("draws-at-bound" in severe_codes(found)) is is_found
    if is_found:
        (at_bound,) = (each for each in found if each.code == "draws-at-bound")
        assert at_bound.numbers["parameters"] == ["x"] and at_bound.numbers[
            "share"
        ] == pytest.approx(share, rel=0.05)


def test_a_chain_that_rejects_moves_at_its_largest_value_is_at_no_bound():
    """A walk whose moves are accepted once in 60 steps: it stays a while wherever it is, and comes
    back to no place.
    """
    steps = np.random.default_rng(0).normal(size=(2, 40))
    draws = np.repeat(steps, 60, axis=1)
    assert np.mean(draws == draws.max()) > 0.01 and np.mean(draws == draws.min()) > 0.01
    assert "draws-at-bound" not in codes(measured(x=draws))


@pytest.mark.parametrize("query, is_reported", [
    # Off by a quarter of a standard deviation
    (BatchRatio(1.0, 0.8, FixedBatch(100, 100_000), temperature=0.006), True),
    (BatchRatio(1.0, 0.8, FixedBatch(100, 100_000), temperature=0.001), False),
    (BatchRatio(1.0, 0.8, FixedBatch(100, 1_000), temperature=0.006), False),
    (BatchRatio(9.0, 0.8, FixedBatch(100, 100_000), temperature=0.001), True),
    (BatchRatio(9.0, 0.8, FixedBatch(1000, 100_000), temperature=0.001), False),
    (BatchBarker(FixedBatch(100, 100_000), temperature=0.1), False),  # has a bound of its own
    (Gradient(1.0, 1.0, batch=PoissonBatch(0.001), temperature=0.1), False),
], ids=str)  # fmt: skip
def test_batches_in_which_a_row_counts_for_too_many_are_reported(query, is_reported):
    info = AcceptInfo(np.ones((5, 2), bool), np.full((5, 2), 0.16), np.zeros((5, 2), bool))
    positions = np.cumsum(np.full((5, 2, 3), 0.16 / 3**0.5), axis=0)
    found = diagnostics.of_draws(LOGISTIC, {query: 1}, [(positions, info)], thin=1)
    assert ("heavy-rows" in codes(found)) is is_reported


@pytest.mark.parametrize("num_accepted, size, reported", [
    (0, 1, ""),
    (0, 5, "none of 5"),
    (1, 50, ""),
    (1, 500, "0.2% of the"),
    (5, 500, ""),
])  # fmt: skip
def test_moves_that_are_hardly_ever_accepted_are_reported(num_accepted, size, reported):
    is_accepted = np.arange(size)[:, None] < num_accepted
    lengths = np.full((size, 1), 0.1)
    info = AcceptInfo(is_accepted, lengths, np.zeros((size, 1), bool))
    positions = 0.1 * np.cumsum(is_accepted, axis=0)[:, :, None] * np.ones(tiny.MODEL.dimension)
    found = diagnostics.of_draws(tiny.MODEL, {}, [(positions, info)], thin=1)
    texts = [each.text for each in found if each.code == "few-accepted"]
    assert len(texts) == bool(reported) and all(
        text.startswith(f"Moves were accepted at {reported} draws") for text in texts
    )


def langevin_draws(stiffness, thin, num_draws=600):
    """x' = (1 - s/2) x + noise along one axis, and slow along another: as Langevin dynamics with
    step h, s = h * precision.
    """
    generator = np.random.default_rng(1)
    state, kept, moves = np.zeros((2, 2)), [], []
    turn = np.array([[0.6, 0.8], [-0.8, 0.6]])
    for step in range(num_draws * thin):
        before = state
        state = (1 - np.array([stiffness, 0.02]) / 2) * state + np.sqrt(
            [stiffness, 0.02]
        ) * generator.normal(size=(2, 2))
        if step % thin == thin - 1:
            kept.append(state @ turn)
            moves.append((state - before) @ turn)
    quiet = np.zeros((num_draws, 2), bool)
    return [
        (
            np.array(kept),
            LangevinInfo(
                np.zeros((num_draws, 2, 2)), np.array(moves), 1.0 + quiet, quiet, quiet, quiet
            ),
        )
    ]


@pytest.mark.parametrize("thin", [1, 2, 3, 10])
@pytest.mark.parametrize(
    "stiffness, factor", [(0.2, None), (0.6, None), (2.0, 2**0.5), (3.5, 8**0.5), (3.99, "many")]
)
def test_langevin_steps_that_are_too_long_are_reported(stiffness, thin, factor):
    """The factor to a fifth, however the draws are thinned.

    Fixed keys; of 400 others none alarmed at 0.6 or 0.7, and 2 at 0.8.
    """
    found = diagnostics.of_draws(PLANE, {}, langevin_draws(stiffness, thin), thin)
    if factor is None:
        assert found == []
    else:
        assert found[0].code == "steps-too-long" and found[0].is_severe == (stiffness > 3)
        assert "Are the rows within what is declared of them" in found[0].text
        (words,) = re.findall(r"the draws are spread (\S+) times as widely as it", found[0].text)
        assert words == factor or float(words) == pytest.approx(factor, rel=0.2)


def test_directions_that_are_rounding_alone_say_nothing_of_the_steps():
    ((positions, info),) = langevin_draws(0.2, 1)
    along = np.float32(1000 + positions[..., :1] * np.array([1.0, 2.0]))
    info = info._replace(move=np.diff(along, axis=0, prepend=along[:1]))
    flat = PLANE._replace(log_prior=lambda position: 0.0 * position[0])
    assert diagnostics.of_draws(flat, {}, [(along, info)], 1) == []


@pytest.mark.parametrize(("share", "is_reported"), [(0.04, False), (0.06, True)])
def test_steps_out_of_the_prior_are_reported_when_they_are_many(share, is_reported):
    ((positions, info),) = langevin_draws(0.2, 1)
    is_outside = np.arange(len(positions))[:, None] < np.full(2, share * len(positions))
    found = diagnostics.of_draws(PLANE, {}, [(positions, info._replace(is_outside=is_outside))], 1)
    assert ("outside-prior" in codes(found)) == is_reported


def test_one_component_that_never_moves_is_reported():
    """ArviZ takes it for perfect: 2400 effective draws."""
    ((positions, info),) = langevin_draws(0.2, 1)
    frozen = np.concatenate([positions, np.full((*positions.shape[:2], 1), 7.0)], axis=-1)
    moves = np.concatenate([info.move, np.zeros((*positions.shape[:2], 1))], axis=-1)
    (found,) = diagnostics.of_draws(LOGISTIC, {}, [(frozen, info._replace(move=moves))], 1)
    assert found.code == "component-still" and found.numbers["components"] == [positions.shape[-1]]
    assert found.text.startswith(
        f"Component {positions.shape[-1]} of the position never moved, while others did"
    )


def test_what_happened_in_the_warm_up_is_not_reported():
    ((positions, info),) = langevin_draws(0.2, 1)
    info = info._replace(is_saturated=np.arange(600)[:, None] < np.full(2, 200))
    assert "33% of the steps" in in_words(diagnostics.of_draws(PLANE, {}, [(positions, info)], 1))
    assert diagnostics.of_draws(PLANE, {}, [(positions, info)], 1, warmup=0.5) == []


@pytest.mark.parametrize(
    "ratio, factor, is_relied_on",
    [(1.3, 1.1, True), (2.0, 1.4, True), (2.4, 1.5, False), (5.0, 2.2, False)],
)
def test_how_much_noise_there_is_too_much_is_reported(ratio, factor, is_relied_on):
    ((positions, info),) = langevin_draws(0.2, 1)
    all_steps = np.ones(positions.shape[:2])
    loud = info._replace(is_saturated=all_steps > 0, noise_ratio=ratio * all_steps)
    (found,) = diagnostics.of_draws(PLANE, {}, [(positions, loud)], 1)
    assert found.code == "gradient-noise" and found.is_severe != is_relied_on
    assert f"up to {factor:g} times as widely" in found.text


def test_batches_are_reported_to_those_who_use_langevin_dynamics():
    plan = {Gradient(PROVED, 9.0, PoissonBatch(0.1)): 1}
    assert codes(diagnostics.of_draws(PLANE, plan, langevin_draws(0.2, 1), 1)) == ["batch-noise"]


def test_steps_that_leave_the_numbers_are_not_taken_for_a_narrow_prior():
    model = models.gaussian([1.0, 1.0])
    rows = np.random.default_rng(0).normal(size=(1000, 2)).astype(np.float32)
    curator = Curator(rows, model, None, fixed_secret=tiny.SECRET)
    result = sample(
        jax.random.key(0),
        sgld(model.log_prior, NonPrivateGradient(), 4.5e-3),
        curator,
        np.zeros(2),
        num_steps=600,
        progress=False,
    )
    assert "divergent" in severe_codes(findings(result)) and "outside-prior" not in codes(
        findings(result)
    )


def test_one_step_that_leaves_the_numbers_is_enough():
    ((positions, info),) = langevin_draws(0.2, 1)
    once = info._replace(is_divergent=np.arange(1200).reshape(600, 2) == 7)
    assert severe_codes(diagnostics.of_draws(PLANE, {}, [(positions, once)], 1)) == ["divergent"]


@pytest.mark.slow
def test_a_step_that_uses_up_the_noise_exactly_is_not_saturated():
    """The recipe's own: in float32 their product came out a little above 4 for one table in
    thirty."""
    model, budget = models.logistic(2, radius=1.0), Budget(4.0, 1e-6)
    recipe = recipes.langevin(model, 18_078, budget)
    rows = testing.simulate_logistic_rows(jax.random.key(1), 18_078, [1.0, -1.0], radius=1.0)
    curator = Curator(rows, model, None, fixed_secret=tiny.SECRET)
    result = sample(
        jax.random.key(2),
        recipe.sampler,
        curator,
        np.zeros(2),
        num_steps=4,
        start=recipe.start,
        progress=False,
    )
    assert not result.sample_stats["is_saturated"].any()


def test_clipped_gradients_of_hmc_are_no_bias():
    test = LogRatio(PROVED, 9.0)
    for small in (Gradient(0.5 * PROVED, 9.0), NonPrivateGradient(0.5 * PROVED)):
        assert diagnostics.of_settings(LOGISTIC, {small: 3, test: 1}) == []
        assert len(diagnostics.of_settings(LOGISTIC, {small: 1})) == 1


def test_walks_that_the_limits_cut_are_reported_too():
    bit, quiet = Accept(Barker(), 0.1), np.zeros((20, 2))
    for share, is_reported in ((0.02, False), (0.3, True)):
        outside = np.arange(40).reshape(20, 2) < 40 * share
        info = AcceptInfo(np.ones((20, 2), bool), quiet, outside)
        found = diagnostics.of_draws(LOGISTIC, {bit: 1}, [(np.zeros((20, 2, 3)), info)], 1)
        assert ("its limits cut the posterior" in in_words(found)) is is_reported


def test_a_run_shows_each_finding_once_and_keeps_it(caplog, capsys, tmp_path):
    result = tiny.run(path=tmp_path / "run.nc")
    assert {"no-proved-bound", "r-hat"} <= set(codes(findings(result)))
    assert findings(load(tmp_path / "run.nc")) == findings(result)
    assert "Some rows may be clipped by LogRatio" in caplog.text
    assert (
        caplog.text.count("DO NOT RELY on these draws: The chains disagree: R-hat")
        == caplog.text.count("DO NOT RELY")
        == 1
    )
    assert all(caplog.text.count(finding.text) == 1 for finding in findings(result))
    assert capsys.readouterr().err == ""
    caplog.clear()
    tiny.run(progress=True)
    reported = capsys.readouterr().err
    assert (
        reported.index("Some rows may be clipped")
        < reported.index("12 of 12 steps")
        < reported.index("DO NOT RELY")
    )
    assert caplog.text == ""
    tiny.run(progress="bar")
    assert (
        re.fullmatch(r"dpmcmc: 12 of 12 steps, \d+% accepted\n", capsys.readouterr().err)
        and caplog.text == ""
    )


def test_findings_are_no_part_of_the_privacy_statement():
    statement = statement_of(tiny.run())
    assert "Note:" not in statement and "DO NOT RELY" not in statement


def test_a_finding_survives_json():
    found = Finding(
        "code",
        Severity.SEVERE,
        "Text.",
        {"a": np.float32(0.5), "b": np.array([1, 2]), "c": np.inf, "d": "x"},
    )
    again = Finding.from_json(json.loads(json.dumps(found.to_json(), allow_nan=False)))
    assert (
        again == found
        and again.is_severe
        and again.numbers == {"a": 0.5, "b": [1, 2], "c": "inf", "d": "x"}
    )
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.text = "Other text."


def own_check(result):
    return [
        Finding(
            "own", Severity.SEVERE, f"The mean is {float(result.posterior['mean'].mean()):.1f}.", {}
        )
    ]


@pytest.mark.slow
def test_checks_of_ones_own_are_kept_in_the_file_too(tmp_path):
    tiny.run(path=tmp_path / "run.nc", checks=own_check)
    assert "own" in severe_codes(findings(load(tmp_path / "run.nc")))
    # After the budget is spent nothing may be lost
    for bad in (lambda result: ["a text"], lambda result: 1 / 0):
        assert "not-checked" in codes(findings(tiny.run(checks=bad)))
    curator = tiny.make_curator()
    for wrong, words in (
        ({"checks": 3}, "checks is a int"),
        ({"progress": "no"}, "progress='no' must be"),
    ):
        with pytest.raises((TypeError, ValueError), match=words):
            tiny.run(curator, **wrong)
    assert curator.num_grants == 0


@pytest.mark.slow
def test_draws_that_cost_nothing_are_held_against_stricter_limits():
    """The limits are kept beside the findings: nobody who reads them has to guess."""
    free = Sampler(
        tiny.BARKER.init,
        lambda key, state, ask: (
            state._replace(position=state.position + jax.random.normal(key)),
            {},
        ),
    )
    results = [
        tiny.run(tiny.make_curator(budget=None), sampler, num_steps=150)
        for sampler in (free, tiny.PENALTY)
    ]
    assert [results_arviz.limits_of(result) for result in results] == [FREE, PAID]
    assert "few-effective-draws" in severe_codes(findings(results[0]))


def test_findings_of_all_runs_are_kept_where_runs_are_put_together():
    def of(code):
        draws = np.random.default_rng(0).normal(size=(2, 60, 1))
        statement = tiny.make_curator().grant({tiny.RATIO: 2}).statement()
        found = [Finding(code, Severity.SEVERE, "Text.")]
        return results_arviz.from_draws(draws, None, tiny.MODEL.unravel, statement, findings=found)

    together = arviz.concat(of("one"), of("other"), dim="chain", reset_dim=True)
    assert codes(findings(together)) == ["one", "other"]


def test_what_is_known_before_the_grant_are_reported_before_it(caplog, monkeypatch):
    def grant(*_):
        assert "Some rows may be clipped by LogRatio" in caplog.text
        raise KeyboardInterrupt

    monkeypatch.setattr(Curator, "grant", grant)
    with pytest.raises(KeyboardInterrupt):
        tiny.run()


def student(scale):
    """A prior around 2, of which nothing can be seen at 0."""
    return lambda position: -2.5 * jnp.log1p(((position[0] - 2) / scale) ** 2 / 4)


@pytest.mark.parametrize("scale, is_reported", [(0.02, True), (3.0, False)])
def test_steps_that_jump_over_the_prior_are_reported(scale, is_reported):
    """Steps of .3 around 2.

    A normal prior's gradients at both ends give its change exactly, which is left to the other
    finding.
    """
    rng = np.random.default_rng(0)
    positions, moves = 2 + 0.5 * rng.normal(size=(400, 2, 1)), 0.3 * rng.normal(size=(400, 2, 1))
    assert diagnostics.draws._skips(student(scale), positions, moves) is is_reported
    assert not diagnostics.draws._skips(
        lambda position: -0.5 * ((position[0] - 2) / scale) ** 2, positions, moves
    )
    info = LangevinInfo(moves, moves, np.ones((400, 2)), *np.zeros((3, 400, 2), bool))
    model = models.gaussian([1.0])._replace(log_prior=student(scale))
    assert (
        "steps-skip-prior" in codes(diagnostics.of_draws(model, {}, [(positions, info)], 1))
    ) is is_reported
    positions[7] = -100.0  # where there is no prior nothing is compared

    def walled(position):
        return jnp.where(position[0] > -50, student(scale)(position), -jnp.inf)

    assert diagnostics.draws._skips(walled, positions, moves) is is_reported


@pytest.mark.parametrize(
    "center, scale, estimate, error, is_reported",
    [
        (0.0, 1.0, 170.0, 0.3, True),  # heights in centimetres
        (0.0, 1.0, 1.7, 0.003, False),  # in metres
        (0.0, 1.0, 16.0, 2**0.5, True),  # 9.2 standard deviations apart
        (0.0, 1.0, 13.0, 2**0.5, False),  # 7.5
        (9.0, 1.0, 0.0, 1e-3, False),  # many rows overrule any prior
    ],
)
def test_a_prior_that_the_rows_contradict_is_reported(center, scale, estimate, error, is_reported):
    """Draws of the exact posterior under a normal prior, when the rows say estimate +- error; and
    so of a second, unsuspicious parameter. The doubt is at 4 standard deviations of the draws,
    whose mean is known to .03 of them.
    """
    precision = scale**-2 + error**-2
    mean = (center / scale**2 + estimate / error**2) / precision
    draws = np.random.default_rng(0).normal(size=(500, 2, 2)) * [1.0, precision**-0.5] + [0.0, mean]
    model = models.gaussian([1.0, 1.0])._replace(
        log_prior=lambda position: (
            -0.5 * (position[0] / 2) ** 2 - 0.5 * ((position[1] - center) / scale) ** 2
        )
    )
    info = AcceptInfo(np.ones((500, 2), bool), np.ones((500, 2)), np.zeros((500, 2), bool))
    found = diagnostics.of_draws(model, {}, [(draws, info)], 1)
    pulled = [each.numbers["component"] for each in found if each.code == "prior-contradicts-rows"]
    assert pulled == [1] * is_reported


def test_a_prior_without_a_slope_at_some_draw_hides_no_contradiction():
    draws = np.random.default_rng(0).normal(9.0, 1.0, size=(500, 2, 1))
    model = models.gaussian([1.0])._replace(
        log_prior=lambda p: -0.5 * p[0] ** 2 + 1e-9 * jnp.sqrt(jnp.abs(p[0] - 10))
    )
    draws[7] = 10.0  # where the root has none
    info = AcceptInfo(np.ones((500, 2), bool), np.ones((500, 2)), np.zeros((500, 2), bool))
    assert "prior-contradicts-rows" in codes(diagnostics.of_draws(model, {}, [(draws, info)], 1))


@pytest.mark.parametrize("shape", [0.1, 0.5, 2.0])
def test_a_prior_that_is_infinite_at_its_edge_is_no_contradiction(shape):
    """Draws of a gamma prior itself: its slope has no mean if the shape is below 1."""
    draws = np.maximum(np.random.default_rng(0).gamma(shape, size=(500, 2, 1)), 1e-30)
    model = models.gaussian([1.0])._replace(log_prior=lambda p: (shape - 1) * jnp.log(p[0]) - p[0])
    info = AcceptInfo(np.ones((500, 2), bool), np.ones((500, 2)), np.zeros((500, 2), bool))
    assert "prior-contradicts-rows" not in codes(
        diagnostics.of_draws(model, {}, [(draws, info)], 1)
    )


@pytest.mark.parametrize("size, is_reported", [(10, True), (49, True), (50, False)])
def test_small_batches_that_correct_by_their_own_variance_are_reported(size, is_reported):
    found = diagnostics.of_settings(
        LOGISTIC, {BatchRatio(PROVED, 1.0, FixedBatch(size, of=1000)): 1}
    )
    assert ("small-batches" in codes(found)) is is_reported
    found = diagnostics.of_settings(LOGISTIC, {Gradient(PROVED, 1.0, FixedBatch(9, of=99)): 1})
    assert "small-batches" not in codes(found)


def spread_and_mean(position, row):
    return -jnp.log(position[1]) - 0.5 * ((row - position[0]) / position[1]) ** 2


@pytest.mark.parametrize("low, is_reported", [(-1.0, True), (0.5, False)])
def test_positions_at_which_rows_count_for_nothing_are_reported(low, is_reported):
    model = models.gaussian([1.0, 1.0])._replace(log_likelihood=spread_and_mean)
    positions = np.stack(
        np.meshgrid(np.linspace(-1, 1, 30), np.linspace(low, 2, 30)), axis=-1
    ).astype(np.float32)
    reported = diagnostics.of_positions(model, jax.ShapeDtypeStruct((), jnp.float32), positions)
    assert bool(reported) is is_reported and all(
        "33% of all positions" in each.text for each in reported
    )


@pytest.mark.parametrize("spread, is_reported", [(-0.5, True), (0.5, False)])
def test_a_start_at_which_rows_count_for_nothing_are_reported_before_the_budget_is_spent(
    spread, is_reported
):
    model = models.gaussian([1.0, 1.0])._replace(log_likelihood=spread_and_mean)
    start = np.array([0.0, spread], np.float32)
    reported = diagnostics.of_values(model, jax.ShapeDtypeStruct((), jnp.float32), start)
    assert codes(reported) == ["no-log-likelihood-at-start"] * is_reported
    sampler = penalty(model.log_prior, LogRatio(1.0, 1.0), random_walk(1e-3))
    run = sample(
        jax.random.key(0),
        sampler,
        Curator(np.zeros(50), model, None),
        start,
        num_steps=2,
        progress=False,
    )
    assert ("no-log-likelihood-at-start" in codes(findings(run))) is is_reported


def test_a_row_that_is_no_number_is_not_enough():
    """A logarithm of row 0 is none, of other rows it is one."""
    model = models.gaussian([1.0])._replace(
        log_likelihood=lambda position, row: jnp.log(row) * jnp.cos(position[0]) - jnp.log(row)
    )
    row, positions = (
        jax.ShapeDtypeStruct((), jnp.float32),
        np.linspace(-1, 1, 21, dtype=np.float32)[:, None],
    )
    assert (
        diagnostics.of_values(model, row, positions[10])
        == []
        == diagnostics.of_positions(model, row, positions)
    )


@pytest.mark.parametrize(
    "lipschitz, declared, is_reported",
    [(0.3, None, True), (1.1, None, False), (0.3, "|row| <= 0.3", False)],
)
def test_a_bound_that_a_row_contradicts_are_reported_before_the_budget_is_spent(
    lipschitz, declared, is_reported
):
    """Of rows around 1 with a clip of 0.3 the mean was off by 41 standard deviations, with an R-hat
    of 1.00.
    """
    model = models.gaussian([1.0])._replace(lipschitz=lipschitz, declared=declared)
    row = jax.ShapeDtypeStruct((1,), jnp.float32)
    reported = diagnostics.of_bounds(model, row, np.zeros(1, np.float32))
    assert bool(reported) is is_reported and all(
        "A made-up row of ones has a log-likelihood whose gradient is of length 1 at" in each.text
        for each in reported
    )
    sampler = penalty(model.log_prior, LogRatio(lipschitz, 1.0), random_walk(1e-3))
    run = sample(
        jax.random.key(0),
        sampler,
        Curator(np.zeros((9, 1)), model, None),
        np.zeros(1),
        num_steps=2,
        progress=False,
    )
    assert ("bound-contradicted" in codes(findings(run))) is is_reported


def test_a_clip_below_the_spread_are_reported_but_not_measured_by_one_around_zero():
    model = models.gaussian([1.0], radius=1.0)
    (of_center,) = diagnostics.of_settings(model, {CenteredGradient(0.5, 1.0): 1})
    (of_zero,) = diagnostics.of_settings(model, {Gradient(0.5, 1.0): 1})
    assert "below the model's spread" in of_center.text and "clip_shift" not in of_center.text
    assert "below the model's lipschitz" in of_zero.text and "clip_shift" in of_zero.text
    assert diagnostics.of_settings(model, {CenteredGradient(model.spread, 1.0): 1}) == []


@pytest.mark.parametrize("spread, is_reported", [(0.3, True), (1.1, False)])
def test_a_spread_that_a_row_contradicts_is_reported(spread, is_reported):
    model = models.gaussian([1.0], radius=1.0)._replace(
        declared=None, lipschitz=None, spread=spread
    )
    reported = diagnostics.of_bounds(
        model, jax.ShapeDtypeStruct((1,), jnp.float32), np.full(1, 5.0, np.float32)
    )
    assert bool(reported) is is_reported and all(
        "distance from center is 1 at initial_position, above the model's spread" in each.text
        for each in reported
    )


def zero_or_log_normal(guard):
    """y = 0 with some chance, else log y is normal.

    Unless guarded, JAX has log 0 in the gradient of rows at 0.
    """

    def log_likelihood(position, row):
        size = jnp.log(jnp.where(row > 0, row, 1.0) if guard else row)
        some = jax.nn.log_sigmoid(position[0]) - 0.5 * (size - position[1]) ** 2
        return jnp.where(row > 0, some, jax.nn.log_sigmoid(-position[0]))

    return log_likelihood


@pytest.mark.parametrize("guard", [True, False])
def test_gradients_that_are_no_numbers_are_reported_before_the_budget_is_spent(guard):
    model = models.gaussian([1.0, 1.0])._replace(log_likelihood=zero_or_log_normal(guard))
    row, start = jax.ShapeDtypeStruct((), jnp.float32), np.zeros(2, np.float32)
    reported = diagnostics.of_gradients(model, row, start, {Gradient(6.0, 1.0): 1})
    assert bool(reported) is not guard and all(
        "a made-up row of zeros" in each.text for each in reported
    )
    # A test decides about where gradients lead, and takes no gradient itself.
    assert (
        diagnostics.of_gradients(model, row, start, {Gradient(6.0, 1.0): 3, LogRatio(6.0, 1.0): 1})
        == []
    )
    curator = Curator(np.zeros(50), model, None)
    run = sample(
        jax.random.key(0),
        sgld(model.log_prior, Gradient(6.0, 1.0), 1e-3),
        curator,
        start,
        num_steps=2,
        progress=False,
    )
    assert ("no-gradient" in codes(findings(run))) is not guard
    # Nor warned about types: rows are often double, JAX is not
    assert "not-checked" not in codes(findings(run))


def in_double_alone(position, row):
    """-|position|^2, by way of numbers that float32 does not have: there it is none but at 0."""
    return -1e-60 * jnp.sum((1e30 * position) ** 2) + 0 * row


@pytest.mark.parametrize("dtype, is_reported", [(np.float32, True), (np.float64, False)])
def test_made_up_rows_are_tried_in_the_precision_of_the_rows(dtype, is_reported):
    model = models.gaussian([1.0])._replace(log_likelihood=in_double_alone, lipschitz=10.0)
    row, start = jax.ShapeDtypeStruct((), dtype), np.ones(1, np.float32)
    assert bool(diagnostics.of_values(model, row, start)) is is_reported
    assert (
        bool(diagnostics.of_positions(model, row, np.linspace(0, 1, 3, dtype=np.float32)[:, None]))
        is is_reported
    )
    bounded = model._replace(lipschitz=1.0)  # at 1 the gradient is 2
    assert bool(diagnostics.of_bounds(bounded, row, start)) is not is_reported
    steep = model._replace(
        log_likelihood=lambda position, row: jnp.where(
            row > 2, jnp.log(jnp.exp(200 * position[0])), 0.0
        )
    )
    assert bool(diagnostics.of_gradients(steep, row, start, {Gradient(6.0, 1.0): 1})) is is_reported


@pytest.mark.parametrize(
    "bad, is_reported",
    [pytest.param(bad, False, marks=pytest.mark.slow) for bad in (0, 250)] + [(500, True)],
)
def test_rows_that_say_nothing_are_reported_after_the_start(bad, is_reported):
    """The start's curvature is released; of silent rows it is noise, for which it is taken in all
    but one of a thousand runs.
    """
    simulate = jax.jit(testing.simulate_logistic_rows, static_argnums=(1, 3))
    features, labels = map(np.asarray, simulate(jax.random.key(0), 500, np.array([1.0, -1.0]), 1.0))
    model = models.logistic(2, radius=1.0)
    curator = Curator(
        (features, np.where(np.arange(500) < bad, np.float32(np.nan), labels)),
        model,
        Budget(20.0, 1e-6),
    )
    recipe = recipes.langevin(model, 500, curator.budget)
    run = sample(
        jax.random.key(0),
        recipe.sampler,
        curator,
        np.zeros(2),
        num_steps=2,
        **recipe.options | {"thin": 1},
        progress=False,
    )
    assert ("nothing-but-noise" in severe_codes(findings(run))) is is_reported
    assert "not-checked" not in codes(findings(run))


def test_noise_are_reported_from_curvature():
    """As often as it is meant to be: of 4000 matrices of noise 4 are taken for curvature, 14 or
    more with a chance of 1e-4.
    """
    noise = np.random.default_rng(0).normal(size=(4000, 5, 5)) * 3.0
    noise = (noise + noise.swapaxes(1, 2)) / 2  # on the diagonal a variance of 9, elsewhere of 4.5
    taken = [not diagnostics.of_start(Start(None, None, Answer(matrix, 9.0))) for matrix in noise]
    assert 0 < sum(taken) < 14
    assert not diagnostics.of_start(Start(None, None, Answer(noise[0] - 30 * np.eye(5), 9.0)))
    assert diagnostics.of_start(None) == []
    # Somebody's own, of another kind
    assert diagnostics.of_start(Start(None, None, noise[0])) == []


def shapes(*leaves, dtype=np.float32):
    return tuple(jax.ShapeDtypeStruct(leaf, dtype) for leaf in leaves)


PARTS = {
    "logistic": (models.logistic(2, radius=0.1, intercept=True, prior_scale=0.1), shapes((2,), ())),
    "logistic in double": (models.logistic(2, radius=1.0), shapes((2,), (), dtype=np.float64)),
    "linear": (
        models.linear(2, 0.1, radius=1.0, response_bound=1.0, position_radius=5.0),
        shapes((2,), ()),
    ),
    "poisson": (models.poisson(2, intercept=True), shapes((2,), ())),
    "gaussian": (models.gaussian(np.eye(2), radius=0.5), shapes((2,))[0]),
    "binomial": (models.binomial(3), jax.ShapeDtypeStruct((), np.int32)),
    "categorical": (models.categorical(4), jax.ShapeDtypeStruct((), np.int32)),
    "poisson rate": (models.poisson_rate(1), jax.ShapeDtypeStruct((), np.int32)),
}


@pytest.mark.parametrize("at", [0.0, 3.0, -20.0])
@pytest.mark.parametrize("name", PARTS)
def test_the_parts_of_our_models_agree(name, at):
    model, row = PARTS[name]
    assert model.linear is not None or model.family is not None
    assert diagnostics.of_parts(model, row, np.full(model.dimension, at, np.float32)) == []


def test_parts_that_contradict_each_other_are_reported():
    model, row = PARTS["logistic"]
    parts = model.linear
    swapped = parts._replace(features=lambda row: parts.features(row)[::-1])
    scaled = parts._replace(
        log_likelihood=lambda predictor, row: 1.01 * parts.log_likelihood(predictor, row)
    )
    family, number = PARTS["poisson rate"]
    log_partition = lambda position: 0.99 * family.family.log_partition(position)  # noqa: E731
    wrong = family._replace(family=family.family._replace(log_partition=log_partition))
    for bad, shape, words in [
        (
            model._replace(linear=swapped),
            row,
            "linear.features are not the gradient of linear.predictor",
        ),
        (
            model._replace(linear=scaled),
            row,
            "`linear` of the model contradicts its log_likelihood",
        ),
        (wrong, number, "`family` of the model contradicts its log_likelihood"),
    ]:
        (reported,) = diagnostics.of_parts(bad, shape, np.zeros(bad.dimension, np.float32))
        assert words in reported.text


@pytest.mark.slow
def test_a_run_tells_of_parts_that_contradict_each_other():
    model = PARTS["logistic"][0]
    parts = model.linear._replace(
        log_likelihood=lambda predictor, row: 2 * model.linear.log_likelihood(predictor, row)
    )
    curator = Curator((np.zeros((50, 2)), np.zeros(50)), model._replace(linear=parts), None)
    run = sample(
        jax.random.key(0),
        sgld(model.log_prior, Gradient(2.0, 1.0), 1e-3),
        curator,
        np.zeros(3),
        num_steps=2,
        progress=False,
    )
    assert "parts-disagree" in codes(findings(run))


def thermostat_info(momenta):
    quiet = np.zeros(momenta.shape[:2], bool)
    return ThermostatInfo(np.ones(momenta.shape[:2]), momenta, momenta, quiet, quiet, quiet)


def test_many_directions_do_not_make_a_false_alarm():
    """200 directions, 20 runs of 300 momenta with autocorrelation .9: four of the runs alarmed
    before the number counted.
    """
    rng = np.random.default_rng(0)
    for _ in range(20):
        momenta = [rng.normal(size=(4, 200))]
        for _ in range(299):
            momenta.append(0.9 * momenta[-1] + 0.19**0.5 * rng.normal(size=(4, 200)))
        assert diagnostics.draws._of_temperatures(np.array(momenta)) == []


@pytest.mark.parametrize(
    "widths, is_reported",
    [([1.0, 1.0], False), ([1.1, 0.9], False), ([1.0, 1.5], True), ([0.7, 1.0], True)],
)
def test_directions_with_another_temperature_are_reported(widths, is_reported):
    """3000 momenta of 2 chains, of autocorrelation .9. With 1000 of 4 chains and 300 other keys
    none of 20 directions alarmed; with as few independent ones as it takes at most 5 of 300 runs
    did.
    """
    rng = np.random.default_rng(0)
    momenta = [rng.normal(size=(2, 2))]
    for _ in range(2999):
        momenta.append(0.9 * momenta[-1] + 0.19**0.5 * rng.normal(size=(2, 2)))
    momenta = np.array(momenta) * widths
    found = diagnostics.of_draws(PLANE, {}, [(0.1 * momenta, thermostat_info(momenta))], 1)
    assert ("uneven-temperature" in codes(found)) is is_reported


def test_the_thermostat_tells_of_steps_that_jump_over_the_prior():
    rng = np.random.default_rng(0)
    positions, moves = 2 + 0.5 * rng.normal(size=(400, 2, 1)), 0.3 * rng.normal(size=(400, 2, 1))
    info = thermostat_info(rng.normal(size=(400, 2, 1)))._replace(move=moves)
    model = models.gaussian([1.0])._replace(log_prior=student(0.02))
    assert "steps-skip-prior" in codes(diagnostics.of_draws(model, {}, [(positions, info)], 1))


def test_a_truth_value_among_the_parameters_hides_no_finding():
    rng = np.random.default_rng(0)
    apart = rng.normal(size=(2, 200)) + [[0.0], [5.0]]
    assert "r-hat" in severe_codes(measured(x=apart, is_positive=apart > 0))


def prior_and_named(position):
    return {
        "flat": position[0],
        "narrow": 2 * position[1],
        "both": position[1:3],
        "is_large": position[1] > 0,
    }


def test_the_width_of_the_prior_is_known_in_the_parameters_of_people():
    """A prior that is flat along one axis, of width 3 along the next, and correlated with the last
    one.
    """
    covariance = np.array([[9.0, 1.0], [1.0, 4.0]])
    precision = jnp.asarray(np.linalg.inv(covariance), jnp.float32)
    widths = diagnostics.prior_widths(
        lambda p: -0.5 * p[1:] @ precision @ p[1:], prior_and_named, np.array([5.0, 1.0, -2.0])
    )
    assert set(widths) == {"flat", "narrow", "both"} and widths["flat"] == np.inf
    np.testing.assert_allclose(widths["narrow"], 6, rtol=1e-5)
    np.testing.assert_allclose(widths["both"], [3, 2], rtol=1e-5)


def silent_where_missing(position, row):
    return jnp.where(jnp.isnan(row), 0.0, -0.5 * (row - position[0]) ** 2)


@pytest.mark.parametrize("is_missing", [True, False])
def test_a_parameter_as_wide_as_its_prior_is_marked_in_the_table(is_missing):
    """Without noise: missing rows leave a posterior of width 1, 400 others one of width 0.05. The
    mark is above 0.7.
    """
    rows = np.where(is_missing, np.nan, np.linspace(-1, 1, 400)).astype(np.float32)
    model = tiny.MODEL._replace(log_likelihood=silent_where_missing)
    sampler = accept_walk(
        tiny.log_prior, NonPrivateAccept(Metropolis()), random_walk(2.0 if is_missing else 0.1)
    )
    result = tiny.run(tiny.make_curator(rows, model, None), sampler, num_steps=1000, warmup=0.1)
    (note,) = rounded_table(result)["note"]
    assert note == ("prior" if is_missing else "")
    assert summary(result).splitlines()[1].endswith(" prior") is is_missing
