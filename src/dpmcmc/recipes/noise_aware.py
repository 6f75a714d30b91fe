r"""The posterior given one noisy survey of the rows, set from public facts.

**A survey** (`samplers.surveys`) gets 0.425 of mu^2 for its gradient and 0.2 for its curvature. The
point where it is made must be near the posterior, for all is assumed to be quadratic around it:
0.175 go to seven rough Newton steps, each with a curvature of its own, and 0.2 to one more. Their
gradients are included in the posterior, as far as they are consistent with the quadratic model:
mostly the last one and that of the survey. The noise depends on the bounds and the budget alone.
"""

from __future__ import annotations

import math
from typing import Any

from dpmcmc.checks import whole
from dpmcmc.recipes.budgets import Budgets, gaussian_mu, multiplier, part_of, public_facts, reach
from dpmcmc.recipes.hope import warn_of_widening
from dpmcmc.recipes.recipe import Recipe, SamplerName, clip_words
from dpmcmc.recipes.start import CURVATURE_SHARE, START_SHARE, gradient_kind, with_bounds
from dpmcmc.types import Model

# Of mu^2, each: gradients and Hessians on the way to a survey
APPROACH_STEPS, STEP_SHARE, HESSIAN_SHARE = 7, 0.015, 0.01
# For the last gradient on the way; for the Hessian of the survey
LAST_SHARE, SURVEY_SHARE = 0.2, 0.2
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
) -> Recipe:
    """One survey of the log-likelihood with all of the budget; draws given it cost nothing more.

    Args:
        model: The curator's model.
        num_rows: The number of rows of all owners, or the declared capacity where it is private.
        budget: The curator's budget, or a list, one of each owner.
        num_chains: The number of chains.
        num_steps: Of each chain. They cost nothing.
        clip: In place of the model's `lipschitz`, as of `langevin`.
        hessian_bound: In place of the model's `hessian_bound`.

    Returns:
        A recipe whose start is the survey.

    Raises:
        TypeError: If the model or the budget is none.
        ValueError: If the model has no proved bounds and none are given.

    Example:
        >>> import dpmcmc
        >>> model = dpmcmc.models.logistic(1, radius=1.0)
        >>> recipe = noise_aware(model, 50_000, dpmcmc.Budget(4.0, 1e-6))
        >>> sum(recipe.initial.values())
        17
    """
    import dpmcmc

    is_proved = clip is None and hessian_bound is None
    model = with_bounds(model, budget, clip, hessian_bound)
    num_rows = whole("num_rows", num_rows)
    num_chains = whole("num_chains", num_chains)
    num_steps = whole("num_steps", num_steps)
    make, bound = gradient_kind(model, budget)
    assert model.hessian_bound is not None

    def asked(kind: Any, bound: float | None, share: float) -> Any:
        return kind(bound, multiplier(budget, share))

    steps = {asked(make, bound, STEP_SHARE): APPROACH_STEPS, asked(make, bound, LAST_SHARE): 1}
    hessians = {asked(dpmcmc.queries.Curvature, model.hessian_bound, HESSIAN_SHARE): APPROACH_STEPS}
    gradient = asked(make, bound, GRADIENT_SHARE - LAST_SHARE)
    hessian = asked(dpmcmc.queries.Curvature, model.hessian_bound, SURVEY_SHARE)
    share = GRADIENT_SHARE + APPROACH_STEPS * STEP_SHARE  # of all gradients, at most
    noise = reach(bound, budget) / math.sqrt(share) / gaussian_mu(budget)
    warn_of_widening(widening(num_rows * model.hessian_bound, noise**2))
    start = dpmcmc.newton_start(model.log_prior, steps, hessians)
    clips = " and ".join(f"{clip:.4g}" for clip in sorted({bound, model.hessian_bound}))
    return Recipe(
        sampler=lambda found: dpmcmc.noise_aware(model.log_prior, found),
        query=None,
        name=SamplerName.noise_aware,
        words=f"noise-aware: {APPROACH_STEPS + 2} noisy gradients and {APPROACH_STEPS + 1} noisy "
        f"Hessians, clips {clips} ({clip_words(is_proved)})",
        start=dpmcmc.survey(start, gradient, hessian),
        initial={**steps, **hessians, gradient: 1, hessian: 1},
        num_chains=num_chains,
        warmup=0.1,
        num_steps=num_steps,
    )


def noise_aware_for(
    curator: Any,
    num_chains: int = 4,
    num_steps: int = 1000,
    clip: float | None = None,
    hessian_bound: float | None = None,
    share: float = 1.0,
) -> Recipe:
    """`noise_aware` for a curator or a federation, whose model, capacity and budgets are public.

    Args:
        curator: A `Curator` or a `Federation` with budgets.
        num_chains: The number of chains.
        num_steps: Of each chain. They cost nothing.
        clip: In place of the model's `lipschitz`.
        hessian_bound: In place of the model's `hessian_bound`.
        share: A part of the whole budget's mu^2, for curators with ``shared_by="gaussian-dp"``:
            with 1/3 each, three runs fit.

    Returns:
        The recipe.

    Raises:
        TypeError: If an owner has no budget.

    Example:
        ``recipe = dpmcmc.recipes.noise_aware_for(curator, share=1 / 3)``
    """
    num_rows, budgets = public_facts(curator, "recipes.noise_aware(model, num_rows, budget)")
    parts = [part_of(budget, share) for budget in budgets]
    return noise_aware(curator.model, num_rows, parts, num_chains, num_steps, clip, hessian_bound)


def widening_for(draws: float) -> float:
    """How much wider a noise-aware posterior is where Langevin dynamics would have so many
    effective draws.
    """
    gradients = (1 - START_SHARE - CURVATURE_SHARE) / GRADIENT_SHARE  # what either spends on them
    return widening(draws, gradients)


def widening(precision: float, variance: float) -> float:
    """How much wider a direction of this precision is where its gradient has noise of this
    variance.
    """
    return math.sqrt(1 + variance / precision) if precision > 0 else math.inf
