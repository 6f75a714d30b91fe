"""NumPyro's models: the same density as NumPyro's own, and refusals of what has no rows that add
up.
"""

import inspect
import sys

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import dpmcmc
from dpmcmc import models

NUMBERS = np.array([0.3, 1.2, 0.7, 2.0, 0.1], np.float32)
PAIRS = np.stack([NUMBERS, NUMBERS[::-1]], axis=1)
COUNTS = np.array([0, 1, 3, 2, 1], np.int32)


def normal(y):
    mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(mean, 1.0), obs=y)


def correlated(x):
    factor = numpyro.sample("factor", dist.LKJCholesky(2, 2.0))
    scale = numpyro.sample("scale", dist.HalfNormal(1.0).expand([2]).to_event(1))
    root = numpyro.deterministic("root", scale[:, None] * factor)
    with numpyro.plate("rows", len(x)):
        numpyro.sample("x", dist.MultivariateNormal(jnp.zeros(2), scale_tril=root), obs=x)


def mixed(y):
    weight = numpyro.sample("weight", dist.Dirichlet(jnp.ones(3)))
    with numpyro.plate("parts", 3):
        mean = numpyro.sample("mean", dist.Normal(0.0, 3.0))
    with numpyro.plate("rows", len(y)):
        numpyro.sample(
            "y", dist.MixtureSameFamily(dist.Categorical(weight), dist.Normal(mean, 1.0)), obs=y
        )


def nested(y):
    upper = numpyro.sample("upper", dist.Uniform(0.0, 5.0))
    lower = numpyro.sample("lower", dist.Uniform(0.0, upper))  # a support that another site decides
    numpyro.sample("y", dist.Normal(lower, upper), obs=y)


def grouped(group, y):
    mean, spread = (
        numpyro.sample("mean", dist.Normal(0.0, 1.0)),
        numpyro.sample("spread", dist.HalfNormal(1.0)),
    )
    with numpyro.plate("groups", 4):
        effect = numpyro.sample("effect", dist.Normal(mean, spread))
    with numpyro.plate("rows", len(y)):
        fitted = numpyro.deterministic("fitted", effect[group])
        numpyro.sample("y", dist.Normal(fitted, 1.0), obs=y)


def counted(x, y):
    slopes = numpyro.sample("slopes", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    size = numpyro.sample("size", dist.Exponential(1.0))
    numpyro.sample("y", dist.NegativeBinomial2(jnp.exp(x @ slopes), size), obs=y)


def censored(time, is_seen):
    law = dist.Weibull(
        numpyro.sample("scale", dist.HalfNormal(2.0)), numpyro.sample("shape", dist.HalfNormal(2.0))
    )
    with numpyro.plate("rows", len(time)):
        numpyro.factor(
            "log_likelihood",
            jnp.where(is_seen > 0, law.log_prob(time), -((time / law.scale) ** law.concentration)),
        )


def with_more_priors(group, y):
    effect = numpyro.sample("effect", dist.ImproperUniform(dist.constraints.real, (3,), ()))
    numpyro.factor("narrow", -(effect**2).sum())
    numpyro.sample("sum to zero", dist.Normal(effect.sum(), 0.1), obs=0.0)
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(effect[group], 1.0), obs=y)


def with_covariance(x):
    covariance = numpyro.sample("scale", dist.HalfNormal()) * jnp.eye(2)
    # NumPyro's checks take its eigenvalues
    numpyro.sample("x", dist.MultivariateNormal(jnp.zeros(2), covariance), obs=x)


def with_own_keys(x, y):
    directions = jax.random.normal(numpyro.prng_key(), (2, 3))
    numpyro.sample(
        "y",
        dist.Normal(
            jnp.tanh(x @ directions) @ numpyro.sample("b", dist.Normal().expand([3]).to_event(1)),
            1.0,
        ),
        obs=y,
    )


