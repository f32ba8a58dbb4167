"""delta-spark as the oracle: the same reads, statements and histories by both engines, compared."""
