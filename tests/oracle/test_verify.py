"""Tables that delta-spark writes, verified: it keeps the protocol, and where it does not the register says so."""

from __future__ import annotations

import pytest

import spark_tables
from refdelta import DeltaTable
from refdelta.verifier.run import verify

pytestmark = pytest.mark.spark

COLUMNS = "id BIGINT, day DATE, name STRING, s STRUCT<x: INT, t: TIMESTAMP>, a ARRAY<INT>"
ROWS = (
    "(1, DATE'2020-01-01', 'one', named_struct('x', 1, 't', TIMESTAMP'2020-01-01 00:00:00.123456'), array(1, 2)), "
    "(2, DATE'1500-02-28', null, null, null), "
    "(3, null, repeat('long', 20), named_struct('x', null, 't', null), array())"
)

# The properties of a table, and what more stands in its CREATE TABLE.
TABLES = {
    "plain": ({}, ""),
    "partitioned": ({}, "PARTITIONED BY (day)"),
    "clustered": ({}, "CLUSTER BY (id, day)"),
    "vectors": ({"enableDeletionVectors": "true", "checkpointInterval": "3"}, ""),
    "mapped": ({"columnMapping.mode": "name", "enableChangeDataFeed": "true"}, "PARTITIONED BY (day)"),
    "mapped by id": ({"columnMapping.mode": "id", "enableDeletionVectors": "true"}, ""),
    "tracked": ({"enableRowTracking": "true", "enableDeletionVectors": "true"}, ""),
    "tracked and mapped": ({"enableRowTracking": "true", "columnMapping.mode": "name"}, ""),
    "stamped": ({"enableInCommitTimestamps": "true", "checkpointInterval": "2"}, ""),
    "second checkpoints": ({"checkpointPolicy": "v2", "checkpointInterval": "2"}, ""),
    "structs": (
        {"checkpoint.writeStatsAsStruct": "true", "checkpoint.writeStatsAsJson": "false", "checkpointInterval": "2"},
        "PARTITIONED BY (day)",
    ),
    "changes": ({"enableChangeDataFeed": "true", "enableDeletionVectors": "true"}, ""),
    "widened": ({"enableTypeWidening": "true", "columnMapping.mode": "name"}, ""),
    "iceberg": ({"columnMapping.mode": "name", "enableIcebergCompatV1": "false"}, ""),
    "constrained": ({"constraints.c": "id > 0"}, ""),
}
MERGE = (
    "MERGE INTO {t} t USING (SELECT 3 AS k UNION ALL SELECT 99) u ON t.id = u.k "
    "WHEN MATCHED THEN UPDATE SET name = 'three' WHEN NOT MATCHED THEN INSERT (id) VALUES (k)"
)
STATEMENTS = (
    "INSERT INTO {t} VALUES " + ROWS,
    "INSERT INTO {t} VALUES " + ROWS.replace("(1,", "(11,").replace("(2,", "(12,").replace("(3,", "(13,"),
    "UPDATE {t} SET name = 'two' WHERE id = 2",
    "DELETE FROM {t} WHERE id = 12",
    MERGE,
    "OPTIMIZE {t}",
    "ALTER TABLE {t} ADD COLUMN more INT",
    "INSERT INTO {t} SELECT id + 100, day, name, s, a, 7 FROM {t}",
)
MORE = {
    "mapped": ["ALTER TABLE {t} RENAME COLUMN name TO title", "ALTER TABLE {t} DROP COLUMN more"],
    "mapped by id": ["ALTER TABLE {t} RENAME COLUMN name TO title", "REORG TABLE {t} APPLY (PURGE)"],
    "vectors": ["REORG TABLE {t} APPLY (PURGE)", "RESTORE TABLE {t} TO VERSION AS OF 4"],
    "tracked": ["RESTORE TABLE {t} TO VERSION AS OF 3", "REORG TABLE {t} APPLY (PURGE)"],
    "widened": ["ALTER TABLE {t} ALTER COLUMN more TYPE BIGINT", "INSERT INTO {t} (id, more) VALUES (1, 9999999999)"],
    "partitioned": ["INSERT OVERWRITE {t} SELECT * FROM {t} WHERE id < 10"],
    "plain": ["ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableInCommitTimestamps' = 'true')", "DELETE FROM {t}"],
}


@pytest.mark.parametrize("name", TABLES)
def test_what_delta_spark_writes_is_sound(spark, tmp_path, name):
    path = tmp_path / "t"
    properties, more = TABLES[name]
    listed = ", ".join(f"'delta.{key}' = '{value}'" for key, value in properties.items())
    text = f"CREATE TABLE {{t}} ({COLUMNS}) USING delta {more} "
    constraint = properties.get("constraints.c")
    if constraint is None and listed:
        text += f"TBLPROPERTIES ({listed})"
    spark_tables.sql(spark, path, text)
    if constraint is not None:
        spark_tables.sql(spark, path, f"ALTER TABLE {{t}} ADD CONSTRAINT c CHECK ({constraint})")
    for statement in (*STATEMENTS, *MORE.get(name, ())):
        spark_tables.sql(spark, path, statement)
    report = verify(path, sample=None)
    assert [str(finding) for finding in report.findings] == []
    assert report.checked["checksums"] > 0
    assert report.newest == DeltaTable(path).version()
