"""A NumPyro model as a `Model`.

Its latent sites without their constraints are the position, and its observed sites are the
log-likelihood.

A NumPyro model is a function of a whole table. Here it is called on tables of a single row, so that
the log-likelihood of a row cannot depend on other rows. The posterior is the same if the
log-likelihood of a table is the sum over its rows, and no prior is computed from rows. Both are
checked on made-up rows, and refused if they fail. An observed site that does not depend on the rows
is one more factor of the prior.
"""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpmcmc.types import Array, Model, Position, Row

# Made-up rows: enough that groups have several, and that a row can refer to some rows before it.
NUM_ROWS = 24
# Of made-up tables: the least and the largest number, and a bound that whole numbers stay below.
RANGES = ((0.0, 1.0, 2), (-2.0, 2.0, 3), (0.0, 100.0, 30))
DEPENDENT = (
    "the log-likelihood of several made-up rows is not the sum of those of single rows: rows must "
    "be independent, given the parameters. Scale columns by public limits and not by their own "
    "mean or their group's, fill in missing cells beforehand, and do not refer to other rows; "
    "check for shapes that broadcast, as (n, 1) with (n,)"
)
CONCRETE = (
    "this model uses the values of cells while JAX traces it: use jnp and not np, a public number "
    "for max(y) or for the number of different values, jnp.where for `if`, and handlers.mask to "
    "choose rows"
)


def from_numpyro(program: Callable[..., Any], rows: Any) -> Model:
    """The posterior of a NumPyro model.

    Positions are unconstrained, site after site as in the program, and zeros are a possible start.
    Draws have their constraints, and come with the `deterministic` sites that do not depend on a
    row. Everything that the program uses besides its arguments is public.

    No bound is proved. If you have proved one, use `model._replace(lipschitz=...)`.

    Args:
        program: A NumPyro model of a table: called as program(*rows) if `rows` is a tuple or list,
            as program(**rows) if it is a dict, and else as program(rows).
        rows: The arrays that the curator gets, or anything with their shapes and types: nothing
            else of them is used.

    Returns:
        The model of one row.

    Raises:
        ValueError: The program has no parameter or no observed site, a discrete parameter, or one
            for each row; or its log-likelihood is not a sum over rows, or a prior depends on rows.
        TypeError: `program` is not a function.
        ImportError: NumPyro is not installed.

    Example:
        >>> import numpy as np
        >>> import numpyro
        >>> from numpyro import distributions as dist
        >>> from dpmcmc import models
        >>> def program(y):
        ...     mean = numpyro.sample("mean", dist.Normal(0.0, 2.0))
        ...     with numpyro.plate("rows", len(y)):
        ...         numpyro.sample("y", dist.Normal(mean, 1.0), obs=y)
        >>> models.from_numpyro(program, np.zeros(100, np.float32)).dimension
        1
    """
    _check_rows(rows)
    if not callable(program):
        raise TypeError(
            f"program is a {type(program).__name__}: give the model itself, a function of the rows"
        )
    try:
        parts, names = _parts_of(program, rows)
        is_checked = _check_sum(parts, rows)
    except (jax.errors.JAXTypeError, jax.errors.JAXIndexError) as error:
        raise ValueError(CONCRETE) from error
    if not is_checked:
        warnings.warn(
            "it could not be checked whether the log-likelihoods of rows add up: that of no "
            "made-up row is finite",
            stacklevel=2,
        )

    def log_likelihood(position: Position, row: Row) -> Array:
        return parts.log_likelihood(
            position, jax.tree.map(lambda cell: jnp.asarray(cell)[None], row)
        )

    def unravel(position: Position) -> dict[str, Array]:
        values = parts.values(position)
        return {name: values[name] for name in names}

    return Model(log_likelihood, parts.log_prior, unravel, parts.dimension)


