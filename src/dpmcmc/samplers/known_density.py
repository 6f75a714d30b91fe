r"""Hamiltonian Monte Carlo on a density that is known: its steps ask nothing, so they cost time and
no budget.

The density may be that of a survey's posterior (`samplers.surveys`). It is nearly normal in the
middle. Where noise may hide the curvature it has tails that fall slowly and widen in proportion to
the distance: a chain of ordinary steps gets lost in them. So the chain moves in other coordinates
y. With the mode m of the density, S S' = the inverse of minus its Hessian there and r = |y|,

    x = m + S y R sinh(r / R) / r,      R = 3 sqrt(d)

The middle stays as it is; far out a step of one length multiplies the distance from the mode by a
constant factor, so that a tail of any length takes few steps. What the chain moves in has the
density  p(x(y)) cosh(r / R) (R sinh(r / R) / r)^(d - 1).

A tail in one direction mostly has another in the opposite one, with little between: after each step
the chain may change to -y, by Metropolis' rule.

Chains start spread out twice as widely as the middle of the density, each at a place of its own,
and choose the length of their steps first, for an acceptance of 80 %
(:cite:p:`andrieu2008tutorial`). Then the length stays fixed, but for a random factor in each step.
A state that is `refined` goes on with steps of half the length.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

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


class KnownState(NamedTuple):
    """Where the chain is."""

    position: Position
    point: Array  # y
    step_size: Array

    def refined(self) -> KnownState:
        """The same place, with steps of half the length."""
        return self._replace(step_size=self.step_size / 2)


class Stretched(NamedTuple):
    """The density in the coordinates y."""

    log_density: LogDensity
    mode: Position
    scale: Array  # S
    radius: float  # R

    @classmethod
    def around_the_mode(cls, log_density: LogDensity, near: Position) -> Stretched:
        mode, precision = find_mode(log_density, near)
        scale = jnp.linalg.inv(jnp.linalg.cholesky(precision)).T
        return cls(log_density, mode.astype(near.dtype), scale, RADIUS * near.size**0.5)

    def stretch(self, point: Array) -> tuple[Array, Array]:
        """r / R, and x - m over S y."""
        length = jnp.sqrt(jnp.sum(point**2) + TINY)
        return length / self.radius, self.radius * jnp.sinh(length / self.radius) / length

    def position_of(self, point: Array) -> Position:
        _, factor = self.stretch(point)
        return (self.mode + self.scale @ (factor * point)).astype(self.mode.dtype)

    def at(self, point: Array) -> Array:
        """The logarithm of the density of y."""
        share, factor = self.stretch(point)
        volume = jnp.log(jnp.cosh(share)) + (point.size - 1) * jnp.log(factor)
        return self.log_density(self.position_of(point)) + volume

    def first_point(self, rng_key) -> Array:
        """A random one, brought nearer to the mode until the density is positive there."""
        drawn = DISPERSION * jax.random.normal(rng_key, self.mode.shape, self.mode.dtype)
        shares = 0.5 ** jnp.arange(HALVINGS, dtype=drawn.dtype)
        is_inside = jax.vmap(lambda share: jnp.isfinite(self.at(share * drawn)))(shares)
        return jnp.where(jnp.any(is_inside), shares[jnp.argmax(is_inside)], 0) * drawn


def known_density(log_density: LogDensity, near: Position) -> Sampler:
    """A sampler of this density, whose mode a few Newton steps from `near` find."""
    density = Stretched.around_the_mode(log_density, near)

    def init(rng_key, position, ask):
        key_point, key_steps = jax.random.split(rng_key)
        point, step_size = _adapted(density, key_steps, density.first_point(key_point))
        return KnownState(density.position_of(point), point, step_size)

    def step(rng_key, state, ask):
        point, _, info = _step(density, rng_key, state.point, state.step_size)
        return KnownState(density.position_of(point), point, state.step_size), info

    return Sampler(init, step)


def _adapted(density: Stretched, rng_key, point: Array) -> tuple[Array, Array]:
    """Where the chain is after the first steps, and the length of steps that they have led to.

    It is the mean over the later half, of logarithms that rise with the chance of acceptance.
    """
    num_late = NUM_ADAPTATIONS - NUM_ADAPTATIONS // 2

    def adapt(index, reached):
        point, log_step, mean = reached
        key = jax.random.fold_in(rng_key, index)
        point, chance, _ = _step(density, key, point, jnp.exp(log_step))
        log_step += (chance - ACCEPTANCE) / (1 + index) ** 0.6
        is_late = index >= NUM_ADAPTATIONS // 2
        return point, log_step, mean + jnp.where(is_late, log_step, 0) / num_late

    first = jnp.log(jnp.asarray(FIRST_STEP, point.dtype))
    reached = point, first, jnp.zeros_like(first)
    point, _, log_step = lax.fori_loop(0, NUM_ADAPTATIONS, adapt, reached)
    return point, jnp.exp(log_step)


def _step(
    density: Stretched, rng_key, point: Array, step_size: Array
) -> tuple[Array, Array, HMCInfo]:
    """A Hamiltonian step and perhaps a change to the opposite side; the first one's chance."""
    key_path, key_accept, key_mirror = jax.random.split(rng_key, 3)
    end, chance, is_divergent = _path(density, key_path, point, step_size)
    is_accepted = jax.random.uniform(key_accept) < chance
    reached = jnp.where(is_accepted, end, point)
    gain = density.at(-reached) - density.at(reached)
    is_mirrored = jnp.log(jax.random.uniform(key_mirror)) < gain
    length = jnp.linalg.norm(density.position_of(end) - density.position_of(point))
    info = HMCInfo(is_accepted, is_divergent, length)
    return jnp.where(is_mirrored, -reached, reached), chance, info


