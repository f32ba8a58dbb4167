"""Variants: their binary form, and what is shredded put together again."""

import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refdelta import DeltaTable
from refdelta.engine.columns import plan_columns
from refdelta.engine.variant import VARIANT, unshredded
from refdelta.errors import DataFileError, PredicateError
from refdelta.protocol import types
from refdelta.protocol import variant as form

GROUP = pa.struct([pa.field("metadata", pa.binary(), False), pa.field("value", pa.binary(), False)])

names = st.text(max_size=6) | st.sampled_from("abcdé")
decimals = st.decimals(allow_nan=False, allow_infinity=False, places=3, min_value=-(10**20), max_value=10**20)
plain = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1) | st.integers(-200, 200),
    st.floats(allow_nan=False),
    decimals,
    st.text(max_size=8) | st.text(min_size=64, max_size=70),
    st.binary(max_size=8),
    st.dates(),
    st.datetimes(timezones=st.just(UTC)) | st.datetimes(),
    st.times(),
    st.uuids(),
)
values = st.recursive(
    plain, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4), max_leaves=12
)


@given(values)
def test_a_value_is_what_it_was(value):
    assert form.decode(*form.encode(value)) == value


def test_the_form_is_that_of_the_specification():
    assert form.encode({"b": 1, "a": None}) == (
        bytes([0x11, 2, 0, 1, 2]) + b"ab",
        bytes([0b10, 2, 0, 1, 0, 1, 3, 0x00, 0x0C, 1]),
    )
    assert form.encode([True, False, "x"])[1] == bytes([0b11, 3, 0, 1, 2, 4, 0x04, 0x08, 0x05, 0x78])
    assert form.encode(Decimal("1.23"))[1] == bytes([0x20, 2, 123, 0, 0, 0])
    assert form.encode(10**9)[1][0] == 5 << 2
    assert form.encode(10**12)[1][0] == 6 << 2
    assert form.encode(10**20)[1][0] == 10 << 2


def test_wide_numbers_are_read():
    many = {f"name {number}": number for number in range(300)}
    metadata, value = form.encode({"many": many, "long": ["é" * 40_000, *range(300)]})
    assert metadata[0] >> 6 == 1
    assert form.decode(metadata, value) == {"many": many, "long": ["é" * 40_000, *range(300)]}
    assert form.fields_of(metadata, value).keys() == {
        form.names_of(metadata).index("many"),
        form.names_of(metadata).index("long"),
    }


@given(values, st.data())
@settings(max_examples=60)
def test_what_is_cut_off_is_refused(value, data):
    metadata, whole = form.encode(value)
    short = whole[: data.draw(st.integers(0, len(whole) - 1))]
    with pytest.raises(ValueError, match="variant"):
        form.decode(metadata, short)


@pytest.mark.parametrize(
    ("metadata", "value", "what"),
    [
        (b"\x02\x00\x00", b"\x00", "version 1"),
        (b"", b"\x00", "version 1"),
        (b"\x01\x00\x00", bytes([40 << 2]), "unknown type 40"),
        (b"\x01\x00\x00", bytes([0b10, 1, 5, 0, 1, 0]), "not a variant"),
        (b"\x01\x00\x00", b"", "not a variant"),
        (b"\x01\x00\x00", bytes([11 << 2]) + b"\xff\xff\xff\x7f", "not a variant"),
        (b"\x01\x00\x00", bytes([18 << 2]) + b"\x01" + bytes(7), "nanoseconds"),
    ],
)
def test_what_is_no_variant_is_refused(metadata, value, what):
    with pytest.raises(ValueError, match=what):
        form.decode(metadata, value)


@pytest.mark.parametrize(
    ("value", "error"),
    [({1: 2}, TypeError), (object(), TypeError), (10**40, ValueError), (Decimal("NaN"), ValueError)],
)
def test_what_no_variant_holds_is_not_written(value, error):
    with pytest.raises(error):
        form.encode(value)


def test_nesting_has_an_end():
    value = []
    for _ in range(600):
        value = [value]
    with pytest.raises(ValueError, match="nests"):
        form.encode(value)


# --- shredding ---------------------------------------------------------------------------------------------------

LEAVES = {
    pa.bool_(): lambda value: isinstance(value, bool),
    pa.int8(): lambda value: type(value) is int and -128 <= value <= 127,
    pa.int16(): lambda value: type(value) is int and -(2**15) <= value < 2**15,
    pa.int32(): lambda value: type(value) is int and -(2**31) <= value < 2**31,
    pa.int64(): lambda value: type(value) is int,
    pa.float64(): lambda value: isinstance(value, float),
    pa.float32(): lambda value: isinstance(value, float) and float(np.float32(min(value, 1e38))) == value,
    pa.string(): lambda value: isinstance(value, str),
    pa.binary(): lambda value: isinstance(value, bytes),
    pa.date32(): lambda value: isinstance(value, date) and not isinstance(value, datetime),
    pa.timestamp("us", "UTC"): lambda value: isinstance(value, datetime) and value.tzinfo is not None,
    pa.timestamp("us"): lambda value: isinstance(value, datetime) and value.tzinfo is None,
    pa.time64("us"): lambda value: isinstance(value, time),
    pa.decimal128(38, 3): lambda value: isinstance(value, Decimal),
    pa.binary(16): lambda value: isinstance(value, UUID),
}
shapes = st.recursive(
    st.sampled_from([None, *LEAVES]),
    lambda inner: st.tuples(inner) | st.dictionaries(st.sampled_from("abcdé"), inner, min_size=1, max_size=3),
    max_leaves=5,
)


