"""Settings and forecasts from public facts."""

import itertools
import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from typer.testing import CliRunner

from dpmcmc import Budget, Curator, Federation, Neighbours, models, recipes, sample
from dpmcmc.cli import main
from dpmcmc.diagnostics import PAID
from dpmcmc.queries import CenteredGradient, Gradient
from dpmcmc.recipes import forecast
from dpmcmc.recipes.langevin import langevin_step, langevin_steps
from dpmcmc.samplers.start import Start
from dpmcmc.types import Answer

BUDGET = Budget(4.0, 1e-6)


@pytest.mark.parametrize("neighbours", Neighbours)
def test_the_langevin_step_uses_the_private_noise_in_full_and_resolves_the_stiffest_direction(
    neighbours,
):
    budget, reach = Budget(2.0, 1e-6, neighbours), 2 if neighbours is Neighbours.REPLACE_ONE else 1
    noise_multiplier, step_size = langevin_step(50_000 * 9 / 4, 3.0, budget)
    variance = (reach * 3.0 * noise_multiplier) ** 2
    assert math.isclose(step_size * variance, 4)
    assert 0.99 * recipes.STIFFNESS < step_size * 50_000 * 9 / 4 <= recipes.STIFFNESS


def test_the_step_resolves_a_strong_prior_too():
    """Only rows were counted: with a prior of standard deviation 0.03 the dynamics left the
    numbers.
    """
    for scale, largest in ((0.03, 0.03**-2), ([1.0, 0.1], 100.0)):
        model = models.logistic(2, radius=1.0, prior_scale=scale)
        query = recipes.langevin(model, 1000, Budget(4.0, 1e-6)).query
        assert 1 / recipes.step_size(query, Budget(4.0, 1e-6)) == pytest.approx(
            1000 / 4 + 5 * largest, rel=2e-3
        )


def test_a_clip_and_a_curvature_take_the_place_of_proved_bounds():
    proved, budget = models.logistic(2, radius=1.0), Budget(4.0, 1e-6)
    given = recipes.langevin(
        proved._replace(lipschitz=None, hessian_bound=None),
        1000,
        budget,
        clip=1.0,
        hessian_bound=0.25,
    )
    expected = recipes.langevin(proved, 1000, budget)
    assert (given.query, given.initial, given.options["thin"]) == (
        expected.query,
        expected.initial,
        expected.options["thin"],
    )
    assert recipes.langevin(proved, 1000, budget, clip=0.5).query.clip == 0.5


def test_a_recipe_that_cannot_pass_its_own_checks_are_reported_before_anything_is_spent():
    """What is proved of a linear regression is far above what rows do; with a clip that they stay
    below there is hope.
    """
    model = models.linear(
        2, 0.125, 1.0, intercept=True, radius=2**0.5, response_bound=1.0, position_radius=2.0
    )
    budget = Budget(4.0, 1e-6)
    with pytest.warns(
        UserWarning,
        match=r"hopeless: this budget buys 3.3 independent draws at most.*the clip, 494.*give "
        r"clip= and",
    ):
        recipes.langevin(model, 20_000, budget)
    # No warning
    recipes.langevin(model, 20_000, budget, clip=3 * 3**0.5 / 0.125, hessian_bound=3 / 0.125**2)
    assert PAID.ess == recipes.hope.FEWEST_DRAWS


def test_several_owners_noises_are_counted():
    """Each adds its own: the step that one owner allows was too long for two, and the posterior too
    wide.
    """
    model, budget = models.logistic(2, radius=1.0), Budget(4.0, 1e-6)
    for num_owners in (1, 2, 5):
        budgets = [budget] * num_owners
        query = recipes.langevin(model, 4000, budgets).query
        variance = num_owners * (2 * model.lipschitz * query.noise_multiplier) ** 2
        step_size = recipes.step_size(query, budgets)
        assert step_size * variance == pytest.approx(4) and step_size * 1005 == pytest.approx(
            1.0, rel=2e-3
        )
    with pytest.raises(TypeError, match="budget is a list: give the curator's Budget"):
        recipes.langevin(model, 1000, [])


