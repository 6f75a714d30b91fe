"""The loop: plan the whole run, have it granted, then run it block after block, chains side by
side.

A block of steps is compiled once and called again with the next step index. After each block its
draws are kept, progress is shown and an interrupt is honoured, there and nowhere else; a curator,
or one of several owners, that runs out or withdraws ends the run there too. The bill is paid before
the first block; nothing is refunded.
"""

from __future__ import annotations

import contextlib
import functools
import numbers
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dpmcmc import diagnostics
from dpmcmc.checks import whole
from dpmcmc.curator.programs.interpreter import total_plan
from dpmcmc.errors import BudgetExceeded, PrivacyRefusal, RunFailed, in_brief
from dpmcmc.finding import Finding, note, unless_it_fails
from dpmcmc.results import posterior as posteriors
from dpmcmc.run.progress import Progress
from dpmcmc.types import Ask, Budget, Key, Plan, Position, Sampler, statistics_of

ORDER = "call sample(rng_key, sampler, curator, initial_position), with a Sampler and with a Curator or Federation"
NEARLY_ALL = 0.95
NUM_BLOCKS = 20  # about so many, so that progress moves and an interrupt loses little
# Times as many steps, each of half the length of those before, where steps ask nothing
REFINEMENTS = 4, 16, 64


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
):
    """Draw from the posterior, within the curator's budget. Returns an ArviZ InferenceData with its
    privacy statement.

    Parameters
    ----------
    rng_key
        the public key of the chains, from ``jax.random.key``. The privacy noise never comes from
        it.
    curator
        who holds the rows: a `Curator`, or a `Federation` of several.
    initial_position
        where the chains start: shape (d,) for all, or (num_chains, d). A public choice, not
        computed from the rows.
    num_steps
        steps per chain; ``None`` takes as many as the budget allows. The chains share the budget.
    thin
        keep every thin-th step.
    warmup
        this share of the draws, from the start, is kept apart as warm-up.
    progress
        show the progress, and each finding as it is made, on standard error. "bar" shows the
        progress alone; ``False`` neither: findings then go to the log. `findings` reads them from
        the result.
    start
        a private start, such as `newton_start`, run once from `initial_position` for all chains and
        billed with the run. Chains begin at its `position`; `sampler` may then be a function of
        what it returns: ``lambda start: hmc(..., start.precision)``.
    path
        a new NetCDF file, written again and again while the run goes on, so that even a killed
        process loses few draws.
    attributes
        texts to keep with the posterior, as its attributes: "plan" is shown by `report`.
    units
        those of the parameters, by name, for the readers of the posterior.
    checks
        a function from the result to findings of one's own about it: they are kept with the others.
    """
    if checks is not None and not callable(checks):
        raise TypeError(
            f"checks is a {type(checks).__name__}: it must be a function from the result to a list "
            "of dpmcmc.Finding"
        )
    if progress not in (True, False, "bar"):
        raise ValueError(f'progress={progress!r} must be True, False or "bar"')
    prepared = prepare(
        rng_key, sampler, curator, initial_position,
        num_steps=num_steps, num_chains=num_chains, thin=thin, warmup=warmup,
        start=start, path=path, attributes=attributes, units=units,
    )  # fmt: skip
    begin = prepared.begin
    blocks = prepared.blocks
    with (
        _interrupts_held() as interrupts,
        Progress(sum(prepared.sizes), bool(progress), progress != "bar") as bar,
    ):
        bar.warn(prepared.findings)  # while an interrupt can still save the budget
        starter = begin.compile()
        runners = {size: block.compile() for size, block in blocks.items()}
        if interrupts:
            bar.say("interrupted before the budget was touched: nothing is spent")
            raise KeyboardInterrupt
        with posteriors.claimed(path):
            run = _Run(
                curator, curator.grant(prepared.plan), prepared.asked, prepared.keys, prepared.sizes, prepared.thin, warmup,
                path, list(prepared.findings), dict(attributes), dict(units), checks, prepared.limits, num_steps is None,
            )  # fmt: skip
            return run.go(prepared.positions, starter, runners, bar, interrupts)


