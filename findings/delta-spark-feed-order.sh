#!/usr/bin/env bash
# delta-spark: a stream of the change feed gives the inserts of a commit before its deletes, in other batches.
#
# A good guess: the changes of a version come in one batch, or, if maxFilesPerTrigger divides them, in an order in which
# they can be applied. Instead a commit that replaces rows by whole files (INSERT OVERWRITE) is divided, and the new rows
# come first: a program that applies each batch by key, as it may with the batches of whole commits, inserts the new
# rows and then deletes them, and is left with an empty copy of a table of three rows.
# Seen with delta-spark 4.4.0 on Spark 4.2.0 on 2026-11-28 and 2026-11-29.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

install_spark

expect <<'END'
maxFilesPerTrigger 1000: batches 1; the copy [(1, 'new'), (2, 'new'), (3, 'new')]
maxFilesPerTrigger 1: batches 6; the copy []
  insert (1, 'new')
  insert (2, 'new')
  insert (3, 'new')
  delete (1, 'old')
  delete (2, 'old')
  delete (3, 'old')
END

run <<'PYTHON'
import tempfile

from session import spark

path = f"{tempfile.mkdtemp()}/t"
spark.sql(
    f"CREATE TABLE delta.`{path}` (k INT, v STRING) USING delta PARTITIONED BY (k) "
    "TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')"
)
spark.sql(f"INSERT INTO delta.`{path}` VALUES (1, 'old'), (2, 'old'), (3, 'old')")
spark.sql(f"INSERT OVERWRITE delta.`{path}` VALUES (1, 'new'), (2, 'new'), (3, 'new')")


def batches(files):
    """The batches of the changes of version 2, each as a list of (change, key, value)."""
    found = []

    def keep(frame, _):
        found.append(sorted((row._change_type, row.k, row.v) for row in frame.collect()))

    options = {"readChangeFeed": "true", "startingVersion": "2", "maxFilesPerTrigger": str(files)}
    stream = spark.readStream.format("delta").options(**options).load(path).writeStream.foreachBatch(keep)
    stream.option("checkpointLocation", tempfile.mkdtemp()).trigger(availableNow=True).start().awaitTermination()
    return found


for files in (1000, 1):
    copy, found = dict.fromkeys((1, 2, 3), "old"), batches(files)
    for batch in found:
        for change, k, v in batch:  # sorted: the deletes of a batch come before its inserts
            if change == "delete":
                copy.pop(k, None)
            else:
                copy[k] = v
    print(f"maxFilesPerTrigger {files}: batches {len(found)}; the copy {sorted(copy.items())}")
for [(change, k, v)] in found:
    print(f"  {change} ({k}, '{v}')")
spark.stop()
PYTHON
