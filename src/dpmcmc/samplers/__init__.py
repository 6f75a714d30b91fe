"""Answers -> chain. Each sampler is a pair of pure functions that may only ask."""

from dpmcmc.samplers.accept import accept_walk
from dpmcmc.samplers.exponential import exponential_penalty
from dpmcmc.samplers.hmc import hmc
from dpmcmc.samplers.langevin import sgld
from dpmcmc.samplers.penalty import penalty
from dpmcmc.samplers.proposals import guided_walk, one_component, random_walk
from dpmcmc.samplers.start import newton_start
from dpmcmc.samplers.surveys import noise_aware, survey
from dpmcmc.samplers.thermostat import sgnht

__all__ = [
    "accept_walk",
    "exponential_penalty",
    "guided_walk",
    "hmc",
    "newton_start",
    "noise_aware",
    "one_component",
    "penalty",
    "random_walk",
    "sgld",
    "sgnht",
    "survey",
]
