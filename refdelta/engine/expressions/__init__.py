"""Predicates and values over columns, and SQL as text."""
