"""Queries without noise: their values, clipped and not, and that nobody takes them for private."""

import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from dpmcmc import (
    Barker,
    Budget,
    Curator,
    Metropolis,
    UnsupportedQuery,
    accept_walk,
    hmc,
    models,
    penalty,
    random_walk,
    sample,
    sgld,
    testing,
)
from dpmcmc.accounting import verify
from dpmcmc.curator.noise import stream
from dpmcmc.curator.queries import gradient, log_ratio, nonprivate
from dpmcmc.curator.sums import exact_sum
from dpmcmc.queries import (
    FixedBatch,
    NonPrivateAccept,
    NonPrivateGradient,
    NonPrivateRatio,
    PoissonBatch,
)
from dpmcmc.types import Unit

pytestmark = pytest.mark.usefixtures("quick_compilation")

MODEL = models.logistic(3, 1.0, intercept=True)
NUM_ROWS = 1003
ROWS = tuple(
    map(
        np.asarray,
        testing.simulate_logistic_rows(
            jax.random.key(0), NUM_ROWS, [0.3, 1.0, -1.0, 0.5], 1.0, True
        ),
    )
)
POSITION, PROPOSAL = (
    np.array([0.1, 0.5, -0.5, 0.2], np.float32),
    np.array([0.3, 0.4, -0.7, 0.1], np.float32),
)


