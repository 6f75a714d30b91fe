"""A run as a value, before anything is spent: traced, billed on paper, and checked.

`plan` makes it, `Plan.run` has it granted and runs it, and `sample` does both.
"""

from __future__ import annotations

import functools
import numbers
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import jax
import numpy as np

from dpmcmc import diagnostics
from dpmcmc.accounting.statement import FederatedStatement, Statement
from dpmcmc.checks import whole
from dpmcmc.curator.programs.interpreter import total_plan
from dpmcmc.errors import BudgetExceeded, PrivacyRefusal
from dpmcmc.finding import Finding, in_words, unless_it_fails
from dpmcmc.results import arviz, files
from dpmcmc.run import arguments, execute
from dpmcmc.run.programs import Begin, Block
from dpmcmc.run.record import Record
from dpmcmc.types import Ask, Key, Position, Sampler
from dpmcmc.types import Plan as Queries

# About this many blocks, so that progress is shown often and an interrupt costs few draws
NUM_BLOCKS = 20


@dataclass(frozen=True)
class Settings:
    """How long a run is, where it begins, and where its draws go.

    Attributes:
        num_steps: Steps per chain; None takes as many as the budget allows.
        num_chains: How many chains.
        thin: Keep every thin-th step.
        warmup: The share of the draws, from the first on, that is kept apart as warm-up.
        start: A private start, or None.
        path: A new NetCDF file, or None.
        attributes: Texts to keep with the posterior.
        units: The units of parameters, by name.
    """

    num_steps: int | None = None
    num_chains: int = 4
    thin: int = 1
    warmup: float = 0.5
    start: Callable[[Key, Position, Ask], Any] | None = None
    path: str | Path | None = None
    attributes: Mapping[str, str] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Plan:
    """A run that has been traced, whose bill has been made and checked.

    Nothing is compiled, and nothing is spent. A plan may be run again: each run is billed.

    Attributes:
        curator: Who holds the rows.
        settings: The options of the run.
        keys: The random key of each chain.
        positions: Where each chain starts.
        begin: The traced start.
        blocks: The traced blocks, by their number of steps.
        sizes: The numbers of steps of all blocks, in their order.
        queries: How often each query is asked in the whole run.
        asked: The queries of one step, or of the start if a step asks none: the law of the draws
            depends on these.
        bill: What each query costs: a tuple of entries, or for several owners a dict by name.
        findings: Findings about the settings and the model.
        limits: What the draws will be compared with.

    Example:
        >>> import dpmcmc
        >>> planned = dpmcmc.plan(key, recipe, curator, num_steps=20)
        >>> round(planned.epsilon, 4), planned.num_steps
        (0.2605, 20)
    """

    curator: Any
    settings: Settings
    keys: Any
    positions: Any
    begin: Any
    blocks: Mapping[int, Any]
    sizes: list[int]
    queries: Queries
    asked: Queries
    bill: Any
    findings: list[Finding]
    limits: diagnostics.Limits

    @property
    def num_steps(self) -> int:
        """Steps of each chain."""
        return sum(self.sizes)

    @functools.cached_property
    def statement(self) -> Statement | FederatedStatement:
        """The privacy statement that the run would have."""
        return self.curator.expected_statement(self.queries)

    @property
    def epsilon(self) -> float:
        """The epsilon of the statement; of several owners the largest."""
        return self.statement.facts()["epsilon"]

    def to_json(self) -> dict[str, Any]:
        """The length of the run, its statement and its findings, as JSON.

        Returns:
            A dict of texts, numbers, lists and dicts.

        Example:
            >>> import dpmcmc
            >>> dpmcmc.plan(key, recipe, curator, num_steps=20).to_json()["num_chains"]
            2
        """
        return {
            "num_steps": self.num_steps,
            "num_chains": len(self.keys),
            "thin": self.settings.thin,
            "warmup": self.settings.warmup,
            "statement": self.statement.to_json(),
            "findings": [finding.to_json() for finding in self.findings],
        }

    def __str__(self) -> str:
        length = f"{self.num_steps} steps of {len(self.keys)} chains: nothing is spent yet"
        parts = [length, in_words(self.findings), str(self.statement)]
        return "\n\n".join(part for part in parts if part)

    def run(
        self,
        *,
        progress: bool | Literal["bar"] = True,
        checks: Callable[[Any], list[Finding]] | None = None,
    ) -> Record:
        """Have the plan granted, which spends its bill, and run it.

        The curator checks the plan once more, under a lock: another run may have used the budget in
        the meantime.

        Args:
            progress: True shows the progress, and each finding as it is made, on standard error.
                "bar" shows the progress only. False shows neither: findings then go to the log.
            checks: A function from the ArviZ result to further findings about it.

        Returns:
            The record, with draws, released statistics, statement and findings.

        Raises:
            BudgetExceeded: The plan costs more than is left of the budget by now.
            RunFailed: The run ended with an error after it was paid for; `.posterior` has its
                draws.

        Example:
            >>> import dpmcmc
            >>> planned = dpmcmc.plan(key, recipe, curator, num_steps=20)
            >>> record = planned.run(progress=False)
            >>> record.num_draws
            20
        """
        arguments.check_output(progress, checks)
        return execute.run(self, progress, checks)


