"""The posterior as an ArviZ InferenceData, with its privacy statement.

No other file imports ArviZ.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import secrets
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import jax
import numpy as np

from dpmcmc.accounting.statement import (
    ATTRIBUTE,
    DIFFERS,
    JOINED,
    NUM_DRAWS,
    PRINTED,
    FederatedStatement,
    Statement,
    is_one_promise,
)
from dpmcmc.diagnostics import PAID, Limits, of_chains, prior_widths
from dpmcmc.errors import in_brief
from dpmcmc.finding import Finding, Severity, from_text, to_text, unless_it_fails
from dpmcmc.keeping import made_once
from dpmcmc.types import statistics_of

# Names of attributes. Of the posterior: its findings, as JSON
FINDINGS = "findings"
# Of a parameter: for each of its entries, the standard deviation under the prior
PRIOR_SD = "prior_sd"
# Of the posterior: the names of the parameters in the order of the model, as JSON. It is kept
# because ArviZ, and perhaps other programs that write the file again, sort variables by name
ORDER = "parameter_order"
# Statistics that ArviZ knows by a name of its own
STATISTICS = {"is_accepted": "acceptance", "log_ratio": "log_ratio", "is_divergent": "diverging"}


def from_draws(
    positions: np.ndarray,
    info: Any,
    unravel: Callable[[Any], dict[str, Any]],
    statement: Statement | FederatedStatement,
    num_warmup: int = 0,
    thin: int = 1,
    attributes: Mapping[str, str] = MappingProxyType({}),
    units: Mapping[str, str] = MappingProxyType({}),
    findings: Iterable[Finding] = (),
    limits: Limits = PAID,
    checks: Callable[[Any], list[Finding]] | None = None,
    log_prior: Callable[[Any], Any] | None = None,
):
    """Positions (chains, draws, d) and released statistics as an InferenceData.

    Parameters get the names that `unravel` gives them. `attributes` are texts to keep, and `units`
    are the units of parameters, by the parameter's name.

    The draws are compared with the `limits` here and nowhere else. The result keeps three kinds of
    findings: those of this comparison, the `findings` made earlier, and those that `checks` returns
    when it is called with the result.
    """
    named = _named(positions, unravel)
    result = _inference_data(named, info, num_warmup)
    _describe(result, attributes, units)
    put_in_order(result, list(named))
    facts = {
        **_attributes(statement),
        "thinning": thin,
        NUM_DRAWS: positions.shape[0] * positions.shape[1],
    }
    result.attrs.update(facts)
    result.posterior.attrs.update({**facts, ORDER: json.dumps(list(named))})
    kept = list(findings)
    if log_prior is not None:
        kept += unless_it_fails(
            _keep_prior_widths, result, log_prior, unravel, positions[:, num_warmup:]
        )
    if checks is not None:
        kept += unless_it_fails(_checked, checks, result)
    kept += unless_it_fails(_of_chains, result, limits, severity=Severity.SEVERE)
    result.posterior.attrs[FINDINGS] = to_text(kept, limits._asdict())
    return result


def _of_chains(result: Any, limits: Limits) -> list[Finding]:
    """The findings of comparing the draws with the limits."""
    variables = {
        name: result.posterior[name].transpose("chain", "draw", ...).to_numpy()
        for name in names_of(result)
    }
    with _quiet():
        return of_chains(variables, summary_table(result).to_dict(), limits)


def _checked(checks: Callable[[Any], list[Finding]], result: Any) -> list[Finding]:
    """The findings of a user's own check. Other values are refused: they could not be saved."""
    found = list(checks(result))
    if not all(isinstance(each, Finding) for each in found):
        raise TypeError("checks must return a list of dpmcmc.Finding")
    return found


def _keep_prior_widths(
    result: Any, log_prior: Callable, unravel: Callable, positions: np.ndarray
) -> list[Finding]:
    """Keep the prior's standard deviations as attributes of the parameters. Makes no finding."""
    mean = np.mean(positions, axis=(0, 1), dtype=float)
    for name, widths in prior_widths(log_prior, unravel, mean).items():
        if widths.size:  # an empty attribute cannot be written
            result.posterior[name].attrs[PRIOR_SD] = np.ravel(widths)
    return []


