r"""Langevin dynamics on full-data gradients, set from public facts.

A replaced row moves the gradient by at most 2R (R: the Lipschitz bound, or the model's `spread`),
so the noise in each coordinate has variance v = (2 R z)^2, and k releases cost mu^2 = k / z^2 in
Gaussian DP. The private noise may be all the noise the dynamics needs when  h v <= 4;  with
h = 4 / v a direction of posterior precision p then gives  k h p / 4 = mu^2 p / (4 R^2)  effective
draws, whatever z is, and a variance of  1 / (p (1 - h p / 4)). z is set so that the step resolves
the stiffest direction there could be,  h n c <= `stiffness`, where c bounds a row's curvature, and
the prior, whose precision q is known:  1 / h = n c / stiffness + q / `ATTAINED`.  A shorter step
takes more noise and more steps, which changes the time and nothing else. The noises of several
owners add:  v = (R z)^2 times the sum of s^2,  with s = 2 for an owner whose rows are replaced, 1
for one whose rows are added or removed, times the rows per person; mu is the minimum over owners.
"""

from __future__ import annotations

import math
from typing import Any

from dpmcmc.checks import is_number, whole
from dpmcmc.recipes.budgets import Budgets, gaussian_mu, public_facts, rounded_up, sensitivity
from dpmcmc.recipes.hope import warn_of_few_draws
from dpmcmc.recipes.recipe import Recipe, SamplerName, clip_words
from dpmcmc.recipes.start import (
    CURVATURE_SHARE,
    START_SHARE,
    gradient_kind,
    prior_precision_at_0,
    private_start,
    start_plan,
    with_bounds,
)
from dpmcmc.types import Model

# The variance of the stiffest direction is then at most a third too large; on real tables a few
# per cent
STIFFNESS = 1.0
ATTAINED = 0.2  # at most five per cent too large, where rows attain the bound of the Hessian
DRAWS_PER_CHAIN = 2000  # about so many are kept


def langevin(
    model: Model,
    num_rows: int,
    budget: Budgets,
    num_chains: int = 2,
    stiffness: float = STIFFNESS,
    clip: float | None = None,
    hessian_bound: float | None = None,
) -> Recipe:
    """Full-data Langevin dynamics on the model's proved bounds, after a private Newton start.

    If there is a curator already, `langevin_for` takes the facts from it. The prior is assumed to
    have its largest precision at 0, as normal ones do: a run reports a prior that is narrower than
    a step.

    Args:
        model: The curator's model.
        num_rows: The number of rows, of all owners. Noise and number of steps reveal it: where it
            is private, give the declared capacity.
        budget: The curator's budget, or a list, one of each owner.
        num_chains: The number of chains that share the budget.
        stiffness: The longest step times the largest precision. Where the Hessians of rows attain
            their bound, as Gaussian ones do, choose `ATTAINED`.
        clip: In place of the model's `lipschitz`. Where the model has none, choose on simulated
            rows a bound that the gradients of nearly all rows stay below: others are clipped, which
            biases the draws by what `clip_shift` computes.
        hessian_bound: In place of the model's `hessian_bound`, in the same way.

    Returns:
        A recipe with a start, for all the steps that the budget allows.

    Raises:
        TypeError: model is not a `Model`, or budget is not a `Budget`.
        ValueError: The model has no proved bounds and none are given, or a number is out of its
            range.

    Example:
        >>> import dpmcmc
        >>> model = dpmcmc.models.logistic(1, radius=1.0)
        >>> recipe = langevin(model, 50_000, dpmcmc.Budget(4.0, 1e-6))
        >>> recipe.num_chains, recipe.warmup
        (2, 0.1)
    """
    from dpmcmc import sgld

    is_proved = clip is None
    model = with_bounds(model, budget, clip, hessian_bound)
    num_rows = whole("num_rows", num_rows)
    num_chains = whole("num_chains", num_chains)
    if not (is_number(stiffness) and stiffness > 0):
        raise ValueError(
            f"stiffness={stiffness} must be positive: it is the longest step times the largest "
            "precision"
        )
    prior_precision = prior_precision_at_0(model)
    assert model.hessian_bound is not None
    make, bound = gradient_kind(model, budget)
    inverse_step = num_rows * model.hessian_bound / stiffness + prior_precision / ATTAINED
    most_precision = num_rows * model.hessian_bound + prior_precision
    warn_of_few_draws(_most_draws(most_precision, inverse_step, bound, budget), bound)
    noise_multiplier, step = langevin_step(inverse_step, bound, budget)
    query = make(bound, noise_multiplier)
    sampler = sgld(model.log_prior, query, step)
    num_steps = langevin_steps(noise_multiplier, budget)
    return Recipe(
        sampler=lambda start: sampler,  # a function, so that `sample` does not go without the start
        query=query,
        name=SamplerName.sgld,
        words=f"sgld after a private start, step size {step:.3g}, clip {bound:.4g} "
        f"({clip_words(is_proved)}), noise multiplier {noise_multiplier:g}",
        start=private_start(model, budget),
        initial=start_plan(model, budget),
        num_chains=num_chains,
        thin=max(1, int(num_steps / num_chains / DRAWS_PER_CHAIN)),
        warmup=0.1,
    )


