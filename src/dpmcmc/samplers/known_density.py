r"""Hamiltonian Monte Carlo on a density that is known: its steps ask nothing, so they cost time and
no budget.

The density may be that of a survey's posterior (`samplers.surveys`). It is nearly normal around its
mode. In a direction in which noise may hide the curvature it falls slowly, and its width across
grows with the distance from the mode: a chain of ordinary steps does not converge there. So the
chain moves in other coordinates y. With the mode m of the density, S S' = the inverse of minus its
Hessian there and r = |y|,

    x = m + S y R sinh(r / R) / r,      R = 3 sqrt(d)

Near the mode these coordinates are nearly linear. Far from it a step of one length multiplies the
distance from the mode by a constant factor, so that a tail of any length takes few steps. In the
coordinates y the density is  p(x(y)) cosh(r / R) (R sinh(r / R) / r)^(d - 1).

Mostly there are two tails in opposite directions, with little probability between: after each step
-y is proposed, and accepted or not by Metropolis' rule.

Chains start at different positions, spread twice as widely as the density around its mode. In their
first `NUM_ADAPTATIONS` steps they choose the length of a step, for an acceptance of 80 %
(:cite:p:`andrieu2008tutorial`): the draws of these steps are to be dropped. Then the length stays
fixed, but for a random factor in each step. A `refined` state goes on with steps of half the
length.

The density is evaluated at y and -y together, at one place of the code: a compiler takes most of
its time for that place.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from dpmcmc.samplers.hmc import HMCInfo, leapfrog
from dpmcmc.types import Array, Position, Sampler

LogDensity = Callable[[Position], Array]
NUM_LEAPFROG = 12
ACCEPTANCE = 0.8
FIRST_STEP = 0.4  # in standard deviations
NUM_ADAPTATIONS = 300
DISPERSION = 2.0  # of the starting points, in standard deviations
RADIUS = 3.0  # times the square root of the dimension: R
NEWTON_STEPS = 20
LEAST_PRECISION = 1e-6  # of the largest
HALVINGS = 24
TINY = 1e-12  # below the square of any length that matters


class Frame(NamedTuple):
    """The middle of the density, which the coordinates y are measured by."""

    mode: Position
    scale: Array  # S


class Sides(NamedTuple):
    """The log density in the coordinates y and its gradient, at y and at -y."""

    values: Array  # (2,)
    gradients: Array  # (2, d)

    def opposite(self) -> Sides:
        """The two sides for -y instead of y."""
        return Sides(self.values[::-1], self.gradients[::-1])


class KnownState(NamedTuple):
    """Where the chain is."""

    position: Position
    point: Array  # y
    sides: Sides
    frame: Frame
    log_step: Array  # the logarithm of the length of a step
    mean_log_step: Array  # over the later half of the first steps, so far
    num_steps: Array  # so far, at most NUM_ADAPTATIONS

    @property
    def num_adaptations(self) -> int:
        """How many of the first draws are to be dropped."""
        return NUM_ADAPTATIONS

    def refined(self) -> KnownState:
        """The same place, with steps of half the length."""
        return self._replace(log_step=self.log_step - math.log(2))


class Stretched(NamedTuple):
    """The density in the coordinates y."""

    log_density: LogDensity
    frame: Frame

    def stretch(self, point: Array) -> tuple[Array, Array]:
        """r / R, and x - m over S y."""
        radius = RADIUS * point.size**0.5
        length = jnp.sqrt(jnp.sum(point**2) + TINY)
        return length / radius, radius * jnp.sinh(length / radius) / length

    def position_of(self, point: Array) -> Position:
        _, factor = self.stretch(point)
        mode, scale = self.frame
        return (mode + scale @ (factor * point)).astype(mode.dtype)

    def at(self, point: Array) -> Array:
        """The logarithm of the density of y."""
        share, factor = self.stretch(point)
        volume = jnp.log(jnp.cosh(share)) + (point.size - 1) * jnp.log(factor)
        return self.log_density(self.position_of(point)) + volume

    def sides_of(self, point: Array) -> Sides:
        return Sides(*jax.vmap(jax.value_and_grad(self.at))(jnp.stack([point, -point])))

    def first_point(self, rng_key) -> Array:
        """A random one, brought nearer to the mode until the density is positive there."""
        mode = self.frame.mode
        drawn = DISPERSION * jax.random.normal(rng_key, mode.shape, mode.dtype)
        shares = 0.5 ** jnp.arange(HALVINGS, dtype=drawn.dtype)
        is_inside = jax.vmap(lambda share: jnp.isfinite(self.at(share * drawn)))(shares)
        return jnp.where(jnp.any(is_inside), shares[jnp.argmax(is_inside)], 0) * drawn


def known_density(log_density: LogDensity, near: Position) -> Sampler:
    """A sampler of this density, whose mode a few Newton steps from `near` find.

    Args:
        log_density: The logarithm of the density, up to a constant.
        near: A position from which Newton steps lead to the mode.

    Returns:
        The sampler. The first `NUM_ADAPTATIONS` draws are to be dropped.

    Example:
        >>> import jax.numpy as jnp
        >>> sampler = known_density(lambda position: -jnp.sum(position**2), jnp.ones(2))
        >>> state = sampler.init(jax.random.key(0), jnp.ones(2), None)
        >>> state.position.shape
        (2,)
    """

    def init(rng_key, position, ask):
        frame = _frame(log_density, near)
        density = Stretched(log_density, frame)
        point = density.first_point(rng_key)
        log_step = jnp.log(jnp.asarray(FIRST_STEP, point.dtype))
        return KnownState(
            density.position_of(point),
            point,
            density.sides_of(point),
            frame,
            log_step,
            jnp.zeros_like(log_step),
            jnp.int32(0),
        )

    def step(rng_key, state, ask):
        density = Stretched(log_density, state.frame)
        step_size = jnp.exp(state.log_step)
        point, sides, chance, info = _step(density, rng_key, state.point, state.sides, step_size)
        adapted = _adapted(state, chance)
        return adapted._replace(position=density.position_of(point), point=point, sides=sides), info

    return Sampler(init, step)


def _frame(log_density: LogDensity, near: Position) -> Frame:
    mode, precision = find_mode(log_density, near)
    scale = jnp.linalg.inv(jnp.linalg.cholesky(precision)).T
    return Frame(mode.astype(near.dtype), scale)


def _adapted(state: KnownState, chance: Array) -> KnownState:
    """With the length of steps that the chance of acceptance leads to, and after the first steps
    the mean that they have led to.

    The mean is over the later half, of logarithms that rise with the chance.
    """
    num_late = NUM_ADAPTATIONS - NUM_ADAPTATIONS // 2
    index = state.num_steps
    is_adapting = index < NUM_ADAPTATIONS
    log_step = state.log_step + (chance - ACCEPTANCE) / (1 + index) ** 0.6
    is_late = is_adapting & (index >= NUM_ADAPTATIONS // 2)
    mean = state.mean_log_step + jnp.where(is_late, log_step, 0) / num_late
    log_step = jnp.where(index == NUM_ADAPTATIONS - 1, mean, log_step)
    return state._replace(
        log_step=jnp.where(is_adapting, log_step, state.log_step),
        mean_log_step=mean,
        num_steps=index + is_adapting,
    )


def _step(
    density: Stretched, rng_key, point: Array, sides: Sides, step_size: Array
) -> tuple[Array, Sides, Array, HMCInfo]:
    """A Hamiltonian step and perhaps a change to the opposite side; the first one's chance."""
    # All in one draw, for the compiler's sake
    drawn = jax.random.normal(rng_key, (point.size + 3,), point.dtype)
    momentum = drawn[:-3]
    for_length, for_acceptance, for_mirror = jax.scipy.special.ndtr(drawn[-3:])
    end, end_sides, gain = _path(density, momentum, point, sides, step_size * for_length)
    is_divergent = ~jnp.isfinite(gain)
    chance = jnp.where(is_divergent, 0.0, jnp.minimum(1.0, jnp.exp(gain)))
    is_accepted = for_acceptance < chance
    reached, sides = _chosen(is_accepted, (end, end_sides), (point, sides))
    is_mirrored = jnp.log(for_mirror) < sides.values[1] - sides.values[0]
    length = jnp.linalg.norm(density.position_of(end) - density.position_of(point))
    info = HMCInfo(is_accepted, is_divergent, jnp.where(is_divergent, 0.0, length))
    reached, sides = _chosen(is_mirrored, (-reached, sides.opposite()), (reached, sides))
    return reached, sides, chance, info


