"""Comparison with delta-spark, the oracle: the same reads, statements and histories by both engines."""
