"""The page about tables that do not fit memory: its examples run, and its numbers are true."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[1] / "docs" / "engines.md"


@pytest.mark.usefixtures("quick_compilation")
def test_the_page_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = PAGE.read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.M | re.S)
    assert len(blocks) == 2
    names: dict = {}
    exec(blocks[0], names)
    exec(blocks[1], names)
    assert names["curator"].capacity == 3000
