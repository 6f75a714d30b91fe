"""The fused GPU kernels, run step by step on a CPU: the sums of the path through XLA, the same
bounds, one pass for all chains.

The kernels multiply in another order, so sums over rows agree up to float32's rounding, and to the
last bit where every product is exact. What privacy rests on (the clip, the grid, the mask, whole
numbers) is tested to the last bit.
"""

import functools
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpmcmc import Curator, Model, models, penalty, random_walk, sample
from dpmcmc.curator.noise import cipher
from dpmcmc.curator.noise.cipher_kernel import chacha20_kernel
from dpmcmc.curator.queries import gradient
from dpmcmc.curator.queries.log_ratio import log_ratio_sum
from dpmcmc.curator.sums import fused, gpu_kernels, gpu_rows, layouts, linear_rows
from dpmcmc.curator.sums.exact_sum import BITS, Table, piece_layout
from dpmcmc.queries import LogRatio
from dpmcmc.types import Unit
from tests.chains import SECRET
from tests.curator.test_gradient import adversarial_rows, inner_product, too_long

pytestmark = pytest.mark.usefixtures("quick_compilation")

FULL = 2**BITS


@pytest.fixture(autouse=True)
def interpreted(monkeypatch):
    monkeypatch.setattr(layouts, "INTERPRET", True)


def logistic_rows(num_rows: int, dimension: int, seed: int = 0):
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(num_rows, dimension)).astype(np.float32)
    return features / np.linalg.norm(features, axis=1, keepdims=True), (
        rng.random(num_rows) < 0.5
    ).astype(np.float32)


def points(num_chains: int, dimension: int, seed: int = 1):
    rng = np.random.default_rng(seed)
    positions = rng.normal(size=(num_chains, dimension)).astype(np.float32)
    return positions, positions + 0.1 * rng.normal(size=positions.shape).astype(np.float32)


def table_of(rows, num_rows, num_pieces: int = 1):
    leaves, tree = jax.tree.flatten(rows)
    pieces = zip(*(jnp.split(jnp.asarray(leaf), num_pieces) for leaf in leaves), strict=True)
    return Table(
        tuple(jax.tree.unflatten(tree, piece) for piece in pieces),
        num_rows,
        Unit(),
        capacity=len(leaves[0]),
    )


@functools.cache
def compiled(model, bound, clip, num_pieces, *what_tests_replace):
    """(rows, their number, positions, proposals) -> the chains' integer sums of ratios or, with a
    clip, of gradients.
    """

    def run(rows, number, positions, proposals):
        table = table_of(rows, number, num_pieces)
        if clip is None:
            return jax.vmap(
                lambda before, after: log_ratio_sum(model, table, before, after, bound)
            )(positions, proposals)
        table = gradient.with_scales(table, model)
        return jax.vmap(lambda position: gradient.all_rows_sum(model, table, position, clip))(
            positions
        )

    return jax.jit(run)


def sums(model, rows, positions, proposals, bound=None, clip=None, num_rows=None, num_pieces=1):
    number = len(jax.tree.leaves(rows)[0]) if num_rows is None else num_rows
    run = compiled(
        model,
        bound,
        clip,
        num_pieces,
        layouts.INTERPRET,
        gpu_kernels.clip_to_unit,
        gpu_rows.Program.is_real,
    )
    with jax.enable_x64(True):
        return np.asarray(run(rows, jnp.int64(number), positions, proposals))


def ratios(model, rows, positions, proposals, bound, **options):
    return sums(model, rows, positions, proposals, bound=bound, **options)


def gradients(model, rows, positions, clip, **options):
    return sums(model, rows, positions, positions, clip=clip, **options)


def through_xla(monkeypatch, function, *arguments, **options):
    with monkeypatch.context() as patch:
        patch.setattr(layouts, "INTERPRET", False)
        patch.setattr(fused, "is_on", lambda: False)  # on a GPU too
        return function(*arguments, **options)


# -- the same sums --------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("num_chains", [1, 3, 40])
def test_ratios_are_those_of_the_other_path(num_chains, monkeypatch):
    model, rows = models.logistic(7, 1.0, intercept=True), logistic_rows(1300, 7)
    before, after = points(num_chains, 8)
    found = ratios(model, rows, before, after, 0.3, num_rows=1250, num_pieces=2)
    wanted = through_xla(
        monkeypatch, ratios, model, rows, before, after, 0.3, num_rows=1250, num_pieces=2
    )
    assert np.abs(wanted).max() > FULL
    assert np.abs(found - wanted).max() < 1250**0.5 * 2e-5 * FULL
    np.testing.assert_array_equal(
        ratios(model, rows, after, before, 0.3, num_rows=1250, num_pieces=2), -found
    )


