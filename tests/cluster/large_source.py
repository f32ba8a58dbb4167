"""MERGEs of ever larger sources by a driver of little memory: ``python -m cluster.large_source FOLDER MEMORY ROWS...``.

Each source has so many rows of a KiB, which no part of is in the table or is inserted but a few: it stays with the
workers. Prints for each the most memory that the driver's Java and Python have had so far, and what the MERGE did.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import pyarrow as pa

from cluster import sessions
from refdelta import DeltaTable, write_deltalake
from refdelta.spark import SparkExecutor

KNOWN = 1000
EVERY = 5000


def main(folder: Path, memory: str, *sizes: int) -> None:
    path = str(folder / "t")
    write_deltalake(path, pa.table({"id": range(0, -KNOWN, -1), "text": ["known"] * KNOWN}))
    with sessions.cluster(folder, memory=memory) as spark:
        java = spark.sparkContext._gateway.proc.pid
        for number, size in enumerate(sizes):
            began = time.monotonic()
            # Half a KiB of random bytes as hexadecimal digits, which do not get much smaller on a disk.
            digits = ", ".join(f"sha2(concat(id, '/{part}/{number}'), 512)" for part in range(8))
            source = spark.range(0, size, 1, 8).selectExpr("id", f"concat({digits}) as text")
            merger = DeltaTable(path).merge(
                source, "s.id = t.id", executor=SparkExecutor(spark, broadcast_bytes=1 << 20)
            )
            merger = merger.when_matched_update({"text": "s.text"})
            done = merger.when_not_matched_insert_all(f"s.id % {EVERY} = 1").execute()
            told = {
                "source": size << 10,
                "metrics": done.metrics,
                "java": sessions.peak(java),
                "python": sessions.peak(os.getpid()),
                "seconds": round(time.monotonic() - began, 1),
            }
            print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:]))
