#!/usr/bin/env bash
# PySpark: partitionBy is dropped without a word when a stream is written to a Python data source.
#
# A good guess: a sink that takes no partitioning refuses partitionBy, as the same source does when it is written to as a
# batch. Instead the stream runs, its writer is not told of it, and rows of all keys come in one call; even a column
# that does not exist is accepted.
# Seen with pyspark 4.2.0 on 2026-11-29.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

java_17
install pyspark==4.2.0 pyarrow==26.0.1

expect <<'END'
a batch, partitionBy("k"): refused, IllegalArgumentException
a stream, partitionBy("k"): no error; options ['checkpointlocation'], keys in one call [0, 1]
a stream, partitionBy("missing"): no error; options ['checkpointlocation'], keys in one call [0, 1]
END

run <<'PYTHON'
import tempfile
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamWriter, DataSourceWriter, WriterCommitMessage

TOLD = Path(tempfile.mkdtemp()) / "told"


class Writer(DataSourceWriter):
    def write(self, rows):
        return WriterCommitMessage()


class StreamWriter(DataSourceStreamWriter):
    """Writes down what it is told: the options, and the keys of the rows of a call."""

    def __init__(self, options):
        self.options = options

    def write(self, rows):
        keys = sorted({row.k for row in rows})
        if keys:
            TOLD.write_text(f"options {sorted(dict(self.options))}, keys in one call {keys}")
        return WriterCommitMessage()


class Sink(DataSource):
    @classmethod
    def name(cls):
        return "sink"

    def schema(self):
        return "k INT, n INT"

    def writer(self, schema, overwrite):
        return Writer()

    def streamWriter(self, schema, overwrite):
        return StreamWriter(self.options)


spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.ui.enabled", "false")
    .config("spark.ui.showConsoleProgress", "false")
    .getOrCreate()
)
spark.sparkContext.setLogLevel("OFF")
spark.dataSource.register(Sink)
rows = f"{tempfile.mkdtemp()}/rows"
spark.range(4).selectExpr("int(id % 2) AS k", "int(id) AS n").coalesce(1).write.parquet(rows)
try:
    spark.read.parquet(rows).write.format("sink").partitionBy("k").mode("append").save()
    ended = "no error"
except PySparkException as error:
    ended = f"refused, {type(error).__name__}"
print(f'a batch, partitionBy("k"): {ended}')
for column in ("k", "missing"):
    stream = spark.readStream.schema("k INT, n INT").parquet(rows).writeStream.format("sink").partitionBy(column)
    stream = stream.option("checkpointLocation", tempfile.mkdtemp()).trigger(availableNow=True)
    stream.start().awaitTermination()
    print(f'a stream, partitionBy("{column}"): no error; {TOLD.read_text()}')
spark.stop()
PYTHON
