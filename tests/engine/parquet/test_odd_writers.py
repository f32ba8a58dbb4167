"""Columns as other writers leave them in files: other widths, other forms, Arrow's own types, annotations.

Tests of engine.parquet.columns.
"""

from __future__ import annotations

import datetime as dt
import io
import uuid
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from refdelta.arrow.schema import arrow_type
from refdelta.engine.parquet.columns import plan_columns
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
    VARIANT,
    ArrayType,
    DecimalType,
    MapType,
    StructField,
    StructType,
)

TEXTS = ArrayType(STRING)
NUMBERS = MapType(STRING, LONG)
NOON = dt.datetime(2020, 1, 1, 12)
UTC_NOON = NOON.replace(tzinfo=dt.UTC)
ID = uuid.UUID(int=7)


def money(kind):
    return pa.array([Decimal("1.25"), None], pa.decimal128(15, 2)).cast(kind)


CASES = {
    "long offsets": (pa.array(["a", None], pa.large_string()), STRING, "a"),
    "text view": (pa.array(["a", None], pa.string_view()), STRING, "a"),
    "bytes view": (pa.array([b"a", None], pa.binary_view()), BINARY, b"a"),
    "dictionary": (pa.array(["a", None]).dictionary_encode(), STRING, "a"),
    "text without annotation": (pa.array([b"a", None]), STRING, "a"),
    "bytes with the annotation of text": (pa.array(["a", None]), BINARY, b"a"),
    "fixed text": (pa.array([b"ab", None], pa.binary(2)), STRING, "ab"),
    "fixed bytes": (pa.array([b"ab", None], pa.binary(2)), BINARY, b"ab"),
    "JSON": (pa.ExtensionArray.from_storage(pa.json_(), pa.array(["{}", None])), STRING, "{}"),
    "UUID": (pa.ExtensionArray.from_storage(pa.uuid(), pa.array([ID.bytes, None], pa.binary(16))), BINARY, ID.bytes),
    "large list": (pa.array([["a"], None], pa.large_list(pa.large_string())), TEXTS, ["a"]),
    "fixed list": (pa.array([["a", "b"], None], pa.list_(pa.string(), 2)), TEXTS, ["a", "b"]),
    "list view": (pa.array([["a", "b"], None], pa.list_view(pa.string())), TEXTS, ["a", "b"]),
    "large list view": (pa.array([["a", None], None], pa.large_list_view(pa.string())), TEXTS, ["a", None]),
    "dictionaries in lists": (pa.array([["a"], None], pa.list_(pa.dictionary(pa.int8(), pa.string()))), TEXTS, ["a"]),
    "pairs": (pa.array([[{"key": "a", "value": 1}], None]), NUMBERS, [("a", 1)]),
    "map of long texts": (pa.array([[("a", 1)], None], pa.map_(pa.large_string(), pa.int8())), NUMBERS, [("a", 1)]),
    "unsigned byte": (pa.array([200, None], pa.uint8()), SHORT, 200),
    "unsigned int": (pa.array([2**32 - 1, None], pa.uint32()), LONG, 2**32 - 1),
    "unsigned long": (pa.array([2**64 - 1, None], pa.uint64()), DecimalType(20, 0), Decimal(2**64 - 1)),
    "wider int": (pa.array([7, None], pa.int64()), INTEGER, 7),
    "half": (pa.array([1.5, None], pa.float16()), FLOAT, 1.5),
    "widened float": (pa.array([0.1, None], pa.float32()), DOUBLE, 0.10000000149011612),
    "widened int": (pa.array([7, None], pa.int8()), DecimalType(10, 0), Decimal(7)),
    "widened long": (pa.array([2**63 - 1, None]), DecimalType(22, 2), Decimal(2**63 - 1)),
    "widened date": (pa.array([18262, None], pa.int32()).cast(pa.date32()), TIMESTAMP_NTZ, NOON.replace(hour=0)),
    "small decimal": (money(pa.decimal32(5, 2)), DecimalType(10, 4), Decimal("1.25")),
    "middle decimal": (money(pa.decimal64(15, 2)), DecimalType(15, 2), Decimal("1.25")),
    "huge decimal": (money(pa.decimal256(40, 2)), DecimalType(30, 2), Decimal("1.25")),
    "zone": (pa.array([UTC_NOON, None], pa.timestamp("us", "Europe/Berlin")), TIMESTAMP, UTC_NOON),
    "no zone": (pa.array([NOON, None], pa.timestamp("us")), TIMESTAMP, UTC_NOON),
    "a zone too many": (pa.array([UTC_NOON, None], pa.timestamp("us", "UTC")), TIMESTAMP_NTZ, NOON),
    "nanoseconds": (pa.array([1577880000000000999, None], pa.timestamp("ns", "UTC")), TIMESTAMP, UTC_NOON),
    "milliseconds": (pa.array([UTC_NOON, None], pa.timestamp("ms", "UTC")), TIMESTAMP, UTC_NOON),
    "date in milliseconds": (pa.array([dt.date(2020, 1, 1), None], pa.date64()), DATE, dt.date(2020, 1, 1)),
    "nothing known": (pa.nulls(2), STRING, None),
    "nothing known of an array": (pa.nulls(2), TEXTS, None),
    "nothing known of a map": (pa.nulls(2), NUMBERS, None),
    "nothing known of a struct": (pa.nulls(2), StructType((StructField("a", LONG),)), None),
    "nothing known of a variant": (pa.nulls(2), VARIANT, None),
}


