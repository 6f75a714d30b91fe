"""What was traced, compiled or granted is kept here, not in the object that was given out for it.

A caller gets a `Handle`. Fields of it that could be replaced, a constructor or a copy would make
another one, such as a program with an empty bill or a grant that nobody has billed. So a handle has
no fields: its record is found by the object itself, and a handle that was made in any other way has
none.
"""

from __future__ import annotations

from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from dpmcmc.errors import PrivacyRefusal

Record = TypeVar("Record")


class Handle:
    """Stands for a record. `object.__new__` makes one without a record."""

    __slots__ = ("__weakref__",)
    __eq__ = object.__eq__  # by identity, whatever the record
    __hash__ = object.__hash__


_records: WeakKeyDictionary[Handle, Any] = WeakKeyDictionary()


def keep(handle: Handle, record: Any) -> None:
    """From now on the handle stands for this record, and for no other one."""
    assert handle not in _records
    _records[handle] = record


def record_of(handle: Any, kind: type[Record], wanted: str) -> Record:
    """The record that the handle stands for.

    `wanted` names, in an error, what should have been given.
    """
    record = _records.get(handle) if isinstance(handle, Handle) else None
    if not isinstance(record, kind):
        kind_given = type(handle).__name__
        raise PrivacyRefusal(
            f"this {kind_given} is not {wanted}: one that was copied, changed or put together is "
            "refused"
        )
    return record