decentred = numpyro.handlers.reparam(
    grouped, config={"effect": numpyro.infer.reparam.LocScaleReparam(0)}
)
TABLE = {  # program, rows, dimension, latent sites, what else is drawn
    "normal": (normal, NUMBERS, 1, ["mean"], []),
    "correlated": (correlated, PAIRS, 3, ["factor", "scale"], ["root"]),
    "mixed": (mixed, (NUMBERS,), 5, ["weight", "mean"], []),
    "nested": (nested, NUMBERS, 2, ["upper", "lower"], []),
    "grouped": (grouped, (COUNTS, NUMBERS), 6, ["mean", "spread", "effect"], []),
    "decentred": (
        decentred,
        {"group": COUNTS, "y": NUMBERS},
        6,
        ["mean", "spread", "effect_decentered"],
        ["effect"],
    ),
    "with more priors": (with_more_priors, (COUNTS % 3, NUMBERS), 3, ["effect"], []),
    "with covariance": (with_covariance, PAIRS, 1, ["scale"], []),
    "with own keys": (numpyro.handlers.seed(with_own_keys, 0), (PAIRS, NUMBERS), 3, ["b"], []),
    "counted": (counted, (PAIRS, COUNTS), 3, ["slopes", "size"], []),
    "censored": (censored, {"time": NUMBERS, "is_seen": COUNTS}, 2, ["scale", "shape"], []),
}


def arguments(rows):
    return (
        ((), rows) if isinstance(rows, dict) else (rows if isinstance(rows, tuple) else (rows,), {})
    )


EVERY_DAY = ("normal", "nested")


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in EVERY_DAY else pytest.mark.slow) for name in TABLE],
)
def test_the_density_is_numpyros(name):
    """Prior, Jacobian and likelihood, against NumPyro on the whole table; without the Jacobian it
    would be another.
    """
    program, rows, dimension, latent, drawn = TABLE[name]
    model, (args, kwargs) = models.from_numpyro(program, rows), arguments(rows)
    position = jnp.linspace(-0.4, 0.5, model.dimension)
    values = jax.jit(model.unravel)(position)
    assert model.dimension == dimension and sorted(values) == sorted([*latent, *drawn])

    @jax.jit
    def numpyros(values):
        free = numpyro.infer.util.unconstrain_fn(program, args, kwargs, values)
        density = -numpyro.infer.util.potential_energy(program, args, kwargs, free)
        return free, density, numpyro.infer.util.log_density(program, args, kwargs, values)[0]

    free, density, without_jacobian = numpyros({site: values[site] for site in latent})
    assert np.allclose(
        np.concatenate([np.ravel(free[site]) for site in latent]), position, atol=1e-5
    )
    terms = jax.jit(jax.vmap(model.log_likelihood, (None, 0)))(position, rows)
    assert np.isclose(jax.jit(model.log_prior)(position) + terms.sum(), density, rtol=1e-5)
    assert (abs(without_jacobian - density) > 0.05) == (
        name not in ("normal", "with own keys", "with more priors")
    )
    dpmcmc.Curator(rows, model, None)  # takes it


def test_names_have_the_order_of_the_position():
    """JAX sorts them: of this program lower would have come first, and a reader would take the one
    for the other.
    """
    model = models.from_numpyro(nested, NUMBERS)
    assert list(model.unravel(jnp.zeros(2))) == ["upper", "lower"]
    moved = model.unravel(jnp.array([3.0, 0.0]))
    assert moved["upper"] > model.unravel(jnp.zeros(2))["upper"]


def test_what_is_computed_from_the_number_of_rows_is_not_drawn():
    def counting(y):
        mean = numpyro.sample("mean", dist.Normal())
        numpyro.deterministic("total", mean * len(y))
        numpyro.deterministic("of each", jnp.full(len(y), mean))
        numpyro.deterministic("double", 2 * mean)
        numpyro.sample("y", dist.Normal(mean, 1.0), obs=y)

    assert models.from_numpyro(counting, NUMBERS).unravel(jnp.ones(1)) == {
        "mean": 1.0,
        "double": 2.0,
    }


def test_only_shapes_and_types_are_used():
    shapes = jax.ShapeDtypeStruct((7,), np.int32), jax.ShapeDtypeStruct((7,), np.float32)
    from_shapes, from_rows = (
        models.from_numpyro(grouped, rows) for rows in (shapes, (COUNTS + 99, NUMBERS * np.nan))
    )
    position, row = jnp.full(6, 0.1), (COUNTS[1], NUMBERS[1])
    assert from_shapes.log_likelihood(position, row) == from_rows.log_likelihood(position, row)
    assert np.isfinite(from_rows.log_prior(position))


