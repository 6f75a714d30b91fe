r"""Barker's test when the log-ratio already carries Gaussian noise.

Barker's test accepts when l + L > 0, with L logistic. If l comes with normal noise of variance s^2
< pi^2 / 3, a symmetric correction V with  N(0, s^2) + V  close to logistic makes up the rest
:cite:p:`seita2017efficient`. No V makes the two equal: its characteristic function would have to be
that of the logistic law times exp(s^2 t^2 / 2), which grows. The V here has the least largest error
of the distribution function that any has, to two digits: 5.9e-4 for s^2 = 2 and 2.8e-5 for s^2 =
1.5. It lives on a few atoms, found by a linear program (benchmarks/logistic_correction.py), so the
chance of accepting is a short sum of normal distribution functions. V has nothing to do with the
rows: no promise rests on it.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from dpmcmc.curator.noise import coins, stream


class Correction(NamedTuple):
    """A symmetric law on a few atoms."""

    atoms: tuple[tuple[float, float], ...]  # (a, w): +a and -a have the weight w / 2 each
    error: float  # bounds |P(N(0, s^2) + V <= l) - 1 / (1 + e^-l)| over all l


CORRECTIONS = {
    2.0: Correction(((0.0, 0.86595586), (2.951, 0.13180708), (9.221, 0.00223706)), error=5.9e-4),
    1.5: Correction(
        (
            (0.0, 0.68764860),
            (1.923, 0.27242008),
            (4.12, 0.03666619),
            (6.87, 0.00320296),
            (15.306, 0.00006217),
        ),
        error=2.8e-5,
    ),
}


def draw(key, correction: Correction):
    """One draw of V."""
    atoms, weights = np.array(correction.atoms).T
    key_atom, key_sign = stream.random_words(key, (2, 8))
    # How many of the cumulated weights are passed is the number of the atom.
    passed = [~coins.coin(key_atom, jnp.float64(chance)) for chance in np.cumsum(weights)[:-1]]
    size = jnp.asarray(atoms)[sum(map(jnp.int32, passed))]
    return jnp.where(coins.coin(key_sign, jnp.float64(0.5)), -size, size)
