"""From files and data frames to rows, by public declarations. No error shows a cell."""

from dpmcmc.tables.columns import corners, indicators, labels, persons, scaled, simplex
from dpmcmc.tables.dataset import Dataset, dataset
from dpmcmc.tables.files import read_columns

__all__ = [
    "Dataset",
    "corners",
    "dataset",
    "indicators",
    "labels",
    "persons",
    "read_columns",
    "scaled",
    "simplex",
]
