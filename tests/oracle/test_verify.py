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


@pytest.mark.sample(test=1)
@pytest.mark.parametrize("name", TABLES)
def test_what_delta_spark_writes_is_sound(with_checksums, tmp_path, name):
    path = tmp_path / "t"
    spark_tables.sql(with_checksums, path, f"CREATE TABLE {{t}} ({COLUMNS}) USING delta {TABLES[name]}")
    for statement in (*STATEMENTS, *MORE.get(name, ())):
        spark_tables.sql(with_checksums, path, statement)
    report = verify(path, sample=None)
    assert [str(finding) for finding in report.findings] == []
    assert report.checked["checksums"] > 0
    assert report.newest == DeltaTable(path).version()


COPY = "INSERT INTO {t} SELECT id + 100, day, name, s, a FROM {t}"
# The properties of a table, the rest of its CREATE TABLE, and the statements after its first rows.
FEATURES = {
    "tracked": (
        {"enableRowTracking": "true", "enableDeletionVectors": "true", "enableInCommitTimestamps": "true"},
        "CLUSTER BY (id, day)",
        [STATEMENTS[2], MERGE, COPY, "OPTIMIZE {t}", "RESTORE TABLE {t} TO VERSION AS OF 2"],
    ),
    "mapped": (
        {"columnMapping.mode": "name", "enableChangeDataFeed": "true", "checkpointInterval": "2"},
        "PARTITIONED BY (day)",
        [
            STATEMENTS[2],
            "ALTER TABLE {t} RENAME COLUMN name TO title",
            "DELETE FROM {t} WHERE id = 1",
            "ALTER TABLE {t} ADD COLUMN more INT",
            "INSERT INTO {t} (id, more) VALUES (7, 8)",
            "ALTER TABLE {t} DROP COLUMN more",
        ],
    ),
    "V2 checkpoints": (
        {
            "checkpointPolicy": "v2",
            "checkpointInterval": "2",
            "checkpoint.writeStatsAsStruct": "true",
            "enableTypeWidening": "true",
            "columnMapping.mode": "id",
        },
        "PARTITIONED BY (day)",
        [COPY, "ALTER TABLE {t} ALTER COLUMN s.x TYPE BIGINT", MERGE, "INSERT OVERWRITE {t} SELECT * FROM {t}"],
    ),
    "constrained": (
        {"checkpointInterval": "2"},
        "",
        [
            "ALTER TABLE {t} ADD CONSTRAINT c CHECK (id > 0)",
            STATEMENTS[2],
            "ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableInCommitTimestamps' = 'true')",
            COPY,
        ],
    ),
}


@pytest.mark.tier("nightly")
@pytest.mark.parametrize("name", FEATURES)
def test_features_of_delta_spark_are_sound(quick_spark, tmp_path, name):
    spark, path = quick_spark, tmp_path / "t"
    properties, more, statements = FEATURES[name]
    listed = ", ".join(f"'delta.{key}' = '{value}'" for key, value in properties.items())
    made = f"CREATE TABLE {{t}} ({COLUMNS}) USING delta {more} TBLPROPERTIES ({listed})"
    for statement in (made, STATEMENTS[0], *statements):
        spark_tables.sql(spark, path, statement)
    report = verify(path, sample=None)
    # Where columns are mapped, its change files lie in folders of random names.
    known = {"cdf-5"} if name == "mapped" else set()
    assert [str(finding) for finding in report.findings if finding.clause not in known] == []
    assert report.newest == DeltaTable(path).version()
