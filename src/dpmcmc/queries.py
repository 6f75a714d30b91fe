"""The queries that a curator answers, and what authors of new ones need.

A query is a frozen dataclass with two methods: `answer`, what is computed on the rows, and `cost`,
what that reveals. It may have the attributes of `dpmcmc.types.Traits`. The usual way is in three
steps, each a function of this module:

    values of one row, in [-1, 1]    ->  `fixed_point`              integers
    integers of all rows             ->  `sum_rows`                 their exact sum
    the sum                          ->  `integer_sigma`, `noisy`   an `Answer`

and `cost` names the law of the noise, with `gaussian_tv_error` (of one number) or `vector_tv_error`
(of a vector) as its total-variation error. **What is written in a query is part of the curator:
nobody checks it.** The statement names such a query as its author's word, and `dpmcmc.audit.query`
can refute it.

Example:
    The number of rows above zero less those below, with noise. (Rows that are vectors fail in
    `reshape`: they would move several numbers.)

    >>> import dataclasses
    >>> from typing import ClassVar
    >>> import jax
    >>> import jax.numpy as jnp
    >>> import numpy as np
    >>> import dpmcmc
    >>> from dpmcmc import queries
    >>> from dpmcmc.accounting import costs
    >>> @dataclasses.dataclass(frozen=True)
    ... class Balance:
    ...     noise_multiplier: float
    ...     released: ClassVar[str] = "the sum of the signs of all rows, with Gaussian noise"
    ...     adds: ClassVar[bool] = True  # the answers of several owners may be added
    ...
    ...     def __post_init__(self):
    ...         queries.check_sizes(self, "noise_multiplier")
    ...
    ...     def answer(self, key, model, rows, position):
    ...         def integers(some):
    ...             return queries.fixed_point(jnp.sign(jnp.nan_to_num(some)))
    ...
    ...         total = queries.sum_rows(integers, rows).reshape(())
    ...         sigma = queries.integer_sigma(self.noise_multiplier, rows.unit)
    ...         return queries.noisy(key, total, sigma, 2.0**-queries.BITS)
    ...
    ...     def cost(self, unit):
    ...         sigma = queries.integer_sigma(self.noise_multiplier, unit)
    ...         return costs.Gaussian(self.noise_multiplier, queries.gaussian_tv_error(sigma))
    >>> rows = np.linspace(-1, 3, 1000, dtype=np.float32)
    >>> model = dpmcmc.models.gaussian([1.0], radius=3.0)
    >>> budget = dpmcmc.Budget(epsilon=1, delta=1e-6)
    >>> curator = dpmcmc.Curator(rows[:, None], model, budget)
    >>> def program(ask, rng_key, position):
    ...     return ask(rng_key, Balance(noise_multiplier=20.0), position)
    >>> arguments = jax.random.key(0), jnp.zeros(1)
    >>> traced = curator.trace(program, *arguments)
    >>> grant = curator.grant(traced.plan)
    >>> answer = grant.run(traced.compile(), *arguments)
    >>> abs(float(answer.value) - 500) < 10 * 40  # the noise has a deviation of 40
    True
"""

from dpmcmc.checks import check_sizes
from dpmcmc.curator.noise.gaussian import discrete_gaussian, gaussian_sigma, gaussian_tv_error
from dpmcmc.curator.noise.noisy_sums import MAX_DIMENSION, integer_sigma, noisy, vector_tv_error
from dpmcmc.curator.noise.radial import radial_noise, radial_tv_error, radial_variance
from dpmcmc.curator.noise.stream import random_words
from dpmcmc.curator.queries.accept import Accept, PenaltyAccept
from dpmcmc.curator.queries.batches import FixedBatch, PoissonBatch
from dpmcmc.curator.queries.count import ClippedGradients, ClippedRatios, Count
from dpmcmc.curator.queries.curvature import Curvature, RowGram
from dpmcmc.curator.queries.filtered import FilteredAccept
from dpmcmc.curator.queries.fixed_batch import BatchBarker, BatchRatio
from dpmcmc.curator.queries.gradient import (
    CenteredGradient,
    CenteredRadialGradient,
    Gradient,
    RadialGradient,
)
from dpmcmc.curator.queries.log_ratio import LogRatio
from dpmcmc.curator.queries.nonprivate import (
    NonPrivateAccept,
    NonPrivateGradient,
    NonPrivateRatio,
)
from dpmcmc.curator.queries.statistic import SufficientStatistic
from dpmcmc.curator.queries.tuna import PublishedFastMH, TunaBarker, TunaMetropolis, TunaRatio
from dpmcmc.curator.sums.clipping import clip_to_unit, clip_to_unit_ball
from dpmcmc.curator.sums.exact_sum import (
    BITS,
    Table,
    ball_integers,
    fixed_point,
    sum_counted,
    sum_row_vectors,
    sum_rows,
)
from dpmcmc.curator.sums.rowwise import rowwise
from dpmcmc.curator.whitened.gram import Gram, NormCounts
from dpmcmc.curator.whitened.points import row_set
from dpmcmc.curator.whitened.weighted import (
    WeightedCurvature,
    WeightedGradient,
    WeightedRadialGradient,
)
from dpmcmc.types import Answer, Query, Traits, Unit

__all__ = [
    "BITS",
    "MAX_DIMENSION",
    "Accept",
    "Answer",
    "BatchBarker",
    "BatchRatio",
    "CenteredGradient",
    "CenteredRadialGradient",
    "ClippedGradients",
    "ClippedRatios",
    "Count",
    "Curvature",
    "FilteredAccept",
    "FixedBatch",
    "Gradient",
    "Gram",
    "LogRatio",
    "NonPrivateAccept",
    "NonPrivateGradient",
    "NonPrivateRatio",
    "NormCounts",
    "PenaltyAccept",
    "PoissonBatch",
    "PublishedFastMH",
    "Query",
    "RadialGradient",
    "RowGram",
    "SufficientStatistic",
    "Table",
    "Traits",
    "TunaBarker",
    "TunaMetropolis",
    "TunaRatio",
    "Unit",
    "WeightedCurvature",
    "WeightedGradient",
    "WeightedRadialGradient",
    "ball_integers",
    "check_sizes",
    "clip_to_unit",
    "clip_to_unit_ball",
    "discrete_gaussian",
    "fixed_point",
    "gaussian_sigma",
    "gaussian_tv_error",
    "integer_sigma",
    "noisy",
    "radial_noise",
    "radial_tv_error",
    "radial_variance",
    "random_words",
    "row_set",
    "rowwise",
    "sum_counted",
    "sum_row_vectors",
    "sum_rows",
    "vector_tv_error",
]
