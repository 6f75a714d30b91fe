"""The command that verifies the ledger of a statement, or adds up the ledger of a table."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from dpmcmc.cli.account.answers import account_refusals
from dpmcmc.cli.account.commands import Json, app
from dpmcmc.cli.account.output import json_number, show_answer


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
    """Recompute the claim of a statement's ledger, of each owner if there are several; or add up
    the grants in a table's ledger.

    Exit code 1 if a claim is not reproduced, or the grants exceed the budget; 2 if a table's ledger
    was changed.
    """
    with account_refusals(as_json):
        from dpmcmc.accounting import reading, verify
        from dpmcmc.accounting.ledger import is_kept
        from dpmcmc.accounting.statement import one_line

        with _refuse_other_files(file):
            if is_kept(file):
                raise typer.Exit(_show_table_ledger(file, as_json))
            verdicts = {
                name: verify.verify(ledger)
                for name, ledger in reading.by_owner(verify.read(file)).items()
            }
            contradictions = verify.contradictions(file)
    if contradictions:
        reasons = "; ".join(contradictions)
        typer.echo(one_line(f"{file.name} contradicts its own ledger: {reasons}"), err=True)
    answers = {name: _verdict_answer(verdict) for name, verdict in verdicts.items()}
    for answer in answers.values() if contradictions else ():
        answer |= {"is_reproduced": False, "contradictions": contradictions}
    _show_claims(file, answers, as_json)
    is_reproduced = all(answer["is_reproduced"] for answer in answers.values())
    raise typer.Exit(0 if is_reproduced and not contradictions else 1)


def _show_claims(file: Path, answers: dict[str, dict[str, Any]], as_json: bool) -> None:
    """Print whether each owner's claim is reproduced; one owner alone has the empty name."""
    from dpmcmc.accounting.statement import one_line

    if as_json:
        is_reproduced = all(answer["is_reproduced"] for answer in answers.values())
        several = {"is_reproduced": is_reproduced, "owners": answers}
        print(json.dumps(answers[""] if set(answers) == {""} else several))
        return
    for name, answer in answers.items():
        claim = f"the claim of {one_line(name)}" if name else "the claim"
        result = "is reproduced" if answer["is_reproduced"] else "is NOT reproduced"
        if answer["is_reproduced"] and answer["claimed_epsilon"] == "inf":
            result = "promises no privacy"
        show_answer(answer, False, f"{file.name}: {claim} {result}")


@contextmanager
def _refuse_other_files(file: Path) -> Iterator[None]:
    """Refuse a file of another kind without quoting its contents: it may be a table."""
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


def _show_table_ledger(file: Path, as_json: bool) -> int:
    """Print the sum of a table's grants and return the exit code."""
    from dpmcmc.accounting.ledger import audit

    total = audit(file)
    answer = {
        "is_within_budget": total.is_within,
        "grants": total.num_grants,
        "steps": total.num_queries,
        "epsilon": json_number(total.epsilon),
        "budget_epsilon": json_number(total.budget),
        "delta": total.delta,
        "method": total.method,
        "relation": total.relation,
        "rows_per_person": total.rows_per_person,
    }
    if total.left is not None:
        answer["left"] = total.left
    result = "the grants are within the budget"
    if not total.is_within:
        result = "the grants are OVER the budget"
    if not math.isfinite(total.budget):
        result = "no promise"
    show_answer(answer, as_json, f"{file.name}: {result}")
    return 0 if total.is_within else 1


def _verdict_answer(verdict: Any) -> dict[str, Any]:
    return {
        "is_reproduced": verdict.is_reproduced,
        "steps": verdict.steps,
        "epsilon": json_number(verdict.recomputed),
        "claimed_epsilon": json_number(verdict.claimed),
        "delta": verdict.delta,
        "method": verdict.method,
        "relation": verdict.relation,
        "rows_per_person": verdict.rows_per_person,
    }