class Prepared(NamedTuple):
    """A run that has been traced, billed on paper and checked.

    Nothing is compiled, and nothing is spent.
    """

    keys: Any
    positions: Any
    begin: Any  # the traced start
    blocks: Mapping[int, Any]  # the traced blocks, by their size
    sizes: list[int]  # of all blocks, in their order
    thin: int
    plan: Plan  # of the whole run
    # In a step, or if that asks nothing at the start: what the law of the draws rests on
    asked: Plan
    findings: list[Finding]  # of the settings and the model
    limits: diagnostics.Limits


def prepare(
    rng_key: Key,
    sampler: Sampler | Callable[[Any], Sampler],
    curator: Any,
    initial_position: Position,
    *,
    num_steps: int | None,
    num_chains: int,
    thin: int,
    warmup: float,
    start: Callable[[Key, Position, Ask], Any] | None,
    path: str | Path | None,
    attributes: Mapping[str, str],
    units: Mapping[str, str],
) -> Prepared:
    """All that `sample`, which has these arguments, does before it compiles: what it would refuse
    is refused here.
    """
    _check_texts("attributes", attributes)
    _check_texts("units", units)
    _check_roles(rng_key, sampler, curator, start)
    num_chains = whole("num_chains", num_chains)
    thin = whole("thin", thin)
    keys = jax.random.split(rng_key, num_chains)
    _check_not_traced(keys, initial_position)
    positions = _initial_positions(initial_position, num_chains, curator.model)
    if not isinstance(warmup, numbers.Real) or not 0 <= warmup < 1:
        raise ValueError(
            f"warmup={warmup!r} must lie in [0, 1): it is the share of the draws kept apart"
        )
    if start is not None and np.ndim(initial_position) > 1:
        raise ValueError(
            "start= begins all chains at the point it finds: give one initial_position, of shape "
            "(d,). To go on from where another "
            "run has ended leave start= out (of a recipe: recipe.continued is the sampler, and "
            "needs none)"
        )
    if path is not None and (why := posteriors.why_not_new(path)):
        raise ValueError(f"path={path} {why}")
    begin = curator.trace(begin_program(sampler, start), keys, positions)

    def trace_block(size, thin):
        return curator.trace(block_program(sampler, size, thin), keys, *begin.shapes, np.int32(0))

    one_step = trace_block(1, 1)
    _rehearse(curator.model, one_step.shapes, num_chains, path, attributes, units)
    num_steps = _num_steps(curator, begin.plan, one_step.plan, num_steps, num_chains, thin)
    sizes = _block_sizes(num_steps, thin)
    blocks = {size: one_step if size == 1 else trace_block(size, thin) for size in set(sizes)}
    plan = total_plan(
        (begin.plan, 1), *((blocks[size].plan, count) for size, count in Counter(sizes).items())
    )
    by_step = total_plan((begin.plan, 1), (one_step.plan, num_steps))
    assert plan == by_step, "the bill of a block must be that of its steps"
    # Before compiling, which takes a while
    check_fits(curator, plan, begin.plan, one_step.plan, num_chains)
    asked = one_step.plan or begin.plan
    model = curator.model
    row = curator.row
    findings = diagnostics.of_settings(model, asked)
    findings += unless_it_fails(diagnostics.of_values, model, row, positions[0])
    findings += unless_it_fails(diagnostics.of_bounds, model, row, positions[0])
    findings += unless_it_fails(diagnostics.of_gradients, model, row, positions[0], asked)
    findings += unless_it_fails(diagnostics.of_parts, model, row, positions[0])
    limits = diagnostics.PAID if one_step.plan else diagnostics.FREE
    return Prepared(keys, positions, begin, blocks, sizes, thin, plan, asked, findings, limits)


