"""What to run: a sampler, its private start, what both release, and the options of a run."""

from __future__ import annotations

import enum
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from dpmcmc.types import Plan

COUNT_SHARE = 0.01  # of mu^2, for a count of the rows that can be used


class SamplerName(enum.StrEnum):
    """The samplers that have a recipe."""

    noise_aware = "noise-aware"
    sgld = "sgld"
    barker = "barker"
    lazy_barker = "lazy-barker"
    penalty = "penalty"
    penalty_bit = "penalty-bit"


@dataclass(frozen=True)
class Recipe:
    """What to hand to `sample`.

    Example:
        >>> import dpmcmc
        >>> model = dpmcmc.models.logistic(1, radius=1.0)
        >>> recipe = dpmcmc.recipes.langevin(model, 50_000, dpmcmc.Budget(4.0, 1e-6))
        >>> sorted(recipe.options)
        ['num_chains', 'start', 'thin', 'warmup']

        ``sample(rng_key, recipe.sampler, curator, position, **recipe.options)`` runs it.
    """

    sampler: Any  # with a start: a function of what the start has found
    query: Any  # what the sampler asks in each step; None if that is nothing
    name: SamplerName
    words: str  # the settings, for people
    start: Any = None
    initial: Plan = field(default_factory=dict)  # what the start asks
    num_chains: int = 2
    thin: int = 1
    warmup: float = 0.5
    num_steps: int | None = None  # where they cost nothing; else all that the budget allows
    part: float = 1.0  # of the budget, that the run takes
    counting: Any = None  # a count of rows that comes before all else
    no_count: str = "only noise-aware takes one"  # why there is none

    @property
    def options(self) -> dict[str, Any]:
        """Everything that `sample` takes by keyword."""
        found = {
            "start": self.start,
            "num_chains": self.num_chains,
            "thin": self.thin,
            "warmup": self.warmup,
        }
        return found if self.num_steps is None else found | {"num_steps": self.num_steps}

    @property
    def continued(self) -> Any:
        """The sampler by itself, for a further run from where another has ended: that one has paid
        for the start.
        """
        return self.sampler(None)

    @property
    def share(self) -> float:
        """The part of the budget that is left for the sampler."""
        return self.part * (1 if self.counting is None else 1 - COUNT_SHARE)

    @property
    def once(self) -> dict[Any, int]:
        """All that is asked once, the count included."""
        return {**self.initial, **({} if self.counting is None else self.counting.plan)}

    def per_step(self, num_chains: int) -> dict[Any, int]:
        """What a step of all chains asks."""
        return {} if self.query is None else {self.query: num_chains}

    def plan(self, num_steps: int, num_chains: int) -> dict[Any, int]:
        """All that so many steps ask, the start and the count included."""
        total = Counter(self.once)
        for query, count in self.per_step(num_chains).items():
            total[query] += num_steps * count
        return dict(total)


def clip_words(is_proved: bool) -> str:
    """Whether a clip shortens anything, for people."""
    if is_proved:
        return "proved: no row reaches it"
    return "rows beyond it are clipped, with a bias"
