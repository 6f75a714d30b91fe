"""Files and data frames -> rows, by what is declared in public.

Nothing about a cell is ever told.
"""

from dpmcmc.tables.columns import (
    corners,
    indicators,
    labels,
    persons,
    read_columns,
    scaled,
    simplex,
)

__all__ = ["corners", "indicators", "labels", "persons", "read_columns", "scaled", "simplex"]
