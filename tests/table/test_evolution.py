"""How a schema grows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refdelta.errors import SchemaMismatchError
from refdelta.table import types
from refdelta.table.evolution import merge_schemas, widens
from refdelta.table.types import (
    BYTE,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER,
    LONG,
    SHORT,
    STRING,
    VARIANT,
    VOID,
    ArrayType,
    DecimalType,
    MapType,
    StructField,
    StructType,
)
from type_strategies import DECIMALS

PRIMITIVES = st.sampled_from([*types.INTEGRAL, *types.FRACTIONAL, STRING, DATE, types.TIMESTAMP, VOID, VARIANT])


def test_merging_adds_what_is_new_and_keeps_what_is_there():
    old = StructType(
        (
            StructField("A", LONG, False, {"comment": "x"}),
            StructField("s", StructType((StructField("x", DOUBLE),))),
            StructField("l", ArrayType(StructType((StructField("p", LONG),)), False)),
            StructField("v", VOID),
        )
    )
    new = StructType(
        (
            StructField("b", StructType((StructField("q", LONG, False),)), False),
            StructField("S", StructType((StructField("y", ArrayType(LONG, False), False), StructField("X", FLOAT)))),
            StructField("a", SHORT),
            StructField("l", ArrayType(StructType((StructField("r", MapType(STRING, LONG, False)),)))),
            StructField("v", DATE),
        )
    )
    merged = merge_schemas(old, new)
    assert merged.names == ["A", "s", "l", "v", "b"]
    assert merged.field("A") == old.field("A")
    assert merged.field("A").metadata == {"comment": "x"}
    assert merged.field("s").type == StructType((StructField("x", DOUBLE), StructField("y", ArrayType(LONG))))
    assert merged.field("l").type == ArrayType(
        StructType((StructField("p", LONG), StructField("r", MapType(STRING, LONG)))), False
    )
    assert merged.field("v").type == DATE
    # What comes later is null in the rows that are there.
    assert merged.field("b") == StructField("b", StructType((StructField("q", LONG),)))
    assert merge_schemas(old, old) == old
    assert merge_schemas(merged, new) == merged


def test_merging_refuses_other_types_and_names_them_all():
    old = StructType((StructField("a", INTEGER), StructField("s", StructType((StructField("x", LONG),)))))
    new = StructType((StructField("a", LONG), StructField("s", StructType((StructField("x", STRING),)))))
    with pytest.raises(
        SchemaMismatchError, match=r"column a is integer .* and long .*; column s\.x is long .* and string"
    ):
        merge_schemas(old, new)


@given(st.one_of(PRIMITIVES, DECIMALS), st.one_of(PRIMITIVES, DECIMALS), st.one_of(PRIMITIVES, DECIMALS))
def test_widening_is_an_order(a, b, c):
    assert widens(a, a)
    assert not (widens(a, b) and widens(b, c)) or widens(a, c)
    assert not (widens(a, b) and widens(b, a)) or a == b


def test_no_value_is_lost_by_widening():
    assert widens(INTEGER, DecimalType(10, 0))
    assert not widens(INTEGER, DecimalType(9, 0))
    assert not widens(LONG, DOUBLE)
    assert widens(DecimalType(5, 2), DecimalType(7, 4))
    assert not widens(DecimalType(5, 2), DecimalType(6, 4))
    assert not widens(DATE, types.TIMESTAMP)
    assert not widens(VARIANT, STRING)


def one(kind, **metadata):
    return StructType((StructField("a", kind, True, metadata),))


@pytest.mark.parametrize(
    ("old", "new", "merged"),
    [
        # SchemaMergingUtils.mergeSchemas of delta-spark, line by line
        (BYTE, SHORT, SHORT),
        (BYTE, INTEGER, INTEGER),
        (SHORT, BYTE, SHORT),
        (SHORT, INTEGER, INTEGER),
        (INTEGER, SHORT, INTEGER),
        (INTEGER, BYTE, INTEGER),
        (VOID, LONG, LONG),
        (LONG, VOID, LONG),
        (ArrayType(BYTE), ArrayType(SHORT), ArrayType(SHORT)),
        (MapType(BYTE, SHORT), MapType(SHORT, INTEGER), MapType(SHORT, INTEGER)),
        (one(SHORT), one(INTEGER), one(INTEGER)),
        (INTEGER, LONG, None),
        (BYTE, LONG, None),
        (SHORT, FLOAT, None),
        (FLOAT, DOUBLE, None),
        (INTEGER, STRING, None),
        (STRING, INTEGER, None),
        (DecimalType(5, 2), DecimalType(6, 2), None),
        (DecimalType(5, 2), DecimalType(6, 3), None),
        (DATE, types.TIMESTAMP, None),
        # It refuses these, and writes them only after a cast; the data fit without loss.
        (LONG, INTEGER, LONG),
        (DOUBLE, FLOAT, DOUBLE),
        (DecimalType(6, 2), DecimalType(5, 2), DecimalType(6, 2)),
    ],
)
def test_which_type_a_column_of_both_has(old, new, merged):
    if merged is None:
        with pytest.raises(SchemaMismatchError, match="column a is"):
            merge_schemas(one(old), one(new))
    else:
        assert merge_schemas(one(old, comment="c"), one(new)) == one(merged, comment="c")


def test_changes_of_type_are_recorded_where_the_table_wants_it():
    def change(before, after, **more):
        return {"fromType": before, "toType": after, **more}

    first = merge_schemas(one(BYTE, comment="c"), one(SHORT), changes="recorded")
    assert first.field("a").metadata == {"comment": "c", "delta.typeChanges": [change("byte", "short")]}
    second = merge_schemas(first, one(INTEGER), changes="recorded")
    assert second.field("a").metadata["delta.typeChanges"] == [change("byte", "short"), change("short", "integer")]
    assert merge_schemas(second, one(BYTE), changes="recorded") == second

    def nested(key, value):
        inner = StructType((StructField("x", value),))
        return (*one(MapType(key, ArrayType(ArrayType(value)))), StructField("s", ArrayType(inner)))

    merged = merge_schemas(StructType(nested(BYTE, SHORT)), StructType(nested(SHORT, INTEGER)), changes="recorded")
    assert merged.field("a").metadata["delta.typeChanges"] == [
        change("byte", "short", fieldPath="key"),
        change("short", "integer", fieldPath="value.element.element"),
    ]
    # A field of a struct has its own, even within an array.
    assert merged.field("s").metadata == {}
    assert merged.field("s").type.element.field("x").metadata["delta.typeChanges"] == [change("short", "integer")]


def test_changes_of_type_can_be_refused():
    with pytest.raises(SchemaMismatchError, match="column a is byte in the table and short in the data"):
        merge_schemas(one(BYTE), one(SHORT), changes="refused")
    assert merge_schemas(one(SHORT), one(BYTE), changes="refused") == one(SHORT)