def findings(result: Any) -> list[Finding]:
    """The findings about a run, made before, during and after it.

    After a severe finding the draws must not be relied on.

    Args:
        result: A posterior, from `dpmcmc.sample` or `dpmcmc.load`.

    Returns:
        The findings. If ArviZ has put several runs together, the findings of all of them.

    Raises:
        ValueError: This library has not made the posterior, or its attributes were removed.

    Example:
        >>> import dpmcmc
        >>> dpmcmc.findings(record.to_arviz()) == list(record.findings)
        True
    """
    return [finding for kept, _ in _judgements(result) for finding in kept]


def limits_of(result: Any) -> Limits:
    """The limits that the draws were compared with. For several runs, the least strict."""
    kept = [Limits(**limits) for _, limits in _judgements(result)]
    return Limits(max(each.r_hat for each in kept), min(each.ess for each in kept))


def _judgements(result: Any) -> list[tuple[list[Finding], dict[str, float]]]:
    """The findings and the limits of each run: several, if `arviz.concat` has put runs together."""
    attributes = getattr(getattr(result, "posterior", None), "attrs", {})
    if FINDINGS not in attributes:
        raise ValueError(
            "there are no findings here: dpmcmc has not made this posterior, or its attributes "
            "were removed"
        )
    return [
        from_text(text)
        for text in np.ravel(attributes.get(DIFFERS.format(FINDINGS), attributes[FINDINGS]))
    ]


def put_in_order(result: Any, names: list[str]) -> None:
    """Sort the variables by these names, which are in the order of the model.

    Variables that are not named come last. Names without a variable are ignored.
    """
    for group in ("posterior", "warmup_posterior"):
        if (draws := getattr(result, group, None)) is not None:
            variables = draws.data_vars
            ordered = [name for name in dict.fromkeys([*names, *variables]) if name in variables]
            setattr(result, group, draws[ordered])


def _describe(result: Any, attributes: Mapping[str, str], units: Mapping[str, str]) -> None:
    result.posterior.attrs.update(attributes)
    for name, unit in units.items():
        # The attribute is not called `units`: xarray reads `units` with the word "since" as times
        result.posterior[name].attrs["unit"] = unit


def rehearse(
    num_chains: int,
    position: Any,
    info: Any,
    unravel: Callable[[Any], dict[str, Any]],
    path: str | Path | None,
    attributes: Mapping[str, str],
    units: Mapping[str, str],
) -> None:
    """Make a result of zeros before the budget is spent, so that errors appear early.

    If a path is given, the result is also written to a new file in the same folder, which is then
    deleted.
    """
    _check_info(info)
    arviz_library()  # if ArviZ itself is missing, the error says so
    positions, infos = jax.tree.map(
        lambda leaf: np.zeros((num_chains, 2, *leaf.shape), leaf.dtype), (position, info)
    )
    try:
        result = _inference_data(_named(positions, unravel), infos, num_warmup=1)
        named = jax.eval_shape(unravel, position)
        _check_parameters(named, result)
    except ImportError:
        raise
    except Exception as error:
        raise ValueError(
            f"these draws could not be made into a posterior ({type(error).__name__}: {error}): "
            "unravel must return a dict from "
            "names (but not 'chain' or 'draw') to arrays"
        ) from error
    if unknown := sorted(units.keys() - named.keys()):
        raise ValueError(
            f"units names {', '.join(unknown)}, which is no parameter: the parameters are "
            f"{', '.join(named)}"
        )
    if path is not None:
        _describe(result, attributes, units)
        try:
            write_draft(result, path).unlink()
        except Exception as error:
            raise ValueError(
                f"path={path} cannot be written ({in_brief(error)}): name a file in another folder"
            ) from error


