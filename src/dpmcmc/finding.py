"""What was found about a run: a value, made once and shown by everything that shows a run.
Importable without JAX.
"""

from __future__ import annotations

import enum
import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dpmcmc.accounting.statement import one_line
from dpmcmc.errors import in_brief

FORMAT = "dpmcmc-findings-1"
DO_NOT_RELY = "DO NOT RELY on these draws"


class Severity(enum.StrEnum):
    NOTE = "note"  # to know when the draws are used
    SEVERE = "severe"  # the draws must not be relied on


@dataclass(frozen=True)
class Finding:
    """One fact about a run, with the numbers behind it."""

    code: str  # short and stable, such as "r-hat"
    severity: Severity
    text: str  # whole sentences for people
    numbers: Mapping[str, Any] = field(default_factory=dict)  # numbers, texts, and lists of them

    def __post_init__(self) -> None:
        object.__setattr__(self, "severity", Severity(self.severity))
        object.__setattr__(
            self, "numbers", {name: _plain(value) for name, value in self.numbers.items()}
        )

    @property
    def is_severe(self) -> bool:
        return self.severity is Severity.SEVERE

    def to_json(self) -> dict[str, Any]:
        """What JSON can hold: `from_json` makes the same finding of it."""
        return {
            "code": self.code,
            "severity": self.severity.value,
            "text": self.text,
            "numbers": dict(self.numbers),
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Finding:
        return cls(document["code"], document["severity"], document["text"], document["numbers"])


def note(code: str, text: str, **numbers: Any) -> Finding:
    return Finding(code, Severity.NOTE, text, numbers)


def severe(code: str, text: str, **numbers: Any) -> Finding:
    return Finding(code, Severity.SEVERE, text, numbers)


def _plain(value: Any) -> Any:
    """Python's own numbers, texts and lists.

    A number that is not finite becomes a text, as JSON has none.
    """
    if isinstance(value, str):
        return value
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return value if math.isfinite(value) else str(value)


def unless_it_fails(
    check: Callable[..., list[Finding]], *arguments: Any, severity: Severity = Severity.NOTE
) -> list[Finding]:
    """The findings of a check of released values.

    Its own failure is a finding: it must not cost the draws.
    """
    try:
        return check(*arguments)
    except Exception as error:
        return [
            Finding(
                "not-checked",
                severity,
                f"The run could not be checked in full ({in_brief(error)}).",
            )
        ]


def to_text(findings: Iterable[Finding], limits: Mapping[str, float]) -> str:
    """The findings of a result, and the limits that its draws were held against, as an attribute of
    it.
    """
    document = {
        "format": FORMAT,
        "limits": dict(limits),
        "findings": [each.to_json() for each in findings],
    }
    return json.dumps(document, allow_nan=False)


def from_text(text: str) -> tuple[list[Finding], dict[str, float]]:
    """What `to_text` wrote: the findings and the limits."""
    document = json.loads(text)
    return [Finding.from_json(each) for each in document["findings"]], document["limits"]


def in_lines(findings: Iterable[Finding]) -> list[str]:
    """A line for each note, and one for all severe findings together."""
    found = list(findings)
    severe_ones = " ".join(each.text for each in found if each.is_severe)
    lines = [one_line(each.text) for each in found if not each.is_severe]
    return [*lines, f"{DO_NOT_RELY}: {one_line(severe_ones)}"] if severe_ones else lines


def in_words(findings: Iterable[Finding]) -> str:
    """All findings as lists, the severe ones in front."""
    found = list(findings)
    blocks = {
        f"{DO_NOT_RELY}:": [each for each in found if each.is_severe],
        "Notes:": [each for each in found if not each.is_severe],
    }
    parts = [
        [title, *(f"  - {one_line(each.text)}" for each in part)]
        for title, part in blocks.items()
        if part
    ]
    return "\n\n".join("\n".join(lines) for lines in parts)
