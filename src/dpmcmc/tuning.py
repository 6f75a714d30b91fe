r"""Settings from public facts alone: the number of rows n, the dimension d, the clip L, and what a
row is guessed to say.

Let J_j be a public guess of the information of one row about component j. Then component j of the
posterior has a standard deviation near  s_j = (n J_j + prior precision)^(-1/2).

**Step.** Component j moves by N(0, (l s_j)^2 / d) with l = 1/2. The bill of an accept bit grows
with the squared length of the longest move, and so does what a step gains: l changes the number of
steps more than their worth. Small steps are accepted more often (93 % of the most that Barker's
test can; 73 % at the customary l = 1.2), and the way from the start to the posterior, so many steps
of that length, takes a smaller share of the budget. They cost time only.

**Longest move.** M = the root mean square length of a move; longer ones are shortened to it, since
the bill pays for the longest.

**Noise.** The penalty test on a released ratio mixes best per epsilon when the ratio of the longest
move has a noise of standard deviation 2.38 (where s^2 Phi(-s/2) is largest), on its accept bit when
2.19; the multiplier is that over the range of the ratio.

**Langevin on full-data gradients.** A replaced row moves the gradient by at most 2R (R: the
Lipschitz bound, or the model's `spread`), so the noise in each coordinate has variance v = (2 R
z)^2, and k releases cost mu^2 = k / z^2 in Gaussian DP. The private noise may be all the noise the
dynamics needs when  h v <= 4;  with h = 4 / v a direction of posterior precision p then gives  k h
p / 4 = mu^2 p / (4 R^2)  effective draws, whatever z is, and a variance of  1 / (p (1 - h p / 4)).
z is set so that the step resolves the stiffest direction there could be,  h n c <= `stiffness`,
where c bounds a row's curvature, and the prior, which has all of its precision q:  1 / h = n c /
stiffness + q / `ATTAINED`.  A shorter step takes more noise and more steps, which change nothing
else but the time. The noises of several owners add:  v = (R z)^2 times the sum of s^2,  with s = 2
for an owner whose rows are replaced, 1 for one whose rows are added or removed, times the rows per
person; the poorest of them has the say on mu.

**A survey** (`samplers.surveys`) gets 0.425 of mu^2 for its gradient and 0.2 for its curvature. The
point where it is made must be near the posterior, for all is taken to be quadratic around it: 0.175
go to seven rough Newton steps, each with a curvature of its own, and 0.2 to one more. The posterior
is made of their slopes too, as far as these agree: mostly of the last one and that of the survey.
The noise depends on the bounds and the budget alone.

**What to expect.** About 34 d / q steps of Barker's test, 60 d / q of the penalty test or 54 d / q
of its bit are worth one independent draw, where q is what the cap leaves of the mean squared move:
0.52, 0.63, 0.79, 0.87 for d = 1, 2, 7, 20.
"""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from scipy import special

from dpmcmc.checks import is_number, positive, whole
from dpmcmc.types import Budget, Model, Plan

LENGTH = 0.5
RATIO_NOISE, BIT_NOISE = 2.38, 2.19
# Times d / q
STEPS_PER_DRAW = {"barker": 34.0, "lazy-barker": 34.0, "penalty": 60.0, "penalty-bit": 54.0}
# At worst the variance of the stiffest direction is then a third too large; on real tables a few
# per cent
STIFFNESS = 1.0
ATTAINED = 0.2  # five per cent
FEWEST_DRAWS = 15  # effective ones, of every parameter, that a run's own checks want
MAX_WIDENING = 3.0  # of a posterior by the noise of a survey, that these take
# Of a million noisy gradients from their ideal law: delta pays for e^epsilon times as much
DISTANCE = 1e-23
Budgets = Budget | Sequence[Budget]  # one for each owner
START_SHARE, CURVATURE_SHARE, START_STEPS = 0.08, 0.02, 8  # of mu^2, for the private start
# Of mu^2, each: slopes and curvatures on the way to a survey
APPROACH_STEPS, STEP_SHARE, LOOK_SHARE = 7, 0.015, 0.01
# For the last slope on the way; for the curvature of the survey
LAST_SHARE, SURVEY_SHARE = 0.2, 0.2
# Of the last two slopes: the others add little
HEARD_SHARE = 1 - APPROACH_STEPS * (STEP_SHARE + LOOK_SHARE) - SURVEY_SHARE