@pytest.mark.slow  # docs/extend.md has one of every day
def test_a_private_run(quick_compilation):
    model = models.from_numpyro(counted, (PAIRS, COUNTS))
    rows = PAIRS.repeat(200, axis=0), COUNTS.repeat(200)
    curator = dpmcmc.Curator(rows, model, dpmcmc.Budget(4, 1e-5))
    sampler = dpmcmc.sgld(model.log_prior, dpmcmc.queries.Gradient(2.0, 20.0), 1e-3)
    draws = dpmcmc.sample(
        jax.random.key(0), sampler, curator, np.zeros(3), num_steps=4, num_chains=2, progress=False
    ).posterior
    assert draws.slopes.shape == (2, 2, 2) and (draws["size"] > 0).all()
    assert draws.attrs["epsilon"] <= 4


def discrete(y):
    numpyro.sample("y", dist.Normal(numpyro.sample("side", dist.Bernoulli(0.5)), 1.0), obs=y)


def without_prior(y):
    numpyro.sample(
        "y", dist.Normal(numpyro.sample("mean", dist.Normal()), numpyro.param("scale", 1.0)), obs=y
    )


def part(y):
    mean = numpyro.sample("mean", dist.Normal())
    with numpyro.plate("rows", 50, subsample_size=2) as chosen:
        numpyro.sample("y", dist.Normal(mean, 1.0), obs=y[chosen])


def personal(y):
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(numpyro.sample("mean", dist.Normal()), 1.0), obs=y)


def of_five(y):
    mean = numpyro.sample("mean", dist.Normal())
    with numpyro.plate("rows", 5):
        numpyro.sample("y", dist.Normal(mean, 1.0), obs=y)


def centred(y):
    numpyro.sample("y", dist.Normal(numpyro.sample("mean", dist.Normal()), 1.0), obs=y - y.mean())


def standardised(y):
    numpyro.sample(
        "y", dist.Normal(numpyro.sample("mean", dist.Normal()), 1.0), obs=(y - y.mean()) / y.std()
    )


def centred_in_groups(group, x, y):
    count = jnp.bincount(group, length=4)
    mean = jnp.bincount(group, weights=x, length=4) / jnp.maximum(count, 1)
    numpyro.sample(
        "y", dist.Normal(numpyro.sample("slope", dist.Normal()) * (x - mean[group]), 1.0), obs=y
    )


def cox(time, is_seen, x):
    risk = numpyro.sample("slope", dist.Normal()) * x
    later = jax.nn.logsumexp(
        jnp.where(time[None, :] >= time[:, None], risk[None, :], -jnp.inf), axis=1
    )
    numpyro.factor("partial", (is_seen * (risk - later)).sum())


def in_order(y):
    first, second = (numpyro.sample(name, dist.Normal()) for name in ("first", "second"))
    numpyro.sample("y", dist.Normal(first * y[1:-1] + second * y[:-2], 1.0), obs=y[2:])


def without_the_first(y):
    numpyro.sample("y", dist.Normal(numpyro.sample("mean", dist.Normal()), 1.0), obs=y[10:])


def shares_of_centred(x, y):
    share = jax.nn.sigmoid(numpyro.sample("slope", dist.Normal()) * (x - x.mean()))
    numpyro.sample("y", dist.BetaProportion(share, 20.0), obs=y)


def with_gaps_filled(x, y):
    filled = jnp.where(jnp.isnan(x), jnp.nanmean(x), x)
    numpyro.sample("y", dist.Normal(numpyro.sample("slope", dist.Normal()) * filled, 1.0), obs=y)


def by_the_largest(y):
    numpyro.sample(
        "y",
        dist.Normal(numpyro.sample("mean", dist.Normal()), 1.0),
        obs=y / jnp.maximum(jnp.abs(y).max(), 1.0),
    )


def broadcast(x, y):
    numpyro.sample(
        "y", dist.Normal(x[:, None] * numpyro.sample("slope", dist.Normal()), 1.0), obs=y
    )


def row_by_row(y):
    mean = numpyro.sample("mean", dist.Normal())
    for index in range(len(y)):
        numpyro.sample(f"y{index}", dist.Normal(mean, 1.0), obs=y[index])


def as_many_as_there_are(group):
    level = numpyro.sample("level", dist.Normal().expand([int(group.max()) + 1]).to_event(1))
    numpyro.sample("y", dist.Bernoulli(logits=level[group]), obs=group)


def no_number(y):
    numpyro.sample(
        "y", dist.Normal(numpyro.sample("mean", dist.Normal(0.0, jnp.log(-1.0))), 1.0), obs=y
    )