def _chosen(is_first: Array, first: Any, second: Any) -> Any:
    return jax.tree.map(lambda one, other: jnp.where(is_first, one, other), first, second)


def _path(
    density: Stretched, start: Array, point: Array, sides: Sides, step: Array
) -> tuple[Array, Sides, Array]:
    """The end of a path that starts with this momentum, the density there, and what it gains."""

    def kick(_, point: Array) -> tuple[Array, Sides]:
        found = density.sides_of(point)
        return found.gradients[0], found

    first = sides.gradients[0], sides
    end, momentum, found = leapfrog(
        kick, lambda momentum: momentum, point, start, first, step, jnp.arange(NUM_LEAPFROG)
    )
    kinetic = (jnp.sum(start**2) - jnp.sum(momentum**2)) / 2
    return end, found, found.values[0] - sides.values[0] + kinetic


def find_mode(log_density: LogDensity, near: Position) -> tuple[Position, Array]:
    """Where the density is highest, and minus its Hessian there, made positive definite."""

    def precision_at(position: Position) -> tuple[Array, Array]:
        values, axes = jnp.linalg.eigh(-jax.hessian(log_density)(position))
        sizes = jnp.abs(values)
        return axes, jnp.maximum(sizes, LEAST_PRECISION * jnp.max(sizes))

    def newton(index, reached: tuple[Position, Array, Array]) -> tuple[Position, Array, Array]:
        position, _, _ = reached
        axes, sizes = precision_at(position)
        step = axes @ ((axes.T @ jax.grad(log_density)(position)) / sizes)
        ends = position + shares[:, None] * step
        densities = jax.vmap(log_density)(ends)
        best = jnp.argmax(jnp.where(jnp.isnan(densities), -jnp.inf, densities))
        is_taken = (index < NEWTON_STEPS) & (densities[best] > densities[-1])
        return jnp.where(is_taken, ends[best], position), axes, sizes

    # The last share, 0, is the position itself.
    shares = jnp.append(0.5 ** jnp.arange(HALVINGS, dtype=near.dtype), 0)
    nothing = near, jnp.diag(jnp.zeros_like(near)), jnp.zeros_like(near)
    # The last round finds the precision at the mode, and takes no step.
    mode, axes, sizes = lax.fori_loop(0, NEWTON_STEPS + 1, newton, nothing)
    half = axes * jnp.sqrt(sizes)
    return mode, half @ half.T
