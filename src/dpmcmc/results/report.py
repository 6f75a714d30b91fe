"""One page about a posterior: a single HTML file that needs no other file.

Everything on the page comes from the draws and their statement. So the page reveals no more than
the posterior does.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable
from html import escape
from pathlib import Path
from typing import Any

from dpmcmc.accounting import statement as statements
from dpmcmc.accounting import verify
from dpmcmc.accounting.reading import parsed
from dpmcmc.finding import DO_NOT_RELY
from dpmcmc.results import arviz, plots, summary

DOCTYPE = "<!DOCTYPE html>"
COLUMNS = {
    "mean": "mean",
    "sd": "sd",
    "hdi_3%": "94 % from",
    "hdi_97%": "to",
    "ess_bulk": "effective draws",
    "r_hat": "R-hat",
    "note": "note",
}
GLOSSARY = (
    "<b>sd</b>: the posterior standard deviation. <b>94 % from … to</b>: the shortest interval "
    "with 94 % of the draws. <b>Effective draws</b>: the number of independent draws that would "
    "estimate the mean equally well. <b>R-hat</b>: how much the chains disagree; 1 means not at "
    "all. <b>Note</b>: “prior” marks a parameter whose posterior standard deviation is more than "
    f"{summary.LIKE_PRIOR:g} times its prior standard deviation: the data say little more about it "
    "than the prior does."
)
CHECK = (
    "The file of the posterior contains the bill of the run. <code>dpmcmc account ledger "
    "FILE</code> computes the promise again from this bill."
)
CHECKED = f"{CHECK} This was done when the page was made: the promise is reproduced."
FORGED = "DO NOT BELIEVE THE PROMISE: it does not agree with its own bill"
STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #222; max-width: 60rem; margin: 2rem auto;
  padding: 0 1rem }
h1 { margin-bottom: .2rem } h2 { margin-top: 2.2rem }
.good, .bad { border-left: .4rem solid; padding: .6rem 1rem; margin: 1rem 0 }
.good { border-color: #4f9a5b; background: #eef6ef }
.bad { border-color: #b00020; background: #f9d0d0 }
.note { border-left: .4rem solid #999; padding: .6rem 1rem; margin: 1rem 0; background: #f6f6f6 }
.wide { overflow-x: auto }
table { border-collapse: collapse }
th { white-space: nowrap }
td, th { padding: .25rem .8rem; text-align: right; border-bottom: 1px solid #ddd }
td:first-child, th:first-child, td:last-child, th:last-child { text-align: left }
pre { white-space: pre-wrap; font-size: .85rem; background: #f6f6f6; padding: .8rem }
img { max-width: 100% }
.small { font-size: .85rem; color: #555 }
"""


def report(result: Any, path: str | Path, title: str = "A posterior") -> None:
    """Write one HTML page about a posterior.

    The page says whether to rely on the draws. It shows a table of the parameters, a figure of the
    chains, and the privacy statement.

    Args:
        result: A posterior, from `dpmcmc.sample` or `dpmcmc.load`.
        path: The file to write, with the ending .html or .htm. A page that is there is replaced.
        title: The headline.

    Raises:
        ValueError: The path has another ending, or a file is there that is not a page.

    Example:
        >>> from pathlib import Path
        >>> import dpmcmc
        >>> dpmcmc.report(record.to_arviz(), "people.html", title="People")
        >>> Path("people.html").read_text()[:15]
        '<!DOCTYPE html>'
    """
    write(path, title, sections(result))


def write(path: str | Path, title: str, parts: Iterable[str]) -> None:
    """Write a page that consists of these parts, each a piece of HTML."""
    if Path(path).suffix.lower() not in (".html", ".htm") or (
        Path(path).is_file() and not _is_page(path)
    ):
        raise ValueError(
            f"{path} is not the name of a web page, or a file that is not a web page is there: "
            "name a new file that ends in .html"
        )
    meta = '<meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    head = f"<head>{meta}<title>{escape(title)}</title><style>{STYLE}</style></head>"
    body = "\n".join([f"<h1>{escape(title)}</h1>", *parts])
    page = f'{DOCTYPE}\n<html lang="en">{head}\n<body>\n{body}\n</body></html>\n'
    # "replace", because file names in the text may have characters that UTF-8 cannot encode
    Path(path).write_text(page, encoding="utf-8", errors="replace")


