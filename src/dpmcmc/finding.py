"""Findings about a run: values, made once and shown by everything that shows a run.

This module can be imported without JAX.
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
    """How much a finding matters.

    Attributes:
        NOTE: Something to know when the draws are used.
        SEVERE: The draws must not be relied on.

    Example:
        >>> from dpmcmc import Severity
        >>> Severity("severe") is Severity.SEVERE
        True
    """

    NOTE = "note"
    SEVERE = "severe"


@dataclass(frozen=True)
class Finding:
    """One fact about a run, with the numbers behind it.

    Attributes:
        code: A short name that does not change between versions, such as "r-hat".
        severity: Whether it is a note, or the draws must not be relied on.
        text: The fact in whole sentences.
        numbers: The numbers behind it by name: numbers, texts, and lists of these.

    Example:
        >>> from dpmcmc import Finding, Severity
        >>> finding = Finding("r-hat", Severity.SEVERE, "The chains disagree.", {"r_hat": 2.2})
        >>> finding.is_severe
        True
    """

    code: str
    severity: Severity
    text: str
    numbers: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "severity", Severity(self.severity))
        object.__setattr__(
            self, "numbers", {name: _plain(value) for name, value in self.numbers.items()}
        )

    @property
    def is_severe(self) -> bool:
        """Whether the draws must not be relied on."""
        return self.severity is Severity.SEVERE

    def to_json(self) -> dict[str, Any]:
        """The finding as JSON, which `from_json` reads.

        Returns:
            A dict of texts and numbers.

        Example:
            >>> from dpmcmc import Finding, Severity
            >>> Finding("r-hat", Severity.NOTE, "Fine.").to_json()["severity"]
            'note'
        """
        return {
            "code": self.code,
            "severity": self.severity.value,
            "text": self.text,
            "numbers": dict(self.numbers),
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Finding:
        """The finding that `to_json` wrote.

        Args:
            document: What `to_json` returned.

        Returns:
            The same finding.

        Example:
            >>> from dpmcmc import Finding, Severity
            >>> finding = Finding("r-hat", Severity.NOTE, "Fine.")
            >>> Finding.from_json(finding.to_json()) == finding
            True
        """
        return cls(document["code"], document["severity"], document["text"], document["numbers"])


def note(code: str, text: str, **numbers: Any) -> Finding:
    """A finding to know when the draws are used."""
    return Finding(code, Severity.NOTE, text, numbers)


def severe(code: str, text: str, **numbers: Any) -> Finding:
    """A finding that says not to rely on the draws."""
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
    """The findings of a result and the limits its draws were compared with, as JSON."""
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
    listed = list(findings)
    severe_ones = " ".join(each.text for each in listed if each.is_severe)
    lines = [one_line(each.text) for each in listed if not each.is_severe]
    return [*lines, f"{DO_NOT_RELY}: {one_line(severe_ones)}"] if severe_ones else lines


def in_words(findings: Iterable[Finding]) -> str:
    """All findings as lists, the severe ones in front."""
    listed = list(findings)
    blocks = {
        f"{DO_NOT_RELY}:": [each for each in listed if each.is_severe],
        "Notes:": [each for each in listed if not each.is_severe],
    }
    parts = [
        [title, *(f"  - {one_line(each.text)}" for each in part)]
        for title, part in blocks.items()
        if part
    ]
    return "\n\n".join("\n".join(lines) for lines in parts)
