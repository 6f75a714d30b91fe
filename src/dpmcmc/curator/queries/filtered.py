"""Barker's accept bit with a range that follows the move, until a granted rho is used up.

A move of length m has the range  r = 2 T clip m  (half of it when a row is added or removed, times
the rows per person), and its bit is r^2/8-zCDP. Moves are chosen on the way, so no number of steps
has a cost known in advance. But the sum of r^2/8 so far is public, and a mechanism that stops
before the sum exceeds rho is rho-zCDP as a whole :cite:p:`feldman2021individual`. The curator keeps
the sum (`Meter`): an ask that would exceed it, and every later one, is answered "reject" without
reading the rows.

The meter lives beside the compiled program, which calls it with public numbers alone; several
chains draw on one meter.
"""

from __future__ import annotations

import functools
import threading
from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_batching import custom_vmap
from jax.experimental import io_callback

from dpmcmc.acceptance import Barker
from dpmcmc.accounting import costs
from dpmcmc.checks import check_sizes
from dpmcmc.curator.programs.jaxprs import OwnCallback
from dpmcmc.curator.queries.accept import ROUNDING, SMALLEST, clamped_log_ratio, decide, noise_of
from dpmcmc.curator.queries.log_ratio import log_ratio_sum, move_length
from dpmcmc.curator.sums.exact_sum import BITS, Table
from dpmcmc.errors import UnsupportedQuery
from dpmcmc.types import Answer, Array, Model, Query, Unit

# More than rounding can take off a sum of charges: the meter is given them as float32
SLACK = 2.0**-20


@dataclass(frozen=True)
class FilteredAccept:
    """Accept bits of Barker's test, each row's log-ratio clipped to the move, until `rho` is spent.

    Each row's log-ratio is clipped to clip * |proposal - position|. Asked with (position, proposal,
    log_ratio) like `Accept`. A row whose log-likelihood is clip-Lipschitz is never clipped, and
    short moves cost little: the budget buys a fixed sum of squared moves. A move to where the prior
    has no density is rejected whatever the rows are, and costs nothing. An answer's variance is 0,
    or infinite for a bit that does not depend on the rows because the filter is used up.

    Attributes:
        clip: The most that one row contributes, per unit of the move's length.
        rho: The zero-concentrated differential privacy that all bits of one grant spend together.
        temperature: The power of the likelihood, a public constant.

    Raises:
        ValueError: A number is not positive and finite.

    Example:
        >>> from dpmcmc import Unit, queries
        >>> query = queries.FilteredAccept(clip=1.0, rho=0.5)
        >>> query.cost(Unit()).rho()  # of all its bits in one grant
        0.5
    """

    released: ClassVar[str] = "accept bits of proposed moves, until a filter stops them"
    is_bit: ClassVar[bool] = True
    is_standing: ClassVar[bool] = True

    clip: float
    rho: float
    temperature: float = 1.0

    def __post_init__(self) -> None:
        check_sizes(self, "clip", "rho", "temperature")

    def answer(
        self,
        key: Array,
        model: Model,
        rows: Table,
        position: Array,
        proposal: Array,
        log_ratio: Array,
    ) -> Answer:
        """Compute on the rows what is released.

        Args:
            key: Eight secret words, for the noise and the coins.
            model: What one row contributes.
            rows: The rows.
            position: Where the chain is.
            proposal: Where it may move to.
            log_ratio: The public part of the log-ratio.

        Returns:
            The accept bit.

        Raises:
            UnsupportedQuery: The rows are on several devices, or of several owners.
        """
        if rows.charge is None or rows.axis is not None:
            raise UnsupportedQuery(
                f"{self} needs its rows on one device, with one owner: the running sum is kept in "
                "one place"
            )
        move = move_length(position, proposal)
        # A shorter one has the clip, and the charge, of this
        length = jnp.maximum(move, SMALLEST / (self.temperature * self.clip))
        is_open = log_ratio > -jnp.inf  # else, and for a NaN, the answer is public
        is_answered = rows.charge(
            self, key, jnp.where(is_open, self.charge_of(length, rows.unit), 0.0)
        )
        is_read = is_answered & is_open & (move > 0)
        bound = self.clip * jnp.where(is_read, length, 1.0)
        total = _sum_if(
            is_read, functools.partial(log_ratio_sum, model), rows, position, proposal, bound
        )
        clamped = clamped_log_ratio(total, log_ratio, self.temperature * bound / 2.0**BITS)
        bit = decide(clamped, noise_of(key, Barker()), is_read)
        return Answer(bit.value, jnp.where(is_answered, 0.0, jnp.inf))

    def charge_of(self, move: Array, unit: Unit) -> Array:
        """The zCDP of one bit, rounded up.

        Args:
            move: The length of the move.
            unit: Whom the promise protects.

        Returns:
            What the bit adds to the running sum.
        """
        return (
            (self.temperature * self.clip * move * unit.sensitivity + ROUNDING) ** 2
            / 8
            * (1 + SLACK)
        )

    def cost(self, unit: Unit) -> costs.ZCDP:
        """What all its bits in one grant reveal together.

        Args:
            unit: Whom the promise protects.

        Returns:
            The cost.
        """
        return costs.ZCDP(self.rho)


class Meter:
    """The running sums of one grant."""

    def __init__(self) -> None:
        self._spent: dict[Query, float] = {}
        self._closed: set[Query] = set()
        self._lock = threading.Lock()

    def charge(self, query: FilteredAccept, amount: float) -> bool:
        """Whether this much more is within the query's rho; the first refusal closes it."""
        with self._lock:
            spent = self._spent.get(query, 0.0)
            is_within = spent + amount <= query.rho  # false for a NaN
            if query in self._closed or not is_within:
                self._closed.add(query)
                return False
            self._spent[query] = spent + amount
            return True

    def spent(self, query: Query) -> float:
        return self._spent.get(query, 0.0)


def charging(meter):
    """charge(query, key, amount) for a compiled program.

    It asks whatever meter `meter()` returns when the program runs.
    """

    def charge(query: FilteredAccept, key, amount):
        def on_host(_, amounts):
            answers = [meter().charge(query, amount) for amount in np.ravel(amounts).tolist()]
            return np.reshape(np.array(answers, bool), np.shape(amounts))

        def call(word, amounts):
            return io_callback(
                OwnCallback(on_host), jax.ShapeDtypeStruct(amounts.shape, bool), word, amounts
            )

        one = custom_vmap(call)
        one.def_vmap(
            lambda size, _, word, amount: (call(word, jnp.broadcast_to(amount, size)), True)
        )
        # Zero, but made of the key: under vmap each chain then has an argument of its own, and is
        # charged, even where all chains ask about the same move. The key itself stays in the
        # program.
        return one(key[0] * 0, amount)

    return charge


def _sum_if(is_answered, row_sum, *arguments):
    """row_sum(*arguments), or zero without reading a row.

    With several chains no row is read when none of them is answered. The rows are among the
    arguments: a rule for vmap outlives the trace that it would close over.
    """

    @custom_vmap
    def one(is_answered, *arguments):
        return lax.cond(is_answered, row_sum, lambda *_: jnp.int64(0), *arguments)

    @one.def_vmap
    def many(size, is_batched, is_answered, *arguments):
        axes = tuple(
            jax.tree.map(lambda batched: 0 if batched else None, part) for part in is_batched[1:]
        )
        sums = jax.vmap(row_sum, axes, axis_size=size)
        return lax.cond(
            jnp.any(is_answered), sums, lambda *_: jnp.zeros(size, jnp.int64), *arguments
        ), True

    return one(is_answered, *arguments)
