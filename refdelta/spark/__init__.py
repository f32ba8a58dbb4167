"""refdelta on Spark, and delta-spark as the oracle of cross-checks."""

from refdelta.spark.failures import SparkUnavailableError
from refdelta.spark.frames import read

__all__ = ["SparkUnavailableError", "read"]
