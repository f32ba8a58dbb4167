"""Scans: what the columns of files become, by column mapping and by their types."""

from __future__ import annotations

import datetime as dt
import decimal

import pyarrow as pa
import pytest

from handmade import MAPPED, Handmade, field, struct
from refdelta.errors import (
    DataFileError,
    UnsupportedFeatureError,
)
from refdelta_storage import LocalStore, MemoryStore
from scanned import rows, scan


def mapped(name, kind, number, physical):
    return field(name, kind, **{"delta.columnMapping.id": number, "delta.columnMapping.physicalName": physical})


NESTED = struct(
    mapped("a", "long", 1, "c1"),
    mapped(
        "n",
        struct(
            mapped("b", "string", 3, "c3"),
            mapped(
                "l",
                {"type": "array", "elementType": struct(mapped("e", "long", 5, "c5")), "containsNull": True},
                4,
                "c4",
            ),
        ),
        2,
        "c2",
    ),
    mapped(
        "m",
        {
            "type": "map",
            "keyType": "string",
            "valueType": struct(mapped("v", "long", 7, "c7")),
            "valueContainsNull": True,
        },
        6,
        "c6",
    ),
    mapped("p", "long", 8, "c8"),
)
LOGICAL = [
    {"a": 1, "n": {"b": "x", "l": [{"e": 1}, None, {"e": 2}]}, "m": [("k", {"v": 1})], "p": 9},
    {"a": 2, "n": None, "m": None, "p": 9},
    {"a": 3, "n": {"b": None, "l": None}, "m": [], "p": 9},
]


def with_ids(kind, ids):
    """An Arrow type whose fields carry Parquet field ids, by their names."""
    if pa.types.is_struct(kind):
        return pa.struct([with_id(item, ids) for item in kind])
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, with_ids(kind.item_type, ids))
    if pa.types.is_list(kind):
        return pa.list_(with_ids(kind.value_type, ids))
    return kind


def with_id(item, ids):
    found = {"PARQUET:field_id": str(ids[item.name])} if item.name in ids else None
    return pa.field(item.name, with_ids(item.type, ids), metadata=found)


PHYSICAL = pa.schema(
    [
        ("c1", pa.int64()),
        ("c2", pa.struct([("c3", pa.string()), ("c4", pa.list_(pa.struct([("c5", pa.int64())])))])),
        ("c6", pa.map_(pa.string(), pa.struct([("c7", pa.int64())]))),
    ]
)
CONTENT = [
    {"c1": 1, "c2": {"c3": "x", "c4": [{"c5": 1}, None, {"c5": 2}]}, "c6": [("k", {"c7": 1})]},
    {"c1": 2, "c2": None, "c6": None},
    {"c1": 3, "c2": {"c3": None, "c4": None}, "c6": []},
]


@pytest.fixture(params=["memory", "local"])
def store(request, tmp_path):
    """Local files are read by their paths, others through the store's streams."""
    return LocalStore(tmp_path) if request.param == "local" else MemoryStore()


def test_column_mapping_by_name(store):
    table = Handmade(NESTED, "p", protocol=MAPPED, configuration={"delta.columnMapping.mode": "name"}, store=store)
    content = pa.Table.from_pylist(CONTENT, PHYSICAL)
    table.commit(table.data("f", content, partitionValues={"c8": "9"}))
    assert rows(table) == LOGICAL
    assert rows(table, ["p", "n"], "n.b = 'x'") == [{"p": 9, "n": LOGICAL[0]["n"]}]
    assert rows(table, ["a"], "p = 9 and a > 2") == [{"a": 3}]


def test_column_mapping_by_id():
    table = Handmade(NESTED, "p", protocol=MAPPED, configuration={"delta.columnMapping.mode": "id"})
    # The names in the file mean nothing; and a wrong column has the name that a lookup by name would take.
    ids = {"c1": 1, "c2": 2, "c3": 3, "c4": 4, "c5": 5, "c6": 6, "c7": 7}
    schema = pa.schema([with_id(item, ids) for item in PHYSICAL])
    content = pa.Table.from_pylist(CONTENT, schema).append_column(
        pa.field("decoy", pa.int64(), metadata={"PARQUET:field_id": "99"}), pa.array([7, 7, 7])
    )
    names = ["z", "y", "x", "c1"]
    content = content.rename_columns(names)
    table.commit(table.data("f", content, partitionValues={"c8": "9"}))
    assert rows(table) == LOGICAL


def by_id(content, ids):
    """A table that is mapped by id, with one file."""
    table = Handmade(NESTED, "p", protocol=MAPPED, configuration={"delta.columnMapping.mode": "id"})
    schema = pa.schema([with_id(item, ids) for item in PHYSICAL])
    table.commit(table.data("f", pa.Table.from_pylist(content, schema), partitionValues={"c8": "9"}))
    return table


