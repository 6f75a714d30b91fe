"""One page with all figures, and the files beside it."""

from __future__ import annotations

import csv
import html
from collections.abc import Mapping, Sequence
from pathlib import Path

from dpmcmc.papers.reproduce.figure import Figure, Shown, Size

STYLE = """
body { font: 16px/1.5 sans-serif; color: #222; max-width: 60rem; margin: 2rem auto; }
h2 { border-top: 1px solid #ddd; padding-top: 1.2rem; }
img { max-width: 100%; }
table { border-collapse: collapse; font-size: 13px; }
td, th { padding: .15rem .6rem; border-bottom: 1px solid #eee; text-align: left; }
dt { font-weight: 600; } dd { margin: 0 0 .5rem 0; }
.failed { color: #b5403f; white-space: pre-wrap; font-family: monospace; font-size: 12px; }
"""
MOST_ROWS = 400  # of a table on the page


def write_files(figure: Figure, shown: Shown, folder: Path) -> None:
    """The picture and the table of one figure."""
    if shown.picture is not None:
        shown.picture.savefig(folder / f"{figure.name}.png", dpi=110)
    names = list(dict.fromkeys(name for row in shown.table for name in row))
    with (folder / f"{figure.name}.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        writer.writerows(_rounded(row) for row in shown.table)


def write(
    figures: Sequence[Figure],
    shown: Mapping[str, Shown],
    failures: Mapping[str, str],
    size: Size,
    folder: Path,
) -> Path:
    """All figures; those that failed with the reason.

    Returns:
        The page.
    """
    parts = [_section(figure, shown.get(figure.name), failures, size) for figure in figures]
    links = " · ".join(f'<a href="#{figure.name}">{figure.name}</a>' for figure in figures)
    scale = "--quick: few repeats and short chains" if size.is_quick else "--full"
    text = (
        "<!doctype html><html lang=en><meta charset=utf-8><title>The papers, figure by figure"
        f"</title><style>{STYLE}</style><h1>The papers, figure by figure</h1>"
        f"<p>Computed with <code>dpmcmc reproduce</code> ({scale}; seed {size.seed}).</p>"
        f"<p>{links}</p>{''.join(parts)}</html>"
    )
    page = folder / "index.html"
    page.write_text(text, encoding="utf-8")
    return page


def _section(figure: Figure, shown: Shown | None, failures: Mapping[str, str], size: Size) -> str:
    head = (
        f'<h2 id="{figure.name}">{figure.name}: {html.escape(figure.title)}</h2>'
        f"<p>{html.escape(figure.paper)}</p>"
    )
    if shown is None:
        return f'{head}<p class="failed">{html.escape(failures[figure.name])}</p>'
    entries = {
        "The paper": figure.claim,
        "Here": shown.finding,
        "Why they differ": figure.why,
        "How": figure.about(size),
    }
    facts = "".join(
        f"<dt>{name}</dt><dd>{html.escape(text)}</dd>" for name, text in entries.items() if text
    )
    image = "" if shown.picture is None else f'<img src="{figure.name}.png" alt="{figure.name}">'
    table = _table(shown)
    if shown.picture is not None:
        link = f'<a href="{figure.name}.csv">CSV</a>'
        table = f"<details><summary>Numbers ({link})</summary>{table}</details>"
    return f"{head}{image}<dl>{facts}</dl>{table}"


def _table(shown: Shown) -> str:
    names = list(dict.fromkeys(name for row in shown.table for name in row))
    head = "".join(f"<th>{html.escape(name)}</th>" for name in names)
    rows = []
    for row in shown.table[:MOST_ROWS]:
        cells = _rounded(row)
        entries = "".join(f"<td>{html.escape(str(cells.get(name, '')))}</td>" for name in names)
        rows.append(f"<tr>{entries}</tr>")
    return f"<table><tr>{head}</tr>{''.join(rows)}</table>"


def _rounded(row: Mapping) -> dict:
    return {
        name: f"{value:.4g}" if isinstance(value, float) else value for name, value in row.items()
    }
