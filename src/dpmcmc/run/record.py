"""The result of a run, as a value: draws, released statistics, statement and findings."""

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
    """A finished run. Its draws were compared with its limits once, at its end.

    Attributes:
        posterior: The draws and the released statistics, as an ArviZ InferenceData.
        statement: What was promised, with the bill.
        findings: Findings made before, during and after the run.
        limits: What the draws were compared with.
        attributes: Texts of the caller, kept with the draws.

    Example:
        >>> import dpmcmc
        >>> record = dpmcmc.plan(key, recipe, curator, num_steps=20).run(progress=False)
        >>> print(str(record.statement).splitlines()[1])
          Promise:   (0.2605, 1e-06)-differential privacy
    """

    posterior: Any
    statement: Statement | FederatedStatement
    findings: tuple[Finding, ...]
    limits: Limits
    attributes: Mapping[str, str]

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
        """Name the parameters of draws, and compare the draws with the limits.

        Args:
            positions: Draws of all chains, of shape (chains, draws, d).
            info: What the sampler released with each draw.
            model: The curator's model, which names the parameters and has their prior.
            statement: What was promised.
            attributes: Texts to keep with the draws.
            limits: What the draws are compared with.
            findings: Findings that were made before.
            checks: A function from the ArviZ result to further findings, or None.
            **options: Any of num_warmup, thin and units, as `results.arviz.from_draws` takes them.

        Returns:
            The record.

        Example:
            >>> import numpy as np
            >>> import dpmcmc
            >>> made = dpmcmc.Record.of_draws(
            ...     np.zeros((2, 10, 1)),
            ...     None,
            ...     dpmcmc.models.binomial(),
            ...     record.statement,
            ...     attributes={},
            ...     limits=record.limits,
            ...     findings=[],
            ...     checks=None,
            ... )
            >>> made.num_draws
            20
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
        judged = tuple(arviz.findings(made))
        return cls(made, statement, judged, limits, dict(attributes))

    @property
    def num_draws(self) -> int:
        """The number of draws of all chains, without warm-up."""
        sizes = self.posterior.posterior.sizes
        return sizes["chain"] * sizes["draw"]

    @property
    def is_reliable(self) -> bool:
        """Whether no finding is severe."""
        return not any(finding.is_severe for finding in self.findings)

    def to_json(self) -> dict[str, Any]:
        """The record without its draws, as JSON.

        Returns:
            A dict with the statement, the findings, the limits and the attributes.

        Example:
            >>> sorted(record.to_json())
            ['attributes', 'findings', 'limits', 'statement']
        """
        return {
            "statement": self.statement.to_json(),
            "findings": [finding.to_json() for finding in self.findings],
            "limits": self.limits._asdict(),
            "attributes": dict(self.attributes),
        }

    def to_arviz(self) -> Any:
        """The draws for ArviZ.

        Returns:
            An ArviZ InferenceData, with statement and findings among its attributes.

        Example:
            >>> list(record.to_arviz().posterior.data_vars)
            ['probability']
        """
        return self.posterior

    def summary(self) -> str:
        """ArviZ's table: mean, standard deviation, interval, effective draws and R-hat.

        Returns:
            The table as text, with a line for each parameter.

        Example:
            >>> record.summary().split()[:3]
            ['mean', 'sd', 'hdi_3%']
        """
        return summary.summary(self.posterior)

    def save(self, path: str | Path) -> None:
        """Write a NetCDF file, which `dpmcmc.load` reads.

        Args:
            path: The file. If there is one, it is replaced.

        Raises:
            ValueError: The folder does not exist.

        Example:
            >>> import dpmcmc
            >>> record.save("people.nc")
            >>> dpmcmc.load("people.nc").posterior.sizes["draw"]
            10
        """
        files.save(self.posterior, path)

    def report(self, path: str | Path, title: str = "A posterior") -> None:
        """Write one HTML page: whether to rely on the draws, a table, a figure, the statement.

        Args:
            path: The file, with the ending .html. If there is a page, it is replaced.
            title: The headline.

        Raises:
            ValueError: The path has another ending, or the file there is not a page.

        Example:
            >>> from pathlib import Path
            >>> record.report("people.html", title="People")
            >>> Path("people.html").exists()
            True
        """
        reports.report(self.posterior, path, title)