@dataclass
class _Run:
    """A granted run and the draws it has so far."""

    curator: Any
    grant: Any
    asked: Plan  # in a step, or if that asks nothing at the start
    keys: Any
    sizes: list[int]
    thin: int
    warmup: float
    path: str | Path | None
    findings: list[Finding]  # so far
    attributes: Mapping[str, str]
    units: Mapping[str, str]
    checks: Callable[[Any], list[Finding]] | None
    limits: diagnostics.Limits
    is_all: bool  # as many steps as the budget allows
    num_done: int = 0
    refinement: int = 1  # how many times as many steps were taken
    is_warned: bool = False
    next_save: float = 0.0
    draws: list[Any] = field(default_factory=list)

    def go(self, positions, starter, runners, bar: Progress, interrupts: list):
        """Run to the end, or as far as it gets: draws that were paid for are returned, or come with
        the error.
        """
        try:
            ending = self._run(positions, starter, runners, bar, interrupts)
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
            result = self.posterior(broken) if self.draws else None
            with contextlib.suppress(Exception):
                self._save(result)
            where = "There are no draws." if result is None else "Its draws are in .posterior."
            raise RunFailed(f"{broken.text} {where}", result) from error
        if not self.draws:
            raise RunFailed(
                f"{ending[0].text} There are no draws: choose a larger rho, shorter moves or a "
                "smaller clip.",
                None,
            )
        return self._finish(bar, ending)

    def _run(self, positions, starter, runners, bar: Progress, interrupts: list) -> list[Finding]:
        """Block after block. Returns why it ended early, if it did."""
        learned, states = self.grant.run(starter, self.keys, positions)
        self.findings += unless_it_fails(diagnostics.of_start, learned)
        self.findings += unless_it_fails(diagnostics.of_survey, self.curator.model, learned)
        bar.warn(self.findings)
        block = functools.partial(self._block, runners, learned)
        for size in self.sizes:
            states, draws = block(size, states, self.num_done)
            num_answered = self._keep(draws)
            self.num_done += num_answered
            bar.advance(num_answered, draws[1])
            if num_answered < size:
                return [self._ended("filter-used-up", "used up its filter and ended")]
            if self.num_done < sum(self.sizes):
                if interrupts:
                    raise KeyboardInterrupt
                self._save_so_far(bar)
        if hasattr(states, "refined"):  # of a sampler whose steps ask nothing
            self._refine(block, states, bar, interrupts)
        return []

    def _block(self, runners, learned, size: int, states, first_step: int):
        return self.grant.run(runners[size], self.keys, learned, states, np.int32(first_step))

    def _refine(self, block: Callable[..., Any], states, bar: Progress, interrupts: list) -> None:
        """More and shorter steps, which cost nothing, until the chains agree; these take the place
        of the draws before.
        """
        first_step = sum(self.sizes)
        for times in REFINEMENTS:
            result = self.posterior()
            num_draws = result.posterior.sizes["chain"] * result.posterior.sizes["draw"]
            is_converged = not any(
                each.code in diagnostics.UNCONVERGED for each in posteriors.findings(result)
            )
            if is_converged or num_draws < 2 * self.limits.ess:  # so few are never worth that many
                return
            bar.say(
                f"the chains do not agree yet: they go on with {times} times as many steps, at no "
                "cost"
            )
            states = states.refined()
            draws = []
            num_drawn = 0
            for size in self.sizes * times:
                states, drawn = block(size, states, first_step)
                first_step += size
                draws.append(_every(times, num_drawn, drawn))
                num_drawn += size // self.thin
                if interrupts:
                    raise KeyboardInterrupt
            self.draws = draws
            self.refinement = times

    def _save_so_far(self, bar: Progress) -> None:
        """Unless the last time was so shortly before that saving would take most of the time: a
        kill loses no more than that.
        """
        start = time.monotonic()
        if self.path is None or start < self.next_save:
            return
        try:
            self._save(self.posterior(self._ended("unfinished", "is unfinished")))
        except Exception as error:  # a full disk may have room again: the draws are safe here, and the last attempt counts
            if not self.is_warned:
                bar.tell(
                    f"The draws so far could not be written to {self.path} ({in_brief(error)}); "
                    "the run goes on."
                )
            self.is_warned = True
        self.next_save = 2 * time.monotonic() - start

    def _finish(self, bar: Progress, findings: list[Finding]):
        result = None
        model = self.curator.model
        try:
            # A sampler of one's own may name its statistics as it likes.
            findings += unless_it_fails(
                diagnostics.of_draws, model, self.asked, self.draws, self.thin, self.warmup
            )
            visited = np.concatenate([positions for positions, _ in self.draws])
            findings += unless_it_fails(diagnostics.of_positions, model, self.curator.row, visited)
            if self.is_all:
                findings += unless_it_fails(_unspent, self.curator.budget, self.grant.statement())
            result = self.posterior(*findings)
            bar.warn(posteriors.findings(result))
            self._save(result)
            return result
        except (Exception, KeyboardInterrupt) as error:
            what = (
                "made into a posterior"
                if result is None
                else f"written to {self.path}; they are in .posterior"
            )
            raise RunFailed(
                f"the grant is spent, but the draws could not be {what}", result
            ) from error

    def _ended(self, code: str, how: str, why: str = "") -> Finding:
        num_steps = sum(self.sizes)
        text = f"The run {how} after {self.num_done} of {num_steps} steps{why}; the grant is spent in full."
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
        return num_kept * self.thin

    def posterior(self, *findings: Finding):
        model = self.curator.model
        positions, info = jax.tree.map(
            lambda *parts: np.concatenate(parts).swapaxes(0, 1), *self.draws
        )
        return posteriors.from_draws(
            positions,
            info,
            model.unravel,
            self.grant.statement(*_declared(model, self.asked)),
            num_warmup=int(positions.shape[1] * self.warmup),
            thin=self.thin * self.refinement,
            attributes=self.attributes,
            units=self.units,
            findings=[*self.findings, *findings],
            limits=self.limits,
            checks=self.checks,
            log_prior=model.log_prior,
        )

    def _save(self, result) -> None:
        if self.path is not None and result is not None:
            posteriors.save(result, self.path)


