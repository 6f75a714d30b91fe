"""The posterior as an ArviZ InferenceData, with its privacy statement. The one file that knows ArviZ."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from dpmcmc.accounting.statement import Statement

STATISTICS = {"is_accepted": "acceptance", "log_ratio": "log_ratio", "is_divergent": "diverging"}


def from_draws(
    positions: np.ndarray,
    info: Mapping[str, Any],
    unravel: Callable[[Any], dict[str, Any]],
    statement: Statement,
    num_warmup: int = 0,
    thin: int = 1,
):
    """Positions (chains, draws, d) and released statistics (chains, draws, ...) -> InferenceData with named parameters."""
    arviz = _arviz()
    named = {name: np.asarray(values) for name, values in jax.vmap(jax.vmap(unravel))(positions).items()}
    statistics = {STATISTICS.get(name, name): np.asarray(values) for name, values in info.items()}
    result = arviz.from_dict(
        posterior=_part(named, slice(num_warmup, None)),
        sample_stats=_part(statistics, slice(num_warmup, None)) or None,
        warmup_posterior=_part(named, slice(None, num_warmup)) if num_warmup else None,
        warmup_sample_stats=(_part(statistics, slice(None, num_warmup)) or None) if num_warmup else None,
        save_warmup=bool(num_warmup),
    )
    attributes = {**_attributes(statement), "thinning": thin}
    result.attrs.update(attributes)
    result.posterior.attrs.update(attributes)
    return result


def statement_of(result: Any) -> str:
    """The privacy statement of a posterior, as text."""
    return result.posterior.attrs["privacy_statement"]


def save(result: Any, path: str | Path) -> None:
    """Write NetCDF; the file is replaced at once, so a reader never sees half of it."""
    draft = Path(path).with_name(Path(path).name + ".draft")
    result.to_netcdf(str(draft), engine="h5netcdf")
    os.replace(draft, path)


def load(path: str | Path):
    """Read what `save` wrote."""
    return _arviz().from_netcdf(str(path), engine="h5netcdf")


def _arviz():
    with warnings.catch_warnings():
        # It announces its next major version, which the requirements exclude.
        warnings.simplefilter("ignore", FutureWarning)
        import arviz
    return arviz


def _part(values: Mapping[str, np.ndarray], draws: slice) -> dict[str, np.ndarray]:
    return {name: value[:, draws] for name, value in values.items()}


def _attributes(statement: Statement) -> dict[str, Any]:
    import dpmcmc

    return {
        "epsilon": statement.epsilon,
        "delta": statement.delta,
        "neighbours": statement.unit.neighbours.value,
        "rows_per_person": statement.unit.rows_per_person,
        "accountant": statement.method,
        "privacy_statement": str(statement),
        "dpmcmc_ledger": statement.ledger_json(),
        "inference_library": "dpmcmc",
        "inference_library_version": dpmcmc.__version__,
    }
