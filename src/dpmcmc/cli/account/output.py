"""Answers as tables and as JSON."""

from __future__ import annotations

import json
import math
from typing import Any


def json_number(value: float) -> float | str:
    """The number; as JSON has no infinity, "inf" for that."""
    return value if math.isfinite(value) else "inf"


def show_answer(answer: dict[str, Any], as_json: bool, title: str) -> None:
    """Print one answer: a JSON object, or a title and a table."""
    if as_json:
        print(json.dumps(answer))
        return
    from rich.console import Console
    from rich.table import Table

    from dpmcmc.accounting.statement import rounded_up

    table = Table(show_header=False)
    for name, value in answer.items():
        if name in ("per_step", "initial"):
            value = "\n".join(_entry_text(entry) for entry in value)
        if name == "steps":
            value = _steps_text(value)
        if value != "":
            table.add_row(
                name.replace("_", " "),
                rounded_up(value, 6) if isinstance(value, float) else str(value),
            )
    print(title)
    Console().print(table)


def show_comparison(answers: list[dict[str, Any]], as_json: bool, title: str) -> None:
    """Print the answers of several methods, best first."""
    if as_json:
        print(json.dumps({"answers": answers}))
        return
    from rich.console import Console
    from rich.table import Table

    from dpmcmc.accounting.statement import rounded_up

    print(title)
    table = Table("method", "steps", "epsilon")
    for answer in answers:
        epsilon = rounded_up(float(answer["epsilon"]), 6)
        table.add_row(answer["method"], _steps_text(answer["steps"]), epsilon)
    Console().print(table)


def _steps_text(steps: int) -> str:
    from dpmcmc.accounting.search import LIMIT

    return f"at least {steps}" if steps >= LIMIT else str(steps)


def _entry_text(entry: dict[str, Any]) -> str:
    cost = dict(entry["cost"])
    kind = cost.pop("kind")
    parts = ", ".join(
        f"{name}={value}" for name, value in cost.items() if name != "tv_error" or value
    )
    return f"{entry['count']} x {kind}({parts})"
