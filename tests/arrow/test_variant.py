"""Variants: their binary form, and what is shredded put together again.

Tests of table.variant.
"""

import json
import pickle
from datetime import UTC, date, datetime, time
from decimal import Decimal
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refdelta import DeltaTable, variants, write_deltalake
from refdelta.arrow.variant import VARIANT, unshredded
from refdelta.engine.parquet.columns import plan_columns
from refdelta.errors import DataFileError, InvalidArgumentError, PredicateError, SchemaMismatchError
from refdelta.table import types
from refdelta.table import variant as form
from tiers import examples

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
@examples(60)
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


def test_nesting_has_an_end(monkeypatch):
    assert form.DEEPEST == 500
    monkeypatch.setattr(form, "DEEPEST", 8)
    eight = {"a": [[[[[[[1]]]]]]]}
    metadata, value = form.encode(eight)
    assert form.decode(metadata, value) == eight
    with pytest.raises(ValueError, match="nests more than 8 levels deep"):
        form.encode([eight])
    monkeypatch.setattr(form, "DEEPEST", 7)
    with pytest.raises(ValueError, match="nests more than 7 levels deep"):
        form.decode(metadata, value)


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


@pytest.mark.tier("test")
@given(st.lists(values | st.just("no variant"), max_size=6), shapes)
@examples(300)
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


# --- writing -----------------------------------------------------------------------------------------------------


def rows_of(**values):
    """Rows with a variant alone, in a struct, in an array and in a map."""
    ids = pa.array([int(name[1:]) for name in values], pa.int64())
    alone = variants(values.values())
    places = pa.array(range(len(alone) + 1), pa.int32())
    columns = {
        "id": ids,
        "part": pa.compute.bit_wise_and(ids, 1),
        "v": alone,
        "s": pa.StructArray.from_arrays([alone], ["v"]),
        "a": pa.ListArray.from_arrays(places, alone),
        "m": pa.MapArray.from_arrays(places, pa.array(["k"] * len(alone)), alone),
    }
    return pa.table(columns)


def content(path):
    """What each id has, the same at every depth."""
    rows = DeltaTable(path).to_pyarrow_table().to_pylist()
    for row in rows:
        assert row["s"] == {"v": row["v"]}
        assert row["a"] == [row["v"]]
        assert row["m"] == [("k", row["v"])]
    return {row["id"]: row["v"] for row in rows}


@pytest.mark.tier("test")
@pytest.mark.parametrize("vectors", ["true", "false"])
def test_every_operation_keeps_variants(tmp_path, vectors):
    path = tmp_path / "t"
    write_deltalake(
        path,
        rows_of(_1={"a": 1}, _2=None, _3="x"),
        partition_by=["part"],
        configuration={"delta.enableDeletionVectors": vectors},
    )
    write_deltalake(path, rows_of(_4=[1, {"b": 2.5}], _5=7, _6=8), mode="append")
    assert DeltaTable(path).delete("id = 5").metrics["num_deleted_rows"] == 1
    DeltaTable(path).update(updates={"part": "part + 2"}, predicate="id IN (1, 2)")
    source = rows_of(_3="merged", _9={"new": [None]})
    merge = DeltaTable(path).merge(source, "t.id = s.id", source_alias="s", target_alias="t")
    merge.when_matched_update_all().when_not_matched_insert_all().execute()
    expected = {1: {"a": 1}, 2: None, 3: "merged", 4: [1, {"b": 2.5}], 6: 8, 9: {"new": [None]}}
    assert content(path) == expected
    DeltaTable(path).optimize.compact()
    DeltaTable(path).optimize.z_order(["id"])
    assert content(path) == expected
    write_deltalake(path, rows_of(_6={"x": 1}, _8=0), mode="overwrite", predicate="part = 0")
    assert content(path) == {key: expected[key] for key in (1, 2, 3, 9)} | {6: {"x": 1}, 8: 0}
    DeltaTable(path).restore(0)
    assert content(path) == {1: {"a": 1}, 2: None, 3: "x"}


def test_one_variant_takes_the_place_of_another(tmp_path):
    write_deltalake(tmp_path / "t", rows_of(_1=1, _2=2))
    table = DeltaTable(tmp_path / "t")
    table.update(updates={"v": "s.v"}, predicate="id = 1")
    table.update(new_values={"v": None}, predicate="id = 2")
    assert table.to_pyarrow_table(columns=["id", "v"]).to_pylist() == [{"id": 1, "v": 1}, {"id": 2, "v": None}]


def test_files_hold_metadata_and_value_and_nothing_else(tmp_path):
    write_deltalake(tmp_path / "t", rows_of(_1=None, _2={"typed_value": 1}))
    [uri] = DeltaTable(tmp_path / "t").file_uris()
    footer = pq.ParquetFile(uri.removeprefix("file://")).schema
    leaves = {footer.column(i).path: footer.column(i) for i in range(len(footer.names))}
    assert {"v.metadata", "v.value", "s.v.value", "a.list.element.metadata"} <= leaves.keys()
    assert not any("typed_value" in path for path in leaves)
    assert leaves["v.value"].max_definition_level == leaves["v.metadata"].max_definition_level == 1
    assert pq.read_schema(uri.removeprefix("file://")).field("v").type == GROUP
    log = (tmp_path / "t" / "_delta_log" / f"{0:020}.json").read_text().splitlines()
    [stats] = [json.loads(json.loads(line)["add"]["stats"]) for line in log if "add" in json.loads(line)]
    assert stats["minValues"].keys() == {"id", "part"}
    assert (stats["nullCount"]["v"], stats["nullCount"]["s"]) == (1, {"v": 1})


