r"""The bounds as the papers print them, for comparison. All are valid (or say so), none is tight.

    thesis, Theorem 3.1        DP penalty by zCDP: k = floor(2 tau^2 n^(2a) rho),
                               rho = (sqrt(e - ln d) - sqrt(-ln d))^2
    thesis, Theorem 4.2        DP-HMC by zCDP: k = floor(rho / (rho_l + (L+1) rho_g)),
                               rho_. = 1/(2 tau_.^2 n)
    thesis, Theorem 3.3        DP Barker by Renyi divergences: `costs.DPBarker(..., bound="paper")`
    thesis, Theorem 3.5        minibatch penalty by Renyi divergences: a fixed-size batch with
                               z^2 = tau
    penalty paper, Theorem 1   advanced composition of Gaussian queries, closed form
    DP-Fast MH, Appendix B     advanced composition of a step amplified by its batch

The thesis is :cite:p:`raisa2021thesis`, the penalty paper :cite:p:`yildirim2019exact`, DP-Fast MH
:cite:p:`zhang2023dpfast`.
"""

from __future__ import annotations

import math
from typing import NamedTuple


class Allowed(NamedTuple):
    """A number of steps and what they cost.

    Attributes:
        steps: The number of steps.
        epsilon: Their epsilon.
        delta: Their delta.

    Example:
        >>> from dpmcmc.accounting import papers
        >>> papers.Allowed(100, 1.0, 1e-6).steps
        100
    """

    steps: int
    epsilon: float
    delta: float


def zcdp_budget(epsilon: float, delta: float) -> float:
    """Return the largest rho with  rho + sqrt(-4 rho ln delta) <= epsilon.

    Args:
        epsilon: The epsilon of the promise.
        delta: The delta of the promise.

    Returns:
        The largest rho.

    Example:
        >>> from dpmcmc.accounting import papers
        >>> papers.zcdp_budget(1.0, 1e-6) < 0.1
        True
    """
    # A difference of roots of nearly equal numbers, written as a quotient.
    root = math.sqrt(epsilon - math.log(delta)) + math.sqrt(-math.log(delta))
    return (epsilon / root) ** 2


def penalty_steps(epsilon: float, delta: float, tau: float, rows: int, alpha: float = 0.5) -> int:
    """Return the steps of DP penalty by the thesis, Theorem 3.1.

    The noise has standard deviation tau n^alpha times the sensitivity.

    Args:
        epsilon: The epsilon of the promise.
        delta: The delta of the promise.
        tau: The noise scale.
        rows: The number n of rows.
        alpha: The exponent of n.

    Returns:
        The number of steps.

    Example:
        >>> from dpmcmc.accounting import papers
        >>> papers.penalty_steps(1.0, 1e-6, tau=0.1, rows=100_000)
        34
    """
    return math.floor(2 * tau**2 * rows ** (2 * alpha) * zcdp_budget(epsilon, delta))


def hmc_steps(
    epsilon: float, delta: float, tau: float, tau_gradient: float, rows: int, leapfrog: int
) -> int:
    """Return the steps of DP-HMC by the thesis, Theorem 4.2.

    A step has L + 1 gradients and one ratio, with noises tau sqrt(n) times the sensitivity.

    Args:
        epsilon: The epsilon of the promise.
        delta: The delta of the promise.
        tau: The noise scale of the ratio.
        tau_gradient: The noise scale of a gradient.
        rows: The number n of rows.
        leapfrog: The number L of leapfrog steps.

    Returns:
        The number of steps.

    Example:
        >>> from dpmcmc.accounting import papers
        >>> papers.hmc_steps(1.0, 1e-6, tau=0.1, tau_gradient=0.1, rows=100_000, leapfrog=5)
        4
    """
    ratio = 1 / (2 * tau**2 * rows)
    gradient = 1 / (2 * tau_gradient**2 * rows)
    return math.floor(zcdp_budget(epsilon, delta) / (ratio + (leapfrog + 1) * gradient))


