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

# What more stands in the CREATE TABLE.
TABLES = {
    "plain": "",
    "partitioned": "PARTITIONED BY (day)",
    "clustered": "CLUSTER BY (id, day)",
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
    "partitioned": ["INSERT OVERWRITE {t} SELECT * FROM {t} WHERE id < 10"],
    "plain": ["ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableInCommitTimestamps' = 'true')", "DELETE FROM {t}"],
}


@pytest.mark.parametrize("name", TABLES)
def test_what_delta_spark_writes_is_sound(spark, tmp_path, name):
    path = tmp_path / "t"
    spark_tables.sql(spark, path, f"CREATE TABLE {{t}} ({COLUMNS}) USING delta {TABLES[name]}")
    for statement in (*STATEMENTS, *MORE.get(name, ())):
        spark_tables.sql(spark, path, statement)
    report = verify(path, sample=None)
    assert [str(finding) for finding in report.findings] == []
    assert report.checked["checksums"] > 0
    assert report.newest == DeltaTable(path).version()


def test_row_ids_vectors_and_timestamps_of_delta_spark_are_sound(quick_spark, tmp_path):
    spark, path = quick_spark, tmp_path / "t"
    names = ("enableRowTracking", "enableDeletionVectors", "enableInCommitTimestamps")
    listed = ", ".join(f"'delta.{name}' = 'true'" for name in names)
    made = f"CREATE TABLE {{t}} ({COLUMNS}) USING delta CLUSTER BY (id, day) TBLPROPERTIES ({listed})"
    copied = "INSERT INTO {t} SELECT id + 100, day, name, s, a FROM {t}"
    restored = "RESTORE TABLE {t} TO VERSION AS OF 2"
    for statement in (made, STATEMENTS[0], STATEMENTS[2], MERGE, copied, "OPTIMIZE {t}", restored):
        spark_tables.sql(spark, path, statement)
    report = verify(path, sample=None)
    assert [str(finding) for finding in report.findings] == []
    assert report.newest == DeltaTable(path).version()