def test_owners_that_differ_are_counted_each_as_it_is():
    """A recipe for one unit made the draws of owners with different ones twice as wide as the
    posterior, and none the wiser.
    """
    model = models.logistic(2, radius=1.0)
    rows = np.zeros((1000, 2), np.float32), np.zeros(1000, np.float32)
    visits = Budget(4.0, 1e-6, rows_per_person=3)
    owners = [
        Curator(rows, model, Budget(8.0, 1e-6)),
        Curator(rows, model, visits, capacity=90_000),
    ]
    recipe = recipes.langevin_for(Federation(owners), num_chains=3)
    assert (
        recipe.query
        == recipes.langevin(model, 91_000, [Budget(8.0, 1e-6), visits], num_chains=3).query
        and recipe.num_chains == 3
    )
    # What the two add
    variance = (2**2 + 6**2) * (model.lipschitz * recipe.query.noise_multiplier) ** 2
    step_size = recipes.step_size(recipe.query, [owner.budget for owner in owners])
    assert step_size * variance == pytest.approx(4) and 1 / step_size == pytest.approx(
        91_000 / 4 + 5, rel=2e-3
    )
    assert recipe.initial == recipes.start_plan(model, visits)  # the poorest has the say


def test_one_owner_with_a_private_number_of_rows_is_enough_for_plain_gradients():
    model = models.gaussian([1.0], radius=1.0)
    rows, private = np.zeros((1000, 1), np.float32), Budget(4.0, 1e-6, Neighbours.ADD_OR_REMOVE_ONE)
    public, other = (Curator(rows, model, Budget(4.0, 1e-6)) for _ in range(2))
    hidden = Curator(rows, model, private, capacity=2000)
    assert isinstance(recipes.langevin_for(Federation([public, other])).query, CenteredGradient)
    assert isinstance(recipes.langevin_for(Federation([public, hidden])).query, Gradient)


def test_a_recipe_for_a_curator_tells_its_capacity_and_not_how_many_rows_it_has():
    model, private = models.logistic(2, radius=1.0), Budget(4.0, 1e-6, Neighbours.ADD_OR_REMOVE_ONE)
    found = [
        recipes.langevin_for(
            Curator(
                (np.zeros((n, 2), np.float32), np.zeros(n, np.float32)),
                model,
                private,
                capacity=9000,
            )
        ).query
        for n in (3, 9000)
    ]
    assert found[0] == found[1] == recipes.langevin(model, 9000, private).query


def test_a_curator_without_a_budget_has_no_recipe():
    model = models.logistic(2, radius=1.0)
    curator = Curator((np.zeros((9, 2), np.float32), np.zeros(9, np.float32)), model, None)
    for given in (curator, model):
        with pytest.raises(TypeError, match="has no budget to take the settings from"):
            recipes.langevin_for(given)


def test_a_model_without_proved_bounds_has_no_recipe():
    with pytest.raises(ValueError, match="proved bounds"):
        recipes.langevin(models.gaussian([1.0]), 1000, BUDGET)