class Walk(NamedTuple):
    """A random walk: standard deviations of a move, and its largest length."""

    scale: np.ndarray
    max_move: float


def walk(information, prior_precision, num_rows: int, scale: float | None = None) -> Walk:
    """The rule above; `scale` replaces the standard deviations by one number."""
    information = np.atleast_1d(np.asarray(information, float))
    if (
        not np.all(information >= 0)
        or not np.all(np.asarray(prior_precision) >= 0)
        or not num_rows > 0
    ):
        raise ValueError(
            "information and prior_precision must not be negative, and num_rows must be positive: "
            "they are precisions"
        )
    dimension = len(information)
    if scale is None:
        scales = LENGTH / np.sqrt(dimension * (num_rows * information + prior_precision))
    else:
        scales = np.full(dimension, scale)
    return Walk(scales, math.sqrt(math.fsum(scales**2)))


def noise_multiplier(sampler: str, clip: float, max_move: float, budget: Budgets) -> float:
    """Noise over what one person can change: what mixes best, at the longest move. Of `penalty`, or
    of its bit.
    """
    if sampler not in ("penalty", "penalty-bit"):
        raise ValueError(
            f"sampler={sampler!r} must be 'penalty' or 'penalty-bit': no other has such noise"
        )
    return (RATIO_NOISE if sampler == "penalty" else BIT_NOISE) / _reach(clip * max_move, budget)


def effective_draws(sampler: str, num_steps: int, dimension: int, kappa: float = 1.0) -> float:
    """How many independent draws so many steps of all chains are worth, roughly."""
    if sampler not in STEPS_PER_DRAW:
        raise ValueError(f"sampler={sampler!r} must be one of {sorted(STEPS_PER_DRAW)}")
    steps = num_steps * (kappa if sampler == "lazy-barker" else 1.0)
    return steps * _left_by_the_cap(dimension) / (STEPS_PER_DRAW[sampler] * dimension)


def _left_by_the_cap(dimension: int) -> float:
    """q = E min(X, d) / d, with X chi-squared of d degrees of freedom: a squared move in units of
    its components' variance.
    """
    half = dimension / 2
    return float(special.gammainc(half + 1, half) + special.gammaincc(half, half))


@dataclass(frozen=True)
class Recipe:
    """What to hand to `sample`: ``sample(rng_key, recipe.sampler, curator, position,
    **recipe.options)``.
    """

    sampler: Any
    start: Any
    query: Any  # what the sampler asks in each step; None if that is nothing
    initial: Plan  # what the start asks
    num_chains: int
    thin: int
    warmup: float
    num_steps: int | None = None  # all that the budget allows

    @property
    def options(self) -> dict[str, Any]:
        """Everything but the sampler."""
        found = {
            "start": self.start,
            "num_chains": self.num_chains,
            "thin": self.thin,
            "warmup": self.warmup,
        }
        return found if self.num_steps is None else found | {"num_steps": self.num_steps}

    @property
    def continued(self) -> Any:
        """The sampler by itself, for a further run from where another has ended: that one has paid
        for the start.
        """
        return self.sampler(None)


def gaussian_mu(budget: Budgets) -> float:
    """The Gaussian-DP parameter that the whole budget buys (of several, the least), as far as noise
    is near enough to ideal.
    """
    from dpmcmc.accounting import accountants
    from dpmcmc.accounting.laws import gaussian

    def mu(one: Budget) -> float:
        usable = max(1.0, math.log(accountants.RESERVE * one.delta / DISTANCE))
        return gaussian.mu(min(one.epsilon, usable), (1 - accountants.RESERVE) * one.delta)

    return min(map(mu, _every(budget)))