def together(x, y):
    """Of two rows and more the covariance has no Cholesky factor in float32."""
    near = jnp.exp(-(((x[:, None] - x[None, :]) / 1000) ** 2)) + 1e-7 * jnp.eye(len(x))
    numpyro.sample(
        "y",
        dist.MultivariateNormal(
            jnp.zeros(len(x)), numpyro.sample("scale", dist.HalfNormal()) * near
        ),
        obs=y,
    )


def tempered(y):
    mean = numpyro.sample("mean", dist.Normal())
    with numpyro.handlers.scale(scale=1 / len(y)):
        numpyro.sample("y", dist.Normal(mean, 1.0), obs=y)


def closed_over(y):
    numpyro.sample(
        "y", dist.Normal(numpyro.sample("mean", dist.Normal()), 1.0), obs=jnp.asarray(NUMBERS)
    )


def around_the_mean(y):
    numpyro.sample("y", dist.Normal(numpyro.sample("mean", dist.Normal(y.mean(), 1.0)), 1.0), obs=y)


def narrower_with_more(y):
    numpyro.sample(
        "y", dist.Normal(numpyro.sample("mean", dist.Normal(0.0, 1 / len(y))), 1.0), obs=y
    )


def unobserved(y):
    numpyro.sample("mean", dist.Normal())


def certain(y):
    numpyro.sample("y", dist.Normal(), obs=y)


@pytest.mark.parametrize(
    "program, told",
    [
        (centred_in_groups, "not the sum"),
        (cox, "not the sum"),
        (together, "not the sum"),
        (in_order, "not the sum"),
        (without_the_first, "not the sum"),
        (shares_of_centred, "not the sum"),
        (with_gaps_filled, "not the sum"),
        (by_the_largest, "not the sum"),
        (broadcast, "not the sum"),
        (row_by_row, "other sites for two rows"),
        (as_many_as_there_are, "a public number for max"),
        (no_number, "log-prior of this model is not a number"),
        (discrete, "'side' is discrete"),
        (without_prior, "numpyro.param, which has no prior"),
        (part, "leave subsample_size out"),
        (personal, "'mean' has a value for each row"),
        (of_five, "not on one of several .*len\\(y\\)"),
        (centred, "not the sum"),
        (standardised, "not the sum"),
        (tempered, "not the sum"),
        (closed_over, "rows come as these, not from outside"),
        (around_the_mean, "computed from the rows"),
        (narrower_with_more, "how many there are"),
        (unobserved, "1 parameters and 0 observed"),
        (certain, "0 parameters and 1 observed"),
    ],
)
def test_other_models_are_refused(program, told):
    columns = {"group": COUNTS, "is_seen": COUNTS}
    rows = {name: columns.get(name, NUMBERS) for name in inspect.signature(program).parameters}
    with pytest.raises(ValueError, match=told):
        models.from_numpyro(program, rows)


def test_what_could_not_be_tried_is_told():
    def far(y):
        numpyro.factor(
            "far",
            jnp.where(y > 1e6, -((y - numpyro.sample("mean", dist.Normal())) ** 2), -jnp.inf).sum(),
        )

    with pytest.warns(
        UserWarning, match="could not be checked whether the log-likelihoods of rows add up"
    ):
        models.from_numpyro(far, NUMBERS)


@pytest.mark.parametrize("rows", [(), 3.0, np.float32(3.0), [0.3, 1.2], np.array(["a", "b"])])
def test_rows_are_arrays(rows):
    with pytest.raises(ValueError, match="rows must be arrays"):
        models.from_numpyro(normal, rows)


@pytest.mark.parametrize(
    "rows",
    [
        (np.zeros(3), np.zeros(4)),
        {"x": np.zeros((3, 2)), "y": np.zeros(4)},
        (np.zeros(3), jax.ShapeDtypeStruct((4,), float)),
    ],
)
def test_columns_have_equally_many_rows(rows):
    with pytest.raises(
        ValueError, match="the columns of rows have different numbers of rows: they must agree"
    ):
        models.from_numpyro(lambda x, y: normal(y), rows)


def test_numpyro_is_optional(monkeypatch):
    monkeypatch.setitem(sys.modules, "numpyro", None)
    with pytest.raises(ImportError, match="pip install numpyro"):
        models.from_numpyro(normal, NUMBERS)
