"""Expressions and predicates of Spark's SQL as typed trees: binding, casts, functions, SQL text, their columns."""
