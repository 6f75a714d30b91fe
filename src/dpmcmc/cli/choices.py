"""Which sampler `dpmcmc run` takes, with which settings, and what may be hoped for: from public
facts.
"""

from __future__ import annotations

import enum
import math
import warnings
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from dpmcmc.cli.problems import Problem

FEW_AT_WORST = 25  # draws of the worst parameter, as far as these can be told


class SamplerName(enum.StrEnum):
    noise_aware = "noise-aware"
    sgld = "sgld"
    barker = "barker"
    lazy_barker = "lazy-barker"
    penalty = "penalty"
    penalty_bit = "penalty-bit"


class Chosen(NamedTuple):
    """A sampler, the query it asks, what to say about it, and how to run it."""

    sampler: Any
    query: Any
    name: SamplerName
    words: str
    start: Any = None
    initial: Mapping[Any, int] = MappingProxyType({})  # what the start asks
    thin: int = 1
    warmup: float = 0.5
    num_steps: int | None = None  # where they cost nothing; else all that the budget allows
    part: float = 1.0  # of the budget, that the run takes
    counting: Any = None  # a count of rows that comes before all else
    no_count: str = "only noise-aware takes one"  # why there is none

    @property
    def share(self) -> float:
        """The part of the budget that is left for the sampler."""
        from dpmcmc import counting

        return self.part * (1 if self.counting is None else 1 - counting.SHARE)

    @property
    def once(self) -> dict[Any, int]:
        """All that is asked once, the count included."""
        return {**self.initial, **({} if self.counting is None else self.counting.plan)}

    def per_step(self, chains: int) -> dict[Any, int]:
        """What a step of all chains asks."""
        return {} if self.query is None else {self.query: chains}


class ByHand(NamedTuple):
    """Settings that may be typed; public facts say the others."""

    clip: float | None
    step_size: float | None
    max_move: float | None
    noise_multiplier: float | None

    @property
    def given(self) -> list[str]:
        """The options that were typed."""
        return [
            f"--{name.replace('_', '-')}"
            for name, value in self._asdict().items()
            if value is not None
        ]


def name_of(
    name: SamplerName | None, problem: Problem, by_hand: ByHand, is_shared: bool
) -> SamplerName:
    """The sampler of this name, or else the one that gets furthest."""
    has_bounds = problem.model.lipschitz is not None and problem.model.curvature is not None
    if name is not None or not has_bounds or by_hand.given:
        return name or SamplerName.barker
    # Which asks nothing by the step
    return SamplerName.sgld if is_shared else SamplerName.noise_aware


def choose(
    name: SamplerName,
    is_named: bool,
    problem: Problem,
    curator: Any,
    chains: int,
    by_hand: ByHand,
    kappa: float,
    part: float = 1.0,
    is_counted: bool = False,
) -> Chosen:
    """The settings of the sampler. One that nobody has named is refused where it is hopeless."""
    if name is SamplerName.noise_aware:
        chosen = noise_aware(problem, curator, chains, by_hand, part, is_counted)
    elif name is SamplerName.sgld:
        chosen = langevin(problem, curator, chains, by_hand)
    else:
        chosen = walk(name, problem, curator, by_hand, kappa)
    if not is_named and not by_hand.given:
        check_hope(curator, chosen, problem, chains, kappa)
    return chosen


