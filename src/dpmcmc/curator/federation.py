"""Several owners, one posterior :cite:p:`yildirim2019exact` (Algorithm 2).

Rows of different owners are independent given the parameters, so log-likelihood ratios, gradients
and Hessians of all rows are sums over the owners. Each owner adds all the noise that its own
promise needs, from a secret of its own. The sampler is given the answer

    value = sum_j value_j,      variance = sum_j variance_j

and needs no change. The promise to the rows of owner j is the one that its curator would make
alone, because it does not rely on the noise of the others. Accept bits of several owners cannot be
added: such queries are refused.

All owners are in one process. One compiled program takes the rows, the numbers of rows and the
secrets of all of them as arguments. Its bill is made once, and is the bill of every owner.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import threading
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import numpy as np

from dpmcmc.accounting.bill import Entry
from dpmcmc.accounting.statement import SEVERAL_OWNERS, FederatedStatement, Statement
from dpmcmc.curator.facts import Facts
from dpmcmc.curator.grants import Grant, bill_all, granted_of
from dpmcmc.curator.owner import Curator
from dpmcmc.curator.programs.program import (
    Executable,
    Held,
    Program,
    Traced,
    compiled_by,
    execute,
    trace,
)
from dpmcmc.curator.queries.statistic import SufficientStatistic, same_family
from dpmcmc.curator.records import Handle, keep, record_of
from dpmcmc.errors import PrivacyRefusal, UnsupportedQuery
from dpmcmc.types import Answer, Budget, Model, Plan, Query, traits


class Federation:
    """Several curators that answer together: `sample` takes it where it takes a `Curator`.

    A run is granted by all owners or by none; one that withdraws ends it.

    Args:
        owners: The curators, in a dict by name or in a list: then their names are 1, 2, 3, ... They
            may differ in budget, unit, capacity, ledger and in how their budget is shared.
            Positions and rows must have the same shapes for all. The model of the first owner names
            the parameters and has the prior. The bounds of a model are those that are proved for
            all owners: the largest of each kind.

    Raises:
        TypeError: An owner is not a `Curator`.
        ValueError: The owners do not fit together, or two of them share what each needs for itself.

    Example:
        >>> import numpy as np
        >>> import dpmcmc
        >>> rows = np.linspace(-1, 1, 10, dtype=np.float32)[:, None]
        >>> model = dpmcmc.models.gaussian([1.0], radius=2.0)
        >>> north = dpmcmc.Curator(rows, model, dpmcmc.Budget(epsilon=1.0, delta=1e-6))
        >>> south = dpmcmc.Curator(-rows, model, dpmcmc.Budget(epsilon=2.0, delta=1e-6))
        >>> federation = dpmcmc.Federation({"north": north, "south": south})
        >>> federation.budget["south"].epsilon
        2.0
        >>> plan = {dpmcmc.queries.Gradient(clip=2.0, noise_multiplier=50.0): 9}
        >>> grant = federation.grant(plan)
        >>> south.num_grants
        1
    """

    def __init__(self, owners: Mapping[str, Curator] | Sequence[Curator]) -> None:
        if isinstance(owners, Curator):
            raise TypeError(
                "a federation is of several curators: give them in a list, or in a dict by name; a "
                "single curator needs no federation"
            )
        by_name = (
            owners
            if isinstance(owners, Mapping)
            else {str(number): owner for number, owner in enumerate(owners, 1)}
        )
        self._owners: Mapping[str, Curator] = MappingProxyType(dict(by_name))
        _check_owners(self.owners)
        self._model = _shared_model(self.owners)
        self._other_family = _other_family(self.owners)

    def __repr__(self) -> str:
        return f"Federation({dict(self.owners)})"

    # Read only: owners were checked together, and a program is compiled for their units.

    @property
    def owners(self) -> Mapping[str, Curator]:
        """The curators by name."""
        return self._owners

    @property
    def model(self) -> Model:
        """The model of the first owner, with bounds that hold for the rows of all owners."""
        return self._model

    @property
    def row(self) -> Any:
        """Shapes and types of one row, the same everywhere."""
        return next(iter(self.owners.values())).row

    @property
    def budget(self) -> dict[str, Budget | None]:
        """The budget of every owner, by name."""
        return {name: owner.budget for name, owner in self.owners.items()}

    @property
    def facts(self) -> dict[str, Facts]:
        """Every owner's public facts, by name."""
        return {name: owner.facts for name, owner in self.owners.items()}

    # What may be asked

    def trace(self, program: Program, *arguments: Any) -> Traced:
        """Trace the program at the shapes of its arguments and read off its bill.

        The bill is the same for each owner. No row is touched.

        Args:
            program: The program: program(ask, *arguments), a pure JAX function.
            *arguments: Its arguments, or their shapes.

        Returns:
            The traced program, whose `plan` is the number of asks of each query.

        Raises:
            UnboundedQueries: The number of asks is not fixed, or one key serves two of them.
            UnsupportedQuery: A query cannot be asked of several owners, or not in this way.
            TypeError: The program needs a value in Python that is known only when it runs.
        """
        return trace(self, program, arguments)

    def shapes(self, plan: Plan | None = None) -> Any:
        """The shapes of what a compiled program takes of every owner, as `Curator.shapes`.

        Args:
            plan: The number of asks of each query; None for a program that may ask all.

        Returns:
            The shapes.
        """
        return _together([owner.shapes(plan) for owner in self.owners.values()])

    def max_steps(self, initial: Plan, per_step: Plan) -> int:
        """The largest number of steps whose bill, with `initial`, every owner can afford.

        Args:
            initial: The queries that are asked once.
            per_step: The queries that every step asks.

        Returns:
            The number of steps.

        Raises:
            BudgetExceeded: An owner can grant nothing more, or `initial` alone does not fit.
            ValueError: Any number of steps fits.
        """
        return self.limit(initial, per_step)[0]

    def limit(self, initial: Plan, per_step: Plan) -> tuple[int, str]:
        """`max_steps`, and in words the owner that sets it.

        Args:
            initial: The queries that are asked once.
            per_step: The queries that every step asks.

        Returns:
            The number of steps, and what sets it.

        Raises:
            BudgetExceeded: An owner can grant nothing more, or `initial` alone does not fit.
            ValueError: Any number of steps fits.
        """
        fits = {}
        for name, owner in self.owners.items():
            # An owner without a budget sets no limit. If none has one, the first raises the error
            if owner.budget is not None or not any(self.budget.values()):
                with _named(name):
                    fits[name] = owner.max_steps(initial, per_step)
        limiting = min(fits, key=lambda name: fits[name])
        return fits[limiting], f"owner {limiting} with {self.owners[limiting].what_is_left()}"

    def check(self, plan: Plan) -> None:
        """Refuse a plan that one of the owners would not grant now. Spends nothing.

        Args:
            plan: The number of asks of each query.

        Raises:
            BudgetExceeded: The plan does not fit what is left of a budget.
            UnsupportedQuery: A query has no bound that a promise needs.
        """
        for name, owner in self.owners.items():
            with _named(name):
                owner.check(plan)

    def bill(self, plan: Plan) -> dict[str, tuple[Entry, ...]]:
        """What the plan costs each owner, by name. Spends nothing.

        Args:
            plan: The number of asks of each query.

        Returns:
            For each owner one entry for each query.

        Raises:
            UnsupportedQuery: A query has no bound that a promise needs.
        """
        return {name: owner.bill(plan) for name, owner in self.owners.items()}

    def expected_statement(self, plan: Plan) -> FederatedStatement:
        """What each owner would promise for a grant of this plan. Spends nothing.

        Args:
            plan: The number of asks of each query.

        Returns:
            The statements of all owners.

        Raises:
            UnsupportedQuery: A query has no bound that a promise needs.
        """
        return FederatedStatement(
            {
                name: _of_several(owner.expected_statement(plan))
                for name, owner in self.owners.items()
            }
        )

    def grant(self, plan: Plan) -> FederatedGrant:
        """Bill the whole plan at once, to every owner or to none. Nothing is refunded.

        Args:
            plan: The number of asks of each query.

        Returns:
            The grant, which runs programs that ask no more than the plan.

        Raises:
            BudgetExceeded: The plan does not fit what is left of a budget.
            UnsupportedQuery: A query has no bound that a promise needs.
        """
        self.check(plan)
        grants = dict(zip(self.owners, bill_all(list(self.owners.values()), plan), strict=True))
        grant = FederatedGrant()
        keep(grant, _Granted(self, grants, threading.Lock()))
        return grant

    # How it is answered

    kind = None  # what is compiled for one federation serves no other

    def sums(self, queries: list[Query], held: Mapping[str, Held], *points: Any) -> dict[str, Any]:
        """The exact sums that several queries at the same points need, of every owner.

        Args:
            queries: The queries.
            held: What every owner answers from, of `hold`.
            *points: The positions.

        Returns:
            Every owner's sums, as `Curator.sums` has them.
        """
        return {
            name: owner.sums(queries, held[name], *points) for name, owner in self.owners.items()
        }

    def answer(
        self,
        held: Mapping[str, Held],
        words: Any,
        query: Query,
        points: Any,
        place: int,
        sums: Mapping[str, Any],
    ) -> Answer:
        """The sum of the answers of all owners, computed in float64.

        Args:
            held: The table and the secret of each owner, as `hold` returns them.
            words: The words of the ask's key and lane.
            query: The query.
            points: The positions, and perhaps the public part of the log-ratio.
            place: The number of the ask in the program.
            sums: Every owner's exact sums at these points, of `sums`.

        Returns:
            The sum of the owners' answers.

        Raises:
            UnsupportedQuery: The answers of several owners do not add.
        """
        _check_adds(query)
        if isinstance(query, SufficientStatistic) and self._other_family is not None:
            raise UnsupportedQuery(
                f"the family of owner {self._other_family} differs from the first one's, in its "
                "center or otherwise, so that their statistics do not add up to one: give both the "
                "same limits, or ask LogRatio with `penalty`"
            )
        return add(
            [
                _answer_of(name, owner, held[name], words, query, points, place, sums.get(name, {}))
                for name, owner in self.owners.items()
            ]
        )

    def hold(self, rows: Any, nums_rows: Any, secrets: Any) -> dict[str, Held]:
        """The table and the secret of each owner, inside a compiled program.

        Args:
            rows: Every owner's rows, as arguments of the program.
            nums_rows: Every owner's number of rows, as arguments of the program.
            secrets: Every owner's secret of the run, as arguments of the program.

        Returns:
            The table and the secret of every owner, by name.
        """
        mine = zip(self.owners.items(), rows, nums_rows, secrets, strict=True)
        return {name: owner.hold(*own) for (name, owner), *own in mine}


