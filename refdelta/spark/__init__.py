"""refdelta on Spark, and delta-spark as the oracle of cross-checks."""

from refdelta.spark.executor import SparkExecutor
from refdelta.spark.failures import SparkUnavailableError
from refdelta.spark.frames import read
from refdelta.spark.registering import register, typed_errors
from refdelta.spark.writing import write

__all__ = ["SparkExecutor", "SparkUnavailableError", "read", "register", "typed_errors", "write"]
