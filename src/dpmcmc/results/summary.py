"""The table of the parameters, for people."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dpmcmc.diagnostics.chains import entries
from dpmcmc.results.arviz import PRIOR_SD, names_of, summary_table

# Of the prior's standard deviation: a posterior that is wider comes mostly from the prior
LIKE_PRIOR = 0.7


def summary(result: Any) -> str:
    """ArviZ's table of the parameters: mean, spread, interval, effective sample size, R-hat.

    The note "prior" marks parameters whose spread is mostly the prior's: the rows say little about
    them.
    """
    return rounded_table(result).to_string()


def rounded_table(result: Any):
    """The same as a data frame of texts, each number with the digits that matter."""
    table = summary_table(result)
    is_like_prior = table["sd"].to_numpy() > LIKE_PRIOR * prior_sds(result)
    return table.apply(_rounded, axis=1).assign(note=np.where(is_like_prior, "prior", ""))


def prior_sds(result: Any) -> np.ndarray:
    """The prior's standard deviation for every line of the summary; NaN where it is not known."""
    parts = [np.empty(0)]
    for name in names_of(result):
        values = result.posterior[name]
        size = values[0, 0].size
        parts.append(np.broadcast_to(np.ravel(values.attrs.get(PRIOR_SD, np.nan)), size))
    return np.concatenate(parts)


def scalars(result: Any) -> dict[str, Any]:
    """The draws (chain, draw) of every line of the summary, an entry of a vector by itself: label
    -> DataArray.
    """
    found: dict[str, Any] = {}
    for name in names_of(result):
        found.update(entries(name, result.posterior[name].transpose("chain", "draw", ...)))
    return found


def _rounded(row: Any) -> Any:
    """A line of the summary as text: to two digits of the standard deviation, whatever the units of
    the parameter.
    """
    digits = max(0, 1 - math.floor(math.log10(row["sd"]))) if 0 < row["sd"] < math.inf else 3
    places = {
        "mcse_mean": digits + 1,
        "mcse_sd": digits + 1,
        "ess_bulk": 0,
        "ess_tail": 0,
        "r_hat": 2,
    }
    return type(row)(
        {name: f"{value:.{places.get(name, digits)}f}" for name, value in row.items()},
        name=row.name,
    )
