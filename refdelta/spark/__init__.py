"""refdelta on Spark, and delta-spark as the oracle of cross-checks."""