def test_a_recipe_goes_on_from_where_a_run_has_ended(quick_compilation):
    """Without paying for the start again."""
    model = models.logistic(2, radius=1.0)
    rows = np.zeros((500, 2), np.float32), np.zeros(500, np.float32)
    # As in test_diagnostics.py: one program for both
    curator = Curator(rows, model, Budget(20.0, 1e-6), shared_by="gaussian-dp")
    recipe = recipes.langevin_for(curator)
    options = recipe.options | {"thin": 1}
    first = sample(
        jax.random.key(0),
        recipe.sampler,
        curator,
        [0.0, 0.0],
        num_steps=2,
        progress=False,
        **options,
    )
    last = first.posterior["coefficients"].to_numpy()[:, -1]
    with pytest.raises(ValueError, match=r"recipe\.continued is the sampler"):
        sample(
            jax.random.key(1), recipe.sampler, curator, last, num_steps=2, progress=False, **options
        )
    with pytest.raises(TypeError, match=r"give recipe\.continued instead"):
        sample(
            jax.random.key(1),
            recipe.sampler,
            curator,
            last,
            num_steps=2,
            num_chains=2,
            progress=False,
        )
    then = sample(
        jax.random.key(1),
        recipe.continued,
        curator,
        last,
        num_steps=2,
        num_chains=2,
        progress=False,
    )
    assert (
        json.loads(then.attrs["dpmcmc_ledger"])["entries"][0]["count"] == 4
        and curator.num_grants == 2
    )


def test_a_recipe_is_not_run_without_its_options():
    """Without the private start that it pays for, a run took the whole budget for half of the
    draws.
    """
    model = models.logistic(2, radius=1.0)
    recipe = recipes.langevin(model, 1000, BUDGET)
    curator = Curator((np.zeros((1000, 2), np.float32), np.zeros(1000, np.float32)), model, BUDGET)
    for sampler in (recipe.sampler, recipe):
        with pytest.raises(TypeError, match=r"\*\*recipe.options"):
            sample(jax.random.key(0), sampler, curator, [0.0, 0.0])
    assert curator.num_grants == 0


def test_the_start_costs_its_share():
    from dpmcmc.accounting import accountants
    from dpmcmc.accounting.costs import Gaussian

    mu = recipes.gaussian_mu(BUDGET)
    start = {
        Gaussian(query.noise_multiplier): count
        for query, count in recipes.start.start_queries(Gradient, 1.0, 1.0, BUDGET).items()
    }
    share = accountants.gaussian_mu(start) ** 2 / mu**2
    assert (
        0.99 * (recipes.start.START_SHARE + recipes.start.CURVATURE_SHARE)
        < share
        <= recipes.start.START_SHARE + recipes.start.CURVATURE_SHARE
    )


def steps_per_draw(sampler, dimension, num_chains=1000, num_steps=3000):
    """Of the walk that `recipes` chooses, on a standard normal law: num_steps times the variance of
    a chain's mean.
    """
    generator, noise = (
        np.random.default_rng(0),
        {"barker": 0.0, "penalty": recipes.RATIO_NOISE, "penalty-bit": recipes.BIT_NOISE},
    )
    scale, longest = recipes.moves(np.ones(dimension), 0.0, 1)
    position, total = generator.standard_normal((2, num_chains, dimension)) * [[[1.0]], [[0.0]]]
    for _ in range(num_steps):
        move = scale * generator.standard_normal(position.shape)
        length = np.linalg.norm(move, axis=1)
        move, length = move * np.minimum(1, longest / length)[:, None], np.minimum(length, longest)
        log_ratio = -np.sum(move * (position + move / 2), axis=1)
        deviation = noise[sampler] * length / longest
        if sampler == "barker":
            is_accepted = generator.logistic(size=num_chains) < log_ratio
        else:
            noisy = log_ratio + deviation * generator.standard_normal(num_chains) - deviation**2 / 2
            is_accepted = -generator.exponential(size=num_chains) < noisy
        position = np.where(is_accepted[:, None], position + move, position)
        total += position
    return num_steps * np.mean((total / num_steps) ** 2)


@pytest.mark.parametrize("sampler", ["barker", "penalty", "penalty-bit"])
@pytest.mark.parametrize("dimension", [1, 3])
def test_steps_are_worth_as_many_draws_as_is_reported(sampler, dimension):
    """In one dimension, where the cap shortens a third of the moves, a draw was said to take 36
    steps of Barker's test: 64 do.
    """
    assert recipes.effective_draws(
        sampler, steps_per_draw(sampler, dimension), dimension
    ) == pytest.approx(1, rel=0.2)


