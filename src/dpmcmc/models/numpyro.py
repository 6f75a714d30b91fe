"""A NumPyro model as a `Model`. Its latent sites, unconstrained, are the position; its observed sites are what rows say.

NumPyro's models are of whole tables. Here one is called on tables of a single row, so that what it says of a row cannot depend on
other rows. That gives the same posterior if the log-likelihood of a table is the sum of its rows' and no prior is computed from
rows: both are tried on made-up rows, and refused otherwise.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpmcmc.types import Array, Model, Position, Row


def from_numpyro(program: Callable[..., Any], rows: Any) -> Model:
    """The posterior of a NumPyro model that is called on a table: program(*rows), program(**rows) for a dict, else program(rows).

    Of `rows` only shapes and types are used: the arrays that the curator gets will do. Positions are unconstrained, site after site
    as in the program, so that zeros are a place to start. Draws come with the constraints, and with those `deterministic` sites
    that are not about a row. No bound is proved: if you have one, say `model._replace(lipschitz=...)`.
    """
    numpyro = _numpyro()
    with warnings.catch_warnings(action="ignore"), numpyro.validation_enabled(False):  # made-up rows may be impossible ones
        parts = _parts_of(program, rows)
        position = jnp.linspace(0.1, 0.3, parts.dimension)  # not a special one
        _check_prior(jax.jit(lambda table: parts.log_prior(position, table)), rows)
        _check_sum(jax.jit(lambda table: parts.log_likelihood(position, table)), rows)
        names = [name for name in jax.eval_shape(parts.values, position) if not _sees_rows(parts.one_value(name, position), rows)]

    def log_likelihood(position: Position, row: Row) -> Array:
        return parts.log_likelihood(position, jax.tree.map(lambda cell: jnp.asarray(cell)[None], row))

    def unravel(position: Position) -> dict[str, Array]:
        values = parts.values(position)
        return {name: values[name] for name in names}

    return Model(log_likelihood, parts.log_prior, unravel, parts.dimension)


@dataclass(frozen=True)
class _Parts:
    """A program, taken apart."""

    call: Callable[[Any], Any]  # on a table
    blank: Any  # a table of one made-up row, where it does not matter
    shapes: Mapping[str, tuple[int, ...]]  # of the latent sites without their constraints
    observed: Sequence[str]

    @property
    def dimension(self) -> int:
        return sum(map(math.prod, self.shapes.values()))

    def by_site(self, position: Position) -> dict[str, Array]:
        ends = np.cumsum([math.prod(shape) for shape in self.shapes.values()])
        pieces = jnp.split(jnp.asarray(position), ends[:-1])
        return {name: piece.reshape(shape) for (name, shape), piece in zip(self.shapes.items(), pieces, strict=True)}

    def log_prior(self, position: Position, table: Any = None) -> Array:
        """With the Jacobian of the constraints."""
        return -_numpyro().infer.util.potential_energy(*self._public(table), self.by_site(position))

    def values(self, position: Position, table: Any = None) -> dict[str, Array]:
        """Of latent and of deterministic sites."""
        return _numpyro().infer.util.constrain_fn(*self._public(table), self.by_site(position), return_deterministic=True)

    def one_value(self, name: str, position: Position) -> Callable[[Any], Array]:
        return lambda table: self.values(position, table)[name]

    def _public(self, table: Any) -> tuple[Callable, tuple, dict]:
        """The program without what it says of rows, and its arguments."""
        return _numpyro().handlers.block(self.call, hide=self.observed), (self.blank if table is None else table,), {}

    def log_likelihood(self, position: Position, table: Any) -> Array:
        handlers = _numpyro().handlers
        latent = {name: value for name, value in self.values(position).items() if name in self.shapes}
        said = handlers.block(handlers.substitute(self.call, latent), hide=list(latent))
        return _numpyro().infer.util.log_density(said, (table,), {}, {})[0]


def _numpyro() -> Any:
    try:
        import numpyro
    except ImportError as error:
        raise ImportError("models.from_numpyro needs NumPyro: pip install numpyro") from error
    return numpyro


def _parts_of(program: Callable[..., Any], rows: Any) -> _Parts:
    numpyro = _numpyro()
    handlers, biject_to = numpyro.handlers, numpyro.distributions.biject_to

    def call(table: Any) -> Any:
        if isinstance(table, Mapping):
            return program(**table)
        return program(*table) if isinstance(table, tuple | list) else program(table)

    def sites_of(table: Any) -> Mapping[str, Any]:
        begun = handlers.substitute(handlers.seed(call, 0), substitute_fn=numpyro.infer.init_to_uniform)
        return handlers.trace(begun).get_trace(table)

    blank = _made_up(rows, [1.0])
    sites, of_two = sites_of(blank), _of_two_rows(sites_of, _made_up(rows, [1.0, 1.0]))
    _check_sites(sites, of_two)
    latent = _sampled(sites, is_observed=False)
    shapes = {name: biject_to(site["fn"].support).inverse_shape(site["value"].shape) for name, site in latent.items()}
    return _Parts(call, blank, shapes, list(_sampled(sites, is_observed=True)))


def _sampled(sites: Mapping[str, Any], is_observed: bool) -> dict[str, Any]:
    return {name: site for name, site in sites.items() if site["type"] == "sample" and site["is_observed"] == is_observed}


def _made_up(rows: Any, fill: Sequence[float]) -> Any:
    """A table of these columns that has nothing to do with the rows: each row is full of one number."""

    def column(leaf: Any) -> Array:
        if not (hasattr(leaf, "dtype") and leaf.shape):
            raise ValueError("rows must be arrays with an entry for each row, as the curator gets them, or their shapes and types")
        return jnp.stack([jnp.full(leaf.shape[1:], value, leaf.dtype) for value in fill])

    return jax.tree.map(column, rows)


def _of_two_rows(function: Callable[[Any], Any], table: Any) -> Any:
    try:
        return function(table)
    except Exception as error:
        raise ValueError(
            f"this model runs on a table of one row and not on one of two ({type(error).__name__}: {error}): let it take the "
            "number of rows from its arguments, as in numpyro.plate('rows', len(y))"
        ) from error


def _check_sites(sites: Mapping[str, Any], of_two: Mapping[str, Any]) -> None:
    latent, observed = _sampled(sites, is_observed=False), _sampled(sites, is_observed=True)
    if not latent or not observed:
        raise ValueError(
            f"this model has {len(latent)} parameters and {len(observed)} observed sites: it needs both, "
            "numpyro.sample(name, law) and numpyro.sample(name, law, obs=column)"
        )
    for name, site in sites.items():
        if site["type"] in ("param", "mutable"):
            raise ValueError(f"site {name!r} is a numpyro.{site['type']}, which has no prior: make it a numpyro.sample")
        if site["type"] == "plate" and _is_subsampled(site):
            raise ValueError(f"plate {name!r} takes a part of the rows: leave subsample_size out, and give the query a batch")
    for name, site in latent.items():
        if site["fn"].is_discrete:
            raise ValueError(f"site {name!r} is discrete, and moves are not: sum it out, as numpyro.distributions.Mixture does")
        if name not in of_two or of_two[name]["value"].shape != site["value"].shape:
            raise ValueError(f"site {name!r} has a value for each row, which would be about one person: integrate it out")


def _is_subsampled(plate: Mapping[str, Any]) -> bool:
    size, subsample_size = plate["args"]
    return subsample_size not in (None, size) or len(plate["value"]) != size


def _check_prior(log_prior: Callable[[Any], Array], rows: Any) -> None:
    of_one, of_two = (float(log_prior(_made_up(rows, fill))) for fill in ([1.0], [1.0, 1.0]))
    if not _same(of_one, of_two) or _sees_rows(log_prior, rows):
        raise ValueError("a prior of this model is computed from the rows, or from how many there are: take public numbers instead")


def _check_sum(log_likelihood: Callable[[Any], Array], rows: Any) -> None:
    """Refuse a table that says something else than its rows do, one by one."""
    for fill in ([1.0, 0.5], [0.0, 1.0]):
        together = float(_of_two_rows(log_likelihood, _made_up(rows, fill)))
        apart = [float(log_likelihood(_made_up(rows, [value]))) for value in fill]
        if np.isfinite(together) and not _same(sum(apart), together, scale=sum(map(abs, apart))):
            raise ValueError(
                "the log-likelihood of two made-up rows is not the sum of theirs: rows must be independent, given the parameters. "
                "Scale columns by public limits and not by their own mean; put what is about parameters alone into a prior"
            )


def _same(one: float, other: float, scale: float = 0.0) -> bool:
    """But for rounding in float32."""
    return one == other or abs(one - other) <= 1e-4 * (abs(one) + abs(other) + scale) + 1e-6


def _sees_rows(function: Callable[[Any], Array], rows: Any) -> bool:
    """Whether JAX computes the value from the table."""
    tables = jax.tree.map(lambda column: column[:, None], _made_up(rows, [1.0, 0.5]))
    try:
        jax.eval_shape(jax.vmap(function, out_axes=None), tables)
    except ValueError:
        return True
    return False
