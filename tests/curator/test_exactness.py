"""The same chain, bit for bit, however the rows are laid out; and memory that does not grow with
the chains times the rows.
"""

import dataclasses
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpmcmc import (
    Barker,
    Budget,
    Curator,
    Model,
    accept_walk,
    hmc,
    models,
    penalty,
    random_walk,
    sample,
    testing,
)
from dpmcmc.curator.sums import exact_sum
from dpmcmc.precision import always_double
from dpmcmc.queries import Accept, Gradient, LogRatio
from dpmcmc.run.programs import Begin, Block
from tests.chains import SECRET

KEY = jax.random.key(3)
NUM_ROWS, DIMENSION = 1001, 5
FEATURES, LABELS = map(
    np.asarray, testing.simulate_logistic_rows(KEY, NUM_ROWS, np.linspace(-1, 1, DIMENSION), 1.0)
)
MODEL = models.logistic(DIMENSION, radius=1.0)
SAMPLERS = {
    "penalty": penalty(MODEL.log_prior, LogRatio(1.0, 2.0), random_walk(0.2)),
    "barker": accept_walk(MODEL.log_prior, Accept(Barker(), 1.0), random_walk(0.2)),
}

BOTH = pytest.mark.parametrize(
    "sampler",
    [SAMPLERS["penalty"], pytest.param(SAMPLERS["barker"], marks=pytest.mark.slow)],
    ids=SAMPLERS,
)


def chain(rows, sampler, model=MODEL, **options):
    curator = Curator(rows, model, None, fixed_secret=SECRET, **options)
    result = sample(
        KEY,
        sampler,
        curator,
        jnp.zeros(DIMENSION),
        num_steps=40,
        num_chains=3,
        warmup=0,
        progress=False,
    )
    return result.posterior["coefficients"].values


@pytest.fixture(autouse=True)
def several_pieces(monkeypatch):
    """Small pieces, so that these small tables are cut into several, the last one padded."""
    monkeypatch.setattr(exact_sum, "TARGET_PIECE", 600)


@pytest.mark.slow
@BOTH
def test_permuted_rows_give_the_same_chain_and_changed_ones_another(sampler):
    shuffled = np.random.default_rng(0).permutation(NUM_ROWS)
    draws = chain((FEATURES, LABELS), sampler)
    assert len(np.unique(draws)) > 30  # the chain moves
    np.testing.assert_array_equal(draws, chain((FEATURES[shuffled], LABELS[shuffled]), sampler))
    changed = LABELS.copy()
    changed[:40] = 1 - changed[:40]
    assert not np.array_equal(draws, chain((FEATURES, changed), sampler))


@pytest.mark.slow
@BOTH
def test_one_array_or_several_give_the_same_chain(sampler):
    def log_likelihood(position, row):
        return MODEL.log_likelihood(position, (row[:DIMENSION], row[DIMENSION]))

    one_array = Model(log_likelihood, MODEL.log_prior, MODEL.unravel, DIMENSION)
    together = np.concatenate([FEATURES, LABELS[:, None]], axis=1)
    np.testing.assert_array_equal(
        chain((FEATURES, LABELS), sampler), chain(together, sampler, one_array)
    )


SHARDED = """
import itertools, jax, jax.numpy as jnp, numpy as np, sys
sys.path.insert(0, ".")
from tests.curator import test_exactness as t
from dpmcmc import Curator
from dpmcmc.queries import Gradient, LogRatio, PoissonBatch
from dpmcmc.curator.sums import exact_sum, layouts
exact_sum.TARGET_PIECE = int(sys.argv[1])
layouts.INTERPRET = sys.argv[2] == "fused"
assert len(jax.devices()) == 2
for name in sys.argv[3:]:
    sampler = t.SAMPLERS[name]
    single = t.chain((t.FEATURES, t.LABELS), sampler)
    spread = t.chain((t.FEATURES, t.LABELS), sampler, devices=jax.devices())
    assert len(np.unique(single)) > 30
    np.testing.assert_array_equal(single, spread)
query, start, end = LogRatio(1.0, 5.0), jnp.zeros(t.DIMENSION), jnp.ones(t.DIMENSION)
def answers(program, **options):
    curator = Curator((t.FEATURES, t.LABELS), t.MODEL, None, fixed_secret=t.SECRET, **options)
    traced = curator.trace(program, jax.random.key(0))
    return curator.grant(traced.plan).run(traced.compile(), jax.random.key(0))
def several(ask, key):
    keys = jax.random.split(key, 2)
    batch = Gradient(1.0, 5.0, batch=PoissonBatch(0.3))
    return ask(keys[0], query, start, end).value, ask(keys[1], batch, end).value
for single, spread in zip(answers(several), answers(several, devices=jax.devices())):
    np.testing.assert_array_equal(single, spread)
# A program that differs from device to device is answered about what it has on the first.
count = itertools.count()
def differs(ask, key):
    number = jax.pure_callback(lambda: np.int32(next(count)), jax.ShapeDtypeStruct((), np.int32))
    return number, ask(jax.random.fold_in(key, number), query, start + number / 8, end).value
found = [
    [float(shard.data) for shard in part.addressable_shards]
    for part in answers(differs, devices=jax.devices())
]
assert len(set(found[0])) == 2 and len(set(found[1])) == 1, found
print("equal")
"""