def test_more_rows_or_budget_help_and_more_parameters_hurt():
    def error(num_rows=50_000, dimension=5, epsilon=2.0, name="sgld"):
        return forecast.forecast_error(name, num_rows, dimension, Budget(epsilon, 1e-6))

    for name in forecast.CONSTANTS:
        assert (
            error(num_rows=100_000, name=name)
            < error(name=name)
            < error(num_rows=20_000, name=name)
        )
        assert error(epsilon=4.0, name=name) < error(name=name) < error(epsilon=1.0, name=name)
        assert error(dimension=3, name=name) < error(name=name) < error(dimension=9, name=name)


def test_adding_or_removing_halves_the_error():
    removed = Budget(4.0, 1e-6, Neighbours.ADD_OR_REMOVE_ONE)
    ratio = forecast.forecast_error("sgld", 10**6, 5, BUDGET) / forecast.forecast_error(
        "sgld", 10**6, 5, removed
    )
    assert math.isclose(ratio, 2, rel_tol=1e-6)


PLANS = [(61_395, 7, 20.0, 1e-6), (61_395, 7, 8.0, 1e-8), (10**7, 3, 10.0, 1e-6)]


def recipe_of(name, model, num_rows, budget):
    if name == "sgld":
        return recipes.langevin(model, num_rows, budget, num_chains=1)
    return recipes.walk_after_start(model, num_rows, budget, name)


def forecast_steps(name, *facts):
    """Of all chains, after the private start."""
    return next(found.num_steps for found in forecast.forecasts(*facts) if found.name == name)


@pytest.mark.parametrize(
    "name, plans",
    [
        ("sgld", PLANS[1:]),
        *(pytest.param(name, PLANS, marks=pytest.mark.slow) for name in forecast.CONSTANTS),
    ],
    ids=["two plans", *forecast.CONSTANTS],
)
def test_forecast_steps_are_those_that_the_curator_grants(name, plans):
    """The recipe's own bill, counted from its program, stops at the same step: what coins and noise
    lack is on both.
    """
    import jax
    import jax.numpy as jnp
    import numpy as np

    from dpmcmc import Curator
    from dpmcmc.run.programs import Begin, Block

    for num_rows, dimension, epsilon, delta in plans:
        budget, model = (
            Budget(epsilon, delta),
            models.logistic(dimension - 1, (dimension - 1) ** 0.5, intercept=True),
        )
        # A bill does not depend on them
        rows = np.zeros((8, dimension - 1), np.float32), np.zeros(8, np.int32)
        curator = Curator(rows, model, budget)
        recipe = recipe_of(name, model, num_rows, budget)
        keys = jax.random.split(jax.random.key(1), 1)
        begin = curator.trace(Begin(recipe.sampler, recipe.start), keys, jnp.zeros((1, dimension)))
        step = curator.trace(Block(recipe.sampler, 1), keys, *begin.shapes, jnp.int32(0))
        assert curator.max_steps(begin.plan, step.plan) == forecast_steps(
            name, num_rows, dimension, budget
        )


def test_a_plan_pays_for_what_coins_and_noise_lack(monkeypatch):
    """With coins as far from ideal as 2^-40 the plan is shorter, and so is the run."""
    from dpmcmc.accounting.costs import AcceptBit
    from dpmcmc.queries import Accept

    budget, ideal = Budget(8.0, 1e-8), forecast_steps("barker", 61_395, 7, Budget(8.0, 1e-8))
    cost = Accept.cost
    monkeypatch.setattr(
        Accept,
        "cost",
        lambda self, unit: AcceptBit(self.test, cost(self, unit).range, tv_error=2.0**-40),
    )
    assert 0 < forecast_steps("barker", 61_395, 7, budget) < 0.1 * ideal


