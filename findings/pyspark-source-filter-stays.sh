#!/usr/bin/env bash
# PySpark: a filter that was pushed into a Python data source stays there for later queries of the same DataFrame.
#
# A good guess: df.where("k = 1") is a new query, and df itself is what it was. Instead, if the source's reader takes the
# filter by pushFilters and leaves out what it does not match, as the method is there for, df.count() gives the filtered
# rows from then on, without an error. A DataFrame that is loaded again is whole.
# Seen with pyspark 4.2.0 on 2026-11-29.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

java_17
install pyspark==4.2.0 pyarrow==26.0.1

expect <<'END'
df: 40 rows
df.where("k = 1"): 10 rows
df: 10 rows
df loaded again: 40 rows
END

run <<'PYTHON'
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, EqualTo, InputPartition


class Reader(DataSourceReader):
    """Ten rows for each of four keys, or for the key that a filter names."""

    keys = range(4)

    def pushFilters(self, filters):
        for one in filters:
            if isinstance(one, EqualTo) and one.attribute == ("k",):
                self.keys = [one.value]
            yield one  # Spark applies it, too

    def partitions(self):
        return [InputPartition(key) for key in self.keys]

    def read(self, partition):
        yield from ((partition.value, number) for number in range(10))


class Source(DataSource):
    @classmethod
    def name(cls):
        return "forty"

    def schema(self):
        return "k INT, n INT"

    def reader(self, schema):
        return Reader()


spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.ui.enabled", "false")
    .config("spark.ui.showConsoleProgress", "false")
    .config("spark.sql.python.filterPushdown.enabled", "true")
    .getOrCreate()
)
spark.sparkContext.setLogLevel("OFF")
spark.dataSource.register(Source)
df = spark.read.format("forty").load()
print("df:", df.count(), "rows")
print('df.where("k = 1"):', df.where("k = 1").count(), "rows")
print("df:", df.count(), "rows")
print("df loaded again:", spark.read.format("forty").load().count(), "rows")
spark.stop()
PYTHON