def plan(
    rng_key: Key,
    sampler: Any,
    curator: Any,
    initial_position: Position | None = None,
    **options: Any,
) -> Plan:
    """Trace a run, make its bill, and check it against the budget. Nothing is spent.

    Args:
        rng_key: The public key of the chains, from `jax.random.key`.
        sampler: A `Sampler`, a function of what `start` returns, or a recipe, whose options are
            used unless they are given here.
        curator: Who holds the rows: a `Curator`, or a `Federation` of several.
        initial_position: Where the chains start; None is 0. A public choice.
        **options: Any of num_steps, num_chains, thin, warmup, start, path, attributes and units, as
            `sample` takes them.

    Returns:
        The plan, with `bill`, `epsilon`, `findings`, `statement` and the method `run`.

    Raises:
        BudgetExceeded: The run costs more than is left of the budget.

    Example:
        >>> import dpmcmc
        >>> planned = dpmcmc.plan(key, recipe, curator, num_steps=20)
        >>> print(str(planned).splitlines()[0])
        20 steps of 2 chains: nothing is spent yet
    """
    if hasattr(sampler, "sampler") and hasattr(sampler, "options"):
        options = {**sampler.options, **options}
        sampler = sampler.sampler
    if initial_position is None and hasattr(curator, "model"):
        initial_position = np.zeros(curator.model.dimension, np.float32)
    return _planned(rng_key, sampler, curator, initial_position, Settings(**options))


def sample(
    rng_key: Key,
    sampler: Sampler | Callable[[Any], Sampler],
    curator: Any,
    initial_position: Position,
    *,
    num_steps: int | None = None,
    num_chains: int = 4,
    thin: int = 1,
    warmup: float = 0.5,
    progress: bool | Literal["bar"] = True,
    start: Callable[[Key, Position, Ask], Any] | None = None,
    path: str | Path | None = None,
    attributes: Mapping[str, str] = MappingProxyType({}),
    units: Mapping[str, str] = MappingProxyType({}),
    checks: Callable[[Any], list[Finding]] | None = None,
) -> Any:
    """Draw from the posterior, within the curator's budget.

    This is `plan`, `Plan.run` and `Record.to_arviz` in one call.

    Args:
        rng_key: The public key of the chains, from `jax.random.key`. The privacy noise never comes
            from it.
        sampler: A `Sampler`, or a function of what `start` returns.
        curator: Who holds the rows: a `Curator`, or a `Federation` of several.
        initial_position: Where the chains start: shape (d,) for all, or (num_chains, d). A public
            choice, not computed from the rows.
        num_steps: Steps per chain; None takes as many as the budget allows.
        num_chains: How many chains; they share the budget.
        thin: Keep every thin-th step.
        warmup: The share of the draws, from the first on, that is kept apart as warm-up.
        progress: True shows the progress, and each finding as it is made, on standard error. "bar"
            shows the progress only. False shows neither: findings then go to the log. `findings`
            reads them from the result.
        start: A private start, such as `newton_start`, run once from `initial_position` for all
            chains and billed with the run. Chains begin at its `position`; `sampler` may then be a
            function of what it returns: ``lambda start: hmc(..., start.precision)``.
        path: A new NetCDF file, written repeatedly during the run, so that few draws are missing if
            the process is killed.
        attributes: Texts to keep with the posterior, as its attributes: "plan" is shown by
            `report`.
        units: The units of parameters, by name, for the readers of the posterior.
        checks: A function from the result to further findings about it, which are kept with the
            others.

    Returns:
        An ArviZ InferenceData with its privacy statement.

    Raises:
        BudgetExceeded: The run costs more than is left of the budget; nothing is spent.
        RunFailed: The run ended with an error after it was paid for; `.posterior` has its draws.

    Example:
        >>> import dpmcmc
        >>> posterior = dpmcmc.sample(
        ...     key, recipe.sampler, curator, [0.0], num_steps=20, num_chains=2, progress=False
        ... )
        >>> dict(posterior.posterior.sizes)
        {'chain': 2, 'draw': 10}
    """
    arguments.check_output(progress, checks)
    settings = Settings(num_steps, num_chains, thin, warmup, start, path, attributes, units)
    planned = _planned(rng_key, sampler, curator, initial_position, settings)
    return planned.run(progress=progress, checks=checks).to_arviz()


