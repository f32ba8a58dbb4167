"""Pruning: the files that can hold a row for which a predicate is true, by statistics and partition values."""
