"""Models: what one row contributes to the log-likelihood, and the prior.

Each is a function that returns a `Model`.

`logistic`, `linear`, `robust_linear` and `poisson` are regressions; `binomial`, `categorical` and
`poisson_rate` (module `counts`) and `gaussian` estimate one quantity and have sufficient
statistics; `banana`, `circle` and `mixture` are the papers' test problems; `from_numpyro` takes a
NumPyro model. Simulated rows and exact posteriors, for tests and figures, are in `dpmcmc.testing`.
"""

from dpmcmc.models.banana import banana
from dpmcmc.models.circle import circle
from dpmcmc.models.counts import binomial, categorical, poisson_rate
from dpmcmc.models.gaussian import gaussian
from dpmcmc.models.linear import linear
from dpmcmc.models.logistic import logistic
from dpmcmc.models.mixture import mixture
from dpmcmc.models.numpyro import from_numpyro
from dpmcmc.models.poisson import poisson
from dpmcmc.models.robust_linear import robust_linear

__all__ = [
    "banana",
    "binomial",
    "categorical",
    "circle",
    "from_numpyro",
    "gaussian",
    "linear",
    "logistic",
    "mixture",
    "poisson",
    "poisson_rate",
    "robust_linear",
]
