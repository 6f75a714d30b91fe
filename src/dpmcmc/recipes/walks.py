r"""Random walks with a private test, set from public facts: the number of rows n, the dimension d,
the clip L, and a guess of the information in a row.

Let J_j be a public guess of the information of one row about component j. Then component j of the
posterior has a standard deviation near  s_j = (n J_j + prior precision)^(-1/2).

**Step.** Component j moves by N(0, (l s_j)^2 / d) with l = 1/2. The bill of an accept bit grows
with the squared length of the longest move, and so does what a step gains: l changes the number of
steps more than their worth. Small steps are accepted more often (93 % of the most that Barker's
test can; 73 % at the customary l = 1.2), and the way from the start to the posterior, so many steps
of that length, takes a smaller share of the budget. They cost time only.

**Longest move.** M = the root mean square length of a move; longer ones are shortened to it, since
the bill depends on the longest.

**Noise.** The penalty test on a released ratio mixes best per epsilon when the ratio of the longest
move has a noise of standard deviation 2.38 (where s^2 Phi(-s/2) is largest), on its accept bit when
2.19; the multiplier is that over the range of the ratio.

**What to expect.** About 34 d / q steps of Barker's test, 60 d / q of the penalty test or 54 d / q
of its bit are worth one independent draw, where q is what the cap leaves of the mean squared move:
0.52, 0.63, 0.79, 0.87 for d = 1, 2, 7, 20.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from dpmcmc.recipes.budgets import Budgets, sensitivity
from dpmcmc.recipes.recipe import Recipe, SamplerName, clip_words
from dpmcmc.recipes.start import private_start, start_plan
from dpmcmc.types import Budget, Model

LENGTH = 0.5
RATIO_NOISE = 2.38
BIT_NOISE = 2.19
# Times d / q
STEPS_PER_DRAW = {"barker": 34.0, "lazy-barker": 34.0, "penalty": 60.0, "penalty-bit": 54.0}
# Of a row in the posterior precision: p (1 - p) times a feature's mean square, in units of R^2 / d
TYPICAL_WEIGHT = 0.07


class Moves(NamedTuple):
    """The moves of a random walk, which ``random_walk(*moves)`` makes.

    Attributes:
        scale: The standard deviation of each component.
        max_move: The longest move.

    Example:
        >>> import numpy as np
        >>> import dpmcmc
        >>> walk = dpmcmc.random_walk(*Moves(np.array([0.1, 0.2]), max_move=0.3))
    """

    scale: np.ndarray
    max_move: float


def moves(
    information: Any, prior_precision: Any, num_rows: int, scale: float | None = None
) -> Moves:
    """The moves that suit a posterior.

    Args:
        information: A guess of one row's information about each component: an inverse variance.
        prior_precision: The precision of the prior, one number or one for each component.
        num_rows: The number of rows.
        scale: One standard deviation for all components, in place of those of the rule above.

    Returns:
        Standard deviations and the longest move.

    Raises:
        ValueError: A precision is negative, or num_rows is not positive.

    Example:
        >>> round(moves([1.0, 1.0], 0.0, 50).max_move, 4)
        0.0707
    """
    information = np.atleast_1d(np.asarray(information, float))
    if (
        not np.all(information >= 0)
        or not np.all(np.asarray(prior_precision) >= 0)
        or not num_rows > 0
    ):
        raise ValueError(
            "information and prior_precision must not be negative, and num_rows must be positive: "
            "they are precisions"
        )
    dimension = len(information)
    if scale is None:
        scales = LENGTH / np.sqrt(dimension * (num_rows * information + prior_precision))
    else:
        scales = np.full(dimension, scale)
    return Moves(scales, math.sqrt(math.fsum(scales**2)))


def walk(
    test: str,
    model: Model,
    budget: Budgets,
    moves: Moves,
    clip: float | None = None,
    noise_multiplier: float | None = None,
    kappa: float = 0.5,
) -> Recipe:
    """A random walk with these moves and a private test.

    Args:
        test: "barker", "lazy-barker", "penalty" or "penalty-bit".
        model: The curator's model.
        budget: The curator's budget.
        moves: What `recipes.moves` gives, or moves of your own.
        clip: Bound on a row's log-ratio per unit of move; by default the proved one.
        noise_multiplier: Noise over sensitivity, of a penalty test; by default what mixes best at
            the longest move.
        kappa: The probability that a step of the lazy test reads the rows.

    Returns:
        The recipe, without a private start.

    Raises:
        ValueError: The model has no proved bound and no `clip` is given.

    Example:
        >>> import dpmcmc
        >>> model = dpmcmc.models.logistic(1, radius=1.0)
        >>> recipe = walk("barker", model, dpmcmc.Budget(1.0, 1e-6), moves([0.05, 0.05], 1.0, 900))
        >>> recipe.words
        'barker, moves up to 0.0737, clip 1 (proved: no row reaches it)'
    """
    import dpmcmc

    proved = model.lipschitz
    bound = proved if clip is None else clip
    if bound is None:
        raise ValueError(
            "this model has no proved bound: choose --clip, the most that a row's log-ratio may be "
            "per unit of move"
        )
    proposal = dpmcmc.random_walk(moves.scale, moves.max_move)
    query = walk_query(test, bound, moves.max_move, budget, noise_multiplier, kappa)
    is_proved = proved is not None and bound >= proved
    words = f"{test}, moves up to {moves.max_move:.3g}, clip {bound:.4g} ({clip_words(is_proved)})"
    if hasattr(query, "noise_multiplier"):
        words += f", noise multiplier {query.noise_multiplier:.4g}"
    sampler = _maker(test)(model.log_prior, query, proposal)
    return Recipe(sampler, query, SamplerName(test), words)


def walk_after_start(model: Model, num_rows: int, budget: Budget, test: str) -> Recipe:
    """A random walk after a private start, whose moves have the shape of the start's precision.

    The longest move, which the bill depends on, follows from public facts.

    Args:
        model: The curator's model, with proved bounds.
        num_rows: The number of rows.
        budget: The curator's budget.
        test: "barker", "lazy-barker", "penalty" or "penalty-bit".

    Returns:
        The recipe.

    Example:
        >>> import dpmcmc
        >>> model = dpmcmc.models.logistic(1, radius=1.0)
        >>> walk_after_start(model, 9000, dpmcmc.Budget(4.0, 1e-6), "barker").words
        'barker after a private start, moves up to 0.0199'
    """
    import jax.numpy as jnp

    from dpmcmc import random_walk

    assert model.lipschitz is not None
    longest = longest_move(num_rows, model.dimension, model.lipschitz)
    query = walk_query(test, model.lipschitz, longest, budget)

    def sampler(start):
        shape = jnp.linalg.cholesky(jnp.linalg.inv(start.precision))
        move = random_walk(LENGTH / math.sqrt(model.dimension) * shape, longest)
        return _maker(test)(model.log_prior, query, move)

    return Recipe(
        sampler,
        query,
        SamplerName(test),
        f"{test} after a private start, moves up to {longest:.3g}",
        private_start(model, budget),
        start_plan(model, budget),
        warmup=0.1,
    )


def _maker(test: str) -> Any:
    from dpmcmc import accept_walk, penalty

    return penalty if test == "penalty" else accept_walk


def walk_query(
    test: str,
    clip: float,
    longest: float,
    budget: Budgets,
    noise: float | None = None,
    kappa: float = 0.5,
) -> Any:
    """The query of each step of such a walk, with moves up to the `longest`."""
    from dpmcmc import Barker, LazyBarker
    from dpmcmc.queries import Accept, LogRatio, PenaltyAccept

    if test == "barker":
        return Accept(Barker(), clip * longest)
    if test == "lazy-barker":
        return Accept(LazyBarker(kappa), clip * longest)
    if noise is None:
        noise = noise_multiplier(test, clip, longest, budget)
    return LogRatio(clip, noise) if test == "penalty" else PenaltyAccept(clip, noise, longest)


def noise_multiplier(sampler: str, clip: float, max_move: float, budget: Budgets) -> float:
    """The noise over the sensitivity with which a penalty test mixes best at the longest move.

    Args:
        sampler: "penalty", or "penalty-bit" for its accept bit.
        clip: Bound on a row's log-ratio per unit of move.
        max_move: The longest move.
        budget: The curator's budget, or a list, one of each owner.

    Returns:
        The noise multiplier.

    Raises:
        ValueError: sampler has another name.

    Example:
        >>> import dpmcmc
        >>> round(noise_multiplier("penalty", 1.0, 0.1, dpmcmc.Budget(4.0, 1e-6)), 3)
        11.9
    """
    if sampler not in ("penalty", "penalty-bit"):
        raise ValueError(
            f"sampler={sampler!r} must be 'penalty' or 'penalty-bit': no other has such noise"
        )
    return (RATIO_NOISE if sampler == "penalty" else BIT_NOISE) / sensitivity(
        clip * max_move, budget
    )


def longest_move(num_rows: int, dimension: int, lipschitz: float) -> float:
    """The longest move for rows of typical weight."""
    weights = [TYPICAL_WEIGHT * lipschitz**2 / dimension] * dimension
    return moves(weights, 0.0, num_rows).max_move


def effective_draws(sampler: str, num_steps: int, dimension: int, kappa: float = 1.0) -> float:
    """About how many independent draws the steps of a random walk are worth.

    Args:
        sampler: "barker", "lazy-barker", "penalty" or "penalty-bit".
        num_steps: The number of steps of all chains together.
        dimension: The number of parameters.
        kappa: The probability that a step of the lazy test reads the rows.

    Returns:
        The number of draws.

    Raises:
        ValueError: sampler has another name.

    Example:
        >>> round(effective_draws("barker", 1000, dimension=2))
        9
    """
    if sampler not in STEPS_PER_DRAW:
        raise ValueError(f"sampler={sampler!r} must be one of {sorted(STEPS_PER_DRAW)}")
    steps = num_steps * (kappa if sampler == "lazy-barker" else 1.0)
    return steps * _share_left_by_the_cap(dimension) / (STEPS_PER_DRAW[sampler] * dimension)


def _share_left_by_the_cap(dimension: int) -> float:
    """q = E min(X, d) / d, with X chi-squared of d degrees of freedom: a squared move in units of
    its components' variance.
    """
    from scipy import special

    half = dimension / 2
    return float(special.gammainc(half + 1, half) + special.gammaincc(half, half))
