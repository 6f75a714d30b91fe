"""The README runs as printed, and every citation has its entry."""

import re
from pathlib import Path

import dpmcmc
from dpmcmc import load, statement_of

ROOT = Path(__file__).parents[1]


def test_the_example_runs(tmp_path, monkeypatch, capsys):
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    assert len([line for line in code.splitlines() if line.strip()]) <= 15
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "README.md", "exec"), {"__name__": "readme"})
    posterior = load(tmp_path / "posterior.nc")
    told = capsys.readouterr().out
    assert "r_hat" in told and statement_of(posterior) in told
    assert 3.9 < posterior.attrs["epsilon"] <= 4
    # The prior is flat in comparison, so even few effective draws find the signs of (1, -1).
    first, second = posterior.posterior["coefficients"].mean(("chain", "draw")).values
    assert first > 0.5 and second < -0.5


def test_every_name_in_the_docs_exists():
    """dpmcmc.x, and dpmcmc.x.y where x is a module."""
    text = "\n".join(path.read_text() for path in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
    named = set(re.findall(r"\bdpmcmc\.([a-zA-Z_]\w*(?:\.\w+)?)", text))
    assert {"Curator", "tuning.langevin"} <= named
    for name in named:
        found = dpmcmc
        for part in name.split("."):
            assert hasattr(found, part), name
            found = getattr(found, part)


def test_citations_and_references_match():
    sources = "\n".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    cited = {key.strip() for keys in re.findall(r":cite:\w*:?`([^`]+)`", sources) for key in keys.split(",")}
    listed = re.findall(r"^@\w+\{([^,]+),", (ROOT / "docs" / "refs.bib").read_text(), re.M)
    assert len(listed) == len(set(listed))
    assert cited == set(listed)