def noise_aware(
    problem, curator, chains: int, by_hand: ByHand, part: float, is_counted: bool
) -> Chosen:
    """The posterior given a noisy survey, after a count of the rows that can be used."""
    from dpmcmc import counting, tuning

    _check_nothing_given(by_hand, SamplerName.noise_aware)
    count = counting.counting_for(curator, counting.SHARE * part)
    no_count = "" if is_counted else "--no-count"
    if not no_count and not count.is_decisive:
        no_count = f"a hundredth of the budget adds a noise of +-{count.deviation:.0f}, too much for so few rows"
    chosen = Chosen(
        None,
        None,
        SamplerName.noise_aware,
        "",
        part=part,
        counting=None if no_count else count,
        no_count=no_count,
    )
    # What there is to hope for the plan tells, and better
    with warnings.catch_warnings(action="ignore"):
        recipe = tuning.noise_aware_for(curator, max(1, chains), share=chosen.share)
    looks = sum(recipe.initial.values())
    bounds = sorted({getattr(query, "clip", 0.0) for query in recipe.initial})
    words = (
        f"noise-aware: {looks} noisy looks at slopes and curvatures, clips "
        f"{' and '.join(f'{bound:.4g}' for bound in bounds)} "
        "(proved: no row reaches them)"
    )
    return chosen._replace(
        sampler=recipe.sampler,
        words=words,
        start=recipe.start,
        initial=recipe.initial,
        thin=recipe.thin,
        warmup=recipe.warmup,
        num_steps=recipe.num_steps,
    )


def expected_widening(problem, curator, share: float) -> float:
    """How much wider than without privacy the posterior will be, roughly; of the worst parameter
    where that can be told.
    """
    from dpmcmc import forecast, tuning

    if problem.is_measured:
        return forecast.expected_widening(
            curator.capacity, problem.model.dimension, tuning.part_of(curator.budget, share)
        )
    chosen = langevin(problem, curator, 1, ByHand(None, None, None, None))
    return tuning.widening_for(share * most_draws(curator, chosen, problem, 1, 1.0))


def _check_nothing_given(by_hand: ByHand, name: SamplerName) -> None:
    if by_hand.given:
        raise ValueError(
            f"{', '.join(by_hand.given)}: {name.value} takes these from public facts; leave them "
            "out, or choose another --sampler"
        )


def langevin(problem, curator, chains: int, by_hand: ByHand) -> Chosen:
    """Langevin dynamics after a private start."""
    from dpmcmc import tuning

    _check_nothing_given(by_hand, SamplerName.sgld)
    stiffness = tuning.ATTAINED if problem.is_exact else tuning.STIFFNESS
    # What there is to hope for the plan tells, and better
    with warnings.catch_warnings(action="ignore"):
        recipe = tuning.langevin_for(curator, max(1, chains), stiffness)
    words = (
        "sgld after a private start, step size "
        f"{tuning.step_size(recipe.query, curator.budget):.3g}, clip {recipe.query.clip:.4g} "
        f"(proved: no row reaches it), noise multiplier {recipe.query.noise_multiplier:g}"
    )
    name = SamplerName.sgld
    return Chosen(
        recipe.sampler,
        recipe.query,
        name,
        words,
        recipe.start,
        recipe.initial,
        recipe.thin,
        recipe.warmup,
    )


def walk(name: SamplerName, problem, curator, by_hand: ByHand, kappa: float) -> Chosen:
    """A random walk with a test, its settings from public facts where they are not given."""
    import dpmcmc
    from dpmcmc import tuning

    model = problem.model
    proved = problem.model.lipschitz
    clip = by_hand.clip
    if clip is None and proved is None:
        raise ValueError(
            "this model has no proved bound: choose --clip, the most that a row's log-ratio may be "
            "per unit of move"
        )
    bound = proved if clip is None else clip
    walk = tuning.walk(
        problem.information, problem.prior_precision, curator.capacity, by_hand.step_size
    )
    longest = walk.max_move if by_hand.max_move is None else by_hand.max_move
    proposal = dpmcmc.random_walk(walk.scale, longest)
    is_proved = (
        "proved: no row reaches it"
        if proved is not None and bound >= proved
        else "rows beyond it are clipped, with a bias"
    )
    words = f"{name.value}, moves up to {longest:.3g}, clip {bound:.4g} ({is_proved})"
    if name in (SamplerName.barker, SamplerName.lazy_barker):
        test = dpmcmc.Barker() if name is SamplerName.barker else dpmcmc.LazyBarker(kappa)
        query: Any = dpmcmc.Accept(test, bound * longest)
        return Chosen(dpmcmc.accept_walk(model.log_prior, query, proposal), query, name, words)
    noise = by_hand.noise_multiplier
    if noise is None:
        noise = tuning.noise_multiplier(name.value, bound, longest, curator.budget)
    words += f", noise multiplier {noise:.4g}"
    if name is SamplerName.penalty:
        query = dpmcmc.LogRatio(bound, noise)
        return Chosen(dpmcmc.penalty(model.log_prior, query, proposal), query, name, words)
    query = dpmcmc.PenaltyAccept(bound, noise, longest)
    return Chosen(dpmcmc.accept_walk(model.log_prior, query, proposal), query, name, words)


