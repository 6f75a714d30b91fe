"""Several owners: their answers add, each pays and promises for itself, and any of them can end a
run.

The statistical tests have a false-alarm rate of 1e-3 each.
"""

import dataclasses
import functools
import json
import math
import os
from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from typer.testing import CliRunner

from dpmcmc import (
    Barker,
    Budget,
    BudgetExceeded,
    Curator,
    Federation,
    Model,
    Neighbours,
    PrivacyRefusal,
    RunFailed,
    UnsupportedQuery,
    diagnostics,
    findings,
    hmc,
    load,
    models,
    newton_start,
    penalty,
    sample,
    sgld,
    statement_of,
    testing,
)
from dpmcmc.accounting import costs, reading
from dpmcmc.cli import main
from dpmcmc.curator import federation as federations
from dpmcmc.curator.grants import granted_of
from dpmcmc.curator.noise import gaussian
from dpmcmc.curator.queries.log_ratio import log_ratio_sum
from dpmcmc.curator.sums.exact_sum import BITS
from dpmcmc.queries import (
    Accept,
    Curvature,
    FilteredAccept,
    FixedBatch,
    Gradient,
    LogRatio,
    PenaltyAccept,
    PoissonBatch,
    SufficientStatistic,
)
from dpmcmc.run import programs
from dpmcmc.run.progress import Progress
from dpmcmc.types import Answer
from tests import tiny
from tests.cases.samplers import CAP, PROPOSALS
from tests.chains import EXACT_COVARIANCE, EXACT_MEAN, MODEL, ROWS, run_chains
from tests.statistics import effective_size, moment_z_scores, threshold

pytestmark = pytest.mark.usefixtures("quick_compilation")

NAMES = ("north", "south", "west")
SECRETS = {
    name: np.arange(16, dtype=np.uint32) + 100 * number for number, name in enumerate(NAMES, 1)
}
ADD_OR_REMOVE = Neighbours.ADD_OR_REMOVE_ONE
UNITS = {  # what three owners may differ in
    "north": {"budget": Budget(3.0, 1e-5, ADD_OR_REMOVE), "capacity": 64, "shared_by": "zcdp"},
    "south": {"budget": Budget(1.0, 1e-6)},
    "west": {"budget": Budget(2.0, 1e-6, rows_per_person=3), "capacity": 60},
}


