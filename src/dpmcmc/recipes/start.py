"""The private start: Newton steps on a tenth of the budget, and the bounds that they rely on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dpmcmc.checks import positive
from dpmcmc.recipes.budgets import Budgets, every_budget, gaussian_mu, rounded_up
from dpmcmc.types import Budget, Model, Plan

START_SHARE, CURVATURE_SHARE, START_STEPS = 0.08, 0.02, 8  # of mu^2, for the private start


def private_start(model: Model, budget: Budgets):
    """Newton steps on a tenth of the budget."""
    from dpmcmc import newton_start

    gradient, curvature = start_plan(model, budget)
    return newton_start(model.log_prior, gradient, curvature, START_STEPS)


def start_plan(model: Model, budget: Budgets) -> Plan:
    """What that start asks, and how often."""
    make, bound = gradient_kind(model, budget)
    return start_queries(make, bound, model.hessian_bound, budget)


def start_queries(make: Any, bound: float, curvature: float | None, budget: Budgets) -> Plan:
    """The same for gradients of this kind, with these bounds."""
    from dpmcmc.queries import Curvature

    assert curvature is not None
    mu = gaussian_mu(budget)
    gradient = make(bound, rounded_up(math.sqrt(START_STEPS / START_SHARE) / mu))
    return {
        gradient: START_STEPS,
        Curvature(curvature, rounded_up(1 / math.sqrt(CURVATURE_SHARE) / mu)): 1,
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
    """The largest one at 0: of a normal prior, everywhere."""
    import jax

    hessian = np.asarray(jax.jit(jax.hessian(model.log_prior))(np.zeros(model.dimension)), float)
    return (
        max(0.0, float(np.linalg.eigvalsh(-hessian).max())) if np.all(np.isfinite(hessian)) else 0.0
    )
