"""Tables with in-commit timestamps, which refdelta and delta-spark write in turns: one rising line of times."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from refdelta import DeltaTable, write_deltalake
from refdelta.engine.log.timestamps import version_at

pytestmark = pytest.mark.spark

ICT = "delta.enableInCommitTimestamps"
ROW = pa.table({"n": pa.array([1], pa.int64())})


def stamps(table: DeltaTable) -> list[int | None]:
    firsts = (table.store.get(f"_delta_log/{v:020d}.json").splitlines()[0] for v in range(table.version() + 1))
    return [json.loads(line)["commitInfo"].get("inCommitTimestamp") for line in firsts]


def check(spark: Any, path: Any) -> list[int | None]:
    """Both tell the same times and find the same versions by them; the stamps of the log."""
    table = DeltaTable(path)
    told = {entry["version"]: entry["timestamp"] for entry in table.history()}
    history = spark.sql(f"DESCRIBE HISTORY delta.`{path}`").select("version", "timestamp").collect()
    assert {row.version: round(row.timestamp.timestamp() * 1000) for row in history} == told
    found = stamps(table)
    assert [told[version] for version, stamp in enumerate(found) if stamp] == [stamp for stamp in found if stamp]
    assert sorted(told.values()) == [told[version] for version in sorted(told)]
    for version, stamp in enumerate(found):
        if stamp:
            assert version_at(table.store, stamp) == version
            at = spark.sql(f"SELECT timestamp_millis({stamp})").collect()[0][0].isoformat(sep=" ")
            sql = f"SELECT count(*) FROM delta.`{path}` TIMESTAMP AS OF '{at}'"
            assert spark.sql(sql).collect()[0][0] == DeltaTable(path, version=version).count()
    return found


@pytest.mark.tier("nightly")
@pytest.mark.parametrize("creator", ["refdelta", "delta-spark"])
def test_both_write_a_table_that_has_them_from_its_creation(spark, tmp_path, creator):
    if creator == "refdelta":
        write_deltalake(tmp_path, ROW, configuration={ICT: "true"})
    else:
        spark.sql(f"CREATE TABLE delta.`{tmp_path}` (n BIGINT) USING delta TBLPROPERTIES ('{ICT}' = 'true')")
    for _ in range(2):
        spark.sql(f"INSERT INTO delta.`{tmp_path}` VALUES (2)")
        write_deltalake(tmp_path, ROW, mode="append")
    spark.sql(f"DELETE FROM delta.`{tmp_path}` WHERE n = 2")
    DeltaTable(tmp_path).create_checkpoint()
    write_deltalake(tmp_path, ROW, mode="append")
    assert None not in check(spark, tmp_path)


@pytest.mark.sample(test=1)
@pytest.mark.parametrize("enabler", ["refdelta", "delta-spark"])
def test_both_turn_them_on_later(spark, tmp_path, enabler):
    write_deltalake(tmp_path, ROW)
    spark.sql(f"INSERT INTO delta.`{tmp_path}` VALUES (2)")
    if enabler == "refdelta":
        DeltaTable(tmp_path).alter.set_table_properties({ICT: "true"})
    else:
        spark.sql(f"ALTER TABLE delta.`{tmp_path}` SET TBLPROPERTIES ('{ICT}' = 'true')")
    configuration = DeltaTable(tmp_path).metadata().configuration
    write_deltalake(tmp_path, ROW, mode="append")
    spark.sql(f"INSERT INTO delta.`{tmp_path}` VALUES (2)")
    found = check(spark, tmp_path)
    assert [stamp is not None for stamp in found] == [False, False, True, True, True]
    assert configuration["delta.inCommitTimestampEnablementVersion"] == "2"
    assert configuration["delta.inCommitTimestampEnablementTimestamp"] == str(found[2])
    assert DeltaTable(tmp_path).metadata().configuration == configuration