def test_a_table_gets_the_feature_with_its_first_variant(tmp_path):
    write_deltalake(tmp_path / "t", pa.table({"id": [1]}))
    assert "variantType" not in (DeltaTable(tmp_path / "t").protocol().writer_features or ())
    write_deltalake(tmp_path / "t", rows_of(_2={"a": 1}).select(["id", "v"]), mode="append", schema_mode="merge")
    table = DeltaTable(tmp_path / "t")
    assert "variantType" in table.protocol().reader_features
    assert sorted(row["id"] for row in table.to_pyarrow_table(filters="v IS NULL").to_pylist()) == [1]
    with pytest.raises(SchemaMismatchError, match="column v is variant in the table and string in the data"):
        write_deltalake(tmp_path / "t", pa.table({"id": [3], "v": ["{}"]}), mode="append")


def test_shredded_variants_of_others_are_written_whole(tmp_path):
    kind = pa.struct([pa.field("metadata", pa.binary(), False), *arrow_of(pa.int64())])
    rows = pa.array([{"metadata": form.encode(1)[0], "typed_value": 1}, None], kind)
    column = pa.ExtensionArray.from_storage(type(VARIANT)(kind), rows)
    write_deltalake(tmp_path / "t", pa.table({"v": column}))
    assert DeltaTable(tmp_path / "t").to_pyarrow_table()["v"].to_pylist() == [1, None]
    broken = pa.array([{"metadata": None, "typed_value": 1}], pa.struct(list(kind)[1:]))
    broken = pa.StructArray.from_arrays(
        [pa.nulls(1, pa.binary()), *broken.flatten()], ["metadata", "value", "typed_value"]
    )
    column = pa.ExtensionArray.from_storage(type(VARIANT)(broken.type), broken)
    with pytest.raises(SchemaMismatchError, match="column v: a variant has no metadata"):
        write_deltalake(tmp_path / "t", pa.table({"v": column}), mode="append")


def test_variants_have_no_order(tmp_path):
    for option in ("partition_by", "cluster_by"):
        with pytest.raises(InvalidArgumentError, match="variant"):
            write_deltalake(tmp_path / "t", rows_of(_1=1), **{option: ["v"]})
    write_deltalake(tmp_path / "t", rows_of(_1=1))
    with pytest.raises(InvalidArgumentError, match="a variant, which has no order"):
        DeltaTable(tmp_path / "t").optimize.z_order(["v"])


def test_the_type_crosses_processes_and_threads():
    column = variants([1, None])
    table = pickle.loads(pickle.dumps(pa.table({"v": column})))
    assert table["v"].to_pylist() == [1, None]
    assert hash(table.schema) == hash(pa.schema([("v", VARIANT)]))


def test_the_features_under_their_old_names(table):
    log = table / "_delta_log" / f"{0:020}.json"
    text = log.read_text()
    for name in ("variantType", "variantShredding"):
        text = text.replace(f'"{name}"', f'"{name}-preview"')
    log.write_text(text)
    DeltaTable(table).delete("id = 0")
    write_deltalake(table, pa.table({"id": [99], "v": variants([{"k": 99}])}), mode="append")
    read = DeltaTable(table)
    assert read.to_pyarrow_table(columns=["v"], filters="id = 99")["v"].to_pylist() == [{"k": 99}]
    assert sorted(read.protocol().reader_features) == [
        "deletionVectors",
        "variantShredding-preview",
        "variantType-preview",
    ]


def test_columns_of_pyspark_are_variants_too(tmp_path):
    marked = pa.field("metadata", pa.binary(), False, metadata={b"variant": b"true"})
    kind = pa.struct([pa.field("value", pa.binary(), False), marked])
    theirs = variants([{"a": 1}, None]).cast(kind)
    write_deltalake(tmp_path / "t", pa.table({"v": theirs, "a": pa.ListArray.from_arrays([0, 1, 2], theirs)}))
    found = DeltaTable(tmp_path / "t").to_pyarrow_table()
    assert found.to_pylist() == [{"v": {"a": 1}, "a": [{"a": 1}]}, {"v": None, "a": [None]}]
    assert found["v"].combine_chunks().cast(kind).to_pylist() == theirs.to_pylist()
    plain = pa.StructArray.from_arrays([pa.array([b"x"]), pa.array([b"y"])], ["metadata", "value"])
    with pytest.raises(SchemaMismatchError, match="column v is variant in the table and struct"):
        write_deltalake(tmp_path / "t", pa.table({"v": plain}), mode="append")
