"""Simulated rows and exact posteriors of the models, for tests and figures.

**Not private**: these functions make rows or read them directly. Do not use them on real rows.

`rows` simulates the rows of a model at a position that you choose; `posteriors` has exact tempered
posteriors, and independent draws of them, with the same arguments as the model.
"""

from dpmcmc.testing.posteriors import (
    binomial_posterior,
    categorical_posterior,
    draw_banana_posterior,
    draw_binomial_posterior,
    draw_categorical_posterior,
    draw_circle_posterior,
    draw_gaussian_posterior,
    draw_linear_posterior,
    draw_poisson_rate_posterior,
    gaussian_posterior,
    linear_posterior,
    mixture_posterior,
    poisson_rate_posterior,
)
from dpmcmc.testing.rows import (
    simulate_banana_rows,
    simulate_binomial_rows,
    simulate_categorical_rows,
    simulate_circle_rows,
    simulate_gaussian_rows,
    simulate_linear_rows,
    simulate_logistic_rows,
    simulate_mixture_rows,
    simulate_poisson_rate_rows,
    simulate_poisson_rows,
)

__all__ = [
    "binomial_posterior",
    "categorical_posterior",
    "draw_banana_posterior",
    "draw_binomial_posterior",
    "draw_categorical_posterior",
    "draw_circle_posterior",
    "draw_gaussian_posterior",
    "draw_linear_posterior",
    "draw_poisson_rate_posterior",
    "gaussian_posterior",
    "linear_posterior",
    "mixture_posterior",
    "poisson_rate_posterior",
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
