"""The table of the parameters, as text."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dpmcmc.diagnostics.chains import entries
from dpmcmc.results.arviz import PRIOR_SD, names_of, summary_table

# A posterior wider than this part of the prior's standard deviation comes mostly from the prior
LIKE_PRIOR = 0.7


def summary(result: Any) -> str:
    """ArviZ's table of the parameters: mean, standard deviation, interval, effective draws, R-hat.

    The note "prior" marks a parameter whose standard deviation is close to the prior's: the data
    add little to what was assumed about it.

    Args:
        result: A posterior, from `dpmcmc.sample` or `dpmcmc.load`.

    Returns:
        The table as text.

    Example:
        >>> import dpmcmc
        >>> print(dpmcmc.summary(record.to_arviz()).split()[:3])
        ['mean', 'sd', 'hdi_3%']
    """
    return rounded_table(result).to_string()


def rounded_table(result: Any):
    """The table as a data frame of texts, each number with its significant digits."""
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
    """The draws (chain, draw) of every line of the summary, by its label."""
    draws: dict[str, Any] = {}
    for name in names_of(result):
        draws.update(entries(name, result.posterior[name].transpose("chain", "draw", ...)))
    return draws


def _rounded(row: Any) -> Any:
    """A line of the summary as text, with two digits of the standard deviation."""
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