def _every(times: int, num_before: int, drawn: Any) -> Any:
    """Every `times`-th draw, where so many came before these."""
    first = (times - 1 - num_before) % times
    return jax.tree.map(lambda leaf: np.asarray(leaf)[first::times], drawn)


def _declared(model, plan: Plan) -> list[str]:
    if not model.declared:
        return []
    is_clipped = any(
        getattr(query, "clip", getattr(query, "bound", 0.0)) is not None for query in plan
    )
    return [
        f"declared of every row: {model.declared}"
        + "; one beyond is clipped, which biases the draws" * is_clipped
    ]


@contextlib.contextmanager
def _interrupts_held() -> Iterator[list[int]]:
    """Note Ctrl-C, and the signal to terminate, in the list that is yielded, instead of raising
    them.

    Raised at a bad moment they would lose a block, or all draws while these are saved, and in the
    compiler they end the process. They are held only where Python would raise them: in the main
    thread, and if nobody else handles them. A process that was told to terminate does so at the
    end.
    """
    held: list[int] = []
    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    is_main = threading.current_thread() is threading.main_thread()
    ours = {
        number: handler
        for number, handler in usual.items()
        if is_main and signal.getsignal(number) is handler
    }
    for number in ours:
        signal.signal(number, lambda number, frame: held.append(number))
    try:
        yield held
    finally:
        for number, handler in ours.items():
            signal.signal(number, handler)
        if signal.SIGTERM in held:
            signal.raise_signal(signal.SIGTERM)


