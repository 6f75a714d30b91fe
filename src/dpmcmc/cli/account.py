"""`dpmcmc account`: steps from a budget, or epsilon from a number of steps, one command per kind of
query.

    dpmcmc account gaussian --noise-multiplier 30 --epsilon 1 --delta 1e-6
    dpmcmc account accept-bit --test barker --range 0.04 --steps 100 --delta 1e-6 --json
    dpmcmc account compare accept-bit --test penalty --sigma 1 --range 0.03 --epsilon 1 --delta 1e-6
    dpmcmc account ledger posterior.nc

No rows are needed for any of it. `--json` prints one object with at least steps, epsilon, delta,
method and relation. A refusal is one line on standard error; with `--json` also one object with the
field error. Exit codes: 0 answered; 1 a ledger's claim is not reproduced, or the spends of a table
are over its budget; 2 refused (no bound exists, an argument is out of range, or a table's ledger is
not as a curator wrote it).
"""

from __future__ import annotations

import enum
import functools
import inspect
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperGroup

from dpmcmc.cli.options import Relation, refusals

# Of an option that is misspelt, missing or no number; typer does not export it
UsageError: Any = typer.BadParameter.__base__


class _Commands(TyperGroup):
    """Where JSON is asked for, a wrong option is answered by an object too."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.meta[__name__] = "--json" in args
        with self._told(ctx):
            return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        with self._told(ctx):
            return super().invoke(ctx)

    @contextmanager
    def _told(self, ctx: Any) -> Iterator[None]:
        try:
            yield
        except UsageError as error:
            if ctx.meta[__name__]:
                print(json.dumps({"error": error.format_message()}))
            raise


app = typer.Typer(
    cls=_Commands,
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


class Question(NamedTuple):
    """What is asked in each step and once at the start, and by which method it is accounted for."""

    per_step: Mapping[Any, int]
    method: str | None  # None: the best of the quick ones
    initial: Mapping[Any, int] = {}
    # The same in other words: the better of the two answers is given
    otherwise: Question | None = None


class Given(NamedTuple):
    """Either a budget or a number of steps, at which delta, and what the numbers are relative to."""

    epsilon: float | None
    steps: int | None
    delta: float
    relation: str


Test = enum.StrEnum(
    "Test",
    {
        "barker": "barker",
        "lazy_barker": "lazy-barker",
        "penalty": "penalty",
        "metropolis": "metropolis",
    },
)
BitMethod = enum.StrEnum("BitMethod", ["best", "rdp", "exact"])
Scheme = enum.StrEnum("Scheme", ["poisson", "fixed"])
BatchMethod = enum.StrEnum("BatchMethod", ["pld", "rdp"])
MinibatchMethod = enum.StrEnum("MinibatchMethod", ["best", "rdp", "pure"])
Bound = enum.StrEnum("Bound", ["tight", "paper"])
Conversion = enum.StrEnum("Conversion", ["best", "paper"])

Json = Annotated[
    bool, typer.Option("--json", help="One JSON object instead of a table, for a refusal too.")
]
Protected = Annotated[
    Relation, typer.Option("--neighbours", help="Which change of the table is protected.")
]


def _shared(
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
            help="What the noise multiplier or range is relative to: repeated in the answer, no more.",
        ),
    ] = Relation.REPLACE,
    as_json: Json = False,
) -> None:
    """The options of all commands, in this order around their own."""


def command(
    name: str, is_labelled: bool = False
) -> Callable[[Callable[..., Question]], Callable[..., Question]]:
    """Register a command under `account` and under `account compare`: a function from its own
    options to a question.

    The options of `_shared` are added to these; --neighbours only if `is_labelled`, where the
    question does not depend on it.
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
            _answer(
                context,
                lambda: question(**{option: settings[option] for option in own}),
                given,
                as_json,
            )

        first, delta, *rest, label, last = inspect.signature(
            _shared, eval_str=True
        ).parameters.values()
        parameters = [first, delta, *own.values(), *rest, *([label] if is_labelled else []), last]
        answer.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        for group in (app, compare):
            group.command(name)(answer)
        return question

    return register


@command("gaussian", is_labelled=True)
def gaussian(
    noise_multiplier: Annotated[
        float, typer.Option(help="Z: standard deviation of the noise / sensitivity.")
    ],
) -> Question:
    """Queries answered with Gaussian noise: exact."""
    from dpmcmc.accounting.costs import Gaussian

    return Question({Gaussian(noise_multiplier): 1}, "gaussian")