def _path(
    density: Stretched, rng_key, point: Array, step_size: Array
) -> tuple[Array, Array, Array]:
    """A path's end, the chance that it is accepted, and whether the density is unknown there."""
    key_length, key_momentum = jax.random.split(rng_key)
    gradient = jax.grad(density.at)

    def kick(_, point: Array) -> tuple[Array, tuple]:
        return gradient(point), ()

    step = step_size * jax.random.uniform(key_length, (), point.dtype)
    start = jax.random.normal(key_momentum, point.shape, point.dtype)
    first = kick(None, point)
    end, momentum, _ = leapfrog(
        kick, lambda momentum: momentum, point, start, first, step, jnp.arange(NUM_LEAPFROG)
    )
    gain = density.at(end) - density.at(point) + (jnp.sum(start**2) - jnp.sum(momentum**2)) / 2
    is_divergent = ~jnp.isfinite(gain)
    chance = jnp.where(is_divergent, 0.0, jnp.minimum(1.0, jnp.exp(gain)))
    return jnp.where(is_divergent, point, end), chance, is_divergent


def find_mode(log_density: LogDensity, near: Position) -> tuple[Position, Array]:
    """Where the density is highest, and minus its Hessian there, made positive definite."""

    def precision_at(position: Position) -> tuple[Array, Array]:
        values, axes = jnp.linalg.eigh(-jax.hessian(log_density)(position))
        sizes = jnp.abs(values)
        return axes, jnp.maximum(sizes, LEAST_PRECISION * jnp.max(sizes))

    def newton(_, position: Position) -> Position:
        axes, sizes = precision_at(position)
        step = axes @ ((axes.T @ jax.grad(log_density)(position)) / sizes)
        ends = position + shares[:, None] * step
        densities = jax.vmap(log_density)(ends)
        best = jnp.argmax(jnp.where(jnp.isnan(densities), -jnp.inf, densities))
        is_higher = densities[best] > log_density(position)
        return jnp.where(is_higher, ends[best], position)

    shares = 0.5 ** jnp.arange(HALVINGS, dtype=near.dtype)
    mode = lax.fori_loop(0, NEWTON_STEPS, newton, near)
    axes, sizes = precision_at(mode)
    half = axes * jnp.sqrt(sizes)
    return mode, half @ half.T
