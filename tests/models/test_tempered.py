"""Tempered models: each part is the power of the plain one, and chains have the exact tempered law.

False-alarm rate of the law: 1e-3 in all (Bonferroni over the scores, Student's law with 63 degrees
of freedom). It finds a variance that is off by a quarter; a chain on the plain model is narrower by
half.
"""

import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dpmcmc
from dpmcmc import Curator, models, testing
from dpmcmc.queries import Gradient, LogRatio, SufficientStatistic
from tests.cases import models as cases
from tests.chains import COVARIANCE, MODEL, PRIOR_SCALE, ROWS, SECRET, run_chains
from tests.statistics import moment_z_scores, threshold

POWER = 0.25
MEAN, SPREAD = map(
    np.asarray,
    testing.gaussian_posterior(ROWS, COVARIANCE, prior_scale=PRIOR_SCALE, temperature=POWER),
)
LIMIT = threshold(num_scores=3 * 5, num_chains=64)


def row_of(case):
    rows = case.make_rows(np.random.default_rng(0), 4)
    return jax.tree.map(lambda part: jnp.asarray(part[0], jnp.float32), rows)


@pytest.mark.parametrize("case", cases.ALL, ids=str)
def test_every_part_is_the_power_of_the_plain_one(case):
    plain, tempered = case.model, case.model.tempered(POWER)
    row = row_of(case)
    here, there = (jnp.full(plain.dimension, value, jnp.float32) for value in (0.3, 0.7))

    def change(of_model):
        return of_model.log_likelihood(there, row) - of_model.log_likelihood(here, row)

    np.testing.assert_allclose(change(tempered), POWER * change(plain), rtol=1e-5)
    np.testing.assert_array_equal(tempered.log_prior(here), plain.log_prior(here))
    for bound in ("lipschitz", "hessian_bound", "spread"):
        value = getattr(plain, bound)
        assert getattr(tempered, bound) == (None if value is None else POWER * value)
    assert tempered.self_concordance == plain.self_concordance
    if plain.linear is not None:
        z = plain.linear.predictor(here, row)
        found = tempered.linear.log_likelihood(z, row)
        np.testing.assert_allclose(found, POWER * plain.linear.log_likelihood(z, row), rtol=1e-6)
    if plain.linear is not None and plain.linear.labelled is not None:
        values = [
            one.linear.labelled.log_likelihood(jnp.float32(0.4), jnp.int32(1))
            for one in (tempered, plain)
        ]
        np.testing.assert_allclose(values[0], POWER * values[1], rtol=1e-6)
    if plain.family is not None:
        for part in ("natural", "log_partition"):
            values = [getattr(one.family, part)(here) for one in (tempered, plain)]
            np.testing.assert_allclose(values[0], POWER * values[1], rtol=1e-6)


@pytest.mark.parametrize("temperature", [0.0, -1.0, 1.5, np.nan, "half"])
def test_what_is_no_power_is_refused(temperature):
    with pytest.raises(ValueError, match=r"must lie in \(0, 1\]"):
        models.logistic(2, radius=1.0).tempered(temperature)


def test_a_tempered_gradient_of_integer_rows_is_the_power_of_the_plain_one():
    """Within six standard deviations of its noise, a thousandth of a row's reach."""
    generator = np.random.default_rng(1)
    features = generator.uniform(-0.6, 0.6, (500, 2)).astype(np.float32)
    labels = generator.integers(0, 2, 500).astype(np.float32)
    plain = models.logistic(2, radius=1.0)
    found = {}
    for model in (plain, plain.tempered(POWER)):
        query = Gradient(model.lipschitz, 1e-3)
        curator = Curator((features, labels), model, None, fixed_secret=SECRET)
        arguments = jax.random.key(0), jnp.full(2, 0.5)
        traced = curator.trace(lambda ask, key, point, q=query: ask(key, q, point), *arguments)
        answer = curator.grant(traced.plan).run(traced.compile(), *arguments)
        found[model.lipschitz] = np.asarray(answer.value)
    np.testing.assert_allclose(found[POWER], POWER * found[1.0], atol=6 * 2e-3)


def chains(model, query, make):
    draws, _ = run_chains(make(model, query), query, model=model, mean=MEAN, root=_root())
    return np.abs(moment_z_scores(draws, MEAN, SPREAD)).max()


def _root():
    return np.linalg.cholesky(SPREAD)


def _penalty(model, query):
    return dpmcmc.penalty(model.log_prior, query, dpmcmc.random_walk(0.6, 1.8))


def _exponential(model, query):
    return dpmcmc.exponential_penalty(model, query, dpmcmc.random_walk(0.6, 1.8))


@pytest.mark.parametrize(
    "query, make",
    [
        (LogRatio(clip=5.0, noise_multiplier=0.07), _penalty),
        pytest.param(SufficientStatistic(0.1), _exponential, marks=pytest.mark.slow),
    ],
    ids=["penalty", "exponential penalty"],
)
def test_chains_have_the_tempered_law(query, make):
    assert chains(MODEL.tempered(POWER), query, make) < LIMIT


def test_a_chain_that_forgets_the_power_is_caught():
    query = LogRatio(clip=20.0, noise_multiplier=0.07)
    assert chains(MODEL, query, _penalty) > LIMIT


def test_the_page_runs():
    page = (Path(__file__).parents[2] / "docs" / "tempering.md").read_text()
    (block,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    names: dict = {"__name__": "tempering"}
    exec(compile(block, "tempering.md", "exec"), names)
    assert names["model"].lipschitz == 0.1 * names["plain"].lipschitz
