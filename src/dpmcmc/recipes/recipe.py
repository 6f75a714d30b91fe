"""A recipe: a sampler, its private start, what both release, and the options of a run."""

from __future__ import annotations

import enum
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from dpmcmc.types import Plan

COUNT_SHARE = 0.01  # of mu^2, for a count of the rows that can be used


class SamplerName(enum.StrEnum):
    """The samplers that have a recipe, by the names of the command line.

    Attributes:
        noise_aware: The posterior given a noisy survey.
        sgld: Langevin dynamics.
        barker: A random walk with Barker's test.
        lazy_barker: The same with a secret coin that ignores the rows in some steps.
        penalty: A random walk with the penalty test on a noisy ratio.
        penalty_bit: A random walk with the accept bit of the penalty test.
        guided: The penalty test on a walk that keeps its direction.
        hmc: Hamiltonian Monte Carlo on noisy gradients, with a test.
        sgnht: A thermostat on noisy gradients.
        minibatch_barker: A random walk with Barker's test on random batches.
        exponential_penalty: The penalty test on a noisy sufficient statistic.

    Example:
        >>> SamplerName("noise-aware").name
        'noise_aware'
    """

    noise_aware = "noise-aware"
    sgld = "sgld"
    barker = "barker"
    lazy_barker = "lazy-barker"
    penalty = "penalty"
    penalty_bit = "penalty-bit"
    guided = "guided"
    hmc = "hmc"
    sgnht = "sgnht"
    minibatch_barker = "minibatch-barker"
    exponential_penalty = "exponential-penalty"


@dataclass(frozen=True)
class Recipe:
    """What to give to `sample`.

    Attributes:
        sampler: The sampler; if there is a start, a function from its result to the sampler.
        query: What the sampler asks in each step; None if it asks nothing.
        name: Which sampler it is.
        words: The settings, for people.
        start: The private start, or None.
        initial: The plan of queries of the start.
        num_chains: The number of chains.
        thin: Every so many steps a draw is kept.
        warmup: The share of the draws that is dropped at the beginning.
        num_steps: The number of steps of each chain; None for as many as the budget allows.
        part: The part of the budget that the run takes.
        counting: A count of rows that comes before everything else, or None.
        preview: What is released first, with a forecast, or None: a run may stop after it.
        no_count: Why there is no count, in words; empty if there is one.
        is_closing: Whether the start ends with a release that closes a budget shared so.
        besides: What a step of one chain asks besides `query`, and how often.
        expected: What to expect by simulation (`recipes.simulated`), or None.

    Example:
        >>> import dpmcmc
        >>> model = dpmcmc.models.logistic(1, radius=1.0)
        >>> recipe = dpmcmc.recipes.langevin(model, 50_000, dpmcmc.Budget(4.0, 1e-6))
        >>> sorted(recipe.options)
        ['num_chains', 'start', 'thin', 'warmup']

        ``sample(rng_key, recipe.sampler, curator, position, **recipe.options)`` runs it.
    """

    sampler: Any
    query: Any
    name: SamplerName
    words: str
    start: Any = None
    initial: Plan = field(default_factory=dict)
    num_chains: int = 2
    thin: int = 1
    warmup: float = 0.5
    num_steps: int | None = None
    part: float = 1.0
    counting: Any = None
    preview: Any = None
    no_count: str = "only noise-aware takes one"
    is_closing: bool = False
    besides: Plan = field(default_factory=dict)
    expected: Any = None

    @property
    def options(self) -> dict[str, Any]:
        """The arguments that `sample` takes by keyword."""
        found = {
            "start": self.start,
            "num_chains": self.num_chains,
            "thin": self.thin,
            "warmup": self.warmup,
        }
        return found if self.num_steps is None else found | {"num_steps": self.num_steps}

    @property
    def continued(self) -> Any:
        """The sampler without the start, for a run that goes on from the end of another: the start
        is paid for.
        """
        return self.sampler(None)

    @property
    def share(self) -> float:
        """The part of the budget that is left for the sampler."""
        return self.part * (1 if self.counting is None else 1 - COUNT_SHARE)

    @property
    def once(self) -> dict[Any, int]:
        """All queries that are asked once, and how often: the count included, but nothing that is
        granted before a release that closes the budget.
        """
        if self.preview is not None and self.preview.is_closing:
            return dict(self.preview.settings.rest)
        if self.is_closing:
            return dict(self.initial)
        return {**self.initial, **({} if self.counting is None else self.counting.plan)}

    def per_step(self, num_chains: int) -> dict[Any, int]:
        """The plan of queries of one step of all chains."""
        asked = {} if self.query is None else {self.query: 1}
        return {query: num_chains * count for query, count in {**asked, **self.besides}.items()}

    def plan(self, num_steps: int, num_chains: int) -> dict[Any, int]:
        """The plan of queries of a whole run, the start and the count included."""
        total = Counter(self.once)
        for query, count in self.per_step(num_chains).items():
            total[query] += num_steps * count
        return dict(total)


def clip_words(is_proved: bool) -> str:
    """Whether a clip shortens anything, in words."""
    if is_proved:
        return "proved: no row reaches it"
    return "rows beyond it are clipped, with a bias"
