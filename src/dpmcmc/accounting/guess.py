r"""A promise in words: how well anybody can distinguish two neighbouring tables.

Somebody who thinks two tables equally likely, and knows all answers, identifies the true one with
probability at most (1 + v) / 2, where v is the total variation between the answers' laws: the
delta at epsilon = 0. It is computed from the ledger. Where runs share a budget, their ledger is not
known before the last; then v comes from the filter's total, m in its own measure: by the closed
form for Gaussians, and otherwise (a divergence of any order from 1 on bounds Kullback's k) from
Pinsker's inequality and that of Bretagnolle and Huber,

    v <= sqrt(k / 2),     v <= sqrt(1 - e^-k).

The promise alone gives the bound  v <= (e^epsilon - 1 + 2 delta) / (e^epsilon + 1),  which is the
smallest of all where epsilon is pure.
"""

from __future__ import annotations

import math

from dpmcmc.accounting import accountants, filters
from dpmcmc.accounting.costs import Costs
from dpmcmc.accounting.laws import gaussian


def chance(costs: Costs, epsilon: float, delta: float, method: str) -> float:
    """A bound on the probability of the best guess after all answers: those of a ledger, or all
    that its filter allows.
    """
    promised = math.tanh(epsilon / 2) + 2 * delta * math.exp(-epsilon) / (1 + math.exp(-epsilon))
    by_total_variation = (
        _of_filter(method, epsilon, delta)
        if method in filters.BY_NAME
        else accountants.delta(costs, 0.0)
    )
    return (1 + min(promised, by_total_variation, 1.0)) / 2


def _of_filter(method: str, epsilon: float, delta: float) -> float:
    if method == filters.NAMES["gaussian-then-radial"]:
        return 1.0  # the promise itself is the bound
    shared = filters.BY_NAME[method](epsilon, delta)
    if method == filters.NAMES["gaussian-dp"]:
        ideal = gaussian.delta(0.0, math.sqrt(shared.total))
    else:
        ideal = min(math.sqrt(shared.total / 2), math.sqrt(-math.expm1(-shared.total)))
    return ideal + 2 * shared.tv_error_total