@pytest.mark.parametrize("num_chains", [pytest.param(1, marks=pytest.mark.slow), 40])
def test_ratios_are_the_same_integers_where_products_are_exact(num_chains, monkeypatch):
    rng = np.random.default_rng(0)
    rows = rng.integers(-64, 65, size=(700, 5)).astype(np.float32)
    before, after = rng.integers(-64, 65, size=(2, num_chains, 5)).astype(np.float32) / 64
    arguments = (inner_product(5, True), rows, before, after, 64.0)
    np.testing.assert_array_equal(ratios(*arguments), through_xla(monkeypatch, ratios, *arguments))


@pytest.mark.parametrize("num_chains", [2, gpu_kernels.FEW + 1])
def test_every_chain_has_a_bound_of_its_own(num_chains):
    """Moves differ in length, and the clip follows the move.

    Log-ratios are near 1 and -1, and have bits in both halves.
    """
    near_one, bounds = 1 - 2.0**-20, np.exp2(np.arange(num_chains)).astype(np.float32)
    rows = near_one * np.array([[1]] * 6 + [[-1]] * 2, np.float32)
    model, before, after = inner_product(1, True), np.zeros(1, np.float32), np.ones(1, np.float32)
    with jax.enable_x64(True):
        table = table_of(rows, 8)
        found = jax.jit(jax.vmap(lambda bound: log_ratio_sum(model, table, before, after, bound)))(
            bounds
        )
    np.testing.assert_array_equal(found, 4 * near_one * FULL / bounds)


@pytest.mark.parametrize(
    "num_chains", [*(pytest.param(number, marks=pytest.mark.slow) for number in (1, 3)), 20]
)
def test_gradients_are_the_same_integers_where_slopes_are(num_chains, monkeypatch):
    rows = adversarial_rows(0, 1400, 11)
    rows[3, 4], rows[5], rows[6, 7] = np.nan, 0, np.inf
    arguments = (inner_product(11, True), rows, points(num_chains, 11)[0], 1.0)
    found = gradients(*arguments, num_rows=1390, num_pieces=2)
    np.testing.assert_array_equal(
        found, through_xla(monkeypatch, gradients, *arguments, num_rows=1390, num_pieces=2)
    )
    assert np.abs(found).max() > 2.0**40


@pytest.mark.slow
@pytest.mark.parametrize("name", ["logistic", "linear", "poisson"])
def test_gradients_are_those_of_the_other_path(name, monkeypatch):
    make = {
        "logistic": lambda: models.logistic(6, 1.0, intercept=True),
        "linear": lambda: models.linear(6, 0.5, intercept=True),
        "poisson": lambda: models.poisson(6, intercept=True),
    }
    arguments = (make[name](), logistic_rows(600, 6), 0.3 * points(3, 7)[0], 0.7)
    found, wanted = gradients(*arguments), through_xla(monkeypatch, gradients, *arguments)
    assert not np.array_equal(found, wanted)
    assert np.abs(found - wanted).max() < 1e-6 * 600 * 2.0 ** linear_rows.grid_bits(600)


def test_coefficients_agree_with_the_other_path_to_the_last_bit():
    rng = np.random.default_rng(0)
    slopes = np.concatenate(
        [np.exp(rng.normal(scale=9, size=20_000)), [0, np.inf, np.nan, 3e38, 1e-45]]
    ).astype(np.float32)
    slopes *= rng.choice([-1, 1], size=slopes.shape).astype(np.float32)
    slopes[::7] = np.round(slopes[::7].clip(-1e4, 1e4)) + np.float32(0.5)  # ties
    factor = np.exp2(rng.integers(-9, 20, size=slopes.shape)).astype(np.float32)
    factor[::50] = 0
    limit = rng.integers(0, 2**21 + 1, size=slopes.shape).astype(np.int32)
    for scale in (np.float32(1.0), np.float32(2.0**40 / 0.7)):
        found = jax.jit(gpu_kernels._coefficients)(slopes, factor, limit, scale)
        np.testing.assert_array_equal(
            found, jax.jit(linear_rows.row_coefficients)(slopes, factor, limit, scale)
        )


# -- the bounds -----------------------------------------------------------------------------------

MODEL = models.logistic(3, 1.0)
BAD_ROWS = [np.nan, -np.nan, np.inf, -np.inf, 3e38, 1e-45, 0.0, 1e3, -1e3]


