"""How near is the posterior mean of each method to the one without privacy? For docs/comparison.md.

    make rivals                                   some ten minutes on two cores
    python benchmarks/rivals.py demo:1 wide:4 --python .rivals/bin/python

A cell is a table and an epsilon. Errors are root mean squares over coefficients of (private mean -
mean without privacy) / standard deviation without privacy, the median over `--seeds` runs (of
sgld, penalty and dp-vi over five). Tables adult and hospital are read from ../shared/data, and
skipped where that folder is absent. diffprivlib needs older dependencies: `--python` is an
interpreter that has it. Rivals use the row radius R that follows from the bounds; their noise is
made in floating point.

The perturbed objective is that of Kifer, Smith and Thakurta (2012) with pure noise, nine tenths of
epsilon for the noise and a tenth for the curvature, and a Newton step back to the penalty of the
prior, which uses the curvature without paying for it: a rival that is better than it may be.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import math
import pathlib
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpmcmc import Budget, Curator, demo, models, recipes
from dpmcmc.accounting import calibrate
from dpmcmc.accounting.bill import costs_of
from dpmcmc.accounting.costs import SubsampledGaussian
from dpmcmc.domains import CONSTANT, INTERVAL, Ball, Domain
from dpmcmc.run.programs import Begin, Block

SHARED = pathlib.Path(__file__).parents[2] / "shared" / "data"
PRIOR_SCALE = 5.0
NUM_DRAWS = 4000
CELLS = [
    *(f"demo:{epsilon}" for epsilon in (0.25, 0.5, 1, 2, 4)),
    *(f"{name}:{epsilon}" for name in ("adult", "hospital") for epsilon in (1, 4)),
    *(f"{name}:{epsilon}" for name in ("wide", "narrow", "small") for epsilon in (1, 4)),
    "box:1",
]
METHODS = ("noise-aware", "diffprivlib", "objective", "dp-vi", "sgld", "penalty")


class Table(NamedTuple):
    """A logistic regression: rows, the model, and the answer without privacy."""

    design: np.ndarray  # with the intercept
    labels: np.ndarray
    model: Any
    delta: float
    named: np.ndarray  # from the position to the coefficients that errors are about

    @property
    def radius(self) -> float:
        return float(self.model.lipschitz)

    @property
    def rows(self) -> tuple[np.ndarray, np.ndarray]:
        """As the curator takes them: the intercept is not a column."""
        has_intercept = self.model.linear.labelled.domain.parts[0] == CONSTANT
        features = self.design[:, 1:] if has_intercept else self.design
        return features.astype(np.float32), self.labels.astype(np.float32)

    def fitted(self, penalty: float, shift: Any = 0.0) -> tuple[np.ndarray, np.ndarray]:
        """The maximum of log-likelihood - penalty |x|^2 / 2 - shift . x, and minus its Hessian."""
        position = np.zeros(self.design.shape[1])
        for _ in range(60):
            chance = 1 / (1 + np.exp(-np.clip(self.design @ position, -60, 60)))
            gradient = self.design.T @ (self.labels - chance) - penalty * position - shift
            weights = chance * (1 - chance)
            hessian = (self.design * weights[:, None]).T @ self.design
            hessian += penalty * np.eye(len(position))
            step = np.linalg.solve(hessian, gradient)
            position = position + step * min(1, 2 / max(1e-12, np.abs(self.design @ step).max()))
            if np.abs(step).max() < 1e-9:
                break
        return position, hessian

    def error(self, position: np.ndarray) -> float:
        mean, hessian = self.fitted(PRIOR_SCALE**-2)
        spread = np.sqrt(np.diag(self.named @ np.linalg.inv(hessian) @ self.named.T))
        return float(np.sqrt(np.mean((self.named @ (position - mean) / spread) ** 2)))


def _model(num_columns: int, domain: Domain, intercept: bool):
    radius = domain.longest
    return models.logistic(num_columns, radius, PRIOR_SCALE, intercept=intercept, domain=domain)


def _demo() -> Table:
    features, labels = demo.read_rows()
    model = demo.make_model()
    units = np.eye(model.dimension)
    named = np.stack([[float(v) for v in model.unravel(unit).values()] for unit in units], axis=1)
    return Table(_with_one(features), labels, model, 1e-6, named)


def _with_one(features: np.ndarray) -> np.ndarray:
    return np.column_stack([np.ones(len(features)), features]).astype(float)


def _synthetic(num_rows: int, dimension: int) -> Table:
    """Correlated features in a ball, no intercept."""
    rng = np.random.default_rng(5000)
    places = np.arange(dimension)
    root = np.linalg.cholesky(0.5 ** np.abs(np.subtract.outer(places, places)))
    features = rng.standard_normal((num_rows, dimension)) @ root.T / (1.5 * math.sqrt(dimension))
    features /= np.maximum(1, np.linalg.norm(features, axis=1))[:, None]
    effects = 2 * np.random.default_rng(7).standard_normal(dimension)
    labels = (rng.random(num_rows) < 1 / (1 + np.exp(-features @ effects))).astype(float)
    model = _model(dimension, Domain((Ball(dimension, 1.0),)), False)
    return Table(features, labels, model, 0.1 / num_rows, np.eye(dimension))


def _box() -> Table:
    """Five correlated columns of standard deviation 1/3 within bounds of -1 and 1."""
    rng = np.random.default_rng(11)
    root = np.linalg.cholesky(0.5 * np.eye(5) + 0.5)
    features = np.clip(rng.standard_normal((100_000, 5)) @ root.T / 3, -1, 1)
    design = _with_one(features)
    effects = np.array([-0.5, 1.0, -1.0, 0.5, 0.5, -0.5])
    labels = (rng.random(len(design)) < 1 / (1 + np.exp(-design @ effects))).astype(float)
    return Table(design, labels, _model(5, Domain((INTERVAL,) * 5), True), 1e-6, np.eye(6))


def _shared(name: str) -> Table:
    with gzip.open(SHARED / f"{name}.csv.gz", "rt") as file:
        rows = list(csv.DictReader(file))

    def scaled(column: str, low: float, high: float) -> np.ndarray:
        values = np.clip([float(row[column]) for row in rows], low, high)
        return (values - (low + high) / 2) / ((high - low) / 2)

    def sign(column: str, level: str) -> np.ndarray:
        return np.array([1.0 if row[column] == level else -1.0 for row in rows])

    if name == "adult":
        columns = [scaled("age", 17, 90), scaled("education_num", 1, 16)]
        columns += [scaled("hr_per_week", 1, 99), sign("sex", "Male")]
        columns += [sign("marital", "Married-civ-spouse"), sign("race", "White")]
        labels = [row["income"].startswith(">") for row in rows]
    else:
        rows = [row for row in rows if row["gender"] in ("0", "1")]
        columns = [sign("gender", "1"), scaled("num_lab_procedures", 1, 132)]
        columns += [scaled("num_medications", 1, 81), scaled("number_diagnoses", 1, 16)]
        labels = [row["on_diabetes_medication"] == "Yes" for row in rows]
    design = _with_one(np.column_stack(columns))
    model = _model(len(columns), Domain((INTERVAL,) * len(columns)), True)
    named = np.eye(len(columns) + 1)
    return Table(design, np.array(labels, float), model, 0.1 / len(design), named)


TABLES = {
    "demo": _demo,
    "adult": lambda: _shared("adult"),
    "hospital": lambda: _shared("hospital_diabetes"),
    "narrow": lambda: _synthetic(100_000, 5),
    "wide": lambda: _synthetic(100_000, 20),
    "small": lambda: _synthetic(10_000, 5),
    "box": _box,
}


def by_default(table: Table, budget: Budget, num_seeds: int) -> list[float]:
    """Runs of the default, start and draws compiled as one program, of a curator that promises
    nothing, with the queries and the noise that the budget allows.
    """
    recipe = recipes.noise_aware(table.model, len(table.labels), budget)
    curator = Curator(table.rows, table.model, None, unit=budget.unit)
    position = np.zeros(table.model.dimension, np.float32)

    def program(ask, rng_key, position):
        key_start, key_draws = jax.random.split(rng_key)
        sampler = recipe.sampler(recipe.start(key_start, position, ask))
        draw = lambda key: sampler.init(key, position, ask).position  # noqa: E731
        return jnp.mean(jax.lax.map(draw, jax.random.split(key_draws, NUM_DRAWS)), axis=0)

    traced = curator.trace(program, jax.random.key(0), position)
    executable = traced.compile()
    keys = (jax.random.key(seed) for seed in range(num_seeds))
    means = (curator.grant(traced.plan).run(executable, key, position) for key in keys)
    return [table.error(np.asarray(mean, float)) for mean in means]


def by_chains(table: Table, budget: Budget, num_seeds: int, make: Any) -> list[float]:
    """Runs of a sampler whose steps ask, compiled once, of such a curator."""
    with warnings.catch_warnings(action="ignore"):
        recipe = make(table.model, len(table.labels), budget)
    curator = Curator(table.rows, table.model, None, unit=budget.unit)
    num_chains = recipe.num_chains
    keys = jax.random.split(jax.random.key(0), num_chains)
    positions = np.zeros((num_chains, table.model.dimension), np.float32)
    begin = curator.trace(Begin(recipe.sampler, recipe.start), keys, positions)

    def steps(number: int):
        program = Block(recipe.sampler, number, 1)
        return curator.trace(program, keys, *begin.shapes, jnp.int32(0))

    initial, step = (costs_of(each.plan, budget.unit) for each in (begin, steps(1)))
    block = steps(calibrate.steps(step, budget.epsilon, budget.delta, initial=initial))
    plan = dict(Counter(begin.plan) + Counter(block.plan))
    starter, runner = begin.compile(), block.compile()
    errors = []
    for seed in range(num_seeds):
        keys = jax.random.split(jax.random.key(seed), num_chains)
        grant = curator.grant(plan)
        begun = grant.run(starter, keys, positions)
        _, (draws, _) = grant.run(runner, keys, *begun, jnp.int32(0))
        draws = np.asarray(draws, float)
        kept = draws[int(recipe.warmup * len(draws)) :]
        errors.append(table.error(kept.reshape(-1, kept.shape[-1]).mean(axis=0)))
    return errors


def by_objective(table: Table, budget: Budget, num_seeds: int) -> list[float]:
    """A perturbed objective."""
    radius, size = table.radius, table.model.dimension
    noise_part = 0.9 * budget.epsilon
    jacobian = 0.1 * noise_part
    penalty = max(PRIOR_SCALE**-2, radius**2 / 4 / math.expm1(jacobian / 2))
    scale = 2 * radius / (noise_part - jacobian)
    errors = []
    for seed in range(num_seeds):
        rng = np.random.default_rng(seed)
        direction = rng.standard_normal(size)
        shift = direction / np.linalg.norm(direction) * rng.gamma(size, scale)
        found, hessian = table.fitted(penalty, shift)
        back = hessian - (penalty - PRIOR_SCALE**-2) * np.eye(size)
        pull = (penalty - PRIOR_SCALE**-2) * found
        errors.append(table.error(found + np.linalg.solve(back, pull)))
    return errors


def by_variation(table: Table, budget: Budget, num_seeds: int) -> list[float]:
    """Variational inference with a normal law of independent parts, by DP-Adam on Poisson batches
    (Jaelko, Dikmen, Honkela 2017), rows clipped at their largest gradient.
    """
    rate, num_steps = 0.02, 2000
    design = jnp.asarray(table.design, jnp.float32)
    labels = jnp.asarray(table.labels, jnp.float32)
    num_rows, size = design.shape
    cost = lambda noise: {  # noqa: E731
        SubsampledGaussian("poisson", rate, noise, budget.neighbours): num_steps
    }
    noise = calibrate.noise(cost, budget.epsilon, budget.delta)
    clip = table.radius

    def gradient(position, key):
        key_draw, key_batch, key_noise = jax.random.split(key, 3)
        mean, spread = position[:size], jnp.exp(position[size:])
        standard = jax.random.normal(key_draw, (size,))
        predictors = design @ (mean + spread * standard)
        slopes = labels - jax.nn.sigmoid(predictors)
        each = slopes[:, None] * design
        each = jnp.concatenate([each, each * standard * spread], axis=1)
        each = each * jnp.minimum(1, clip / jnp.linalg.norm(each, axis=1))[:, None]
        is_used = jax.random.uniform(key_batch, (num_rows,)) < rate
        total = jnp.sum(jnp.where(is_used[:, None], each, 0), axis=0) / rate
        total = total + 2 * clip * noise / rate * jax.random.normal(key_noise, (2 * size,))
        theta = mean + spread * standard
        prior = -theta / PRIOR_SCALE**2
        return (total + jnp.concatenate([prior, prior * standard * spread + 1])) / num_rows

    def step(state, key):
        position, first, second, count, mean = state
        slope = gradient(position, key)
        first, second = 0.9 * first + 0.1 * slope, 0.999 * second + 0.001 * slope**2
        ahead = first / (1 - 0.9**count) / (jnp.sqrt(second / (1 - 0.999**count)) + 1e-8)
        position = position + 0.02 * ahead
        return (position, first, second, count + 1, mean + position * (count > num_steps / 2)), None

    @jax.jit
    def run(key):
        begin = jnp.concatenate([jnp.zeros(size), jnp.full(size, math.log(0.01))])
        zero = jnp.zeros(2 * size)
        state = begin, zero, zero, jnp.float32(1), zero
        state, _ = jax.lax.scan(step, state, jax.random.split(key, num_steps))
        return state[-1][:size] / (num_steps // 2)

    keys = (jax.random.key(seed) for seed in range(num_seeds))
    return [table.error(np.asarray(run(key), float)) for key in keys]


def by_diffprivlib(table: Table, budget: Budget, num_seeds: int, python: str) -> list[float]:
    """diffprivlib's logistic regression, in an interpreter that has it."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "table.npz"
        np.savez(path, design=table.design, labels=table.labels)
        script = pathlib.Path(__file__).with_name("rival_diffprivlib.py")
        arguments = [path, table.radius, PRIOR_SCALE**2, budget.epsilon, num_seeds]
        subprocess.run([python, script, *map(str, arguments)], check=True)
        return [table.error(found) for found in np.load(path.with_suffix(".out.npy"))]


