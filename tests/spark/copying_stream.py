"""A Spark program of one stream, from the table ``FOLDER/from`` into the table ``FOLDER/to``, that is killed.

``python -m spark.copying_stream FOLDER`` prints the process id of its Spark's Java first, and ends when all that there
was is copied.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import SparkSession

from refdelta.spark import register
from spark.killed_stream import SETTINGS


def main(folder: Path) -> None:
    builder = SparkSession.builder.master("local[2]").config(map=SETTINGS)
    spark = builder.config("spark.local.dir", str(folder / "local")).getOrCreate()
    print(spark.sparkContext._gateway.proc.pid, flush=True)
    register(spark)
    reader = spark.readStream.format("refdelta").option("maxFilesPerTrigger", 2).option("skipChangeCommits", "true")
    writer = reader.load(str(folder / "from")).writeStream.format("refdelta")
    writer = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True)
    writer.start(str(folder / "to")).awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
