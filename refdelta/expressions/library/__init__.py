"""Families of SQL functions: their tables are united in :mod:`refdelta.expressions.functions`."""
