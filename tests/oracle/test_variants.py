"""Variants both ways: shredded by Spark and read here, written here and read by Spark."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import spark_tables
from refdelta import DeltaTable, variants, write_deltalake
from refdelta.spark import oracle

pytestmark = pytest.mark.spark

TEXTS = [
    '{"a":1,"b":"x","c":[1,2]}', '{"a":2,"b":null,"c":[]}', '{"a":"no","b":"y"}', "17", "null", "{}", "[]",
    '{"a":5,"b":"zz","c":[3],"d":{"e":1.5,"f":true}}', '[1,{"a":2}]', '"text"',
    json.dumps({"a": 1.25, "b": "L" * 80, "é": "\U0001f600"}, ensure_ascii=False),
]  # fmt: skip
SHREDDED = "a BIGINT, b STRING, c ARRAY<BIGINT>, d STRUCT<e: DECIMAL(5,2), f: BOOLEAN>"
# One of each type that a variant has, as SQL writes it.
VALUES = {
    "CAST(7 AS TINYINT)": 7,
    "CAST(-32768 AS SMALLINT)": -32768,
    "CAST(2147483647 AS INT)": 2147483647,
    "CAST(-9223372036854775808 AS BIGINT)": -(2**63),
    "CAST(0.5 AS FLOAT)": 0.5,
    "CAST(1e300 AS DOUBLE)": 1e300,
    "CAST(1.25 AS DECIMAL(9,2))": Decimal("1.25"),
    "CAST(-12345678901.5 AS DECIMAL(18,4))": Decimal("-12345678901.5"),
    "CAST(12345678901234567890.123 AS DECIMAL(38,10))": Decimal("12345678901234567890.123"),
    "true": True,
    "X'00FF'": b"\x00\xff",
    "DATE'1500-01-01'": dt.date(1500, 1, 1),
    "TIMESTAMP'2020-01-01 01:02:03.456789'": dt.datetime(2020, 1, 1, 1, 2, 3, 456789, dt.UTC),
    "TIMESTAMP_NTZ'9999-12-31 23:59:59.999999'": dt.datetime(9999, 12, 31, 23, 59, 59, 999999),
    "array(1, NULL)": [1, None],
    "struct(1 AS a, 'x' AS b)": None,
}


@pytest.fixture(params=["true", "false"])
def shredding(spark, request):
    """Whether Spark shreds what it writes."""
    settings = {
        "spark.sql.variant.writeShredding.enabled": request.param,
        "spark.sql.variant.inferShreddingSchema": request.param,
    }
    if request.param == "true":
        settings["spark.sql.variant.forceShreddingSchemaForTest"] = SHREDDED
    for name, value in settings.items():
        spark.conf.set(name, value)
    yield request.param
    for name in settings:
        spark.conf.unset(name)


def test_variants_of_spark_are_read(spark, tmp_path, shredding):
    path = tmp_path / "t"
    spark.sql(
        f"CREATE TABLE {oracle.identifier(path)} (id BIGINT, v VARIANT, s STRUCT<v: VARIANT>, a ARRAY<VARIANT>, "
        f"m MAP<STRING, VARIANT>) USING delta TBLPROPERTIES ('delta.enableVariantShredding' = '{shredding}', "
        "'delta.enableDeletionVectors' = 'true')"
    )
    texts = [*TEXTS * 12, *TEXTS[:1]]
    parsed = [f"parse_json('{text}')" for text in texts]
    rows = [f"({i}, {v}, struct({v}), array({v}, NULL), map('k', {v}))" for i, v in enumerate(parsed)]
    spark_tables.sql(spark, path, f"INSERT INTO {{t}} VALUES {', '.join(rows)}, (-1, NULL, NULL, NULL, NULL)")
    spark_tables.sql(spark, path, "DELETE FROM {t} WHERE id % 5 = 1")
    shredded = ["typed_value" in str(pq.read_schema(file)) for file in path.glob("*.parquet")]
    assert any(shredded) == (shredding == "true")

    table = DeltaTable(path).to_pyarrow_table()
    seen = {row["id"]: row for row in table.to_pylist()}
    assert seen.pop(-1) == {"id": -1, "v": None, "s": None, "a": None, "m": None}
    assert len(seen) == sum(i % 5 != 1 for i in range(len(texts)))
    for i, row in seen.items():
        want = json.loads(texts[i], parse_float=Decimal)
        assert row == {"id": i, "v": want, "s": {"v": want}, "a": [want, None], "m": [("k", want)]}
    assert table["v"].null_count == 1


def test_each_type_of_a_variant(spark, tmp_path, shredding):
    path = tmp_path / "t"
    spark.sql(f"CREATE TABLE {oracle.identifier(path)} (id INT, v VARIANT) USING delta")
    rows = []
    for i, sql in enumerate(VALUES):
        made = f"to_variant_object({sql})" if "(1" in sql and not sql.startswith("CAST") else f"CAST({sql} AS VARIANT)"
        # Alike values side by side are what Spark takes columns from.
        rows += [f"SELECT {i}, {made} FROM range(5)"]
    for row in rows:
        spark_tables.sql(spark, path, f"INSERT INTO {{t}} {row}")
    want = dict(enumerate(VALUES.values())) | {len(VALUES) - 1: {"a": 1, "b": "x"}}
    found = DeltaTable(path).to_pyarrow_table().to_pylist()
    assert len(found) == 5 * len(VALUES)
    assert {row["id"]: (row["v"], type(row["v"])) for row in found} == {i: (v, type(v)) for i, v in want.items()}


def test_spark_reads_variants_of_ours(spark, tmp_path):
    path = tmp_path / "t"
    values = [json.loads(text, parse_float=Decimal) for text in TEXTS]
    values += [2**62, -1, 0.1, dt.date(1500, 1, 1), dt.datetime(1960, 1, 1, tzinfo=dt.UTC), b"\x00", "L" * 70]
    values += [{f"name {i}": i for i in range(300)}, list(range(300))]
    column = variants(values)
    ids = pa.array(range(len(values)), pa.int64())
    nested = pa.StructArray.from_arrays([column], ["v"])
    write_deltalake(
        path, pa.table({"id": ids, "v": column, "s": nested}), configuration={"delta.enableDeletionVectors": "true"}
    )
    DeltaTable(path).delete("id = 0")
    DeltaTable(path).update(updates={"v": "s.v"}, predicate="id = 1")

    frame = oracle.frame(spark, path).selectExpr("id", "to_json(v) v", "to_json(s.v) s", "schema_of_variant(v) kind")
    seen = {row.id: row for row in frame.collect()}
    assert seen.keys() == set(range(1, len(values)))
    for i, row in seen.items():
        assert row.v == row.s
        if isinstance(values[i], (dt.date, bytes)):
            assert row.kind == {dt.date: "DATE", dt.datetime: "TIMESTAMP", bytes: "BINARY"}[type(values[i])]
        elif values[i] is not None:
            assert json.loads(row.v, parse_float=type(values[i]) if values[i] == 0.1 else Decimal) == values[i]
    assert seen[TEXTS.index("null")].v == ("null" if values[TEXTS.index("null")] is not None else None)

    spark_tables.sql(spark, path, "INSERT INTO {t} SELECT 99, parse_json('[1]'), NULL")
    spark_tables.sql(spark, path, "UPDATE {t} SET v = parse_json('2') WHERE id = 3")
    ours = {row["id"]: row["v"] for row in DeltaTable(path).to_pyarrow_table().to_pylist()}
    assert ours == dict(list(enumerate(values))[1:]) | {99: [1], 3: 2}