def test_one_row_however_bad_moves_a_ratio_by_at_most_two_units():
    rows, labels = logistic_rows(40, 3)
    before, after = points(2, 3)

    def with_row(value):
        changed = rows.copy()
        changed[17] = value
        return ratios(MODEL, (changed, labels), before, after, 0.05)

    found = np.stack([with_row(value) for value in BAD_ROWS])
    assert FULL <= np.ptp(found, axis=0).max() <= 2 * FULL


def masked_sums():
    rows, labels = logistic_rows(40, 3)
    before, after = points(2, 3)
    found = []
    for value in (0.0, np.nan, 7.0):
        rows[30:] = value
        found.append(ratios(MODEL, (rows, labels), before, after, 0.05, num_rows=30))
        found.append(gradients(MODEL, (rows, labels), before, 0.05, num_rows=30).sum(axis=1))
    return np.stack(found)


@pytest.mark.slow
def test_padding_changes_nothing():
    found = masked_sums()
    assert np.ptp(found[::2], axis=0).max() == np.ptp(found[1::2], axis=0).max() == 0


def test_a_forgotten_mask_is_caught(monkeypatch):
    monkeypatch.setattr(
        gpu_rows.Program, "is_real", lambda self, step: self.numbers(step) < self.size
    )
    found = masked_sums()
    assert np.ptp(found[::2], axis=0).max() > 0 and np.ptp(found[1::2], axis=0).max() > 0


def extreme_ratio() -> int:
    """A single row whose log-ratio is far beyond the bound."""
    rows = (np.full((1, 2), 1e3, np.float32), np.ones(1, np.float32))
    return int(
        ratios(
            models.logistic(2, 1.0),
            rows,
            -np.ones((1, 2), np.float32),
            np.zeros((1, 2), np.float32),
            0.5,
        )[0]
    )


def test_the_bound_is_reached():
    assert extreme_ratio() == FULL


def test_a_forgotten_clip_is_caught(monkeypatch):
    monkeypatch.setattr(gpu_kernels, "clip_to_unit", lambda value, bound: value / 2.0**14)
    assert abs(extreme_ratio()) != FULL


@pytest.mark.parametrize("num_chains", [1, 2])
def test_no_row_of_a_gradient_exceeds_the_bound(num_chains):
    """Rows added one at a time: `vmap` over the number of rows."""
    rows, bits = adversarial_rows(1, 96, 5), linear_rows.grid_bits(96)
    model, positions = inner_product(5, True), np.zeros((num_chains, 5), np.float32)

    def run(number):
        table = gradient.with_scales(table_of(rows, number), model)
        return jax.vmap(lambda position: gradient.all_rows_sum(model, table, position, 1.0))(
            positions
        )

    with jax.enable_x64(True):
        found = np.asarray(jax.jit(jax.vmap(run))(jnp.arange(97)))
    each = np.diff(found, axis=0)
    assert all(too_long(each[:, chain], bits) == 0 for chain in range(num_chains))
    assert np.linalg.norm(each[:, 0].astype(float), axis=1).max() > 0.9999 * 2.0**bits


# -- one pass -------------------------------------------------------------------------------------


def kernels(jaxpr) -> list:
    found = []
    for equation in jaxpr.eqns:
        found += [equation] if equation.primitive.name == "pallas_call" else []
        for value in equation.params.values():
            inner = getattr(value, "jaxpr", value)
            found += (
                kernels(inner)
                if hasattr(inner, "eqns") and equation.primitive.name != "pallas_call"
                else []
            )
    return found


@pytest.mark.parametrize(
    "num_chains, num_passes",
    [(1, 1), *(pytest.param(number, 1, marks=pytest.mark.slow) for number in (5, 64)), (100, 2)],
)
def test_all_chains_share_one_pass_over_each_piece(num_chains, num_passes):
    model, rows = models.logistic(3, 1.0), logistic_rows(60, 3)
    before, after = points(num_chains, 3)

    def run(before, after):
        table = gradient.with_scales(table_of(rows, 60, 3), model)
        there = jax.vmap(lambda a, b: log_ratio_sum(model, table, a, b, 0.1))(before, after)
        return there, jax.vmap(lambda a: gradient.all_rows_sum(model, table, a, 1.0))(before)

    with jax.enable_x64(True):
        found = kernels(jax.make_jaxpr(run)(before, after).jaxpr)
    assert len(found) == 2 * 3 * num_passes
    assert all(equation.params["grid_mapping"].grid == (1,) for equation in found)