def _check_parameters(named: Mapping[str, Any], result: Any) -> None:
    """Refuse parameters that a posterior, or its file, cannot hold."""
    for name, value in named.items():
        # A list of arrays would become one array, whose first axes would be taken for chains and
        # draws
        if not hasattr(value, "shape"):
            raise ValueError(f"{name!r} is a {type(value).__name__}")
    if not named:
        raise ValueError("unravel returned no parameter")
    if bad := [name for name in named if not _is_name(name)]:
        raise ValueError(
            f"{bad[0]!r} cannot be the name of a variable in a NetCDF file: no '/', for example; "
            "rename it"
        )
    if missing := set(named) - set(getattr(result, "posterior", ())):
        raise ValueError(f"{sorted(missing)} cannot be variables of it")


def _check_info(info: Any) -> None:
    """Refuse statistics that a posterior cannot hold, before the run: `info` has shapes only."""
    if not (info in (None, ()) or isinstance(info, Mapping) or hasattr(info, "_asdict")):
        kind = "an array" if hasattr(info, "shape") else f"a {type(info).__name__}"
        raise TypeError(
            f"the sampler's info is {kind}: return a NamedTuple or a dict of arrays, or None"
        )
    for name, value in statistics_of(info).items():
        if not hasattr(value, "shape") or jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key):
            what = "a random key" if hasattr(value, "shape") else f"a {type(value).__name__}"
            raise TypeError(
                f"{name!r} in the sampler's info is {what}: it must be an array of numbers"
            )
        if not _is_name(name) or STATISTICS.get(name, name) in ("chain", "draw"):
            raise ValueError(
                f"{name!r} in the sampler's info cannot be the name of a statistic in a posterior: "
                "rename it"
            )


def _is_name(name: Any) -> bool:
    return isinstance(name, str) and name not in ("", ".") and "/" not in name and "\0" not in name


def _named(positions, unravel: Callable[[Any], dict[str, Any]]) -> dict[str, np.ndarray]:
    """The parameters (chains, draws, ...) by name, in the order of `unravel`."""
    unravel_all, order = _unraveling(unravel)
    values = unravel_all(positions)
    return {name: _with_float64(np.asarray(values[name])) for name in order}


@made_once
def _unraveling(unravel: Callable[[Any], dict[str, Any]]) -> tuple[Callable, list[str]]:
    """`unravel` for all draws, and the names in its order, which is known once it was called."""
    order: list[str] = []

    def in_order(position):
        named = unravel(position)
        order[:] = named  # kept here, because JAX sorts the keys of a dict
        return named

    return jax.jit(jax.vmap(jax.vmap(in_order))), order


def _inference_data(named: Mapping[str, np.ndarray], info: Any, num_warmup: int):
    statistics = {
        STATISTICS.get(name, name): np.asarray(values)
        for name, values in statistics_of(info).items()
    }
    with warnings.catch_warnings():
        # If there are more chains than draws, ArviZ warns that the axes may be swapped.
        warnings.filterwarnings("ignore", "More chains", UserWarning)
        return arviz_library().from_dict(
            posterior=_part(named, slice(num_warmup, None)),
            sample_stats=_part(statistics, slice(num_warmup, None)) or None,
            warmup_posterior=_part(named, slice(None, num_warmup)) if num_warmup else None,
            warmup_sample_stats=(_part(statistics, slice(None, num_warmup)) or None)
            if num_warmup
            else None,
            save_warmup=bool(num_warmup),
        )


def _with_float64(values: np.ndarray) -> np.ndarray:
    """Floats as float64: in float32, ArviZ's sums of thousands of draws are too inaccurate."""
    return values.astype(np.float64) if values.dtype.kind == "f" else values


def statement_of(result: Any) -> str:
    """The privacy statement of a posterior, as text.

    Args:
        result: A posterior, from `dpmcmc.sample` or `dpmcmc.load`.

    Returns:
        The statement.

    Raises:
        ValueError: This library has not made the posterior, its attributes were removed, or it
            holds draws of several runs that one statement does not cover.

    Example:
        >>> import dpmcmc
        >>> print(dpmcmc.statement_of(record.to_arviz()).splitlines()[1])
          Promise:   (0.2605, 1e-06)-differential privacy
    """
    text = getattr(getattr(result, "posterior", None), "attrs", {}).get(PRINTED)
    if text is None:
        raise ValueError(
            "there is no privacy statement here: dpmcmc has not made this posterior, or its "
            "attributes were removed"
        )
    check_is_one_run(result)
    return text


