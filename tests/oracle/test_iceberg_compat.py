"""Tables that can be read as Iceberg's (PROTOCOL.md, "Iceberg Compatibility"), in turns with delta-spark."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import spark_tables
from comparison import assert_same_table
from refdelta import DeltaTable, errors, write_deltalake
from refdelta.crosscheck import oracle
from refdelta.table.column_mapping import nested_ids
from refdelta.table.types import field_id, physical_name
from written_tables import schema_of

pytestmark = pytest.mark.spark

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("p", pa.string()),
        ("l", pa.list_(pa.list_(pa.int32()))),
        ("m", pa.map_(pa.string(), pa.struct([("q", pa.list_(pa.float32()))]))),
        ("t", pa.timestamp("us", "UTC")),
    ]
)
ROWS = pa.table(
    {
        "id": [1, 2, 3],
        "p": ["a", None, "b"],
        "l": [[[1], None], None, []],
        "m": [[("k", {"q": [1.5]})], None, []],
        "t": [0, None, -1],
    },
    schema=SCHEMA,
)
V2 = {"delta.enableIcebergCompatV2": "true", "delta.columnMapping.mode": "name"}


def shape_of(path):
    """The Parquet schema of every live file: names and ids of columns, elements, keys and values."""

    def ids(field):
        yield field.name, int(field.metadata[b"PARQUET:field_id"])
        kind = field.type
        parts = list(kind) if pa.types.is_struct(kind) else []
        if pa.types.is_map(kind):
            parts = [kind.key_field, kind.item_field]
        elif pa.types.is_list(kind):
            parts = [kind.value_field]
        for part in parts:
            yield from ids(part)

    return {
        tuple(found for field in pq.ParquetFile(uri).schema_arrow for found in ids(field))
        for uri in DeltaTable(path).file_uris()
    }


def same(spark, path, count):
    ours = DeltaTable(path).to_pyarrow_table()
    assert ours.num_rows == count
    assert_same_table(ours, oracle.read_table(spark, path))


@pytest.mark.tier("nightly")
@pytest.mark.parametrize("maker", ["spark", "refdelta", "reorg"])
def test_both_write_the_same_files(quick_spark, tmp_path, maker):
    spark, path = quick_spark, tmp_path / "t"
    if maker == "spark":
        spark_tables.create(spark, path, SCHEMA, ["p"], V2)
        spark_tables.write(spark, path, ROWS, partition_by=["p"])
    elif maker == "refdelta":
        write_deltalake(path, ROWS, partition_by=["p"], configuration=V2)
    else:
        spark_tables.create(spark, path, SCHEMA, ["p"], {"delta.enableDeletionVectors": "true"})
        spark_tables.write(spark, path, pa.concat_tables([ROWS, ROWS.slice(0, 1)]), partition_by=["p"])
        spark_tables.write(spark, path, ROWS.slice(0, 0))
        DeltaTable(path).delete("id = 1")
        write_deltalake(path, ROWS.slice(0, 1), mode="append")
        DeltaTable(path).reorg_upgrade_uniform(2)
    same(spark, path, 3)
    # Files of both have the same columns in the same order under the same ids, partition columns last.
    spark_tables.write(spark, path, ROWS)
    write_deltalake(path, ROWS, mode="append")
    (shape,) = shape_of(path)
    schema = schema_of(path)
    assert shape[-1] == (physical_name(schema.field("p")), field_id(schema.field("p")))
    for column in ("l", "m"):
        assert set(nested_ids(schema.field(column)).values()) <= {number for _, number in shape}
    assert len({number for _, number in shape}) == len(shape)
    # Either adds columns, and the other gives them what they need.
    spark_tables.sql(spark, path, "ALTER TABLE {t} ADD COLUMNS (theirs ARRAY<MAP<INT, STRING>>)")
    DeltaTable(path).alter.add_columns(pa.field("ours", pa.map_(pa.string(), pa.list_(pa.int32()))))
    spark_tables.sql(
        spark, path, "INSERT INTO {t} (id, p, theirs, ours) VALUES (9, 'z', array(map(1, 'x')), map('k', array(1)))"
    )
    write_deltalake(path, DeltaTable(path).to_pyarrow_table(filters="id = 9"), mode="append")
    newest = {shape for shape in shape_of(path) if len(shape) == max(map(len, shape_of(path)))}
    assert len(newest) == 1
    DeltaTable(path).optimize.compact()
    spark_tables.sql(spark, path, "DELETE FROM {t} WHERE id = 2")
    DeltaTable(path).update({"id": "30"}, predicate="id = 3")
    same(spark, path, 8)
    for log in (path / "_delta_log").glob("*.json"):
        for line in log.read_text().splitlines():
            if "add" in (action := json.loads(line)) and "deletionVector" not in action["add"]:
                assert json.loads(action["add"]["stats"])["numRecords"] >= 0


def test_both_refuse_the_same(quick_spark, tmp_path):
    spark, path = quick_spark, tmp_path / "t"
    write_deltalake(path, ROWS, partition_by=["p"], configuration=V2)
    for statement, change in (
        (
            "ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')",
            lambda: DeltaTable(path).alter.set_table_properties({"delta.enableDeletionVectors": "true"}),
        ),
        (
            "ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableIcebergCompatV1' = 'true')",
            lambda: DeltaTable(path).alter.set_table_properties({"delta.enableIcebergCompatV1": "true"}),
        ),
    ):
        with pytest.raises(Exception, match=r"(?i)iceberg_?compat"):
            spark_tables.sql(spark, path, statement)
        with pytest.raises(errors.InvalidArgumentError):
            change()
    assert DeltaTable(path).version() == 0
