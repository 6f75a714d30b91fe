"""One table as files of every kind, and in memory."""

import csv

import numpy as np

from dpmcmc import models, tables

BOUNDS = {"age": (20, 80), "income": (0.0, 1e5)}
MODEL = models.logistic(2, radius=1.5, intercept=True)
LEVELS = {"positive": "yes", "negative": "no"}


def columns_of(number, seed=0):
    """Cells with everything that files have: cells beyond the bounds, and missing ones."""
    generator = np.random.default_rng(seed)
    age = generator.normal(50, 15, number)
    income = generator.lognormal(10, 1, number)
    is_ill = generator.random(number) < 1 / (1 + np.exp(-(age - 50) / 20))
    age[::97] = np.nan
    label = np.where(is_ill, "yes", "no").astype(object)
    label[::89] = "maybe"
    return {"age": age, "income": income, "ill": label}


def write(path, columns):
    """The table as a file with this ending."""
    if path.suffix == ".csv":
        with path.open("w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(columns)
            writer.writerows(
                [repr(float(age)), repr(float(income)), ill]
                for age, income, ill in zip(*columns.values(), strict=True)
            )
        return path
    import pyarrow as pa
    import pyarrow.feather
    import pyarrow.parquet

    table = pa.table({name: list(cells) for name, cells in columns.items()})
    if path.suffix == ".parquet":
        pyarrow.parquet.write_table(table, path, row_group_size=700)
    else:
        pyarrow.feather.write_feather(table, path)
    return path


def rows_of(columns):
    """The rows that a dataset of these columns has."""
    return tables.scaled(columns, BOUNDS), tables.labels(columns["ill"], **LEVELS)


def opened(paths, **options):
    """The dataset of such files."""
    return tables.dataset(paths, BOUNDS, "ill", **LEVELS, **options)