@pytest.mark.parametrize(
    "target_piece, path, names",
    [
        pytest.param(300, "xla", [], marks=pytest.mark.slow),
        pytest.param(300, "xla", ["penalty", "barker"], marks=pytest.mark.slow),
        pytest.param(5000, "xla", list(SAMPLERS), marks=pytest.mark.slow),
        pytest.param(300, "fused", list(SAMPLERS), marks=pytest.mark.slow),
    ],
    ids=["answers", "four pieces", "one piece for two devices", "fused kernels"],
)
def test_rows_spread_over_two_devices_give_the_same_answers(target_piece, path, names):
    environment = {
        **os.environ,
        "XLA_FLAGS": "--xla_force_host_platform_device_count=2",
        "JAX_PLATFORMS": "cpu",
    }
    done = subprocess.run(
        [sys.executable, "-c", SHARDED, str(target_piece), path, *names],
        env=environment,
        capture_output=True,
        text=True,
        cwd=os.getcwd(),
    )
    assert done.stdout.strip() == "equal", done.stderr[-2000:]


@pytest.mark.slow
def test_capacity_pads_without_changing_the_sums():
    budget = Budget(1e4, 0.1, neighbours=Budget(1.0, 0.1).neighbours, rows_per_person=2)
    draws = [
        sample(
            KEY,
            SAMPLERS["penalty"],
            Curator((FEATURES, LABELS), MODEL, budget, capacity=capacity, fixed_secret=SECRET),
            jnp.zeros(DIMENSION),
            num_steps=20,
            num_chains=1,
            warmup=0,
            progress=False,
        )
        .posterior["coefficients"]
        .values
        for capacity in (NUM_ROWS, NUM_ROWS + 300)
    ]
    assert len(np.unique(draws[0])) > 5
    np.testing.assert_array_equal(*draws)


FAST = """
import jax, jax.numpy as jnp, numpy as np
from dpmcmc import Budget, Curator, models
from dpmcmc.queries import Gradient
features = np.zeros((100, 2), np.float32)
features[7] = np.inf
rows = features, np.ones(100, np.float32)
curator = Curator(rows, models.logistic(2, radius=1.0), Budget(8, 1e-6))
arguments = jax.random.key(0), jnp.zeros(2)
query = Gradient(1.0, 1.0)
traced = curator.trace(lambda ask, key, position: ask(key, query, position), *arguments)
print(np.abs(curator.grant(traced.plan).run(traced.compile(), *arguments).value).max())
"""