def table(rows=ROWS, num_pieces=3, num_rows=None):
    """Padded with NaN, and cut into pieces."""
    size = -(-len(rows[0]) // num_pieces)
    whole = [
        np.concatenate(
            [leaf, np.full((num_pieces * size - len(leaf), *leaf.shape[1:]), np.nan, leaf.dtype)]
        )
        for leaf in rows
    ]
    with jax.enable_x64(True):
        pieces = tuple(
            tuple(jnp.asarray(leaf[i * size : (i + 1) * size]) for leaf in whole)
            for i in range(num_pieces)
        )
    return exact_sum.Table(
        pieces, len(rows[0]) if num_rows is None else num_rows, Unit(), capacity=len(rows[0])
    )


def answer(query, *points, rows=None, model=MODEL):
    rows = table() if rows is None else rows
    with jax.enable_x64(True):
        found = jax.jit(lambda key, *points: query.answer(key, model, rows, *points))(
            np.zeros(8, np.uint32), *points
        )
    return np.asarray(found.value), np.asarray(found.variance)


def design(rows):
    return np.column_stack([np.ones(len(rows[0])), rows[0].astype(float)])


def log_likelihoods(position, rows=ROWS):
    """NumPy, float64."""
    logits = design(rows) @ position.astype(float)
    return -np.logaddexp(0.0, np.where(rows[1] > 0.5, -logits, logits))


RATIOS = log_likelihoods(PROPOSAL) - log_likelihoods(POSITION)


# -- values ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype, tolerance", [(np.float32, 1e-3), (np.float64, 1e-9)])
def test_the_ratio_is_the_sum_of_numpy(dtype, tolerance):
    rows = table(tuple(leaf.astype(dtype) for leaf in ROWS))
    value, variance = answer(
        NonPrivateRatio(temperature=0.5), POSITION.astype(dtype), PROPOSAL.astype(dtype), rows=rows
    )
    assert value == pytest.approx(0.5 * RATIOS.sum(), abs=tolerance) and variance == 0


def test_a_clipped_ratio_is_the_private_one_without_its_noise():
    clip = 0.4  # clips some rows
    bound = clip * np.linalg.norm(PROPOSAL.astype(float) - POSITION.astype(float))
    value, _ = answer(NonPrivateRatio(clip), POSITION, PROPOSAL)
    with jax.enable_x64(True):
        integers = jax.jit(lambda *points: log_ratio.log_ratio_sum(MODEL, table(), *points, bound))(
            POSITION, PROPOSAL
        )
    assert value == pytest.approx(bound * int(integers) / 2**exact_sum.BITS, rel=1e-6)
    assert (
        value
        == pytest.approx(np.clip(RATIOS, -bound, bound).sum(), abs=1e-3)
        != pytest.approx(RATIOS.sum(), abs=1e-2)
    )


def test_the_gradient_is_that_of_the_summed_likelihood():
    def summed(position):
        return jax.vmap(MODEL.log_likelihood, (None, 0))(position, ROWS).sum()

    wanted = np.asarray(jax.jit(jax.grad(summed))(POSITION))
    value, variance = answer(NonPrivateGradient(temperature=0.5), POSITION)
    np.testing.assert_allclose(value, 0.5 * wanted, atol=1e-3)
    assert variance == 0


def test_a_clipped_gradient_is_the_private_one_without_its_noise():
    each = np.asarray(
        jax.jit(jax.vmap(jax.grad(MODEL.log_likelihood), (None, 0)))(POSITION, ROWS), float
    )
    wanted = (each * np.minimum(1.0, 0.5 / np.linalg.norm(each, axis=1, keepdims=True))).sum(axis=0)
    made = MODEL._replace(linear=None)
    value, _ = answer(NonPrivateGradient(0.5), POSITION, model=made)
    with jax.enable_x64(True):
        integers = np.asarray(
            jax.jit(lambda position: gradient.all_rows_sum(made, table(), position, 0.5))(POSITION)
        )
    np.testing.assert_allclose(value, 0.5 * integers / 2.0**exact_sum.BITS, rtol=1e-6)
    np.testing.assert_allclose(value, wanted, atol=1e-2)


def test_a_batch_of_equal_rows_says_what_all_rows_say():
    equal = table(tuple(np.repeat(leaf[:1], 12, axis=0) for leaf in ROWS), 1)
    of_all, of_batch = (
        NonPrivateGradient(None, batch, temperature=0.5) for batch in (None, FixedBatch(5, 12))
    )
    np.testing.assert_allclose(
        answer(of_batch, POSITION, rows=equal)[0],
        answer(of_all, POSITION, rows=equal)[0],
        rtol=1e-6,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "batch, clip",
    [(PoissonBatch(0.2), None), (FixedBatch(200, NUM_ROWS), 100.0)],
    ids=["poisson", "fixed"],
)
def test_batches_estimate_the_gradient_of_all_rows(batch, clip):
    """Four z-scores: false alarm 3e-5 for each case."""
    query, rows, made = NonPrivateGradient(clip, batch), table(), MODEL._replace(linear=None)
    with jax.enable_x64(True):
        keys = stream.random_words(jnp.arange(8, dtype=jnp.uint32), (400, 8))
        run = jax.jit(
            lambda keys: jax.lax.map(
                lambda key: query.answer(key, made, rows, POSITION).value, keys
            )
        )
        values = np.asarray(run(keys))
    each = np.asarray(
        jax.jit(jax.vmap(jax.grad(MODEL.log_likelihood), (None, 0)))(POSITION, ROWS), float
    )
    z = (values.mean(0) - each.sum(0)) / (values.std(0) / 400**0.5)
    assert np.abs(z).max() < 4.5 and (values.std(0) > 1).all()


def test_bad_rows_count_as_zero_and_padding_not_at_all():
    rows = tuple(leaf.copy() for leaf in ROWS)
    rows[0][5] = np.nan
    assert answer(NonPrivateRatio(), POSITION, PROPOSAL, rows=table(rows))[0] == pytest.approx(
        RATIOS.sum() - RATIOS[5], abs=1e-3
    )
    assert np.isfinite(answer(NonPrivateGradient(), POSITION, rows=table(rows))[0]).all()
    assert answer(NonPrivateRatio(), POSITION, PROPOSAL, rows=table(num_rows=7))[
        0
    ] == pytest.approx(RATIOS[:7].sum(), abs=1e-5)


@pytest.mark.parametrize(
    "test, bound, temperature", [(Metropolis(), None, 2.0), (Barker(), 50.0, 0.5)], ids=str
)
def test_the_coin_falls_with_the_probability_of_the_test(test, bound, temperature):
    """4000 coins: false alarm 1e-5 each; a probability off by 0.05 is caught."""
    query = NonPrivateAccept(test, bound, temperature)
    rows = table(tuple(leaf[:200] for leaf in ROWS), 1)
    public = np.float32(-temperature * RATIOS[:200].sum() - 0.8)
    with jax.enable_x64(True):
        keys = stream.random_words(jnp.arange(8, dtype=jnp.uint32), (4000, 8))
        run = jax.jit(
            lambda keys: jax.lax.map(
                lambda key: query.answer(key, MODEL, rows, POSITION, PROPOSAL, public).value, keys
            )
        )
        number = int(np.sum(run(keys)))
    probability = float(test.probability(np.float64(-0.8)))
    assert stats.binomtest(number, 4000, probability).pvalue > 1e-5
    assert stats.binomtest(number, 4000, probability + 0.05).pvalue < 1e-5


@pytest.mark.parametrize("public", [np.nan, -np.inf])
def test_an_impossible_move_is_rejected(public):
    for query in (NonPrivateAccept(Metropolis()), NonPrivateAccept(Metropolis(), 5.0)):
        assert not answer(query, POSITION, PROPOSAL, np.float32(public))[0]
    assert not answer(
        NonPrivateAccept(Metropolis()), POSITION, np.full(4, np.inf, np.float32), np.float32(0.0)
    )[0]


# -- nobody takes them for private ----------------------------------------------------------------

WALK = random_walk(0.1)
BASELINES = {
    "ratio": (penalty(MODEL.log_prior, NonPrivateRatio(), WALK), {NonPrivateRatio(): 1}),
    "clipped ratio": (
        penalty(MODEL.log_prior, NonPrivateRatio(1.0), WALK),
        {NonPrivateRatio(1.0): 1},
    ),
    "bit": (
        accept_walk(MODEL.log_prior, NonPrivateAccept(Barker(), 0.01), WALK),
        {NonPrivateAccept(Barker(), 0.01): 1},
    ),
    "sgld": (sgld(MODEL.log_prior, NonPrivateGradient(), 0.01), {NonPrivateGradient(): 1}),
    "hmc": (
        hmc(MODEL.log_prior, NonPrivateGradient(), NonPrivateRatio(), 0.1, 3),
        {NonPrivateGradient(): 3, NonPrivateRatio(): 1},
    ),
}


@pytest.mark.parametrize("name, num_steps, shared_by", [
    ("ratio", 5, None), ("ratio", None, None), ("ratio", 5, "zcdp"), ("ratio", None, "gaussian-dp"),
    ("clipped ratio", 5, None), ("bit", None, None), ("sgld", 5, None), ("hmc", None, None),
])  # fmt: skip
def test_a_budget_refuses_them_before_anything_is_spent(name, num_steps, shared_by):
    sampler, per_step = BASELINES[name]
    curator = Curator(ROWS, MODEL, Budget(1e3, 1e-6), shared_by=shared_by)
    query = next(iter(per_step))
    with pytest.raises(UnsupportedQuery) as caught:
        sample(
            jax.random.key(0), sampler, curator, np.zeros(4), num_steps=num_steps, progress=False
        )
    assert repr(query) in str(caught.value) and "Curator(rows, model, None)" in str(caught.value)
    assert curator._account.ledger.grants == []
    with pytest.raises(UnsupportedQuery):
        curator.grant(per_step)


@pytest.mark.parametrize(
    "query",
    [NonPrivateRatio(), NonPrivateAccept(Barker()), NonPrivateGradient(1.0, PoissonBatch(0.1))],
    ids=str,
)
def test_the_statement_says_infinity_and_why(query):
    statement = Curator(ROWS, MODEL, None).grant({query: 3}).statement()
    assert math.isinf(statement.epsilon) and statement.second_epsilon is None
    text = str(statement)
    assert "epsilon = infinity: NO PRIVACY IS PROMISED" in text and "WITHOUT" in text
    assert f"3 x {query!r}" in text and query.cost(Unit()).reason in text
    document = json.loads(statement.ledger_json())
    assert document["claim"]["epsilon"] == "inf" and verify.verify(document).is_reproduced


def test_private_queries_get_no_such_note():
    statement = Curator(ROWS, MODEL, None).grant({log_ratio.LogRatio(1.0, 30.0): 3}).statement()
    assert statement.notes == () and math.isfinite(statement.epsilon)


@pytest.mark.parametrize("make, text", [
    (lambda: NonPrivateRatio(0.0), "clip=0.0"),
    (lambda: NonPrivateRatio(temperature=-1.0), "temperature=-1.0"),
    (lambda: NonPrivateAccept(Barker(), math.inf), "bound=inf"),
    (lambda: NonPrivateAccept("barker"), "test='barker'"),
    (lambda: NonPrivateGradient(math.nan), "clip=nan"),
    (lambda: NonPrivateGradient(batch=0.1), "batch=0.1"),
])  # fmt: skip
def test_bad_settings_are_named(make, text):
    with pytest.raises(ValueError, match=text):
        make()


def test_their_answers_add_where_those_of_the_private_queries_do():
    assert (
        nonprivate.NonPrivateRatio.adds
        and nonprivate.NonPrivateGradient.adds
        and not hasattr(nonprivate.NonPrivateAccept, "adds")
    )
