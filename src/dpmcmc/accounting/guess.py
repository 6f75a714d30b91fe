r"""A promise in words: how well anybody can tell two neighbouring tables apart.

Who has two tables in mind, one as likely as the other, and sees all answers, names the true one
with a chance of at most (1 + v) / 2, where v is the total variation between the answers' laws: the
delta at epsilon = 0. Of a ledger it is computed. Where runs share a budget, their ledger is not
known before the last; then v comes from what the filter lets through in all, m in its own measure,
by the closed form for Gaussians and otherwise, as a divergence of any order from 1 on bounds
Kullback's k, from Pinsker's inequality and that of Bretagnolle and Huber,

    v <= sqrt(k / 2),     v <= sqrt(1 - e^-k).

The promise alone says less, v <= (e^epsilon - 1 + 2 delta) / (e^epsilon + 1), and is the least of
all where epsilon is pure.
"""

from __future__ import annotations

import math

from dpmcmc.accounting import accountants, filters
from dpmcmc.accounting.costs import Costs
from dpmcmc.accounting.laws import gaussian


def chance(costs: Costs, epsilon: float, delta: float, method: str) -> float:
    """The chance of the best guess after all answers, at most: of a ledger, or of all that its
    filter lets through.
    """
    promised = math.tanh(epsilon / 2) + 2 * delta * math.exp(-epsilon) / (1 + math.exp(-epsilon))
    by_total_variation = (
        _of_filter(method, epsilon, delta)
        if method in filters.BY_NAME
        else accountants.delta(costs, 0.0)
    )
    return (1 + min(promised, by_total_variation, 1.0)) / 2


def _of_filter(method: str, epsilon: float, delta: float) -> float:
    shared = filters.BY_NAME[method](epsilon, delta)
    if method == filters.NAMES["gaussian-dp"]:
        ideal = gaussian.delta(0.0, math.sqrt(shared.total))
    else:
        ideal = min(math.sqrt(shared.total / 2), math.sqrt(-math.expm1(-shared.total)))
    return ideal + 2 * shared.distance_total