def _is_page(path: str | Path) -> bool:
    with Path(path).open("rb") as file:
        return file.read(len(DOCTYPE)) == DOCTYPE.encode()


def sections(result: Any) -> list[str]:
    """The parts of the page about one posterior."""
    statement = arviz.statement_of(result)
    attributes = result.posterior.attrs
    objections = verify.reasons_to_distrust(attributes)
    is_private = not objections and math.isfinite(float(attributes["epsilon"]))
    plan, reading = (escape(attributes.get(name, "")) for name in ("plan", "reading"))
    draws = summary.scalars(result)
    return [
        *(f"<p>{escape(line)}</p>" for line in _promise(attributes)),
        _box("bad", FORGED, objections) if objections else "",
        _reliability(result),
        "<h2>Parameters</h2>",
        _table(result, [values.attrs.get("unit", "") for values in draws.values()]),
        f"<p>{reading}</p>" if reading else "",
        f'<p class="small">{GLOSSARY}</p>',
        "<h2>The draws</h2>",
        image(
            plots.chains({label: values.to_numpy() for label, values in draws.items()}),
            "all draws, and the chains step by step",
        ),
        f"<h2>How it was made</h2><pre>{plan}</pre>" if plan else "",
        f"<h2>What was promised</h2><pre>{escape(statement)}</pre>"
        f'<p class="small">{CHECKED if is_private else CHECK}</p>',
    ]


def image(png: bytes, text: str) -> str:
    """A picture as part of a page, with a text for readers who cannot see it."""
    return (
        f'<img alt="{escape(text)}" src="data:image/png;base64,{base64.b64encode(png).decode()}">'
    )


def _promise(attributes: Any) -> list[str]:
    """The promise, whom it protects, and what both mean.

    If there are several owners, the weakest promise comes first, then the promise of each owner.
    """
    try:
        stated = statements.from_json(parsed(attributes[statements.ATTRIBUTE]))
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError):
        return []  # the page still says so: `verify.reasons_to_distrust` finds the same error
    if isinstance(stated, statements.Statement):
        return [_one_space(line) for line in stated.promise()]
    facts = stated.facts()
    promised = statements.promise_text(facts["epsilon"], facts["delta"])
    owners = [
        ". ".join([f"Owner {statements.one_line(name)}", *map(_one_space, each.promise())])
        for name, each in stated.owners.items()
    ]
    whose = f"to the rows of each owner ({facts['owners']})"
    return [f"Promise: {promised}, or better, {whose}", *owners]


def _one_space(line: str) -> str:
    return " ".join(line.split())


def _reliability(result: Any) -> str:
    """Whether to rely on the draws, by the findings made with the result."""
    findings = arviz.findings(result)
    notes = [each.text for each in findings if not each.is_severe]
    notes_box = _box("note", "Notes", notes) if notes else ""
    if reasons := [each.text for each in findings if each.is_severe]:
        return _box("bad", DO_NOT_RELY, reasons) + notes_box
    limits = arviz.limits_of(result)
    is_several = result.posterior.sizes["chain"] > 1
    r_hat = (
        f"R-hat is at most {limits.r_hat:g}, and" if is_several else "one chain has no R-hat, but"
    )
    good = (
        f"{r_hat} every parameter has at least {limits.ess:g} effective draws, in the bulk and in "
        "the tails"
    )
    return f'<div class="good">These draws pass their checks: {good}.</div>{notes_box}'


def _box(kind: str, title: str, lines: list[str]) -> str:
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f'<div class="{kind}"><b>{escape(title)}</b><ul>{items}</ul></div>'


def _table(result: Any, units: list[str]) -> str:
    table = summary.rounded_table(result)[list(COLUMNS)]
    header = ["", *COLUMNS.values(), "units" if any(units) else ""]
    lines = [_row("th", header)]
    for (label, values), unit in zip(table.iterrows(), units, strict=True):
        lines.append(_row("td", [label, *values, unit]))
    return f'<div class="wide"><table>{"".join(lines)}</table></div>'


def _row(tag: str, cells: Iterable[Any]) -> str:
    return "<tr>" + "".join(f"<{tag}>{escape(str(cell))}</{tag}>" for cell in cells) + "</tr>"
