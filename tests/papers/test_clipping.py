"""What clipping does, and to how many rows."""

import jax
import numpy as np
import pytest

import dpmcmc
from dpmcmc.papers import clip_shares, clipping, problems
from dpmcmc.papers.thesis import settings
from dpmcmc.queries import Gradient, LogRatio

NUM = 40  # moves that a share is an average over


def test_the_share_of_clipped_ratios_is_that_of_the_rows():
    """Rows with the event need a clip of one less its chance, the others of the chance, for moves
    that are short: a clip between the two cuts those with the event, and no others.
    """
    problem = problems.rare_event(jax.random.key(0), 2000, 0.05)
    share = float(np.mean(np.asarray(problem.rows) == 1))
    for clip, expected in ((0.5, share), (1.5, 0.0), (0.001, 1.0)):
        walk = dpmcmc.random_walk(1e-2)
        sampler = dpmcmc.penalty(problem.model.log_prior, LogRatio(clip, 1.0), walk)
        places = np.asarray(problem.reference[:NUM])
        found = clip_shares.shares(jax.random.key(1), problem, sampler, places)
        assert len(found) == NUM
        np.testing.assert_allclose([one.ratio for one in found], expected, atol=1e-6)
        assert np.isnan([one.gradient for one in found]).all()


def test_the_share_of_clipped_gradients_is_that_of_the_rows():
    """A clip at the median length of the gradients at the start cuts half of them, and HMC asks a
    gradient more than it makes steps.
    """
    problem = settings.make(jax.random.key(2), "Flat banana, d = 2", 100)
    place = np.asarray(problem.reference[0], np.float32)
    slopes = jax.vmap(jax.grad(problem.model.log_likelihood), (None, 0))(place, problem.rows)
    clip = float(np.median(np.linalg.norm(slopes, axis=1)))
    sampler = dpmcmc.hmc(
        problem.model.log_prior, Gradient(clip, 0.001), LogRatio(100.0, 1.0), 1e-6, 2, jitter=0.0
    )
    (found,) = clip_shares.shares(jax.random.key(3), problem, sampler, place[None])
    assert abs(found.gradient - 0.5) < 0.01 and found.ratio == 0.0


@pytest.mark.slow
def test_few_clipped_rows_move_the_posterior():
    """A clip of 0.6 takes two fifths of the pull from one row in a hundred: five posterior standard
    deviations.
    """
    name = "Rare event, n = 10⁴"
    found = clipping.cell(name, clipping.WALK, num_steps=400, repeats=2, copies=1, seed=0)
    clips = clipping.TRIALS[name].clips
    by_clip = dict(zip(clips, np.median(found["mmd"], axis=1), strict=True))
    shares = dict(zip(clips, np.median(found["share"], axis=1), strict=True))
    assert by_clip[0.6] > 0.8 and by_clip[1.0] < 0.2
    assert shares[0.6] == pytest.approx(0.01, abs=0.003) and shares[1.0] == 0.0
