"""The filter: what it charges, when it stops, and that it stops whatever the moves are.
Deterministic but for the last test.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpmcmc import (
    Barker,
    Budget,
    Curator,
    Neighbours,
    RunFailed,
    accept_walk,
    findings,
    hmc,
    random_walk,
    sample,
)
from dpmcmc.accounting import costs
from dpmcmc.curator.grants import granted_of
from dpmcmc.curator.queries import filtered
from dpmcmc.curator.queries.accept import ROUNDING, SMALLEST
from dpmcmc.curator.queries.filtered import Meter
from dpmcmc.errors import BudgetExceeded, PrivacyRefusal, UnsupportedQuery
from dpmcmc.queries import Accept, FilteredAccept
from dpmcmc.types import Unit
from tests.chains import MODEL, ROWS, SECRET

pytestmark = pytest.mark.usefixtures("quick_compilation")

QUERY = FilteredAccept(clip=2.0, rho=0.5)


def program(query, log_ratio=0.0):
    """Ask about given moves, one after the other: (answers, whether they were answered)."""

    def run(ask, key, proposals):
        def one(_, item):
            key, proposal = item
            answer = ask(key, query, jnp.zeros(2), proposal, jnp.float32(log_ratio))
            return None, (answer.value, jnp.isfinite(answer.variance))

        return jax.lax.scan(one, None, (jax.random.split(key, len(proposals)), proposals))[1]

    return run


@functools.cache
def compiled(query, neighbours):
    curator = Curator(
        ROWS,
        MODEL,
        None if neighbours is None else Budget(6.0, 1e-5, neighbours),
        capacity=len(ROWS),
    )
    traced = curator.trace(program(query), jax.random.key(0), jnp.zeros((30, 2)))
    assert traced.plan == {query: 1}
    return curator, traced.compile()


def test_every_curator_is_charged_on_its_own_meter():
    """Their programs have one text, and a callback that the text does not tell apart."""
    both = [Curator(ROWS, MODEL, Budget(6.0, 1e-5), capacity=len(ROWS)) for _ in range(2)]
    programs = [
        curator.trace(program(QUERY), jax.random.key(0), jnp.zeros((30, 2))).compile()
        for curator in both
    ]
    grants = [curator.grant({QUERY: 1}) for curator in both]
    grants[1].run(programs[1], jax.random.key(0), jnp.full((30, 2), 0.1))
    spent = [granted_of(grant).meter.spent(QUERY) for grant in grants]
    assert spent[0] == 0 and spent[1] > 0


def answered(query, lengths, neighbours=None):
    """Which moves of the given lengths, followed by some of no length, are answered."""
    curator, executable = compiled(query, neighbours)
    proposals = jnp.zeros((30, 2)).at[: len(lengths), 0].set(jnp.asarray(lengths))
    bits, is_answered = curator.grant(executable.plan).run(executable, jax.random.key(0), proposals)
    assert not np.any(np.asarray(bits) & ~np.asarray(is_answered))
    return np.asarray(is_answered)[: len(lengths)].tolist()


@pytest.mark.parametrize("unit, factor", [
    (Unit(), 2.0),
    (Unit(Neighbours.ADD_OR_REMOVE_ONE), 1.0),
    (Unit(Neighbours.ADD_OR_REMOVE_ONE, 3), 3.0),
])  # fmt: skip
def test_a_bit_is_charged_its_range_squared_over_eight(unit, factor):
    assert QUERY.charge_of(0.3, unit) == pytest.approx((factor * 2.0 * 0.3) ** 2 / 8, rel=2e-6)
    for move in (0.3, SMALLEST / 2.0):  # rounding weighs most in the shortest
        assert QUERY.charge_of(move, unit) > (factor * 2.0 * move + ROUNDING) ** 2 / 8
    warm = dataclasses.replace(QUERY, temperature=0.1)
    assert warm.charge_of(0.3, unit) == pytest.approx(QUERY.charge_of(0.03, unit), rel=2e-6)


def test_the_charge_is_at_least_the_zcdp_of_the_bit():
    for move in (1e-3, 0.1, 1.0):
        bit = Accept(Barker(), bound=2.0 * move).cost(Unit())
        assert (
            bit.rho() <= QUERY.charge_of(move, Unit()) <= bit.rho() * (1.002 if move < 1 else 1.2)
        )


def test_a_filter_stops_before_its_total_and_stays_closed():
    # A move of length m costs (4 m)^2 / 8 = 2 m^2: of 0.5, moves of length 0.3 take 0.18 each.
    assert answered(QUERY, [0.3, 0.3, 0.3, 0.01]) == [True, True, False, False]
    assert answered(QUERY, [0.1] * 24 + [0.05]) == [True] * 25
    assert answered(QUERY, [0.51, 0.01]) == [False, False]
    assert answered(QUERY, [np.nan, 0.01]) == [False, False]
    assert answered(QUERY, [0.0, 0.49]) == [True, True]
    assert answered(QUERY, [0.49] * 4, Neighbours.ADD_OR_REMOVE_ONE) == [True] * 4


def test_no_sequence_of_moves_gets_more_than_rho():
    rng = np.random.default_rng(0)
    for _ in range(200):
        meter = Meter()
        charges = rng.exponential(size=50) ** 3 * rng.uniform(0.001, 0.3)
        passed = [charge for charge in charges if meter.charge(QUERY, charge)]
        assert sum(passed) <= QUERY.rho and meter.spent(QUERY) == pytest.approx(sum(passed))
        assert meter.charge(QUERY, 0.0) == (len(passed) == len(charges))


def test_several_chains_share_one_filter():
    curator = Curator(ROWS, MODEL, None)
    keys = jax.random.split(jax.random.key(0), 4)

    def chains(ask, keys):
        move = jnp.array([0.3, 0.0])
        return jax.vmap(lambda key: ask(key, QUERY, jnp.zeros(2), move, jnp.float32(0)).variance)(
            keys
        )

    traced = curator.trace(chains, keys)
    assert traced.plan == {QUERY: 1}
    assert np.isfinite(curator.grant(traced.plan).run(traced.compile(), keys)).sum() == 2


def test_a_grant_covers_all_its_programs_and_no_other_grant():
    curator = Curator(ROWS, MODEL, Budget(12.0, 1e-5), shared_by="zcdp")
    proposals = jnp.full((2, 2), 0.3 / 2**0.5)
    traced = curator.trace(program(QUERY), jax.random.key(0), proposals)
    executable, first, second = (
        traced.compile(),
        curator.grant(traced.plan),
        curator.grant(traced.plan),
    )
    runs = [
        grant.run(executable, jax.random.key(0), proposals)[1].tolist()
        for grant in (first, second, first, second)
    ]
    assert runs == [[True, True], [True, True], [False, False], [False, False]]


def test_a_program_of_another_curator_is_refused():
    """Its noise and its running sums are the other curator's: three rows per person there would be
    noised like one here.
    """
    executable = compiled(QUERY, None)[1]
    grant = Curator(ROWS, MODEL, Budget(6.0, 1e-5)).grant({QUERY: 1})
    with pytest.raises(PrivacyRefusal, match="another curator"):
        grant.run(executable, jax.random.key(0), jnp.zeros((30, 2)))


def test_the_bill_is_rho_once():
    assert QUERY.cost(Unit()) == costs.ZCDP(0.5)
    curator = Curator(ROWS, MODEL, Budget(1.0, 1e-6))
    sampler = accept_walk(MODEL.log_prior, QUERY, random_walk(0.1))
    with pytest.raises(BudgetExceeded):
        sample(jax.random.key(0), sampler, curator, np.zeros(2), num_steps=10, progress=False)
    with pytest.raises(ValueError, match="give num_steps"):
        sample(jax.random.key(0), sampler, curator, np.zeros(2), progress=False)


def test_rows_are_not_read_once_it_is_closed():
    """Bits of a closed filter are the same for tables that could not differ more; those of an open
    one are not.
    """
    far = ROWS + 1e3

    def bits(query, rows):
        curator = Curator(rows, MODEL, None, fixed_secret=SECRET)
        proposals = jnp.full((200, 2), 0.7)
        traced = curator.trace(program(query), jax.random.key(0), proposals)
        return np.asarray(
            curator.grant(traced.plan).run(traced.compile(), jax.random.key(0), proposals)[0]
        )

    closed, open_ = FilteredAccept(2.0, 1e-6), FilteredAccept(2.0, 1e6)
    assert not bits(closed, ROWS).any() and not bits(closed, far).any()
    assert np.mean(bits(open_, far)) > 0.9 > 0.6 > np.mean(bits(open_, ROWS))


@pytest.mark.parametrize("log_ratio, is_free", [(-np.inf, True), (np.nan, True), (-1e30, False)])
def test_what_the_prior_alone_decides_is_free_and_reads_no_row(log_ratio, is_free, monkeypatch):
    """Even with noise that has the bit of any log-ratio that was read accepted, and comes once in
    10^43 bits.
    """
    monkeypatch.setattr(filtered, "noise_of", lambda key, test: jnp.float64(100.0))
    curator = Curator(ROWS + 1e3, MODEL, None)
    proposals = jnp.full((4, 2), 0.7)  # each takes all of the filter, and more
    traced = curator.trace(program(QUERY, log_ratio), jax.random.key(0), proposals)
    bits, is_answered = curator.grant(traced.plan).run(
        traced.compile(), jax.random.key(0), proposals
    )
    assert not np.any(bits) and np.all(is_answered) == is_free and np.any(is_answered) == is_free


def test_short_moves_have_a_grid_that_the_prior_fits():
    """A third of moves to where the prior is e^-50 as dense was accepted. Now one in 10^21 is."""
    query = FilteredAccept(clip=1e-9, rho=0.5)
    proposals = jnp.full((100, 2), 0.3)
    curator = Curator(ROWS, MODEL, None)
    for log_ratio, some in ((-50.0, False), (0.0, True)):
        traced = curator.trace(program(query, log_ratio), jax.random.key(0), proposals)
        grant = curator.grant(traced.plan)
        assert np.any(grant.run(traced.compile(), jax.random.key(0), proposals)[0]) == some
        assert granted_of(grant).meter.spent(query) == pytest.approx(
            100 * (2 * SMALLEST) ** 2 / 8, rel=1e-4, abs=0
        )


@pytest.mark.parametrize(
    "as_told", [lambda info: info, lambda info: info._asdict()], ids=["a NamedTuple", "a dict"]
)
def test_a_run_ends_with_the_filter_and_keeps_the_draws_paid_for(as_told, capsys):
    curator = Curator(ROWS, MODEL, Budget(8.0, 1e-6))
    walk = accept_walk(MODEL.log_prior, FilteredAccept(clip=0.5, rho=0.2), random_walk(0.1))

    def step(key, state, ask):
        state, info = walk.step(key, state, ask)
        return state, as_told(info)

    sampler = walk._replace(step=step)
    result = sample(
        jax.random.key(0),
        sampler,
        curator,
        np.zeros(2),
        num_steps=400,
        num_chains=2,
        warmup=0,
        progress=True,
    )
    stats = result.sample_stats
    # A step of two chains costs about 2 * 2 * 0.1^2 / 8 = 0.005.
    assert 20 < stats.sizes["draw"] < 80 and bool(stats.is_answered.all())
    (ending,) = (finding for finding in findings(result) if finding.code == "filter-used-up")
    assert (
        ending.numbers == {"steps": stats.sizes["draw"], "planned": 400}
        and ending.text in capsys.readouterr().err
    )


def test_a_run_that_gets_no_draw_says_so():
    curator = Curator(ROWS, MODEL, Budget(8.0, 1e-6))
    sampler = accept_walk(MODEL.log_prior, FilteredAccept(clip=5.0, rho=1e-4), random_walk(1.0))
    with pytest.raises(
        RunFailed,
        match="used up its filter and ended after 0 of 20 steps.*no draws: choose a larger rho",
    ):
        sample(
            jax.random.key(0),
            sampler,
            curator,
            np.zeros(2),
            num_steps=20,
            num_chains=2,
            progress=False,
        )


def test_a_choice_that_depends_on_the_chain_is_refused_with_the_way_out():
    def step(ask, key, position):
        here = lambda: ask(key, QUERY, position, position + 0.1, jnp.float32(0)).value  # noqa: E731
        return jax.lax.cond(position[0] < 2, here, lambda: False)

    def chains(ask, keys, positions):
        return jax.vmap(lambda key, position: step(ask, key, position))(keys, positions)

    with pytest.raises(UnsupportedQuery, match="ask it outside, and use jnp.where"):
        Curator(ROWS, MODEL, None).trace(
            chains, jax.random.split(jax.random.key(0)), jnp.zeros((2, 2))
        )


def test_refusals():
    with pytest.raises(ValueError, match="rho=0"):
        FilteredAccept(1.0, 0.0)
    with pytest.raises(ValueError, match="may stop answering"):
        hmc(MODEL.log_prior, None, QUERY, 0.1, 2)
    curator = Curator(ROWS, MODEL, Budget(1.0, 1e-5))
    with pytest.raises(BudgetExceeded, match="the budget is epsilon=1: choose a smaller rho"):
        curator.check({FilteredAccept(1.0, 5.0): 1})
    with pytest.raises(
        ValueError, match=r"\(a filter is paid once\), so any number of steps fits: give num_steps"
    ):
        curator.max_steps({}, {QUERY: 1})
    curator = Curator(ROWS, MODEL, None, devices=jax.devices()[:1])
    with pytest.raises(UnsupportedQuery, match="one device"):
        curator.trace(program(QUERY), jax.random.key(0), jnp.zeros((1, 2))).compile()
