"""Statements in Spark's SQL: each is a method of the API, with the expressions as they are written."""
