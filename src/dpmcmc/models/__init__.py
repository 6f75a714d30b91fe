"""Models: what one row says about the parameters. Each is a function that returns a `Model`.

``simulate_...``, ``..._posterior`` and ``draw_..._posterior`` see or make rows directly: they are
not private, and are there for tests and figures.
"""

from dpmcmc.models.banana import banana, draw_banana_posterior, simulate_banana_rows
from dpmcmc.models.binomial import (
    binomial,
    binomial_posterior,
    draw_binomial_posterior,
    simulate_binomial_rows,
)
from dpmcmc.models.categorical import (
    categorical,
    categorical_posterior,
    draw_categorical_posterior,
    simulate_categorical_rows,
)
from dpmcmc.models.circle import circle, draw_circle_posterior, simulate_circle_rows
from dpmcmc.models.gaussian import (
    draw_gaussian_posterior,
    gaussian,
    gaussian_posterior,
    simulate_gaussian_rows,
)
from dpmcmc.models.linear import (
    draw_linear_posterior,
    linear,
    linear_posterior,
    simulate_linear_rows,
)
from dpmcmc.models.logistic import logistic, simulate_logistic_rows
from dpmcmc.models.mixture import mixture, mixture_posterior, simulate_mixture_rows
from dpmcmc.models.numpyro import from_numpyro
from dpmcmc.models.poisson import poisson, simulate_poisson_rows
from dpmcmc.models.poisson_rate import (
    draw_poisson_rate_posterior,
    poisson_rate,
    poisson_rate_posterior,
    simulate_poisson_rate_rows,
)
from dpmcmc.models.robust_linear import robust_linear

__all__ = [
    "banana",
    "binomial",
    "binomial_posterior",
    "categorical",
    "categorical_posterior",
    "circle",
    "draw_banana_posterior",
    "draw_binomial_posterior",
    "draw_categorical_posterior",
    "draw_circle_posterior",
    "draw_gaussian_posterior",
    "draw_linear_posterior",
    "draw_poisson_rate_posterior",
    "from_numpyro",
    "gaussian",
    "gaussian_posterior",
    "linear",
    "linear_posterior",
    "logistic",
    "mixture",
    "mixture_posterior",
    "poisson",
    "poisson_rate",
    "poisson_rate_posterior",
    "robust_linear",
    "simulate_banana_rows",
    "simulate_binomial_rows",
    "simulate_categorical_rows",
    "simulate_circle_rows",
    "simulate_gaussian_rows",
    "simulate_linear_rows",
    "simulate_logistic_rows",
    "simulate_mixture_rows",
    "simulate_poisson_rate_rows",
    "simulate_poisson_rows",
]