def arrow_of(shape):
    """The Arrow type of a group of ``value`` and ``typed_value``."""
    group = [pa.field("value", pa.binary())]
    if isinstance(shape, tuple):
        group.append(pa.field("typed_value", pa.list_(pa.field("element", arrow_of(shape[0]), False))))
    elif isinstance(shape, dict):
        parts = [pa.field(name, arrow_of(part), False) for name, part in shape.items()]
        group.append(pa.field("typed_value", pa.struct(parts)))
    elif shape is not None:
        group.append(pa.field("typed_value", shape))
    return pa.struct(group)


def shred(value, shape, numbers):
    if isinstance(shape, tuple) and isinstance(value, list):
        return {"typed_value": [shred(part, shape[0], numbers) for part in value]}
    if isinstance(shape, dict) and isinstance(value, dict):
        rest = {name: part for name, part in value.items() if name not in shape}
        typed = {name: shred(value[name], part, numbers) if name in value else {} for name, part in shape.items()}
        return {"typed_value": typed} | ({"value": form.encode_value(rest, numbers)} if rest else {})
    if isinstance(shape, pa.DataType) and LEAVES[shape](value):
        return {"typed_value": value.bytes if isinstance(value, UUID) else value}
    return {"value": form.encode_value(value, numbers)}


@given(st.lists(values | st.just("no variant"), max_size=6), shapes)
@settings(max_examples=300, deadline=None)
def test_what_is_shredded_is_put_together(rows, shape):
    stored, expected = [], []
    for row in rows:
        if row == "no variant":
            stored.append(None)
            continue
        metadata, _ = form.encode([row, ["abcdé", dict.fromkeys("abcdé")]])
        numbers = {name: number for number, name in enumerate(form.names_of(metadata))}
        stored.append({"metadata": metadata} | shred(row, shape, numbers))
    kind = pa.struct([pa.field("metadata", pa.binary(), False), *arrow_of(shape)])
    array = pa.array([None, *stored, None], kind)
    expected = [None, *(None if row == "no variant" else row for row in rows), None]
    for part in (array, array.slice(1), array.slice(1, len(rows))):
        found = unshredded(part)
        assert found.type == GROUP
        found.validate(full=True)
        assert found.is_null().to_pylist() == part.is_null().to_pylist()
    made = pa.ExtensionArray.from_storage(VARIANT, unshredded(array))
    assert made.to_pylist() == expected
    # Shredded ones that pyarrow itself has read are Python's values too.
    assert pa.ExtensionArray.from_storage(type(VARIANT)(array.type), array).to_pylist() == expected


def test_shredded_values_are_as_narrow_as_others():
    metadata, value = form.encode({"a": 1, "b": ["x", None]})
    shape = {"a": pa.int8(), "b": (pa.string(),)}
    numbers = {name: number for number, name in enumerate(form.names_of(metadata))}
    kind = pa.struct([pa.field("metadata", pa.binary(), False), *arrow_of(shape)])
    row = {"metadata": metadata} | shred({"a": 1, "b": ["x", None]}, shape, numbers)
    assert unshredded(pa.array([row], kind)).to_pylist() == [{"metadata": metadata, "value": value}]


def test_what_is_missing_where_it_must_not_be_is_null():
    kind = pa.struct([pa.field("metadata", pa.binary()), pa.field("value", pa.binary())])
    array = pa.array([{"metadata": b"\x01\x00\x00", "value": None}], kind)
    assert unshredded(array).to_pylist() == [{"metadata": b"\x01\x00\x00", "value": b"\x00"}]


def test_contradictions_are_refused():
    kind = pa.struct([pa.field("metadata", pa.binary()), *arrow_of({"a": pa.int64()})])
    number = {"typed_value": {"a": {"typed_value": 1}}}
    for row, what in [
        ({"metadata": None, **number}, "no metadata"),
        ({"metadata": b"\x01\x00\x00", **number}, "lacks the name of its field 'a'"),
        ({"metadata": form.encode({"a": 1})[0], "value": b"\x00", **number}, "not an object"),
    ]:
        with pytest.raises(ValueError, match=what):
            unshredded(pa.array([row], kind))


