"""Data are stored unchanged in the schema of the table, or refused, by the schemas alone where these tell."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest

from predicate_strategies import schema_of
from refdelta.arrow.schema import from_arrow, to_arrow
from refdelta.engine.parquet.fit import plan_fit
from refdelta.errors import ConstraintViolationError, SchemaMismatchError, UnsupportedFeatureError, UnsupportedTypeError
from refdelta.table.types import (
    BOOLEAN,
    BYTE,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER,
    LONG,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    VARIANT,
    ArrayType,
    DecimalType,
    MapType,
    StructField,
    StructType,
)


def fit(batch, table):
    out = plan_fit(batch.schema, table).apply(batch)
    out.validate(full=True)
    assert out.schema == to_arrow(table)
    return out


def test_columns_are_found_by_name_in_any_case_and_order():
    batch = pa.record_batch({"B": pa.array(["x"]), "a": pa.array([1], pa.int64())})
    assert fit(batch, schema_of(A=LONG, b=STRING)).to_pylist() == [{"A": 1, "b": "x"}]


def test_missing_columns_are_null_at_every_depth():
    table = schema_of(s=schema_of(x=LONG, y=STRING), l=ArrayType(schema_of(p=LONG, q=LONG)), n=DATE)
    batch = pa.record_batch(
        {
            "s": pa.array([{"X": 1}, None]),
            "l": pa.array([[{"q": 1}, None], None]),
        }
    )
    assert fit(batch, table).to_pylist() == [
        {"s": {"x": 1, "y": None}, "l": [{"p": None, "q": 1}, None], "n": None},
        {"s": None, "l": None, "n": None},
    ]


@pytest.mark.parametrize(
    ("data", "table", "expected"),
    [
        (pa.array([1, None], pa.int8()), LONG, [1, None]),
        (pa.array([1, None], pa.uint16()), LONG, [1, None]),
        (pa.array([1.5, None], pa.float32()), DOUBLE, [1.5, None]),
        (pa.array([1, None], pa.int32()), DecimalType(12, 2), [Decimal("1.00"), None]),
        (pa.array([2**64 - 1], pa.uint64()), DecimalType(22, 1), [Decimal(2**64 - 1)]),
        (pa.array([Decimal("1.5")], pa.decimal128(3, 1)), DecimalType(10, 4), [Decimal("1.5000")]),
        (pa.nulls(2), STRING, [None, None]),
        (pa.nulls(1), ArrayType(LONG), [None]),
        (pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int8())), MapType(STRING, INTEGER), None),
        (pa.array(["a", "b", None, "a"]).dictionary_encode(), STRING, ["a", "b", None, "a"]),
    ],
)
def test_wider_types_take_narrower_data(data, table, expected):
    batch = pa.record_batch({"c": data})
    assert fit(batch, schema_of(c=table)).column(0).to_pylist() == (data.to_pylist() if expected is None else expected)


@pytest.mark.parametrize(
    ("data", "table"),
    [
        (pa.timestamp("us"), TIMESTAMP),
        (pa.timestamp("us", "UTC"), TIMESTAMP_NTZ),
        (pa.float64(), STRING),
        (pa.bool_(), DOUBLE),
        (pa.int64(), DATE),
        (pa.list_(pa.int64()), LONG),
        (pa.int64(), ArrayType(LONG)),
        (pa.list_(pa.float64()), ArrayType(STRING)),
        (pa.struct([("x", pa.int64())]), STRING),
        (pa.map_(pa.string(), pa.int64()), ArrayType(LONG)),
        (pa.map_(pa.float64(), pa.int64()), MapType(STRING, LONG)),
    ],
)
def test_types_without_a_common_value_are_refused_from_the_schemas_alone(data, table):
    with pytest.raises(SchemaMismatchError, match=r"column c(\.\w+)? is .* in the table and .* in the data"):
        plan_fit(pa.schema([("c", data)]), schema_of(c=table))


@pytest.mark.parametrize(
    ("data", "table", "row", "shown"),
    [
        (pa.array([1, 2**40], pa.int64()), INTEGER, 1, "1099511627776"),
        (pa.array([None, 2**53 + 1], pa.int64()), DOUBLE, 1, "9007199254740993"),
        (pa.array([2.5]), LONG, 0, "2.5"),
        (pa.array([0.1]), FLOAT, 0, "0.1"),
        (pa.array(["2024-02-30"]), DATE, 0, "'2024-02-30'"),
        (pa.array([Decimal("1.255")]), DecimalType(10, 2), 0, "Decimal('1.255')"),
        (pa.array([[1], None, [2, 300]]), ArrayType(BYTE), 2, "300"),
        (
            pa.array([[("a", 1)], [("b", 2), ("c", 300)]], pa.map_(pa.string(), pa.int64())),
            MapType(STRING, BYTE),
            1,
            "300",
        ),
        (pa.array([{"x": [1]}, {"x": [7, 300]}]), schema_of(x=ArrayType(BYTE)), 1, "300"),
    ],
)
def test_a_value_that_does_not_fit_is_named_with_column_row_and_types(data, table, row, shown):
    batch = pa.record_batch({"c": data})
    with pytest.raises(SchemaMismatchError) as caught:
        plan_fit(batch.schema, schema_of(c=table)).apply(batch, 10)
    assert str(caught.value).startswith(f"row {10 + row}: the value {shown} of column c")
    assert "does not fit into" in str(caught.value)


def test_every_problem_is_named_at_once():
    table = StructType(
        (StructField("a", LONG), StructField("b", LONG, nullable=False), StructField("s", schema_of(x=LONG)))
    )
    data = pa.schema(
        [
            ("a", pa.date32()),
            ("z", pa.int8()),
            ("s", pa.struct([("x", pa.date32()), ("w", pa.int8())])),
            ("t", pa.time32("s")),
        ]
    )
    with pytest.raises(SchemaMismatchError) as caught:
        plan_fit(data, table)
    assert type(caught.value) is SchemaMismatchError
    for part in (
        "column a is long",
        "no column z",
        "column b is missing",
        "column s.x is long",
        "no column s.w",
        "no column t",
    ):
        assert part in str(caught.value)


def test_types_that_delta_lacks_are_refused_by_name():
    with pytest.raises(UnsupportedTypeError, match=r"column c: Delta has no type for Arrow's time32\[s\]"):
        plan_fit(pa.schema([("c", pa.time32("s"))]), schema_of(c=INTEGER))
    with pytest.raises(SchemaMismatchError, match="column c is variant in the table and string in the data"):
        plan_fit(pa.schema([("c", pa.string())]), schema_of(c=VARIANT))


def test_two_columns_that_differ_in_case_are_refused():
    with pytest.raises(SchemaMismatchError, match="occurs twice"):
        plan_fit(pa.schema([("a", pa.int8()), ("A", pa.int8())]), schema_of(a=BYTE))
    with pytest.raises(SchemaMismatchError, match="same name"):
        from_arrow(pa.schema([("a", pa.int8()), ("A", pa.int8())]))


def test_nanoseconds_are_stored_where_nothing_is_lost():
    schema = pa.schema([("c", pa.timestamp("ns"))])
    fitter = plan_fit(schema, schema_of(c=TIMESTAMP_NTZ))
    whole = fitter.apply(pa.record_batch([pa.array([1_000, None], pa.timestamp("ns"))], schema=schema))
    assert whole.column(0).cast(pa.int64()).to_pylist() == [1, None]
    with pytest.raises(SchemaMismatchError, match=r"row 0: the value .*001001 of column c .* without loss"):
        fitter.apply(pa.record_batch([pa.array([1_001], pa.timestamp("ns"))], schema=schema))


def test_seconds_beyond_the_range_are_refused():
    schema = pa.schema([("c", pa.timestamp("s", "UTC"))])
    with pytest.raises(SchemaMismatchError, match="column c"):
        plan_fit(schema, schema_of(c=TIMESTAMP)).apply(
            pa.record_batch([pa.array([2**60], pa.timestamp("s", "UTC"))], schema=schema)
        )


NOT_NULL = StructType(
    (
        StructField("a", LONG, nullable=False),
        StructField("s", StructType((StructField("x", LONG, nullable=False),))),
        StructField("l", ArrayType(LONG, contains_null=False)),
        StructField("m", MapType(STRING, LONG, value_contains_null=False)),
    )
)
SHAPE = pa.schema(
    [
        ("a", pa.int64()),
        ("s", pa.struct([("x", pa.int64())])),
        ("l", pa.list_(pa.int64())),
        ("m", pa.map_(pa.string(), pa.int64())),
    ]
)


@pytest.mark.parametrize(
    ("row", "column"),
    [
        ({"a": None, "s": None, "l": None, "m": None}, "column a is"),
        ({"a": 1, "s": {"x": None}, "l": None, "m": None}, r"column s\.x"),
        ({"a": 1, "s": None, "l": [1, None], "m": None}, r"column l\.element"),
        ({"a": 1, "s": None, "l": None, "m": [("k", None)]}, r"column m\.value"),
    ],
)
def test_nulls_where_the_table_has_none_are_refused(row, column):
    batch = pa.RecordBatch.from_pylist([{"a": 1}, row], schema=SHAPE)
    with pytest.raises(ConstraintViolationError, match=column):
        plan_fit(SHAPE, NOT_NULL).apply(batch)


def test_a_null_parent_breaks_no_promise_of_its_children():
    rows = [{"a": 1, "s": None, "l": None, "m": None}, {"a": 2, "s": {"x": 1}, "l": [], "m": [("k", 1)]}]
    out = fit(pa.RecordBatch.from_pylist(rows, schema=SHAPE), NOT_NULL)
    assert out.to_pylist() == rows


NESTED = [
    pa.array([[1, 2], None, [3, 4], [5, 6]], pa.large_list(pa.uint8())),
    pa.array([[1, 2], None, [3, 4], [5, 6]], pa.list_(pa.int64(), 2)),
    pa.array([[1, 2], None, [], [5, 6]], pa.list_view(pa.int64())),
    pa.array([[1, 2], None, [], [5, 6]], pa.large_list_view(pa.int64())),
    pa.array([[("a", [1])], None, [("b", None)], []], pa.map_(pa.string_view(), pa.large_list(pa.uint8()))),
    pa.array([{"x": 2**64 - 1}, None, {"x": None}], pa.struct([("x", pa.uint64())])),
    pa.array(
        [[{"a": ["x"]}], None, [None, {"a": None}]],
        pa.large_list(pa.struct([("a", pa.list_view(pa.dictionary(pa.int8(), pa.string())))])),
    ),
]


@pytest.mark.parametrize("array", NESTED, ids=lambda a: str(a.type))
@pytest.mark.parametrize(("start", "length"), [(0, 9), (1, 9), (1, 1), (2, 9), (0, 0)])
def test_nested_arrays_of_every_layout_keep_their_values_also_when_sliced(array, start, length):
    part = array.slice(start, length)
    batch = pa.record_batch({"c": part})
    assert fit(batch, from_arrow(batch.schema)).column(0).to_pylist() == part.to_pylist()


def test_values_under_a_null_parent_do_not_reappear():
    inner = pa.array([1, 2, 3], pa.int64())
    array = pa.StructArray.from_arrays([inner], names=["x"], mask=pa.array([False, True, False]))
    out = fit(pa.record_batch({"c": array}), schema_of(c=schema_of(x=LONG, b=BOOLEAN))).column(0)
    assert out.to_pylist() == [{"x": 1, "b": None}, None, {"x": 3, "b": None}]


# --- char(n) and varchar(n) --------------------------------------------------------------------------------------


def noted(kind, note):
    return StructType((StructField("c", kind, True, {"__CHAR_VARCHAR_TYPE_STRING": note}),))


NESTED = schema_of(X=STRING, s=STRING, l=ArrayType(STRING), n=DecimalType(4, 2))
NESTED_NOTE = "struct<x:varchar(2),s:string,l:array<char(3)>,n:decimal(4,2)>"


@pytest.mark.parametrize(
    ("note", "value", "stored"),
    [
        ("varchar(3)", "abc", "abc"),
        ("varchar(3)", "a", "a"),
        ("varchar(3)", "abc  ", "abc"),
        ("varchar(3)", "a     ", "a  "),
        ("varchar(3)", "abcd", 4),
        ("varchar(3)", "abc d", 5),
        ("varchar(3)", "abc\t", 4),
        ("varchar(3)", None, None),
        ("varchar(3)", "\u00e4\U0001f600x", "\u00e4\U0001f600x"),
        ("varchar(3)", "\u00e4\U0001f600xy", 4),
        ("char(3)", "a", "a  "),
        ("char(3)", "", "   "),
        ("char(3)", "abc   ", "abc"),
        ("char(3)", "\U0001f600", "\U0001f600  "),
        ("char(3)", "abcd", 4),
        ("VARCHAR(3) collate UTF8_LCASE", "abcd", 4),
        ("string", "abcd", "abcd"),
    ],
)
def test_strings_have_the_length_that_spark_gives_them(note, value, stored):
    batch = pa.record_batch({"c": pa.array([None, "x" * 3, value], pa.string()).dictionary_encode()})
    if isinstance(stored, int):
        with pytest.raises(ConstraintViolationError, match=rf"column c is v?a?r?char\(3\).* {stored} characters"):
            fit(batch, noted(STRING, note))
    else:
        assert fit(batch, noted(STRING, note)).column(0).to_pylist() == [None, "xxx", stored]


def test_lengths_within_nested_columns():
    def stored(kind, note, value):
        return fit(pa.record_batch({"c": [value, None]}), noted(kind, note)).column(0).to_pylist()[0]

    assert stored(ArrayType(STRING), "array<char(3)>", ["a", None, "abc "]) == ["a  ", None, "abc"]
    maps = MapType(STRING, ArrayType(STRING))
    entries = pa.array([[("k  ", ["v"])]], pa.map_(pa.string(), pa.list_(pa.string())))
    table = noted(maps, "map<varchar(2),array<char(2)>>")
    assert fit(pa.record_batch({"c": entries}), table).column(0).to_pylist() == [[("k ", ["v "])]]
    value = {"l": ["a"], "s": "long enough", "x": "a"}
    assert stored(NESTED, NESTED_NOTE, value) == {"X": "a", "s": "long enough", "l": ["a  "], "n": None}
    for odd, path in (({"x": "abc"}, r"c\.X"), ({"l": ["abc", "abcd"]}, r"c\.l\.element")):
        with pytest.raises(ConstraintViolationError, match=path):
            stored(NESTED, NESTED_NOTE, odd)
    with pytest.raises(ConstraintViolationError, match=r"c\.key is varchar\(2\)"):
        fit(pa.record_batch({"c": pa.array([[("key", None)]], entries.type)}), table)
    # Fields that came later have no length, and those that went need none.
    assert stored(schema_of(y=STRING), "struct<x:char(1)>", {"y": "abc"}) == {"y": "abc"}


def test_a_null_struct_hides_what_is_in_it():
    inner = pa.StructArray.from_arrays([pa.array(["too long"])], ["x"], mask=pa.array([True]))
    assert fit(pa.record_batch({"c": inner}), noted(schema_of(x=STRING), "struct<x:char(1)>")).to_pylist() == [
        {"c": None}
    ]


@pytest.mark.parametrize(
    "note", ["", "array<", "array<char(3)", "struct<a>", "map<string>", "char(3)>", "struct<:int>"]
)
def test_a_note_that_is_no_type_is_refused_by_name(note):
    with pytest.raises(UnsupportedFeatureError, match="of column c"):
        fit(pa.record_batch({"c": ["x"]}), noted(STRING, note))