def _planned(
    rng_key: Key, sampler: Any, curator: Any, initial_position: Any, settings: Settings
) -> Plan:
    """Trace, bill and check a run: all refusals happen here, before the budget is spent."""
    keys, positions = _beginning(rng_key, sampler, curator, initial_position, settings)
    thin = whole("thin", settings.thin)
    begin = curator.trace(Begin(sampler, settings.start), keys, positions)

    def trace_block(size, thin):
        return curator.trace(Block(sampler, size, thin), keys, *begin.shapes, np.int32(0))

    one_step = trace_block(1, 1)
    _rehearse(curator.model, one_step.shapes, len(keys), settings)
    num_steps = _num_steps(curator, begin.plan, one_step.plan, settings.num_steps, len(keys), thin)
    sizes = _block_sizes(num_steps, thin)
    blocks = {size: one_step if size == 1 else trace_block(size, thin) for size in set(sizes)}
    by_block = [(blocks[size].plan, count) for size, count in Counter(sizes).items()]
    queries = total_plan((begin.plan, 1), *by_block)
    by_step = total_plan((begin.plan, 1), (one_step.plan, num_steps))
    assert queries == by_step, "the bill of a block must be that of its steps"
    # Before compiling, which takes a while
    check_fits(curator, queries, begin.plan, one_step.plan, len(keys))
    asked = one_step.plan or begin.plan
    return Plan(
        curator=curator,
        settings=settings,
        keys=keys,
        positions=positions,
        begin=begin,
        blocks=blocks,
        sizes=sizes,
        queries=queries,
        asked=asked,
        bill=curator.bill(queries),
        findings=_findings(curator, positions[0], asked),
        limits=diagnostics.PAID if one_step.plan else diagnostics.FREE,
    )


def _beginning(
    rng_key: Any, sampler: Any, curator: Any, initial_position: Any, settings: Settings
) -> tuple[Any, Any]:
    """The keys and the positions that the chains begin with, from arguments that were checked."""
    arguments.check_texts("attributes", settings.attributes)
    arguments.check_texts("units", settings.units)
    arguments.check_roles(rng_key, sampler, curator, settings.start)
    num_chains = whole("num_chains", settings.num_chains)
    whole("thin", settings.thin)
    keys = jax.random.split(rng_key, num_chains)
    arguments.check_not_traced(keys, initial_position)
    positions = arguments.initial_positions(initial_position, num_chains, curator.model)
    arguments.check_warmup(settings.warmup)
    arguments.check_one_beginning(settings.start, initial_position)
    if settings.path is not None and (why := files.why_not_new(settings.path)):
        raise ValueError(f"path={settings.path} {why}")
    return keys, positions


def _findings(curator: Any, position: Any, asked: Queries) -> list[Finding]:
    """What the settings and the model let expect, from public facts."""
    model = curator.model
    row = curator.row
    findings = diagnostics.of_settings(model, asked)
    findings += unless_it_fails(diagnostics.of_values, model, row, position)
    findings += unless_it_fails(diagnostics.of_bounds, model, row, position)
    findings += unless_it_fails(diagnostics.of_gradients, model, row, position, asked)
    findings += unless_it_fails(diagnostics.of_parts, model, row, position)
    return findings


def _rehearse(model: Any, shapes: Any, num_chains: int, settings: Settings) -> None:
    """Fail now, rather than after the budget is spent, if such draws could not be kept."""
    _, (positions, info) = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape[2:], leaf.dtype), shapes
    )
    arviz.rehearse(
        num_chains,
        positions,
        info,
        model.unravel,
        settings.path,
        settings.attributes,
        settings.units,
    )


def check_fits(
    curator, queries: Queries, initial: Queries, per_step: Queries, num_chains: int
) -> None:
    """Refuse a run that costs too much, and say how long it may be."""
    try:
        curator.check(queries)
    except BudgetExceeded as refusal:
        try:
            fits, limit = curator.limit(initial, per_step)
        except (PrivacyRefusal, ValueError):
            raise refusal from None  # it is closed: no number of steps would do
        raise BudgetExceeded(
            f"{refusal}; {limit} allows {fits} steps of {num_chains} chains"
        ) from None


def _num_steps(
    curator, initial, per_step, num_steps: int | None, num_chains: int, thin: int
) -> int:
    if num_steps is not None:
        if not isinstance(num_steps, numbers.Integral) or num_steps < 1 or num_steps % thin:
            raise ValueError(f"num_steps={num_steps!r} must be a positive multiple of thin={thin}")
        return int(num_steps)
    fits, limit = curator.limit(initial, per_step)
    if fits < thin:
        without = (
            "; or go on from where another run has ended, without paying for a start "
            "(recipe.continued)"
            if initial
            else ""
        )
        raise BudgetExceeded(
            f"{limit} allows {fits} steps of {num_chains} chains, and one draw takes {thin} "
            "(thin): "
            f"use fewer chains, more noise, a smaller clip, or a larger budget{without}"
        )
    return fits - fits % thin


def _block_sizes(num_steps: int, thin: int) -> list[int]:
    """About NUM_BLOCKS equal blocks, and a shorter one if they do not fill the run exactly."""
    num_draws = num_steps // thin
    candidates = range(min(num_draws, NUM_BLOCKS), min(num_draws, 2 * NUM_BLOCKS) + 1)
    num_blocks = min(candidates, key=lambda number: num_draws % number)
    size, rest = divmod(num_draws, num_blocks)
    return [size * thin] * num_blocks + ([rest * thin] if rest else [])
