"""The result of an attack."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dpmcmc.types import Cost

# Exit statuses. The command line uses 2 for a refusal and 3 for a run not to rely on
NOT_REFUTED = 0
REFUTED = 1
NO_EVIDENCE = 4


@dataclass(frozen=True)
class Verdict:
    """What an attack on made-up rows has shown about costs. It is not a private release.

    Attributes:
        factor: A lower bound on how many times better the tables can be distinguished than the
            costs admit. Up to 1 it refutes nothing.
        epsilon: A lower bound on epsilon at `delta`.
        claimed_epsilon: Epsilon at `delta` by the costs; infinite if they claim none.
        delta: Where epsilon is compared.
        alarm: The probability that `factor` or `epsilon` is too large, and so that a correct cost
            is refuted.
        num_answers: The number of answers about each table.
        costs: The costs of one answer, with their counts.

    Example:
        >>> from dpmcmc.audit import Verdict
        >>> Verdict(1.2, 3.0, 2.5, 0.01, 1e-6, 10_000, {}).is_refuted
        True
    """

    factor: float
    epsilon: float
    claimed_epsilon: float
    delta: float
    alarm: float
    num_answers: int
    costs: Mapping[Cost, int]

    @property
    def is_refuted(self) -> bool:
        """Whether the costs are too small."""
        return self.factor > 1 or self.epsilon > self.claimed_epsilon

    @property
    def is_uninformative(self) -> bool:
        """Whether no event distinguishes the tables: then a cost that is too small would not have
        been found either.
        """
        return not self.is_refuted and self.factor == 0 and self.epsilon == 0

    @property
    def exit_status(self) -> int:
        """For a script that ends with an audit: 0 not refuted, 1 refuted, 4 no evidence."""
        if self.is_refuted:
            return REFUTED
        return NO_EVIDENCE if self.is_uninformative else NOT_REFUTED

    def __str__(self) -> str:
        costs = " and ".join(f"{count} x {cost}" for cost, count in self.costs.items())
        lines = [
            *self._headline(),
            f"  Cost:      {costs}",
            f"  Epsilon:   at least {self.epsilon:.4g} at delta = {self.delta:g}; the cost "
            f"claims {self.claimed_epsilon:.4g}",
            f"  Answers:   {self.num_answers} about each table; the probability of a false alarm "
            f"is at most {self.alarm:g}",
            "  Not for real rows: nobody pays for the answers, and the secret is known. NOTHING "
            "HERE IS PRIVATE.",
        ]
        return "\n".join(lines)

    def _headline(self) -> list[str]:
        if self.is_refuted:
            # Where the factor is at most 1, it is epsilon alone that is too large
            times = f"{self.factor:.3g} times " if self.factor > 1 else ""
            return [f"REFUTED: the tables can be distinguished {times}better than the cost admits"]
        if self.is_uninformative:
            return [
                "NO EVIDENCE: the attack cannot distinguish the tables, so the cost was not tested",
                "  Use rows that differ more, points where the difference matters, less noise, or "
                "more answers.",
            ]
        return [
            f"NOT REFUTED: the tables can be distinguished {self.factor:.3g} times as well as the "
            "cost admits",
            "  An audit proves nothing: other tables, other points or a better attack may refute "
            "the cost.",
        ]
