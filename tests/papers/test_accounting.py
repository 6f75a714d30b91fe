"""Steps by the papers' bounds and by ours, as docs/experiments.md has them."""

import itertools
from pathlib import Path

import pytest

from dpmcmc.papers import accounting

PAGE = Path(__file__).parents[2] / "docs" / "experiments.md"


def increases(curves) -> bool:
    """Every bound allows at least what the one before does."""
    rows = list(curves.values())
    return all(
        low <= high
        for first, second in itertools.pairwise(rows)
        for low, high in zip(first, second, strict=True)
    )


@pytest.mark.parametrize("name", ["DP-penalty", "DP-HMC"])
def test_the_page_has_what_quick_bounds_allow(name):
    curves = accounting.ALGORITHMS[name]()
    assert increases(curves)
    for line in accounting.table({name: curves}).splitlines():
        assert line in PAGE.read_text()


@pytest.mark.slow
def test_the_page_has_what_all_bounds_allow(tmp_path, capsys):
    accounting.main(str(tmp_path / "accounting.png"))
    told = capsys.readouterr().out
    table = [line for line in told.splitlines() if line.startswith("|")]
    assert len(table) == 2 + 12 and all(line in PAGE.read_text() for line in table)
    assert (tmp_path / "accounting.png").stat().st_size > 5000
    assert all(increases(curves()) for curves in accounting.ALGORITHMS.values())


def test_what_fits_nothing_is_not_drawn(tmp_path):
    path = tmp_path / "some.png"
    accounting.figure(
        {"Any": {"a bound": [0] * 3 + [5] * 4, "a better one": list(range(1, 8))}}, path
    )
    assert path.stat().st_size > 5000
