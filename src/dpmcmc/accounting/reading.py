"""A ledger that somebody else wrote, and what stands beside it: from a JSON file, or a posterior
saved as NetCDF.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from dpmcmc.accounting.statement import ATTRIBUTE, FEDERATED_FORMAT, FORMAT, NUM_DRAWS, PRINTED

FEDERATED = ("format", "owners")
MOST_DIGITS = 4000  # Python reads no more than 4300


def opened(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The ledger in a file, and the attributes of a posterior that stand beside it."""
    attributes = _netcdf_attributes(path) if is_netcdf(path) else []
    document = parsed(attributes[0][ATTRIBUTE] if attributes else path.read_text())
    # Attributes, as JSON
    if isinstance(document, dict) and isinstance(document.get(ATTRIBUTE), dict | str):
        # A posterior's attributes also hold other parts of a ledger
        if {"format", "claim", "entries"} & set(document):
            raise ValueError(
                f"{path.name} holds a ledger within a ledger: there is no telling which is meant"
            )
        attributes = attributes or [document]
        document = document[ATTRIBUTE]
    return checked(
        parsed(document) if isinstance(document, str) else document, path.name
    ), attributes


def checked(document: Any, where: str) -> dict[str, Any]:
    """Refuse what is no ledger, of one owner or of several."""
    for ledger in by_owner(document).values():
        if not isinstance(ledger, dict) or ledger.get("format") != FORMAT:
            # What it has instead is not printed: it may be somebody's row.
            raise ValueError(
                f"{where} holds no ledger: it must be an object whose format is {FORMAT!r}"
            )
    return document


def parsed(text: str | bytes) -> Any:
    """JSON without duplicate names: of two values for one name a reader might take the other."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) < len(pairs):
            raise ValueError("a ledger names something twice: there is no telling which is meant")
        return dict(pairs)

    def short(digits: str) -> int:
        if len(digits) > MOST_DIGITS:
            raise ValueError("a ledger has a number that is too long to be one")
        return int(digits)

    return json.loads(text, object_pairs_hook=once, parse_int=short)


def by_owner(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Each owner's ledger by its name. The only owner of a plain ledger has the name ""."""
    if not isinstance(document, dict) or document.get("format") != FEDERATED_FORMAT:
        return {"": document}
    if not isinstance(document.get("owners"), dict) or not document["owners"]:
        raise ValueError("this federated ledger names no owner: there is no claim in it")
    if "" in document["owners"]:
        raise ValueError(
            "an owner of this federated ledger has no name: it would be taken for a ledger of one "
            "owner"
        )
    check_fields(document, "federated ledger", FEDERATED)
    return document["owners"]


def check_fields(value: dict[str, Any], what: str, fields: tuple[str, ...]) -> None:
    """Nothing that is said is passed over: a reader might take it for part of the claim."""
    if not set(value) <= set(fields):
        raise ValueError(f"a {what} has the fields {', '.join(fields)}, and no others")


def added_draws(path: Path) -> int:
    """How many more draws a saved posterior has than its run: those of another run are not on this
    bill.
    """
    with open_netcdf(path) as file:
        groups = [file[name] for name in ("posterior", "warmup_posterior") if name in file]
        sizes = [
            math.prod(group[axis].size for axis in ("chain", "draw"))
            for group in groups
            if {"chain", "draw"} <= set(group)
        ]
        stated = [
            np.asarray(group.attrs[NUM_DRAWS]) for group in groups if NUM_DRAWS in group.attrs
        ]
    if any(number.size != 1 or number.dtype.kind not in "iu" for number in stated):
        raise ValueError(f"the attribute {NUM_DRAWS!r} of {path.name} must be a whole number")
    return max(0, sum(sizes) - int(stated[0].item())) if stated else 0


def is_netcdf(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(8).startswith(b"\x89HDF")


@contextlib.contextmanager
def open_netcdf(path: Path) -> Iterator[Any]:
    """A saved posterior in HDF5.

    What that library says of a file that is damaged helps nobody here.
    """
    import h5py

    with path.open("rb"):  # whether it may be read at all, the system says better
        pass
    try:
        with h5py.File(path, "r") as file:
            yield file
    except Exception as error:
        raise ValueError(
            f"{path} is no posterior: it must be a NetCDF file as `save` writes it, and not a "
            "damaged one"
        ) from error


def _netcdf_attributes(path: Path) -> list[dict[str, Any]]:
    """Of the posterior, of the whole file and of whatever in it has a ledger or a statement: those
    with a ledger first.
    """
    with open_netcdf(path) as file:
        places: list[Any] = [file["posterior"]] if "posterior" in file else []
        places.append(file)
        others: list[Any] = []
        file.visititems(
            lambda name, item: (
                others.append(item) if {ATTRIBUTE, PRINTED} & set(item.attrs) else None
            )
        )
        places += [item for item in others if item not in places]
        found = [{name: _text(value) for name, value in place.attrs.items()} for place in places]
    if not any(ATTRIBUTE in attributes for attributes in found):
        raise ValueError(
            f"{path.name} holds no ledger: no attribute {ATTRIBUTE!r} in its posterior group or "
            "its root"
        )
    return sorted(found, key=lambda attributes: ATTRIBUTE not in attributes)


def _text(value: Any) -> Any:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