@command("accept-bit", is_labelled=True)
def accept_bit(
    test: Annotated[
        Test, typer.Option(help="The acceptance test whose bit is released; metropolis is refused.")
    ],
    range: Annotated[
        float,
        typer.Option("--range", help="DELTA: how far one unit of privacy moves the log-ratio."),
    ],
    kappa: Annotated[
        float | None, typer.Option(help="Lazy Barker: the probability that the rows are looked at.")
    ] = None,
    sigma: Annotated[
        float | None, typer.Option(help="Penalty: standard deviation of the noise on the ratio.")
    ] = None,
    method: Annotated[
        BitMethod,
        typer.Option(
            help="best: the better of rdp and pure. exact: the recursion, some 12 % more steps; slow."
        ),
    ] = BitMethod.best,
) -> Question:
    """Accept bits: the coin is tossed where the rows are, and only its side is released."""
    from dpmcmc.accounting.costs import AcceptBit

    methods = {BitMethod.best: None, BitMethod.rdp: "rdp", BitMethod.exact: "recursion"}
    return Question({AcceptBit(_test(test, kappa, sigma), range): 1}, methods[method])


def _test(test: Test, kappa: float | None, sigma: float | None) -> Any:
    from dpmcmc import acceptance

    for option, value, wanted in (
        ("--sigma", sigma, Test.penalty),
        ("--kappa", kappa, Test.lazy_barker),
    ):
        if value is not None and test is not wanted:
            raise ValueError(
                f"the {test.value} test takes no {option}: leave it out, or name the "
                f"{wanted.value} test"
            )
        if value is not None and not math.isfinite(value):
            raise ValueError(f"{option} {value} must be a number")
    if test is Test.penalty:
        if sigma is None:
            raise ValueError("the penalty test needs --sigma, the standard deviation of its noise")
        return acceptance.Penalty(sigma)
    if test is Test.lazy_barker:
        if kappa is None:
            raise ValueError(
                "the lazy Barker test needs --kappa, the probability that the rows are looked at"
            )
        return acceptance.LazyBarker(kappa)
    return acceptance.Barker() if test is Test.barker else acceptance.Metropolis()


@command("subsampled-gaussian")
def subsampled_gaussian(
    scheme: Annotated[Scheme, typer.Option(help="How a batch is drawn.")],
    rate: Annotated[
        float, typer.Option(help="Q: the chance of a row to be in the batch, or batch size / rows.")
    ],
    noise_multiplier: Annotated[
        float, typer.Option(help="Z: standard deviation / full sensitivity for the relation.")
    ],
    neighbours: Protected,
    method: Annotated[
        BatchMethod, typer.Option(help="pld: nearly exact; rdp: Renyi divergences.")
    ] = BatchMethod.pld,
) -> Question:
    """Gaussian queries on random batches."""
    from dpmcmc.accounting.costs import SubsampledGaussian

    return Question(
        {SubsampledGaussian(scheme.value, rate, noise_multiplier, neighbours.neighbours): 1},
        method.value,
    )


@command("poisson-mixture")
def poisson_mixture(
    rate: Annotated[float, typer.Option(help="Q: the mean number of times a row is drawn.")],
    weight: Annotated[float, typer.Option(help="W: how far one draw can move the sum.")],
    std: Annotated[float, typer.Option(help="S: standard deviation of the noise.")],
    neighbours: Protected,
) -> Question:
    """Noisy sums over rows drawn a Poisson number of times each."""
    from dpmcmc.accounting.costs import PoissonMixture

    return Question({PoissonMixture(rate, weight, std, neighbours.neighbours): 1}, "pld")