def check_hope(curator: Any, chosen: Chosen, problem: Problem, chains: int, kappa: float) -> None:
    """Refuse to spend a budget that would buy next to nothing."""
    from dpmcmc import forecast, tuning

    rows = curator.capacity
    budget = curator.budget
    dimension = problem.model.dimension
    if chosen.query is None:
        widening = expected_widening(problem, curator, chosen.share)
        how_wide = (
            f"some {widening:.2g} times as wide as without privacy"
            if widening < math.inf
            else "that is the prior"
        )
        found = f"a posterior {how_wide}" if widening > tuning.MAX_WIDENING else None
    else:
        draws = most_draws(curator, chosen, problem, chains, kappa)
        error = (
            f"off by about {draws**-0.5:.1f} posterior standard deviations"
            if draws > 0
            else "of nothing but noise"
        )
        found = f"posterior means {error}" if draws <= forecast.HOPELESS**-2 else None
    if found is None:
        return
    way_out = "More rows, a larger budget or narrower bounds would help"
    if chosen.start is not None and problem.is_measured:
        way_out = (
            "For means within half a standard deviation you would need "
            f"{forecast.needed_text('sgld', rows, dimension, budget)}"
        )
    raise ValueError(
        f"hopeless: with {rows} rows and {dimension} parameters epsilon = {budget.epsilon:g} gives "
        f"{found}. "
        f"{way_out}. To spend the budget all the same, name the --sampler"
    )


def draws_worth(
    curator: Any, chosen: Chosen, problem: Problem, num_steps: int, kappa: float
) -> float:
    """About how many independent draws so many steps of all chains are worth: on average, or for
    the worst parameter if known.
    """
    from dpmcmc import forecast, tuning

    if chosen.name is not SamplerName.sgld:
        return tuning.effective_draws(chosen.name.value, num_steps, problem.model.dimension, kappa)
    rows = curator.capacity
    budget = curator.budget
    query = chosen.query
    if not problem.is_measured:
        return (
            num_steps
            * tuning.step_size(query, budget)
            * min(rows * problem.information + problem.prior_precision)
            / 4
        )
    draws = forecast.forecast_error("sgld", rows, problem.model.dimension, budget) ** -2
    return draws * num_steps / max(1, tuning.langevin_steps(query.noise_multiplier, budget))


def most_draws(curator: Any, chosen: Chosen, problem: Problem, chains: int, kappa: float) -> float:
    """The same for all steps that the budget is worth."""
    from dpmcmc import tuning

    if chosen.name is SamplerName.sgld:
        num_steps = tuning.langevin_steps(chosen.query.noise_multiplier, curator.budget)
    else:
        num_steps = chains * curator.max_steps(chosen.initial, {chosen.query: max(1, chains)})
    return draws_worth(curator, chosen, problem, num_steps, kappa)


def is_few(draws: float, chosen: Chosen, problem: Problem) -> bool:
    """Whether one should not expect much of so many independent draws."""
    from dpmcmc import forecast

    return draws < (FEW_AT_WORST if is_worst(chosen, problem) else forecast.FEW)


def is_worst(chosen: Chosen, problem: Problem) -> bool:
    """Whether `draws_worth` is about the worst parameter, and not an average."""
    return chosen.name is SamplerName.sgld and not problem.is_measured