def penalty_advanced(
    rows: int, alpha: float, beta: float, scale: float, sensitivity: float, sigma: float
) -> Allowed:
    """Return the steps of the penalty paper, Theorem 1, as printed, and what they cost.

    k = floor(k0 n^(2 alpha) / log n), sensitivity c n^-alpha, noise sigma. Its equation (3) does
    not follow from the paper's Theorems 2 and 3: substituting k(n) leaves a factor sqrt(log n) on
    the first term. The value is still above the exact composition, about
    sqrt(2 k0 beta) c / sigma, when 2 alpha + beta >= 1/2.

    Args:
        rows: The number n of rows.
        alpha: The exponent of n.
        beta: The exponent of n in delta.
        scale: The factor k0 of the number of steps.
        sensitivity: The factor c of the sensitivity.
        sigma: The standard deviation of the noise.

    Returns:
        The steps and their cost.

    Raises:
        ValueError: `sigma` is too small for the theorem.

    Example:
        >>> from dpmcmc.accounting import papers
        >>> papers.penalty_advanced(100_000, 0.5, 1.0, 0.1, 1.0, 1.0).steps
        868
    """
    both = 2 * alpha + beta
    least = sensitivity * rows**-alpha * math.sqrt(2 * both * math.log(rows))
    if sigma <= least:
        raise ValueError(
            f"sigma={sigma} must be above {least:.4g}: Theorem 1 needs one step's epsilon below 1"
        )
    ratio = sensitivity / sigma
    epsilon = 2 * math.sqrt(scale * both * beta) * ratio + 4 * scale * ratio**2 * both
    delta = 1.25 * scale * rows**-beta / math.log(rows) + rows**-beta
    return Allowed(math.floor(scale * rows ** (2 * alpha) / math.log(rows)), epsilon, delta)


def advanced_composition(
    steps: int, epsilon: float, delta: float, slack: float
) -> tuple[float, float]:
    """Return what k steps of (epsilon, delta) cost by the penalty paper, Theorem 3.

    Args:
        steps: The number k of steps.
        epsilon: The epsilon of one step.
        delta: The delta of one step.
        slack: The additional delta.

    Returns:
        (epsilon', k delta + slack).

    Example:
        >>> from dpmcmc.accounting import papers
        >>> papers.advanced_composition(10, 0.01, 0.0, 1e-6)[1]
        1e-06
    """
    if epsilon > 700:
        return math.inf, min(1.0, steps * delta + slack)
    total = math.sqrt(2 * steps * math.log(1 / slack)) * epsilon + steps * epsilon * math.expm1(
        epsilon
    )
    return total, steps * delta + slack


def gaussian_step(noise_multiplier: float, delta: float) -> float:
    """Return epsilon of one Gaussian query by the penalty paper, Theorem 2; holds only below 1.

    Args:
        noise_multiplier: The standard deviation of the noise over the sensitivity.
        delta: The delta of the promise.

    Returns:
        The epsilon at `delta`.

    Example:
        >>> from dpmcmc.accounting import papers
        >>> papers.gaussian_step(100.0, 1e-6) < 0.1
        True
    """
    return math.sqrt(2 * math.log(1.25 / delta)) / noise_multiplier


def fast_mh_step(
    epsilon: float, delta: float, most_rows: int, chance: float
) -> tuple[float, float]:
    """Return what a step of DP-Fast MH costs by Appendix B: (6 K p epsilon, 2 K p delta).

    The step has at most K draws, each of them the changed row with probability p. The proof's
    K log((1-p+p e^e)/(1-p+p e^-e)) is at most 6 K p e only for e <= 2.84 (K p small), and m draws
    of the row add up to delta (e^(m e) - 1)/(e^e - 1), on average at most 2 K p delta only while
    K p (e^e - 1) is below some 1.25: more is refused.

    Args:
        epsilon: The epsilon of one draw.
        delta: The delta of one draw.
        most_rows: The largest number K of draws.
        chance: The probability p of the changed row.

    Returns:
        The epsilon and the delta of the step.

    Raises:
        ValueError: The bounds of the paper do not hold for these numbers.

    Example:
        >>> from dpmcmc.accounting import papers
        >>> papers.fast_mh_step(0.5, 1e-6, 100, 0.001)[0] < 0.5
        True
    """
    exact = most_rows * (
        math.log1p(chance * math.expm1(epsilon)) - math.log1p(chance * math.expm1(-epsilon))
    )
    if exact > 6 * most_rows * chance * epsilon:
        raise ValueError(
            f"epsilon={epsilon} is too large: 6 K p epsilon is not an upper bound there"
        )
    log_moment = most_rows * math.log1p(chance * math.expm1(epsilon))
    if log_moment > math.log1p(2 * most_rows * chance * math.expm1(epsilon)):
        raise ValueError(
            f"K p = {most_rows * chance:g} is too large at epsilon={epsilon}: 2 K p delta is not "
            "an upper bound there"
        )
    return 6 * most_rows * chance * epsilon, 2 * most_rows * chance * delta
