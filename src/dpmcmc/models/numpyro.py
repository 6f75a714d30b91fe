"""A NumPyro model as a `Model`. Its latent sites, unconstrained, are the position; its observed
sites are what rows say.

NumPyro's models are of whole tables. Here one is called on tables of a single row, so that what it
says of a row cannot depend on other rows. That gives the same posterior if the log-likelihood of a
table is the sum of its rows' and no prior is computed from rows: both are tried on made-up rows,
and refused otherwise. An observed site that no row has a part in is one more prior.
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

MANY = 24  # made-up rows: groups have several, and lags of some length a row to refer to
# Of their numbers; whole ones are below the third
SPREADS = (0.0, 1.0, 2), (-2.0, 2.0, 3), (0.0, 100.0, 30)
DEPENDENT = (
    "the log-likelihood of made-up rows is not the sum of theirs, one by one: rows must be "
    "independent, given the parameters. "
    "Scale columns by public limits and not by their own mean or their group's, fill in what is "
    "missing beforehand, refer to no "
    "other row; mind shapes that broadcast, as (n, 1) with (n,)"
)
CONCRETE = (
    "this model looks at what cells hold before JAX computes: use jnp and not np, a public number "
    "for max(y) or for how many "
    "values there are, jnp.where for `if` and handlers.mask for a choice of rows"
)


def from_numpyro(program: Callable[..., Any], rows: Any) -> Model:
    """The posterior of a NumPyro model that is called on a table: program(*rows), program(**rows)
    for a dict, else program(rows).

    Of `rows` only shapes and types are used: the arrays that the curator gets will do. What else
    the program knows is public. Positions are unconstrained, site after site as in the program, so
    that zeros are a place to start. Draws come with the constraints, and with those `deterministic`
    sites that are not about a row. No bound is proved: if you have one, say
    `model._replace(lipschitz=...)`.
    """
    _check_rows(rows)
    if not callable(program):
        raise TypeError(
            f"program is a {type(program).__name__}: give the model itself, a function of the rows"
        )
    try:
        parts, names = _parts_of(program, rows)
        is_tried = _check_sum(parts, rows)
    except (jax.errors.JAXTypeError, jax.errors.JAXIndexError) as error:
        raise ValueError(CONCRETE) from error
    if not is_tried:
        warnings.warn(
            "no made-up row has a finite log-likelihood, so that nobody tried whether those of "
            "rows add up",
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
    """A program, taken apart."""

    call: Callable[[Any], Any]  # on a table
    blank: Any  # a table of one made-up row, where it does not matter
    shapes: Mapping[str, tuple[int, ...]]  # of the latent sites without their constraints
    said: Sequence[str]  # observed sites that are about rows

    @property
    def dimension(self) -> int:
        return sum(map(math.prod, self.shapes.values()))

    def by_site(self, position: Position) -> dict[str, Array]:
        ends = np.cumsum([math.prod(shape) for shape in self.shapes.values()])
        pieces = jnp.split(jnp.asarray(position), ends[:-1])
        return {
            name: piece.reshape(shape)
            for (name, shape), piece in zip(self.shapes.items(), pieces, strict=True)
        }

    def log_prior(self, position: Position, table: Any = None) -> Array:
        """With the Jacobian of the constraints."""
        with _unchecked() as numpyro:
            return -numpyro.infer.util.potential_energy(
                *self._public(table), self.by_site(position)
            )

    def values(self, position: Position, table: Any = None) -> dict[str, Array]:
        """Of latent and of deterministic sites."""
        with _unchecked() as numpyro:
            return numpyro.infer.util.constrain_fn(
                *self._public(table), self.by_site(position), return_deterministic=True
            )

    def _public(self, table: Any) -> tuple[Callable, tuple, dict]:
        """The program without what it says of rows, and its arguments."""
        return (
            _numpyro().handlers.block(self.call, hide=self.said),
            (self.blank if table is None else table,),
            {},
        )

    def log_likelihood(self, position: Position, table: Any) -> Array:
        with _unchecked() as numpyro:
            latent = {
                name: value for name, value in self.values(position).items() if name in self.shapes
            }
            exposed = numpyro.handlers.block(
                numpyro.handlers.substitute(self.call, latent), expose=self.said
            )
            return numpyro.infer.util.log_density(exposed, (table,), {}, {})[0]


def _numpyro() -> Any:
    try:
        import numpyro
    except ImportError as error:
        raise ImportError("models.from_numpyro needs NumPyro: pip install numpyro") from error
    return numpyro


@contextlib.contextmanager
def _unchecked() -> Iterator[Any]:
    """NumPyro without its looks at values: made-up rows may be impossible ones, and of others
    nothing is told.
    """
    numpyro = _numpyro()
    with warnings.catch_warnings(action="ignore"), numpyro.validation_enabled(False):
        yield numpyro


def _parts_of(program: Callable[..., Any], rows: Any) -> tuple[_Parts, list[str]]:
    """The program taken apart, and the names of what is drawn."""

    def on_table(table: Any) -> Any:
        if isinstance(table, Mapping):
            return program(**table)
        return program(*table) if isinstance(table, tuple | list) else program(table)

    with _unchecked() as numpyro:
        call = numpyro.handlers.seed(on_table, 0)
        blank = _made_up(rows, [1.0])
        sites = _sites_of(call, blank)
        _check_sites(sites, _of_many(_sites_of, call, _made_up(rows, [1.0, 1.0])))
        shapes = {name: site.free_shape for name, site in sites.items() if site.is_latent}
        position = _position(np.random.default_rng(0), sum(map(math.prod, shapes.values())))
        alone = {
            name: _Parts(call, blank, shapes, [name])
            for name, site in sites.items()
            if site.is_observed
        }
        said = [
            name
            for name, part in alone.items()
            if _sees_rows(_at(position, part.log_likelihood), rows)
        ]
        if not said:
            raise ValueError(
                "no observed site is computed from the arguments of this model: rows come as "
                "these, not from outside"
            )
        parts = _Parts(call, blank, shapes, said)
        _check_prior(jax.jit(_at(position, parts.log_prior)), rows)
        of_one, of_two = (
            jax.jit(_at(position, parts.values))(_made_up(rows, fill))
            for fill in ([1.0], [1.0, 1.0])
        )
        # In the program's order
        drawn = [name for name in sites if name in of_one and _is_equal(of_one[name], of_two[name])]
        return parts, [
            name for name in drawn if not _sees_rows(_at(position, parts.values, name), rows)
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
    """A table of these columns that has nothing to do with the rows: each row is full of one
    number.
    """
    return jax.tree.map(
        lambda leaf: jnp.asarray(
            np.stack([np.full(leaf.shape[1:], value, leaf.dtype) for value in fill])
        ),
        rows,
    )


def _of_many(function: Callable[..., Any], *arguments: Any) -> Any:
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
    """What is known of a site without a value for it."""

    kind: str
    shape: tuple[int, ...]
    is_latent: bool = False
    is_observed: bool = False
    is_discrete: bool = False
    is_part: bool = False  # of a plate
    free_shape: tuple[int, ...] = ()  # without the constraints


def _sites_of(call: Callable[[Any], Any], table: Any) -> dict[str, _Site]:
    numpyro = _numpyro()
    sites = {}
    begun = numpyro.handlers.trace(
        numpyro.handlers.substitute(call, substitute_fn=numpyro.infer.init_to_uniform)
    )

    def look(table: Any) -> None:
        sites.update({name: _site(numpyro, site) for name, site in begun.get_trace(table).items()})

    jax.eval_shape(look, table)
    return sites


def _site(numpyro: Any, site: Mapping[str, Any]) -> _Site:
    kind = site["type"]
    shape = jnp.shape(site["value"])
    if kind == "plate":
        size, subsample_size = site["args"]
        return _Site(kind, shape, is_part=subsample_size not in (None, size) or shape != (size,))
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
            "both, "
            "numpyro.sample(name, law) and numpyro.sample(name, law, obs=column)"
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
        if site.is_part:
            raise ValueError(
                f"plate {name!r} takes a part of the rows: leave subsample_size out, and give the "
                "query a batch"
            )
        if site.is_latent and site.is_discrete:
            raise ValueError(
                f"site {name!r} is discrete, and moves are not: sum it out, as "
                "numpyro.distributions.Mixture does"
            )
        if site.is_latent and of_two[name].shape != site.shape:
            raise ValueError(
                f"site {name!r} has a value for each row, which would be about one person: "
                "integrate it out, or move it out of the "
                "plate of the rows if it is one parameter for all"
            )


def _check_prior(log_prior: Callable[[Any], Array], rows: Any) -> None:
    of_one, of_two = (float(log_prior(_made_up(rows, fill))) for fill in ([1.0], [1.0, 1.0]))
    if math.isnan(of_one):
        raise ValueError(
            "the log-prior of this model is not a number: look for a logarithm, root or factor of "
            "what has none"
        )
    if not _same(of_one, of_two, abs(of_one)) or _sees_rows(log_prior, rows):
        raise ValueError(
            "a prior of this model is computed from the rows, or from how many there are: take "
            "public numbers instead"
        )


def _sees_rows(function: Callable[[Any], Array], rows: Any) -> bool:
    """Whether the value is computed from the table.

    If it is, vmap over tables has a value for each and refuses `out_axes=None`.
    """
    tables = jax.tree.map(lambda column: np.asarray(column)[:, None], _made_up(rows, [1.0, 0.5]))
    try:
        jax.eval_shape(jax.vmap(function, out_axes=None), tables)
    except ValueError:
        return True
    return False


def _check_sum(parts: _Parts, rows: Any) -> bool:
    """Refuse a table that says something else than its rows do, one by one.

    False if no made-up row says anything.
    """
    each = jax.jit(jax.vmap(parts.log_likelihood, (None, 0)))
    whole = jax.jit(parts.log_likelihood)

    def terms_of(position: Position, table: Any) -> np.ndarray:
        return np.asarray(
            each(position, jax.tree.map(lambda column: column[:, None], table)), float
        )

    is_tried = False
    generator = np.random.default_rng(0)
    for spread in SPREADS:
        position = _position(generator, parts.dimension)
        table = _random_rows(generator, rows, *spread)
        kept = np.flatnonzero(np.isfinite(terms_of(position, table)))
        is_tried |= kept.size > 0
        table = _rows_at(np.resize(kept, MANY) if kept.size else np.arange(MANY), table)
        for tried in _with_gaps(table):
            terms = terms_of(position, tried)
            together = float(_of_many(whole, position, tried))
            is_known = np.isfinite(together) or np.isfinite(terms.sum())
            if is_known and not _same(float(terms.sum()), together, float(np.abs(terms).sum())):
                raise ValueError(DEPENDENT)
    return is_tried


def _random_rows(
    generator: np.random.Generator, rows: Any, low: float, high: float, below: int
) -> Any:
    """Numbers between two, whole ones below a third: every column on its own, so that no order of
    one is that of another.
    """

    def column(leaf: Any) -> np.ndarray:
        shape = (MANY, *leaf.shape[1:])
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
    """The table, and for each column of numbers the table whose first row lacks it."""
    yield table
    columns, tree = jax.tree.flatten(table)
    for place, column in enumerate(columns):
        if column.dtype.kind == "f":
            missing = np.concatenate([np.full_like(column[:1], np.nan), column[1:]])
            yield jax.tree.unflatten(tree, [*columns[:place], missing, *columns[place + 1 :]])


def _is_equal(one: Array, other: Array) -> bool:
    return one.shape == other.shape and np.allclose(one, other, rtol=1e-4, equal_nan=True)


def _same(one: float, other: float, scale: float) -> bool:
    """But for rounding in float32."""
    return one == other or abs(one - other) <= 1e-4 * scale + 1e-6
