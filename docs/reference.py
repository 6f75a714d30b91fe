"""A hook of MkDocs: the pages of the API reference, and a check of the finished site.

A page of the reference has the public names of one room. The pages exist only while the site is
built, so none can be forgotten when a name is added or moved. The check refuses a site whose pages
would fetch anything from elsewhere.
"""

from __future__ import annotations

import importlib
import inspect
import re
import unicodedata
from pathlib import Path
from typing import Any

import dpmcmc

FOLDER = "reference"
BIBLIOGRAPHY = Path(__file__).parent / "refs.bib"
# Public modules besides those that are public names themselves
MODULES = (
    "accounting.accountants",
    "accounting.bill",
    "accounting.calibrate",
    "accounting.costs",
    "accounting.filters",
    "accounting.ledger",
    "accounting.papers",
    "accounting.statement",
    "accounting.verify",
    "engines",
    "engines.dask",
)


def public_modules() -> list[str]:
    """The modules that have a page, without the name of the package."""
    return sorted({*dpmcmc._MODULES, *MODULES})


def members(module: Any) -> list[str]:
    """The functions, classes and modules that a module lists, or those that it defines."""
    if hasattr(module, "__all__"):
        values = {name: getattr(module, name) for name in sorted(module.__all__)}
        return [
            name for name, value in values.items() if callable(value) or inspect.ismodule(value)
        ]
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and (inspect.isfunction(value) or inspect.isclass(value))
        and f"{value.__module__}.".startswith(f"{module.__name__}.")
    ]


def pages() -> dict[str, str]:
    """The Markdown of each page, by its path."""
    rooms: dict[str, list[str]] = {}
    for name, home in dpmcmc._HOMES.items():
        rooms.setdefault(home.split(".")[1], []).append(name)
    found = {
        f"{FOLDER}/dpmcmc-{room}.md": _page(f"Names of {room}", "dpmcmc", names)
        for room, names in rooms.items()
    }
    for path in public_modules():
        module = importlib.import_module(f"dpmcmc.{path}")
        introduction = (
            f"::: dpmcmc.{path}\n    options:\n      members: []\n      show_root_heading: false\n"
        )
        page = _page(f"dpmcmc.{path}", f"dpmcmc.{path}", members(module), introduction)
        found[f"{FOLDER}/{path}.md"] = page
    found[f"{FOLDER}/index.md"] = _index(rooms)
    found[f"{FOLDER}/literature.md"] = _literature()
    return found


def _page(title: str, prefix: str, names: list[str], introduction: str = "") -> str:
    blocks = [f"::: {prefix}.{name}\n" for name in names]
    return "\n".join([f"# {title}\n", introduction, *blocks])


def _index(rooms: dict[str, list[str]]) -> str:
    lines = ["# API reference\n", "Names of the package itself, by the room they are from:\n"]
    for room, names in sorted(rooms.items()):
        links = ", ".join(f"[`{name}`](dpmcmc-{room}.md#dpmcmc.{name})" for name in sorted(names))
        lines.append(f"- {room}: {links}")
    lines.append("\nPublic modules:\n")
    lines += [f"- [`dpmcmc.{path}`]({path}.md)" for path in public_modules()]
    lines.append("\n[Literature](literature.md) has what the docstrings cite.\n")
    return "\n".join(lines)


def _literature() -> str:
    lines = ["# Literature\n"]
    for entry in re.findall(r"^@\w+\{.*?^\}", BIBLIOGRAPHY.read_text(), re.M | re.S):
        key = entry.partition("{")[2].partition(",")[0]
        fields = {
            name: _letters(value)
            for name, value in re.findall(r"^\s*(\w+)\s*=\s*\{(.*)\},?$", entry, re.M)
        }
        words = [fields[name] for name in ("author", "title", "year") if name in fields]
        lines.append(f'<a id="{key}"></a>**{key}.** {". ".join(words)}.\n')
    return "\n".join(lines)


def _letters(latex: str) -> str:
    """A text of the bibliography with its accents as letters."""
    text = re.sub(r"\\i\b\s*", "ı", re.sub(r"\\c\{(\w)\}|\\c (\w)", "\\1\\2\u0327", latex))
    text = re.sub(r"[{}]", "", text)
    for sign, accent in {"'": "\u0301", '"': "\u0308", "`": "\u0300", "^": "\u0302"}.items():
        text = re.sub(rf"\\{re.escape(sign)}(\w)", rf"\1{accent}", text)
    return unicodedata.normalize("NFC", text).replace("--", "–")


def root_pages() -> dict[str, str]:
    """Pages that stand in the root of the repository, with links that hold on the site."""
    root = Path(__file__).parents[1]
    return {
        name.lower(): (root / name)
        .read_text()
        .replace("](docs/", "](")
        .replace("](CHANGELOG.md)", "](changelog.md)")
        for name in ("CHANGELOG.md", "SECURITY.md")
    }


def on_files(files: Any, config: Any) -> Any:
    """Add the pages of the reference and of the root to those of the folder."""
    from mkdocs.structure.files import File

    for path, text in (pages() | root_pages()).items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_content(html: str, page: Any, **_: Any) -> str:
    """Make links of the citations in docstrings."""
    return re.sub(r":cite:\w*:?<code>([^<]+)</code>", lambda match: _links(match[1]), html)


def on_post_build(config: Any, **_: Any) -> None:
    """Refuse a site that fetches something from elsewhere."""
    from mkdocs.exceptions import PluginError

    site = Path(config.site_dir)
    found = [
        f"{path.relative_to(site)}: {address}"
        for path in sorted(site.rglob("*"))
        if path.suffix in (".html", ".css")
        for address in fetched_from_elsewhere(path.read_text())
    ]
    if found:
        raise PluginError("the site must not fetch anything from elsewhere: " + "; ".join(found))


def fetched_from_elsewhere(text: str) -> list[str]:
    """Addresses of other machines that a page or a style sheet loads by itself."""
    tags = re.findall(r"<(?:script|img|iframe|source|link)\b[^>]*>", text)
    loaded = [tag for tag in tags if 'rel="canonical"' not in tag]
    addresses = re.findall(r"""(?:src|href)=["']?((?:https?:)?//[^"'\s>]+)""", " ".join(loaded))
    addresses += re.findall(r"""url\(["']?((?:https?:)?//[^"')]+)""", text)
    return addresses + re.findall(r"""@import\s+["']((?:https?:)?//[^"']+)""", text)


def _links(keys: str) -> str:
    links = [
        f'<a href="literature.html#{key.strip()}">{key.strip()}</a>' for key in keys.split(",")
    ]
    return f"({', '.join(links)})"