@command("minibatch-barker")
def minibatch_barker(
    row_bound: Annotated[
        float, typer.Option(help="cM: the public bound of one row's energy difference.")
    ],
    ratio: Annotated[
        float,
        typer.Option(
            help="X = n cM / lambda: n rows, lambda the constant part of the mean batch size."
        ),
    ],
    method: Annotated[
        MinibatchMethod,
        typer.Option(
            help="best: the better of rdp and pure. pure: from the proved losses alone, by their sum or their range."
        ),
    ] = MinibatchMethod.best,
) -> Question:
    """Accept bits of Barker's test on a minibatch; one row is replaced."""
    from dpmcmc.accounting.costs import ZCDP, MinibatchBarker
    from dpmcmc.accounting.laws.minibatch import loss_range

    per_step = {MinibatchBarker(row_bound, ratio): 1}
    if method is MinibatchMethod.pure:
        by_range = Question({ZCDP(loss_range(row_bound, ratio) ** 2 / 8): 1}, "zcdp")
        return Question(per_step, "pure", otherwise=by_range)
    return Question(per_step, "rdp" if method is MinibatchMethod.rdp else None)


@command("dp-barker")
def dp_barker(
    batch: Annotated[int, typer.Option(help="B: rows in a batch, drawn without replacement.")],
    rows: Annotated[int, typer.Option(help="N: rows in the table.")],
    bound: Annotated[
        Bound, typer.Option(help="The exact Renyi divergence of a batch, or the papers' bound.")
    ] = Bound.tight,
    conversion: Annotated[
        Conversion, typer.Option(help="From Renyi divergence to epsilon.")
    ] = Conversion.best,
) -> Question:
    """DP Barker on minibatches, noise variance 2; one row is replaced."""
    from dpmcmc.accounting.costs import DPBarker

    return Question(
        {DPBarker(batch, rows, bound.value): 1},
        "rdp" if conversion is Conversion.best else "rdp-paper",
    )


@command("hmc", is_labelled=True)
def hmc(
    ratio_multiplier: Annotated[
        float, typer.Option(help="Z1: noise / sensitivity of the log-likelihood ratio.")
    ],
    gradient_multiplier: Annotated[
        float, typer.Option(help="Z2: noise / sensitivity of one gradient.")
    ],
    leapfrog: Annotated[int, typer.Option(help="L: leapfrog steps in a trajectory.")],
    no_reuse: Annotated[
        bool, typer.Option("--no-reuse", help="Ask for the first gradient of every trajectory.")
    ] = False,
) -> Question:
    """DP-HMC: per step a noisy ratio and L noisy gradients, and one gradient at the start (without
    reuse: L + 1 per step).
    """
    from dpmcmc.accounting.calibrate import combined
    from dpmcmc.accounting.costs import Gaussian

    if not 1 <= leapfrog <= MOST_LEAPFROG:
        raise ValueError(f"leapfrog must be at least 1 and at most {MOST_LEAPFROG}")
    gradient = Gaussian(gradient_multiplier)
    per_step = combined({Gaussian(ratio_multiplier): 1}, {gradient: leapfrog + int(no_reuse)})
    return Question(per_step, "gaussian", {} if no_reuse else {gradient: 1})


@app.command("ledger")
def ledger(
    file: Annotated[
        Path,
        typer.Argument(
            help="A ledger as JSON, a posterior saved as NetCDF, or what `run --ledger` keeps.",
            exists=True,
            dir_okay=False,
        ),
    ],
    as_json: Json = False,
) -> None:
    """Recompute the claim of a statement's ledger, of each owner if there are several; or add up a
    table's spends.

    Exit code 1 if a claim is not reproduced, or the spends are over the budget; 2 if the file of a
    table's spends was changed.
    """
    with _refusals(as_json):
        from dpmcmc.accounting import verify
        from dpmcmc.accounting.ledger import is_kept
        from dpmcmc.accounting.statement import one_line

        with _no_ledger(file):
            if is_kept(file):
                raise typer.Exit(_show_spends(file, as_json))
            verdicts = {
                name: verify.verify(ledger)
                for name, ledger in verify.by_owner(verify.read(file)).items()
            }
            contradictions = verify.contradictions(file)
    is_reproduced = (
        all(verdict.is_reproduced for verdict in verdicts.values()) and not contradictions
    )
    if contradictions:
        typer.echo(
            one_line(f"{file.name} contradicts its own ledger: {'; '.join(contradictions)}"),
            err=True,
        )
    answers = {name: _verdict_answer(verdict) for name, verdict in verdicts.items()}
    for answer in answers.values() if contradictions else ():
        answer |= {"is_reproduced": False, "contradictions": contradictions}
    if as_json:
        print(
            json.dumps(
                answers[""]
                if set(answers) == {""}
                else {"is_reproduced": is_reproduced, "owners": answers}
            )
        )
    else:
        for name, answer in answers.items():
            whose = f"the claim of {one_line(name)}" if name else "the claim"
            words = "is reproduced" if answer["is_reproduced"] else "is NOT reproduced"
            if answer["is_reproduced"] and answer["claimed_epsilon"] == "inf":
                words = "promises no privacy"
            _show(answer, False, f"{file.name}: {whose} {words}")
    raise typer.Exit(0 if is_reproduced else 1)