@pytest.mark.parametrize("kind", [pa.int64(), pa.struct({"value": pa.binary()}), pa.struct({"metadata": pa.int8()})])
def test_other_columns_are_no_variants(kind):
    with pytest.raises(ValueError, match="its column v is"):
        plan_columns(pa.schema([("v", kind)]), [types.StructField("v", types.VARIANT)], by_id=False)


# --- tables ------------------------------------------------------------------------------------------------------


@pytest.fixture
def table(tmp_path):
    """A table with variants at every depth, in three files: as Spark 4.0 wrote them, annotated, and shredded."""
    schema = {
        "type": "struct",
        "fields": [
            {"name": name, "type": kind, "nullable": True, "metadata": {}}
            for name, kind in {
                "id": "long",
                "v": "variant",
                "s": {"type": "struct", "fields": [{"name": "v", "type": "variant", "nullable": True, "metadata": {}}]},
                "a": {"type": "array", "elementType": "variant", "containsNull": True},
                "m": {"type": "map", "keyType": "string", "valueType": "variant", "valueContainsNull": True},
            }.items()
        ],
    }
    features = ["variantType", "variantShredding", "deletionVectors"]
    actions = [
        {"protocol": dict.fromkeys(["readerFeatures", "writerFeatures"], features)
         | {"minReaderVersion": 3, "minWriterVersion": 7}},
        {"metaData": {"id": "t", "format": {"provider": "parquet", "options": {}}, "partitionColumns": [],
                      "configuration": {}, "schemaString": json.dumps(schema)}},
    ]  # fmt: skip
    for number, shape in enumerate([None, pa.int64(), {"k": pa.int64()}]):
        # As old writers: the value first.
        group = pa.struct([*arrow_of(shape), pa.field("metadata", pa.binary(), False)])

        def stored(value, shape=shape):
            metadata, _ = form.encode(value)
            numbers = {name: at for at, name in enumerate(form.names_of(metadata))}
            return {"metadata": metadata} | shred(value, shape, numbers)

        rows = [
            {"id": number * 10, "v": stored({"k": number}), "s": {"v": stored(number)}, "a": [stored(None), None],
             "m": [("x", stored([number])), ("y", None)]},
            {"id": number * 10 + 1, "v": None, "s": None, "a": None, "m": None},
            {"id": number * 10 + 2, "v": stored(None), "s": {"v": None}, "a": [], "m": []},
        ]  # fmt: skip
        fields = {"id": pa.int64(), "v": group, "s": pa.struct({"v": group}), "a": pa.list_(group)}
        fields["m"] = pa.map_(pa.string(), group)
        pq.write_table(pa.Table.from_pylist(rows, pa.schema(fields)), tmp_path / f"{number}.parquet")
        stats = {"numRecords": 3, "nullCount": {"id": 0, "v": 1}, "minValues": {"v": "0rAfabWhTiwQbUe0S-o32]H.-000"}}
        stats["maxValues"] = stats["minValues"]
        add = {"path": f"{number}.parquet", "partitionValues": {}, "size": 1, "modificationTime": 0}
        actions.append({"add": add | {"dataChange": True, "stats": json.dumps(stats)}})
    log = tmp_path / "_delta_log"
    log.mkdir()
    (log / f"{0:020}.json").write_text("\n".join(map(json.dumps, actions)))
    return tmp_path


def test_a_table_with_variants_is_read(table):
    found = DeltaTable(table).to_pyarrow_table()
    assert found.schema.field("v").type == VARIANT
    assert found.schema.field("a").type.value_type == VARIANT
    rows = sorted(found.to_pylist(), key=lambda row: row["id"])
    for number in range(3):
        full = {"id": number * 10, "v": {"k": number}, "s": {"v": number}, "a": [None, None]}
        assert rows[number * 3] == full | {"m": [("x", [number]), ("y", None)]}
        assert rows[number * 3 + 1] == {"id": number * 10 + 1, "v": None, "s": None, "a": None, "m": None}
        assert rows[number * 3 + 2] == {"id": number * 10 + 2, "v": None, "s": {"v": None}, "a": [], "m": []}
    valid = found["v"].is_valid().to_pylist()
    assert valid.count(True) == 6, "a variant null is no missing variant"


def test_predicates_ask_variants_only_whether_they_are_there(table):
    read = DeltaTable(table)
    for predicate, count in [("v IS NULL", 3), ("v IS NOT NULL", 6), ("id = 2", 1), ("v IS NOT NULL AND id > 9", 4)]:
        assert read.to_pyarrow_table(filters=predicate).num_rows == count
    with pytest.raises(PredicateError, match="only IS NULL can be asked of it"):
        read.to_pyarrow_table(filters="v = 1")


def test_a_file_with_other_columns_is_named(table):
    rows = pa.table({"id": [1], "v": ["{}"], "s": [{"v": None}], "a": [None], "m": [None]})
    pq.write_table(rows, table / "0.parquet")
    with pytest.raises(DataFileError, match=r"its column v is string.*0\.parquet|0\.parquet.*its column v is string"):
        DeltaTable(table).to_pyarrow_table()