@dataclass(frozen=True)
class _Parts:
    """A program, split into a prior and a log-likelihood."""

    call: Callable[[Any], Any]  # of a table
    blank: Any  # a table of one made-up row, for what does not depend on rows
    shapes: Mapping[str, tuple[int, ...]]  # of the latent sites without their constraints
    row_sites: Sequence[str]  # observed sites that depend on the rows

    @property
    def dimension(self) -> int:
        """The length of a flat position."""
        return sum(map(math.prod, self.shapes.values()))

    def by_site(self, position: Position) -> dict[str, Array]:
        """The parts of a flat position, by the name of their latent site."""
        ends = np.cumsum([math.prod(shape) for shape in self.shapes.values()])
        pieces = jnp.split(jnp.asarray(position), ends[:-1])
        return {
            name: piece.reshape(shape)
            for (name, shape), piece in zip(self.shapes.items(), pieces, strict=True)
        }

    def log_prior(self, position: Position, table: Any = None) -> Array:
        """The prior's log-density, with the Jacobian of the constraints."""
        with _without_validation() as numpyro:
            return -numpyro.infer.util.potential_energy(
                *self._public(table), self.by_site(position)
            )

    def values(self, position: Position, table: Any = None) -> dict[str, Array]:
        """The values of latent and of deterministic sites."""
        with _without_validation() as numpyro:
            return numpyro.infer.util.constrain_fn(
                *self._public(table), self.by_site(position), return_deterministic=True
            )

    def _public(self, table: Any) -> tuple[Callable, tuple, dict]:
        """The program without its observed sites that depend on rows, and its arguments."""
        return (
            _numpyro().handlers.block(self.call, hide=self.row_sites),
            (self.blank if table is None else table,),
            {},
        )

    def log_likelihood(self, position: Position, table: Any) -> Array:
        """The log-likelihood of all rows of a table."""
        with _without_validation() as numpyro:
            latent = {
                name: value for name, value in self.values(position).items() if name in self.shapes
            }
            exposed = numpyro.handlers.block(
                numpyro.handlers.substitute(self.call, latent), expose=self.row_sites
            )
            return numpyro.infer.util.log_density(exposed, (table,), {}, {})[0]


def _numpyro() -> Any:
    try:
        import numpyro
    except ImportError as error:
        raise ImportError("models.from_numpyro needs NumPyro: pip install numpyro") from error
    return numpyro


@contextlib.contextmanager
def _without_validation() -> Iterator[Any]:
    """NumPyro without its checks of values.

    Made-up rows may have values that are not possible, and a warning could show a real one.
    """
    numpyro = _numpyro()
    with warnings.catch_warnings(action="ignore"), numpyro.validation_enabled(False):
        yield numpyro


def _parts_of(program: Callable[..., Any], rows: Any) -> tuple[_Parts, list[str]]:
    """The parts of a program, and the names of what its draws hold."""

    def on_table(table: Any) -> Any:
        if isinstance(table, Mapping):
            return program(**table)
        return program(*table) if isinstance(table, tuple | list) else program(table)

    with _without_validation() as numpyro:
        call = numpyro.handlers.seed(on_table, 0)
        blank = _made_up(rows, [1.0])
        sites = _sites_of(call, blank)
        _check_sites(sites, _of_several(_sites_of, call, _made_up(rows, [1.0, 1.0])))
        shapes = {name: site.free_shape for name, site in sites.items() if site.is_latent}
        position = _position(np.random.default_rng(0), sum(map(math.prod, shapes.values())))
        alone = {
            name: _Parts(call, blank, shapes, [name])
            for name, site in sites.items()
            if site.is_observed
        }
        row_sites = [
            name
            for name, part in alone.items()
            if _depends_on_rows(_at(position, part.log_likelihood), rows)
        ]
        if not row_sites:
            raise ValueError(
                "no observed site is computed from the arguments of this model: rows come as "
                "these, not from outside"
            )
        parts = _Parts(call, blank, shapes, row_sites)
        _check_prior(jax.jit(_at(position, parts.log_prior)), rows)
        of_one, of_two = (
            jax.jit(_at(position, parts.values))(_made_up(rows, fill))
            for fill in ([1.0], [1.0, 1.0])
        )
        # In the program's order
        drawn = [name for name in sites if name in of_one and _is_equal(of_one[name], of_two[name])]
        return parts, [
            name for name in drawn if not _depends_on_rows(_at(position, parts.values, name), rows)
        ]


def _position(generator: np.random.Generator, dimension: int) -> Position:
    return jnp.asarray(0.5 * generator.standard_normal(dimension), float)


def _at(
    position: Position, function: Callable[[Position, Any], Any], name: str | None = None
) -> Callable[[Any], Any]:
    return lambda table: (
        function(position, table) if name is None else function(position, table)[name]
    )


