"""Have a plan granted, then run it block after block, chains side by side.

After each block, and only there, its draws are kept, progress is shown and an interrupt takes
effect. The run also ends there if a curator, or one of several owners, has no budget left or
withdraws its rows. The bill is paid before the first block; nothing is refunded.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import jax
import numpy as np

from dpmcmc import diagnostics
from dpmcmc.errors import BudgetExceeded, RunFailed, in_brief
from dpmcmc.finding import Finding, note, unless_it_fails
from dpmcmc.results import files
from dpmcmc.run.interrupts import interrupts_held
from dpmcmc.run.progress import Progress
from dpmcmc.run.record import Record
from dpmcmc.types import Budget, statistics_of
from dpmcmc.types import Plan as Queries

if TYPE_CHECKING:
    from dpmcmc.run.plan import Plan

NEARLY_ALL = 0.95
# If steps ask nothing: how many times as many steps, each half as long as those before
REFINEMENTS = 4, 16, 64


def run(
    plan: Plan,
    progress: bool | Literal["bar"],
    checks: Callable[[Any], list[Finding]] | None,
) -> Record:
    """Compile, have the plan granted, and run it."""
    path = plan.settings.path
    with (
        interrupts_held() as interrupts,
        Progress(plan.num_steps, bool(progress), progress != "bar") as bar,
    ):
        bar.warn(plan.findings)  # while an interrupt can still save the budget
        starter, runners = _compile(plan)
        if interrupts:
            bar.say("interrupted before the budget was touched: nothing is spent")
            raise KeyboardInterrupt
        with files.claimed(path):
            grant = plan.curator.grant(plan.queries)
            execution = Execution(plan, grant, checks, list(plan.findings))
            return execution.go(starter, runners, bar, interrupts)


def _compile(plan: Plan) -> tuple[Any, dict[int, Any]]:
    """How the chains begin and every block of steps, compiled side by side."""
    with ThreadPoolExecutor() as pool:
        starter = pool.submit(plan.begin.compile, in_stages=True)
        blocks = {
            size: pool.submit(block.compile, in_stages=not block.plan)
            for size, block in plan.blocks.items()
        }
        return starter.result(), {size: block.result() for size, block in blocks.items()}


@dataclass
class Execution:
    """A granted run and the draws it has so far.

    Attributes:
        plan: The plan of the run.
        grant: The curator's grant.
        checks: The caller's function from a result to further findings, or None.
        findings: The findings so far.
        num_done: The number of steps so far.
        refinement: How many times as many steps as planned were taken.
        is_warned: Whether a warning was shown that the draws cannot be saved.
        next_save: The earliest time of the next save.
        draws: The draws of each block.
    """

    plan: Plan
    grant: Any
    checks: Callable[[Any], list[Finding]] | None
    findings: list[Finding]
    num_done: int = 0
    refinement: int = 1
    is_warned: bool = False
    next_save: float = 0.0
    draws: list[Any] = field(default_factory=list)

    def go(self, starter, runners, bar: Progress, interrupts: list) -> Record:
        """Run to the end, or until an error: the draws are returned, or are in the error."""
        try:
            ending = self._run(starter, runners, bar, interrupts)
        except KeyboardInterrupt:
            ending = [self._ended("interrupted", "was interrupted")]
            if not self.draws:
                bar.say(ending[0].text)
                raise
        except BudgetExceeded as refusal:
            ending = [self._ended("stopped", "stopped", f" ({refusal})")]
            if not self.draws:
                raise RunFailed(f"{ending[0].text} There are no draws.", None) from refusal
        except Exception as error:
            broken = self._ended("broke-off", "broke off")
            result = self.record(broken) if self.draws else None
            with contextlib.suppress(Exception):
                self._save(result)
            where = "There are no draws." if result is None else "Its draws are in .posterior."
            raise RunFailed(f"{broken.text} {where}", _arviz_of(result)) from error
        if not self.draws:
            raise RunFailed(
                f"{ending[0].text} There are no draws: choose a larger rho, shorter moves or a "
                "smaller clip.",
                None,
            )
        return self._finish(bar, ending)

    def _run(self, starter, runners, bar: Progress, interrupts: list) -> list[Finding]:
        """Block after block. Returns why it ended early, if it did."""
        learned, states = self.grant.run(starter, self.plan.keys, self.plan.positions)
        self.findings += unless_it_fails(diagnostics.of_start, learned)
        for check in (diagnostics.of_survey, diagnostics.of_whitened):
            self.findings += unless_it_fails(check, self.plan.curator.model, learned)
        bar.warn(self.findings)
        block = functools.partial(self._block, runners, learned)
        states, first_step = self._adapt(block, states)
        for size in self.plan.sizes:
            states, draws = block(size, states, first_step + self.num_done)
            num_answered = self._keep(draws)
            self.num_done += num_answered
            bar.advance(num_answered, draws[1])
            if num_answered < size:
                return [self._ended("filter-used-up", "used up its filter and ended")]
            if self.num_done < sum(self.plan.sizes):
                if interrupts:
                    raise KeyboardInterrupt
                self._save_so_far(bar)
        if hasattr(states, "refined"):  # of a sampler whose steps ask nothing
            self._refine(block, states, first_step, bar, interrupts)
        return []

    def _adapt(self, block: Callable[..., Any], states) -> tuple[Any, int]:
        """The chains' states after the first steps, whose draws are dropped where a sampler that
        asks nothing says so; and how many steps those are.
        """
        num_taken = 0
        while num_taken < getattr(states, "num_adaptations", 0):
            states, _ = block(self.plan.sizes[0], states, num_taken)
            num_taken += self.plan.sizes[0]
        return states, num_taken

    def _block(self, runners, learned, size: int, states, first_step: int):
        return self.grant.run(runners[size], self.plan.keys, learned, states, np.int32(first_step))

    def _refine(
        self,
        block: Callable[..., Any],
        states,
        first_step: int,
        bar: Progress,
        interrupts: list,
    ) -> None:
        """Take more and shorter steps, which cost nothing, until the chains agree.

        Their draws replace those before.
        """
        first_step += sum(self.plan.sizes)
        for times in REFINEMENTS:
            result = self.record()
            num_draws = result.num_draws
            is_converged = not any(each.code in diagnostics.UNCONVERGED for each in result.findings)
            has_too_few = num_draws < 2 * self.plan.limits.ess  # at any number of steps
            if is_converged or has_too_few:
                return
            bar.say(
                f"the chains do not agree yet: they go on with {times} times as many steps, at no "
                "cost"
            )
            states = states.refined()
            draws = []
            num_drawn = 0
            for size in self.plan.sizes * times:
                states, drawn = block(size, states, first_step)
                first_step += size
                draws.append(_every(times, num_drawn, drawn))
                num_drawn += size // self.plan.settings.thin
                if interrupts:
                    raise KeyboardInterrupt
            self.draws = draws
            self.refinement = times

    def _save_so_far(self, bar: Progress) -> None:
        """Save the draws, unless saving would then take most of the time of the run."""
        start = time.monotonic()
        if self.plan.settings.path is None or start < self.next_save:
            return
        try:
            self._save(self.record(self._ended("unfinished", "is unfinished")))
        except Exception as error:
            # A full disk may have room again later: the draws are still in memory
            if not self.is_warned:
                path = self.plan.settings.path
                why = in_brief(error)
                bar.show(
                    f"The draws so far could not be written to {path} ({why}); the run goes on."
                )
            self.is_warned = True
        self.next_save = 2 * time.monotonic() - start

    def _finish(self, bar: Progress, findings: list[Finding]) -> Record:
        result = None
        model = self.plan.curator.model
        try:
            # The statistics of a user's own sampler may have any names, so this check may fail
            findings += unless_it_fails(
                diagnostics.of_draws,
                model,
                self.plan.asked,
                self.draws,
                self.plan.settings.thin,
                self.plan.settings.warmup,
            )
            visited = np.concatenate([positions for positions, _ in self.draws])
            findings += unless_it_fails(
                diagnostics.of_positions, model, self.plan.curator.row, visited
            )
            if self.plan.settings.num_steps is None:
                findings += unless_it_fails(
                    _unspent, self.plan.curator.budget, self.grant.statement()
                )
            result = self.record(*findings)
            bar.warn(result.findings)
            self._save(result)
            return result
        except (Exception, KeyboardInterrupt) as error:
            what = (
                "made into a posterior"
                if result is None
                else f"written to {self.plan.settings.path}; they are in .posterior"
            )
            raise RunFailed(
                f"the grant is spent, but the draws could not be {what}", _arviz_of(result)
            ) from error

    def _ended(self, code: str, how: str, why: str = "") -> Finding:
        num_steps = sum(self.plan.sizes)
        text = (
            f"The run {how} after {self.num_done} of {num_steps} steps{why}; the grant is spent "
            "in full."
        )
        return note(code, text, steps=self.num_done, planned=num_steps)

    def _keep(self, draws) -> int:
        """Keep a block's draws up to the first that a used-up filter did not answer.

        Returns how many steps those are.
        """
        num_kept = len(draws[0])
        if (is_answered := statistics_of(draws[1]).get("is_answered")) is not None:
            num_kept = int(np.logical_and.accumulate(np.all(is_answered, axis=1)).sum())
        if num_kept:
            self.draws.append(jax.tree.map(lambda leaf: np.asarray(leaf)[:num_kept], draws))
        return num_kept * self.plan.settings.thin

    def record(self, *findings: Finding) -> Record:
        """The draws so far, compared with their limits, with findings and statement."""
        plan = self.plan
        model = plan.curator.model
        positions, info = jax.tree.map(
            lambda *parts: np.concatenate(parts).swapaxes(0, 1), *self.draws
        )
        return Record.of_draws(
            positions,
            info,
            model,
            self.grant.statement(*_declared(model, plan.asked)),
            num_warmup=int(positions.shape[1] * plan.settings.warmup),
            thin=plan.settings.thin * self.refinement,
            attributes=dict(plan.settings.attributes),
            units=dict(plan.settings.units),
            findings=[*self.findings, *findings],
            limits=plan.limits,
            checks=self.checks,
        )

    def _save(self, record: Record | None) -> None:
        if self.plan.settings.path is not None and record is not None:
            record.save(self.plan.settings.path)


def _arviz_of(record: Record | None) -> Any:
    return None if record is None else record.to_arviz()


def _every(times: int, num_before: int, drawn: Any) -> Any:
    """Every `times`-th draw, counted over the `num_before` draws before and these."""
    first = (times - 1 - num_before) % times
    return jax.tree.map(lambda leaf: np.asarray(leaf)[first::times], drawn)


def _declared(model, queries: Queries) -> list[str]:
    if not model.declared:
        return []
    is_clipped = any(
        getattr(query, "clip", getattr(query, "bound", 0.0)) is not None for query in queries
    )
    return [
        f"declared of every row: {model.declared}"
        + "; one beyond is clipped, which biases the draws" * is_clipped
    ]


def _unspent(budget: Any, statement: Any) -> list[Finding]:
    """A note if the budget allows no further step although much of epsilon is left."""
    if not isinstance(budget, Budget) or not statement.epsilon < NEARLY_ALL * budget.epsilon:
        return []
    return [
        note(
            "budget-left",
            f"The run spends epsilon={statement.epsilon:.4g} of {budget.epsilon:g}, and no further "
            "draw fits: either each draw costs much, or the deviation of rounded noise from "
            "perfect noise has used up its part of delta (then a larger delta allows more steps, "
            "a larger epsilon none).",
            epsilon=statement.epsilon,
            budget=budget.epsilon,
        )
    ]
