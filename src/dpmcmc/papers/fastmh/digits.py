"""Figure 3 of the DP-Fast MH paper :cite:p:`zhang2023dpfast`: sevens against nines by logistic
regression on 50 principal components.

Images come from the file `mnist_784.npz` (arrays `images` and `labels`) in the folder that
`--data` names; without it from scikit-learn's small digits, and where that is not installed rows
are made up. The page says which. Components and their scale are computed from the images as if they
were public, as the paper does.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

import dpmcmc
from dpmcmc import Barker, models, testing
from dpmcmc.accounting import calibrate
from dpmcmc.papers import comparison, metrics
from dpmcmc.papers.reproduce import drawing
from dpmcmc.papers.reproduce.figure import Cell, Figure, Results, Shown, Size
from dpmcmc.queries import Accept, LogRatio, PenaltyAccept, TunaBarker
from dpmcmc.types import Budget, Model, Sampler, Unit

EPSILONS = (1.0, 2.0, 4.0, 8.0)
DELTA = 1e-5
LENGTH = 0.06  # of the longest move; rows have length 1 at most
NOISE = 1.5  # standard deviation of a ratio of the longest move, but never less than the rows ask
TEST_SHARE = 1 / 7
NUM_COMPONENTS = 50
MADE_UP = 12_214
QUICK_REPEATS, FULL_REPEATS = 3, 10
QUICK_STEPS, FULL_STEPS = 1500, 40_000
RATIOS = (0.25, 1.0, 4.0)  # CM / lambda: what a minibatch reads
MNIST_FILE = "mnist_784.npz"


class Images(NamedTuple):
    """Features of length 1 at most, labels 0 (seven) or 1 (nine), and where they are from."""

    features: np.ndarray
    labels: np.ndarray
    test_features: np.ndarray
    test_labels: np.ndarray
    origin: str


def load(data: str | None, seed: int) -> Images:
    """The images, in a random order, the last of them for the test."""
    generator = np.random.default_rng(seed)
    features, labels, origin = _raw(data, seed)
    centered = features - features.mean(axis=0)
    if centered.shape[1] > NUM_COMPONENTS:
        _, _, components = np.linalg.svd(centered, full_matrices=False)
        centered = centered @ components[:NUM_COMPONENTS].T
    centered /= np.max(np.linalg.norm(centered, axis=1))
    order = generator.permutation(len(centered))
    num_train = round(len(order) * (1 - TEST_SHARE))
    train, test = order[:num_train], order[num_train:]
    return Images(
        centered[train].astype(np.float32),
        labels[train].astype(np.float32),
        centered[test].astype(np.float32),
        labels[test].astype(np.float32),
        origin,
    )


def _raw(data: str | None, seed: int) -> tuple[np.ndarray, np.ndarray, str]:
    if data is not None and (Path(data) / MNIST_FILE).exists():
        with np.load(Path(data) / MNIST_FILE) as file:
            return *_chosen(file["images"], file["labels"]), "MNIST"
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        truth = np.random.default_rng(seed).normal(size=NUM_COMPONENTS)
        rows = testing.simulate_logistic_rows(
            jax.random.key(seed), MADE_UP, 6 * truth / np.linalg.norm(truth), 1.0
        )
        return np.asarray(rows[0], float), np.asarray(rows[1], float), "made-up rows"
    digits = load_digits()
    return *_chosen(digits.data, digits.target), "scikit-learn's small digits"


def _chosen(images: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sevens and nines."""
    labels = np.asarray(labels).astype(int)
    is_wanted = (labels == 7) | (labels == 9)
    flat = np.asarray(images, float).reshape(len(labels), -1)[is_wanted]
    return flat, (labels[is_wanted] == 9).astype(float)


def _methods(model: Model, num_rows: int) -> dict[str, tuple[Sampler, Any]]:
    """By name: the sampler, and what it asks in each step."""
    walk = dpmcmc.random_walk(LENGTH / np.sqrt(model.dimension), LENGTH)
    multiplier = max(NOISE / (2 * LENGTH), 1.0)
    ratio = LogRatio(1.0, multiplier)
    penalty_bit = PenaltyAccept(1.0, multiplier, LENGTH)
    bit = Accept(Barker(), LENGTH)
    tuna = TunaBarker(LENGTH, 1.0)
    return {
        "DP-penalty": (dpmcmc.penalty(model.log_prior, ratio, walk), ratio),
        "Penalty, bit alone": (dpmcmc.accept_walk(model.log_prior, penalty_bit, walk), penalty_bit),
        "Barker's bit of all rows": (dpmcmc.accept_walk(model.log_prior, bit, walk), bit),
        "Minibatch Barker": (dpmcmc.accept_walk(model.log_prior, tuna, walk), tuna),
    }