def test_a_row_is_clipped_whatever_arithmetic_the_environment_asks_for():
    """Compiled to take infinities for impossible, one would count for 2^23 times the clip."""
    fast = (
        "--xla_cpu_enable_fast_math=true --xla_cpu_fast_math_honor_nans=false "
        "--xla_cpu_fast_math_honor_infs=false"
    )
    environment = {**os.environ, "XLA_FLAGS": fast, "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, "-c", FAST], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert float(done.stdout) < 30


# -- memory ---------------------------------------------------------------------------------------


def block_executable(curator, sampler, num_chains, dimension, num_steps):
    keys = jax.random.split(KEY, num_chains)
    positions = jnp.zeros((num_chains, dimension))
    start = curator.trace(Begin(sampler), keys, positions)
    block = curator.trace(Block(sampler, num_steps, 1), keys, *start.shapes, jnp.int32(0))
    return keys, positions, start, block


@pytest.mark.slow
def test_temporary_memory_is_a_small_part_of_the_rows(monkeypatch):
    """n = 10^7, d = 50, float32, 4 chains: by the compiler's own analysis, on shapes alone."""
    monkeypatch.setattr(exact_sum, "TARGET_PIECE", 2**18)
    num_rows, dimension = 10**7, 50
    model = models.logistic(dimension, radius=1.0)
    sampler = penalty(model.log_prior, LogRatio(1.0, 2.0), random_walk(0.01))
    curator = Curator((FEATURES[:, :1] * np.ones((1, dimension), np.float32), LABELS), model, None)
    num_pieces, size = exact_sum.piece_layout(
        num_rows, None if curator._placed.by_columns is None else dimension
    )
    features = (size, dimension) if curator._placed.by_columns is None else (dimension, size)
    piece = jax.ShapeDtypeStruct(features, jnp.float32), jax.ShapeDtypeStruct((size,), jnp.float32)
    stored = (piece,) * num_pieces, None, None, None
    curator._placed = dataclasses.replace(
        curator._placed, without_cells=None, make_cells=lambda: stored, shapes=stored
    )
    *_, block = block_executable(curator, sampler, 4, dimension, 10)
    analysis = block.compile().compiled.memory_analysis()
    assert analysis.argument_size_in_bytes > 4 * num_rows * dimension
    assert analysis.temp_size_in_bytes <= 0.25 * 4 * num_rows * dimension


RESIDENT = """
import sys; sys.path.insert(0, ".")
import gc, os, threading, time
import jax, jax.numpy as jnp, numpy as np
from dpmcmc import Curator, models, penalty, random_walk
from dpmcmc.queries import LogRatio
from tests.curator.test_exactness import block_executable

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

rng = np.random.default_rng(0)
n, d = 10**6, 50
model = models.logistic(d, radius=1.0)
sampler = penalty(model.log_prior, LogRatio(1.0, 2.0), random_walk(0.01))
rows = rng.random((n, d), np.float32), rng.random(n, np.float32)
curator = Curator(rows, model, None)
del rows
keys, positions, start, block = block_executable(curator, sampler, 4, d, 3)
starter, runner = start.compile(), block.compile()
grant = curator.grant({q: 4 * c for q, c in block.plan.items()})
learned, states = grant.run(starter, keys, positions)
gc.collect()
before, peak, is_done = resident(), [0], threading.Event()
def watch():
    while not is_done.is_set():
        peak[0] = max(peak[0], resident())
        time.sleep(0.005)
watcher = threading.Thread(target=watch); watcher.start()
for _ in range(3):
    states, _ = grant.run(runner, keys, learned, states, jnp.int32(0))
is_done.set(); watcher.join()
print((peak[0] - before) / (4 * n * d))
"""


@pytest.mark.skipif(
    not os.path.exists("/proc/self/statm"), reason="reads the resident memory from /proc"
)
@pytest.mark.slow
def test_resident_memory_hardly_grows_while_blocks_run():
    done = subprocess.run(
        [sys.executable, "-c", RESIDENT], capture_output=True, text=True, cwd=os.getcwd()
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert float(done.stdout) <= 0.25


@pytest.mark.skipif(
    jax.default_backend() != "cpu",
    reason="a GPU has no such product of float64 matrices in what is shown here",
)
def test_sums_stay_exact_in_a_loop_that_is_batched_later():
    """vmap of a scan: JAX batches the body in the sampler's precision, where a product in float64
    would become one in float32.
    """
    rng = np.random.default_rng(0)
    matrix, vectors = (
        rng.integers(-(2**20), 2**20, (40, 3)),
        rng.integers(-(2**20), 2**20, (2, 2, 3)),
    )

    def product(matrix, vector):
        return jnp.dot(matrix, vector.astype(jnp.float64), precision="highest").astype(jnp.int64)

    def batched(product):
        def chain(matrix, vector):
            def body(vector, _):
                with jax.enable_x64(True):
                    found = product(matrix, vector)
                return vector + 1, found

            return jax.lax.scan(body, vector, None, length=3)[1]

        def run(matrix, vectors):
            with jax.enable_x64(False):
                return jax.vmap(jax.vmap(chain, (None, 0)), (None, 0))(matrix, vectors)

        with jax.enable_x64(True):
            return jax.jit(run)(matrix.astype(np.float64), vectors.astype(np.float32))

    exact = (vectors[:, :, None, :] + np.arange(3)[:, None]) @ matrix.T
    np.testing.assert_array_equal(batched(always_double(product)), exact)
    with pytest.warns(UserWarning, match="float64 requested in dot is not available"):
        assert not np.array_equal(batched(product), exact)


@pytest.mark.parametrize("make", [models.logistic, models.linear])
def test_a_hamiltonian_step_on_rows_with_a_linear_predictor_keeps_double_precision(make):
    """Warnings are errors here: the loop over leapfrog steps is batched over the chains after it
    was traced.
    """
    rows = np.ones((20, 2), np.float32), np.ones(20, np.float32)
    model = make(2, 2.0)
    sampler = hmc(model.log_prior, Gradient(1.0, 1.0), Accept(Barker(), 1.0), 0.1, 2)
    curator = Curator(rows, model, None)
    keys = jax.random.split(jax.random.key(0), 2)
    begin = curator.trace(Begin(sampler), keys, jnp.zeros((2, model.dimension)))
    curator.trace(Block(sampler, 2), keys, *begin.shapes, jnp.int32(0))
