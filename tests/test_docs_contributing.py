"""The skeletons for contributors work as printed."""

import re
from pathlib import Path

import jax
import numpy as np
import pytest

import dpmcmc

PAGE = Path(__file__).parents[1] / "docs" / "contributing.md"


@pytest.fixture(scope="module")
def names():
    found: dict = {"__name__": "contributing"}
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S):
        exec(compile(block, PAGE.name, "exec"), found)
    return found


def test_the_model_and_the_sampler_run(names, quick_compilation):
    rows = np.random.default_rng(0).laplace(size=500).astype(np.float32)
    curator = dpmcmc.Curator(rows, names["model"], dpmcmc.Budget(epsilon=4, delta=1e-6))
    bit = dpmcmc.queries.Accept(dpmcmc.Barker(), bound=0.1)
    sampler = names["short_walk"](names["model"].log_prior, bit, 0.02)
    posterior = dpmcmc.sample(
        jax.random.key(0), sampler, curator, [0.0], num_steps=4, num_chains=2, progress=False
    )
    assert posterior.posterior["location"].shape[0] == 2
    assert posterior.attrs["epsilon"] <= 4


def test_the_bound_of_the_model_is_attained(names):
    slope = jax.grad(names["model"].log_likelihood)(np.zeros(1, np.float32), np.float32(2.0))
    assert abs(float(slope[0])) == names["model"].lipschitz


def test_the_query_has_the_cost_it_claims(names):
    """False alarm 1e-6; half the sensitivity is refuted."""
    query = names["CellSum"](noise_multiplier=1.0)
    first, second = np.float32([1.0, 0.5]), np.float32([-1.0, 0.5])

    class HalfTheSensitivity(names["CellSum"]):
        def answer(self, key, model, rows, position):
            half = names["CellSum"](self.noise_multiplier / 2)
            return half.answer(key, model, rows, position)

    def verdict(asked):
        return dpmcmc.audit.query(asked, names["model"], first, second, [[0.0]], num_answers=10_000)

    assert not verdict(query).is_refuted
    assert verdict(HalfTheSensitivity(noise_multiplier=1.0)).is_refuted