class _Granted(NamedTuple):
    """A grant of several owners, as their federation keeps it."""

    federation: Federation
    grants: Mapping[str, Grant]
    lock: threading.Lock


class FederatedGrant(Handle):
    """Every owner's grant of one plan, each with a secret of its own.

    It is made by `Federation.grant`.

    Example:
        >>> import numpy as np
        >>> import dpmcmc
        >>> rows = np.linspace(-1, 1, 10, dtype=np.float32)[:, None]
        >>> model = dpmcmc.models.gaussian([1.0], radius=2.0)
        >>> north = dpmcmc.Curator(rows, model, dpmcmc.Budget(epsilon=1.0, delta=1e-6))
        >>> south = dpmcmc.Curator(-rows, model, dpmcmc.Budget(epsilon=2.0, delta=1e-6))
        >>> federation = dpmcmc.Federation({"north": north, "south": south})
        >>> grant = federation.grant({dpmcmc.queries.Count(noise_multiplier=50.0): 1})
        >>> sorted(grant.statement().owners)
        ['north', 'south']
    """

    __slots__ = ()

    def run(self, executable: Executable, *arguments: Any) -> Any:
        """Run a compiled program once.

        Its asks are taken off every owner's grant, or off none, before a row is touched.

        Args:
            executable: The program, compiled for the federation that has given out this grant.
            *arguments: Its arguments.

        Returns:
            What the program returns.

        Raises:
            BudgetExceeded: The program asks more than is left, or rows were withdrawn.
            PrivacyRefusal: The program or the grant is not of this federation.
        """
        granted = _granted_of(self)
        program = compiled_by(granted.federation, executable)
        records = {}
        with granted.lock:
            for name, grant in granted.grants.items():
                records[name] = granted_of(grant)
                with _named(name):
                    records[name].check(program.plan)
            held = [record.take(program.plan) for record in records.values()]
        return execute(program.compiled, _together(held), arguments)

    def statement(self, *notes: str) -> FederatedStatement:
        """What each owner promised, with its bill.

        Args:
            *notes: Lines to add to the notes of each statement.

        Returns:
            The statements of all owners.

        Raises:
            PrivacyRefusal: The grant was not given out by a federation.
        """

        grants = _granted_of(self).grants
        return FederatedStatement(
            {name: _of_several(grant.statement(*notes)) for name, grant in grants.items()}
        )