def test_a_file_without_field_ids_is_refused_where_columns_are_found_by_id():
    table = by_id(CONTENT, {})
    for columns, predicate in ((None, None), (["a"], None), (["p"], "a = 1"), (["n"], "p = 9")):
        with pytest.raises(DataFileError, match=r"^f: .*field ids"):
            scan(table, columns, predicate).to_table()
    # Neither is in the file.
    assert rows(table, ["p"]) == [{"p": 9}] * 3


@pytest.mark.parametrize(
    ("lost", "expected"),
    [
        ("c1", LOGICAL[0] | {"a": None}),
        ("c3", LOGICAL[0] | {"n": {"b": None, "l": LOGICAL[0]["n"]["l"]}}),
        ("c5", LOGICAL[0] | {"n": {"b": "x", "l": [{"e": None}, None, {"e": None}]}}),
        ("c7", LOGICAL[0] | {"m": [("k", {"v": None})]}),
        ("c1 c2 c6", {"a": None, "n": None, "m": None, "p": 9}),
    ],
)
def test_an_id_that_is_not_in_the_file_is_a_column_of_nulls(lost, expected):
    """Also where a column of the file has the physical name, at any depth."""
    ids = {f"c{number}": number for number in range(1, 8) if f"c{number}" not in lost}
    assert rows(by_id(CONTENT[:1], ids)) == [expected]


def test_a_mapping_counts_only_where_the_protocol_and_the_mode_have_it():
    schema = struct(mapped("a", "long", 1, "c1"))
    content = pa.table({"a": [1], "c1": [2]})
    for configuration, protocol in (({"delta.columnMapping.mode": "name"}, None), ({}, MAPPED)):
        table = Handmade(schema, configuration=configuration, **({"protocol": protocol} if protocol else {}))
        table.commit(table.data("f", content))
        assert rows(table) == [{"a": 1}]


@pytest.mark.parametrize(
    "change",
    [
        {"fromType": "long", "toType": "integer"},
        {"fromType": "string", "toType": "integer"},
        {"fromType": "long"},
        {"fromType": "long", "toType": "long long"},
        "long",
    ],
)
def test_changes_of_type_that_nobody_can_follow(change):
    table = Handmade(struct(field("a", "integer", **{"delta.typeChanges": [change]})))
    table.commit(table.data("f", pa.table({"a": pa.array([1], pa.int32())})))
    with pytest.raises(UnsupportedFeatureError, match="column a"):
        rows(table)


def test_names_in_another_case():
    table = Handmade(struct(field("Abc", "long"), field("N", struct(field("Inner", "long")))))
    table.commit(table.data("f", pa.table({"aBC": [1], "n": [{"INNER": 2}]})))
    assert rows(table) == [{"Abc": 1, "N": {"Inner": 2}}]


def test_a_name_with_dots_and_its_namesake():
    table = Handmade(struct(field("a.b", "long"), field("a", struct(field("b", "long")))), protocol=MAPPED)
    table.commit(table.data("f", pa.table({"a": [{"b": 1}], "a.b": [2]})))
    assert rows(table) == [{"a.b": 2, "a": {"b": 1}}]
    assert rows(table, ["a.b"]) == [{"a.b": 2}]


def test_columns_that_a_file_lacks_are_null_at_any_depth():
    inner = struct(field("old", "long"), field("new", "string"))
    table = Handmade(
        struct(
            field("x", "long"),
            field("later", "string"),
            field("s", inner),
            field("l", {"type": "array", "elementType": inner, "containsNull": True}),
            field("nothing", "void"),
        )
    )
    content = pa.table({"x": [1, 2], "s": [{"old": 1}, None], "l": [[{"old": 5}, None], None], "dropped": [0, 0]})
    table.commit(table.data("f", content))
    table.commit(table.data("g", pa.table({"dropped": [1]})))
    nothing = {"x": None, "later": None, "s": None, "l": None, "nothing": None}
    assert rows(table) == [
        nothing | {"x": 1, "s": {"old": 1, "new": None}, "l": [{"old": 5, "new": None}, None]},
        nothing | {"x": 2},
        nothing,
    ]
    assert rows(table, ["later"], "later is null") == [{"later": None}] * 3


D = decimal.Decimal
UTC = dt.UTC


