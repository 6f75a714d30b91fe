"""What clipping does, and to how many rows."""

import jax
import numpy as np
import pytest

from dpmcmc.papers import clipping, problems


@pytest.mark.slow
def test_the_share_of_clipped_ratios_is_that_of_the_rows():
    """Rows with the event need a clip of one less its chance, the others of the chance: nearly, for
    moves that are short.
    """
    problem = problems.rare_event(jax.random.key(0), 5000, 0.05)
    steepness = clipping.ratios_per_length(jax.random.key(1), problem, 1e-2)
    has_event = np.asarray(problem.rows) == 1
    assert steepness.shape == (clipping.NUM_MOVES, 5000) and abs(has_event.mean() - 0.05) < 0.02
    np.testing.assert_allclose(np.median(steepness[:, has_event]), 0.95, atol=0.01)
    np.testing.assert_allclose(np.median(steepness[:, ~has_event]), 0.05, atol=0.01)


@pytest.mark.slow
def test_few_clipped_rows_move_the_posterior(monkeypatch, tmp_path):
    """A clip of 0.6 takes two fifths of the pull from one row in a hundred: five posterior standard
    deviations.
    """
    monkeypatch.setattr(
        clipping, "TRIALS", {"Rare": clipping._rare(10_000)._replace(clips=(0.6, 1.0))}
    )
    told = []
    found = clipping.run(num_repeats=2, num_steps=400, report=told.append)
    clipped, whole = np.median(found["Rare"].mmd, axis=1)
    assert clipped > 0.8 and whole < 0.2
    assert found["Rare"].shares == pytest.approx([0.01, 0.0], abs=0.002) and len(told) == 2
    assert f"| clipped | {100 * found['Rare'].shares[0]:.2g} % | 0 % |" in clipping.table(found)
    clipping.figure({"Usual": found["Rare"], **found}, tmp_path / "clipping.png")
    assert (tmp_path / "clipping.png").stat().st_size > 5000