def _of_several(statement: Statement) -> Statement:
    """One owner's statement, with what is assumed if several owners answer together."""
    if not math.isfinite(statement.epsilon):
        return statement  # there may be no noise, or no secret
    return dataclasses.replace(statement, assumptions=(*statement.assumptions, SEVERAL_OWNERS))


def _granted_of(grant: FederatedGrant) -> _Granted:
    return record_of(
        grant, _Granted, "a grant that a federation has given out (federation.grant(plan))"
    )


def add(answers: Sequence[Answer]) -> Answer:
    """The sum of independent answers: both values and variances are added."""
    return functools.reduce(
        lambda one, other: Answer(one.value + other.value, one.variance + other.variance), answers
    )


def _answer_of(name: str, owner: Curator, *arguments: Any) -> Answer:
    with _named(name):
        return owner.answer(*arguments)


def _together(held: Sequence[tuple[Any, Any, Any]]) -> tuple[Any, Any, Any]:
    rows, nums_rows, secrets = zip(*held, strict=True)
    return rows, nums_rows, secrets


@contextlib.contextmanager
def _named(name: str) -> Iterator[None]:
    """Begin the text of a refusal with the owner's name."""
    try:
        yield
    except (PrivacyRefusal, ValueError) as refusal:
        if type(refusal) is not ValueError and not isinstance(refusal, PrivacyRefusal):
            raise  # an error of another library, built in its own way
        raise type(refusal)(f"owner {name}: {refusal}") from refusal


