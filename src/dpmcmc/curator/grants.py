"""Grants: a bill that is in the ledger, and the fresh secret that its answers are made with.

One owner grants, or several together: then all of them, or none.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from dpmcmc.accounting.bill import Entry, checked, total_costs
from dpmcmc.accounting.ledger import record_all
from dpmcmc.accounting.statement import Statement
from dpmcmc.curator.noise import stream
from dpmcmc.curator.placement import on_no_device
from dpmcmc.curator.processes import in_all
from dpmcmc.curator.programs.program import Executable, compiled_by, execute
from dpmcmc.curator.queries.filtered import Meter
from dpmcmc.curator.records import Handle, keep, record_of
from dpmcmc.errors import BudgetExceeded
from dpmcmc.types import Plan, Query, is_standing

if TYPE_CHECKING:
    from dpmcmc.curator.owner import Curator


@dataclass(eq=False)
class Granted:
    """A grant, as it is kept in `records`."""

    curator: Curator
    statement: Statement
    left: Counter[Query]
    secret: np.ndarray
    runs: Iterator[int]
    meter: Meter

    def check(self, plan: Plan) -> None:
        """Refuse a program that asks more than is left, or any once the rows were withdrawn."""
        self.curator._account.check_consent()
        for query, count in plan.items():
            if count > self.left[query]:
                raise BudgetExceeded(
                    f"the program asks {query} {count} times, {self.left[query]} are left of the "
                    "grant"
                )

    def take(self, plan: Plan) -> tuple[Any, Any, Any]:
        """Take a checked program's asks off the grant.

        It returns what the program runs on: the rows, their number, and the secret.
        """
        self.left.subtract(
            {query: count for query, count in plan.items() if not is_standing(query)}
        )
        words = jnp.asarray(stream.secret_of(self.secret, next(self.runs)), jnp.uint32)
        return self.curator.stored(plan), self.curator._placed.num_rows, words


class Grant(Handle):
    """A billed plan, and the fresh secret that its answers are made with.

    It is made by `Curator.grant`; what is left of it is kept in `records`.

    Example:
        >>> import numpy as np
        >>> import dpmcmc
        >>> rows = np.linspace(-1, 1, 10, dtype=np.float32)[:, None]
        >>> model = dpmcmc.models.gaussian([1.0], radius=2.0)
        >>> curator = dpmcmc.Curator(rows, model, dpmcmc.Budget(epsilon=1.0, delta=1e-6))
        >>> grant = curator.grant({dpmcmc.queries.Count(noise_multiplier=50.0): 1})
        >>> curator.num_grants
        1
        >>> grant.statement("a first count").notes[-1]
        'a first count'
    """

    __slots__ = ()

    def run(self, executable: Executable, *arguments: Any) -> Any:
        """Run a compiled program once.

        Its asks are taken off the grant before a row is touched.

        Args:
            executable: The program, compiled for the curator that has given out this grant.
            *arguments: Its arguments.

        Returns:
            What the program returns.

        Raises:
            BudgetExceeded: The program asks more than is left, or the rows were withdrawn.
            PrivacyRefusal: The program or the grant is not of this curator, or a pass over a
                dataset did not read the rows that were there.
        """
        granted = granted_of(self)
        curator = granted.curator
        program = compiled_by(granted.curator, executable)
        with curator._lock:
            granted.check(program.plan)
            curator._meter = granted.meter
            try:
                found = execute(program.compiled, granted.take(program.plan), arguments)
                return found if curator._mesh is None else jax.tree.map(on_no_device, found)
            except Exception:
                failure = None if curator._passes is None else curator._passes.failure()
                if failure is None:
                    raise
            raise failure

    def statement(self, *notes: str) -> Statement:
        """What this grant promised, with its bill.

        Args:
            *notes: Lines to add to the statement's notes.

        Returns:
            The statement.

        Raises:
            PrivacyRefusal: The grant was not given out by a curator.
        """
        statement = granted_of(self).statement
        return dataclasses.replace(statement, notes=statement.notes + notes)


def granted_of(grant: Grant) -> Granted:
    """The record of a grant, or a refusal."""
    return record_of(grant, Granted, "a grant that a curator has given out (curator.grant(plan))")


def bill_all(owners: Sequence[Curator], plan: Plan) -> list[Grant]:
    """Bill every owner for the whole plan, or none of them."""
    plan = checked(plan)  # one copy for the check, the bill and the grant
    with contextlib.ExitStack() as locks:
        # In one order for everybody: else two that bill the same owners could wait for each other.
        for lock in sorted((owner._account.lock for owner in owners), key=id):
            locks.enter_context(lock)
        return _bill_all(owners, plan)


def _bill_all(owners: Sequence[Curator], plan: Plan) -> list[Grant]:
    accounts = [owner._account for owner in owners]
    bills = in_all(owners[0]._processes, functools.partial(_checked_bills, owners, plan))
    # Everything that can fail comes before the ledger: after it, the draws must be delivered.
    statements = [
        owner._account.statement(plan, bill, owner._fixed_secret is not None)
        for owner, bill in zip(owners, bills, strict=True)
    ]
    assert all(str(statement) and statement.ledger_json() for statement in statements)
    granted = [
        Granted(owner, statement, Counter(plan), owner._fresh_secret(), itertools.count(), Meter())
        for owner, statement in zip(owners, statements, strict=True)
    ]
    grants = [Grant() for _ in owners]
    record_all([account.ledger for account in accounts], bills)
    for grant, record in zip(grants, granted, strict=True):
        keep(grant, record)
    for account, bill in zip(accounts, bills, strict=True):
        if account.filter is not None:
            account.filter.spend(total_costs(bill))
    return grants


def _checked_bills(owners: Sequence[Curator], plan: Plan) -> list[tuple[Entry, ...]]:
    for owner in owners:
        owner.check(plan)
    return [owner._account.bill(plan) for owner in owners]