def errors_of(method: str, table: Table, budget: Budget, num_seeds: int, python: Any) -> Any:
    """The errors of all seeds, or None where the method is not there."""
    if method == "noise-aware":
        return by_default(table, budget, num_seeds)
    if method == "sgld":
        return by_chains(table, budget, min(5, num_seeds), recipes.langevin)
    if method == "penalty":
        make = lambda *facts: recipes.walk_after_start(*facts, "penalty")  # noqa: E731
        return by_chains(table, budget, min(5, num_seeds), make)
    if method == "objective":
        return by_objective(table, budget, num_seeds)
    if method == "dp-vi":
        return by_variation(table, budget, min(5, num_seeds))
    return None if python is None else by_diffprivlib(table, budget, num_seeds, python)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cells", nargs="*", default=CELLS)
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--python")
    typed = parser.parse_args()
    methods = typed.methods.split(",")
    print(f"| table | epsilon | {' | '.join(methods)} |")
    print("|---" * (2 + len(methods)) + "|")
    made: dict[str, Table] = {}
    for cell in typed.cells:
        name, epsilon = cell.split(":")
        if name in ("adult", "hospital") and not SHARED.is_dir():
            print(f"{cell} is left out: {SHARED} is absent", file=sys.stderr)
            continue
        table = made.setdefault(name, TABLES[name]()) if name not in made else made[name]
        budget = Budget(float(epsilon), table.delta)
        shown = []
        for method in methods:
            found = errors_of(method, table, budget, typed.seeds, typed.python)
            shown.append("" if found is None else f"{np.median(found):.3f}")
        print(f"| {name} | {epsilon} | {' | '.join(shown)} |", flush=True)


if __name__ == "__main__":
    jax.config.update("jax_compilation_cache_dir", ".venv/compiled")
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    main()
