"""What the commands share."""

from __future__ import annotations

import enum

from dpmcmc.types import Neighbours


class Relation(enum.StrEnum):
    """Which two tables must be hard to tell apart, as it is typed."""

    replace_one = "replace"
    add_or_remove_one = "add-remove"

    @property
    def neighbours(self) -> Neighbours:
        return Neighbours.REPLACE_ONE if self is Relation.replace_one else Neighbours.ADD_OR_REMOVE_ONE