@contextmanager
def _no_ledger(file: Path) -> Iterator[None]:
    """A file of another kind is refused without a word of what is in it: it may be a table."""
    try:
        yield
    except (
        json.JSONDecodeError,
        UnicodeDecodeError,
        AttributeError,
        TypeError,
        OSError,
        RecursionError,
    ):
        raise ValueError(
            f"{file.name} holds no ledger: it must be a JSON object, or a posterior saved as NetCDF"
        ) from None
    except KeyError as error:
        raise ValueError(f"{file.name} holds no whole ledger: {error} is missing in it") from error
    except OverflowError:
        raise ValueError(f"{file.name} holds a number that is too large to be one") from None


def _show_spends(file: Path, as_json: bool) -> int:
    """Say what the grants of a table add up to. Returns the exit code."""
    from dpmcmc.accounting.ledger import audit

    found = audit(file)
    answer = {
        "is_within_budget": found.is_within,
        "grants": found.num_grants,
        "steps": found.num_queries,
        "epsilon": _number(found.epsilon),
        "budget_epsilon": _number(found.budget),
        "delta": found.delta,
        "method": found.method,
        "relation": found.relation,
        "rows_per_person": found.rows_per_person,
        **({} if found.left is None else {"left": found.left}),
    }
    words = "within the budget" if found.is_within else "OVER the budget"
    _show(
        answer,
        as_json,
        f"{file.name}: the spends are {words}"
        if math.isfinite(found.budget)
        else f"{file.name}: no promise",
    )
    return 0 if found.is_within else 1


def _verdict_answer(verdict: Any) -> dict[str, Any]:
    return {
        "is_reproduced": verdict.is_reproduced,
        "steps": verdict.steps,
        "epsilon": _number(verdict.recomputed),
        "claimed_epsilon": _number(verdict.claimed),
        "delta": verdict.delta,
        "method": verdict.method,
        "relation": verdict.relation,
        "rows_per_person": verdict.rows_per_person,
    }


def _answer(
    context: typer.Context, question: Callable[[], Question], given: Given, as_json: bool
) -> None:
    with _refusals(as_json):
        with _as_typed():
            _check(given)
            asked = question()
        if context.parent is not None and context.parent.info_name == "compare":
            _show_comparison(asked, given, as_json)
        else:
            _announce(asked, given)
            answers = [
                _answered(one, one.method, given)
                for one in (asked, asked.otherwise)
                if one is not None
            ]
            _show(max(answers, key=_merit), as_json, f"dpmcmc account {context.info_name}")


@contextmanager
def _as_typed() -> Iterator[None]:
    """Name an argument as it is typed: --noise-multiplier -1 and not noise_multiplier=-1."""
    try:
        yield
    except ValueError as error:
        raise ValueError(
            re.sub(r"^(\w+)=", lambda found: f"--{found[1].replace('_', '-')} ", str(error))
        ) from error


def _check(given: Given) -> None:
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


def _merit(answer: dict[str, Any]) -> tuple[int, float]:
    """More steps are better, and a smaller epsilon."""
    return answer["steps"], -float(answer["epsilon"])


def _answered(asked: Question, method: str | None, given: Given) -> dict[str, Any]:
    """steps and epsilon: one was given; the other is the answer."""
    from dpmcmc.accounting import accountants, calibrate

    epsilon, steps, delta, relation = given
    if steps is None:
        assert epsilon is not None
        steps = calibrate.steps(asked.per_step, epsilon, delta, asked.initial, method)
        method = (
            method
            or accountants.epsilon(
                calibrate.combined(asked.initial, asked.per_step, max(1, steps)), delta
            ).method
        )
    else:
        ledger = calibrate.combined(asked.initial, asked.per_step, steps) if steps else {}
        if method is None:
            epsilon, method = accountants.epsilon(ledger, delta) if steps else (0.0, "pure")
        else:
            epsilon = accountants.epsilon_by(method, ledger, delta)
    return {
        "steps": steps,
        "epsilon": _number(epsilon),
        "delta": delta,
        "method": method,
        "relation": relation,
        "per_step": _costs(asked.per_step),
        "initial": _costs(asked.initial),
    }


