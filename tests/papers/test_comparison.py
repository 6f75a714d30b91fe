"""Samplers at equal budgets: the steps are those of real runs, the scores those of their draws."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dpmcmc
from dpmcmc import Answer, Budget, Curator, Sampler
from dpmcmc.papers import comparison, problems
from dpmcmc.papers.comparison import Method
from dpmcmc.papers.dphmc import settings as hmc_comparison
from dpmcmc.papers.fastmh import settings as fast_mh_comparison
from dpmcmc.papers.thesis import settings as thesis_comparison
from dpmcmc.queries import LogRatio, NonPrivateRatio
from dpmcmc.run.programs import Begin, Block
from tests import tiny

pytestmark = pytest.mark.usefixtures("quick_compilation")
PROBLEM = problems.gaussian(jax.random.key(0), 400, [[1.0, 0.5], [0.5, 2.0]], 10.0)
RATIO = LogRatio(3.0, 100.0)
WALK = dpmcmc.random_walk(0.1)


def asked(method: Method, problem, num_chains: int) -> tuple[dict, dict]:
    """What is asked to begin with, and in a step, by the program itself."""
    curator = Curator(problem.rows, problem.model, None)
    keys = jax.random.split(jax.random.key(0), num_chains)
    positions = jnp.broadcast_to(problem.truth, (num_chains, problem.model.dimension))
    begin = curator.trace(Begin(method.sampler), keys, positions)
    step = curator.trace(Block(method.sampler, 1, 1), keys, *begin.shapes, np.int32(0))
    return dict(begin.plan), dict(step.plan)


BANANA = problems.banana(jax.random.key(1), hmc_comparison.NUM_ROWS, (20.0, 2.5), 20.0, 30.0)
TEMPERED = BANANA._replace(temperature=0.01)
MIXTURE = problems.mixture(jax.random.key(7), 1000, fast_mh_comparison.VARIANCE, temperature=0.1)
METHODS = {
    **{
        f"fast MH, {name}": (r.method, MIXTURE)
        for name, r in fast_mh_comparison.readings(MIXTURE.model).items()
    },
    **{
        f"HMC paper, {name}": (m, BANANA)
        for name, m in hmc_comparison.methods(BANANA, hmc_comparison.BANANA).items()
    },
    **{
        f"thesis, {name}": (m, TEMPERED)
        for name, m in thesis_comparison.methods(
            TEMPERED, thesis_comparison.SETTINGS["Tempered banana, d = 2"]
        ).items()
    },
}


@pytest.mark.parametrize("name", METHODS)
def test_methods_ask_what_they_are_billed_for(name):
    method, problem = METHODS[name]
    begin, step = asked(method, problem, 3)
    assert begin == {query: 3 * count for query, count in method.initial.items()}
    assert step == {query: 3 * count for query, count in method.per_step.items()}


def test_steps_are_those_of_a_run_with_the_budget():
    num_steps = comparison.num_steps(Method(tiny.PENALTY, {tiny.RATIO: 1}), tiny.BUDGET, 2)
    assert tiny.means(tiny.run(num_steps=None)).shape == (2, num_steps) and num_steps > 10


class Exact(NamedTuple):
    position: Any


def exact_sampler(scale: float) -> Sampler:
    """Independent draws of the posterior, drawn so many times as wide; it asks, and does not
    listen.
    """
    mean, covariance = dpmcmc.testing.gaussian_posterior(
        PROBLEM.rows, [[1.0, 0.5], [0.5, 2.0]], 10.0
    )
    factor = scale * jnp.linalg.cholesky(covariance)

    def step(rng_key, state, ask):
        ask(rng_key, RATIO, state.position, state.position + 1)
        position = mean + factor @ jax.random.normal(jax.random.fold_in(rng_key, 1), mean.shape)
        return Exact(position), Exact(position)

    return Sampler(lambda key, position, ask: Exact(position), step)


@pytest.fixture(scope="module")
def found():
    methods = {f"{scale}": Method(exact_sampler(scale), {RATIO: 1}) for scale in (1.0, 2**-0.5)}
    budgets = [Budget(epsilon, 1e-5) for epsilon in (0.01, 1.0, 2.0)]
    told = []
    result = comparison.compare(
        jax.random.key(2), PROBLEM, methods, budgets, 2, 3, most_steps=700, report=told.append
    )
    return result, told


def test_exact_draws_are_as_good_as_can_be_and_narrow_ones_are_not(found):
    """Medians of three runs of 700 draws, at fixed keys: exact draws have some .03, draws of half
    the variance .09.
    """
    result, told = found
    exact, narrow = result.scores.values()
    assert result.epsilons == [0.01, 1.0, 2.0] and result.floor < 0.05
    assert (
        exact.num_steps == narrow.num_steps
        and exact.num_steps[0] < 2 < exact.num_steps[1] < exact.num_steps[2] <= 700
    )
    assert np.isnan(exact.mmd[0]).all() and exact.mmd.shape == (3, 3)  # too few steps to keep two
    assert np.median(exact.mmd[-1]) < 0.05 < 0.06 < np.median(narrow.mmd[-1])
    assert (
        abs(np.median(exact.width[-1]) - 1) < 0.1
        and abs(np.median(narrow.width[-1]) - 2**-0.5) < 0.07
    )
    assert np.median(exact.mean_error[-1]) < 0.02
    assert [line.partition(":")[0] for line in told] == ["1.0", "0.7071067811865476"]


def test_a_smaller_budget_is_the_beginning_of_the_run():
    curator = Curator(PROBLEM.rows, PROBLEM.model, None)
    # Without noise a run comes out the same again
    sampler = dpmcmc.penalty(PROBLEM.model.log_prior, NonPrivateRatio(), WALK)
    starts = problems.starts(jax.random.key(3), PROBLEM, 4).reshape(2, 2, 2)
    alone, both = (
        comparison.score(jax.random.key(4), sampler, curator, starts, lengths, PROBLEM.reference)
        for lengths in ([60], [60, 120])
    )
    for field in ("mmd", "mean_error", "width"):
        np.testing.assert_array_equal(getattr(alone, field)[0], getattr(both, field)[0])
        assert np.all(getattr(both, field)[0] != getattr(both, field)[1])


@pytest.mark.parametrize(
    "budgets, options, why",
    [
        ([], {}, "budgets for 0 units of privacy"),
        (
            [Budget(1, 1e-5), Budget(1, 1e-5, rows_per_person=2)],
            {},
            "budgets for 2 units of privacy",
        ),
        ([Budget(1, 1e-5)], {"num_repeats": 0}, "num_repeats=0 must be a whole number, at least 1"),
        ([Budget(1, 1e-5)], {"most_steps": 1}, "most_steps=1 must be a whole number, at least 2"),
    ],
)
def test_what_is_refused(budgets, options, why):
    with pytest.raises(ValueError, match=why):
        comparison.compare(
            jax.random.key(0),
            PROBLEM,
            {},
            budgets,
            **{"num_chains": 1, "num_repeats": 1, **options},
        )


def test_an_interrupted_run_is_not_scored(monkeypatch):
    curator, sample = Curator(tiny.ROWS, tiny.MODEL, None), dpmcmc.sample
    monkeypatch.setattr(
        comparison.dpmcmc,
        "sample",
        lambda *given, num_steps, **options: sample(*given, num_steps=3, **options),
    )
    with pytest.raises(KeyboardInterrupt):
        comparison.score(
            jax.random.key(0),
            tiny.PENALTY,
            curator,
            np.zeros((1, 2, 1), np.float32),
            [12],
            np.zeros((5, 1)),
        )


def test_chains_start_around_the_truth():
    """As far off as the posterior is wide on average: 4 000 numbers, within six standard errors."""
    starts = problems.starts(jax.random.key(5), PROBLEM, 2000)
    offsets = (starts - np.asarray(PROBLEM.truth)) / np.mean(np.std(PROBLEM.reference, axis=0))
    assert abs(offsets.std() - 1) < 6 / np.sqrt(8000) and abs(offsets.mean()) < 6 / np.sqrt(4000)


def test_a_problem_may_say_how_far_off_its_chains_start():
    starts = problems.starts(jax.random.key(8), MIXTURE, 4000)
    assert abs(np.std(starts - np.asarray(MIXTURE.truth)) / MIXTURE.spread - 1) < 6 / np.sqrt(
        16_000
    )


def test_exact_draws_of_the_mixture_are_those_of_the_grid():
    """Each moment within six standard errors of 1 000 draws; both modes, each the other with its
    centers exchanged.
    """
    axis, cells = dpmcmc.testing.mixture_posterior(
        MIXTURE.rows, fast_mh_comparison.VARIANCE, temperature=0.1
    )
    places = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1)
    half, draws = (axis[1] - axis[0]) / 2, MIXTURE.reference
    for power in (1, 2):
        mean, square = (np.tensordot(cells, places**k, 2) for k in (power, 2 * power))
        deviations = np.sqrt(square - mean**2) + half
        assert np.all(
            np.abs(np.mean(draws**power, axis=0) - mean) < 6 * deviations / np.sqrt(len(draws))
        )
    assert abs(np.mean(draws[:, 1] > 0) - 0.5) < 3 / np.sqrt(len(draws))


def test_exact_draws_of_the_circle_are_on_it():
    circle = problems.circle(jax.random.key(9), 1000, 1e-3)
    radii = np.linalg.norm(circle.reference, axis=1)
    assert (
        abs(radii.mean() / np.sqrt(np.mean(np.square(circle.rows))) - 1) < 0.01
        and circle.spread == 1
    )
    assert np.abs(circle.reference.mean(axis=0)).max() < 6 * 3.2 / np.sqrt(2 * len(radii))


def test_the_rows_that_a_step_reads_are_those_of_its_bill():
    """The rate at which each row is drawn is in the cost of a minibatch; the other methods read all
    rows.
    """
    of = fast_mh_comparison.readings(dpmcmc.models.mixture(fast_mh_comparison.VARIANCE))
    for name, reading in of.items():
        ((query, _),) = reading.method.per_step.items()
        cost = query.cost(Budget(1, 1e-5).unit)
        rate = getattr(cost, "rate", None) or (
            cost.bound * (1 + 1 / cost.ratio) if "Minibatch" in name else 1
        )
        assert reading.num_rows == pytest.approx(rate * fast_mh_comparison.NUM_ROWS, rel=1e-5), name
    assert of["Minibatch Barker"].num_rows < 500 < 50_000 == of["DP-penalty"].num_rows


@pytest.mark.parametrize("is_published, variance", [(False, 1.0), (True, 0.5)])
def test_published_langevin_dynamics_has_half_the_variance(is_published, variance):
    """With noise on the gradient as in the figure, on a normal law; 2 000 chains, within six
    standard errors (1e-8).
    """
    eta, query = 0.02, hmc_comparison.batch_gradient(1.0, 50.0)
    make = (
        hmc_comparison.published_sgld
        if is_published
        else lambda prior, slope, eta: dpmcmc.sgld(prior, slope, 2 * eta)
    )
    sampler = make(lambda position: -jnp.sum(position**2) / 2, query, eta)

    def ask(key, query, position):
        # The prior is all there is
        return Answer(jax.random.normal(key, position.shape) / jnp.sqrt(eta), jnp.asarray(1 / eta))

    def chain(key):
        state = sampler.init(key, jnp.zeros(1), ask)
        return jax.lax.fori_loop(
            0, 300, lambda i, state: sampler.step(jax.random.fold_in(key, i), state, ask)[0], state
        ).position

    draws = jax.jit(jax.vmap(chain))(jax.random.split(jax.random.key(6), 2000))
    exact = variance / (1 - eta / 2)  # of steps of this size
    assert abs(float(jnp.mean(draws**2)) - exact) < 6 * exact * np.sqrt(2 / 2000)


def test_the_noise_of_a_batch_gradient_is_that_of_the_dynamics():
    """2 clip z / q, z the noise multiplier: the standard deviation of the estimate for all rows."""
    gradient = hmc_comparison.batch_gradient(0.2, 1e5)
    assert (
        2 * gradient.clip * gradient.noise_multiplier / gradient.batch.rate
    ) ** 2 == pytest.approx(1e5)


def test_what_is_shown(found):
    result, _ = found
    text = comparison.table({"Gaussian": result})
    assert "| ε = 0.01 | ε = 1 | ε = 2 | width at ε = 2 |" in text and "| 1.0 | – (" in text


@pytest.mark.parametrize("kind", ["banana", "gaussian"])
def test_rows_that_stand_for_many_have_a_posterior_as_wide(kind):
    """Widths within 6 % (1 000 draws each), means within a tenth of a width of each other."""
    make = {
        "banana": lambda k: problems.banana(
            jax.random.key(1), 40_000, (20.0, 2.5), 20.0, 30.0, copies=k
        ),
        "gaussian": lambda k: problems.gaussian(
            jax.random.key(1), 40_000, [[1.0, 0.5], [0.5, 2.0]], 10.0, copies=k
        ),
    }[kind]
    whole, few = make(1), make(20)
    assert len(few.rows) == 2000 and few.num_rows == whole.num_rows and few.power == 20.0
    widths = [np.std(one.reference[:, 0]) for one in (whole, few)]
    assert abs(widths[1] / widths[0] - 1) < 6 * np.sqrt(2 / 2000)
    # Within what two tables of 40 000 rows differ by
    shift = np.mean(few.reference[:, 0]) - float(few.truth[0])
    assert abs(shift) < 5 * widths[0]


@pytest.mark.parametrize("name", list(thesis_comparison.SETTINGS))
def test_methods_on_fewer_rows_are_billed_as_on_all(name):
    """What is billed is the same; what is asked has the same noise, as it must."""
    few = thesis_comparison.make(jax.random.key(0), name, 1000)
    methods = thesis_comparison.methods(few, thesis_comparison.SETTINGS[name])
    chosen = thesis_comparison.SETTINGS[name].penalty
    (billed,) = methods["DP-penalty"].per_step
    assert billed == LogRatio(chosen.clip, chosen.tau * np.sqrt(few.num_rows), few.temperature)
    _, step = asked(methods["DP-penalty"], few, 1)
    ((query, _),) = step.items()
    assert query.noise_multiplier * query.temperature == pytest.approx(
        billed.noise_multiplier * billed.temperature
    )
