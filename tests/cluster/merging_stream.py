"""A Spark program of one stream whose batches are merged into a table.

``python -m cluster.merging_stream FOLDER NUMBER MASTER``: the number is that of the start, the master Spark's. Each
file of ``FOLDER/in`` is a batch. The amounts of keys that are there are added up, so that a batch that is merged twice,
or not at all, shows. It prints a line when its session has started.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from cluster import sessions
from refdelta import DeltaTable
from refdelta.errors import ConcurrentModificationError
from refdelta.spark import SparkExecutor


def main(folder: Path, number: str, master: str) -> None:
    own = folder / f"session{number}"
    own.mkdir()
    with sessions.cluster(own, conf={"spark.master": master}) as spark:
        print("{}", flush=True)
        executor = SparkExecutor(spark, group_bytes=1, broadcast_bytes=0)

        def merge(batch: Any, number: int) -> None:
            while True:
                merger = DeltaTable(str(folder / "t")).merge(
                    batch, "s.key = t.key", executor=executor, app_id="merging", app_version=number
                )
                merger = merger.when_matched_update({"amount": "t.amount + s.amount", "times": "t.times + 1"})
                merger = merger.when_not_matched_insert({"key": "s.key", "amount": "s.amount", "times": "1"})
                try:
                    merger.execute()
                except ConcurrentModificationError:
                    continue
                return

        stream = spark.readStream.schema("key long, amount long").option("maxFilesPerTrigger", 1)
        writer = stream.parquet(str(folder / "in")).writeStream.foreachBatch(merge)
        writer = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True)
        writer.start().awaitTermination()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
