"""Arguments of a sampler in the wrong order are refused when it is made, not deep in a trace."""

from __future__ import annotations

from typing import Any

from dpmcmc.samplers.proposals import Proposal
from dpmcmc.types import Model


def check_prior(log_prior: Any) -> None:
    if isinstance(log_prior, Model) or not callable(log_prior):
        way_out = (
            "give model.log_prior"
            if isinstance(log_prior, Model)
            else "it must be a function of the position"
        )
        raise TypeError(f"log_prior is a {type(log_prior).__name__}: {way_out}")


def check_model(model: Any) -> None:
    if not isinstance(model, Model):
        raise TypeError(
            f"model is a {type(model).__name__}: this sampler needs the whole Model, for its family"
        )


def check_proposal(proposal: Any) -> None:
    if not isinstance(proposal, Proposal):
        raise TypeError(
            f"proposal is a {type(proposal).__name__}: it comes last, after the query, and is "
            "random_walk(scale) "
            "or another Proposal"
        )
