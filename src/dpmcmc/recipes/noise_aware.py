r"""The posterior given one noisy survey of the rows, set from public facts.

**A survey** (`samplers.surveys`) gets 0.425 of mu^2 for its gradient and 0.2 for its Hessian. It
must be made near the posterior, because the log-likelihood is assumed to be quadratic around it:
0.175 go to seven rough Newton steps, each with a Hessian of its own, and 0.2 to one more. Their
gradients are included in the posterior, weighted by inverse variance, if consistent with the
quadratic model: mostly the last one and that of the survey have weight. The noise depends only on
the bounds and the budget. Of one owner the last gradient has radial noise where that is less.

**Around a center** (`CenteredShares`), for a model with `vectors` and a public number of rows: a
Gram matrix and three rough gradients first, which are granted by themselves and give a forecast;
two Newton steps, each with a gradient and a Gram matrix; and the last gradient, for three quarters
of mu^2. The shares were found on simulated tables; they matter little.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Any, NamedTuple

from dpmcmc.checks import whole
from dpmcmc.recipes.budgets import (
    Budgets,
    every_budget,
    gaussian_mu,
    multiplier,
    part_of,
    public_facts,
    sensitivity,
)
from dpmcmc.recipes.hope import warn_of_widening, why_hopeless
from dpmcmc.recipes.recipe import Recipe, SamplerName, clip_words
from dpmcmc.recipes.start import (
    CURVATURE_SHARE,
    START_SHARE,
    gradient_kind,
    is_centered,
    with_bounds,
)
from dpmcmc.recipes.whitened import (
    CLOSING,
    Preview,
    Previewed,
    can_close,
    closing_part,
    other_part,
    whitened,
)
from dpmcmc.types import Budget, Key, Model, Plan, Position

APPROACH_STEPS = 7  # Newton steps on the way to a survey
# Of mu^2, for the gradient and for the Hessian of each of these steps
STEP_SHARE = 0.015
HESSIAN_SHARE = 0.01
LAST_SHARE = 0.2  # for the last gradient on the way
SURVEY_SHARE = 0.2  # for the Hessian of the survey
# Of the last two gradients: the others add little
GRADIENT_SHARE = 1 - APPROACH_STEPS * (STEP_SHARE + HESSIAN_SHARE) - SURVEY_SHARE


def noise_aware(
    model: Model,
    num_rows: int,
    budget: Budgets,
    num_chains: int = 4,
    num_steps: int = 1000,
    clip: float | None = None,
    hessian_bound: float | None = None,
    is_weighted: bool = True,
    shared_by: str | None = None,
) -> Recipe:
    """A few noisy sums with all of the budget; draws given these cost nothing further.

    A model with public tables, such as logistic regression, at one owner: in whitened coordinates
    (`recipes.whitened`). Any other: one survey of the log-likelihood; around a center if the model
    has `vectors`, such as robust linear regression.

    Args:
        model: The curator's model.
        num_rows: The number of rows of all owners, or the declared capacity where it is private.
        budget: The curator's budget, or a list, one of each owner.
        num_chains: The number of chains.
        num_steps: The number of steps of each chain. They cost nothing.
        clip: In place of the model's `lipschitz`, as in `langevin`.
        hessian_bound: In place of the model's `hessian_bound`.
        is_weighted: Whether rows that are far out may count less, which takes less noise. The
            posterior is then wider by an allowance for a model that does not hold.
        shared_by: How the budget is shared by several grants, if it is.

    Returns:
        A recipe whose start releases all that the posterior is made of.

    Raises:
        TypeError: model is not a `Model`, or budget is not a `Budget`.
        ValueError: The model has no proved bounds and none are given, or a number is out of its
            range.

    Example:
        >>> import dpmcmc
        >>> model = dpmcmc.models.logistic(1, radius=1.0)
        >>> recipe = noise_aware(model, 50_000, dpmcmc.Budget(4.0, 1e-6))
        >>> sum(recipe.initial.values())
        15
    """
    from dpmcmc.queries import row_set  # imports JAX, which the command's help does without

    num_rows = whole("num_rows", num_rows)
    num_chains = whole("num_chains", num_chains)
    num_steps = whole("num_steps", num_steps)
    checked = with_bounds(model, budget, clip, hessian_bound)
    budgets = every_budget(budget)
    rows = row_set(model) if clip is None and hessian_bound is None else None
    if rows is None or len(budgets) > 1:
        is_proved = clip is None and hessian_bound is None
        settings = _settings(checked, num_rows, budgets, shared_by) if is_proved else None
        if settings is not None:
            return _centered(settings, num_chains, num_steps)
        return _surveyed(checked, num_rows, budget, num_chains, num_steps, is_proved, shared_by)
    recipe = whitened(
        model, rows, num_rows, budgets[0], num_chains, num_steps, shared_by, is_weighted
    )
    assert checked.lipschitz is not None and checked.hessian_bound is not None
    noise = checked.lipschitz**2 * recipe.preview.settings.public.last_noise
    warn_of_widening(widening(num_rows * checked.hessian_bound, noise))
    return recipe


def _surveyed(
    model: Model,
    num_rows: int,
    budget: Budgets,
    num_chains: int,
    num_steps: int,
    is_proved: bool,
    shared_by: str | None,
) -> Recipe:
    """One survey of the log-likelihood."""
    import dpmcmc

    whole = closing_part(every_budget(budget)[0]) if shared_by == CLOSING else budget
    make, bound = gradient_kind(model, budget)
    assert model.hessian_bound is not None

    def query(kind: Any, bound: float | None, share: float) -> Any:
        return kind(bound, multiplier(whole, share))

    steps = {query(make, bound, STEP_SHARE): APPROACH_STEPS, query(make, bound, LAST_SHARE): 1}
    hessians = {query(dpmcmc.queries.Curvature, model.hessian_bound, HESSIAN_SHARE): APPROACH_STEPS}
    last = last_gradient(model, budget, shared_by, 0.0, GRADIENT_SHARE - LAST_SHARE)
    hessian = query(dpmcmc.queries.Curvature, model.hessian_bound, SURVEY_SHARE)
    # Of all gradients, at most
    precision = (
        last.precision + (LAST_SHARE + APPROACH_STEPS * STEP_SHARE) * gaussian_mu(whole) ** 2
    )
    noise = sensitivity(bound, budget) ** 2 / precision
    warn_of_widening(widening(num_rows * model.hessian_bound, noise))
    start = dpmcmc.newton_start(model.log_prior, steps, hessians)
    clips = " and ".join(f"{clip:.4g}" for clip in sorted({bound, model.hessian_bound}))
    return Recipe(
        sampler=lambda found: dpmcmc.noise_aware(model.log_prior, found),
        query=None,
        name=SamplerName.noise_aware,
        words=f"noise-aware: {APPROACH_STEPS + 2} noisy gradients and {APPROACH_STEPS + 1} noisy "
        f"Hessians, clips {clips} ({clip_words(is_proved)})",
        start=dpmcmc.survey(start, last.query, hessian, last.is_radial),
        initial={**steps, **hessians, last.query: 1, hessian: 1},
        num_chains=num_chains,
        warmup=0.1,
        num_steps=num_steps,
        is_closing=shared_by == CLOSING,
    )


class LastGradient(NamedTuple):
    """The gradient that takes what others leave.

    Attributes:
        query: The query.
        precision: One over the variance of its noise, times the squared sensitivity.
        is_radial: Whether its noise is radial.
    """

    query: Any
    precision: float
    is_radial: bool


def last_gradient(
    model: Model, budget: Budgets, shared_by: str | None, first: float, share: float
) -> LastGradient:
    """A gradient for this share of mu^2: with radial noise where that is less.

    Args:
        model: The model, with proved bounds.
        budget: The budget of the run, or a list, one of each owner. The sum of several owners'
            radial noise has another law, so that these take Gaussian noise.
        shared_by: How the budget is shared by several grants.
        first: The share of mu^2 that is granted by itself before.
        share: The share of mu^2.

    Returns:
        The query, and how precise it is.
    """
    from dpmcmc import queries
    from dpmcmc.accounting import calibrate, filters

    make, bound = gradient_kind(model, budget)
    owners = every_budget(budget)
    whole = closing_part(owners[0]) if shared_by == CLOSING else budget
    mu = gaussian_mu(whole)
    gaussian = LastGradient(make(bound, multiplier(whole, share)), mu**2 * share, False)
    if len(owners) > 1 or shared_by not in (None, CLOSING):
        return gaussian
    before = first * mu**2
    if shared_by == CLOSING:
        before = filters.before_closing(owners[0].epsilon, owners[0].delta)
    others = math.sqrt(before + (1 - share - first) * mu**2)
    dimension = model.dimension
    (one,) = every_budget(whole)
    epsilon = calibrate.radial_epsilon(one.epsilon, one.delta, others, dimension)
    precision = epsilon**2 / (dimension + 1)
    if shared_by is None and precision < gaussian.precision:
        return gaussian
    is_around_center = make is queries.CenteredGradient
    kind = queries.CenteredRadialGradient if is_around_center else queries.RadialGradient
    return LastGradient(kind(bound, epsilon, dimension), precision, True)


@dataclass(frozen=True)
class CenteredShares:
    """Shares of mu^2.

    Attributes:
        gram: For the Gram matrix at the beginning.
        rough: For each rough gradient.
        newton: For the gradient of each Newton step.
        again: For the Gram matrix of each of these.
    """

    gram: float = 0.045
    rough: float = 0.012
    newton: float = 0.03
    again: float = 0.05


NUM_ROUGH, NUM_NEWTON = 3, 2
# What is left of the way, and the curvature's errors, widen a posterior as so much more noise would
OTHER_ERRORS = 1.4
# Times as wide as others a parameter may be whose curvature is known: a quarter more than findings
# allow in the end, for a forecast is rough
KNOWN = 2.5


@dataclass(frozen=True)
class CenteredSettings:
    """All queries of a survey around a center, and what they were chosen for.

    Attributes:
        model: The model.
        facts: Public facts of it.
        asked: The queries.
        noise: About the variance of the noise in the mean of all gradients.
    """

    model: Model
    facts: Any
    asked: Any
    noise: float

    @property
    def is_radial(self) -> bool:
        """Whether the last gradient has radial noise."""
        return bool(self.asked.is_radial)

    @property
    def opening(self) -> Plan:
        """What is asked first."""
        return {self.asked.gram: 1, self.asked.rough: self.asked.num_rough}

    @property
    def rest(self) -> Plan:
        """What is asked after that."""
        asked = self.asked
        return {asked.newton: asked.num_newton, asked.again: asked.num_newton, asked.gradient: 1}

    def start(self, rng_key: Key, position: Position, ask: Any) -> Any:
        """The whole private start."""
        import jax

        from dpmcmc.samplers.surveys import centered_opening

        key_opening, key_survey = jax.random.split(rng_key)
        begun = centered_opening(self.facts, self.asked, key_opening, position, ask)
        return self.start_from(begun, key_survey, position, ask)

    def start_from(self, begun: Any, rng_key: Key, position: Position, ask: Any) -> Any:
        """The rest of it."""
        from dpmcmc.samplers.surveys import centered_survey

        return centered_survey(self.facts, self.asked, rng_key, begun, ask)


def _settings(
    model: Model, num_rows: int, budgets: tuple[Budget, ...], shared_by: str | None
) -> CenteredSettings | None:
    """The queries of a survey around a center, where one can be made."""
    from dpmcmc import queries
    from dpmcmc.samplers.surveys import Centered, CenteredAsked

    if model.vectors is None or len(budgets) > 1 or not is_centered(model, budgets):
        return None
    assert model.center is not None
    shares = CenteredShares()
    whole = closing_part(budgets[0]) if shared_by == CLOSING else budgets[0]
    first = shares.gram + NUM_ROUGH * shares.rough
    later = NUM_NEWTON * (shares.newton + shares.again)
    last = last_gradient(model, budgets, shared_by, first, 1 - first - later)
    make, bound = gradient_kind(model, budgets)
    length = model.vectors.length
    asked = CenteredAsked(
        make(bound, multiplier(whole, shares.rough)),
        queries.RowGram(length, multiplier(whole, shares.gram)),
        make(bound, multiplier(whole, shares.newton)),
        queries.RowGram(length, multiplier(whole, shares.again)),
        last.query,
        NUM_ROUGH,
        NUM_NEWTON,
        last.is_radial,
    )
    noise = sensitivity(bound, budgets) ** 2 / last.precision
    facts = Centered(model.log_prior, model.center, model.vectors, num_rows)
    return CenteredSettings(model, facts, asked, noise)


def _centered(settings: CenteredSettings, num_chains: int, num_steps: int) -> Recipe:
    """A survey around a center."""
    from dpmcmc.samplers.surveys import centered_posterior

    model = settings.model
    assert model.hessian_bound is not None
    warn_of_widening(widening(settings.facts.num_rows * model.hessian_bound, settings.noise))
    noise = "radial" if settings.is_radial else "Gaussian"
    return Recipe(
        sampler=lambda found: centered_posterior(settings.facts, found),
        query=None,
        name=SamplerName.noise_aware,
        words=f"noise-aware: {NUM_ROUGH} rough steps, {NUM_NEWTON} Newton steps, a last gradient "
        f"with {noise} noise, and {1 + NUM_NEWTON} noisy Gram matrices",
        start=settings.start,
        initial=dict(Counter(settings.opening) + Counter(settings.rest)),
        num_chains=num_chains,
        warmup=0.1,
        num_steps=num_steps,
        preview=CenteredPreview(settings),
    )


@dataclass(frozen=True)
class CenteredPreview(Preview):
    """What a survey around a center releases first, to be granted by itself.

    Attributes:
        settings: The queries of the whole run.
    """

    settings: Any

    def take(self, rng_key: Key, curator: Any, position: Position) -> Previewed:
        """As `Preview.take`.

        Args:
            rng_key: The key of the random numbers.
            curator: The curator that is asked.
            position: Where rough steps begin.

        Returns:
            What is to be expected of the rest.

        Raises:
            BudgetExceeded: The budget does not cover it.
        """
        found = super().take(rng_key, curator, position)
        length = len(found.begun.gram.value)
        return CenteredPreviewed(
            found.settings, found.begun, found.widenings, found.statement, length
        )

    def _traced(self, rng_key: Key, curator: Any, position: Position) -> Any:
        """The program that asks."""
        from dpmcmc.samplers.surveys import centered_opening, expected_widths

        settings = self.settings

        def program(ask, rng_key, position):
            begun = centered_opening(settings.facts, settings.asked, rng_key, position, ask)
            widths = expected_widths(settings.facts, begun, OTHER_ERRORS * settings.noise)
            return begun, widths

        return curator.trace(program, rng_key, position)


@dataclass(frozen=True, eq=False)
class CenteredPreviewed(Previewed):
    """What was released first, and what to expect.

    Attributes:
        num_noisy: How many parameters, the first ones, have a curvature that is released. Of the
            others it is known: they may be wider (`KNOWN`) beside what the rows alone would say,
            and are narrow in themselves.

    Example:
        >>> seen = CenteredPreviewed(None, None, {"age": 1.2, "noise_scale": 3.5}, None, 1)
        >>> seen.worst, seen.is_hopeless
        ('noise_scale', False)
        >>> CenteredPreviewed(None, None, {"age": 3.1, "noise_scale": 3.5}, None, 1).worst
        'age'
    """

    num_noisy: int = 0

    @property
    def _judged(self) -> dict[str, float]:
        """The widening of each parameter, over how much wider it may be than others."""
        return {
            name: widening if index < self.num_noisy else widening / KNOWN
            for index, (name, widening) in enumerate(self.widenings.items())
        }

    @property
    def worst(self) -> str:
        """The name of the parameter that is widest for what it may be."""
        return max(self._judged, key=lambda name: self._judged[name])

    @property
    def widest(self) -> float:
        """The widening of that one."""
        return self.widenings[self.worst]

    @property
    def is_hopeless(self) -> bool:
        """Whether the rest of the budget buys too little."""
        return why_hopeless(widening=self._judged[self.worst]) is not None


def noise_aware_for(
    curator: Any,
    num_chains: int = 4,
    num_steps: int = 1000,
    clip: float | None = None,
    hessian_bound: float | None = None,
    share: float = 1.0,
    is_weighted: bool = True,
) -> Recipe:
    """`noise_aware` for a curator or a federation, whose model, capacity and budgets are public.

    Args:
        curator: A `Curator` or a `Federation` with budgets.
        num_chains: The number of chains.
        num_steps: The number of steps of each chain. They cost nothing.
        clip: In place of the model's `lipschitz`.
        hessian_bound: In place of the model's `hessian_bound`.
        share: The share of the budget's mu^2 that the run takes, for curators with
            ``shared_by="gaussian-dp"``: with 1/3 each, three runs fit.
        is_weighted: Whether rows that are far out may count less.

    Returns:
        The recipe.

    Raises:
        TypeError: An owner has no budget.
        ValueError: The model has no proved bounds and none are given, or share is outside (0, 1].

    Example:
        >>> import numpy as np
        >>> import dpmcmc
        >>> rows = np.zeros((3000, 1), np.float32), np.zeros(3000, np.float32)
        >>> model = dpmcmc.models.logistic(1, radius=1.0)
        >>> curator = dpmcmc.Curator(rows, model, dpmcmc.Budget(4.0, 1e-6))
        >>> sorted(noise_aware_for(curator).options)
        ['num_chains', 'num_steps', 'start', 'thin', 'warmup']
    """
    num_rows, budgets = public_facts(curator, "recipes.noise_aware(model, num_rows, budget)")
    facts = getattr(curator, "facts", None)  # of one owner
    shared_by = None if facts is None else facts.shared_by
    is_whole = share == 1
    if facts is not None and shared_by == CLOSING:
        is_whole = can_close(budgets[0], facts.share_left)
        budgets = budgets if is_whole else [other_part(budgets[0])]
    if not is_whole:
        budgets = [part_of(budget, share) for budget in budgets]
        shared_by = "gaussian-dp"
    return noise_aware(
        curator.model,
        num_rows,
        budgets,
        num_chains,
        num_steps,
        clip,
        hessian_bound,
        is_weighted,
        shared_by,
    )


def widening_for(draws: float) -> float:
    """How much wider a noise-aware posterior is where Langevin dynamics would have this number of
    effective draws.
    """
    # The shares of mu^2 that the two spend on gradients
    gradients = (1 - START_SHARE - CURVATURE_SHARE) / GRADIENT_SHARE
    return widening(draws, gradients)


def widening(precision: float, variance: float) -> float:
    """How much wider a direction of this precision is where its gradient has noise of this
    variance.
    """
    return math.sqrt(1 + variance / precision) if precision > 0 else math.inf