def test_needed_rows_and_epsilon_reach_the_target():
    rows, epsilon = forecast.needed("sgld", 2000, 10, Budget(0.5, 1e-6))
    assert forecast.forecast_error("sgld", rows, 10, Budget(0.5, 1e-6)) <= 0.5
    assert forecast.forecast_error("sgld", rows - 1, 10, Budget(0.5, 1e-6)) > 0.5
    assert math.isclose(
        forecast.forecast_error("sgld", 2000, 10, Budget(epsilon, 1e-6)), 0.5, rel_tol=1e-3
    )


def run(*arguments):
    return CliRunner().invoke(main, ["plan", *arguments])


def test_the_plan_command_recommends():
    found = run("--rows", "61395", "--dimension", "7", "--epsilon", "4", "--delta", "1e-6")
    assert (
        found.exit_code == 0
        and "Recommended: noise-aware" in found.stdout
        and "FEW" not in found.stdout
    )
    assert (
        "noise-aware: any number of draws, means off by about 0.07 sd, from a posterior 1 times as "
        "wide as without privacy" in found.stdout
    )
    assert "All this holds assuming features spread over their bounds" in found.stdout


def test_the_plan_command_answers_in_json():
    facts = ("--rows", "61395", "--dimension", "7", "--delta", "1e-6", "--json", "--epsilon")
    found = json.loads(run(*facts, "4").stdout)
    assert (
        found["recommended"] == "noise-aware"
        and found["samplers"][0]["name"] == "sgld"
        and found["relation"] == "replace-one"
    )
    assert found["noise_aware_widening"] == forecast.expected_widening(61395, 7, Budget(4.0, 1e-6))
    expected = forecast.forecasts(61395, 7, Budget(4.0, 1e-6))[0]
    assert found["samplers"][0] == expected._asdict() | {
        "effective_draws": expected.effective_draws
    }
    hopeless = json.loads(run(*facts, "1e-4").stdout)
    assert hopeless["recommended"] is None and hopeless["samplers"][-1] == {
        "name": "penalty",
        "num_steps": 0,
        "error": None,
        "low": None,
        "high": None,
        "is_held_back": False,
        "effective_draws": 0.0,
    }


def test_a_posterior_is_wider_by_the_error_of_its_mean():
    budget = Budget(1.0, 1e-6)
    error = (18 + 1.3 * 7) * 7 / (61395 * recipes.gaussian_mu(budget) ** 2)
    assert forecast.expected_widening(61395, 7, budget) == pytest.approx(math.sqrt(1 + error))
    assert forecast.expected_widening(10, 7, Budget(1e-6, 1e-6)) > 100


def test_the_plan_command_refuses_in_json_too():
    refused = run(
        "--rows", "61395", "--dimension", "7", "--delta", "1e-6", "--epsilon", "-1", "--json"
    )
    assert (
        refused.exit_code == 2
        and "epsilon=-1.0 must be positive" in json.loads(refused.stdout)["error"]
    )


def test_the_plan_command_says_hopeless_and_what_it_would_take():
    found = run("--rows", "2000", "--dimension", "10", "--epsilon", "0.5", "--delta", "1e-6")
    assert found.exit_code == 0 and "Hopeless: you would need n = " in found.stdout


def test_the_plan_command_says_when_no_epsilon_is_enough():
    found = run("--rows", 30, "--dimension", 20, "--epsilon", 4, "--delta", 1e-6)
    assert "at this epsilon (at this n no epsilon is enough), for half a sd" in found.stdout
    assert (
        forecast.needed_text("sgld", 300, 20, Budget(1e-9, 1e-30))
        == "more than any n or epsilon alone"
    )


