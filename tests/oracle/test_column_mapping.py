"""Mapped columns and changed types (PROTOCOL.md, "Column Mapping", "Type Widening"), in turns with delta-spark."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest

import spark_tables
from comparison import assert_same_table
from refdelta import DeltaTable, errors, write_deltalake
from refdelta.crosscheck import oracle
from refdelta.table.types import every_field, field_id, physical_name
from written_tables import schema_of

pytestmark = pytest.mark.spark

NESTED = pa.struct([("x", pa.int32()), ("y z", pa.list_(pa.struct([("deep", pa.int16())])))])
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("s", NESTED),
        ("m", pa.map_(pa.string(), pa.struct([("q", pa.float32())]))),
        ("part", pa.string()),
        ("d", pa.date32()),
        ("n", pa.decimal128(5, 2)),
    ]
)
ROWS = pa.table(
    {
        "id": [1, 2, 3, 4],
        "s": [{"x": 1, "y z": [{"deep": 1}, None]}, None, {"x": None, "y z": None}, {"x": 4, "y z": []}],
        "m": [[("k", {"q": 1.5})], None, [], [("a", None)]],
        "part": ["a", None, "b c", "a"],
        "d": [dt.date(2020, 1, 1), None, dt.date(1969, 12, 31), dt.date(1, 1, 1)],
        "n": [Decimal("1.25"), None, Decimal("-9.99"), Decimal("0.00")],
    },
    schema=SCHEMA,
)


def same(spark, path, count, **filters):
    """Both read the same rows, and with filters too, where each skips files by what the other noted of them."""
    ours = DeltaTable(path).to_pyarrow_table()
    assert ours.num_rows == count
    assert_same_table(ours, oracle.read_table(spark, path))
    for expected, sql in filters.items():
        assert DeltaTable(path).to_pyarrow_table(filters=sql).num_rows == int(expected.lstrip("n"))
        (found,) = spark_tables.sql(spark, path, f"SELECT count(*) FROM {{t}} WHERE {sql}").collect()
        assert found[0] == int(expected.lstrip("n"))


@pytest.mark.tier("nightly")
@pytest.mark.parametrize("mode", ["name", "id"])
@pytest.mark.parametrize("maker", ["spark", "refdelta"])
def test_turns_at_a_mapped_table(quick_spark, tmp_path, mode, maker):
    spark, path = quick_spark, tmp_path / "t"
    properties = {
        "delta.columnMapping.mode": mode,
        "delta.enableTypeWidening": "true",
        "delta.enableDeletionVectors": "true" if maker == "refdelta" else "false",
    }
    if maker == "spark":
        spark_tables.create(spark, path, SCHEMA, ["part"], properties)
        spark_tables.write(spark, path, ROWS, partition_by=["part"])
    else:
        write_deltalake(path, ROWS, partition_by=["part"], configuration=properties)
    same(spark, path, 4, n2="part = 'a'", n1="s.x > 1")

    def sql(statement):
        return spark_tables.sql(spark, path, statement)

    table = DeltaTable(path)
    # The engine renames, Spark writes; Spark renames, the engine writes.
    table.alter.rename_column("part", "p q")
    table.alter.rename_column("s.x", "an x")
    sql("INSERT INTO {t} VALUES (5, named_struct('an x', 5, 'y z', array()), map(), 'new', DATE'2021-02-03', 1)")
    sql("UPDATE {t} SET s.`an x` = 40 WHERE `p q` = 'a' AND id = 4")
    same(spark, path, 5, n1="`p q` = 'new'", n2="s.`an x` >= 5")
    sql("ALTER TABLE {t} RENAME COLUMN id TO `i d`")
    sql("ALTER TABLE {t} DROP COLUMN n")
    sql("ALTER TABLE {t} ADD COLUMNS (n STRING, s.more BIGINT)")
    table = DeltaTable(path)
    some = pa.struct([("an x", pa.int32()), ("more", pa.int64())])
    added = pa.table({"i d": [6], "n": ["text"], "p q": ["new"], "s": pa.array([{"an x": 6, "more": 60}], some)})
    write_deltalake(path, added, mode="append")
    table.update({"s.more": "50"}, predicate="`i d` = 5")
    table.delete("`i d` = 3")
    same(spark, path, 5, n1="n = 'text'", n2="s.more >= 50")
    # A dropped column does not return when either engine adds its name again.
    table.alter.drop_columns("d")
    table.alter.add_columns(pa.field("d", pa.int32()))
    merged = "MERGE INTO {t} t USING (SELECT 6L AS `i d`, 1 AS d UNION ALL SELECT 7L, 2) s ON t.`i d` = s.`i d` "
    sql(merged + "WHEN MATCHED THEN UPDATE SET d = s.d WHEN NOT MATCHED THEN INSERT (`i d`, d) VALUES (s.`i d`, s.d)")
    same(spark, path, 6, n2="d is not null")
    # Types change on either side, and each writes the wide ones.
    table = DeltaTable(path)
    table.alter.change_type("d", "decimal(12,2)")
    table.alter.change_type("m.value.q", "double")
    sql("ALTER TABLE {t} ALTER COLUMN s.`y z`.element.deep TYPE INT")
    sql("ALTER TABLE {t} ALTER COLUMN s.`an x` TYPE BIGINT")
    sql("INSERT INTO {t} (`i d`, d, m) VALUES (8, 0.25, map('w', named_struct('q', 1e300D)))")
    wide = {"an x": 2**40, "y z": [{"deep": 2**20}], "more": None}
    source = pa.table({"i d": [8, 9], "s": pa.array([wide, wide], schema_of_arrow(path, "s")), "new": [1.5, 2.5]})
    merging = DeltaTable(path).merge(source, "s.`i d` = t.`i d`", merge_schema=True)
    merging.when_matched_update_all().when_not_matched_insert_all().execute()
    same(spark, path, 8, n2="s.`an x` > 1000", n1="d = 0.25")
    DeltaTable(path).optimize.compact()
    same(spark, path, 8, n2="new > 1")
    sql("OPTIMIZE {t}")
    write_deltalake(path, pa.table({"i d": [100], "p q": ["z"]}), mode="append")
    write_deltalake(path, pa.table({"i d": [101], "p q": ["z"]}), mode="overwrite", predicate="`p q` = 'z'")
    DeltaTable(path).create_checkpoint()
    same(spark, path, 9, n1="`p q` = 'z'")
    ids = [field_id(field) for field in every_field(schema_of(path))]
    assert len(set(ids)) == len(ids)
    # Back over all of it, by either side.
    versions = DeltaTable(path).version()
    DeltaTable(path).restore(1)
    same(spark, path, 4)
    sql(f"RESTORE TABLE {{t}} TO VERSION AS OF {versions}")
    same(spark, path, 9, n2="new > 1")


def schema_of_arrow(path, name):
    return DeltaTable(path).schema().to_arrow().field(name).type


@pytest.mark.tier("nightly")
def test_a_table_is_mapped_late(quick_spark, tmp_path):
    spark, path = quick_spark, tmp_path / "t"
    plain = ROWS.select(["id", "m", "part", "d"])
    spark_tables.write(spark, path, plain, partition_by=["part"])
    DeltaTable(path).alter.set_table_properties({"delta.columnMapping.mode": "name"})
    same(spark, path, 4, n2="part = 'a'", n1="d > '1970-01-01'")
    spark_tables.sql(spark, path, "ALTER TABLE {t} RENAME COLUMN part TO `the part`")
    spark_tables.sql(spark, path, "INSERT INTO {t} VALUES (5, map(), 'x', DATE'2030-01-01')")
    write_deltalake(path, pa.table({"id": [6], "the part": ["x"], "m": pa.array([[("k", {"q": 2})]], ROWS["m"].type)}),
                    mode="append")  # fmt: skip
    same(spark, path, 6, n2="`the part` = 'x'", n1="d > '2029-01-01'")
    other = tmp_path / "other"
    write_deltalake(other, plain, partition_by=["part"])
    statement = "ALTER TABLE {t} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
    spark_tables.sql(spark, other, statement)
    # Both upgrade alike.
    ours, theirs = (
        [(f.name, physical_name(f)) for f in every_field(schema_of(one)) if f.name != "the part"]
        for one in (path, other)
    )
    assert [name for name in theirs if name[0] != "part"] == ours
    assert set(DeltaTable(path).protocol().writer_features) == set(DeltaTable(other).protocol().writer_features)
    assert DeltaTable(path).protocol().min_reader_version == DeltaTable(other).protocol().min_reader_version
    with pytest.raises(errors.InvalidArgumentError, match="cannot change"):
        DeltaTable(other).alter.set_table_properties({"delta.columnMapping.mode": "id"})
    # Back to where they were not mapped, both alike.
    spark_tables.sql(spark, other, "RESTORE TABLE {t} TO VERSION AS OF 0")
    DeltaTable(path).restore(0)
    for one in (path, other):
        same(spark, one, 4, n2="part = 'a'", n1="d > '1970-01-01'")
        configuration = DeltaTable(one).metadata().configuration
        assert not [name for name in configuration if name.startswith("delta.columnMapping")]
        assert not [f.name for f in every_field(schema_of(one)) if field_id(f) is not None]


def test_every_change_of_type_is_one_that_spark_allows(quick_spark, tmp_path):
    """The engine's table of widenings is delta-spark's, for every pair of types."""
    from refdelta.table.evolution import can_widen
    from refdelta.table.types import type_named

    spark = quick_spark
    names = ["byte", "short", "integer", "long", "float", "double", "date", "timestamp", "timestamp_ntz", "string",
             "decimal(3,0)", "decimal(10,0)", "decimal(12,2)", "decimal(14,3)", "decimal(20,0)", "decimal(20,10)",
             "decimal(38,18)", "boolean", "binary"]  # fmt: skip
    widening = spark._jvm.org.apache.spark.sql.delta.TypeWidening
    types = spark._jvm.org.apache.spark.sql.types.DataType
    theirs = {name: types.fromDDL({"long": "bigint"}.get(name, name)) for name in names}
    for old in names:
        for new in names:
            if old != new:
                wanted = widening.isTypeChangeSupported(theirs[old], theirs[new])
                assert can_widen(type_named(old), type_named(new)) == wanted, (old, new)
