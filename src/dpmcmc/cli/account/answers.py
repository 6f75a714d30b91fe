"""Steps from a budget or epsilon from steps, by one method or by all."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import typer

from dpmcmc.cli.account.output import json_number, show_answer, show_comparison
from dpmcmc.cli.account.questions import Given, Question
from dpmcmc.cli.options import refusals

MAX_QUICK_RECURSION = 2_000


def answer_question(
    context: typer.Context, question: Callable[[], Question], given: Given, as_json: bool
) -> None:
    """Answer a question, by the best method or, below `compare`, by every method."""
    with account_refusals(as_json):
        with _options_as_typed():
            _check_given(given)
            asked = question()
        if context.parent is not None and context.parent.info_name == "compare":
            _compare_methods(asked, given, as_json)
        else:
            _warn_if_slow(asked, given)
            answers = [
                _answer_by(one, one.method, given)
                for one in (asked, asked.otherwise)
                if one is not None
            ]
            show_answer(
                max(answers, key=_preference), as_json, f"dpmcmc account {context.info_name}"
            )


def _check_given(given: Given) -> None:
    from dpmcmc.accounting.search import LIMIT

    epsilon, steps, delta, _ = given
    if (epsilon is None) == (steps is None):
        raise ValueError("give either --epsilon or --steps: the other one is the answer")
    if epsilon is not None and not (0 < epsilon < math.inf):
        raise ValueError(f"epsilon={epsilon} must be positive and finite")
    if steps is not None and not 0 <= steps <= LIMIT:
        raise ValueError("steps must be at least 0 and at most 2^60")
    if not 0 < delta < 1:
        raise ValueError(f"delta={delta} must lie in (0, 1)")


@contextmanager
def _options_as_typed() -> Iterator[None]:
    """Name an argument as it is typed: --noise-multiplier -1 and not noise_multiplier=-1."""
    try:
        yield
    except ValueError as error:
        as_typed = re.sub(r"^(\w+)=", lambda name: f"--{name[1].replace('_', '-')} ", str(error))
        raise ValueError(as_typed) from error


def _compare_methods(asked: Question, given: Given, as_json: bool) -> None:
    """Show the answers of all methods with a bound; of the recursion only if it is quick enough."""
    from dpmcmc.accounting import accountants
    from dpmcmc.errors import UnsupportedQuery

    answers: list[dict[str, Any]] = []
    for method in accountants.METHODS:
        if method == "recursion" and _recursion_length(asked, given) > MAX_QUICK_RECURSION:
            continue
        try:
            # Every method bounds 0 steps; what matters is whether it bounds one
            if given.steps == 0:
                _answer_by(asked, method, given._replace(steps=1))
            answers.append(_answer_by(asked, method, given))
        except UnsupportedQuery:
            continue
    if not answers:
        raise UnsupportedQuery("no method has a bound for this query at this delta")
    answers.sort(key=_preference, reverse=True)
    show_comparison(answers, as_json, f"delta = {given.delta:g}, {given.relation}")


def _answer_by(asked: Question, method: str | None, given: Given) -> dict[str, Any]:
    """The answer by one method, or by the best: of steps and epsilon one is given."""
    from dpmcmc.accounting import accountants, calibrate

    epsilon, steps, delta, relation = given
    if steps is None:
        assert epsilon is not None
        steps = calibrate.steps(asked.per_step, epsilon, delta, asked.initial, method)
        if method is None:
            costs = calibrate.combined(asked.initial, asked.per_step, max(1, steps))
            method = accountants.epsilon(costs, delta).method
    else:
        costs = calibrate.combined(asked.initial, asked.per_step, steps) if steps else {}
        if method is None:
            epsilon, method = accountants.epsilon(costs, delta) if steps else (0.0, "pure")
        else:
            epsilon = accountants.epsilon_by(method, costs, delta)
    return {
        "steps": steps,
        "epsilon": json_number(epsilon),
        "delta": delta,
        "method": method,
        "relation": relation,
        "per_step": _cost_entries(asked.per_step),
        "initial": _cost_entries(asked.initial),
    }


def _cost_entries(costs: Mapping[Any, int]) -> list[dict[str, Any]]:
    from dpmcmc.accounting.costs import to_json

    return [{"cost": to_json(cost), "count": count} for cost, count in costs.items()]


def _preference(answer: dict[str, Any]) -> tuple[int, float]:
    """More steps are better, and a smaller epsilon."""
    return answer["steps"], -float(answer["epsilon"])


def _recursion_length(asked: Question, given: Given) -> float:
    """About how many steps the recursion would have to follow."""
    from dpmcmc.errors import UnsupportedQuery

    if given.steps is not None:
        return given.steps
    try:
        return 1.2 * _answer_by(asked, "rdp", given)["steps"]
    except UnsupportedQuery:
        return math.inf


def _warn_if_slow(asked: Question, given: Given) -> None:
    """Warn before a recursion of more than about half a minute, unless it will be refused."""
    if asked.method == "recursion":
        from dpmcmc.accounting.laws.recursion import MOST_STEPS

        length = _recursion_length(asked, given)
        if MAX_QUICK_RECURSION < length <= 1.2 * MOST_STEPS:
            typer.echo(
                f"some {length:.0f} steps by the recursion take a minute or more; --method rdp "
                "answers at once",
                err=True,
            )


@contextmanager
def account_refusals(as_json: bool) -> Iterator[None]:
    """Refusals of accountants: also of numbers that are too large to compute with."""
    with refusals(KeyError, as_json=as_json):
        try:
            yield
        except OverflowError as error:
            raise ValueError(f"some number is too large to compute with ({error})") from error