def test_the_plan_command_says_when_draws_are_few_or_delta_is_large():
    few = run("--rows", 3000, "--dimension", 5, "--epsilon", 8, "--delta", 1e-5)
    assert (
        "FEW: with less than 60 effective draws on average a run of sgld is likely to fail"
        in few.stdout
    )
    many = run("--rows", 300_000, "--dimension", 5, "--epsilon", 8, "--delta", 1e-3)
    assert (
        "FEW" not in many.stdout
        and "delta = 0.001 is above 1/n" in many.stdout
        and "1/n" not in few.stdout
    )


def test_the_plan_command_says_when_a_larger_epsilon_buys_nothing():
    """Where the noise is not near enough to its ideal law: as much at 400 as at 50, and no less."""
    found = [
        run("--rows", "61395", "--dimension", "7", "--epsilon", epsilon, "--delta", "1e-6").stdout
        for epsilon in ("8", "50", "400")
    ]
    assert [forecast.HELD_BACK in text for text in found] == [False, True, True]
    assert "Recommended" in found[1] and found[1] == found[2]


@pytest.mark.parametrize("delta", [1e-6, 1e-12, 1e-18])
def test_more_budget_is_never_worth_less(delta):
    by_epsilon = [
        forecast.forecasts(61395, 7, Budget(epsilon, delta))
        for epsilon in (1.0, 8.0, 20.0, 30.0, 35.0, 60.0, 400.0)
    ]
    for less, more in itertools.pairwise(by_epsilon):
        assert (
            more[0].name == "sgld"
            and more[0].num_steps >= less[0].num_steps > 0
            and more[0].error <= less[0].error
        )


@pytest.mark.parametrize(
    "wrong", [["--epsilon", "-1"], ["--delta", "2"], ["--neighbours", "twins"], ["--rows", "0"]]
)
def test_bad_facts_are_refused(wrong):
    facts = {"--rows": "1000", "--dimension": "3", "--epsilon": "1", "--delta": "1e-6"} | dict(
        [wrong]
    )
    assert run(*[word for pair in facts.items() for word in pair]).exit_code == 2


def counts(num_rows, seed):
    """With a negative binomial law, of mean e^(1.5 + 0.4 x) and dispersion 5."""
    generator = np.random.default_rng(seed)
    x = generator.uniform(-1, 1, num_rows)
    return np.float32(x), np.float32(
        generator.negative_binomial(5, 5 / (5 + np.exp(1.5 + 0.4 * x)))
    )


def negative_binomial(position, row):
    x, y = row
    log_mean, k, log_gamma = (
        position[0] + position[1] * x,
        jnp.exp(position[2]),
        jax.scipy.special.gammaln,
    )
    return (
        log_gamma(y + k)
        - log_gamma(k)
        + k * position[2]
        + y * log_mean
        - (y + k) * jnp.logaddexp(position[2], log_mean)
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "num_rows, share, moved", [(2000, 0.99, 0.56), (20_000, 0.99, 1.4), (20_000, 0.999, 0.2)]
)
def test_how_far_a_clip_moves_the_posterior_is_reported(num_rows, share, moved, quick_compilation):
    """Against the modes with and without it, by Newton's method in double precision."""
    model = models.gaussian([1.0] * 3, prior_scale=2.0)._replace(log_likelihood=negative_binomial)
    made_at, rows = np.array([1.5, 0.4, math.log(5)], np.float32), counts(num_rows, 1)
    slopes = jax.jit(jax.vmap(jax.grad(negative_binomial), (None, 0)))
    clip = float(np.quantile(np.linalg.norm(slopes(made_at, rows), axis=1), share))

    def score(position, clip):
        each = slopes(position, tuple(map(np.float64, rows)))
        return (
            jnp.sum(
                each * jnp.minimum(1, clip / jnp.linalg.norm(each, axis=1, keepdims=True)), axis=0
            )
            - position / 4
        )

    with jax.enable_x64(True):
        fall, modes = jax.jit(jax.jacfwd(lambda *at: -score(*at))), []
        for bound in (1e9, clip):
            position = np.float64(made_at)
            for _ in range(5):
                position = position + np.linalg.solve(fall(position, bound), score(position, bound))
            modes.append(position)
        deviations = np.sqrt(np.diag(np.linalg.inv(fall(modes[0], 1e9))))
    shift = (modes[1] - modes[0]) / deviations
    assert abs(shift[2] - moved) < 0.05
    np.testing.assert_allclose(
        recipes.clip_shift(model, rows, np.float32(modes[0]), clip, num_rows),
        shift,
        rtol=0.1,
        atol=0.02,
    )
    np.testing.assert_allclose(
        recipes.clip_shift(model, counts(20_000, 2), made_at, clip, num_rows),
        shift,
        rtol=0.1,
        atol=0.2,
    )


