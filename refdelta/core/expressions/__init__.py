"""Expressions and predicates of Spark's SQL as typed trees: binding, casts, functions, their values row by row."""