def part_of(budget: Budget, share: float) -> Budget:
    """What a share of the budget's mu^2 would be as a budget of its own: the same delta and a
    smaller epsilon.

    Gaussian queries alone: their mu^2 add up, as a budget that is shared by "gaussian-dp" counts
    them.
    """
    from dpmcmc.accounting import accountants
    from dpmcmc.accounting.laws import gaussian

    if not (is_number(share) and 0 < share <= 1):
        raise ValueError(f"share={share} must lie in (0, 1]: it is a part of the budget")
    if share == 1:
        return budget
    # Less for rounding: all parts together must fit
    mu = gaussian_mu(budget) * math.sqrt(share) * (1 - 1e-9)
    epsilon = gaussian.epsilon((1 - accountants.RESERVE) * budget.delta, mu)
    if not epsilon > 0:
        raise ValueError(
            f"{share:.3g} of {budget} is next to nothing: its delta alone pays for that much"
        )
    return replace(budget, epsilon=epsilon)


def multiplier(budget: Budgets, share: float) -> float:
    """The noise multiplier of one Gaussian query that takes a share of mu^2."""
    return _round_up(1 / math.sqrt(share) / gaussian_mu(budget))


def _every(budget: Budgets) -> tuple[Budget, ...]:
    return (budget,) if isinstance(budget, Budget) else tuple(budget)


def langevin(
    model: Model,
    num_rows: int,
    budget: Budgets,
    num_chains: int = 2,
    stiffness: float = STIFFNESS,
    clip: float | None = None,
    curvature: float | None = None,
) -> Recipe:
    """Full-data Langevin dynamics on the model's proved bounds, after a private Newton start: from
    public facts alone.

    If there is a curator already, `langevin_for` takes these from it. Noise and number of steps
    tell `num_rows`, so where it is private give the declared capacity. With several owners it
    counts the rows of all, and `budget` is a list of theirs. `clip` and `curvature` take the place
    of `lipschitz` and `curvature` of the model. Where it has none, give what the slope and the
    curvature of nearly all rows stay below, tried out on made-up ones: rows beyond are clipped,
    which biases the draws by what `clip_shift` tells. Where rows have all the curvature that is
    proved, as Gaussian ones do, `ATTAINED` is the `stiffness` to choose. The prior is taken for one
    that is as narrow everywhere as at 0, as normal ones are: a run tells if it is narrower than a
    step.
    """
    from dpmcmc import sgld

    model = _bounded(model, budget, clip, curvature)
    num_rows = whole("num_rows", num_rows)
    num_chains = whole("num_chains", num_chains)
    if not (is_number(stiffness) and stiffness > 0):
        raise ValueError(
            f"stiffness={stiffness} must be positive: it is the longest step times the largest "
            "precision"
        )
    prior_precision = _prior_precision(model)
    assert model.curvature is not None
    make, bound = _gradient(model, budget)
    inverse_step = num_rows * model.curvature / stiffness + prior_precision / ATTAINED
    _check_hope(num_rows * model.curvature + prior_precision, inverse_step, bound, budget)
    noise_multiplier, step_size = langevin_step(inverse_step, bound, budget)
    query = make(bound, noise_multiplier)
    sampler = sgld(model.log_prior, query, step_size)
    return Recipe(
        sampler=lambda start: sampler,  # a function, so that `sample` does not go without the start
        start=private_start(model, budget),
        query=query,
        initial=start_plan(model, budget),
        num_chains=num_chains,
        thin=max(1, int(langevin_steps(noise_multiplier, budget) / num_chains / 2000)),
        warmup=0.1,
    )


def langevin_for(
    curator: Any,
    num_chains: int = 2,
    stiffness: float = STIFFNESS,
    clip: float | None = None,
    curvature: float | None = None,
) -> Recipe:
    """The same for a curator, or a federation: model, capacity and budget are public, and are
    theirs.
    """
    num_rows, budgets = public_facts(curator, "tuning.langevin(model, num_rows, budget)")
    return langevin(curator.model, num_rows, budgets, num_chains, stiffness, clip, curvature)


