"""A Spark program of one stream, from a folder of Parquet files into a table, that is killed.

``python -m spark.killed_stream FOLDER [MOMENT]`` prints the process id of its Spark's Java first. At a moment the
stream's own code kills the driver, and in each batch before that a task that has written its files:

- ``committed``: behind the table's commit of the first batch, before Spark notes that it is done;
- ``zombie``: when all files of batch 1 are written, before the commit. The process that commits lives on, as it may in
  a cluster: it commits when another driver has, and leaves in ``FOLDER/zombie`` how that ended.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.sql import SparkSession

from refdelta import DeltaTable
from refdelta.spark import register
from refdelta.spark.source import RefdeltaSource
from refdelta.spark.source_writers import StreamWriter

# A young Java compiles nothing as fast as it runs these batches.
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}


def main(folder: Path, moment: str | None) -> None:
    builder = SparkSession.builder.master("local[2,4]").config(map=SETTINGS)
    spark = builder.config("spark.local.dir", str(folder / "local")).getOrCreate()
    java = spark.sparkContext._gateway.proc.pid
    print(java, flush=True)
    register(spark)
    if moment:
        spark.dataSource.register(dying(moment, java, str(folder)))
    frame = spark.readStream.schema("id long").option("maxFilesPerTrigger", 1).parquet(str(folder / "in"))
    query = frame.repartition(2).writeStream.format("refdelta").option("checkpointLocation", str(folder / "checkpoint"))
    query.trigger(availableNow=True).start(str(folder / "t")).awaitTermination()
    spark.stop()


def dying(moment: str, java: int, folder: str) -> type[RefdeltaSource]:
    """The data source, whose stream kills its driver."""

    class Writer(StreamWriter):
        def write(self, iterator: Any) -> Any:
            message = super().write(iterator)
            task: Any = TaskContext.get()
            if (task.partitionId(), task.attemptNumber()) == (0, 0):
                os.kill(os.getpid(), signal.SIGKILL)
            return message

        def commit(self, messages: list[Any], batchId: int) -> None:
            if (moment, batchId) != ("zombie", 1):
                super().commit(messages, batchId)
                if moment == "committed":
                    os.kill(java, signal.SIGKILL)
                return
            # Its Java takes along the processes of its workers where they let it.
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
            os.kill(java, signal.SIGKILL)
            give_up = time.monotonic() + 500
            while DeltaTable(Path(folder) / "t").version() == messages[0].base and time.monotonic() < give_up:
                time.sleep(0.05)
            try:
                super().commit(messages, batchId)
                ended = "committed"
            except Exception as error:
                ended = str(error)
            Path(folder, "zombie.new").write_text(ended)
            Path(folder, "zombie.new").rename(Path(folder, "zombie"))

    class Source(RefdeltaSource):
        def streamWriter(self, schema: Any, overwrite: bool) -> Any:
            return Writer(self.options, schema, overwrite=overwrite)

    return Source


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:] or [None])
