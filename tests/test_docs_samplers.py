"""The page about the samplers runs as printed, leaves no sampler or query out, and has its
pictures.
"""

import re
from pathlib import Path

import pytest

import dpmcmc

PAGE = Path(__file__).parents[1] / "docs" / "samplers.md"
TEXT = PAGE.read_text()
HOMES = (
    "dpmcmc.samplers.",
    "dpmcmc.curator.queries.",
    "dpmcmc.curator.owner",
    "dpmcmc.curator.federation",
    "dpmcmc.acceptance",
)
LARGEST_PICTURE = 120_000  # bytes


@pytest.mark.slow
def test_the_page_runs(quick_compilation, caplog):
    names: dict = {"__name__": "samplers"}
    for block in re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL):
        exec(compile(block, PAGE.name, "exec"), names)
    assert "DO NOT RELY" in caplog.text  # as the page says
    assert "clipped" not in caplog.text and "widely" not in caplog.text  # its settings are sound


def test_every_sampler_and_query_is_on_the_page():
    public = [
        name
        for room in (dpmcmc, dpmcmc.queries)
        for name in room.__all__
        if getattr(getattr(room, name), "__module__", "").startswith(HOMES)
    ]
    assert {"penalty", "LogRatio", "Barker"} <= set(public)
    assert [name for name in public if not re.search(rf"\b{name}\b", TEXT)] == []


def test_every_link_leads_somewhere():
    pictures = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", TEXT)
    assert len(pictures) == len(set(pictures)) == len(re.findall(r"^## ", TEXT, re.M))
    assert all((PAGE.parent / picture).stat().st_size < LARGEST_PICTURE for picture in pictures)
    headings = {
        re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
        for title in re.findall(r"^## (.*)$", TEXT, re.M)
    }
    assert set(re.findall(r"\]\(#([^)]+)\)", TEXT)) <= headings


def test_a_section_fits_a_screen():
    sections = re.split(r"^## ", TEXT, flags=re.M)[1:]
    assert max(len(section.splitlines()) for section in sections) <= 40