# -- checks of the owners, by public facts only


def _check_adds(query: Query) -> None:
    if not traits(query).adds:
        raise UnsupportedQuery(
            f"{query} cannot be asked of several owners: their answers would have to be added, and "
            "accept bits cannot be; ask LogRatio instead, with `penalty` or as the test of `hmc` "
            "(a query of your own whose answers can be added needs adds = True)"
        )


def _other_family(owners: Mapping[str, Curator]) -> str | None:
    """The first owner whose family differs from that of the first one.

    The radius may differ: each owner clips its own rows.
    """
    (_, first), *others = owners.items()
    return next(
        (name for name, owner in others if not same_family(first.model, owner.model, first.row)),
        None,
    )


def _check_owners(owners: Mapping[str, Curator]) -> None:
    if not owners:
        raise ValueError(
            "a federation needs at least one owner: give curators in a list, or in a dict by name"
        )
    first, *others = owners.items()
    for name, owner in owners.items():
        _check_owner(name, owner)
    for name, owner in others:
        _check_shapes(first, (name, owner))
    _check_different(
        "are the same curator", {name: id(owner._account) for name, owner in owners.items()}
    )
    paths = {name: owner._account.ledger.path for name, owner in owners.items()}
    _check_different(
        "keep one ledger file",
        {name: path.resolve() for name, path in paths.items() if path is not None},
    )
    secrets = {name: owner._fixed_secret for name, owner in owners.items()}
    _check_different(
        "have the same fixed secret, so their noise would be the same",
        {
            name: np.asarray(secret, np.uint32).tobytes()
            for name, secret in secrets.items()
            if secret is not None
        },
    )


def _check_owner(name: Any, owner: Any) -> None:
    if not isinstance(name, str) or not name:
        raise ValueError(
            f"the owner's name {name!r} must be a text that is not empty: statements and errors "
            "print it"
        )
    if not isinstance(owner, Curator):
        raise TypeError(f"owner {name} is a {type(owner).__name__}: it must be a Curator")
    if owner._mesh is not None:
        raise ValueError(
            f"owner {name} spreads its rows over devices, a federation runs on one: leave devices= "
            "out"
        )


def _check_shapes(first: tuple[str, Curator], other: tuple[str, Curator]) -> None:
    there = _shapes(other[1])
    for what, here in _shapes(first[1]).items():
        if here != there[what]:
            raise ValueError(
                f"owner {first[0]} has {what} {here}, owner {other[0]} {there[what]}: all owners "
                "need the same model"
            )


def _shapes(owner: Curator) -> dict[str, Any]:
    dimension = owner.model.dimension
    named = jax.eval_shape(owner.model.unravel, jax.ShapeDtypeStruct((dimension,), np.float32))
    kinds = None if owner.model.kinds is None else owner.model.kinds.names
    return {"dimension": dimension, "kinds": kinds} | jax.tree.map(
        lambda leaf: leaf.shape, {"parameters": named, "rows": owner.row}
    )


def _shared_model(owners: Mapping[str, Curator]) -> Model:
    """The model of the first owner, with bounds and declarations for the rows of all owners."""
    models = {name: owner.model for name, owner in owners.items()}
    first, *_ = models.values()
    declared = first.declared
    if len({model.declared for model in models.values()}) > 1:
        declared = "; ".join(
            f"{model.declared or 'nothing'} by owner {name}" for name, model in models.items()
        )
    lipschitz, hessian_bound, spread, self_concordance = (
        _largest([getattr(model, bound) for model in models.values()])
        for bound in ("lipschitz", "hessian_bound", "spread", "self_concordance")
    )
    center = None if spread is None else first.center
    return first._replace(
        lipschitz=lipschitz,
        hessian_bound=hessian_bound,
        center=center,
        spread=spread,
        vectors=None,  # what one owner's rows are expected to be is not what all of them are
        self_concordance=self_concordance,
        declared=declared,
    )


def _largest(bounds: Sequence[float | None]) -> float | None:
    """The largest bound, or None if it is not proved for every owner."""
    known = [bound for bound in bounds if bound is not None]
    return max(known) if len(known) == len(bounds) else None


def _check_different(words: str, facts: Mapping[str, Any]) -> None:
    owner_of: dict[Any, str] = {}
    for name, fact in facts.items():
        if fact in owner_of:
            other = owner_of[fact]
            raise ValueError(f"owners {other} and {name} {words}: each owner needs its own")
        owner_of[fact] = name