def begin_program(sampler: Sampler | Callable[[Any], Sampler], start: Callable | None = None):
    """(ask, keys, positions) -> (what the private start learned, the chains' first states)."""

    def begin(ask, keys, positions):
        # Steps fold in 0, 1, 2, ...; the start folds in the indices they never reach.
        learned = None
        if start is not None:
            found = start(jax.random.fold_in(keys[0], 2**32 - 2), positions[0], ask)
            learned = _checked_state("start", found, positions[0])
            positions = jnp.broadcast_to(learned.position, positions.shape)
        own_keys = jax.vmap(lambda key: jax.random.fold_in(key, 2**32 - 1))(keys)
        init = _made(sampler, learned).init
        return learned, jax.vmap(
            lambda key, position: _first_state(init(key, position, ask), position)
        )(own_keys, positions)

    return begin


def _first_state(returned: Any, position: Position) -> Any:
    """The state that a chain begins with.

    Its numbers have a type of their own: in a loop that of a plain 0 would change.
    """
    return jax.tree.map(
        lambda leaf: jnp.asarray(leaf, jnp.result_type(leaf)),
        _checked_state("init", returned, position),
    )


def block_program(sampler: Sampler | Callable[[Any], Sampler], num_steps: int, thin: int = 1):
    """(ask, keys, learned, states, first step) -> (states, (positions, info) of every thin-th
    step).
    """

    def block(ask, keys, learned, states, first_step):
        made = _made(sampler, learned)

        def body(states, index):
            def step(key, state):
                return _checked_step(made.step(jax.random.fold_in(key, index), state, ask))

            states, info = jax.vmap(step)(keys, states)
            return states, (states.position, info)

        states, draws = lax.scan(body, states, first_step + jnp.arange(num_steps, dtype=jnp.int32))
        return states, jax.tree.map(lambda leaf: leaf[thin - 1 :: thin], draws)

    return block


def _made(sampler: Sampler | Callable[[Any], Sampler], learned: Any) -> Sampler:
    made = sampler if isinstance(sampler, Sampler) else sampler(learned)
    if not isinstance(made, Sampler):
        raise TypeError(
            f"the function for the sampler returned a {type(made).__name__}: it must return a "
            "Sampler"
        )
    return made


def _checked_step(returned: Any) -> tuple[Any, Any]:
    if type(returned) is not tuple or len(returned) != 2:
        told = (
            f"{len(returned)} values" if type(returned) is tuple else f"a {type(returned).__name__}"
        )
        raise TypeError(f"the sampler's step returned {told}: return (state, info)")
    return _checked_state("step", returned[0]), returned[1]


def _checked_state(name: str, state: Any, position: Position | None = None) -> Any:
    who = "start" if name == "start" else f"the sampler's {name}"
    if not hasattr(state, "position"):
        kind = "an array" if isinstance(state, jax.Array) else f"a {type(state).__name__}"
        raise TypeError(f"the state that {who} returned is {kind}: it needs a field `position`")
    shape = getattr(state.position, "shape", None)
    if position is not None and shape != position.shape:
        told = f"is a {type(state.position).__name__}" if shape is None else f"has shape {shape}"
        raise TypeError(
            f"the position in the state that {who} returned {told}: it must be an array of the "
            f"model's shape, {position.shape}. "
            "Keep what else the chain has, such as other replicas, in other fields"
        )
    return state


def check_fits(curator, plan: Plan, initial: Plan, per_step: Plan, num_chains: int) -> None:
    """Refuse a run that costs too much, and say how long it may be."""
    try:
        curator.check(plan)
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


def _unspent(budget: Any, statement: Any) -> list[Finding]:
    """Where the budget allows no further step, and yet a good part of epsilon is left."""
    if not isinstance(budget, Budget) or not statement.epsilon < NEARLY_ALL * budget.epsilon:
        return []
    return [
        note(
            "budget-left",
            f"The run spends epsilon={statement.epsilon:.4g} of {budget.epsilon:g}, and no further "
            "draw "
            "fits: either each draw costs much, or the deviation of rounded noise from perfect "
            "noise "
            "has used up its part of delta (then a larger delta allows more steps, a larger "
            "epsilon "
            "none).",
            epsilon=statement.epsilon,
            budget=budget.epsilon,
        )
    ]


