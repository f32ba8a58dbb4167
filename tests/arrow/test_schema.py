"""Delta types and Arrow types, both ways, and partition columns as strings, both ways."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from predicate_strategies import VALUES
from refdelta.arrow.partition import (
    from_internal,
    parse_partition_column,
    partition_strings,
    partition_table,
    to_internal,
)
from refdelta.arrow.schema import arrow_type, from_arrow, to_arrow
from refdelta.errors import ColumnNotFoundError, InvalidLogError, SchemaMismatchError, UnsupportedTypeError
from refdelta.table import partition_values as pv
from refdelta.table.types import (
    BINARY,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER,
    LONG,
    SHORT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    VOID,
    ArrayType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
)
from type_strategies import DECIMALS, PRIMITIVE_NAMES

PRIMITIVES = st.sampled_from(PRIMITIVE_NAMES).map(PrimitiveType)


def not_void(kind):
    # Arrow has no null type that is not nullable.
    return kind != VOID


def structs(inner, least):
    return st.lists(st.tuples(inner, st.booleans()), min_size=least, max_size=4).map(
        lambda found: StructType(
            tuple(StructField(f"c{i}", kind, null or kind == VOID) for i, (kind, null) in enumerate(found))
        )
    )


TYPES = st.recursive(
    st.one_of(PRIMITIVES, DECIMALS),
    lambda inner: st.one_of(
        st.builds(ArrayType, inner),
        st.builds(ArrayType, inner.filter(not_void), st.just(False)),
        st.builds(MapType, inner.filter(not_void), inner),
        st.builds(MapType, inner.filter(not_void), inner.filter(not_void), st.just(False)),
        structs(inner, 1),
    ),
    max_leaves=8,
)


@given(structs(TYPES, 0))
def test_every_schema_survives_arrow(schema):
    assert from_arrow(to_arrow(schema)) == schema


def test_the_arrow_types():
    assert arrow_type(TIMESTAMP) == pa.timestamp("us", "UTC")
    assert arrow_type(TIMESTAMP_NTZ) == pa.timestamp("us")
    assert arrow_type(DATE) == pa.date32()
    assert arrow_type(DecimalType(5, 2)) == pa.decimal128(5, 2)
    assert arrow_type(ArrayType(LONG, False)) == pa.list_(pa.field("element", pa.int64(), nullable=False))
    assert to_arrow(StructType((StructField("a", LONG, False),))).field("a").nullable is False
    with pytest.raises(UnsupportedTypeError, match="column v: maps without keys"):
        to_arrow(StructType((StructField("v", MapType(VOID, LONG)),)))


@pytest.mark.parametrize(
    ("arrow", "delta"),
    [
        (pa.uint8(), SHORT),
        (pa.uint16(), INTEGER),
        (pa.uint32(), LONG),
        (pa.uint64(), DecimalType(20, 0)),
        (pa.float16(), FLOAT),
        (pa.large_string(), STRING),
        (pa.string_view(), STRING),
        (pa.large_binary(), BINARY),
        (pa.binary_view(), BINARY),
        (pa.binary(5), BINARY),
        (pa.date64(), DATE),
        (pa.timestamp("s"), TIMESTAMP_NTZ),
        (pa.timestamp("ms", "Europe/Berlin"), TIMESTAMP),
        (pa.timestamp("ns", "UTC"), TIMESTAMP),
        (pa.decimal256(38, 2), DecimalType(38, 2)),
        (pa.decimal32(5, 2), DecimalType(5, 2)),
        (pa.dictionary(pa.int8(), pa.string()), STRING),
        (pa.run_end_encoded(pa.int32(), pa.int64()), LONG),
        (pa.list_(pa.uint8(), 3), ArrayType(SHORT)),
        (pa.large_list(pa.int64()), ArrayType(LONG)),
        (pa.list_view(pa.int64()), ArrayType(LONG)),
        (pa.null(), VOID),
    ],
)
def test_types_that_map_without_loss(arrow, delta):
    assert from_arrow(pa.schema([("c", arrow)])) == StructType((StructField("c", delta),))


@pytest.mark.parametrize(
    "arrow",
    [
        pa.time32("s"),
        pa.time64("ns"),
        pa.duration("s"),
        pa.month_day_nano_interval(),
        pa.decimal256(39, 0),
        pa.decimal128(5, -1),
        pa.dense_union([pa.field("x", pa.int8())]),
        pa.struct([]),
    ],
    ids=str,
)
def test_types_that_would_lose_something_are_refused_by_path(arrow):
    with pytest.raises(UnsupportedTypeError, match=r"column a\.element\.b: "):
        from_arrow(pa.schema([("a", pa.list_(pa.struct([("b", arrow)])))]))


def test_names_that_differ_in_case_are_refused():
    with pytest.raises(SchemaMismatchError, match=r"'s\.a' and 's\.A'"):
        from_arrow(pa.schema([("s", pa.struct([("a", pa.int8()), ("A", pa.int8())]))]))
    for twin in ("a column", "A Column"):
        with pytest.raises(SchemaMismatchError, match="have the same name"):
            from_arrow(pa.schema([("a column", pa.int8()), (twin, pa.int8())]))


# --- partition columns -------------------------------------------------------------------------------------------

COLUMNS = st.sampled_from([(k, v) for k, v in VALUES.items()]).flatmap(
    lambda case: st.lists(st.one_of(st.none(), st.sampled_from(case[1])), max_size=8).map(
        lambda found: (case[0], found)
    )
)


def same(left, right):
    # By their text, so that NaN is itself and zero keeps its sign; an empty string is null in the log.
    return [repr(v or None) if v in ("", b"") else repr(v) for v in left] == [
        repr(v or None) if v in ("", b"") else repr(v) for v in right
    ]


@given(COLUMNS)
def test_partition_columns_are_what_the_definition_says(case):
    kind, values = case
    values = [v for v in values if not (kind == BINARY and v == b"\xff")]
    strings = partition_strings(from_internal(values, kind), kind)
    assert strings.type == pa.string()
    if kind != FLOAT:
        assert strings.to_pylist() == [pv.serialize(v, kind) for v in values]
    back = parse_partition_column(strings, kind)
    assert back.type == arrow_type(kind)
    assert same(to_internal(back, kind), values)
    if kind != FLOAT:
        assert same(to_internal(back, kind), [pv.parse(text, kind) for text in strings.to_pylist()])


def test_strings_of_partition_columns():
    moment = pa.array([dt.datetime(2021, 1, 1, tzinfo=dt.UTC), None], pa.timestamp("us", "UTC"))
    assert partition_strings(moment, TIMESTAMP).to_pylist() == ["2021-01-01T00:00:00.000000Z", None]
    assert partition_strings(pa.array([0.1, float("nan")], pa.float32()), FLOAT).to_pylist() == ["0.1", "NaN"]
    assert partition_strings(pa.array(["a", "", None]), STRING).to_pylist() == ["a", None, None]
    assert partition_strings(pa.array([Decimal("1.50")]), DecimalType(5, 2)).to_pylist() == ["1.50"]
    assert partition_strings(pa.nulls(2), VOID).to_pylist() == [None, None]
    with pytest.raises(SchemaMismatchError, match="c: a binary"):
        partition_strings(pa.array([b"\xff"]), BINARY, name="c")


def test_a_value_that_is_none_names_its_column():
    with pytest.raises(InvalidLogError, match="partition value of c"):
        parse_partition_column(pa.array(["1", "x"]), LONG, column="c")


def test_partition_values_of_files():
    schema = StructType(
        (StructField("D", DOUBLE), StructField("m", LONG, False, {"delta.columnMapping.physicalName": "col-1"}))
    )
    maps = pa.chunked_array(
        [
            pa.array([[("D", "1.5"), ("col-1", "7")]], pa.map_(pa.string(), pa.string())),
            pa.array([[("col-1", None)], [("D", ""), ("col-1", "8")]], pa.map_(pa.string(), pa.string())),
        ]
    )
    found = partition_table(pa.table({"partitionValues": maps}), schema, ["d", "m"])
    assert found.to_pydict() == {"D": [1.5, None, None], "m": [7, None, 8]}
    assert partition_table(pa.table({"partitionValues": maps}).slice(0, 0), schema, ["m"]).num_rows == 0
    with pytest.raises(ColumnNotFoundError):
        partition_table(pa.table({"partitionValues": maps}), schema, ["x"])
