"""Schemas as JSON, names, and how a schema grows."""

from __future__ import annotations

import itertools
import json
import pickle
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refdelta.core.log.actions import Format, Metadata, Protocol
from refdelta.errors import (
    ColumnNotFoundError,
    InvalidArgumentError,
    InvalidLogError,
    SchemaMismatchError,
    UnsupportedFeatureError,
)
from refdelta.table import types
from refdelta.table.features import check_writable
from refdelta.table.field_names import check_field_names
from refdelta.table.types import (
    LONG,
    STRING,
    VOID,
    ArrayType,
    DecimalType,
    MapType,
    StructField,
    StructType,
    parse_schema,
    schema_json,
)
from type_strategies import DECIMALS, PRIMITIVE_NAMES

PROTOCOL = Protocol(min_reader_version=1, min_writer_version=2)
PRIMITIVES = st.sampled_from([*PRIMITIVE_NAMES, "variant"]).map(types.PrimitiveType)
METADATA = st.dictionaries(
    st.text(max_size=8), st.one_of(st.integers(), st.text(max_size=5), st.booleans()), max_size=2
)


def structs(inner, **sizes):
    fields = st.builds(StructField, st.text(min_size=1, max_size=6), inner, st.booleans(), METADATA)
    return st.lists(fields, max_size=3).map(lambda found: StructType(tuple(found)))


TYPES = st.recursive(
    st.one_of(PRIMITIVES, DECIMALS),
    lambda inner: st.one_of(
        st.builds(ArrayType, inner, st.booleans()), st.builds(MapType, inner, inner, st.booleans()), structs(inner)
    ),
    max_leaves=6,
)


@given(structs(TYPES))
def test_schemas_round_trip(schema):
    text = schema_json(schema)
    assert parse_schema(text) == schema
    assert json.loads(text)["type"] == "struct"


def test_the_json_is_what_spark_writes():
    schema = StructType(
        (StructField("a", LONG), StructField("m", MapType(STRING, ArrayType(DecimalType(5, 2), False)), False))
    )
    assert schema_json(schema) == (
        '{"type":"struct","fields":[{"name":"a","type":"long","nullable":true,"metadata":{}},{"name":"m","type":{"type":"map",'
        '"keyType":"string","valueType":{"type":"array","elementType":"decimal(5,2)","containsNull":false},'
        '"valueContainsNull":true},"nullable":false,"metadata":{}}]}'
    )


def one(kind):
    return json.dumps({"type": "struct", "fields": [{"name": "c", "type": kind, "nullable": True, "metadata": {}}]})


def test_older_spellings_are_read():
    assert parse_schema(one("null")).fields[0].type == VOID
    assert parse_schema(one("decimal")).fields[0].type == DecimalType(10, 0)
    assert parse_schema(one("decimal( 7 , 3 )")).fields[0].type == DecimalType(7, 3)
    assert parse_schema('{"type":"struct","fields":[{"name":"c","type":"long"}]}') == StructType(
        (StructField("c", LONG),)
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "3",
        "null",
        '"long"',
        '{"type":"struct"}',
        '{"type":"struct","fields":[1]}',
        '{"type":"struct","fields":[{"type":"long"}]}',
        one(None),
        one({"type": "array"}),
        one({"type": "map", "keyType": "long"}),
        one({"type": "array", "elementType": "long", "containsNull": 1}),
        one("decimal(39,0)"),
        one("decimal(2,3)"),
        one("decimal(5,-1)"),
        one("decimal(0,0)"),
        "[[[[",
        one({"type": ""}),
        one(""),
        '{"type":"struct","fields":[{"name":"c","type":"long","nullable":"yes"}]}',
        '{"type":"struct","fields":[{"name":"c","type":"long","metadata":[]}]}',
    ],
)
def test_nonsense_is_an_invalid_log(text):
    with pytest.raises(InvalidLogError, match=r"7\.json, line 3: the table's schema"):
        parse_schema(text, file="7.json", line=3)


@pytest.mark.parametrize("around", ["array", "map", "struct"])
def test_a_schema_too_deep_is_an_invalid_log(around, monkeypatch):
    assert types.MOST_LEVELS == 100
    monkeypatch.setattr(types, "MOST_LEVELS", 8)
    kind = "long"
    for level in range(1, 10):  # the column itself is a level
        text = one(kind)
        if level < 9:
            parse_schema(text)
        kind = {
            "array": {"type": "array", "elementType": kind, "containsNull": True},
            "map": {"type": "map", "keyType": "long", "valueType": kind, "valueContainsNull": True},
            "struct": {"type": "struct", "fields": [{"name": "x", "type": kind, "nullable": True, "metadata": {}}]},
        }[around]
    with pytest.raises(InvalidLogError, match="nests more than 8 levels"):
        parse_schema(text)


def test_a_schema_in_which_the_stack_ends_is_an_invalid_log(monkeypatch):
    def parse(text):
        raise RecursionError("the stack has an end")

    text = one("long")
    monkeypatch.setattr(types.json, "loads", parse)
    with pytest.raises(InvalidLogError, match="the table's schema is not JSON: the stack has an end"):
        parse_schema(text)


