r"""The posterior in whitened coordinates, set from public facts.

Of the budget's mu^2 small fixed shares go to the coordinates, to rough steps, to Newton steps and
to the last matrices (`Shares`). What is left goes to the last gradient: with radial noise, composed
tightly with all the rest, which is less than Gaussian noise of the same cost in every dimension.

Shares of rough steps follow from the number of rows, the dimension and the budget: a step needs
noise a bit smaller than the distance that is left before it. They were found by a search over
simulated tables, which showed that they matter little.

A run of the command line is granted in three parts (`Preview`): a count, what is released first
with a forecast of every coefficient, and the rest. The filter that lets a run stop in between
without losing the rest allows for one radial release, the last one (`accounting.filters`).
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from dpmcmc.recipes.budgets import gaussian_mu, multiplier, part_of
from dpmcmc.recipes.hope import why_hopeless
from dpmcmc.recipes.recipe import COUNT_SHARE, Recipe, SamplerName
from dpmcmc.types import Budget, Key, Model, Plan, Position

NUM_CELLS = 24  # of the histogram of lengths
CLOSING = "gaussian-then-radial"
# The error that is expected in all, err^2 = K d / (mu^2 n), in posterior standard deviations
ERROR = 12.0
NUM_ROUGH, NUM_NEWTON = 4, 3
# How far the last rough step begins from the posterior, in logits of a typical row
LAST_DISTANCE = 0.04
NOISE_OF_STEP = 1.15
LEAST_ROUGH, MOST_ROUGH = 0.0005, 0.012
POOR, POOR_NEWTON = 0.2, 0.15  # beyond this error in all, so much goes to Newton steps
MOST_OPENING = 0.089  # share of mu^2 of all that is asked first
DOUBT = 1.5  # of what noise adds to a forecast of the width, either way


class Shares(NamedTuple):
    """Shares of mu^2.

    Attributes:
        gram: For the first Gram matrix.
        again: For the second one.
        counts: For the histogram of lengths.
        newton: For all Newton steps: `POOR_NEWTON` where the steps before are poor.
        matrices: What part of a Newton step goes to its matrices.
        curvature: For the last matrices.
    """

    gram: float = 0.02
    again: float = 0.012
    counts: float = 0.005
    newton: float = 0.08
    matrices: float = 0.3
    curvature: float = 0.04


def rough_share(num_rows: int, dimension: int, mu: float) -> float:
    """The share of each rough step: the last one is to end as near as the error in all."""
    error = math.sqrt(ERROR * dimension / num_rows) / mu
    distance = LAST_DISTANCE * math.sqrt(num_rows / dimension)
    return min(max((NOISE_OF_STEP * error / distance) ** 2, LEAST_ROUGH), MOST_ROUGH)


@dataclass(frozen=True)
class Settings:
    """All queries of a run, and what they were chosen for.

    Attributes:
        public: Public facts of the model.
        asked: The queries.
        is_radial: Whether the last gradient has radial noise.
    """

    public: Any
    asked: Any
    is_radial: bool

    @property
    def opening(self) -> Plan:
        """What is asked first, about a tenth of the budget."""
        asked = self.asked
        return {asked.gram: 1, asked.again: 1, asked.counts: 1, asked.rough: asked.num_rough}

    @property
    def rest(self) -> Plan:
        """What is asked after that."""
        asked = self.asked
        number = asked.num_newton
        return {asked.newton: number, asked.matrices: number, asked.gradient: 1, asked.curvature: 1}

    def start_from(self, begun: Any, rng_key: Key, position: Position, ask: Any) -> Any:
        """What comes after an opening."""
        from dpmcmc.samplers.whitened.start import survey

        return survey(self.public, self.asked, rng_key, begun, ask)


@dataclass(frozen=True)
class Start:
    """The whole private start. Equal settings make equal ones, for which what was compiled is kept.

    Attributes:
        settings: All queries of the run.
    """

    settings: Settings

    def __call__(self, rng_key: Key, position: Position, ask: Any) -> Any:
        import jax

        from dpmcmc.samplers.whitened.start import opening, survey

        public, asked = self.settings.public, self.settings.asked
        key_opening, key_survey = jax.random.split(rng_key)
        begun = opening(public, asked, key_opening, position, ask)
        return survey(public, asked, key_survey, begun, ask)


@dataclass(frozen=True)
class Posterior:
    """The sampler of the posterior given what was released.

    Attributes:
        settings: All queries of the run.
    """

    settings: Settings

    def __call__(self, released: Any) -> Any:
        from dpmcmc.samplers.whitened.posterior import whitened_posterior

        settings = self.settings
        return whitened_posterior(settings.public.log_prior, released, settings.is_radial)


def settings(
    model: Model, rows: Any, num_rows: int, budget: Budget, shared_by: str | None, is_weighted: bool
) -> Settings:
    """The queries of a run that takes the whole of this budget."""
    from dpmcmc import queries
    from dpmcmc.accounting import calibrate, filters
    from dpmcmc.samplers.whitened.start import Asked, Public

    is_radial = shared_by in (None, CLOSING)
    whole = closing_part(budget) if shared_by == CLOSING else budget
    mu = gaussian_mu(whole)
    error = math.sqrt(ERROR * model.dimension / num_rows) / mu
    shares = Shares(newton=POOR_NEWTON) if error > POOR else Shares()
    rough = rough_share(num_rows, model.dimension, mu)
    first = shares.gram + shares.again + shares.counts + NUM_ROUGH * rough
    later = shares.newton + shares.curvature
    last = 1 - first - later
    noise = functools.partial(multiplier, whole)
    if is_radial:
        # What comes first is granted by itself where the budget is shared
        before = first * mu**2
        if shared_by == CLOSING:
            before = filters.before_closing(budget.epsilon, budget.delta)
        epsilon = calibrate.radial_epsilon(
            whole.epsilon, whole.delta, math.sqrt(before + later * mu**2), model.dimension
        )
        gradient: Any = queries.WeightedRadialGradient(epsilon, model.dimension)
        precision = epsilon**2 / (model.dimension + 1)
    else:
        gradient = queries.WeightedGradient(noise(last))
        precision = mu**2 * last
    steps = (1 - shares.matrices) * shares.newton
    asked = Asked(
        queries.Gram(noise(shares.gram)),
        queries.Gram(noise(shares.again)),
        queries.NormCounts(NUM_CELLS, noise(shares.counts)),
        queries.WeightedGradient(noise(rough)),
        queries.WeightedGradient(noise(steps / NUM_NEWTON)),
        queries.WeightedCurvature(noise(shares.matrices * shares.newton / NUM_NEWTON)),
        gradient,
        queries.WeightedCurvature(noise(shares.curvature)),
        NUM_ROUGH,
        NUM_NEWTON,
    )
    precision = precision + mu**2 * steps
    public = Public(model.log_prior, rows, budget.unit, num_rows, is_weighted, 1 / precision)
    return Settings(public, asked, is_radial)


def closing_part(budget: Budget) -> Budget:
    """The budget of a run that ends with a radial release, of one that is shared so."""
    from dpmcmc.accounting import filters

    return replace(budget, delta=(1 - filters.OTHERS) * budget.delta)


def other_part(budget: Budget) -> Budget:
    """The budget of Gaussian queries alone, of one that is shared so."""
    from dpmcmc.accounting import filters

    return replace(budget, delta=filters.OTHERS * budget.delta)


def is_whitened(model: Model) -> bool:
    """Whether a model has public tables, so that queries in changed coordinates can be asked."""
    from dpmcmc.queries import row_set

    return row_set(model) is not None


def can_close(budget: Budget, share_left: float) -> bool:
    """Whether a run that ends with a radial release still fits, after a count and a preview."""
    from dpmcmc.accounting import filters

    spent = (1 - share_left) * gaussian_mu(other_part(budget)) ** 2
    count = COUNT_SHARE * gaussian_mu(budget) ** 2
    preview = MOST_OPENING * gaussian_mu(closing_part(budget)) ** 2
    return spent + count + preview <= filters.before_closing(budget.epsilon, budget.delta)


def worth_left(curator: Any) -> float:
    """The epsilon, at the same delta, that what a curator's budget has left is worth by itself."""
    facts = curator.facts
    budget = facts.budget
    if facts.shared_by == CLOSING and not can_close(budget, facts.share_left):
        budget = other_part(budget)
    return part_of(budget, facts.share_left).epsilon