def _costs(ledger: Mapping[Any, int]) -> list[dict[str, Any]]:
    from dpmcmc.accounting.costs import to_json

    return [{"cost": to_json(cost), "count": count} for cost, count in ledger.items()]


def _number(value: float) -> float | str:
    return value if math.isfinite(value) else "inf"


def _show(answer: dict[str, Any], as_json: bool, title: str) -> None:
    if as_json:
        print(json.dumps(answer))
        return
    from rich.console import Console
    from rich.table import Table

    from dpmcmc.accounting.statement import rounded_up

    table = Table(show_header=False)
    for name, value in answer.items():
        if name in ("per_step", "initial"):
            value = "\n".join(_words(entry) for entry in value)
        if name == "steps":
            value = _number_of_steps(value)
        if value != "":
            table.add_row(
                name.replace("_", " "),
                rounded_up(value, 6) if isinstance(value, float) else str(value),
            )
    print(title)
    Console().print(table)


def _number_of_steps(steps: int) -> str:
    from dpmcmc.accounting.search import LIMIT

    return f"at least {steps}" if steps >= LIMIT else str(steps)


def _words(entry: dict[str, Any]) -> str:
    cost = dict(entry["cost"])
    kind = cost.pop("kind")
    parts = ", ".join(
        f"{name}={value}" for name, value in cost.items() if name != "distance" or value
    )
    return f"{entry['count']} x {kind}({parts})"


def _show_comparison(asked: Question, given: Given, as_json: bool) -> None:
    """Every method that has a bound; the recursion only where it is quick enough."""
    from dpmcmc.accounting import accountants
    from dpmcmc.errors import UnsupportedQuery

    answers: list[dict[str, Any]] = []
    for method in accountants.METHODS:
        if method == "recursion" and _length(asked, given) > MOST_RECURSION_STEPS:
            continue
        try:
            # Of nothing every method has a bound: which ones have one of this query?
            if given.steps == 0:
                _answered(asked, method, given._replace(steps=1))
            answers.append(_answered(asked, method, given))
        except UnsupportedQuery:
            continue
    if not answers:
        raise UnsupportedQuery("no method has a bound for this query at this delta")
    answers.sort(key=_merit, reverse=True)
    if as_json:
        print(json.dumps({"answers": answers}))
        return
    from rich.console import Console
    from rich.table import Table

    from dpmcmc.accounting.statement import rounded_up

    print(f"delta = {given.delta:g}, {given.relation}")
    table = Table("method", "steps", "epsilon")
    for answer in answers:
        table.add_row(
            answer["method"],
            _number_of_steps(answer["steps"]),
            rounded_up(float(answer["epsilon"]), 6),
        )
    Console().print(table)


MOST_RECURSION_STEPS = 2_000
# With `accountants.MOST_QUERIES` there is still an answer to how many steps fit
MOST_LEAPFROG = 10**6 - 2


def _length(asked: Question, given: Given) -> float:
    """About how many steps the recursion would have to follow."""
    from dpmcmc.errors import UnsupportedQuery

    if given.steps is not None:
        return given.steps
    try:
        return 1.2 * _answered(asked, "rdp", given)["steps"]
    except UnsupportedQuery:
        return math.inf


def _announce(asked: Question, given: Given) -> None:
    """Warn before a recursion that takes more than about half a minute, unless it will be refused."""
    if asked.method == "recursion":
        from dpmcmc.accounting.laws.recursion import MOST_STEPS

        length = _length(asked, given)
        if MOST_RECURSION_STEPS < length <= 1.2 * MOST_STEPS:
            typer.echo(
                f"some {length:.0f} steps by the recursion take a minute or more; --method rdp "
                "answers at once",
                err=True,
            )


@contextmanager
def _refusals(as_json: bool) -> Iterator[None]:
    with refusals(KeyError, as_json=as_json):
        try:
            yield
        except OverflowError as error:
            raise ValueError(f"some number is too large to compute with ({error})") from error
