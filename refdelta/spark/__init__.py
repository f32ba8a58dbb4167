"""refdelta on Spark: reads and writes of DataFrames, the data source ``refdelta``, an executor for statements."""

from typing import Any

from refdelta.spark.executor import SparkExecutor
from refdelta.spark.failures import SparkJobCancelledError, SparkUnavailableError, check_session
from refdelta.spark.failures import raise_again as typed_errors
from refdelta.spark.frames import read
from refdelta.spark.writing import write

__all__ = [
    "SparkExecutor",
    "SparkJobCancelledError",
    "SparkUnavailableError",
    "read",
    "register",
    "typed_errors",
    "write",
]


def register(spark: Any) -> None:
    """Make the format ``refdelta`` known to a session: to ``spark.read``, ``df.write``, streams and temporary views.

    Reads take the options ``versionAsOf``, ``timestampAsOf``, ``filter`` (SQL) and ``storageOptions`` (a JSON object).
    Writes, in the modes ``append`` and ``overwrite`` that Spark knows for such a source, take ``partitionBy``
    (names between commas), ``replaceWhere``, ``partitionOverwriteMode``, ``mergeSchema``, ``overwriteSchema``,
    ``targetFileSize``, ``txnAppId`` with ``txnVersion``, ``userMetadata``, ``storageOptions``, and ``readsTarget``:
    ``true`` or the version of the table from which the rows are made. For the other modes, for table properties and
    for speed use :func:`refdelta.spark.read` and :func:`refdelta.spark.write`.

    Streams from a table (``spark.readStream``) take ``startingVersion`` (a number or ``latest``) or
    ``startingTimestamp``, ``maxFilesPerTrigger`` and ``maxBytesPerTrigger``, ``ignoreDeletes``, ``ignoreChanges``,
    ``skipChangeCommits``, ``excludeRegex`` (in Java's syntax), ``failOnDataLoss``, and ``storageOptions``.

    Streams into a table (``df.writeStream``), in the output modes ``append`` and ``complete``, take
    ``checkpointLocation``, ``partitionBy``, ``mergeSchema``, ``overwriteSchema`` (mode ``complete``),
    ``targetFileSize``, ``userMetadata``, ``storageOptions`` and ``readsTarget`` (``true`` where the rows are made from
    the table's newest version). Each batch is written once, by the id of the query and its own number; ``txnAppId`` is
    required only if Spark does not pass the id and the checkpoint cannot be read.

    In place of a path, each takes the options ``catalog`` (the URL of the database of a
    :class:`refdelta.catalog.SqlCatalog`, which the workers must reach, too) and ``table`` (a name in it).

    Spark looks a format up in the session of the thread: a thread that writes by it calls ``register``, too, and so
    does the main one after an interrupt, which Python answers in another thread of Spark's.

    Errors are raised as Spark's exceptions, with the class and a code in the text; within ``typed_errors()`` they are
    raised with their own types.

    Raises:
        SparkUnavailableError: PySpark is not installed.
        InvalidArgumentError: ``spark`` is not a session.

    Example::

        refdelta.spark.register(spark)
        spark.read.format("refdelta").load("flights").count()
    """
    check_session(spark)
    from refdelta.spark.source import RefdeltaSource

    spark.dataSource.register(RefdeltaSource)
    type(spark)._get_j_spark_session_class(spark._jvm).setActiveSession(spark._jsparkSession)  # noqa: SLF001