def whitened(
    model: Model,
    rows: Any,
    num_rows: int,
    budget: Budget,
    num_chains: int = 4,
    num_steps: int = 1000,
    shared_by: str | None = None,
    is_weighted: bool = True,
) -> Recipe:
    """The recipe for a model with public tables, at one owner.

    Args:
        model: The curator's model.
        rows: The public set of its rows.
        num_rows: The number of rows, or the declared capacity where it is private.
        budget: What the run takes.
        num_chains: The number of chains.
        num_steps: The number of steps of each chain. They cost nothing.
        shared_by: How the budget is shared by several grants.
        is_weighted: Whether rows that are far out may count less.

    Returns:
        A recipe whose start releases all that the posterior is made of.
    """
    found = settings(model, rows, num_rows, budget, shared_by, is_weighted)
    noise = "radial" if found.is_radial else "Gaussian"
    weights = "rows far out count less" if is_weighted else "no row counts less than another"
    opening, rest = found.opening, found.rest
    return Recipe(
        sampler=Posterior(found),
        query=None,
        name=SamplerName.noise_aware,
        words=f"noise-aware, in whitened coordinates: {NUM_ROUGH} rough steps, "
        f"{NUM_NEWTON} Newton steps, a last gradient with {noise} noise; {weights}",
        start=Start(found),
        initial=dict(Counter(opening) + Counter(rest)),
        num_chains=num_chains,
        warmup=0.1,
        num_steps=num_steps,
        preview=Preview(found),
    )


