"""Findings about the draws themselves: whether chains agree, how many draws they are worth, and
what cannot be a posterior.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from dpmcmc.finding import Finding, severe

MAX_DRIFT = 5.0  # standard deviations
FEWEST_FOR_DRIFT = 50  # draws that such a standard deviation needs
MAX_TIES = 0.01  # share of the draws at their largest or smallest value
# How often chains must return there: once may be by chance
MIN_RETURNS = 5
ROUNDING = 1e-12  # of a mean in double precision
MOST_NAMES = 5


class Limits(NamedTuple):
    """What the chains must attain for every parameter.

    Attributes:
        r_hat: The largest R-hat that is allowed.
        ess: The smallest number of effective draws, in the bulk and in the tails.

    Example:
        >>> Limits(1.1, 15).ess
        15
    """

    r_hat: float
    ess: float


PAID = Limits(1.1, 15)  # where each step costs privacy budget
FREE = Limits(1.01, 400)  # where more steps cost nothing but time
UNCONVERGED = {
    "never-moved",
    "drift",
    "r-hat",
    "no-effective-draws",
    "few-effective-draws",
    "few-tail-draws",
}  # more steps may help


def of_chains(
    variables: Mapping[str, np.ndarray], measures: Mapping[str, Mapping[str, float]], limits: Limits
) -> list[Finding]:
    """Findings from the draws alone.

    Args:
        variables: The draws by parameter, with the axes (chain, draw, ...).
        measures: By column of the summary ("mean", "hdi_3%", "hdi_97%", "ess_bulk", "ess_tail",
            "r_hat") the number of each entry by label.
        limits: What the chains must attain.

    Returns:
        The findings.

    Example:
        >>> draws = np.zeros((2, 4))
        >>> columns = ("mean", "hdi_3%", "hdi_97%", "ess_bulk", "ess_tail", "r_hat")
        >>> measures = {column: {"b": 0.0} for column in columns}
        >>> [finding.code for finding in of_chains({"b": draws}, measures, PAID)]
        ['never-moved', 'few-effective-draws', 'few-tail-draws']
    """
    return [
        *_not_finite(variables),
        *_unmoved(variables),
        *_drift(variables),
        *_measured(measures, limits),
        *_mean_outside(variables, measures),
        *_at_a_bound(variables),
    ]


def entries(name: str, values: Any) -> Iterator[tuple[str, Any]]:
    """The label and the draws (chain, draw) of every entry of a parameter, as ArviZ labels them."""
    for index in np.ndindex(values.shape[2:]):
        yield f"{name}[{', '.join(map(str, index))}]" if index else name, values[(..., *index)]


def listed(names: list[str]) -> str:
    """Names separated by commas; of many, the first ones and the number of the others."""
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return ", ".join(names[:MOST_NAMES]) + more


def _real_entries(variables: Mapping[str, np.ndarray]) -> Iterator[tuple[str, np.ndarray]]:
    """The entries of real parameters, without truth values and whole numbers."""
    for name, values in variables.items():
        if values.dtype.kind == "f":
            yield from entries(name, values)


def _not_finite(variables: Mapping[str, np.ndarray]) -> list[Finding]:
    names = [label for label, values in _real_entries(variables) if not np.all(np.isfinite(values))]
    if not names:
        return []
    return [
        severe(
            "not-finite", f"Some draws of {listed(names)} are not finite numbers.", parameters=names
        )
    ]


def _unmoved(variables: Mapping[str, np.ndarray]) -> list[Finding]:
    num_chains, num_draws = next(iter(variables.values())).shape[:2]
    if num_chains * num_draws == 1:
        return []
    axes: Any = 1 if num_draws > 1 else (0, 1)  # within every chain
    still = [
        name
        for name, values in variables.items()
        if np.all(np.ptp(values.astype(float), axis=axes) == 0)
    ]
    if len(still) == len(variables):
        return [severe("never-moved", "The chains never moved.", parameters=still)]
    stuck = [name for name in still if variables[name].dtype.kind == "f"]
    return (
        [severe("never-moved", f"{listed(stuck)} never moved.", parameters=stuck)] if stuck else []
    )


def _drift(variables: Mapping[str, np.ndarray]) -> list[Finding]:
    """How far the first tenth of the draws is from the last half, in the latter's standard
    deviations.

    R-hat does not show a path that all chains have taken together. Medians and quartiles are taken
    because the path itself would increase a standard deviation.
    """
    distances = {}
    for label, values in (
        (label, part.astype(float))
        for name in variables
        for label, part in entries(name, variables[name])
    ):
        num_draws = values.shape[1]
        if num_draws < FEWEST_FOR_DRIFT:
            return []
        low, middle, high = np.quantile(values[:, num_draws // 2 :], [0.25, 0.5, 0.75])
        begin = np.median(values[:, : num_draws // 10])
        if high > low:
            distances[label] = float(abs(begin - middle) / ((high - low) / 1.349))
    worst = max(distances, key=distances.__getitem__, default="")
    if not distances or not distances[worst] > MAX_DRIFT:
        return []
    return [
        severe(
            "drift",
            f"The chains begin {distances[worst]:.0f} standard deviations from where they end "
            f"({worst}): more warm-up or a better start would help.",
            parameter=worst,
            distance=distances[worst],
        )
    ]


def _measured(measures: Mapping[str, Mapping[str, float]], limits: Limits) -> list[Finding]:
    # A single chain has none
    r_hats = {label: value for label, value in measures["r_hat"].items() if value > limits.r_hat}
    found = []
    if r_hats:
        worst = max(r_hats, key=r_hats.__getitem__)
        found.append(
            severe(
                "r-hat",
                f"The chains disagree: R-hat is up to {np.ceil(1e3 * r_hats[worst]) / 1e3:.3f} "
                f"({listed(_by_size(r_hats, -1))}), and must be at most {limits.r_hat}.",
                r_hat=r_hats[worst],
                limit=limits.r_hat,
                parameters=_by_size(r_hats, -1),
            )
        )
    bulk = measures["ess_bulk"]
    tail = measures["ess_tail"]
    if without := [label for label in bulk if math.isnan(bulk[label]) or math.isnan(tail[label])]:
        found.append(
            severe(
                "no-effective-draws",
                f"There are no effective draws of {listed(without)}: the chains hardly moved, or "
                "there are too few draws.",
                parameters=without,
            )
        )
    for code, part, sizes in (
        ("few-effective-draws", "", bulk),
        ("few-tail-draws", " in the tails", tail),
    ):
        few = {label: value for label, value in sizes.items() if value < limits.ess}
        if few:
            least = min(few.values())
            found.append(
                severe(
                    code,
                    f"Only {math.floor(least)} effective draws{part} ({listed(_by_size(few, 1))}): "
                    "at "
                    f"least {limits.ess:g} are needed.",
                    effective=least,
                    limit=limits.ess,
                    parameters=_by_size(few, 1),
                )
            )
    return found


def _by_size(values: Mapping[str, float], sign: int) -> list[str]:
    return sorted(values, key=lambda label: sign * values[label])


def _mean_outside(
    variables: Mapping[str, np.ndarray], measures: Mapping[str, Mapping[str, float]]
) -> list[Finding]:
    names = []
    for label, _ in _real_entries(variables):
        mean, low, high = (measures[column][label] for column in ("mean", "hdi_3%", "hdi_97%"))
        slack = ROUNDING * abs(mean)
        if mean < low - slack or mean > high + slack:
            names.append(label)
    if not names:
        return []
    return [
        severe(
            "mean-outside-interval",
            f"The mean of {listed(names)} lies outside its own 94 % interval: a few draws are far "
            "from all others.",
            parameters=names,
        )
    ]


def _at_a_bound(variables: Mapping[str, np.ndarray]) -> list[Finding]:
    shares = {}
    for label, values in _real_entries(variables):
        share = max(_share_at(values, extreme) for extreme in (np.min, np.max))
        if share > MAX_TIES:
            shares[label] = share
    if not shares:
        return []
    worst = _by_size(shares, -1)
    return [
        severe(
            "draws-at-bound",
            f"Up to {shares[worst[0]]:.0%} of the draws are exactly the largest or smallest value "
            f"of their parameter ({listed(worst)}): a limit cuts the posterior, or a chain has "
            "run off to it.",
            share=shares[worst[0]],
            parameters=worst,
        )
    ]


def _share_at(values: np.ndarray, extreme: Callable) -> float:
    """The share of the draws at the extreme value, if chains return to it: a chain that stays where
    it is only rejects moves.
    """
    is_there = values == extreme(values)
    returns = np.count_nonzero(is_there[:, 1:] & ~is_there[:, :-1])
    return float(np.mean(is_there)) if returns >= MIN_RETURNS else 0.0