def test_a_clip_shift_is_asked_for_with_numbers():
    for clip, num_rows, words in (
        (0.0, 10, "clip=0.0 must be positive"),
        (1.0, 0, "num_rows=0 must be a whole number"),
    ):
        with pytest.raises(ValueError, match=words):
            recipes.clip_shift(
                models.gaussian([1.0]), np.zeros((3, 1)), np.zeros(1), clip, num_rows
            )
    np.testing.assert_array_equal(
        recipes.clip_shift(models.gaussian([1.0]), np.ones((3, 1)), np.zeros(1), 2.0, 10), 0
    )


def test_a_walk_has_the_deviations_of_the_posterior_over_the_root_of_the_dimension():
    scale, longest = recipes.moves([2.0, 0.5], [1.0, 3.0], 100)
    np.testing.assert_allclose(scale, 0.5 / np.sqrt([2 * 201.0, 2 * 53.0]))
    assert longest == pytest.approx(np.linalg.norm(scale))
    assert recipes.moves([2.0, 0.5], 1.0, 100, 0.3) == (
        pytest.approx([0.3, 0.3]),
        pytest.approx(0.3 * 2**0.5),
    )


def test_the_noise_that_mixes_best_is_over_what_one_person_changes():
    added = Budget(4.0, 1e-6, Neighbours.ADD_OR_REMOVE_ONE)
    for sampler, noise in (("penalty", 2.38), ("penalty-bit", 2.19)):
        assert recipes.noise_multiplier(sampler, 3.0, 0.1, BUDGET) == pytest.approx(noise / 0.6)
        assert recipes.noise_multiplier(sampler, 3.0, 0.1, added) == pytest.approx(noise / 0.3)


def test_a_lazy_step_is_worth_its_share():
    barker = recipes.effective_draws("barker", 1000, 4)
    assert recipes.effective_draws("lazy-barker", 1000, 4, 0.25) == pytest.approx(barker / 4)


def test_a_smaller_stiffness_makes_shorter_steps_and_more_chains_thin_less():
    model, budget = models.gaussian([1.0, 1.0], radius=1.0, prior_scale=1.0), Budget(8.0, 1e-6)
    recipe = recipes.langevin(model, 50_000, budget, num_chains=1, stiffness=recipes.ATTAINED)
    assert 1 / recipes.step_size(recipe.query, budget) == pytest.approx(
        5 * (50_000 * 2**0.5 + 1), rel=2e-3
    )
    steps = langevin_steps(recipe.query.noise_multiplier, budget)
    assert steps == pytest.approx(
        0.9 * (recipes.gaussian_mu(budget) * recipe.query.noise_multiplier) ** 2, abs=1
    )
    assert recipe.thin == steps // 2000 > 9 and recipe.warmup == 0.1
    assert (
        recipes.langevin(model, 50_000, budget, num_chains=3, stiffness=recipes.ATTAINED).thin
        == steps // 6000
    )


def test_a_clip_goes_before_what_is_proved_of_a_spread():
    """Else the gradients would be centered ones, and the clip that was asked for in nobody's
    mind."""
    query = recipes.langevin(models.gaussian([1.0], radius=1.0), 9000, BUDGET, clip=0.4).query
    assert isinstance(query, Gradient) and query.clip == 0.4


