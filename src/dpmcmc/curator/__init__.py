"""Rows -> ratio -> clip -> exact sum -> noise or coin. The only place where rows are touched."""