def public_facts(curator: Any, by_hand: str) -> tuple[int, list[Budget]]:
    """The rows of all owners at most, and the budget of each."""
    owners = list(getattr(curator, "owners", {"": curator}).values())
    if missing := [
        owner for owner in owners if not isinstance(getattr(owner, "budget", None), Budget)
    ]:
        raise TypeError(
            f"{missing[0]!r} has no budget to take the settings from: give a Curator or a "
            "Federation with one, or say all with "
            f"{by_hand}"
        )
    return sum(owner.capacity for owner in owners), [owner.budget for owner in owners]


def _bounded(model: Model, budget: Budgets, clip: float | None, curvature: float | None) -> Model:
    """The model with these bounds in place of its own."""
    if not isinstance(model, Model):
        raise TypeError(f"model is a {type(model).__name__}: give the curator's Model")
    budgets = _every(budget) if isinstance(budget, Budget | Sequence) else ()
    if not budgets or not all(isinstance(one, Budget) for one in budgets):
        raise TypeError(
            f"budget is a {type(budget).__name__}: give the curator's Budget(epsilon, delta), or a "
            "list, one of each owner"
        )
    for name, bound in (("clip", clip), ("curvature", curvature)):
        if bound is not None:
            positive(name, bound, "nearly all rows stay below it")
    if clip is not None:
        model = model._replace(lipschitz=clip, center=None, spread=None)
    model = model._replace(curvature=curvature or model.curvature)
    if (model.lipschitz is None and not _is_centered(model, budget)) or model.curvature is None:
        raise ValueError(
            "this recipe needs a model with proved bounds (lipschitz and curvature), such as "
            "logistic or robust_linear, or a "
            "Gaussian with a radius; or else clip= and curvature=, which the slope and the "
            "curvature of nearly all rows stay below"
        )
    return model


def noise_aware(
    model: Model,
    num_rows: int,
    budget: Budgets,
    num_chains: int = 4,
    num_steps: int = 1000,
    clip: float | None = None,
    curvature: float | None = None,
) -> Recipe:
    """One survey of the log-likelihood with all of the budget, and as many draws of the posterior
    given it as one likes.

    The arguments are those of `langevin`; `num_steps`, of each chain, cost nothing.
    """
    import dpmcmc

    model = _bounded(model, budget, clip, curvature)
    num_rows, num_chains, num_steps = (
        whole(name, value)
        for name, value in (
            ("num_rows", num_rows),
            ("num_chains", num_chains),
            ("num_steps", num_steps),
        )
    )
    make, bound = _gradient(model, budget)
    mu = gaussian_mu(budget)

    def asked(kind: Any, bound: float | None, share: float) -> Any:
        return kind(bound, multiplier(budget, share))

    steps = {asked(make, bound, STEP_SHARE): APPROACH_STEPS, asked(make, bound, LAST_SHARE): 1}
    looks = {asked(dpmcmc.Curvature, model.curvature, LOOK_SHARE): APPROACH_STEPS}
    gradient = asked(make, bound, HEARD_SHARE - LAST_SHARE)
    curved = asked(dpmcmc.Curvature, model.curvature, SURVEY_SHARE)
    heard = HEARD_SHARE + APPROACH_STEPS * STEP_SHARE  # at most
    _check_survey(
        num_rows * (model.curvature or 0.0), _reach(bound, budget) / math.sqrt(heard) / mu
    )
    return Recipe(
        sampler=lambda found: dpmcmc.noise_aware(model.log_prior, found),
        start=dpmcmc.survey(dpmcmc.newton_start(model.log_prior, steps, looks), gradient, curved),
        query=None,
        initial={**steps, **looks, gradient: 1, curved: 1},
        num_chains=num_chains,
        thin=1,
        warmup=0.1,
        num_steps=num_steps,
    )