OTHERS = ["timestamp_nanos", "longish", {"type": "udt", "class": "Point"}, {"type": "mystery", "of": "Point"}]


@pytest.mark.parametrize("kind", OTHERS)
def test_a_type_of_another_engine_stays_in_the_schema_and_is_not_written(kind):
    schema = parse_schema(one(kind))
    (column,) = types.unknown_types(schema.field("c").type, "c")
    assert column[0] == "c"
    assert json.loads(schema_json(schema)) == json.loads(one(kind))
    with pytest.raises(UnsupportedFeatureError, match="of a column"):
        check_writable(PROTOCOL, Metadata(id="id", format=Format(), schema_string=one(kind), partition_columns=[]))


YEAR_MONTH = ["interval year to month", "interval year", "interval month"]
UNITS = ["day", "hour", "minute", "second"]
DAY_TIME = [f"interval {one}" for one in UNITS]
DAY_TIME += [f"interval {one} to {other}" for one, other in itertools.combinations(UNITS, 2)]


@pytest.mark.parametrize(
    ("names", "kind"), [(YEAR_MONTH, types.INTERVAL_YEAR_MONTH), (DAY_TIME, types.INTERVAL_DAY_TIME)]
)
def test_each_spelling_of_an_interval_is_one_of_two_types(names, kind):
    assert {parse_schema(one(name)).field("c").type for name in names} == {kind}


@pytest.mark.parametrize(
    "name", ["interval month to second", "interval second to day", "INTERVAL DAY", "interval", "interval day to day"]
)
def test_other_intervals_are_unknown_types(name):
    assert isinstance(parse_schema(one(name)).field("c").type, types.UnknownType)


def test_columns_are_found_in_any_case():
    schema = StructType((StructField("Id", LONG), StructField("name", STRING)))
    assert schema.field("ID").name == "Id"
    assert "NAME" in schema
    assert schema.find("x") is None
    with pytest.raises(ColumnNotFoundError, match="'x' does not exist in the table; columns: Id, name"):
        schema.field("x")


def test_physical_names_and_ids():
    mapped = StructField("a", LONG, True, {"delta.columnMapping.physicalName": "col-1", "delta.columnMapping.id": 7})
    assert (types.physical_name(mapped), types.field_id(mapped)) == ("col-1", 7)
    assert (types.physical_name(StructField("a", LONG)), types.field_id(StructField("a", LONG))) == ("a", None)
    nested = StructType((StructField("s", StructType((mapped, StructField("l", ArrayType(LONG))))), mapped))
    assert [path for path, _ in types.leaves(nested)] == [("s", "a"), ("s", "l"), ("a",)]
    assert [path for path, _ in types.leaves(nested, physical=True)] == [("s", "col-1"), ("s", "l"), ("col-1",)]


@pytest.mark.parametrize("char", " ,;{}()\n\t=")
def test_names_that_parquet_reserves_need_column_mapping(char):
    inner = StructType((StructField(f"a{char}b", LONG),))
    for schema in (inner, StructType((StructField("m", MapType(STRING, ArrayType(inner))),))):
        with pytest.raises(InvalidArgumentError, match="which Parquet reserves"):
            check_field_names(schema)
        check_field_names(schema, mapped=True)


def test_names_that_differ_in_case_only_are_refused_at_any_depth():
    inner = StructType((StructField("a", LONG), StructField("A", LONG)))
    for schema in (inner, StructType((StructField("s", ArrayType(inner)),))):
        with pytest.raises(SchemaMismatchError, match=r"'(s\.element\.)?a' and '(s\.element\.)?A' have the same name"):
            check_field_names(schema, mapped=True)
    for twin in ("name", "NAME", str(b"name", "ascii")):
        with pytest.raises(SchemaMismatchError, match="have the same name"):
            check_field_names(StructType((StructField("name", LONG), StructField(twin, LONG))))
    with pytest.raises(InvalidArgumentError, match="empty name"):
        check_field_names(StructType((StructField("", LONG),)))


def test_a_plain_type_may_stand_in_an_object():
    """As in PROTOCOL.md's example of a table with variants."""
    array = {"type": "array", "elementType": {"type": "variant"}, "containsNull": False}
    assert parse_schema(one(array)).fields[0].type == ArrayType(types.VARIANT, False)


def test_a_name_is_found_in_any_case_and_the_exact_one_first():
    schema = StructType((StructField("A", LONG), StructField("a", STRING), StructField("É", STRING)))
    assert [schema.find(name) for name in ("A", "a", "é")] == list(schema.fields)
    assert schema.find("b") is None
    assert "B" not in schema
    other = pickle.loads(pickle.dumps(schema))
    assert other == schema
    assert hash(other) == hash(schema)
    assert repr(other) == repr(StructType(schema.fields))
    assert replace(schema, fields=schema.fields[1:]).find("A") is schema.fields[1]