def check_is_one_run(result: Any) -> None:
    """Refuse draws of several runs if the statement is about only one of them.

    Runs are accepted if one promise covers them all: they share a budget, or promise nothing.
    """
    groups = [
        getattr(result, name) for name in ("posterior", "warmup_posterior") if hasattr(result, name)
    ]
    attributes = result.posterior.attrs
    stated = attributes.get(NUM_DRAWS)
    if stated is None or is_one_promise(attributes, str(attributes.get("accountant")).split(", ")):
        return
    present = sum(group.sizes.get("chain", 1) * group.sizes.get("draw", 1) for group in groups)
    if present > stated or JOINED in attributes:
        here = (
            f"there are {present} draws here"
            if present > stated
            else "draws of several runs were put together here"
        )
        raise ValueError(
            f"{here}, and the statement is about a run of {stated}: its bill does not have the "
            "cost of the other runs. Keep the runs apart, each with its own statement (their "
            "epsilons and deltas add up), or share one budget from the first run on"
        )


def summary_table(result: Any):
    """ArviZ's table of the parameters as a data frame, in full precision."""
    with _quiet():
        return arviz_library().summary(
            result.posterior.astype(float),  # ArviZ subtracts values, which fails for booleans
            var_names=names_of(result),
            round_to="none",
            hdi_prob=0.94,
        )


def names_of(result: Any) -> list[str]:
    """The names of the parameters in the order of the model."""
    order = json.loads(result.posterior.attrs.get(ORDER, "[]"))
    variables = list(result.posterior.data_vars)
    # Since the run, a user may have added or removed variables
    return [name for name in dict.fromkeys([*order, *variables]) if name in variables]


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Hide ArviZ's warnings that chains are short: the numbers in the table show it."""
    disabled = logging.root.manager.disable
    try:
        logging.disable(logging.WARNING)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)


def write_draft(result: Any, path: str | Path) -> Path:
    """Write the result to a new file in the folder of the path, and return the new path."""
    draft = Path(path).with_name(f"{Path(path).name}.{secrets.token_hex(4)}.draft")
    try:
        result.to_netcdf(str(draft), engine="h5netcdf")
    except BaseException as error:
        with contextlib.suppress(OSError):
            draft.unlink()
        if isinstance(error, OSError) and error.errno is not None:
            # The message of HDF5 contains flags and memory addresses: replace it
            raise OSError(error.errno, os.strerror(error.errno), str(path)) from error
        raise
    return draft


def arviz_library() -> Any:
    """ArviZ, imported when it is first used."""
    with warnings.catch_warnings():
        # ArviZ warns that its next major version will differ: the requirements exclude that version
        warnings.simplefilter("ignore", FutureWarning)
        try:
            import arviz
        except OSError as error:  # ArviZ makes a cache folder when it is imported
            raise OSError(
                "ArviZ, which keeps the draws, cannot be imported: it writes to a cache folder, "
                f"which failed ({error}). Set HOME or XDG_CACHE_HOME to a folder that can be "
                "written"
            ) from error
    return arviz


def _part(values: Mapping[str, np.ndarray], draws: slice) -> dict[str, np.ndarray]:
    """These draws of all chains."""
    return {name: value[:, draws] for name, value in values.items()}


def _attributes(statement: Statement | FederatedStatement) -> dict[str, Any]:
    import dpmcmc

    return {
        **statement.facts(),
        **({"notes": "; ".join(statement.notes)} if statement.notes else {}),
        PRINTED: str(statement),
        ATTRIBUTE: statement.ledger_json(),
        "inference_library": "dpmcmc",
        "inference_library_version": dpmcmc.__version__,
    }