def _check_rows(rows: Any) -> None:
    for leaf in jax.tree.leaves(rows) or [None]:
        if not (hasattr(leaf, "dtype") and leaf.shape and np.dtype(leaf.dtype).kind in "biuf"):
            raise ValueError(
                "rows must be arrays of numbers with an entry for each row, as the curator gets "
                "them, or their shapes and types "
                "(of a DataFrame, a dict of np.asarray(table[name], np.float32)); give a program "
                "its other arguments beforehand, "
                "as in functools.partial(program, num_groups=3)"
            )
    if len({leaf.shape[0] for leaf in jax.tree.leaves(rows)}) > 1:
        raise ValueError("the columns of rows have different numbers of rows: they must agree")


def _made_up(rows: Any, fill: Sequence[float]) -> Any:
    """A table with these columns, each row filled with one number: nothing comes from `rows`."""
    return jax.tree.map(
        lambda leaf: jnp.asarray(
            np.stack([np.full(leaf.shape[1:], value, leaf.dtype) for value in fill])
        ),
        rows,
    )


def _of_several(function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except (jax.errors.JAXTypeError, jax.errors.JAXIndexError):
        raise
    except Exception as error:
        raise ValueError(
            "this model runs on a table of one row and not on one of several "
            f"({type(error).__name__}: {error}): let it take the "
            "number of rows from its arguments, as in numpyro.plate('rows', len(y))"
        ) from error


class _Site(NamedTuple):
    """What is known of a site from tracing alone."""

    kind: str
    shape: tuple[int, ...]
    is_latent: bool = False
    is_observed: bool = False
    is_discrete: bool = False
    is_subsampled: bool = False  # a plate of some of the rows
    free_shape: tuple[int, ...] = ()  # without the constraints


def _sites_of(call: Callable[[Any], Any], table: Any) -> dict[str, _Site]:
    numpyro = _numpyro()
    sites = {}
    traced = numpyro.handlers.trace(
        numpyro.handlers.substitute(call, substitute_fn=numpyro.infer.init_to_uniform)
    )

    def collect(table: Any) -> None:
        sites.update({name: _site(numpyro, site) for name, site in traced.get_trace(table).items()})

    jax.eval_shape(collect, table)
    return sites


def _site(numpyro: Any, site: Mapping[str, Any]) -> _Site:
    kind = site["type"]
    shape = jnp.shape(site["value"])
    if kind == "plate":
        size, subsample_size = site["args"]
        is_subsampled = subsample_size not in (None, size) or shape != (size,)
        return _Site(kind, shape, is_subsampled=is_subsampled)
    if kind != "sample":
        return _Site(kind, shape)
    if site["is_observed"] or site["fn"].is_discrete:
        return _Site(
            kind, shape, not site["is_observed"], site["is_observed"], site["fn"].is_discrete
        )
    return _Site(
        kind,
        shape,
        is_latent=True,
        free_shape=numpyro.distributions.biject_to(site["fn"].support).inverse_shape(shape),
    )


def _check_sites(sites: Mapping[str, _Site], of_two: Mapping[str, _Site]) -> None:
    num_latent, num_observed = (
        sum(getattr(site, name) for site in sites.values()) for name in ("is_latent", "is_observed")
    )
    if not num_latent or not num_observed:
        raise ValueError(
            f"this model has {num_latent} parameters and {num_observed} observed sites: it needs "
            "both, numpyro.sample(name, law) and numpyro.sample(name, law, obs=column)"
        )
    if sites.keys() != of_two.keys():
        raise ValueError(
            "this model has other sites for two rows than for one: put what rows have in common "
            "into a numpyro.plate"
        )
    for name, site in sites.items():
        if site.kind in ("param", "mutable"):
            raise ValueError(
                f"site {name!r} is a numpyro.{site.kind}, which has no prior: make it a "
                "numpyro.sample"
            )
        if site.is_subsampled:
            raise ValueError(
                f"plate {name!r} takes some of the rows: leave subsample_size out, and give the "
                "query a batch"
            )
        if site.is_latent and site.is_discrete:
            raise ValueError(
                f"site {name!r} is discrete, but samplers move continuously: sum it out, as "
                "numpyro.distributions.Mixture does"
            )
        if site.is_latent and of_two[name].shape != site.shape:
            raise ValueError(
                f"site {name!r} has a value for each row, which would be about one person: "
                "integrate it out, or move it out of the plate of the rows if it is one parameter "
                "for all"
            )


def _check_prior(log_prior: Callable[[Any], Array], rows: Any) -> None:
    of_one, of_two = (float(log_prior(_made_up(rows, fill))) for fill in ([1.0], [1.0, 1.0]))
    if math.isnan(of_one):
        raise ValueError(
            "the log-prior of this model is not a number: search it for a logarithm or root of a "
            "negative number"
        )
    if not _nearly_equal(of_one, of_two, abs(of_one)) or _depends_on_rows(log_prior, rows):
        raise ValueError(
            "a prior of this model is computed from the rows, or from how many there are: use "
            "public numbers instead"
        )


def _depends_on_rows(function: Callable[[Any], Array], rows: Any) -> bool:
    """Whether the value is computed from the table.

    If it is, vmap over tables has one value for each of them and refuses `out_axes=None`.
    """
    tables = jax.tree.map(lambda column: np.asarray(column)[:, None], _made_up(rows, [1.0, 0.5]))
    try:
        jax.eval_shape(jax.vmap(function, out_axes=None), tables)
    except ValueError:
        return True
    return False


def _check_sum(parts: _Parts, rows: Any) -> bool:
    """Refuse a program whose log-likelihood of a table is not the sum over its rows.

    False if it could not be checked: the log-likelihood of no made-up row is finite.
    """
    of_rows = jax.jit(jax.vmap(parts.log_likelihood, (None, 0)))
    of_table = jax.jit(parts.log_likelihood)

    def terms_of(position: Position, table: Any) -> np.ndarray:
        return np.asarray(
            of_rows(position, jax.tree.map(lambda column: column[:, None], table)), float
        )

    is_checked = False
    generator = np.random.default_rng(0)
    for limits in RANGES:
        position = _position(generator, parts.dimension)
        table = _random_rows(generator, rows, *limits)
        kept = np.flatnonzero(np.isfinite(terms_of(position, table)))
        is_checked |= kept.size > 0
        table = _rows_at(np.resize(kept, NUM_ROWS) if kept.size else np.arange(NUM_ROWS), table)
        for checked_table in _with_gaps(table):
            terms = terms_of(position, checked_table)
            together = float(_of_several(of_table, position, checked_table))
            is_known = np.isfinite(together) or np.isfinite(terms.sum())
            if is_known and not _nearly_equal(
                float(terms.sum()), together, float(np.abs(terms).sum())
            ):
                raise ValueError(DEPENDENT)
    return is_checked


def _random_rows(
    generator: np.random.Generator, rows: Any, low: float, high: float, below: int
) -> Any:
    """Random rows: numbers between `low` and `high`, whole numbers below `below`.

    Every column is drawn by itself, so that no column has the order of another.
    """

    def column(leaf: Any) -> np.ndarray:
        shape = (NUM_ROWS, *leaf.shape[1:])
        kind = np.dtype(leaf.dtype).kind
        drawn = (
            generator.uniform(low, high, shape)
            if kind == "f"
            else generator.integers(2 if kind == "b" else below, size=shape)
        )
        return drawn.astype(leaf.dtype)

    return jax.tree.map(column, rows)


def _rows_at(places: np.ndarray, table: Any) -> Any:
    return jax.tree.map(lambda column: column[places], table)


def _with_gaps(table: Any) -> Iterator[Any]:
    """The table, and for each column of numbers the table with a NaN in its first row."""
    yield table
    columns, tree = jax.tree.flatten(table)
    for place, column in enumerate(columns):
        if column.dtype.kind == "f":
            missing = np.concatenate([np.full_like(column[:1], np.nan), column[1:]])
            yield jax.tree.unflatten(tree, [*columns[:place], missing, *columns[place + 1 :]])


def _is_equal(one: Array, other: Array) -> bool:
    return one.shape == other.shape and np.allclose(one, other, rtol=1e-4, equal_nan=True)


def _nearly_equal(one: float, other: float, scale: float) -> bool:
    """Whether two numbers are equal up to rounding in float32."""
    return one == other or abs(one - other) <= 1e-4 * scale + 1e-6
