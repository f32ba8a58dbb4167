"""Variants both ways: shredded by Spark and read here, written here and read by Spark."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import handmade
import spark_tables
from refdelta import DeltaTable, variants, write_deltalake
from refdelta.crosscheck import oracle

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
    "struct(1 AS a, 'x' AS b)": {"a": 1, "b": "x"},
}


def declared(path, files):
    """Make a table with variants of Parquet files that Spark wrote into its folder."""
    fields = [handmade.field("id", "long"), handmade.field("v", "variant")]
    features = ["variantType", "variantShredding-preview"]  # delta-spark 4.4 has no other name
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": features, "writerFeatures": features}
    actions = [{"protocol": protocol}, handmade.metadata(handmade.struct(*fields))]
    actions += [handmade.add(file.name, size=file.stat().st_size) for file in files]
    (path / "_delta_log").mkdir()
    (path / "_delta_log" / f"{0:020}.json").write_bytes(handmade.lines(*actions))


def test_variants_that_spark_shredded_are_put_together(spark, tmp_path):
    texts = TEXTS * 3
    rows = " UNION ALL ".join(f"SELECT {i}L AS id, parse_json('{text}') AS v" for i, text in enumerate(texts))
    settings = {
        "spark.sql.variant.writeShredding.enabled": "true",
        "spark.sql.variant.forceShreddingSchemaForTest": SHREDDED,
    }
    # delta-spark 4.4 itself cannot write what Spark is made to shred.
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        spark.sql(f"{rows} UNION ALL SELECT -1, NULL").coalesce(1).write.parquet(str(tmp_path / "t"))
    finally:
        for name in settings:
            spark.conf.unset(name)
    [file] = (tmp_path / "t").glob("*.parquet")
    assert "typed_value" in str(pq.ParquetFile(file).schema)
    declared(tmp_path / "t", [file])

    seen = {row["id"]: row["v"] for row in DeltaTable(tmp_path / "t").to_pyarrow_table().to_pylist()}
    assert seen == {i: json.loads(text, parse_float=Decimal) for i, text in enumerate(texts)} | {-1: None}
    theirs = oracle.frame(spark, tmp_path / "t").selectExpr("id", "to_json(v) v").collect()
    assert {row.id: row.v and json.loads(row.v, parse_float=Decimal) for row in theirs} == seen


def test_variants_of_spark_are_read(spark, tmp_path):
    path = tmp_path / "t"
    spark.sql(
        f"CREATE TABLE {oracle.identifier(path)} (id INT, v VARIANT, s STRUCT<v: VARIANT>, a ARRAY<VARIANT>, "
        "m MAP<STRING, VARIANT>) USING delta TBLPROPERTIES ('delta.enableVariantShredding' = 'true', "
        "'delta.enableDeletionVectors' = 'true')"
    )
    made = [f"parse_json('{text}')" for text in TEXTS] + [
        f"to_variant_object({sql})" if sql.startswith("struct") else f"CAST({sql} AS VARIANT)" for sql in VALUES
    ]
    want = [json.loads(text, parse_float=Decimal) for text in TEXTS] + list(VALUES.values())
    rows = [f"SELECT {i}, {v}, struct({v}), array({v}, NULL), map('k', {v})" for i, v in enumerate(made)]
    spark_tables.sql(
        spark, path, f"INSERT INTO {{t}} {' UNION ALL '.join(rows)} UNION ALL SELECT -1, NULL, NULL, NULL, NULL"
    )
    spark_tables.sql(spark, path, "DELETE FROM {t} WHERE id = 3")

    seen = {row["id"]: row for row in DeltaTable(path).to_pyarrow_table().to_pylist()}
    assert seen.pop(-1) == {"id": -1, "v": None, "s": None, "a": None, "m": None}
    assert seen.keys() == set(range(len(made))) - {3}
    for i, row in seen.items():
        assert (row["v"], type(row["v"])) == (want[i], type(want[i]))
        assert row == {"id": i, "v": want[i], "s": {"v": want[i]}, "a": [want[i], None], "m": [("k", want[i])]}


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