def cell(method: str, repeats: int, most_steps: int, data: str | None, seed: int) -> dict[str, Any]:
    """Test accuracy by budget and repeat."""
    images = load(data, seed)
    model = models.logistic(images.features.shape[1], 1.0, prior_scale=10.0)
    sampler, query = _methods(model, len(images.features))[method]
    budgets = [Budget(epsilon, DELTA) for epsilon in EPSILONS]
    allowed = [
        calibrate.steps({query.cost(budget.unit): 1}, budget.epsilon, DELTA) for budget in budgets
    ]
    lengths = [min(most_steps, count) for count in allowed]
    key = jax.random.key(seed + 3)
    curator = dpmcmc.Curator(
        (images.features, images.labels),
        model,
        None,
        unit=Unit(),
        fixed_secret=np.asarray(jax.random.bits(key, (16,))),
    )
    starts = np.zeros((repeats, model.dimension), np.float32)
    draws = comparison.draws(key, sampler, curator, starts, max(lengths), 1)
    score = _scorer(images)
    return {
        "allowed": allowed,
        "steps": lengths,
        "accuracy": [[score(run[end // 2 : end]) for run in draws] for end in lengths],
        "origin": images.origin,
        "num_rows": len(images.features),
        "dimension": model.dimension,
        "best": _without_privacy(images),
    }


def _scorer(images: Images) -> Callable[[np.ndarray], float]:
    def score(draws: np.ndarray) -> float:
        if len(draws) < 2:
            return float("nan")
        some = draws[:: max(1, len(draws) // 200)]
        return metrics.predictive_accuracy(some, images.test_features, images.test_labels)

    return score


def _without_privacy(images: Images) -> float:
    """Test accuracy at the mode of the posterior, by Newton's method."""
    x, y = images.features.astype(float), images.labels.astype(float)
    position = np.zeros(x.shape[1])
    for _ in range(30):
        chances = 1 / (1 + np.exp(-x @ position))
        hessian = x.T @ (x * (chances * (1 - chances))[:, None]) + np.eye(x.shape[1]) / 100
        position += np.linalg.solve(hessian, x.T @ (y - chances) - position / 100)
    return metrics.predictive_accuracy(position[None], images.test_features, images.test_labels)


METHODS = ("DP-penalty", "Penalty, bit alone", "Barker's bit of all rows", "Minibatch Barker")


def _cells(size: Size) -> list[Cell]:
    return [
        Cell(
            f"fastmh/digits/{method.lower().replace(' ', '-').replace(',', '')}",
            "dpmcmc.papers.fastmh.digits:cell",
            {
                "method": method,
                "repeats": QUICK_REPEATS if size.is_quick else FULL_REPEATS,
                "most_steps": QUICK_STEPS if size.is_quick else FULL_STEPS,
                "data": size.data,
                "seed": size.seed,
            },
            20.0,
        )
        for method in METHODS
    ]


def _show(size: Size, results: Results) -> Shown:
    found = {cell.arguments["method"]: results[cell.name] for cell in _cells(size)}
    first = next(iter(found.values()))
    figure, axes = drawing.grid(1, 2)
    left, right = axes[0]
    curves = {name: (EPSILONS, np.asarray(one["accuracy"])) for name, one in found.items()}
    drawing.lines(left, curves)
    drawing.level(left, first["best"], "without privacy")
    drawing.logarithmic(left, EPSILONS)
    drawing.title(
        left, f"{first['origin']}, n = {first['num_rows']}", "ε of the whole run", "test accuracy"
    )
    rows, costs = _reading(first["num_rows"])
    drawing.lines(right, {"Minibatch Barker": (rows, costs)})
    drawing.title(right, "Reading few rows", "rows of a step", "steps at ε = 4 / all rows'")
    drawing.legend(figure)
    table = [
        {
            "method": name,
            "epsilon": epsilon,
            "steps allowed": one["allowed"][at],
            "steps run": one["steps"][at],
            "accuracy": float(np.median(one["accuracy"][at])),
        }
        for name, one in found.items()
        for at, epsilon in enumerate(EPSILONS)
    ]
    finals = ", ".join(
        f"{name} {np.nanmedian(one['accuracy'][-1]):.3f}" for name, one in found.items()
    )
    return Shown(
        f"On {first['origin']} ({first['num_rows']} rows, {first['dimension']} components), test "
        f"accuracy at ε = {EPSILONS[-1]:g}: {finals}; without privacy {first['best']:.3f}.",
        table,
        figure,
    )


def _reading(num_rows: int) -> tuple[list[float], list[float]]:
    """Rows of a step, and the steps that they leave, relative to the test of all rows."""
    budget = Budget(4.0, DELTA)

    def steps(query: Any) -> int:
        return calibrate.steps({query.cost(budget.unit): 1}, budget.epsilon, DELTA, method="rdp")

    whole = steps(Accept(Barker(), LENGTH))
    rows = [min(num_rows, num_rows * LENGTH * (1 + 1 / ratio)) for ratio in RATIOS]
    return rows, [steps(TunaBarker(LENGTH, ratio)) / whole for ratio in RATIOS]


FIGURES = [
    Figure(
        "F3",
        "DP-Fast MH paper",
        "Sevens against nines: test accuracy against ε, and rows that a step reads",
        "DP-Fast MH has the highest accuracy with the fewest rows, at every ε of a step; a smaller "
        "K reads more rows and is more accurate.",
        "The paper's ε is that of a step, and its rejections are not private; ours is that of the "
        "whole run. In place of K there is λ, which trades rows for budget. Without the file of "
        "MNIST the rows are other ones, as the title of the panel says.",
        _cells,
        _show,
        lambda size: (
            f"{QUICK_REPEATS if size.is_quick else FULL_REPEATS} chains from 0, stopped at "
            f"{QUICK_STEPS if size.is_quick else FULL_STEPS} steps; δ = {DELTA:g}; a normal prior "
            "of standard deviation 10."
        ),
    )
]
