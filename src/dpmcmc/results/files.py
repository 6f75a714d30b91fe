"""Posteriors in NetCDF files, which are replaced at once: no reader ever has half of one."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dpmcmc.accounting.reading import open_netcdf
from dpmcmc.results.arviz import (
    ORDER,
    arviz_library,
    check_is_one_run,
    names_of,
    put_in_order,
    write_draft,
)

NO_FOLDER = "cannot be written: its folder does not exist; make it first"
EMPTY = (
    "is empty: a run is writing to it, or was killed before its first draws were saved (a ledger= "
    "shows whether it was paid for)"
)


def save(result: Any, path: str | Path) -> None:
    """Write a posterior to a NetCDF file, with its statement and its findings.

    The file is replaced at once, so a reader never has half of it.

    Args:
        result: A posterior, from `dpmcmc.sample` or `dpmcmc.load`.
        path: The file. If there is one, it is replaced.

    Raises:
        ValueError: The folder does not exist, or the posterior holds draws of several runs, which
            one statement does not cover.

    Example:
        >>> import dpmcmc
        >>> dpmcmc.save(record.to_arviz(), "people.nc")
        >>> dpmcmc.load("people.nc").posterior.sizes["draw"]
        10
    """
    if not Path(path).absolute().parent.is_dir():
        raise ValueError(f"{path} {NO_FOLDER}")
    if hasattr(result, "posterior"):
        check_is_one_run(result)
        # If ArviZ has joined several runs, it has made lists of the attributes of both.
        result.attrs.update(
            {
                name: result.posterior.attrs[name]
                for name in result.attrs.keys() & result.posterior.attrs.keys()
            }
        )
    os.replace(write_draft(result, path), path)


@contextlib.contextmanager
def claimed(path: str | Path | None) -> Iterator[None]:
    """Make an empty file at the path until there are draws, so that no other run writes to it."""
    if path is None:
        yield
        return
    try:
        Path(path).open("x").close()
    except FileExistsError:
        raise ValueError(
            f"path={path} exists: another run has made it just now; name another file"
        ) from None
    try:
        yield
    finally:
        if Path(path).exists() and Path(path).stat().st_size == 0:
            Path(path).unlink()


def why_not_new(path: str | Path) -> str | None:
    """Why no new posterior can be written to the path, and what to do; None if it can."""
    if not Path(path).absolute().parent.is_dir():
        return NO_FOLDER
    if not Path(path).exists():
        return None
    if Path(path).is_file() and Path(path).stat().st_size == 0:
        return f"{EMPTY}: remove the file, or name another"
    return "exists: name another file, a posterior that was paid for is not replaced"


def load(path: str | Path) -> Any:
    """Read a posterior that `save`, `Record.save` or a run with `path=` wrote.

    Args:
        path: The NetCDF file.

    Returns:
        An ArviZ InferenceData, with its privacy statement and its findings.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: The file is empty or holds no posterior.

    Example:
        >>> import dpmcmc
        >>> dpmcmc.save(record.to_arviz(), "people.nc")
        >>> list(dpmcmc.load("people.nc").posterior.data_vars)
        ['probability']
    """
    if not Path(path).is_file():
        raise FileNotFoundError(f"{path} is no file")
    if Path(path).stat().st_size == 0:
        raise ValueError(f"{path} {EMPTY}")
    arviz = arviz_library()
    with open_netcdf(Path(path)) as file:
        if "posterior" not in file:
            raise ValueError("it has no group named posterior")
        result = arviz.from_netcdf(str(path), engine="h5netcdf").load()
    if ORDER in getattr(getattr(result, "posterior", None), "attrs", {}):
        put_in_order(result, names_of(result))
    return result