# pyarrow 21, the lowest version, cannot write four of these, nor read lists of a fixed size that are null.
LATER = ("fixed list", "list view", "large list view", "small decimal", "middle decimal")
HELD = [name for name in CASES if name not in LATER or int(pa.__version__.split(".")[0]) >= 26]


@pytest.mark.parametrize("name", HELD)
@pytest.mark.parametrize("nested", [False, True])
def test_a_column_of_another_writer(name, nested):
    array, kind, value = CASES[name]
    stored = pa.StructArray.from_arrays([array], ["x"]) if nested else array
    wanted = StructType((StructField("x", kind),)) if nested else kind
    data = io.BytesIO()
    pq.write_table(pa.table({"c": stored}), data)
    parquet = pq.ParquetFile(data)
    [source] = plan_columns(parquet.schema_arrow, [StructField("c", wanted)], by_id=False)
    [batch] = parquet.iter_batches()
    for part, want in ((batch, [value, None]), (batch.slice(1), [None])):
        found = source.read(part)
        found.validate(full=True)
        assert found.type == arrow_type(wanted)
        assert found.to_pylist() == ([{"x": item} for item in want] if nested else want)


@pytest.mark.parametrize("kind", [TIMESTAMP, TIMESTAMP_NTZ])
def test_int96(kind):
    data = io.BytesIO()
    moments = pa.array([NOON, None], pa.timestamp("us"))
    pq.write_table(pa.table({"c": moments}), data, use_deprecated_int96_timestamps=True)
    parquet = pq.ParquetFile(data, coerce_int96_timestamp_unit="us")
    [source] = plan_columns(parquet.schema_arrow, [StructField("c", kind)], by_id=False)
    [batch] = parquet.iter_batches()
    assert source.read(batch).to_pylist() == [UTC_NOON if kind == TIMESTAMP else NOON, None]


def test_values_that_do_not_fit_are_refused():
    data = io.BytesIO()
    pq.write_table(pa.table({"c": pa.array([2**40])}), data)
    parquet = pq.ParquetFile(data)
    [source] = plan_columns(parquet.schema_arrow, [StructField("c", INTEGER)], by_id=False)
    with pytest.raises(pa.ArrowInvalid):
        source.read(next(parquet.iter_batches()))