def test_what_a_clip_moves_is_what_it_takes_off_over_how_fast_slopes_fall():
    """Rows at 0 and a tenth of them at 5: beyond the clip of 2 they do not fall, and the slope
    lacks 3 of each.
    """
    model, rows = models.gaussian([1.0], prior_scale=0.1), np.float32([[0.0]] * 9 + [[5.0]])
    shift = recipes.clip_shift(model, rows, [0.0], 2.0, 400)
    assert shift == pytest.approx([-0.3 / (0.9 + 0.25) * (400 * 1.25) ** 0.5], rel=1e-5)


@pytest.mark.parametrize("test", ["barker", "penalty"])
def test_a_walk_recipe_pays_for_its_longest_move_and_has_the_shape_of_the_start(
    test, quick_compilation
):
    model = models.logistic(2, radius=3.0)
    longest = recipes.walks.LENGTH / (50_000 * recipes.walks.TYPICAL_WEIGHT * 9 / 2) ** 0.5
    recipe = recipes.walk_after_start(model, 50_000, BUDGET, test)
    if test == "barker":
        assert recipe.query.bound == pytest.approx(3 * longest)
    else:
        assert recipe.query.clip == 3 and recipe.query.noise_multiplier == pytest.approx(
            2.38 / (2 * 3 * longest)
        )
    precision, points = np.array([[9e6, 2e6], [2e6, 4e6]]), []

    def ask(rng_key, query, position, point, *public):
        points.append(point)
        return Answer(jnp.asarray(False) if public else jnp.float32(0.0), jnp.zeros(()))

    def move(key):
        sampler = recipe.sampler(Start(jnp.zeros(2), jnp.asarray(precision, jnp.float32), None))
        sampler.step(key, sampler.init(key, jnp.zeros(2), ask), ask)
        return points[-1]

    moves = np.asarray(jax.jit(jax.vmap(move))(jax.random.split(jax.random.key(0), 20_000)), float)
    expected = np.linalg.inv(precision) * recipes.walks.LENGTH**2 / 2
    white = np.linalg.solve(np.linalg.cholesky(expected), moves.T)
    assert np.linalg.norm(moves, axis=1).max() < longest
    # 5 sd: false alarm below 2e-6
    np.testing.assert_allclose(np.cov(white), np.eye(2), atol=5 * 2**0.5 / 20_000**0.5)


def test_a_forecast_has_the_measured_error_and_the_range_around_it():
    found = {one.name: one for one in forecast.forecasts(10**6, 5, BUDGET)}
    mu = recipes.gaussian_mu(BUDGET)
    for name, (constant, low, high) in {
        "barker": (1900, 0.6, 1.1),
        "penalty": (1150, 0.8, 1.9),
    }.items():
        error = (constant * 5 / 1e6) ** 0.5 / mu  # of so many draws the start is forgotten
        assert found[name].error == pytest.approx(error, rel=1e-6)
        assert (found[name].low, found[name].high) == pytest.approx(
            (error * low**0.5, error * high**0.5), rel=1e-6
        )
        assert found[name].effective_draws == pytest.approx(error**-2, rel=1e-6)


def test_a_start_that_is_off_is_forgotten_at_the_pace_of_the_draws():
    """A tenth is warm-up; over the rest what the start is off, five errors, falls like e^-t and is
    averaged.
    """
    plain = (recipes.gaussian_mu(BUDGET) ** 2 * 5e3 / (1900 * 5)) ** -0.5
    times = np.linspace(0.1, 1, 100_001) / plain**2
    left = np.exp(-times).mean()
    assert forecast.forecast_error("barker", 5000, 5, BUDGET) == pytest.approx(
        plain * (1 + (5 * left) ** 2) ** 0.5, rel=1e-4
    )
