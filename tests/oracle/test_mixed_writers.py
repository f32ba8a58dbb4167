"""delta-spark takes turns at a table with refdelta and deltalake, while these two race.

Turns, and not all at once: delta-spark's store of the log for local files looks whether a version exists and then
renames over what is there, so that it may replace a commit of another process (spec_notes/divergences.md, "Writing at
the same time as other engines").
"""

from __future__ import annotations

import pytest

import spark_tables
from kills.engines import SCHEMA, one, race
from refdelta import DeltaTable, write_deltalake
from refdelta.crosscheck import oracle

pytestmark = pytest.mark.spark


def listed(table):
    return sorted(tuple(row.values()) for row in table.select(SCHEMA.names).to_pylist())


@pytest.mark.tier("nightly")
def test_delta_spark_between_two_that_race(quick_spark, fresh_path):
    path = fresh_path()
    write_deltalake(path, one("first", 0), configuration={"delta.checkpointInterval": "7"})
    expected = {("first", 0)}
    for turn, statement in enumerate(["DELETE FROM {t} WHERE n = 1", "UPDATE {t} SET n = 100 WHERE n = 2"]):
        there, _ = race(str(path), [f"refdelta-{turn}", f"deltalake-{turn}"], 5)
        spark_tables.write(quick_spark, path, one("spark", turn))
        spark_tables.sql(quick_spark, path, statement)
        expected |= there | {("spark", turn)}
        if turn == 0:
            expected = {(writer, n) for writer, n in expected if n != 1}
        else:
            expected = {(writer, 100 if n == 2 else n) for writer, n in expected}
        assert listed(DeltaTable(path).to_pyarrow_table()) == sorted(expected)
        assert listed(oracle.read_table(quick_spark, path)) == sorted(expected)
    table = DeltaTable(path)
    assert [info["version"] for info in table.history()] == list(range(table.version(), -1, -1))