@pytest.mark.slow
def test_a_run_is_the_same_as_through_xla(monkeypatch):
    sampler = penalty(MODEL.log_prior, LogRatio(1.0, 2.0), random_walk(0.2))

    def run():
        curator = Curator(logistic_rows(300, 3), MODEL, None, fixed_secret=SECRET)
        return sample(
            jax.random.key(0),
            sampler,
            curator,
            jnp.zeros(3),
            num_steps=8,
            num_chains=3,
            warmup=0,
            progress=False,
        )

    draws = [
        np.asarray(result.posterior["coefficients"])
        for result in (run(), through_xla(monkeypatch, run))
    ]
    assert np.ptp(draws[0]) > 0.05
    np.testing.assert_allclose(*draws, atol=1e-4)


def test_the_curator_keeps_the_features_by_columns():
    rows = logistic_rows(300, 3)
    curator = Curator(rows, MODEL, None)
    (stored,), *_ = curator._placed.stored
    assert stored[0].shape == (3, 1024) and stored[1].shape == (1024,)

    def features(stored):
        table, _ = curator.hold(stored, 300, None)
        assert fused._by_columns(table, fused.row_layout(MODEL, rows)) is table.stored
        return table.pieces[0][0]

    with jax.enable_x64(True):
        np.testing.assert_array_equal(
            np.asarray(jax.jit(features)(curator._placed.stored))[:300], rows[0]
        )


def test_large_tables_are_cut_so_that_numbers_of_31_bits_count_their_features():
    for capacity, width in ((1, 16), (10**7, 64), (10**9, 16), (10**9, 128)):
        num_pieces, size = piece_layout(capacity, width)
        assert num_pieces * size >= capacity and size % 1024 == 0 and size * width < 2**31


def test_products_are_fused_with_the_sums_they_feed(monkeypatch):
    """A polynomial inside of functions that JAX calls; the values stay what they were."""
    calls = []
    monkeypatch.setattr(gpu_rows, "_fma", lambda a, b, c: calls.append(1) or a * b + c)
    values = jnp.linspace(-3.0, 3.0, 7)

    def function(x):
        return jax.nn.softplus(x) + jax.jit(lambda y: (0.5 * y + 1.0) * y + 2.0)(x) - x * x

    closed = jax.make_jaxpr(function)(values)
    (found,) = gpu_rows._evaluate(closed.jaxpr, closed.consts, [values])
    np.testing.assert_allclose(found, function(values), rtol=1e-6)
    assert len(calls) == 2


def test_devices_add_their_sums():
    """Two shards under one axis name give what one table gives; 16 rows, the last of them
    padding."""
    rows, model = (
        np.random.default_rng(0).integers(-8, 9, size=(2, 8, 2)).astype(np.float32),
        inner_product(2, True),
    )
    before, after = np.array([[0, 0], [1, -1]], np.float32)

    def shard(pieces, axis=None, device=None):
        return log_ratio_sum(
            model, Table(tuple(pieces), 15, Unit(), axis, 16, device=device), before, after, 32.0
        )

    with jax.enable_x64(True):
        whole = jax.jit(shard)(rows)
        spread = jax.vmap(lambda piece, device: shard((piece,), "rows", device), axis_name="rows")
        parts = jax.jit(spread)(rows, jnp.arange(2)[:, None])
    wanted = (rows.reshape(16, 2)[:15] @ (after - before)).sum() * FULL / 32
    assert whole == wanted and np.array_equal(parts, [wanted, wanted])


# -- what takes the other path --------------------------------------------------------------------


def with_parts(**parts) -> Model:
    model = models.logistic(3, 1.0)
    return model._replace(linear=model.linear._replace(**parts))


@pytest.mark.parametrize(
    "model, dtype",
    [
        (models.logistic(3, 1.0)._replace(linear=None), np.float32),
        (models.logistic(3, 1.0), np.float64),
        (models.logistic(3, 1.0), np.int32),
        (with_parts(features=lambda row: (2 * row[0],)), np.float32),
        (with_parts(log_likelihood=lambda z, row: z * row[0][0]), np.float32),
    ],
    ids=["no predictor", "double", "integers", "made features", "features used twice"],
)
def test_what_the_kernels_do_not_know_takes_the_other_path(model, dtype):
    rows = (np.ones((10, 3), dtype), np.ones(10, np.float32))
    assert fused.row_layout(model, rows) is None
    assert abs(ratios(model, rows, *points(2, 3), 1.0)).max() > 0


@pytest.mark.parametrize("trace", [layouts.log_likelihood, layouts.derivative])
def test_what_runs_in_a_kernel_is_looked_at_again(trace):
    """A function may say something else than when the curator was made."""

    def speaking(predictor, row):
        jax.debug.print("{}", predictor)
        return predictor

    row = jax.ShapeDtypeStruct((3,), np.float32), jax.ShapeDtypeStruct((), np.float32)
    with pytest.raises(
        ValueError, match="the model prints or calls back to Python, which would show rows"
    ):
        trace(with_parts(log_likelihood=speaking).linear, row)


