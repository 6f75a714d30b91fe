"""Differentially private Markov chain Monte Carlo that people can use.

The names below are the public interface. They are loaded when first used: importing JAX takes over
a second, and the privacy calculator does without it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_NAMES = {  # by the module that they are from
    "acceptance": ("Barker", "LazyBarker", "Metropolis", "Penalty"),
    "curator.owner": ("Curator",),
    "curator.facts": ("Facts",),
    "curator.federation": ("Federation",),
    "errors": (
        "BudgetExceeded",
        "PrivacyRefusal",
        "RunFailed",
        "UnboundedQueries",
        "UnsupportedQuery",
    ),
    "finding": ("Finding", "Severity"),
    "run.plan": ("Plan", "plan", "sample"),
    "run.record": ("Record",),
    "results.arviz": ("findings", "statement_of"),
    "results.files": ("load", "save"),
    "results.summary": ("summary",),
    "results.report": ("report",),
    "samplers.accept": ("accept_walk",),
    "samplers.exponential": ("exponential_penalty",),
    "samplers.hmc": ("hmc",),
    "samplers.langevin": ("sgld",),
    "samplers.penalty": ("penalty",),
    "samplers.proposals": (
        "Proposal",
        "guided_walk",
        "langevin_walk",
        "one_component",
        "random_walk",
    ),
    "samplers.start": ("newton_start",),
    "samplers.surveys": ("noise_aware", "survey"),
    "samplers.thermostat": ("sgnht",),
    "types": (
        "Answer",
        "Budget",
        "Family",
        "Kinds",
        "Linear",
        "Model",
        "Neighbours",
        "Sampler",
        "Unit",
    ),
}
_HOMES = {name: f"dpmcmc.{module}" for module, names in _NAMES.items() for name in names}
_MODULES = ("audit", "models", "queries", "recipes", "tables", "testing")

__all__ = sorted([*_HOMES, *_MODULES])

if TYPE_CHECKING:
    from dpmcmc import audit as audit
    from dpmcmc import models as models
    from dpmcmc import queries as queries
    from dpmcmc import recipes as recipes
    from dpmcmc import tables as tables
    from dpmcmc import testing as testing
    from dpmcmc.acceptance import Barker as Barker
    from dpmcmc.acceptance import LazyBarker as LazyBarker
    from dpmcmc.acceptance import Metropolis as Metropolis
    from dpmcmc.acceptance import Penalty as Penalty
    from dpmcmc.curator.facts import Facts as Facts
    from dpmcmc.curator.federation import Federation as Federation
    from dpmcmc.curator.owner import Curator as Curator
    from dpmcmc.errors import BudgetExceeded as BudgetExceeded
    from dpmcmc.errors import PrivacyRefusal as PrivacyRefusal
    from dpmcmc.errors import RunFailed as RunFailed
    from dpmcmc.errors import UnboundedQueries as UnboundedQueries
    from dpmcmc.errors import UnsupportedQuery as UnsupportedQuery
    from dpmcmc.finding import Finding as Finding
    from dpmcmc.finding import Severity as Severity
    from dpmcmc.results.arviz import findings as findings
    from dpmcmc.results.arviz import statement_of as statement_of
    from dpmcmc.results.files import load as load
    from dpmcmc.results.files import save as save
    from dpmcmc.results.report import report as report
    from dpmcmc.results.summary import summary as summary
    from dpmcmc.run.plan import Plan as Plan
    from dpmcmc.run.plan import plan as plan
    from dpmcmc.run.plan import sample as sample
    from dpmcmc.run.record import Record as Record
    from dpmcmc.samplers.accept import accept_walk as accept_walk
    from dpmcmc.samplers.exponential import exponential_penalty as exponential_penalty
    from dpmcmc.samplers.hmc import hmc as hmc
    from dpmcmc.samplers.langevin import sgld as sgld
    from dpmcmc.samplers.penalty import penalty as penalty
    from dpmcmc.samplers.proposals import Proposal as Proposal
    from dpmcmc.samplers.proposals import guided_walk as guided_walk
    from dpmcmc.samplers.proposals import langevin_walk as langevin_walk
    from dpmcmc.samplers.proposals import one_component as one_component
    from dpmcmc.samplers.proposals import random_walk as random_walk
    from dpmcmc.samplers.start import newton_start as newton_start
    from dpmcmc.samplers.surveys import noise_aware as noise_aware
    from dpmcmc.samplers.surveys import survey as survey
    from dpmcmc.samplers.thermostat import sgnht as sgnht
    from dpmcmc.types import Answer as Answer
    from dpmcmc.types import Budget as Budget
    from dpmcmc.types import Family as Family
    from dpmcmc.types import Kinds as Kinds
    from dpmcmc.types import Linear as Linear
    from dpmcmc.types import Model as Model
    from dpmcmc.types import Neighbours as Neighbours
    from dpmcmc.types import Sampler as Sampler
    from dpmcmc.types import Unit as Unit


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"dpmcmc.{name}")
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'dpmcmc' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
