"""char(n) columns and generated partitions, between refdelta and delta-spark: each reads the other's rows alike."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest

from comparison import assert_same_table
from refdelta import DeltaTable, verify, write_deltalake
from refdelta.crosscheck import oracle

pytestmark = pytest.mark.spark

COLUMNS = (
    "id INT, c CHAR(4), d CHAR(6), v VARCHAR(6), s STRING, "
    "n STRUCT<x: CHAR(3), y: STRING>, l ARRAY<CHAR(2)>, m MAP<CHAR(2), STRUCT<x: CHAR(3)>>, p CHAR(5)"
)
ROWS = """
(1, 'a', 'a', 'a', 'a', named_struct('x', 'a', 'y', 'b'), array('a', null), map('k', named_struct('x', 'z')), 'x'),
(2, 'ab', 'b', 'ab ', 'ab  ', named_struct('x', null, 'y', 'b'), array(), map(), 'x y'),
(3, 'abcd', 'abcd', 'abcd', 'abcd', null, null, null, 'xyz  '),
(4, null, null, null, null, null, null, null, null),
(5, 'é', 'é', 'é', 'é   ', named_struct('x', 'é', 'y', 'é'), array('é'), map('é', named_struct('x', null)), 'é')
"""
PREDICATES = [
    "c = 'a'",
    "c = 'a   '",
    "c = 'a     '",
    "c <=> 'ab'",
    "c <> 'a'",
    "c < 'b' AND c >= 'ab'",
    "c IN ('a', 'abcd', 'no')",
    "c IN ('a', 'abcd  ')",
    "c = d",
    "c < d",
    "c = s",
    "c = v",
    "c LIKE 'a'",
    "c LIKE 'a%'",
    "length(c) = 4",
    "upper(c) = 'A'",
    "n.x = 'a'",
    "n.x = 'a  '",
    "p = 'x'",
    "p > 'x'",
    "p IN ('x', 'é')",
    "p = 'x y' OR d = 'é'",
    "p = c",
    "CASE c WHEN 'a' THEN true ELSE false END",
    "rpad(c, 6) = d",
    "v = 'ab'",
]


def chosen(spark, name, sql):
    return sorted(row.id for row in spark.sql(f"SELECT id FROM {name} WHERE {sql}").collect())


@pytest.mark.tier("nightly")
def test_char_columns_are_read_and_compared_alike(quick_spark, tmp_path):
    spark, path = quick_spark, tmp_path / "t"
    name = oracle.identifier(path)
    spark.sql(f"CREATE TABLE {name} ({COLUMNS}) USING delta PARTITIONED BY (p)")
    spark.sql(f"INSERT INTO {name} VALUES {ROWS}")
    table = DeltaTable(path)
    theirs = oracle.read_table(spark, path)
    assert_same_table(table.to_pyarrow_table(), theirs)
    for row in table.to_pyarrow_table().to_pylist():
        assert row["c"] is None or (len(row["c"]), len(row["d"]), len(row["p"])) == (4, 6, 5)
    differ = {
        sql: (ours, chosen(spark, name, sql))
        for sql in PREDICATES
        if (ours := sorted(table.to_pyarrow_table(filters=sql)["id"].to_pylist())) != chosen(spark, name, sql)
    }
    assert not differ
    # Spark pads what it compares but the bounds of BETWEEN, where a value is then greater than itself.
    assert table.to_pyarrow_table(filters="c BETWEEN 'a' AND 'ab'")["id"].to_pylist() == [1, 2]
    assert chosen(spark, name, "c BETWEEN 'a' AND 'ab'") == [1]
    # And what is written here.
    write_deltalake(path, pa.table({"id": pa.array([6], pa.int32()), "c": ["q"], "p": ["w"]}), mode="append")
    table = DeltaTable(path)
    table.update({"d": "'chg'"}, predicate="c = 'q' AND p = 'w'")
    table.delete("p = 'x' AND c IN ('a')")
    assert_same_table(table.to_pyarrow_table(), oracle.read_table(spark, path))
    spark.sql(f"DELETE FROM {name} WHERE p = 'w' AND d = 'chg'")
    assert sorted(DeltaTable(path).to_pyarrow_table()["id"].to_pylist()) == [2, 3, 4, 5]
    assert not [found for found in verify(path).findings if found.severity == "error"]


def test_partitions_generated_in_another_time_zone_are_left_out_rightly(quick_spark, tmp_path):
    spark, path = quick_spark, tmp_path / "t"
    name = oracle.identifier(path)
    zone = spark.conf.get("spark.sql.session.timeZone")
    try:
        spark.conf.set("spark.sql.session.timeZone", "Pacific/Auckland")
        spark.sql(
            f"CREATE TABLE {name} (id INT, at TIMESTAMP, s STRING, day DATE GENERATED ALWAYS AS (CAST(at AS DATE)), "
            "y INT GENERATED ALWAYS AS (YEAR(at)), mo INT GENERATED ALWAYS AS (MONTH(at)), "
            "h STRING GENERATED ALWAYS AS (DATE_FORMAT(at, 'yyyy-MM-dd-HH')), "
            "f STRING GENERATED ALWAYS AS (SUBSTRING(s, 1, 1))) USING delta PARTITIONED BY (day, y, mo, h, f)"
        )
        times = ["1969-12-31 11:59:59Z", "1970-01-01 00:00:00Z", "2024-01-31 10:59:59Z", "2024-01-31 11:00:00Z"]
        values = ", ".join(f"({n}, TIMESTAMP '{text}', '{text[:n]}')" for n, text in enumerate(times))
        spark.sql(f"INSERT INTO {name} (id, at, s) VALUES {values}")
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    table = DeltaTable(path)
    known = {row["id"]: row["at"] for row in table.to_pyarrow_table(columns=["id", "at"]).to_pylist()}
    for at in known.values():
        for hours in (-20, 0, 20):
            bound = at + dt.timedelta(hours=hours)
            for op in ("<", "<=", "=", ">=", ">"):
                scan = table.scan(["id"], f"at {op} TIMESTAMP '{bound:%Y-%m-%d %H:%M:%S}'")
                expected = [n for n, time in sorted(known.items()) if _holds(time, op, bound)]
                assert sorted(scan.to_table()["id"].to_pylist()) == expected
    assert table.scan(["id"], "at >= TIMESTAMP '2020-01-01 00:00:00'").explain().pruned_by_partition == 2
    assert sorted(table.scan(["id"], "s = ''").to_table()["id"].to_pylist()) == [0]


def _holds(time, op, bound):
    return {"<": time < bound, "<=": time <= bound, "=": time == bound, ">=": time >= bound, ">": time > bound}[op]
