"""What is told about a run that runs well and may be wrong."""

import numpy as np
import pytest

from dpmcmc import (
    Accept,
    Barker,
    Curator,
    Curvature,
    Gradient,
    LogRatio,
    MinibatchAccept,
    PenaltyAccept,
    doubts,
    models,
    statement_of,
)
from dpmcmc.curator.exact import ExactGradient
from dpmcmc.samplers.accept import AcceptInfo
from tests import tiny

LOGISTIC = models.logistic(2, radius=2.5, intercept=True)
PROVED = LOGISTIC.lipschitz


@pytest.mark.parametrize(
    "query, is_told",
    [
        (Gradient(PROVED, 100.0), False),
        (Gradient(PROVED * (1 - 1e-9), 100.0), False),
        (Gradient(2 * PROVED, 100.0), False),
        (Gradient(0.99 * PROVED, 100.0), True),
        (LogRatio(0.5 * PROVED, 100.0), True),
        (PenaltyAccept(0.5 * PROVED, 100.0, 0.1), True),
        (Curvature(LOGISTIC.curvature, 100.0), False),
        (Curvature(0.5 * LOGISTIC.curvature, 100.0), True),
        (Accept(Barker(), 0.1), False),  # depends on the moves
        (ExactGradient(), False),  # clips nothing
    ],
    ids=str,
)
def test_a_clip_below_the_proved_bound_is_told(query, is_told):
    assert bool(doubts.of_clips(LOGISTIC, {query: 1})) is is_told


@pytest.mark.parametrize("query", [Gradient(1.0, 9.0), LogRatio(1.0, 9.0), Accept(Barker(), 0.1), MinibatchAccept(0.1)], ids=str)
def test_any_clip_is_told_where_nothing_is_proved(query):
    (told,) = doubts.of_clips(models.poisson(2), {query: 1})
    assert "the model has no proved `lipschitz`" in told


@pytest.mark.parametrize("length, thin, is_told", [(0.9, 1, False), (1.1, 1, True), (1.1, 2, False)])
def test_moves_that_are_longer_than_the_bound_is_proved_for_are_told(length, thin, is_told):
    """Of several steps together nothing can be told."""
    bit = Accept(Barker(), 0.1)
    positions = np.zeros((5, 2, 3))
    positions[2, 1, 0] = length * bit.bound / PROVED
    told = doubts.of_draws(LOGISTIC, {bit: 1}, [(positions, AcceptInfo(np.ones((5, 2), bool)))], thin)
    assert any("the bound is proved up to" in text for text in told) is is_told


def test_a_run_tells_in_its_statement_and_at_once(caplog, capsys):
    result = tiny.run()
    assert "Note:      rows may be clipped by LogRatio" in statement_of(result)
    assert "rows may be clipped by LogRatio" in caplog.text and "DO NOT RELY on these draws: R-hat" in caplog.text
    assert capsys.readouterr().err == ""
    caplog.clear()
    tiny.run(progress=True)
    told = capsys.readouterr().err
    assert told.index("rows may be clipped") < told.index("12 of 12 steps") < told.index("DO NOT RELY")
    assert caplog.text == ""


def test_what_is_known_before_the_grant_is_told_before_it(caplog, monkeypatch):
    def grant(*_):
        assert "rows may be clipped by LogRatio" in caplog.text
        raise KeyboardInterrupt

    monkeypatch.setattr(Curator, "grant", grant)
    with pytest.raises(KeyboardInterrupt):
        tiny.run()