def noise_aware_for(
    curator: Any,
    num_chains: int = 4,
    num_steps: int = 1000,
    clip: float | None = None,
    curvature: float | None = None,
    share: float = 1.0,
) -> Recipe:
    """The same for a curator, or a federation: model, capacity and budget are public, and are
    theirs.

    `share` is a part of the whole budget's mu^2, for curators with ``shared_by="gaussian-dp"``:
    with 1/3 each, three runs fit.
    """
    num_rows, budgets = public_facts(curator, "tuning.noise_aware(model, num_rows, budget)")
    parts = [part_of(budget, share) for budget in budgets]
    return noise_aware(curator.model, num_rows, parts, num_chains, num_steps, clip, curvature)


def _check_survey(most_precision: float, noise: float) -> None:
    """Warn where a survey can tell next to nothing, whatever the rows are."""
    if (least := widening(most_precision, noise**2)) > MAX_WIDENING:
        _warn(
            f"hopeless: with the noise of this budget the posterior is at least {least:.2g} times "
            "as wide as without, even along "
            "the direction that rows say most about. More rows, a larger budget or tighter bounds "
            "would help"
        )


def widening_for(draws: float) -> float:
    """How much wider a noise-aware posterior is where Langevin dynamics would have so many
    effective draws.
    """
    slopes = (1 - START_SHARE - CURVATURE_SHARE) / HEARD_SHARE  # what either spends on them
    return widening(draws, slopes)


def widening(precision: float, variance: float) -> float:
    """How much wider a direction of this precision is where its slope has noise of this variance."""
    return math.sqrt(1 + variance / precision) if precision > 0 else math.inf


def clip_shift(model: Model, made_up: Any, position, clip: float, num_rows: int) -> np.ndarray:
    """How far a clip of gradients moves the posterior mean, in posterior standard deviations: one
    number for each component.

    For a table of `num_rows` rows like the `made_up` ones, which were made at this position. Make
    up many, 20 000 or more: the figures hang on the few that are clipped. To first order: clipped
    slopes add up to zero where the clipped posterior is, so it is off by what they add up to here,
    over how fast that falls. **Not private**: for made-up rows, before anything is spent.
    """
    import jax
    import jax.numpy as jnp

    if not (is_number(clip) and clip > 0):
        raise ValueError(
            f"clip={clip} must be positive: the length of a row's slope beyond which it is "
            "shortened"
        )
    num_rows = whole("num_rows", num_rows)

    def clipped(position, row):
        slope = jax.grad(model.log_likelihood)(position, row)
        length = jnp.sqrt(jnp.sum(slope**2))
        return jnp.where(length > clip, slope * (clip / jnp.where(length > clip, length, 1)), slope)

    def mean(function):
        return jnp.mean(jax.vmap(function, (None, 0))(position, made_up), axis=0)

    def facts(position):
        slope = jax.grad(model.log_likelihood)
        prior = -jax.hessian(model.log_prior)(position) / num_rows
        fall = -mean(jax.jacfwd(clipped)) + prior
        curvature = -mean(jax.hessian(model.log_likelihood)) + prior
        return mean(lambda *at: clipped(*at) - slope(*at)), fall, curvature

    position = jnp.asarray(position, float)
    lost, fall, curvature = (np.asarray(fact, float) for fact in jax.jit(facts)(position))
    return np.linalg.solve(fall, lost) * np.sqrt(num_rows / np.diag(np.linalg.inv(curvature)))


def _check_hope(
    most_precision: float, inverse_step: float, lipschitz: float, budget: Budgets
) -> None:
    """Warn where a run cannot pass its own checks: effective draws are at most what the largest
    precision there could be gives.

    A direction of precision p has the autocorrelation 1 - h p / 2, so k h p / 4 / (1 - h p / 4) of
    them.
    """
    reach = _reach(lipschitz, budget)
    most = (1 - START_SHARE - CURVATURE_SHARE) * (gaussian_mu(budget) / reach) ** 2 * most_precision
    most /= max(1e-3, 1 - most_precision / inverse_step / 4)
    if most < FEWEST_DRAWS:
        _warn(
            f"hopeless: this budget buys {most:.2g} independent draws at most, even along the "
            "direction that rows say most about, "
            f"and a run's own checks want {FEWEST_DRAWS}. Noise follows the clip, {lipschitz:.4g}: "
            "where nearly all rows stay far "
            "below it, say clip= and curvature=, tried out on made-up rows; else more rows or a "
            "larger budget would help"
        )


