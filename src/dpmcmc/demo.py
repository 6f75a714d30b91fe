"""The demo: who earns more than 20 dollars an hour? A private logistic regression on the Current
Population Survey of 2004.

The embedded table (61 395 workers; public domain, as used by Stock and Watson under the name
CPSSW8) stands for rows that must stay private. Public facts: the columns and their bounds, the four
regions, and the number of rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from dpmcmc import tables
from dpmcmc.finding import Finding, in_words

QUESTION = "Who earns more than 20 dollars an hour?"
ABOUT = "Logistic regression on 61 395 workers (CPS 2004), each protected as one row."
# public bounds, in years
AGE = (21.0, 64.0)
EDUCATION = (6.0, 20.0)
HIGH = 20.0  # dollars an hour
REGIONS = ("Northeast", "Midwest", "South", "West")
# The largest size of each column's features. The noise is proportional to the length of the longest
# row, the information to the mean square of a column, so columns with most values in the middle of
# their bounds (few people have 6 or 20 years of school) get a larger size: public knowledge.
AGE_SIZE = 1.5
EDUCATION_SIZE = 2.0
GENDER_SIZE = 1.0
REGION_SIZE = 1.3
# Regions are the corners of a tetrahedron: three columns without correlation to the intercept,
# as long for every region.
CORNERS = REGION_SIZE * np.array([[1, 1, 1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1]]) / np.sqrt(3)
RADIUS = float(np.sqrt(AGE_SIZE**2 + EDUCATION_SIZE**2 + GENDER_SIZE**2 + REGION_SIZE**2))
PRIOR_SCALE = 5.0


class Reference(NamedTuple):
    """A parameter's posterior without privacy, from 8 000 draws of NUTS: `python
    benchmarks/demo_reference.py`.

    Attributes:
        mean: The posterior mean.
        sd: The posterior standard deviation.
    """

    mean: float
    sd: float


REFERENCE = {
    "baseline": Reference(-1.3065, 0.02442),
    "age, 10 years": Reference(0.3593, 0.00936),
    "education, 1 year": Reference(0.3665, 0.00427),
    "male": Reference(0.9373, 0.01959),
    "Midwest": Reference(-0.2933, 0.02807),
    "South": Reference(-0.3041, 0.02707),
    "West": Reference(-0.1073, 0.02792),
}


def read_rows() -> tuple[np.ndarray, np.ndarray]:
    """The rows of the embedded table.

    Returns:
        The features and the labels.
    """
    with resources.as_file(resources.files("dpmcmc").joinpath("data/cps_earnings.csv.gz")) as path:
        return rows_of(
            tables.read_columns(path, ("age", "education", "gender", "region", "earnings"))
        )


def rows_of(cells: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Features and labels made of cells.

    A row with a cell that is not a number is ignored; a cell that is no region counts as the first
    of them.

    Args:
        cells: The columns, by name.

    Returns:
        The features and the labels.
    """
    years = tables.scaled(cells, {"age": AGE, "education": EDUCATION}) * np.array(
        [AGE_SIZE, EDUCATION_SIZE]
    )
    gender = GENDER_SIZE * (2 * tables.labels(cells["gender"], "male", "female") - 1)
    regions = CORNERS[[REGIONS.index(name) if name in REGIONS else 0 for name in cells["region"]]]
    earnings = tables.scaled(cells, {"earnings": (0, 2 * HIGH)})[:, 0]
    is_high = np.where(np.isnan(earnings), np.nan, earnings > 0)
    return np.column_stack([years, gender, regions]).astype(np.float32), is_high.astype(np.float32)


def make_model():
    """Logistic regression whose parameters are log-odds in units that people use."""
    from dpmcmc import models
    from dpmcmc.domains import Corners, Domain

    def unravel(position):
        regions = CORNERS @ position[4:]
        named = {
            "baseline": position[0]
            - GENDER_SIZE * position[3]
            + regions[0],  # a woman in the Northeast, 42.5 years old, 13 of education
            "age, 10 years": AGE_SIZE * position[1] * 20 / (AGE[1] - AGE[0]),
            "education, 1 year": EDUCATION_SIZE * position[2] * 2 / (EDUCATION[1] - EDUCATION[0]),
            "male": 2 * GENDER_SIZE * position[3],
        }
        return named | {
            name: regions[index] - regions[0] for index, name in enumerate(REGIONS) if index
        }

    intervals = [Corners(((-size,), (size,))) for size in (AGE_SIZE, EDUCATION_SIZE, GENDER_SIZE)]
    domain = Domain((*intervals, Corners(tuple(map(tuple, CORNERS.tolist())))))
    model = models.logistic(6, RADIUS, PRIOR_SCALE, intercept=True, domain=domain)
    return model._replace(unravel=unravel)


def run(
    epsilon: float,
    delta: float,
    seed: int,
    progress: bool | Literal["bar"] = True,
    path: str | Path | None = None,
    sampler: str = "noise-aware",
):
    """One private posterior of the embedded table.

    Args:
        epsilon: The epsilon of the budget.
        delta: The delta of the budget.
        seed: The seed of the chains.
        progress: Whether progress is shown, or "bar".
        path: Where the posterior is saved, if anywhere.
        sampler: "noise-aware" or "sgld".

    Returns:
        The posterior with its statement.
    """
    import jax
    import jax.numpy as jnp

    from dpmcmc import Budget, Curator, recipes, sample

    model = make_model()
    curator = Curator(read_rows(), model, Budget(epsilon, delta))
    recipe = (recipes.langevin_for if sampler == "sgld" else recipes.noise_aware_for)(curator)
    return sample(
        jax.random.key(seed), recipe.sampler, curator, jnp.zeros(model.dimension),
        **recipe.options, progress=progress, path=path,
    )  # fmt: skip


class Judgement(NamedTuple):
    """How a run compares with the reference: errors and widths in units of the reference's standard
    deviations.

    Attributes:
        rms_error: The root mean square error of the posterior means.
        width: The width of the 90 % intervals over the reference's, the median over parameters.
        coverage: The share of the 90 % intervals that contain the reference mean.
        r_hat: The largest R-hat.
        ess: The smallest number of effective draws.
        findings: The findings: a user without a reference has only these.
    """

    rms_error: float
    width: float
    coverage: float
    r_hat: float
    ess: float
    findings: list[Finding]

    @property
    def is_success(self) -> bool:
        return not any(finding.is_severe for finding in self.findings)


def judge(result) -> Judgement:
    """Compare a run of the demo with the reference.

    Args:
        result: The posterior that `run` returned.

    Returns:
        Errors, widths and findings.
    """
    from dpmcmc.results import arviz

    table = arviz.summary_table(result)
    errors = []
    widths = []
    covered = []
    for name, (mean, sd) in REFERENCE.items():
        draws = result.posterior[name].values
        low, high = np.quantile(draws, [0.05, 0.95])
        errors.append((draws.mean() - mean) / sd)
        widths.append((high - low) / (2 * 1.645 * sd))
        covered.append(low <= mean <= high)
    rms = float(np.sqrt(np.mean(np.square(errors))))
    width = float(np.median(widths))
    coverage = float(np.mean(covered))
    return Judgement(
        rms, width, coverage, table.r_hat.max(), table.ess_bulk.min(), arviz.findings(result)
    )


def main(
    out: str | Path, seed: int = 0, epsilons: tuple[float, ...] = (4.0, 1.0), delta: float = 1e-6
) -> list[Judgement]:
    """Run the demo, print the results and write a report.

    The first epsilon is the main one, the others show the effect of a smaller budget.

    Args:
        out: The folder of the report, the posteriors and the figure.
        seed: The seed of the chains.
        epsilons: The epsilons of the runs.
        delta: The delta of the runs.

    Returns:
        One judgement for each epsilon.
    """
    from dpmcmc import statement_of
    from dpmcmc.recipes import forecast
    from dpmcmc.results import plots, report
    from dpmcmc.types import Budget

    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    model = make_model()
    num_rows = len(read_rows()[1])
    print(f"{QUESTION} {ABOUT}\n")
    judgements = []
    results = {}
    paths = []
    for epsilon in epsilons:
        print(f"=== epsilon = {epsilon:g}, delta = {delta:g}: the plan, from public facts alone\n")
        print(
            forecast.plan_text(num_rows, model.dimension, Budget(epsilon, delta)), "\n", flush=True
        )
        paths.append(folder / f"demo-epsilon-{epsilon:g}.nc")
        # The file of the last demo: this table is public, so no budget is spent
        paths[-1].unlink(missing_ok=True)
        results[epsilon] = run(epsilon, delta, seed, "bar", paths[-1])
        judgements.append(judge(results[epsilon]))
        print(_comparison(results[epsilon]), "\n")
        print(_reliability(judgements[-1], epsilon), "\n")
        if judgements[-1].findings:
            print(in_words(judgements[-1].findings), "\n")
        print(statement_of(results[epsilon]), "\n", flush=True)
    figure = folder / "demo.png"
    plots.against_reference(
        results, REFERENCE, "Log-odds of earning more than 20 dollars an hour", figure
    )
    page = folder / "demo.html"
    report.write(page, QUESTION, _page(results, judgements, figure.read_bytes()))
    print(f"Report:  {page}\nPosterior with its statement:  {paths[0]}\nFigure:  {figure}")
    return judgements


def _page(
    results: Mapping[float, Any], judgements: list[Judgement], figure: bytes
) -> Iterator[str]:
    from dpmcmc.results import report

    yield (
        f"<p>{ABOUT} The answer without privacy, to compare with, comes from 8 000 draws of "
        "NUTS.</p>"
    )
    yield report.image(
        figure, "90 % intervals of the private posteriors beside the one without privacy"
    )
    for (epsilon, result), found in zip(results.items(), judgements, strict=True):
        yield f"<h1>&epsilon; = {epsilon:g}</h1>"
        yield f"<p>{_reliability(found, epsilon)}</p><pre>{_comparison(result)}</pre>"
        yield from report.sections(result)


def _comparison(result) -> str:
    lines = [
        f"{'log-odds of':18} {'private':>9} {'sd':>7} {'90 % interval':>19} | {'not private':>11} "
        f"{'sd':>7} | {'off by':>8}"
    ]
    for name, (mean, sd) in REFERENCE.items():
        draws = result.posterior[name].values
        low, high = np.quantile(draws, [0.05, 0.95])
        private = (
            f"{name:18} {draws.mean():9.3f} {draws.std():7.3f} {f'[{low:.3f}, {high:.3f}]':>19}"
        )
        lines.append(f"{private} | {mean:11.3f} {sd:7.3f} | {(draws.mean() - mean) / sd:5.2f} sd")
    return "\n".join(lines)


def _reliability(found: Judgement, epsilon: float) -> str:
    error = (
        f"the means are off by {found.rms_error:.2f} posterior sds (rms), intervals are "
        f"{found.width:.2f} times as wide"
    )
    if found.is_success:
        return (
            f"This run succeeded: R-hat {found.r_hat:.2f}, {found.ess:.0f} effective draws. "
            f"Against the reference {error}."
        )
    return (
        f"THIS RUN FAILED its own checks, listed below. Against the reference {error}.\n"
        f"epsilon = {epsilon:g} is too little for this many rows: read the intervals with care, or "
        "use more rows, a larger epsilon, or fewer parameters."
    )
