"""Lists, maps and decimals as writers of before Parquet's rules for them laid them out, which pyarrow cannot write."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from comparison import assert_same_rows
from handmade import PROTOCOL, add, field, lines, metadata, struct
from refdelta import DeltaTable
from refdelta.crosscheck import oracle

pytestmark = pytest.mark.spark


def array(of: Any) -> dict[str, Any]:
    return {"type": "array", "elementType": of, "containsNull": True}


PAIR = struct(field("x", "integer"), field("y", "string"))
MAP = {"type": "map", "keyType": "string", "valueType": "integer", "valueContainsNull": True}
OLD_PAIR = "{ optional int32 x; optional binary y (UTF8); }"
# A column's type, what stands in the file for it, and of two rows what is put there and what is read.
LAYOUTS: dict[str, tuple[Any, str, tuple[list[Any], list[Any]]]] = {
    "two levels": (
        array("integer"),
        "optional group c (LIST) { repeated int32 element; }",
        ([("c", [("element", 1), ("element", 2)])], [1, 2]),
    ),
    "no list at all": (array("integer"), "repeated int32 c;", ([("c", 1), ("c", 2)], [1, 2])),
    "avro": (
        array(PAIR),
        f"optional group c (LIST) {{ repeated group array {OLD_PAIR} }}",
        ([("c", [("array", [("x", 1), ("y", b"a")]), ("array", [])])], [{"x": 1, "y": "a"}, {"x": None, "y": None}]),
    ),
    "avro, one field": (
        array(struct(field("x", "integer"))),
        "optional group c (LIST) { repeated group array { optional int32 x; } }",
        ([("c", [("array", [("x", 1)]), ("array", [])])], [{"x": 1}, {"x": None}]),
    ),
    "thrift": (
        array(PAIR),
        f"optional group c (LIST) {{ repeated group c_tuple {OLD_PAIR} }}",
        ([("c", [("c_tuple", [("y", b"a")])])], [{"x": None, "y": "a"}]),
    ),
    "hive": (
        array("integer"),
        "optional group c (LIST) { repeated group bag { optional int32 array_element; } }",
        ([("c", [("bag", [("array_element", 1)]), ("bag", [])])], [1, None]),
    ),
    "lists in lists": (
        array(array("integer")),
        "optional group c (LIST) { repeated group array (LIST) { repeated int32 array; } }",
        ([("c", [("array", [("array", 1)]), ("array", [])])], [[1], []]),
    ),
    "hive's map": (
        MAP,
        "optional group c (MAP_KEY_VALUE) { repeated group map { required binary key (UTF8); optional int32 value; } }",
        ([("c", [("map", [("key", b"a"), ("value", 1)]), ("map", [("key", b"b")])])], [("a", 1), ("b", None)]),
    ),
    "odd names": (
        MAP,
        "optional group c (MAP) { repeated group entries { required binary k (UTF8); optional int32 v; } }",
        ([("c", [("entries", [("k", b"a"), ("v", 1)])])], [("a", 1)]),
    ),
    "a decimal of bytes": (
        "decimal(20,2)",
        "optional binary c (DECIMAL(20,2));",
        ([("c", (-125).to_bytes(2, "big", signed=True))], Decimal("-1.25")),
    ),
    "a wide decimal": (
        "decimal(5,2)",
        "optional fixed_len_byte_array(16) c (DECIMAL(5,2));",
        ([("c", (-125).to_bytes(16, "big", signed=True))], Decimal("-1.25")),
    ),
    "a name of few": ("string", "optional binary c (ENUM);", ([("c", b"RED")], "RED")),
}


def write(spark: Any, path: str, message: str, rows: list[list[Any]]) -> None:
    """A file of parquet-mr by the text of its schema; the fields of a row, and of a group, are pairs in their order."""
    jvm = spark._jvm
    schema = jvm.org.apache.parquet.schema.MessageTypeParser.parseMessageType(message)
    place = jvm.org.apache.hadoop.fs.Path(path)
    writer = jvm.org.apache.parquet.hadoop.example.ExampleParquetWriter.builder(place).withType(schema).build()

    def fill(group: Any, fields: list[Any]) -> Any:
        for name, value in fields:
            if isinstance(value, list):
                fill(group.addGroup(name), value)
            elif isinstance(value, bytes):
                group.add(name, jvm.org.apache.parquet.io.api.Binary.fromConstantByteArray(value))
            else:
                group.add(name, value)
        return group

    for row in rows:
        writer.write(fill(jvm.org.apache.parquet.example.data.simple.SimpleGroup(schema), row))
    writer.close()


def test_old_layouts_are_read_as_spark_reads_them(spark, tmp_path):
    columns = {f"c{number}": layout for number, layout in enumerate(LAYOUTS.values())}
    message = " ".join(
        text.replace(" c ", f" {name} ").replace(" c;", f" {name};").replace("c_tuple", f"{name}_tuple")
        for name, (_, text, _) in columns.items()
    )
    full = [
        (name, [(inner.replace("c_tuple", f"{name}_tuple"), rest) for inner, rest in value])
        if isinstance(value, list)
        else (name, value)
        for name, (_, _, (fields, _)) in columns.items()
        for _, value in fields
    ]
    write(spark, str(tmp_path / "a.parquet"), f"message m {{ {message} }}", [full, []])
    schema = struct(*(field(name, kind) for name, (kind, _, _) in columns.items()))
    size = (tmp_path / "a.parquet").stat().st_size
    (tmp_path / "_delta_log").mkdir()
    first = tmp_path / "_delta_log" / f"{0:020d}.json"
    first.write_bytes(lines(PROTOCOL, metadata(schema), add("a.parquet", size=size)))

    read = DeltaTable(str(tmp_path)).to_pyarrow_table()
    assert list(read.to_pylist()[0].values()) == [found for _, _, (_, found) in LAYOUTS.values()]
    assert_same_rows(read, oracle.read_table(spark, tmp_path))
