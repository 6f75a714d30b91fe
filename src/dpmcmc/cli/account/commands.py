"""The groups of commands, the options that all have, and how a command is registered."""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from dpmcmc.cli.account.answers import answer_question
from dpmcmc.cli.account.questions import Given, Question
from dpmcmc.cli.options import Relation

# The base of errors in options; typer does not export it
UsageError: Any = typer.BadParameter.__base__


class Commands(TyperGroup):
    """Commands that print a JSON object for a wrong option too, if JSON was asked for."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.meta[__name__] = "--json" in args
        with self._errors_as_json(ctx):
            return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        with self._errors_as_json(ctx):
            return super().invoke(ctx)

    @contextmanager
    def _errors_as_json(self, ctx: Any) -> Iterator[None]:
        try:
            yield
        except UsageError as error:
            if ctx.meta[__name__]:
                print(json.dumps({"error": error.format_message()}))
            raise


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
    help="Privacy accounting: how many steps fit, or what they cost.",
)


compare = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
    help="Steps or epsilon by every valid method, side by side.",
)


app.add_typer(compare, name="compare")


Json = Annotated[
    bool, typer.Option("--json", help="One JSON object instead of a table, for a refusal too.")
]


Protected = Annotated[
    Relation, typer.Option("--neighbours", help="Which change of the table is protected.")
]


def shared_options(
    context: typer.Context,
    delta: Annotated[
        float, typer.Option("--delta", help="The probability of failure, well below 1/n.")
    ],
    epsilon: Annotated[
        float | None,
        typer.Option("--epsilon", help="The budget; prints the number of steps it allows."),
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option("--steps", help="The number of steps; prints the epsilon they cost."),
    ] = None,
    neighbours: Annotated[
        Relation,
        typer.Option(
            "--neighbours",
            help="What the noise multiplier or range is relative to: only repeated in the answer.",
        ),
    ] = Relation.REPLACE,
    as_json: Json = False,
) -> None:
    """The options of every command; its own options stand after --delta."""


def command(
    name: str, is_labelled: bool = False
) -> Callable[[Callable[..., Question]], Callable[..., Question]]:
    """Register a command under `account` and under `account compare`.

    Args:
        name: The command's name.
        is_labelled: Whether the question does not depend on --neighbours: then the option is added,
            and the answer repeats it.

    Returns:
        A decorator of functions from the command's own options to a question.
    """

    def register(question: Callable[..., Question]) -> Callable[..., Question]:
        own = inspect.signature(question, eval_str=True).parameters

        @functools.wraps(question)
        def answer(
            context: typer.Context,
            delta: float,
            epsilon: Any,
            steps: Any,
            as_json: bool,
            **settings: Any,
        ) -> None:
            relation = settings.get("neighbours", Relation.REPLACE)
            given = Given(epsilon, steps, delta, relation.neighbours.value)
            answer_question(
                context,
                lambda: question(**{option: settings[option] for option in own}),
                given,
                as_json,
            )

        first, delta, *rest, label, last = inspect.signature(
            shared_options, eval_str=True
        ).parameters.values()
        parameters = [first, delta, *own.values(), *rest, *([label] if is_labelled else []), last]
        answer.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        for group in (app, compare):
            group.command(name)(answer)
        return question

    return register
