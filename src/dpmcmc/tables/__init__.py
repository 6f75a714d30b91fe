"""Files -> rows, by what is declared in public. Nothing about a cell is ever told."""
