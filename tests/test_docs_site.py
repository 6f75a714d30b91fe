"""The documentation site: every public name has its place, every page can be reached, and nothing
is fetched from elsewhere. `make docs` builds it; here are the parts that need no site generator.
"""

import importlib.util
import re
from pathlib import Path

import pytest

import dpmcmc

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def reference():
    spec = importlib.util.spec_from_file_location("reference", DOCS / "reference.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_public_name_has_a_place_in_the_reference(reference):
    text = "\n".join(reference.pages().values())
    shown = re.findall(r"^::: dpmcmc\.([\w.]+)$", text, re.M)
    assert len(shown) == len(set(shown))
    assert set(dpmcmc.__all__) <= set(shown)
    assert {"models.logistic", "accounting.costs.Gaussian", "tables.scaled"} <= set(shown)


def test_the_literature_is_complete_and_readable(reference):
    text = reference.pages()["reference/literature.md"]
    keys = re.findall(r"^@\w+\{([^,]+),", (DOCS / "refs.bib").read_text(), re.M)
    assert re.findall(r'<a id="([^"]+)">', text) == keys
    assert "Heikkilä" in text and "\\" not in text and "{" not in text


def test_every_page_is_reached():
    """From the menu, or from the index of the decisions."""
    menu = (ROOT / "mkdocs.yml").read_text()
    for page in DOCS.glob("*.md"):
        assert f" {page.name}\n" in menu, page.name
    index = (DOCS / "decisions" / "index.md").read_text()
    decisions = sorted((DOCS / "decisions").glob("0*.md"))
    assert [int(page.name[:4]) for page in decisions] == list(range(1, len(decisions) + 1))
    for page in decisions:
        assert f"]({page.name})" in index, page.name
        headings = re.findall(r"^## (.*)$", page.read_text(), re.M)
        assert headings == ["Context", "Decision", "Consequences"], page.name


def test_links_lead_to_files_that_exist():
    pages = [*ROOT.glob("*.md"), *DOCS.rglob("*.md")]
    for page in pages:
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text()):
            is_elsewhere = target.startswith(("http://", "https://", "mailto:"))
            is_made = target.startswith("reference/")  # while the site is built
            assert is_elsewhere or is_made or (page.parent / target).exists(), (page.name, target)


@pytest.mark.parametrize(
    "text",
    [
        '<script src="https://cdn.example/x.js"></script>',
        '<link rel="stylesheet" href="//fonts.example/css">',
        '<img src="http://example.org/a.png">',
        "@font-face { src: url('https://fonts.example/a.woff') }",
        '@import "https://fonts.example/css";',
    ],
)
def test_what_is_fetched_from_elsewhere_is_seen(reference, text):
    assert len(reference.fetched_from_elsewhere(text)) == 1


def test_links_and_files_of_the_site_are_not_refused(reference):
    text = '<a href="https://www.arviz.org">ArviZ</a><script src="js/theme.js"></script>'
    text += '<link href="css/theme.css" rel="stylesheet"> src: url("./fonts/a.woff")'
    assert reference.fetched_from_elsewhere(text) == []
