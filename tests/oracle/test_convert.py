"""CONVERT by either engine of the same folder: the same table, and each goes on with the other's."""

from __future__ import annotations

import json
import shutil

import pyarrow as pa
import pytest

from comparison import assert_same_table
from refdelta import DeltaTable, convert_to_deltalake, write_deltalake
from refdelta.core.log.paths import same_path
from refdelta.crosscheck import oracle

pytestmark = pytest.mark.spark

QUERY = """
SELECT id, concat('n', id) AS name, named_struct('x', id, 'l', array(id, null)) AS s, map('k', id) AS m,
       timestamp_seconds(id * 1000000) AS at, date_from_unix_date(id) AS day, cast(id AS decimal(12, 2)) AS d,
       CASE WHEN id % 3 = 0 THEN null ELSE concat('a/b c%', id % 3, '=é') END AS p, cast(id % 2 AS int) AS q
FROM range(20)
"""


def state(path):
    table = DeltaTable(path)
    log = (table.store.get(f"_delta_log/{0:020d}.json")).splitlines()
    adds = [found["add"] for found in map(json.loads, log) if "add" in found]
    files = sorted((same_path(a["path"]), sorted(a["partitionValues"].items(), key=str), a["size"]) for a in adds)
    metadata = table.metadata()
    return metadata.schema_string, metadata.partition_columns, metadata.configuration, table.protocol(), files


@pytest.mark.tier("nightly")
@pytest.mark.parametrize("timestamps", ["INT96", "TIMESTAMP_MICROS"])
def test_both_make_the_same_table_of_a_folder(quick_spark, tmp_path, timestamps):
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    quick_spark.conf.set("spark.sql.parquet.outputTimestampType", timestamps)
    try:
        frame = quick_spark.sql(QUERY)
        frame.coalesce(1).write.partitionBy("p", "q").parquet(str(theirs))
        wider = frame.withColumn("more", frame.id + 1)
        wider.coalesce(1).write.mode("append").partitionBy("p", "q").parquet(str(theirs))
    finally:
        quick_spark.conf.unset("spark.sql.parquet.outputTimestampType")
    shutil.copytree(theirs, ours)

    quick_spark.sql(f"CONVERT TO DELTA parquet.`{theirs}` PARTITIONED BY (p STRING, q INT)")
    convert_to_deltalake(ours, partition_by={"p": "string", "q": "integer"})

    assert state(ours) == state(theirs)
    rows = DeltaTable(ours).to_pyarrow_table()
    assert rows.num_rows == 40
    assert_same_table(oracle.read_table(quick_spark, ours), rows)
    assert_same_table(DeltaTable(theirs).to_pyarrow_table(), rows)
    for path in (ours, theirs):
        table = DeltaTable(path)
        table.delete("id < 5")
        write_deltalake(table, rows.slice(0, 1), mode="append")
        quick_spark.sql(f"UPDATE {oracle.identifier(path)} SET name = 'x' WHERE id > 15")
        assert_same_table(oracle.read_table(quick_spark, path), DeltaTable(path).to_pyarrow_table())
        assert pa.compute.sum(DeltaTable(path).to_pyarrow_table(filters="name = 'x'")["id"]).as_py() == 2 * 70
