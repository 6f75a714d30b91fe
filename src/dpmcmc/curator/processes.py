"""Several processes that hold one table together, joined by `jax.distributed`.

Every process makes the same curator, of the same table, with the devices of all of them. It copies
the part of its own devices, and runs the same programs. What is random comes from the first one:
with a secret of its own in each, one bill would buy several answers. A grant is given out in all
processes or in none.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from dpmcmc.accounting.bill import Entry, to_json
from dpmcmc.errors import PrivacyRefusal

SAMPLED = 1024  # rows that are compared
WORDS = 8  # of a digest


class Processes(NamedTuple):
    """Who makes the passes, for the statement."""

    name: str
    who_sees: str


def processes_of(devices: Sequence[Any] | None) -> Processes | None:
    """The processes that these devices belong to, or None if they are all of this one.

    Args:
        devices: The devices over which the rows are spread.

    Returns:
        Them, in words.

    Raises:
        ValueError: Some devices are of other processes, and some are left out.
    """
    if devices is None or {device.process_index for device in devices} == {jax.process_index()}:
        return None
    if set(devices) != set(jax.devices()):
        raise ValueError(
            "devices= has devices of other processes, and not all of them: every process takes "
            "part in a pass, so give jax.devices(), or jax.local_devices() for this process alone"
        )
    number = jax.process_count()
    return Processes(
        f"{number} processes that jax.distributed has joined",
        f"these {number} processes, whose connections are not encrypted",
    )


def from_first(words: np.ndarray) -> np.ndarray:
    """What the first process has, in all of them.

    Args:
        words: An array of type uint32, of the same shape in all processes.

    Returns:
        That of the first process.
    """
    from jax.experimental import multihost_utils

    return np.asarray(multihost_utils.broadcast_one_to_all(words), np.uint32)


def check_same_table(leaves: Any) -> None:
    """Refuse processes that were given different tables, such as each a part of one.

    Args:
        leaves: The rows, a pytree of arrays.

    Raises:
        ValueError: Shapes, types, or some of the rows differ.
    """
    digest = hashlib.sha256()
    for leaf in jax.tree.leaves(leaves):
        places = np.linspace(0, len(leaf) - 1, min(SAMPLED, len(leaf))).astype(int)
        digest.update(f"{leaf.shape} {leaf.dtype}".encode())
        digest.update(np.ascontiguousarray(leaf[places]).tobytes())
    if not _is_same(digest.digest()):
        raise ValueError(
            "the processes were given different rows: give each the whole table, such as "
            "np.load(path, mmap_mode='r'). It copies the part of its own devices alone"
        )


def in_all(
    processes: Processes | None, check: Callable[[], list[tuple[Entry, ...]]]
) -> list[tuple[Entry, ...]]:
    """The bills that a check returns, if it does in all processes, and the same ones.

    Args:
        processes: The processes, or None where there is one.
        check: Checks a plan in this process, and returns its bills.

    Returns:
        The bills.

    Raises:
        PrivacyRefusal: Another process refuses, or asks for something else. What this one raises
            itself comes first.
    """
    if processes is None:
        return check()
    failure = None
    digest = bytes(4 * WORDS)
    try:
        bills = check()
        digest = hashlib.sha256(repr(list(map(to_json, bills))).encode()).digest()
    except Exception as error:
        failure = error
    is_same = _is_same(digest)
    if failure is not None:
        raise failure
    if not is_same:
        raise PrivacyRefusal(
            "another process refuses this plan, or asks for another one: a grant is given out in "
            "all processes or in none. See the error of the other one, and give all of them the "
            "same program"
        )
    return bills


def _is_same(digest: bytes) -> bool:
    """Whether all processes have the same digest. All of them must ask."""
    from jax.experimental import multihost_utils

    words = np.frombuffer(digest, np.uint32)
    return bool((np.asarray(multihost_utils.process_allgather(words)) == words).all())
