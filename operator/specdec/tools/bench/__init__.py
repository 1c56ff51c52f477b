"""The report of a benchmark: table, page and plots."""
