"""Find the atoms of `dpmcmc.curator.correction`: the symmetric law V that brings N(0, s^2) + V
closest to the logistic law.

The largest error of the distribution function is convex in V, so on a grid of places for the atoms
the best V is a linear program. Its solution has few atoms; the program is solved again with places
around them only, closer and closer, and neighbours are merged.

    python benchmarks/logistic_correction.py
"""

import numpy as np
from scipy import special
from scipy.optimize import linprog

FARTHEST, SPACING = 16.0, 0.05
# By symmetry the error is odd: half of the line is enough
POINTS = np.linspace(0.0, FARTHEST + 6.0, 1500)
SCALE = 1e4  # the solver's tolerances are absolute


def distribution(points, places, variance: float):
    """P(N(0, variance) + V <= point), V = +-place with equal chances, for every point and place."""
    root = np.sqrt(variance)
    return (
        special.ndtr((points[:, None] - places) / root)
        + special.ndtr((points[:, None] + places) / root)
    ) / 2


def best_weights(places, variance: float) -> np.ndarray:
    """The weights of +-places with the least largest error on the grid of points."""
    matrix, target = SCALE * distribution(POINTS, places, variance), SCALE * special.expit(POINTS)
    error = np.ones((len(POINTS), 1))
    found = linprog(
        c=np.append(np.zeros(len(places)), 1.0),
        A_ub=np.block([[matrix, -error], [-matrix, -error]]),
        b_ub=np.concatenate([target, -target]),
        A_eq=np.append(np.ones(len(places)), 0.0)[None],
        b_eq=[1.0],
    )
    return found.x[:-1]


def merged(places, weights, distance: float):
    """Used places no farther apart than `distance` become one, at their mean."""
    used = weights > 1e-9
    places, weights = places[used], weights[used]
    groups = np.split(np.arange(len(places)), np.flatnonzero(np.diff(places) > 1.5 * distance) + 1)
    total = np.array([weights[group].sum() for group in groups])
    return np.array(
        [weights[group] @ places[group] for group in groups]
    ) / total, total / total.sum()


def best_atoms(variance: float):
    places, spacing = np.arange(0.0, FARTHEST, SPACING), SPACING
    for _ in range(3):
        atoms, weights = merged(places, best_weights(places, variance), spacing)
        places = np.unique(np.abs(atoms[:, None] + spacing * np.linspace(-1.5, 1.5, 13)).round(12))
        spacing /= 4
    atoms = merged(atoms, weights, 2 * SPACING)[0].round(3)
    return atoms, best_weights(atoms, variance)


def largest_error(atoms, weights, variance: float) -> float:
    points = np.linspace(0.0, 60.0, 60_001)
    return float(
        np.max(np.abs(distribution(points, atoms, variance) @ weights - special.expit(points)))
    )


if __name__ == "__main__":
    for variance in (2.0, 1.5):
        atoms, weights = best_atoms(variance)
        weights = weights.round(8) / weights.round(8).sum()
        print(f"variance {variance}: largest error {largest_error(atoms, weights, variance):.3g}")
        for atom, weight in zip(atoms[weights > 0], weights[weights > 0], strict=True):
            print(f"    ({atom}, {weight:.8f}),")
