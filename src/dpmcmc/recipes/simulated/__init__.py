"""Settings by simulation: rows that are nobody's show which settings do best, and how well."""
