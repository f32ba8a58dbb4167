"""Families of SQL functions over columns: the twins of :mod:`refdelta.core.expressions.library`."""