def _warn(text: str) -> None:
    """At the line outside this file that a recipe was asked for."""
    frame = sys._getframe()
    level = 1
    while frame.f_code.co_filename == __file__ and frame.f_back is not None:
        frame = frame.f_back
        level = level + 1
    warnings.warn(text, stacklevel=level)


def _reach(lipschitz: float, budget: Budgets) -> float:
    """How far one person moves the sum of the gradients, as the noises of all owners add up."""
    return lipschitz * math.hypot(*(one.unit.sensitivity for one in _every(budget)))


def private_start(model: Model, budget: Budgets):
    """Newton steps on a tenth of the budget."""
    from dpmcmc import newton_start

    gradient, curvature = start_plan(model, budget)
    return newton_start(model.log_prior, gradient, curvature, START_STEPS)


def start_plan(model: Model, budget: Budgets) -> Plan:
    """What that start asks, and how often."""
    make, bound = _gradient(model, budget)
    return start_queries(make, bound, model.curvature, budget)


def start_queries(make: Any, bound: float, curvature: float | None, budget: Budgets) -> Plan:
    """The same for gradients of this kind, with these bounds."""
    from dpmcmc import Curvature

    assert curvature is not None
    mu = gaussian_mu(budget)
    gradient = make(bound, _round_up(math.sqrt(START_STEPS / START_SHARE) / mu))
    return {
        gradient: START_STEPS,
        Curvature(curvature, _round_up(1 / math.sqrt(CURVATURE_SHARE) / mu)): 1,
    }


def _gradient(model: Model, budget: Budgets) -> tuple[Any, float]:
    """The kind of gradient query that takes the least noise, and its proved clip."""
    from dpmcmc import CenteredGradient, Gradient

    bound = model.spread if _is_centered(model, budget) else model.lipschitz
    assert bound is not None
    return CenteredGradient if _is_centered(model, budget) else Gradient, bound


def _is_centered(model: Model, budget: Budgets) -> bool:
    is_public = all(one.unit.is_count_public for one in _every(budget))
    return model.center is not None and model.spread is not None and is_public


def _prior_precision(model: Model) -> float:
    """The largest one at 0: of a normal prior, everywhere."""
    import jax

    hessian = np.asarray(jax.jit(jax.hessian(model.log_prior))(np.zeros(model.dimension)), float)
    return (
        max(0.0, float(np.linalg.eigvalsh(-hessian).max())) if np.all(np.isfinite(hessian)) else 0.0
    )


def langevin_step(inverse_step: float, lipschitz: float, budget: Budgets) -> tuple[float, float]:
    """(noise multiplier, step size): h v = 4, and 1 / h as given or a little more."""
    reach = _reach(lipschitz, budget)
    noise_multiplier = _round_up(math.sqrt(4 * inverse_step) / reach)
    return noise_multiplier, _step_size(reach * noise_multiplier)


def step_size(gradient: Any, budget: Budgets) -> float:
    """The longest step whose noise is all from this `Gradient`, or centered one: h v = 4."""
    return _step_size(_reach(gradient.clip, budget) * gradient.noise_multiplier)


def _step_size(deviation: float) -> float:
    return 4 / deviation**2


def langevin_steps(noise_multiplier: float, budget: Budgets) -> int:
    """About how many gradients the chains get in all."""
    return int((1 - START_SHARE - CURVATURE_SHARE) * (gaussian_mu(budget) * noise_multiplier) ** 2)


def _round_up(value: float) -> float:
    """To four digits, so that a bill is pleasant to read."""
    digits = 3 - math.floor(math.log10(value))
    return math.ceil(value * 10**digits) / 10**digits
