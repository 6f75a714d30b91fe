"""Files and data frames -> rows, by what is declared in public. Nothing about a cell is ever told."""

from dpmcmc.tables.columns import indicators, labels, read_columns, scaled

__all__ = ["indicators", "labels", "read_columns", "scaled"]
