"""Progress, made from released values only: a bar in a terminal, plain lines elsewhere."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterable
from typing import Any

import numpy as np

from dpmcmc.finding import Finding, in_lines
from dpmcmc.types import statistics_of

logger = logging.getLogger(__name__)
SECONDS_BETWEEN_LINES = 10.0


class Progress:
    """Shows how many steps are done and, if it is released, the share of accepted moves."""

    def __init__(self, num_steps: int, is_shown: bool = True, shows_findings: bool = True) -> None:
        self.num_steps = num_steps
        self.done = 0
        self.shows_findings = shows_findings
        self.warned: list[Finding] = []
        self.bar: Any = None
        self.is_shown = is_shown
        self.is_terminal = sys.stderr.isatty()
        self.accepted: list[float] = []
        self.last_line = time.monotonic()

    def __enter__(self) -> Progress:
        if self.is_shown and self.is_terminal:
            from rich.console import Console
            from rich.progress import Progress as Bar

            self.bar = Bar(console=Console(stderr=True), transient=True)
            self.bar.start()
            self.task = self.bar.add_task("sampling", total=self.num_steps)
        return self

    def __exit__(self, *error: Any) -> None:
        if self.bar is not None:
            self.bar.stop()

    def advance(self, num_steps: int, info: Any) -> None:
        """Show that a block is done."""
        self.done += num_steps
        if (is_accepted := statistics_of(info).get("is_accepted")) is not None:
            self.accepted.append(float(np.mean(is_accepted)))
        if self.bar is not None:
            self.bar.update(
                self.task, completed=self.done, description=f"sampling{self._acceptance()}"
            )
        elif self.is_shown and (
            self.done >= self.num_steps or time.monotonic() - self.last_line > SECONDS_BETWEEN_LINES
        ):
            self.last_line = time.monotonic()
            self.say(f"{self.done} of {self.num_steps} steps{self._acceptance()}")

    def say(self, text: str) -> None:
        """Print a line, if progress is shown."""
        if self.is_shown:
            print(f"dpmcmc: {text}", file=sys.stderr)

    def warn(self, findings: Iterable[Finding]) -> None:
        """Show the findings not shown before: one line a note, and one for all severe ones."""
        new = [finding for finding in findings if finding not in self.warned]
        self.warned += new
        for line in in_lines(new) if self.shows_findings else ():
            self.show(line)

    def show(self, text: str) -> None:
        """Print a line, or log it if progress is not shown.

        Not a Python warning, which can be turned into an error: the draws would be discarded.
        """
        if self.is_shown:
            self.say(text)
        else:
            logger.warning(text)

    def _acceptance(self) -> str:
        return f", {np.mean(self.accepted):.0%} accepted" if self.accepted else ""
