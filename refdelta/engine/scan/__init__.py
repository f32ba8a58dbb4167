"""Planned reads: which files, which rows of them, by whom; change feed and sorting."""
