"""Checks of rows, models and points, by public facts only."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpmcmc.accounting import filters
from dpmcmc.checks import positive, whole
from dpmcmc.curator.noise.noisy_sums import MAX_DIMENSION
from dpmcmc.curator.programs.program import SECRET_SHAPE
from dpmcmc.curator.sums.exact_sum import MAX_ROWS
from dpmcmc.curator.sums.rowwise import check_apart, has_rules
from dpmcmc.errors import in_brief
from dpmcmc.precision import is_double, own_settings
from dpmcmc.types import Budget, Kinds, Model, Query, Unit


def check_promise(
    budget: Any, model: Any, shared_by: str | None, fixed_secret: np.ndarray | None
) -> None:
    """Refuse what is not of the kind that a curator is made with."""
    if budget is not None and not isinstance(budget, Budget):
        raise TypeError(
            f"the budget is a {type(budget).__name__}: give a Budget(epsilon, delta), or None "
            "to promise nothing"
        )
    if not isinstance(model, Model):
        raise TypeError(
            f"the model is a {type(model).__name__}: it must be a Model, such as "
            "models.logistic(2, radius=1.0)"
        )
    if fixed_secret is not None and np.shape(fixed_secret) != SECRET_SHAPE.shape:
        raise ValueError(
            f"fixed_secret of shape {np.shape(fixed_secret)} must be 16 words of 32 bits"
        )
    if shared_by is not None and shared_by not in filters.FILTERS:
        raise ValueError(
            f"shared_by={shared_by!r} must be None or one of {sorted(filters.FILTERS)}"
        )


def as_column(leaf: Any) -> np.ndarray:
    if isinstance(leaf, jax.core.Tracer):
        raise TypeError(
            "rows were given inside jit, vmap or another transformation: make the curator outside"
        )
    if isinstance(leaf, np.ma.MaskedArray):
        raise TypeError(
            "rows in a masked array would lose their mask: fill it first, with array.filled(nan) "
            "for missing numbers"
        )
    if hasattr(leaf, "__array__") and not isinstance(leaf, np.ndarray | np.generic | jax.Array):
        # One missing cell makes another type of a whole column there, with which all rows would
        # round in another way.
        raise TypeError(
            f"rows in a {type(leaf).__name__} have a type that may depend on their cells: declare "
            "it, with np.asarray(column, np.float32), or make rows with dpmcmc.tables.scaled"
        )
    array = np.asarray(leaf)
    if array.ndim == 0:
        raise ValueError(
            "rows must be arrays with a leading axis, one entry per row; a scalar was given (a "
            "list counts as a tuple of scalars: make it an array with np.asarray)"
        )
    if array.dtype.kind == "f":
        with np.errstate(all="ignore"):  # whether a wider number overflowed must not show
            return array if array.dtype in (np.float32, np.float64) else array.astype(np.float32)
    if array.dtype.kind in "biu":
        # Narrow ones would wrap around in a model's arithmetic. Those beyond 32 bits saturate:
        # whether any did must not show.
        if np.can_cast(array.dtype, np.int32):
            return array.astype(np.int32)
        least = 0 if array.dtype.kind == "u" else -(2**31)
        return np.clip(array, least, 2**31 - 1).astype(np.int32)
    kind = array.dtype.type.__name__  # the whole dtype of texts would show how long the longest is
    raise TypeError(
        f"rows of type {kind} cannot be used: encode them as numbers (float, int or bool) first"
    )


def count_rows(leaves: Any, unit: Unit) -> int:
    lengths = {len(leaf) for leaf in jax.tree.leaves(leaves)}
    if not lengths:
        raise ValueError(
            "rows holds no array: give an array, or a tuple or dict of arrays with one entry per "
            "row"
        )
    if len(lengths) > 1:
        numbers = f" ({sorted(lengths)})" if unit.is_count_public else ""
        raise ValueError(
            f"the arrays of rows have different numbers of rows{numbers}: they must agree"
        )
    return lengths.pop()


def first_of_each(persons: Any, num_rows: int, unit: Unit) -> np.ndarray:
    """Which rows are used: of every person the first `rows_per_person`, of nobody none.

    Nobody is a negative number. Which rows of a person are used depends on no other person's rows:
    so one person changes no more than these.
    """
    if unit.is_count_public:
        raise ValueError(
            "persons= leaves rows out, and the number of rows is public here: give how many of a "
            "person's rows to use, with Budget(..., rows_per_person=), or have the number private, "
            "with neighbours=Neighbours.ADD_OR_REMOVE_ONE"
        )
    if (
        not isinstance(persons, np.ndarray | jax.Array)
        or persons.dtype.kind not in "iu"
        or persons.ndim != 1
    ):
        raise TypeError(
            "persons must be an array of whole numbers, one per row: dpmcmc.tables.persons makes "
            "it of a column"
        )
    if len(persons) != num_rows:
        raise ValueError("persons and rows have different lengths: give one entry per row")
    numbers = np.asarray(persons)
    order = np.argsort(numbers, kind="stable")
    in_order = numbers[order]
    first = np.searchsorted(in_order, in_order)  # where each one's rows begin
    is_used = np.zeros(num_rows, bool)
    is_used[order] = np.arange(num_rows) - first < unit.rows_per_person
    return is_used & (numbers >= 0)


def check_capacity(num_rows: int, capacity: int | None, unit: Unit) -> int:
    if capacity is not None:
        capacity = whole("capacity", capacity, 1, "it bounds the number of rows", MAX_ROWS)
    if unit.is_count_public:
        if num_rows == 0:
            raise ValueError("the table is empty (n=0): there is nothing to learn from")
        if num_rows > MAX_ROWS:
            raise ValueError(f"n={num_rows} rows are more than {MAX_ROWS}")
        if capacity is not None and capacity != num_rows:
            raise ValueError(
                f"capacity={capacity} differs from n={num_rows}: under replace-one n is public, "
                "leave capacity out"
            )
        return num_rows
    if capacity is None:
        raise ValueError(
            "the number of rows is private here: declare capacity=, a public bound on it "
            "(with rows_per_person > 1: the number of persons times rows_per_person)"
        )
    if num_rows > capacity:
        raise ValueError(
            f"the table has more rows than the declared capacity={capacity}: declare a larger one"
        )
    return capacity


def check_engine(persons: Any, devices: Any) -> None:
    """Refuse what needs the rows in memory."""
    if persons is not None:
        raise ValueError(
            "persons= needs all rows in memory: load the table, or declare how many rows a person "
            "has at most, with Budget(..., rows_per_person=)"
        )
    if devices is not None:
        raise ValueError(
            "devices= spreads rows that are in memory: leave it out for a dataset, whose batches "
            "are read by its engine"
        )


def check_processes(processes: Any, ledger: Any) -> None:
    """Refuse a file of spends where several processes would each write it."""
    if processes is not None and ledger is not None:
        raise ValueError(
            "ledger= is for one process, and the devices are those of several, each of which would "
            "write the file: leave it out, and grant one bill, or give devices of this process "
            "alone, jax.local_devices()"
        )


def check_points(query: Query, points: Sequence[Any], dimension: int) -> None:
    """Refuse points that are not what a query is asked with.

    That is one or two positions, then perhaps the public part of the log-ratio. Points of any other
    shape could make many answers of one ask, with one and the same noise. A query that is asked
    with other points has `point_shapes`.
    """
    shapes = [(dimension,), (dimension,), ()]
    kinds = [(point.shape, str(point.dtype)) for point in points]
    if hasattr(query, "point_shapes"):
        _check_own_points(query, kinds, query.point_shapes(dimension))
        return
    is_known = all(
        shape == wanted and dtype in ("float32", "float64")
        for (shape, dtype), wanted in zip(kinds, shapes, strict=False)
    )
    if not (1 <= len(points) <= len(shapes) and is_known):
        raise ValueError(
            f"{query} was asked with {kinds}: ask with a position, or a position and a proposal, "
            f"or these and a log-ratio. Positions are float32 or float64 of shape ({dimension},), "
            "the log-ratio is a scalar; for several asks use vmap, with a key each"
        )


def _check_own_points(query: Query, kinds: list[Any], shapes: Sequence[tuple[int, ...]]) -> None:
    is_known = all(dtype in ("float32", "float64") for _, dtype in kinds)
    if [shape for shape, _ in kinds] != list(shapes) or not is_known:
        raise ValueError(
            f"{query} was asked with {kinds}: ask with arrays of shapes {list(shapes)}, float32 or "
            "float64; for several asks use vmap, with a key each"
        )


def check_kind(query: Query, points: Sequence[Any]) -> None:
    """Refuse a query that its sampler asks with the points of another kind."""
    try:
        inspect.signature(query.answer).bind(None, None, None, *points)
    except TypeError:
        raise ValueError(
            f"{query} cannot be asked with {len(points)} points: log-ratios go with penalty, "
            "accept bits with accept_walk, either as the test of hmc, gradients with sgld, sgnht "
            "and hmc, statistics with exponential_penalty. Asked by yourself, gradients and "
            "statistics take a position, log-ratios also a proposal, accept bits also the public "
            "log-ratio"
        ) from None


def check_model(model: Model, row: Any) -> None:
    """Refuse a model that does not take such rows; `row` has the shapes and types of one."""
    for name in ("lipschitz", "hessian_bound", "spread"):
        bound: Any = getattr(model, name)
        if bound is not None:
            positive(f"the model's {name}", bound, "give None where nothing is proved")
    dtype = jnp.float64 if is_double(row) else jnp.float32
    position = jax.ShapeDtypeStruct((model.dimension,), dtype)
    number = jax.ShapeDtypeStruct((), dtype)
    with own_settings(is_double(row)):
        _check_prior(model, position)
        _check_center(model, position)
        _check_scalar("log_likelihood", model.log_likelihood, position, row)
        if model.linear is not None:
            _check_scalar("linear.predictor", model.linear.predictor, position, row)
            _check_scalar("linear.log_likelihood", model.linear.log_likelihood, number, row)
            _check_features(
                model, _check_without_side_effects("linear.features", model.linear.features, row)
            )
        if model.kinds is not None:
            _check_kinds(model.kinds, row)
        _check_indices("log_prior", model, np.zeros(model.dimension, dtype))
        zeros = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), row)
        _check_indices("log_likelihood", model, np.zeros(model.dimension, dtype), zeros)
    if model.family is not None:
        with own_settings():  # as it will be traced
            _check_without_side_effects("family.statistic", model.family.statistic, row)


def _check_prior(model: Model, position: Any) -> None:
    try:
        returned = jax.eval_shape(model.log_prior, position)
    except Exception as error:
        raise ValueError(
            f"the model's log_prior does not take a position of {model.dimension} numbers, the "
            f"model's dimension ({in_brief(error)})"
        ) from error
    if getattr(returned, "shape", None) != () or not jnp.issubdtype(returned.dtype, jnp.floating):
        raise ValueError(
            "the model's log_prior must return one floating-point scalar, it returned "
            f"{_kind_of(returned)}: sum it"
        )


def _check_center(model: Model, position: Any) -> None:
    if (model.center is None) != (model.spread is None):
        raise ValueError(
            "the model has a `center` or a `spread` without the other: gradients lie around the "
            "one, within the other"
        )
    try:
        returned = position if model.center is None else jax.eval_shape(model.center, position)
    except Exception as error:
        raise ValueError(
            f"the model's center does not take a position of {model.dimension} numbers, or needs "
            f"its values in Python ({in_brief(error)})"
        ) from error
    if getattr(returned, "shape", None) != position.shape or not jnp.issubdtype(
        returned.dtype, jnp.floating
    ):
        raise ValueError(
            f"the model's center must return {model.dimension} numbers, it returned "
            f"{_kind_of(returned)}"
        )


def _check_kinds(kinds: Kinds, row: Any) -> None:
    """Noise is charged for as many counts as a vector may have entries."""
    names = kinds.names
    are_texts = isinstance(names, tuple) and all(isinstance(name, str) for name in names)
    if not are_texts or not 1 <= len(set(names)) == len(names) <= MAX_DIMENSION:
        raise ValueError(
            f"kinds.names={names!r} must be a tuple of 1 to {MAX_DIMENSION} different texts"
        )
    returned = _check_without_side_effects("kinds.of_row", kinds.of_row, row)
    if getattr(returned, "shape", None) != () or not jnp.issubdtype(returned.dtype, jnp.integer):
        raise ValueError(
            f"kinds.of_row must return one integer for one row, it returned {_kind_of(returned)}"
        )


def _check_features(model: Model, returned: Any) -> None:
    """Noise is added to one number for each entry of the position, and to no more."""
    is_tuple = isinstance(returned, tuple | list)
    parts = returned if is_tuple else [returned]
    is_in_vectors = is_tuple and all(len(getattr(part, "shape", ())) == 1 for part in parts)
    if not is_in_vectors or sum(part.shape[0] for part in parts) != model.dimension:
        raise ValueError(
            f"linear.features must return a tuple of vectors with {model.dimension} entries in "
            f"all, the model's dimension: it returned {', '.join(map(_kind_of, parts))}"
        )


def _check_indices(name: str, model: Model, *zeros: Any) -> None:
    """Refuse an index that is out of range, where JAX takes the last entry and NumPy raises.

    It is checked on zeros, not on rows.
    """
    try:
        with np.errstate(all="ignore"):
            # What is JAX's own is traced, not compiled step by step
            jax.eval_shape(lambda: getattr(model, name)(*zeros))
    except IndexError as error:
        raise ValueError(
            f"{name} reads an entry that is not there ({error}): positions have "
            f"{model.dimension} numbers, its dimension"
        ) from error
    except Exception:  # what NumPy cannot do, JAX may
        pass


def _check_scalar(name: str, function: Callable[..., Any], *arguments: Any) -> None:
    returned = _check_without_side_effects(name, function, *arguments)
    if getattr(returned, "shape", None) != () or not jnp.issubdtype(returned.dtype, jnp.floating):
        raise ValueError(
            f"{name} must return one floating-point scalar for one row, it returned "
            f"{_kind_of(returned)}: sum what belongs to a row"
        )


def _kind_of(returned: Any) -> str:
    return (
        f"{returned.dtype} of shape {returned.shape}"
        if hasattr(returned, "shape")
        else f"a {type(returned).__name__}"
    )


def _check_without_side_effects(name: str, function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        traced, returned = jax.make_jaxpr(function, return_shape=True)(*arguments)
    except (jax.errors.ConcretizationTypeError, jax.errors.TracerArrayConversionError) as error:
        raise ValueError(
            f"{name} needs a number in Python that is known only when it runs (in an if, float() "
            "or a function of NumPy or SciPy): use jnp.where, and functions of jax.numpy and "
            "jax.scipy"
        ) from error
    except Exception as error:
        row = jax.tree.map(lambda leaf: f"{leaf.dtype}{list(leaf.shape)}", arguments[-1])
        raise ValueError(
            f"the model does not take such rows: one of them is {row}, and {name} failed on it "
            f"({in_brief(error)})"
        ) from error
    check_apart(name, traced.jaxpr)
    if has_rules(traced.jaxpr):  # for derivatives, too: they appear where derivatives are taken
        for derivative in (jax.grad, jax.hessian):
            with contextlib.suppress(Exception):  # one that cannot be taken is not
                traced = jax.make_jaxpr(derivative(function))(*arguments)
            check_apart(f"the derivative of {name}", traced.jaxpr)
    return returned
