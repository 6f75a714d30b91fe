"""One step of each sampler on made-up answers, against what its formulas say: exactly, or in law
over many keys.

Long chains, most of them in the slow suite, tell whether a law is kept; here every term of a step
is looked at by itself. What is random is compared within 5 standard deviations: a false alarm has a
chance of 6e-7, 3e-5 for the 50 numbers here. Keys are fixed.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpmcmc import (
    accept_walk,
    guided_walk,
    hmc,
    models,
    newton_start,
    one_component,
    penalty,
    random_walk,
    sgld,
    sgnht,
)
from dpmcmc.samplers import scaling
from dpmcmc.samplers.exponential import _log_ratio, change
from dpmcmc.samplers.hmc import HMCState, _decide
from dpmcmc.samplers.langevin import LangevinState
from dpmcmc.samplers.penalty import WalkState, passes
from dpmcmc.samplers.start import _advance, _Progress, corrected, lift
from dpmcmc.samplers.thermostat import ThermostatState
from dpmcmc.types import Answer
from tests.samplers.gradient_chains import (
    COVARIANCE,
    MEAN,
    PRECISION,
    PRIOR_SCALE,
    BarkerBit,
    Ratio,
    log_likelihood,
    log_prior,
)

pytestmark = pytest.mark.usefixtures("quick_compilation")

KEY, MANY = jax.random.key(0), 10_000
KEYS = jax.random.split(jax.random.key(1), MANY)
HERE = np.float32([0.4, -0.7])
DENSE = np.float32([[1.5, 0.6], [0.6, 0.8]])


class Asked(list):
    """An `ask` that keeps the points, and always has the same answer."""

    def __init__(self, value, variance=0.0):
        self.answer = Answer(jnp.asarray(value), jnp.float32(variance))

    def __call__(self, rng_key, query, *points):
        self.append(points)
        return self.answer


def check_covariance(draws, expected):
    """Of standard deviations and correlations: within 5 of theirs."""
    white = np.linalg.solve(np.linalg.cholesky(expected), np.asarray(draws, float).T)
    found = np.cov(white)
    np.testing.assert_allclose(found, np.eye(len(found)), atol=5 * 2**0.5 / len(draws) ** 0.5)


# -- random walks ---------------------------------------------------------------------------------


@pytest.mark.parametrize("log_ratio, variance", [(0.3, 2.0), (-0.5, 0.0)])
def test_the_penalty_test_takes_off_half_of_the_variance(log_ratio, variance):
    found = jax.vmap(passes, (0, None, None))(KEYS, log_ratio, variance)
    assert np.mean(found) == pytest.approx(
        np.exp(log_ratio - variance / 2), abs=5 * 0.5 / MANY**0.5
    )


@pytest.mark.parametrize(
    "make, yes, no", [(penalty, 99.0, -99.0), (accept_walk, True, False)], ids=["ratio", "bit"]
)
def test_a_guided_walk_goes_on_when_accepted_and_turns_the_component_that_was_refused(
    make, yes, no
):
    sampler, directions = make(log_prior, Ratio(), guided_walk([0.3, 0.5])), np.float32([1.0, -1.0])

    @jax.jit
    @jax.vmap
    def step(key, answer):
        asked = Asked(answer)
        state, info = sampler.step(
            key, WalkState(jnp.asarray(HERE), jnp.asarray(directions)), asked
        )
        return state, info, asked[0]

    is_yes = np.arange(12) % 2 == 0
    answers = np.where(is_yes, yes, no)
    state, info, (positions, points, *public) = step(KEYS[:12], answers)
    moved = points - HERE
    np.testing.assert_array_equal(positions, np.broadcast_to(HERE, (12, 2)))
    assert (
        np.all(np.sum(moved != 0, axis=1) == 1)
        and np.all(np.any(moved != 0, axis=0))
        and np.all(moved * directions >= 0)
    )
    reported = public[0] if make is accept_walk else info.log_ratio - answers
    np.testing.assert_allclose(
        reported, np.sum(HERE**2 - points**2, axis=1) / (2 * PRIOR_SCALE**2), atol=2e-5
    )
    np.testing.assert_array_equal(info.is_accepted, is_yes)
    np.testing.assert_array_equal(state.position, np.where(is_yes[:, None], points, HERE))
    np.testing.assert_array_equal(
        state.memory, np.where(~is_yes[:, None] & (moved != 0), -directions, directions)
    )
    np.testing.assert_allclose(info.move_length, np.linalg.norm(moved, axis=1), rtol=1e-5)
    assert not np.any(info.is_outside)


@pytest.mark.parametrize("make, no", [(penalty, -99.0), (accept_walk, False)], ids=["ratio", "bit"])
def test_it_are_reported_where_the_prior_ends(make, no):
    sampler = make(
        lambda position: jnp.where(position[0] < 0.41, 0.0, -jnp.inf), Ratio(), random_walk(0.3)
    )

    def step(key):
        asked = Asked(no)
        _, info = sampler.step(key, WalkState(jnp.asarray(HERE), ()), asked)
        return info.is_outside, asked[0][1][0] >= 0.41

    reported, expected = jax.jit(jax.vmap(step))(KEYS[:32])
    np.testing.assert_array_equal(reported, expected)
    assert 0 < np.mean(expected) < 1


def moves(proposal):
    propose = jax.jit(jax.vmap(lambda key: proposal.propose(key, jnp.zeros(2), jnp.ones(2))[0]))
    return np.asarray(propose(KEYS), float)


def test_a_matrix_shapes_the_moves_as_a_root_of_their_covariance():
    root = np.array([[1.0, 0.0], [2.0, 0.5]])
    check_covariance(moves(random_walk(root)), root @ root.T)


@pytest.mark.parametrize("kind", [one_component, guided_walk])
def test_every_component_moves_as_often_and_by_its_own_scale(kind):
    found = moves(kind([0.3, 2.0]))
    moved = found != 0
    assert np.all(moved.sum(axis=1) == 1)
    assert abs(moved[:, 0].mean() - 0.5) < 5 * 0.5 / MANY**0.5
    squares = (found**2).sum(axis=0) / moved.sum(axis=0) / np.array([0.09, 4.0])
    np.testing.assert_allclose(squares, 1, atol=5 * (2 / (MANY / 2)) ** 0.5)
    if kind is one_component:
        assert abs((found > 0).sum() / MANY - 0.5) < 5 * 0.5 / MANY**0.5


@pytest.mark.parametrize("kind", [random_walk, guided_walk])
def test_no_move_is_longer_than_the_cap_and_many_are_as_long(kind):
    lengths = np.linalg.norm(moves(kind([0.3, 2.0], max_move=0.5)), axis=1)
    assert lengths.max() <= 0.5 and np.mean(lengths > 0.499) > 0.4


# -- sufficient statistics ------------------------------------------------------------------------


@pytest.mark.parametrize("model, rows", [
    (models.binomial(7, 2.0, 3.0), np.array([3, 7, 0])),
    (models.gaussian(DENSE, radius=3.0), np.float32([[0.5, -1.0], [1.5, 0.2]])),
], ids=["binomial", "gaussian"])  # fmt: skip
def test_the_noisy_ratio_is_that_of_the_rows_and_tells_the_variance_of_its_noise(model, rows):
    """The statistic of n rows is the sum of theirs around the center, and n."""
    position, proposal = jnp.full(model.dimension, 0.3), jnp.full(model.dimension, -0.4)
    each = np.asarray(jax.vmap(model.family.statistic)(jnp.asarray(rows)), float) - np.asarray(
        model.family.center
    )
    weights = change(model.family, position, proposal)
    variances = np.linspace(0.5, 2.0, len(weights))
    found = _log_ratio(
        weights,
        Answer(jnp.append(each.sum(axis=0), len(rows)), jnp.asarray(variances)),
        jnp.float32,
    )
    rowwise = jax.jit(jax.vmap(model.log_likelihood, (None, 0)))
    expected = np.sum(rowwise(proposal, jnp.asarray(rows)) - rowwise(position, jnp.asarray(rows)))
    assert float(found.value) == pytest.approx(float(expected), rel=1e-5)
    assert float(found.variance) == pytest.approx(
        np.sum(np.asarray(weights) ** 2 * variances), rel=1e-5
    )


# -- gradients ------------------------------------------------------------------------------------

RELEASED = np.float32([2.0, -3.0])  # a gradient of the log-likelihood, wherever it is asked for


def slope(position):
    """Of the log posterior, as released."""
    return RELEASED - np.asarray(position) / PRIOR_SCALE**2


# The axes of a 2 x 2 one may be their own transpose
LARGER = np.float32([[2.0, 0.5, 0.3], [0.5, 1.5, -0.4], [0.3, -0.4, 1.0]])


@pytest.mark.parametrize(
    "matrix", [LARGER, LARGER[0], LARGER[0, 0]], ids=["dense", "diagonal", "number"]
)
def test_a_matrix_in_its_axes_is_the_same_whether_it_is_known_beforehand_or_learned(matrix):
    def times(matrix, vector):
        found = scaling.axes("mass", matrix)
        return found.out_of(found.scales * found.into(vector))

    vector = np.float32([0.4, -0.7, 1.1])
    expected = matrix @ vector if np.ndim(matrix) == 2 else matrix * vector
    np.testing.assert_allclose(times(matrix, jnp.asarray(vector)), expected, rtol=1e-5)
    np.testing.assert_allclose(jax.jit(times)(matrix, vector), expected, rtol=1e-5)


@pytest.mark.parametrize("reuse", [True, False])
def test_a_path_is_the_leapfrog_and_its_energy_is_reported(reuse):
    """From the points where gradients were asked for: they tell the momenta between them."""
    kept, step_size = np.float32([1.0, 0.5]), 0.3
    sampler = hmc(log_prior, "gradient", BarkerBit(), step_size, 3, DENSE, reuse=reuse, jitter=0.5)
    state = HMCState(
        jnp.asarray(HERE),
        jnp.asarray(kept) if reuse else jnp.zeros(2),
        jnp.uint32(1),
        jnp.uint32(0),
    )
    points = []

    def ask(rng_key, query, *given):
        if query != "gradient":
            points.append(given)
            return Answer(jnp.asarray(False), jnp.zeros(()))
        jax.debug.callback(lambda point: points.append(np.asarray(point)), given[0], ordered=True)
        return Answer(jnp.asarray(RELEASED), jnp.zeros(()))

    new, info = sampler.step(KEY, state, ask)
    jax.effects_barrier()
    (begin, end, public), *path = sorted(points, key=lambda given: isinstance(given, np.ndarray))
    path = path if reuse else path[1:]
    h = step_size * (1 - 0.5 * 0.5)  # the second of van der Corput's numbers is 1/2
    momenta = [DENSE @ (after - before) / h for before, after in itertools.pairwise([HERE, *path])]
    for point, before, after in zip(path[:-1], momenta[:-1], momenta[1:], strict=True):
        np.testing.assert_allclose(after - before, h * slope(point), atol=1e-4)
    first = slope(HERE) - (RELEASED - kept) * reuse
    start, last = momenta[0] - h / 2 * first, momenta[-1] + h / 2 * slope(end)
    kinetic = [momentum @ np.linalg.solve(DENSE, momentum) / 2 for momentum in (start, last)]
    np.testing.assert_array_equal([begin, end], [HERE, path[-1]])
    assert float(public) == pytest.approx(
        float(log_prior(end) - log_prior(HERE)) + kinetic[0] - kinetic[1], abs=1e-3
    )
    assert (
        float(info.move_length) == pytest.approx(np.linalg.norm(end - HERE), rel=1e-5)
        and new.index == 2
    )
    np.testing.assert_array_equal(new.gradient, kept if reuse else 0.0)  # after a rejection


def test_a_ratio_decides_with_the_prior_the_energy_and_half_of_the_variance():
    decide = jax.vmap(
        lambda key: _decide(key, Ratio(), HERE, HERE, jnp.float32(-0.4), Asked(0.7, variance=1.6))
    )
    assert np.mean(decide(KEYS)) == pytest.approx(np.exp(0.7 - 0.4 - 0.8), abs=5 * 0.5 / MANY**0.5)


def test_a_divergent_path_is_refused_whatever_the_test_says():
    sampler = hmc(lambda position: 0.0 * position[0], "gradient", BarkerBit(), 1e30, 1, reuse=False)
    state = HMCState(jnp.asarray(HERE), jnp.zeros(2), jnp.uint32(0), jnp.uint32(0))

    def ask(rng_key, query, *points):
        return Answer(
            jnp.asarray(True) if query != "gradient" else jnp.asarray(RELEASED), jnp.zeros(())
        )

    new, info = jax.jit(lambda: sampler.step(KEY, state, ask))()
    np.testing.assert_array_equal(new.position, HERE)
    assert info.is_divergent and not info.is_accepted and info.move_length == 0


@pytest.mark.parametrize("subtract", [True, False])
def test_langevin_drifts_by_half_a_step_and_spreads_by_a_whole_one(subtract):
    h, variance, far = 0.4, 3.0, 20 * HERE  # so that the prior pulls
    sampler = sgld(log_prior, "gradient", h, DENSE, subtract_noise=subtract)
    state = LangevinState(jnp.asarray(far), jnp.int32(0))
    new, info = jax.jit(jax.vmap(lambda key: sampler.step(key, state, Asked(RELEASED, variance))))(
        KEYS
    )
    injected = h * DENSE - subtract * h**2 * variance / 4 * DENSE @ DENSE
    moved = np.asarray(new.position, float) - far - h / 2 * DENSE @ slope(far)
    white = np.linalg.solve(np.linalg.cholesky(injected), moved.T)
    np.testing.assert_allclose(white.mean(axis=1), 0, atol=5 / MANY**0.5)
    check_covariance(moved, injected)
    np.testing.assert_allclose(info.move, new.position - far, atol=1e-5)
    np.testing.assert_allclose(
        info.noise_ratio,
        1 if subtract else 1 + h * variance / 4 * np.linalg.eigvalsh(DENSE)[-1],
        rtol=1e-5,
    )


def test_a_langevin_step_out_of_the_support_is_not_taken():
    sampler = sgld(lambda position: jnp.where(position[0] < 0.41, 0.0, -jnp.inf), "gradient", 0.5)
    state = LangevinState(jnp.asarray(HERE), jnp.int32(0))
    new, info = jax.jit(lambda: sampler.step(KEY, state, Asked(np.float32([50.0, 0.0]))))()
    np.testing.assert_array_equal(new.position, HERE)
    np.testing.assert_array_equal(info.move, 0)
    assert info.is_outside and not info.is_divergent and new.index == 1


@pytest.mark.parametrize("subtract", [True, False])
def test_a_thermostat_is_its_symmetric_splitting(subtract):
    """Written out, but for the noise in the middle, whose variance is that of the exact solution
    less what is known.
    """
    h, friction, variance = 0.3, 0.8, 2.0
    momentum, heat = np.array([1.2, -0.4]), 0.5
    values, vectors = np.linalg.eigh(DENSE.astype(float))
    sampler = sgnht(log_prior, "gradient", h, friction, DENSE, subtract_noise=subtract)
    state = ThermostatState(
        jnp.asarray(HERE), jnp.float32(momentum), jnp.float32(heat), jnp.int32(0)
    )

    def step(key):
        asked = Asked(RELEASED, variance)
        return *sampler.step(key, state, asked), asked[0][0]

    new, info, asked_at = jax.jit(jax.vmap(step))(KEYS)

    # The axes of the implementation may have other signs: they are those of the first half move.
    signs = np.sign(np.sum(np.linalg.eigh(DENSE)[1] * vectors, axis=0))
    vectors = vectors * signs
    middle = HERE + h / 2 * vectors @ (values**0.5 * momentum)
    np.testing.assert_allclose(asked_at, np.broadcast_to(middle, (MANY, 2)), atol=1e-6)
    kick = h / 2 * values**0.5 * (vectors.T @ slope(middle))
    half = momentum + kick
    warm = heat + h / 2 * (np.mean(half**2) - 1)
    decay = np.exp(-warm * h)
    spread = (
        friction * (1 - decay**2) / warm - subtract * variance * values * (h * (1 + decay) / 2) ** 2
    )
    assert np.all(spread > 0) and not np.any(info.is_saturated)
    found = np.asarray(new.momentum, float) - kick
    normal = (found - decay * half) / spread**0.5
    np.testing.assert_allclose(normal.mean(axis=0), 0, atol=5 / MANY**0.5)
    check_covariance(normal, np.eye(2))
    np.testing.assert_allclose(
        new.friction, warm + h / 2 * (np.mean(found**2, axis=1) - 1), rtol=1e-4
    )
    np.testing.assert_allclose(
        new.position, middle + h / 2 * (found + kick) * values**0.5 @ vectors.T, atol=1e-5
    )


def test_a_thermostat_that_leaves_the_support_stays_and_turns_round():
    sampler = sgnht(lambda position: jnp.where(position[0] < 0.41, 0.0, -jnp.inf), "gradient", 0.5)
    state = ThermostatState(
        jnp.asarray(HERE), jnp.array([5.0, 0.3]), jnp.float32(1.0), jnp.int32(0)
    )
    new, info = jax.jit(lambda: sampler.step(KEY, state, Asked(np.zeros(2, np.float32), 9.0)))()
    np.testing.assert_array_equal(new.position, HERE)
    np.testing.assert_array_equal(new.momentum, -state.momentum)
    assert info.is_outside and not info.is_divergent and new.index == 1
    assert info.is_saturated  # by a noise of the gradient that is more than the step takes


def test_every_chain_begins_with_numbers_of_its_own():
    here, ask = jnp.asarray(HERE), Asked(RELEASED)
    path, heat = (
        make(log_prior, "gradient")
        for make in (
            lambda *parts: hmc(*parts, Ratio(), 0.1, 2),
            lambda *parts: sgnht(*parts, 0.1, 0.8),
        )
    )
    paths, heats = jax.jit(
        jax.vmap(lambda key: (path.init(key, here, ask), heat.init(key, here, ask)))
    )(KEYS)
    assert len(np.unique(paths.flips)) > 0.999 * MANY and np.all(paths.gradient == RELEASED)
    check_covariance(heats.momentum, np.eye(2))
    np.testing.assert_allclose(heats.friction, 0.8)


# -- the private start ----------------------------------------------------------------------------


def newton(log_prior, variance, hessian=PRECISION, num_steps=1, of_gradient=1e-6):
    """From HERE on a Gaussian likelihood; the variance is given, but no noise is added."""

    def ask(rng_key, query, position):
        if query == "gradient":
            return Answer(jax.grad(log_likelihood)(position), jnp.float32(of_gradient))
        return Answer(jnp.asarray(hessian), jnp.float32(variance))

    return jax.jit(
        lambda: newton_start(log_prior, "gradient", "curvature", num_steps)(
            KEY, jnp.asarray(HERE), ask
        )
    )()


def test_one_newton_step_ends_at_the_mode_and_tells_the_precision():
    found = newton(log_prior, 1e-6)
    np.testing.assert_allclose(found.position, MEAN, atol=1e-5)
    np.testing.assert_allclose(found.precision, np.linalg.inv(COVARIANCE), rtol=1e-5)
    np.testing.assert_array_equal(found.hessian.value, PRECISION)


def test_what_the_steps_found_is_in_the_precision_that_is_handed_on():
    """Given half of the curvature, the first step is too long; along it the slope falls as the true
    precision says.
    """
    slope = jax.grad(lambda position: log_likelihood(position) + log_prior(position))(HERE)
    step = np.linalg.solve(PRECISION / 2 + np.eye(2) / PRIOR_SCALE**2, slope)
    found = newton(log_prior, 1e-6, hessian=PRECISION / 2, num_steps=2)
    np.testing.assert_allclose(found.precision @ step, np.linalg.solve(COVARIANCE, step), rtol=1e-4)
    # Not if the gradients are so noisy that the difference is nothing.
    found = newton(log_prior, 1e-6, hessian=PRECISION / 2, num_steps=2, of_gradient=100.0)
    np.testing.assert_allclose(
        found.precision, PRECISION / 2 + np.eye(2) / PRIOR_SCALE**2, rtol=1e-5
    )


def test_a_curvature_that_is_not_surely_positive_is_not_used():
    precision, step, variance = jnp.diag(jnp.array([100.0, 3.0])), jnp.array([1.0, 0.0]), 1.0
    noise = 3 * (2 * variance) ** 0.5
    for found in (0.5 * noise, 2 * noise):
        new = jax.jit(corrected)(precision, step, np.float32([found, 0.0]), variance)
        assert (new[0, 0] < 100) == (found > noise)


@pytest.mark.parametrize(
    "found, is_new, expected",
    [(30.0, False, 50), (30.0, True, 30), (10.0, True, 20), (150.0, True, 100)],
)
def test_a_hessian_that_was_just_asked_is_lowered_more_and_never_raised(found, is_new, expected):
    """It is that at the end of the step, raised where noise hides it: a half is left of an old
    one, a fifth of a new one.
    """
    precision, step = jnp.diag(jnp.array([100.0, 3.0])), jnp.array([1.0, 0.0])
    new = jax.jit(corrected, static_argnames="is_new")(
        precision, step, np.float32([found, 0.0]), 1e-4, is_new=is_new
    )
    np.testing.assert_allclose(new, np.diag([expected, 3.0]), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "beyond, point, step", [(-3.0, 0.0, 1 / 4), (-0.5, 1.0, -0.5 / 1.5)], ids=["steeper", "flatter"]
)
def test_a_step_is_rejected_if_the_gradient_is_steeper_beyond_it(beyond, point, step):
    """From 0, where the slope is 1, by 1. In both cases it falls faster than was assumed."""
    last = _Progress(
        jnp.zeros(1),
        jnp.ones(1),
        jnp.zeros(()),
        jnp.ones(1),
        jnp.eye(1),
        Answer(jnp.eye(1), jnp.zeros(())),
    )
    found = jax.jit(lambda slope: _advance(lambda position: 0.0, last, jnp.ones(1), slope, 1e-8))(
        np.float32([beyond])
    )
    assert (float(found.point[0]), float(found.step[0])) == pytest.approx((point, step), rel=1e-5)


def test_the_curvature_is_lifted_to_what_its_noise_could_fake():
    values, floor = np.linalg.eigvalsh(np.linalg.inv(COVARIANCE)), (2 * 2 * 0.9) ** 0.5
    assert values[0] < floor < values[1]
    np.testing.assert_allclose(
        np.linalg.eigvalsh(newton(log_prior, 0.9).precision), [floor, values[1]], rtol=1e-5
    )


def test_what_is_lifted_has_the_same_axes():
    values, vectors = np.linalg.eigh(LARGER)
    np.testing.assert_allclose(lift(LARGER, 0.1), LARGER, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        lift(LARGER, 1.2), vectors * np.maximum(values, 1.2) @ vectors.T, rtol=1e-5, atol=1e-6
    )


def test_a_newton_step_is_halved_until_the_prior_has_density_there():
    radius = 0.3 * np.linalg.norm(MEAN - HERE)

    def inside(position):
        return jnp.where(jnp.sum((position - HERE) ** 2) < radius**2, log_prior(position), -jnp.inf)

    np.testing.assert_allclose(newton(inside, 1e-6).position, HERE + (MEAN - HERE) / 4, atol=1e-5)