def _block_sizes(num_steps: int, thin: int) -> list[int]:
    """About NUM_BLOCKS equal blocks, and a shorter one if they do not fill the run exactly."""
    num_draws = num_steps // thin
    candidates = range(min(num_draws, NUM_BLOCKS), min(num_draws, 2 * NUM_BLOCKS) + 1)
    num_blocks = min(candidates, key=lambda number: num_draws % number)
    size, rest = divmod(num_draws, num_blocks)
    return [size * thin] * num_blocks + ([rest * thin] if rest else [])


def _rehearse(model, shapes, num_chains: int, path: str | Path | None, attributes, units) -> None:
    _, (positions, info) = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape[2:], leaf.dtype), shapes
    )
    posteriors.rehearse(num_chains, positions, info, model.unravel, path, attributes, units)


def _check_texts(name: str, texts: Any) -> None:
    if not isinstance(texts, Mapping) or not all(
        isinstance(text, str) for pair in texts.items() for text in pair
    ):
        raise TypeError(
            f"{name} must be a dict of texts by name, such as {{'age': 'years'}}: it is written to "
            f"the file as it is"
        )


def _initial_positions(position, num_chains: int, model):
    dimension = model.dimension
    try:
        positions = np.asarray(jnp.asarray(position))
    except (TypeError, ValueError):
        kind = type(position).__name__
        raise TypeError(
            f"initial_position is a {kind}: it must be a flat array of {dimension} numbers "
            "(jax.flatten_util makes one)"
        ) from None
    if not jnp.issubdtype(positions.dtype, jnp.floating):
        positions = positions.astype(jnp.result_type(float))
    if positions.shape not in ((dimension,), (num_chains, dimension)):
        raise ValueError(
            f"initial_position has shape {positions.shape}, it must be ({dimension},) or "
            f"({num_chains}, {dimension})"
        )
    if not np.all(np.isfinite(positions)):
        raise ValueError(f"initial_position={positions} must be finite")
    positions = np.broadcast_to(positions, (num_chains, dimension))
    if not np.all(np.asarray(jax.jit(jax.vmap(model.log_prior))(positions)) > -np.inf):
        raise ValueError(
            f"initial_position={positions} has no prior density: start the chains where the prior "
            "allows them"
        )
    return positions


def _check_not_traced(*values: Any) -> None:
    if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(values)):
        raise TypeError(
            "sample was called inside jit, vmap or another transformation, where no budget can be "
            "spent: call it outside, with "
            "num_chains= for chains side by side"
        )


def _check_roles(rng_key: Any, sampler: Any, curator: Any, start: Any) -> None:
    if (
        not jax.dtypes.issubdtype(getattr(rng_key, "dtype", None), jax.dtypes.prng_key)
        or rng_key.shape != ()
    ):
        raise TypeError(
            f"rng_key, a {type(rng_key).__name__}, must be one typed random key: make it with "
            "jax.random.key(0)"
        )
    if not (isinstance(sampler, Sampler) or (callable(sampler) and start is not None)):
        told = ""
        if callable(sampler):
            told = (
                " (a function is called with what start= returns, which is missing: a recipe has "
                "it in **recipe.options; to go on "
                "from where another run has ended give recipe.continued instead)"
            )
        elif hasattr(sampler, "sampler"):
            told = " (give recipe.sampler and **recipe.options)"
        raise TypeError(f"the sampler is a {type(sampler).__name__}{told}: {ORDER}")
    if start is not None and not callable(start):
        raise TypeError(
            f"start is a {type(start).__name__}: it must be a private start, such as "
            "newton_start(...)"
        )
    if not hasattr(curator, "grant"):
        raise TypeError(f"the curator is a {type(curator).__name__}: {ORDER}")
