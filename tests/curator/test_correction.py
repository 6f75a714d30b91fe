"""The correction of Barker's test: its error over the whole line, near the least possible one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats
from scipy.optimize import linprog

from dpmcmc.curator.noise import stream
from dpmcmc.curator.queries.correction import CORRECTIONS, Correction, draw
from tests.statistics import accept_probability

SPACING, END = 1e-3, 60.0


def largest_error(variance: float, correction: Correction) -> float:
    """sup over all l of |P(l + N(0, s^2) + V > 0) - 1 / (1 + e^-l)|, from above.

    The error e is odd. Between points h apart it is at most what it is there plus h^2 / 8 sup
    |e''|, and e'' is the difference of slopes of two densities, below 0.25 / s^2 and 0.1. Beyond
    the end, both chances are within e^-END of 1 or closer.
    """
    points = np.linspace(0.0, END, round(END / SPACING) + 1)
    errors = accept_probability(points, variance, correction, np, special) - special.expit(points)
    ends = max(accept_probability(-END, variance, correction, np, special), np.exp(-END))
    return float(np.abs(errors).max() + SPACING**2 / 8 * (0.25 / variance + 0.1) + ends)


@pytest.mark.parametrize("variance, claimed", [(2.0, 6e-4), (1.5, 5e-5)])
def test_the_error_is_as_stated(variance, claimed):
    correction = CORRECTIONS[variance]
    assert largest_error(variance, correction) <= correction.error <= claimed
    assert largest_error(variance, correction) > 0.95 * correction.error


def test_an_atom_out_of_place_and_no_correction_are_seen():
    for variance, correction in CORRECTIONS.items():
        first, (place, weight), *rest = correction.atoms
        assert (
            largest_error(variance, Correction((first, (place + 0.1, weight), *rest), 0.0))
            > correction.error
        )
        assert largest_error(variance, Correction(((0.0, 1.0),), 0.0)) > 0.01


@pytest.mark.parametrize("correction", CORRECTIONS.values(), ids=map(str, CORRECTIONS))
def test_it_is_a_symmetric_law(correction):
    assert sum(weight for _, weight in correction.atoms) == pytest.approx(1, abs=1e-15)
    assert all(weight > 0 for _, weight in correction.atoms)
    points = np.linspace(-50, 50, 1001)
    there, back = (
        accept_probability(sign * points, 1.3, correction, np, special) for sign in (1, -1)
    )
    np.testing.assert_allclose(there + back, 1, atol=1e-15)


@pytest.mark.parametrize("correction", CORRECTIONS.values(), ids=map(str, CORRECTIONS))
def test_it_is_drawn_as_stated(correction):
    """False alarm: 1e-4 (chi-squared over atoms and signs, each of the two); a twentieth more to
    the right is caught.
    """
    with jax.enable_x64(True):
        keys = stream.random_words(jnp.arange(8, dtype=jnp.uint32), (200_000, 8))
        drawn = np.asarray(jax.jit(jax.vmap(lambda key: draw(key, correction)))(keys))
    (_, middle), *outer = correction.atoms
    law = {0.0: middle} | {sign * atom: weight / 2 for atom, weight in outer for sign in (-1, 1)}
    found = np.array([np.sum(drawn == atom) for atom in law])
    assert found.sum() == drawn.size

    def score(weights):
        expected = drawn.size * weights
        return np.sum((found - expected) ** 2 / expected)

    weights, lopsided = (
        np.array(list(law.values())),
        np.array([1.05 if atom > 0 else 1.0 for atom in law]),
    )
    most = stats.chi2.isf(1e-4, len(law) - 1)
    assert score(weights) < most < score(weights * lopsided)


def test_the_best_possible_error_is_not_far_below():
    """A lower bound for every symmetric law (on a grid of places), by the dual of the linear
    program.

    With sum |c_j| = 1,  sup |F - expit| >= sum c_j (F(l_j) - expit(l_j)),  and the least sum c_j
    F(l_j) has one atom.
    """
    for variance, correction in CORRECTIONS.items():
        points, places = np.linspace(0.01, 20, 150), np.linspace(0, 40, 401)
        root = variance**0.5
        matrix = (
            special.ndtr((points[:, None] - places) / root)
            + special.ndtr((points[:, None] + places) / root)
        ) / 2
        # maximise t - c . expit  with  c . matrix >= t  for every place,  c = p - m,  sum(p + m) =
        # 1
        size = len(points)
        found = linprog(
            np.concatenate([special.expit(points), -special.expit(points), [-1.0]]),
            A_ub=np.column_stack([-matrix.T, matrix.T, np.ones(len(places))]),
            b_ub=np.zeros(len(places)),
            A_eq=np.concatenate([np.ones(2 * size), [0.0]])[None],
            b_eq=[1.0],
            bounds=[(0, None)] * (2 * size) + [(None, None)],
        )
        assert -found.fun > 0.93 * correction.error