def test_wide_rows_take_the_other_path():
    wide = fused.MAX_WIDTH + 1
    assert fused.row_layout(models.logistic(wide, 1.0), logistic_rows(4, wide)) is None
    assert fused.row_layout(models.logistic(wide - 1, 1.0), logistic_rows(4, wide - 1)) is not None


REGRESSIONS = [models.logistic(3, 1.0), models.linear(3, 0.5, intercept=True), models.poisson(3)]


@pytest.mark.skipif(
    jax.__version_info__ < (0, 9, 2),
    reason="before JAX 0.9.2 products of fewer than 16 go through XLA",
)
@pytest.mark.parametrize("model", REGRESSIONS, ids=["logistic", "linear", "poisson"])
def test_every_regression_has_kernels_on_a_gpu(model, monkeypatch):
    """As the compiler for GPUs takes them, which needs none: it knows fewer operations than
    others."""
    monkeypatch.setattr(layouts, "INTERPRET", False)
    assert len(lowered(model)) == 4


def test_a_model_that_the_compiler_for_gpus_does_not_know_is_caught(monkeypatch):
    monkeypatch.setattr(layouts, "INTERPRET", False)
    with pytest.raises(NotImplementedError, match="reduce_or"):
        lowered(
            with_parts(
                log_likelihood=lambda z, row: jnp.where(jnp.any(jnp.isnan(row[1])), jnp.nan, z)
            )
        )


def lowered(model):
    row = layouts.one_row(logistic_rows(4, 3))
    layout = layouts.find_features(model.linear, row)
    with jax.enable_x64(True):
        traced = gpu_kernels.traced_kernels(
            model.linear, layout, layouts.shapes(row), jax.tree.structure(row)
        )
        return [kernel.lower(lowering_platforms=("cuda",)).as_text() for kernel in traced]


def test_without_a_gpu_no_kernel_runs(monkeypatch):
    monkeypatch.setattr(layouts, "INTERPRET", False)
    assert (
        jax.default_backend() == "gpu"
        or fused.row_layout(models.logistic(3, 1.0), logistic_rows(4, 3)) is None
    )


def test_constants_among_the_features_are_found():
    model = with_parts(features=lambda row: (jnp.full(2, 0.5), row[0], jnp.ones(1)))
    layout = layouts.find_features(model.linear, layouts.one_row(logistic_rows(4, 3)))
    assert layout == layouts.Layout(0, 3, (0.5, 0.5, 1.0), (2, 3, 4, 0, 1, 5))


# -- the noise ------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(), (300,)])
def test_the_kernel_of_the_secret_stream_gives_the_same_words(shape):
    rng = np.random.default_rng(0)
    keys = jnp.asarray(rng.integers(0, 2**32, (2, 8), np.uint32))
    counters = jnp.asarray(rng.integers(0, 2**32, (*shape, 4), np.uint32))
    with jax.enable_x64(True):
        found = jax.vmap(lambda key: chacha20_kernel(key, counters, interpret=True))(keys)
        np.testing.assert_array_equal(
            found, jax.vmap(lambda key: cipher.chacha20(key, counters))(keys)
        )


WITHOUT_PALLAS = """
import sys
import jax, numpy as np
import dpmcmc
from dpmcmc import Barker
from dpmcmc.queries import Accept, Gradient

rows = np.zeros((8, 2), np.float32), np.zeros(8, np.float32)
curator = dpmcmc.Curator(rows, dpmcmc.models.logistic(2, 1.0), None)

def program(ask, key, position):
    first, second = jax.random.split(key)
    ask(first, Gradient(1.0, 2.0), position)
    return ask(second, Accept(Barker(), 0.1), position, position, np.float32(0)).value

arguments = jax.random.key(0), np.zeros(2, np.float32)
traced = curator.trace(program, *arguments)
curator.grant(traced.plan).run(traced.compile(), *arguments)
kernels = (
    "jax.experimental.pallas",
    "dpmcmc.curator.sums.gpu_",
    "dpmcmc.curator.noise.cipher_kernel",
)
print([name for name in sys.modules if name.startswith(kernels)])
"""


def test_a_run_on_a_cpu_imports_no_gpu_kernel():
    found = subprocess.run(
        [sys.executable, "-c", WITHOUT_PALLAS],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
    )
    assert found.stdout.strip() == "[]"
