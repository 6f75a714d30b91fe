"""Answers -> chain. Each sampler is a pair of pure functions that may only ask."""

from dpmcmc.samplers.accept import accept_walk
from dpmcmc.samplers.langevin import sgld
from dpmcmc.samplers.penalty import penalty
from dpmcmc.samplers.proposals import guided_walk, one_component, random_walk

__all__ = ["accept_walk", "guided_walk", "one_component", "penalty", "random_walk", "sgld"]
