"""TPC-H as a pipeline on Spark, over refdelta's tables and over delta-spark's: ``python -m pipeline --help``."""