def owners(rows=tiny.ROWS, model=tiny.MODEL, is_fixed=True, **options):
    """The rows, dealt to three owners of different units."""
    parts = np.split(rows, [len(rows) // 4, len(rows) // 2])
    secrets = SECRETS if is_fixed else dict.fromkeys(NAMES)
    return {
        name: Curator(part, model, **{**UNITS[name], "fixed_secret": secrets[name], **options})
        for name, part in zip(NAMES, parts, strict=True)
    }


def equal_owners(budgets=(None, None, None), **options):
    """The same under one unit each, with the given budgets."""
    parts = np.split(tiny.ROWS, [10, 20])
    return {
        name: Curator(part, tiny.MODEL, budget, fixed_secret=SECRETS[name], **options)
        for name, part, budget in zip(NAMES, parts, budgets, strict=True)
    }


def answer_of(curator, query, *points, keys=None):
    """Ask once, or once for each of the keys."""
    keys = jax.random.split(jax.random.key(7), 1) if keys is None else keys
    traced = curator.trace(
        lambda ask, keys: jax.vmap(lambda key: ask(key, query, *points))(keys), keys
    )
    return jax.tree.map(np.asarray, curator.grant(traced.plan).run(traced.compile(), keys))


def spends(federation):
    return [len(owner._account.ledger.grants) for owner in federation.owners.values()]


# -- sums -----------------------------------------------------------------------------------------

POINTS = np.array([0.25, -0.5]), np.array([0.75, 0.125])
QUERIES = {
    "ratio": (LogRatio(3.0, 50.0, temperature=0.5), POINTS),
    "gradient": (Gradient(2.0, 400.0), POINTS[:1]),
    "gradient of a batch": (Gradient(2.0, 400.0, batch=PoissonBatch(0.25)), POINTS[:1]),
    "curvature": (Curvature(2.0, 400.0), POINTS[:1]),
}
PROGRAMS = [
    pytest.param(*case, id=name, marks=[] if name == "ratio" else [pytest.mark.slow])
    for name, case in QUERIES.items()
]


@pytest.mark.parametrize("query, points", PROGRAMS)
def test_an_answer_is_the_sum_of_the_owners_answers(query, points):
    """With the same secrets, so the same noise: each owner noises in full and in its own unit."""
    options = (
        {"budget": Budget(1.0, 1e-6), "capacity": None, "shared_by": None}
        if "batch=P" in str(query)
        else {}
    )
    two = lambda: dict(list(owners(ROWS, MODEL, **options).items())[1:])  # noqa: E731
    with jax.enable_x64(True):
        alone = [answer_of(owner, query, *points) for owner in two().values()]
        together = answer_of(Federation(two()), query, *points)
    # A GPU's other program rounds each row in another way
    rounding = 1e-14 if jax.default_backend() == "cpu" else 1e-6
    np.testing.assert_allclose(together.value, sum(answer.value for answer in alone), rtol=rounding)
    np.testing.assert_allclose(
        together.variance, sum(answer.variance for answer in alone), rtol=1e-15
    )
    assert len({answer.value.tobytes() for answer in alone}) == 2


def test_variances_add_and_each_is_in_its_owners_unit():
    query, points = QUERIES["ratio"]
    with jax.enable_x64(True):
        found = answer_of(Federation(owners(ROWS, MODEL)), query, *points).variance[0]
    bound = query.temperature * query.clip * np.linalg.norm(points[1] - points[0])
    assert [options["budget"].unit.sensitivity for options in UNITS.values()] == [1, 2, 6]
    sigmas = [
        gaussian.gaussian_sigma(50.0 * units * 2.0**BITS) * bound / 2.0**BITS for units in (1, 2, 6)
    ]
    assert found == pytest.approx(sum(sigma**2 for sigma in sigmas), rel=1e-14)
    assert found == pytest.approx((50.0 * bound) ** 2 * (1 + 4 + 36), rel=1e-3)


@dataclass(frozen=True)
class ExactSum:
    """The integer sum itself: no noise, so no promise."""

    released: ClassVar[str] = "exact sums"
    adds: ClassVar[bool] = True
    clip: float

    def answer(self, key, model, rows, position, proposal):
        bound = self.clip * jnp.linalg.norm(proposal - position)
        return Answer(log_ratio_sum(model, rows, position, proposal, bound), jnp.zeros(()))

    def cost(self, unit):
        return costs.NonPrivate("a sum without noise")


def test_however_the_rows_are_dealt_the_integer_sum_is_the_same():
    # Binary fractions: no rounding anywhere
    rows = np.random.default_rng(0).integers(-64, 64, 60).astype(np.float32) / 64
    rows[7] = np.nan
    points = np.array([0.25]), np.array([0.75])

    def total(*parts):
        curators = [Curator(part, tiny.MODEL, None) for part in parts]
        return int(answer_of(Federation(curators), ExactSum(0.5), *points).value[0])

    with jax.enable_x64(True):
        alone = int(answer_of(Curator(rows, tiny.MODEL, None), ExactSum(0.5), *points).value[0])
        assert (
            alone
            == total(rows)
            == total(*np.split(rows, [13, 40]))
            == total(*np.split(rows[::-1], [1, 2, 59]))
        )
        assert total(*np.split(rows[:-1], [13, 40])) != alone


@pytest.mark.slow
def test_gradients_add_also_with_a_linear_predictor():
    """They are made on a grid of each table's own."""
    model = models.logistic(2, radius=1.0)
    features, labels = map(
        np.asarray,
        testing.simulate_logistic_rows(jax.random.key(1), 60, np.array([1.0, -1.0]), 1.0),
    )
    cuts = [slice(0, 20), slice(20, 60)]
    federation = Federation([Curator((features[cut], labels[cut]), model, None) for cut in cuts])
    found = answer_of(federation, Gradient(1.0, 1e-4), POINTS[0].astype(np.float32)).value[0]
    expected = (labels - 1 / (1 + np.exp(-features @ POINTS[0]))) @ features
    np.testing.assert_allclose(found, expected, atol=5e-3)  # seventeen deviations of the noise


def records(grant):
    """What is left of each owner's grant."""
    return {name: granted_of(one) for name, one in federations._granted_of(grant).grants.items()}


def test_one_ask_is_on_every_owners_bill_once():
    federation = Federation(owners())
    keys = jax.random.split(jax.random.key(0), 3)
    begin = federation.trace(programs.Begin(tiny.PENALTY), keys, jnp.zeros((3, 1)))
    block = federation.trace(programs.Block(tiny.PENALTY, 5), keys, *begin.shapes, jnp.int32(0))
    assert block.plan == {tiny.RATIO: 15}
    grant = federation.grant(block.plan)
    assert [dict(one.left) for one in records(grant).values()] == [block.plan] * 3


# -- noise ----------------------------------------------------------------------------------------


def noise_p_value(curators):
    """Of the law N(0, reported variance), for the noise of 5 000 answers."""
    keys = jax.random.split(jax.random.key(11), 5_000)
    points, query = (np.array([0.25], np.float32), np.array([0.75], np.float32)), LogRatio(1.0, 1.0)
    exact = np.sum(np.clip(((tiny.ROWS - 0.25) ** 2 - (tiny.ROWS - 0.75) ** 2) / 2, -0.5, 0.5))
    answer = answer_of(curators, query, *points, keys=keys)
    return stats.kstest((answer.value - exact) / np.sqrt(answer.variance), "norm").pvalue


@pytest.mark.slow
def test_the_noise_has_the_variance_that_is_told():
    assert noise_p_value(Federation(equal_owners())) > 1e-3


def test_noise_that_owners_share_is_caught():
    federation = Federation(equal_owners())
    for owner in federation.owners.values():
        owner._fixed_secret = SECRETS["north"]
    assert noise_p_value(federation) < 1e-12


def variance_of_the_first(answers):
    return Answer(sum(answer.value for answer in answers), answers[0].variance)


def test_every_grant_of_every_owner_has_its_own_secret():
    federation = Federation(equal_owners())
    for owner in federation.owners.values():
        owner._fixed_secret = None
    secrets = [
        one.secret for _ in range(3) for one in records(federation.grant({tiny.RATIO: 1})).values()
    ]
    assert len({np.asarray(secret).tobytes() for secret in secrets}) == 9


# -- the posterior --------------------------------------------------------------------------------

# Three owners' noise has about the variance that one owner's has in the table of samplers.
THIRD = LogRatio(clip=20.0, noise_multiplier=0.04)
ONE = LogRatio(clip=20.0, noise_multiplier=0.07)


def three(rows=ROWS, model=MODEL):
    parts = np.split(rows, [5, 11])
    curators = [
        Curator(part, model, None, fixed_secret=SECRETS[name])
        for name, part in zip(NAMES, parts, strict=True)
    ]
    return Federation(dict(zip(NAMES, curators, strict=True)))


def penalty_chains(query, proposal="isotropic", curator=None, seed=0):
    sampler = penalty(MODEL.log_prior, query, PROPOSALS[proposal](CAP))
    return run_chains(sampler, query, num_steps=400, curator=curator, seed=seed)[0]


def scores(chains):
    return np.abs(moment_z_scores(chains, EXACT_MEAN, EXACT_COVARIANCE))


@functools.cache
def chains_of_three(proposal):
    return penalty_chains(THIRD, proposal, three())


@functools.cache
def broken_chains():
    """The penalty is that of one owner's noise."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(federations, "add", variance_of_the_first)
        return penalty_chains(THIRD, curator=three())


@pytest.mark.slow
@pytest.mark.parametrize("proposal", ["isotropic", "guided"])
def test_the_posterior_is_stationary_with_three_owners(proposal):
    """False alarm: 1e-3 for each proposal, over five moments."""
    chains = chains_of_three(proposal)
    assert scores(chains).max() < threshold(num_scores=5, num_chains=64)
    assert effective_size(chains) >= 700


@pytest.mark.slow
def test_a_penalty_for_one_owners_noise_is_caught():
    assert scores(broken_chains()).max() > threshold(num_scores=5, num_chains=64)


@pytest.mark.slow
def test_one_owner_and_three_have_the_same_posterior():
    """Welch's test of the five moments' averages over independent chains: false alarm 1e-3."""

    def moments(chains):
        centred = chains - EXACT_MEAN
        products = [centred[..., i] * centred[..., j] for i, j in ((0, 0), (0, 1), (1, 1))]
        return np.stack([centred[..., 0], centred[..., 1], *products], axis=-1).mean(axis=1)

    one = moments(penalty_chains(ONE, seed=1))
    several, broken = moments(chains_of_three("isotropic")), moments(broken_chains())
    assert stats.ttest_ind(one, several, equal_var=False).pvalue.min() > 1e-3 / 5
    assert stats.ttest_ind(one, broken, equal_var=False).pvalue.min() < 1e-3 / 5


@pytest.mark.slow
def test_hmc_is_exact_with_three_owners():
    """The ratio and the gradients are sums. False alarm 1e-3 over five moments."""
    sampler = hmc(
        MODEL.log_prior,
        Gradient(20.0, 0.01),
        THIRD,
        0.25,
        2,
        mass=np.linalg.inv(EXACT_COVARIANCE) / 4,
    )
    chains, _ = run_chains(sampler, THIRD, num_steps=1200, curator=three())
    assert scores(chains).max() < threshold(num_scores=5, num_chains=64)
    assert effective_size(chains) >= 2000


@pytest.mark.slow
def test_langevin_from_a_private_start_with_three_owners():
    gradient = Gradient(20.0, 0.01)
    result = sample(
        jax.random.key(0),
        lambda start: sgld(MODEL.log_prior, gradient, 0.1, EXACT_COVARIANCE),
        three(),
        np.zeros(2, np.float32),
        start=newton_start(MODEL.log_prior, gradient, Curvature(2.0, 0.01), num_steps=3),
        num_steps=400,
        num_chains=16,
        progress=False,
    )
    draws = np.concatenate(
        [values.values.reshape(16, 200, -1) for values in result.posterior.values()], axis=-1
    )
    found = draws.mean(axis=(0, 1))
    # 3200 draws of correlation time about 20: a standard error of 0.08 posterior deviations, so
    # five of them (false alarm 1e-6).
    assert np.max(np.abs(found - EXACT_MEAN) / np.sqrt(np.diag(EXACT_COVARIANCE))) < 0.4
    for ledger in reading.by_owner(json.loads(result.attrs["dpmcmc_ledger"])).values():
        assert [entry["count"] for entry in ledger["entries"]] == [1, 3 + 16 * 400]


# -- budgets --------------------------------------------------------------------------------------

POOR = UNITS["south"]["budget"]


def test_the_smallest_budget_sets_the_number_of_steps():
    alone = {name: owner.max_steps({}, {tiny.RATIO: 2}) for name, owner in owners().items()}
    federation = Federation(owners())
    assert alone["south"] < min(alone["north"], alone["west"])
    assert federation.max_steps({}, {tiny.RATIO: 2}) == alone["south"]
    assert federation.limit({}, {tiny.RATIO: 2}) == (alone["south"], f"owner south with {POOR}")
    result = tiny.run(federation, num_steps=None)
    assert tiny.means(result).shape == (2, alone["south"])
    assert spends(federation) == [1, 1, 1]


def test_an_owner_without_a_budget_sets_no_limit():
    federation = Federation(equal_owners((None, POOR, None)))
    assert federation.max_steps({}, {tiny.RATIO: 2}) == Curator(
        tiny.ROWS, tiny.MODEL, POOR
    ).max_steps({}, {tiny.RATIO: 2})
    with pytest.raises(ValueError, match="owner north: there is no budget"):
        Federation(equal_owners()).max_steps({}, {tiny.RATIO: 2})


def test_when_one_owner_refuses_nobody_is_billed():
    federation = Federation(owners())
    most = federation.max_steps({}, {tiny.RATIO: 2})
    words = (
        "owner south: the run costs epsilon=.*; owner south with the budget of epsilon=1, "
        rf".* allows {most} steps of 2 chains"
    )
    with pytest.raises(BudgetExceeded, match=words):
        tiny.run(federation, num_steps=most + 1)
    with pytest.raises(BudgetExceeded, match="owner south: the run costs"):
        federation.grant({tiny.RATIO: 2 * most + 2})
    assert spends(federation) == [0, 0, 0]
    federation.grant({tiny.RATIO: 2 * most})
    assert spends(federation) == [1, 1, 1]
    with pytest.raises(
        BudgetExceeded, match="owner south: this curator has given its one grant and is closed"
    ):
        tiny.run(federation, num_steps=1)


def test_a_budget_for_no_step_names_its_owner():
    calm = penalty(tiny.log_prior, LogRatio(clip=1.0, noise_multiplier=2.0), tiny.WALK)
    with pytest.raises(
        BudgetExceeded,
        match=r"owner south with the budget of epsilon=1, .*allows 0 steps of 2 chains",
    ):
        tiny.run(
            Federation(equal_owners((Budget(90.0, 1e-6), POOR, Budget(90.0, 1e-6)))),
            sampler=calm,
            num_steps=None,
        )


def test_an_owner_that_shares_its_budget_serves_several_federations():
    federation = Federation(
        equal_owners((Budget(2.0, 1e-6), POOR, Budget(2.0, 1e-6)), shared_by="gaussian-dp")
    )
    most = federation.max_steps({}, {tiny.RATIO: 1})
    federation.grant({tiny.RATIO: most - 1})
    alone = Federation({"south": federation.owners["south"]})
    assert alone.max_steps({}, {tiny.RATIO: 1}) == 1
    alone.grant({tiny.RATIO: 1})
    with pytest.raises(BudgetExceeded, match=r"owner south: this costs"):
        federation.grant({tiny.RATIO: 1})
    assert spends(federation) == [1, 2, 1]


# -- ledgers --------------------------------------------------------------------------------------


def with_ledgers(folder, **options):
    parts = owners(**options)
    return {
        name: Curator(
            tiny.ROWS[:10],
            tiny.MODEL,
            **UNITS[name],
            ledger=folder / f"{name}.ledger",
            fixed_secret=owner._fixed_secret,
        )
        for name, owner in parts.items()
    }


def kept(folder):
    paths = [folder / f"{name}.ledger" for name in NAMES]
    return [len(json.loads(path.read_text())["grants"]) if path.exists() else 0 for path in paths]


def test_every_owner_keeps_its_own_ledger(tmp_path):
    Federation(with_ledgers(tmp_path)).grant({tiny.RATIO: 10})
    assert kept(tmp_path) == [1, 1, 1]
    again = with_ledgers(tmp_path)
    with pytest.raises(BudgetExceeded, match="owner south: .* closed"):
        Federation(again).grant({tiny.RATIO: 10})
    # It shares its budget among several runs
    Federation({"north": again["north"]}).grant({tiny.RATIO: 10})
    assert kept(tmp_path) == [2, 1, 1]


def test_when_one_ledger_cannot_be_written_the_others_are_as_before(tmp_path, monkeypatch):
    federation = Federation(with_ledgers(tmp_path))
    replace = os.replace

    def fail(draft, path):
        if "west" in str(path):
            raise OSError("disk full")
        replace(draft, path)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", fail)
        with pytest.raises(OSError, match="disk full"):
            federation.grant({tiny.RATIO: 10})
    assert kept(tmp_path) == [0, 0, 0] and spends(federation) == [0, 0, 0]
    assert federation.owners["north"]._account.filter.spent == 0
    federation.grant({tiny.RATIO: 10})
    assert kept(tmp_path) == [1, 1, 1] and federation.owners["north"]._account.filter.spent > 0


def test_when_somebody_else_has_spent_from_one_ledger_nobody_is_billed(tmp_path):
    federation, other = Federation(with_ledgers(tmp_path)), with_ledgers(tmp_path)["west"]
    other.grant({tiny.RATIO: 1})
    with pytest.raises(
        BudgetExceeded, match=r"somebody else has spent from the ledger at .*west\.ledger"
    ):
        federation.grant({tiny.RATIO: 10})
    assert kept(tmp_path) == [0, 0, 1] and spends(federation) == [0, 0, 0]


def test_a_spend_seen_by_somebody_else_is_not_taken_back(tmp_path, monkeypatch):
    """If another process has written meanwhile, the file stays as it is: too many spends, never too
    few.
    """
    federation, other = Federation(with_ledgers(tmp_path)), with_ledgers(tmp_path)["north"]
    record = type(other._account.ledger).record

    def fail(ledger, bill):
        if "west" in str(ledger.path):
            Curator(
                tiny.ROWS[:10], tiny.MODEL, **UNITS["north"], ledger=tmp_path / "north.ledger"
            ).grant({tiny.RATIO: 1})
            raise OSError("disk full")
        record(ledger, bill)

    monkeypatch.setattr(type(other._account.ledger), "record", fail)
    with pytest.raises(OSError, match="disk full"):
        federation.grant({tiny.RATIO: 10})
    assert kept(tmp_path) == [2, 0, 0]


# -- the end of a run -----------------------------------------------------------------------------


def after_block(monkeypatch, number, act):
    """Do something once the given block is finished."""
    advance, calls = Progress.advance, []

    def then(self, num_steps, info):
        advance(self, num_steps, info)
        calls.append(num_steps)
        if len(calls) == number:
            act()

    monkeypatch.setattr(Progress, "advance", then)


def count_runs(monkeypatch):
    """A list that grows by one whenever rows are touched."""
    runs, execute = [], federations.execute
    monkeypatch.setattr(
        federations, "execute", lambda *arguments: (runs.append(1), execute(*arguments))[1]
    )
    return runs


def test_an_owner_that_withdraws_ends_the_run(monkeypatch, capsys, tmp_path):
    expected = tiny.means(tiny.run(Federation(owners())))
    federation = Federation(owners())
    after_block(monkeypatch, 3, federation.owners["west"].withdraw)
    runs = count_runs(monkeypatch)
    result = tiny.run(federation, progress=True, path=tmp_path / "posterior.nc")
    text = (
        "The run stopped after 3 of 12 steps (owner west: the rows were withdrawn: nothing more is "
        "run on them); the grant is spent in full."
    )
    np.testing.assert_array_equal(tiny.means(result), expected[:, :3])
    np.testing.assert_array_equal(tiny.means(load(tmp_path / "posterior.nc")), expected[:, :3])
    assert len(runs) == 1 + 3  # the start, and three blocks of one step
    assert [finding.text for finding in findings(result) if finding.code == "stopped"] == [text]
    assert text in capsys.readouterr().err
    assert spends(federation) == [1, 1, 1]
    with pytest.raises(BudgetExceeded, match="owner west: the rows were withdrawn"):
        Federation({"west": federation.owners["west"]}).grant({tiny.RATIO: 1})


def test_a_single_curator_may_withdraw_too(monkeypatch):
    curator = tiny.make_curator()
    after_block(monkeypatch, 2, curator.withdraw)
    result = tiny.run(curator)
    assert tiny.means(result).shape == (2, 2)
    assert any(
        "stopped after 2 of 12 steps (the rows were withdrawn" in finding.text
        for finding in findings(result)
    )
    with pytest.raises(BudgetExceeded, match="the rows were withdrawn"):
        tiny.run(curator)


def test_an_owner_whose_grant_runs_out_ends_the_run(monkeypatch):
    """No owner gives such a grant today; if one did, the run would end with the draws that all have
    paid for.
    """
    federation = Federation(owners())
    grant = federation.grant

    def short_grant(plan):
        granted = grant(plan)
        records(granted)["south"].left[tiny.RATIO] -= 7
        return granted

    monkeypatch.setattr(federation, "grant", short_grant)
    runs = count_runs(monkeypatch)
    result = tiny.run(federation)
    # 17 of 24 ratios: 8 steps of 2 chains
    assert tiny.means(result).shape == (2, 8) and len(runs) == 1 + 8
    words = "stopped after 8 of 12 steps (owner south: the program asks LogRatio("
    assert any(words in finding.text for finding in findings(result))


def test_nothing_is_taken_off_any_grant_when_one_is_short():
    federation = Federation(owners())
    keys = jax.random.split(jax.random.key(0), 4)
    traced = federation.trace(
        lambda ask, keys: jax.vmap(lambda key: ask(key, tiny.RATIO, *POINTS_1D))(keys), keys
    )
    grant = federation.grant({tiny.RATIO: 4})
    records(grant)["west"].left[tiny.RATIO] = 3
    with pytest.raises(
        BudgetExceeded, match="owner west: the program asks .* 4 times, 3 are left of the grant"
    ):
        grant.run(traced.compile(), keys)
    assert [one.left[tiny.RATIO] for one in records(grant).values()] == [4, 4, 3]


def test_a_program_of_other_owners_is_refused():
    """The noise of its owners' units is compiled in."""
    first, second = Federation(owners()), Federation(owners())
    traced = first.trace(lambda ask, key: ask(key, tiny.RATIO, *POINTS_1D), jax.random.key(0))
    with pytest.raises(PrivacyRefusal, match="traced by another curator"):
        second.grant(traced.plan).run(traced.compile(), jax.random.key(0))


POINTS_1D = np.zeros(1, np.float32), np.ones(1, np.float32)


def test_withdrawn_before_the_first_draw(monkeypatch):
    federation = Federation(owners())
    grant = federation.grant
    monkeypatch.setattr(
        federation, "grant", lambda plan: (grant(plan), federation.owners["north"].withdraw())[0]
    )
    with pytest.raises(
        RunFailed,
        match=r"stopped after 0 of 12 steps \(owner north: the rows were withdrawn.*no draws",
    ) as caught:
        tiny.run(federation)
    assert caught.value.posterior is None


# -- refusals -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Silent(LogRatio):
    """Says nothing about whether its answers add."""

    adds: ClassVar[bool] = False


BITS_ASKED = {
    "barker": (Accept(Barker(), 0.01), (jnp.zeros(()),)),
    "penalty bit": (PenaltyAccept(0.01, 30.0, 1.0), (jnp.zeros(()),)),
    "filtered bit": (FilteredAccept(0.01, 0.01), (jnp.zeros(()),)),
    "silent": (Silent(1.0, 30.0), ()),
}


@pytest.mark.parametrize("query, more", BITS_ASKED.values(), ids=BITS_ASKED)
def test_answers_that_do_not_add_are_refused(query, more):
    federation = Federation(owners())
    with pytest.raises(
        UnsupportedQuery, match=r"cannot be asked of several owners: .* ask LogRatio instead"
    ):
        federation.trace(lambda ask, key: ask(key, query, *POINTS_1D, *more), jax.random.key(0))
    assert spends(federation) == [0, 0, 0]


def test_a_bit_is_refused_before_anything_is_spent():
    federation = Federation(owners())
    with pytest.raises(UnsupportedQuery, match="ask LogRatio instead"):
        tiny.run(federation, sampler=tiny.BARKER)
    assert spends(federation) == [0, 0, 0]


def test_a_batch_that_does_not_fit_an_owner_names_it():
    batch = Gradient(1.0, 30.0, batch=FixedBatch(3, 10))
    federation = Federation(equal_owners())
    with pytest.raises(
        ValueError,
        match="owner west: of=10 must be the table's number of rows or declared capacity, 20",
    ):
        federation.trace(lambda ask, key: ask(key, batch, POINTS_1D[0]), jax.random.key(0))


ONE_OWNER = Curator(tiny.ROWS, tiny.MODEL, None)
OTHER_NAMES = tiny.MODEL._replace(unravel=lambda position: {"location": position[0]})
PLANE = Model(
    lambda p, row: -0.5 * jnp.sum((row - p[0]) ** 2), tiny.log_prior, tiny.MODEL.unravel, 1
)
TABLES = [
    ({}, ValueError, "a federation needs at least one owner"),
    ([], ValueError, "a federation needs at least one owner"),
    ({"": ONE_OWNER}, ValueError, "the owner's name '' must be a text that is not empty"),
    ({1: ONE_OWNER}, ValueError, "the owner's name 1 must be a text"),
    ({"north": tiny.ROWS}, TypeError, "owner north is a ndarray: it must be a Curator"),
    ([Federation([ONE_OWNER])], TypeError, "owner 1 is a Federation: it must be a Curator"),
    (
        [ONE_OWNER, ONE_OWNER],
        ValueError,
        "owners 1 and 2 are the same curator: each owner needs its own",
    ),
    (
        [tiny.make_curator(), tiny.make_curator()],
        ValueError,
        "have the same fixed secret, so their noise would be the same",
    ),
    (
        [tiny.make_curator(), tiny.make_curator(fixed_secret=tiny.SECRET.copy())],
        ValueError,
        "owners 1 and 2 have the same fixed secret",
    ),
    (
        [ONE_OWNER, Curator(ROWS, MODEL, None)],
        ValueError,
        "owner 1 has dimension 1, owner 2 2: all owners need the same model",
    ),
    (
        [ONE_OWNER, Curator(tiny.ROWS, OTHER_NAMES, None)],
        ValueError,
        r"owner 1 has parameters {'mean': \(\)}, owner 2 {'location'",
    ),
    (
        [ONE_OWNER, Curator(tiny.ROWS[:, None], PLANE, None)],
        ValueError,
        r"owner 1 has rows \(\), owner 2 \(1,\)",
    ),
    (
        [ONE_OWNER, Curator(tiny.ROWS, tiny.MODEL, None, devices=jax.devices()[:1])],
        ValueError,
        "leave devices= out",
    ),
]


@pytest.mark.parametrize("owners, kind, words", TABLES, ids=[words for *_, words in TABLES])
def test_a_bad_federation_is_refused(owners, kind, words):
    with pytest.raises(kind, match=words):
        Federation(owners)


def test_owners_that_were_checked_are_not_changed():
    federation = Federation(owners())
    with pytest.raises(TypeError, match="does not support item assignment"):
        federation.owners["north"] = ONE_OWNER


def test_errors_of_other_libraries_are_left_as_they_are():
    """Some take more than a text, and could not be built again with the owner's name."""
    error = UnicodeDecodeError("utf-8", b"", 0, 1, "no text")
    with pytest.raises(UnicodeDecodeError) as caught, federations._named("north"):
        raise error
    assert caught.value is error


def test_two_owners_cannot_keep_one_ledger(tmp_path):
    curators = [
        tiny.make_curator(ledger=tmp_path / name, fixed_secret=None)
        for name in ("a.ledger", "./a.ledger")
    ]
    with pytest.raises(
        ValueError, match="owners 1 and 2 keep one ledger file: each owner needs its own"
    ):
        Federation(curators)


# -- statements -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("federation") / "posterior.nc"
    return tiny.run(Federation(owners(is_fixed=False)), path=path), path


def test_the_statement_has_every_owners_promise(saved):
    text = statement_of(load(saved[1]))
    head, *parts = text.split("\n\nOwner ")
    assert "3 owners: to the rows of each, its own promise" in head
    assert [part.split("\n")[0] for part in parts] == list(NAMES)
    for part, epsilon in zip(parts, (3, 1, 2), strict=True):
        assert f"Budget:    epsilon = {epsilon}" in part and f"24 x {tiny.RATIO}" in part
        assert "added its noise in full, with a secret of its own" in part
    assert (
        "added or removed (the number of rows is private)" in parts[0]
        and "may share this budget" in parts[0]
    )
    assert "the number of rows, 10, is public" in parts[1]
    assert "one person with at most 3 rows" in parts[2]


def test_the_attributes_are_true_for_every_owner(saved):
    result, _ = saved
    claims = {
        name: ledger["claim"]
        for name, ledger in json.loads(result.attrs["dpmcmc_ledger"])["owners"].items()
    }
    assert result.attrs["epsilon"] == max(claim["epsilon"] for claim in claims.values()) == 3.0
    assert result.attrs["delta"] == 1e-5 and result.attrs["rows_per_person"] == 1
    assert result.attrs["neighbours"] == "add-or-remove-one, replace-one"
    assert result.attrs["owners"] == "north, south, west"


def test_every_owners_statement_is_that_of_its_curator_alone(saved):
    ledgers = json.loads(saved[0].attrs["dpmcmc_ledger"])["owners"]
    for name, owner in owners(is_fixed=False).items():
        alone = owner.grant({tiny.RATIO: 24}).statement().to_json()
        for name_of_part in ("claim", "neighbours", "rows_per_person", "entries"):
            assert ledgers[name][name_of_part] == alone[name_of_part]


def test_every_owners_claim_is_verified_again(saved, tmp_path):
    def call(path, *more):
        return CliRunner().invoke(main, ["account", "ledger", str(path), *more])

    done = call(saved[1], "--json")
    answer = json.loads(done.output)
    assert done.exit_code == 0 and answer["is_reproduced"] and list(answer["owners"]) == list(NAMES)
    assert answer["owners"]["west"]["steps"] == 24
    assert "the claim of west is reproduced" in call(saved[1]).output
    forged = json.loads(saved[0].attrs["dpmcmc_ledger"])
    forged["owners"]["west"]["claim"]["epsilon"] *= 0.99
    (tmp_path / "forged.json").write_text(json.dumps(forged))
    done = call(tmp_path / "forged.json")
    assert done.exit_code == 1
    assert (
        "the claim of north is reproduced" in done.output
        and "the claim of west is NOT reproduced" in done.output
    )
    for change in (
        {"owners": {}},
        {"owners": {"north": {}}},
        {"owners": {"north": 1}},
        {"owners": None},
    ):
        (tmp_path / "broken.json").write_text(json.dumps(forged | change))
        assert call(tmp_path / "broken.json").exit_code == 2


def test_one_fixed_secret_takes_one_owners_promise_only():
    mixed = owners(is_fixed=False)
    mixed["north"]._fixed_secret = SECRETS["north"]
    statement = Federation(mixed).grant({tiny.RATIO: 24}).statement()
    epsilons = {name: one.epsilon for name, one in statement.owners.items()}
    assert math.isinf(epsilons["north"]) and max(epsilons["south"], epsilons["west"]) < 1.0
    assert statement.facts()["epsilon"] == math.inf
    assert [name for name, one in statement.owners.items() if "the promise holds" in str(one)] == [
        "south",
        "west",
    ]


def test_nothing_about_the_rows_is_printed():
    private = Curator(
        np.zeros(37, np.float32), tiny.MODEL, Budget(1.0, 1e-6, ADD_OR_REMOVE), capacity=64
    )
    federation = Federation({"north": private})
    assert "37" not in repr(federation) and "37" not in str(
        federation.grant({tiny.RATIO: 5}).statement()
    )
    assert dataclasses.is_dataclass(federation.budget["north"])


def test_what_is_proved_and_declared_is_that_of_all_owners():
    """A clip that is proved for one owner's rows may cut off another's."""
    narrow, wide = (
        models.gaussian([1.0], prior_scale=10.0, radius=radius) for radius in (1.0, 8.0)
    )
    rows = np.linspace(-1.0, 1.0, 20)[:, None]
    together = Federation(
        {"north": Curator(rows, narrow, None), "south": Curator(rows, wide, None)}
    )
    assert (together.model.lipschitz, together.model.hessian_bound) == (
        wide.lipschitz,
        wide.hessian_bound,
    )
    assert together.model.declared == "|row| <= 1 by owner north; |row| <= 8 by owner south"
    told = diagnostics.of_settings(together.model, {LogRatio(narrow.lipschitz, 2.0): 1})
    assert [finding.code for finding in told] == ["clip-below-bound"]
    unproved = Federation(
        [Curator(rows, narrow, None), Curator(rows, models.gaussian([1.0]), None)]
    ).model
    assert (
        unproved.lipschitz is None
        and unproved.declared == "|row| <= 1 by owner 1; nothing by owner 2"
    )
    # The one has no meaning without the other
    assert unproved.spread is None and unproved.center is None
    bent = [
        Curator(rows, narrow._replace(self_concordance=bound), None) for bound in (0.5, 2.0, None)
    ]
    assert (
        Federation(bent[:2]).model.self_concordance,
        Federation(bent[1:]).model.self_concordance,
    ) == (2.0, None)
    alike = Federation([Curator(rows, narrow, None), Curator(rows, narrow, None)]).model
    assert (alike.lipschitz, alike.declared) == (narrow.lipschitz, narrow.declared)


def test_statistics_of_different_families_do_not_add():
    """Each is taken off its own owner's center: with limits of 20 and 22 the posterior was 6
    standard deviations off.
    """
    query, point = SufficientStatistic(1.0), np.zeros(1, np.float32)
    counts = np.arange(8, dtype=np.int32)

    def trace(*made):
        owners = {str(index): Curator(counts, model, None) for index, model in enumerate(made)}
        return Federation(owners).trace(
            lambda ask, key, p: ask(key, query, p).value, jax.random.key(0), point
        )

    assert trace(models.poisson_rate(20), models.poisson_rate(20)).plan == {query: 1}
    with pytest.raises(UnsupportedQuery, match="the family of owner 1 differs.*ask LogRatio"):
        trace(models.poisson_rate(20), models.poisson_rate(22))
    wide = models.poisson_rate(20)
    wide = wide._replace(family=wide.family._replace(radius=2 * wide.family.radius))
    assert trace(models.poisson_rate(20), wide).plan == {query: 1}
    other = wide._replace(family=wide.family._replace(natural=lambda position: 2 * position))
    with pytest.raises(UnsupportedQuery, match="the family of owner 2 differs"):
        trace(wide, wide, other)
