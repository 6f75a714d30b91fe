"""Steps by the papers' bounds and by ours, as docs/experiments.md has them."""

import itertools
from pathlib import Path

import pytest

from dpmcmc.papers.reproduce.figure import Size
from dpmcmc.papers.thesis import accounting

PAGE = Path(__file__).parents[2] / "docs" / "experiments.md"
(FIGURE,) = accounting.FIGURES


def increases(curves) -> bool:
    """Every bound allows at least what the one before does."""
    rows = list(curves.values())
    return all(
        low <= high
        for first, second in itertools.pairwise(rows)
        for low, high in zip(first, second, strict=True)
    )


def lines(name, curves) -> list[str]:
    """The rows of the page's table."""
    return [
        f"| {name}, {label} | {' | '.join(f'{count:,}'.replace(',', ' ') for count in steps)} |"
        for label, steps in curves.items()
    ]


@pytest.mark.parametrize("name", ["DP-penalty", "DP-HMC"])
def test_the_page_has_what_quick_bounds_allow(name):
    curves = accounting.steps(name)
    assert increases(curves)
    for line in lines(name, curves):
        assert line in PAGE.read_text()


@pytest.mark.slow
def test_the_page_has_what_all_bounds_allow():
    found = {name: accounting.steps(name) for name in accounting.ALGORITHMS}
    table = [line for name, curves in found.items() for line in lines(name, curves)]
    assert len(table) == 12 and all(line in PAGE.read_text() for line in table)
    assert all(increases(curves) for curves in found.values())


def test_what_fits_nothing_is_not_drawn(tmp_path):
    some = {"a bound": [0] * 3 + [5] * 4, "a better one": list(range(1, 8))}
    results = {cell.name: some for cell in FIGURE.cells(Size())}
    shown = FIGURE.show(Size(), results)
    shown.picture.savefig(tmp_path / "some.png")
    assert (tmp_path / "some.png").stat().st_size > 5000 and len(shown.table) == 4 * 2 * 7
