"""The noisy gradient: the sum of all rows' clipped gradients, added exactly, plus noise.

A row's gradient divided by the clip is shortened to the unit ball, made whole numbers on a grid,
and its length is held to the bound in exact integers. Replacing a row then moves the integer sum by
at most twice the bound, whatever floating point did. The noise is Gaussian, or radial
(`RadialGradient`, `CenteredRadialGradient`), which is less in few dimensions.

Gradients may lie around another point than 0: with a public number of rows n, and a public center
c, n c + sum_i (g_i - c) is the same sum, and what a replaced row can change is the width of the set
that gradients lie in, not its distance from 0 (`CenteredGradient`).

Models with a linear predictor take a short cut (`linear_rows`). For all others the gradient is made
row by row, a block of rows at a time, shortened with a margin for rounding and truncated to the
grid 2^-30; a row that is too long even so counts as zero.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
from jax import lax

from dpmcmc.accounting import costs
from dpmcmc.checks import check_sizes, whole
from dpmcmc.curator.noise import radial, stream
from dpmcmc.curator.noise.noisy_sums import MAX_DIMENSION, integer_sigma, noisy, vector_tv_error
from dpmcmc.curator.queries import batches
from dpmcmc.curator.sums import fused, integer_rows, linear_rows
from dpmcmc.curator.sums.exact_sum import (
    BITS,
    MAX_ROWS,
    Part,
    Table,
    ball_integers,
    rows_per_block,
    sum_blocks,
    sum_counted,
    sum_pieces,
)
from dpmcmc.curator.sums.rowwise import rowwise
from dpmcmc.errors import UnsupportedQuery
from dpmcmc.types import Answer, Array, Model, Unit


@dataclass(frozen=True)
class Gradient:
    """The noisy gradient of the log-likelihood, each row's gradient shortened to length `clip`.

    Released is  (T / q) (sum_i clip(g_i) + N(0, s^2 I)),  g_i the gradient of row i's
    log-likelihood.

    s = noise_multiplier * (2 clip when a row is replaced, clip when one is added or removed) * rows
    per person;  T = temperature, a public constant. The sum is over all rows, q = 1, or over a
    random batch that has each row with probability q. Noise and sum live on an integer grid of clip
    2^-30 or finer. With the model's `lipschitz` as the clip no row is shortened. A NaN gradient
    counts as zero. The answer's variance is that of the noise alone, in each coordinate.

    Attributes:
        clip: The largest length of one row's gradient: a longer one is shortened to it.
        noise_multiplier: Standard deviation of the noise, divided by the sensitivity of the sum.
        batch: The random batch that is read; None reads all rows.
        temperature: T, the power of the likelihood.

    Raises:
        ValueError: A number is not positive and finite, or `batch` is not a batch.

    Example:
        >>> from dpmcmc import Unit, queries
        >>> query = queries.Gradient(clip=1.0, noise_multiplier=5.0)
        >>> round(query.cost(Unit()).rho(), 3)
        0.02
        >>> queries.Gradient(1.0, 5.0, batch=queries.PoissonBatch(0.5)).cost(Unit()).scheme
        'poisson'
    """

    released: ClassVar[str] = (
        "gradients of the log-likelihood, each row's clipped, with Gaussian noise"
    )
    adds: ClassVar[bool] = True  # the answers of several owners
    is_direction: ClassVar[bool] = True

    clip: float
    noise_multiplier: float
    batch: batches.PoissonBatch | batches.FixedBatch | None = None
    temperature: float = 1.0

    def __post_init__(self) -> None:
        check_sizes(self, "clip", "noise_multiplier", "temperature")
        batches.check(self.batch)

    def answer(self, key: Array, model: Model, rows: Table, position: Array) -> Answer:
        """Compute on the rows what is released.

        Args:
            key: Eight secret words, for the noise and the coins.
            model: What one row contributes.
            rows: The rows.
            position: Where the chain is.

        Returns:
            What is released, and the variance of the noise in it.

        Raises:
            ValueError: The model has too large a dimension.
        """
        _check_dimension(model)
        key_noise, key_batch = stream.random_words(key, (2, 8))
        if self.batch is None:
            total, longest, grid = _exact_sum(model, rows, position, self.clip)
        else:
            total = batch_sum(model, rows, position, self.clip, *self.batch.draw(key_batch, rows))
            longest = 2.0 ** _bits(model, rows)
            grid = self.clip / longest
        sigma = integer_sigma(self.noise_multiplier, rows.unit, 0) * longest
        rate = 1.0 if self.batch is None else self.batch.rate
        return noisy(key_noise, total, sigma, self.temperature * grid / rate)

    def part(self, model: Model, rows: Table) -> Part | None:
        """Which sum of a pass of integers is asked for, where this is answered by one.

        Args:
            model: What one row contributes.
            rows: The rows.

        Returns:
            The sum, which a pass can make together with others at the same points.
        """
        return _part(rows, self.clip) if self.batch is None else None

    def cost(self, unit: Unit) -> costs.Gaussian | costs.SubsampledGaussian:
        """What one release reveals.

        Args:
            unit: Whom the promise protects.

        Returns:
            The cost.

        Raises:
            UnsupportedQuery: With a batch, a person may have several rows.
        """
        tv_error = _tv_error(self.noise_multiplier, unit)
        if self.batch is None:
            return costs.Gaussian(self.noise_multiplier, tv_error=tv_error)
        return batches.subsampled_cost(self.batch, unit, self.noise_multiplier, tv_error)


@dataclass(frozen=True)
class RadialGradient:
    """The gradient of the log-likelihood with radial noise: a `Gradient` with less of it.

    Released is  sum_i clip(g_i) + z,  where z has a density proportional to exp(-|z| / scale) in
    `dimension` dimensions, and scale = (2 clip when a row is replaced, clip when one is added or
    removed) * rows per person / epsilon. Each coordinate of z has the variance (d + 1) scale^2, so
    that at the same (epsilon, delta), beside Gaussian answers, it is that of Gaussian noise divided
    by 2.5 for d = 3, 1.8 for d = 7 and 1.3 for d = 20 (epsilon = 1, delta = 10^-6). With the
    model's `lipschitz` as the clip no row is shortened. A NaN gradient counts as zero.

    Attributes:
        clip: The largest length of one row's gradient: a longer one is shortened to it.
        epsilon: The sensitivity of the sum over the scale of the noise; see
            `calibrate.radial_epsilon`.
        dimension: The dimension of the model, which the cost depends on.

    Raises:
        ValueError: A number is not positive and finite, or the dimension not a whole number.

    Example:
        >>> from dpmcmc import Unit, queries
        >>> query = queries.RadialGradient(clip=1.0, epsilon=0.8, dimension=7)
        >>> query.cost(Unit()).pure()
        0.8
    """

    released: ClassVar[str] = (
        "gradients of the log-likelihood, each row's clipped, with radial noise"
    )
    adds: ClassVar[bool] = True
    is_direction: ClassVar[bool] = True

    clip: float
    epsilon: float
    dimension: int

    def __post_init__(self) -> None:
        check_sizes(self, "clip", "epsilon")
        dimension = whole("dimension", self.dimension, most=MAX_DIMENSION)
        object.__setattr__(self, "dimension", dimension)

    def answer(self, key: Array, model: Model, rows: Table, position: Array) -> Answer:
        """Compute on the rows what is released.

        Args:
            key: Eight secret words, for the noise.
            model: What one row contributes.
            rows: The rows.
            position: Where the chain is.

        Returns:
            What is released, and the variance of the noise in it.

        Raises:
            ValueError: The model has another dimension, or epsilon is too large or too small for
                integer noise.
        """
        _check_same_dimension(self, model)
        total, longest, grid = _exact_sum(model, rows, position, self.clip)
        return _radial(key, self, rows.unit, total, longest, grid)

    def part(self, model: Model, rows: Table) -> Part | None:
        """Which sum of a pass of integers is asked for, where this is answered by one.

        Args:
            model: What one row contributes.
            rows: The rows.

        Returns:
            The sum, which a pass can make together with others at the same points.
        """
        return _part(rows, self.clip)

    def cost(self, unit: Unit) -> costs.Radial:
        """What one release reveals.

        Args:
            unit: Whom the promise protects.

        Returns:
            The cost.

        Raises:
            ValueError: epsilon is too large or too small for integer noise.
        """
        return _radial_cost(self, unit)


@dataclass(frozen=True)
class CenteredGradient:
    """The noisy gradient around the model's `center`: a `Gradient` with less noise.

    Released is  n c + sum_i clip(g_i - c) + N(0, s^2 I),  c the model's `center` at the position,
    and s = 2 noise_multiplier clip. With the model's `spread` as the clip no row is shortened. The
    number of rows n must be public: one row is replaced. A NaN gradient counts as zero.

    Attributes:
        clip: The largest distance of one row's gradient from the center: a farther one is moved to
            it.
        noise_multiplier: Standard deviation of the noise, divided by the sensitivity of the sum.

    Raises:
        ValueError: A number is not positive and finite.

    Example:
        >>> from dpmcmc import Unit, queries
        >>> query = queries.CenteredGradient(clip=0.1, noise_multiplier=5.0)
        >>> round(query.cost(Unit()).rho(), 3)
        0.02
    """

    released: ClassVar[str] = Gradient.released
    adds: ClassVar[bool] = True
    is_direction: ClassVar[bool] = True
    bounded_by: ClassVar[str] = "spread"

    clip: float
    noise_multiplier: float

    def __post_init__(self) -> None:
        check_sizes(self, "clip", "noise_multiplier")

    def answer(self, key: Array, model: Model, rows: Table, position: Array) -> Answer:
        """Compute on the rows what is released.

        Args:
            key: Eight secret words, for the noise and the coins.
            model: What one row contributes.
            rows: The rows.
            position: Where the chain is.

        Returns:
            What is released, and the variance of the noise in it.

        Raises:
            ValueError: The model has no `center`, or too large a dimension.
        """
        total, common = _centered_sum(model, rows, position, self.clip)
        answer = noisy(
            key, total, integer_sigma(self.noise_multiplier, rows.unit), self.clip / 2.0**BITS
        )
        return answer._replace(value=answer.value + common)

    def cost(self, unit: Unit) -> costs.Gaussian:
        """What one release reveals.

        Args:
            unit: Whom the promise protects.

        Returns:
            The cost.

        Raises:
            UnsupportedQuery: The number of rows is private.
        """
        _check_count_is_public(self, unit)
        return costs.Gaussian(
            self.noise_multiplier, tv_error=_tv_error(self.noise_multiplier, unit)
        )


@dataclass(frozen=True)
class CenteredRadialGradient:
    """A `CenteredGradient` with radial noise: see `RadialGradient`.

    The sum of what gradients differ from the center by moves no more than that of a `Gradient` of
    the same clip, so the noise and its cost are those of a `RadialGradient`.

    Attributes:
        clip: The largest distance of one row's gradient from the center: a farther one is brought
            to it. The model's `spread`.
        epsilon: The sensitivity of the sum over the scale of the noise.
        dimension: The dimension of the model, which the cost depends on.

    Raises:
        ValueError: A number is not positive and finite, or the dimension not a whole number.

    Example:
        >>> from dpmcmc import Unit, queries
        >>> queries.CenteredRadialGradient(1.0, epsilon=0.8, dimension=7).cost(Unit()).pure()
        0.8
    """

    released: ClassVar[str] = RadialGradient.released
    adds: ClassVar[bool] = True
    is_direction: ClassVar[bool] = True
    bounded_by: ClassVar[str] = "spread"

    clip: float
    epsilon: float
    dimension: int

    def __post_init__(self) -> None:
        check_sizes(self, "clip", "epsilon")
        dimension = whole("dimension", self.dimension, most=MAX_DIMENSION)
        object.__setattr__(self, "dimension", dimension)

    def answer(self, key: Array, model: Model, rows: Table, position: Array) -> Answer:
        """Compute on the rows what is released.

        Args:
            key: Eight secret words, for the noise.
            model: What one row contributes.
            rows: The rows.
            position: Where the chain is.

        Returns:
            What is released, and the variance of the noise in it.

        Raises:
            ValueError: The model has another dimension or no `center`, or epsilon is too large or
                too small for integer noise.
        """
        _check_same_dimension(self, model)
        total, common = _centered_sum(model, rows, position, self.clip)
        answer = _radial(key, self, rows.unit, total, 2.0**BITS, self.clip / 2.0**BITS)
        return answer._replace(value=answer.value + common)

    def cost(self, unit: Unit) -> costs.Radial:
        """What one release reveals.

        Args:
            unit: Whom the promise protects.

        Returns:
            The cost.

        Raises:
            UnsupportedQuery: The number of rows is private.
            ValueError: epsilon is too large or too small for integer noise.
        """
        _check_count_is_public(self, unit)
        return _radial_cost(self, unit)


def _check_count_is_public(query: CenteredGradient | CenteredRadialGradient, unit: Unit) -> None:
    if not unit.is_count_public:
        raise UnsupportedQuery(
            f"{query} adds the center once for each row, and their number is private here: use "
            "Gradient"
        )


def _check_same_dimension(query: RadialGradient | CenteredRadialGradient, model: Model) -> None:
    if model.dimension != query.dimension:
        raise ValueError(
            f"the model has dimension {model.dimension}, and {query} is accounted for another: "
            "give the model's"
        )


def _radial(
    key: Array,
    query: RadialGradient | CenteredRadialGradient,
    unit: Unit,
    total: Array,
    longest: float,
    grid: float,
) -> Answer:
    """An exact sum, of which one row moves the length `longest`, with radial noise."""
    scale = unit.sensitivity * longest / query.epsilon
    noise = radial.radial_noise(key, query.dimension, scale)
    variance = radial.radial_variance(query.dimension, grid * scale)
    return Answer(grid * (total + noise).astype(jnp.float64), jnp.asarray(variance))


def _radial_cost(query: RadialGradient | CenteredRadialGradient, unit: Unit) -> costs.Radial:
    # On the coarsest grid, where the error is largest
    scale = unit.sensitivity * 2.0**BITS / query.epsilon
    tv_error = radial.radial_tv_error(query.dimension, scale)
    return costs.Radial(query.epsilon, query.dimension, tv_error=tv_error)


def _centered_sum(model: Model, rows: Table, position, clip: float) -> tuple[Array, Array]:
    """The integer sum of what gradients differ from the center by, and the center times the public
    number of rows.
    """
    _check_dimension(model)
    if model.center is None:
        raise ValueError("the model has no `center` for the gradients of its rows: use Gradient")
    position = jnp.asarray(position, rows.dtype)
    with jax.enable_x64(rows.is_double):
        center = jnp.asarray(model.center(position), rows.dtype)
    sum_of_rows = _adder(model._replace(linear=None), rows, position, clip, center)
    total = sum_pieces(sum_of_rows, rows, tuple((piece, None) for piece in rows.pieces))
    assert rows.capacity is not None  # the number of rows, which is public
    return total, rows.capacity * center.astype(jnp.float64)


def _part(rows: Table, clip: float) -> Part | None:
    """Which sum of a pass of integers answers, if one does: it never clips."""
    if rows.integers is None or clip < rows.integers.clip:
        return None
    return Part(integer_rows.sums, "gradient")


def _exact_sum(model: Model, rows: Table, position, clip: float) -> tuple[Array, float, float]:
    """The integer sum over all rows, how far one row moves it, and what one unit stands for."""
    if _part(rows, clip) is not None:
        total = integer_rows.gradient_sum(rows, position)
        return total, rows.integers.gradient_sensitivity(clip), rows.integers.slope_unit
    total = all_rows_sum(model, rows, position, clip)
    assert total.shape == (model.dimension,)
    longest = 2.0 ** _bits(model, rows)
    return total, longest, clip / longest


def _check_dimension(model: Model) -> None:
    if model.dimension > MAX_DIMENSION:
        raise ValueError(
            f"dimension={model.dimension} is over {MAX_DIMENSION}, the most that gradient noise is "
            "charged for"
        )


def _tv_error(noise_multiplier: float, unit: Unit) -> float:
    """The total-variation error of the noise, on the coarsest grid, where it is largest."""
    return vector_tv_error(integer_sigma(noise_multiplier, unit))


def with_scales(table: Table, model: Model) -> Table:
    """The table with what a linear predictor's short cut needs.

    It is computed once per program, if a query there asks for it.
    """
    if model.linear is None:
        return table
    bits = _bits(model, table)
    block = _block(model, bits)
    scales: list[linear_rows.Scales] = []
    for piece in table.pieces:
        # The barrier makes each piece wait for the one before, so that their temporary arrays can
        # share memory.
        piece, _ = lax.optimization_barrier((piece, scales[-1:]))
        scales.append(linear_rows.row_scales(model.linear, piece, bits, table.is_double, block))
    return dataclasses.replace(table, scales=tuple(scales))


def all_rows_sum(model: Model, table: Table, position, clip: float):
    """The exact integer sum of all rows' clipped gradients / clip, on the table's grid."""
    layout = fused.row_layout(model, table.pieces[0]) if table.scales else None
    if layout is not None:
        return fused.gradient_sum(
            model, table, layout, jnp.asarray(position, jnp.float32), clip, _bits(model, table)
        )
    scales = table.scales or (None,) * len(table.pieces)
    return sum_pieces(
        _adder(model, table, position, clip), table, tuple(zip(table.pieces, scales, strict=True))
    )


def batch_sum(model: Model, table: Table, position, clip: float, slots, is_counted):
    """The same over the counted slots."""
    rows, is_real = batches.gather(table, slots)
    scales = None
    if model.linear is not None:
        bits = _bits(model, table)
        scales = linear_rows.row_scales(
            model.linear, rows, bits, table.is_double, _block(model, bits)
        )
    return table.over_devices(
        _adder(model, table, position, clip)((rows, scales), is_counted & is_real)
    )


def clipped_sum(model: Model, table: Table, position, clip: float, slots):
    """The sum of the clipped gradients without noise, in float64.

    It is over all rows, or over slots (and whether each counts).
    """
    total = (
        all_rows_sum(model, table, position, clip)
        if slots is None
        else batch_sum(model, table, position, clip, *slots)
    )
    return clip / 2.0 ** _bits(model, table) * total.astype(jnp.float64)


def row_integers(model: Model, rows, num_rows, position, clip: float, center=None):
    """Each row's clipped gradient / clip as integers on the grid 2^-BITS.

    The shape is (rows, d), and each length at most 2^BITS. With a center, of shape (d,), it is the
    gradient's difference from the center.
    """

    def gradients():
        # The model is traced in the precision of the rows, so that constants in it do not double
        # the work.
        with jax.enable_x64(position.dtype == jnp.float64):
            each = rowwise(jax.grad(model.log_likelihood), (None, 0))(position, rows)
            if center is None:
                return each
            is_missing = jnp.isnan(each).any(axis=1, keepdims=True)
            return jnp.where(is_missing, 0, each) - center

    return ball_integers(gradients, clip, num_rows)


def _adder(model: Model, table: Table, position, clip: float, center=None):
    """(rows, scales), is_counted -> the integer sum of their clipped gradients, block by block."""
    position = jnp.asarray(position, table.dtype)
    bits = _bits(model, table)
    linear = model.linear

    def one(part, is_counted):
        rows, scales = part
        if linear is not None:
            return linear_rows.gradient_integers(
                linear, rows, scales, is_counted, position, clip, bits
            )
        return sum_counted(
            row_integers(model, rows, table.num_rows, position, clip, center), is_counted
        )

    return lambda rows, is_counted: sum_blocks(one, rows, is_counted, _block(model, bits))


def _block(model: Model, bits: int) -> int:
    """How many rows at a time."""
    if model.linear is None:
        return rows_per_block(model.dimension)
    return (
        min(rows_per_block(model.dimension), linear_rows.longest_block(bits))
        if jax.default_backend() == "cpu"
        else MAX_ROWS
    )


def _bits(model: Model, table: Table) -> int:
    return BITS if model.linear is None else linear_rows.grid_bits(table.num_slots)
