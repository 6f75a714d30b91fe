"""From files and data frames to rows, by public declarations. No error shows a cell."""

from dpmcmc.tables.columns import corners, indicators, labels, persons, scaled, simplex
from dpmcmc.tables.files import read_columns

__all__ = ["corners", "indicators", "labels", "persons", "read_columns", "scaled", "simplex"]
