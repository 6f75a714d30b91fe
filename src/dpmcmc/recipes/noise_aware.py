r"""The posterior given one noisy survey of the rows, set from public facts.

**A survey** (`samplers.surveys`) gets 0.425 of mu^2 for its gradient and 0.2 for its Hessian. It
must be made near the posterior, because the log-likelihood is assumed to be quadratic around it:
0.175 go to seven rough Newton steps, each with a Hessian of its own, and 0.2 to one more. Their
gradients are included in the posterior, weighted by inverse variance, if consistent with the
quadratic model: mostly the last one and that of the survey have weight. The noise depends only on
the bounds and the budget.
"""

from __future__ import annotations

import math
from typing import Any

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
from dpmcmc.recipes.hope import warn_of_widening
from dpmcmc.recipes.recipe import Recipe, SamplerName, clip_words
from dpmcmc.recipes.start import CURVATURE_SHARE, START_SHARE, gradient_kind, with_bounds
from dpmcmc.recipes.whitened import CLOSING, can_close, other_part, whitened
from dpmcmc.types import Model

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
    (`recipes.whitened`). Any other: one survey of the log-likelihood.

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
        return _surveyed(checked, num_rows, budget, num_chains, num_steps, is_proved)
    recipe = whitened(
        model, rows, num_rows, budgets[0], num_chains, num_steps, shared_by, is_weighted
    )
    assert checked.lipschitz is not None and checked.hessian_bound is not None
    noise = checked.lipschitz**2 * recipe.preview.settings.public.last_noise
    warn_of_widening(widening(num_rows * checked.hessian_bound, noise))
    return recipe


def _surveyed(
    model: Model, num_rows: int, budget: Budgets, num_chains: int, num_steps: int, is_proved: bool
) -> Recipe:
    """One survey of the log-likelihood."""
    import dpmcmc

    make, bound = gradient_kind(model, budget)
    assert model.hessian_bound is not None

    def query(kind: Any, bound: float | None, share: float) -> Any:
        return kind(bound, multiplier(budget, share))

    steps = {query(make, bound, STEP_SHARE): APPROACH_STEPS, query(make, bound, LAST_SHARE): 1}
    hessians = {query(dpmcmc.queries.Curvature, model.hessian_bound, HESSIAN_SHARE): APPROACH_STEPS}
    gradient = query(make, bound, GRADIENT_SHARE - LAST_SHARE)
    hessian = query(dpmcmc.queries.Curvature, model.hessian_bound, SURVEY_SHARE)
    share = GRADIENT_SHARE + APPROACH_STEPS * STEP_SHARE  # of all gradients, at most
    noise = sensitivity(bound, budget) / math.sqrt(share) / gaussian_mu(budget)
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
