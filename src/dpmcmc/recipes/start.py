"""The private start: Newton steps on a tenth of the budget, and the bounds that they rely on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dpmcmc.checks import positive
from dpmcmc.recipes.budgets import Budgets, every_budget, gaussian_mu, rounded_up
from dpmcmc.types import Budget, Model, Plan

# Of mu^2, for the gradients and for the Hessian of the private start
START_SHARE = 0.08
CURVATURE_SHARE = 0.02
START_STEPS = 8


def private_start(model: Model, budget: Budgets) -> Any:
    """A private start of eight Newton steps on a tenth of the budget's mu^2.

    Args:
        model: The curator's model, with proved bounds.
        budget: The curator's budget, or a list, one of each owner.

    Returns:
        A start for `sample(start=...)`, as `newton_start` returns it.

    Example:
        >>> import dpmcmc
        >>> model = dpmcmc.models.logistic(1, radius=1.0)
        >>> start = private_start(model, dpmcmc.Budget(4.0, 1e-6))
    """
    from dpmcmc import newton_start

    gradient, curvature = start_plan(model, budget)
    return newton_start(model.log_prior, gradient, curvature, START_STEPS)


def start_plan(model: Model, budget: Budgets) -> Plan:
    """The plan of queries of `private_start`.

    Args:
        model: The curator's model, with proved bounds.
        budget: The curator's budget, or a list, one of each owner.

    Returns:
        Two queries, and how often each is asked.

    Example:
        >>> import dpmcmc
        >>> model = dpmcmc.models.logistic(1, radius=1.0)
        >>> list(start_plan(model, dpmcmc.Budget(4.0, 1e-6)).values())
        [8, 1]
    """
    make, bound = gradient_kind(model, budget)
    return start_queries(make, bound, model.hessian_bound, budget)


def start_queries(make: Any, bound: float, hessian_bound: float | None, budget: Budgets) -> Plan:
    """The same for gradients of this kind and these bounds."""
    from dpmcmc.queries import Curvature

    assert hessian_bound is not None
    mu = gaussian_mu(budget)
    gradient = make(bound, rounded_up(math.sqrt(START_STEPS / START_SHARE) / mu))
    return {
        gradient: START_STEPS,
        Curvature(hessian_bound, rounded_up(1 / math.sqrt(CURVATURE_SHARE) / mu)): 1,
    }


def gradient_kind(model: Model, budget: Budgets) -> tuple[Any, float]:
    """The kind of gradient query that takes the least noise, and its proved clip."""
    from dpmcmc.queries import CenteredGradient, Gradient

    bound = model.spread if is_centered(model, budget) else model.lipschitz
    assert bound is not None
    return CenteredGradient if is_centered(model, budget) else Gradient, bound


def is_centered(model: Model, budget: Budgets) -> bool:
    is_public = all(one.unit.is_count_public for one in every_budget(budget))
    return model.center is not None and model.spread is not None and is_public


def with_bounds(
    model: Model, budget: Budgets, clip: float | None, hessian_bound: float | None
) -> Model:
    """The model with these bounds in place of its own."""
    if not isinstance(model, Model):
        raise TypeError(f"model is a {type(model).__name__}: give the curator's Model")
    budgets = every_budget(budget) if isinstance(budget, Budget | Sequence) else ()
    if not budgets or not all(isinstance(one, Budget) for one in budgets):
        raise TypeError(
            f"budget is a {type(budget).__name__}: give the curator's Budget(epsilon, delta), or a "
            "list, one of each owner"
        )
    for name, bound in (("clip", clip), ("hessian_bound", hessian_bound)):
        if bound is not None:
            positive(name, bound, "nearly all rows stay below it")
    if clip is not None:
        model = model._replace(lipschitz=clip, center=None, spread=None)
    model = model._replace(hessian_bound=hessian_bound or model.hessian_bound)
    if (model.lipschitz is None and not is_centered(model, budget)) or model.hessian_bound is None:
        raise ValueError(
            "this recipe needs a model with proved bounds (lipschitz and hessian_bound), such as "
            "logistic or robust_linear, or a "
            "Gaussian with a radius; or else clip= and hessian_bound=, which the gradient and the "
            "Hessian of nearly all rows stay below"
        )
    return model


def prior_precision_at_0(model: Model) -> float:
    """The largest precision of the prior at 0; a normal one has it everywhere."""
    import jax

    hessian = np.asarray(jax.jit(jax.hessian(model.log_prior))(np.zeros(model.dimension)), float)
    return (
        max(0.0, float(np.linalg.eigvalsh(-hessian).max())) if np.all(np.isfinite(hessian)) else 0.0
    )
