"""Planned reads: the files, their rows and the executor that reads them; change feed and sorting."""
