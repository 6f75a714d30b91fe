"""What came of a run, as a value: draws, released statistics, statement and findings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpmcmc.accounting.statement import FederatedStatement, Statement
from dpmcmc.diagnostics import Limits
from dpmcmc.finding import Finding
from dpmcmc.results import arviz, files, summary
from dpmcmc.results import report as reports


@dataclass(frozen=True, eq=False)
class Record:
    """A run that was made. Its draws were compared with its limits once, when it was made.

    Example:
        >>> record = dpmcmc.plan(key, recipe, curator).run()  # doctest: +SKIP
        >>> print(record.summary(), record.statement)  # doctest: +SKIP
    """

    posterior: Any  # the draws and the released statistics, as an ArviZ InferenceData
    statement: Statement | FederatedStatement
    findings: tuple[Finding, ...]  # made before, during and after the run
    limits: Limits  # that the draws were compared with
    attributes: Mapping[str, str]  # texts that the caller keeps with the draws

    @classmethod
    def of_draws(
        cls,
        positions: Any,
        info: Any,
        model: Any,
        statement: Statement | FederatedStatement,
        *,
        attributes: Mapping[str, str],
        limits: Limits,
        findings: list[Finding],
        checks: Callable[[Any], list[Finding]] | None,
        **options: Any,
    ) -> Record:
        """Name the draws and judge them.

        Args:
            positions: draws of all chains, of shape (chains, draws, d).
            info: what the sampler released at each draw.
            model: names the parameters, and knows their prior.
            statement: what the run promised.
            attributes: texts to keep with the draws.
            limits: what the draws are compared with.
            findings: those that were made before.
            checks: a function from the ArviZ result to further findings.
            **options: num_warmup, thin and units, as `results.arviz.from_draws` takes them.

        Returns:
            The record.
        """
        made = arviz.from_draws(
            positions,
            info,
            model.unravel,
            statement,
            attributes=attributes,
            findings=findings,
            limits=limits,
            checks=checks,
            log_prior=model.log_prior,
            **options,
        )
        found = tuple(arviz.findings(made))
        return cls(made, statement, found, limits, dict(attributes))

    @property
    def num_draws(self) -> int:
        """Draws of all chains, without warm-up."""
        sizes = self.posterior.posterior.sizes
        return sizes["chain"] * sizes["draw"]

    @property
    def is_reliable(self) -> bool:
        """Whether no finding is severe."""
        return not any(finding.is_severe for finding in self.findings)

    def to_json(self) -> dict[str, Any]:
        """All of the record but the draws, as JSON."""
        return {
            "statement": self.statement.to_json(),
            "findings": [finding.to_json() for finding in self.findings],
            "limits": self.limits._asdict(),
            "attributes": dict(self.attributes),
        }

    def to_arviz(self) -> Any:
        """An ArviZ InferenceData, with statement and findings among its attributes."""
        return self.posterior

    def summary(self) -> str:
        """ArviZ's table of the parameters: mean, spread, interval, effective draws, R-hat."""
        return summary.summary(self.posterior)

    def save(self, path: str | Path) -> None:
        """Write a NetCDF file, which `dpmcmc.load` reads.

        Args:
            path: the file; one that is there is replaced.
        """
        files.save(self.posterior, path)

    def report(self, path: str | Path, title: str = "A posterior") -> None:
        """Write one HTML page: whether to rely on the draws, a table, a figure, the promise.

        Args:
            path: the file, with the ending .html.
            title: its headline.
        """
        reports.report(self.posterior, path, title)
