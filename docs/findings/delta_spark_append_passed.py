"""delta-spark: three statements at WriteSerializable of which no serial order explains the rows that are left.

Needs pyspark and delta-spark only, and Java 17: ``python delta_spark_append_passed.py``.
"""

import json
import tempfile
import threading
import time
from pathlib import Path

import delta
import pyspark
from pyspark.sql import SparkSession
from pyspark.sql.types import BooleanType

builder = SparkSession.builder.master("local[4]").config("spark.ui.showConsoleProgress", "false")
builder = builder.config("spark.ui.enabled", "false").config("spark.databricks.delta.snapshotPartitions", "1")
builder = builder.config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
builder = builder.config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
spark = delta.configure_spark_with_delta_pip(builder).getOrCreate()
spark.sparkContext.setLogLevel("OFF")

folder = Path(tempfile.mkdtemp())
table, reads, goes_on = f"delta.`{folder}/t`", folder / "reads", folder / "goes-on"
spark.sql(f"CREATE TABLE {table} (p INT, what STRING, n BIGINT) USING delta PARTITIONED BY (p)")
# delta-spark keeps to this level, but does not set it: another writer does, here by a commit of its own.
log = folder / "t/_delta_log"
actions = [json.loads(line) for line in (log / f"{0:020}.json").read_text().splitlines()]
metadata = next(action for action in actions if "metaData" in action)
metadata["metaData"]["configuration"]["delta.isolationLevel"] = "WriteSerializable"
(log / f"{1:020}.json").write_text(json.dumps(metadata) + "\n")
spark.sql(f"INSERT INTO {table} VALUES (0, 'old', 1)")


def waits(what):
    """True, once the other statements have committed: the DELETE has read the table by then."""
    reads.touch()
    while not goes_on.exists():
        time.sleep(0.1)
    return what is not None


spark.udf.register("waits", waits, BooleanType())
ended = {}


def delete():
    try:
        spark.sql(f"DELETE FROM {table} WHERE p = 0 AND waits(what)")
        ended["delete"] = "committed"
    except Exception as error:  # noqa: BLE001 - whatever it is, it is printed
        ended["delete"] = f"refused: {str(error).splitlines()[0]}"


thread = threading.Thread(target=delete)
thread.start()
while thread.is_alive() and not reads.exists():
    time.sleep(0.1)
spark.sql(f"INSERT INTO {table} VALUES (0, 'new', 1)")
spark.sql(f"INSERT INTO {table} SELECT 3, 'rows of 0', count(*) FROM {table} WHERE p = 0")
goes_on.touch()
thread.join()

print("delta-spark", delta.__version__ if hasattr(delta, "__version__") else "", "on Spark", pyspark.__version__)
history = spark.sql(f"DESCRIBE HISTORY {table}").orderBy("version").collect()
for one in history[2:]:
    print(f"version {one.version}: {one.operation}, read {one.readVersion}, blind {one.isBlindAppend}")
print("the DELETE:", ended["delete"])
found = sorted((row.p, row.what, row.n) for row in spark.sql(f"SELECT * FROM {table}").collect())
print("rows:", found)
spark.stop()