@dataclass(frozen=True)
class Preview:
    """What is released first, to be granted by itself: a run may stop after it.

    Attributes:
        settings: The queries of the whole run.

    Example:
        >>> import dpmcmc
        >>> model = dpmcmc.models.logistic(1, radius=1.0)
        >>> recipe = dpmcmc.recipes.noise_aware(model, 50_000, dpmcmc.Budget(4.0, 1e-6))
        >>> sum(recipe.preview.plan.values())
        7
    """

    settings: Settings

    @property
    def is_closing(self) -> bool:
        """Whether the rest ends with a radial release, which closes a budget that is shared so."""
        return self.settings.is_radial

    @property
    def plan(self) -> Plan:
        """What is billed."""
        return self.settings.opening

    def take(self, rng_key: Key, curator: Any, position: Position) -> Previewed:
        """Ask, with a grant of its own.

        Args:
            rng_key: The key of the random numbers.
            curator: The curator that is asked.
            position: Where rough steps begin.

        Returns:
            What is to be expected of the rest.

        Raises:
            BudgetExceeded: The budget does not cover it.
        """
        position = np.asarray(position, np.float32)
        traced = self._traced(rng_key, curator, position)
        executable = traced.compile(in_stages=True)  # what can fail comes before the grant
        grant = curator.grant(traced.plan)
        begun, widths = grant.run(executable, rng_key, position)
        named = _by_name(curator.model, np.asarray(begun.position), *map(np.asarray, widths))
        return Previewed(self.settings, begun, named, grant.statement())

    def rehearsed(self, recipe: Recipe, rng_key: Key, curator: Any, position: Position) -> Recipe:
        """The rest of a run as if zeros had been released first: to plan it. Spends nothing.

        Args:
            recipe: That of the whole run.
            rng_key: The key of the random numbers.
            curator: The curator that would be asked.
            position: Where rough steps begin.

        Returns:
            The recipe of the rest.

        Raises:
            BudgetExceeded: The budget does not cover what is released first.
        """
        import jax

        traced = self._traced(rng_key, curator, np.asarray(position, np.float32))
        curator.check(traced.plan)
        begun, _ = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), traced.shapes)
        return Previewed(self.settings, begun, {}, None).rest_of(recipe)

    def _traced(self, rng_key: Key, curator: Any, position: Position) -> Any:
        """The program that asks."""
        from dpmcmc.samplers.whitened.matrices import expected_widths
        from dpmcmc.samplers.whitened.start import opening

        settings = self.settings

        def program(ask, rng_key, position):
            begun = opening(settings.public, settings.asked, rng_key, position, ask)
            widths = expected_widths(begun.expected, begun.phi, begun.axes, begun.prior)
            return begun, widths

        return curator.trace(program, rng_key, position)


@dataclass(frozen=True, eq=False)
class Previewed:
    """What was released first, and what to expect.

    Attributes:
        settings: The queries of the whole run.
        begun: What was released.
        widenings: How many times as wide as without privacy each parameter is expected to be.
        statement: What is promised about it.

    Example:
        >>> found = Previewed(None, None, {"age": 1.1, "education": 1.0}, None)
        >>> print(found)
        age 1.05 to 1.21, education 1.00 to 1.00
        >>> found.is_hopeless
        False
    """

    settings: Any
    begun: Any
    widenings: dict[str, float]
    statement: Any

    @property
    def widest(self) -> float:
        """The largest of all parameters."""
        return max(self.widenings.values())

    @property
    def worst(self) -> str:
        """The name of that one."""
        return max(self.widenings, key=lambda name: self.widenings[name])

    @property
    def is_hopeless(self) -> bool:
        """Whether the rest of the budget buys too little."""
        return why_hopeless(widening=self.widest) is not None

    def rest_of(self, recipe: Recipe) -> Recipe:
        """The recipe for what is left.

        Args:
            recipe: That of the whole run.

        Returns:
            The recipe of a run that goes on from here.
        """
        start = functools.partial(self.settings.start_from, self.begun)
        return replace(recipe, start=start, initial=self.settings.rest, preview=None)

    def __str__(self) -> str:
        """Each parameter's widening as a range: in nine of ten runs what is measured is within."""
        return ", ".join(f"{name} {interval(each)}" for name, each in self.widenings.items())


def interval(widening: float) -> str:
    """The range that nine of ten measured widenings are in, in words."""
    low, high = (math.hypot(1, math.sqrt(widening**2 - 1) * part) for part in (1 / DOUBT, DOUBT))
    return f"{low:.2f} to {high:.2f}"


def _by_name(model: Model, position: Any, total: Any, rows: Any) -> dict[str, float]:
    """The widening of each parameter, for a covariance of the position with noise and without."""
    import jax
    import jax.numpy as jnp

    names: list[str] = []

    def flat(position):
        names.clear()
        parts = model.unravel(position)
        for name, part in parts.items():
            size = jnp.size(part)
            names.extend([name] if size == 1 else [f"{name}[{index}]" for index in range(size)])
        return jnp.concatenate([jnp.ravel(part) for part in parts.values()])

    with jax.enable_x64(True):
        change = np.asarray(jax.jit(jax.jacfwd(flat))(np.asarray(position, float)), float)
    spread, without = (np.einsum("ij,jk,ik->i", change, each, change) for each in (total, rows))
    return dict(zip(names, np.sqrt(spread / np.maximum(without, 1e-300)).tolist(), strict=True))