@pytest.mark.parametrize(
    ("kind", "stored", "expected"),
    [
        ("long", pa.array([1, None], pa.int8()), [1, None]),
        ("long", pa.array([1], pa.int32()), [1]),
        ("integer", pa.array([-5], pa.int16()), [-5]),
        ("double", pa.array([1.5], pa.float32()), [1.5]),
        ("double", pa.array([7], pa.int32()), [7.0]),
        ("decimal(20,2)", pa.array([7], pa.int32()), [D("7.00")]),
        ("decimal(10,2)", pa.array([D("1.5")], pa.decimal128(5, 1)), [D("1.50")]),
        ("decimal(38,10)", pa.array([D("-1.5")], pa.decimal128(38, 10)), [D("-1.5000000000")]),
        ("timestamp_ntz", pa.array([dt.date(1, 1, 1)]), [dt.datetime(1, 1, 1)]),  # date widened
        ("string", pa.array(["é"]).cast(pa.binary()), ["é"]),
        ("string", pa.array(["a", "b", "a"]).dictionary_encode(), ["a", "b", "a"]),
        ("string", pa.array(["a"], pa.large_string()), ["a"]),
        ("binary", pa.array([b"a"], pa.large_binary()), [b"a"]),
        ("timestamp", pa.array([1], pa.timestamp("ms", "UTC")), [dt.datetime(1970, 1, 1, 0, 0, 0, 1000, UTC)]),
        ("timestamp", pa.array([-1], pa.timestamp("us")), [dt.datetime(1969, 12, 31, 23, 59, 59, 999999, UTC)]),
        ("timestamp", pa.array([1999], pa.timestamp("ns", "UTC")), [dt.datetime(1970, 1, 1, 0, 0, 0, 1, UTC)]),
        ("timestamp", pa.array([0], pa.timestamp("us", "Asia/Tokyo")), [dt.datetime(1970, 1, 1, tzinfo=UTC)]),
        (
            {"type": "array", "elementType": "long", "containsNull": True},
            pa.array([[1], None], pa.list_(pa.int32())),
            [[1], None],
        ),
        (
            {"type": "array", "elementType": "long", "containsNull": True},
            pa.array([[1]], pa.large_list(pa.int64())),
            [[1]],
        ),
        (
            {"type": "map", "keyType": "long", "valueType": "double", "valueContainsNull": True},
            pa.array([[(1, 1.5)], None, []], pa.map_(pa.int32(), pa.float32())),
            [[(1, 1.5)], None, []],
        ),
        (
            {"type": "map", "keyType": "string", "valueType": "long", "valueContainsNull": True},
            pa.array([[{"k": "a", "v": 1}]], pa.list_(pa.struct([("k", pa.string()), ("v", pa.int64())]))),
            [[("a", 1)]],
        ),
    ],
)
def test_stored_types_become_the_tables(kind, stored, expected):
    table = Handmade(struct(field("c", kind)))
    # With Arrow's own schema in the file, pyarrow gives back the odd types too.
    table.commit(table.data("f", pa.table({"c": stored}), parquet={"store_schema": True}))
    assert [row["c"] for row in rows(table)] == expected


@pytest.mark.parametrize(
    "when",
    [
        dt.datetime(1, 1, 1, tzinfo=UTC),
        dt.datetime(1600, 1, 1, tzinfo=UTC),
        dt.datetime(9999, 12, 31, 23, 59, 59, 999999, UTC),
    ],
)
@pytest.mark.parametrize("int96", [False, True])
def test_times_outside_the_range_of_nanoseconds(when, int96):
    table = Handmade(
        struct(field("t", "timestamp"), field("l", {"type": "array", "elementType": "timestamp", "containsNull": True}))
    )
    kind = pa.timestamp("us", "UTC")
    content = pa.table({"t": pa.array([when], kind), "l": pa.array([[when]], pa.list_(kind))})
    table.commit(table.data("f", content, parquet={"use_deprecated_int96_timestamps": int96}))
    assert rows(table) == [{"t": when, "l": [when]}]


def test_legacy_two_level_lists():
    table = Handmade(struct(field("l", {"type": "array", "elementType": "long", "containsNull": True})))
    content = pa.table({"l": pa.array([[1, 2], []], pa.list_(pa.int64()))})
    table.commit(table.data("f", content, parquet={"use_compliant_nested_type": False}))
    assert rows(table) == [{"l": [1, 2]}, {"l": []}]


@pytest.mark.parametrize(
    ("kind", "stored"),
    [
        ("integer", pa.array([2**40])),
        ("long", pa.array(["text"])),
        ("string", pa.array([b"\xff"])),
        (struct(field("a", "long")), pa.array([1])),
        ({"type": "array", "elementType": "long", "containsNull": True}, pa.array([1])),
        ({"type": "map", "keyType": "string", "valueType": "long", "valueContainsNull": True}, pa.array([1])),
        ("long", pa.array([{"a": 1}])),
    ],
)
def test_a_column_that_cannot_become_the_tables_type(kind, stored):
    table = Handmade(struct(field("c", kind)))
    table.commit(table.data("dir/f", pa.table({"c": stored})))
    with pytest.raises(DataFileError) as caught:
        scan(table).to_table()
    assert caught.value.file == "dir/f"