def langevin_for(
    curator: Any,
    num_chains: int = 2,
    stiffness: float = STIFFNESS,
    clip: float | None = None,
    hessian_bound: float | None = None,
) -> Recipe:
    """`langevin` for a curator or a federation, whose model, capacity and budgets are public.

    Args:
        curator: A `Curator` or a `Federation` with budgets.
        num_chains: The number of chains that share the budget.
        stiffness: The longest step times the largest precision, as in `langevin`.
        clip: In place of the model's `lipschitz`.
        hessian_bound: In place of the model's `hessian_bound`.

    Returns:
        The recipe.

    Raises:
        TypeError: An owner has no budget.
        ValueError: The model has no proved bounds and none are given.

    Example:
        >>> import numpy as np
        >>> import dpmcmc
        >>> rows = np.zeros((3000, 1), np.float32), np.zeros(3000, np.float32)
        >>> model = dpmcmc.models.logistic(1, radius=1.0)
        >>> curator = dpmcmc.Curator(rows, model, dpmcmc.Budget(4.0, 1e-6))
        >>> langevin_for(curator).query.noise_multiplier
        27.48
    """
    num_rows, budgets = public_facts(curator, "recipes.langevin(model, num_rows, budget)")
    return langevin(curator.model, num_rows, budgets, num_chains, stiffness, clip, hessian_bound)


def _most_draws(
    most_precision: float, inverse_step: float, lipschitz: float, budget: Budgets
) -> float:
    """An upper bound on the effective draws: those of a direction of the largest precision.

    A direction of precision p has the autocorrelation 1 - h p / 2, and so k h p / 4 / (1 - h p / 4)
    effective draws.
    """
    share = 1 - START_SHARE - CURVATURE_SHARE
    most = share * (gaussian_mu(budget) / sensitivity(lipschitz, budget)) ** 2 * most_precision
    return most / max(1e-3, 1 - most_precision / inverse_step / 4)


def langevin_step(inverse_step: float, lipschitz: float, budget: Budgets) -> tuple[float, float]:
    """(noise multiplier, step size): h v = 4, and 1 / h as given or a little more."""
    unit = sensitivity(lipschitz, budget)
    noise_multiplier = rounded_up(math.sqrt(4 * inverse_step) / unit)
    return noise_multiplier, _step_size(unit * noise_multiplier)


def step_size(gradient: Any, budget: Budgets) -> float:
    """The longest step of `sgld` whose noise is all from the gradient: h v = 4.

    Args:
        gradient: A `Gradient` or `CenteredGradient` query.
        budget: The curator's budget, or a list, one of each owner.

    Returns:
        The step size h.

    Example:
        >>> import dpmcmc
        >>> gradient = dpmcmc.queries.Gradient(clip=1.0, noise_multiplier=20.0)
        >>> step_size(gradient, dpmcmc.Budget(4.0, 1e-6))
        0.0025
    """
    return _step_size(sensitivity(gradient.clip, budget) * gradient.noise_multiplier)


def _step_size(deviation: float) -> float:
    return 4 / deviation**2


def langevin_steps(noise_multiplier: float, budget: Budgets) -> int:
    """About how many gradients the budget allows, for all chains together."""
    return int((1 - START_SHARE - CURVATURE_SHARE) * (gaussian_mu(budget) * noise_multiplier) ** 2)
