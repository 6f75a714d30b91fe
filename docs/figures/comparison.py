"""The demo's rows of the table in docs/comparison.md as a picture: docs/figures/comparison.png.

python docs/figures/comparison.py
"""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

FOLDER = Path(__file__).parent
STYLES = {"noise-aware": ("#0072B2", "o-"), "diffprivlib": ("#D55E00", "s--")}
STYLES |= {"objective": ("#009E73", "^--"), "dp-vi": ("#CC79A7", "v:"), "sgld": ("#555555", "x:")}


def table() -> tuple[list[str], list[list[str]]]:
    """The names of the methods, and the demo's rows."""
    lines = (FOLDER.parent / "comparison.md").read_text().splitlines()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line[:1] == "|"]
    header = next(row for row in rows if row[0] == "table")
    return header[2:], [row for row in rows if row[0] == "demo"]


def main() -> None:
    names, rows = table()
    figure, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
    for column, name in enumerate(names, start=2):
        points = [(float(row[1]), float(row[column])) for row in rows if row[column]]
        if not points:
            continue
        color, style = STYLES[name]
        axes.plot(*zip(*sorted(points), strict=True), style, color=color, label=name)
    epsilons = sorted(float(row[1]) for row in rows)
    axes.set(
        xscale="log", yscale="log", xticks=epsilons, xlabel="ε at δ = 10⁻⁶ (diffprivlib: δ = 0)"
    )
    axes.set_xticklabels([f"{each:g}" for each in epsilons])
    axes.minorticks_off()
    axes.set_ylabel("error, posterior standard deviations")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    figure.savefig(FOLDER / "comparison.png", dpi=150)


if __name__ == "__main__":
    main()
