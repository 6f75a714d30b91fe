"""One of several processes of `test_processes.py`: it asks, and prints what it was answered.

python -m tests.engines.process NUMBER_OF_THIS NUMBER_OF_ALL PORT
"""

import hashlib
import json
import sys

import jax
import numpy as np

import dpmcmc
from dpmcmc import Budget, Curator, Neighbours, Unit, queries
from dpmcmc.errors import BudgetExceeded, PrivacyRefusal

ROWS = 5000
SECRET = np.arange(16, dtype=np.uint32)
POSITIONS = np.float32([[0.1, 0.2, 0.3], [-2, 30, 0.5]])


def table():
    generator = np.random.default_rng(0)
    features = np.clip(generator.normal(size=(ROWS, 3)) / 4, -0.9, 0.9).astype(np.float32)
    return features, (generator.random(ROWS) < 0.5).astype(np.float32)


MODEL = dpmcmc.models.logistic(3, radius=1.6)
GRADIENT = queries.Gradient(MODEL.lipschitz, 10.0)


def asking(ask, key, positions):
    """By passes of integers, with vmap, and by a query of the general way."""
    keys = jax.random.split(key, 5)
    return (
        ask(keys[0], GRADIENT, positions[0]).value,
        ask(keys[1], queries.Curvature(MODEL.hessian_bound, 10.0), positions[1]).value,
        jax.vmap(lambda key, at: ask(key, GRADIENT, at).value)(keys[2:4], positions),
        ask(keys[4], queries.LogRatio(1.0, 10.0), positions[0], positions[0] + 0.1).value,
    )


def digest_of(values):
    digest = hashlib.sha256()
    for value in jax.tree.leaves(values):
        digest.update(np.asarray(value).tobytes())
    return digest.hexdigest()


def curator_of(rows=None, budget=None, **options):
    rows = table() if rows is None else rows
    return Curator(rows, MODEL, budget, devices=jax.devices(), **options)


def answers(curator):
    program = curator.trace(asking, jax.random.key(0), POSITIONS).compile()
    grant = curator.grant(program.plan)
    return digest_of(grant.run(program, jax.random.key(0), POSITIONS))


def draws():
    curator = curator_of(budget=Budget(4.0, 1e-6), fixed_secret=SECRET)
    recipe = dpmcmc.recipes.noise_aware_for(curator, num_chains=2, num_steps=20)
    start = np.zeros(3, np.float32)
    options = {**recipe.options, "progress": False}
    result = dpmcmc.sample(jax.random.key(1), recipe.sampler, curator, start, **options)
    return digest_of(result.posterior["coefficients"].values)


def refusal(run, kind=ValueError):
    try:
        run()
    except kind as error:
        return f"{type(error).__name__}: {error}"
    return "not refused"


def with_a_secret_each():
    """A twin with a mistake: its noise is another one in each process."""
    curator = curator_of()
    curator._of_first_process = lambda numbers: numbers
    return answers(curator)


def grants_that_one_refuses(number):
    """Another plan in each process, then one that was withdrawn in the last process alone."""
    budget = Budget(4.0, 1e-6)
    other = curator_of(budget=budget)
    plan = refusal(lambda: other.grant({GRADIENT: 1 + number}), PrivacyRefusal)
    withdrawn = curator_of(budget=budget)
    if number == 1:
        withdrawn.withdraw()
    return plan, refusal(lambda: withdrawn.grant({GRADIENT: 1}), (PrivacyRefusal, BudgetExceeded))


def main():
    number, of_all, port = map(int, sys.argv[1:])
    if of_all > 1:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(f"127.0.0.1:{port}", of_all, number)
    private = {"unit": Unit(Neighbours.ADD_OR_REMOVE_ONE), "capacity": 6000}
    found = {
        "answers": answers(curator_of(fixed_secret=SECRET)),
        "private number": answers(curator_of(fixed_secret=SECRET, **private)),
        "draws": draws(),
        "secret": answers(curator_of(**private)),
    }
    if of_all > 1:
        part = slice(number * ROWS // 2, (number + 1) * ROWS // 2)
        own = tuple(leaf[part] for leaf in table())
        refused = grants_that_one_refuses(number)
        promised = curator_of(budget=Budget(4.0, 1e-6)).grant({GRADIENT: 1}).statement()
        found |= {
            "twin": with_a_secret_each(),
            "parts": refusal(lambda: curator_of(own)),
            "plans": refused[0],
            "withdrawn": refused[1],
            "ledger": refusal(lambda: curator_of(ledger="spends.json")),
            "some devices": refusal(
                lambda: Curator(table(), MODEL, None, devices=jax.devices()[1 - number :][:1])
            ),
            "statement": [line for line in promised.assumptions if "jax.distributed" in line],
        }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
